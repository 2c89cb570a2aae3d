"""Trace → Tree, for launches without ranges: iterations and outlines become one frame of nodes, and every launch
gets its innermost node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from xsp_post.inference.blocks import class_numbers, places
from xsp_post.inference.labels import OPTIMISER, Traits, family_label, guess_type, is_network, with_softmax
from xsp_post.inference.repetition import PARTIAL, REGULAR
from xsp_post.inference.turns import (
    BLOCK_ROW,
    PART_ROW,
    PHASE,
    STRETCH,
    Iterations,
    Outline,
    outline,
    same_content,
)
from xsp_post.model.confidence import block_confidence

# An iteration whose boundaries fit the typical one less than this gets an outline of its own.
_LEAST_FIT = 0.75
_MOST_OUTLINES = 8
_KIND_NAMES = np.array(["phase", "block", "part", "stretch", "iteration", "around"], dtype=object)
_ITERATION, _AROUND = 4, 5


@dataclass
class Sequence:
    """Launches that follow one another: rows of the launch frame in order, and what was found in them."""

    rows: np.ndarray
    symbols: np.ndarray
    thread: np.ndarray
    duration: np.ndarray
    launch_start: np.ndarray
    launch_end: np.ndarray
    traits: Traits
    iterations: Iterations
    process_index: int
    phase_of_series: tuple[str, ...] = ()  # where known: what the iterations of each repetition are
    left_out: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # rows that go where `home` goes
    home: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # the rows of the sequence behind them

    @classmethod
    def of(
        cls, launches: pd.DataFrame, rows: np.ndarray, symbols: np.ndarray, iterations: Iterations, traits: Traits
    ) -> Sequence:
        taken = Traits(*(getattr(traits, name)[rows] for name in Traits.__dataclass_fields__))
        start, end = launches["start_ns"].to_numpy()[rows], launches["end_ns"].to_numpy()[rows]
        return cls(
            rows,
            symbols,
            launches["thread_index"].to_numpy()[rows].astype(np.int64),
            np.maximum(end - start, 0),
            launches["launch_start_ns"].to_numpy()[rows],
            launches["launch_end_ns"].to_numpy()[rows],
            taken,
            iterations,
            int(launches["process_index"].to_numpy()[rows[0]]),
        )

    def with_left_out(self, rows: np.ndarray, is_left_out: np.ndarray, launches: pd.DataFrame) -> Sequence:
        """The sequence, of ``rows`` those that are not left out; each of these goes to the next that is not."""
        kept = np.where(is_left_out, len(rows), np.arange(len(rows)))
        following = np.minimum.accumulate(kept[::-1])[::-1][is_left_out]
        start = self.launch_start.copy()
        place = np.searchsorted(np.flatnonzero(~is_left_out), following)
        np.minimum.at(start, place, launches["launch_start_ns"].to_numpy()[rows[is_left_out]])
        return replace(self, left_out=rows[is_left_out], home=rows[following], launch_start=start)

    def label(self, start: int, end: int) -> str:
        """Families of the launches [start, end) in words."""
        return family_label(with_softmax(self.traits, np.arange(start, end)), self.duration[start:end])


@dataclass
class _Rows:
    """Node columns being gathered; parent refers to rows of the whole."""

    columns: dict[str, list[np.ndarray]]
    count: int = 0

    def add(self, **columns: np.ndarray) -> int:
        """Append rows; returns the number of the first."""
        first = self.count
        size = len(columns["start"])
        for name, value in columns.items():
            self.columns.setdefault(name, []).append(np.asarray(value))
        self.count += size
        return first


_COLUMNS = {
    "parent": np.int64, "depth": np.int64, "level": object, "kind": np.int8, "name": object, "folded_name": object,
    "iteration_index": np.int64, "iteration_class": object, "series_index": np.int64, "block_index": np.int64,
    "block_count": np.int64, "content": np.uint64, "matched_block_index": np.int64, "layer_type": object,
    "confidence": np.float64, "sequence": np.int64, "start": np.int64, "end": np.int64,
}  # fmt: skip


def nodes_of(sequences: list[Sequence], launches: pd.DataFrame, covered: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """The frame of `build.Inference.nodes` and the innermost node of each launch (int64, −1 none)."""
    gathered = _Rows({name: [] for name in _COLUMNS})
    below: list[_Below] = []
    next_iteration = 0
    main: dict[int, tuple[Sequence, np.ndarray, int]] = {}  # per process: its longest sequence with iterations
    for number, sequence in enumerate(sequences):
        if sequence.process_index not in main:
            tops = _add_iterations(gathered, sequence, number, next_iteration)
            if len(tops):
                main[sequence.process_index] = (sequence, tops, next_iteration)
            base, next_iteration = next_iteration, next_iteration + len(tops)
        else:
            first, tops, base = main[sequence.process_index]
            tops = _join_iterations(below, sequence, number, first, tops)
        if len(tops) == len(sequence.iterations):
            _add_insides(gathered, sequence, number, tops, base)
        _add_around(gathered, sequence, number, below)
    frame = pd.DataFrame({
        name: np.concatenate(parts).astype(_COLUMNS[name]) if parts else np.empty(0, _COLUMNS[name])
        for name, parts in gathered.columns.items()
    })  # fmt: skip
    innermost = _innermost(frame, sequences, below, len(launches))
    innermost[covered] = -1
    return _finished(frame, sequences, innermost)


# ---------------------------------------------------------------- iterations and what is around them


@dataclass
class _Below:
    """Launches [starts, ends) of another sequence (a second stream or thread) that lie below nodes of the first."""

    sequence: int
    nodes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def _join_iterations(
    below: list[_Below], sequence: Sequence, number: int, main: Sequence, tops: np.ndarray
) -> np.ndarray:
    """Put a second sequence of a process under the iterations of its first one.

    Its own iterations, where it has as many and each lies mostly within its twin's time; else by launch time.
    Returns the nodes of its own iterations (shape of its iterations), or none.
    """
    begin = main.launch_start[main.iterations.starts]
    own = sequence.iterations
    if len(own) == len(tops):
        middle = sequence.launch_start[(own.starts + own.ends - 1) // 2]
        if (np.searchsorted(begin, middle, side="right") - 1 == np.arange(len(tops))).mean() >= 0.9:
            below.append(_Below(number, tops, own.starts, own.ends))
            return tops
    starts = np.searchsorted(sequence.launch_start, begin)
    last = np.maximum.accumulate(main.launch_end)[main.iterations.ends - 1]
    ends = np.minimum(np.searchsorted(sequence.launch_start, last), np.append(starts[1:], len(sequence.rows)))
    below.append(_Below(number, tops, starts, np.maximum(ends, starts)))
    return tops[:0]


def _add_iterations(gathered: _Rows, sequence: Sequence, number: int, base: int) -> np.ndarray:
    found = sequence.iterations
    count = len(found)
    classes = _classes(sequence)
    names = _series_names(sequence)
    series_name = np.array([names[s] for s in found.series.tolist()], dtype=object)
    regular = np.array([float((r.kinds == REGULAR).mean()) for r in found.repetitions])
    times = np.bincount(found.series, weights=found.kinds == REGULAR, minlength=len(regular))
    sure = regular * (1 - 0.5 ** np.maximum(times, 1))
    first = gathered.add(
        parent=np.full(count, -1),
        depth=np.zeros(count),
        level=np.full(count, "MODEL", object),
        kind=np.full(count, _ITERATION),
        name=np.array([f"{n} {i}" for i, n in zip(_within(found.series), series_name, strict=True)], dtype=object),
        folded_name=series_name,
        iteration_index=base + np.arange(count),
        iteration_class=classes,
        series_index=found.series,
        block_index=np.zeros(count),
        block_count=np.zeros(count),
        content=same_content(sequence.symbols, found.starts, found.ends),
        matched_block_index=np.zeros(count),
        layer_type=np.full(count, "", object),
        confidence=np.round(sure[found.series] * np.where(found.kinds == REGULAR, 1.0, 0.5), 2),
        sequence=np.full(count, number),
        start=found.starts,
        end=found.ends,
    )
    return first + np.arange(count)


def _within(series: np.ndarray) -> np.ndarray:
    """0, 1, 2 … within each series."""
    return pd.Series(series).groupby(series).cumcount().to_numpy()


def _classes(sequence: Sequence) -> np.ndarray:
    """regular, warm-up (leading ones that differ, or take twice as long on the host), odd, tail."""
    found = sequence.iterations
    result = np.where(found.kinds == REGULAR, "regular", "odd").astype(object)
    result[found.kinds == PARTIAL] = "tail"
    length = sequence.launch_end[found.ends - 1] - sequence.launch_start[found.starts]
    for series in range(len(found.repetitions)):
        mine = np.flatnonzero(found.series == series)
        usual = np.median(length[mine][found.kinds[mine] == REGULAR])
        slow = (length[mine] > 2 * usual) | (found.kinds[mine] != REGULAR)
        leading = np.cumprod(slow).astype(bool) & (np.arange(len(mine)) < max(1, len(mine) // 3))
        result[mine[leading]] = "warm-up"
    return result


def _series_names(sequence: Sequence) -> list[str]:
    """One name per repetition: ``training step`` with a backward pass, else ``iteration``; distinguished by size."""
    names = []
    for repetition in sequence.iterations.repetitions:
        rows = np.arange(*repetition.template)
        trains = sequence.traits.is_optimiser[rows].any() and sequence.traits.is_backward[rows].any()
        names.append("training step" if trains else "iteration")
    sizes = [r.period for r in sequence.iterations.repetitions]
    named = [f"{n} ({s:,} kernels)" if names.count(n) > 1 else n for n, s in zip(names, sizes, strict=True)]
    nth = [named[:number].count(name) + 1 for number, name in enumerate(named)]
    return [f"{name} of kind {k}" if k > 1 else name for name, k in zip(named, nth, strict=True)]


def _add_around(gathered: _Rows, sequence: Sequence, number: int, below: list[_Below]) -> None:
    """What lies before, between and after the iterations: a node of its own each, never forced into one."""
    first, last = sequence.iterations.starts, sequence.iterations.ends
    if below and below[-1].sequence == number:
        first, last = below[-1].starts, below[-1].ends
    if not len(first):
        return
    n = len(sequence.rows)
    starts = np.concatenate([[0], last])
    ends = np.concatenate([first, [n]])
    some = np.flatnonzero(ends > starts)
    where = np.where(some == 0, "before", np.where(some == len(first), "after", "between"))
    labels = [sequence.label(a, b) for a, b in zip(starts[some].tolist(), ends[some].tolist(), strict=True)]
    count = len(some)
    gathered.add(
        parent=np.full(count, -1),
        depth=np.zeros(count),
        level=np.full(count, "APPLICATION", object),
        kind=np.full(count, _AROUND),
        name=np.array([f"{w} the iterations · {t}" for w, t in zip(where, labels, strict=True)], dtype=object),
        folded_name=np.array([f"{w} the iterations" for w in where], dtype=object),
        iteration_index=np.full(count, -1),
        iteration_class=np.full(count, "", object),
        series_index=np.full(count, -1),
        block_index=np.zeros(count),
        block_count=np.zeros(count),
        content=np.zeros(count, np.uint64),
        matched_block_index=np.zeros(count),
        layer_type=np.full(count, "", object),
        confidence=np.full(count, 0.5),
        sequence=np.full(count, number),
        start=starts[some],
        end=ends[some],
    )


# ---------------------------------------------------------------- inside the iterations


def _add_insides(gathered: _Rows, sequence: Sequence, number: int, tops: np.ndarray, base: int) -> None:
    found = sequence.iterations
    if not len(found):
        return
    content = same_content(sequence.symbols, found.starts, found.ends)
    budget = max(50_000, len(sequence.rows) // 2)
    for series, repetition in enumerate(found.repetitions):
        open_rows = np.flatnonzero(found.series == series)
        typical = repetition.template
        for _ in range(_MOST_OUTLINES):
            if not len(open_rows):
                break
            phase = sequence.phase_of_series[series] if sequence.phase_of_series else ""
            drawn = _outline(sequence, *typical, len(open_rows), budget, phase)
            offsets = np.unique(np.concatenate([drawn.start, drawn.end]))
            place, fit = places(
                sequence.symbols, found.starts[open_rows], found.ends[open_rows], drawn.symbols, offsets
            )
            length = found.ends[open_rows] - found.starts[open_rows]
            alike = np.abs(length - (typical[1] - typical[0])) <= 0.02 * length
            fits = (fit >= _LEAST_FIT) & ((found.kinds[open_rows] == REGULAR) | alike)
            if not fits.any():
                fits = content[open_rows] == same_content(
                    sequence.symbols, np.array([typical[0]]), np.array([typical[1]])
                )
            chosen = open_rows[fits]
            if len(drawn) and len(chosen):
                _add_outline(gathered, sequence, number, drawn, offsets, place[fits], fit[fits], tops[chosen],
                             base + chosen, series)  # fmt: skip
            open_rows = open_rows[~fits]
            if len(open_rows):
                typical = _most_common(open_rows, content, found)


def _most_common(rows: np.ndarray, content: np.ndarray, found: Iterations) -> tuple[int, int]:
    codes = class_numbers(content[rows])
    row = rows[int(np.argmax(codes == np.bincount(codes).argmax()))]
    return int(found.starts[row]), int(found.ends[row])


def _outline(sequence: Sequence, start: int, end: int, times: int, budget: int, phase: str = "") -> Outline:
    """The outline of the iteration [start, end), less deep where its nodes times the iterations get too many."""
    rows = np.arange(start, end)
    network = is_network(sequence.traits, rows)
    for deepest in (3, 1, 0):
        drawn = outline(
            sequence.symbols[rows],
            sequence.thread[rows],
            sequence.traits,
            rows,
            deepest=deepest,
            with_phases=network,
            phase=phase,
        )
        if len(drawn) * times <= budget:
            break
    return drawn


def _add_outline(
    gathered: _Rows,
    sequence: Sequence,
    number: int,
    drawn: Outline,
    offsets: np.ndarray,
    place: np.ndarray,
    fit: np.ndarray,
    tops: np.ndarray,
    iteration_index: np.ndarray,
    series: int,
) -> None:
    times, size = len(tops), len(drawn)
    start = place[:, np.searchsorted(offsets, drawn.start)]
    end = place[:, np.searchsorted(offsets, drawn.end)]
    shown = int(np.argmax(fit))
    described = _describe(sequence, drawn, start[shown], end[shown])
    first = gathered.count
    base = first + size * np.arange(times)[:, None]
    parent = np.where(drawn.parent >= 0, drawn.parent + base, tops[:, None])
    alike = _alike(drawn)
    gathered.add(
        parent=parent.ravel(),
        depth=np.tile(drawn.depth + 1, times),
        level=np.tile(described["level"], times),
        kind=np.tile(drawn.kind, times),
        name=np.tile(described["name"], times),
        folded_name=np.tile(described["folded_name"], times),
        iteration_index=np.repeat(iteration_index, size),
        iteration_class=np.full(times * size, "", object),
        series_index=np.full(times * size, series),
        block_index=np.tile(np.where(drawn.kind == BLOCK_ROW, drawn.index, 0), times),
        block_count=np.tile(np.where(drawn.kind == BLOCK_ROW, drawn.count, 0), times),
        content=np.tile(drawn.content, times),
        matched_block_index=np.tile(drawn.mirrored, times),
        layer_type=np.tile(described["layer_type"], times),
        confidence=np.round(fit[:, None] * alike, 2).ravel(),
        sequence=np.full(times * size, number),
        start=start.ravel(),
        end=end.ravel(),
    )


def _alike(drawn: Outline) -> np.ndarray:
    """How sure each row of an outline is, were its boundaries to fit perfectly (`model.confidence`)."""
    size = drawn.end - drawn.start
    top = (drawn.kind == BLOCK_ROW) & ((drawn.parent < 0) | (drawn.kind[np.maximum(drawn.parent, 0)] == PHASE))
    is_most = size[top].sum() >= 0.5 * len(drawn.symbols)
    blocks = block_confidence(np.maximum(drawn.count, 1), is_most)
    return np.select([drawn.kind == BLOCK_ROW, drawn.kind == PHASE], [blocks, 0.8], 0.9)


def _describe(sequence: Sequence, drawn: Outline, start: np.ndarray, end: np.ndarray) -> dict[str, np.ndarray]:
    """Names, levels and guesses of an outline's rows; equal blocks are looked at once."""
    network = is_network(sequence.traits, np.arange(int(start.min()), int(end.max())) if len(start) else start)
    size = len(drawn)
    label, kind_guess = np.full(size, "", object), np.full(size, "", object)
    key = np.where(drawn.content == 0, np.arange(size).astype(np.uint64), drawn.content)
    _, first, same = np.unique(key, return_index=True, return_inverse=True)
    texts = [sequence.label(int(start[row]), int(end[row])) for row in first.tolist()]
    guesses = [
        guess_type(sequence.traits, np.arange(start[row], end[row]), sequence.duration[start[row] : end[row]])
        for row in first.tolist()
    ]
    label[:] = np.array(texts, dtype=object)[same]
    if network:
        kind_guess[:] = np.array(guesses, dtype=object)[same]
    name, folded = np.full(size, "", object), np.full(size, "", object)
    for row, kind in enumerate(drawn.kind.tolist()):
        name[row], folded[row] = _name(drawn, row, kind, str(label[row]), network)
    is_phase = drawn.kind == PHASE
    kind_guess[is_phase] = ""
    outermost = (drawn.parent < 0) | (drawn.kind[np.maximum(drawn.parent, 0)] == PHASE)
    of_layers = ~np.array([drawn.label[p].startswith(OPTIMISER) if p >= 0 else False for p in drawn.parent.tolist()])
    level = np.where(is_phase, "MODULE", np.where(outermost & of_layers, "LAYER" if network else "MODULE", "OPERATION"))
    return {"name": name, "folded_name": folded, "layer_type": kind_guess, "level": level.astype(object)}


