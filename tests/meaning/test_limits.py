"""What limits each real capture, as its owner would say it, and the parts of the time behind that."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import analyzed, summarized

from xsp_post.agents import answers
from xsp_post.reports.cases import captures_of, main_case
from xsp_post.reports.verdict import coverage_note, details_of, sentence_of, verdict, verdict_data, verdict_line
from xsp_post.reports.where import places
from xsp_post.reports.why import why
from xsp_post.tables.analyses.advice import advise
from xsp_post.tables.analyses.fleet import summary_row
from xsp_post.tables.analyses.limits import find_limit, largest_causes, lead_in

MS = 1_000_000


def limit_of(captures: Path, name: str):
    path = captures / name
    if not path.exists():
        pytest.skip(f"{name} is not among the captures at hand")
    results = summarized(path)
    return results, find_limit(results)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("nsys/transformer_2.7b_a100_nvtx.sqlite", {"kernel"}),
        ("nsys/transformer_2.7b_a100_no_nvtx.sqlite", {"kernel"}),
        ("nsys/fsdp_2gpu_h100.sqlite", {"kernel"}),
        ("nsys/fsdp_2gpu_h100_after.sqlite", {"kernel"}),
        ("nsys/t5_offload_2gpu_h100.sqlite", {"copy"}),
        ("nsys/many_copies_a100.sqlite", {"host"}),
        ("nsys/cloverleaf_a100.sqlite", {"kernel"}),
        ("kineto/resnet50_ddp_a100.pt.trace.json.gz", {"kernel", "compute", "memory"}),
        ("kineto/bert_small_h100.pt.trace.json.gz", {"host"}),
        ("kineto/timesformer_h100.pt.trace.json.gz", {"kernel", "compute", "memory"}),
        ("kineto/qwen_h100.pt.trace.json.gz", {"balanced"}),
        ("kineto/switch_transformer.pt.trace.json.gz", {"host"}),
        ("kineto/sglang_prefill_decode.pt.trace.json.gz", {"kernel", "compute", "memory"}),
        ("kineto/vllm_decode_cuda_graph.pt.trace.json.gz", {"kernel", "memory"}),
        ("kineto/vllm_decode_cuda_graph.capture.pt.trace.json.gz", {"unknown"}),
        ("nsys/no_kernels_2023.4.sqlite", {"unknown"}),
        ("nsys/no_cuda_2021.3.sqlite", {"unknown"}),
        ("nsys/no_cuda_non_utf8_2025.6.sqlite", {"unknown"}),
        ("nsys/tensorrt_nvtx_only_titanrtx.sqlite", {"unknown"}),
        ("nsys/nvtx_only_titanrtx.sqlite", {"unknown"}),
    ],
)
def test_what_limits_it(captures, name, kinds):
    results, limit = limit_of(captures, name)
    assert limit.kind in kinds
    causes, windows = results.frame("idle_causes"), results.frame("device_windows")
    assert causes["idle_ns"].sum() == windows["idle_ns"].sum()
    assert sum(time for _, time in limit.groups) + limit.unknown_ns == limit.window_ns


@pytest.mark.parametrize("name", [
    "nsys/no_metadata_2021.2.sqlite", "nsys/no_kernels_2023.4.sqlite", "nsys/t5_offload_2gpu_h100.sqlite",
    "nsys/transformer_2.7b_a100_nvtx.sqlite", "kineto/bert_small_h100.pt.trace.json.gz",
    "kineto/timesformer_h100.pt.trace.json.gz", "kineto/vllm_decode_cuda_graph.pt.trace.json.gz",
])  # fmt: skip
def test_every_surface_says_the_same_verdict(captures, name):
    """The printed tree, `why`, JSON, assistants, the page and the table of a batch."""
    summary, whole = summarized(captures / name), analyzed(captures / name)
    said = why(whole)
    words = {(one["word"], one["sentence"]) for one in (verdict_data(summary), verdict_data(whole), said.verdict)}
    on_page = verdict(whole, find_limit(whole, captures_of(whole, main_case(whole))))
    answered = answers.summary(whole)["verdict"]
    words |= {(on_page["word"], on_page["sentence"]), (answered["word"], answered["sentence"])}
    assert len(words) == 1
    assert verdict_line(summary).plain == "Verdict  {}. {}".format(*words.pop())
    assert verdict_line(whole).plain == verdict_line(summary).plain
    assert summary_row(whole)["limit"] == said.limit.kind == on_page["kind"]


@pytest.mark.parametrize(
    ("name", "busy_ms", "span_ms", "lead_in_ms"),
    [
        ("timesformer_h100", 158.4, 160.0, 218),
        ("bert_small_h100", 0.31, 3.91, 0.46),
        ("switch_transformer", 62.9, 243.7, 349),
        ("vllm_decode_cuda_graph", 10.72, 10.74, 8.4),
    ],
)
def test_host_time_before_and_after_all_device_work_is_told_apart(captures, name, busy_ms, span_ms, lead_in_ms):
    """One execution alone: the device's span counts, not what the host did before it was used at all."""
    results, limit = limit_of(captures, f"kineto/{name}.pt.trace.json.gz")
    assert limit.scope == "execution"
    assert limit.busy_ns == pytest.approx(busy_ms * MS, rel=0.01)
    assert limit.window_ns == pytest.approx(span_ms * MS, rel=0.005)
    before, cause = lead_in(results, limit)
    assert before == pytest.approx(lead_in_ms * MS, rel=0.02)
    assert cause is not None and 0 < cause.idle_ns <= before


