"""Results of many captures of one workload, in order → what changed at which capture, and of what the change consists.

A workload is known by what it is (layers, batch size, phase, GPU), not by the names of its files. The values of a
capture are times of one execution: the model's, its layers', its kernel families', and where the time went.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.changes import ALARM_RATE, DRIFT, LEAST_SHUFFLED, STEP, Change, changes, drift_sizes, sizes
from xsp_post.model.results import Results, of_captures, typed
from xsp_post.tables.analyses.frames import together
from xsp_post.tables.analyses.limits import find_limit, group_times

CONTRIBUTED = "history_values"
MODEL, LAYER, KERNEL, CAUSE = "model", "layer", "kernel", "cause"
LATENCY, REST = "model_latency", "[rest]"
_LEVELS = (MODEL, LAYER, KERNEL, CAUSE)
_PARTS = (LAYER, KERNEL)
_SUMMED = (*_PARTS, CAUSE)  # the parts of a level, and its rest, sum to the model's latency
_WORKLOAD = ["batch_size", "phase", "rank_name", "gpu_name"]
_ALIKE = 0.5  # share of common layers (else kernel families) of two captures of one workload
# Spread of a capture that is taken for granted: how machines differ from day to day, what clocks resolve.
_LEAST_SPREAD, _RESOLUTION_NS = 0.005, 500.0
_LEAST_PARTS = 4  # that say how fast the machine was
_LEAST_CHANGE, _LEAST_SHARE = 0.01, 0.001  # of the measure itself, and of the model's latency
MACHINE = "machine"  # kind of a step that is not the program's


def history_contribution(results: Results, capture_name: str, families: pd.DataFrame) -> pd.DataFrame:
    """What one capture adds (schemas: history_values): no rows where it has no model execution with a latency.
    ``families``: its rows of fleet_families."""
    model = results.frame("a01")[["case_index", *_WORKLOAD, "latency_ns"]]
    model = model[model["latency_ns"].notna()]
    kernels = results.frame("a15")[["case_index", "kernel_latency_ns", "busy_ns"]]
    layers = results.frame("a02")
    parts = [
        _rows(model, MODEL, LATENCY, "latency_ns"),
        _rows(kernels, MODEL, "kernel_latency", "kernel_latency_ns"),
        _rows(kernels, MODEL, "gpu_busy", "busy_ns"),
        _rows(layers.assign(subject=layers["layer_path"].astype(object)), LAYER, None, "latency_ns"),
        _rows(families.assign(subject=families["family"]), KERNEL, None, "latency_ns"),
        _causes(results, model),
    ]
    values = pd.concat(parts, ignore_index=True).groupby(["case_index", "level", "subject"], sort=False).sum()
    frame = model.drop(columns="latency_ns").merge(values.reset_index(), on="case_index", validate="one_to_many")
    texts = {name: frame[name].astype(object) for name in ("phase", "rank_name", "gpu_name")}
    frame = frame.assign(**texts, capture_name=capture_name, recorded_utc_ns=_recorded(results))
    return typed(CONTRIBUTED, frame.assign(workload_index=0, position_index=0))


def _rows(frame: pd.DataFrame, level: str, subject: str | None, column: str) -> pd.DataFrame:
    rows = frame.assign(level=level, subject=frame["subject"] if subject is None else subject)
    rows = rows[["case_index", "level", "subject"]].assign(value_ns=frame[column].astype(float))
    return rows[rows["value_ns"].notna()]


def _causes(results: Results, model: pd.DataFrame) -> pd.DataFrame:
    """Where the time of one execution went, of a capture with one case only."""
    limit = find_limit(results)
    names = ("device_windows", "idle_causes", "iterations")
    windows, causes, iterations = (of_captures(results, name, limit.captures) for name in names)
    if len(model) != 1 or limit.scope != "execution" or windows.empty:
        return pd.DataFrame(columns=["case_index", "level", "subject", "value_ns"])
    windows, causes = (rows[rows["scope"].eq(limit.scope)] for rows in (windows, causes))
    measured = ~iterations["is_warmup"].astype(bool)
    times = pd.Series(group_times(windows, causes), dtype=float)
    devices = len(windows.drop_duplicates(["capture_id", "device_id"]))
    frame = pd.DataFrame({"level": CAUSE, "subject": times.index, "value_ns": times.to_numpy()})
    frame["value_ns"] *= windows["capture_id"].nunique() / (max(int(measured.sum()), 1) * devices)
    return frame.assign(case_index=model["case_index"].iloc[0])[["case_index", "level", "subject", "value_ns"]]


def _recorded(results: Results) -> int:
    """When the first execution began, ns since 1970; −1 not recorded."""
    captures = results.frame("captures", ["capture_id", "clock_utc_ns"])
    known = captures[captures["clock_utc_ns"] >= 0]
    starts = results.frame("iterations", ["capture_id", "start_ns"]).groupby("capture_id")["start_ns"].min()
    times = known["clock_utc_ns"] + known["capture_id"].map(starts).fillna(0).astype(np.int64)
    return int(times.min()) if len(times) else -1


# -- many captures ------------------------------------------------------------------------------------------


def history_values(contributions: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The contributions, in the order of the captures, with the number of their workload and their place in it."""
    known: list[tuple[tuple[Any, ...], set[str], int]] = []
    parts = []
    for frame in contributions:
        for who, rows in frame.groupby([*_WORKLOAD, "case_index"], sort=False):
            words = _structure(rows)
            number = next((k for k, (one, others, _) in enumerate(known) if one == who[:-1] and _alike(words, others)),
                          len(known))  # fmt: skip
            position = known[number][2] + 1 if number < len(known) else 0
            known[number : number + 1] = [(who[:-1], words, position)]
            parts.append(rows.assign(workload_index=number, position_index=position))
    return together(CONTRIBUTED, parts)


