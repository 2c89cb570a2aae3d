"""The tables of a comparison → its sentences: the verdict first, then what it consists of, structure, layers, kernels.

The texts stand in `base/sentences.txt`, below ``compare``. A statement is a subject, a sentence, and whether it states
a difference.
"""

import re

import numpy as np
import pandas as pd

from xsp_post.base.texts import sentence
from xsp_post.compare.clock import LEAST_CHANGE
from xsp_post.compare.differences import FASTER, LESS, MORE, NOT_SHOWN, SET_CHANGES, SLOWER
from xsp_post.compare.headline import SAME, UNDECIDED, Headline
from xsp_post.compare.impact import EXECUTION, RECORDING, WORK, Impact
from xsp_post.compare.matching import BASE
from xsp_post.compare.structure import Statement, Structure
from xsp_post.model.schemas.units import (
    format_change,
    format_count,
    format_difference,
    format_ns,
    format_ratio_interval,
    format_ratio_percent,
    format_times,
)

_EQUAL_WINDOW = 0.02
_OF_CPU = (("launch dimensions", "sizes"), ("launches", "calls"), ("kernel", "operator"), ("of a GPU", "of the device"))


def said(key: str, **slots: object) -> str:
    """A sentence of a comparison, or a part of one."""
    return sentence(f"compare.{key}", **slots)


def statements(
    frames: dict[str, pd.DataFrame], shape: Structure, found: Impact | None, clocks: list[Statement],
    heads: list[Headline], are_operators: bool,
) -> list[Statement]:  # fmt: skip
    """The comparison in sentences: the verdict first, then structure, then time."""
    models, layers, kernels = (frames[f"compare_{name}"] for name in ("models", "layers", "kernels"))
    told = list(shape.statements)
    cases = frames["compare_cases"]
    if (cases["status"] != "matched").all() and len(cases):
        told.append(("model", said("no-execution"), False))
    if len(heads) > 1:
        told += [("model", f"{one.label}: {sentence_of(one)}", one.word in (FASTER, SLOWER)) for one in heads]
    for table, about, what, column in (
        (layers, "layers", "layer", "layer_path"), (kernels, "kernel time", "kernel", "name"),
    ):  # fmt: skip
        if len(table):
            told.append((about, _rows_sentence(table, what, column), bool(_is_shown(table).any())))
    if found is not None:
        head = heads[0] if len(heads) == 1 else None
        told = [*evidence(found), *largest(found, kernels), *causes(found, head), *clocks, *told]
    if shape.is_ranges_only:
        told.insert(0, ("ranges only", said("ranges-only", count=format_count(len(shape.order[BASE]))), True))
    told.insert(0, _first(heads) or _verdict(models, layers, kernels))
    if are_operators:
        own = [text for _, text, _ in shape.statements]
        told = [(about, text if text in own else _without_gpu(text), differs) for about, text, differs in told]
    return told


def _without_gpu(text: str) -> str:
    """A sentence about operators of a CPU."""
    for gpu, cpu in _OF_CPU:
        text = re.sub(rf"\b{gpu}", cpu, text)
    return text


def _is_shown(table: pd.DataFrame) -> pd.Series:
    return table["change"].isin([SLOWER, FASTER, *SET_CHANGES, MORE, LESS])


def _verdict(*tables: pd.DataFrame) -> Statement:
    if any(_is_shown(table).any() for table in tables):
        return "verdict", said("not-comparable"), True
    tested = sum(int(table["p_value"].notna().sum()) for table in tables)
    return "verdict", said("no-difference", count=format_count(tested)) if tested else said("no-times"), False


def _rows_sentence(table: pd.DataFrame, what: str, column: str) -> str:
    """How many layers or kernels changed in which way, and the first of them."""
    shown = table[_is_shown(table)]
    count = format_count(len(table))
    if shown.empty:
        return said("no-rows", count=count, what=what)
    first, tally = shown.iloc[0], shown["change"].value_counts()
    parts = ", ".join(f"{format_count(number)} {change}" for change, number in tally.items())
    by = f" by {format_ns(abs(first['difference_ns']))}" if first["difference_ns"] == first["difference_ns"] else ""
    return said(
        "rows", count=count, what=what, parts=parts, first=_placed(first, column), change=first["change"], by=by
    )


# -- times --------------------------------------------------------------------------------------------------


def _first(heads: list[Headline]) -> Statement | None:
    """Both times, their ratio and one word; None where no times can be compared."""
    if len(heads) < 2:
        return ("verdict", sentence_of(heads[0]), heads[0].word in (FASTER, SLOWER)) if heads else None
    words = [head.word for head in heads]
    known = [word for word in (SLOWER, FASTER, SAME, UNDECIDED) if word in words]
    counts = ", ".join(f"{said(word).lower()} in {words.count(word)}" for word in known)
    most = max(heads, key=lambda head: abs(np.log(head.ratio)))
    text = said("cases", counts=counts, count=len(heads), label=most.label, headline=sentence_of(most))
    return "verdict", text[:1].upper() + text[1:], not {SLOWER, FASTER}.isdisjoint(words)


