"""Names of element types, as PyTorch, Triton and NVIDIA's kernels write them → bytes per element and pipe."""

import re

from xsp_post.names.number_types import runs_on_tensor_cores

# Kineto writes C++ names; framework and Triton names stand beside them.
_BITS = {
    "double": 64, "float64": 64, "long int": 64, "long": 64, "int64": 64, "c10::complex<float>": 64,
    "c10::complex<double>": 128, "float": 32, "float32": 32, "int": 32, "int32": 32, "unsigned int": 32, "uint32": 32,
    "unsigned long": 64, "uint64": 64, "c10::half": 16, "half": 16, "float16": 16, "c10::bfloat16": 16, "bfloat16": 16,
    "short int": 16, "short": 16, "int16": 16, "unsigned short": 16, "uint16": 16, "c10::complex<c10::half>": 32,
    "signed char": 8, "char": 8, "int8": 8, "unsigned char": 8, "byte": 8, "uint8": 8, "bool": 8, "c10::qint8": 8,
    "c10::quint8": 8, "c10::qint32": 32, "c10::float8_e4m3fn": 8, "c10::float8_e5m2": 8, "c10::float8_e4m3fnuz": 8,
    "c10::float8_e5m2fnuz": 8, "c10::float8_e8m0fnu": 8, "float8_e4m3fn": 8, "float8_e5m2": 8,
    "c10::float4_e2m1fn_x2": 8, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64, "fp8": 8, "fp4": 4, "i64": 64,
    "i32": 32, "i8": 8, "u8": 8, "complexfloat": 64, "complexdouble": 128,
}  # fmt: skip
_FLOATING = {
    "double": "fp64", "float64": "fp64", "fp64": "fp64", "float": "fp32", "float32": "fp32", "fp32": "fp32",
    "c10::half": "fp16", "half": "fp16", "float16": "fp16", "fp16": "fp16", "c10::bfloat16": "bf16",
    "bfloat16": "bf16", "bf16": "bf16", "c10::complex<float>": "fp32", "c10::complex<double>": "fp64",
    "c10::float4_e2m1fn_x2": "fp4", "fp4": "fp4",
}  # fmt: skip
_INTEGER = ("signed char", "char", "int8", "i8", "c10::qint8", "c10::quint8", "unsigned char", "uint8", "byte")


def element_bytes(dtype: str) -> float | None:
    """Bytes of one element; None for a type that is not known."""
    bits = _BITS.get(dtype.strip().lower().removeprefix("torch."))
    return None if bits is None else bits / 8


def kind_of(dtype: str) -> str:
    """fp64, fp32, fp16, bf16, fp8, fp4 or int8 of an element type; '' for what no arithmetic pipe is named after."""
    name = dtype.strip().lower()
    if "float8" in name or name == "fp8":
        return "fp8"
    return _FLOATING.get(name, "int8" if name in _INTEGER else "")


def pipe_of(kind: str, kernel_name: str) -> str:
    """The pipe that products of an element type go through. fp32 and fp64 use tensor cores where the kernel says so."""
    if kind == "fp32":
        return "tf32_tensor" if runs_on_tensor_cores(kernel_name) else "fp32"
    if kind == "fp64":
        return "fp64_tensor" if re.search(r"dmma|d884|tensorop", kernel_name, re.I) else "fp64"
    return f"{kind}_tensor" if kind in ("fp16", "bf16", "fp8", "fp4", "int8") else ""
