"""One row per kernel launch of each case's reference iteration, with its counters.

A launch is the same in another iteration, repeat or counter run when it has the same layer, kernel name and
is the k-th launch of that name in that layer (where the sequences are equal this is "same
ordinal in the layer"). Latencies are summarised over the measured iterations, counters over every execution
that has them, then A9…A15 add up these rows, so that all tables agree.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from xsp_post.arrays.joins import lookup
from xsp_post.arrays.processes import summarise_repeats, trimmed_totals
from xsp_post.arrays.repeats import dense
from xsp_post.arrays.statistics import medians, summarise_groups
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.tables.analyses.cases import Cases
from xsp_post.tables.analyses.frames import FloatArray, IntArray, occurrence, text_codes
from xsp_post.tables.analyses.layer_rows import LayerRows
from xsp_post.tables.analyses.options import Options
from xsp_post.tables.analyses.roofline import ANALYTIC, CONDITIONS, MEASURED_PEAKS, Work, tensor_pipe, with_shapes

_COLUMNS = [
    "capture_id", "kernel_id", "iteration_index", "process_id", "layer_index", "name", "short_name", "duration_ns",
    "start_ns", "launch_start_ns", "queue_delay_ns", "attribution", "source_line",
]  # fmt: skip
_FLOP_PIPES = {"flop_fp64": "fp64", "flop_fp32": "fp32", "flop_fp16": "fp16"}
_METRICS = (
    "flop", *_FLOP_PIPES, "flop_tensor", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes",
    "occupancy_ratio", "theoretical_occupancy_ratio", "counted_duration_ns", *CONDITIONS,
)  # fmt: skip
# Nsight Compute's own counters of tensor operations name the operand type, e.g. sm__ops_path_tensor_src_tf32_dst_fp32.
_TENSOR_OPERANDS = re.compile(r"sm__ops_path_tensor_src_(?!int)\w+\.sum")


@dataclass
class KernelRows:
    """Launches of the reference iterations, ordered by (case, launch order).

    frame     case_index, capture_id, kernel_id, kernel_index (1-based in the case), layer_index (−1 none),
              name, short_name, source_line (categoricals), latency_ns (trimmed mean), queue_delay_ns (median, NaN
              unknown), theoretical_occupancy_ratio, metric_source
    summary   `processes.summarise_repeats` of the latency, same rows
    work      counters of the rows (from shapes where the case has none), for `roofline`
    is_analytic  which rows' work is from shapes
    phase     code of `kinds.PHASES` of each row, 0 unknown
    total_ns  per case: kernel time of one execution, the trimmed mean of the executions' own sums
    layer_total_ns  the same per row of the layers' frame
    parts     row of ``frame``, layer_index and ratio of its time: of a kernel of several modules (`kernel_shares`) a
              row for each, of any other one
    unplaced_ns  per case: kernel time of one execution that no launch connects to it (in a capture of several, the
              average)
    """

    frame: pd.DataFrame
    summary: pd.DataFrame
    work: Work
    findings: list[Finding]
    is_analytic: npt.NDArray[np.bool_]
    phase: IntArray
    unplaced_ns: FloatArray
    total_ns: FloatArray
    layer_total_ns: FloatArray
    parts: pd.DataFrame

    @property
    def has_counters(self) -> bool:
        return bool((self.work.coverage_ratio > 0).any())


def kernel_rows(results: Results, cases: Cases, layers: LayerRows, options: Options) -> KernelRows:
    """Match every kernel of the kernel runs to a launch of its case's reference iteration."""
    kernels = frame_or_empty(results, "kernels", _COLUMNS)
    metrics = frame_or_empty(results, "kernel_metrics", ["kernel_id", "metric_name", "value", "source"])
    iterations = cases.iterations
    row = cases.rows_of(*(_ints(kernels, name) for name in ("capture_id", "iteration_index", "process_id")))
    outside = (row < 0) & (len(cases) > 0)
    findings = if_any("kernels-outside-iterations", outside, kernels["name"].iloc.__getitem__)
    unplaced = _unplaced(row, cases, kernels)
    # Counters may be on an iteration that is not measured: a counter run often profiles one only.
    wanted = iterations["is_kernel"] & (iterations["is_measured"] if metrics.empty else True)
    used = np.append(wanted.to_numpy(bool), False)[row]
    if not used.all():
        kernels, row = kernels[used], row[used]
    kernels, row = _in_launch_order(kernels, row)
    is_measured = iterations["is_measured"].to_numpy(bool)[row]
    case = iterations["case_index"].to_numpy(np.int64)[row]

    layer = np.where(_ints(kernels, "layer_index") < 0, -1, layers.index_of(row, _ints(kernels, "layer_index")))
    name, names = text_codes(kernels["name"])
    reference = _choose_reference(cases, row[is_measured])
    is_reference = np.isin(row, reference)
    at = np.flatnonzero(is_reference)
    of_kind, _ = dense(row, layer, name)
    kind, _ = dense(case, layer, name)
    group, _ = dense(kind, occurrence(of_kind))
    launch = lookup(group[at], np.arange(len(at)), group)
    if not is_reference.all():
        findings += _unmatched(launch, is_measured, case[at], cases, kernels)
    duration = kernels["duration_ns"].to_numpy(np.float64)
    summary = summarise_repeats(
        duration, np.where(is_measured, launch, -1), _ints(kernels, "capture_id"), len(at), options.trim_ratio
    )
    work, source, theoretical = _counters(metrics, kernels, launch, at, case, name, names, summary, options)
    work.case = case[at]
    missing = work.coverage_ratio == 0
    findings += if_any("counters-partial", missing & ~missing.all(), lambda of: names[name[at[of]]])
    chosen = kernels.iloc[at]
    work, is_analytic, phase, raised = with_shapes(results, work, _ints(chosen, "kernel_id"), unplaced)
    findings += raised
    if is_analytic.any():
        source = pd.Categorical(np.where(is_analytic, ANALYTIC, np.asarray(source, object)).tolist())
    frame = pd.DataFrame(
        {
            "case_index": case[at],
            **{key: _ints(chosen, key) for key in ("capture_id", "kernel_id")},
            "kernel_index": occurrence(case[at]) + 1,
            "layer_index": layer[at],
            "name": pd.Categorical.from_codes(name[at], categories=names),
            "short_name": pd.Categorical.from_codes(*text_codes(chosen["short_name"])),
            "source_line": chosen["source_line"].array,
            "latency_ns": summary["trimmed_mean"].to_numpy(),
            "queue_delay_ns": _queue_delay(kernels, np.where(is_measured, launch, -1), len(at)),
            "theoretical_occupancy_ratio": theoretical,
            "metric_source": source,
        },
        copy=False,
    )
    parts = (case[is_measured], row[is_measured], duration[is_measured])
    total = trimmed_totals(parts[2], *parts[:2], len(cases), options.trim_ratio)
    shared = _parts(results, frame, layers, row[at])
    of_layer = layers.rows_of(parts[0], layer[is_measured])
    if len(shared) > len(frame):
        measured = pd.DataFrame(dict(zip(("case", "execution", "duration"), parts))).assign(row=launch[is_measured])
        measured = measured.merge(shared, on="row")
        of_layer = layers.rows_of(_ints(measured, "case"), _ints(measured, "layer_index"))
        parts = (parts[0], _ints(measured, "execution"), (measured["duration"] * measured["ratio"]).to_numpy())
    layer_total = trimmed_totals(parts[2], of_layer, parts[1], len(layers.frame), options.trim_ratio)
    return KernelRows(frame, summary, work, findings, is_analytic, phase, unplaced, total, layer_total, shared)


