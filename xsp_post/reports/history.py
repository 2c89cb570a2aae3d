"""A history → its sentences: a line per workload with its course, its changes and their parts, the next capture."""

import numpy as np
import pandas as pd

from xsp_post.arrays.changes import ALARM_RATE, DRIFT, LEAST_SIDE
from xsp_post.base.text_safety import shown
from xsp_post.model.schemas.units import counted, format_change, format_ns, format_ratio_interval
from xsp_post.tables.analyses.history import CAUSE, KERNEL, LATENCY, LAYER, MACHINE, MODEL, table_of

_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 60  # captures of a line; of more, the mean of neighbours
_PARTS = {LAYER: "layers", KERNEL: "kernels", CAUSE: "causes"}
_MOST_PARTS = 3


def sparkline(values: np.ndarray) -> str:
    """One letter per capture, from the least to the largest value; a course within 1 % is flat."""
    means = np.array([part.mean() for part in np.array_split(values, min(len(values), _WIDEST))])
    low, high = means.min(), means.max()
    if high - low <= 0.01 * high:
        return _BARS[2] * len(means)
    return "".join(_BARS[int(k)] for k in np.minimum((means - low) / (high - low) * len(_BARS), len(_BARS) - 1))


def history_lines(values: pd.DataFrame, changes: pd.DataFrame) -> list[str]:
    """What the tables `history_values` and `history` say, a sentence a line."""
    lines, alone = [], []
    for number, rows in values.groupby("workload_index", sort=True):
        if rows["position_index"].nunique() == 1:
            alone.append(shown(str(rows["capture_name"].iloc[0]), 40))
            continue
        mine = changes[changes["workload_index"] == number]
        lines += [
            *_course(rows),
            *(line for _, one in mine.groupby("change_index", sort=True) for line in _change(one)),
        ]
        if mine.empty:
            lines.append(_nothing(rows["position_index"].nunique()))
        lines.append("Next: " + next_capture(rows, mine))
    return [*lines, f"Each alone of its workload: {', '.join(alone)}"] if alone else lines


def _course(rows: pd.DataFrame) -> list[str]:
    first = rows.iloc[0]
    names = rows.drop_duplicates("position_index").sort_values("position_index")["capture_name"].tolist()
    batch = f"batch size {first['batch_size']}" if first["batch_size"] > 0 else ""
    who = [shown(str(one), 60) for one in (first["gpu_name"], batch, first["phase"], first["rank_name"]) if one]
    ends = shown(names[0], 40) + (f" … {shown(names[-1], 40)}" if len(names) > 1 else "")
    captures = counted(len(names), "capture", "captures")
    latency = table_of(rows)[MODEL, LATENCY].to_numpy(float)
    return [" · ".join([*who, captures, ends]),
            f"{sparkline(latency)}  model latency {format_ns(latency[0])} → {format_ns(latency[-1])}"]  # fmt: skip


def _change(rows: pd.DataFrame) -> list[str]:
    """The change of the model's latency, or of what shows it where that does not; then the parts."""
    model, shows = rows.iloc[0], rows[rows["is_shown"]]
    row = model if model["is_shown"] else shows.iloc[0]
    named = shown(str(row["subject"]), 60)
    named = named.replace("_", " ") if row["level"] == MODEL else f"{row['level']} {named}"
    word = "slower" if row["difference_ns"] > 0 else "faster"
    where = f"from {shown(row['capture_name'], 60)} on"
    if row["kind"] == DRIFT:
        where = f"little by little, {shown(row['capture_name'], 60)} … {shown(row['latest_name'], 60)}"
    elif row["earliest_name"] != row["latest_name"]:
        where += f" (it may be {shown(row['earliest_name'], 60)} … {shown(row['latest_name'], 60)})"
    ratio = ""
    if row["before_ns"] > 0:
        low, high = (row[f"ci_{end}_difference_ns"] / row["before_ns"] for end in ("low", "high"))
        interval = format_ratio_interval(low, high)
        ratio = f" ({format_change(row['difference_ratio'])}; 95 % interval {interval})"
    lines = [f"{named} {word} by {format_ns(abs(row['difference_ns']))}{ratio}, {where}"]
    if row["kind"] == MACHINE:
        lines[0] += ": the machine's clock or load, for all layers share most of it"
    for level, word in _PARTS.items():
        parts = rows[(rows["level"] == level) & (rows["difference_ns"] != 0)]
        told = parts[parts["is_shown"]].head(_MOST_PARTS)
        if len(told):
            rest = parts["difference_ns"].sum() - told["difference_ns"].sum()
            said = [
                f"{shown(str(one['subject']), 50)} {_amount(one['difference_ns'])}" for one in told.to_dict("records")
            ]
            lines.append(f"  {word}: {', '.join([*said, f'all else {_amount(rest)}'])}")
    return lines


def _amount(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{format_ns(abs(value))}"


def _nothing(count: int) -> str:
    if count < 2 * LEAST_SIDE:
        return f"Fewer than {2 * LEAST_SIDE} captures are no history: xsp-post compare says what two of them show."
    return f"No change was found. Of histories without a change, {ALARM_RATE * 1000:g} in 1,000 would show one."


def next_capture(rows: pd.DataFrame, changes: pd.DataFrame) -> str:
    """The capture that would tell most."""
    names = rows.drop_duplicates("position_index").sort_values("position_index")["capture_name"].tolist()
    missing = 2 * LEAST_SIDE - len(names)
    if missing > 0:
        return f"{missing} more {'captures' if missing > 1 else 'capture'}, so that a step can be told from chance."
    steps = changes[changes["kind"] != DRIFT].drop_duplicates("change_index")
    if len(steps) and steps["kind"].iloc[-1] == MACHINE:
        return f"repeat {shown(names[-1], 60)}: it tells whether the machine is as fast as before."
    open_ = steps[steps["earliest_name"] != steps["latest_name"]]
    if len(open_):
        row = open_.iloc[-1]
        low, high = names.index(row["earliest_name"]), names.index(row["latest_name"])
        return f"repeat {shown(names[(low + high) // 2], 60)}: it tells on which side of the change it is."
    if len(steps):
        at = int(steps["position_index"].iloc[-1])
        return (f"a version between {shown(names[at - 1], 60)} and {shown(names[at], 60)}, if there is one: "
                "the change lies between them.")  # fmt: skip
    latency = table_of(rows)[MODEL, LATENCY].to_numpy(float)
    before = latency[:-1]
    if abs(latency[-1] - before.mean()) > 3 * max(before.std(ddof=1), 0.005 * before.mean()):
        return f"repeat {shown(names[-1], 60)}: it is unlike those before, and one capture alone may be an outlier."
    return "the next version."
