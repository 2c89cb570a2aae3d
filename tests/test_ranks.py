"""Ranks: communication, overlap and stragglers of one job, from one file or one per rank."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from generators.machine import write
from generators.visitors_runs import job
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded import analyzed
from rich.console import Console

from xsp_post.model.results import Analysis
from xsp_post.model.schemas import TABLES
from xsp_post.pipeline import analyze
from xsp_post.replay.collectives import collectives_frame
from xsp_post.reports import frames, page_rows
from xsp_post.reports.terminal import print_frame
from xsp_post.reports.why import ranks_line
from xsp_post.tables.analyses.ranks import _BY_CHANCE, _outside, _stragglers, rank_contribution, rank_tables

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
GEMM = "ampere_sgemm_128x64_tn"


def results(kernels, copies=()) -> Analysis:
    """Results of one capture from (name, process, device, start, end) rows."""
    names = ["name", "process_id", "device_id", "start_ns", "end_ns"]
    kernel_frame = pd.DataFrame(kernels, columns=names).assign(capture_id=0, stream_id=7, launch_start_ns=-1)
    copy_frame = pd.DataFrame(copies, columns=["kind", *names[1:]]).assign(capture_id=0)
    captures = pd.DataFrame({"capture_id": [0], "level": ["M/L/G"], "kernel_count": [len(kernels)]})
    met = collectives_frame(kernel_frame).assign(capture_id=0)
    frames = {"kernels": kernel_frame, "memory_operations": copy_frame, "captures": captures, "collectives": met}
    return Analysis(frames)


def rank_table(parts, job_name="") -> pd.DataFrame:
    return rank_tables(parts, job_name)["ranks"]


def test_overlap_is_what_compute_hides():
    table = rank_table(
        [
            rank_contribution(
                results(
                    [(GEMM, 1, 0, 0, 100), (ALL_REDUCE, 1, 0, 60, 160), (GEMM, 1, 0, 150, 200)],
                    [("memcpy", 1, 0, 300, 310)],
                )
            )
        ],
        "job",
    )
    row = table.iloc[0]
    assert (row["compute_ns"], row["communication_ns"], row["overlapped_ns"], row["exposed_ns"]) == (150, 100, 50, 50)
    assert row["overlap_ratio"] == 0.5
    assert (row["busy_ns"], row["duration_ns"], row["idle_ns"], row["memory_ns"]) == (210, 310, 100, 10)
    assert not row["is_straggler"] and np.isnan(row["compute_excess_ratio"]) and np.isnan(row["waiting_ns"])


def test_waiting_is_measured_without_a_common_clock():
    """Rank 1 arrives 40 late at each of three collectives; its file's clock is years off."""
    early, late, other_clock = [], [], 10**15
    for step in range(3):
        at = step * 1000
        early += [(GEMM, 1, 0, at, at + 500), (ALL_REDUCE, 1, 0, at + 500, at + 600)]
        late += [
            (GEMM, 2, 0, at + other_clock, at + other_clock + 540),
            (ALL_REDUCE, 2, 0, at + other_clock + 540, at + other_clock + 600),
        ]
    parts = [rank_contribution(results(late), "b_rank1", 1), rank_contribution(results(early), "a_rank0", 0)]
    table = rank_table(parts, "job").set_index("rank")
    assert table["capture_name"].to_dict() == {0: "a_rank0", 1: "b_rank1"}
    assert table["waiting_ns"].to_dict() == {0: 120.0, 1: 0.0}
    assert table["last_count"].to_dict() == {0: 0, 1: 3}
    assert (table["matched_count"] == 3).all()
    assert table["compute_excess_ratio"][1] == pytest.approx(0.08)
    assert table["is_straggler"].to_dict() == {0: False, 1: True}


def test_a_recording_that_begins_earlier_hides_no_late_rank():
    """Rank 3 is 40 late in every step; it came to the first collective long before the others."""
    parts = []
    for rank in range(4):
        rows = [(ALL_REDUCE, rank, 0, -10_000 if rank == 3 else -200, 0)]
        for at in range(0, 20_000, 1000):
            begin = at + (540 if rank == 3 else 500)
            rows += [(GEMM, rank, 0, at, begin), (ALL_REDUCE, rank, 0, begin, at + 1000)]
        parts.append(rank_contribution(results(rows), f"rank{rank}", rank))
    assert rank_table(parts)["is_straggler"].tolist() == [False, False, False, True]


def test_equal_ranks_have_no_straggler():
    rng = np.random.default_rng(0)
    kernels = []
    for rank in range(4):
        for step in range(50):
            arrival = step * 1000 + 500 + int(rng.integers(0, 20))
            kernels += [(GEMM, rank, rank, step * 1000, arrival), (ALL_REDUCE, rank, rank, arrival, step * 1000 + 600)]
    table = rank_table([rank_contribution(results(kernels))])
    assert table["rank"].tolist() == [0, 1, 2, 3]
    assert not table["is_straggler"].any()
    assert table["last_count"].sum() >= 50