def _structure(rows: pd.DataFrame) -> set[str]:
    """The layers without their numbers, else the kernel families."""
    named = next((part for part in (rows[rows["level"] == level] for level in (LAYER, KERNEL)) if len(part) > 1), rows)
    return {re.sub(r"\d+", "*", str(subject)) for subject in named["subject"]}


def _alike(words: set[str], others: set[str]) -> bool:
    return len(words & others) >= _ALIKE * len(words | others)


def table_of(values: pd.DataFrame) -> pd.DataFrame:
    """The values of one workload: a row per capture, a column (level, subject) per measure, the model's latency first;
    what a capture does not have took no time."""
    table = values.pivot_table(index="position_index", columns=["level", "subject"], values="value_ns", aggfunc="sum")
    order = sorted(table.columns, key=lambda one: (_LEVELS.index(one[0]), one[1] != LATENCY, -table[one].sum()))
    return table[order].fillna(0.0)


def names_of(values: pd.DataFrame) -> list[str]:
    """The captures of one workload, in order."""
    return values.drop_duplicates("position_index").sort_values("position_index")["capture_name"].tolist()


def floors(values: np.ndarray) -> np.ndarray:
    """Standard deviation of a capture that is taken for granted, per measure, ns."""
    return np.hypot(_LEAST_SPREAD * np.abs(values).mean(axis=0), _RESOLUTION_NS)


def history_table(values: pd.DataFrame) -> pd.DataFrame:
    return together("history", (_changes_of(rows) for _, rows in values.groupby("workload_index", sort=True)))


def _changes_of(rows: pd.DataFrame) -> pd.DataFrame:
    table = table_of(rows)
    found, usual = changes_of(table)
    names = names_of(rows)
    parts = [_one_change(table, usual, found, k).assign(change_index=k, **_where(one, names))
             for k, one in enumerate(found)]  # fmt: skip
    workload = rows["workload_index"].iloc[0]
    return pd.concat(parts, ignore_index=True).assign(workload_index=workload) if parts else pd.DataFrame()


