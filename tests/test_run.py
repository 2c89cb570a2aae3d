"""The plan of leveled runs: order, resuming, what fails and what goes on; with a stand-in for the collector."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from xsp_post import run
from xsp_post.base.errors import CaptureError, ContradictionError, OutputError, ToolError, UsageError
from xsp_post.model import capture
from xsp_post.model.capture import Workload
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL
from xsp_post.run import RunPlan
from xsp_post.workload import collectors
from xsp_post.workload.collectors.base import begin

WORKLOAD = Workload("resnet50", iteration_count=2, warmup_count=1)


def sources_of(result: run.RunResult) -> list[Path]:
    """The recordings of the captures that are done, in the order they were made."""
    return [one.source() for one in result.captures if one.status == "done"]


class Stub:
    """A collector that writes what `behaviour` says: (level, batch, repeat) -> status, error or latency."""

    name = "clock"

    def __init__(self, behaviour=None):
        self.behaviour = behaviour or {}
        self.made: list[tuple[str, int, int]] = []
        self.environment = {"torch_version": "2.4", "device_name": "CPU"}

    def check(self):
        return collectors.Availability(self.name, True, "", "", "", "")

    def shares_process(self, device):
        return False

    def collect(self, plan):
        key = (plan.level, plan.batch_size, plan.repeat)
        self.made.append(key)
        what = self.behaviour.get(key, self.behaviour.get(plan.batch_size))
        made = begin(plan, self.name)
        if isinstance(what, BaseException):
            made.status = "failed"
            made.save()
            raise what
        made.environment = dict(self.environment)
        if what == "out_of_memory":
            made.status = "out_of_memory"
        else:
            latency_ns = what or 1_000_000 * plan.batch_size
            values = {
                "format": "xsp-spans",
                "version": 1,
                "texts": ["warmup:forward#0", "model:forward#0"],
                "text_indexes": [0, 1],
                "start_ns": [0, 10**9],
                "end_ns": [10**9, 10**9 + latency_ns],
            }
            (plan.directory / "spans.json").write_text(json.dumps(values))
            made.files["spans"] = "spans.json"
        made.save()
        return made


@pytest.fixture
def stub(monkeypatch):
    def use(behaviour=None):
        made = Stub(behaviour)
        monkeypatch.setattr(collectors, "choose", lambda level, wanted, device: made)
        monkeypatch.setattr(collectors, "get", lambda name: made)
        return made

    return use


def manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


def test_levels_are_interleaved_and_their_order_turns(stub, tmp_path):
    made = stub()
    result = run.execute(RunPlan(WORKLOAD, (4,), repeat_count=3), tmp_path / "run")
    assert [level for level, _, _ in made.made] == [
        RUN_MODEL, RUN_LAYER, RUN_KERNEL,
        RUN_LAYER, RUN_KERNEL, RUN_MODEL,
        RUN_KERNEL, RUN_MODEL, RUN_LAYER,
    ]  # fmt: skip
    assert [folder.parent.name for folder in sources_of(result)] == [
        "01_M_b4_r0", "02_ML_b4_r0", "03_MLG_b4_r0", "04_ML_b4_r1", "05_MLG_b4_r1", "06_M_b4_r1",
        "07_MLG_b4_r2", "08_M_b4_r2", "09_ML_b4_r2"]  # fmt: skip
    told = manifest(tmp_path / "run")
    assert told["status"] == "done" and len(told["captures"]) == 9 and told["deep_batch_sizes"] == [4]


def test_a_sweep_runs_m_everywhere_and_the_deep_levels_at_the_optimum(stub, tmp_path):
    # throughput per ms: 1, 1.8, 3.5, 3.6: from 4 to 8 doubling pays less than 5 %
    made = stub({1: 1_000_000, 2: 1_111_111, 4: 1_142_857, 8: 2_222_222})
    totals = []

    def tell(number, total, step, _):
        totals.append(total)

    result = run.execute(RunPlan(WORKLOAD, (1, 2, 4, 8), repeat_count=2), tmp_path / "run", on_step=tell)
    assert result.deep_batch_sizes == (4,) and set(totals) == {len(made.made)} == {12}
    assert made.made[:6] == [(RUN_MODEL, size, 0) for size in (1, 2, 4, 8)] + [(RUN_LAYER, 4, 0), (RUN_KERNEL, 4, 0)]
    assert sorted(size for level, size, _ in made.made if level == RUN_MODEL) == [1, 1, 2, 2, 4, 4, 8, 8]
    assert all(size == 4 for level, size, _ in made.made if level != RUN_MODEL)


@pytest.mark.parametrize(("deep_at", "expected"), [("all", {1, 2}), ("2", {2})])
def test_deep_at_chooses_the_batch_sizes_of_the_deep_levels(stub, tmp_path, deep_at, expected):
    made = stub()
    run.execute(RunPlan(WORKLOAD, (1, 2), repeat_count=1, deep_at=deep_at), tmp_path / "run")
    assert {size for level, size, _ in made.made if level != RUN_MODEL} == expected


def test_the_deep_levels_run_at_the_optimal_batch_size():
    assert run.deep_batch_size({1: 10, 2: 19, 4: 30, 8: 31.5}) == 4  # exactly 5 % is not more
    assert run.deep_batch_size({16: 44, 1: 10, 2: 19, 4: 19, 8: 43}) == 8  # one slow size decides nothing
    assert run.deep_batch_size({1: 10, 2: 20, 4: 40}) == 4  # no optimum: the most throughput
    assert run.deep_batch_size({8: 3.0}) == 8
    assert run.deep_batch_size({1: 10, 2: 9}) == 1


def test_out_of_memory_at_one_size_lets_the_rest_go_on(stub, tmp_path):
    made = stub({(RUN_MODEL, 8, 0): "out_of_memory"})
    result = run.execute(RunPlan(WORKLOAD, (4, 8), repeat_count=2, deep_at="all"), tmp_path / "run")
    assert [key for key in made.made if key[1] == 8] == [(RUN_MODEL, 8, 0)]
    assert len([key for key in made.made if key[1] == 4]) == 6
    assert manifest(tmp_path / "run")["out_of_memory_batch_sizes"] == [8]
    assert any("8 ran out of memory" in note for note in result.notes)
    assert len(sources_of(result)) == 6


def test_out_of_memory_everywhere_is_an_error(stub, tmp_path):
    stub({4: "out_of_memory", 8: "out_of_memory"})
    with pytest.raises(ToolError) as caught:
        run.execute(RunPlan(WORKLOAD, (4, 8)), tmp_path / "run")
    assert caught.value.code == "run-all-out-of-memory"


def test_a_failed_run_keeps_what_it_has_and_resumes_with_what_is_missing(stub, tmp_path):
    folder = tmp_path / "run"
    stub({(RUN_KERNEL, 4, 0): ToolError("it crashed", code="child-failed")})
    with pytest.raises(ToolError) as caught:
        run.execute(RunPlan(WORKLOAD, (4,), repeat_count=2), folder)
    assert f"2 finished captures are kept in {folder}" in caught.value.hint and "--resume" in caught.value.hint
    assert manifest(folder)["status"] == "failed" and len(capture.load_captures(folder)) == 2
    assert len(list((folder / "captures").iterdir())) == 2
    again = stub()
    result = run.execute(RunPlan(WORKLOAD, (4,), repeat_count=2), folder, is_resumed=True)
    assert again.made == [(RUN_KERNEL, 4, 0), (RUN_LAYER, 4, 1), (RUN_KERNEL, 4, 1), (RUN_MODEL, 4, 1)]
    assert manifest(folder)["status"] == "done" and len(sources_of(result)) == 6
    names = sorted(path.name for path in (folder / "captures").iterdir())
    assert len(names) == 6 and len({name.split("_")[0] for name in names}) == 6


def test_a_run_that_measured_nothing_leaves_nothing_unless_it_is_kept(stub, tmp_path):
    stub({(RUN_MODEL, 4, 0): ToolError("it crashed", code="child-failed", hint="Mend it.")})
    with pytest.raises(ToolError) as caught:
        run.execute(RunPlan(WORKLOAD, (4,)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert caught.value.hint.startswith("Mend it. Nothing was measured") and "--keep" in caught.value.hint
    with pytest.raises(ToolError) as caught:
        run.execute(RunPlan(WORKLOAD, (4,)), tmp_path / "run", is_kept=True)
    assert len(list((tmp_path / "run/captures").iterdir())) == 1 and str(tmp_path / "run") in caught.value.hint


def test_resuming_a_whole_run_does_nothing_and_a_longer_plan_adds_only_the_rest(stub, tmp_path):
    stub()
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run")
    again = stub()
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run", is_resumed=True)
    assert again.made == []
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=2), tmp_path / "run", is_resumed=True)
    assert {repeat for _, _, repeat in again.made} == {1}


def test_a_damaged_capture_is_made_again(stub, tmp_path):
    stub()
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run")
    (tmp_path / "run/captures/02_ML_b4_r0/capture.json").write_text("{")
    (tmp_path / "run/captures/03_MLG_b4_r0/spans.json").unlink()
    again = stub()
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run", is_resumed=True)
    assert again.made == [(RUN_LAYER, 4, 0), (RUN_KERNEL, 4, 0)]


def test_ctrl_c_leaves_a_folder_that_says_so_and_can_be_resumed(stub, tmp_path):
    stub({(RUN_LAYER, 4, 0): KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run")
    assert manifest(tmp_path / "run")["status"] == "interrupted"
    again = stub()
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run", is_resumed=True)
    assert again.made == [(RUN_LAYER, 4, 0), (RUN_KERNEL, 4, 0)]


def test_a_run_of_another_workload_is_not_resumed(stub, tmp_path):
    stub()
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run")
    with pytest.raises(UsageError, match="seed is 0 there and 5 here") as caught:
        run.execute(RunPlan(replace(WORKLOAD, seed=5), (4,)), tmp_path / "run", is_resumed=True)
    assert caught.value.code == "run-unlike"


def test_unlike_captures_are_refused_with_key_and_both_values(stub, tmp_path):
    stub()
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run")
    stub().environment["torch_version"] = "2.9"
    with pytest.raises(ContradictionError, match=r"torch_version is '2\.9' there and '2\.4' here"):
        run.execute(RunPlan(WORKLOAD, (4,), repeat_count=2), tmp_path / "run", is_resumed=True)


def test_an_edited_factory_is_another_workload(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("one")
    before = Workload(f"{file}:build").recorded()
    file.write_text("two")
    assert Workload(f"{file}:build").recorded()["model_file_sha256"] != before["model_file_sha256"]
    assert before["model"] == "net.py:build" and str(tmp_path) not in json.dumps(before)


def test_an_existing_folder_is_left_alone_unless_it_is_a_run_and_forced(stub, tmp_path):
    stub()
    plan = RunPlan(WORKLOAD, (4,), repeat_count=1)
    run.execute(plan, tmp_path / "run")
    with pytest.raises(OutputError) as caught:
        run.execute(plan, tmp_path / "run")
    assert caught.value.code == "run-exists"
    run.execute(plan, tmp_path / "run", is_forced=True)
    other = tmp_path / "photos"
    other.mkdir()
    (other / "holiday.jpg").write_text("x")
    with pytest.raises(OutputError):
        run.execute(plan, other, is_forced=True)
    assert (other / "holiday.jpg").exists()


def test_a_folder_that_cannot_be_written_is_said(stub, tmp_path):
    stub()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        run.execute(RunPlan(WORKLOAD, (4,)), tmp_path / "file" / "run")


def test_a_full_disk_is_said(stub, tmp_path):
    stub({(RUN_LAYER, 4, 0): OSError(errno.ENOSPC, "No space left on device")})
    with pytest.raises(OutputError) as caught:
        run.execute(RunPlan(WORKLOAD, (4,)), tmp_path / "run")
    assert caught.value.code == "output-full" and caught.value.exit_code == 6


@pytest.mark.parametrize("change", [
    {"batch_sizes": (0,)}, {"batch_sizes": ()}, {"repeat_count": 0}, {"timeout_s": 0}, {"levels": ()},
    {"levels": ("X",)}, {"deep_at": "3"}, {"deep_at": "best"}, {"workload": replace(WORKLOAD, iteration_count=0)},
    {"workload": replace(WORKLOAD, warmup_count=-1)}, {"workload": replace(WORKLOAD, model="resnet")},
    {"workload": replace(WORKLOAD, input_shape=(3, 0))}, {"levels": run.with_counters(("M",))},
])  # fmt: skip
def test_plans_that_cannot_be_followed_are_refused_before_anything_starts(stub, tmp_path, change):
    made = stub()
    with pytest.raises(UsageError):
        run.execute(replace(RunPlan(WORKLOAD, (4,)), **change), tmp_path / "run")
    assert not made.made and not (tmp_path / "run").exists()


def test_a_compiled_model_has_no_layer_level_and_the_reason_is_kept(stub, tmp_path):
    made = stub()
    result = run.execute(RunPlan(replace(WORKLOAD, is_compiled=True), (4,), repeat_count=1), tmp_path / "run")
    assert {level for level, _, _ in made.made} == {RUN_MODEL, RUN_KERNEL}
    assert any("torch.compile" in note for note in result.notes)


def test_counters_are_read_once_whatever_the_repeats(stub, tmp_path):
    made = stub()
    levels = run.with_counters((RUN_MODEL, RUN_KERNEL))
    run.execute(
        RunPlan(replace(WORKLOAD, device="cuda"), (4,), levels, repeat_count=3, collector="torch"), tmp_path / "run"
    )
    assert [repeat for level, _, repeat in made.made if level == levels[-1]] == [0]
    assert len(made.made) == 2 * 3 + 1


class Sets(Stub):
    """A stand-in for ncu's collector: counters come in three sets; `behaviour` is by set there."""

    def metric_sets(self):
        return ("flops", "memory", "occupancy"), ("cache",)

    def collect(self, plan):
        if plan.metric_set and (what := self.behaviour.get(plan.metric_set)):
            self.made.append(plan.metric_set)
            raise what
        made = super().collect(plan)
        if plan.metric_set:
            self.made[-1] = plan.metric_set
        return made