def _name(drawn: Outline, row: int, kind: int, label: str, network: bool) -> tuple[str, str]:
    if kind == PHASE:
        return drawn.label[row], drawn.label[row]
    block = "block" if network else "repeated part"
    before = {BLOCK_ROW: block, PART_ROW: "part", STRETCH: f"beside {block}s"}[kind]
    after = f" of {block}" if kind == PART_ROW else ""
    text = f"{before} {drawn.index[row]}/{drawn.count[row]}{after} · {label}"
    return text, f"{before} · {label}" if kind == BLOCK_ROW else f"{before} {drawn.index[row]}{after} · {label}"


# ---------------------------------------------------------------- launches, times, order


def _innermost(frame: pd.DataFrame, sequences: list[Sequence], below: list[_Below], launch_count: int) -> np.ndarray:
    """Paint the launches of each node, outermost nodes first; int64 (launches,), −1 none."""
    result = np.full(launch_count, -1, np.int64)
    depth, owner = frame["depth"].to_numpy(), frame["sequence"].to_numpy()
    start, end = frame["start"].to_numpy(), frame["end"].to_numpy()
    for other in below:
        at, node = _spread(other.starts, other.ends, other.nodes)
        result[sequences[other.sequence].rows[at]] = node
    for number, sequence in enumerate(sequences):
        for level in range(int(depth.max(initial=-1)) + 1):
            rows = np.flatnonzero((depth == level) & (owner == number))
            at, node = _spread(start[rows], end[rows], rows)
            result[sequence.rows[at]] = node
        result[sequence.left_out] = result[sequence.home]
    return result


