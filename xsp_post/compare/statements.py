"""The tables of a comparison → its sentences: the verdict first, then structure, then time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.compare.differences import CAPTURES, FASTER, LESS, MORE, NOT_SHOWN, SET_CHANGES, SLOWER
from xsp_post.compare.impact import Impact
from xsp_post.compare.matching import BASE
from xsp_post.compare.sentences import Statement, causes, first_sentence, largest, signed_ratio
from xsp_post.compare.structure import Structure
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_interval, format_ratio_percent


def statements(
    frames: dict[str, pd.DataFrame], shape: Structure, found: Impact | None, clocks: list[Statement]
) -> list[Statement]:
    """The comparison in sentences: the verdict first, then structure, then time."""
    models, layers, kernels = (frames[f"compare_{name}"] for name in ("models", "layers", "kernels"))
    said = list(shape.statements)
    cases = frames["compare_cases"]
    if (cases["status"] != "matched").all() and len(cases):
        said.append(
            (
                "model",
                "The captures have no model execution in common (phases, batch sizes or amounts of work "
                "differ): model and layers are not compared.",
                False,
            )
        )
    for row in models[models["quantity"] == "model_latency"].to_dict("records"):
        case = cases.iloc[row["pair_index"]]
        said.append(("model", _model_sentence(row, case, len(cases)), row["change"] in (MORE, LESS)))
    if len(layers):
        said.append(("layers", _rows_sentence(layers, "layer", "layer_path"), bool(_is_shown(layers).any())))
    if len(kernels):
        said.append(("kernel time", _rows_sentence(kernels, "kernel", "name"), bool(_is_shown(kernels).any())))
    verdict = first_sentence(models, found) or _verdict(models, layers, kernels)
    if found is not None:
        said = [*largest(found), *causes(found), *clocks, *said]
    if shape.is_ranges_only and not verdict[2]:
        verdict = (
            "verdict",
            "The captures differ in their ranges only: the same "
            f"{format_count(len(shape.order[BASE]))} kernels ran, in the same order.",
            True,
        )
    return [verdict, *said]


def _is_shown(table: pd.DataFrame) -> pd.Series:
    return table["change"].isin([SLOWER, FASTER, *SET_CHANGES, MORE, LESS])


def _verdict(models: pd.DataFrame, layers: pd.DataFrame, kernels: pd.DataFrame) -> tuple[str, str, bool]:
    count = sum(int(_is_shown(table).sum()) for table in (models, layers, kernels))
    tested = sum(int(table["p_value"].notna().sum()) for table in (models, layers, kernels))
    if not count and not tested:
        return ("verdict", "Times are not compared: too few measurements on one side.", False)
    if not count:
        return (
            "verdict",
            f"No significant difference in {format_count(tested)} comparisons (corrected together: for "
            "two runs of one program, at most one comparison in twenty shows a difference).",
            False,
        )
    return "verdict", "Model executions are not comparable; what differs in layers and kernels follows.", True


def _model_sentence(row: Mapping[Any, Any], case: pd.Series, case_count: int) -> str:
    about = [
        part for part in (str(case["phase"]), f"batch {case['batch_size']}" if case["batch_size"] > 0 else "") if part
    ]
    where = f" ({', '.join(about)})" if about and case_count > 1 else ""
    base = row["base_value"]
    values = f"{format_ns(base)} → {format_ns(row['other_value'])}"
    if np.isnan(row["ci_low_value"]):
        return f"Model latency{where} {values}: too few iterations to say whether that is a difference."
    ends = format_ratio_interval(row["ci_low_value"] / base, row["ci_high_value"] / base)
    interval = f"{signed_ratio(row['difference_ratio'])}, 95 % interval {ends}"
    over = (
        ""
        if row["interval_over"] == CAPTURES
        else (
            "; with one capture on a side, the variation between runs is estimated from its iterations; record "
            "several captures of each (xsp-post run --repeat 3)"
        )
    )
    verdict = {MORE: "longer", LESS: "shorter"}.get(row["change"], NOT_SHOWN)
    if verdict == NOT_SHOWN and base and row["detectable_value"] == row["detectable_value"]:
        verdict += f", where ±{format_ratio_percent(row['detectable_value'] / base)} would show 4 times of 5"
    return f"Model latency{where} per iteration {values}: {verdict} ({interval}{over})."


def _rows_sentence(table: pd.DataFrame, what: str, column: str) -> str:
    """How many layers or kernels changed in which way, and the first of them."""
    shown = table[_is_shown(table)]
    if shown.empty:
        return f"No difference shown in any of {format_count(len(table))} {what}s."
    tally = shown["change"].value_counts()
    first = shown.iloc[0]
    parts = ", ".join(f"{format_count(count)} {change}" for change, count in tally.items())
    by = f" by {format_ns(abs(first['difference_ns']))}" if first["difference_ns"] == first["difference_ns"] else ""
    return f"Of {format_count(len(table))} {what}s: {parts}; first {str(first[column])[:120]} ({first['change']}{by})."
