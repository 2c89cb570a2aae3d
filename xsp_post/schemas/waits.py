"""The tables about idle time: idle pieces, sums by cause, and how each device spent its time."""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

IDLE = register(
    Table(
        "idle",
        "Idle time by cause",
        "stretch of a device without work, cut where its cause changes",
        (
            C("capture_id", "int64", "capture"),
            C("device_id", "int64", "physical device (number of the GPU on its machine)"),
            C("start_ns", "int64", "start"),
            C("end_ns", "int64", "end"),
            C("cause", "str", "why the device waited; docs/why.md says how each is found"),
            C("call_name", "str", "the call, frame or profiler work that the launching thread was in, empty unknown"),
            C("detail", "str", "what was waited for, or why it took long; empty where there is nothing to say"),
            C("node_id", "int64", "innermost range around it on the launching thread (empty: none)", is_optional=True),
            C("layer_index", "int64", "layers.layer_index it belongs to (empty: none)", is_optional=True),
            C("iteration_index", "int64", "model execution it lies in (empty: outside of all)", is_optional=True),
        ),
    )
)

IDLE_CAUSES = register(
    Table(
        "idle_causes",
        "Causes of idle time",
        "device × scope × cause × call × range",
        (
            C("capture_id", "int64", "capture"),
            C("device_id", "int64", "physical device"),
            C("scope", "str", "execution (measured), warm-up, outside (of all), lead-in or lead-out (docs/why.md)"),
            C("cause", "str", "as in idle"),
            C("call_name", "str", "as in idle"),
            C("detail", "str", "as in idle"),
            C("path_id", "int64", "paths.path_id of the range that owns it (empty: none)", is_optional=True),
            C("owner", "str", "that range's folded name, empty outside every range"),
            C("layer_index", "int64", "layers.layer_index it belongs to (empty: none)", is_optional=True),
            C("layer_path", "str", "layers.layer_path of that layer, empty for none"),
            C("idle_ns", "int64", "summed length"),
            C("piece_count", "int64", "pieces of idle time in it"),
            C("longest_ns", "int64", "longest of them"),
        ),
    )
)

DEVICE_WINDOWS = register(
    Table(
        "device_windows",
        "What each device did with its time",
        "device × scope",
        (
            C("capture_id", "int64", "capture"),
            C("device_id", "int64", "physical device"),
            C("gpu_name", "str", "its name, empty unknown"),
            C("scope", "str", "execution (measured), warm-up, outside (of all), lead-in or lead-out (docs/why.md)"),
            C("window_ns", "int64", "length of the scope on this device: busy_ns + idle_ns"),
            C("busy_ns", "int64", "at least one operation ran"),
            C("idle_ns", "int64", "none ran; sum of idle_causes.idle_ns"),
            C("kernel_busy_ns", "int64", "part of busy_ns: a kernel that does not communicate ran"),
            C("communication_ns", "int64", "part of busy_ns: else a collective ran"),
            C("copy_busy_ns", "int64", "part of busy_ns: else a copy or memset ran"),
            C("graph_busy_ns", "int64", "part of busy_ns: else a graph ran whose kernels were not recorded"),
            C("kernel_count", "int64", "kernels"),
            C("kernel_ns", "int64", "sum of their durations"),
            C("matrix_ns", "int64", "of it in matrix products, convolutions and fused attention, by name"),
            C("matrix_count", "int64", "kernels in matrix_ns"),
            C("simt_matrix_ns", "int64", "of that in kernels that use no tensor cores, by name"),
            C("elementwise_ns", "int64", "of kernel_ns in elementwise kernels, by name"),
            C("layout_ns", "int64", "of kernel_ns in kernels that only change the layout of images, by name"),
            C("other_kernel_ns", "int64", "of kernel_ns in kernels whose name says nothing"),
            C("top_kernel", "str", "the kernel name with the longest sum"),
            C("top_kernel_ns", "int64", "that sum"),
        ),
    )
)
