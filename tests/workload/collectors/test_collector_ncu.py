"""``collectors.ncu``: every way ncu can end, against a fake that logs how it was called."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from builders import ExportBuilder

from xsp_post.base.errors import ToolError
from xsp_post.counters.quantities import is_input, quantities
from xsp_post.model import capture
from xsp_post.model.capture import CapturePlan, Workload
from xsp_post.model.counters import ACTION_DTYPES, QUANTITIES, CounterReport
from xsp_post.model.levels import RUN_COUNTERS
from xsp_post.workload.collectors import ncu
from xsp_post.workload.collectors.ncu import FLOPS, MEMORY, METRIC_SETS, OCCUPANCY, NcuCollector, metric_flags

FAKES = Path(__file__).parents[2] / "fakes"
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


def plan(tmp_path: Path, metric_set: str = FLOPS, *, device: str = "cuda", timeout_s: float = 30.0) -> CapturePlan:
    folder = tmp_path / "capture"
    folder.mkdir()
    return CapturePlan(Workload("resnet50", device=device), RUN_COUNTERS, 4, 0, "ncu", folder, timeout_s, metric_set)


def metrics(listed: set[str], metric_set: str) -> list[str]:
    flags = metric_flags(listed, metric_set)
    return flags[flags.index("--metrics") + 1].split(",")


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
    request = json.loads(child[-1])
    assert (request["workload"]["iteration_count"], request["workload"]["warmup_count"]) == (1, 3)
    assert request["levels"][0][1] == "cuda"
    assert made.status == "done" and made.source().name == "counters_flops.ncu-rep"
    assert made.name == "M/L/G+counters (flops), batch 4"
    assert capture.load_capture(made.directory).metric_set == "flops"
    kept = capture.load_capture(made.directory).settings
    assert (kept["clock_control"], kept["cache_control"], kept["counted_iteration_count"]) == ("none", "all", 1)
    assert kept["iteration_count"] == 10  # alike with the timing runs
    assert kept["tool_version"] == "2025.1.1.0"


OWN = {FLOPS: "sm__ops_path_tensor_src_fp16_dst_fp32.sum", MEMORY: "dram__bytes_read.sum",
       OCCUPANCY: "sm__warps_active.avg.pct_of_peak_sustained_active"}  # fmt: skip


@pytest.mark.parametrize("metric_set", METRIC_SETS)
def test_metrics_of_one_set_are_asked_of_the_tool(fake, tmp_path: Path, metric_set: str) -> None:
    log = fake()
    made = NcuCollector().collect(plan(tmp_path, metric_set))
    names = value(profiled(log), "--metrics").split(",")
    assert [name for name in OWN.values() if name in names] == [OWN[metric_set]]
    assert "gpu__time_duration.sum" in names  # rates are multiplied by it
    assert "dram__bytes_op_read.sum" not in names  # not listed here
    assert not [name for name in names if "_op_hmma" in name]  # parts of what is counted already
    assert all(is_input(name) for name in names if not name.startswith("launch__"))
    assert any(name.startswith("launch__") for name in names) == (metric_set == OCCUPANCY)
    assert len(names) == len(set(names)) and made.source().name == f"counters_{metric_set}.ncu-rep"


def test_a_set_that_the_gpu_has_no_metric_of_is_left_out(fake) -> None:
    fake()
    assert NcuCollector().metric_sets() == ((FLOPS, MEMORY, OCCUPANCY), ())
    fake(listed="gpu__time_duration,dram__bytes_read,sm__warps_active")
    assert NcuCollector().metric_sets() == ((MEMORY, OCCUPANCY), (FLOPS,))
    fake(listed="")  # it does not say: sections
    assert NcuCollector().metric_sets() == ((FLOPS, MEMORY, OCCUPANCY), ())


@pytest.mark.parametrize("modern", [True, False])
def test_each_quantity_comes_out_of_one_set_alone(modern: bool) -> None:
    """What all metrics in one report give is what the reports of the sets give, down to the source."""
    tensor = "sm__ops_path_tensor_src_fp16_dst_fp32" if modern else "sm__inst_executed_pipe_tensor_op_hmma"
    listed = {name.partition(".")[0] for names in METRIC_SETS.values() for name in names}
    listed |= {"gpu__time_duration", tensor}
    per_set = {name: [m for m in metrics(listed, name) if is_input(m)] for name in METRIC_SETS}
    whole = quantities(counted(list(dict.fromkeys(m for names in per_set.values() for m in names))))
    parts = pd.concat([quantities(counted(names)) for names in per_set.values()]).drop_duplicates("metric_name")
    order = ["metric_name", "value", "source"]
    expected = whole.sort_values("metric_name", ignore_index=True)[order]
    found = parts.sort_values("metric_name", ignore_index=True)[order]
    pd.testing.assert_frame_equal(found.astype({"source": object}), expected.astype({"source": object}))
    of_other_sets = {"compute_speed_ratio", "memory_speed_ratio"}  # ncu's own section SpeedOfLight; we ask for no such
    assert set(expected["metric_name"]) == set(QUANTITIES) - of_other_sets


def counted(names: list[str]) -> CounterReport:
    """A report of one kernel, each metric its own value."""
    rows = {"action_id": 0, "metric_name": names, "value": [float(1 + len(name)) for name in names], "unit": ""}
    actions = pd.DataFrame({name: pd.Series(["" if dtype == "object" else 0], dtype=dtype)
                            for name, dtype in ACTION_DTYPES.items()})  # fmt: skip
    frame = pd.DataFrame(rows).astype({"metric_name": "category", "unit": "category"})
    return CounterReport("r.ncu-rep", "ncu", actions, frame)


def test_a_tool_that_lists_nothing_gets_sections(fake, tmp_path: Path) -> None:
    log = fake(listed="")
    NcuCollector().collect(plan(tmp_path))
    flags = profiled(log)
    assert "--metrics" not in flags and value(flags, "--section").startswith("SpeedOfLight")


def test_each_set_has_its_sections() -> None:
    sections = {name: set(metric_flags(set(), name)) - {"--section"} for name in METRIC_SETS}
    assert "SpeedOfLight_RooflineChart" in sections[FLOPS] and "Occupancy" in sections[OCCUPANCY]
    assert "MemoryWorkloadAnalysis_Tables" in sections[MEMORY] - sections[FLOPS]


def test_old_gpus_count_tensor_instructions() -> None:
    listed = {"gpu__time_duration", "sm__inst_executed_pipe_tensor_op_hmma"}
    assert "sm__inst_executed_pipe_tensor_op_hmma.sum" in metrics(listed, FLOPS)


def test_every_wanted_metric_serves_a_quantity() -> None:
    wanted = [name for names in METRIC_SETS.values() for name in names]
    assert all(is_input(name) for name in (*wanted, *ncu._COMMON, *ncu._TENSOR_INSTEAD))
    assert len(wanted) == len(set(wanted))


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
  *) echo '{{}}' > {tmp_path}/capture/facts.json; echo report > {tmp_path}/capture/counters_flops.ncu-rep;;
esac
""")
    tool.chmod(0o755)
    monkeypatch.setenv("XSP_NCU", str(tool))
    assert NcuCollector().collect(plan(tmp_path)).status == "done"


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
    monkeypatch.setattr("xsp_post.hardware.tools._FOLDERS", {"ncu": ()})
    assert not NcuCollector().check().is_available
    with pytest.raises(ToolError) as caught:
        NcuCollector().collect(plan(tmp_path))
    assert caught.value.code == "ncu-missing"