def sentence_of(head: Headline) -> str:
    """``Slower: 10 ms → 12 ms an execution, 1.20 times as long (+20 %, 95 % interval …).``"""
    word, times, change = said(head.word), head.other_ns / head.base_ns, format_change(head.ratio - 1)
    is_faster = head.word == FASTER and head.scale == 1.0
    ratio = said("as-fast", times=format_times(1 / times)) if is_faster else said("as-long", times=format_times(times))
    if head.scale != 1.0:
        ratio = said(
            "batch", ratio=ratio, scale=format_times(head.scale) if head.scale % 1 else format_count(head.scale)
        )
        word, change = (said("per-sample", what=one) for one in (word, change))
    most = format_ratio_percent(max(abs(head.low), abs(head.high)))
    kind = f"{'within' if head.word == SAME else 'interval'}.{head.interval}"
    is_unlike = not np.isnan(head.outside)
    outside = said("outside", change=format_change(head.outside)) if is_unlike else ""
    text = said(
        "headline", word=word, times=f"{format_ns(head.base_ns)} → {format_ns(head.other_ns)}",
        window=said(f"window.{head.window}"), ratio=ratio, change=change,
        sure=said(kind, ends=format_ratio_interval(head.low, head.high), most=most) + outside,
    )  # fmt: skip
    if head.usual_ns or head.is_same_but_slow_ones:
        base, other = (f"{format_count(slow)} of {format_count(count)}" for slow, count in head.slow)
        usual = " → ".join(map(format_ns, head.usual_ns))
        key = "by-slow-ones" if usual else "slow-ones"
        return f"{text[:-1]}{said(key, times=format_times(head.mean_ratio), usual=usual, base=base, other=other)}"
    decides = "outside" if is_unlike else head.interval
    return f"{text} {said(f'decides.{decides}')}" if head.word == UNDECIDED else text


def evidence(found: Impact) -> list[Statement]:
    """What an owner can check in both captures, where there are no executions: kernels, idle time and the kernel whose
    length changed most."""
    if found.unit not in (WORK, RECORDING):
        return []
    totals = found.totals.set_index("quantity")[["base_value", "other_value"]].astype(float).T.to_dict("list")
    base, other = (value / found.device_count for value in totals["window"])
    count = totals["kernel_count"][1] / max(totals["kernel_count"][0], 1) - 1
    key = "kernels-equal" if not count else "kernels-less" if count < 0 else "kernels-more"
    parts = [said(key, share=format_ratio_percent(abs(count)))]
    idle = totals["idle"]
    if abs(idle[1] - idle[0]) >= LEAST_CHANGE * max(idle[0], 1):
        over = said("over", count=found.device_count) if found.device_count > 1 else ""
        parts.append(said("idle", base=format_ns(idle[0]), other=format_ns(idle[1]), over=over))
    names = found.names[(found.names["base_count"] > 0) & (found.names["other_count"] > 0)]
    change = names["other_mean_ns"] - names["base_mean_ns"]
    if len(names):
        most = names.iloc[int((change.abs() * names["other_count"]).to_numpy(float).argmax())]
        if abs(most["other_mean_ns"] / most["base_mean_ns"] - 1) >= LEAST_CHANGE:
            parts.append(said("each", name=_short(most["name"]), means=_means(most)))
    key = "equal-window" if abs(other / base - 1) < _EQUAL_WINDOW else "other-window"
    return [("evidence", said(key, base=format_ns(base), other=format_ns(other), parts=", ".join(parts)), False)]


def _means(row: pd.Series) -> str:
    return f"{format_ns(row['base_mean_ns'])} → {format_ns(row['other_mean_ns'])}"


def _base_window(found: Impact) -> float:
    return float(found.totals.loc[found.totals["quantity"].eq("window"), "base_per_unit"].iloc[0])


def largest(found: Impact, kernels: pd.DataFrame) -> list[Statement]:
    """The kernels that cost and save most, by name; of executions those of which a row shows it."""
    told: list[Statement] = []
    if not found.unit:
        return told
    sign = np.sign(found.names["impact_ns"])
    for subject, way, against in (("largest regression", 1, FASTER), ("largest gain", -1, SLOWER)):
        rows = found.names[sign == way]
        if found.unit == EXECUTION and len(kernels):
            shown = kernels[~kernels["change"].isin([NOT_SHOWN, against])]
            rows = rows[rows["name"].isin([*shown["name"], *shown["other_name"]])]
        if rows.empty or abs(rows["impact_ns"].iloc[0]) < 0.001 * max(_base_window(found), 1.0):
            continue
        row = rows.iloc[0]
        launches = said("launches", base=format_count(row["base_count"]), other=format_count(row["other_count"]))
        if row["base_count"] and row["other_count"]:
            launches = said("launches-each", means=_means(row), launches=launches)
        time, per = format_difference(row["impact_ns"]), said(f"per.{found.unit}")
        text = said(
            "largest", subject=subject.capitalize(), name=_placed(row, "name"), time=time, per=per, launches=launches
        )
        told.append((subject, text, False))
    return told


def _placed(row: pd.Series, column: str) -> str:
    """A layer or kernel with its source line, where this is known."""
    name, line = str(row[column])[:120] if column != "name" else _short(row[column]), row.get("source_line", "")
    return f"{name} ({line})" if line else name


def causes(found: Impact, head: Headline | None) -> list[Statement]:
    """One sentence: the causes with more than a hundredth of the base's time; they and the rest sum to the difference
    that the headline says."""
    if not found.unit or found.causes.empty:
        return []
    times = found.causes["difference_ns"].astype(float) / found.device_count
    whole = float(times.sum()) if head is None or head.scale != 1.0 else head.other_ns - head.base_ns
    named = found.causes.assign(time=times)[times.abs() >= 0.005 * _base_window(found) / found.device_count]
    if named.empty:
        return []
    parts = [
        f"{format_difference(row['time'])} {row['cause']}"
        + (said("first-name", name=_short(row["example"])) if row["example"] else "")
        for row in named.to_dict("records")
    ]
    rest = whole - float(named["time"].sum())
    parts += [f"{format_difference(rest)} the rest"] if round(rest) else []
    over = said("of-each", count=found.device_count) if found.device_count > 1 else ""
    text = said(f"causes.{found.unit}", over=over, time=format_difference(whole), parts=", ".join(parts))
    return [("causes", text, False)]


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= 60 else text[:59] + "…"
