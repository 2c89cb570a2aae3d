"""The steps of the core tables, row by row: layers numbered, their device time, busy time and what overlaps it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.model.trace import ActivityKind
from xsp_post.tables.core import layers
from xsp_post.tables.core.columns import on_one_gpu

KERNEL, COPY, SET, GRAPH = (
    int(one) for one in (ActivityKind.KERNEL, ActivityKind.MEMCPY, ActivityKind.MEMSET, ActivityKind.GRAPH)
)


@pytest.mark.parametrize("stride", [1, 100_000], ids=["dense", "sparse"])
@given(st.lists(st.integers(0, 9), max_size=10), st.lists(st.integers(0, 9), max_size=10))
def test_layers_are_numbered_by_their_keys(stride, one, other):
    keys, of_one, of_other = layers._numbered(np.array(one, int) * stride, np.array(other, int) * stride)
    wanted = sorted({*one, *other})
    assert keys.tolist() == [key * stride for key in wanted]
    assert [wanted[k] for k in of_one] == one
    assert [wanted[k] for k in of_other] == other


# layer, start, length, kind, bytes, whether its layer's projection holds it, kernels that it stands for
_WORK = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 30), st.integers(0, 8), st.sampled_from([KERNEL, COPY, SET, GRAPH]),
        st.integers(0, 99), st.booleans(), st.integers(0, 2),
    ),
    max_size=10,
)  # fmt: skip


def _activities(work, with_counts=True):
    columns = ["layer", "start_ns", "length", "kind", "bytes", "is_projected", "is_counted"]
    frame = pd.DataFrame(work, columns=columns).astype({"is_projected": bool}).astype({"layer": "int64"})
    inside = frame["is_projected"].to_numpy(bool)
    # node 0: the root, nodes 1 … 3: the layers, 4 … 6: a range in each of them
    node = frame["layer"] + 1
    return frame.assign(
        end_ns=frame["start_ns"] + frame["length"], layer_node_id=node, launch_node_id=np.where(inside, node + 3, 0)
    ).drop(columns=[] if with_counts else ["is_counted"])  # fmt: skip


@pytest.mark.parametrize("with_counts", [True, False])
@examples(40)
@given(_WORK)
def test_device_time_of_layers_is_that_of_a_loop(with_counts, work):
    found = layers._device_amounts(
        _activities(work, with_counts), np.arange(len(work)), np.array([one[0] for one in work], int), 3
    )
    for layer in range(3):
        mine = [one for one in work if one[0] == layer]
        for name, kinds in (("kernel_ns", {KERNEL}), ("copy_ns", {COPY, SET}), ("graph_ns", {GRAPH}),
                            ("device_ns", {KERNEL, COPY, SET, GRAPH})):  # fmt: skip
            assert found[name][layer] == sum(one[2] for one in mine if one[3] in kinds)
        assert found["kernel_count"][layer] == sum(one[6] if with_counts else 1 for one in mine if one[3] == KERNEL)
        assert found["memory_bytes"][layer] == sum(one[4] for one in mine if one[3] in (COPY, SET))


_RANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 30), st.integers(0, 8)), max_size=6)


@examples(60)
@given(_WORK, _RANGES, st.lists(st.booleans(), min_size=3, max_size=3), st.booleans())
def test_busy_time_beside_the_projections_is_counted_by_hand(work, ranges, is_self, is_sorted):
    """A range without a projection starts at −1."""
    work = sorted(work, key=lambda one: one[1]) if is_sorted else work
    activities = _activities(work)
    projected = [(-1, -1)] * 7 + [(start, start + length if start >= 0 else -1) for _, start, length in ranges]
    nodes = pd.DataFrame(projected, columns=["projected_start_ns", "projected_end_ns"]).assign(
        layer_node_id=[0, 1, 2, 3, 1, 2, 3, *(one[0] + 1 for one in ranges)]
    )
    rows, chosen = np.arange(7, 7 + len(ranges)), np.arange(len(work))
    of_node, of_work = (np.array([one[0] for one in of], int) for of in (ranges, work))
    busy, elsewhere = layers._busy(nodes, activities, (rows, chosen), (of_node, of_work), np.array(is_self))
    for layer in range(3):
        mine = [one for one in work if one[0] == layer]
        assert busy[layer] == len({t for one in mine for t in range(one[1], one[1] + one[2])})
        beside = {t for one in mine if not one[5] or one[3] == GRAPH for t in range(one[1], one[1] + one[2])}
        held = {t for of, start, length in ranges if of == layer and start >= 0 for t in range(start, start + length)}
        assert elsewhere[layer] == len(beside if is_self[layer] else beside - held)


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2)), max_size=8))
def test_busy_time_over_several_gpus_is_of_none(rows):
    busy = np.array([5, 6, 7])
    group, gpu = (np.array([row[k] for row in rows], int) for k in range(2))
    found = on_one_gpu(busy, group, gpu)
    for k in range(3):
        several = len({on for of, on in rows if of == k}) > 1
        assert math.isnan(found[k]) if several else found[k] == busy[k]
    assert (found is busy) == (not np.isnan(found).any())
