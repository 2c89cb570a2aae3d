"""Collectors: every way nsys can end, against a fake with teeth; children that fail, hang or run out of memory."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from xsp_post.base.children import START
from xsp_post.base.errors import OutputError, ToolError, UsageError
from xsp_post.hardware import tools
from xsp_post.model import capture
from xsp_post.model.capture import CapturePlan, Workload
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL
from xsp_post.workload import collectors
from xsp_post.workload.collectors import base
from xsp_post.workload.collectors.nsys import NsysCollector, profile_flags

FAKES = Path(__file__).parents[2] / "fakes"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A set-up fake nsys: `fake(mode)` returns the log of its calls."""
    export = tmp_path / "replayed.sqlite"
    with sqlite3.connect(export) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    log = tmp_path / "argv.log"

    def set_up(mode="ok", help_text="new"):
        monkeypatch.setenv("XSP_NSYS", str(FAKES / "nsys"))
        monkeypatch.setenv("FAKE_LOG", str(log))
        monkeypatch.setenv("FAKE_MODE", mode)
        monkeypatch.setenv("FAKE_HELP", help_text)
        monkeypatch.setenv("FAKE_EXPORT", str(export))
        return log

    return set_up


def plan(tmp_path, *, level=RUN_KERNEL, collector="nsys", device="cuda", timeout_s=30.0, **workload) -> CapturePlan:
    folder = tmp_path / "capture"
    folder.mkdir()
    model = workload.pop("model", "resnet50")
    return CapturePlan(Workload(model, device=device, **workload), level, 4, 0, collector, folder, timeout_s)


