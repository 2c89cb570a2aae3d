"""Trace → Tree, step "how much", for ranges that overlap partially: their projections as NVIDIA defines them.

A tree gives each launch one innermost range. Where ranges overlap partially, a launch may lie in two ranges
neither of which is in the other, and both projections include its work.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.projected import projected
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
    for thread in distinct(thread_of_span).tolist():
        mine, rows = spans[thread_of_span == thread], work[thread_of_launch == thread]
        launch = launch_id[rows]
        order = np.lexsort((launch, trace.launches["start_ns"].to_numpy()[launch]))
        rows, launch = rows[order], launch[order]
        begin, end = (trace.launches[c].to_numpy()[launch] for c in ("start_ns", "end_ns"))
        first, last = (activities[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
        is_new = np.append(True, launch[1:] != launch[:-1])[: len(launch)]
        start, stop = (trace.spans[c].to_numpy()[mine] for c in ("start_ns", "end_ns"))
        values = projected(begin, end, first, last, is_new, start, stop)
        for name, column in zip(columns, values):
            if name in result:
                result[name][mine + 1] = column
    return result