def changes_of(table: pd.DataFrame) -> tuple[list[Change], np.ndarray]:
    """The changes of a workload (``table``: `table_of`), and its values at the machine's usual speed. Noise multiplies,
    so that logarithms are compared: of how much longer than usual all layers take, and of what each measure takes
    beside that."""
    values, slowness = table.to_numpy(float), np.log(slowness_of(table))
    count, mean = len(values), values.mean(axis=0)
    logs = np.log(values + _RESOLUTION_NS)
    least = np.log1p(np.maximum(_LEAST_CHANGE, _LEAST_SHARE * mean[0] / np.maximum(mean, _RESOLUTION_NS)))
    floor = np.hypot(_LEAST_SPREAD, _RESOLUTION_NS / (mean + _RESOLUTION_NS))
    follows, layers = count >= LEAST_SHUFFLED and slowness.any(), table.columns.get_level_values("level") == LAYER
    common = _shared(logs[:, layers], floor[layers], slowness) if follows else slowness
    logs -= slowness * (not follows)
    found = changes(logs, floor, least, ALARM_RATE / 2, _are_sums(table), common[:, : common.shape[1] * follows])
    # from one capture to the next: a change is one of many
    power = np.linalg.pinv(np.diff(common, axis=0)) @ np.diff(logs, axis=0) if follows else np.ones((1, len(mean)))
    kept = _without(table, found)  # where few layers are, one that changed moves their median a little
    course = np.column_stack([np.log(slowness_of(kept)), common[:, 1:]])
    course -= course.mean(axis=0)  # the model's latency has as much of it as fits
    course = course @ (np.linalg.pinv(course) @ np.log(kept.to_numpy()[:, :1])) if follows else course
    machine = changes(course, np.array([_LEAST_SPREAD]), np.log1p([_LEAST_CHANGE]), ALARM_RATE / 2)
    found += [one._replace(kind=MACHINE) for one in machine if one.kind == STEP]  # what drifts is followed
    usual = (values + _RESOLUTION_NS) * np.exp(-common @ power) - _RESOLUTION_NS
    return sorted(found, key=lambda one: (one.first, one.end)), usual


def _without(table: pd.DataFrame, found: list[Change]) -> pd.DataFrame:
    """The values of a workload without what the program changed of the measures that show it."""
    place = np.arange(len(table)) + 1
    known = [np.clip((place - one.first) / (one.end + 1 - one.first), 0, 1) for one in found]
    logs = np.log(table.to_numpy(float) + _RESOLUTION_NS)
    change = np.linalg.pinv(np.column_stack([np.ones(len(table)), *known])) @ logs
    for number, one in enumerate(found):
        members = [*one.members]
        logs[:, members] -= known[number][:, None] * change[number + 1, members]
    return pd.DataFrame(np.exp(logs), columns=table.columns)


def _shared(layers: np.ndarray, floor: np.ndarray, common: np.ndarray) -> np.ndarray:
    """What layers share besides how slow the machine is, as load that slows each by a power of its own: principal
    components that describe most layers better (Akaike 1974), and by a third of the root mean square or more: what
    fewer layers show is their own. Each course that is followed leaves one layer fewer that says anything."""
    count, number = layers.shape
    while (free := number - common.shape[1]) >= _LEAST_PARTS:
        known = np.column_stack([np.ones(count), common])
        rest = layers - known @ (np.linalg.pinv(known) @ layers)
        power = (rest**2).sum(axis=0) + count * floor**2
        one = np.linalg.svd(rest / np.sqrt(power), full_matrices=False)[0][:, :1]
        part = (one.T @ rest) ** 2
        gain = -count * np.log(1 - np.median(part / power))
        if gain < 2 * (1 + count / free) or 9 * np.median(part) < part.mean():
            break
        common = np.column_stack([common, one])
    return common


