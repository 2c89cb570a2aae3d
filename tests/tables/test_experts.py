"""Mixtures of experts: their share, what dispatch hides, the late rank, and tokens an expert where sizes tell."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import frame_of

from xsp_post.hardware.gpus import find_peaks
from xsp_post.model.results import Analysis
from xsp_post.tables.analyses.experts import experts

PRODUCT, SEND, CHOOSE, GEMM = "fused_moe_kernel", "deep_ep::dispatch", "topk_gating_softmax", "sgemm"


def table(kernels, sizes="", work=()):
    """Kernels: (process, name, start, end); work: flop, bytes read and pipe of each."""
    rows = [{"capture_id": 0, "process_id": p, "name": n, "start_ns": s, "end_ns": e} for p, n, s, e in kernels]
    rows = [{**row, "kernel_id": k, "duration_ns": row["end_ns"] - row["start_ns"]} for k, row in enumerate(rows)]
    devices = [
        {"capture_id": 0, "process_id": p, "rank": p - 70, "gpu_name": "NVIDIA B200"}
        for p in {row["process_id"] for row in rows}
    ]
    operators = [{"capture_id": 0, "family": "experts", "sizes": sizes, "kernel_ns": 5}] if sizes else []
    frames = {"kernels": rows, "devices": devices, "operators": operators, "captures": [{"capture_id": 0}]}
    frames["kernel_work"] = [
        {"capture_id": 0, "kernel_id": k, "flop": flop, "read_bytes": read, "written_bytes": 0.0, "pipe": pipe}
        for k, (flop, read, pipe) in enumerate(work)
    ]
    return experts(Analysis({name: frame_of(name, one) for name, one in frames.items()}))


def test_shares_and_what_dispatch_hides():
    found = table([(70, GEMM, 0, 40), (70, SEND, 30, 50), (70, CHOOSE, 50, 60), (70, PRODUCT, 60, 100)]).iloc[0]
    assert found[["expert_ns", "routing_ns", "dispatch_ns"]].tolist() == [40, 10, 20]
    assert found["expert_ratio"] == pytest.approx(40 / 110) and found["dispatch_overlap_ratio"] == 0.5
    assert not found["is_late"] and found["rank"] == 0
    assert np.isnan(found["imbalance_ratio"])  # one process: nothing to compare with


def test_the_late_rank_is_named():
    found = table([(70 + rank, PRODUCT, 0, 100 + 40 * (rank == 2)) for rank in range(4)])
    assert found.loc[found["is_late"], "rank"].tolist() == [2]
    assert found["imbalance_ratio"].max() == pytest.approx(140 / 110)


@pytest.mark.parametrize("sizes", ["[32, 64], [16, 128, 64], [32, 4]", "[32,64],[16,128,64],[16,64,64],[32,4]"])
def test_tokens_of_an_expert_where_sizes_tell(sizes):
    found = table([(70, PRODUCT, 0, 9)], sizes).iloc[0]
    assert found[["expert_count", "chosen_count", "tokens_per_expert"]].tolist() == [16, 4, 8]
    assert table([(70, PRODUCT, 0, 9)], "[32, 64], [64, 64]").iloc[0][["expert_count", "chosen_count"]].tolist() == [
        -1,
        -1,
    ]


def test_other_programs_have_no_rows():
    assert not len(table([(70, GEMM, 0, 9)]))


@pytest.mark.parametrize(("part", "reached"), [((0.3, 0.1), 0.3), ((0.1, 0.4), 0.4), ((0.0, 0.2), 0.2)])
def test_products_of_experts_beside_the_nearer_roof(part, reached):
    peaks = find_peaks("NVIDIA B200")
    rates = peaks.peak("bf16_tensor"), peaks.memory_bandwidth_bytes_per_s
    flop, read = (share * rate * 1e-6 for share, rate in zip(part, rates))
    kernels = [(70, PRODUCT, 0, 1000), (70, GEMM, 1000, 2000)]
    assert table(kernels, work=[(flop, read, "bf16_tensor")]).iloc[0]["roof_ratio"] == pytest.approx(reached)
    assert table(kernels, work=[(np.nan, read, "bf16_tensor")])["roof_ratio"].isna().all()
    assert table(kernels)["roof_ratio"].isna().all()
