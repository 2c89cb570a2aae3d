"""The value that ``hierarchy`` makes: one frame of nodes with ``parent_id`` and one of device activities,
each activity in the tree exactly once; and the proof that nothing was lost (`check_tree`, always on)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.errors import ContradictionError
from xsp_post.base.findings import Finding, finding
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, Trace


class Attribution(IntEnum):
    """Where was it launched? (docs/architecture.md)"""

    NESTING = 0
    THREAD_TIME = 1
    GRAPH = 2
    NONE = 3
    NO_LAUNCH = 4


class LayerAttribution(IntEnum):
    """Which layer does it count for, and how was that found? (docs/architecture.md)"""

    NESTING = 0
    SEQUENCE = 1
    THREAD_TIME = 2
    GRAPH = 3
    INFERRED = 4
    NONE = 5


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


# What is known of an inferred node beside what all nodes have (`inference.Inference` says what they mean).
INFERRED_COLUMNS = (
    "node_id", "kind", "iteration_class", "series_index", "block_index", "block_count", "equal_class",
    "matched_block_index", "layer_type", "confidence",
)  # fmt: skip


@dataclass
class Tree:
    """The nodes and device activities of one capture. Node 0 is the capture.

    nodes       parent_id, depth, kind, level, name_id, folded_id, path_id, process_index, thread_index,
                domain_index, start_ns, end_ns, self_ns, iteration_index, layer_node_id, call_index,
                layer_key, sequence …, inclusive kernel_ns, busy_ns, kernel_count, memory_ns, memory_bytes,
                device_operation_count, projected_start_ns, projected_end_ns, self_kernel_ns,
                self_kernel_count, is_inferred, is_open
    activities  the trace's activities plus launch_id (−1 orphan), launch_node_id (innermost range of the
                launching thread, 0 none), node_id, attribution, layer_node_id (−1), layer_attribution,
                layer_key (−1), iteration_index (−1)
    strings     trace strings followed by texts that only the tree needs (folded names, synthetic nodes)
    texts       per string id: what `names.parse_names` read in it (rows in the order of strings)
    inferred    one row per inferred node: `INFERRED_COLUMNS`
    """

    trace: Trace
    nodes: pd.DataFrame
    activities: pd.DataFrame
    strings: np.ndarray
    iterations: pd.DataFrame
    layer_keys: pd.DataFrame
    level_rule: str = ""
    names: Any = None  # hierarchy's look-up of parsed range texts
    findings: list[Finding] = field(default_factory=list)
    inferred: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(INFERRED_COLUMNS)))

    @property
    def kernels(self) -> pd.DataFrame:
        """The activities that are kernels."""
        return self.activities[self.activities["kind"].to_numpy() == ActivityKind.KERNEL]


def balance(tree: Tree) -> pd.DataFrame:
    """Kernels and their time by each way of attribution, for both questions; rows add up to the total.

    ``self_…`` of them count for a model or module, but for none of its layers.
    """
    kernels = tree.kernels
    duration = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    home = kernels["layer_node_id"].to_numpy()
    is_self = (home >= 0) & (tree.nodes["level"].to_numpy()[np.maximum(home, 0)] != int(Level.LAYER))
    rows = []

    def add(question: str, way: str, chosen: np.ndarray) -> None:
        outside = chosen & is_self
        rows.append((question, way, int(chosen.sum()), int(duration[chosen].sum()), int(outside.sum()),
                     int(duration[outside].sum())))  # fmt: skip

    for question, column, names in (
        ("launch", "attribution", Attribution),
        ("layer", "layer_attribution", LayerAttribution),
    ):
        codes = kernels[column].to_numpy()
        for member in names:
            chosen = codes == member
            if chosen.any() or member.name in ("NESTING", "NONE"):
                add(question, member.name.lower(), chosen)
        add(question, "total", np.ones(len(kernels), bool))
    columns = ["question", "attribution", "kernel_count", "kernel_ns", "self_kernel_count", "self_kernel_ns"]
    return pd.DataFrame(rows, columns=columns)


def check_tree(tree: Tree) -> list[Finding]:
    """The invariants of docs/architecture.md. Raises `ContradictionError` when kernels or kernel time were lost."""
    kinds = tree.trace.activities["kind"].to_numpy()
    recorded = kinds == ActivityKind.KERNEL
    source = tree.trace.activities
    expected_count = int(recorded.sum())
    expected_ns = int((source["end_ns"].to_numpy() - source["start_ns"].to_numpy())[recorded].sum())
    nodes = tree.nodes
    got_count, got_ns = int(nodes["self_kernel_count"].sum()), int(nodes["self_kernel_ns"].sum())
    root_count, root_ns = int(nodes["kernel_count"].iloc[0]), int(nodes["kernel_ns"].iloc[0])
    if (got_count, got_ns) != (expected_count, expected_ns) or (root_count, root_ns) != (expected_count, expected_ns):
        raise ContradictionError(
            f"{tree.trace.provenance.source_name}: the tree holds {root_count} kernels of {root_ns} ns, "
            f"the capture {expected_count} of {expected_ns} ns",
            code="tree-lost-kernels",
        )
    findings = []
    parent = nodes["parent_id"].to_numpy()
    has_parent = parent >= 0
    summed = np.bincount(
        parent[has_parent], weights=nodes["busy_ns"].to_numpy()[has_parent].astype(float), minlength=len(nodes)
    )
    own = nodes["self_device_ns"].to_numpy()
    excess = nodes["busy_ns"].to_numpy() > summed + own + 1
    if excess.any():
        findings.append(finding("busy-exceeds-children", count=int(excess.sum())))
    return findings
