"""``ingest.ncu`` and ``counters``: five real reports of five architectures, and stand-ins for what they lack."""

from __future__ import annotations

import math
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from xsp_post.base import messages
from xsp_post.base.errors import CaptureError, ToolError
from xsp_post.counters.quantities import quantities
from xsp_post.ingest import ncu, ncu_actions
from xsp_post.ingest.ncu import read_ncu
from xsp_post.ingest.ncu_actions import read_actions
from xsp_post.ingest.ncu_csv import read_ncu_csv
from xsp_post.ingest.recognition import sniff_ncu
from xsp_post.ingest.sources import make_before
from xsp_post.model.counters import QUANTITIES, CounterReport

REAL = {
    "cublas_sgemm_a100_2022.2": (1, "NVIDIA A100-PCIE-40GB"),
    "cutlass_int8_nvtx_a100_2024.1": (3, "NVIDIA A100 80GB PCIe"),
    "graph_gb200_2025.3": (3, "NVIDIA GB200"),
    "julia_a40_2022.1": (2, "NVIDIA A40"),
    "sgemm_roofline_a10g_2023.1": (4, "NVIDIA A10G"),
}


def real(captures: Path, name: str) -> CounterReport:
    pytest.importorskip("ncu_report", reason="NVIDIA's reader is not installed (extra ncu)")
    return read_ncu(captures / "ncu" / f"{name}.ncu-rep")


def values(report: CounterReport, quantity: str) -> list[float]:
    derived = quantities(report)
    return derived.loc[derived["metric_name"] == quantity, "value"].tolist()


def sources(report: CounterReport, quantity: str) -> set[str]:
    derived = quantities(report)
    return set(derived.loc[derived["metric_name"] == quantity, "source"])


def roof_fractions(report):
    """How near each action came to the roofs its own report states (1 = at the roof); above 1 something is wrong."""
    wide = quantities(report).pivot(index="action_id", columns="metric_name", values="value")
    wide = wide.reindex(index=report.actions.index, columns=list(QUANTITIES))
    seconds = wide["counted_duration_ns"] * 1e-9
    pairs = {
        "fp64": ("flop_fp64", "peak_fp64_flop_per_s"),
        "fp32": ("flop_fp32", "peak_fp32_flop_per_s"),
        "fp16": ("flop_fp16", "peak_fp16_flop_per_s"),
        "dram": ("dram_bytes", "peak_dram_bytes_per_s"),
    }
    return pd.DataFrame({name: wide[part] / seconds / wide[peak] for name, (part, peak) in pairs.items()})


@pytest.mark.parametrize("name", REAL)
def test_real_reports_load_and_stay_below_their_roofs(captures: Path, name: str) -> None:
    report = real(captures, name)
    count, gpu_name = REAL[name]
    assert len(report.actions) == count
    assert set(report.actions["gpu_name"]) == {gpu_name}
    assert sniff_ncu(captures / "ncu" / f"{name}.ncu-rep")
    assert (report.actions[["grid_x", "block_x"]] > 0).all(axis=None)
    assert np.isfinite(report.metrics["value"]).all()
    fractions = roof_fractions(report).to_numpy()
    assert (fractions[np.isfinite(fractions)] <= 1).all()
    if name != "cublas_sgemm_a100_2022.2":  # its basic set has no peaks
        assert np.isfinite(roof_fractions(report)[["fp32", "dram"]]).all(axis=None)
    derived = quantities(report)
    assert set(derived["metric_name"]) <= set(QUANTITIES)
    assert not derived.duplicated(["action_id", "metric_name"]).any()
    assert (derived["source"] != "").all()


def test_flop_of_a_known_matrix_product(captures: Path) -> None:
    """The A10G report is of a 1024³ single-precision product: 2·1024³ flop whatever the kernel."""
    flop = values(real(captures, "sgemm_roofline_a10g_2023.1"), "flop_fp32")
    assert flop == pytest.approx([2 * 1024**3] * 4, rel=1e-4)
    dram = values(real(captures, "sgemm_roofline_a10g_2023.1"), "dram_bytes")
    assert min(dram) >= 12 * 1024**2  # three matrices of 4 MiB must move
    assert max(dram) < 3 * 12 * 1024**2


