"""The last lines of `xsp-post run`: latency, throughput, top layers, what profiling cost, how to be more certain.

`data` picks cells of the tables a01, a02 and overhead; `lines` words them. Nothing is computed here.
"""

from typing import Any

import pandas as pd

from xsp_post.model.levels import RUN_LEVEL_WORDS, RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import (
    format_change,
    format_difference,
    format_inputs_per_s,
    format_ns,
    format_ratio_percent,
)
from xsp_post.reports.blocks import rows_of
from xsp_post.reports.facts import UNCERTAIN_RATIO, is_uncertain, within
from xsp_post.reports.pick import layer_groups
from xsp_post.reports.summary import group_name

TOP = 5
PAIRS = "pairs"  # the value of overhead.interval_over where levels took turns in one process
GOOD_RATIO = 0.1  # an interval of this half width is narrow enough for a first run


def data(results: Results) -> dict[str, Any]:
    """The headline's numbers: ``models`` (one per batch size and phase), ``layers`` (top five of the deepest
    measured case, with their shares), ``overheads`` (of the model, per level). JSON-ready but for NaN."""
    models = frame_or_empty(results, "a01")
    overheads = frame_or_empty(results, "overhead")
    return {
        "models": _records(models, ["batch_size", "phase", "level", "latency_ns", "ci_low_latency_ns",
                                    "ci_high_latency_ns", "interval_over", "sample_count",
                                    "throughput_inputs_per_s", "is_optimal"]),
        "layers": _top_layers(results),
        "overheads": _records(overheads[overheads["event_kind"] == "model"] if len(overheads) else overheads,
                              ["batch_size", "phase", "level", "compared_level", "latency_ns", "is_accurate",
                               "is_significant", "overhead_ns", "overhead_ratio", "ci_low_overhead_ns",
                               "ci_high_overhead_ns", "interval_over", "verdict"]),
    }  # fmt: skip


def lines(results: Results) -> list[str]:
    """The headline as lines of plain text."""
    chosen = data(results)
    several = len({row["phase"] for row in chosen["models"]}) > 1
    bare = all(row["level"] == RUN_MODEL for row in chosen["models"])
    text = ["", "Model latency" + " (measured without a profiler)" * bare]
    for row in chosen["models"]:
        is_sweep = sum(row["phase"] == other["phase"] for other in chosen["models"]) > 1
        optimal = "  ← optimal batch size" if row["is_optimal"] and is_sweep else ""
        low, high = row["ci_low_latency_ns"], row["ci_high_latency_ns"]
        interval = f" {_interval(low, high)}{within(row)}" if low > 0 else ""  # else as wide as the latency
        text.append(
            f"  batch {row['batch_size']:>4}{_phase(row, several)}  {format_ns(row['latency_ns']):>9}"
            f"{interval}  {format_inputs_per_s(row['throughput_inputs_per_s'])}  (n={row['sample_count']}){optimal}"
            + (": too uncertain to rely on" if is_uncertain(pd.Series(row)) else "")
        )
    for phase in dict.fromkeys(row["phase"] for row in chosen["layers"]):
        rows = [row for row in chosen["layers"] if row["phase"] == phase]
        of_phase = f" of {phase}" if several else ""
        text += ["", f"Top layers{of_phase} (share of all layers, batch {rows[0]['batch_size']})"]
        text += [
            f"  {format_ns(row['latency_ns']):>9}  {format_ratio_percent(row['latency_ratio']):>6}  {row['layer_name']}"
            for row in rows
        ]
    if chosen["overheads"]:
        levels = dict.fromkeys(str(row["level"]) for row in chosen["overheads"])
        said = ", ".join(f"{level}: {RUN_LEVEL_WORDS.get(level, level)}" for level in levels)
        text += ["", f"What profiling cost ({said})"]
        text += [_overhead_line(row, several) for row in chosen["overheads"]]
        deep, sizes = ({row["batch_size"] for row in chosen[name]} for name in ("overheads", "models"))
        if deep < sizes:
            ran = ", ".join(map(str, sorted(deep)))
            text.append(f"  Profilers ran at batch {ran} only, to save time (--deep-at all: at every batch size).")
    return text


