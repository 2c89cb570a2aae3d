"""Two results → where the difference in time comes from: totals, kernels by name, causes that sum to it.

Everything is per unit of work. Where both have executions of one kind, that is an execution. Where neither has, the
captures are windows on a longer run, and the work in a window is measured by its kernels: how often those
that both have were launched, weighted by their time in the base. The times of the other are divided by that ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.base.texts import sentence
from xsp_post.compare.matching import BASE, OTHER, Side
from xsp_post.model.kinds import GEOMETRY
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.names.families import families, normalise_kernel_name
from xsp_post.replay.critical_path import COMMUNICATION
from xsp_post.tables.analyses.cases import deepest
from xsp_post.tables.analyses.limits import BETWEEN, group_times
from xsp_post.tree.structure.constants import DEFAULTS

EXECUTION, WORK, RECORDING = "execution", "work", "recording"
_EDGES = "edges"
# Less common kernel time than this on a side: the captures do not do the same work.
LEAST_COMMON = 0.5
_WINDOW = ["window_ns", "busy_ns", "idle_ns"]
_ENDS = (0.05, 0.95)
# Kernel names whose amounts of work are more than so many times one another show no two windows on one program.
_MOST_APART = 1.5
# Executions of one side hold the work of several of the other where this share of the kernels that both have is apart.
_ALIKE_SHARE = 0.9


@dataclass(frozen=True)
class Impact:
    """``unit``: execution, work, or the recording where neither can be compared. ``low``, ``high``: work of the other
    in that of the base, as single kernel names say it. ``totals``, ``names``, ``causes``: tables compare_…"""

    unit: str
    low: float
    high: float
    device_count: int
    totals: pd.DataFrame
    names: pd.DataFrame
    causes: pd.DataFrame


def impact(sides: list[Side], *, has_executions: bool, is_period: bool = False) -> Impact | None:
    """What the difference in time consists of; None where the results do not say what their devices did, or hold
    executions of several kinds. ``is_period``: what lies between two executions counts."""
    chosen = [deepest(side.results) for side in sides]
    units, pairs = zip(*(_executions(side, ids) if has_executions else (1, 1) for side, ids in zip(sides, chosen)))
    if not all(units):
        return None
    wanted = (EXECUTION, *[BETWEEN] * is_period) if has_executions else ()
    scopes = [_windows(side.results, ids, wanted) for side, ids in zip(sides, chosen)]
    if any(windows.empty or not windows["busy_ns"].sum() for windows, _ in scopes):
        return None
    for frame, count, less in zip([one for both in scopes for one in both], np.repeat(units, 2), np.repeat(pairs, 2)):
        times = [name for name in frame.columns.astype(str) if name.endswith("_ns")]
        more = np.where(frame["scope"].eq(BETWEEN) & is_period, count / max(less, 1), 1.0)
        frame[times] = frame[times].mul(more, axis=0)
    kernels = [_kernels(side, ids, has_executions) for side, ids in zip(sides, chosen)]
    shapes = _side_by_side(kernels, ["name", *GEOMETRY])
    names = _side_by_side(kernels, ["name"])
    if has_executions:
        unit, ratio, low, high = EXECUTION, units[OTHER] / units[BASE], np.nan, np.nan
    elif _marked_alike([_outermost(side.results, ids) for side, ids in zip(sides, chosen)]):
        unit, ratio, low, high = RECORDING, 1.0, np.nan, np.nan
    else:
        unit, ratio, low, high = _work(names)
    divisors = [float(units[BASE]), units[BASE] * ratio]
    groups = [_group_times(*scope, is_period) for scope in scopes]
    for found, (windows, _) in zip(groups, scopes):
        if graphs := int(windows["graph_busy_ns"].sum()):
            found["kernel"], found["graph"] = found["kernel"] - graphs, graphs
    sums = [_sums(windows, names, side) for (windows, _), side in zip(scopes, (BASE, OTHER))]
    if is_period:  # what earlier launches still run in the first execution is none of it
        for found, summed, prefix in zip(groups, sums, ("base", "other")):
            own = names.loc[~names["is_communication"], f"{prefix}_total"].sum()
            beyond = max(int(found["kernel"] - own), 0)
            found["kernel"] -= beyond
            summed |= {name: summed[name] - beyond for name in ("window", "busy", "device_time")}
    if not has_executions:
        for side, ids, found, summed in zip(sides, chosen, groups, sums):
            found[_EDGES] = _edges(side.results, ids, summed)
    table = names.assign(impact_ns=_impact(names, divisors, unit))
    causes = _causes(groups, shapes, divisors) if unit else pd.DataFrame(columns=["cause", "difference_ns", "example"])
    devices = len(scopes[BASE][0].drop_duplicates(["capture_id", "device_id"]))
    totals = pd.DataFrame([total_row(name, [one[name] for one in sums], divisors) for name in sums[BASE]])
    return Impact(unit, low, high, devices, totals, _ordered(table), causes)


def are_unlike(sides: list[Side]) -> bool:
    """Whether an execution of one side holds the work of several of the other: nearly all kernels of one name and shape
    more often in it, other numbers of executions in as many outermost ranges of the same names, no kernel on both
    sides, or executions of one side alone and none in common. Else executions that somebody marked alike on both sides
    are one thing, whatever they hold."""
    chosen = [deepest(side.results) for side in sides]
    units = [_executions(side, ids)[0] for side, ids in zip(sides, chosen)]
    has_common = all((side.pair_of_case >= 0).any() for side in sides)
    if not all(units):
        return any(units) and not has_common
    is_apart = max(units) > _MOST_APART * min(units)
    if is_apart and _marked_alike([_outermost(side.results, ids) for side, ids in zip(sides, chosen)]):
        return True
    marks = [frame_or_empty(side.results, "iterations", ["is_inferred"])["is_inferred"].astype(bool) for side in sides]
    if has_common and not any(mark.any() for mark in marks):
        return False
    shapes = _side_by_side([_kernels(side, ids, True) for side, ids in zip(sides, chosen)], ["name", *GEOMETRY])
    common = shapes[shapes[["base_count", "other_count"]].all(axis=1)]
    if common.empty:  # nothing says that both hold the same
        return is_apart and any(mark.any() for mark in marks)
    factor, time = common["other_count"] / common["base_count"] * units[BASE] / units[OTHER], common["base_total"]
    apart = [time[one > _MOST_APART].sum() for one in (factor, 1 / factor)]
    return bool(max(apart) >= _ALIKE_SHARE * time.sum())


def _outermost(results: Results, ids: list[int]) -> pd.Series:
    """How often each range with device work around which there is none was recorded, by its text."""
    nodes = of_captures(results, "nodes", ids, ["depth", "folded_name", "is_inferred", "device_ns"])
    nodes = nodes[nodes["depth"].eq(1) & ~nodes["is_inferred"].astype(bool) & nodes["device_ns"].gt(0)]
    return nodes["folded_name"].astype(str).value_counts().sort_index()


def _marked_alike(outer: list[pd.Series]) -> bool:
    """Whether both sides have as many outermost ranges of the same names: they do the same work, whatever they run."""
    return outer[0].equals(outer[1]) and bool(outer[0].min() >= DEFAULTS.fewest_turns)


def _windows(results: Results, ids: list[int], scopes: tuple[str, ...]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Device windows and idle causes of scopes; () of all."""
    frames = []
    for name in ("device_windows", "idle_causes"):
        frame = of_captures(results, name, ids)
        frames.append(frame[frame["scope"].isin(scopes) | (not scopes)].copy())
    return frames[0], frames[1]