def test_peaks_agree_with_the_data_sheets_at_the_measured_clock(captures: Path) -> None:
    a10g = real(captures, "sgemm_roofline_a10g_2023.1")
    # 80 SM × 128 lanes × 2 flop × the clock that was measured
    clock = a10g.metrics.query("metric_name == 'sm__cycles_elapsed.avg.per_second'")["value"]
    assert values(a10g, "peak_fp32_flop_per_s") == pytest.approx((80 * 128 * 2 * clock).tolist())
    assert values(a10g, "peak_dram_bytes_per_s") == pytest.approx([600e9] * 4, rel=0.01)
    gb200 = real(captures, "graph_gb200_2025.3")
    assert values(gb200, "peak_dram_bytes_per_s") == pytest.approx([8e12] * 3, rel=0.02)


def test_half_precision_counts_as_the_report_derives_it(captures: Path) -> None:
    assert all("hfma × 4" in s for s in sources(real(captures, "graph_gb200_2025.3"), "flop_fp16"))
    assert all("hfma × 2, as" in s for s in sources(real(captures, "sgemm_roofline_a10g_2023.1"), "flop_fp16"))


def test_what_was_not_recorded_is_absent_not_zero(captures: Path) -> None:
    basic = real(captures, "cublas_sgemm_a100_2022.2")  # a matrix product whose flop nobody counted
    names = set(quantities(basic)["metric_name"])
    assert names.isdisjoint({"flop", "flop_fp32", "dram_bytes", "dram_read_bytes", "l2_bytes"})
    assert values(basic, "occupancy_ratio") == pytest.approx([0.0624], abs=1e-4)
    assert values(basic, "theoretical_occupancy_ratio") == [0.25]


def test_integer_tensor_work_is_no_flop(captures: Path) -> None:
    report = real(captures, "cutlass_int8_nvtx_a100_2024.1")
    assert values(report, "flop_tensor") == [0, 0, 0]
    assert sources(report, "flop_tensor") == {"tensor pipe: integer work only"}
    assert min(values(report, "tensor_active_ratio")) > 0.1
    assert report.actions["range_path"].tolist() == ["Non-fused-GEMM", "Non-fused-GEMM", "Fused-GEMM"]
    assert report.actions["domain"].tolist() == [""] * 3
    assert report.device_attributes[1]["multiprocessor_count"] == 108