def advice(results: Results, *, has_threads: bool = False) -> str:
    """How wide the widest interval of the model's latency is, and which option makes it narrower; '' without a run.
    ``has_threads``: several CPU threads did the work, which hold each other up where they wait for a core."""
    models = frame_or_empty(results, "a01")
    captures = frame_or_empty(results, "captures")
    if models.empty:
        return ""
    sizes = captures.loc[captures["level"] == RUN_MODEL, "batch_size"].value_counts()
    processes = int(sizes.min()) if len(sizes) else 1
    ratio = ((models["ci_high_latency_ns"] - models["ci_low_latency_ns"]) / 2 / models["latency_ns"]).max()
    if processes < 2 or pd.isna(ratio):
        return "For intervals over processes: the same command with --resume --repeat 5"
    # the width goes with the root of their number; at least the double, at most what is worth waiting for
    wanted = processes * min(max(2.0, (ratio / GOOD_RATIO) ** 2), 8.0)
    sentence = f"The latency's 95 % interval is ±{format_ratio_percent(ratio)}, over {processes} processes. "
    busy = "; a machine without other work helps more" if ratio > UNCERTAIN_RATIO else ""
    busy += ", and so does a new run with --threads 1" if busy and has_threads else ""
    return f"{sentence}For a narrower one: the same command with --resume --repeat {wanted:.0f}{busy}"


def _overhead_line(row: dict[str, Any], several: bool) -> str:
    start = f"  batch {row['batch_size']:>4}{_phase(row, several)}  {row['level']:<6} {format_ns(row['latency_ns']):>9}"
    if row["is_accurate"]:
        return f"{start}  no profiler" if row["level"] == RUN_MODEL else f"{start}  no deeper profiler ran"
    if not row["compared_level"] or pd.isna(row["overhead_ns"]):
        return f"{start}  {row['verdict']}"
    interval = _interval(row["ci_low_overhead_ns"], row["ci_high_overhead_ns"]) + over_pairs(row["interval_over"])
    if pd.notna(row["ci_low_overhead_ns"]) and not row["is_significant"]:
        # a percentage of what may be noise reads like a result
        noise = " is within the noise" if row["ci_low_overhead_ns"] <= 0 <= row["ci_high_overhead_ns"] else ""
        seen = f"{format_difference(row['overhead_ns'])} on {row['compared_level']}{noise} {interval}"
        return f"{start}  {seen}: {row['verdict']}"
    return (
        f"{start}  {format_difference(row['overhead_ns'])} on {row['compared_level']} "
        f"({format_change(row['overhead_ratio'])})"
        f" {interval}: {row['verdict']}"
    )


def over_pairs(interval_over: object) -> str:
    """What a difference is over where it is no difference of the latencies beside it; else ''."""
    return " between neighbouring blocks of one process" if interval_over == PAIRS else ""


def _top_layers(results: Results) -> list[dict[str, Any]]:
    """Of every phase, the five heaviest layers at the largest batch size that layers were measured at; equal ones are
    one row, which names the slowest."""
    layers, launches = (frame_or_empty(results, name) for name in ("a02", "a08"))
    is_timed = layers["batch_size"].eq(layers["batch_size"].max()) & layers["latency_ns"].notna()
    launches = launches[launches["batch_size"].eq(layers["batch_size"].max())]
    columns = ["batch_size", "phase", "layer_index", "layer_name", "layer_type", "latency_ns", "latency_ratio"]
    found: list[dict[str, Any]] = []
    for phase, mine in layers[is_timed].groupby("phase", sort=False, observed=True):
        groups = layer_groups(mine, launches[launches["phase"].eq(phase)], TOP)
        slowest = mine.iloc[groups["first"]]
        names = [group_name(*pair) for pair in zip(rows_of(slowest), rows_of(groups))]
        sums = groups[["latency_ns", "latency_ratio"]].set_index(slowest.index)
        found += _records(slowest.assign(layer_name=names, **sums), columns)
    return found


def _records(frame: pd.DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    rows = frame.reindex(columns=columns).astype(object).to_dict("records") if len(frame) else []
    return [{str(key): value for key, value in row.items()} for row in rows]


def _phase(row: dict[str, Any], several: bool) -> str:
    return f" {row['phase']:<8}" if several else ""


def _interval(low: float, high: float) -> str:
    return "" if pd.isna(low) or pd.isna(high) else f"[{format_ns(low)} … {format_ns(high)}]"
