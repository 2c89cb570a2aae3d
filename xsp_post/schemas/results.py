"""The core tables of an analysis: captures, iterations, nodes, layers, kernels, memory, counters, findings."""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

CAPTURES = register(
    Table(
        "captures",
        "Captures",
        "capture read",
        (
            C("capture_id", "int64", "0-based id of the capture within this store"),
            C("level", "str", "deepest profiler that was on: M, M/L, M/L/G, M/L/G+counters"),
            C("collector", "str", "what recorded it: nsys, torch, jaeger, ncu, clock"),
            C("source_name", "str", "file name of the capture, without its folder"),
            C("tool_version", "str", "version of the tool that wrote the capture"),
            C("schema_version", "str", "export schema version as the capture states it ('' when unversioned)"),
            C("workload_name", "str", "model or program, when known"),
            C("framework", "str", "e.g. torch 2.13.0, when known"),
            C("gpu_name", "str", "GPU (or CPU, when no GPU ran) as the capture names it"),
            C("batch_size", "int64", "inputs per iteration, empty: unknown", is_optional=True),
            C("kernel_count", "int64", "kernel executions in the capture"),
            C("copy_count", "int64", "memcpy and memset executions"),
            C("graph_count", "int64", "executions of graphs whose kernels were not recorded"),
            C(
                "file_operation_count",
                "int64",
                "rows of device work that the file itself counts; empty: not counted",
                is_optional=True,
            ),
            C("device_ns", "int64", "device time: kernel_ns + copy_ns + graph_ns"),
            C("kernel_ns", "int64", "kernel time: sum of kernel durations"),
            C("copy_ns", "int64", "copy time: sum of memcpy and memset durations"),
            C("graph_ns", "int64", "graph time: sum of the executions of graphs whose kernels were not recorded"),
            C("gpu_count", "int64", "physical GPUs with device work"),
            C(
                "busy_ns",
                "float64",
                "union of the device intervals of the GPU; of several GPUs NaN: each has its own in devices",
            ),
            C("duration_ns", "int64", "first to last event that was recorded"),
            C("level_rule", "str", "which rule assigned model and layer levels"),
            C("execution_evidence", "str", "what a model execution is, by which rule, what device time they cover"),
            C("layer_evidence", "str", "what the layers are, how many an execution holds, what device time they cover"),
            C("clock_offset_ns", "int64", "shift applied to host spans to agree with the device clock (0: one clock)"),
            C(
                "clock_utc_ns",
                "int64",
                "add it to a time of this capture for ns since 1970 (UTC); empty: not recorded",
                is_optional=True,
            ),
            C("process_count", "int64", "processes with ranges or device work"),
            C(
                "run_process",
                "str",
                "captures of xsp-post run that one process made by turns have the same text; '' a process of its own",
            ),
            C("is_partial", "bool", "the export covers part of the recording only"),
        ),
    )
)

ITERATIONS = register(
    Table(
        "iterations",
        "Iterations",
        "model execution",
        (
            C("capture_id", "int64", "capture"),
            C("iteration_index", "int64", "0-based within the capture"),
            C("phase", "str", "what ran: forward, backward, step, prefill, decode … or the range's folded name"),
            C("kind", "str", "training step, forward, backward, optimizer, prefill, decode, mixed, step, or pass"),
            C("batch_size", "int64", "inputs, empty: unknown", is_optional=True),
            C("token_count", "int64", "tokens that the step's text names, empty: unknown", is_optional=True),
            C("node_id", "int64", "the MODEL node"),
            C("process_id", "int64", "operating-system process id", is_optional=True),
            C("start_ns", "int64", "host start"),
            C("end_ns", "int64", "host end"),
            C("duration_ns", "int64", "host length of the model range"),
            C(
                "latency_ns",
                "int64",
                "what the iteration took: host range extended to its last device work; of an inferred "
                "one launched while its predecessor's work ran, from the end of that",
            ),
            C("device_offset_ns", "float64", "host start to the first start on the device, NaN without device work"),
            C("projection_ns", "float64", "first start to last end of its device work, NaN without device work"),
            C(
                "period_ns",
                "float64",
                "start to the start of the next execution of the same phase and process, NaN where none follows",
            ),
            C("device_ns", "int64", "device time: kernel_ns + copy_ns + graph_ns, of what was launched inside"),
            C("kernel_ns", "int64", "sum of kernel durations launched inside"),
            C("copy_ns", "int64", "copy time: sum of memcpy and memset durations"),
            C("graph_ns", "int64", "graph time: sum of the executions of graphs whose kernels were not recorded"),
            C("busy_ns", "int64", "union of the device intervals launched inside, NaN where they are of several GPUs"),
            C("kernel_count", "int64", "kernels launched inside"),
            C("is_warmup", "bool", "left out of statistics: warm-up, compilation, autotuning"),
            C("is_inferred", "bool", "found from a repeating kernel sequence, not recorded"),
        ),
    )
)

