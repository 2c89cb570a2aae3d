"""Work of real captures against what TraceLens prints for them: equal, or different for a reason that is named."""

from __future__ import annotations

import ast
import json
import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from recorded import analyzed

from xsp_post.model.options import DEFAULTS
from xsp_post.work.catalogue import work_of
from xsp_post.work.steps import read_steps

CAPTURES = Path(os.environ.get("XSP_POST_CAPTURES", Path(__file__).parents[3] / "shared" / "captures"))
PEERS = CAPTURES / "kineto" / "peers"
pytestmark = pytest.mark.skipif(not PEERS.is_dir(), reason="the captures in ../shared are absent")

STEPS = {
    "sglang_prefill_decode": (
        "execute_15360_context_15(sq15360sk15360sqsq15728640sqsk15728640)_generation_0(sq0sk0sqsq0sqsk0)"
    ),
    "vllm_decode_cuda_graph": "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
}
MEBIBYTE = 2**20


def lists(value):
    return [lists(one) for one in value] if isinstance(value, (tuple, list)) else value


def printed(name, file):
    """Rows of a table of TraceLens with our work of the same call."""
    table = pd.read_csv(PEERS / name / file)
    rows = []
    for _, row in table.iterrows():
        columns = [row.get(c, row.get(f"{c}_first")) for c in ("Input Dims", "Input type", "Input Strides",
                                                                "Concrete Inputs")]  # fmt: skip
        if not isinstance(columns[0], str):
            continue
        text = json.dumps([lists(ast.literal_eval(one)) for one in columns])
        [step] = read_steps([STEPS.get(name, "")])
        found = work_of(row["name"], text, step=step, assumed_type="bf16")
        gflop = row.get("GFLOPS", row.get("GFLOPS_first"))
        moved = row.get("Data Moved (MB)", row.get("Data Moved (MB)_first"))
        rows.append((row["name"], found, gflop * 1e9, moved * MEBIBYTE, row))
    assert rows
    return rows


@pytest.mark.parametrize("name", sorted(one.name for one in PEERS.glob("*")) if PEERS.is_dir() else [])
def test_products_are_equal_to_the_last_flop_and_byte(name):
    for operator, found, flop, moved, _ in printed(name, "GEMM.csv"):
        assert found is not None, operator
        assert found.flop + found.element_operations == pytest.approx(flop, rel=1e-12), operator
        assert found.least_bytes == pytest.approx(moved, rel=1e-12), operator


def test_attention_without_a_mask_is_equal():
    for _, found, flop, moved, _ in printed("bert_small_h100", "SDPA_fwd.csv"):
        assert (found.flop, found.least_bytes) == (pytest.approx(flop, rel=1e-12), pytest.approx(moved, rel=1e-12))


def test_causal_attention_has_the_diagonal_too():
    """TraceLens halves n² pairs; n·(n + 1) / 2 is what a causal mask leaves."""
    for _, found, flop, moved, _ in printed("qwen_h100", "SDPA_fwd.csv"):
        assert found.flop == pytest.approx(flop * 560 / 559, rel=1e-12)
        assert found.least_bytes == pytest.approx(moved, rel=1e-12)


def test_a_convolution_is_equal_but_for_its_bias():
    for _, found, flop, moved, row in printed("timesformer_h100", "CONV_fwd.csv"):
        channels = ast.literal_eval(row.get("Input Dims", row.get("Input Dims_first")))[1][0]
        assert found.flop == pytest.approx(flop, rel=1e-12)
        assert found.least_bytes == pytest.approx(moved + 2 * channels, rel=1e-12)


def test_paged_attention_of_a_decode_step_is_equal():
    found = [row for row in printed("vllm_decode_cuda_graph", "InferenceAttention_fwd.csv") if "unified" in row[0]]
    assert found
    for _, work, flop, moved, _ in found:
        assert (work.flop, work.least_bytes) == (pytest.approx(flop, rel=1e-12), pytest.approx(moved, rel=1e-12))


def test_paged_attention_of_a_prefill_differs_by_the_diagonal():
    found = [row for row in printed("sglang_prefill_decode", "InferenceAttention_fwd.csv") if "prefill" in row[0]]
    for _, work, flop, moved, _ in found:
        assert work.flop == pytest.approx(flop * (15728640 + 15360) / 15728640, rel=1e-12)
        assert work.least_bytes == pytest.approx(moved, rel=1e-12)


# Why a row of unified_perf_summary.csv may differ, by operator: flop, bytes (docs/work.md).
_OTHER_FLOP = ("norm", "copy_", "rotary", "silu_and_mul", "attention", "mha_batch", "triton", "convolution", "rms")
_OTHER_BYTES = ("layer_norm", "mean", "rotary", "store_cache", "triton", "convolution")


