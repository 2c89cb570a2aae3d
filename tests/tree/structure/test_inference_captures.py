"""Inference on real captures: what is really there is found, and nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from conftest import CANARY

from xsp_post.tree.structure.find import infer

QUERY = """
SELECT k.start, k.end, k.globalPid, r.globalTid, k.streamId, k.deviceId, k.gridX, k.gridY, k.gridZ,
       k.blockX, k.blockY, k.blockZ, k.demangledName, r.start, r.end
FROM CUPTI_ACTIVITY_KIND_KERNEL k
LEFT JOIN (SELECT correlationId, MIN(start) AS start, MIN(end) AS end, globalTid
           FROM CUPTI_ACTIVITY_KIND_RUNTIME GROUP BY correlationId, globalTid / 16777216) r
     ON r.correlationId = k.correlationId AND r.globalTid / 16777216 = k.globalPid / 16777216
"""
COLUMNS = ["start_ns", "end_ns", "process_index", "thread_index", "stream_id", "device_id", "grid_x", "grid_y",
           "grid_z", "block_x", "block_y", "block_z", "name_id", "launch_start_ns", "launch_end_ns"]  # fmt: skip


def read(captures, name):
    """Launch frame, names, and the capture's NVTX texts with their times."""
    path = captures / "nsys" / f"{name}.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        launches = pd.DataFrame(connection.execute(QUERY).fetchall(), columns=COLUMNS)
        texts = dict(connection.execute("SELECT id, value FROM StringIds"))
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        ranges = []
        if "NVTX_EVENTS" in tables:
            ranges = connection.execute(
                "SELECT COALESCE(e.text, s.value), e.start, e.end FROM NVTX_EVENTS e "
                "LEFT JOIN StringIds s ON s.id = e.textId WHERE e.end IS NOT NULL"
            ).fetchall()
    launches = launches.fillna(-1)
    for column in ("process_index", "thread_index", "name_id"):
        launches[column], uniques = pd.factorize(launches[column])
    names = np.array([texts[identity] for identity in uniques], dtype=object)
    ranges = pd.DataFrame(ranges, columns=["text", "start_ns", "end_ns"])
    return launches.astype({"launch_start_ns": "int64", "launch_end_ns": "int64"}), names, ranges


def ordinals(launches):
    """Position of each launch in launch order."""
    return np.argsort(np.argsort(launches["launch_start_ns"].to_numpy(), kind="stable"), kind="stable")


def layer_blocks(result):
    nodes = result.nodes
    return nodes[(nodes["kind"] == "block") & (nodes["level"] == "LAYER")]


def test_transformer_without_ranges(captures):
    launches, names, _ = read(captures, "transformer_2.7b_a100_no_nvtx")
    result = infer(launches, names)
    found = result.iterations
    assert found["launch_count"].tolist() == [1832] * 4
    assert found["iteration_class"].isin(["regular", "odd"]).all()
    blocks = layer_blocks(result)
    assert blocks.groupby("iteration_index").size().tolist() == [32] * 4
    assert blocks["block_index"].tolist() == list(range(1, 33)) * 4
    assert blocks["launch_count"].eq(57).all() and blocks["equal_class"].nunique() == 1
    assert blocks["name"].iloc[6] == "transformer block 7/32"
    assert (result.node_of_launch >= 0).all()
    # What fits no block: the embedding before them, norm and output projection after them.
    rest = result.nodes[result.nodes["kind"] == "stretch"]
    assert rest["launch_count"].tolist() == [1, 7] * 4


def test_attention_lies_at_the_same_place_of_every_block(captures):
    """The twin capture marks attention by ranges; there it is the same part of each inferred block."""
    launches, names, _ = read(captures, "transformer_2.7b_a100_no_nvtx")
    blocks = layer_blocks(infer(launches, names))
    twin, _, ranges = read(captures, "transformer_2.7b_a100_nvtx")
    place = ordinals(twin)
    kinds = ranges[ranges["text"].str.contains("attention", case=False)]
    assert kinds["text"].nunique() >= 1
    at = twin["launch_start_ns"].to_numpy()
    checked = 0
    for _, marked in kinds.groupby("text"):
        inside = np.zeros(len(twin), bool)
        for start, end in zip(marked["start_ns"], marked["end_ns"]):
            inside |= (at >= start) & (at <= end)
        positions = np.sort(place[inside])
        number = np.searchsorted(blocks["first_launch"].to_numpy(), positions, side="right") - 1
        offset = positions - blocks["first_launch"].to_numpy()[number]
        assert (positions < blocks["end_launch"].to_numpy()[number]).all()
        per_block = pd.Series(offset).groupby(number).apply(tuple)
        assert len(per_block) == 128 and per_block.nunique() == 1
        checked += len(positions)
    assert checked >= 128


