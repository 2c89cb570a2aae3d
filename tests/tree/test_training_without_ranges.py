"""Training under nsys, whose ranges stand around the forward pass alone (`record`, or `xsp_post.ranges` in a loop).

Backward work is launched by a thread of its own, partly inside library calls; the update has no range at all.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from builders import ExportBuilder

from xsp_post.pipeline import analyze

STEPS, LAYERS = 5, 4
H200 = Path(__file__).parents[1] / "data/h200"


def recording(path):
    """Per step: LAYERS × 2 kernels forward, LAYERS × 3 backward, LAYERS × 4 of Adam written out."""
    builder, t = ExportBuilder(), 1_000_000
    for step in range(STEPS):
        begin = t
        builder.thread(100)
        for layer in range(LAYERS):
            at = t
            for k, name in enumerate(
                ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n", "at::native::vectorized_layer_norm_kernel")
            ):
                builder.kernel(name, launch=(t + 500, t + 1_500), run=(t + 2_000, t + 9_000 - 1_000 * k))
                t += 10_000
            builder.range(f"blocks.{layer}:Block#0", at, t, domain="xsp")
        builder.range(f"model:forward#{step}", begin - 100, t + 100, domain="xsp")
        builder.thread(200)
        for _ in range(LAYERS):
            builder.range("cublasLtMatmul", t + 400, t + 2_000, domain="cuBLASLt")
            for k, name in enumerate(
                ("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n", "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n",
                 "at::native::layer_norm_grad_input_kernel_vectorized")
            ):  # fmt: skip
                builder.kernel(name, launch=(t + 500, t + 1_500), run=(t + 2_000, t + 9_000 - 1_000 * k))
                t += 10_000
        builder.thread(100)
        for _ in range(LAYERS):
            for name in ("lerp_scalar_kernel", "addcmul_cuda_kernel", "sqrt_kernel_cuda", "addcdiv_cuda_kernel"):
                text = (
                    f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}(at::TensorIteratorBase &)>"
                )
                builder.kernel(text, launch=(t + 500, t + 1_500), run=(t + 2_000, t + 3_000))
                t += 5_000
    return builder.write(path)


def test_a_step_is_from_one_forward_pass_to_the_next(tmp_path):
    analysis = analyze([recording(tmp_path / "a.sqlite")])
    iterations = analysis.frame("iterations")
    assert len(iterations) == STEPS
    kernels = analysis.frame("kernels")
    assert kernels.groupby("iteration_index").size().tolist() == [LAYERS * 9] * STEPS
    paths = analysis.frame("paths")
    parts = paths.groupby("name")["kernel_count"].sum()
    assert parts[["forward", "backward", "optimiser"]].tolist() == [STEPS * LAYERS * n for n in (2, 3, 4)]
    assert not paths["name"].str.contains("beside").any()


def test_no_block_is_called_by_a_library(tmp_path):
    names = analyze([recording(tmp_path / "a.sqlite")]).frame("paths").query("is_inferred")["name"]
    assert not names.str.contains("cublas", case=False).any()


@pytest.mark.parametrize(("name", "kernels"), [("train", 8_295), ("train_fused", 2_490)])
def test_a_real_recording_of_nsys(name, kernels, tmp_path):
    """nsys 2026.1.3 on an H200, AdamW tensor by tensor and fused: one forward range and 1,659 or 498 kernels a step."""
    export = tmp_path / f"{name}.sqlite"
    export.write_bytes(lzma.decompress((H200 / f"{name}.sqlite.xz").read_bytes()))
    analysis = analyze([export])
    assert len(analysis.frame("kernels")) == kernels
    assert len(analysis.frame("iterations").query("not is_warmup")) == 5
    paths = analysis.frame("paths")
    parts = paths.groupby("name")["kernel_count"].sum()
    assert set(parts.index) >= {"forward", "backward", "optimiser"}
    assert parts["backward"] == 5 * 366
