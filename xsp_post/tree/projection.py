"""Trace → Tree, step "how much", for ranges that overlap partially: their projections as NVIDIA defines them.

A tree gives each launch one innermost range. Where ranges overlap partially, a launch may lie in two ranges
neither of which is in the other, and both projections include its work.
"""

import numpy as np
import pandas as pd

from xsp_post.model.trace import ActivityKind, Trace


def project_overlapping(
    trace: Trace, nodes: pd.DataFrame, activities: pd.DataFrame, spans: np.ndarray
) -> dict[str, np.ndarray]:
    """projected_start_ns, projected_end_ns and device_operation_count of all nodes, with those of ``spans``
    (span k is node k + 1) taken over all launches of their thread inside them instead of from the tree.

    ``nodes`` must have the three columns; nodes not named keep their values. Shapes (nodes,) out.
    """
    columns = ("projected_start_ns", "projected_end_ns", "device_operation_count")
    result = {name: nodes[name].to_numpy().copy() for name in columns if name in nodes}
    launch_id, kind = activities["launch_id"].to_numpy(), activities["kind"].to_numpy()
    work = np.flatnonzero((launch_id >= 0) & (kind != ActivityKind.GRAPH))
    thread_of_launch = trace.launches["thread_index"].to_numpy()[launch_id[work]]
    thread_of_span = trace.spans["thread_index"].to_numpy()[spans]
    for thread in np.unique(thread_of_span).tolist():
        calls = _Calls(trace, activities, work[thread_of_launch == thread])
        mine = spans[thread_of_span == thread]
        values = calls.inside(trace.spans["start_ns"].to_numpy()[mine], trace.spans["end_ns"].to_numpy()[mine])
        for name, column in zip(columns, values):
            if name in result:
                result[name][mine + 1] = column
    return result


class _Calls:
    """Device work of one thread in the order of its launches."""

    def __init__(self, trace: Trace, activities: pd.DataFrame, rows: np.ndarray) -> None:
        launch = activities["launch_id"].to_numpy()[rows]
        order = np.lexsort((launch, trace.launches["start_ns"].to_numpy()[launch]))
        rows, launch = rows[order], launch[order]
        self.begin, self.end = (trace.launches[c].to_numpy()[launch] for c in ("start_ns", "end_ns"))
        self.first = activities["start_ns"].to_numpy()[rows]
        self.last = activities["end_ns"].to_numpy()[rows]
        self.is_new = np.r_[True, launch[1:] != launch[:-1]][: len(launch)]
        self.is_sequential = bool((self.end[1:] >= self.end[:-1]).all())

    def inside(self, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """First start, last end (−1 none) and number of different launches within each [start, end]."""
        low = np.searchsorted(self.begin, start)
        if self.is_sequential:
            high = np.searchsorted(self.end, end, side="right")
            return self._between(low, np.maximum(low, high))
        # calls of one thread follow one another, but for damaged rows: look at each range on its own
        first, last, count = (np.full(len(start), value, np.int64) for value in (-1, -1, 0))
        for k in range(len(start)):
            rows = low[k] + np.flatnonzero(self.end[low[k] :] <= end[k])
            if len(rows):
                first[k], last[k], count[k] = self.first[rows].min(), self.last[rows].max(), self.is_new[rows].sum()
        return first, last, count

    def _between(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        filled = np.flatnonzero(high > low)
        first, last = np.full(len(low), -1, np.int64), np.full(len(low), -1, np.int64)
        counted = np.r_[0, np.cumsum(self.is_new)]
        if len(filled):
            bounds = np.column_stack([low[filled], high[filled]]).ravel()
            # reduceat wants every index inside: one more element that no slice [low, high) reaches
            first[filled] = np.minimum.reduceat(np.r_[self.first, 0], bounds)[::2]
            last[filled] = np.maximum.reduceat(np.r_[self.last, 0], bounds)[::2]
        return first, last, counted[high] - counted[low]
