"""Trace → Tree, step "what is one model execution": where ranges lie, and the work they are weighed by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import Attribution
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.structure.labels import Traits, does_layer_work


@dataclass(frozen=True)
class Work:
    """What candidates are weighed by: one row per device activity with a launch. A capture without device work is
    weighed by host time: one row per range, the time that no range inside it covers."""

    span: np.ndarray  # innermost range around the launch, −1 none
    process_index: np.ndarray
    at_ns: np.ndarray  # of the launch
    ns: np.ndarray
    name_id: np.ndarray  # of the kernel, −1 none
    updates: np.ndarray  # whether it updates weights, by its name
    computes: np.ndarray  # whether it does a layer's work, by its name
    total_ns: int  # of all device activities, those without a launch too

    def of(self, mask: np.ndarray) -> Work:
        """Some of the rows, and their total."""
        columns = ("span", "process_index", "at_ns", "ns", "name_id", "updates", "computes")
        some = {column: getattr(self, column)[mask] for column in columns}
        return replace(self, total_ns=int(some["ns"].sum()), **some)


@dataclass(frozen=True)
class Times:
    """Where each span lies, what its text says, and the work launched in all of them."""

    process_index: np.ndarray
    thread_index: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    is_training: np.ndarray  # backward or optimiser work by its text
    count: np.ndarray  # number that its text counts something by (step, token, frame), −1 none
    work: Work


def times_of(trace: Trace, names: NodeNames, parent: np.ndarray, owners: pd.DataFrame, launch_id: np.ndarray) -> Times:
    """Where the ranges lie, and what was launched in them; host time where no device work was recorded."""
    spans, activities = trace.spans, trace.activities
    process, start, end = (spans[c].to_numpy() for c in ("process_index", "start_ns", "end_ns"))
    if len(activities):
        # a graph's kernels count for the execution that launched the graph, not for the one that captured it
        span = owners["span"].to_numpy()
        graph = owners["attribution"].to_numpy() == int(Attribution.GRAPH)
        if graph.any():
            span = np.where(graph, owners["launch_span"].to_numpy(), span)
        begin = activities["start_ns"].to_numpy()
        length = activities["end_ns"].to_numpy() - begin
        # copies before the first or behind the last kernel of a process, in no range that has kernels, need be in no
        # execution
        computes = activities["kind"].isin([ActivityKind.KERNEL, ActivityKind.GRAPH]).to_numpy()
        often = np.bincount(span[computes & (span >= 0)], minlength=len(spans))
        is_beside = ~np.append(rollup.add_up(often, parent) > 0, False)[span] & computes.any()
        kernels = pd.Series(begin).where(computes).groupby(activities["process_index"].to_numpy())
        is_beside &= (begin < kernels.transform("min")) | (begin > kernels.transform("max"))
        rows = np.flatnonzero((launch_id >= 0) & ~is_beside)
        launched = trace.launches["start_ns"].to_numpy()
        name = activities["name_id"].to_numpy()[rows]
        traits = Traits.of_names(trace.strings, name)
        work = Work(
            span[rows], activities["process_index"].to_numpy()[rows], launched[launch_id[rows]], length[rows], name,
            traits.is_optimiser, does_layer_work(traits, np.arange(len(rows))), int(length[~is_beside].sum()),
        )  # fmt: skip
    else:
        length = end - start
        child = np.flatnonzero(parent >= 0)
        own = np.maximum(0, length - rollup.sums_per_node(parent[child], length[child], len(spans)))
        none, no = np.full(len(spans), -1), np.zeros(len(spans), bool)
        work = Work(np.arange(len(spans)), process, start, own, none, no, no, int(own.sum()))
    trains = names.parsed.numbers["is_backward"] | names.parsed.says("phase", "backward", "optimizer")
    return Times(
        process, spans["thread_index"].to_numpy(), start, end,
        trains[names.row], names.span("step_index"), work,
    )  # fmt: skip