@pytest.fixture
def sets(monkeypatch):
    def use(behaviour=None):
        made = Sets(behaviour)
        monkeypatch.setattr(collectors, "choose", lambda level, wanted, device: made)
        monkeypatch.setattr(collectors, "get", lambda name: made)
        return made

    return use


COUNTED = RunPlan(replace(WORKLOAD, device="cuda"), (4,), run.with_counters((RUN_MODEL,)), repeat_count=2)


def test_each_metric_set_is_a_capture_of_its_own(sets, tmp_path):
    made, told = sets(), []

    def tell(number, total, step, _):
        told.append((number, total, step.name))

    result = run.execute(COUNTED, tmp_path / "run", on_step=tell)
    assert made.made == [(RUN_MODEL, 4, 0), "flops", "memory", "occupancy", (RUN_MODEL, 4, 1)]
    assert told[2::2] == [(2, 5, "M/L/G+counters (flops), batch 4"), (3, 5, "M/L/G+counters (memory), batch 4"),
                          (4, 5, "M/L/G+counters (occupancy), batch 4"), (5, 5, "M, batch 4, repeat 2")]  # fmt: skip
    assert [path.parent.name for path in sources_of(result)][1:4] == [
        "02_MLGC-flops_b4_r0", "03_MLGC-memory_b4_r0", "04_MLGC-occupancy_b4_r0"]  # fmt: skip
    assert [row["metric_set"] for row in manifest(tmp_path / "run")["captures"]][:3] == ["", "flops", "memory"]
    assert [note for note in result.notes if "counters of cache were left out" in note]