# -- a whole run --ncu, nsys and ncu replayed -------------------------------------------------------------------

LAUNCHED = [("0:Conv2d#0", "implicit_gemm"), ("0:Conv2d#0", "add"), ("1:ReLU#0", "add"), ("2:Linear#0", "gemm")]
ALL_LISTED = ",".join(sorted({n.partition(".")[0] for names in METRIC_SETS.values() for n in (*names, *ncu._COMMON)}))


def export_of(path: Path, iterations: int = 2) -> Path:
    """The nsys export of a program that launches `LAUNCHED` in every iteration."""
    builder = ExportBuilder().process(42).thread(42)
    for number in range(iterations):
        at = 10_000 * number
        builder.range(f"model:forward#{number}", at, at + 9000, domain="xsp")
        for place, layer in enumerate(dict.fromkeys(layer for layer, _ in LAUNCHED)):
            builder.range(layer, at + 2000 * place + 10, at + 2000 * place + 1990, domain="xsp")
        for place, (layer, kernel) in enumerate(LAUNCHED):
            start = at + 2000 * list(dict.fromkeys(one for one, _ in LAUNCHED)).index(layer) + 100 * place + 20
            builder.kernel(kernel, launch=(start, start + 5), run=(start + 10, start + 60))
    return builder.write(path)


