"""Outlines of all sequences of a capture → one frame of nodes with times and counts, and the node of each launch."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.tree.structure.outline import AROUND, BLOCK, KIND_NAMES, Sequence, _frame, _nested, outline_of


@dataclass
class _Below:
    """Launches [starts, ends) of a second sequence that lie below nodes of the first."""

    sequence: int
    nodes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def nodes_of(sequences: list[Sequence], launches: pd.DataFrame, covered: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """The frame of `find.Inference.nodes` and the innermost node of each launch (int64, −1 none). ``covered``: launches
    that get no node."""
    frames: list[pd.DataFrame] = []
    below: list[_Below] = []
    main: dict[int, tuple[Sequence, np.ndarray, int]] = {}  # per process: its longest sequence with executions
    count = next_index = 0
    for number, sequence in enumerate(sequences):
        rows = outline_of(sequence)
        is_top = (rows["parent"] < 0).to_numpy()
        around = _between(sequence, sequence.executions.starts, sequence.executions.ends)
        first = main.get(sequence.process_index)
        if first is None or _leads(sequence, first[0]):
            base = next_index
            if is_top.any():
                main.setdefault(sequence.process_index, (sequence, count + np.flatnonzero(is_top), base))
                next_index += int(is_top.sum())
        else:
            leader, tops, base = first
            own = _joined(below, sequence, number, leader, tops)
            if own and sequence.homes is not None and leader.homes is not None:
                place = np.searchsorted(leader.homes, sequence.homes, sorter=np.argsort(leader.homes))
                place = np.argsort(leader.homes)[place]
                below[-1].nodes = tops = tops[place]
                rows["iteration_index"] = place[rows["iteration_index"].to_numpy()]
            around = _between(sequence, below[-1].starts, below[-1].ends)
            rows = _below_tops(rows, is_top, tops, count) if own else _nested(_frame(0))
        rows["iteration_index"] += base
        if not (len(below) and below[-1].sequence == number):
            rows = _numbered(rows, count)
        frames += [f.assign(sequence=number) for f in (rows, _numbered(around, count + len(rows)))]
        count += len(rows) + len(around)
    frame = pd.concat(frames, ignore_index=True) if frames else _nested(_frame(0)).assign(sequence=0)
    innermost = _innermost(frame, sequences, below, len(launches))
    innermost[covered] = -1
    return _finished(frame, sequences, innermost)


def _leads(one: Sequence, other: Sequence) -> bool:
    """Whether a further sequence of a process has executions of its own: other ranges, or about the same launches."""
    if one.homes is not None and other.homes is not None:
        return not np.isin(one.homes, other.homes).all()
    if not len(one.executions) or not len(other.executions):
        return False
    width = int(max(one.symbols.max(), other.symbols.max())) + 1
    held = []
    for sequence in (one, other):
        row = sequence.executions.typical[0]
        inside = sequence.symbols[sequence.executions.starts[row] : sequence.executions.ends[row]]
        held.append(np.bincount(inside, minlength=width))
    return bool(np.minimum(*held).sum() >= one.constants.alike_ratio * np.maximum(*held).sum())


def _numbered(rows: pd.DataFrame, first: int) -> pd.DataFrame:
    """Parents counted from the first row of all."""
    parent = rows["parent"].to_numpy()
    return rows.assign(parent=np.where(parent >= 0, parent + first, -1))


def _below_tops(rows: pd.DataFrame, is_top: np.ndarray, tops: np.ndarray, first: int) -> pd.DataFrame:
    """Rows of a second sequence without its own executions: what they hold lies below those of the first, ``tops``.
    Parents are counted from the first row of all, these rows from ``first`` on."""
    new = np.cumsum(~is_top) - 1
    parent = rows["parent"].to_numpy()
    at = np.maximum(parent, 0)
    ordinal = np.cumsum(is_top) - 1
    moved = np.where(is_top[at], tops[np.minimum(ordinal[at], len(tops) - 1)], new[at] + first)
    return rows.assign(parent=moved)[~is_top].reset_index(drop=True)


def _joined(below: list[_Below], sequence: Sequence, number: int, main: Sequence, tops: np.ndarray) -> bool:
    """Put a second sequence of a process under the executions of its first one; whether its own executions are theirs:
    it has as many, and each lies mostly within its twin's time. Else it is cut by the time of launches."""
    begin = main.launch_start[main.executions.starts]
    own = sequence.executions
    if sequence.homes is not None:
        below.append(_Below(number, tops, own.starts, own.ends))
        return True
    if len(own) == len(tops):
        middle = sequence.launch_start[(own.starts + own.ends - 1) // 2]
        is_twin = np.searchsorted(begin, middle, side="right") - 1 == np.arange(len(tops))
        if is_twin.mean() >= main.constants.holds_ratio:
            below.append(_Below(number, tops, own.starts, own.ends))
            return True
    starts = np.searchsorted(sequence.launch_start, begin)
    last = np.maximum.accumulate(main.launch_end)[main.executions.ends - 1]
    ends = np.minimum(np.searchsorted(sequence.launch_start, last), np.append(starts[1:], len(sequence.rows)))
    below.append(_Below(number, tops, starts, np.maximum(ends, starts)))
    return False


def _between(sequence: Sequence, first: np.ndarray, last: np.ndarray) -> pd.DataFrame:
    """What lies before, between and after executions: a node of its own each, never forced into one."""
    if not len(first):
        return _nested(_frame(0))
    starts, ends = np.concatenate([[0], last]), np.concatenate([first, [len(sequence.rows)]])
    some = np.flatnonzero(ends > starts)
    where = np.where(some == 0, "before", np.where(some == len(first), "after", "between"))
    labels = [sequence.label(a, b) for a, b in zip(starts[some].tolist(), ends[some].tolist(), strict=True)]
    rows = _frame(
        len(some), start=starts[some], end=ends[some], kind=AROUND, iteration_index=-1, series_index=-1,
        level="APPLICATION", confidence=0.5,
        name=np.array([f"{w} the iterations · {t}" for w, t in zip(where, labels, strict=True)], object),
        folded_name=np.array([f"{w} the iterations" for w in where], object),
    )  # fmt: skip
    return rows.assign(parent=np.int64(-1), depth=np.int64(0))


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
    for level in range(int(depth.max(initial=0)), 0, -1):  # an execution spans what its other streams launch
        rows = keep[depth[keep] == level]
        np.minimum.at(start_ns, parent[rows], start_ns[rows])
        np.maximum.at(end_ns, parent[rows], end_ns[rows])
    order = keep[np.lexsort((depth[keep], start_ns[keep]))]
    new_row = np.full(count + 1, -1, np.int64)
    new_row[order] = np.arange(len(order))
    nodes = frame.iloc[order].reset_index(drop=True).drop(columns="loop_kind")
    nodes["parent"] = new_row[parent[order]]
    content = nodes.pop("content").to_numpy()
    equal = np.full(len(nodes), -1, np.int64)
    some = content != 0
    equal[some] = pd.factorize(content[some])[0]
    nodes["equal_class"] = equal
    is_block = nodes["kind"].to_numpy() == BLOCK
    for column in ("block_index", "block_count"):
        nodes[column] = np.where(is_block, nodes[column].to_numpy(), 0)
    nodes["kind"] = KIND_NAMES[nodes["kind"].to_numpy()] if len(nodes) else np.empty(0, object)
    nodes["process_index"], nodes["thread_index"] = process[order], thread[order]
    nodes["launch_count"], nodes["self_launch_count"] = total[order], own[order]
    nodes["start_ns"], nodes["end_ns"] = start_ns[order], end_ns[order]
    nodes = nodes.rename(columns={"start": "first_launch", "end": "end_launch", "sequence": "sequence_index"})
    return nodes, new_row[innermost]
