"""Outlines of all sequences of a capture → one frame of nodes with times and counts, and the node of each launch."""

import numpy as np
import pandas as pd

from xsp_post.tree.structure.outline import AROUND, BLOCK, KIND_NAMES, Sequence, _frame, _nested, outline_of


def nodes_of(sequences: list[Sequence], launches: pd.DataFrame, covered: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """The frame of `find.Inference.nodes` and the innermost node of each launch (int64, −1 none). ``covered``: launches
    that get no node."""
    frames: list[pd.DataFrame] = []
    count = iterations = 0
    for number, sequence in enumerate(sequences):
        for rows in (outline_of(sequence), _between(sequence)):
            parent, index = (rows[column].to_numpy() for column in ("parent", "iteration_index"))
            rows["parent"] = np.where(parent >= 0, parent + count, -1)
            rows["iteration_index"] = np.where(index >= 0, index + iterations, -1)
            frames.append(rows.assign(sequence=number))
            count += len(rows)
        iterations += len(sequence.executions)
    frame = pd.concat(frames, ignore_index=True) if frames else _nested(_frame(0)).assign(sequence=0)
    innermost = _innermost(frame, sequences, len(launches))
    innermost[covered] = -1
    return _finished(frame, sequences, innermost)


def _between(sequence: Sequence) -> pd.DataFrame:
    """What lies before, between and after executions: a node of its own each, never forced into one."""
    first, last = sequence.executions.starts, sequence.executions.ends
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


def _innermost(frame: pd.DataFrame, sequences: list[Sequence], launch_count: int) -> np.ndarray:
    """Paint the launches of each node, outermost nodes first; int64 (launches,), −1 none."""
    result = np.full(launch_count, -1, np.int64)
    depth, owner = frame["depth"].to_numpy(), frame["sequence"].to_numpy()
    start, end = frame["start"].to_numpy(), frame["end"].to_numpy()
    for number, sequence in enumerate(sequences):
        for level in range(int(depth.max(initial=-1)) + 1):
            rows = np.flatnonzero((depth == level) & (owner == number))
            sizes = end[rows] - start[rows]
            at = np.repeat(start[rows] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
            result[sequence.rows[at]] = np.repeat(rows, sizes)
    return result


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
