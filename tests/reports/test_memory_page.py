"""Memory in one sentence and on the page: parts sum to what the tables hold, the peak is never thinned out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xsp_post.model.results import Analysis
from xsp_post.reports import live_memory
from xsp_post.reports.document import section_of
from xsp_post.reports.frames import FRAMES
from xsp_post.reports.leads import LEADS
from xsp_post.reports.memory_line import memory_line, owners_of
from xsp_post.reports.page_rows import SECTIONS
from xsp_post.tables.analyses.memory_peaks import main_device

GIB = 2**30


def _results(**device):
    """A peak of 10 GiB: 4 before the recording, 4 blocks of 1, a head of 1.9, 0.1 in no range."""
    place = {"capture_id": 0, "process_id": 7, "device_id": 0, "memory_kind": "device"}
    devices = pd.DataFrame([
        place | {"peak_bytes": 10 * GIB, "peak_ns": 5_000, "peak_offset_ns": 4_000, "peak_range": "nn.Module: Head_0",
                 "reserved_bytes": 12 * GIB, "memory_bytes": 80 * GIB, "recorded_by": "framework"} | device,
        place | {"device_id": -1, "memory_kind": "host", "peak_bytes": 99 * GIB, "peak_ns": 1, "peak_offset_ns": 1,
                 "peak_range": "", "reserved_bytes": -1, "memory_bytes": -1, "recorded_by": "framework"},
    ])  # fmt: skip
    rows = [
        ("earlier", "[earlier]", "", -1, 4.0),
        ("none", "[no range]", "", -1, 0.1),
        ("layer", "net > head", "Linear", 5, 1.9),
    ]
    rows += [("layer", f"net > h.{k}", "Block", k + 1, 1.0) for k in range(4)]
    owners = pd.DataFrame([
        place | {"owner_kind": kind, "owner": path, "layer_type": type_, "layer_index": index,
                 "training_phase": "",
                 "live_at_peak_bytes": int(size * GIB), "live_at_peak_ratio": size / 10}
        for kind, path, type_, index, size in rows
    ])  # fmt: skip
    captures = pd.DataFrame({"capture_id": [0], "duration_ns": [9_000]})
    return Analysis({"memory_devices": devices, "memory": owners, "captures": captures})


def test_the_sentence_names_how_much_where_when_and_who():
    assert memory_line(_results(), 0) == (
        "Memory: peak of 10.0 GiB on GPU 0 (12.5 % of its 80.0 GiB) after 4.00 µs in Head_0: "
        "40.0 % allocated before the recording, 40.0 % in 4 × Block, 19.0 % in head, 1.0 % other"
    )


def test_what_the_driver_gave_is_said_and_a_capture_without_memory_says_nothing():
    assert memory_line(_results(recorded_by="driver"), 0).endswith(
        "asked of the driver, which gives segments, not tensors"
    )
    assert memory_line(_results(), 1) == "" == memory_line(Analysis({}), 0)


def test_operators_of_an_optimizer_are_called_by_it():
    results = _results()
    owners = results.frames["memory"]
    owners.loc[2, ["owner", "layer_type"]] = ["Optimizer.step > aten::div", "aten::div"]
    owners.loc[1, ["owner_kind", "owner"]] = ["range", "Optimizer.step"]
    assert memory_line(results, 0).endswith("in 4 × Block, 20.0 % in Optimizer.step")


def test_activations_are_told_from_gradients():
    results = _results()
    owners = results.frames["memory"]
    owners.loc[owners["layer_type"] == "Block", "training_phase"] = ["forward", "forward", "forward", "backward"]
    assert "30.0 % in 3 × Block (forward), 19.0 % in head, 10.0 % in h.3 (backward)" in memory_line(results, 0)


@pytest.fixture(scope="module")
def traced(captures):
    from helpers import core_tables

    from xsp_post.hierarchy import build_tree
    from xsp_post.ingest.kineto import read_kineto

    return core_tables(build_tree(read_kineto(captures / "kineto/timesformer_h100.pt.trace.json.gz")))


def test_the_chart_holds_the_peak_and_its_parts_sum_to_the_total(traced):
    device = main_device(traced, 0)
    frame = live_memory.live_by_part(traced, device, owners_of(traced, device))
    parts = frame.drop(columns=["offset_ns", "total_bytes"])
    assert frame["total_bytes"].max() == device["peak_bytes"] == 4_490_752_000
    assert (parts.sum(axis=1) == frame["total_bytes"]).all() and (parts >= 0).all(axis=None)
    assert len(frame) < 2 * live_memory.BIN_COUNT + 2 and frame["offset_ns"].is_monotonic_increasing
    at_peak = parts.iloc[int(frame["total_bytes"].argmax())]
    assert at_peak["TimesformerLayer"] == pytest.approx(0.919 * device["peak_bytes"], rel=1e-3)
    assert at_peak["allocated before the recording"] == 287_697_408


def test_the_section_shows_the_sentence_and_every_owner(traced):
    section = section_of(SECTIONS["memory"], traced, None, FRAMES, LEADS)
    lead, held, chart, table, devices = section.blocks
    assert lead.text.startswith("Memory: peak of 4.18 GiB on GPU 0") and "91.0 % in TimesformerLayer_1" in lead.text
    assert chart.chart.to_dict()["layer"] and "4.27 GiB are held from the driver" in held.text
    assert table.row_count == len(owners_of(traced, main_device(traced, 0))) and devices.row_count == 2
    nothing = pd.DataFrame({"capture_id": [0], "level": "M", "batch_size": 1})
    assert section_of(SECTIONS["memory"], Analysis({"captures": nothing}), None, FRAMES, LEADS) is None


@pytest.mark.parametrize("count", [1, 5, 100_000])
def test_thinning_keeps_the_highest_and_the_last(count):
    rng = np.random.default_rng(1)
    at, total = np.sort(rng.integers(0, 10**9, count)), rng.integers(0, 10**12, count)
    rows = live_memory._chosen(at, total)
    assert rows[-1] == count - 1 and total[rows].max() == total.max() and len(rows) <= 2 * live_memory.BIN_COUNT
