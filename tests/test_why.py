"""`xsp-post why`: the verdict from evidence, the causes with their owners, what to do next."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from builders import ExportBuilder
from programs import Op, run_steps
from rich.console import Console
from typer.testing import CliRunner

from xsp_post.cli import app
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis
from xsp_post.pipeline import analyze, results_of
from xsp_post.replay.experiment import Gain
from xsp_post.reports import why as reporting
from xsp_post.reports.terminal_text import say
from xsp_post.reports.verdict import coverage_note, details_of, main_limit, sentence_of
from xsp_post.reports.why import evidence_of, print_why, why
from xsp_post.tables.analyses.advice import Advice, advise, why_none
from xsp_post.tables.analyses.advice_host import _pieces
from xsp_post.tables.analyses.limits import GRAPH_RECORDED, REFUSED, Limit, find_limit, groups_of

US = 1_000
RUNNER = CliRunner()


def program(path, *, host=0, work=100, count=20, sync=0, name="gemm", copy=0):
    """Equal steps: host code, a synchronisation, a launch, a kernel, a copy; times in µs."""
    builder = ExportBuilder().process(100).thread(100).gpu()
    at = 0
    for k in range(4):
        begin = at
        for _ in range(count):
            if host:
                builder.range("load weights", at * US, (at + host) * US)
            at += host
            if sync:
                builder.sync("cudaStreamSynchronize_v3020", at * US, (at + sync) * US)
            at += sync
            launch, run = (at * US, (at + 2) * US), ((at + 3) * US, (at + 3 + work) * US)
            builder.kernel(name, launch=launch, run=run, grid=(1080, 1, 1))
            at += 3 + work
            if copy:
                builder.memcpy(64, launch=((at - 3) * US, (at - 1) * US), run=((at) * US, (at + copy) * US))
                at += copy
        builder.range(f"model#{k}", begin * US, at * US, domain="xsp")
        at += 10
    return builder.write(path / "report.sqlite")


KERNEL, SHORT = Op("kernel", 80 * US, "sgemm"), Op("kernel", 1 * US, "relu")
SYNC, HOST = Op("sync"), Op("host", 80 * US)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ([KERNEL] * 40 + [SYNC], "kernel"),  # and not by its name: compute
        ([Op("kernel", 80 * US, "vectorized_elementwise_kernel")] * 40 + [SYNC], "kernel"),  # nor memory
        ([Op("kernel", 80 * US, "ncclDevKernel_AllReduce")] * 40 + [SYNC], "communication"),
        ([HOST, SHORT] * 40 + [SYNC], "host"),
        ([Op("copy", 400 * US), SHORT] * 10 + [SYNC], "copy"),
        ([SHORT] * 200 + [SYNC], "launch"),
        ([HOST, KERNEL, SYNC] * 20, "mixed"),  # one after the other
        ([Op("host", 77 * US), KERNEL] * 40 + [SYNC], "balanced"),  # side by side
    ],
)
def test_the_limit_is_what_the_program_was_made_to_do(tmp_path, step, kind):
    run_steps(step, 4, tmp_path / "report.sqlite")
    assert find_limit(analyze([tmp_path / "report.sqlite"], Options(model_range="^step"))).kind == kind


@pytest.mark.parametrize(("program_is", "kind"), [({"host": 300}, "host"), ({"sync": 300}, "synchronization")])
def test_the_limit_is_what_the_program_was_made_to_wait_for(tmp_path, program_is, kind):
    assert find_limit(analyze([program(tmp_path, **program_is)])).kind == kind


def test_a_loop_that_loads_weights_is_not_called_launch_bound(tmp_path):
    path = program(tmp_path, host=300, work=40)
    said = RUNNER.invoke(app, ["why", str(path)])
    assert said.exit_code == 0
    assert "host-bound" in said.stdout and "load weights" in said.stdout and "launch-bound" not in said.stdout
    document = json.loads(RUNNER.invoke(app, ["why", str(path), "--json"]).stdout)
    data = document["data"]
    assert data["verdict"]["kind"] == "host"
    assert (data["causes"][0]["cause"], data["causes"][0]["owner"]) == ("host_code", "load weights")
    # the first load precedes all device work: it is the lead-in
    assert data["causes"][0]["idle_ns"] == (4 * 20 - 1) * 300 * US
    assert data["advice"][0]["code"] == "host-code"


def test_the_same_verdict_everywhere(tmp_path):
    path = program(tmp_path, sync=300)
    store = tmp_path / "s.xsp.sqlite"
    ingested = RUNNER.invoke(app, ["ingest", str(path), "-o", str(store)])
    assert ingested.exit_code == 0, ingested.output
    assert ingested.stdout.startswith("Verdict  synchronisation-bound")
    assert RUNNER.invoke(app, ["tree", str(path)]).stdout.startswith("Verdict  synchronisation-bound")
    from_store = json.loads(RUNNER.invoke(app, ["why", str(store), "--json"]).stdout)
    from_capture = json.loads(RUNNER.invoke(app, ["why", str(path), "--json"]).stdout)
    assert from_store["data"] == from_capture["data"]
    assert any(one["bound_source"] == "replay" for one in from_store["data"]["advice"])


def test_only_what_is_said_is_made(tmp_path):
    path = program(tmp_path, sync=300)
    results, everything = results_of([path]), analyze([path])
    said = why(results)
    assert said == why(everything)
    assert said.advice and said.critical_path
    # rows of ranges and analyses are for those who ask for them
    assert {"kernels", "critical_path", "idle_causes"} <= results.made()
    assert not {"nodes", "idle", "cases", "a08", "a15", "memory"} & results.made()
    pd.testing.assert_frame_equal(results.frame("a15"), everything.frame("a15"))
    pd.testing.assert_frame_equal(results.frame("nodes"), everything.frame("nodes"))


def test_a_first_screen_makes_less(tmp_path):
    path = program(tmp_path, sync=300)
    results, everything = results_of([path]), results_of([path])
    first, said = why(results, is_first=True), why(everything)
    shown = ("limit", "advice", "latency", "lead_in", "no_advice", "steps", "where", "next_capture")
    assert [getattr(first, name) for name in shown] == [getattr(said, name) for name in shown]
    assert first.verdict == said.verdict | {"details": []}
    assert first.advice and "critical_path" in everything.made() - results.made()


def test_a_screen_without_details_is_that_part_of_all(tmp_path):
    path = program(tmp_path, sync=300)
    results, everything = results_of([path]), results_of([path])
    printed = [io.StringIO(), io.StringIO()]
    for text, said in zip(printed, (why(results, is_brief=True), why(everything))):
        print_why(Console(file=text, width=100), said)
    assert printed[0].getvalue() == printed[1].getvalue() != ""
    assert "critical_path" in everything.made() - results.made()


def unreplayed(path):
    """Results without what a replay needs: bounds of advice are the time that a change concerns."""
    frames = analyze([path]).frames
    return Analysis({name: frame for name, frame in frames.items() if name != "dependencies"})


def test_advice_has_an_upper_bound_and_leaves_out_what_is_small(tmp_path):
    results = unreplayed(program(tmp_path, work=900, name="ampere_sgemm_128x64_tn"))
    advice = advise(results, find_limit(results))
    assert [one.code for one in advice] == ["tensor-cores"]
    assert 0.9 < advice[0].bound_ratio < 0.95  # BF16 is sixteen times FP32 on an A100


def test_tensor_cores_are_named_by_what_the_gpu_has(tmp_path):
    results = unreplayed(program(tmp_path, work=900, name="volta_sgemm_64x64_nt"))
    limit = replace(find_limit(results), gpu_name="Tesla V100-SXM2-32GB")
    advice = advise(results, limit)[0]
    assert "FP16" in advice.what and "BF16" not in advice.what + advice.assumption
    assert "(heaviest: volta_sgemm_64x64_nt)" in advice.evidence
    other = replace(limit, window={**limit.window, "top_kernel": "vectorized_elementwise_kernel"})
    assert "heaviest" not in advise(results, other)[0].evidence


@pytest.mark.parametrize(("small_us", "is_said"), [(3, False), (900, True)])
def test_a_program_of_16_bits_is_not_told_to_use_them(small_us, is_said, tmp_path):
    """One small product of 32 bits (of an embedding of positions) in each step; the others run on tensor cores."""
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for _ in range(30):
        for name, each in (("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", 500), ("volta_sgemm_64x64_nt", small_us),
                           ("vectorized_elementwise_kernel", 600)):  # fmt: skip
            builder.kernel(name, launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 3 + each) * US),
                           grid=(1080, 1, 1))  # fmt: skip
            at += each + 4
    results = unreplayed(builder.write(tmp_path / "report.sqlite"))
    advice = advise(results, replace(find_limit(results), gpu_name="Tesla V100-SXM2-32GB"))
    assert ("tensor-cores" in {one.code for one in advice}) == is_said


def test_why_nothing_is_advised_is_said(tmp_path):
    said = RUNNER.invoke(app, ["why", str(program(tmp_path, work=9_000, name="k"))]).stdout
    assert "No known change would save 1 % or more." in " ".join(said.split())
    graph = replace(find_limit(analyze([tmp_path / "report.sqlite"])), reason=GRAPH_RECORDED)
    assert "a CUDA graph was recorded" in why_none(analyze([tmp_path / "report.sqlite"]), graph)


def test_what_is_too_little_for_a_verdict_says_how_busy_the_device_was(tmp_path):
    """Twelve kernels end to end: nothing repeats, but nobody waits either."""
    builder = ExportBuilder().process(100).thread(100).gpu()
    for k in range(12):
        builder.kernel("gemm", launch=(3 * k * US, (3 * k + 2) * US), run=((9 + 50 * k) * US, (59 + 50 * k) * US))
    said = why(analyze([builder.write(tmp_path / "report.sqlite")]), is_first=True)
    assert said.verdict["sentence"].endswith("12 device operations, busy 100.0 % of 600 µs.")


def test_captures_that_have_nothing_in_common_have_a_verdict_each(tmp_path):
    paths = []
    for name, what in (("one", {"host": 300}), ("two", {"sync": 300})):
        (tmp_path / name).mkdir()
        paths.append(program(tmp_path / name, **what).rename(tmp_path / f"{name}.sqlite"))
    lines = RUNNER.invoke(app, ["tree", *map(str, paths)], env={"COLUMNS": "400"}).stdout.splitlines()
    assert lines[0].startswith("Verdict on one.sqlite  host-bound. Halving the time of host code")
    assert lines[1].startswith("Verdict on two.sqlite  synchronisation-bound. Halving the time of synchronisation")
    said = json.loads(RUNNER.invoke(app, ["why", *map(str, paths), "--json"]).stdout)["data"]
    assert said["capture"] in ("one.sqlite", "two.sqlite") and said["verdict"]["device_count"] == 1


def test_no_device_work_is_said(tmp_path):
    path = ExportBuilder().process(100).range("a", 0, 10).write(tmp_path / "report.sqlite")
    said = RUNNER.invoke(app, ["why", str(path)])
    assert said.exit_code == 0 and "no device work was recorded" in said.stdout


def test_a_pattern_that_matches_no_layer_is_said(tmp_path):
    path = program(tmp_path, host=300)
    assert RUNNER.invoke(app, ["why", str(path), "--layer", "("]).exit_code != 0
    assert RUNNER.invoke(app, ["why", str(path), "--layer", "nothing"]).exit_code != 0


def test_no_sentence_is_printed_twice():
    """Of limits that overlap the first screen says how busy the device was, and so does the evidence."""
    path = Path(__file__).parent.parent / "examples/resnet50_generated.sqlite"
    lines = RUNNER.invoke(app, ["why", str(path), "--verbose"]).stdout.splitlines()
    assert sum("The GPU was busy" in line for line in lines) == 1 and len(lines) > 20


def test_a_kernel_beside_graphs_that_hide_theirs_is_not_what_the_time_went_to(tmp_path):
    builder = ExportBuilder().kernel("warm", launch=(0, 4 * US), run=(10 * US, 88 * US))
    for k in range(10):
        at = 100 * US + k * 1_000 * US
        builder.graph_launch(launch=(at, at + 5 * US), run=(at + 6 * US, at + 900 * US))
    path = tmp_path / "graphs.sqlite"
    builder.write(path)
    said = " ".join(RUNNER.invoke(app, ["why", str(path), "--verbose"]).stdout.split())
    assert "The kernels inside CUDA graphs were not recorded" in said
    assert "of the kernel time is in" not in said


@pytest.mark.parametrize("other_us", [300, 700])
def test_the_direction_of_most_copies_is_said(tmp_path, other_us):
    builder = ExportBuilder()
    for k in range(60):
        call, at, other = 8 * k * US, k * 1_201 * US + 600 * US, k * 1_201 * US + 1_100 * US  # the queue is full
        builder.memcpy(1 << 20, launch=(call, call + 3 * US), run=(at, at + 500 * US), srcKind=1, dstKind=2)
        builder.memcpy(1 << 20, launch=(call + 4 * US, call + 7 * US), run=(other, other + other_us * US), kind="DtoH",
                       srcKind=2, dstKind=0)  # fmt: skip
    path = tmp_path / "copies.sqlite"
    builder.write(path)
    said = " ".join(RUNNER.invoke(app, ["why", str(path)]).stdout.split())
    most = "30.0 ms of that time host→device, pinned"
    most = most if other_us == 300 else "42.0 ms of that time device→host, pageable"
    assert most in said


def test_no_cuda_graph_and_no_ncu_for_a_cpu(tmp_path):
    events, at = [], 1_000_000
    for _ in range(6):
        begin = at
        for _ in range(20):
            at += 40
            events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 1, "tid": 1, "ts": at, "dur": 8})
            at += 8
        events.append({"ph": "X", "cat": "user_annotation", "name": "xsp/model", "pid": 1, "tid": 1, "ts": begin,
                       "dur": at - begin})  # fmt: skip
        at += 50
    path = tmp_path / "cpu.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [{"args": {}, **one} for one in events]}))
    data = json.loads(RUNNER.invoke(app, ["why", str(path), "--json"]).stdout)["data"]
    assert [one["code"] for one in data["advice"]] == ["fuse-elementwise", "larger-batch"]
    run_steps([KERNEL] * 40 + [SYNC], 4, tmp_path / "report.sqlite")
    results = analyze([tmp_path / "report.sqlite"])
    limit = find_limit(results)
    assert "--ncu" in " ".join(details_of(results, limit))
    assert "--ncu" not in " ".join(details_of(results, replace(limit, is_gpu=False)))


@pytest.mark.parametrize(("profiled_us", "said"), [(500, True), (150, False)])
def test_a_verdict_on_executions_that_the_profiler_made_far_longer_says_so(profiled_us, said):
    limit = Limit("host", "execution", 1, "", 100, 50, 0, (), {}, captures=(2,))
    case = {"kernel_capture_id": [2], "batch_size": [1], "phase": ["forward"]}
    levels = {"batch_size": 1, "phase": "forward", "event_kind": "model", "level": ["M", "M/L/G"],
              "latency_ns": [100.0 * US, profiled_us * float(US)]}  # fmt: skip
    results = Analysis({"cases": pd.DataFrame(case), "overhead": pd.DataFrame(levels)})
    note = coverage_note(results, limit)
    assert bool(note) == said
    if said:
        assert "With the profiler an execution takes 500 µs, without it 100 µs" in note


@pytest.mark.parametrize(("outside_ns", "said"), [(300, True), (100, False)])
def test_busy_time_outside_of_the_executions_is_said(outside_ns, said):
    """transformer_2.7b: half of the busy time copies its weights before the first execution."""
    limit = Limit("compute", "execution", 1, "", 700, 600, 0, (), {}, captures=(2,))
    windows = {"capture_id": 2, "scope": ["execution", "warm-up", "outside"], "busy_ns": [600, 100, outside_ns],
               "copy_busy_ns": [0, 0, outside_ns]}  # fmt: skip
    note = coverage_note(Analysis({"device_windows": pd.DataFrame(windows)}), limit)
    assert ("300 ns of other device work (30.0 %, mostly copies) lies outside" in note) == said


def test_shares_of_the_time_sum_to_all_of_it():
    groups = (("kernel", 900), ("copy", 70), ("host", 9), ("launch", 9), ("synchronization", 9))
    limit = Limit("kernel", "execution", 1, "", 1000, 970, 3, groups, {})
    assert evidence_of(limit) == ("Kernels: 900 ns, 90.0 %", "Copies: 70 ns, 7.0 %",
                                  "Other, each below 1 %: 30 ns, 3.0 %")  # fmt: skip
    assert len(evidence_of(replace(limit, groups=(("kernel", 998),), unknown_ns=2))) == 1
    waited = evidence_of(replace(limit, window={"copy_busy_ns": 50}))
    assert waited[1] == "Copies, and waiting for copy calls: 70 ns, 7.0 %"


def test_one_piece_is_not_called_pieces():
    rows = pd.DataFrame({"piece_count": [1], "longest_ns": [5 * US]})
    assert _pieces(rows) == "in one piece"
    assert _pieces(rows.assign(piece_count=3)) == "in 3 pieces, the longest 5.00 µs"


def test_a_verdict_that_leaves_out_most_of_the_work_says_so(tmp_path):
    builder, host, device = ExportBuilder().process(100).thread(100).gpu(), 0, 10 * US
    for k in range(6):
        builder.range(f"step {k}", host * US, (host + 14) * US)
        for name, begin, length in (("small", host + 2, 50), ("elsewhere", host + 15, 400)):
            builder.kernel(name, launch=(begin * US, (begin + 4) * US), run=(device, device + length * US))
            device += (length + 1) * US
        host += 25
    said = RUNNER.invoke(app, ["why", str(builder.write(tmp_path / "report.sqlite"))]).stdout
    assert "The executions found hold 11 % of the device time." in said
    assert "executions found" not in RUNNER.invoke(app, ["why", str(program(tmp_path))]).stdout


def test_copies_between_the_executions_are_said_to_be_there(tmp_path):
    """The verdict is about them: it does not leave them out."""
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for _ in range(8):
        builder.range("step", at, at + 20 * US)
        builder.kernel("gemm", launch=(at + US, at + 3 * US), run=(at + 4 * US, at + 19 * US))
        at += 21 * US
        builder.memcpy(1 << 20, launch=(at, at + 130 * US), run=(at + 2 * US, at + 129 * US))
        at += 131 * US
    results = analyze([builder.write(tmp_path / "report.sqlite")], Options(model_range="^step"))
    assert "; most of the rest is copies between them." in coverage_note(results, main_limit(results))


def test_idle_time_without_a_known_cause_is_of_the_unknown_group():
    assert groups_of(pd.DataFrame({"cause": ["", "copy_call"]})).tolist() == ["unknown", "copy"]


def test_what_only_recorded_a_graph_is_read_with_its_replays_next(tmp_path):
    builder = ExportBuilder().range("step", 0, 10_000).kernel("fill", launch=(0, 4), run=(5, 9))
    builder.api("cudaStreamBeginCapture_v10000", 10, 20)
    for k in range(40):
        builder.api("cudaLaunchKernel_v7000", 100 + 100 * k, 105 + 100 * k)
    path = tmp_path / "capture.sqlite"
    builder.api("cudaStreamEndCapture_v10000", 9_000, 9_010).write(path)
    done = RUNNER.invoke(app, ["tree", str(path)])
    assert f"xsp-post tree TRACE-OF-REPLAYS --layers-from {path}" in "".join(done.output.splitlines())


def test_no_balance_of_no_device_work(tmp_path):
    path = tmp_path / "ranges.sqlite"
    ExportBuilder().range("step", 0, 10_000).write(path)
    assert "The balance of" not in RUNNER.invoke(app, ["tree", str(path)]).output


def test_nothing_is_said_of_waiting_where_kernels_are_missing(tmp_path):
    """Two of three kernels are not in the capture: the device may have run them where it seems to wait."""
    builder = ExportBuilder().process(100).thread(100).gpu()
    for k in range(60):
        call = (100 * US * k, (100 * k + 5) * US)
        if k % 3:
            builder.api("cudaLaunchKernel_v7000", *call)
        else:
            builder.kernel("gemm", launch=call, run=((100 * k + 10) * US, (100 * k + 30) * US))
    said = why(analyze([builder.write(tmp_path / "report.sqlite")]))
    assert said.limit.kind == "unknown" and not said.advice and not said.causes
    assert not said.latency and not said.critical_path


@pytest.mark.parametrize(("waiting", "is_said"), [(10, True), (9, False)])
def test_kernels_that_only_wait_are_named_as_no_work(waiting, is_said, tmp_path):
    """A quarter of the device time and more."""
    export = ExportBuilder().process(100).thread(100).gpu()
    for number in range(40):
        name = "void at::cuda::spin_kernel(long)" if number < waiting else "gemm"
        at = number * 20_000
        export.kernel(name, launch=(at, at + 4_000), run=(at + 5_000, at + 15_000))
    results = analyze([export.write(tmp_path / "report.sqlite")])
    said = coverage_note(results, main_limit(results))
    assert ("In 25.0 % of the device time kernels only wait (spin_kernel)" in said) == is_said


def test_what_came_before_the_first_device_work_is_said_with_its_cause(tmp_path):
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 30_000
    builder.range("read weights", 0, at * US)
    for _ in range(40):
        builder.kernel("gemm", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 203) * US))
        at += 204
    builder.range("model#0", 0, at * US, domain="xsp")
    said = why(analyze([builder.write(tmp_path / "report.sqlite")]), is_first=True)
    assert "host code in read weights (30.0 ms)" in said.beyond


@pytest.mark.parametrize(("bound_ratio", "is_behind"), [(0.03, True), (0.2, True), (0.25, False)])
def test_advice_that_spares_little_stands_behind_where_most_is_to_be_gained(bound_ratio, is_behind, tmp_path):
    results = analyze([program(tmp_path, host=300)])
    said = why(results)
    advice = replace(said.advice[0], bound_ratio=bound_ratio)
    is_first = reporting.spares_little(said.limit, [advice])
    console = Console(file=StringIO(), width=120)
    reporting.print_first(console, replace(said, advice=(advice,), next_capture="Look at it.", is_next_first=is_first))
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert (
        is_first
        == is_behind
        == (lines.index("Look at it.") < next(k for k, one in enumerate(lines) if one[:2] == "1."))
    )


@pytest.mark.parametrize(("busy_ratio", "is_said"), [(0.9, True), (0.8, False)])
def test_a_host_that_saves_more_than_the_device_is_idle_is_explained(busy_ratio, is_said, tmp_path):
    """Host code that saves 20 % beside 10 % of idle time contradicts, whether or not it is the only limit."""
    results = analyze([program(tmp_path, host=80)])
    limit = main_limit(results)
    gains = (Gain(("host",), 0.2, 0.05), Gain(("synchronisation",), 0.19, 0.05))
    two = replace(limit, kind="mixed", limits=("host", "synchronisation"), gains=gains,
                  busy_ns=round(busy_ratio * limit.window_ns))  # fmt: skip
    assert ("Some streams wait for the host" in coverage_note(results, two)) == is_said


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "  1. Let products use tensor cores: use FP16 · about 25.0 %, at most 50.0 %"),
        (70, "  1. Let products use tensor cores · about 25.0 %, at most 50.0 %"),
        (50, "  1. Let products … · about 25.0 %, at most 50.0 %"),
    ],
)
def test_a_narrow_terminal_cuts_how_before_what_and_never_the_bound(width, line, tmp_path):
    said = why(analyze([program(tmp_path, host=300)]))
    one = Advice("a", "Let products use tensor cores: use FP16.", "Seen.", "so", 100, 0.5, estimate_ns=50)
    console = Console(file=StringIO(), width=width)
    reporting.print_first(console, replace(said, advice=(one,)))
    assert line in console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", range(24, 60))
def test_no_figure_is_parted_from_its_unit(width):
    console = Console(file=StringIO(), width=width)
    say(console, "  1. Run a warm-up before what counts: 387 ms of 1.62 s (23.9 %), 3 µs each.", hanging=3)
    lines = console.file.getvalue().splitlines()
    assert " ".join(" ".join(lines).split()).endswith("387 ms of 1.62 s (23.9 %), 3 µs each.")
    assert all(not line[-1].isdigit() and line == line.rstrip() and len(line) <= width for line in lines)


def test_a_verdict_without_executions_says_how_little_of_the_recording_it_is_of(tmp_path):
    builder = ExportBuilder().process(100).thread(100).gpu().api("cudaFree_v3020", 0, 9_000_000)
    for number in range(30):
        at = 9_100_000 + number * number * 1_000
        builder.kernel(f"k{number}", launch=(at, at + 500), run=(at + 600, at + 1_100))
    results = analyze([builder.write(tmp_path / "a.sqlite")])
    limit = main_limit(results)
    assert limit.scope == "outside"
    assert "8.5 % of the 9.94 ms that was recorded" in coverage_note(results, limit)


@pytest.mark.parametrize("is_gpu, device", [(True, "GPU"), (False, "CPU")])
def test_what_a_replay_cannot_say_names_the_device_that_was_recorded(is_gpu, device):
    limit = Limit("unknown", "execution", 1, "", 100, 50, 0, (), {}, reason=REFUSED, is_gpu=is_gpu)
    assert sentence_of(Analysis({}), limit).startswith(f"The {device} was busy 50.0 % of 100 ns; ")