EXECUTION_CANDIDATES = register(
    Table(
        "execution_candidates",
        "What could be a model execution",
        "name that was taken for a model execution, or could have been",
        (
            C("capture_id", "int64", "capture"),
            C(
                "rule",
                "str",
                "the evidence: step markers, calls of the whole model, cycle of ranges …",
            ),
            C("name", "str", "folded text of the ranges"),
            C("execution_count", "int64", "executions it makes"),
            C("device_ns", "int64", "device time they hold; host time where no device work was recorded"),
            C("coverage_ratio", "float64", "share of the capture's device time"),
            C("is_chosen", "bool", "taken: these are the iterations"),
            C("option", "str", "the option that selects it, '' where none does"),
        ),
    )
)

PART = register(
    Table(
        "part",
        "Part of the recording that is shown",
        "capture of which a part was asked for (--iteration, --from, --until); no store holds it",
        (
            C("capture_id", "int64", "capture"),
            C("statement", "str", "the part in words"),
            C("iteration_index", "int64", "model execution, empty: a time", is_optional=True),
            C("start_ns", "int64", "begin of the part"),
            C("end_ns", "int64", "its end"),
        ),
    )
)

NODES = register(
    Table(
        "nodes",
        "Tree nodes",
        "node of a tree",
        (
            C("node_id", "int64", "id, unique in the store"),
            C("capture_id", "int64", "capture"),
            C("parent_id", "int64", "node_id of the parent, empty for the root of a capture", is_optional=True),
            C("depth", "int64", "0 for the root"),
            C("level", "str", "CAPTURE, APPLICATION, MODEL, MODULE, LAYER, OPERATION, LIBRARY"),
            C("name", "str", "the range's text as captured"),
            C("folded_name", "str", "the text without what changes from step to step"),
            C("path_id", "int64", "same number = same folded path from the root; statistics fold over it"),
            C("domain", "str", "NVTX domain ('' default)"),
            C("process_id", "int64", "operating-system process id", is_optional=True),
            C("thread_id", "int64", "operating-system thread id", is_optional=True),
            C("start_ns", "int64", "host start"),
            C("end_ns", "int64", "host end"),
            C("duration_ns", "int64", "end_ns - start_ns"),
            C("self_ns", "int64", "host time not covered by child ranges"),
            C(
                "projected_start_ns",
                "int64",
                "first start of device work launched inside (empty: none)",
                is_optional=True,
            ),
            C("projected_end_ns", "int64", "last end of device work launched inside (empty: none)", is_optional=True),
            C("device_ns", "int64", "device time: kernel_ns + copy_ns + graph_ns, inclusive"),
            C("kernel_ns", "int64", "sum of kernel durations, inclusive"),
            C("copy_ns", "int64", "copy time: sum of memcpy and memset durations, inclusive"),
            C(
                "graph_ns",
                "int64",
                "graph time: sum of the executions of graphs whose kernels were not recorded, inclusive",
            ),
            C("busy_ns", "int64", "union of device intervals, inclusive; NaN where they are of several GPUs"),
            C("kernel_count", "int64", "kernels, inclusive"),
            C("self_kernel_ns", "int64", "sum of kernel durations whose innermost node this is"),
            C("self_kernel_count", "int64", "kernels whose innermost node this is"),
            C("memory_bytes", "int64", "bytes copied or set, inclusive"),
            C("device_operation_count", "int64", "device operations of any kind, inclusive"),
            C("iteration_index", "int64", "iteration it lies in, empty: none", is_optional=True),
            C("layer_node_id", "int64", "the LAYER node at or above it, empty: none", is_optional=True),
            C("call_index", "int64", "k-th call of this folded path within its iteration (or capture)"),
            C("layer_type", "str", "class or operator type parsed from the text"),
            C(
                "layer_index",
                "int64",
                "layers.layer_index of a LAYER node (or a model's or module's [self] part), empty: none",
                is_optional=True,
            ),
            C("shape_text", "str", "shapes parsed from the text or payload"),
            C("tactic_name", "str", "tactic that a TensorRT layer's payload names; only where payloads say so"),
            C("sequence", "int64", "autograd sequence number, empty: none", is_optional=True),
            C("dialect", "str", "which naming convention was recognised"),
            C("is_inferred", "bool", "inferred, not recorded"),
            C(
                "confidence_ratio",
                "float64",
                "how sure an inferred node and its layer_type are, 0…1; 1 for recorded ones",
            ),
            C("is_open", "bool", "never closed before the capture ended"),
            C(
                "span_kind",
                "str",
                "push_pop, start_end, cross_thread (started and ended on different threads), library, "
                "operator, module, annotation; synthetic: root, unattributed, no_launch, graph, inferred",
            ),
            C(
                "source_row_id",
                "int64",
                "row of the range in the capture's own table (RangeId of nsys stats), empty: synthetic",
                is_optional=True,
            ),
        ),
    )
)

