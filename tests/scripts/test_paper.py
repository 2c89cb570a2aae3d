"""The paper reproduced: raw printed columns through the product's own functions (checks R1–R9)."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from paper import check, data
from paper.check import Line, half_unit, number_line
from paper.data import Builder, KernelRow, compute_all
from paper.systems import paper_system
from paper.trimmed_mean import paper_trimmed_mean

from xsp_post.arrays.statistics import trimmed_mean
from xsp_post.model.results import with_unknown

needs_data = pytest.mark.skipif(
    data.folder() is None, reason="the paper's data is not at hand (XSP_POST_PAPER, or ../shared/paper)"
)

# section → lines that agree, lines with an error in the paper
EXPECTED = {
    "Table III (A8)": (15, 0),  # R1
    "Table IV (A10)": (19, 4),  # R1, E1
    "Table V (A11)": (15, 0),  # R1
    "Table VI (A15)": (36, 0),  # R2
    "Table IX (A15)": (149, 2),  # R3, E5, E7
    "Table X (A15, MXNet)": (30, 0),  # R4
    "Table VII (roofs)": (5, 0),  # R5
    "Figure 4 (A5–A7)": (18, 0),  # R6
    "234 layers (A2, A11–A15, stages)": (10, 3),  # R6, E3
    "Layer 208 (A11, A13, dominant kernel)": (3, 0),  # R7
    "Figure 2 (overhead)": (4, 0),  # R8
    "Figure 3 (A1, optimal batch)": (9, 5),  # R9, E2: nine speed-ups agree, each of the five policies slips
}


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return check.lines()


@needs_data
@pytest.mark.parametrize("section", EXPECTED)
def test_section(lines, section):
    mine = [line for line in lines if line.section == section]
    assert [line for line in mine if not line.is_as_expected] == []
    assert (sum(line.agrees for line in mine), sum(bool(line.erratum) for line in mine)) == EXPECTED[section]


@needs_data
def test_lines_that_test_nothing_are_called_circular(lines):
    """37 GPU shares whose kernel time is that share of the latency, six types by Figure 4a, and eleven more."""
    circular = Counter(line.section for line in lines if line.circular)
    assert circular == {
        "Table IX (A15)": 37,
        "Figure 4 (A5–A7)": 6,
        "234 layers (A2, A11–A15, stages)": 4,
        "Layer 208 (A11, A13, dominant kernel)": 2,
        "Figure 2 (overhead)": 4,
        "Figure 3 (A1, optimal batch)": 1,
    }
    tested = [line for line in lines if not line.circular and not line.erratum]
    assert (len(lines), len(tested)) == (327, 259) and all(line.agrees for line in tested)


@needs_data
def test_no_section_is_forgotten(lines):
    assert set(Counter(line.section for line in lines)) == set(EXPECTED)


@needs_data
def test_where_the_paper_has_an_error_our_value_is_stated(lines):
    ours = {line.what: (line.ours, line.paper) for line in lines if line.erratum}
    assert ours["scalar_product_op: count, from the Mul layers of Figure 4a"] == ("53", "52")  # E1
    assert ours["scalar_max_op: count, from the Relu layers of Figure 4a"] == ("49", "48")
    assert ours["128x128: count, at least total ÷ largest single flop"] == ("5", "4")
    assert ours["7 MLPerf ResNet50 v1.5: intensity, flop/B"] == ("30.56", "30.62")  # E5
    assert ours["highest GPU latency, %"] == ("96.32", "95.61")  # E7
    # E3: memory B, flop E, accesses B
    thirds = [ours[f"third with most {name}"] for name in ("allocated", "flop", "dram")]
    assert thirds == [("B", "E"), ("E", "M"), ("B", "E")]
    # R9, E2: none of the policies gives the printed 256
    policies = {policy: ours[f"optimal batch size, policy {policy}"][0] for policy in check.BATCH_POLICIES}
    assert policies == {"settled": "64", "first": "64", "last": "64", "max": "512", "within": "128"}


@needs_data
def test_decimal_megabytes_would_not_reproduce_the_paper(monkeypatch):
    monkeypatch.setattr(check, "MIB", 10**6)
    monkeypatch.setattr(check._kernel, "__defaults__", (-1, "", "MB", 1e6))
    intensities = [line for line in check.table_iii() if "intensity" in line.what]
    assert len(intensities) == 5 and not any(line.agrees for line in intensities)


@needs_data
def test_the_page_is_what_is_committed():
    page = Path(__file__).parents[2] / "docs" / "paper.md"
    assert page.read_text(encoding="utf-8") == check.render()


def test_without_the_data_there_is_no_page(monkeypatch, tmp_path):
    monkeypatch.setenv("XSP_POST_PAPER", str(tmp_path))
    assert data.folder() is None and check.render() is None
    with pytest.raises(FileNotFoundError, match="XSP_POST_PAPER"):
        check.lines()


# What needs no data: the numbers that the paper itself prints -----------------------------------------


def test_a_kernel_without_counters_has_no_verdict():
    """E9: the authors' code calls it memory-bound with intensity 0."""
    builder = Builder().add("m", 1, 1e6, [KernelRow("counted", 1e5, -1, 1e9, 1e6, 1e6), KernelRow("not", 1e5)])
    table = compute_all(builder.analysis(), roof="fp32", peaks={"*": paper_system("Tesla_V100")})[0]["a08"]
    assert table["bound"].tolist() == ["compute", "unknown"]
    assert np.isnan(table["arithmetic_intensity_flop_per_byte"].iloc[1])


def test_bound_is_strict_at_the_ideal_intensity():
    peaks = paper_system("Tesla_V100")
    ideal = peaks.ideal_intensity()
    moved = 2.0**20
    flops = {"below": 0.999999 * ideal * moved, "above": 1.000001 * ideal * moved}
    kernels = [KernelRow(name, 1e6, -1, flop, moved, 0.0) for name, flop in flops.items()]
    table = compute_all(Builder().add("m", 1, 1e7, kernels).analysis(), roof="fp32", peaks={"*": peaks})[0]["a08"]
    assert table["bound"].tolist() == ["memory", "compute"]


def test_half_a_unit_is_of_the_last_printed_place():
    assert half_unit("12.80") == pytest.approx(0.005)
    assert half_unit("12.8", 2) == pytest.approx(0.005)
    assert half_unit("52") == 0.5
    assert number_line("s", "w", 12.8049, "12.80").agrees
    assert not number_line("s", "w", 12.8051, "12.80").agrees
    assert not number_line("s", "w", 12.8, "12.80", erratum="why").is_as_expected


def test_the_papers_code_is_asymmetric_and_ours_is_not():
    # XSP's code: for n = 4 their slice loses the maximum only; n = 3 is the median.
    assert paper_trimmed_mean([1, 2, 3, 100]) == 2.0
    assert trimmed_mean([1, 2, 3, 100]) == 26.5
    assert paper_trimmed_mean([1, 5, 100]) == 5
    assert paper_trimmed_mean([1, 2]) == 1.5
    assert paper_trimmed_mean([5, 1, 2, 3, 100]) == 3.333  # as ours, but rounded
    assert paper_trimmed_mean([1, 2.00049]) == 1.5


def test_kernels_and_layers_that_were_not_captured_are_not_counted_as_zero():
    summary = compute_all(Builder().add("m", 1, 1e6).analysis())[0]["workload_summary"]
    counts = [name for name in summary.columns if name.endswith("_count")]
    assert len(counts) == 5
    assert with_unknown("workload_summary", summary)[counts].isna().all(axis=None)
    assert np.isnan(summary["layer_latency_ns"].iloc[0])
