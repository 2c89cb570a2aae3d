"""The tables of the analyses A1…A15 and of the paper's evaluation section.

A *case* is what one row of the paper's Table VI is: one workload at one batch size (and one phase, such
as prefill or decode), summarised over its measured iterations. `case_index` joins all tables here.
A latency without a prefix is the symmetric 20 % trimmed mean over the measured iterations.
"""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

_CASE = (
    C("case_index", "int64", "workload × batch size × phase; joins the tables of analyses"),
    C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
    C("phase", "str", "what ran, as in iterations.phase ('' the only one)"),
    C("rank_name", "str", "rank of the job that it is of ('' a single process)"),
)
_CAPTURE = (C("capture_id", "int64", "capture whose reference iteration names the rows"),)
_LAYER = (
    C("layer_index", "int64", "1-based execution order, empty for kernels of no layer", is_optional=True),
    C("layer_name", "str", "last part of the layer's path"),
    C("layer_type", "str", "class or operator type"),
)
_STATISTICS = (
    C("min_latency_ns", "float64", "shortest of the measured iterations"),
    C("median_latency_ns", "float64", "median of the measured iterations"),
    C("max_latency_ns", "float64", "longest of the measured iterations"),
    C("std_latency_ns", "float64", "sample standard deviation, NaN for one sample"),
    C("ci_low_latency_ns", "float64", "lower end of the trimmed mean's 95 % confidence interval, NaN for one sample"),
    C("ci_high_latency_ns", "float64", "upper end of that interval, NaN for one sample"),
    C(
        "interval_over",
        "str",
        "what the interval is over: captures (a process each), or one process, of which alone it speaks; '' none",
    ),
    C("sample_count", "int64", "measured iterations the statistics are over"),
)
_QUANTITIES = (
    C("total_flop", "float64", "floating-point operations of all pipes, NaN not measured"),
    C("dram_read_bytes", "float64", "bytes DRAM → L2, NaN not measured"),
    C("dram_write_bytes", "float64", "bytes L2 → DRAM, NaN not measured"),
    C("l2_bytes", "float64", "bytes through L2, NaN not measured"),
    C("occupancy_ratio", "float64", "achieved occupancy, weighted by kernel latency, NaN not measured"),
)
_INTENSITY = (
    C("arithmetic_intensity_flop_per_byte", "float64", "total flop / (DRAM reads + writes); NaN unknown or no traffic"),
    C("arithmetic_throughput_flop_per_s", "float64", "total flop / kernel latency of the kernels with counters"),
    C("pipe", "str", "pipe whose roof decides the bound: the one that would be busy longest, or the one asked for"),
    C("bound", "str", "memory, compute, latency (far below both roofs) or unknown (no counters or no peak)"),
    C(
        "bound_source",
        "str",
        "roofline: flop and bytes against the roofs (at the clock of the measurement where the latency is of the "
        "counter run, too); speed of light: Nsight Compute's own shares of its peaks; empty where unknown",
    ),
    C("roof_ratio", "float64", "share of the nearer roof that was reached, NaN unknown"),
)
_COVERAGE = (
    C(
        "counter_coverage_ratio",
        "float64",
        "share of the kernel latency whose kernels have flop and bytes, by counters or from shapes",
    ),
    C("counter_source", "str", "counters, analytic (flop and least bytes from shapes or from the model), none"),
)
_MFU = C(
    "mfu_ratio",
    "float64",
    "model flop utilisation: flop / (kernel latency of a layer, or time from one execution to the next, × peak of the "
    "pipe); NaN without a peak or with too little known",
)
_BY_PHASE = tuple(
    C(f"{phase}_kernel_ns", "float64", f"kernel latency of the {phase} part of a training step, NaN unknown")
    for phase in ("forward", "backward", "optimizer")
)
# Why a sum may lie below a union: they are averaged in different order, and copies are not kernels.
_EACH = "each launch trimmed by itself"
_WHOLE = "copies too; trimmed as a whole, so that a launch that was slow once stays in it"
_TOP = "; XSP (IPDPS 2020) §III"

