"""The tables of a fleet (many captures side by side), of ranks, and of a comparison of two captures.

A *capture* here is what became one store: a timeline with the counter reports beside it, or a run directory.
`capture_index` joins the tables of a fleet. Latencies are those of the captures' own A-tables.
"""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

_WHO = (
    C("workload_name", "str", "model or program: what the captures say, else by the file's name"),
    C("system_name", "str", "GPU (or CPU) as the capture names it"),
    C("framework", "str", "when known"),
    C("phase", "str", "what ran, as in iterations.phase"),
)
_CAPTURE = (
    C("capture_index", "int64", "row of fleet"),
    C("capture_name", "str", "name of the capture within the batch"),
)
_COUNTERS = (
    C("total_flop", "float64", "floating-point operations, NaN not measured"),
    C("dram_read_bytes", "float64", "bytes DRAM → L2, NaN not measured"),
    C("dram_write_bytes", "float64", "bytes L2 → DRAM, NaN not measured"),
    C("occupancy_ratio", "float64", "achieved occupancy, weighted by kernel latency, NaN not measured"),
    C("arithmetic_intensity_flop_per_byte", "float64", "total flop / (DRAM reads + writes)"),
    C("arithmetic_throughput_flop_per_s", "float64", "total flop / kernel latency"),
    C("roof_flop_per_s", "float64", "min(peak of the pipe, bandwidth × intensity)"),
    C("bound", "str", "memory, compute, latency or unknown"),
)

FLEET = register(
    Table(
        "fleet",
        "Captures of the fleet",
        "capture of the batch",
        (
            *_CAPTURE,
            C("workload_name", "str", "model or program: what the captures say, else by the file's name"),
            C("rank", "int64", "rank within its job by the file's name, empty: none", is_optional=True),
            C("status", "str", "done, or failed: then every number but those of its files is empty"),
            C("code", "str", "why it failed (docs/messages.md), '' done"),
            C("message", "str", "the same as a sentence"),
            C("source_name", "str", "the capture's file, relative to the folder that was given"),
            C("source_count", "int64", "files that went into it"),
            C("source_bytes", "int64", "their size"),
            C("store_name", "str", "its store, below the output folder; '' failed"),
            C("collector", "str", "what recorded it"),
            C("level", "str", "deepest profiler that was on"),
            C("system_name", "str", "GPU (or CPU) as the capture names it"),
            C("framework", "str", "when known"),
            C("tool_version", "str", "version of the tool that wrote the capture"),
            C("kernel_count", "int64", "kernel executions", is_optional=True),
            C("device_ns", "int64", "device time: kernel_ns + copy_ns + graph_ns", is_optional=True),
            C("kernel_ns", "int64", "kernel time", is_optional=True),
            C("copy_ns", "int64", "copy time: copies and memsets", is_optional=True),
            C(
                "graph_ns",
                "int64",
                "graph time: executions of graphs whose kernels were not recorded",
                is_optional=True,
            ),
            C("gpu_count", "int64", "physical GPUs with device work", is_optional=True),
            C(
                "busy_ns",
                "int64",
                "union of the device intervals of the GPU; of several GPUs the mean over them",
                is_optional=True,
            ),
            C("duration_ns", "int64", "first to last event that was recorded", is_optional=True),
            C("process_count", "int64", "processes with ranges or device work", is_optional=True),
            C("iteration_count", "int64", "model executions found", is_optional=True),
            C("layer_count", "int64", "layers of one iteration, of the largest case", is_optional=True),
            C(
                "memory_peak_bytes",
                "int64",
                "most memory that was live at once on a device (of the host where no device has any), empty: not "
                "recorded",
                is_optional=True,
            ),
            C(
                "memory_reserved_bytes",
                "int64",
                "most that the framework's allocator held from the driver there, empty: not recorded",
                is_optional=True,
            ),
            C(
                "limit",
                "str",
                "what limits it: compute, memory, kernel (either), copy, launch, synchronization, host, communication, "
                "mixed, unknown",
            ),
            C("attributed_ratio", "float64", "share of the kernel time that lies in a range, NaN no kernels"),
            C("counter_count", "int64", "kernels with counters", is_optional=True),
            C("finding_count", "int64", "findings that are warnings or errors", is_optional=True),
        ),
        "XSP (IPDPS 2020) §IV: one row per profiled model",
    )
)