@pytest.fixture
def measure(fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`measure(*arguments)` calls ``xsp-post run --ncu`` in `tmp_path` and returns how it ended."""
    pytest.importorskip("torch")
    fake(listed=ALL_LISTED)
    monkeypatch.setenv("XSP_NSYS", str(FAKES / "nsys"))
    monkeypatch.setenv("FAKE_EXPORT", str(export_of(tmp_path / "replayed.sqlite")))
    monkeypatch.setenv("FAKE_KERNELS", json.dumps(LAUNCHED))

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "xsp_post.cli", "run", "--model", "resnet50", "--device", "cuda", "--ncu",
                   "--collector", "nsys", "--levels", "MLG", "--repeat", "1", "-o", "out", *arguments]  # fmt: skip
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False)

    return call


def counters_of(folder: Path) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Metrics of each launch of an iteration (rows) out of the run's store, and the whole tables."""
    with closing(sqlite3.connect(folder / "resnet50.xsp.sqlite")) as store:
        tables = {name: pd.read_sql(f"SELECT * FROM {name}", store)
                  for name in ("kernels", "kernel_metrics", "counter_join", "findings")}  # fmt: skip
    metrics = tables["kernel_metrics"]
    assert not metrics.duplicated(["kernel_id", "metric_name"]).any()
    wide = metrics.pivot(index="kernel_id", columns="metric_name", values="value")
    return wide.reindex(tables["kernels"].sort_values("start_ns")["kernel_id"]), tables


def test_a_run_reads_each_metric_set_in_a_run_of_its_own_and_joins_them_all(measure, tmp_path: Path) -> None:
    ended = measure()
    assert ended.returncode == 0, ended.stderr
    shown = re.sub(r" \(about [^)]* left\)", "", ended.stderr)
    steps = re.findall(r"\[(\d/\d)\] (.*) … .* \((\w+)\)", shown)
    assert steps == [
        ("1/4", "M/L/G, batch 1, repeat 1", "nsys"),
        *((f"{n}/4", f"M/L/G+counters ({name}), batch 1", "ncu") for n, name in enumerate(METRIC_SETS, 2)),
    ]
    wide, tables = counters_of(tmp_path / "out")
    asked = {name: metrics(set(ALL_LISTED.split(",")), name) for name in METRIC_SETS}
    assert {"flop", "flop_fp32", "tensor_active_ratio", "dram_bytes", "l2_bytes", "peak_dram_bytes_per_s",
            "peak_fp32_flop_per_s", "occupancy_ratio", "theoretical_occupancy_ratio", "counted_duration_ns",
            "launch__registers_per_thread"} <= set(wide.columns)  # fmt: skip
    for place in range(8):  # of two iterations; each value is that of its own launch, nothing is a mean
        row, base = wide.iloc[place], 1000 * (place % 4 + 1)
        assert row["dram_read_bytes"] == base + asked[MEMORY].index("dram__bytes_read.sum")
        achieved = asked[OCCUPANCY].index("sm__warps_active.avg.pct_of_peak_sustained_active")
        assert row["occupancy_ratio"] == pytest.approx((base + achieved) / 100)
        assert row["counted_duration_ns"] == base
    assert not tables["kernel_metrics"]["source"].str.contains("mean of|several reports").any()
    joined = tables["counter_join"].query("kernel_count > 0")
    assert joined["report_name"].tolist() == [f"counters_{name}.ncu-rep" for name in METRIC_SETS]
    assert set(joined["step"]) == {"path and order"} and set(joined["kernel_count"]) == {8}
    assert not tables["findings"]["code"].str.startswith("counters-").any()


def test_a_set_that_fails_is_said_and_the_others_are_kept(measure, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_FAIL_AT", "lts__t_sectors.sum")
    ended = measure()
    assert ended.returncode == 0, ended.stderr
    shown = re.sub(r" \(about [^)]* left\)", "", ended.stderr)
    assert "M/L/G+counters (memory), batch 1 … failed: these counters are left out\n" in shown
    assert "Note: no counters of memory at batch size 1: " in ended.stdout and "--resume" in ended.stdout
    said = next(line for line in ended.stdout.splitlines() if "[counters-set-failed]: memory, batch 1: " in line)
    assert said.endswith("==ERROR== Failed to profile kernel")
    wide, tables = counters_of(tmp_path / "out")
    assert {"flop", "occupancy_ratio"} <= set(wide.columns) and "dram_bytes" not in wide.columns
    assert (tables["findings"]["code"] == "counters-set-failed").sum() == 1
    monkeypatch.delenv("FAKE_FAIL_AT")
    resumed = measure("--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert re.findall(r"\] (.*) … ", resumed.stderr) == ["M/L/G+counters (memory), batch 1"]
    wide, tables = counters_of(tmp_path / "out")
    assert wide["dram_bytes"].notna().all() and "counters-set-failed" not in set(tables["findings"]["code"])


def test_a_finding_of_all_sets_is_said_once_with_their_names(measure, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FAKE_KERNELS", json.dumps([*LAUNCHED, ["3:New#0", "never_launched"]]))
    assert measure().returncode == 0
    found = counters_of(tmp_path / "out")[1]["findings"].query("code == 'counters-unused'")
    assert found["example"].tolist() == [", ".join(f"counters_{name}.ncu-rep" for name in METRIC_SETS)]


def test_reports_of_the_sets_alone_are_one_capture(measure, tmp_path: Path) -> None:
    assert measure().returncode == 0
    reports = [str(path) for path in sorted((tmp_path / "out").glob("captures/*/*.ncu-rep"))]
    command = [sys.executable, "-m", "xsp_post.cli", "ingest", *reports, "-o", "resnet50.xsp.sqlite"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    wide, tables = counters_of(tmp_path)
    assert len(tables["kernels"]) == len(LAUNCHED)
    assert wide[["flop", "dram_bytes", "occupancy_ratio"]].notna().all().all()
