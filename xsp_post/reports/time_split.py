"""Device windows and idle causes → what the time of the devices went to, part by part.

The parts of a split add up to its total. What is small is joined with its like, never dropped.
"""

from dataclasses import dataclass

from xsp_post.base.sentences import sentence
from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_ns
from xsp_post.tables.analyses.limits import Limit, in_scope

# Idle causes with less than this share of the window, and those after the first few, are joined.
_LEAST_RATIO = 0.005
_MOST_CAUSES = 5
_WORK = (
    ("kernel", "kernels", "kernel_busy_ns"),
    ("graph", "CUDA graphs", "graph_busy_ns"),
    ("communication", "communication", "communication_ns"),
    ("copy", "copies and memsets", "copy_busy_ns"),
)


@dataclass(frozen=True)
class Part:
    """``kind``: what it is, for its colour: kernel, copy, graph, communication, an idle cause"""

    kind: str
    label: str
    time_ns: int


@dataclass(frozen=True)
class Split:
    """Parts that add up to ``total_ns``. ``of``: what the total is, in words."""

    title: str
    of: str
    total_ns: int
    parts: tuple[Part, ...]


def device_split(results: Results, limit: Limit) -> Split | None:
    """Kernels, graphs, communication, copies, and idle time by cause; None where no device work was recorded."""
    if not limit.window_ns or not limit.window:
        return None
    names = {} if limit.is_gpu else {"kernel": "operators"}
    work = [Part(kind, names.get(kind, label), int(limit.window[column])) for kind, label, column in _WORK]
    by_cause = in_scope(results, limit).groupby("cause", observed=True)["idle_ns"].sum()
    idle = by_cause.set_axis(by_cause.index.astype(str)).sort_index().sort_values(ascending=False)
    shown = idle[idle >= _LEAST_RATIO * limit.window_ns].head(_MOST_CAUSES)
    parts = [
        *work,
        *(Part(str(cause), f"idle: {sentence(f'cause.{cause}')}", int(time)) for cause, time in shown.items()),
    ]
    rest = limit.window_ns - sum(part.time_ns for part in parts)
    if rest > 0:
        parts.append(Part("other", "idle: other causes" if len(shown) else "idle", rest))
    over = f", summed over {limit.device_count} GPUs" if limit.device_count > 1 else ""
    device = "GPU" if limit.is_gpu else "CPU operators"
    return Split(
        f"Where the time of the {device}{'s' if over else ''} went to",
        f"{sentence(f'scope.{limit.scope}')}: {format_ns(limit.window_ns)}{over}",
        limit.window_ns,
        tuple(part for part in parts if part.time_ns > 0),
    )