FLEET_CASES = register(
    Table(
        "fleet_cases",
        "Model × batch × system × framework",
        "capture × case",
        (
            *_CAPTURE,
            C("case_index", "int64", "case within the capture's store"),
            *_WHO,
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("latency_ns", "float64", "model latency of one iteration, NaN no iterations"),
            C("ci_low_latency_ns", "float64", "lower end of its 95 % confidence interval"),
            C("ci_high_latency_ns", "float64", "upper end of it"),
            C("interval_over", "str", "what it is over, as in A1"),
            C("sample_count", "int64", "measured iterations"),
            C("throughput_inputs_per_s", "float64", "batch size / latency"),
            C(
                "kernel_latency_ns",
                "float64",
                "sum of the kernel latencies of one iteration, as in A15; NaN no kernels",
            ),
            C("busy_ns", "float64", "union of the device intervals of one iteration, as in A15"),
            C("gpu_latency_ratio", "float64", "kernel latency / model latency"),
            C("kernel_count", "int64", "kernels of one iteration", is_optional=True),
            C("unique_kernel_count", "int64", "different kernel names", is_optional=True),
            C("layer_count", "int64", "layers of one iteration", is_optional=True),
            *_COUNTERS,
            C("convolution_latency_ratio", "float64", "share of convolution layers in the sum over all layers"),
            C("latency_stage", "str", "third of the layers with most latency: beginning, middle, end"),
            C("allocated_stage", "str", "third with most allocation"),
            C("flop_stage", "str", "third with most flop"),
            C("dram_stage", "str", "third with most DRAM traffic"),
            C(
                "is_optimal",
                "bool",
                "the optimal batch size of its sweep over all captures, by the rule of a01.is_optimal",
            ),
        ),
        "Tables VIII, IX and X, Figures 10 and 12 of XSP (IPDPS 2020)",
    )
)

FLEET_MODELS = register(
    Table(
        "fleet_models",
        "Models of the fleet",
        "workload × system × framework × phase",
        (
            *_WHO,
            C(
                "online_latency_ns",
                "float64",
                "model latency at the smallest batch size (the paper's online latency: batch 1)",
            ),
            C("online_batch_size", "int64", "that batch size", is_optional=True),
            C("max_throughput_inputs_per_s", "float64", "most throughput over the batch sizes"),
            C(
                "optimal_batch_size",
                "int64",
                "optimal batch size by the rule of a01.is_optimal; empty: one size, or the largest still gains",
                is_optional=True,
            ),
            C(
                "batch_size",
                "int64",
                "batch size that what follows is of: the optimal one, else that of most throughput",
                is_optional=True,
            ),
            C("batch_latency_ns", "float64", "model latency at that batch size"),
            C("gpu_latency_ratio", "float64", "kernel latency / model latency at that batch size"),
            *_COUNTERS,
            C("convolution_latency_ratio", "float64", "share of convolution layers, at that batch size"),
            C("latency_stage", "str", "third of the layers with most latency: beginning, middle, end"),
            C("allocated_stage", "str", "third with most allocation"),
            C("flop_stage", "str", "third with most flop"),
            C("dram_stage", "str", "third with most DRAM traffic"),
            C("batch_count", "int64", "batch sizes measured"),
        ),
        "Tables VIII and IX, Figure 12 of XSP (IPDPS 2020)",
    )
)

FLEET_SCALABILITY = register(
    Table(
        "fleet_scalability",
        "Throughput scalability",
        "workload × system × batch size",
        (
            *_WHO,
            C("batch_size", "int64", "inputs per iteration"),
            C("throughput_inputs_per_s", "float64", "throughput"),
            C("speedup_ratio", "float64", "throughput / throughput at the smallest batch size"),
        ),
        "arXiv v1 of XSP, Figure 12",
    )
)

