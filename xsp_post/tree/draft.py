"""A tree in the making: the value that each step of `hierarchy.build_tree` takes and returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.base.findings import Finding
from xsp_post.model.options import Options
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import INFERRED_COLUMNS
from xsp_post.tree.level_rules import Levels
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.structure.constants import DEFAULTS, Constants

_HINT_WORDS = ("Synchronize", "Memcpy")


@dataclass(frozen=True)
class Draft:
    """Frames of a tree before it is summed up; steps return a changed copy.

    nodes, activities, strings   as in `model.tree.Tree`, without the amounts
    inferred                     one row per node that was found, not recorded: `INFERRED_COLUMNS`
    levels                       what ranges say of executions and layers
    rule                         the sentence about it
    turns                        nodes made of several sibling ranges that are one execution
    forward                      per span the forward range of a backward one (−1 none)
    overlapping                  spans that overlap others of their thread
    crossing_count               spans that end after the span they began in
    whole, owner                 the trace with its processes, of which programs are apart in ``trace``; that of each
    pieces                       kernels that compute operations of several modules: `pieces.COLUMNS`
    """

    trace: Trace
    options: Options
    names: NodeNames
    nodes: pd.DataFrame
    activities: pd.DataFrame
    strings: Strings
    levels: Levels
    rule: str
    forward: np.ndarray
    overlapping: np.ndarray
    crossing_count: int
    whole: Trace
    owner: np.ndarray
    findings: tuple[Finding, ...] = ()
    inferred: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(INFERRED_COLUMNS)))
    turns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    pieces: pd.DataFrame = field(default_factory=pd.DataFrame)
    constants: Constants = DEFAULTS
    placed: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # what `placing.place` found last

    @property
    def node(self) -> np.ndarray:
        """The node of each activity."""
        return self.activities["node_id"].to_numpy()

    def column(self, name: str) -> np.ndarray:
        """A column of the nodes."""
        return self.nodes[name].to_numpy()

    def works(self) -> np.ndarray:
        """Which activities are kernels or opaque graphs; bool."""
        kind = self.activities["kind"].to_numpy()
        return (kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH)

    def length(self) -> np.ndarray:
        """Device time of each activity, ns, never negative."""
        return np.maximum(self.activities["end_ns"].to_numpy() - self.activities["start_ns"].to_numpy(), 0)

    def said(self, more: str, raised: list[Finding] | None = None) -> Draft:
        """With a clause added to the rule, and findings."""
        return replace(self, rule=self.rule + more, findings=(*self.findings, *(raised or ())))

    def with_levels(self, level: np.ndarray) -> Draft:
        """With other levels of nodes."""
        return replace(self, nodes=self.nodes.assign(level=level.astype(np.int8)))


def launch_columns(trace: Trace, activities: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    """The activities ``rows`` as `structure.infer` wants them, with thread and time of their launches (−1 none). Where
    a process has device rows only, its work stands in the order in which it ran."""
    launch_id = activities["launch_id"].to_numpy()[rows]
    has = launch_id >= 0
    frame = activities.iloc[rows].copy(deep=False)
    own_columns = {"launch_start_ns": "start_ns", "launch_end_ns": "end_ns", "thread_index": "thread_index"}
    alone = without_launches(trace, activities)[rows]
    for ours, column in own_columns.items():
        values = trace.launches[column].to_numpy()
        frame[ours] = np.where(has, values[np.maximum(launch_id, 0)], -1) if len(values) else -1
        if alone.any() and column in activities:
            frame[ours] = np.where(alone, activities[column].to_numpy()[rows], frame[ours])
    return frame


def without_launches(trace: Trace, activities: pd.DataFrame) -> np.ndarray:
    """Which activities belong to a process of which no launch was recorded; bool."""
    process = activities["process_index"].to_numpy()
    has = np.zeros(int(process.max(initial=0)) + 1, bool)
    launched = trace.launches["process_index"].to_numpy()
    has[launched[(launched >= 0) & (launched < len(has))]] = True
    return ~has[process] & (activities["launch_id"].to_numpy() < 0)


def hints(trace: Trace) -> pd.DataFrame:
    """Host calls that often end an iteration: synchronisations and copies."""
    name_id = trace.launches["name_id"].to_numpy()
    codes, used = pd.factorize(name_id)
    texts = [str(trace.strings[u]) if u >= 0 else "" for u in used.tolist()]
    wanted = np.array([any(word in text for word in _HINT_WORDS) for text in texts] + [False])
    rows = np.flatnonzero(wanted[codes]) if len(codes) else np.zeros(0, np.int64)
    waits = np.array([_HINT_WORDS[0] in text for text in texts] + [False])[codes[rows]]
    return trace.launches[["process_index", "thread_index", "start_ns"]].iloc[rows].assign(is_wait=waits)
