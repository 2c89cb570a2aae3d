"""Trees of one workload → **Analysis**: events matched over rising levels, and the overhead of profiling.

The axiom (XSP §III-C): a profiler at one level sees the events of that level accurately and disturbs those
above. So each event is believed at its own level (model: M, layer: M/L, kernel: M/L/G), and
``overhead(n+1 on n) = T(event | profilers ≤ n+1) − T(event | profilers ≤ n)``; nothing is ever subtracted
from a latency. Levels that took turns in one process are compared round by round. Steps, all on frames:

1. `check_alike`       captures of one workload only
2. `_model_samples`, `_layer_samples`   one row per event, level, capture and measured iteration
3. `_cells`            trimmed mean per event and level, and how sure it is
4. `_overheads`        differences of neighbouring levels, with their confidence intervals; `_unlike_programs`
5. `_unmatched…`, `_sums`   findings: what has no partner, and layers that sum to too much

Layers are matched by (phase, path, call index), kernels by (phase, layer, launch order in it, name).
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.processes import paired_differences, summarise_repeats
from xsp_post.arrays.statistics import compare_summaries
from xsp_post.base.errors import ContradictionError
from xsp_post.base.findings import Finding, finding
from xsp_post.base.messages import INFO
from xsp_post.model.kinds import SELF
from xsp_post.model.levels import RUN_COUNTERS, RUN_KERNEL, RUN_LAYER, RUN_LEVELS, RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas import column_names
from xsp_post.model.schemas.units import format_ns

MODEL, LAYER = "model", "layer"
_OWN_LEVEL = {MODEL: RUN_MODEL, LAYER: RUN_LAYER}
# what tells one event from another within a workload
_EVENT = ["batch_size", "phase", "event_kind", "layer_path", "call_index"]
_SLACK_RATIO = 1.02  # Σ layers may exceed the range around them by clock granularity, not by more
_SYNCHRONOUS_SHARE = 0.99
WITHIN_ONE_PROCESS = "no overhead shown: within one process each, so that nothing about levels follows (--repeat 5)"
OTHER_PROGRAM = "no overhead: with layer ranges other code runs"
CAPTURES, ITERATIONS, PAIRS = "captures", "iterations", "pairs"  # what an interval is over


def overhead_and_findings(results: Results) -> tuple[pd.DataFrame, list[Finding]]:
    """The table ``overhead`` and the findings of comparing the captures.

    With captures of one level only the table is empty. Raises ContradictionError for captures of different workloads.
    """
    captures = results.frame("captures")
    if len(captures) < 2:
        return pd.DataFrame({name: [] for name in column_names("overhead")}), []
    check_alike(captures)
    table, found = overhead(results)
    return table, [*found, *_kernel_findings(results)]


def check_alike(captures: pd.DataFrame) -> None:
    """ContradictionError naming key and both values unless the captures that name a workload name one.

    Captures that were not made by ``xsp-post run`` name none and are not compared.
    """
    named = captures[captures["workload_name"].astype("object").fillna("") != ""]
    for key in ("workload_name", "framework", "gpu_name"):
        values = named[key].astype("object").fillna("")
        different = list(dict.fromkeys(value for value in values if value))
        if len(different) > 1:
            sources = [named["source_name"][values == value].iloc[0] for value in different[:2]]
            unlike = f"{key} is {different[1]!r} there and {different[0]!r} here."
            said = f"{sources[1]} is not of the workload of {sources[0]}: {unlike}"
            raise ContradictionError(said, code="workloads-unlike")


def overhead(analysis: Results) -> tuple[pd.DataFrame, list[Finding]]:
    """XSP's Figure 2 as a table: one row per event and level, for workloads captured at two levels or more."""
    iterations = _measured_iterations(analysis)
    case = [iterations["batch_size"], iterations["phase"]]
    iterations = iterations[iterations["level"].groupby(case).transform("nunique") > 1]
    if iterations.empty:
        return pd.DataFrame({name: [] for name in column_names("overhead")}), []
    samples = pd.concat([_model_samples(iterations), _layer_samples(analysis, iterations)], ignore_index=True)
    cell, cells = _cells(samples)
    table = _unlike_programs(_overheads(cells, samples.assign(cell=cell)), analysis)
    found = [*_unmatched_layers(cells), *_sums(samples, table), *_overhead_findings(table)]
    return table[column_names("overhead")], found