def test_a_cut_report_says_so(captures: Path, tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    whole = (captures / "ncu" / "sgemm_roofline_a10g_2023.1.ncu-rep").read_bytes()
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(whole[:200_000])
    report = read_ncu(path)
    assert len(report.actions) == 2  # NVIDIA's reader gives what it can and says nothing
    assert [f.code for f in report.findings if f.severity == messages.WARNING] == ["counters-report-cut"]
    assert ncu_actions.declared_results(path) == (1, False)  # the second result is the one that is cut


@pytest.mark.parametrize("name", REAL)
def test_the_frame_of_the_file_counts_its_results(captures: Path, name: str) -> None:
    assert ncu_actions.declared_results(captures / "ncu" / f"{name}.ncu-rep") == (REAL[name][0], True)


@pytest.mark.parametrize(
    "content",
    [b"", b"rubbish", b"version https://git-lfs.github.com/spec/v1\n", b"NVR\x00", b"NVR\x00\x02\0\0\0\x08\x07",
     b"NVR\x00" + b"\xff" * 400, b"PK\x03\x04" + b"\0" * 100],
)  # fmt: skip
def test_foreign_files_are_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("ncu_report")
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(CaptureError) as caught:
        read_ncu(path)
    assert caught.value.code == "ncu-report-unreadable"
    assert str(path) in caught.value.message and "\n" not in caught.value.message


def test_other_captures_are_not_taken_for_reports(captures: Path) -> None:
    others = [*(captures / "nsys").glob("*.sqlite"), *(captures / "kineto").iterdir(), *(captures / "other").iterdir()]
    assert len(others) > 15 and not [path for path in others if path.is_file() and sniff_ncu(path)]


# --- stand-ins with the interface of ncu_report ---------------------------------------------------------


class FakeMetric:
    def __init__(self, value: Any, unit: str = "") -> None:
        self._value, self._unit = value, unit

    def value(self) -> Any:
        return self._value

    def unit(self) -> str:
        return self._unit

    def has_value(self) -> bool:
        return self._value is not None

    def as_double(self) -> float:
        return float(self._value) if isinstance(self._value, (int, float)) else 0.0


class FakeDomain:
    def __init__(self, name: str, ranges: tuple[str, ...]) -> None:
        self._name, self._ranges = name, ranges

    def name(self) -> str:
        return self._name

    def push_pop_ranges(self) -> tuple[str, ...]:
        return self._ranges


class FakeState:
    def __init__(self, domains: dict[str, tuple[str, ...]]) -> None:
        self._domains = [FakeDomain(name, ranges) for name, ranges in domains.items()]

    def domains(self) -> range:
        return range(len(self._domains))

    def domain_by_id(self, number: int) -> FakeDomain:
        return self._domains[number]


class FakeAction:
    NameBase_FUNCTION, NameBase_DEMANGLED = 0, 1

    def __init__(self, metrics: dict[str, Any], domains: dict[str, tuple[str, ...]] | None = None, workload: int = 0):
        self._metrics = {name: FakeMetric(value) for name, value in metrics.items()}
        self._state = FakeState(domains) if domains is not None else None
        self._workload = workload

    def name(self, base: int) -> str:
        return "void k<1>(int)" if base else "k"

    def workload_type(self) -> int:
        return self._workload

    def metric_names(self) -> tuple[str, ...]:
        return tuple(self._metrics)

    def metric_by_name(self, name: str) -> FakeMetric:
        return self._metrics[name]

    def nvtx_state(self) -> FakeState | None:
        return self._state


def fake(metrics: dict[str, Any], **more: Any) -> CounterReport:
    return read_actions([FakeAction({"gpu__time_duration.sum": 1000.0, **metrics}, **more)], "fake")


SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def test_counts_come_before_rates() -> None:
    plain = {SASS.format(op): n for op, n in (("fadd", 1), ("fmul", 2), ("ffma", 10))}
    rates = {f"{SASS.format(op)}.per_cycle_elapsed": 99.0 for op in ("fadd", "fmul", "ffma")}
    clock = {"smsp__cycles_elapsed.avg": 5.0}
    assert values(fake({**plain, **rates, **clock}), "flop_fp32") == [23]
    assert values(fake({**rates, **clock}), "flop_fp32") == [4 * 99 * 5]
    assert values(fake(rates), "flop_fp32") == []  # a rate without a clock is not a count
    assert values(fake({**plain, SASS.format("ffma"): None}), "flop_fp32") == []  # a part is missing


def test_tensor_flop_by_preference(monkeypatch) -> None:
    ops = "sm__ops_path_tensor_src_"
    counted = {f"{ops}fp16_dst_fp32.sum": 100, f"{ops}bf16_dst_fp32_sparsity_off.sum": 7,
               f"{ops}bf16_dst_fp32_sparsity_on.sum": 1, f"{ops}int8.sum": 1e9,
               "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum": 100,
               f"{ops}fp16_dst_fp32_sparsity_off.sum": 100}  # fmt: skip
    instructions = {"sm__inst_executed_pipe_tensor_op_hmma.sum": 3}
    share = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 50.0}
    assert values(fake({**counted, **instructions, **share}), "flop_tensor") == [108]  # aggregates once, no integers
    estimate = fake({**instructions, **share})
    assert values(estimate, "flop_tensor") == [3 * 512]
    assert "estimate" in next(iter(sources(estimate, "flop_tensor")))
    assert values(fake(share), "flop_tensor") == []
    monkeypatch.setattr("xsp_post.counters.quantities._tensor_peaks", lambda *_: np.full(1, 1e12))
    by_peak = quantities(fake(share)).set_index("metric_name")
    assert by_peak.loc["flop_tensor", "value"] == pytest.approx(0.5 * 1e12 * 1e-6)
    assert "estimate" in by_peak.loc["flop_tensor", "source"]
    assert "estimate" in by_peak.loc["flop", "source"]
    # half of the pipe's work was integer: only the other half is flop
    mixed = {"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": 30.0,
             "sm__pipe_tensor_op_imma_cycles_active.avg.pct_of_peak_sustained_active": 30.0}  # fmt: skip
    half = quantities(fake({**share, **mixed})).set_index("metric_name")
    assert half.loc["flop_tensor", "value"] == pytest.approx(0.25 * 1e12 * 1e-6)


