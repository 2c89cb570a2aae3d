"""Launches → executions and blocks inferred from what repeats: all sequences of a capture.

`infer` and `infer_inside` are all that other rooms call; they take arrays and give nodes, an assignment of launches,
and findings.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.model.trace import ActivityKind
from xsp_post.tree.structure.constants import DEFAULTS, Constants
from xsp_post.tree.structure.executions import (
    LAYER,
    REGULAR,
    Executions,
    Launches,
    facts_of,
    find_executions,
    structure_of,
)
from xsp_post.tree.structure.fold import Loops, find_loops
from xsp_post.tree.structure.hashes import Hashed, random_words
from xsp_post.tree.structure.labels import Traits
from xsp_post.tree.structure.nodes import nodes_of
from xsp_post.tree.structure.outline import Sequence
from xsp_post.tree.structure.weighing import score

_MOST_COMPANIES = 8  # threads that others are compared with


@dataclass
class Inference:
    """Inferred nodes and the launches below them.

    nodes             one row per node, parents first: parent (row, −1 top), depth, level (``APPLICATION``, ``MODEL``,
                      ``MODULE``, ``LAYER``, ``OPERATION``), kind (``iteration``, ``around``, ``phase``, ``block``,
                      ``part``, ``stretch``), name, folded_name, iteration_index (−1 outside), iteration_class
                      (``regular``, ``odd``, ``tail``, ''), series_index, block_index, block_count (k of
                      n equal blocks, 1-based, 0 none), equal_class (equal number = equal launches, −1),
                      matched_block_index (of a backward block its forward block, 0 none), layer_type, confidence
                      (0…1), process_index, thread_index, launch_count, self_launch_count, start_ns, end_ns (host),
                      sequence_index, first_launch, end_launch (positions in the launch order of that sequence,
                      end exclusive, launches that ranges account for included)
    node_of_launch    row of `nodes` for each row of the launches given, −1 none; int64 (n,)
    findings          why, or why not, and how to record the real thing
    sequences         launches that follow one another, as they were read
    """

    nodes: pd.DataFrame
    node_of_launch: np.ndarray
    findings: list[Finding] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)

    @property
    def iterations(self) -> pd.DataFrame:
        """The nodes that are iterations, in order."""
        return self.nodes[self.nodes["kind"] == "iteration"]


def infer(
    launches: pd.DataFrame, names: Strings, *, hints: pd.DataFrame | None = None, constants: Constants = DEFAULTS
) -> Inference:
    """Iterations and blocks of a capture from its launch sequence alone; near-linear in the launches.

    launches  one row per kernel execution or opaque graph launch, any order: process_index, thread_index,
              name_id, launch_start_ns, launch_end_ns (−1: no launch row; such are left out), start_ns, end_ns
              (device), all integer; optional device_id, context_id, stream_id, grid_x … block_z, graph_id, home (the
              range around it: no execution reaches from one into the next), is_covered (bool: a recorded range
              accounts for it: it helps to find what repeats, but gets no inferred node), and has_operator (bool: an
              operator was recorded around it, which may be a layer)
    names     kernel names that name_id indexes
    hints     optional: process_index, thread_index, start_ns and is_wait (else: a copy) of the host's waits and copies
    """
    covered = launches["is_covered"].to_numpy() if "is_covered" in launches else np.zeros(len(launches), bool)
    open_count = int((~covered).sum())
    nothing = Inference(nodes_of([], launches, covered)[0], np.full(len(launches), -1, np.int64))
    if not open_count:
        return nothing
    if len(launches) < constants.fewest_launches or open_count < constants.fewest_launches:
        example = f"{open_count} kernels without a range; at least {constants.fewest_launches} are needed"
        nothing.findings.append(finding("too-few-kernels", count=open_count, example=example))
        return nothing
    traits = Traits.of_names(names, launches["name_id"].to_numpy())
    sequences: list[Sequence] = []
    reasons: list[str] = []
    for process in np.unique(launches["process_index"].to_numpy()).tolist():
        found, reason = _of_process(launches, process, traits, hints, constants)
        sequences += found
        if reason:
            reasons.append(reason)
    nodes, node_of_launch = nodes_of(sequences, launches, covered)
    result = Inference(nodes, node_of_launch, sequences=sequences)
    result.findings += _findings(result, reasons, open_count)
    return result


def explained(
    sequences: list[Sequence], process: np.ndarray, begin: np.ndarray, end: np.ndarray, series: np.ndarray
) -> tuple[float, float]:
    """How well executions explain the launches of their processes, by `weighing.score`: those given (one entry each:
    host times in ns, and the number of those alike), and those that were found in the launches."""
    given, found = 0.0, 0.0
    for one in sequences:
        mine = np.flatnonzero(process == one.process_index)
        mine = mine[np.argsort(begin[mine], kind="stable")]
        first, last = (np.searchsorted(one.launch_start, times[mine]) for times in (begin, end))
        last[:-1] = np.minimum(last[:-1], first[1:])
        some = last > first
        cuts = [
            (first[some], last[some], series[mine][some]),
            (one.executions.starts, one.executions.ends, one.executions.series),
        ]
        facts = facts_of(one.structure, one)
        scores = [score("", cut, facts) if len(cut[0]) else 0.0 for cut in cuts]
        given, found = given + len(one) * scores[0], found + len(one) * scores[1]
    return given, found


def _findings(result: Inference, reasons: list[str], open_count: int) -> list[Finding]:
    placed = int((result.node_of_launch >= 0).sum())
    found = if_any("inferred-structure", placed, lambda _: _summary(result.iterations, result.nodes))
    if reasons:
        found.append(finding("nothing-repeats", count=open_count - placed, example=reasons[0]))
    return found


def _summary(iterations: pd.DataFrame, nodes: pd.DataFrame) -> str:
    """``4 iterations of 1,832 kernels, 32 blocks in each``, one clause per repetition."""
    clauses = []
    for (_, name), group in iterations.groupby(["series_index", "folded_name"], sort=False):
        clause = f"{len(group)} × {name} of {int(group['launch_count'].median()):,} kernels"
        inner = nodes[(nodes["level"] == "LAYER") & (nodes["kind"] == "block")]
        inner = inner[inner["iteration_index"].isin(group["iteration_index"])]
        blocks = inner.groupby("iteration_index").size().reindex(group["iteration_index"], fill_value=0).median()
        if blocks:
            clause += f", {int(blocks)} blocks in each"
        clauses.append(clause)
    return "; ".join(clauses)


# ---------------------------------------------------------------- one process


def _of_process(
    launches: pd.DataFrame, process: int, traits: Traits, hints: pd.DataFrame | None, constants: Constants
) -> tuple[list[Sequence], str]:
    """The sequences of one process: all launches as one, or one per thread or stream, by name and shape or by name
    alone: what describes them shortest. Of ways that are about as short the simpler one is taken."""
    mine = (launches["process_index"].to_numpy() == process) & (launches["launch_start_ns"].to_numpy() >= 0)
    rows = np.flatnonzero(mine)
    if len(rows) < constants.fewest_launches:
        return [], f"{len(rows)} launches in the process are too few" if len(rows) else ""
    rows = _in_launch_order(launches, rows)
    home = launches["home"].to_numpy()[rows] if "home" in launches else None
    best, best_ratio = _shortest(launches, rows, traits, constants, home)
    if sum(loops.length for *_, loops in best) < constants.fewest_launches and best_ratio == 1:
        return [], "nearly all launches are of one kernel, so that no pattern can be recognised"
    sequences = []
    for part, dense, loops in best:
        pause, marks = _breaks(launches, rows[part], hints, rows)
        own = None if home is None else home[part]
        sequences.append(_sequence(launches, rows[part], dense, loops, traits, pause, constants, marks, None, own))
    covered = sum(sequence.executions.covered() for sequence in sequences)
    held = sum(int(s.duration[a:b].sum()) for s in sequences
               for a, b in zip(s.executions.starts.tolist(), s.executions.ends.tolist(), strict=True))  # fmt: skip
    total = sum(int(sequence.duration.sum()) for sequence in sequences)
    reason = next((s.executions.reason for s in sequences if s.executions.reason), "")
    if max(covered / len(rows), held / max(total, 1)) < constants.most_ratio:
        if covered:
            reason = f"what repeats evenly covers {covered / len(rows):.0%} of the launches only"
        return [], reason
    return sorted(sequences, key=lambda s: -len(s.rows)), ""


def _shortest(
    launches: pd.DataFrame, rows: np.ndarray, traits: Traits, constants: Constants, owner: np.ndarray | None = None
) -> tuple[list[tuple[np.ndarray, np.ndarray, Loops]], float]:
    """Of the ways to read the launches the one that describes them shortest: positions in ``rows``, symbols and loops
    of each sequence, and the length of the description, of one without loops. ``owner``: the range of each row; no loop
    reaches from one range into the next."""
    best: list[tuple[np.ndarray, np.ndarray, Loops]] = []
    best_ratio = 1.0
    for group in _ways_to_split(launches, rows, constants, has_threads=owner is None):
        for symbols in symbols_of(launches, rows, traits):
            if best_ratio <= 2 * constants.near_ratio:
                return best, best_ratio
            made = []
            for number in range(int(group.max()) + 1):
                part = np.flatnonzero(group == number)
                own = symbols[part]
                loops = find_loops(own, constants) if owner is None else _inside(own, owner[part], constants)
                made.append((part, own, loops))
            ratio = sum(loops.size for *_, loops in made) / sum(loops.length for *_, loops in made)
            if not best or ratio < best_ratio - constants.near_ratio:
                best, best_ratio = made, ratio
    return best, best_ratio


def _inside(symbols: np.ndarray, owner: np.ndarray, constants: Constants) -> Loops:
    """Loops inside ranges: an end of its own behind each range, left out of the positions afterwards."""
    which = np.r_[0, np.cumsum(owner[1:] != owner[:-1])]
    place = np.arange(len(symbols)) + which
    apart = np.full(int(place[-1]) + 2, -1, np.int64)
    apart[place] = symbols
    apart[apart < 0] = int(symbols.max()) + 1 + np.arange(int(which[-1]) + 1)
    return _without_ends(find_loops(apart, constants), place, len(symbols))


def _sequence(
    launches: pd.DataFrame, rows: np.ndarray, symbols: np.ndarray, loops: Loops, traits: Traits, pause: np.ndarray,
    constants: Constants, marks: np.ndarray | None = None, executions: Executions | None = None,
    owner: np.ndarray | None = None,
) -> Sequence:  # fmt: skip
    """What is found in launches that follow one another; ``executions``, ``owner``: the ranges that they lie in."""
    taken = Traits(*(getattr(traits, name)[rows] for name in Traits.__dataclass_fields__))
    start, end, launch_start, launch_end, thread, process = (
        launches[name].to_numpy()[rows]
        for name in ("start_ns", "end_ns", "launch_start_ns", "launch_end_ns", "thread_index", "process_index")
    )
    known = (symbols, thread.astype(np.int64), np.maximum(end - start, 0), pause, taken, marks, constants)
    structure = structure_of(loops, own := Launches(*known))
    if executions is None:
        executions = find_executions(structure, own, owner)
    if not any(kind.role == LAYER for kind in structure.kinds):
        # each layer of a compiled model may have kernels of its own number: layers repeat without these
        plain = pd.factorize(taken.plain)[0].astype(np.int64)
        other = find_loops(plain, constants) if owner is None else _inside(plain, owner, constants)
        folded = structure_of(other, own := Launches(plain, *known[1:]))
        if other.size < loops.size and any(kind.role == LAYER for kind in folded.kinds):
            known, structure = (plain, *known[1:]), folded
            if not len(executions):
                executions = find_executions(structure, own, owner)
    told = launches["has_operator"].to_numpy()[rows] if "has_operator" in launches else np.zeros(len(rows), bool)
    return Sequence(*known, rows, launch_start, launch_end, structure, executions, int(process[0]), told)


def _in_launch_order(launches: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    at = launches["launch_start_ns"].to_numpy()[rows]
    started = launches["start_ns"].to_numpy()[rows]
    # Kernels of one graph launch share it: they follow one another as they ran.
    return rows[np.lexsort((started, at))]


def _ways_to_split(
    launches: pd.DataFrame, rows: np.ndarray, constants: Constants, *, has_threads: bool
) -> Iterator[np.ndarray]:
    """Numbers of the parts of a process, simplest way first: threads that take turns together, each thread, each
    stream; a way that splits nothing more is left out. Inside a range threads take turns, so they are not told apart.
    """
    taken, before = launches.iloc[rows], np.zeros(len(rows), np.int64)
    yield before
    ways = [["company"], ["thread_index"]] if has_threads else [[]]
    for columns in [*ways, [*ways[-1], "device_id", "context_id", "stream_id"]]:
        if columns == ["company"]:
            taken = taken.assign(company=_companies(taken["thread_index"].to_numpy(), constants))
        known = [c for c in columns if c in taken]
        group = taken.groupby(known, sort=False).ngroup().to_numpy() if known else before
        if group.max() > before.max():
            yield (before := group.astype(np.int64))


def _companies(thread: np.ndarray, constants: Constants) -> np.ndarray:
    """Number of the company of each launch. Threads that take turns, such as those of forward and backward pass, are in
    one; a thread that launches at any time between the launches of others is alone."""
    code, _ = pd.factorize(thread)
    company, often = np.full(len(code), -1, np.int64), np.bincount(code)
    for number, one in enumerate(np.argsort(-often, kind="stable").tolist()):
        mine = code == one
        company[mine] = number
        for other in range(min(number, _MOST_COMPANIES)):
            turns = np.diff(mine[mine | (company == other)]).sum()
            if (company == other).any() and turns * constants.fewest_parts <= 2 * often[one]:
                company[mine] = other
                break
    return company


def symbols_of(launches: pd.DataFrame, rows: np.ndarray, traits: Traits) -> list[np.ndarray]:
    """Symbols of the rows, finest first: name, grid, block and graph; then the name alone (shapes may grow with
    each step of a decoder, a graph may be made anew); then one name for all matrix products (the library chooses
    their kernels by the shape). Work of a CUDA graph is distinguished from the same launched singly."""
    name = random_words(launches["name_id"].to_numpy()[rows])
    with np.errstate(over="ignore"):
        if "graph_id" in launches:
            name = name + random_words((launches["graph_id"].to_numpy()[rows] > 0) + np.int64(1 << 40))
        fine = name.copy()
        if "graph_id" in launches:
            opaque = launches["graph_id"].to_numpy()[rows].astype(np.int64)
            if "kind" in launches:  # the kernels of a graph say more than its number does
                opaque = np.where(launches["kind"].to_numpy()[rows] == ActivityKind.GRAPH, opaque, 0)
            fine += random_words(opaque + np.int64(1 << 42))
        for number, column in enumerate(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")):
            if column in launches:
                shape = launches[column].to_numpy()[rows].astype(np.int64)
                fine += random_words(shape + np.int64((number + 1) << 33))
    coarse = np.where(traits.is_product[rows], np.int64(-1), name)
    found = [pd.factorize(one)[0].astype(np.int64) for one in (fine, name, coarse)]
    return [one for one, before in zip(found, [None, *found]) if before is None or one.max() != before.max()]


def _breaks(
    launches: pd.DataFrame, rows: np.ndarray, hints: pd.DataFrame | None, all_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How long the host paused before each launch, ns; four times that where it synchronised or copied. And kinds of
    marks, one row each: before which launches the host copied or waited, waited, and did both. What threads did that
    launch the other rows of the process counts for those."""
    start = launches["launch_start_ns"].to_numpy()[rows]
    end = launches["launch_end_ns"].to_numpy()[rows]
    pause = np.concatenate([[0], np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)]).astype(np.float64)
    if hints is None or not len(hints):
        return pause, np.zeros((0, len(rows)), bool)
    mine = hints[hints["process_index"] == launches["process_index"].to_numpy()[rows[0]]].sort_values("start_ns")
    thread = launches["thread_index"].to_numpy()
    if "thread_index" in mine:
        mine = mine[~mine["thread_index"].isin(np.setdiff1d(thread[all_rows], thread[rows]))]
    after = np.searchsorted(mine["start_ns"].to_numpy(), start, side="left")
    calls = np.diff(after, prepend=0)
    waits = np.diff(np.r_[0, np.cumsum(mine["is_wait"].to_numpy())][after], prepend=0)
    pause[1:][calls[1:] > 0] *= 4
    return pause, np.array([calls > 0, waits > 0, (waits > 0) & (waits < calls)])


