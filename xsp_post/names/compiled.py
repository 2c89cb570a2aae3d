"""Names of the calls of compiled code: the compiler's files and traces write them differently."""

import re

FUSED = ("triton_", "cpp_fused")  # kernels that the compiler wrote itself


def symbol_of(text: str) -> str:
    """What a call is named by in both: ``extern_kernels.addmm:2`` and ``aten::addmm`` are `addmm`."""
    text = re.sub(r":\d+$|^graph_\d+_", "", text)
    text = re.sub(r"^torch\.ops\.\w+\.(\w+)(?:\.\w+)?$", r"\1", text)
    return re.sub(r"^(?:extern_kernels\.|\w+::)", "", text)
