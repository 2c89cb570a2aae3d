"""Kernel name → its family, and the name without parts that differ between builds.

The table `RULES` is tried from top to bottom, the first pattern found in the name decides. It looks at
names only, so a family is a guess: a kernel that hides its purpose is ``other``. Every rule says why it
stands where it stands, and tests/names/test_families.py holds one real name for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.names import patterns

FAMILIES = (
    "gemm",
    "convolution",
    "attention",
    "normalisation",
    "softmax",
    "elementwise",
    "reduction",
    "embedding",
    "pooling",
    "communication",
    "memory",
    "other",
)


@dataclass(frozen=True)
class Rule:
    """One line of the table: the family, the pattern (case-insensitive, searched anywhere), and why."""

    family: str
    pattern: str
    why: str


RULES: tuple[Rule, ...] = (
    Rule(
        "communication",
        r"nccl|nvshmem|rccl|msccl|cross_device_reduce|(?:multimem|one_shot|two_shot)_all_?(?:reduce|gather)",
        "collectives first: their names contain 'Reduce' and 'Copy', which later rules would take",
    ),
    Rule(
        "memory",
        r"^\[?cuda mem(?:cpy|set)|reshape_and_cache|cache_kernel",
        "copies and sets that a capture lists beside kernels; writes into a key-value cache",
    ),
    Rule(
        "attention",
        r"flash_?(?:fwd|bwd|attn|attention|infer)|fmha|fused_?attention|multi_?head_?attention|sdpa|"
        r"paged_attention|unified_attention|(?:batch|single)(?:prefill|decode)with|attention_kernel|"
        r"memory_?efficient_?attention|flex_attention|\battn_(?:fwd|bwd)|_attn_(?:fwd|bwd)|masked_multihead",
        "fused attention is built from cutlass or xmma matrix products: before gemm",
    ),
    Rule("normalisation", r"^triton_.*(?:_norm|rsqrt)", "inductor's fusion around a norm: it is named after its parts"),
    Rule("softmax", r"^triton_.*softmax", "inductor's fusion around a softmax"),
    Rule("embedding", r"^triton_.*embedding", "inductor's fusion around a lookup"),
    Rule("elementwise", r"^triton_poi", "'poi' means pointwise; the name lists neighbours such as convolution"),
    Rule("reduction", r"^triton_(?:red|per)", "'red' and 'per' (persistent) are inductor's reductions"),
    Rule(
        "convolution",
        r"conv(?:olution|olve|[123]d|_?fprop|_?dgrad|_?wgrad|_?depthwise|_fwd|_bwd)|scudnn|hcudnn|cask_cudnn|"
        r"winograd|fprop|dgrad|wgrad|fft2d_[rc]2[rc]|im2col|col2im|depthwise_?conv|nchwToNhwc|nhwcToNchw|"
        r"kern_precompute_indices",
        "implicit-gemm convolutions carry 'gemm' in their names too; layout changes around cuDNN count for it",
    ),
    Rule(
        "normalisation",
        r"layer_?norm|batch_?norm|group_?norm|instance_?norm|rms_?norm|\bbn_(?:fw|bw)|GammaBeta|"
        r"RowwiseMoments|ComputeFusedParams|local_response_norm|\bLRN",
        "before reduction and elementwise, which the generic parts of these names would match",
    ),
    Rule("softmax", r"soft_?max", "before reduction; log-softmax and its losses belong here"),
    Rule("elementwise", r"rotary|\brope_", "a rotation of each element, though called 'rotary embedding'"),
    Rule(
        "embedding",
        r"embedding|index_?select|gpu_index_kernel|indexing_backward|index_elementwise|vectorized_gather|"
        r"gather_kernel|(?<!matmul_)scatter_gather|scatter_add|index_put",
        "lookups by index: before elementwise, which is in the names of PyTorch's index kernels",
    ),
    Rule("pooling", r"pool(?:ing)?(?:_|[123]d|fw|bw|\b|[(<])", "maximum, average, adaptive pooling"),
    Rule(
        "gemm",
        r"gemm|gemv|^triton_(?:tem|mm|bmm)|(?<![a-z])(?:addmm|bmm|matmul)|trsm|trmm|syrk|cublas|splitK_?reduce|"
        r"cutlass.*(?:tensorop|simt)|cutlass::(?:Kernel|device_kernel)|nvjet|xmma_|dot_kernel|marlin|machete|"
        r"wgmma|^ampere_[a-z]+_\d+x\d+|_mm_kernel|^Cijk_",
        "matrix products of cuBLAS, cutlass, nvjet (Hopper and later), Triton, Tensile; split-K sums are theirs",
    ),
    Rule(
        "memory",
        r"memcpy|memset|CatArrayBatchedCopy|direct_copy_kernel|copy_device_to_device|FillFunctor|fill_kernel|"
        r"transpose_?kernel|copy_kernel|contiguous_kernel|clone_kernel|permute(?:_|Kernel)|roll_cuda_kernel|"
        r"flip_kernel|concat_kernel|slice_kernel",
        "moves and fills bytes, computes nothing; before elementwise, which is in PyTorch's copy kernels",
    ),
    Rule(
        "reduction",
        r"reduce_kernel|reduction|Device(?:Segmented)?Reduce|par_reduce|ReduceOp|_reduce|argmax|argmin|cumsum|"
        r"cumprod|DeviceScan|scan_(?:inner|outer)|topk|nll_loss|multi_tensor_apply.*Norm|\breduce|"
        r"(?-i:Reduce[A-Z(<])|l2norm|lpnorm|\bsum_|_sum_",
        "sums, maxima, scans, norms of gradients",
    ),
    Rule(
        "elementwise",
        r"elementwise|multi_tensor_apply|pointwise|^triton_|distribution_.*kernel|dropout|OpTensor|op_tensor|"
        r"(?:relu|gelu|silu|swish|swiglu|sigmoid|tanh|add|mul|sub|div|exp|bias_act|act_and_mul)_?"
        r"(?:forward|backward|fwd|bwd)?_?kernel|activation|vectorAdd|binary_op|unary_op|where_kernel|"
        r"cast_kernel|quantize|adam|sgd_",
        "one output per input element, optimiser updates included; random fills count here",
    ),
    Rule(
        "memory",
        r"sort|radix|unique|compact|copy|fill|transpose|shuffle|permut",
        "re-orders data; last, because these words are parts of many other names",
    ),
)

OTHER = "other"
# Updates of weights: PyTorch's foreach and fused optimisers, apex, DeepSpeed.
OPTIMISER_PATTERN = (
    r"multi_tensor_apply|multi_tensor_(?:adam|sgd|lamb)|fused_?(?:adam|sgd|lamb|adagrad)|adamw?_|_adamw?\b|lamb_"
)
BACKWARD_PATTERN = r"backward|dgrad|wgrad|_bwd|bwd_|_grad_|grad_(?:input|weight|bias)|bw_(?:tr|1C)"


def rule_index(names: Iterable[str]) -> np.ndarray:
    """Index into `RULES` of the rule that decides each name, −1 for none. int16, shape (n,).

    Patterns run over the unique names only.
    """
    codes, different = _different(names)
    found = _first_rules(different)
    return found[codes] if len(found) else np.empty(0, dtype=np.int16)


def families(names: Iterable[str]) -> np.ndarray:
    """The family of each kernel name: object array of members of `FAMILIES`, shape (n,)."""
    table = np.array([rule.family for rule in RULES] + [OTHER], dtype=object)
    return table[rule_index(names)]


def is_of_family(names: pd.Series, family: str) -> np.ndarray:
    """Which names are of one family; bool, shape (n,). Of a categorical column only the texts in use are looked at."""
    if not isinstance(names.dtype, pd.CategoricalDtype):
        return families(names.astype(object)) == family
    found = families(names.cat.categories) == family
    return np.append(found, False)[names.cat.codes.to_numpy()]


def matches(names: Iterable[str], pattern: str) -> np.ndarray:
    """Whether the pattern is found in each name, ignoring case; bool, shape (n,)."""
    codes, different = _different(names)
    return patterns.found_in([name[:_LONGEST] for name in different], f"(?i){pattern}")[codes]


_SIMT = r"sgemm|simt|_fp32_|scudnn|gemv.*float"
_TENSOR = r"tensorop|tf32|s1688|s16816|h1688|h16816|wgmma|xmma|nvjet|bf16"


def without_tensor_cores(names: Sequence[str]) -> np.ndarray:
    """Which names of matrix kernels are of kernels that use no tensor cores; shapes (n,) → (n,)."""
    return matches(names, _SIMT) & ~matches(names, _TENSOR)


# A name longer than this says what it is in its first part; hostile names must not cost time.
_LONGEST = 2000
_COMPILED = tuple(re.compile(rule.pattern, re.IGNORECASE) for rule in RULES)


# For RE2, which searches many names at once and knows no lookbehind: what is found without it is looked at again.
_WITHOUT_LOOKBEHIND = tuple(re.sub(r"\(\?<![^)]*\)", "", rule.pattern) for rule in RULES)


@lru_cache(1 << 14)
def _first_rule(name: str) -> int:
    for index, pattern in enumerate(_COMPILED):
        if pattern.search(name):
            return index
    return -1


@lru_cache(1)  # the kernels of one capture are asked for several times
def _first_rules(names: Sequence[str]) -> np.ndarray:
    """`_first_rule` of different names."""
    return patterns.looked_at([name[:_LONGEST] for name in names], _first_rules_by_re2, _first_rule)


def _first_rules_by_re2(texts: pa.Array, names: Sequence[str]) -> np.ndarray:
    def is_found(index: int, rows: np.ndarray) -> np.ndarray:
        if _WITHOUT_LOOKBEHIND[index] == RULES[index].pattern:
            return np.ones(len(rows), bool)
        return np.array([_COMPILED[index].search(names[row]) is not None for row in rows.tolist()], bool)

    return patterns.first_match(texts, _WITHOUT_LOOKBEHIND, ignore_case=True, confirm=is_found)


def _different(names: Iterable[str]) -> tuple[np.ndarray | slice, tuple[str, ...]]:
    """The different names, and which of them each is; categories differ, and know it."""
    if isinstance(names, pd.Index) and names.is_unique:
        return slice(None), tuple(map(str, names.tolist()))
    array = names if isinstance(names, np.ndarray) else np.array(list(names), object)
    codes, different = pd.factorize(array.astype(object, copy=False))
    return codes, tuple(map(str, different))


# ---------------------------------------------------------------- names without what varies

_UNNAMED = re.compile(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}|_GLOBAL__N_\w+")
_INNERMOST = re.compile(r"<[^<>]*>")
_ARGUMENTS = re.compile(r"\([^()]*\)")
_RETURN = re.compile(r"^(?:void|int|float|bool|__global__)\s+")
_TRITON_NUMBERS = re.compile(r"(?<=[a-z])_\d+(?:d\d*c?e?)?(?:_\d+)*(?:de)*$")
_ANY_SUFFIX = re.compile(r"(?:__kernel)?(?:_\d+)+$")
_TILES = re.compile(
    r"_?(?:tilesize|warpsize|warpgroupsize|tensor|sliced|stage|warp|cluster|splitK|align|bK)?\d+x\d+(?:x\d+)*(?:_\d+x\d+)*"
    r"|_stages?_?\d+|_align\d+|_ldg\d+|_cta\d+|_v\d+$",
    re.IGNORECASE,
)


def normalise_kernel_name(
    names: Iterable[str],
    *,
    drop_template_arguments: bool = True,
    drop_suffix_numbers: bool = True,
    drop_tile_sizes: bool = False,
) -> np.ndarray:
    """Kernel names without what changes between builds, GPUs and compilations; object array, shape (n,).

    Always: return type, argument list and unnamed namespaces go. ``drop_template_arguments``: everything in
    angle brackets. ``drop_suffix_numbers``: the running numbers that inductor and Triton append
    (``triton_poi_fused_add_3`` and ``…_7`` are one kernel). ``drop_tile_sizes``: tile shapes, stages and
    alignments of cuBLAS, cutlass and xmma kernels, so that one product counts as one on another GPU.
    A name never becomes empty: if nothing would be left, it stays.
    """
    codes, uniques = _different(names)
    done = np.array(
        [_normalise(str(name), drop_template_arguments, drop_suffix_numbers, drop_tile_sizes) for name in uniques],
        dtype=object,
    )
    return done[codes] if len(done) else np.empty(0, dtype=object)


def _normalise(name: str, templates: bool, numbers: bool, tiles: bool) -> str:
    text = _UNNAMED.sub("", name[:_LONGEST]).replace("::::", "::").replace("<>", "")
    if templates:
        text = _strip_nested(_INNERMOST, text)
        text = _strip_nested(_ARGUMENTS, text).split("<", 1)[0].split("(", 1)[0]
    text = _RETURN.sub("", text.strip()).strip()
    text = text.removeprefix("::")
    if numbers:
        is_generated = text.startswith("triton_") or "_fused_" in text
        text = _ANY_SUFFIX.sub("", text) if is_generated else _TRITON_NUMBERS.sub("", text)
    if tiles:
        text = _TILES.sub("", text)
    return text or name


def _strip_nested(pattern: re.Pattern[str], text: str) -> str:
    """Remove innermost pairs until none is left (at most 32 deep: names are hostile)."""
    for _ in range(32):
        shorter = pattern.sub("", text)
        if shorter == text:
            break
        text = shorter
    return text
