"""The value that ``hierarchy`` makes: one frame of nodes with ``parent_id`` and one of device activities,
each activity in the tree exactly once; `model.checks.check_tree` proves that nothing was lost."""

from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.joins import queued_before
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.arrays.texts import Strings
from xsp_post.base.findings import Finding
from xsp_post.model.levels import Level
from xsp_post.model.trace import PART_OF_KIND, PARTS, ActivityKind, Trace


class Attribution(IntEnum):
    """Where was it launched? (docs/architecture.md)"""

    NESTING = 0
    THREAD_TIME = 1
    GRAPH = 2
    NONE = 3
    NO_LAUNCH = 4
    ANNOTATION = 5  # said of the kernel itself by the program, when its graph was recorded
    PROVENANCE = 6  # said of the kernel by the compiler that made it


class LayerAttribution(IntEnum):
    """Which layer does it count for, and how was that found? (docs/architecture.md)"""

    NESTING = 0
    SEQUENCE = 1
    THREAD_TIME = 2
    GRAPH = 3
    INFERRED = 4
    NONE = 5
    TWIN = 6
    HOOK_PAIR = 7  # the layer lies between two hooks
    ANNOTATION = 8
    PROVENANCE = 9


class NodeKind(IntEnum):
    """What a node stands for; the first ones equal `trace.SpanKind`."""

    PUSH_POP = 0
    START_END = 1
    LIBRARY = 2
    OPERATOR = 3
    MODULE = 4
    ANNOTATION = 5
    ROOT = 6
    UNATTRIBUTED = 7  # launches outside every range
    NO_LAUNCH = 8  # device work without a launch row
    GRAPH = 9  # an opaque graph launch
    INFERRED = 10
    CROSS_THREAD = 11  # a start/end range that another thread ended
    TWIN = 12  # carried over from another capture of the program
    HOOK_PAIR = 13  # a module between the hooks before and after it
    ANNOTATED = 14  # a region that the program named for the kernels of a graph
    PROVENANCE = 15  # a module that a compiled kernel was made from


# What is known of an inferred node beside what all nodes have (`structure.Inference` says what they mean).
INFERRED_COLUMNS = (
    "node_id", "kind", "iteration_class", "series_index", "block_index", "block_count", "equal_class",
    "matched_block_index", "layer_type", "confidence",
)  # fmt: skip