INFERRED = register(
    Table(
        "inferred",
        "What was inferred",
        "inferred node",
        (
            C("capture_id", "int64", "capture"),
            C("node_id", "int64", "nodes.node_id: its place in the tree, its times, its kernels"),
            C(
                "kind",
                "str",
                "iteration, around (before, between and after iterations), phase (forward, backward, optimiser), "
                "block (repeats), part (of a block), stretch (what fits no block)",
            ),
            C("iteration_class", "str", "of an iteration: regular, warm-up, odd, tail; '' for other kinds"),
            C("series_index", "int64", "iterations of one repetition have the same number"),
            C("block_index", "int64", "k of n equal blocks in a row, 1-based, 0 none"),
            C("block_count", "int64", "n of them"),
            C(
                "equal_class",
                "int64",
                "same number = the same launches (nearly, of layers that alternate), empty: none",
                is_optional=True,
            ),
            C("matched_block_index", "int64", "of a backward block: block_index of its forward block, 0 none"),
            C("layer_type", "str", "guess from the kernels: transformer block, attention, matrix product …"),
            C("confidence_ratio", "float64", "how sure the node is, 0…1: fit × repetition (glossary: confidence)"),
            C("confidence", "str", "the same in a word: high (from 0.85), medium (from 0.6), low"),
        ),
    )
)

LAYERS = register(
    Table(
        "layers",
        "Layer executions",
        "layer × iteration",
        (
            C("capture_id", "int64", "capture"),
            C("iteration_index", "int64", "iteration, empty when the capture has none", is_optional=True),
            C(
                "process_id",
                "int64",
                "operating-system process id: which rank it is of (devices.rank)",
                is_optional=True,
            ),
            C("layer_index", "int64", "1-based execution order, phase after phase, warm-up last; the key of joins"),
            C("node_id", "int64", "first LAYER node of this layer in this iteration"),
            C("layer_path", "str", "folded path below the model, joined with ' > '"),
            C("layer_name", "str", "last part of the path"),
            C("layer_type", "str", "class or operator type"),
            C("call_index", "int64", "k-th call of the path within the iteration"),
            C("call_count", "int64", "calls folded into this row"),
            C("shape_text", "str", "output (or input) shape as text"),
            C("duration_ns", "int64", "host length of the range"),
            C("projection_ns", "int64", "first start to last end of its device work, 0 without device work"),
            C("latency_ns", "int64", "projection_ns where it has device work, else duration_ns; see latency_source"),
            C(
                "latency_source",
                "str",
                "projection, busy (only work launched elsewhere belongs to it), host (no device work)",
            ),
            C("device_ns", "int64", "device time: kernel_ns + copy_ns + graph_ns, of what belongs to the layer"),
            C("kernel_ns", "int64", "sum of the durations of kernels counted for the layer"),
            C("copy_ns", "int64", "copy time: sum of memcpy and memset durations"),
            C("graph_ns", "int64", "graph time: sum of the executions of graphs whose kernels were not recorded"),
            C("busy_ns", "int64", "union of the device intervals of the layer, NaN where they are of several GPUs"),
            C("kernel_count", "int64", "kernels counted for the layer"),
            C("memory_bytes", "int64", "memcpy and memset bytes"),
            C(
                "allocated_bytes",
                "int64",
                "bytes the framework allocated during the layer, of the GPU's memory (on a CPU alone: the host's), "
                "empty: not recorded",
                is_optional=True,
            ),
            C("analytic_flop", "float64", "flop counted from the model, NaN unknown"),
            C("analytic_bytes", "float64", "least possible bytes moved, NaN unknown"),
            C("is_inferred", "bool", "inferred, not recorded"),
        ),
    )
)