def test_a_set_that_fails_is_left_out_and_tried_again(sets, tmp_path):
    sets({"memory": ToolError("it hung.\n  | one\n  | two", code="child-hung")})
    result = run.execute(COUNTED, tmp_path / "run")
    assert [made.metric_set for made in result.captures] == ["", "flops", "occupancy", ""]
    assert any("no counters of memory at batch size 4: it hung: two; " in note for note in result.notes)
    failed = capture.load_captures(tmp_path / "run", status="failed")
    assert [made.metric_set for made in failed] == ["memory"]
    again = sets()
    result = run.execute(COUNTED, tmp_path / "run", is_resumed=True)
    assert again.made == ["memory"] and not any("memory" in note for note in result.notes)
    assert not capture.load_captures(tmp_path / "run", status="failed") and len(sources_of(result)) == 5


@pytest.mark.parametrize(("at", "code"), [("flops", "child-failed"), ("memory", "ncu-permission")])
def test_where_no_counters_can_be_read_the_run_ends(sets, tmp_path, at, code):
    sets({at: ToolError("no.", code=code)})
    with pytest.raises(ToolError):
        run.execute(COUNTED, tmp_path / "run")
    assert manifest(tmp_path / "run")["status"] == "failed"


def test_a_run_of_old_that_has_all_counters_in_one_capture_is_not_counted_again(stub, sets, tmp_path):
    stub()
    run.execute(COUNTED, tmp_path / "run")
    for file in (tmp_path / "run").glob("captures/*/capture.json"):
        values = json.loads(file.read_text())
        assert values.pop("metric_set") == ""
        file.write_text(json.dumps(values))
    again = sets()
    run.execute(COUNTED, tmp_path / "run", is_resumed=True)
    assert again.made == []


