"""A history → its sentences: a line per workload with its course, its changes and their parts, the next capture."""

from itertools import chain

import numpy as np
import pandas as pd

from xsp_post.arrays.changes import ALARM_RATE, DRIFT, LEAST_SIDE, sizes
from xsp_post.base.text_safety import shown
from xsp_post.base.texts import sentence
from xsp_post.model.schemas.units import counted, format_change, format_difference, format_ns, format_ratio_interval
from xsp_post.tables.analyses.history import CAUSE, KERNEL, LATENCY, LAYER, MACHINE, MODEL, floors, names_of, table_of

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
    """What the tables `history_values` and `history` say, a sentence a line; the largest change first."""
    lines, alone = [], []
    for number, rows in values.groupby("workload_index", sort=True):
        if len(names := names_of(rows)) == 1:
            alone.append(shown(names[0], 40))
            continue
        mine = changes[changes["workload_index"] == number]
        told = sorted((one for _, one in mine.groupby("change_index")), key=_order)
        first, *others = [[_change(one), *_parts(one)] for one in told] or [[_nothing(rows)]]
        text = _said("largest", count=len(told), sentence=first[0]) if others else first[0]
        lines += [text, *_course(rows), *first[1:], *chain(*others), f"Next: {next_capture(rows, mine)}"]
    return [*lines, f"Each alone of its workload: {', '.join(alone)}"] if alone else lines


def _order(rows: pd.DataFrame) -> tuple[bool, float]:
    """Of the program's changes the largest first, then the machine's."""
    row = _row(rows)
    return row["kind"] == MACHINE, -abs(row["difference_ns"])


def _said(key: str, **slots: object) -> str:
    return sentence(f"history.{key}", **slots)


def _course(rows: pd.DataFrame) -> list[str]:
    first = rows.iloc[0]
    names = names_of(rows)
    batch = f"batch size {first['batch_size']}" if first["batch_size"] > 0 else ""
    who = [shown(str(one), 60) for one in (first["gpu_name"], batch, first["phase"], first["rank_name"]) if one]
    ends = shown(names[0], 40) + (f" … {shown(names[-1], 40)}" if len(names) > 1 else "")
    captures = counted(len(names), "capture", "captures")
    latency = table_of(rows)[MODEL, LATENCY].to_numpy(float)
    ends_ns = {"first": format_ns(latency[0]), "last": format_ns(latency[-1])}
    return [" · ".join([*who, captures, ends]), _said("course", bars=sparkline(latency), **ends_ns)]


def _row(rows: pd.DataFrame) -> pd.Series:
    """Of a change the model's latency, or what shows it where that does not."""
    return rows[rows["is_shown"]].iloc[0]


def _change(rows: pd.DataFrame) -> str:
    """Since when, of what, how much, and in which layer."""
    row = _row(rows)
    named = shown(str(row["subject"]), 60)
    named = named.replace("_", " ") if row["level"] == MODEL else f"{row['level']} {named}"
    name, earliest, latest = (shown(row[f"{one}_name"], 60) for one in ("capture", "earliest", "latest"))
    is_known = row["kind"] == DRIFT or earliest == latest
    first = _said("first.known" if is_known else "first.range", name=name, earliest=earliest, latest=latest)
    change = _said("new")
    if row["before_ns"] > 0:
        low, high = (row[f"ci_{end}_difference_ns"] / row["before_ns"] for end in ("low", "high"))
        change = _said("interval", change=format_change(row["difference_ratio"]), ends=format_ratio_interval(low, high))
    layers = rows.loc[rows["is_shown"] & (rows["level"] == LAYER) & (row["level"] == MODEL), "subject"]
    where = _said("where", layer=shown(str(layers.iloc[0]), 60)) if len(layers) else ""
    is_more = row["difference_ns"] > 0
    return _said(
        row["kind"], first=first, last=latest, named=named, amount=format_ns(abs(row["difference_ns"])), change=change,
        where=where, word="longer" if is_more else "shorter", faster="slower" if is_more else "faster",
    )  # fmt: skip


def _parts(rows: pd.DataFrame) -> list[str]:
    """The layers, kernels and causes that show a change, and what all others add."""
    lines = []
    for level, word in _PARTS.items():
        parts = rows[(rows["level"] == level) & (rows["difference_ns"] != 0)]
        told = parts[parts["is_shown"]].head(_MOST_PARTS)
        if len(told):
            rest = parts["difference_ns"].sum() - told["difference_ns"].sum()
            said = [
                f"{shown(str(one['subject']), 50)} {format_difference(one['difference_ns'])}"
                for one in told.to_dict("records")
            ]
            lines.append(f"  {word}: {', '.join([*said, f'all else {format_difference(rest)}'])}")
    return lines


def _nothing(rows: pd.DataFrame) -> str:
    """How much the two halves of a history without a change may differ; the rate of false alarms."""
    latency = table_of(rows)[[(MODEL, LATENCY)]].to_numpy(float)
    count = len(latency)
    if count < 2 * LEAST_SIDE:
        return _said("few", count=2 * LEAST_SIDE)
    before, _, low, high = sizes(latency, floors(latency), 0, count // 2, count)[:, 0]
    ends = format_ratio_interval(low / before, high / before)
    said = _said("nothing" if low <= 0 <= high else "unsure", count=count, ends=ends)
    return f"{said} {_said('rate', rate=f'{ALARM_RATE * 1000:g}')}"


def next_capture(rows: pd.DataFrame, changes: pd.DataFrame) -> str:
    """The capture that would tell most."""
    names = names_of(rows)
    missing = 2 * LEAST_SIDE - len(names)
    if missing > 0:
        return f"{counted(missing, 'more capture', 'more captures')}, so that a step can be told from chance."
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