def test_collectives_that_differ_in_number_are_not_matched():
    kernels = [(ALL_REDUCE, 1, 0, 0, 10), (ALL_REDUCE, 2, 1, 0, 10), (ALL_REDUCE, 2, 1, 20, 30)]
    table = rank_table([rank_contribution(results(kernels))])
    assert (table["matched_count"] == -1).all() and table["waiting_ns"].isna().all()


def test_transfers_of_more_than_two_ranks_are_not_taken_for_collectives():
    send = "ncclDevKernel_SendRecv(ncclDevComm*)"
    rows = [(send, rank, rank, 100 * rank, 100 * rank + 50) for rank in range(3)]
    assert (rank_table([rank_contribution(results(rows))])["matched_count"] == -1).all()
    assert (rank_table([rank_contribution(results(rows[:2]))])["matched_count"] == 1).all()


def test_captures_without_kernels_have_no_ranks():
    assert rank_table([rank_contribution(results([])), rank_contribution(results([]))]).empty
    assert rank_table([]).empty


@pytest.mark.parametrize(("seed", "about"), [(10, "garbage"), (43, "one layer more")])
def test_late_ranks_of_another_author(seed, about, tmp_path):
    """A merged trace in which all ranks have the same correlation ids; launches of one name that take two lengths."""
    made = job(seed)
    ranks = analyze([write(made.program, tmp_path / "job")]).frame("ranks")
    late = ranks[ranks["is_straggler"].astype(bool)]
    assert made.cause == about and list(zip(late["rank"], late["late_cause"])) == [(made.late, made.word)]


intervals = st.lists(st.tuples(st.booleans(), st.integers(0, 500), st.integers(1, 80)), min_size=1, max_size=40)


@given(intervals)
@examples(40)
def test_times_are_those_of_a_brute_force_count(rows):
    """Every nanosecond counted one by one."""
    kernels = [(ALL_REDUCE if talks else GEMM, 1, 0, start, start + length) for talks, start, length in rows]
    talking, working = np.zeros(600, bool), np.zeros(600, bool)
    for talks, start, length in rows:
        (talking if talks else working)[start : start + length] = True
    row = rank_table([rank_contribution(results(kernels))]).iloc[0]
    assert row["communication_ns"] == talking.sum() and row["compute_ns"] == working.sum()
    assert row["overlapped_ns"] == (talking & working).sum()
    assert row["exposed_ns"] == (talking & ~working).sum()
    assert row["busy_ns"] == (talking | working).sum()
    assert row["idle_ns"] == row["duration_ns"] - row["busy_ns"]


def test_processes_of_one_export(tmp_path):
    """Two processes in one file with colliding correlation ids."""
    builder = ExportBuilder()
    for pid, device, length in ((100, 0, 5_000), (200, 1, 9_000)):
        builder.process(pid)
        for k in range(4):
            at = 20_000 * k
            builder.kernel(
                GEMM, launch=(at, at + 500), run=(at + 1_000, at + 1_000 + length), device=device, correlation=k + 1
            )
            builder.kernel(
                ALL_REDUCE,
                launch=(at + 600, at + 900),
                run=(at + 1_000 + length, at + 12_000),
                device=device,
                correlation=k + 101,
            )
    builder.write(tmp_path / "job.sqlite")
    table = rank_table([rank_contribution(analyze([tmp_path / "job.sqlite"]), "job")], "job")
    assert table["process_id"].tolist() == [100, 200]
    assert table["compute_ns"].tolist() == [20_000, 36_000]
    assert table["is_straggler"].tolist() == [False, True]
    assert table["waiting_ns"].tolist() == [16_000.0, 0.0]


def test_real_job_of_two_ranks(captures):
    """fsdp_2gpu_h100: both ranks in one file, so that the shared clock can check what was found without it."""
    analysis = analyzed(captures / "nsys" / "fsdp_2gpu_h100.sqlite")
    table = rank_table([rank_contribution(analysis, "fsdp")], "fsdp")
    assert table["kernel_count"].sum() == 4010 and len(table) == 2
    assert (table["matched_count"] == 33).all()
    kernels = analysis.frame("kernels")
    talking = kernels[kernels["name"].astype(str).str.startswith("nccl")].sort_values("start_ns")
    first, second = (talking[talking["process_id"] == p] for p in table["process_id"])
    ends = first["end_ns"].to_numpy() - second["end_ns"].to_numpy()
    assert np.abs(ends).max() < 50_000  # a collective ends together: the premise of the method
    arrived_last = (second["start_ns"].to_numpy() > first["start_ns"].to_numpy()).sum()
    by_clock = first["start_ns"].to_numpy() - second["start_ns"].to_numpy()
    waited = np.clip(-by_clock, 0, None).sum(), np.clip(by_clock, 0, None).sum()
    np.testing.assert_allclose(table["waiting_ns"], waited, rtol=0.1)
    assert abs(table["last_count"][1] - arrived_last) <= 9  # those within the 26 µs of the ends' spread
    assert table["is_straggler"].tolist() == [False, True]