CASES = register(
    Table(
        "cases",
        "Cases",
        "workload × batch size × phase",
        (
            *_CASE,
            C("workload_name", "str", "model or program, when known"),
            C("framework", "str", "when known"),
            C("gpu_name", "str", "GPU whose roofs apply"),
            C("model_capture_id", "int64", "capture that the model latency is from, empty: none", is_optional=True),
            C("model_level", "str", "its level"),
            C("layer_capture_id", "int64", "capture that the layer latencies are from, empty: none", is_optional=True),
            C("layer_level", "str", "its level"),
            C("kernel_capture_id", "int64", "capture that the kernels are from, empty: none", is_optional=True),
            C("kernel_level", "str", "its level"),
            C(
                "reference_iteration_index",
                "int64",
                "iteration of kernel_capture_id whose launches are the rows of A8",
                is_optional=True,
            ),
            C("iteration_count", "int64", "measured iterations the model latency is from"),
        ),
        "leveled experimentation: each latency from the run whose deepest profiler is that level; paper, §III-C",
    )
)

A01 = register(
    Table(
        "a01",
        "A1 Model information",
        "case",
        (
            *_CASE,
            *_CAPTURE,
            C("workload_name", "str", "model or program, when known"),
            C("framework", "str", "when known"),
            C("gpu_name", "str", "GPU as the capture names it"),
            C("level", "str", "level of the run the latency is from"),
            C("latency_ns", "float64", "model latency of one iteration (one batch)"),
            *_STATISTICS,
            C("period_ns", "float64", "median time from the end of one execution to the end of the next, NaN unknown"),
            C("latency_per_input_ns", "float64", "latency / batch size, NaN when the batch size is unknown"),
            C("throughput_inputs_per_s", "float64", "batch size / latency; of overlapping executions / period"),
            C("throughput_gain_ratio", "float64", "throughput gained by doubling the batch size, NaN at the largest"),
            C(
                "is_optimal",
                "bool",
                "the optimal batch size by the chosen policy (default: what the last doubling that gains > 5 % "
                "reaches); "
                "none of a single size or an unfinished sweep",
            ),
        ),
        "Table I A1, Figure 3" + _TOP,
    )
)

A02 = register(
    Table(
        "a02",
        "A2 Layer information",
        "case × layer",
        (
            *_CASE,
            *_CAPTURE,
            *_LAYER,
            C("layer_path", "str", "folded path below the model"),
            C("call_count", "int64", "calls folded into the row"),
            C("shape_text", "str", "shape as text"),
            C("latency_ns", "float64", "layer latency"),
            C("latency_ratio", "float64", "share of the sum over all layers of the case"),
            C("allocated_bytes", "float64", "bytes allocated during the layer, NaN not recorded"),
            C("latency_source", "str", "host, projection"),
            *_BY_PHASE,
            C("sample_count", "int64", "measured iterations"),
            C("is_inferred", "bool", "inferred, not recorded"),
        ),
        "Table I A2, Table II" + _TOP,
    )
)

A03 = register(
    Table(
        "a03",
        "A3 Layer latency",
        "case × layer",
        (
            *_CASE,
            *_LAYER,
            C("stage", "str", "beginning, middle, end: thirds by layer index, empty for [self]"),
            C("latency_ns", "float64", "layer latency"),
            C("q25_latency_ns", "float64", "lower quartile, for the box plot"),
            C("q75_latency_ns", "float64", "upper quartile, for the box plot"),
            *_STATISTICS,
        ),
        "Table I A3, Figure 5a" + _TOP,
    )
)

A04 = register(
    Table(
        "a04",
        "A4 Layer memory allocation",
        "case × layer",
        (
            *_CASE,
            *_LAYER,
            C("stage", "str", "beginning, middle, end: thirds by layer index, empty for [self]"),
            C("allocated_bytes", "float64", "bytes allocated during the layer, NaN not recorded"),
        ),
        "Table I A4, Figure 5b" + _TOP,
    )
)

A05 = register(
    Table(
        "a05",
        "A5 Layer type distribution",
        "case × layer type",
        (
            *_CASE,
            C("layer_type", "str", "class or operator type"),
            C("layer_count", "int64", "layers of the type"),
            C("count_ratio", "float64", "share of all layers"),
        ),
        "Table I A5, Figure 4a" + _TOP,
    )
)

A06 = register(
    Table(
        "a06",
        "A6 Layer latency by type",
        "case × layer type",
        (
            *_CASE,
            C("layer_type", "str", "class or operator type"),
            C("layer_count", "int64", "layers of the type"),
            C("latency_ns", "float64", "sum of their latencies"),
            C("total_latency_ns", "float64", "of one iteration together: trimmed mean of the iterations' sums"),
            C(
                "rest_latency_ns",
                "float64",
                "total − sum of the latencies: what trimming each layer by itself cuts off",
            ),
            C("latency_ratio", "float64", "share of the sum over all layers (not of the model latency)"),
            *_BY_PHASE,
        ),
        "Table I A6, Figure 4b" + _TOP,
    )
)