FLEET_FRAMEWORKS = register(
    Table(
        "fleet_frameworks",
        "Frameworks against one another",
        "workload × framework",
        (
            *_WHO,
            C("base_framework", "str", "the framework the ratios are to"),
            C("normalized_online_latency_ratio", "float64", "online latency / that of the base framework"),
            C("normalized_max_throughput_ratio", "float64", "most throughput / that of the base framework"),
            C(
                "non_gpu_latency_ratio",
                "float64",
                "share of the model latency without kernels: what explains most differences",
            ),
        ),
        "Table X of XSP (IPDPS 2020)",
    )
)

FLEET_SYSTEMS = register(
    Table(
        "fleet_systems",
        "Systems against one another",
        "workload × batch size × system",
        (
            *_WHO,
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("throughput_inputs_per_s", "float64", "throughput"),
            C("kernel_latency_ns", "float64", "sum of the kernel latencies of one iteration"),
            C("base_system", "str", "the system the ratios are to"),
            C("normalized_throughput_ratio", "float64", "throughput / that of the base system"),
            C("normalized_kernel_latency_ratio", "float64", "kernel latency / that of the base system"),
            C("unique_kernel_count", "int64", "different kernel names (template arguments aside)"),
            C("own_kernel_count", "int64", "kernel names that no other system launches for this workload"),
        ),
        "Figure 11 of XSP (IPDPS 2020)",
    )
)

FLEET_FAMILIES = register(
    Table(
        "fleet_families",
        "Kernel families",
        "capture × case × family",
        (
            *_CAPTURE,
            C("case_index", "int64", "case within the capture's store"),
            *_WHO,
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("family", "str", "gemm, convolution, attention, communication … by the kernel's name"),
            C("kernel_count", "int64", "kernels of one iteration"),
            C("latency_ns", "float64", "sum of their latencies"),
            C("latency_ratio", "float64", "share of the kernel latency"),
        ),
        "the paper's convolution latency percentage, for every family of kernels",
    )
)

FLEET_KERNELS = register(
    Table(
        "fleet_kernels",
        "Kernels of the fleet",
        "capture × case × kernel name",
        (
            *_CAPTURE,
            C("case_index", "int64", "case within the capture's store"),
            *_WHO,
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("name", "str", "kernel name without template arguments and running numbers"),
            C("family", "str", "by the kernel's name"),
            C("kernel_count", "int64", "kernels of one iteration"),
            C("latency_ns", "float64", "sum of their latencies"),
        ),
        "kernel-set difference between systems; XSP (IPDPS 2020) §IV-C",
    )
)

FLEET_KERNEL_SETS = register(
    Table(
        "fleet_kernel_sets",
        "Kernel sets of systems",
        "workload × kernel name × system",
        (
            C("workload_name", "str", "model or program"),
            C("framework", "str", "when known"),
            C("phase", "str", "what ran"),
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("name", "str", "kernel name without template arguments and running numbers"),
            C("system_name", "str", "a system that launches it"),
            C("kernel_count", "int64", "kernels of one iteration there"),
            C("latency_ns", "float64", "sum of their latencies there"),
            C("system_count", "int64", "how many systems launch it"),
            C("is_everywhere", "bool", "every system of the workload launches it"),
        ),
        "kernel-set difference between systems; XSP (IPDPS 2020) §IV-C",
    )
)