KERNELS = register(
    Table(
        "kernels",
        "Kernel executions",
        "kernel execution",
        (
            C("kernel_id", "int64", "id, unique in the store"),
            C("capture_id", "int64", "capture"),
            C("node_id", "int64", "innermost node around its launch"),
            C("layer_node_id", "int64", "LAYER node it belongs to, empty: none", is_optional=True),
            C("layer_index", "int64", "layers.layer_index it belongs to, empty: none", is_optional=True),
            C("iteration_index", "int64", "iteration it belongs to, empty: none", is_optional=True),
            C("name", "str", "demangled name with template arguments"),
            C("short_name", "str", "bare function name"),
            C("process_id", "int64", "operating-system process id", is_optional=True),
            C("device_id", "int64", "CUDA device number within the process"),
            C("stream_id", "int64", "CUDA stream number within the process", is_optional=True),
            C("correlation_id", "int64", "joins launch and execution within the process", is_optional=True),
            C("start_ns", "int64", "execution start"),
            C("end_ns", "int64", "execution end"),
            C("duration_ns", "int64", "end_ns - start_ns"),
            C("launch_start_ns", "int64", "start of the launching API call (empty: no launch row)", is_optional=True),
            C("launch_end_ns", "int64", "end of the launching API call (empty: no launch row)", is_optional=True),
            C("launch_thread_id", "int64", "thread of the launching API call (empty: none)", is_optional=True),
            C("queue_delay_ns", "int64", "execution start - launch start (empty: no launch row)", is_optional=True),
            C("attribution", "str", "nesting, thread_time, graph, none, no_launch"),
            C("layer_attribution", "str", "nesting, sequence, thread_time, graph, twin, hook_pair, inferred, none"),
            C("graph_node_id", "int64", "CUDA graph node, empty: none", is_optional=True),
            C("grid_x", "int64", "blocks"),
            C("grid_y", "int64", "blocks"),
            C("grid_z", "int64", "blocks"),
            C("block_x", "int64", "threads"),
            C("block_y", "int64", "threads"),
            C("block_z", "int64", "threads"),
            C("registers_per_thread", "int64", "registers", is_optional=True),
            C("static_shared_memory_bytes", "int64", "per block", is_optional=True),
            C("dynamic_shared_memory_bytes", "int64", "per block", is_optional=True),
        ),
    )
)

MEMORY_OPERATIONS = register(
    Table(
        "memory_operations",
        "Copies, sets and opaque graph launches",
        "device activity that is not a kernel",
        (
            C("activity_id", "int64", "id, unique in the store"),
            C("capture_id", "int64", "capture"),
            C("kind", "str", "memcpy, memset, graph"),
            C("node_id", "int64", "innermost node around its launch"),
            C("iteration_index", "int64", "iteration, empty: none", is_optional=True),
            C("name", "str", "operation, e.g. [CUDA memcpy HtoD]"),
            C("process_id", "int64", "process", is_optional=True),
            C("device_id", "int64", "device"),
            C("stream_id", "int64", "stream", is_optional=True),
            C("correlation_id", "int64", "joins launch and execution within the process", is_optional=True),
            C("start_ns", "int64", "start"),
            C("end_ns", "int64", "end"),
            C("bytes", "int64", "bytes moved or set"),
            C(
                "direction",
                "str",
                "of a copy: host to device, device to host, device to device … ('' no copy, unknown)",
            ),
            C("memory_kind", "str", "of a copy: the host's side is pageable, pinned, managed … ('' unknown)"),
            C("attribution", "str", "as in kernels"),
            C("launch_start_ns", "int64", "start of the launching API call (empty: no launch row)", is_optional=True),
            C("launch_end_ns", "int64", "end of the launching API call (empty: no launch row)", is_optional=True),
            C("launch_thread_id", "int64", "thread of the launching API call (empty: none)", is_optional=True),
        ),
    )
)