def _group_times(windows: pd.DataFrame, causes: pd.DataFrame, is_period: bool) -> dict[str, int]:
    """Time of every group; of a period, groups between two executions have names of their own."""
    between = [rows["scope"].eq(BETWEEN) & is_period for rows in (windows, causes)]
    times = group_times(windows[between[0]], causes[between[1]]).items()
    return group_times(windows[~between[0]], causes[~between[1]]) | {f"{name} {BETWEEN}": ns for name, ns in times}


def _executions(side: Side, ids: list[int]) -> tuple[int, int]:
    """Measured executions in the captures, and how often one follows another; 0 where they are of several cases."""
    rows = side.cases.iterations
    mine = rows[rows["capture_id"].isin(ids) & rows["is_measured"].astype(bool) & (rows["iteration_index"] >= 0)]
    count = len(mine) if mine["case_index"].nunique() == 1 else 0
    return count, count - len(mine.drop_duplicates(["capture_id", "process_id"]))


def _kernels(side: Side, ids: list[int], has_executions: bool) -> pd.DataFrame:
    """name, shape, count, total (ns) of the kernels of the captures, or of their measured executions."""
    columns = ["capture_id", "process_id", "iteration_index", "name", "duration_ns", *GEOMETRY]
    frame = of_captures(side.results, "kernels", ids).reindex(columns=columns)
    if has_executions:
        place = (frame[c].to_numpy(np.int64) for c in ("capture_id", "iteration_index", "process_id"))
        row = side.cases.rows_of(*place)
        measured = np.append(side.cases.iterations["is_measured"].to_numpy(bool), False)
        frame = frame[measured[row] & (frame["iteration_index"].to_numpy(np.int64) >= 0)]
    frame = frame.assign(name=normalise_kernel_name(frame["name"].astype(object)))
    frame[[*GEOMETRY]] = frame[[*GEOMETRY]].fillna(-1)
    sums = frame.groupby(["name", *GEOMETRY], sort=False)["duration_ns"].agg(["size", "sum"])
    return sums.rename(columns={"size": "count", "sum": "total"}).astype(float).reset_index()