def _measured_iterations(analysis: Results) -> pd.DataFrame:
    """Iterations that count, with their capture's level; counter runs replay kernels and tell no latency."""
    columns = ["capture_id", "iteration_index", "phase", "batch_size", "latency_ns", "duration_ns", "is_warmup"]
    iterations = analysis.frame("iterations", columns)
    captures = analysis.frame("captures").set_index("capture_id")
    level = captures["level"].astype("object")
    iterations = iterations.assign(
        level=iterations["capture_id"].map(level), phase=iterations["phase"].astype("object").fillna(""),
        process=iterations["capture_id"].map(_processes(captures)), round=_rounds(iterations),
    )  # fmt: skip
    is_wanted = iterations["level"].isin([RUN_MODEL, RUN_LAYER, RUN_KERNEL]) & ~iterations["is_warmup"].astype(bool)
    return iterations[is_wanted].reset_index(drop=True)


def _processes(captures: pd.DataFrame) -> pd.Series:
    """A number per process that several captures share; −1 for captures with a process of their own."""
    if "run_process" not in captures:
        return pd.Series(-1, index=captures.index)
    name = captures["run_process"].astype("object").fillna("")
    codes = pd.factorize(name)[0]
    return pd.Series(np.where((name != "") & name.duplicated(keep=False), codes, -1), index=captures.index)


def _rounds(iterations: pd.DataFrame) -> pd.Series:
    """The number of the block that each iteration lies in: a block begins where a warm-up follows a measured one."""
    owner = [iterations["capture_id"], iterations["phase"].astype("object").fillna("")]
    is_warmup = iterations["is_warmup"].astype(bool)
    was_warmup = is_warmup.groupby(owner).shift(1, fill_value=True).astype(bool)
    return (is_warmup & ~was_warmup).groupby(owner).cumsum()


_SAMPLE = ["batch_size", "phase", "event_kind", "layer_path", "call_index", "layer_index", "layer_type", "level",
           "capture_id", "iteration_index", "process", "round", "value_ns", "latency_source"]  # fmt: skip


def _model_samples(iterations: pd.DataFrame) -> pd.DataFrame:
    return iterations.assign(
        event_kind=MODEL, layer_path="", call_index=0, layer_index=0, layer_type="",
        value_ns=iterations["latency_ns"].astype("float64"), latency_source="host",
    )[_SAMPLE]  # fmt: skip


def _layer_samples(analysis: Results, iterations: pd.DataFrame) -> pd.DataFrame:
    """One row per layer and measured iteration. Host time, where the device was done when the layer's range
    ended (CPU, serialised runs); else the projection, which is another measure and marked so."""
    columns = ["capture_id", "iteration_index", "layer_index", "layer_path", "layer_type", "call_index",
               "duration_ns", "latency_ns", "latency_source"]  # fmt: skip
    layers = analysis.frame("layers", columns).merge(
        iterations[["capture_id", "iteration_index", "phase", "batch_size", "level", "process", "round"]],
        on=["capture_id", "iteration_index"], validate="many_to_one",
    )  # fmt: skip
    is_host, value_ns = layer_times(analysis, layers)
    texts = {name: layers[name].astype("object") for name in ("layer_path", "layer_type")}
    return layers.assign(
        **texts, event_kind=LAYER, value_ns=value_ns,
        latency_source=np.where(is_host, "host", layers["latency_source"].astype("object")),
    )[_SAMPLE]  # fmt: skip