RANKS = register(
    Table(
        "ranks",
        "Ranks",
        "job × rank",
        (
            C("job_name", "str", "captures of one job: one file with several processes, or one file per rank"),
            C("rank", "int64", "by the files' names, else in order of capture, device and process"),
            C("capture_name", "str", "the capture it is in"),
            C("process_id", "int64", "operating-system process id", is_optional=True),
            C(
                "device_id",
                "int64",
                "CUDA device number within the process, empty when only one is used by the process",
                is_optional=True,
            ),
            C("kernel_count", "int64", "kernels"),
            C("communication_count", "int64", "communication kernels among them"),
            C("first_start_ns", "int64", "first device work, on the capture's clock"),
            C("duration_ns", "int64", "first to last device work"),
            C("busy_ns", "int64", "union of all device work"),
            C("idle_ns", "int64", "duration - busy"),
            C("compute_ns", "int64", "union of the kernels that do not communicate"),
            C("communication_ns", "int64", "union of the communication kernels"),
            C("overlapped_ns", "int64", "communication while compute runs"),
            C("exposed_ns", "int64", "communication while no compute runs"),
            C("overlap_ratio", "float64", "overlapped / communication, NaN no communication"),
            C("memory_ns", "int64", "union of copies and sets"),
            C(
                "waiting_ns",
                "float64",
                "in matched collectives, time beyond the last rank's to arrive; NaN not matched",
            ),
            C(
                "last_count",
                "int64",
                "matched collectives in which this rank arrived last, empty: not matched",
                is_optional=True,
            ),
            C(
                "matched_count",
                "int64",
                "collectives matched over all ranks by name and order, empty: not matched",
                is_optional=True,
            ),
            C("compute_excess_ratio", "float64", "compute / median compute of the other ranks - 1, NaN a single rank"),
            C(
                "is_straggler",
                "bool",
                "the others wait for it: more compute than the others by over 5 %, or the last to "
                "arrive in most collectives while waiting less than half as long as the others",
            ),
        ),
        "waiting time needs no common clock: a collective ends together, so that the shortest was the last to arrive",
    )
)

_DIFFERENCE = (
    C("base_latency_ns", "float64", "trimmed mean of the base, NaN not there"),
    C("other_latency_ns", "float64", "trimmed mean of the other, NaN not there"),
    C("difference_ns", "float64", "other - base"),
    C("difference_ratio", "float64", "difference / base"),
    C("ci_low_difference_ns", "float64", "lower end of the difference's 95 % confidence interval"),
    C("ci_high_difference_ns", "float64", "upper end of it"),
    C("detectable_difference_ns", "float64", "smallest difference that this row alone shows 4 times of 5"),
    C("p_value", "float64", "two-sided, of this row alone; NaN too few values"),
    C("adjusted_p_value", "float64", "after Holm's correction over all rows of the comparison"),
    C("is_significant", "bool", "adjusted p below 0.05, and several captures on both sides"),
    C("base_sample_count", "int64", "measured iterations of the base"),
    C("other_sample_count", "int64", "measured iterations of the other"),
    C("change", "str", "slower, faster, no difference shown, appeared, vanished, changed kernel, not comparable"),
    C("interval_over", "str", "captures (repeats), or iterations, whose spread is then used for that of runs"),
)
_PAIR = (C("pair_index", "int64", "pair of cases, row of compare_cases"),)

COMPARE_CASES = register(
    Table(
        "compare_cases",
        "Cases compared",
        "case of base or other",
        (
            *_PAIR,
            C("workload_name", "str", "model or program, when known"),
            C("phase", "str", "what ran"),
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("base_case_index", "int64", "case of the base, empty: none", is_optional=True),
            C("other_case_index", "int64", "case of the other, empty: none", is_optional=True),
            C("status", "str", "matched, only base, only other"),
        ),
        "matched by workload, batch size and phase",
    )
)

COMPARE_MODELS = register(
    Table(
        "compare_models",
        "Model quantities compared",
        "pair of cases × quantity",
        (
            *_PAIR,
            C("quantity", "str", "model_latency, kernel_latency (sum), gpu_busy (union), kernel_count"),
            C("unit", "str", "unit of the values: ns, or 1 for counts"),
            C("base_value", "float64", "trimmed mean of the base"),
            C("other_value", "float64", "trimmed mean of the other"),
            C("difference_value", "float64", "other - base"),
            C("difference_ratio", "float64", "difference / base"),
            C("ci_low_value", "float64", "lower end of the difference's 95 % confidence interval"),
            C("ci_high_value", "float64", "upper end of it"),
            C("detectable_value", "float64", "smallest difference that this row alone shows 4 times of 5; NaN exact"),
            C("p_value", "float64", "two-sided, of this row alone; NaN too few values"),
            C("adjusted_p_value", "float64", "after Holm's correction over all rows of the comparison"),
            C("is_significant", "bool", "adjusted p below 0.05, and several captures on both sides"),
            C("base_sample_count", "int64", "measured iterations of the base"),
            C("other_sample_count", "int64", "measured iterations of the other"),
            C("change", "str", "more, less, no difference shown, equal, not comparable"),
            C(
                "interval_over",
                "str",
                "captures (repeats), or iterations, whose spread is then used for that of runs; '' exact",
            ),
        ),
        "Welch's test on trimmed means (Yuen 1974), Holm (1979)",
    )
)

