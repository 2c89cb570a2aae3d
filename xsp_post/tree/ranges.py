"""What the rules of models and layers look at: the ranges of a capture as arrays, one row a span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.model.trace import Trace
from xsp_post.names import Parsed
from xsp_post.tree.execution_work import Times
from xsp_post.tree.node_names import NodeNames, without_numbers
from xsp_post.tree.structure.constants import DEFAULTS, Constants

if TYPE_CHECKING:
    from xsp_post.tree.structure.find import Inference


class Periods(NamedTuple):
    """Executions that the launch sequence alone says: one row each, as `Inference.iterations` has, and its device_ns;
    and all that was inferred with them."""

    executions: pd.DataFrame
    found: Inference


@dataclass
class Ranges:
    """What the rules look at: one row a span, in span order; ``name_id`` is the row of its text in ``parsed``."""

    parent: np.ndarray
    depth: np.ndarray
    forward: np.ndarray  # the forward range of a backward one, −1 none
    kind: np.ndarray
    name_id: np.ndarray
    folded_id: np.ndarray
    domain_index: np.ndarray  # −1 default domain
    domain_names: np.ndarray  # lower-case name per domain index
    has_device_work: np.ndarray  # something launched inside
    parsed: Parsed  # of each different text
    text: Callable[[int], str]  # by row of it
    folded_texts: np.ndarray  # per folded id
    times: Times
    beside: np.ndarray  # which have nothing to do with what was launched meanwhile
    periods: Callable[[], Periods]  # `looking.periods_of`
    recorded: np.ndarray | None = None  # level names the capture itself gives ('' none), see Trace.attributes
    duration_ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # on the host
    # device time launched inside, gradients included: asked for by few rules
    work: Callable[[], np.ndarray] = lambda: np.zeros(0, np.int64)
    constants: Constants = DEFAULTS
    is_planned: bool = False  # of a leveled run, whose layers are those that its plan chose

    def __post_init__(self) -> None:
        self.forest = forest_of(self.parent)

    @cached_property
    def device_ns(self) -> np.ndarray:
        """Device time launched in each span, gradients included."""
        return self.work()

    def time_inside(self) -> np.ndarray:
        """Device time of what was launched in each span; host time where the capture holds no device work."""
        return self.device_ns if self.device_ns.any() else self.duration_ns

    def has_role(self, *roles: str) -> np.ndarray:
        """Which spans' texts play one of these roles."""
        return self._says("role", *roles)

    def has_dialect(self, dialect: str) -> np.ndarray:
        """Which spans' texts follow one convention."""
        return self._says("dialect", dialect)

    def _says(self, column: str, *values: str) -> np.ndarray:
        texts = self.parsed.says(column, *values)
        return texts.take(self.name_id) if texts.any() else np.zeros(len(self.name_id), bool)

    def in_domains(self, names: frozenset[str]) -> np.ndarray:
        """Which spans lie in one of these domains (lower case)."""
        return np.array([name in names for name in self.domain_names] + [False], bool)[self.domain_index]

    def inside(self, mask: np.ndarray) -> np.ndarray:
        """Which spans have an ancestor (not themselves) in ``mask``."""
        return self.forest.inside(mask)

    def around(self, mask: np.ndarray) -> np.ndarray:
        """Which spans have a descendant (not themselves) in ``mask``."""
        return self.forest.around(mask)

    def outermost(self, mask: np.ndarray) -> np.ndarray:
        return mask & ~self.inside(mask)

    def innermost(self, mask: np.ndarray) -> np.ndarray:
        return mask & ~self.around(mask)


def until_the_next(trace: Trace, names: NodeNames, constants: Constants) -> Trace:
    """The trace with ranges of one text that were pushed again and again and never popped as marks: each lasts until
    the next one of its thread begins, or nothing more is launched."""
    rows = np.flatnonzero(trace.spans["is_open"].to_numpy() & ~trace.spans["is_cross_thread"].to_numpy())
    if len(rows) < constants.fewest_turns:
        return trace
    frame = trace.spans.iloc[rows][["thread_index", "start_ns"]].reset_index(drop=True)
    key = [frame["thread_index"], without_numbers(names.folded_names)[names.folded[rows]]]
    following = frame.sort_values("start_ns", kind="stable").groupby(key)["start_ns"].shift(-1).reindex(frame.index)
    is_mark = (frame.groupby(key)["start_ns"].transform("size") >= constants.fewest_turns).to_numpy()
    end = trace.spans["end_ns"].to_numpy().copy()
    last = max(int(end[rows].max()), int(trace.launches["end_ns"].max()) if len(trace.launches) else 0)
    end[rows[is_mark]] = following.fillna(last).to_numpy()[is_mark].astype(np.int64)
    return replace(trace, spans=trace.spans.assign(end_ns=end))