def layer_times(analysis: Results, layers: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Whether the time of each row of ``layers`` is that of the host, and the time, ns. It is in captures in which
    (almost) every layer's device work ended within the layer's own range, so that the host's clock saw all of it: CPU
    operators, or launches that block."""
    nodes = frame_or_empty(analysis, "nodes", ["capture_id", "level", "end_ns", "projected_end_ns"])
    with_work = nodes[(nodes["level"].astype("object") == "LAYER") & (nodes["projected_end_ns"] >= 0)]
    is_within = with_work["projected_end_ns"] <= with_work["end_ns"]
    share = is_within.groupby(with_work["capture_id"]).mean()
    is_host = layers["capture_id"].isin(share.index[share >= _SYNCHRONOUS_SHARE])
    is_host |= layers["latency_source"].astype("object") == "host"
    return is_host, layers["duration_ns"].where(is_host, layers["latency_ns"]).astype("float64")


def _cells(samples: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """The cell of each sample, and one row per cell (event and level): trimmed mean over all iterations, and its
    standard error.

    Iterations of one process are not independent (clocks, memory layout), so with two captures or more of a
    level the error is that of the captures' means; with one it is that of its iterations, and says so.
    """
    group = samples.groupby([*_EVENT, "level"], sort=False)
    code = group.ngroup().to_numpy()
    first = group.first().reset_index()
    capture = samples["capture_id"].to_numpy(np.int64)  # an empty frame beside it makes the column object
    summary = summarise_repeats(samples["value_ns"], code, capture, len(first))
    capture_count = samples["capture_id"].groupby(code).nunique().to_numpy()
    return code, first.assign(
        sample_count=summary["count"].astype("int64"),
        capture_count=capture_count.astype(np.int64),
        **summary[["trimmed_mean", "standard_error", "degrees_of_freedom"]],
        is_by_capture=capture_count > 1,
        level_order=first["level"].map({level: order for order, level in enumerate(RUN_LEVELS)}),
    )


def _overheads(cells: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    """The cells in order of event and level, with what each level added to the one below and to the accurate one."""
    order = cells["layer_index"].groupby([cells[key] for key in _EVENT]).transform("min")
    table = cells.assign(event_order=order).sort_values(
        ["batch_size", "phase", "event_order", "layer_path", "call_index", "level_order"], kind="stable"
    )
    paired = samples[samples["process"] >= 0].rename(columns={"value_ns": "value"})
    paired = paired.assign(cell=np.argsort(table.index.to_numpy())[paired["cell"].to_numpy()])
    table = table.reset_index(drop=True)
    event = table.groupby(_EVENT, sort=False).ngroup()
    below = table.index.to_series().shift(1, fill_value=-1).where(event == event.shift(1), -1).to_numpy()
    own = table["event_kind"].map(_OWN_LEVEL)
    table["is_accurate"] = table["level"] == own
    accurate = table.index.to_series().where(table["is_accurate"]).groupby(event).transform("first")
    accurate_row = accurate.fillna(-1).astype("int64").to_numpy()
    accurate_row = np.where(table["level_order"].to_numpy() > own.map(RUN_LEVELS.index).to_numpy(), accurate_row, -1)
    step, total = (_compare(table, base, paired) for base in (below, accurate_row))
    sources = table["latency_source"].to_numpy(object)
    is_alike = (below < 0) | (sources == sources[below])
    table["compared_level"] = np.where(below >= 0, table["level"].to_numpy(object)[below], "")
    table["latency_ns"] = table["trimmed_mean"]
    for kind, found in (("overhead", step), ("total_overhead", total)):
        names = [f"{kind}_ns", f"ci_low_{kind}_ns", f"ci_high_{kind}_ns", f"{kind}_ratio"]
        table[names] = found[["difference", "ci_low", "ci_high", "ratio"]]
    # intervals within one process each do not know how processes differ: nothing follows from them about levels
    is_repeated = step["interval_over"] != ITERATIONS
    table["is_significant"] = ((step["ci_low"] > 0) | (step["ci_high"] < 0)) & is_alike & is_repeated
    table["interval_over"] = step["interval_over"]
    table["verdict"] = _verdicts(table, below, is_alike)
    return table


def _compare(table: pd.DataFrame, base: np.ndarray, paired: pd.DataFrame) -> pd.DataFrame:
    """Row minus the row ``base`` points to, NaN where it is −1: difference, ci_low, ci_high, ratio, and what the
    interval is over. ``paired``: samples of processes
    that several levels share; where such processes measured both rows, the difference is that of their pairs."""
    rows = np.flatnonzero(base >= 0)
    columns = {name: np.full(len(table), np.nan) for name in ("difference", "ci_low", "ci_high")}
    over = np.full(len(table), "", dtype=object)
    if len(rows):
        compared = compare_summaries(
            table.iloc[base[rows]].reset_index(drop=True), table.iloc[rows].reset_index(drop=True)
        )
        for name, values in columns.items():
            values[rows] = compared[name].to_numpy()
        by_capture = table["is_by_capture"].to_numpy()
        over[rows] = np.where(by_capture[rows] & by_capture[base[rows]], CAPTURES, ITERATIONS)
    if len(rows) and len(paired):
        found = paired_differences(paired, base)
        process_count = found["process_count"].to_numpy()
        use = (process_count > 1) | ((process_count == 1) & (over == ITERATIONS))
        for name, of_pairs in (("difference", "trimmed_mean"), ("ci_low", "ci_low"), ("ci_high", "ci_high")):
            columns[name] = np.where(use, found[of_pairs].to_numpy(), columns[name])
        over[process_count > 1] = PAIRS
    # the lower latency is not below zero, whatever the spread
    columns["ci_low"] = np.maximum(columns["ci_low"], columns["difference"] - table["trimmed_mean"].to_numpy())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(base >= 0, columns["difference"] / table["trimmed_mean"].to_numpy()[base], np.nan)
    return pd.DataFrame({**columns, "ratio": ratio, "interval_over": over}, index=table.index)


def _unlike_programs(table: pd.DataFrame, analysis: Results) -> pd.DataFrame:
    """The table without differences between runs with and without layer ranges, where these change what runs."""
    changed = _captures_with(analysis, "hooks-change-program")
    if not changed:
        return table
    captures = analysis.frame("captures")
    sizes = captures.loc[captures["capture_id"].isin(changed), "batch_size"]
    is_changed = table["batch_size"].isin(sizes) & (table["event_kind"] == MODEL)
    step, total = is_changed & (table["compared_level"] == RUN_MODEL), is_changed & (table["level"] != RUN_MODEL)
    for rows, kind in ((step, "overhead"), (total, "total_overhead")):
        table.loc[rows, [f"{kind}_ns", f"{kind}_ratio", f"ci_low_{kind}_ns", f"ci_high_{kind}_ns"]] = np.nan
    table.loc[step, "is_significant"] = False
    table.loc[step, "verdict"] = OTHER_PROGRAM
    return table


def _captures_with(results: Results, code: str) -> set[int]:
    """The captures in which something of that code was found."""
    findings = results.found()
    return set(findings.loc[findings["code"].astype(object) == code, "capture_id"].tolist())


def _verdicts(table: pd.DataFrame, below: np.ndarray, is_alike: np.ndarray) -> np.ndarray:
    said = {
        "accurate": (below < 0) & table["is_accurate"],
        "no accurate level was run": below < 0,
        "not comparable: host time against device time": ~is_alike,
        "too few samples for an interval": table["ci_low_overhead_ns"].isna(),
        WITHIN_ONE_PROCESS: table["interval_over"] == ITERATIONS,
        "no overhead shown": ~table["is_significant"],
        "negative: the deeper run was faster": table["overhead_ns"] < 0,
    }
    return np.select(list(said.values()), list(said), default="overhead")


def _unmatched_layers(cells: pd.DataFrame) -> list[Finding]:
    """Layers seen at one of the levels that see layers, and not at another that the same case was run at."""
    layers = cells[(cells["event_kind"] == LAYER) & (cells["level"] != RUN_MODEL)]
    # what a model does between its layers is seen where kernels are, and has no range that M/L could measure
    layers = layers[layers["layer_type"] != SELF]
    if layers.empty:
        return []
    case = [layers["batch_size"], layers["phase"]]
    levels_of_case = layers["level"].groupby(case).transform("nunique")
    levels_of_layer = layers["level"].groupby([layers[key] for key in _EVENT]).transform("nunique")
    alone = layers[levels_of_layer < levels_of_case]
    if alone.empty:
        return []
    example = alone.iloc[0]
    said = f"{example['layer_path']}, call {example['call_index']}: at {example['level']} only"
    return [finding("layers-unmatched", count=len(alone), example=said)]


def _sums(samples: pd.DataFrame, table: pd.DataFrame) -> list[Finding]:
    """Do layers sum to more than the model around them (same iteration), or than the model undisturbed (M)?"""
    found = []
    keys = ["batch_size", "phase", "level", "capture_id", "iteration_index"]
    is_layer = samples["event_kind"] == LAYER
    layer_sum = samples[is_layer & (samples["latency_source"] == "host")].groupby(keys)["value_ns"].sum()
    around = samples[~is_layer].set_index(keys)["value_ns"].reindex(layer_sum.index)
    overlapping = layer_sum[layer_sum > around * _SLACK_RATIO]
    if len(overlapping):
        outer = around[overlapping.index].to_numpy()
        worst = int(np.argmax(overlapping.to_numpy() / outer))
        said = f"{format_ns(overlapping.iloc[worst])} of layers in {format_ns(outer[worst])}"
        found.append(finding("layers-overlap", count=len(overlapping), example=said))
    accurate = table[table["is_accurate"]]
    case = ["batch_size", "phase"]
    by_kind = accurate.groupby([*case, "event_kind"])["latency_ns"].sum().unstack("event_kind")
    if {MODEL, LAYER} <= set(by_kind.columns):
        excess = by_kind[by_kind[LAYER] > by_kind[MODEL] * _SLACK_RATIO]
        if len(excess):
            layers_ns, model_ns = excess.iloc[0][LAYER], excess.iloc[0][MODEL]
            said = f"layers {format_ns(layers_ns)} at M/L, model {format_ns(model_ns)} at M"
            example = f"{said}: {layers_ns / model_ns:.2f} times"
            found.append(finding("layer-sum-exceeds-model", count=len(excess), example=example))
    return found


def _overhead_findings(table: pd.DataFrame) -> list[Finding]:
    """What the verdicts on the model say plainly; layers are too many to list."""
    models = table[table["event_kind"] == MODEL]
    found = []
    compared = models["interval_over"] != ""
    if compared.any() and (models.loc[compared, "interval_over"] == ITERATIONS).all():
        found.append(finding("levels-one-process", count=int(compared.sum())))
    is_shown = models["is_significant"].astype(bool)
    is_unsure = models["ci_low_overhead_ns"].notna() & ~is_shown
    negative = is_shown & (models["overhead_ns"] < 0)
    for code, chosen in (("overhead-negative", negative), ("overhead-not-shown", is_unsure)):
        rows = models[chosen]
        if len(rows):
            row = rows.iloc[0]
            low, high = (format_ns(row[f"ci_{end}_overhead_ns"]) for end in ("low", "high"))
            said = f"{row['level']} on {row['compared_level']}, batch {row['batch_size']}"
            example = f"{said}: {format_ns(row['overhead_ns'])} ({low} … {high})"
            found.append(finding(code, count=len(rows), example=example))
    return found


def _kernel_findings(analysis: Results) -> list[Finding]:
    """Kernels that other captures of the same case have more or fewer of: by layer, launch order in it, and name.

    Each capture is represented by its last measured iteration.
    """
    columns = ["capture_id", "iteration_index", "layer_index", "launch_start_ns", "start_ns", "name"]
    kernels = analysis.frame("kernels", columns)
    iterations = _last_with_kernels(analysis)
    if not len(kernels) or iterations["capture_id"].nunique() < 2:
        return []
    kernels = kernels.merge(iterations, on=["capture_id", "iteration_index"], validate="many_to_one")
    layers = analysis.frame("layers", ["capture_id", "layer_index", "layer_path", "call_index"])
    layers = layers.drop_duplicates(["capture_id", "layer_index"])
    kernels = kernels.merge(layers, how="left", on=["capture_id", "layer_index"], validate="many_to_one")
    owner = ["batch_size", "phase", "layer_path", "call_index"]
    kernels = kernels.sort_values(["launch_start_ns", "start_ns"], kind="stable")
    kernels["launch_order"] = kernels.groupby(["capture_id", *owner], dropna=False, observed=True).cumcount()
    match = [*owner, "launch_order", "name"]
    captures_of_case = kernels.groupby(["batch_size", "phase"])["capture_id"].transform("nunique")
    captures_of_kernel = kernels.groupby(match, dropna=False, observed=True)["capture_id"].transform("nunique")
    alone = kernels[captures_of_kernel < captures_of_case]
    if alone.empty:
        return []
    example = alone.iloc[0]
    where = example["layer_path"] if isinstance(example["layer_path"], str) else "no layer"
    # which CPU operators stand for kernels is decided capture by capture: no sign of another program
    is_cpu = bool(_captures_with(analysis, "cpu-operators-as-kernels"))
    said, severity = f"{where}: {example['name']}", INFO if is_cpu else ""
    return [finding("kernels-differ-between-runs", count=len(alone), example=said, severity=severity)]


def _last_with_kernels(analysis: Results) -> pd.DataFrame:
    """The last measured iteration of every capture with kernels, batch size and phase."""
    iterations = analysis.frame("iterations", ["capture_id", "iteration_index", "phase", "batch_size", "is_warmup"])
    level = analysis.frame("captures").set_index("capture_id")["level"].astype("object")
    with_kernels = iterations["capture_id"].map(level).isin([RUN_KERNEL, RUN_COUNTERS])
    measured = iterations[with_kernels & ~iterations["is_warmup"].astype(bool)].drop(columns="is_warmup")
    last = measured.drop_duplicates(["capture_id", "batch_size", "phase"], keep="last")
    return last.assign(phase=last["phase"].astype("object").fillna(""))