COMPARE_LAYERS = register(
    Table(
        "compare_layers",
        "Layers compared",
        "pair of cases × layer",
        (
            *_PAIR,
            C("layer_index", "int64", "1-based execution order in the base, else in the other"),
            C("layer_path", "str", "folded path below the model"),
            C("call_index", "int64", "k-th call of the path within the iteration"),
            C("layer_type", "str", "class or operator type"),
            C(
                "measure",
                "str",
                "latency (what A2 shows; of runs without overlap the host's time), or in addition host_time",
            ),
            *_DIFFERENCE,
            C("is_kernel_change", "bool", "the layer launches other kernels than in the base"),
        ),
        "layers matched by path and call index",
    )
)

COMPARE_KERNELS = register(
    Table(
        "compare_kernels",
        "Kernels compared",
        "pair of cases × layer × kernel name",
        (
            *_PAIR,
            C(
                "layer_index",
                "int64",
                "layer in the base (else in the other), empty: none or not matched",
                is_optional=True,
            ),
            C("layer_path", "str", "folded path of the layer"),
            C(
                "name",
                "str",
                "kernel name without template arguments and running numbers; of the base where it changed",
            ),
            C("other_name", "str", "name in the other where it changed, else ''"),
            C("base_count", "float64", "kernels per iteration in the base"),
            C("other_count", "float64", "kernels per iteration in the other"),
            *_DIFFERENCE,
        ),
        "kernels matched by layer, normalised name and position in the layer",
    )
)

COMPARE_TOTALS = register(
    Table(
        "compare_totals",
        "Device time compared",
        "quantity",
        (
            C("quantity", "str", "window, busy, idle, device_time (busy), kernel_time, copy_time, communication, "
              "kernel_count; memory_peak, memory_reserved where both sides recorded memory alike"),
            C("unit", "str", "ns, 1 for a count, B for bytes"),
            C("base_value", "float64", "of the base, summed over devices; of memory the device with the highest peak"),
            C("other_value", "float64", "of the other"),
            C("base_per_unit", "float64", "per execution; without executions, and of memory, as recorded"),
            C("other_per_unit", "float64", "per execution; without them for as much work as the base's; of memory "
              "as recorded"),
            C("difference_value", "float64", "other_per_unit - base_per_unit"),
            C("difference_ratio", "float64", "that difference / base_per_unit, NaN where the base has none"),
        ),
        "device_windows, per unit of work; memory_devices",
    )
)  # fmt: skip

COMPARE_NAMES = register(
    Table(
        "compare_names",
        "Kernels by name compared",
        "kernel name",
        (
            C("name", "str", "kernel, normalised"),
            C("base_count", "int64", "launches in the base"),
            C("other_count", "int64", "launches in the other"),
            C("base_mean_ns", "float64", "mean duration in the base, NaN none"),
            C("other_mean_ns", "float64", "mean duration in the other, NaN none"),
            C("impact_ns", "float64", "kernel time of the other less that of the base, per unit of work"),
            C("is_communication", "bool", "a collective or transfer between ranks"),
        ),
        "ordered by size of impact_ns",
    )
)

COMPARE_CAUSES = register(
    Table(
        "compare_causes",
        "What the difference consists of",
        "cause",
        (
            C("cause", "str", "in words"),
            C("difference_ns", "float64", "part of the difference of the device windows, per unit of work"),
            C("example", "str", "the kernel with most of it, empty none"),
        ),
        "the parts sum to the difference of the windows",
    )
)

COMPARE_SUMMARY = register(
    Table(
        "compare_summary",
        "What differs",
        "statement",
        (
            C(
                "subject",
                "str",
                "verdict, largest regression, largest gain, causes, clock, kernels, ranges, copies, system, model, "
                "layers, kernel time, memory",
            ),
            C("statement", "str", "one sentence"),
            C("is_difference", "bool", "the sentence states a difference"),
        ),
        "",
    )
)
