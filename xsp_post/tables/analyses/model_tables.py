"""A1, A15 and the evaluation tables over batch sizes (paper, §III and §IV)."""

import numpy as np
import pandas as pd

from xsp_post.arrays.batch_sizes import BATCH_POLICIES, gain_per_doubling, optimal_position
from xsp_post.arrays.repeats import dense
from xsp_post.arrays.statistics import rest_of
from xsp_post.model.results import shaped
from xsp_post.tables.analyses import roofline
from xsp_post.tables.analyses.frames import Columns, FloatArray, IntArray, divide, group_sum, text_codes
from xsp_post.tables.analyses.inputs import Inputs
from xsp_post.tables.analyses.joined_tables import analytic_where_unmeasured
from xsp_post.tables.analyses.kernel_tables import coverage_columns
from xsp_post.tables.analyses.layer_tables import statistics_columns


def sweeps(inputs: Inputs) -> list[IntArray]:
    """Cases that are one workload and phase at several known batch sizes, ascending; model latency known."""
    frame = inputs.cases.frame
    batch = frame["batch_size"].to_numpy(np.int64)
    usable = np.flatnonzero((batch > 0) & ~np.isnan(inputs.model_latency_ns))
    name, _ = text_codes(frame["workload_name"])
    phase, _ = text_codes(frame["phase"])
    rank, _ = text_codes(frame["rank_name"])
    # Unnamed captures are not a sweep: nothing says that they ran the same model.
    is_named = frame["workload_name"].to_numpy() != ""
    usable = usable[is_named[usable]]
    group, first = dense(name[usable], phase[usable], rank[usable])
    return [usable[group == g][np.argsort(batch[usable[group == g]], kind="stable")] for g in range(len(first))]


def a01(inputs: Inputs) -> Columns:
    """A1: model latency and throughput of each case, and which batch size is optimal in its sweep."""
    frame, summary = inputs.cases.frame, inputs.model_summary
    batch = frame["batch_size"].to_numpy(np.int64)
    latency = inputs.model_latency_ns
    throughput = inputs.throughput_inputs_per_s
    gain, is_optimal = np.full(len(frame), np.nan), np.zeros(len(frame), dtype=bool)
    for sweep in sweeps(inputs):
        gain[sweep] = gain_per_doubling(batch[sweep], throughput[sweep])
        chosen = _optimum(inputs, batch[sweep], throughput[sweep])
        if chosen >= 0:
            is_optimal[sweep[chosen]] = True
    rows = np.flatnonzero(~np.isnan(latency))
    per_input = np.where(batch > 0, divide(latency, batch), np.nan)
    return {
        **inputs.case_columns(rows),
        "capture_id": frame["model_capture_id"].to_numpy()[rows],
        **{name: frame[name].to_numpy()[rows] for name in ("workload_name", "framework", "gpu_name")},
        "level": frame["model_level"].to_numpy()[rows],
        "latency_ns": latency[rows],
        **statistics_columns(summary.iloc[rows]),
        "period_ns": inputs.windows["model"]["period_ns"].to_numpy()[rows],
        "latency_per_input_ns": per_input[rows],
        "throughput_inputs_per_s": throughput[rows],
        "throughput_gain_ratio": gain[rows],
        "is_optimal": is_optimal[rows],
    }


def _optimum(inputs: Inputs, batch_size: IntArray, throughput: FloatArray, policy: str = "") -> int:
    """Position of the optimal batch size of one sweep by the options' policy or another, −1 none."""
    options = inputs.options
    return optimal_position(batch_size, throughput, policy or options.optimal_policy, options.gain_ratio)


def optimal_batch(inputs: Inputs) -> Columns:
    """The optimal batch size of every sweep of at least two sizes, by each policy."""
    frame, latency = inputs.cases.frame, inputs.model_latency_ns
    batch = frame["batch_size"].to_numpy(np.int64)
    throughput = inputs.throughput_inputs_per_s
    positions = [
        (policy, sweep, _optimum(inputs, batch[sweep], throughput[sweep], policy))
        for sweep in sweeps(inputs)
        for policy in BATCH_POLICIES
    ]
    chosen = [(policy, int(sweep[position])) for policy, sweep, position in positions if position >= 0]
    case = np.array([index for _, index in chosen], dtype=np.int64)
    policy = np.array([name for name, _ in chosen], dtype=object)
    return {
        **{name: frame[name].to_numpy()[case] for name in ("workload_name", "phase", "batch_size")},
        "policy": policy,
        "throughput_inputs_per_s": throughput[case],
        "latency_ns": latency[case],
        "is_chosen": policy == inputs.options.optimal_policy,
    }


def throughput_scalability(inputs: Inputs) -> Columns:
    """Throughput of each batch size relative to the smallest of its sweep (the paper's: batch size 1)."""
    frame = inputs.cases.frame
    throughput = inputs.throughput_inputs_per_s
    found = [sweep for sweep in sweeps(inputs) if len(sweep) > 1]
    case = np.concatenate(found) if found else np.zeros(0, np.int64)
    base = np.concatenate([np.full(len(sweep), throughput[sweep[0]]) for sweep in found]) if found else np.zeros(0)
    return {
        **inputs.case_columns(case),
        "workload_name": frame["workload_name"].to_numpy()[case],
        "throughput_inputs_per_s": throughput[case],
        "speedup_ratio": divide(throughput[case], base),
    }


