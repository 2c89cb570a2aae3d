"""Why a rank is late: planted causes in jobs of 8 and 64 ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from generators.jobs import ALL_REDUCE, CAUSES, MIXED, Job, job

from xsp_post.model.results import Analysis
from xsp_post.replay.collectives import collectives_frame
from xsp_post.reports.rank_sentences import late_ranks, rank_sentence
from xsp_post.tables.analyses.limits import HOST
from xsp_post.tables.analyses.rank_causes import EXPLAINED, MORE, WORK_COLUMNS, Work, rank_work
from xsp_post.tables.analyses.ranks import _held_up, rank_contribution, rank_tables


def table_of(of: Job) -> pd.DataFrame:
    return rank_tables([rank_contribution(one, f"rank{k}", k) for k, one in enumerate(of.ranks)])["ranks"]


def is_right(of: Job) -> bool:
    frame = table_of(of)
    late = frame[frame["is_straggler"]]
    return (late["rank"].tolist(), late["late_cause"].tolist()) == ([of.late], [of.cause]) and (
        late["lateness_ns"].iloc[0] == pytest.approx(of.late_ns, rel=0.02)
        and late["late_explained_ratio"].iloc[0] >= EXPLAINED
    )


@pytest.mark.parametrize("cause", CAUSES)
def test_the_late_rank_and_its_cause_of_8(cause):
    assert sum(is_right(job(seed, 8, cause)) for seed in range(3)) == 3


def test_the_late_rank_and_its_cause_of_64():
    assert is_right(job(1, 64, "slower work", steps=6))


def test_without_a_cause_nobody_is_late():
    for seed in range(4):
        frame = table_of(job(seed, 8, ""))
        assert not frame["is_straggler"].any() and (frame["late_cause"] == "").all()


def test_two_causes_of_which_none_explains_most_are_not_named():
    planted = job(4, 8, MIXED)
    row = table_of(planted).set_index("rank").loc[planted.late]
    assert (row["late_cause"], row["late_detail"]) == ("unknown", "")
    assert 0.4 < row["late_explained_ratio"] < EXPLAINED
    assert "holds up the others" not in rank_sentence(table_of(planted))


def test_the_sentence_names_the_cause():
    said = rank_sentence(table_of(job(2, 8, "slower work")))
    assert "slower work: all kernels take" in said and "lower clock" in said


@pytest.mark.parametrize(("count", "names"), [(8, "rank 7."), (9, "rank 8 and 1 more.")])
def test_of_many_late_ranks_the_slowest_are_named_and_the_others_counted(count, names):
    ranks = table_of(job(2, 12, "slower work")).assign(is_straggler=np.arange(12) < count)
    ranks["compute_excess_ratio"] = 1.0 + ranks["rank"]  # rank 0 is the one that is not named
    said = late_ranks(ranks)[0]
    assert said.endswith(names) and ("rank 0," in said) == (count == 8)


def test_what_runs_at_the_same_time_counts_once():
    """Own time sums to what lies outside the collectives: kernel 10-30, copy 20-50, a transfer 45-60, then nothing."""

    def rows(*times, **more):
        return pd.DataFrame(times, columns=["start_ns", "end_ns"]).assign(**more)

    grid = {"grid_x": 1, "grid_y": 1, "grid_z": 1}
    work = rank_work(
        rows((10, 30), name="gemm", **grid), rows((45, 60), name="ncclDevKernel_SendRecv", **grid),
        rows((0, 10), (90, 100), name="ncclDevKernel_AllReduce", **grid),
        rows((20, 50), kind="memcpy", direction="HtoD"),
        pd.DataFrame(columns=["cause", "call_name", "detail", "owner", "idle_ns"]),
    )  # fmt: skip
    assert work.set_index("kind")["own_ns"].to_dict() == {"kernel": 20, "copy": 20, "transfer": 10, "idle": 30}
    assert MORE not in work["name"].tolist()


def test_work_of_a_cpu_is_told_by_its_size():
    """Operators without a grid: rank 1 multiplies four times as much, which is no slower work; also where operators
    that compute nothing take ten times as long there."""
    parts = []
    for rank in range(3):
        rows, at = [], 0
        for step in range(5):
            end = (step + 1) * 1_000
            own, view = (400, 20) if rank == 1 else (100, 2)
            rows += [("aten::mm", at, at + own), (ALL_REDUCE, end - 900 + own, end)]
            rows += [("aten::view", at + own + k * view, at + own + (k + 1) * view) for k in range(3)]
            at = end
        kernels = pd.DataFrame(rows, columns=["name", "start_ns", "end_ns"]).assign(
            capture_id=0, process_id=rank, device_id=-1, stream_id=1, launch_start_ns=-1, kernel_id=range(25),
            grid_x=0, grid_y=0, grid_z=0,
        )  # fmt: skip
        work = pd.DataFrame({"kernel_id": range(0, 25, 5), "flop": 4e6 if rank == 1 else 1e6, "read_bytes": 1e4})
        frames = {"kernels": kernels, "kernel_work": work.assign(capture_id=0)}
        frames["captures"] = pd.DataFrame({"capture_id": [0], "level": ["M/L/G"], "kernel_count": [25]})
        frames["collectives"] = collectives_frame(kernels).assign(capture_id=0)
        parts.append(rank_contribution(Analysis(frames), f"rank{rank}", rank))
    late = rank_tables(parts)["ranks"].query("is_straggler")
    assert late[["rank", "late_cause", "late_detail"]].values.tolist() == [[1, MORE, "aten::mm"]]


@pytest.mark.parametrize("late", [[], [5]])
def test_a_rank_that_pauses_is_late_where_kernels_scatter(late):
    """Inputs of each step are of another size, by 12 %; rank 5 pauses for a quarter of a step in three of ten steps."""
    random = np.random.default_rng(3)
    own, pause = random.normal(800, 100, (8, 10)), np.zeros((8, 10))
    pause[late, 2:9:3] = 250
    arrived = own + pause + random.normal(20, 2, (8, 10))
    end = (arrived.max(axis=0) + 50).cumsum()
    parts = []
    for rank in range(8):
        begin = np.append(0, end[:-1])
        kernels = np.concatenate([np.stack([begin, begin + own[rank]], 1), np.stack([begin + arrived[rank], end], 1)])
        kernels = pd.DataFrame(1_000 * kernels, columns=["start_ns", "end_ns"]).astype(np.int64).assign(
            name=["gemm"] * 10 + [ALL_REDUCE] * 10, capture_id=0, process_id=rank, device_id=rank, stream_id=1,
            launch_start_ns=-1, kernel_id=range(20), grid_x=1, grid_y=1, grid_z=1,
        )  # fmt: skip
        frames = {"kernels": kernels, "collectives": collectives_frame(kernels).assign(capture_id=0)}
        frames["captures"] = pd.DataFrame({"capture_id": [0], "level": ["M/L/G"], "kernel_count": [20]})
        parts.append(rank_contribution(Analysis(frames), f"rank{rank}", rank))
    assert rank_tables(parts)["ranks"].query("is_straggler")["rank"].tolist() == late


@pytest.mark.parametrize(("host_ns", "cause", "ratio"), [(0, "more work", 1.0), (9e6, "unknown", 11 / 19)])
def test_what_a_late_rank_does_faster_takes_nothing_off_its_cause(host_ns, cause, ratio):
    """Rank 2 computes `gemm` three times as often (+10 ms); while the others wait, its `norm` takes 4 ms less."""
    ranks = pd.DataFrame({"capture_name": list("abcd"), "process_id": 0, "device_id": 0})
    rows = []
    for name in "abcd":
        is_late = name == "c"
        for what, count, each in (("gemm", 30 if is_late else 10, 5e5), ("norm", 10, 6e5 if is_late else 1e6)):
            rows.append((name, 0, 0, "kernel", what, "", count, count, count * each))
        host = 1e6 + (host_ns if is_late else 0)
        rows.append((name, 0, 0, "idle", HOST, "host code in step", 1, 1, host))
    done = Work(ranks, pd.DataFrame(rows, columns=WORK_COLUMNS), np.zeros(4))
    assert done.lateness_ns[2] == pytest.approx(6e6 + host_ns)
    found = done.causes(np.array([False, False, True, False]))
    assert (found["late_cause"][2], found["late_explained_ratio"][2]) == (cause, pytest.approx(ratio))


@pytest.mark.parametrize(("count", "each", "cause"), [(30, 1.0, MORE), (10, 1.5, "slower work")])
@pytest.mark.filterwarnings("error")
def test_kernels_of_which_no_size_is_known_are_told_by_their_number(count, each, cause):
    ranks = pd.DataFrame({"capture_name": list("abcd"), "process_id": 0, "device_id": 0})
    rows = []
    for name in "abcd":
        number, time = (count, each) if name == "c" else (10, 1.0)
        rows += [(name, 0, 0, "kernel", what, "", number, 0, number * time * 1e6) for what in ("gemm", "norm")]
    done = Work(ranks, pd.DataFrame(rows, columns=WORK_COLUMNS), np.zeros(4))
    found = done.causes(np.array([False, False, True, False]))
    assert (found["late_cause"][2], found["late_explained_ratio"][2]) == (cause, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("slow", "more", "cause"), [(1.2, 1.05, "slower work"), (1.0, 1.3, "more work"), (1.2, 1.0, "slower work")]
)
def test_a_rank_whose_inputs_vary_like_the_others_is_slower_by_its_clock(slow, more, cause):
    """Ranks read other sizes in each step; `grouped` is persistent, and as large whatever it has to do."""
    random = np.random.default_rng(5)
    ranks = pd.DataFrame({"capture_name": list("abcd"), "process_id": 0, "device_id": 0})
    rows = []
    for name in "abcd":
        clock, size = (slow, more) if name == "c" else (1.0, random.uniform(0.99, 1.01))
        for what, blocks in (("gemm", 200), ("norm", 900), ("grouped", 132)):
            shown = blocks if what == "grouped" else blocks * size
            rows.append((name, 0, 0, "kernel", what, "", 40, 40 * shown, 40 * clock * size * 1e5))
    done = Work(ranks, pd.DataFrame(rows, columns=WORK_COLUMNS), np.zeros(4))
    assert done.causes(np.array([False, False, True, False]))["late_cause"][2] == cause


def test_a_larger_batch_on_a_cpu_is_more_work_though_small_operators_take_longer_for_their_size():
    """Products of 24 times the size take nine times as long; most launches are those of operators whose arrays fit no
    cache any more."""
    ranks = pd.DataFrame({"capture_name": list("abcd"), "process_id": 0, "device_id": 0})
    rows = []
    for name in "abcd":
        size, product, small = (24, 9, 36) if name == "c" else (1, 1, 1)
        rows.append((name, 0, 0, "kernel", "aten::mm", "", 120, 120 * size * 1e6, product * 2e8))
        rows.append((name, 0, 0, "kernel", "aten::add", "", 400, 400 * size * 1e4, small * 2e6))
    done = Work(ranks, pd.DataFrame(rows, columns=WORK_COLUMNS), np.zeros(4))
    found = done.causes(np.array([False, False, True, False]))
    assert (found["late_cause"][2], found["late_explained_ratio"][2]) == (MORE, pytest.approx(1.0))


def test_what_a_slow_link_takes_is_no_rank_s_own_time():
    calls = pd.DataFrame({
        "kind": ["send", "recv", "send"], "meeting_index": [4, 4, -1], "position": [0, 1, 2],
        "duration_ns": [800, 900, 700], "overlapped_ns": [0, 100, 0],
    })  # fmt: skip
    assert _held_up(calls, 4).tolist() == [1.0, 1.0, 0.0, 0.0]