# ---------------------------------------------------------------- inside recorded ranges


def infer_inside(
    launches: pd.DataFrame, names: Strings, owner: np.ndarray, series: np.ndarray, phases: list[str],
    constants: Constants = DEFAULTS,
) -> tuple[Inference, np.ndarray]:  # fmt: skip
    """Blocks inside ranges that were recorded.

    launches, names: as for `infer`; owner int64 (launches,): the range that each launch lies in, all ≥ 0; series int64
    (ranges,): which ranges are alike (0…k−1); phases (k): ``forward``, ``backward`` … of each kind, '' unknown.
    Returns the inference, whose executions stand for the ranges, and the range of each (by iteration_index).
    """
    traits = Traits.of_names(names, launches["name_id"].to_numpy())
    covered = np.zeros(len(launches), bool)
    process = launches["process_index"].to_numpy()
    sequences, ranges = [], []
    for number in np.unique(process).tolist():
        rows = np.flatnonzero(process == number)
        at, started = launches["launch_start_ns"].to_numpy()[rows], launches["start_ns"].to_numpy()[rows]
        # ranges one after another, launches of each in their order; kernels of one graph launch as they ran
        first = pd.Series(at).groupby(owner[rows]).transform("min").to_numpy()
        rows = rows[np.lexsort((started, at, owner[rows], first))]
        parts, _ = _shortest(launches, rows, traits, constants, owner[rows])
        parts.sort(key=lambda one: -len(one[0]))
        leader = owner[:0]
        for place, (part, symbols, loops) in enumerate(parts):
            own = owner[rows[part]]
            edges = np.flatnonzero(np.r_[True, own[1:] != own[:-1], True])
            which = own[edges[:-1]]
            kinds = pd.unique(series[which])
            executions = _ranges(symbols, edges, pd.factorize(series[which])[0])
            sequence = _sequence(
                launches, rows[part], symbols, loops, traits, np.zeros(len(part)), constants, None, executions, own
            )
            sequence.phase_of_series = tuple(phases[kind] for kind in kinds.tolist())
            sequence.homes = which
            sequences.append(sequence)
            if not place or not np.isin(which, leader).all():
                ranges.append(which)  # what else a process launches lies below these
            leader = leader if place else which
    nodes, node_of_launch = nodes_of(sequences, launches, covered)
    return Inference(nodes, node_of_launch), np.concatenate(ranges) if ranges else np.zeros(0, np.int64)


def _without_ends(loops: Loops, place: np.ndarray, count: int) -> Loops:
    """Loops of a sequence with ends between ranges, in positions without those; ``place``: where each symbol stood."""
    at = np.searchsorted(place, np.arange(int(place[-1]) + 3 if count else 1))
    for name in ("start", "end", "turn_start", "turn_end"):
        setattr(loops, name, at[getattr(loops, name)])
    return loops


def _ranges(symbols: np.ndarray, edges: np.ndarray, series: np.ndarray) -> Executions:
    """The ranges as executions; of each kind the most common content is typical, of equals the last."""
    starts, ends = edges[:-1], edges[1:]
    content = pd.factorize(Hashed.of(symbols).stretches(starts, ends))[0]
    typical = []
    for kind in range(int(series.max()) + 1):
        mine = np.flatnonzero(series == kind)
        common = np.bincount(content[mine])
        typical.append(int(mine[np.flatnonzero(common[content[mine]] == common.max())[-1]]))
    return Executions(starts, ends, series.astype(np.int64), np.full(len(starts), REGULAR, object), typical)