def test_ranks_of_several_files_are_those_in_their_names(tmp_path):
    """One file per rank, whose processes do not say their rank: as `batch`, `ingest` goes by the names."""
    paths = []
    for rank, slower in ((1, 400), (0, 0)):
        builder = ExportBuilder().gpu().range("step", 0, 5_000)
        builder.kernel("gemm", launch=(10, 20), run=(100, 1_000 + slower))
        builder.kernel("ncclDevKernel_AllReduce_Sum", launch=(30, 40), run=(1_000 + slower, 1_500))
        paths.append(builder.write(tmp_path / f"job_rank{rank}.sqlite"))
    analysis = analyze(paths)
    assert analysis.frame("devices")["rank"].tolist() == [1, 0]
    ranks = analysis.frame("ranks").set_index("rank")
    assert ranks["capture_name"].to_dict() == {0: "job_rank0.sqlite", 1: "job_rank1.sqlite"}
    assert ranks["compute_ns"].to_dict() == {0: 900, 1: 1300}
    assert ranks["waiting_ns"].to_dict() == {0: 400, 1: 0}


def test_iterations_and_layers_on_several_gpus_have_no_union(tmp_path):
    """One process that drives two GPUs: a union over both would be the busy time of neither."""
    builder = ExportBuilder().gpu(0).gpu(1)
    for k, gpus in enumerate(((0, 1), (0, 0))):
        at = 10_000 * k
        builder.range(f"model#{k}:forward", at, at + 5_000, domain="xsp")
        builder.range("conv#1:Conv2d", at + 10, at + 4_000, domain="xsp")
        builder.kernel("a", launch=(at + 20, at + 30), run=(at + 100, at + 900), device=gpus[0])
        builder.kernel("b", launch=(at + 40, at + 50), run=(at + 900, at + 1_500), device=gpus[1])
    analysis = analyze([builder.write(tmp_path / "two.sqlite")])
    for table in ("iterations", "layers"):
        frame = analysis.frame(table)
        assert frame["busy_ns"].isna().tolist()[:2] == [True, False] and frame["busy_ns"].max() == 1_400, table
        assert frame["kernel_ns"].tolist()[:2] == [1_400, 1_400]


def two_processes(builder, **columns):
    """Two processes that overlap on what each calls device 0; `columns` of the GPUs, where the capture has them."""
    for number, pid in enumerate((100, 200)):
        builder.process(pid)
        if columns:
            builder.gpu(number, **columns)
        device = number if columns else 0
        builder.kernel("gemm", launch=(10, 20), run=(100 + 400 * number, 700 + 400 * number), device=device)
    return builder


def test_equal_device_numbers_of_processes_are_one_gpu_and_it_is_said(tmp_path):
    analysis = analyze([two_processes(ExportBuilder()).write(tmp_path / "a.sqlite")])
    (said,) = analysis.frame("findings").query("code == 'gpu-identity-assumed'").to_dict("records")
    assert (said["count"], said["example"]) == (2, "GPU 0 of 2 processes")
    assert analysis.frame("device_windows")["busy_ns"].tolist() == [1_000]


@pytest.mark.parametrize(
    ("columns", "busy_ns"),
    [
        ({"uuid": None, "busLocation": "0000:57:00.0"}, [1_000]),  # two numbers, one place of the bus: one GPU
        ({"uuid": None, "busLocation": None}, [600, 600]),
    ],
)
def test_gpus_without_uuid_are_told_by_their_place_on_the_bus(columns, busy_ns, tmp_path):
    analysis = analyze([two_processes(ExportBuilder(), **columns).write(tmp_path / "a.sqlite")])
    assert analysis.frame("device_windows")["busy_ns"].tolist() == busy_ns
    assert not (analysis.frame("findings")["code"] == "gpu-identity-assumed").any()


def test_one_sentence_says_who_waits_for_whom(captures):
    ranks = analyzed(captures / "nsys/fsdp_2gpu_h100.sqlite").frame("ranks")
    said = ranks_line(Analysis({"ranks": ranks}))
    assert said.startswith("2 ranks, busy 267 ms … 274 ms. Communication takes 12.7 ms of a rank (median), 0.0 % of")
    assert "Others wait for rank 1, last in " in said
    assert "No rank holds up" in ranks_line(Analysis({"ranks": ranks.assign(is_straggler=False)}))
    assert ranks_line(Analysis({"ranks": ranks[:1]})) == ranks_line(Analysis({})) == ""
    narrow = io.StringIO()
    print_frame(Console(file=narrow, width=80), ranks, 40, "ranks")
    assert narrow.getvalue().startswith("2 ranks, busy")
    header = next(line for line in narrow.getvalue().splitlines() if line.startswith("rank "))
    for column in ("waited for", "busy", "compute", "communication", "exposed", "overlap", "waiting"):
        assert column in header