def _parts(results: Results, frame: pd.DataFrame, layers: LayerRows, execution: IntArray) -> pd.DataFrame:
    """`KernelRows.parts` of its frame; execution: row of the cases' iterations of each of its kernels."""
    whole = frame[["kernel_id", "layer_index"]].assign(row=np.arange(len(frame)), ratio=1.0)
    known = frame_or_empty(results, "kernel_shares", ["kernel_id", "layer_index", "operation_count"])
    if not len(known):
        return whole
    count = known.groupby("kernel_id")["operation_count"].transform("sum")
    known = known.assign(ratio=known["operation_count"] / count).merge(whole[["kernel_id", "row"]], on="kernel_id")
    index = layers.index_of(execution[known["row"]], _ints(known, "layer_index"))
    known = known.assign(layer_index=np.where(known["layer_index"] < 0, -1, index))
    rest = whole[~whole["kernel_id"].isin(known["kernel_id"])]
    return pd.concat([rest, known[list(whole)]]).sort_values("row", kind="stable", ignore_index=True)


def _ints(frame: pd.DataFrame, column: str) -> IntArray:
    return frame[column].to_numpy().astype(np.int64, copy=False)


def _in_launch_order(kernels: pd.DataFrame, row: IntArray) -> tuple[pd.DataFrame, IntArray]:
    """Kernels by (case order of their iteration row, launch, start)."""
    start, launch = _ints(kernels, "start_ns"), _ints(kernels, "launch_start_ns")
    launch = np.where(launch < 0, start, launch)
    order = np.lexsort((start, launch, row))
    return kernels.iloc[order], row[order]