A07 = register(
    Table(
        "a07",
        "A7 Layer memory allocation by type",
        "case × layer type",
        (
            *_CASE,
            C("layer_type", "str", "class or operator type"),
            C("layer_count", "int64", "layers of the type"),
            C("allocated_bytes", "float64", "sum over the layers whose allocation is recorded, NaN none is"),
            C("allocated_ratio", "float64", "share of the sum over all layers"),
        ),
        "Table I A7, Figure 4c" + _TOP,
    )
)

A08 = register(
    Table(
        "a08",
        "A8 GPU kernel information",
        "case × kernel launch of the reference iteration",
        (
            *_CASE,
            *_CAPTURE,
            C("kernel_index", "int64", "1-based launch order within the reference iteration"),
            C("kernel_id", "int64", "the kernel of the reference iteration, in kernels"),
            *_LAYER,
            C("shape_text", "str", "shape of the layer as text"),
            C("name", "str", "demangled kernel name"),
            C("short_name", "str", "bare function name"),
            C("latency_ns", "float64", "kernel latency, over the iterations in which the launch was matched"),
            *_STATISTICS,
            C("queue_delay_ns", "float64", "median of execution start − launch start, NaN no launch row"),
            *_QUANTITIES,
            C("theoretical_occupancy_ratio", "float64", "occupancy that the launch configuration allows"),
            *_INTENSITY,
            C("metric_source", "str", "which metric of the tool the flop count is from, '' none"),
        ),
        "Table I A8, Table III" + _TOP,
    )
)

A09 = register(
    Table(
        "a09",
        "A9 GPU kernel roofline",
        "case × kernel launch with counters",
        (
            *_CASE,
            C("kernel_index", "int64", "as in A8"),
            *_LAYER,
            C("name", "str", "demangled kernel name"),
            C("short_name", "str", "bare function name"),
            C("latency_ns", "float64", "kernel latency"),
            *_INTENSITY,
            C("roof_flop_per_s", "float64", "min(peak of the pipe, bandwidth × intensity)"),
        ),
        "Table I A9, Figure 6" + _TOP,
    )
)

A10 = register(
    Table(
        "a10",
        "A10 Kernels by name",
        "case × kernel name",
        (
            *_CASE,
            C("name", "str", "demangled kernel name, compared exactly"),
            C("short_name", "str", "bare function name"),
            C("kernel_count", "int64", "launches in one iteration (the paper prints one too few, docs/paper.md, E1)"),
            C("latency_ns", "float64", "sum of the kernels' latencies"),
            C("latency_ratio", "float64", "share of the model latency, NaN when that is unknown"),
            C("kernel_latency_ratio", "float64", "share of the sum of all kernel latencies"),
            *_QUANTITIES,
            *_INTENSITY,
            *_COVERAGE,
        ),
        "Table I A10, Table IV" + _TOP,
    )
)

A11 = register(
    Table(
        "a11",
        "A11 Kernels by layer",
        "case × layer",
        (
            *_CASE,
            *_LAYER,
            C("shape_text", "str", "shape as text"),
            C("layer_latency_ns", "float64", "layer latency, from the run that measures layers"),
            C("kernel_latency_ns", "float64", "sum of the latencies of the layer's kernels"),
            C("kernel_total_ns", "float64", "their time in one iteration: trimmed mean of the iterations' sums"),
            C("kernel_rest_ns", "float64", "total − sum of the latencies, as in A15"),
            C("kernel_count", "int64", "kernels of the layer in one iteration"),
            *_QUANTITIES,
            *_INTENSITY,
            _MFU,
            *_COVERAGE,
        ),
        "Table I A11, Table V" + _TOP,
    )
)

A12 = register(
    Table(
        "a12",
        "A12 GPU metrics by layer",
        "case × layer",
        (
            *_CASE,
            *_LAYER,
            C("kernel_latency_ns", "float64", "sum of the latencies of the layer's kernels"),
            *_QUANTITIES,
            C("counter_source", "str", "counters, analytic (least work from shapes), none"),
        ),
        "Table I A12, Figure 7" + _TOP,
    )
)