def test_ranks_that_do_not_talk_are_even_or_not(captures):
    results = analyzed(captures / "nsys/t5_offload_2gpu_h100.sqlite")
    assert not results.frame("ranks")["is_straggler"].any()
    said = ranks_line(results)
    assert said.startswith(
        "2 ranks, busy 963 ms … 963 ms. Their busy times are <0.1 % apart; no communication was recorded"
    )


def test_a_table_of_ranks_without_rows_is_one_sentence(tmp_path):
    from builders import ExportBuilder
    from helpers import called

    path = ExportBuilder().gpu().kernel("gemm", launch=(0, 10), run=(20, 90)).write(tmp_path / "one.sqlite")
    done = called("table", "ranks", path)
    assert done.returncode == 0 and done.stdout == ""
    assert "no two devices that communicate were recorded" in done.stderr
    assert called("table", "ranks", path, "-f", "csv").stdout.startswith("job_name,rank,")


def test_a_late_rank_lies_outside_the_others_and_two_do_not_hide_each_other():
    own = np.array([0.3, -0.4, 0.1, 0.0, -0.2, 0.5, -0.1, 0.2])
    assert not _outside(own, _BY_CHANCE).any()
    late = own + np.array([0, 0, 9, 0, 0, 0, 12, 0])
    assert np.flatnonzero(_outside(late, _BY_CHANCE)).tolist() == [2, 6]
    draws = np.random.default_rng(0).normal(size=(300, 8))
    assert np.mean([_outside(draw, _BY_CHANCE).any() for draw in draws]) <= 2 * _BY_CHANCE


def test_a_rank_is_late_in_one_of_its_groups():
    """Ranks 1 and 3 come late to the collectives of their context group; those of the data groups scatter more."""
    random = np.random.default_rng(1)
    (a, b), (c, d, e, f) = random.normal(60, 15, (2, 100)), random.normal(20, 600, (4, 100))
    late = np.column_stack([-a, a, -b, b, c, d, -c, -d, e, f, -e, -f])
    groups = ["context 0", "context 0", "context 1", "context 1", *["data 0", "data 1"] * 4]
    met = pd.DataFrame({"late_ns": late.ravel(), "position": [0, 1, 2, 3] * 300, "group_name": groups * 100})
    ranks = pd.DataFrame({"duration_ns": 100_000, "compute_excess_ratio": 0.0}, index=range(4))
    excess = np.array([[-1e4, 1e4, -9e3, 9e3]])
    assert _stragglers(ranks, met.assign(step_index=-1), excess).tolist() == [False, True, False, True]


def test_the_rank_that_all_wait_for_is_shown_first_of_many():
    rows = {c.name: {"int64": 5, "float64": 0.5, "bool": False, "str": ""}[c.dtype] for c in TABLES["ranks"].columns}
    ranks = pd.DataFrame([{**rows, "rank": i, "is_straggler": i == 811} for i in range(1000)])
    results = Analysis({"ranks": ranks})
    shown = frames.rank_parts(results, None)["label"].drop_duplicates().tolist()
    assert len(shown) == 40 and shown[:2] == ["rank 811 (straggler)", "rank 0"]
    assert page_rows.by_cost(ranks, "ranks")["rank"].tolist()[:3] == [811, 0, 1]


def test_what_ranks_waited_sums_to_what_the_capture_waited(tmp_path):
    """Also what lies outside every range: before, between and behind the steps of each rank."""
    builder = ExportBuilder()
    for device, process in enumerate((100, 200)):
        builder.process(process).gpu(device)
        for start in range(2_000_000 * device, 40_000_000, 10_000_000):
            builder.range("step", start, start + 6_000_000)
            run = (start + 30_000, start + 3_000_000)
            builder.kernel("gemm", launch=(start + 10_000, start + 20_000), run=run, device=device)
    paths = analyze([builder.write(tmp_path / "ranks.sqlite")]).frame("paths")
    ranks = paths[paths["depth"].eq(1)]
    outside = ranks["idle_ns"].to_numpy() - paths.loc[paths["depth"].eq(2), "idle_ns"].to_numpy()
    assert len(ranks) == 2 and (outside > 0).all()
    assert ranks["idle_ns"].sum() == paths.loc[paths["depth"].eq(0), "idle_ns"].iloc[0]