@dataclass
class Tree:
    """The nodes and device activities of one capture. Node 0 is the capture.

    The columns of ``nodes`` and ``activities`` (the trace's and those that the tree adds) are in `schemas.frames`.

    strings     trace strings followed by texts that only the tree needs (folded names, synthetic nodes)
    texts       per string id: what `names.parse_names` read in it (rows in the order of strings)
    inferred    one row per inferred node: `INFERRED_COLUMNS`
    ranks       one row per process with device work, in order of rank: process_index, rank (−1 not a rank of a
                job), gpu_index, name; several of them have a path each below the root's
    """

    trace: Trace
    nodes: pd.DataFrame
    activities: pd.DataFrame
    strings: Strings
    iterations: pd.DataFrame
    layer_keys: pd.DataFrame
    level_rule: str = ""
    names: Any = None  # hierarchy's look-up of parsed range texts
    findings: list[Finding] = field(default_factory=list)
    inferred: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(INFERRED_COLUMNS)))
    execution_evidence: str = ""  # what a model execution is, by which rule, and the device time they cover
    execution_candidates: pd.DataFrame = field(default_factory=pd.DataFrame)  # tree_steps.execution_evidence.COLUMNS
    layer_evidence: str = ""  # what the layers are, how many an execution holds, the device time they cover
    ranks: pd.DataFrame = field(default_factory=pd.DataFrame)
    pieces: pd.DataFrame = field(default_factory=pd.DataFrame)  # `tree.pieces`: kernels of several modules
    idle: Any = None  # replay.idle.Idle where it is known already: of a part of a capture

    @property
    def is_guess(self) -> bool:
        """Whether the executions are inferred with low confidence: no number is said of them alone."""
        chosen = self.execution_candidates
        return len(chosen) > 0 and bool((chosen["confidence"][chosen["is_chosen"].astype(bool)] == "low").any())

    @property
    def iteration_numbers(self) -> np.ndarray:
        """What its executions are called: in a part as in the whole. int64, shape (executions,)."""
        numbered = "iteration_index" in self.iterations
        return self.iterations["iteration_index"].to_numpy() if numbered else np.arange(len(self.iterations))

    @cached_property
    def queued(self) -> np.ndarray:
        """Which activities were in a queue when the first launch was recorded (`queued_before`); bool."""
        columns = ("process_index", "gpu_index", "stream_id", "start_ns", "end_ns", "attribution")
        process, *stream, start, end, attribution = (self.activities[name].to_numpy() for name in columns)
        return queued_before(process, stream, start, end, attribution != int(Attribution.NO_LAUNCH))

    @cached_property
    def execution_intervals(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end of every model execution: its host range, extended to the last of its device work, without the
        time in which its process's devices did what is `queued`."""
        frame, activities = self.iterations, self.activities
        start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy().copy()
        index, since, until = (activities[column].to_numpy() for column in ("iteration_index", "start_ns", "end_ns"))
        mine = index >= 0
        rows = slice(None) if mine.all() else mine
        np.maximum.at(end, index[rows], until[rows])
        if self.queued.any() and len(frame):
            first, process = end.copy(), activities["process_index"].to_numpy()[self.queued]
            np.minimum.at(first, index[rows], since[rows])
            free = pd.Series(until[self.queued]).groupby(process).max()
            free = free.reindex(frame["process_index"], fill_value=start.min())
            start = np.maximum(start, np.minimum(free.to_numpy(), first))
        return start, end

    @property
    def kernels(self) -> pd.DataFrame:
        """The activities that are kernels; not to be altered."""
        is_kernel = self.activities["kind"].to_numpy() == ActivityKind.KERNEL
        return self.activities if is_kernel.all() else self.activities[is_kernel]


def balance(tree: Tree) -> pd.DataFrame:
    """Device operations and their time by each way of attribution, for both questions; rows add up to the total.

    ``self_…`` of them count for a model or module, but for none of its layers.
    """
    activities = tree.activities
    duration = activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()
    kind = activities["kind"].to_numpy()
    home = activities["layer_node_id"].to_numpy()
    is_self = (home >= 0) & (tree.nodes["level"].to_numpy()[np.maximum(home, 0)] != int(Level.LAYER))
    part = PART_OF_KIND[kind]
    parts = []
    for question, column, members in (
        ("launch", "attribution", list(Attribution)),
        ("layer", "layer_attribution", list(LayerAttribution)),
    ):
        way = activities[column].to_numpy()
        width = len(PARTS)
        cell = (way.astype(np.int64) * width + part) * 2 + is_self
        shape = (len(members), width, 2)
        count = np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)
        length = sums_per_node(cell, duration, int(np.prod(shape))).reshape(shape)
        listed = [m for m in members if count[m].any() or m.name in ("NESTING", "NONE")]
        ways = pd.DataFrame({"question": question, "attribution": [m.name.lower() for m in listed]})
        rows = [int(m) for m in listed]
        total: dict[str, str | int] = {"question": question, "attribution": "total"}
        for name, numbers in _balance_columns(count, length).items():
            ways[name] = numbers[rows]
            total[name] = int(numbers.sum())
        parts.append(pd.concat([ways, pd.DataFrame([total])], ignore_index=True))
    return pd.concat(parts, ignore_index=True)


def _balance_columns(count: np.ndarray, length: np.ndarray) -> dict[str, np.ndarray]:
    """Number and time per way, of numbers and times per (way, part, in no layer)."""
    columns = {"operation_count": count.sum(axis=(1, 2)), "device_ns": length.sum(axis=(1, 2))}
    for index, part in enumerate(PARTS):
        columns[f"{part}_count"] = count[:, index].sum(axis=1)
        columns[f"{part}_ns"] = length[:, index].sum(axis=1)
    columns["self_operation_count"], columns["self_device_ns"] = count[:, :, 1].sum(axis=1), length[:, :, 1].sum(axis=1)
    columns["self_kernel_count"], columns["self_kernel_ns"] = count[:, 0, 1], length[:, 0, 1]
    return columns
