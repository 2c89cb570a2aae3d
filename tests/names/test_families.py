"""Kernel families: one real name for every rule, and names without what varies."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.names import families as families_module
from xsp_post.names.families import FAMILIES, RULES, families, matches, normalise_kernel_name, rule_index

NAMES = [
    ("communication", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ("communication", "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)"),
    ("memory", "[CUDA memcpy HtoD]"),
    ("memory", "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(const T1 *)"),
    ("attention", "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)"),
    ("attention", "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)"),
    ("attention", "kernel_unified_attention_2d"),
    ("normalisation", "triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1"),
    ("normalisation", "triton_per_fused_native_layer_norm_0"),
    ("softmax", "triton_per_fused__softmax_2"),
    ("embedding", "triton_poi_fused_embedding_0"),
    ("elementwise", "triton_poi_fused_convolution_relu_3"),
    ("reduction", "triton_red_fused_sum_4"),
    ("convolution", "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)"),
    ("convolution", "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"),
    ("convolution", "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::params)"),
    ("convolution", "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"),
    ("normalisation", "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"),
    ("normalisation", "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float, float)"),
    ("softmax", "void at::native::cunn_SoftMaxForward<4, float, float, float>(float *)"),
    ("elementwise", "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(const long *)"),
    ("embedding", "void at::native::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)"),
    ("embedding", "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)"),
    ("pooling", "void at::native::max_pool_forward_nchw<float, float>(int, const float *)"),
    ("gemm", "ampere_sgemm_128x64_tn"),
    ("gemm", "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_128x64_64x3_nn_align8>(T1::Params)"),
    ("gemm", "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT"),
    ("gemm", "void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)"),
    ("gemm", "triton_tem_fused_mm_7"),
    ("memory", "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl_nocast<direct_copy_kernel_cuda(int)>>"),
    ("memory", "void at::native::CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 4, 64, 64>(T1 *)"),
    ("reduction", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>(T3)"),
    ("elementwise", "void at::native::multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float>>"),
    ("elementwise", "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int, T2, T3)"),
    ("memory", "void at_cuda_detail::cub::DeviceRadixSortSingleTileKernel<Policy>(const T1 *)"),
    ("other", "build_GPU2"),
    ("other", ""),
]


@pytest.mark.parametrize(("family", "name"), NAMES)
def test_family_of_a_real_name(family, name):
    assert families([name]).tolist() == [family]


def test_many_names_are_searched_for_all_rules_together(monkeypatch):
    names = [name for _, name in NAMES] + ["matmul_scatter_gather_x", "abmm", "é nccl", "g" * 3000 + "gemm"]
    one_by_one = rule_index(names)
    monkeypatch.setattr(families_module.patterns, "_FEW", 0)
    families_module._first_rules.cache_clear()
    assert rule_index(names).tolist() == one_by_one.tolist()


def test_every_rule_has_a_name_it_decides_and_a_reason():
    decided = set(rule_index([name for _, name in NAMES]).tolist()) - {-1}
    assert decided == set(range(len(RULES)))
    assert all(rule.family in FAMILIES and len(rule.why) > 20 for rule in RULES)


def test_names_of_the_captures_are_mostly_known(captures):
    path = captures / "nsys" / "transformer_backward_rtx3070ti.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        query = ("SELECT DISTINCT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                 "JOIN StringIds s ON s.id = k.demangledName")  # fmt: skip
        names = [row[0] for row in connection.execute(query)]
    found = families(names)
    assert len(names) == 56
    assert (found != "other").all()
    assert {"gemm", "softmax", "reduction", "embedding", "elementwise", "memory"} <= set(found)


@given(st.lists(st.text(max_size=300), max_size=20))
def test_any_text_has_one_family_and_keeps_a_name(texts):
    found = families(texts)
    assert found.shape == (len(texts),)
    assert set(found) <= set(FAMILIES)
    normal = normalise_kernel_name(texts, drop_tile_sizes=True)
    assert all(bool(new) == bool(old) for new, old in zip(normal, texts, strict=True))
    assert matches(texts, "gemm").dtype == bool


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2)",
            "at::native::vectorized_elementwise_kernel",
        ),
        (
            "void at::native::<unnamed>::multi_tensor_apply_kernel<A<(int)1>, B<C>>(T1)",
            "at::native::multi_tensor_apply_kernel",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float, 8>(float*)", "softmax_warp_forward"),
        ("triton_poi_fused_add_3", "triton_poi_fused_add"),
        ("triton_poi_fused_add_117", "triton_poi_fused_add"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("layer_norm(float *, int)", "layer_norm"),
        ("<only>", "<only>"),
    ],
)
def test_normal_names(name, normal):
    assert normalise_kernel_name([name]).tolist() == [normal]


def test_tile_sizes_go_on_request():
    names = ["ampere_sgemm_128x64_tn", "ampere_sgemm_64x64_tn",
             "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4",
             "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"]  # fmt: skip  # noqa: E501
    bare = normalise_kernel_name(names, drop_tile_sizes=True)
    assert bare[0] == bare[1] == "ampere_sgemm_tn"
    assert bare[2] == bare[3]
    assert len(set(normalise_kernel_name(names))) == 4


def test_templates_stay_on_request():
    kept = normalise_kernel_name(["void f<int>(T1)"], drop_template_arguments=False)
    assert kept.tolist() == ["f<int>(T1)"]


def test_hostile_names_cost_no_time():
    names = ["<" * 50_000, "(" * 50_000 + "gemm", "triton_" + "_1" * 20_000, "\x00gemm\u202e" * 1000]
    assert families(names).shape == (4,)
    assert normalise_kernel_name(names).shape == (4,)
    assert np.all(normalise_kernel_name(names) != "")
