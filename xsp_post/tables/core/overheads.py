"""Tree → how much of the recording the profiler itself took, as a finding."""

import numpy as np

from xsp_post.arrays.cutting import in_order
from xsp_post.arrays.intervals import union
from xsp_post.base.findings import Finding, finding
from xsp_post.base.messages import WARNING
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.model.tree import Tree
from xsp_post.replay.host_state import LOADING_TYPES

_LEAST_RATIO, _WARNING_RATIO = 0.01, 0.1


def profiler_cost(tree: Tree) -> tuple[int, list[Finding]]:
    """Time in which the profiler worked on any thread, ns; a finding where that is 1 % of the recording or more."""
    frame = tree.trace.profiler_overhead
    frame = frame[~np.isin(frame["overhead_type"].to_numpy(), LOADING_TYPES)]
    low, high = int(tree.nodes["start_ns"].iloc[0]), int(tree.nodes["end_ns"].iloc[0])
    start, end = (np.clip(frame[name].to_numpy(), low, high) for name in ("start_ns", "end_ns"))
    order = in_order(start)
    begin, until = union(start[order], end[order])
    spent = int((until - begin).sum())
    ratio = spent / max(high - low, 1)
    if ratio < _LEAST_RATIO:
        return spent, []
    severity = WARNING if ratio >= _WARNING_RATIO else ""
    said = f"{format_ns(spent)}, {format_ratio_percent(ratio)} of the recording"
    return spent, [finding("profiler-overhead", count=len(frame), example=said, severity=severity)]