def _are_sums(table: pd.DataFrame) -> np.ndarray:
    """Measures of which others are the parts: layers, and causes beside kernels (else the model's latency), show what
    the program changed. Load that interrupts some executions moves sums more than the trimmed means of layers."""
    levels, subjects = (table.columns.get_level_values(name) for name in ("level", "subject"))
    host = (levels == CAUSE) & (subjects != KERNEL)
    parts = (levels == LAYER) | (host if host.any() else subjects == LATENCY)
    return ~parts & ((levels == LAYER).sum() >= _LEAST_PARTS)


def _neighbours(found: list[Change], change: Change, count: int) -> tuple[int, int]:
    """Where the level before a step begins, and the one after it ends."""
    edges = sorted({0, *(one.first for one in found if one.kind != DRIFT), count})
    place = edges.index(change.first, 1)
    return edges[place - 1], edges[place + 1]


def slowness_of(table: pd.DataFrame) -> np.ndarray:
    """How much longer than usual the layers (else families) of each capture take, the median of them; 1 where that
    explains less of their noise than it adds, or for few layers or one capture. Shape (captures, 1)."""
    none = np.ones((len(table), 1))
    for level in _PARTS:
        parts = table.loc[:, table.columns.get_level_values("level") == level].to_numpy(float)
        usual = np.median(parts, axis=0)
        parts = parts[:, usual > _RESOLUTION_NS] / usual[usual > _RESOLUTION_NS]
        if parts.shape[1] >= _LEAST_PARTS and len(table) > 1:
            alike = np.maximum(np.median(parts, axis=1, keepdims=True), 1e-9)
            # from one capture to the next: a change for good is one difference of many
            before, after = (np.median(np.abs(np.diff(one, axis=0))) for one in (parts, parts / alike))
            return alike if after < before or len(table) >= LEAST_SHUFFLED else none
    return none


def _where(change: Change, names: list[str]) -> dict[str, Any]:
    last = change.end - 1 if change.kind == DRIFT else change.latest
    return {"kind": change.kind, "position_index": change.first, "capture_name": names[change.first],
            "earliest_name": names[change.earliest], "latest_name": names[last]}  # fmt: skip


def _one_change(table: pd.DataFrame, usual: np.ndarray, found: list[Change], number: int) -> pd.DataFrame:
    """Sizes of all measures between the changes before and after, and the rests; so the parts sum to the model's.
    They are those at the machine's usual speed where it is not the machine that changed."""
    change = found[number]
    values = table.to_numpy(float) if change.kind == MACHINE else usual
    rests, labels = [], []
    for level in _SUMMED:
        mine = table.columns.get_level_values("level") == level
        if mine.any():
            rests.append(values[:, 0] - values[:, mine].sum(axis=1))
            labels.append((level, REST))
    values = np.column_stack([values, *rests])
    floor = floors(values)
    if change.kind == DRIFT:
        size = drift_sizes(values[change.first : change.end], floor)
    else:
        start, end = _neighbours(found, change, len(values))
        size = sizes(values, floor, start, change.first, end)
    before, after, low, high = size
    frame = pd.DataFrame([*table.columns, *labels], columns=["level", "subject"])
    frame = frame.assign(before_ns=before, after_ns=after, difference_ns=after - before,
                         ci_low_difference_ns=low, ci_high_difference_ns=high)  # fmt: skip
    frame["difference_ratio"] = (frame["difference_ns"] / frame["before_ns"]).where(frame["before_ns"] > 0)
    frame["share_ratio"] = frame["difference_ns"] / (frame["difference_ns"].iloc[0] or np.nan)
    frame["is_shown"] = frame.index.isin(change.members)
    order = frame["level"].map(_LEVELS.index) * 2 + (frame["subject"] != LATENCY)
    return frame.iloc[np.lexsort((-frame["difference_ns"].abs(), order))].reset_index(drop=True)