def test_levels_as_typed():
    assert run.parse_levels("mlg, M") == (RUN_MODEL, RUN_KERNEL)
    assert run.parse_levels("M/L") == (RUN_LAYER,)
    for text in ("", "K", "M,,X"):
        with pytest.raises(UsageError):
            run.parse_levels(text)


def test_progress_is_told_before_and_after_each_capture(stub, tmp_path):
    stub()
    told = []

    def tell(number, total, step, made):
        told.append((number, total, step.levels, made is not None))

    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=1), tmp_path / "run", on_step=tell)
    assert told == [(n, 3, (level,), after) for n, level in enumerate((RUN_MODEL, RUN_LAYER, RUN_KERNEL), 1)
                    for after in (False, True)]  # fmt: skip


def test_captures_are_saved_and_loaded_whole_and_newer_ones_are_refused(tmp_path):
    made = capture.Capture(RUN_MODEL, 4, 1, "clock", files={"spans": "spans.json"}, directory=tmp_path)
    made.save()
    assert capture.load_capture(tmp_path) == made
    with pytest.raises(CaptureError, match="holds no recording"):
        made.source()
    values = json.loads((tmp_path / "capture.json").read_text())
    (tmp_path / "capture.json").write_text(json.dumps({**values, "manifest_version": 99}))
    with pytest.raises(CaptureError, match="version 99"):
        capture.load_capture(tmp_path)
    (tmp_path / "capture.json").write_text("[]")
    with pytest.raises(CaptureError):
        capture.load_capture(tmp_path)


