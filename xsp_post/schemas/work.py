"""Tables of work counted from shapes: per different operator call, and per kernel."""

from xsp_post.schemas.base import Column as C
from xsp_post.schemas.base import Table, register

_WORK = (
    C("least_bytes", "float64", "least possible bytes moved: each tensor once (docs/work.md), NaN unknown"),
    C("element_operations", "float64", "operations in addition to flop, one per result element, NaN unknown"),
    C("pipe", "str", "pipe that the operands' type goes through, e.g. bf16_tensor ('' unknown or no flop)"),
)

OPERATORS = register(
    Table(
        "operators",
        "Operators",
        "operator, phase and different inputs",
        (
            C("capture_id", "int64", "capture"),
            C("operator_index", "int64", "number of the row within the capture"),
            C("operator", "str", "operator that launched the kernels ('' none is known)"),
            C("phase", "str", "forward, backward, optimizer, other; '' where nothing tells them apart"),
            C("family", "str", "product, convolution, attention, experts, normalisation … ('' unknown)"),
            C("sizes", "str", "sizes of its inputs"),
            C("element_types", "str", "their element types ('' not recorded)"),
            C("call_count", "int64", "calls that launched kernels"),
            C("kernel_count", "int64", "kernels they launched"),
            C("kernel_ns", "int64", "sum of the durations of those"),
            C("call_flop", "float64", "flop of one call, 2 per multiply-add; NaN unknown"),
            *_WORK,
            C("note", "str", "assumptions behind the numbers"),
        ),
        "docs/work.md",
    )
)

KERNEL_WORK = register(
    Table(
        "kernel_work",
        "Work of kernels from shapes",
        "kernel, where operators' sizes or the phases of a training step are known",
        (
            C("capture_id", "int64", "capture"),
            C("kernel_id", "int64", "kernel"),
            C("operator_index", "int64", "operators.operator_index"),
            C("phase", "str", "as in operators"),
            C("flop", "float64", "its share, by duration, of the flop of the operator's call; NaN unknown"),
            C("read_bytes", "float64", "its share of the least bytes read, NaN unknown"),
            C("written_bytes", "float64", "its share of the least bytes written, NaN unknown"),
            C("pipe", "str", "as in operators"),
        ),
        "docs/work.md",
    )
)
