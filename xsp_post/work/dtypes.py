"""Names of element types, as PyTorch, Triton and NVIDIA's kernels write them → bytes per element and pipe."""

import re
from pathlib import Path

from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.names.number_types import runs_on_tensor_cores

_TYPES = TextTable(lambda: read_blocks(Path(__file__).with_name("dtypes.txt"))[0].texts())


def element_bytes(dtype: str) -> float | None:
    """Bytes of one element; None for a type that is not known."""
    bits = _TYPES.get(dtype.strip().lower().removeprefix("torch."), "").partition(" ")[0]
    return int(bits) / 8 if bits else None


def kind_of(dtype: str) -> str:
    """fp64, fp32, fp16, bf16, fp8, fp4 or int8 of an element type; '' for what no arithmetic pipe is named after."""
    name = dtype.strip().lower()
    if "float8" in name or name == "fp8":
        return "fp8"
    return _TYPES.get(name, "").partition(" ")[2]


def pipe_of(kind: str, kernel_name: str) -> str:
    """The pipe that products of an element type go through. fp32 and fp64 use tensor cores where the kernel says so."""
    if kind == "fp32":
        return "tf32_tensor" if runs_on_tensor_cores(kernel_name) else "fp32"
    if kind == "fp64":
        return "fp64_tensor" if re.search(r"dmma|d884|tensorop", kernel_name, re.I) else "fp64"
    return f"{kind}_tensor" if kind in ("fp16", "bf16", "fp8", "fp4", "int8") else ""
