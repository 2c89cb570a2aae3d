"""``collectors.ncu``: every way ncu can end, against a fake that logs how it was called."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from xsp_post import capture
from xsp_post.capture import CapturePlan, Workload
from xsp_post.collectors import ncu
from xsp_post.collectors.ncu import NcuCollector, metric_flags
from xsp_post.counter_quantities import is_input
from xsp_post.errors import ToolError, UsageError
from xsp_post.levels import RUN_COUNTERS

FAKES = Path(__file__).parent / "fakes"
LISTED = (
    "gpu__time_duration,dram__bytes_read,dram__bytes_write,lts__t_sectors,sm__warps_active,sm__pipe_tensor_cycles_active,"
    "smsp__sass_thread_inst_executed_op_ffma_pred_on,sm__ops_path_tensor_src_fp16_dst_fp32,"
    "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off,sm__inst_executed_pipe_tensor_op_hmma"
)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`fake(mode)` sets up the stand-in and returns the log of its calls."""
    log = tmp_path / "argv.log"

    def set_up(mode: str = "ok", listed: str = LISTED) -> Path:
        monkeypatch.setenv("XSP_NCU", str(FAKES / "ncu"))
        monkeypatch.setenv("FAKE_LOG", str(log))
        monkeypatch.setenv("FAKE_MODE", mode)
        monkeypatch.setenv("FAKE_METRICS", listed)
        return log

    return set_up


def plan(tmp_path: Path, *, device: str = "cuda", timeout_s: float = 30.0) -> CapturePlan:
    folder = tmp_path / "capture"
    folder.mkdir()
    return CapturePlan(Workload("resnet50", device=device), RUN_COUNTERS, 4, 0, "ncu", folder, timeout_s)


def profiled(log: Path) -> list[str]:
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return next(call for call in calls if sys.executable in call)


def value(flags: list[str], name: str) -> str:
    return flags[flags.index(name) + 1]


def test_ncu_profiles_one_iteration_of_our_ranges(fake, tmp_path: Path) -> None:
    log = fake()
    made = NcuCollector().collect(plan(tmp_path))
    call = profiled(log)
    flags, child = call[: call.index(sys.executable)], call[call.index(sys.executable) :]
    assert "--nvtx" in flags and value(flags, "--nvtx-include") == "regex:xsp@model:.*/"
    assert value(flags, "--clock-control") == "none" and value(flags, "--cache-control") == "all"
    assert value(flags, "--replay-mode") == "kernel"
    assert value(child, "--iterations") == "1" and value(child, "--profiler") == "cuda"
    assert value(child, "--warmup") == "3"
    assert made.status == "done" and made.source().name == "counters.ncu-rep"
    kept = capture.load_capture(made.directory).settings
    assert (kept["clock_control"], kept["cache_control"], kept["counted_iteration_count"]) == ("none", "all", 1)
    assert kept["iteration_count"] == 10  # alike with the timing runs
    assert kept["tool_version"] == "2025.1.1.0"


def test_metrics_are_asked_of_the_tool(fake, tmp_path: Path) -> None:
    log = fake()
    NcuCollector().collect(plan(tmp_path))
    names = value(profiled(log), "--metrics").split(",")
    assert "dram__bytes_read.sum" in names and "sm__ops_path_tensor_src_fp16_dst_fp32.sum" in names
    assert "dram__bytes_op_read.sum" not in names  # not listed here
    assert not [name for name in names if "_op_hmma" in name]  # parts of what is counted already
    assert all(is_input(name) for name in names if not name.startswith("launch__"))


def test_a_tool_that_lists_nothing_gets_sections(fake, tmp_path: Path) -> None:
    log = fake(listed="")
    NcuCollector().collect(plan(tmp_path))
    flags = profiled(log)
    assert "--metrics" not in flags and value(flags, "--section").startswith("SpeedOfLight")


def test_old_gpus_count_tensor_instructions() -> None:
    flags = metric_flags({"gpu__time_duration", "sm__inst_executed_pipe_tensor_op_hmma"})
    assert "sm__inst_executed_pipe_tensor_op_hmma.sum" in flags[1].split(",")


def test_every_wanted_metric_serves_a_quantity() -> None:
    assert all(is_input(name) for name in (*ncu.WANTED, *ncu._TENSOR_INSTEAD))


def test_missing_permission_is_explained(fake, tmp_path: Path) -> None:
    fake("permission")
    with pytest.raises(ToolError) as caught:
        NcuCollector().collect(plan(tmp_path))
    assert caught.value.code == "ncu-permission" and caught.value.exit_code == 3
    for remedy in ("NVreg_RestrictProfilingToAdminUsers=0", "CAP_SYS_ADMIN", "--cap-add=SYS_ADMIN"):
        assert remedy in caught.value.hint
    assert capture.load_capture(tmp_path / "capture").status == "failed"


@pytest.mark.parametrize(
    ("mode", "code"), [("fail", "child-failed"), ("no_report", "ncu-no-report"), ("hang", "child-hung")]
)
def test_other_failures_end_in_a_sentence(fake, tmp_path: Path, mode: str, code: str) -> None:
    fake(mode)
    with pytest.raises(ToolError) as caught:
        NcuCollector().collect(plan(tmp_path, timeout_s=2.0 if mode == "hang" else 30.0))
    assert caught.value.code == code
    assert capture.load_capture(tmp_path / "capture").status == "failed"


def test_the_report_counts_not_the_exit_code(fake, tmp_path: Path) -> None:
    fake("exit42")
    made = NcuCollector().collect(plan(tmp_path))
    assert made.status == "done" and "42" in made.message


def test_no_kernel_under_the_filter_is_tried_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that reads the range filter differently still gives the bracketed iteration."""
    tool = tmp_path / "ncu"
    tool.write_text(f"""#!/bin/sh
case "$*" in
  --version) echo Version 2024.1.0.0;;
  *--help*) echo --nvtx --nvtx-include --profile-from-start;;
  *--query-metrics*) ;;
  *--nvtx-include*) echo '==WARNING== No kernels were profiled.';;
  *) echo '{{}}' > {tmp_path}/capture/facts.json; echo report > {tmp_path}/capture/counters.ncu-rep;;
esac
""")
    tool.chmod(0o755)
    monkeypatch.setenv("XSP_NCU", str(tool))
    assert NcuCollector().collect(plan(tmp_path)).status == "done"


def test_the_cpu_has_no_counters(fake, tmp_path: Path) -> None:
    fake()
    with pytest.raises(UsageError) as caught:
        NcuCollector().collect(plan(tmp_path, device="cpu"))
    assert caught.value.code == "ncu-needs-gpu"


def test_what_doctor_learns(fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake()
    parameters = tmp_path / "params"
    monkeypatch.setattr(ncu, "_PARAMETERS", parameters)
    assert NcuCollector().check().is_available and not ncu.is_restricted()
    parameters.write_text("X: 1\nRmProfilingAdminOnly: 1\n")
    assert "administrators" in NcuCollector().check().found
    fake("mute")
    assert not NcuCollector().check().is_available
    monkeypatch.setenv("XSP_NCU", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("xsp_post.tools._NCU_FOLDERS", ())
    assert not NcuCollector().check().is_available
    with pytest.raises(ToolError) as caught:
        NcuCollector().collect(plan(tmp_path))
    assert caught.value.code == "ncu-missing"