def test_a_graph_that_is_recorded_gets_no_advice(captures):
    """421 launches between hipStreamBeginCapture and hipStreamEndCapture: nothing limits what did not run."""
    results, limit = limit_of(captures, "kineto/vllm_decode_cuda_graph.capture.pt.trace.json.gz")
    assert "421 launches" in sentence_of(results, limit)
    assert advise(results, limit) == []


@pytest.mark.parametrize("name", ["transformer_2.7b_a100_nvtx", "transformer_2.7b_a100_no_nvtx"])
def test_transformer_is_simt_single_precision(captures, name):
    results, limit = limit_of(captures, f"nsys/{name}.sqlite")
    assert results.frame("captures")["gpu_name"].tolist() == ["NVIDIA A100-SXM4-80GB"]
    assert limit.window["simt_matrix_ns"] == limit.window["matrix_ns"]  # no product on tensor cores
    kernel = limit.window["kernel_ns"]
    assert limit.window["top_kernel"] == "ampere_sgemm_128x64_tn"
    assert limit.window["simt_matrix_ns"] / kernel == pytest.approx(0.91, abs=0.01)
    assert limit.window["top_kernel_ns"] / kernel == pytest.approx(0.88, abs=0.01)


@pytest.mark.parametrize("name", ["fsdp_2gpu_h100", "fsdp_2gpu_h100_after"])
def test_both_ranks_compute(captures, name):
    """Kernels that are no communication take most of each GPU's time, and products most of theirs."""
    results, _ = limit_of(captures, f"nsys/{name}.sqlite")
    windows = results.frame("device_windows")
    assert len(windows) == 2
    assert (windows["kernel_busy_ns"] > 0.75 * windows["window_ns"]).all()
    assert (windows["matrix_ns"] > 0.55 * windows["kernel_ns"]).all()


def test_resnet_is_busy_from_the_first_to_the_last_operation(captures):
    _, limit = limit_of(captures, "kineto/resnet50_ddp_a100.pt.trace.json.gz")
    assert limit.busy_ns / limit.window_ns == pytest.approx(0.984, abs=0.0005)
    assert dict(limit.groups)["launch"] < 0.02 * limit.window_ns


def test_many_copies_is_waiting_and_copies(captures):
    _, limit = limit_of(captures, "nsys/many_copies_a100.sqlite")
    assert [group for group, _ in limit.groups[:2]] == ["host", "copy"]
    assert limit.window["copy_busy_ns"] == pytest.approx(125 * MS, rel=0.01)
    assert limit.window["kernel_busy_ns"] == pytest.approx(9.0 * MS, rel=0.01)
    assert limit.window_ns == pytest.approx(585.2 * MS, rel=0.001)


def test_the_idle_of_switch_transformer_is_explained(captures):
    results, limit = limit_of(captures, "kineto/switch_transformer.pt.trace.json.gz")
    assert limit.busy_ns == pytest.approx(62.9 * MS, rel=0.01)
    first = largest_causes(results, limit)[0]
    assert (first.cause, first.call_name) == ("first_launch", "cudaLaunchKernel")
    assert first.idle_ns > 120 * MS
    assert limit.unknown_ns < 0.05 * limit.window_ns


