"""Results → the source and spread of each number, and the balance of device work."""

from typing import Any, NamedTuple

import pandas as pd

from xsp_post.base.messages import INFO, SEVERITIES
from xsp_post.base.texts import sentence
from xsp_post.model.levels import RUN_COUNTERS, RUN_LAYER, RUN_LEVEL_TEXTS, RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.model.schemas.words import QUESTIONS
from xsp_post.reports import cases
from xsp_post.reports.facts import spread
from xsp_post.reports.text import visible
from xsp_post.tables.analyses.limits import Limit, in_scope

_UNKNOWN_OVERHEAD = "included, not measured: xsp-post run --levels M,ML,MLG measures it"
_COLUMNS = ["quantity", "level", "n", "spread", "overhead"]


_PARTS = ["operation_count", "device_ns", "kernel_count", "copy_count", "graph_count"]
_OWN = ["self_operation_count", "self_device_ns"]
_LOST = ("none", "no_launch")  # ways of attribution: nothing around the launch is known


class Balance(NamedTuple):
    """Device operations and their time by way of attribution, over all captures or of one; ``closes``: in each of them
    the parts add up; ``self_…``: of these in no layer, [self] of a model or module."""

    question: str
    parts: tuple[tuple[str, int, int], ...]  # attribution, operation_count, device_ns
    operation_count: int
    device_ns: int
    kernel_count: int
    copy_count: int
    graph_count: int
    capture_count: int
    closes: bool
    self_operation_count: int
    self_device_ns: int

    @property
    def ways(self) -> list[tuple[str, int, int]]:
        """The parts that there are, heaviest first."""
        return sorted((part for part in self.parts if part[1]), key=lambda part: -part[2])

    @property
    def lost_ratio(self) -> float:
        """The share of the device time of which nothing is known."""
        return sum(time for way, _, time in self.parts if way in _LOST) / max(self.device_ns, 1)


def balances(results: Results, capture_id: int | None = None) -> list[Balance]:
    """The balance of each question (launch, layer): of one capture, or of all with device work."""
    frame = frame_or_empty(results, "balance").astype({"question": str, "attribution": str})
    frame = frame if capture_id is None else frame[frame["capture_id"] == capture_id]
    amounts = [*_PARTS, "kernel_ns", "copy_ns", "graph_ns"]
    found = []
    for question in QUESTIONS:
        rows = frame[frame["question"].eq(question)]
        is_total = rows["attribution"].eq("total")
        totals = rows[is_total & (rows["operation_count"].gt(0) | (capture_id is not None))].set_index("capture_id")
        if totals.empty:
            continue
        parts = rows[~is_total & rows["capture_id"].isin(totals.index)]
        sums = parts.groupby("capture_id")[amounts].sum().reindex(totals.index, fill_value=0)
        ways = parts.groupby("attribution", sort=False)[_PARTS[:2]].sum()
        counts = {column: int(totals[column].sum()) for column in (*_PARTS, *_OWN)}
        shown = tuple((str(way), int(count), int(time)) for way, count, time in ways.itertuples())
        closes = bool(sums.eq(totals[amounts]).all(axis=None))
        found.append(Balance(question, shown, capture_count=len(totals), closes=closes, **counts))
    return found


def trust_data(results: Results, case: cases.Case | None) -> pd.DataFrame:
    """How far each kind of number can be trusted: quantity, level, n, spread, and the overhead that is in it."""
    named = cases.rows(results, "cases", case)
    if named.empty:
        return pd.DataFrame(columns=_COLUMNS)
    row = named.iloc[0]
    level, kernel_level = str(row["layer_level"]), str(row["kernel_level"])
    without = "without kernel profiling" if level == RUN_LAYER else "kernel profiling included"
    replayed = "each kernel was replayed alone under counters: not a latency of the program"
    launched = replayed if kernel_level == RUN_COUNTERS else "launching is disturbed, execution is not"
    layers = cases.rows(results, "a03", case)
    kernels = cases.rows(results, "a08", case, ["sample_count", "latency_ns", "std_latency_ns"])
    lines = [
        *_model_line(results, case, row),
        *_spread_line("Layer latency", level, layers, without),
        *_spread_line("Kernel latency", kernel_level, kernels, launched),
        *_counter_line(cases.rows(results, "a15", case)),
    ]
    found = pd.DataFrame(lines, columns=_COLUMNS)
    return found.assign(level=found["level"].replace(RUN_LEVEL_TEXTS))


def _model_line(results: Results, case: cases.Case | None, named: pd.Series) -> list[tuple[str, ...]]:
    model = cases.rows(results, "a01", case)
    if model.empty:
        return []
    level = str(named["model_level"])
    overhead = "none: measured without a profiler" if level == RUN_MODEL else _UNKNOWN_OVERHEAD
    measured = _measured_overhead(results, named)
    row = model.iloc[0]
    return [("Model latency", level, str(row["sample_count"]), spread(row), overhead + measured)]