KERNEL_METRICS = register(
    Table(
        "kernel_metrics",
        "Counters of kernels",
        "counter of a kernel",
        (
            C("kernel_id", "int64", "kernel"),
            C(
                "metric_name",
                "str",
                "our quantity (flop, dram_read_bytes, dram_write_bytes, l2_bytes, occupancy_ratio …) or "
                "the tool's own name",
            ),
            C("value", "float64", "value in unit"),
            C("unit", "str", "unit"),
            C("source", "str", "which metric of the report it was read from, and whether it is an estimate"),
        ),
    )
)

COUNTER_JOIN = register(
    Table(
        "counter_join",
        "How kernels got their counters",
        "counter report, capture and step",
        (
            C("report_name", "str", "file name of the counter report"),
            C("capture_id", "int64", "capture whose kernels were looked up"),
            C(
                "step",
                "str",
                "by what they were found: correlation, path and order, path and name, name and order, "
                "name and launch dimensions, name, none",
            ),
            C("kernel_count", "int64", "kernels found at this step"),
            C("kernel_ns", "int64", "their summed duration"),
        ),
    )
)

DEVICES = register(
    Table(
        "devices",
        "Devices",
        "device of a process",
        (
            C("capture_id", "int64", "capture"),
            C("process_id", "int64", "process", is_optional=True),
            C("device_id", "int64", "CUDA device number within the process"),
            C("gpu_index", "int64", "physical GPU within the capture: equal numbers are one GPU"),
            C("rank", "int64", "rank of the process in its job, empty: unknown", is_optional=True),
            C("gpu_name", "str", "name"),
            C("sm_count", "int64", "multiprocessors, empty: unknown", is_optional=True),
            C("clock_hz", "float64", "highest SM clock the capture states"),
            C("memory_bandwidth_bytes_per_s", "float64", "memory bandwidth the capture states"),
            C("memory_bytes", "int64", "device memory", is_optional=True),
            C("compute_capability", "str", "e.g. 9.0"),
            C("kernel_count", "int64", "kernels of the process on this device"),
            C("copy_count", "int64", "copies and memsets of the process on this device"),
            C("graph_count", "int64", "its executions of graphs whose kernels were not recorded"),
            C("device_ns", "int64", "device time of the process: kernel_ns + copy_ns + graph_ns"),
            C("kernel_ns", "int64", "kernel time"),
            C("copy_ns", "int64", "copy time"),
            C("graph_ns", "int64", "graph time"),
            C("own_busy_ns", "int64", "union of the process's device intervals on this device"),
            C("busy_ns", "int64", "union of all device intervals of the physical GPU, of whichever process"),
            C("duration_ns", "int64", "length of the capture: busy and idle add up to it"),
            C("first_start_ns", "int64", "first device work of the process there, empty: none", is_optional=True),
            C("last_end_ns", "int64", "last device work of the process there, empty: none", is_optional=True),
        ),
    )
)

OPERATIONS = register(
    Table(
        "operations",
        "Device work by path",
        "path of the tree and what was launched in it",
        (
            C("capture_id", "int64", "capture"),
            C("path_id", "int64", "paths.path_id: the innermost range around the launch"),
            C("kind", "str", "kernel, memcpy, memset, graph"),
            C("name", "str", "kernel, or operation"),
            C(
                "direction",
                "str",
                "of a copy: host to device, device to host, device to device … ('' no copy, unknown)",
            ),
            C("memory_kind", "str", "of a copy: the host's side is pageable, pinned, managed … ('' unknown)"),
            C("operation_count", "int64", "executions"),
            C("device_ns", "int64", "their summed duration"),
            C("bytes", "int64", "bytes moved or set"),
        ),
    )
)