def test_t5_is_copies_host_to_device(captures):
    _, limit = limit_of(captures, "nsys/t5_offload_2gpu_h100.sqlite")
    assert limit.device_count == 2
    assert limit.busy_ns / 2 == pytest.approx(962.9 * MS, rel=0.001)
    assert limit.window_ns / 2 == pytest.approx(969.4 * MS, rel=0.001)


def test_the_gap_of_sglang_waited_for_what_was_not_recorded(captures):
    results, limit = limit_of(captures, "kineto/sglang_prefill_decode.pt.trace.json.gz")
    causes = results.frame("idle_causes")
    top = causes.sort_values("idle_ns").iloc[-1]
    assert (top["cause"], top["longest_ns"]) == ("not_recorded", pytest.approx(493.2 * MS, rel=0.001))
    assert top["scope"] == "outside" and limit.scope == "execution"
    assert limit.kind == "kernel"
    assert limit.busy_ns > 0.99 * limit.window_ns  # inside the step


@pytest.mark.parametrize("name", ["bert_small_h100", "resnet50_ddp_a100", "timesformer_h100", "switch_transformer"])
def test_with_all_launch_rows_hardly_anything_is_unknown(captures, name):
    results, _ = limit_of(captures, f"kineto/{name}.pt.trace.json.gz")
    causes = results.frame("idle_causes")
    unknown = causes.loc[causes["cause"].astype(str).eq("unknown"), "idle_ns"].sum()
    assert unknown <= 0.05 * causes["idle_ns"].sum()


@pytest.mark.parametrize("name", ["kineto/qwen_h100.pt.trace.json.gz", "kineto/switch_transformer.pt.trace.json.gz"])
def test_the_tree_says_of_the_limit_what_the_whole_analysis_says(captures, name):
    results, limit = limit_of(captures, name)
    whole = analyzed(captures / name)
    assert sentence_of(results, limit) == sentence_of(whole, find_limit(whole))


def test_a_gpu_of_known_peaks_is_not_called_unknown(captures):
    said = " ".join(details_of(*limit_of(captures, "kineto/qwen_h100.pt.trace.json.gz")))
    assert "known for 69.9 % of the time of the kernels only, too little to tell" in said and "peaks" not in said


def test_copies_of_weights_cannot_hide_behind_what_is_shorter(captures):
    """t5, each of two GPUs: 921 ms of copies from pinned memory, and beside them 19.6 ms of copies inside the device,
    22.4 ms of kernels and 6.5 ms of waiting."""
    results = analyzed(captures / "nsys/t5_offload_2gpu_h100.sqlite")
    first, second = advise(results, find_limit(results))[:2]
    assert (first.code, second.code) == ("copy-less", "overlap-copies")
    assert first.bound_ns == pytest.approx(940.4 * MS, rel=0.01)
    assert second.bound_ns == pytest.approx((19.6 + 22.4 + 6.5) * MS, rel=0.01)
    assert "pinned already" in second.what and "pin_memory" not in second.what


def test_a_host_that_streams_wait_for_in_turn_is_no_contradiction_to_little_idle_time(captures):
    """mtia: some stream is at work 94 % of the time, none of them a fifth; no half saves more than a half."""
    results, limit = limit_of(captures, "kineto/mtia_inference.pt.trace.json.gz")
    assert limit.limits == ("host",) and limit.gain("host") <= 0.5 and limit.busy_ns > 0.9 * limit.window_ns
    assert "all of them rest in only 6.1 % of the time" in coverage_note(results, limit)
    found = results.found().set_index("code")
    assert found.loc["gain-beyond-half", "example"].startswith("host 64.5 %")
    results, limit = limit_of(captures, "kineto/bert_small_h100.pt.trace.json.gz")  # idle, and the host is the reason
    assert limit.limits[0] in ("host", "launches") and "wait for the host" not in coverage_note(results, limit)
    assert "gain-beyond-half" not in set(results.found()["code"])


def test_a_place_is_what_ran_and_not_a_part_that_was_inferred(captures):
    """A fuser compiles inside `delta_r2`, before the first block; what is before the blocks is a guess."""
    results = analyzed(captures / "kineto/part_batch16.pt.trace.json.gz")
    first = places(results, find_limit(results))[0]
    assert first.name == "delta_r2" and first.is_most