def _spread(starts: np.ndarray, ends: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every position in the stretches [starts, ends), and the node of its stretch."""
    sizes = np.maximum(ends - starts, 0)
    at = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    return at, np.repeat(nodes, sizes)


def _finished(frame: pd.DataFrame, sequences: list[Sequence], innermost: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Drop nodes without launches, order by time, add host times and counts; renumber."""
    count = len(frame)
    own = np.bincount(innermost[innermost >= 0], minlength=count).astype(np.int64)
    parent, depth = frame["parent"].to_numpy(), frame["depth"].to_numpy()
    total = own.copy()
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depth == level)
        np.add.at(total, parent[rows], total[rows])
    start_ns, end_ns = np.zeros(count, np.int64), np.zeros(count, np.int64)
    thread, process = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    owner, start, end = (frame[c].to_numpy() for c in ("sequence", "start", "end"))
    keep = np.flatnonzero(total > 0)
    for number, sequence in enumerate(sequences):
        rows = keep[owner[keep] == number]
        start_ns[rows] = sequence.launch_start[start[rows]]
        latest = np.maximum.accumulate(sequence.launch_end)
        end_ns[rows] = np.maximum(latest[end[rows] - 1], start_ns[rows])
        thread[rows] = sequence.thread[start[rows]]
        process[rows] = sequence.process_index
    for level in range(int(depth.max(initial=0)), 0, -1):  # an iteration spans what its other streams launch
        rows = keep[depth[keep] == level]
        np.minimum.at(start_ns, parent[rows], start_ns[rows])
        np.maximum.at(end_ns, parent[rows], end_ns[rows])
    order = keep[np.lexsort((depth[keep], start_ns[keep]))]
    new_row = np.full(count + 1, -1, np.int64)
    new_row[order] = np.arange(len(order))
    nodes = frame.iloc[order].reset_index(drop=True)
    nodes["parent"] = new_row[parent[order]]
    content = nodes.pop("content").to_numpy()
    equal = np.full(len(nodes), -1, np.int64)
    some = content != 0
    equal[some] = class_numbers(content[some])
    nodes["equal_class"] = equal
    nodes["kind"] = _KIND_NAMES[nodes["kind"].to_numpy()] if len(nodes) else np.empty(0, object)
    nodes["process_index"], nodes["thread_index"] = process[order], thread[order]
    nodes["launch_count"], nodes["self_launch_count"] = total[order], own[order]
    nodes["start_ns"], nodes["end_ns"] = start_ns[order], end_ns[order]
    nodes = nodes.rename(columns={"start": "first_launch", "end": "end_launch", "sequence": "sequence_index"})
    return nodes, new_row[innermost]