FINDINGS = register(
    Table(
        "findings",
        "Findings",
        "data-quality finding",
        (
            C("capture_id", "int64", "capture, empty: the whole workload", is_optional=True),
            C("code", "str", "stable code; docs/messages.md has a paragraph on each"),
            C("severity", "str", "error, warning, info"),
            C("title", "str", "what was found, in one sentence"),
            C("count", "int64", "how many rows it concerns"),
            C("example", "str", "one example"),
            C("cause", "str", "where it comes from"),
            C("hint", "str", "what to do"),
        ),
    )
)

BALANCE = register(
    Table(
        "balance",
        "Balance",
        "way of attribution",
        (
            C("capture_id", "int64", "capture"),
            C("question", "str", "launch (where was it launched?) or layer (which layer does it count for?)"),
            C("attribution", "str", "way of attribution, or total"),
            C("operation_count", "int64", "device operations: kernels, copies, memsets, opaque graph executions"),
            C("device_ns", "int64", "their summed duration"),
            C("kernel_count", "int64", "kernels"),
            C("kernel_ns", "int64", "their summed duration"),
            C("copy_count", "int64", "copies and memsets"),
            C("copy_ns", "int64", "their summed duration"),
            C("graph_count", "int64", "executions of graphs whose kernels were not recorded"),
            C("graph_ns", "int64", "their summed duration"),
            C("self_operation_count", "int64", "operations in no layer: [self] of a model or module"),
            C("self_device_ns", "int64", "summed duration of those"),
            C("self_kernel_count", "int64", "kernels in no layer: [self] of a model or module"),
            C("self_kernel_ns", "int64", "summed duration of those"),
        ),
    )
)

PATHS = register(
    Table(
        "paths",
        "Folded tree",
        "path of the tree, all its calls",
        (
            C("capture_id", "int64", "capture"),
            C("path_id", "int64", "nodes.path_id; a parent's is smaller than its children's"),
            C("parent_path_id", "int64", "path of the parent, empty for the root", is_optional=True),
            C("depth", "int64", "0 for the root"),
            C("level", "str", "as in nodes"),
            C("span_kind", "str", "as in nodes; rank: a process of a job, where there are several"),
            C("name", "str", "folded text"),
            C("call_count", "int64", "ranges of this path"),
            C("duration_ns", "int64", "host time, summed over calls"),
            C("self_ns", "int64", "host time not covered by child ranges, summed over calls"),
            C("device_ns", "int64", "device time: kernel_ns + copy_ns + graph_ns, inclusive"),
            C("kernel_ns", "int64", "sum of kernel durations, inclusive"),
            C("copy_ns", "int64", "copy time: sum of memcpy and memset durations, inclusive"),
            C(
                "graph_ns",
                "int64",
                "graph time: sum of the executions of graphs whose kernels were not recorded, inclusive",
            ),
            C(
                "busy_ns",
                "int64",
                "union of device intervals of each call, summed over calls; NaN where they are of several GPUs",
            ),
            C("kernel_count", "int64", "kernels, inclusive"),
            C("copy_count", "int64", "copies and memsets, inclusive"),
            C("graph_count", "int64", "executions of graphs whose kernels were not recorded, inclusive"),
            C("self_device_ns", "int64", "device time of what was launched in this range and in none inside it"),
            C("self_kernel_ns", "int64", "sum of kernel durations whose innermost range this is"),
            C("self_kernel_count", "int64", "kernels whose innermost range this is"),
            C("memory_bytes", "int64", "memcpy and memset bytes, inclusive"),
            C("projection_ns", "int64", "first start to last end of device work of each call, summed over calls"),
            C("gap_ns", "int64", "projection without busy time: the device waited; NaN where it is of several GPUs"),
            C(
                "idle_ns",
                "int64",
                "a device waited while the launching thread was in this range, or for work launched in it; inclusive",
            ),
            C("idle_cause", "str", "the largest cause of idle_ns, as in idle; empty without idle time"),
            C("first_start_ns", "int64", "start of the first call"),
            C("is_inferred", "bool", "inferred, not recorded"),
            C("confidence", "str", "of inferred ranges: high, medium or low, of the least sure call; '' recorded"),
        ),
    )
)
