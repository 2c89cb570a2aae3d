"""Collectives of ranks whose arrivals are known; injected clock offsets; the real two-rank captures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from recorded import analyzed

from xsp_post.model.schemas import column_names
from xsp_post.replay.collectives import across_ranks, bus_factor, collective_kind, collectives_frame

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
    frame = across_ranks(collectives_frame(kernels, np.array([8e6]), np.array([8.0])))
    assert frame["bus_bandwidth_bytes_per_s"].iloc[0] == pytest.approx(8e6 / 1e-3 * 2 * 7 / 8)
    assert bus_factor("all_gather", 4) == 0.75
    assert bus_factor("send_recv", 2) == 1
    assert np.isnan(bus_factor("", 4))
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
    from xsp_post.ingest.kineto_columns import _message
    from xsp_post.ingest.kineto_events import EventDecoder

    def args_of(given):
        return EventDecoder().of_values([{"args": given}])[0][0].args

    args = args_of({"In msg nelems": 2049000, "Out msg nelems": 2049000, "dtype": "Float", "Group size": 8})
    assert _message(args) == (8196000.0, 8.0)
    assert np.isnan(_message(args_of({"In msg nelems": "x"}))).all()
