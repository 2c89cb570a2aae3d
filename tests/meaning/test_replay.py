"""What a replay must know of the real captures: its own error, when to abstain, and and how it distinguishes passes."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import analyzed

from xsp_post.replay.fidelity import LEAST_MARGIN_RATIO, identity_of
from xsp_post.replay.what_if import what_if
from xsp_post.tables.analyses.advice import advise
from xsp_post.tables.analyses.limits import find_limit

# captures with kernels whose launch rows are complete, or all but a few at the edge of the window
COMPLETE = (
    "nsys/transformer_2.7b_a100_nvtx.sqlite", "nsys/transformer_2.7b_a100_no_nvtx.sqlite",
    "nsys/transformer_backward_rtx3070ti.sqlite", "nsys/fsdp_2gpu_h100.sqlite", "nsys/fsdp_2gpu_h100_after.sqlite",
    "nsys/many_copies_a100.sqlite", "nsys/cloverleaf_a100.sqlite", "nsys/nvfuser_h200.sqlite",
    "kineto/resnet50_ddp_a100.pt.trace.json.gz", "kineto/timesformer_h100.pt.trace.json.gz",
    "kineto/bert_small_h100.pt.trace.json.gz", "kineto/switch_transformer.pt.trace.json.gz",
)  # fmt: skip


@pytest.mark.parametrize("name", COMPLETE)
def test_the_recording_replayed_as_it_was_has_its_length(name, captures):
    identity = identity_of(analyzed(captures / name), 0)
    assert identity.error_ratio <= 0.02
    assert not identity.refusal
    assert identity.replayed_ns != identity.measured_ns or identity.measured_ns < 10_000_000  # simulated, not copied


def test_half_the_launch_rows_are_missing_and_the_interval_says_so(captures):
    results = analyzed(captures / "nsys/t5_offload_2gpu_h100.sqlite")
    row = results.frame("replays").iloc[0]
    assert row["orphan_ratio"] > 0.4
    assert not row["refusal"]
    latency = what_if(results, ["copy=0.5x"]).latency
    assert latency.low_ns < 0.6 * latency.measured_ns  # they follow their stream
    assert latency.high_ns > 0.7 * latency.measured_ns  # they stay where they were


def test_an_unexplained_gap_of_half_a_second_is_not_predicted_over(captures):
    """It precedes the step, which is predicted without it, as the verdict says."""
    results = analyzed(captures / "kineto/sglang_prefill_decode.pt.trace.json.gz")
    latency, row = what_if(results, ["kernel:.=0.5x"]).latency, results.frame("replays").iloc[0]
    assert "misses its length" in row["refusal"] and latency.measured_ns < 0.55 * row["measured_ns"]
    gains = results.frame("experiment").query("question == 'device' and resource == 'kernels'")["gain_ratio"]
    assert latency.change_ratio == pytest.approx(-gains.iloc[0], abs=0.01)


@pytest.mark.parametrize("source", range(3))
def test_each_pass_of_the_transformer_is_predicted_from_another(source, captures):
    results = analyzed(captures / "nsys/transformer_2.7b_a100_no_nvtx.sqlite")
    identity = identity_of(results, 0)
    measured = identity.recorded["latency_ns"].to_numpy(float)
    assert len(measured) == 3
    assert np.abs(measured - 841.3e6).max() < 1e6
    predicted = float(identity.simulated["latency_ns"].to_numpy()[source])
    margin = max(identity.error_ratio, LEAST_MARGIN_RATIO)
    others = np.delete(measured, source)
    assert (np.abs(others / predicted - 1) <= margin).all()
    assert (np.abs(others / predicted - 1) < 0.002).all()


def test_faster_sgemms_make_the_transformer_faster_by_their_share(captures):
    results = analyzed(captures / "nsys/transformer_2.7b_a100_no_nvtx.sqlite")
    prediction = what_if(results, ["kernel:^ampere_sgemm=0.125x"])
    # 91 % of kernel time; the rest stays
    assert prediction.latency.change_ratio == pytest.approx(-0.91 * 0.875, abs=0.01)
    assert prediction.limit == "kernels"
    assert what_if(results, ["launch=graph"]).latency.change_ratio == pytest.approx(0, abs=0.01)  # no launch limits it


def test_ranks_wait_for_one_another(captures):
    results = analyzed(captures / "nsys/fsdp_2gpu_h100.sqlite")
    slower = what_if(results, ["comm=3x"])
    assert slower.latency.predicted_ns > slower.latency.measured_ns
    faster = what_if(results, ["kernel:(?i)flash=0.5x"])
    assert faster.latency.predicted_ns < faster.latency.measured_ns


@pytest.mark.parametrize("name", ["switch_transformer", "vllm_eager_b200", "bert_small_h100"])
def test_no_prediction_saves_more_than_the_advice_says_at_most(name, captures):
    """The change itself is part of its ideal."""
    results = analyzed(captures / f"kineto/{name}.pt.trace.json.gz")
    advice = [one for one in advise(results, find_limit(results)) if one.bound_source == "replay" and one.change]
    assert advice
    for one in advice:
        span = what_if(results, [one.change]).elapsed
        assert span.measured_ns == find_limit(results).window_ns  # one execution: the same time is spoken of
        assert span.measured_ns - span.predicted_ns <= 1.001 * one.bound_ns
        assert one.estimate_ns <= one.bound_ns


@pytest.mark.guard
@pytest.mark.parametrize(
    ("name", "codes", "torch"),
    [
        ("nsys/fsdp_2gpu_h100.sqlite",
         ["fuse-elementwise", "remove-synchronization", "late-rank", "cuda-graphs", "overlap-collectives"],
         True),  # kernels limit; the host waits 33 times in copies, and launches late after them
        # 1,312 times cudaDeviceSynchronize, mostly after kernels of a few µs; between two steps it writes to a file
        ("nsys/cloverleaf_a100.sqlite",
         ["remove-synchronization", "overlap-copies", "host-blocked", "launch-shape"], False),
        ("nsys/transformer_2.7b_a100_nvtx.sqlite",
         ["tensor-cores", "fuse-attention", "fuse-elementwise", "copy-once"], True),
        ("kineto/timesformer_h100.pt.trace.json.gz",
         ["fuse-attention", "fuse-elementwise", "overlap-copies", "prepare-ahead"], True),
    ],
)  # fmt: skip
def test_advice_promises_no_more_than_what_it_names_holds(name, codes, torch, captures):
    results = analyzed(captures / name)
    limit = find_limit(results)
    advice = {one.code: one for one in advise(results, limit)}
    assert list(advice) == codes
    said = " ".join(one.what for one in advice.values())
    assert torch or "torch" not in said  # a program in C++ is told CUDA's names
    assert "gradients" not in said  # no capture here sums over ranks: fsdp_2gpu_h100 sends and receives
    assert " 0 ns" not in " ".join(one.evidence for one in advice.values())
    copies = advice.get("overlap-copies")
    if copies is not None:
        waited = results.frame("idle_causes").query(f"cause == 'copy_call' and scope == '{limit.scope}'")["idle_ns"]
        assert copies.bound_ns <= limit.window["copy_busy_ns"] + waited.sum()
        assert ("pinned" in copies.what) == (name != "nsys/fsdp_2gpu_h100.sqlite")  # there they stay on the device
    if "timesformer" in name:  # 12 layers, each with attention over space and over time
        assert advice["fuse-attention"].evidence.startswith("24 times softmax")
        assert advice["fuse-attention"].estimate_ns == -1  # products write no scores then, how much less is not known
        assert 120e6 < advice["fuse-attention"].bound_ns < 130e6 and advice["fuse-attention"].bound_source == "replay"


def test_a_graph_does_not_spare_the_loading_of_code(captures):
    results = analyzed(captures / "kineto/switch_transformer.pt.trace.json.gz")
    prediction = what_if(results, ["launch=graph"])
    saved = prediction.latency.measured_ns - prediction.latency.predicted_ns
    assert 5e6 < saved < 16e6  # 128 ms of first launches, 349 ms before the first device work stay
    # 19 without the three that stand alone between two calls that are no launches: no graph holds one launch
    assert prediction.effects[0].left_out.startswith("16 first launches")
