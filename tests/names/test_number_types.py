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
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT", "fp16", True),
        ("nvjet_sm100_ootst_128x128_256x7_4x1_2cta_v_bx_Avec16UE4M3_Bvec16UE4M3_TNT", "fp4", True),
        ("nvjet_sm100_oohsh_128x256_256x5_2x2_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT", "fp4", True),
        ("nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT", "fp8", True),
        ("nvjet_tst_128x8_64x12_2x1_v_bz_splitK_TNT", "bf16", True),
        ("nvjet_sm103_tst_64x8_64x16_4x1_v_bz_TNT", "bf16", True),
        ("nvjet_hsh_96x128_64x7_2x1_v_bz_TNN", "fp16", True),
        ("nvjet_sm90_hss_320x128_64x3_1x2_h_bz_coopB_NNT", "fp16", True),
        ("sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw", "int8", True),
        ("sm80_xmma_fprop_implicit_gemm_interleaved_i8f32_i8i32_f32_nchw_vect_c_32kcrs", "int8", True),
        ("sm75_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize128x128x64", "int8", True),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "fp8", True),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32", "fp16", True),
        ("sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x8", "fp64", True),
        ("Cijk_Alik_Bljk_I8BH_HAI_SAV_UserArgs_MT32x96x256_MI16x16x1_SN", "int8", True),
        ("Cijk_Alik_Bljk_I8II_BH_UserArgs_MT64x64x128_MI16x16x1_SN", "int8", True),
        ("Cijk_Alik_Bljk_I8HS_BH_SABV_UserArgs_MT32x16x256_MI16x16x1_SN", "int8", True),
        ("Cijk_Alik_Bljk_F8F8S_BH_UserArgs_MT256x256x256_MI16x16x1_SN", "fp8", True),
        ("Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAB_SAV_UserArgs_MT256x256x128_MI16x16x1_SN", "fp8", True),
        ("Cijk_Alik_Bljk_F8B8BS_BH_UserArgs_MT256x256x128_MI16x16x1_SN", "fp8", True),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x128x64_MI16x16x1_SN", "bf16", True),
        ("Cijk_Alik_Bljk_HHS_BH_Bias_HAS_SAV_UserArgs_MT128x128x64_MI16x16x1_SN", "fp16", True),
        ("gemm_Bfloat16_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x1_16dp256b_rM_TN_transOut", "fp8", True),
        ("gemm_Bfloat16_E2m1E2m1_Fp32_t128x8x512u2_s6_et64x8_m64x8x64_cga1x1x1_16dp256b_rM_TN_transOut", "fp4", True),
        ("bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16_m64x16x32_dynBatch_sm100f", "fp8", True),
        ("bmm_Fp16_Fp16Fp16_Fp32_t128x8x128u2_s6_et128x8_dynB_sm100f", "fp16", True),
        ("volta_cgemm_32x32_tn", "fp32", False),
        ("maxwell_sgemm_128x128_tn", "fp32", False),
        ("turing_fp16_s1688gemm_fp16_256x64_ldg8_f2f_tn", "fp16", True),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn", "fp16", True),
        ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nt", "bf16", True),
        ("cutlass_75_wmma_tensorop_s161616gemm_f16_16x16_128x2_tn_align8", "fp16", True),
        ("cutlass_80_tensorop_z884gemm_64x32_16x4_nn_align1", "fp64", True),
        ("cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_tn_align4", "tf32", True),
        ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_nn_align8", "bf16", True),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 256u>(float*)", "fp8", True),
        ("void gemv_kernel_g128<float4>(float4 const*, float const*, float*, int)", "fp32", False),
        ("void vectorised_dot<float4>(float4 const*, float4 const*, float*)", "fp32", None),
        ("fused_moe_i8_tn_mma_kernel(signed char const*, signed char const*, int*)", "int8", True),
        ("void sageattention::qk_int8_sv_f16_accum_f16_attn_kernel<128, 64, 32>", "int8", None),
        ("_kernel_matmul_fp8_row_tma_persistent", "fp8", None),
        ("_w8a8_block_fp8_matmul", "fp8", None),
        ("_int8_scaled_mm_kernel", "int8", None),
        ("_gemm_afp4_wfp4_kernel", "fp4", None),
        ("moe_grouped_gemm_nvfp4blk_m4", "fp4", None),
        ("_p_matmul_ogs_NNT_mxfp8xmxfp4_128x256x128x1_swiglu", "fp4", True),
        ("_ZN5aiter46fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E", "fp8", None),
        ("void marlin::Marlin<__nv_bfloat16, 1125899906842624l, 256, 1, 8, 8, true, 4, 8, false>", "bf16", True),
        ("allspark::ampere_hgemm_W8A16_perc_f16_f16_MtilexNtilexK32_mma16816_multistage_AN", "fp16", True),
        ("void tensor_contraction_kernel<double, double2>(double const*, double*)", "fp64", None),
        ("void gemm_pipelined<float, cub::DoubleBuffer<unsigned int> >(float const*, float*)", "fp32", None),
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
