"""What one model execution is in each real capture, as its owner would say (MEANING.md, column "model executions")."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import core_tables
from recorded import tree_of

from xsp_post.hierarchy import build_tree
from xsp_post.model.options import Options
from xsp_post.model.trace import ActivityKind


@pytest.fixture
def tree(captures):
    """A function: the tree of a capture by its path below the folder of captures."""
    return lambda name: tree_of(captures / name)


def first_kernels_ms(tree):
    """When the first kernel of each execution started, ms."""
    work = tree.activities
    kernels = work[(work["kind"] == ActivityKind.KERNEL) & (work["iteration_index"] >= 0)]
    return kernels.groupby("iteration_index")["start_ns"].min().to_numpy() / 1e6


def codes(tree):
    return {finding.code for finding in tree.findings}


@pytest.mark.parametrize(
    ("name", "apart_ms", "coverage"),
    [
        ("nsys/transformer_2.7b_a100_nvtx.sqlite", [1413.5, 841.4, 841.0], 0.519),
        ("nsys/transformer_2.7b_a100_no_nvtx.sqlite", [1405.2, 841.5, 841.1], 0.432),
    ],
)
def test_four_passes_with_and_without_ranges(tree, name, apart_ms, coverage):
    found = tree(name)
    executions = found.iterations
    assert executions["kernel_count"].tolist() == [1832] * 4
    assert executions["is_warmup"].tolist() == [True, False, False, False]
    assert np.diff(first_kernels_ms(found)).round(1).tolist() == apart_ms
    assert executions["phase"].nunique() == 1 and executions["kind"].nunique() == 1
    candidates = found.execution_candidates
    chosen = candidates[candidates["is_chosen"].to_numpy(bool)]
    assert chosen["rule"].tolist() == ["period of the launch sequence"]
    assert chosen["coverage_ratio"].iloc[0] == pytest.approx(coverage, abs=0.001)
    # the copies before the loop take the other half
    work = found.activities
    copies = work[work["kind"] != ActivityKind.KERNEL]
    assert len(copies) == 294 and copies["end_ns"].max() < executions["start_ns"].min()
    assert ("executions-cover-little" in codes(found)) == (coverage < 0.5)
    assert "executions-overlap" not in codes(found)


def test_a_loop_of_three_passes_is_no_execution(tree):
    found = tree("nsys/transformer_2.7b_a100_nvtx.sqlite")
    texts = found.names.folded_names[found.nodes["folded_id"].to_numpy()]
    parents = found.nodes["parent_id"].to_numpy()[found.iterations["node_id"].to_numpy()]
    assert texts[parents].tolist() == ["warmup", "benchmark_loop", "benchmark_loop", "benchmark_loop"]
    loop = found.nodes.iloc[parents[1]]
    assert (loop["kernel_count"], loop["iteration_index"]) == (5496, -1)


def test_training_steps_and_forward_passes_are_two_kinds(tree):
    found = tree("nsys/transformer_backward_rtx3070ti.sqlite")
    executions = found.iterations
    assert executions["kind"].tolist() == ["training step"] * 5 + ["forward"] * 10
    names = found.strings[found.nodes["name_id"].to_numpy()[executions["node_id"]]].tolist()
    assert names == [f"Warm-up Step {k}" for k in range(1, 6)] + ["Forward"] * 10
    # forward and backward; the first step prepares the optimiser too
    assert executions["kernel_count"].tolist()[:5] == [2200, 1978, 1978, 1978, 1978]
    forward = executions[executions["kind"] == "forward"]
    assert forward["kernel_count"].tolist() == [692] * 10 and not forward["is_warmup"].any()
    # no step is the warm-up of a pass; the first one, three times as long, is the steps' own
    assert executions["is_warmup"].tolist() == [True] + [False] * 14
    assert "warmup-of-another-kind" in codes(found)
    frames = core_tables(found).frames
    assert frames["iterations"].groupby("kind")["phase"].nunique().tolist() == [1, 1]


def test_asynchronous_steps_have_a_period_beside_their_latency(tree):
    found = tree("kineto/resnet50_ddp_a100.pt.trace.json.gz")
    executions = found.iterations
    assert found.execution_candidates["name"].tolist() == ["ProfilerStep", "training step"]  # of equals the marker
    assert found.execution_candidates["is_chosen"].tolist() == [True, False]
    assert found.execution_candidates["execution_count"].tolist() == [5, 5]
    assert executions["kind"].tolist() == ["training step"] * 5
    period = executions["period_ns"].to_numpy() / 1e6
    assert period[:4].round(1).tolist() == [35.2, 72.1, 95.7, 95.6] and np.isnan(period[4])
    assert not executions["is_warmup"].any()
    assert executions["device_ns"].sum() == found.nodes["device_ns"].iloc[0]
    overlap = next(f for f in found.findings if f.code == "executions-overlap")
    assert overlap.count == 4 and "818 ms" in overlap.example and "484 ms" in overlap.example


ONE_CALL = [
    ("kineto/timesformer_h100.pt.trace.json.gz", "step", 446, 158.4, 160.0),
    ("kineto/bert_small_h100.pt.trace.json.gz", "step", 60, 0.31, 3.91),
    ("kineto/switch_transformer.pt.trace.json.gz", "forward", 494, 62.9, 243.7),
    ("kineto/sglang_prefill_decode.pt.trace.json.gz", "prefill", 521, 492.7, 493.5),
    ("kineto/vllm_decode_cuda_graph.pt.trace.json.gz", "decode", 425, 10.72, 10.74),
]


@pytest.mark.parametrize(
    ("name", "kind", "kernels", "busy_ms", "projection_ms"), ONE_CALL, ids=lambda value: str(value)
)
def test_one_execution(tree, name, kind, kernels, busy_ms, projection_ms):
    found = tree(name).iterations
    assert found["kind"].tolist() == [kind]
    assert found["kernel_count"].tolist() == [kernels]
    assert not found["is_warmup"].any()
    assert found["busy_ns"].iloc[0] / 1e6 == pytest.approx(busy_ms, abs=0.1)
    assert found["projection_ns"].iloc[0] / 1e6 == pytest.approx(projection_ms, abs=0.1)


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("timesformer_h100", "TimesformerForVideoClassification"),
        ("bert_small_h100", "BertLMHeadModel"),
        ("qwen_h100", "Qwen2Model"),
        ("switch_transformer", "SwitchTransformer"),
    ],
)
def test_the_execution_is_one_call_of_the_root_module(tree, name, root):
    """The step marker around the call is preferred where there is one; the call is in it."""
    found = tree(f"kineto/{name}.pt.trace.json.gz")
    candidates = found.execution_candidates.set_index("rule")
    call = candidates.loc["calls of the whole model"]
    assert (call["name"], call["execution_count"]) == (f"nn.Module: {root}_0", 1)
    has_marker = name != "switch_transformer"
    assert ("step markers" in candidates.index) == has_marker
    assert candidates["is_chosen"].to_numpy(bool).tolist() == [True] + [False] * has_marker
    texts = found.names.folded_names[found.nodes["folded_id"].to_numpy()]
    assert found.nodes["iteration_index"].to_numpy()[texts == f"nn.Module: {root}_0"].tolist() == [0]


def test_qwen_is_one_call_and_kernels_without_a_launch_are_in_none(tree):
    found = tree("kineto/qwen_h100.pt.trace.json.gz")
    assert found.iterations["kernel_count"].tolist() == [1465 - 436]
    assert found.execution_candidates["coverage_ratio"].iloc[0] == pytest.approx(31.9 / 45.65, abs=0.001)
    other = found.execution_candidates.iloc[1]
    assert (other["name"], other["execution_count"]) == ("nn.Module: Qwen2Model_0", 1)


def test_roots_of_one_serving_step_are_one_execution(tree):
    found = tree("kineto/sglang_prefill_decode.pt.trace.json.gz")
    texts = found.names.folded_names[found.nodes["folded_id"].to_numpy()]
    assert texts[found.iterations["node_id"]].tolist() == ["step[EXTEND]"]
    inside = found.nodes["iteration_index"].to_numpy() == 0
    for root in ("Qwen3Model_0", "LogitsProcessor_0"):
        assert inside[texts == f"nn.Module: {root}"].all()
    row = core_tables(found).frames["iterations"].iloc[0]
    assert (row["batch_size"], row["token_count"]) == (15, 15360)
    assert found.execution_candidates["coverage_ratio"].iloc[0] > 0.999


def test_what_ran_outside_the_serving_step(tree):
    """Six kernels: one before the long gap, two before the step; three beside it, of them one of the Sampler.

    The Sampler's range begins after the step's has ended; only the range `execute_…` is around both.
    """
    found = tree("kineto/sglang_prefill_decode.pt.trace.json.gz")
    work = found.activities[found.activities["kind"] == ActivityKind.KERNEL].sort_values("start_ns")
    inside = work["iteration_index"].to_numpy() == 0
    assert (inside.sum(), (~inside).sum()) == (521, 6)
    gaps_ms = (work["start_ns"].to_numpy()[1:] - work["end_ns"].to_numpy()[:-1]) / 1e6
    assert gaps_ms[0] == gaps_ms.max() == pytest.approx(493.3, abs=0.05)
    assert np.flatnonzero(~inside)[:3].tolist() == [0, 1, 2]
    nodes = found.nodes
    texts = found.names.folded_names[nodes["folded_id"].to_numpy()]
    step, sampler = (nodes[texts == name].iloc[0] for name in ("step[EXTEND]", "nn.Module: Sampler_0"))
    assert step["end_ns"] < sampler["start_ns"] and step["parent_id"] == sampler["parent_id"]
    assert (sampler["iteration_index"], sampler["kernel_count"], sampler["device_ns"]) == (-1, 1, 74_350)


def test_a_graph_replays_all_but_four_kernels_of_the_decode_step(tree):
    found = tree("kineto/vllm_decode_cuda_graph.pt.trace.json.gz")
    marker = found.strings[found.nodes["name_id"].to_numpy()[found.iterations["node_id"]]].tolist()
    assert marker == ["execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"]
    calls = found.trace.launches["name_id"].to_numpy()[found.kernels["launch_id"].to_numpy()]
    assert (found.trace.strings[calls] == "hipGraphLaunch").sum() == 421


def test_a_decode_step_says_its_batch_size(tree):
    row = core_tables(tree("kineto/vllm_decode_cuda_graph.pt.trace.json.gz")).frames["iterations"].iloc[0]
    assert (row["kind"], row["batch_size"], row["token_count"]) == ("decode", 32, 32)


@pytest.mark.parametrize(
    ("name", "turns", "transformer"),
    [
        ("nsys/nvtx_only_titanrtx.sqlite", 304, "transformer_forward"),
        ("nsys/tensorrt_nvtx_only_titanrtx.sqlite", 134, "poolformer_forward"),
    ],
)
def test_sibling_stages_repeat_once_per_frame(tree, name, turns, transformer):
    stages = ["reader", "3D_backbone", "find_centers", transformer, "bbox_head", "post_processing"]
    found = tree(name)
    executions = found.iterations
    assert not len(found.activities)  # host ranges only
    assert len(executions) == turns
    assert found.execution_candidates["rule"].iloc[0] == "cycle of ranges"
    nodes = found.nodes
    member = nodes["parent_id"].isin(executions["node_id"]).to_numpy()
    texts = pd.Series(found.names.folded_names[nodes["folded_id"].to_numpy()[member]].astype(str))
    frames = texts.groupby(nodes["parent_id"].to_numpy()[member]).agg(list)
    # the recording may end within a frame
    assert all(frame == stages for frame in frames[:-1]) and frames.iloc[-1] == stages[: len(frames.iloc[-1])]


def test_cloverleaf_repeats_every_125_launches(tree):
    found = tree("nsys/cloverleaf_a100.sqlite")
    executions = found.iterations
    assert len(executions) == 10 and executions["kernel_count"].eq(125).all()
    # every other step differs a little: the sequence of names and grids repeats better over two of them
    kernels = found.kernels.sort_values("start_ns")
    key = kernels.groupby(["name_id", "grid_x", "grid_y", "grid_z"]).ngroup().to_numpy()
    of_steps = key[kernels["iteration_index"].to_numpy() >= 0]

    def equal_ratio(sequence, lag):
        return round(float((sequence[lag:] == sequence[:-lag]).mean()), 3)

    assert [equal_ratio(key, lag) for lag in (125, 250)] == [0.785, 0.946]
    assert [equal_ratio(of_steps, lag) for lag in (125, 250)] == [0.824, 1.0]


@pytest.mark.parametrize(
    "name",
    [
        "nsys/fsdp_2gpu_h100.sqlite",
        "nsys/fsdp_2gpu_h100_after.sqlite",
        "nsys/t5_offload_2gpu_h100.sqlite",
        "nsys/many_copies_a100.sqlite",
        "nsys/three_kernels_t4_2023.1.sqlite",
    ],
)
def test_where_no_whole_execution_is_none_is_claimed(tree, name):
    found = tree(name)
    assert len(found.iterations) == 0 and not found.execution_candidates["is_chosen"].any()
    assert found.execution_evidence.startswith("model executions: no repeating step found; no marker")


@pytest.mark.parametrize("name", ["no_kernels_2023.4", "no_cuda_2021.3", "no_cuda_non_utf8_2025.6"])
def test_nothing_recorded_says_nothing_of_executions(tree, name):
    found = tree(f"nsys/{name}.sqlite")
    assert found.execution_evidence == found.layer_evidence == ""
    assert not len(found.iterations) and not len(found.activities) and len(found.nodes) == 1
    cause = next(one.cause for one in found.findings if one.code == "no-kernels")
    assert cause.startswith("CUDA was not traced, the program used no GPU")


def test_a_step_marker_around_root_calls_can_be_replaced_by_the_option_that_is_named(tree):
    found = tree("kineto/sglang_prefill_decode.pt.trace.json.gz")
    again = build_tree(found.trace, Options(executions="root"))
    texts = again.names.folded_names[again.nodes["folded_id"].to_numpy()]
    assert texts[again.iterations["node_id"]].tolist() == ["nn.Module: Qwen3Model_0"]
    assert again.execution_candidates["rule"].tolist() == ["calls of the whole model", "step markers"]
