"""Collectives of ranks whose arrivals are known; injected clock offsets; the real two-rank captures."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded import analyzed

from xsp_post.model.schemas import column_names
from xsp_post.names.groups import axis_of_group, group_text, ranks_of_group
from xsp_post.replay.collectives import across_ranks, bus_factor, collective_kind, collectives_frame, median_of_others

NAME = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def kernels_of(process: int, rows: list[tuple[str, int, int, int]]) -> pd.DataFrame:
    """Rows of (name, launch start, start, end)."""
    frame = pd.DataFrame(rows, columns=["name", "launch_start_ns", "start_ns", "end_ns"])
    return frame.assign(process_id=process, device_id=0, stream_id=7)


def job(arrivals: list[list[int]], transfer: int, clocks: list[int], launches: list[list[int]] | None = None):
    """One capture per rank: the k-th collective of each rank arrives at ``arrivals[rank][k]``."""
    parts = []
    for rank, mine in enumerate(arrivals):
        rows = []
        for k, start in enumerate(mine):
            end = max(one[k] for one in arrivals) + transfer
            launch = launches[rank][k] if launches else start - 50_000
            rows.append((NAME, launch + clocks[rank], start + clocks[rank], end + clocks[rank]))
        parts.append(collectives_frame(kernels_of(100 + rank, rows)).assign(capture_id=rank))
    return across_ranks(pd.concat(parts, ignore_index=True))


def said_of(message_bytes, group_size, group_name, said_kind="", peer_rank=np.nan) -> pd.DataFrame:
    """What a recording says of each collective."""
    return pd.DataFrame(locals())


def test_the_split_is_what_happened():
    frame = job([[1_000_000, 2_000_000, 3_000_000], [1_040_000, 1_990_000, 3_000_500]], 30_000, [0, 0])
    first = frame[frame["process_id"] == 100]
    assert first["transfer_ns"].tolist() == [30_000] * 3
    assert (first["waiting_ns"] + first["launch_skew_ns"]).tolist() == [40_000, 0, 500]
    assert (frame["transfer_ns"] + frame["waiting_ns"] + frame["launch_skew_ns"]).tolist() == frame[
        "duration_ns"
    ].tolist()


def test_a_late_launch_is_skew_and_late_work_is_waiting():
    arrivals = [[1_000_000] * 3, [1_060_000] * 3]
    late_launch = job(arrivals, 10_000, [0, 0], [[900_000] * 3, [960_000] * 3])
    assert late_launch.iloc[0]["launch_skew_ns"] == 60_000
    late_work = job(arrivals, 10_000, [0, 0], [[900_000] * 3, [900_000] * 3])
    assert late_work.iloc[0]["waiting_ns"] == 60_000
    assert late_work.iloc[0]["launch_skew_ns"] == 0


@pytest.mark.parametrize(("lag", "is_met"), [(0, True), (400_000, False)])
def test_transfers_that_end_together_on_all_ranks_are_an_exchange_of_all(lag, is_met):
    """Rank 1 of three comes late to all of them; with a lag they are the stages of a pipeline."""
    parts = []
    for rank in range(3):
        ends = [1_000_000 * k + 500_000 + lag * rank for k in range(5)]
        rows = [("ncclDevKernel_SendRecv", 0, end - (30_000 if rank == 1 else 200_000), end) for end in ends]
        parts.append(collectives_frame(kernels_of(rank, rows)).assign(capture_id=0))
    frame = across_ranks(pd.concat(parts, ignore_index=True))
    assert (frame["meeting_index"] >= 0).tolist() == [is_met] * 15
    last = frame.groupby("process_id")["is_last"].sum().tolist()
    assert last == ([0, 5, 0] if is_met else [0, 0, 0])


def test_a_program_without_communication_has_an_empty_table():
    none = collectives_frame(kernels_of(100, [("ampere_sgemm_128x64_tn", 0, 1_000, 2_000)])).assign(capture_id=0)
    frame = across_ranks(none)
    assert frame.empty and frame.columns.tolist() == column_names("collectives")


@examples(50)
@given(
    st.integers(-5_000_000_000, 5_000_000_000),
    st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 90_000)), min_size=3, max_size=30),
)
def test_an_injected_clock_offset_is_found_again_within_a_microsecond(offset, late):
    base = np.arange(len(late)) * 1_000_000 + 10_000_000_000
    arrivals = [(base + [one for one, _ in late]).tolist(), (base + [other for _, other in late]).tolist()]
    frame = job(arrivals, 25_000, [0, offset])
    found = frame[frame["process_id"] == 101]["clock_offset_ns"]
    assert abs(found - offset).max() < 1_000
    assert frame["transfer_ns"].sub(25_000).abs().max() < 1


def test_bus_bandwidth_follows_nccl_tests():
    kernels = kernels_of(1, [(NAME, 0, 1_000, 1_001_000)])
    frame = across_ranks(collectives_frame(kernels, said_of(8e6, 8.0, [""])))
    assert frame["bus_bandwidth_bytes_per_s"].iloc[0] == pytest.approx(8e6 / 1e-3 * 2 * 7 / 8)
    kinds = np.array(["all_gather", "send_recv", "", "all_reduce"], object)
    np.testing.assert_equal(bus_factor(kinds, np.array([4, 2, 4, np.nan])), [0.75, 1, np.nan, np.nan])
    assert collective_kind("ncclDevKernel_ReduceScatter_Sum") == "reduce_scatter"
    assert collective_kind("ncclDevKernel_Generic") == ""


def test_what_compute_hides_is_counted_once():
    rows = [(NAME, 0, 1_000, 2_000), ("gemm", 0, 500, 1_300), ("relu", 0, 1_200, 1_500), ("gemm", 0, 1_900, 2_500)]
    frame = collectives_frame(kernels_of(1, rows))
    assert frame["overlapped_ns"].tolist() == [500 + 100]


def test_two_ranks_of_one_capture(captures):
    frame = analyzed(captures / "nsys/fsdp_2gpu_h100.sqlite").frame("collectives")
    assert frame.groupby("process_id").size().tolist() == [33, 33]
    assert (frame["clock_offset_ns"] == 0).all()  # one machine, one clock
    whole = frame["transfer_ns"] + frame["waiting_ns"] + frame["launch_skew_ns"]
    assert (whole == frame["duration_ns"]).all()
    assert set(frame["kind"]) == {"send_recv"}


def test_one_rank_says_how_much_is_hidden_and_abstains_from_the_rest(captures):
    frame = analyzed(captures / "nsys/fsdp_2gpu_h100.sqlite").frame("collectives")
    alone = across_ranks(frame[frame["process_id"] == frame["process_id"].iloc[0]].assign(
        transfer_ns=np.nan, waiting_ns=np.nan, launch_skew_ns=np.nan))  # fmt: skip
    assert alone["transfer_ns"].isna().all()
    assert (alone["overlapped_ns"] <= alone["duration_ns"]).all()


def test_message_sizes_of_a_pytorch_trace(captures):
    frame = analyzed(captures / "kineto/resnet50_ddp_a100.pt.trace.json.gz").frame("collectives")
    if len(frame):  # a group of one rank launches no kernel
        assert (frame["group_size"] == 1).all()


def test_the_operator_around_a_launch_says_the_size():
    from xsp_post.ingest.kineto_columns import _messages
    from xsp_post.ingest.kineto_events import EventDecoder

    def said(given):
        return json.loads(_messages([EventDecoder().of_values([{"args": given}])[0][0].args], [0])[0])

    args = {"In msg nelems": 2049000, "Out msg nelems": 2049000, "dtype": "Float", "Group size": 8}
    assert said(args) == [8196000, 8, "", "", None]
    assert said({"In msg nelems": "x"}) == [None, None, "", "", None]
    assert said({"Collective name": "send", "Dst Rank": "3"})[3:] == ["send", 3]
    cut = {"Process Group Ranks": "[0, 4, ..., 60]", "Global rank start": 0, "Global rank stride": 4, "Group size": 16,
           "Process Group Name": "3", "Process Group Description": "mesh_dp"}  # fmt: skip
    assert said(cut)[2] == "mesh_dp 0-60:4 #3"
    assert said({**cut, "Process Group Ranks": "[1, 0]"})[2] == "mesh_dp 1,0 #3"


@pytest.mark.parametrize(
    ("label", "axis"),
    [
        ("mesh_tp", "tensor"), ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"), ("dp_shard_cp", "data+context"),
        ("DATA_PARALLEL_GROUP", "data"), ("EXPERT_DATA_PARALLEL_GROUP", "data"), ("ep", "expert"), ("pp", "pipeline"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"), ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"), ("tp:0", "tensor"),
        ("CONTEXT_PARALLEL_GROUP", "context"), ("default_pg", ""), ("MODEL_PARALLEL_GROUP", ""), ("undefined", ""),
    ],
)  # fmt: skip
def test_the_name_of_a_group_says_its_axis(label, axis):
    assert axis_of_group(group_text(label, [0, 1], "7")) == axis


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=9, unique=True), st.sampled_from(["", "dp", "a b"]))
@examples(50)
def test_the_ranks_of_a_group_are_read_again(ranks, label):
    assert ranks_of_group(group_text(label, ranks, "12")) == ranks
    assert ranks_of_group(group_text(label, [], "12")) == [] and group_text("", ranks) == ""


@given(st.lists(st.lists(st.integers(-99, 99), min_size=5, max_size=5), min_size=1, max_size=4), st.integers(2, 5))
@examples(50)
def test_the_median_of_the_others_is_that_of_a_plain_loop(rows, count):
    values = np.array(rows, float)[:, :count]
    plain = [[np.median(np.delete(row, k)) for k in range(count)] for row in values]
    assert median_of_others(values).tolist() == plain


def mesh_of(late: int) -> pd.DataFrame:
    """Four ranks: tensor groups 0-1 and 2-3, data groups 0,2 and 1,3. A rank is late in each tensor collective, and so
    its whole tensor group in the data collective after it."""
    parts = []
    for rank in range(4):
        at, rows, groups = 1_000 * rank, [], []
        for step in range(4):
            held = late // 2 == rank // 2
            for k in range(2):
                begin = at + step * 1_000_000 + k * 100_000 + (70_000 if held and k else 0)
                own = 70_000 if rank == late else 0
                rows.append((NAME, 0, begin + own, begin + (80_000 if held else 10_000)))
                groups.append(f"mesh_tp {rank // 2 * 2}-{rank // 2 * 2 + 1} #{1 + rank // 2}")
            begin = at + step * 1_000_000 + 300_000
            rows.append((NAME, 0, begin + (140_000 if held else 0), begin + 150_000))
            groups.append(f"mesh_dp {rank % 2}-{rank % 2 + 2}:2 #{3 + rank % 2}")
        said = said_of(1e6, 2.0, groups)
        parts.append(collectives_frame(kernels_of(rank, rows), said).assign(capture_id=rank))
    return across_ranks(pd.concat(parts, ignore_index=True))


def test_transfers_meet_who_sends_with_who_receives_and_all_to_all_is_none():
    """One kernel of NCCL does all three: three stages pass two parts on, of which the last one is waited for."""
    parts = []
    rows = {  # rank: kind, the other rank, start, end
        0: [("send", 1, 10, 20)], 1: [("recv", 0, 0, 20), ("send", 2, 30, 50)], 2: [("recv", 1, 5, 50)],
    }  # fmt: skip
    for rank, calls in rows.items():
        calls = [(kind, peer, at + late, end + late) for late in (0, 100) for kind, peer, at, end in calls]
        kinds, peers, starts, ends = zip(*calls, ("all_to_allv", np.nan, 300 + 7 * rank, 350))
        kernels = kernels_of(rank, [("ncclDevKernel_SendRecv", 0, start, end) for start, end in zip(starts, ends)])
        said = said_of(1e6, 3.0, "mesh_pp 0-2 #1", kinds, peers)
        parts.append(collectives_frame(kernels, said).assign(capture_id=rank))
    frame = pd.concat(parts, ignore_index=True)
    found = across_ranks(frame, frame["process_id"].to_numpy())
    assert (found["meeting_index"] >= 0).all()
    assert found["kind"].value_counts().to_dict() == {"send": 4, "recv": 4, "all_to_all": 3}
    assert sorted(found.groupby("meeting_index")["process_id"].agg(list)) == [[0, 1], [0, 1], [0, 1, 2], [1, 2], [1, 2]]
    waited = found.assign(waited=found["waiting_ns"] + found["launch_skew_ns"]).groupby(["kind", "process_id"])[
        "waited"
    ]
    assert waited.sum().to_dict() == {
        ("all_to_all", 0): 14, ("all_to_all", 1): 7, ("all_to_all", 2): 0, ("recv", 1): 20, ("recv", 2): 50,
        ("send", 0): 0, ("send", 1): 0,
    }  # fmt: skip
    unknown = across_ranks(frame)  # not which rank each is: transfers of three cannot be joined
    assert set(unknown.loc[unknown["meeting_index"] >= 0, "kind"]) == {"all_to_all"}


def test_collectives_meet_within_their_group():
    frame = mesh_of(late=1)
    assert set(frame["group_axis"]) == {"tensor", "data"} and (frame["rank_count"] == 2).all()
    tensor = frame[frame["group_axis"] == "tensor"]
    assert tensor.groupby("process_id")["late_ns"].sum().tolist() == [-560_000, 560_000, 0, 0]
    assert tensor.groupby("process_id")["is_last"].sum().tolist()[:2] == [0, 8]
    data = frame[frame["group_axis"] == "data"]
    assert data.groupby("process_id")["late_ns"].sum().tolist() == [560_000, 560_000, -560_000, -560_000]
    assert frame.groupby("meeting_index")["process_id"].nunique().eq(2).all() and (frame["meeting_index"] >= 0).all()
    assert frame.groupby("capture_id")["clock_offset_ns"].median().round().tolist() == [0, 1_000, 2_000, 3_000]