def calls(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_nsys_is_called_as_documented_and_its_export_kept(fake, tmp_path):
    log = fake()
    made = NsysCollector().collect(plan(tmp_path))
    assert made.status == "done" and made.source().name == "report.sqlite" and made.path("report").is_file()
    profile = next(call for call in calls(log) if call[0] == "profile" and "--help" not in call)
    flags = profile[: profile.index(sys.executable)]
    assert {"--trace=cuda,nvtx,cudnn,cublas", "--discard-environment=true", "--capture-range=cudaProfilerApi",
            "--capture-range-end=stop", "--kill=none", "--sample=none", "--cpuctxsw=none",
            "--cuda-graph-trace=node"} <= set(flags)  # fmt: skip
    child = profile[profile.index(sys.executable) :]
    assert child[-4:-1] == ["-c", START, "xsp_post.workload"] and json.loads(child[-1])["levels"][0][1] == "cuda"
    loaded = capture.load_capture(made.directory)
    assert loaded == made and loaded.settings["tool_version"] == "2025.1.1.110"


def test_flags_an_old_nsys_does_not_list_are_left_out(fake, tmp_path):
    log = fake(help_text="old")  # the fake refuses unknown flags, so that success alone proves it
    made = NsysCollector().collect(plan(tmp_path))
    assert made.status == "done"
    assert made.settings["tool_flags"] == ["--trace=cuda,nvtx,cudnn,cublas", "--force-overwrite=true", "--sample=none"]
    assert not any("--lazy" in " ".join(call) for call in calls(log) if call[0] == "export" and "--help" not in call)


def test_without_help_only_the_flags_every_version_has(fake):
    fake(help_text="none")
    assert profile_flags(tools.find_nsys(), True) == ("--trace=cuda,nvtx", "--force-overwrite=true")


def test_on_the_cpu_there_is_no_cuda_capture_range(fake, tmp_path):
    log = fake()
    NsysCollector().collect(plan(tmp_path, device="cpu"))
    profile = next(call for call in calls(log) if call[0] == "profile" and "--help" not in call)
    assert "--trace=nvtx" in profile and not any("capture-range" in flag for flag in profile)
    assert json.loads(profile[-1])["levels"][0][1] == "nvtx"


def test_a_whole_report_counts_more_than_the_exit_code(fake, tmp_path):
    fake("exit42")
    made = NsysCollector().collect(plan(tmp_path))
    assert made.status == "done" and "42" in made.message


@pytest.mark.parametrize(("mode", "code", "says"), [
    ("fail", "child-failed", "permission denied"),
    ("no_report", "nsys-no-report", "No reports were generated"),
    ("empty_report", "nsys-no-report", "wrote no report"),
    ("qdstrm", "nsys-no-importer", "qdstrm"),
    ("export_fails", "nsys-export", "database is locked"),
])  # fmt: skip
def test_each_failure_of_nsys_has_its_code_and_is_kept(fake, tmp_path, mode, code, says):
    fake(mode)
    with pytest.raises(ToolError) as caught:
        NsysCollector().collect(plan(tmp_path))
    assert caught.value.code == code and caught.value.exit_code == 3
    assert says in caught.value.message
    kept = capture.load_capture(tmp_path / "capture")
    assert kept.status == "failed" and kept.message == caught.value.message
    assert (tmp_path / "capture" / "stderr.log").is_file()


def test_the_remedy_fits_what_nsys_said(fake, tmp_path):
    fake("export_fails")
    with pytest.raises(ToolError) as caught:
        NsysCollector().collect(plan(tmp_path))
    assert "local disk" in caught.value.hint


def test_a_hanging_nsys_is_stopped_in_time(fake, tmp_path):
    fake("hang")
    started = time.monotonic()
    with pytest.raises(ToolError) as caught:
        NsysCollector().collect(plan(tmp_path, timeout_s=1.0))
    assert caught.value.code == "child-hung" and "--timeout" in caught.value.hint
    assert time.monotonic() - started < 200  # the fake hangs for 600 s


def test_reports_of_the_old_name_are_taken(fake, tmp_path):
    fake("qdrep")
    assert NsysCollector().collect(plan(tmp_path)).path("report").read_bytes() == b"report"


def test_check_says_what_was_found_and_what_is_missing(fake, tmp_path, monkeypatch):
    fake()
    found = NsysCollector().check()
    assert found.is_available and found.version == "2025.1.1.110" and not found.remedy
    fake("mute")
    assert not NsysCollector().check().is_available
    monkeypatch.setattr(tools, "find_nsys", lambda: None)
    missing = NsysCollector().check()
    assert not missing.is_available and "XSP_NSYS" in missing.remedy
    with pytest.raises(ToolError) as caught:
        NsysCollector().collect(plan(tmp_path))
    assert caught.value.code == "nsys-missing"


def test_the_newest_installed_nsys_is_found_last(monkeypatch, tmp_path):
    for version in ("2023.1.2", "2025.3.1", "2024.6.1"):
        path = tmp_path / f"nsight-systems/{version}/target-linux-x64/nsys"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version " + version + "\n")
        path.chmod(0o755)
    for name in ("XSP_NSYS", "NSYS_HOME", "NSYS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_FOLDERS", {"nsys": [str(tmp_path / "nsight-systems/*/target-linux-*/nsys")]})
    assert tools.find_nsys().path.parts[-3] == "2025.3.1"


def test_auto_takes_nsys_only_for_a_gpu(fake):
    pytest.importorskip("torch")
    fake()
    assert collectors.choose(RUN_KERNEL, "auto", "cuda").name == "nsys"
    assert collectors.choose(RUN_KERNEL, "auto", "cpu").name == "torch"
    assert collectors.choose(RUN_MODEL, "nsys", "cuda").name == "clock"
    assert collectors.choose(RUN_LAYER, "auto", "cuda").name == "clock"


def test_a_collector_that_is_missing_or_unknown_is_said(monkeypatch):
    monkeypatch.setattr(tools, "find_nsys", lambda: None)
    with pytest.raises(ToolError) as caught:
        collectors.choose(RUN_KERNEL, "nsys", "cuda")
    assert caught.value.code == "collector-missing"
    with pytest.raises(UsageError):
        collectors.choose(RUN_KERNEL, "nsight", "cuda")


# -- children that go wrong, without any profiler and without torch: a stand-in for the child's command ------


def run_stub(tmp_path, script: str, timeout_s: float = 20.0) -> capture.Capture:
    """One clock capture whose child is a Python script; it finds its output folder in ``sys.argv[1]``."""
    the_plan = plan(tmp_path, level=RUN_MODEL, device="cpu", collector="clock", timeout_s=timeout_s)
    made = base.begin(the_plan, "clock")
    ended = base.run_child([sys.executable, "-c", script, str(the_plan.directory)], the_plan)
    return base.conclude(made, ended, {"spans": "spans.json"})


TELL = "import json, pathlib, sys; folder = pathlib.Path(sys.argv[1]); "


def test_a_crash_tells_the_last_lines_of_its_stderr(tmp_path):
    with pytest.raises(ToolError) as caught:
        run_stub(tmp_path, "raise RuntimeError('the factory is broken')")
    assert caught.value.code == "child-failed"
    assert "RuntimeError: the factory is broken" in caught.value.message
    assert "--resume" in caught.value.hint


def test_a_signal_is_named(tmp_path):
    with pytest.raises(ToolError, match="ended by signal 11"):
        run_stub(tmp_path, "import os; os.kill(os.getpid(), 11)")


def test_a_child_that_says_nothing_and_ends_well_is_a_failure_too(tmp_path):
    with pytest.raises(ToolError, match="ended with 0"):
        run_stub(tmp_path, "pass")


def test_out_of_memory_is_a_capture_not_an_error(tmp_path):
    failure = "(folder / 'failure.json').write_text(json.dumps({'kind': 'out_of_memory', 'message': 'no 3 GiB'}))"
    made = run_stub(tmp_path, f"{TELL}{failure}; sys.exit(12)")
    assert made.status == "out_of_memory" and "no 3 GiB" in made.message
    assert capture.load_capture(made.directory).status == "out_of_memory"


def test_the_childs_own_error_comes_back_as_itself(tmp_path):
    failure = "{'kind': 'error', 'message': 'No module is a Foo.', 'code': 'layer-kind', 'hint': 'Look.'}"
    with pytest.raises(UsageError) as caught:
        run_stub(tmp_path, f"{TELL}(folder / 'failure.json').write_text(json.dumps({failure})); sys.exit(2)")
    assert (caught.value.message, caught.value.code, caught.value.hint) == (
        "No module is a Foo.",
        "layer-kind",
        "Look.",
    )


def test_a_full_disk_in_the_child_is_an_output_error(tmp_path):
    with pytest.raises(OutputError) as caught:
        run_stub(tmp_path, "import sys; sys.stderr.write('No space left on device'); sys.exit(6)")
    assert caught.value.code == "output-full"


def test_a_hanging_child_and_its_own_children_are_ended(tmp_path):
    script = ("import subprocess, sys, time; p = subprocess.Popen(['sleep', '600']);"
              "print(p.pid, flush=True); time.sleep(600)")  # fmt: skip
    for timeout_s in (1.0, 5.0, 25.0):  # on a busy machine the child needs longer until it has a child of its own
        folder = tmp_path / str(timeout_s)
        folder.mkdir()
        with pytest.raises(ToolError) as caught:
            run_stub(folder, script, timeout_s=timeout_s)
        assert caught.value.code == "child-hung"
        if grandchild := (folder / "capture" / "stdout.log").read_text():
            break
    assert _is_gone(int(grandchild))


def test_interrupting_the_wait_ends_the_child(tmp_path):
    import _thread

    script = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    log = tmp_path / "capture" / "stdout.log"

    def interrupt():
        while not (log.is_file() and log.read_text().endswith("\n")):
            time.sleep(0.05)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_stub(tmp_path, script, timeout_s=120.0)
    assert _is_gone(int(log.read_text()))


def _is_gone(process_id: int) -> bool:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        try:
            os.kill(process_id, 0)
            state = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_the_child_is_asked_for_what_the_plan_says(tmp_path):
    workload = Workload("gpt", device="cuda", dtype="bfloat16", mode="inference", input_shape=(3, 8), is_compiled=True,
                        seed=7, warmup_count=1, iteration_count=4, layer_depth=2, layer_kinds=("Conv2d", "Linear"),
                        is_serialized=False, is_launch_blocking=True, thread_count=3)  # fmt: skip
    the_plan = CapturePlan(workload, RUN_LAYER, 16, 2, "clock", tmp_path)
    command = base.child_command(the_plan, "none")
    request = json.loads(command[command.index("xsp_post.workload") + 1])
    assert request["workload"] == json.loads(json.dumps(asdict(workload)))
    assert (request["batch_size"], request["repeat"]) == (16, 2)
    assert request["levels"] == [[RUN_LAYER, "none", str(tmp_path)]]


def test_launch_blocking_reaches_the_deeper_levels_only(tmp_path):
    workload = Workload("gpt", is_launch_blocking=True)
    for level, expected in ((RUN_MODEL, None), (RUN_LAYER, "1")):
        environment = base._environment(CapturePlan(workload, level, 1, 0, "clock", tmp_path))
        assert environment.get("CUDA_LAUNCH_BLOCKING") == expected


@pytest.mark.parametrize("replayed", ["two_kernels_rtx3080", "transformer_2.7b_a100_nvtx"])
def test_a_real_export_replayed_by_nsys_goes_through_a_whole_run(fake, tmp_path, captures, monkeypatch, replayed):
    """Level M/L/G recorded by nsys (a stand-in that replays a real export) becomes an analysis of the run."""
    from xsp_post import pipeline, run

    fake()
    monkeypatch.setenv("FAKE_EXPORT", str(captures / "nsys" / f"{replayed}.sqlite"))
    plan_of_run = run.RunPlan(Workload("resnet50"), (1,), (RUN_KERNEL,), collector="nsys", repeat_count=1)
    result = run.execute(plan_of_run, tmp_path / "run")
    analysis = pipeline.analyze([result.directory])
    expected = json.loads((captures / "expected" / f"{replayed}.json").read_text())
    row = analysis.frame("captures").iloc[0]
    assert (row["level"], row["collector"], row["workload_name"], row["batch_size"]) == (
        RUN_KERNEL,
        "nsys",
        "resnet50",
        1,
    )
    assert row["kernel_count"] == expected["kernels"] == len(analysis.frame("kernels"))
    assert "xsp-canary" not in (result.directory / "manifest.json").read_text()
