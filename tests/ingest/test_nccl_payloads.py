"""NCCL's binary payloads in an nsys export: bytes of each message, ranks of its group, and the bus bandwidth."""

from __future__ import annotations

import json
import struct

import pytest
from builders import ExportBuilder

from xsp_post.ingest.nsys import read_trace
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.pipeline import analyze

MB = 1_000_000
COMMUNICATOR = 0xFEDCBA9876543210
INIT, REDUCE, PEER = 16777218, 16777223, 16777226
FIELDS = {
    INIT: [("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12)],
    REDUCE: [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)],
    PEER: [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8), ("Peer rank", 5, 16)],
}


def blob(schema: int, *values: int) -> bytes:
    """As nsys writes it: a header of 32 bytes, then the fields."""
    kinds = {8: "Q", 4: "i"}
    widths = [8 if kind != 5 else 4 for _, kind, _ in FIELDS[schema]]
    body = struct.pack("<" + "".join(kinds[width] for width in widths), *values).ljust(24, b"\0")
    return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), 32 + len(body)) + body


class Job:
    """A process that calls NCCL: each call a range with its payload, a launch inside it and a kernel of 1 ms."""

    def __init__(self, ranks: int = 0):
        self.builder, self.at = ExportBuilder(), 1_000
        for schema, fields in FIELDS.items():
            for number, (name, kind, offset) in enumerate(fields):
                self.builder._put("NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=schema, idx=number, type=kind,
                                  name=name, offset=offset)  # fmt: skip
        if ranks:
            self.range("ncclCommInitRank", blob(INIT, COMMUNICATOR, ranks, 0))

    def range(self, name: str, payload: bytes | None = None, kernel: str = "") -> Job:
        self.builder.range(name, self.at, self.at + 100, domain="NCCL", binaryData=payload)
        if kernel:
            start = 10 * MB + 1000 * self.at
            self.builder.kernel(kernel, launch=(self.at + 10, self.at + 20), run=(start, start + MB))
        self.at += 200
        return self

    def collectives(self, folder):
        frame = analyze([self.builder.write(folder / "a.sqlite")]).frame("collectives")
        return frame[["message_bytes", "group_size", "bus_bandwidth_bytes_per_s"]]