def test_the_peak_of_the_gpu_that_the_report_names_serves_the_estimate() -> None:
    """Old reports of A100 tell only the share of the tensor pipe: 50 % of 312 Tflop/s for 1 µs, at half its clock."""
    device = {"device__attribute_display_name": "NVIDIA A100-SXM4-80GB", "device__attribute_multiprocessor_count": 108,
              "device__attribute_clock_rate": 1_410_000, "launch__device_id": 0}  # fmt: skip
    share = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 50.0}
    assert values(fake({**device, **share}), "flop_tensor") == pytest.approx([156e6], rel=0.01)
    slow = {"sm__cycles_elapsed.avg.per_second": 705e6}
    assert values(fake({**device, **share, **slow}), "flop_tensor") == pytest.approx([78e6], rel=0.01)
    # instructions are counted only where NVIDIA's own chart does (…_x512): how many flop one has depends on its shape
    instructions = {"sm__inst_executed_pipe_tensor.sum": 1000}
    assert values(fake({**device, **share, **instructions}), "flop_tensor") == pytest.approx([156e6], rel=0.01)
    chart = {"derived__sm__inst_executed_pipe_tensor_x512": 40960.0}
    assert values(fake({**device, **share, **instructions, **chart}), "flop_tensor") == [512_000]
    unknown = {**device, "device__attribute_display_name": "Voodoo 2"}
    assert values(fake({**unknown, **share, "device__attribute_multiprocessor_count": 1}), "flop_tensor") == []


def test_nvprof_names_of_the_paper_are_understood() -> None:
    report = fake({"flop_count_sp": 8, "dram_read_bytes": 64, "dram_write_transactions": 1, "achieved_occupancy": 0.5})
    derived = quantities(report).set_index("metric_name")["value"]
    assert derived[["flop", "dram_bytes", "occupancy_ratio"]].tolist() == [8, 96, 0.5]


def test_a_number_that_is_none_becomes_a_finding_never_a_zero() -> None:
    report = fake({"dram__bytes_read.sum": math.nan, "dram__bytes_write.sum": None, "source_counters": None,
                   "lts__t_bytes.sum": 0, "launch__func": "text"})  # fmt: skip
    assert values(report, "dram_read_bytes") == values(report, "dram_bytes") == []
    assert values(report, "l2_bytes") == [0]
    found = {f.code: f.count for f in report.findings}
    assert found["counters-not-a-number"] == 2
    assert report.findings[0].severity == messages.WARNING
    assert fake({"odd__metric": math.nan}).findings[0].severity == messages.INFO  # nobody needs it


def test_our_domain_gives_the_path_whatever_else_is_there() -> None:
    path = ("model:forward#0", "conv1:Conv2d#0")
    report = fake({}, domains={"<default domain>": ("a", "b", "c"), "xsp": path, "cuDNN": ()})
    assert report.actions["range_path"].tolist() == [" > ".join(path)]
    assert report.actions["domain"].tolist() == ["xsp"]
    assert "counters-no-ranges" not in {f.code for f in report.findings}
    assert "counters-no-ranges" in {f.code for f in fake({}).findings}
    assert "counters-several-in-one" in {f.code for f in fake({}, workload=2).findings}


def test_big_reports_keep_what_is_needed_and_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_actions, "MAX_VALUES", 3)
    report = fake({"lts__t_bytes.sum": 5, "odd__metric.sum": 1, "other.avg": 2, "more": 3})
    assert set(report.metrics["metric_name"]) == {"gpu__time_duration.sum", "lts__t_bytes.sum"}
    assert {f.code: f.count for f in report.findings}["counters-metrics-left-out"] == 3


# --- CSV ------------------------------------------------------------------------------------------------

RANGE = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
CSV = (
    "==PROF== Disconnected\n"
    f'"ID","Process ID","Kernel Name","{RANGE}","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"device__attribute_display_name","gpu__time_duration.sum","dram__bytes_read.sum","lts__t_bytes.sum"\n'
    '"","","","","","","","","","","","usecond","Kbyte","byte"\n'
    '"0","42","void k<1>(int)","7  ""<default domain>:outer:none:none:none:none:none:none""  '
    '""xsp:conv1:Conv2d#0:none:none:none:none:none:none""","1","7","(64, 2, 1)","(1,024, 1, 1)","0","8.0",'
    '"NVIDIA A100","1,234.5","2.00","n/a"\n'
    '"1","42","plain","","1","7","(32, 1, 1)","(1, 1, 1)","0","8.0","NVIDIA A100","1","3","7"\n'
)


