"""Experiment, device windows and idle causes → what limits the program, with its numbers; or nothing, and why.

There is one answer, and all ask for it here: the terminal, the page, JSON, assistants and the table of a batch. What
limits is what the replay says (`replay.experiment`): the resource that saves most of the device's time where it takes
half its own. Counters and counted work say of kernels whether arithmetic or memory limits them; names never do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from xsp_post.arrays.repeats import summed
from xsp_post.model.results import Results, found_in, frame_or_empty, of_captures
from xsp_post.model.schemas.units import format_count
from xsp_post.replay.experiment import DEVICE, TOGETHER, Gain, limits_of
from xsp_post.replay.recording import COUNTS
from xsp_post.replay.tables import LEAST_ROOF_RATIO
from xsp_post.tables.analyses.places import line_of
from xsp_post.tables.catalogue import has_work

# Less known time than this, of all time or of the kernels: nothing is said of it.
LEAST_KNOWN_RATIO = 0.5
# A place or a remedy of less than this share of the time is left out: a replay is not more exact.
LEAST_RATIO = 0.01
LEAST_OPERATIONS = 20  # of devices: fewer say nothing of what a program does again and again

KERNEL, COMMUNICATION, COPY, LAUNCH, SYNCHRONIZATION, HOST, PROFILER, UNKNOWN = (
    "kernel", "communication", "copy", "launch", "synchronization", "host", "profiler", "unknown",
)  # fmt: skip
MIXED, BALANCED, SHAPE = "mixed", "balanced", "shape"
KIND_OF = {"kernels": KERNEL, "communication": COMMUNICATION, "ranks": COMMUNICATION, "copies": COPY,
           "launches": LAUNCH, "loading": HOST, "host": HOST, "synchronisation": SYNCHRONIZATION}  # fmt: skip
_CAUSES = {
    LAUNCH: "launch_call launch_latency graph_launch",
    SYNCHRONIZATION: "queued synchronization device_wait",
    COPY: "copy_call page_migration",
    HOST: "allocation module_load os_call descheduled host_code thread_wait sleep input_output first_launch",
    COMMUNICATION: "communication",
    PROFILER: "profiler_overhead",
    UNKNOWN: "unknown not_recorded",
}
GROUP_OF_CAUSE = {cause: group for group, causes in _CAUSES.items() for cause in causes.split()}
FIRST_LAUNCH = "first_launch"
LOADING = ("module_load", FIRST_LAUNCH)  # causes: code is loaded or compiled
# Scopes in the order in which they are believed.
OUTSIDE = "outside"
SCOPES = ("execution", "warm-up", OUTSIDE)
# What the first execution did before the first operation of the device, and the last one after its last: kept apart, no
# part of the verdict.
LEAD_IN, LEAD_OUT, BETWEEN = "lead-in", "lead-out", "between"
# Why nothing is said.
NO_WORK, GRAPH_RECORDED, TIME_UNKNOWN, OF_PROFILER, REFUSED, NOTHING_SHOWN, TOO_LITTLE, SERIAL, ROWS_MISSING = (
    "no-work", "graph-recorded", "time-unknown", "profiler", "refused", "nothing-shown", "too-little", "serial",
    "rows-missing",
)  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """What limits a program. ``kind``: compute, memory, latency (far from both roofs), shape (launches too small for
    the GPU), kernel (not known which), copy, launch, synchronization, host, communication, mixed (two), balanced (two
    that hide one another), or unknown: ``reason`` says why, with numbers in ``facts``."""

    kind: str
    scope: str
    device_count: int
    gpu_name: str
    window_ns: int
    busy_ns: int
    unknown_ns: int
    groups: tuple[tuple[str, int], ...]  # (group, ns): what the time went to, largest first
    window: dict[str, int | str]  # sums of device_windows over the devices
    reason: str = ""  # why nothing is said
    captures: tuple[int, ...] = ()  # those it speaks of
    is_gpu: bool = True  # false: operators of a CPU stand for kernels
    limits: tuple[str, ...] = ()  # the resources that limit, as in the table experiment
    gains: tuple[Gain, ...] = ()  # what each resource saves at half its time, largest first
    parts: tuple[Gain, ...] = ()  # and parts of it: (resource, part)
    together: Gain | None = None  # and all of them
    # the time that the gains are shares of: of the device, in the executions; of one process; 0: `window_ns` is that
    replayed_ns: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def whole_ns(self) -> int:
        """What all shares are of, the gains' too: the time of the executions, of all devices together; that of the
        devices where they worked longer, for several processes on one device as a rule."""
        replayed_ns = self.replayed_ns * self.device_count
        return replayed_ns if replayed_ns >= self.busy_ns else self.window_ns

    @property
    def of_device_ns(self) -> float:
        """The same of one device."""
        return self.whole_ns / max(self.device_count, 1)

    @property
    def known_ns(self) -> int:
        return self.window_ns - self.unknown_ns

    @property
    def is_of_no_run(self) -> bool:
        """Whether the capture shows how a CUDA graph was recorded, not how it ran, or lacks many of its kernels."""
        return self.reason in (GRAPH_RECORDED, ROWS_MISSING)

    def ratio(self, group: str) -> float:
        """Share of a group in all of the time."""
        return dict(self.groups).get(group, 0) / max(self.window_ns, 1)

    def gain(self, resource: str) -> float:
        """The share of the time that a resource saves at half its own; 0 where it is not known."""
        return next((one.gain_ratio for one in self.gains if one.resources == (resource,)), 0.0)


def find_limit(results: Results, captures: Sequence[int] | None = None) -> Limit:
    """What limits the measured executions, else the warm-up, else what was recorded. ``captures``: of these only."""
    of = None if captures is None else tuple(captures)
    return results.kept(("limit", of), lambda: _limit(results, of))


def _limit(results: Results, captures: tuple[int, ...] | None) -> Limit:
    windows, causes = (
        frame_or_empty(results, name) if captures is None else of_captures(results, name, captures)
        for name in ("device_windows", "idle_causes")
    )
    scope = next((s for s in SCOPES if windows.loc[windows["scope"].eq(s), "busy_ns"].sum() > 0), "")
    if not scope:
        return Limit(UNKNOWN, "", 0, "", 0, 0, 0, (), {}, NO_WORK)
    mine, idle = windows[is_of(windows, scope)], causes[is_of(causes, scope)]
    groups = group_times(mine, idle)
    unknown = groups.pop(UNKNOWN, 0)
    ordered = tuple(sorted(groups.items(), key=lambda one: -one[1]))
    top = mine.sort_values("top_kernel_ns", ascending=False).iloc[0]
    sums = {c: int(mine[c].sum()) for c in mine.columns if c.endswith(("_ns", "_count"))}
    window: dict[str, int | str] = {**sums, "top_kernel": str(top["top_kernel"])}
    names = [name for name in dict.fromkeys(mine["gpu_name"].astype(str)) if name]
    count = len(mine.drop_duplicates(["capture_id", "device_id"]))
    total = sums["window_ns"]
    of = tuple(int(one) for one in mine["capture_id"].unique())
    base = Limit(UNKNOWN, scope, count, " + ".join(names), total, sums["busy_ns"], unknown, ordered, window, "", of,
                 bool(mine["device_id"].ge(0).any()))  # fmt: skip
    if (recorded := int(found_in(results, of, "graph-recorded")["count"].sum())) > sums["kernel_count"]:
        return replace(base, reason=GRAPH_RECORDED, facts={"count": recorded})
    if missing := int(found_in(results, of, "kernels-missing")["count"].sum()):
        return replace(base, reason=ROWS_MISSING, facts={"count": format_count(missing)})
    collectors = of_captures(results, "captures", of, ["collector"])["collector"]
    if len(collectors) and collectors.astype(str).eq("ncu").all():
        serial = replace(base, limits=("kernels",), reason=SERIAL)
        kind = _kernels_are(serial, results)
        return replace(serial, kind=UNKNOWN if kind == KERNEL else kind)
    count = operation_count(results, of)
    # a graph whose kernels were not recorded stands for many
    if len(collectors) and count < LEAST_OPERATIONS and not sums["graph_busy_ns"]:
        return replace(base, reason=TOO_LITTLE, facts={"count": count, "plural": "s" * (count != 1)})
    if base.known_ns < LEAST_KNOWN_RATIO * total:
        return replace(base, reason=TIME_UNKNOWN)
    if groups.get(PROFILER, 0) > total / 2:
        return replace(base, reason=OF_PROFILER)
    return _answered(base, results)


def _answered(limit: Limit, results: Results) -> Limit:
    """The limit that the replays of its captures say."""
    rows = answers(results, limit)
    if rows.empty:
        said = of_captures(results, "replays", limit.captures, ["refusal"])["refusal"].astype(str)
        return replace(limit, reason=REFUSED, facts={"refusal": next(iter(said), "")})
    gains, parts, together = _gains(rows)
    limits, is_balanced = limits_of(gains, together)
    heaviest = rows[rows["capture_id"].eq(rows["capture_id"].iloc[int(rows["elapsed_ns"].argmax())])]
    if is_balanced:
        hidden = heaviest.loc[heaviest["is_limit"].astype(bool), "resource"].astype(str)
        limits = tuple(dict.fromkeys((*limits, *hidden)))
    # of a large capture a part is replayed: its shares stand for all executions, as do all other times of the verdict
    is_part = bool(rows["is_part"].eq(True).any())
    replayed = 0 if is_part else int(rows.drop_duplicates("capture_id")["elapsed_ns"].mean())
    base = replace(limit, limits=limits, gains=gains, parts=parts, together=together, replayed_ns=replayed)
    if not limits:
        return replace(base, reason=NOTHING_SHOWN)
    if len(limits) > 1:
        return replace(base, kind=BALANCED if is_balanced else MIXED)
    kind = KIND_OF[limits[0]]
    return replace(base, kind=_kernels_are(base, results) if kind == KERNEL else kind)


def answers(results: Results, limit: Limit, question: str = DEVICE) -> pd.DataFrame:
    """The rows of the table experiment on the captures of a limit."""
    rows = of_captures(results, "experiment", limit.captures)
    return rows[rows["question"].astype(str).eq(question)]


def _gains(rows: pd.DataFrame) -> tuple[tuple[Gain, ...], tuple[Gain, ...], Gain]:
    """The gain of each resource over captures, weighted by their time, those of parts, and that of all together."""
    weight = rows["elapsed_ns"] / rows.drop_duplicates("capture_id")["elapsed_ns"].sum()
    columns = ["gain_ratio", "high_gain_ratio"]
    keys = [rows["resource"].astype(str), rows["part"].astype(str)]
    means = rows[columns].mul(weight, axis=0).groupby(keys, sort=False).sum()
    made = [Gain(tuple(filter(None, name)), gain, high - gain) for name, gain, high in means.itertuples()]
    made.sort(key=lambda one: -one.gain_ratio)
    together = next(one for one in made if one.resources == (TOGETHER,))
    whole = tuple(one for one in made if len(one.resources) == 1 and one is not together)
    return whole, tuple(one for one in made if len(one.resources) > 1), together


def operation_count(results: Results, captures: Sequence[int]) -> int:
    """Kernels, copies, memsets and graphs in these captures."""
    return int(of_captures(results, "captures", captures, COUNTS)[COUNTS].to_numpy().sum())


def group_times(windows: pd.DataFrame, causes: pd.DataFrame) -> dict[str, int]:
    """Time of every group, ns; they sum to the windows."""
    result = {
        KERNEL: int(windows["kernel_busy_ns"].sum() + windows["graph_busy_ns"].sum()),
        COMMUNICATION: int(windows["communication_ns"].sum()),
        COPY: int(windows["copy_busy_ns"].sum()),
    }
    for group, time in causes.groupby(groups_of(causes))["idle_ns"].sum().items():
        result[str(group)] = result.get(str(group), 0) + int(time)
    return result


def groups_of(causes: pd.DataFrame) -> pd.Series:
    """The group of every cause; an edited store may name no cause."""
    return causes["cause"].astype(str).map(GROUP_OF_CAUSE).fillna(UNKNOWN)


def _kernels_are(limit: Limit, results: Results) -> str:
    """What limits the kernels: Nsight Compute's own shares first, then the shape of the launches, then counted work
    against the roof of its type. Each must speak of half of the device time; else it is not known."""
    window = limit.window
    kernel, busy = int(window["kernel_ns"]), max(int(window["kernel_ns"]) + int(window["graph_busy_ns"]), 1)
    row = counted_work_of(results, limit.captures) if kernel >= LEAST_KNOWN_RATIO * busy else None
    if row is not None and str(row["bound_source"]) == "speed of light":
        return str(row["bound"])
    if limit.is_gpu and int(window.get("small_launch_ns", 0)) >= LEAST_KNOWN_RATIO * busy:
        return SHAPE
    if row is None or not row["counter_coverage_ratio"] >= LEAST_KNOWN_RATIO:
        return KERNEL
    bound = str(row["bound"])
    return bound if bound == "latency" or (row["roof_ratio"] >= LEAST_ROOF_RATIO and bound != UNKNOWN) else KERNEL


def counted_work_of(results: Results, captures: Sequence[int]) -> pd.Series | None:
    """The row of A15 on the kernels of these captures, the heaviest of several; None without one, and where no work was
    counted: A15 takes a while to make."""
    if not results.kept("has work", lambda: has_work(results)):
        return None
    rows, cases = frame_or_empty(results, "a15"), frame_or_empty(results, "cases")
    mine = cases.loc[cases["kernel_capture_id"].isin(list(captures)), "case_index"]
    rows = rows[rows["case_index"].isin(mine) & (rows["kernel_count"] > 0)]
    return None if rows.empty else rows.sort_values("kernel_latency_ns", ascending=False, kind="stable").iloc[0]


@dataclass(frozen=True)
class CauseRow:
    """Idle time of one cause in one range."""

    cause: str
    call_name: str
    detail: str
    owner: str
    layer_path: str
    idle_ns: int
    piece_count: int
    longest_ns: int
    ratio: float  # of the limit's time
    source_line: str = ""  # of the range that owns it: the line with most of its device time, "" unknown


def largest_causes(results: Results, limit: Limit, *, count: int = 5, layer: str = "") -> list[CauseRow]:
    """The causes with most idle time in the limit's scope, each with the range that owns it.

    Raises `UsageError` for a pattern that is not a regular expression or matches no layer."""
    causes = in_scope(results, limit)
    if layer:
        causes = causes[_matching(causes["layer_path"], layer)]
    keys = ["cause", "call_name", "detail", "owner", *(["layer_path"] if layer else [])]
    amounts = {"idle_ns": "sum", "piece_count": "sum", "longest_ns": "max"}
    found = summed(causes, keys, amounts)
    if found["cause"].eq(FIRST_LAUNCH).any():
        found = summed(found.assign(owner=_with_others(found)), keys, amounts)
    found = found.nlargest(count, "idle_ns")
    # of one device, as the verdict: the mean
    found = found.assign(ratio=found["idle_ns"] / max(limit.whole_ns, 1), layer_path=found.get("layer_path", ""))
    found["idle_ns"] //= max(limit.device_count, 1)
    found["source_line"] = [line_of(results, str(owner)) for owner in found["owner"]]
    return [CauseRow(**{str(k): v for k, v in row.items()}) for row in found.to_dict("records")]


def lead_in(results: Results, limit: Limit) -> tuple[int, CauseRow | None]:
    """How long the executions that a limit speaks of ran before the first operation of their devices, and the largest
    cause of it; (0, None) where another execution came first."""
    mine = of_captures(results, "device_windows", limit.captures, ["scope"])["scope"].astype(str)
    is_first = limit.scope == "warm-up" or (limit.scope == "execution" and not mine.eq("warm-up").any())
    kept = ("lead-in", limit.captures, limit.scope)  # the verdict and two remedies ask for it
    return results.kept(kept, lambda: _beside(results, limit, LEAD_IN)) if is_first else (0, None)


def lead_out(results: Results, limit: Limit) -> tuple[int, CauseRow | None]:
    """How long the executions that a limit speaks of ran on after the last operation of their devices, and the
    largest cause of it."""
    return _beside(results, limit, LEAD_OUT) if limit.scope == "execution" else (0, None)


def _beside(results: Results, limit: Limit, scope: str) -> tuple[int, CauseRow | None]:
    windows = of_captures(results, "device_windows", limit.captures, ["scope", "idle_ns"])
    time = int(windows.loc[windows["scope"].eq(scope), "idle_ns"].sum())
    rows = largest_causes(results, replace(limit, scope=scope, window_ns=time, replayed_ns=0), count=1) if time else []
    return time // max(limit.device_count, 1), rows[0] if rows else None


def _with_others(causes: pd.DataFrame) -> pd.Series:
    """Owners; of launches that loaded code, which happen wherever a kernel is first met, one for all."""
    loads = causes["cause"].eq(FIRST_LAUNCH)
    by_owner = causes[loads].groupby("owner", sort=False, observed=True)["idle_ns"].sum()
    owners = [owner for owner in by_owner.sort_values(ascending=False).index if owner]  # '': code in no range
    others = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
    return causes["owner"].astype(object).mask(loads, f"{owners[0]}{others}" if owners else "")


def is_of(rows: pd.DataFrame, scope: str) -> pd.Series:
    """Which rows are of a scope; what lies between the measured executions is part of their period."""
    return rows["scope"].isin([scope, BETWEEN] if scope == "execution" else [scope])


def in_scope(results: Results, limit: Limit) -> pd.DataFrame:
    """The causes of what a limit speaks of."""
    causes = of_captures(results, "idle_causes", limit.captures)
    return causes[is_of(causes, limit.scope)]


def _matching(paths: pd.Series, pattern: str) -> pd.Series:
    from xsp_post.base.errors import UsageError
    from xsp_post.names.user_patterns import UserPattern

    texts = paths.astype(str)
    found = pd.Series(UserPattern(pattern, "--layer").found_in(texts.tolist()), index=paths.index) & texts.ne("")
    if not found.any():
        said = f"--layer {pattern!r} matches no layer that a device waited in"
        raise UsageError(said, code="range-pattern-matches-nothing")
    return found
