"""Kernel name → the element type of its products, and whether they run on tensor cores. A name is a hint, no proof."""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

# A type that only the sum has: TensorRT-LLM writes it behind the operands, cuBLAS and CUTLASS behind the tile.
_ACCUMULATOR = re.compile(r"(?<=[a-z0-9])_fp32_t\d|(?<=f32_)f32(?=_)|(?<=[a-z]1[66])f32_f32(?=_)", re.IGNORECASE)
# Element types, narrow before wide: of two operands the narrower one counts, so that no share of a roof is too large.
# cuBLASLt writes a letter for each (nvjet_hsh), Tensile behind the indices; float4 alone is a vector of four floats.
_OPERANDS = (
    ("fp4", r"e2m1|fp4|(?:nv|mx)_float4|nvjet_(?:sm\d+_)?oo"),
    ("fp8", r"e4m3|e5m2|float8|fp8|nvjet_(?:sm\d+_)?qq|cijk_[a-z]+_[a-z]+_f8"),
    ("int8", r"int8|imma|i8816|i16832|_s8_|igemm|(?<![a-z0-9])i8(?![0-9])"),
    ("bf16", r"bf16|bfloat16|bhalf|_bbs_|b16b16|nvjet_(?:sm\d+_)?t"),
    ("fp16", r"fp16|h16816|h1688|h884|f16f16|_f16_|s16816|hgemm|_hhs_|(?:^|[^a-z])half|nvjet_(?:sm\d+_)?h"),
    ("fp64", r"[dz]gemm|double(?!_?buffer)|f64|[dz]884|dmma"),
    ("tf32", r"tf32|s1688gemm_(?!f16|bf16)"),
    ("fp32", r"[sc]gemm|float|f32|_sss_"),
)
_COMPILED = tuple((kind, re.compile(words)) for kind, words in _OPERANDS)
# Products that say that they run on ordinary arithmetic units; `ffma` is their instruction, in tiles of xmma too.
_ORDINARY = re.compile(r"simt|ffma|(?<![a-z])[sdcz]gemm|scudnn|gemv|gemmsn|implicit_convolve_sgemm")
# Instructions and tiles of tensor cores, and families that are written for them alone.
_TENSOR = re.compile(
    r"tensorop|tf32|wmma|[hidqu]mma|[hqi]gmma|utcmma|16816|161616|16832|1688|8816|884|xmma|nvjet|^bmm_|marlin|machete|"
    r"deep_gemm|fmhasm|flash_?(?:fwd|bwd|attn)|matmul_ogs|mfma|xdl|_mma(?![a-z])|^gemm_\w+_fp32_t\d|_mi\d+x\d+x\d+"
)


@lru_cache(1 << 16)
def operand_kind(kernel_name: str) -> str:
    """fp4, fp8, int8, bf16, fp16, fp64, tf32 or fp32, the narrower of two; '' where the name does not say it."""
    lower = _ACCUMULATOR.sub("_", kernel_name.lower())
    return next((kind for kind, words in _COMPILED if words.search(lower)), "")


@lru_cache(1 << 16)
def runs_on_tensor_cores(kernel_name: str) -> bool | None:
    """Whether the products of a kernel run on tensor cores; None where the name does not say."""
    lower = kernel_name.lower()
    if _ORDINARY.search(lower) and not re.search(r"tensorop|wmma", lower):
        return False
    return True if _TENSOR.search(lower) else None


def without_tensor_cores(names: Sequence[str]) -> np.ndarray:
    """Which names say that their products run on ordinary arithmetic units, and that a faster type could do it:
    not in double precision, nor of 16 bits with a vector, whose time is to read. bool, shape (n,)."""
    can = [operand_kind(name) not in ("fp64", *["bf16", "fp16"] * ("gemv" in name)) for name in names]
    return np.array([runs_on_tensor_cores(name) is False and one for name, one in zip(names, can)], bool)
