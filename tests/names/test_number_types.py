"""Element types and tensor cores out of kernel names."""

from __future__ import annotations

import pytest

from xsp_post.names.number_types import operand_kind, runs_on_tensor_cores, without_tensor_cores


@pytest.mark.parametrize(
    ("name", "kind", "tensor"),
    [
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_dynBatch_sm100f", "fp4", True),
        ("bmm_MxE4m3_MxE4m3MxE4m3_Fp32_t128x16x256u2_dynBatch_sm100f", "fp8", True),
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128u2_s6_et128x8_dynB_sm100f", "bf16", True),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu", "fp4", True),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext", "fp8", True),
        ("ampere_sgemm_128x64_tn", "fp32", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_ffma_aligna4", "fp32", False),
        ("cutlass_80_simt_sgemm_128x128_8x4_nn_align1", "fp32", False),
        ("ampere_fp16_sgemm_fp16_32x128_tn", "fp16", False),
        ("cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu", "", False),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc", "tf32", True),
        ("cutlass_80_tensorop_s1688gemm_128x128", "tf32", True),
        ("ampere_bf16_s1688gemm_bf16_128x128_ldg8", "bf16", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "bf16", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16>", "int8", True),
        ("cutlass_80_tensorop_d884gemm_32x32_16x5_nn_align1", "fp64", True),
        ("volta_h884gemm_64x64_ldg8_nn", "fp16", True),
        ("Cijk_Ailk_Bjlk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x64x32_MI32x32x1_SN", "bf16", True),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", "", True),
        ("vectorized_elementwise_kernel", "", None),
    ],
)
def test_type_and_tensor_cores(name, kind, tensor):
    assert operand_kind(name) == kind
    assert runs_on_tensor_cores(name) is tensor
    assert without_tensor_cores([name]).tolist() == [tensor is False]


def test_a_very_long_name_takes_no_time():
    letters = "x" * 300_000  # a search from each letter to the end would take minutes
    assert (operand_kind(letters), runs_on_tensor_cores(letters)) == ("", None)
    assert runs_on_tensor_cores(letters + "16816") is True