def _choose_reference(cases: Cases, measured_row: IntArray) -> IntArray:
    """Per case the first measured execution with the most common number of kernels; also noted in the cases."""
    iterations = cases.iterations
    cases.frame["reference_iteration_index"] = -1
    if not len(measured_row):
        return np.zeros(0, np.int64)
    count = np.bincount(measured_row, minlength=len(iterations))
    rows = np.flatnonzero(count > 0)
    table = pd.DataFrame(
        {
            "row": rows,
            "case": iterations["case_index"].to_numpy()[rows],
            "capture": iterations["capture_id"].to_numpy()[rows],
            "count": count[rows],
        }
    )
    table["often"] = table.groupby(["case", "capture", "count"])["row"].transform("size")
    reference = table["case"].map(cases.frame["kernel_capture_id"])
    table = (
        table[table["capture"].eq(reference)]
        .sort_values(["case", "often", "row"], ascending=[True, False, True], kind="stable")
        .drop_duplicates("case")
    )
    chosen = table["row"].to_numpy(np.int64)
    cases.frame.loc[table["case"], "reference_iteration_index"] = iterations["iteration_index"].to_numpy()[chosen]
    return np.sort(chosen)


def _queue_delay(kernels: pd.DataFrame, group: IntArray, count: int) -> FloatArray:
    delay = kernels["queue_delay_ns"].to_numpy(np.float64)
    # A negative delay is real (clock skew); −1 without a launch row is "unknown".
    known = np.where(_ints(kernels, "launch_start_ns") < 0, np.nan, delay)
    return medians(known, group, count)


# Counters ---------------------------------------------------------------------------------------------


def _counters(
    metrics: pd.DataFrame, kernels: pd.DataFrame, launch: IntArray, at: IntArray, case: IntArray, name: IntArray,
    names: pd.Index, summary: pd.DataFrame, options: Options,
) -> tuple[Work, pd.Categorical, FloatArray]:  # fmt: skip
    """The counters of each launch as `Work`, the name of its flop metric, and its theoretical occupancy."""
    count = len(at)
    unknown = np.full(count, np.nan)
    latency = summary["trimmed_mean"].to_numpy()
    found: dict[str, FloatArray] = {}
    sources: dict[str, tuple[IntArray, pd.Index]] = {}
    if len(metrics):
        found, sources = _per_launch(metrics, _ints(kernels, "kernel_id"), launch, count, options.trim_ratio)
    value = {metric: found.get(metric, unknown) for metric in _METRICS}
    by_pipe = {pipe: value[metric] for metric, pipe in _FLOP_PIPES.items() if metric in found}
    if "flop_tensor" in found:
        origin = _tensor_origin(found, sources["flop_tensor"])
        by_pipe |= _split_tensor(value["flop_tensor"], origin, name[at], names)
    covered = ~(np.isnan(value["flop"]) | np.isnan(value["dram_bytes"]))
    work = Work(
        case[at], latency, value["flop"], by_pipe, value["dram_read_bytes"], value["dram_write_bytes"],
        value["dram_bytes"], value["l2_bytes"], value["occupancy_ratio"], covered.astype(np.float64),
        _conditions(value, latency),
    )  # fmt: skip
    metric = next((one for one in ("flop", *_FLOP_PIPES, "flop_tensor") if one in sources), None)
    codes, texts = sources[metric] if metric else (np.full(count, -1), pd.Index([], dtype="object"))
    texts = texts.append(pd.Index([""])) if "" not in texts else texts
    blank = texts.get_indexer(pd.Index([""]))[0]
    return (
        work,
        pd.Categorical.from_codes(np.where(codes < 0, blank, codes), categories=texts),
        value["theoretical_occupancy_ratio"],
    )


def _conditions(value: dict[str, FloatArray], latency: FloatArray) -> dict[str, FloatArray]:
    """What the counter tool says of its own measurement. Its peaks are those of its clock: they hold where the
    latency, too, is the one it took."""
    is_its_own = value["counted_duration_ns"] == latency
    found = {name: value[name] for name in CONDITIONS}
    return {
        name: np.where(is_its_own, values, np.nan) if name in MEASURED_PEAKS else values
        for name, values in found.items()
        if not np.isnan(values).all()
    }