@pytest.mark.parametrize(
    ("call", "kernel", "message", "factor"),
    [
        ("ncclAllReduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 4 * MB, 2 * 3 / 4),
        ("ncclAllGather", "ncclDevKernel_AllGather_RING_LL", 16 * MB, 3 / 4),  # NCCL says what one rank sends
        ("ncclBroadcast", "ncclDevKernel_Broadcast_RING_LL", 4 * MB, 1),
    ],
)
def test_bytes_and_bus_bandwidth(call, kernel, message, factor, tmp_path):
    job = Job(ranks=4).range(call, blob(REDUCE, COMMUNICATOR, 4 * MB), kernel)
    (row,) = job.collectives(tmp_path).to_dict("records")
    assert (row["message_bytes"], row["group_size"]) == (message, 4)
    assert row["bus_bandwidth_bytes_per_s"] == pytest.approx(message * factor / 1e-3)


def test_a_group_moves_the_larger_of_what_it_sends_and_receives(tmp_path):
    job = Job(ranks=2)
    job.range("ncclGroupStart")
    job.range("ncclSend", blob(PEER, COMMUNICATOR, 3 * MB, 1)).range("ncclRecv", blob(PEER, COMMUNICATOR, MB, 1))
    job.range("ncclSend", blob(PEER, COMMUNICATOR, 3 * MB, 1)).range("ncclRecv", blob(PEER, COMMUNICATOR, MB, 1))
    job.range("ncclGroupEnd", None, "ncclDevKernel_SendRecv")
    (row,) = job.collectives(tmp_path).to_dict("records")
    assert (row["message_bytes"], row["group_size"]) == (6 * MB, 2)


def test_without_the_size_of_the_group_there_is_no_bandwidth(tmp_path):
    job = Job().range("ncclAllReduce", blob(REDUCE, COMMUNICATOR, 4 * MB), "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    (row,) = job.collectives(tmp_path).to_dict("records")
    assert row["message_bytes"] == 4 * MB
    assert row["bus_bandwidth_bytes_per_s"] != row["bus_bandwidth_bytes_per_s"]


def test_payloads_of_other_kinds_and_cut_ones_are_left(tmp_path):
    job = Job(ranks=2)
    for payload in (b"x", blob(REDUCE, COMMUNICATOR, MB)[:44], struct.pack("<IIIIQQ", 1, 0, 7, 0, 8, 40) + b"12345678"):
        job.range("ncclAllReduce", payload, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    frame = job.collectives(tmp_path)
    assert len(frame) == 3 and frame["message_bytes"].isna().all()


def payload(*, rank: int, ranks: int, communicator: int = COMMUNICATOR) -> str:
    """As newer exports write it."""
    return json.dumps({"NCCL communicator ID": communicator, "No. of ranks": ranks, "Rank": rank, "CUDA device": 0})


def ranks_of(folder, told: dict[int, list[str]]):
    """Two processes on GPUs in the order of their ids, and what NCCL was told in each."""
    builder = ExportBuilder()
    for device, process in enumerate((100, 200)):
        builder.process(process).thread(process).gpu(device)
        for number, text in enumerate(told.get(process, [])):
            builder.range("ncclCommInitRank", 10 + 20 * number, 20 + 20 * number, domain="NCCL", jsonText=text)
        start = 1_000 + 100 * device
        builder.kernel("gemm", launch=(start, start + 10), run=(start + 20, start + 60))
    frame = analyze([builder.write(folder / "a.sqlite")]).frame("ranks")
    return dict(zip(frame["process_id"].tolist(), frame["rank"].tolist()))


@pytest.mark.parametrize(
    ("first", "second", "ranks"),
    [
        ([payload(rank=1, ranks=2)], [payload(rank=0, ranks=2)], {100: 1, 200: 0}),
        ([], [], {100: 0, 200: 1}),
        # a group of two stages beside that of all
        ([payload(rank=7, ranks=8), payload(rank=0, ranks=2, communicator=1)],
         [payload(rank=0, ranks=2, communicator=2), payload(rank=3, ranks=8)], {100: 7, 200: 3}),
        # two worlds of one size that disagree
        ([payload(rank=1, ranks=2), payload(rank=0, ranks=2, communicator=1)], [payload(rank=0, ranks=2)],
         {100: 0, 200: 1}),
        (['{"NCCL communicator ID": [1], "Rank": "x", "No. of ranks": null}'], ['{"NCCL communicator ID": 1'],
         {100: 0, 200: 1}),
    ],
)  # fmt: skip
def test_ranks_are_those_that_nccl_was_told(first, second, ranks, tmp_path):
    assert ranks_of(tmp_path, {100: first, 200: second}) == ranks


def test_the_rank_in_a_binary_payload(tmp_path):
    job = Job()
    job.range("ncclCommInitRank", blob(INIT, COMMUNICATOR, 8, 5)).range(
        "ncclAllReduce", None, "ncclDevKernel_AllReduce"
    )
    trace = read_trace(SqliteTables(job.builder.write(tmp_path / "a.sqlite")))
    assert trace.processes["rank"].tolist() == [5]


def test_the_size_of_a_message_in_json(tmp_path):
    job, said = Job(), {"NCCL communicator ID": COMMUNICATOR, "Message size [bytes]": 4 * MB}
    job.builder.range("ncclCommInitRank", 10, 20, domain="NCCL", jsonText=payload(rank=0, ranks=4))
    job.builder.range("ncclAllReduce", job.at, job.at + 100, domain="NCCL", jsonText=json.dumps(said))
    job.builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", launch=(job.at + 10, job.at + 20), run=(MB, 2 * MB))
    (row,) = job.collectives(tmp_path).itertuples()
    assert (row.message_bytes, row.group_size) == (4 * MB, 4)
