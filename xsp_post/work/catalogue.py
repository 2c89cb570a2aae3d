"""An operator's name → its formula. One row per operator; what is not listed is unknown, never zero.

``is_wrapper``: an operator that passes on to others; its formula counts only where none of those is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xsp_post.work import attention, convolutions, memory_bound, products
from xsp_post.work.amounts import Amounts, Formula
from xsp_post.work.signature import Input, Signature, read_signature
from xsp_post.work.steps import Step


@dataclass(frozen=True)
class Operator:
    formula: Formula
    is_wrapper: bool = False


def _named(formula: Formula, *names: str, is_wrapper: bool = False) -> dict[str, Operator]:
    return {name: Operator(formula, is_wrapper) for name in names}


def _aten(names: str) -> list[str]:
    """Names of aten, each also in place."""
    return [f"aten::{name}{end}" for name in names.split() for end in ("", "_")]


_ELEMENTWISE = _aten(
    "add sub mul div rsub neg abs exp exp2 expm1 log log1p log2 log10 sqrt rsqrt pow square reciprocal sin cos tan "
    "tanh sigmoid relu relu6 hardtanh hardswish hardsigmoid leaky_relu elu silu gelu mish softplus clamp clamp_min "
    "clamp_max maximum minimum where masked_fill lerp addcmul addcdiv floor ceil round trunc sign "
    "fmod remainder erf erfinv "
    "bitwise_and bitwise_or bitwise_xor bitwise_not logit log_sigmoid threshold nan_to_num atan2 copysign "
    "floor_divide true_divide polar complex real view_as_real tril triu prelu"
) + [
    "aten::sigmoid_backward", "aten::tanh_backward", "aten::threshold_backward", "aten::gelu_backward",
    "aten::silu_backward", "aten::hardtanh_backward", "aten::hardswish_backward", "aten::leaky_relu_backward",
    "aten::elu_backward", "aten::native_dropout_backward", "aten::masked_scale", "aten::log_sigmoid_backward",
    "aten::softplus_backward", "aten::hardsigmoid_backward", "aten::mse_loss", "aten::_to_copy_elementwise",
]  # fmt: skip
_COMPARISONS = _aten("eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan isinf isfinite")
_REDUCTIONS = [
    f"aten::{name}" for name in (
        "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any", "prod", "norm",
        "linalg_vector_norm", "var", "std", "var_mean", "std_mean", "logsumexp", "nansum", "count_nonzero",
        "_foreach_norm",
    )
]  # fmt: skip
_FOREACH = [
    f"aten::_foreach_{name}{end}" for end in ("", "_") for name in (
        "add", "sub", "mul", "div", "neg", "sqrt", "rsqrt", "reciprocal", "lerp", "addcmul", "addcdiv", "maximum",
        "minimum", "clamp_min", "clamp_max", "pow", "abs", "exp", "sign", "copy", "zero",
    )
]  # fmt: skip
_EXPERTS = (
    "vllm::fused_moe", "vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "sglang::inplace_fused_experts",
    "sglang::outplace_fused_experts", "sglang::fused_moe", "vllm::rocm_aiter_fused_moe", "aiter::fused_moe",
    "aiter::fmoe", "aiter::fmoe_g1u1", "aiter::ck_moe", "vllm::flashinfer_fused_moe_bf16", "vllm::rocm_aiter_ck_moe",
    "vllm::fused_marlin_moe", "_moe_C::moe_wna16_gemm", "flashinfer::cutlass_fused_moe",
    "trtllm::fused_moe", "sgl_kernel::fused_experts_cpu",
)  # fmt: skip
_PAGED = (
    "vllm::unified_attention_with_output", "vllm::unified_attention", "aiter::mha_batch_prefill",
    "aiter::paged_attention_v1", "aiter::paged_attention_ragged", "_C::paged_attention_v1", "sgl_kernel::fwd",
    "sglang::unified_attention_with_output", "vllm_flash_attn::varlen_fwd", "_vllm_fa2_C::varlen_fwd",
    "_vllm_fa3_C::fwd", "aiter::mha_varlen_fwd", "sglang::radix_attention",
)  # fmt: skip

OPERATORS: dict[str, Operator] = {
    # products
    **_named(products.mm, "aten::mm", "aten::bmm", "aten::mv", "aten::dot", "aten::_int_mm", "aten::vdot"),
    **_named(products.addmm, "aten::addmm", "aten::addmm_", "aten::addmv", "aten::baddbmm", "aten::baddbmm_",
             "aten::addbmm", "aten::_addmm_activation"),
    **_named(products.linear, "aten::linear", "aten::mkldnn_linear", "aten::_mkl_linear",
             "mkldnn::_linear_pointwise", is_wrapper=True),
    **_named(products.mm, "aten::matmul", is_wrapper=True),
    **_named(products.gemm_transposed, "vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16", "aiter::gemm_a16w16_atomic",
             "aiter::gemm_a16w16_asm", "vllm::rocm_unquantized_gemm_impl", "aiter::hipb_mm", "aiter::rocb_mm",
             "aiter::gemm_a8w8", "aiter::gemm_a8w8_bpreshuffle", "aiter::gemm_a8w8_blockscale", "_rocm_C::wvSplitK",
             "_rocm_C::LLMM1", "vllm::default_unquantized_gemm", is_wrapper=True),
    **_named(products.scaled_mm, "aten::_scaled_mm"),
    **_named(products.grouped_mm, "aten::_grouped_mm", "aten::_scaled_grouped_mm"),
    **_named(products.expert_product, "triton_kernels::matmul_ogs"),
    **_named(products.fused_experts, *_EXPERTS, is_wrapper=True),
    # convolutions
    # input, weight, bias, stride, padding, dilation, transposed, output padding, groups
    **_named(convolutions.placed(2, 3, 4, 5, 6, 7, 8), "aten::convolution", "aten::_convolution",
             "aten::convolution_overrideable", is_wrapper=True),
    # input, weight, bias, stride, padding, dilation, groups
    **_named(convolutions.placed(2, 3, 4, 5, None, None, 6), "aten::conv1d", "aten::conv2d", "aten::conv3d",
             is_wrapper=True),
    # input, weight, bias, stride, padding, output padding, groups, dilation
    **_named(convolutions.placed(2, 3, 4, 7, True, 5, 6), "aten::conv_transpose1d", "aten::conv_transpose2d",
             "aten::conv_transpose3d", is_wrapper=True),
    # input, weight, padding, stride, dilation, groups
    **_named(convolutions.placed(None, 3, 2, 4, None, None, 5), "aten::cudnn_convolution"),
    # input, weight, padding, output padding, stride, dilation, groups
    **_named(convolutions.placed(None, 4, 2, 5, True, 3, 6), "aten::cudnn_convolution_transpose"),
    # input, weight, bias, padding, stride, dilation, groups
    **_named(convolutions.placed(2, 4, 3, 5, None, None, 6), "aten::mkldnn_convolution", "aten::miopen_convolution",
             "aten::miopen_depthwise_convolution"),
    # input, weight, bias, stride, padding, dilation, groups
    **_named(convolutions.placed(2, 3, 4, 5, None, None, 6), "aten::cudnn_convolution_relu",
             "aten::miopen_convolution_relu"),
    **_named(convolutions.cudnn_convolution_add_relu, "aten::cudnn_convolution_add_relu",
             "aten::miopen_convolution_add_relu"),
    # input, weight, kernel sizes, bias, stride, padding, dilation
    **_named(convolutions.placed(3, 4, 5, 6, None, None, None), "aten::_conv_depthwise2d", "aten::conv_depthwise3d"),
    # input, weight, kernel sizes, bias, stride, padding
    **_named(convolutions.placed(3, 4, 5, None, None, None, None), "aten::thnn_conv2d", "aten::_slow_conv2d_forward",
             "aten::slow_conv3d", is_wrapper=True),
    **_named(convolutions.convolution_backward, "aten::convolution_backward", is_wrapper=True),
    **_named(convolutions.cudnn_convolution_backward, "aten::cudnn_convolution_backward"),
    # attention
    **{name: Operator(formula, name in attention.WRAPPERS) for name, formula in attention.FORMULAS.items()},
    # element by element, normalisation, reduction
    **_named(memory_bound.elementwise, *_ELEMENTWISE),
    **_named(memory_bound.comparison, *_COMPARISONS),
    **_named(memory_bound.reduction, *_REDUCTIONS),
    **_named(memory_bound.scan, "aten::cumsum", "aten::cumprod", "aten::sort", "aten::flip", "aten::roll",
             "aten::repeat", "aten::constant_pad_nd", "aten::argsort"),
    **_named(memory_bound.norm, "aten::layer_norm", "aten::batch_norm", "aten::group_norm", "aten::rms_norm",
             "aten::instance_norm", "aten::_batch_norm_impl_index", is_wrapper=True),
    **_named(memory_bound.norm, "aten::native_layer_norm", "aten::native_batch_norm", "aten::cudnn_batch_norm",
             "aten::native_group_norm", "aten::_fused_rms_norm", "aten::_native_batch_norm_legit",
             "aten::miopen_batch_norm", "aiter::rms_norm", "aten::_batch_norm_with_update",
             "aten::_native_batch_norm_legit_no_training"),
    **_named(memory_bound.norm, "vllm::rocm_aiter_rms_norm", is_wrapper=True),
    **_named(memory_bound.norm_backward, "aten::native_layer_norm_backward", "aten::native_batch_norm_backward",
             "aten::cudnn_batch_norm_backward", "aten::native_group_norm_backward", "aten::_fused_rms_norm_backward",
             "aten::miopen_batch_norm_backward", "aten::batch_norm_backward"),
    **_named(memory_bound.norm_into, "aiter::rmsnorm", "aiter::add_rmsnorm", "aiter::rmsnorm2d_fwd_with_add",
             "aiter::rmsnorm2d_fwd_with_add_ck", "_C::rms_norm", "sgl_kernel::rmsnorm", "flashinfer::rmsnorm",
             "aiter::rmsnorm2d_fwd", "sgl_kernel::gemma_rmsnorm"),
    **_named(memory_bound.norm_in_place, "_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm",
             "flashinfer::fused_add_rmsnorm"),
    **_named(memory_bound.softmax, "aten::_softmax", "aten::_log_softmax", "aten::_softmax_backward_data",
             "aten::_log_softmax_backward_data"),
    **_named(memory_bound.softmax, "aten::softmax", "aten::log_softmax", is_wrapper=True),
    **_named(memory_bound.dropout, "aten::native_dropout", "aten::_fused_dropout"),
    **_named(memory_bound.pool, "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices", "aten::avg_pool2d",
             "aten::avg_pool3d", "aten::mkldnn_max_pool2d"),
    **_named(memory_bound.resize, "aten::_adaptive_avg_pool2d", "aten::adaptive_max_pool2d",
             "aten::upsample_nearest1d", "aten::upsample_nearest2d", "aten::upsample_bilinear2d",
             "aten::upsample_bicubic2d", "aten::upsample_nearest3d", "aten::upsample_linear1d"),
    **_named(memory_bound.resize, "aten::adaptive_avg_pool2d", is_wrapper=True),
    **_named(memory_bound.pool_backward, "aten::max_pool2d_with_indices_backward", "aten::avg_pool2d_backward",
             "aten::_adaptive_avg_pool2d_backward", "aten::max_pool3d_with_indices_backward"),
    **_named(memory_bound.loss, "aten::nll_loss_forward", "aten::nll_loss2d_forward"),
    **_named(memory_bound.loss_backward, "aten::nll_loss_backward", "aten::nll_loss2d_backward"),
    # look-up, copies
    **_named(memory_bound.lookup, "aten::embedding", is_wrapper=True),
    **_named(memory_bound.index_select, "aten::index_select"),
    **_named(memory_bound.gather, "aten::gather"),
    **_named(memory_bound.index, "aten::index"),
    **_named(memory_bound.index_put, "aten::_index_put_impl_"),
    **_named(memory_bound.index_put, "aten::index_put", "aten::index_put_", is_wrapper=True),
    **_named(
        memory_bound.scatter, "aten::scatter", "aten::scatter_", "aten::scatter_add", "aten::scatter_add_"
    ),
    **_named(memory_bound.embedding_backward, "aten::embedding_dense_backward"),
    **_named(memory_bound.copy, "aten::copy_"),
    **_named(memory_bound.clone, "aten::clone", "aten::contiguous", "aten::_to_copy", "aten::to", is_wrapper=True),
    **_named(memory_bound.fill, "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_", "aten::random_",
             "aten::bernoulli_", "aten::exponential_"),
    **_named(memory_bound.cat, "aten::cat", "aten::stack", "aten::_cat"),
    # optimisers
    **_named(memory_bound.foreach, *_FOREACH),
    **_named(memory_bound.fused_optimizer, "aten::_fused_adam_", "aten::_fused_adamw_", "aten::_fused_sgd_",
             "aten::_fused_adagrad_"),
    # collectives
    **_named(memory_bound.collective, "record_param_comms"),
    # serving
    **_named(memory_bound.rotary, "sgl_kernel::rotary_embedding", "_C::rotary_embedding", "aiter::rope_cached_fwd"),
    **_named(memory_bound.all_once, "sgl_kernel::silu_and_mul", "_C::silu_and_mul", "sgl_kernel::gelu_and_mul",
             "_C::gelu_and_mul", "_C::gelu_tanh_and_mul", "aiter::silu_and_mul"),
    **_named(memory_bound.cache_store, "sglang::store_cache", "_C_cache_ops::reshape_and_cache_flash",
             "_C_cache_ops::reshape_and_cache", "aiter::reshape_and_cache", "sgl_kernel::store_kv_cache"),
    **_named(memory_bound.topk, "aten::topk", "TopK"),
    **_named(memory_bound.routing, "SortTokens", "_moe_C::topk_softmax", "_moe_C::moe_align_block_size",
             "sgl_kernel::topk_softmax", "sgl_kernel::moe_align_block_size"),
}  # fmt: skip
_TRITON = ("triton_poi_fused", "triton_red_fused", "triton_per_fused", "triton_poi_", "triton_red_", "triton_per_")


def is_known(operator: str) -> bool:
    """Whether there is a formula for an operator of that name."""
    return operator in OPERATORS or operator in _PAGED or operator.startswith(_TRITON)


def is_wrapper(operator: str) -> bool:
    """Whether the operator passes its work on to others, which count where they are known."""
    found = OPERATORS.get(operator)
    return found.is_wrapper if found is not None else operator in _PAGED


def takes_step(operator: str) -> bool:
    """Whether the work hangs on the serving step around the call."""
    return operator in _PAGED


def work_of(operator: str, text: str, *, step: Step | None = None, assumed_type: str = "") -> Amounts | None:
    """The least work of one call of ``operator`` whose inputs ``text`` describes (`signature.read_signature`).

    ``step`` is the serving step around the call; ``assumed_type`` stands in for element types that the capture does
    not say, which the result's note tells. None where there is no formula, or the text says too little for it.
    """
    if not is_known(operator):
        return None
    call = read_signature(operator, text)
    if call is None:
        return None
    completed = _with_types(call, assumed_type)
    try:
        found = _evaluate(completed, step)
    except (ValueError, IndexError, OverflowError):
        return None  # sizes of another form than the operator takes
    if found is None or completed is call:
        return found
    note = f"element type taken as {assumed_type}"
    return replace(found, note=f"{found.note}; {note}" if found.note else note)


def _evaluate(call: Signature, step: Step | None) -> Amounts | None:
    if call.operator in OPERATORS:
        return OPERATORS[call.operator].formula(call)
    if call.operator in _PAGED:
        return attention.paged(call, step)
    return memory_bound.fused_triton(call)


def _with_types(call: Signature, assumed_type: str) -> Signature:
    """The same with ``assumed_type`` where a tensor has none; the very same where nothing was missing."""
    if not assumed_type:
        return call

    def completed(one: Input) -> Input:
        if one.items:
            return replace(one, items=tuple(completed(item) for item in one.items))
        return replace(one, dtype=assumed_type) if one.is_tensor and one.sizes and not one.dtype else one

    inputs = tuple(completed(one) for one in call.inputs)
    return call if inputs == call.inputs else replace(call, inputs=inputs)