def _per_launch(
    metrics: pd.DataFrame, kernel_id: IntArray, launch: IntArray, count: int, trim_ratio: float
) -> tuple[dict[str, FloatArray], dict[str, tuple[IntArray, pd.Index]]]:
    """Each metric's value per launch (summarised over its executions), and the code of its source text."""
    code, metric_names = text_codes(metrics["metric_name"])
    source, source_texts = text_codes(metrics["source"])
    wanted = {
        str(text): position
        for position, text in enumerate(metric_names)
        if text in _METRICS or _TENSOR_OPERANDS.fullmatch(str(text))
    }
    kept = np.flatnonzero(np.isin(code, list(wanted.values())))
    position = lookup(kernel_id, np.arange(len(kernel_id)), _ints(metrics, "kernel_id")[kept])
    group = np.where(position >= 0, launch[np.clip(position, 0, None)], -1) if len(launch) else position
    value = metrics["value"].to_numpy(np.float64)[kept]
    found: dict[str, FloatArray] = {}
    sources: dict[str, tuple[IntArray, pd.Index]] = {}
    for text, number in wanted.items():
        rows = code[kept] == number
        found[text] = summarise_groups(value[rows], group[rows], count, trim_ratio)["trimmed_mean"].to_numpy()
        origin = np.full(count, -1, np.int64)
        known = rows & (group >= 0)
        origin[group[known]] = source[kept][known]
        sources[text] = (origin, source_texts)
    return found, sources


def _tensor_origin(found: dict[str, FloatArray], source: tuple[IntArray, pd.Index]) -> tuple[IntArray, pd.Index]:
    """What names each launch's tensor operands: the operand counter that counted most, else the flop's source."""
    operands = [name for name in found if _TENSOR_OPERANDS.fullmatch(name)]
    codes, texts = source
    if not operands:
        return source
    counted = np.nan_to_num(np.array([found[name] for name in operands]))
    most = np.where(counted.max(axis=0) > 0, len(texts) + counted.argmax(axis=0), codes)
    return most.astype(np.int64), texts.append(pd.Index(operands))


def _split_tensor(
    flop: FloatArray, source: tuple[IntArray, pd.Index], name: IntArray, names: pd.Index
) -> dict[str, FloatArray]:
    """Tensor flop by the pipe they went through; decided once per (source text, kernel name)."""
    origin, texts = source
    present = np.flatnonzero(np.nan_to_num(flop) > 0)
    kind, first = dense(origin[present], name[present])
    pipes = [
        tensor_pipe(str(texts[origin[row]]) if origin[row] >= 0 else "", str(names[name[row]]))
        for row in present[first]
    ]
    split: dict[str, FloatArray] = {}
    for pipe in dict.fromkeys(pipes):
        is_pipe = np.array([p == pipe for p in pipes])[kind]
        split[pipe] = np.where(np.isnan(flop), np.nan, 0.0)
        split[pipe][present[is_pipe]] = flop[present[is_pipe]]
    return split


# Findings ---------------------------------------------------------------------------------------------


def _unplaced(row: IntArray, cases: Cases, kernels: pd.DataFrame) -> FloatArray:
    """Time of kernels without a launch row, which may belong to any execution: per case, for one execution."""
    lost = (row < 0) & kernels["attribution"].eq("no_launch").to_numpy(bool)
    if not lost.any() or not len(cases):
        return np.zeros(len(cases))
    captures = _ints(kernels, "capture_id")[lost]
    duration = kernels["duration_ns"].to_numpy(np.float64)[lost]
    of_capture = pd.Series(duration).groupby(captures).sum()
    executions = cases.iterations.groupby("capture_id").size()
    capture = cases.frame["kernel_capture_id"]
    return (capture.map(of_capture) / capture.map(executions)).fillna(0.0).to_numpy(np.float64)


def _unmatched(
    launch: IntArray, is_measured: npt.NDArray[np.bool_], launch_case: IntArray, cases: Cases, kernels: pd.DataFrame
) -> list[Finding]:
    """Kernels that the reference does not have, and launches of it that some execution lacks."""
    extra = is_measured & (launch < 0)
    executions = np.bincount(cases.measured_case("kernel") + 1, minlength=len(cases) + 1)[1:]
    seen = np.bincount(launch[is_measured & ~extra], minlength=len(launch_case))
    missing = np.clip(executions[launch_case] - seen, 0, None)
    count = int(extra.sum() + missing.sum())
    if not count:
        return []
    example = int(np.argmax(extra)) if extra.any() else int(np.argmax(launch == int(np.argmax(missing > 0))))
    return [finding("launches-unmatched", count=count, example=str(kernels["name"].iloc[example]))]