def test_csv_of_the_raw_page() -> None:
    report = read_ncu_csv(CSV, "r.csv")
    assert report.actions["short_name"].tolist() == ["k", "plain"]
    assert report.actions["range_path"].tolist() == ["conv1:Conv2d#0", ""]
    assert report.actions.loc[0, ["block_x", "block_y", "process_id", "stream_id"]].tolist() == [64, 2, 42, 7]
    wide = report.metrics.pivot(index="action_id", columns="metric_name", values="value")
    assert wide["gpu__time_duration.sum"].tolist() == [1_234_500, 1000]
    assert wide["dram__bytes_read.sum"].tolist() == [2000, 3000]
    assert wide["lts__t_bytes.sum"].tolist()[1] == 7 and math.isnan(wide["lts__t_bytes.sum"].tolist()[0])
    assert {f.code: f.count for f in report.findings}["counters-not-a-number"] == 1
    assert report.device_attributes[0]["display_name"] == "NVIDIA A100"
    assert set(report.metrics["unit"]) == {"ns", "byte"}


def test_csv_file_is_a_source(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(CSV)
    assert sniff_ncu(path) and len(read_ncu(path).actions) == 2


@pytest.mark.parametrize(
    "text", ["", '"ID","Kernel Name"\n', CSV.replace("lts__t_bytes.sum", "Metric Name"), "a,b\n1,2\n"]
)
def test_csv_of_another_page_is_refused(text: str) -> None:
    with pytest.raises(CaptureError) as caught:
        read_ncu_csv(text, "r.csv")
    assert caught.value.code == "ncu-csv-unreadable"


def without_library(monkeypatch: pytest.MonkeyPatch, ncu_path: Path | None) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    tool = None if ncu_path is None else type("T", (), {"path": ncu_path})()
    monkeypatch.setattr(ncu.tools, "find_ncu", lambda: tool)


def test_without_the_library_a_local_ncu_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "r.ncu-rep"
    report.write_bytes(b"NVR\x00rest")
    (tmp_path / "page.csv").write_text(CSV)
    tool = tmp_path / "ncu"
    tool.write_text(f'#!/bin/sh\n[ "$1" = --import ] && [ "$LC_ALL" = C ] || exit 9\ncat {tmp_path}/page.csv\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    without_library(monkeypatch, tool)
    assert len(read_ncu(report).actions) == 2
    tool.write_text("#!/bin/sh\necho '==ERROR== report is too new' >&2\nexit 3\n")
    with pytest.raises(ToolError, match="too new") as caught:
        read_ncu(report)
    assert caught.value.code == "ncu-import-failed"


def test_what_only_a_local_ncu_reads_is_read_before_the_process_is_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sealed process starts no ncu; the CSV of the raw page needs none."""
    report, page = tmp_path / "r.ncu-rep", tmp_path / "page.ncu-rep"
    report.write_bytes(b"NVR\x00rest")
    page.write_text(CSV)
    without_library(monkeypatch, Path("ncu"))
    asked: list[Path] = []
    monkeypatch.setattr(ncu, "import_by_tool", lambda path: asked.append(path) or CSV)
    make_before([report, page])
    assert asked == [report]
    assert len(read_ncu(report).actions) == len(read_ncu(page).actions) == 2
    assert asked == [report]


def test_without_any_reader_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "r.ncu-rep"
    report.write_bytes(b"NVR\x00rest")
    without_library(monkeypatch, None)
    with pytest.raises(ToolError) as caught:
        read_ncu(report)
    assert caught.value.code == "ncu-reader-missing" and "pip install" in caught.value.hint


def test_reports_are_left_as_they_are(captures: Path, tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    copy = tmp_path / "copy.ncu-rep"
    shutil.copy(captures / "ncu" / "julia_a40_2022.1.ncu-rep", copy)
    before = (copy.read_bytes(), sorted(p.name for p in tmp_path.iterdir()))
    report = read_ncu(copy)
    assert (copy.read_bytes(), sorted(p.name for p in tmp_path.iterdir())) == before
    assert isinstance(report.metrics["metric_name"].dtype, pd.CategoricalDtype)