@pytest.mark.parametrize("name", sorted(one.name for one in PEERS.glob("*")) if PEERS.is_dir() else [])
def test_every_row_is_equal_or_has_a_named_difference(name):
    for operator, found, flop, moved, row in printed(name, "unified_perf_summary.csv"):
        if not row["has_perf_model"] or operator.startswith("pseudo_op"):
            continue
        assert found is not None, operator
        if flop == flop and flop > 0 and not any(word in operator for word in _OTHER_FLOP):
            assert found.flop + found.element_operations == pytest.approx(flop, rel=1e-12), operator
        mixed = len({one for one in ast.literal_eval(row["Input type"]) if one not in ("", "Scalar")}) > 1
        broadcast = operator.endswith("copy_")  # a source of one element is read once
        if moved == moved and not any(word in operator for word in _OTHER_BYTES) and not mixed and not broadcast:
            assert found.least_bytes == pytest.approx(moved, rel=1e-12), operator


@pytest.mark.parametrize(
    ("capture", "share"), [("bert_small_h100", 0.999), ("timesformer_h100", 0.999), ("sglang_prefill_decode", 0.999)]
)
def test_the_whole_capture_is_covered_and_adds_up(capture, share):
    analysis = analyzed(CAPTURES / "kineto" / f"{capture}.pt.trace.json.gz")
    work, kernels = analysis.frame("kernel_work"), analysis.frame("kernels")
    known = work["flop"].notna().to_numpy()
    assert kernels["duration_ns"].to_numpy()[known].sum() >= share * kernels["duration_ns"].sum()
    operators = analysis.frame("operators")
    per_row = (operators["call_flop"] * operators["call_count"]).sum()
    assert work["flop"].sum() == pytest.approx(per_row)
    rows = [one for one in printed(capture, "unified_perf_summary.csv") if one[4]["op category"] == "GEMM"]
    total = sum(one[2] * one[4]["operation_count"] for one in rows)  # GEMM.csv counts a wrapper and its product
    ours = operators[operators["family"].eq("product")]
    element_operations = (ours["element_operations"] * ours["call_count"]).sum()
    assert (ours["call_flop"] * ours["call_count"]).sum() + element_operations == pytest.approx(total)


def test_a_capture_with_too_little_known_work_has_no_verdict():
    """436 of qwen's kernels have no launch row: their operators are not known."""
    analysis = analyzed(CAPTURES / "kineto" / "qwen_h100.pt.trace.json.gz")
    row = analysis.frame("a15").iloc[0]
    assert str(row["bound"]) == "unknown"
    assert 0.5 < row["counter_coverage_ratio"] < 0.9 and str(row["counter_source"]) == "analytic"
    assert row["mfu_ratio"] != row["mfu_ratio"]
    said = {one.code: one.example for one in analysis.findings}
    assert said["work-from-shapes-partial"] == "flop known for 69.9 % of kernel time"


@pytest.fixture(scope="module")
def decode_step():
    """One decode step replayed by a CUDA graph, its operators carried over from the graph's capture."""
    folder = CAPTURES / "kineto"
    twin = folder / "vllm_decode_cuda_graph.capture.pt.trace.json.gz"
    return analyzed(folder / "vllm_decode_cuda_graph.pt.trace.json.gz", replace(DEFAULTS, layers_from=twin))


def test_a_replayed_graph_has_the_work_of_its_capture(decode_step):
    row = decode_step.frame("a15").iloc[0]
    assert row["counter_coverage_ratio"] > 0.98 and str(row["counter_source"]) == "analytic"
    operators = decode_step.frame("operators").set_index("operator")
    attention = operators.loc["vllm::unified_attention_with_output"]
    assert (attention["call_flop"], attention["call_count"]) == (902529024, 24)
    assert str(attention["pipe"]) == "bf16_tensor"


def test_experts_products_are_those_of_the_weights_that_were_seen(decode_step):
    """TraceLens takes the inner width of the layer as its padded outer one: 3072. The weights say 2944."""
    operators = decode_step.frame("operators")
    ours = operators[operators["operator"].eq("triton_kernels::matmul_ogs")].sort_values("call_flop")
    rows = printed("vllm_decode_cuda_graph", "unified_perf_summary.csv")
    theirs = sorted(one[2] for one in rows if "moe_triton_unfused" in one[0] and one[2] == one[2])
    assert ours["call_count"].tolist() == [24, 24]
    assert ours["call_flop"].tolist() == pytest.approx([flop * 2944 / 3072 for flop in theirs], rel=1e-12)
    assert ours["kernel_ns"].sum() > 0.6 * decode_step.frame("kernels")["duration_ns"].sum()