# -- once for real, with children -----------------------------------------------------------------------------

SMALL = """
import torch
def net(batch_size):
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), torch.ones(batch_size, 64)
def slow(batch_size):
    import time
    time.sleep(200)
"""


def test_levels_that_can_share_a_process_do(stub, tmp_path, monkeypatch):
    made, together = stub(), []

    def collect_together(levels):
        plans = [plan for _, plan in levels]
        together.append([plan.level for plan in plans])
        captures = [made.collect(plan) for plan in plans]
        for one in captures:
            one.process, one.wall_ns = plans[0].directory.name, 10**9
            one.save()
        return captures

    made.shares_process = lambda device: True
    monkeypatch.setattr(run, "collect_together", collect_together)
    result = run.execute(RunPlan(WORKLOAD, (4,), repeat_count=2), tmp_path / "run")
    assert together == [[RUN_MODEL, RUN_LAYER, RUN_KERNEL]] * 2
    assert [one.process for one in result.captures] == ["01_M_b4_r0"] * 3 + ["04_M_b4_r1"] * 3
    # what is missing is measured, and what is there is kept
    shutil.rmtree(tmp_path / "run/captures/05_ML_b4_r1")
    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=2), tmp_path / "run", is_resumed=True)
    assert together[2:] == [] and made.made[-1] == (RUN_LAYER, 4, 1)
    # as many repeats as fit the time: 3 s each, but not more than ten
    run.execute(RunPlan(WORKLOAD, (4,)), tmp_path / "auto")
    assert len(together) == 2 + run.MOST_REPEATS and manifest(tmp_path / "auto")["repeat_count"] == run.MOST_REPEATS
    monkeypatch.setattr(run, "BUDGET_S", 13.0)
    run.execute(RunPlan(WORKLOAD, (4,)), tmp_path / "short")
    assert len(together) == 2 + run.MOST_REPEATS + 4
    # blocking launches are set for a whole process, and the option keeps all apart
    for plan in (RunPlan(WORKLOAD, (4,), repeat_count=1, is_apart=True),
                 RunPlan(replace(WORKLOAD, is_launch_blocking=True), (4,), repeat_count=1)):  # fmt: skip
        run.execute(plan, tmp_path / "apart", is_forced=True)
    assert len(together) == 2 + run.MOST_REPEATS + 4