def _measured_overhead(results: Results, named: pd.Series) -> str:
    """``; M/L/G adds 215 ms (78.2 %)``: what the deepest level cost, where it was measured."""
    table = frame_or_empty(results, "overhead")
    mine = table[
        table["event_kind"].astype(str).eq("model")
        & table["batch_size"].eq(named["batch_size"])
        & table["phase"].astype(str).eq(str(named["phase"]))
        & table["total_overhead_ns"].notna()
        & ~table["is_accurate"].astype(bool)
    ]
    if mine.empty:
        return ""
    deepest = mine.iloc[-1]
    cost = f"{format_ns(deepest['total_overhead_ns'])} ({format_ratio_percent(deepest['total_overhead_ratio'])})"
    return f"; {deepest['level']} adds {cost}"


def _spread_line(what: str, level: str, frame: pd.DataFrame, overhead: str) -> list[tuple[str, ...]]:
    if frame.empty:
        return []
    relative = (frame["std_latency_ns"] / frame["latency_ns"]).replace([float("inf")], float("nan"))
    typical = relative.median()
    said = f"std dev {format_ratio_percent(typical)} of the latency (median over {format_count(len(frame))})"
    low, high = int(frame["sample_count"].min()), int(frame["sample_count"].max())
    n = str(low) if low == high else f"{low} … {high}"
    return [(what, level, n, said if typical == typical else "one sample each", overhead)]


def _counter_line(totals: pd.DataFrame) -> list[tuple[str, ...]]:
    if totals.empty or str(totals["counter_source"].iloc[0]) == "none":
        return []
    total = totals.iloc[0]
    if str(total["counter_source"]) == "analytic":
        return [("Flop and bytes", "none", "–", "counted from the model: least possible bytes, no counters", "none")]
    coverage = f"for {format_ratio_percent(total['counter_coverage_ratio'])} of the kernel time"
    return [("Flop and bytes", "counters", "1", coverage, "times are not taken from the counter run")]


# -- Findings as the page shows them: worst first, one per code, with cause and cure -----------------------------------


def shown_findings(results: Results) -> list[dict[str, Any]]:
    """One entry per code with everything the page says of it, worst severity and most rows first."""
    frame = frame_or_empty(results, "findings")
    if frame.empty:
        return []
    frame = frame.assign(code=frame["code"].astype(str), severity=frame["severity"].astype(str))
    order = {severity: i for i, severity in enumerate(SEVERITIES)}
    found = []
    for code, rows in frame.groupby("code", sort=False):
        severity = min(rows["severity"], key=lambda s: order.get(s, len(order)))
        examples = dict.fromkeys(visible(text, 300) for text in rows["example"].astype(str) if text)
        hints = list(dict.fromkeys(_lines(text) for text in rows["hint"].astype(str) if text))
        found.append({
            "code": str(code), "severity": severity if severity in order else INFO,
            "title": visible(str(rows["title"].iloc[0]), 200), "cause": _lines(str(rows["cause"].iloc[0])),
            "cure": " ".join(hints[:2]), "count": int(rows["count"].sum()), "examples": [*examples][:3],
        })  # fmt: skip
    return sorted(found, key=lambda f: (order[f["severity"]], -f["count"], f["code"]))


def _lines(text: str) -> str:
    """A hint with the line breaks of the code in it."""
    return "\n".join(visible(line, 600) for line in text.splitlines()[:8])


# -- Device windows and idle causes → what the time of the devices went to, part by part -------------------------------

# Idle causes with less than this share of the window, and those after the first few, are joined.
_LEAST_RATIO = 0.005
_MOST_CAUSES = 5
_WORK = (
    ("kernel", "kernels", "kernel_busy_ns"),
    ("graph", "CUDA graphs", "graph_busy_ns"),
    ("communication", "communication", "communication_ns"),
    ("copy", "copies and memsets", "copy_busy_ns"),
)


def device_splits(results: Results, limit: Limit) -> list[dict[str, Any]]:
    """Kernels, graphs, communication, copies, and idle time by cause; none where no device work was recorded. ``parts``
    add up to ``total_ns``; ``of``: what the total is, in words; ``kind`` of a part: what it is, for its colour: kernel,
    copy, graph, communication, an idle cause."""
    if not limit.window_ns or not limit.window:
        return []
    names = {} if limit.is_gpu else {"kernel": "operators"}
    work = [(kind, names.get(kind, label), int(limit.window[column])) for kind, label, column in _WORK]
    by_cause = in_scope(results, limit).groupby("cause", observed=True)["idle_ns"].sum()
    idle = by_cause.set_axis(by_cause.index.astype(str)).sort_index().sort_values(ascending=False)
    shown = idle[idle >= _LEAST_RATIO * limit.window_ns].head(_MOST_CAUSES)
    parts = [*work, *((str(cause), f"idle: {sentence(f'cause.{cause}')}", int(time)) for cause, time in shown.items())]
    rest = limit.window_ns - sum(time for *_, time in parts)
    if rest > 0:
        parts.append(("other", "idle: other causes" if len(shown) else "idle", rest))
    over = f", summed over {limit.device_count} GPUs" if limit.device_count > 1 else ""
    device = "GPU" if limit.is_gpu else "CPU operators"
    return [{
        "title": f"Where the time of the {device}{'s' if over else ''} went to",
        "of": f"{sentence(f'scope.{limit.scope}')}: {format_ns(limit.window_ns)}{over}", "total_ns": limit.window_ns,
        "parts": [{"kind": kind, "label": label, "time_ns": time} for kind, label, time in parts if time > 0],
    }]  # fmt: skip