A13 = register(
    Table(
        "a13",
        "A13 GPU and non-GPU latency",
        "case × layer",
        (
            *_CASE,
            *_LAYER,
            C("layer_latency_ns", "float64", "layer latency, from the run that measures layers"),
            C("latency_source", "str", "host, projection"),
            C("kernel_latency_ns", "float64", f"sum of the latencies of the layer's kernels, {_EACH}"),
            C("busy_ns", "float64", f"union of the device intervals of the layer, {_WHOLE}"),
            C(
                "non_gpu_by_sum_ns",
                "float64",
                "layer latency − kernel latency (the paper's); never clamped; NaN where the latency is not of the host",
            ),
            C("non_gpu_by_union_ns", "float64", "layer latency − busy time; never clamped; NaN as above"),
            C("host_ns", "float64", "time of the layer's range on the host"),
            C("gap_ns", "float64", "where the latency is of the device: what of it no device work covers, NaN else"),
            C("gpu_by_sum_ratio", "float64", "kernel latency / layer latency, NaN as above"),
            C("gpu_by_union_ratio", "float64", "busy time / layer latency, NaN as above"),
            C(
                "is_negative",
                "bool",
                "a non-GPU latency is below zero: overlapping kernels, work that outlives the range, "
                "or two runs that differ",
            ),
        ),
        "Table I A13, Figure 8" + _TOP,
    )
)

A14 = register(
    Table(
        "a14",
        "A14 Layer roofline",
        "case × layer with flop and bytes",
        (
            *_CASE,
            *_LAYER,
            C("latency_ns", "float64", "kernel latency; layer latency where the layer has no kernels"),
            *_INTENSITY,
            C("roof_flop_per_s", "float64", "min(peak of the pipe, bandwidth × intensity)"),
            _MFU,
            C("work_coverage_ratio", "float64", "share of the layer's kernel latency whose work is known"),
            C("counter_source", "str", "counters, or analytic: flop and least bytes counted from the model"),
        ),
        "Table I A14, Figure 9" + _TOP,
    )
)

A15 = register(
    Table(
        "a15",
        "A15 Kernels by model",
        "case",
        (
            *_CASE,
            *_CAPTURE,
            C("workload_name", "str", "model or program, when known"),
            C("gpu_name", "str", "GPU whose roofs apply"),
            C("model_latency_ns", "float64", "model latency, from the run that measures it; NaN no iterations"),
            C("throughput_inputs_per_s", "float64", "batch size / model latency"),
            C("kernel_latency_ns", "float64", f"sum of the kernel latencies of one iteration, {_EACH}"),
            C("kernel_total_ns", "float64", "kernel time of one iteration: trimmed mean of the iterations' sums"),
            C(
                "kernel_rest_ns",
                "float64",
                "total − sum of the latencies: what trimming each kernel by itself cuts off, and kernels of other "
                "iterations than the reference",
            ),
            C("busy_ns", "float64", f"union of the device intervals of one iteration, {_WHOLE}"),
            C("kernel_count", "int64", "kernels in one iteration", is_optional=True),
            C("unique_kernel_count", "int64", "different kernel names", is_optional=True),
            C("gpu_latency_ratio", "float64", "kernel total / model latency (the paper's GPU latency percentage)"),
            C(
                "gpu_busy_ratio",
                "float64",
                "busy time / union of the executions, first start to last end on the device",
            ),
            *_QUANTITIES,
            *_INTENSITY,
            C("roof_flop_per_s", "float64", "min(peak of the pipe, bandwidth × intensity)"),
            _MFU,
            *_BY_PHASE,
            *_COVERAGE,
        ),
        "Table I A15, Table VI, Figures 10 and 12" + _TOP,
    )
)

ROOFS = register(
    Table(
        "roofs",
        "Roofs",
        "GPU × pipe",
        (
            C("gpu_name", "str", "GPU as the captures name it"),
            C("pipe", "str", "fp64, fp32, fp16, tf32_tensor, fp16_tensor … (dense)"),
            C("peak_flop_per_s", "float64", "peak of the pipe, unrounded"),
            C("memory_bandwidth_bytes_per_s", "float64", "peak DRAM bandwidth, NaN unknown"),
            C("ideal_intensity_flop_per_byte", "float64", "peak / bandwidth: below it work is memory-bound"),
            C("origin", "str", "table, attributes (computed), file (the user's), paper"),
            C("source", "str", "data sheet or computation behind the numbers"),
        ),
        "Table VII; XSP (IPDPS 2020) §IV",
    )
)

