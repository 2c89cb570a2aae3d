"""The tables about samples of GPU metrics: means over executions and layers, and the samples themselves."""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

_METRICS = (
    C("sm_active_ratio", "float64", "SMs that had at least one warp, of all SMs and cycles"),
    C("sm_issue_ratio", "float64", "cycles in which an SM's scheduler issued an instruction, of all"),
    C("tensor_active_ratio", "float64", "cycles in which tensor pipes were active, of all; see docs/gpu-metrics.md"),
    C("dram_read_ratio", "float64", "DRAM read bandwidth, of the peak"),
    C("dram_write_ratio", "float64", "DRAM write bandwidth, of the peak"),
)
_CLOCKS = (
    C("gpc_clock_hz", "float64", "clock of the SMs"),
    C("sys_clock_hz", "float64", "clock of the front end"),
)
# name in every table → dtype; what a reader may find
METRIC_COLUMNS = tuple(column.name for column in (*_METRICS, *_CLOCKS))

GPU_SAMPLES = register(
    Table(
        "gpu_samples",
        "GPU metrics while device work ran",
        "GPU and capture, model execution or layer",
        (
            C("capture_id", "int64", "capture"),
            C("gpu_index", "int64", "physical GPU, as in devices"),
            C("scope", "str", "capture (all device work), execution, layer (outside warm-up)"),
            C("iteration_index", "int64", "of an execution; empty: of all", is_optional=True),
            C("layer_index", "int64", "layers.layer_index of a layer", is_optional=True),
            C("layer_path", "str", "layers.layer_path of a layer"),
            C("sample_count", "int64", "samples that share time with its device work; below 5 the means are empty"),
            C("covered_ns", "int64", "time of its device work (their union) that samples cover: the weights' sum"),
            C("busy_ns", "int64", "union of its device work on this GPU"),
            C(
                "purity_ratio",
                "float64",
                "share of the samples' own time that is this work, weighted: low where other work ran beside it",
            ),
            *_METRICS,
            C("dram_bytes_per_s", "float64", "both DRAM ratios × the GPU's bandwidth as the capture states it"),
            *_CLOCKS,
        ),
        source="docs/gpu-metrics.md",
    )
)

GPU_TIMELINE = register(
    Table(
        "gpu_timeline",
        "Samples of GPU metrics",
        "sample",
        (
            C("capture_id", "int64", "capture"),
            C("gpu_index", "int64", "physical GPU, as in devices"),
            C("start_ns", "int64", "the sample before it"),
            C("end_ns", "int64", "when it was taken; it stands for the time since start_ns"),
            *_METRICS,
            *_CLOCKS,
        ),
    )
)