def test_attention_and_mlp_are_the_parts_of_a_block(captures):
    launches, names, _ = read(captures, "transformer_2.7b_a100_no_nvtx")
    nodes = infer(launches, names).nodes
    parts = nodes[(nodes["kind"] == "part") & (nodes["iteration_index"] == 0)]
    assert parts["layer_type"].tolist() == ["attention", "MLP"] * 32
    assert parts["launch_count"].tolist() == [44, 13] * 32


def test_forward_backward_and_optimiser_of_each_step(captures):
    launches, names, ranges = read(captures, "transformer_backward_rtx3070ti")
    result = infer(launches, names)
    found = result.iterations
    assert found["folded_name"].tolist() == ["training step"] * 5 + ["iteration"] * 10
    assert found["launch_count"].tolist() == [2200] + [1978] * 4 + [692] * 10
    assert found["iteration_class"].tolist() == ["odd"] + ["regular"] * 14

    phases = result.nodes[result.nodes["kind"] == "phase"]
    assert phases["name"].tolist() == ["forward", "backward", "optimiser"] * 5
    assert phases["launch_count"].tolist() == [695, 1227, 278] + [695, 1227, 56] * 4
    # The program marked its forward passes: the inferred ones begin and end there, within the loss.
    at = launches["launch_start_ns"].to_numpy()
    marked = ranges[ranges["text"] == "Forward"].sort_values("start_ns").iloc[:5]
    truth = [int(((at >= a) & (at <= b)).sum()) for a, b in zip(marked["start_ns"], marked["end_ns"])]
    assert truth == [692] * 5
    start = phases[phases["name"] == "forward"]["start_ns"].to_numpy()
    first = [at[(at >= a) & (at <= b)].min() for a, b in zip(marked["start_ns"], marked["end_ns"])]
    assert start.tolist() == first


def test_blocks_of_forward_and_backward_match(captures):
    launches, names, _ = read(captures, "transformer_backward_rtx3070ti")
    blocks = layer_blocks(infer(launches, names))
    steps = blocks[blocks["iteration_index"] < 5]
    for _, step in steps.groupby("iteration_index"):
        assert step["matched_block_index"].tolist() == [0] * 12 + list(range(12, 0, -1))
        assert step["launch_count"].tolist() == [57] * 12 + [100] * 12
    inference = blocks[blocks["iteration_index"] >= 5]
    assert inference.groupby("iteration_index").size().tolist() == [12] * 10
    # A forward block of a training step is the block of inference.
    assert set(steps[steps["matched_block_index"] == 0]["equal_class"]) == set(inference["equal_class"])


def test_time_steps_without_any_layer(captures):
    launches, names, _ = read(captures, "cloverleaf_a100")
    result = infer(launches, names)
    assert result.iterations["launch_count"].tolist() == [125] * 10
    assert "LAYER" not in set(result.nodes["level"])
    assert set(result.nodes["layer_type"]) == {""}
    around = result.nodes[result.nodes["kind"] == "around"]
    assert around["launch_count"].tolist() == [58, 4]


def test_a_solver_without_steps_is_left_alone(captures):
    launches, names, _ = read(captures, "cublas_a100_2022.3")
    result = infer(launches, names)
    assert not len(result.nodes)
    assert [(f.code, f.count) for f in result.findings] == [("nothing-repeats", 849)]


@pytest.mark.parametrize(
    ("name", "count"),
    [("two_kernels_rtx3080", 2), ("three_kernels_t4_2023.1", 3), ("no_metadata_2021.2", 12), ("nvfuser_h200", 19)],
)
def test_the_smallest_captures_say_why(captures, name, count):
    launches, names, _ = read(captures, name)
    result = infer(launches, names)
    assert not len(result.nodes)
    assert [(f.code, f.count) for f in result.findings] == [("too-few-kernels", count)]
    assert str(count) in result.findings[0].example


@pytest.mark.parametrize("name", ["transformer_2.7b_a100_no_nvtx", "fsdp_2gpu_h100", "cloverleaf_a100"])
def test_every_launch_once_and_nothing_private(captures, name):
    launches, names, _ = read(captures, name)
    result = infer(launches, names)
    assert len(result.node_of_launch) == len(launches)
    counted = np.bincount(result.node_of_launch[result.node_of_launch >= 0], minlength=len(result.nodes))
    assert (counted == result.nodes["self_launch_count"].to_numpy()).all()
    lost = launches["launch_start_ns"].to_numpy() < 0
    assert (result.node_of_launch[lost] == -1).all()
    assert CANARY not in result.nodes.to_csv() + repr(result.findings)