RANK_LAYERS = register(
    Table(
        "rank_layers",
        "Layers over the ranks",
        "layer of a job with several ranks",
        (
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("phase", "str", "what ran, as in iterations.phase ('' the only one)"),
            C("layer_index", "int64", "layers.layer_index"),
            C("layer_path", "str", "folded path below the model"),
            C("layer_name", "str", "last part of the path"),
            C("layer_type", "str", "class or operator type"),
            C("call_index", "int64", "k-th call of the path"),
            C("rank_count", "int64", "ranks that ran it"),
            C("median_latency_ns", "float64", "median over the ranks of their latency of it"),
            C("min_latency_ns", "float64", "latency of the fastest rank"),
            C("slowest_latency_ns", "float64", "latency of the slowest rank"),
            C("slowest_rank_name", "str", "which rank that is"),
            C("spread_ratio", "float64", "(slowest - fastest) / median"),
        ),
    )
)

TRAINING_PHASES = register(
    Table(
        "training_phases",
        "Phases of a training step",
        "case × layer (-1: the whole step) × phase",
        (
            *_CASE,
            *_LAYER,
            C("training_phase", "str", "forward, backward, optimizer, other"),
            C("kernel_latency_ns", "float64", "sum of the latencies of the kernels of that part"),
            C("kernel_latency_ratio", "float64", "share of the kernel latency of the whole step"),
            C("kernel_count", "int64", "kernels of that part in one step"),
            C("total_flop", "float64", "flop of that part, NaN unknown"),
            C("least_bytes", "float64", "DRAM bytes of that part by counters, else least bytes, NaN unknown"),
            *_INTENSITY,
            C("roof_flop_per_s", "float64", "min(peak of the pipe, bandwidth × intensity)"),
            C("mfu_ratio", "float64", "flop / (kernel latency of that part × peak of the pipe), NaN unknown"),
            *_COVERAGE,
        ),
        "docs/work.md",
    )
)

OPTIMAL_BATCH = register(
    Table(
        "optimal_batch",
        "Optimal batch size",
        "workload × phase × policy",
        (
            C("workload_name", "str", "model or program, when known"),
            C("phase", "str", "what ran"),
            C(
                "policy",
                "str",
                "settled: what the last doubling that gains more than 5 % reaches; "
                "first, last: of the doublings that gain no more than 5 %, from below or from the top; "
                "max: most throughput; within: smallest within 5 % of the most",
            ),
            C("batch_size", "int64", "optimal batch size by the policy"),
            C("throughput_inputs_per_s", "float64", "throughput there"),
            C("latency_ns", "float64", "model latency there"),
            C("is_chosen", "bool", "the policy that a01.is_optimal follows"),
        ),
        "XSP (IPDPS 2020) §III A1; docs/paper.md, E2",
    )
)

THROUGHPUT_SCALABILITY = register(
    Table(
        "throughput_scalability",
        "Throughput scalability",
        "case",
        (
            *_CASE,
            C("workload_name", "str", "model or program, when known"),
            C("throughput_inputs_per_s", "float64", "throughput"),
            C("speedup_ratio", "float64", "throughput / throughput at the smallest batch size of the sweep"),
        ),
        "arXiv v1 of XSP, Figure 12",
    )
)

STAGES = register(
    Table(
        "stages",
        "Stages",
        "case × third of the layers",
        (
            *_CASE,
            C("stage", "str", "beginning, middle, end: thirds by layer index, without [self]"),
            C("layer_count", "int64", "layers in the third"),
            C("latency_ns", "float64", "sum of layer latencies"),
            C("allocated_bytes", "float64", "sum of allocations, NaN not recorded"),
            C("total_flop", "float64", "sum, NaN not measured"),
            C("dram_bytes", "float64", "reads + writes, NaN not measured"),
            C("is_dominant_latency", "bool", "the third with most latency"),
            C("is_dominant_allocated", "bool", "the third with most allocation"),
            C("is_dominant_flop", "bool", "the third with most flop"),
            C("is_dominant_dram", "bool", "the third with most DRAM traffic"),
        ),
        "Table IX, Figure 5; XSP (IPDPS 2020) §IV",
    )
)

DOMINANT_KERNELS = register(
    Table(
        "dominant_kernels",
        "Dominant kernel of each layer",
        "case × layer with kernels",
        (
            *_CASE,
            *_LAYER,
            C("name", "str", "name of the kernel launch that took longest"),
            C("short_name", "str", "its bare function name"),
            C("latency_ns", "float64", "its latency"),
            C("latency_ratio", "float64", "its share of the layer's kernel latency"),
        ),
        "MLModelScope design paper, Table 3",
    )
)