def test_a_profiler_of_the_whole_process_keeps_its_own(stub, tmp_path, monkeypatch):
    clock, nsys = stub(), Stub()
    clock.shares_process, nsys.name = (lambda device: True), "nsys"
    by_name = {"clock": clock, "nsys": nsys}
    monkeypatch.setattr(collectors, "choose", lambda level, wanted, device: nsys if level == RUN_KERNEL else clock)
    monkeypatch.setattr(collectors, "get", by_name.__getitem__)
    monkeypatch.setattr(run, "collect_together", lambda levels: [clock.collect(plan) for _, plan in levels])
    told = []

    def tell(number, total, step, made):
        told.append((total, step.levels))

    run.execute(RunPlan(WORKLOAD, (4,), repeat_count=2), tmp_path / "run", on_step=tell)
    together, alone = (RUN_MODEL, RUN_LAYER), (RUN_KERNEL,)
    assert told[::2] == [(4, together), (4, alone), (4, alone), (4, together)]
    assert {level for level, _, _ in nsys.made} == {RUN_KERNEL}


@pytest.mark.parametrize(("name", "on_cpu", "on_gpu"), [
    ("clock", True, True), ("torch", True, False), ("nsys", False, False), ("ncu", False, False),
])  # fmt: skip
def test_which_collectors_can_share_a_process(name, on_cpu, on_gpu):
    collector = collectors.get(name)
    assert (collector.shares_process("cpu"), collector.shares_process("cuda")) == (on_cpu, on_gpu)


def small_plan(tmp_path, **change) -> RunPlan:
    pytest.importorskip("torch", reason="torch is not installed (extra run)")
    (tmp_path / "net.py").write_text(SMALL)
    workload = Workload(f"{tmp_path / 'net.py'}:net", iteration_count=3, warmup_count=1, thread_count=1)
    return replace(RunPlan(workload, (2,), repeat_count=1), **change)


@pytest.mark.guard
def test_a_killed_run_resumes(tmp_path):
    plan = small_plan(tmp_path, levels=(RUN_MODEL,), repeat_count=2)
    script = (
        "import sys; from pathlib import Path; from xsp_post import run; from xsp_post.model.capture import Workload\n"
        f"run.execute(run.{plan!r}, Path({str(tmp_path / 'run')!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 200
    while not list((tmp_path / "run").glob("captures/01*/capture.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = capture.load_captures(tmp_path / "run")
    assert kept  # one; a machine that stops this process for seconds lets it make the second
    result = run.execute(plan, tmp_path / "run", is_resumed=True)
    assert [made.repeat for made in result.captures] == [0, 1]
    assert result.captures[0] == kept[0]