def _edges(results: Results, ids: list[int], sums: dict[str, float]) -> int:
    """Time of the recording before the first and after the last operation of each GPU; added to window and idle."""
    devices = of_captures(results, "devices", ids, ["gpu_index", "device_ns", "duration_ns"])
    devices = devices[devices["device_ns"] > 0].drop_duplicates(["capture_id", "gpu_index"])
    length = float(devices["duration_ns"].sum())
    beyond = max(length - sums["window"], 0.0)
    sums["window"] += beyond
    sums["idle"] += beyond
    return int(beyond)


def _impact(names: pd.DataFrame, divisors: list[float], unit: str) -> pd.Series:
    """Kernel time of the other less that of the base. Of a window on a longer run only what the length of a launch
    makes of it: how many launches lie in the window is where it was cut."""
    whole = names["other_total"] / divisors[OTHER] - names["base_total"] / divisors[BASE]
    if unit != WORK:
        return whole
    base, other = (names[f"{side}_total"] / names[f"{side}_count"] for side in ("base", "other"))
    return ((other - base) * names["other_count"] / divisors[OTHER]).fillna(whole)


def _side_by_side(kernels: list[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    """keys, base_count, base_total, other_count, other_total, is_communication."""
    parts = [frame.groupby(keys, sort=False)[["count", "total"]].sum() for frame in kernels]
    parts = [part.add_prefix(prefix) for part, prefix in zip(parts, ("base_", "other_"))]
    both = parts[BASE].join(parts[OTHER], how="outer").fillna(0.0).reset_index()
    return both.assign(is_communication=families(both["name"].astype(object)) == COMMUNICATION)


def _work(names: pd.DataFrame) -> tuple[str, float, float, float]:
    """Unit, work of the other relative to the base, and between which values kernel names put it."""
    own = names[~names["is_communication"]]
    common = own[(own["base_count"] > 0) & (own["other_count"] > 0)]
    for side in ("base_total", "other_total"):
        if common[side].sum() < LEAST_COMMON * max(own[side].sum(), 1.0):
            return RECORDING, 1.0, np.nan, np.nan
    weight, ratio = common["base_total"].to_numpy(float), (common["other_count"] / common["base_count"]).to_numpy(float)
    order = np.argsort(ratio, kind="stable")
    share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    low, high = (float(np.interp(end, share, ratio[order])) for end in _ENDS)
    if high > _MOST_APART * low:
        return RECORDING, 1.0, np.nan, np.nan
    return WORK, float((ratio * weight).sum() / weight.sum()), low, high


def _sums(windows: pd.DataFrame, names: pd.DataFrame, side: int) -> dict[str, float]:
    prefix = ("base", "other")[side]
    result = {column.removesuffix("_ns"): float(windows[column].sum()) for column in _WINDOW}
    result["kernel_count"] = float(names[f"{prefix}_count"].sum())
    result["kernel_time"] = float(names[f"{prefix}_total"].sum())
    result["copy_time"] = float(windows["copy_busy_ns"].sum())
    result["communication"] = float(windows["communication_ns"].sum())
    result["device_time"] = float(windows["busy_ns"].sum())
    return result


def total_row(quantity: str, values: list[float], divisors: Sequence[float] = (1.0, 1.0)) -> dict[str, object]:
    """A row of ``compare_totals``; ``divisors``: units of work of each side."""
    unit = {"kernel_count": "1", "memory_peak": "B", "memory_reserved": "B"}.get(quantity, "ns")
    base, other = (value / divisor for value, divisor in zip(values, divisors))
    return {
        "quantity": quantity, "unit": unit, "base_value": values[BASE], "other_value": values[OTHER],
        "base_per_unit": base, "other_per_unit": other, "difference_value": other - base,
        "difference_ratio": other / base - 1 if base else np.nan,
    }  # fmt: skip


def _ordered(names: pd.DataFrame) -> pd.DataFrame:
    count = {side: names[f"{side}_count"] for side in ("base", "other")}
    table = pd.DataFrame({
        "name": names["name"], "base_count": count["base"].astype("int64"),
        "other_count": count["other"].astype("int64"),
        "base_mean_ns": names["base_total"] / count["base"].where(count["base"] > 0),
        "other_mean_ns": names["other_total"] / count["other"].where(count["other"] > 0),
        "impact_ns": names["impact_ns"], "is_communication": names["is_communication"],
    })  # fmt: skip
    return table.iloc[(-table["impact_ns"].abs()).argsort(kind="stable")].reset_index(drop=True)


# -- causes -------------------------------------------------------------------------------------------------


def _causes(groups: list[dict[str, int]], shapes: pd.DataFrame, divisors: list[float]) -> pd.DataFrame:
    """cause, difference_ns per unit of work, example; they sum to the difference of the windows."""
    rows = []
    split = _kernel_causes(shapes[~shapes["is_communication"]], divisors)
    kernel = _per(groups, "kernel", divisors)
    split["overlap"] = (kernel - sum(value for value, _ in split.values()), "")
    rows += [(sentence(f"compare.cause.{cause}"), value, example) for cause, (value, example) in split.items()]
    for group in dict.fromkeys([*groups[BASE], *groups[OTHER]]):
        if group != "kernel":
            name, _, where = group.partition(" ")
            text = sentence(f"compare.cause.{name}") + sentence("compare.between") * bool(where)
            rows.append((text, _per(groups, group, divisors), ""))
    table = pd.DataFrame(rows, columns=["cause", "difference_ns", "example"])
    return table.iloc[(-table["difference_ns"].abs()).argsort(kind="stable")].reset_index(drop=True)


def _per(groups: list[dict[str, int]], group: str, divisors: list[float]) -> float:
    return groups[OTHER].get(group, 0) / divisors[OTHER] - groups[BASE].get(group, 0) / divisors[BASE]


def _kernel_causes(rows: pd.DataFrame, divisors: list[float]) -> dict[str, tuple[float, str]]:
    """Difference and the name with most of it, by cause; together the difference of the sums of durations."""
    count = [rows[f"{side}_count"].to_numpy(float) / divisor for side, divisor in zip(("base", "other"), divisors)]
    total = [rows[f"{side}_total"].to_numpy(float) / divisor for side, divisor in zip(("base", "other"), divisors)]
    by_name = rows.groupby("name")[["base_count", "other_count"]].transform("sum")
    lone_name = (by_name == 0).any(axis=1).to_numpy()
    lone_shape = ~lone_name & ((count[BASE] == 0) | (count[OTHER] == 0))
    mean = total[BASE] / np.where(count[BASE] > 0, count[BASE], 1.0)
    whole = total[OTHER] - total[BASE]
    launches = np.where(lone_name | lone_shape, 0.0, (count[OTHER] - count[BASE]) * mean)
    values = {
        "swapped": np.where(lone_name, whole, 0.0),
        "shape": np.where(lone_shape, whole, 0.0),
        "count": launches,
        "duration": np.where(lone_name | lone_shape, 0.0, whole - launches),
    }
    names = rows["name"].to_numpy(object)
    return {cause: (float(value.sum()), _most(names, value)) for cause, value in values.items()}


def _most(names: np.ndarray, values: np.ndarray) -> str:
    if not len(values) or not np.abs(values).max() > 0:
        return ""
    summed = pd.Series(values).groupby(names).sum()
    return str(summed.abs().idxmax())