WORKLOAD_SUMMARY = register(
    Table(
        "workload_summary",
        "Summary",
        "case",
        (
            *_CASE,
            C("workload_name", "str", "model or program, when known"),
            C("model_latency_ns", "float64", "model latency, NaN no iterations"),
            C("layer_latency_ns", "float64", "sum of the latencies of all layers"),
            C("layer_total_ns", "float64", "all layers of one iteration: trimmed mean of the iterations' sums"),
            C("layer_rest_ns", "float64", "total − sum of the latencies: what trimming each layer by itself cuts off"),
            C("layer_count", "int64", "layers of one iteration", is_optional=True),
            C("layer_under_1ms_count", "int64", "layers below 1 ms", is_optional=True),
            C("kernel_latency_ns", "float64", "sum of the kernel latencies of one iteration"),
            C("kernel_count", "int64", "kernels of one iteration", is_optional=True),
            C("kernel_under_1ms_count", "int64", "kernels below 1 ms", is_optional=True),
            C("unique_kernel_count", "int64", "different kernel names", is_optional=True),
            C("gpu_latency_ratio", "float64", "kernel total of A15 / model latency"),
            C("convolution_latency_ratio", "float64", "share of the convolution layers in the sum over all layers"),
        ),
        "Tables VIII and IX, text of XSP (IPDPS 2020) §III",
    )
)

MODEL_ROOFLINE = register(
    Table(
        "model_roofline",
        "Model roofline",
        "case with flop and bytes",
        (
            *_CASE,
            C("workload_name", "str", "model or program, when known"),
            C("gpu_name", "str", "GPU whose roofs apply"),
            *_INTENSITY,
            C("roof_flop_per_s", "float64", "min(peak of the pipe, bandwidth × intensity)"),
            C("counter_source", "str", "counters or analytic"),
        ),
        "Figures 10 and 12 of XSP (IPDPS 2020)",
    )
)

OVERHEAD = register(
    Table(
        "overhead",
        "Overhead by level",
        "event × level",
        (
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("phase", "str", "what ran, as in iterations.phase"),
            C("event_kind", "str", "model or layer"),
            C("layer_index", "int64", "1-based execution order of the layer, 0 the model"),
            C("layer_path", "str", "folded path below the model, '' the model"),
            C("layer_type", "str", "class or operator type"),
            C("call_index", "int64", "k-th call of the path within the iteration"),
            C("level", "str", "deepest profiler that was on: M, M/L, M/L/G"),
            C("latency_ns", "float64", "trimmed mean over all measured iterations of all captures of the level"),
            C("is_accurate", "bool", "the event's own level: this latency is to be believed"),
            C("latency_source", "str", "host, or which device time is used for the layer (projection, busy)"),
            C("compared_level", "str", "the next shallower level that was run, which the overhead is on; '' none"),
            C(
                "overhead_ns",
                "float64",
                "latency - latency at compared_level, from pairs of blocks where one process measured both "
                "levels; NaN none, never clamped",
            ),
            C("overhead_ratio", "float64", "overhead / latency at compared_level"),
            C("ci_low_overhead_ns", "float64", "lower end of the overhead's 95 % confidence interval"),
            C("ci_high_overhead_ns", "float64", "upper end of that interval"),
            C("is_significant", "bool", "the interval is over several processes and leaves out zero, of one source"),
            C(
                "verdict",
                "str",
                "the same in words: accurate, overhead, no overhead shown, negative …, not comparable …",
            ),
            C("total_overhead_ns", "float64", "latency - latency at the accurate level"),
            C("total_overhead_ratio", "float64", "total overhead / latency at the accurate level"),
            C("ci_low_total_overhead_ns", "float64", "lower end of the total overhead's 95 % confidence interval"),
            C("ci_high_total_overhead_ns", "float64", "upper end of that interval"),
            C(
                "interval_over",
                "str",
                "what the intervals are over: pairs (of blocks, over processes), captures (independent repeats) or "
                "iterations of one",
            ),
            C("capture_count", "int64", "captures of the level"),
            C("sample_count", "int64", "measured iterations of the level"),
        ),
        "Figure 2; XSP (IPDPS 2020) §III-C: overhead(n+1 on n)",
    )
)