def a15(inputs: Inputs) -> Columns:
    """A15: all kernels of one execution of the model, per case; intensity from counters, else analytic."""
    frame = inputs.cases.frame
    total = inputs.by_case[0]
    work, is_analytic = _model_work(inputs)
    rows = _cases_with_work(inputs)
    latency = inputs.model_latency_ns
    together = inputs.windows["kernel"]
    coverage = coverage_columns(work.coverage_ratio[rows], inputs.analytic_cases[rows])
    # without kernels captured there is no kernel latency, and no throughput over one
    columns = roofline.intensity_columns(
        roofline.timed_where(inputs.has_kernels[rows], work.take(rows)), inputs.peaks, inputs.options
    )
    is_whole = work.coverage_ratio[rows] >= inputs.options.least_coverage
    mfu = roofline.utilisation(work.take(rows), columns["pipe"], inputs.pace_ns[rows], inputs.peaks)
    source = np.where(is_analytic[rows], roofline.ANALYTIC, np.asarray(coverage["counter_source"]))
    is_timed = inputs.has_kernels[rows]
    by_phase = inputs.latency_by_phase(inputs.kernel_case, len(inputs.cases))
    return {
        **inputs.case_columns(rows),
        "capture_id": frame["kernel_capture_id"].to_numpy()[rows],
        **{name: frame[name].to_numpy()[rows] for name in ("workload_name", "gpu_name")},
        "model_latency_ns": latency[rows],
        "throughput_inputs_per_s": inputs.throughput_inputs_per_s[rows],
        "kernel_latency_ns": np.where(is_timed, total.latency_ns[rows], np.nan),
        "kernel_total_ns": inputs.kernels.total_ns[rows],
        "kernel_rest_ns": np.where(is_timed, rest_of(inputs.kernels.total_ns, total.latency_ns)[rows], np.nan),
        "busy_ns": inputs.busy_ns[rows],
        **{name: count[rows] for name, count in kernel_counts(inputs).items()},
        "gpu_latency_ratio": np.where(is_timed, divide(inputs.kernels.total_ns, latency)[rows], np.nan),
        "gpu_busy_ratio": divide(together.busy_ns, together.window_ns)[rows],
        **{name: values[rows] for name, values in total.quantities().items()},
        "total_flop": np.where(is_analytic, work.flop, total.flop)[rows],
        **columns,
        "mfu_ratio": np.where(is_whole, mfu, np.nan),
        **{name: values[rows] for name, values in by_phase.items()},
        **coverage,
        "counter_source": pd.Categorical(source, roofline.COUNTER_SOURCES),
    }


def model_roofline(inputs: Inputs) -> Columns:
    """One point per case that has flop and bytes: over batch sizes (Figure 10) or models (Figure 12)."""
    table = shaped("a15", a15(inputs))
    return dict(table[table["arithmetic_intensity_flop_per_byte"].notna()].reset_index(drop=True))


def kernel_counts(inputs: Inputs) -> dict[str, IntArray]:
    """kernel_count and unique_kernel_count per case; −1 where no kernels were captured."""
    case, (_, first) = inputs.kernel_case, inputs.kernels_by_name
    counts = {"kernel_count": case, "unique_kernel_count": case[first]}
    return {name: captured(np.bincount(of, minlength=len(inputs.cases)), inputs.has_kernels)
            for name, of in counts.items()}  # fmt: skip


def captured(count: IntArray, is_captured: np.ndarray) -> IntArray:
    """Counts per case, −1 (unknown) where what they count was not captured."""
    return np.where(is_captured, count, -1).astype(np.int64)


def _cases_with_work(inputs: Inputs) -> IntArray:
    """Cases that have kernels, or layers whose flop and bytes are known from the model."""
    layers = inputs.layers.frame
    analytic = layers["case_index"][layers["analytic_flop"].notna() & layers["analytic_bytes"].notna()]
    return np.union1d(np.flatnonzero(inputs.has_kernels), analytic).astype(np.int64)


def _model_work(inputs: Inputs) -> tuple[roofline.Work, np.ndarray]:
    """Counters summed per case; where a case has none, the analytic sums of its layers over the same time."""
    covered, total = inputs.by_case[1], inputs.by_case[0]
    layers, case = inputs.layers.frame, inputs.layer_case
    per_layer, is_analytic_layer = analytic_where_unmeasured(inputs)
    count = len(inputs.cases)

    def sums(values: FloatArray) -> FloatArray:
        return group_sum(case[is_analytic_layer], values[is_analytic_layer], count)

    flop, least = sums(per_layer.flop), sums(per_layer.dram_bytes)
    is_analytic = (total.coverage_ratio == 0) & ~np.isnan(flop)
    # Host-only runs have no kernel latency: the layers' own then is the time.
    latency = np.where(total.latency_ns > 0, total.latency_ns, group_sum(case, layers["latency_ns"].to_numpy(), count))

    # work between the layers (functional operations) has no mark: the marks cover what their layers took
    marked = np.where(total.latency_ns > 0, sums(inputs.by_layer[0].latency_ns), sums(layers["latency_ns"].to_numpy()))
    share = np.minimum(divide(np.nan_to_num(marked), latency), 1.0)

    by_pipe = {pipe: sums(flop_of) for pipe, flop_of in per_layer.flop_by_pipe.items()}
    work = covered.where(is_analytic, by_pipe, latency_ns=latency, flop=flop, dram_bytes=least, coverage_ratio=share)
    return work, is_analytic
