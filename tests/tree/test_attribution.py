"""Launches, ranges and layers of device work, against loops over all rows."""

from __future__ import annotations

import numpy as np
import pytest
from builders import ExportBuilder
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from traces import frame_of_rows, trace_of_rows

from xsp_post.arrays.intervals import nest
from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.options import Options
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Attribution, NodeKind
from xsp_post.tree.attribution import (
    attribute,
    beside_the_work,
    join_launches,
    opaque_graph_launches,
    original_creation,
    shared_correlations,
)
from xsp_post.tree.structure.constants import DEFAULTS

PROCESS_OF_THREAD = (0, 0, 0, 1)
RANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 25)), max_size=20)
CALLS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=20)


def rows_of(triples) -> list[dict]:
    return [{"thread_index": t, "start_ns": start, "end_ns": start + length} for t, start, length in triples]


def attributed(spans, launches, usable=None, **frames):
    """`attribute` of one activity a launch; the launches by their rows."""
    activities = frames.pop("activities", None) or [{"thread_index": row["thread_index"]} for row in launches]
    trace = trace_of_rows(
        process_of_thread=PROCESS_OF_THREAD, spans=spans, launches=launches, activities=activities, **frames
    )
    usable = np.arange(len(spans)) if usable is None else usable
    thread, start, end = (trace.spans[name].to_numpy()[usable] for name in ("thread_index", "start_ns", "end_ns"))
    nesting = nest(thread.astype(np.int64), start, end)
    return attribute(trace, nesting, usable, np.arange(len(launches)))


@examples(50)
@given(RANGES, CALLS)
def test_a_launch_counts_for_the_shortest_range_of_its_thread_else_of_another_one(ranges, calls):
    spans, launches = rows_of(ranges), rows_of(calls)
    found = attributed(spans, launches)
    for row, call in enumerate(launches):
        around = [
            (span["end_ns"] - span["start_ns"], i)
            for i, span in enumerate(spans)
            if span["start_ns"] <= call["start_ns"] and span["end_ns"] >= call["end_ns"]
            and PROCESS_OF_THREAD[span["thread_index"]] == PROCESS_OF_THREAD[call["thread_index"]]
        ]  # fmt: skip
        own = [one for one in around if spans[one[1]]["thread_index"] == call["thread_index"]]
        got = int(found["span"][row])
        expected = min(own or around, default=None)
        how = Attribution.NESTING if own else Attribution.THREAD_TIME if around else Attribution.NONE
        assert found["attribution"][row] == int(how)
        assert (got < 0) == (expected is None)
        if expected is not None:
            assert spans[got]["end_ns"] - spans[got]["start_ns"] == expected[0]
            assert got in [i for _, i in (own or around)]
        assert int(found["launch_span"][row]) == (got if own else -1)


def test_of_covering_ranges_of_other_threads_the_shortest_is_meant_whatever_their_order():
    long, short, other = (0, 0, 100), (1, 10, 40), (2, 5, 60)
    for order in ([long, short, other], [other, short, long], [short, other, long]):
        found = attributed(rows_of(order), rows_of([(2, 70, 5), (2, 20, 5)])[:1])
        assert order[int(found["span"][0])] == long
        found = attributed(rows_of([one for one in order if one != other]), rows_of([(2, 20, 5)]))
        assert found["attribution"].tolist() == [int(Attribution.THREAD_TIME)]
        assert [one for one in order if one != other][int(found["span"][0])] == short


def test_a_range_that_may_not_be_used_holds_nothing():
    found = attributed(rows_of([(0, 0, 100), (0, 10, 20)]), rows_of([(0, 15, 2)]), usable=np.array([0]))
    assert found["span"].tolist() == [0]


def test_work_without_a_launch_has_no_range():
    trace = trace_of_rows(spans=rows_of([(0, 0, 100)]), launches=rows_of([(0, 5, 2)]), activities=[{}, {}])
    nesting = nest(np.zeros(1, np.int64), np.array([0]), np.array([100]))
    found = attribute(trace, nesting, np.arange(1), np.array([-1, 0]))
    assert found["attribution"].tolist() == [int(Attribution.NO_LAUNCH), int(Attribution.NESTING)]
    assert found["span"].tolist() == found["launch_span"].tolist() == [-1, 0]


def test_a_graph_node_counts_for_the_range_in_which_its_original_was_created():
    """Node 12 is a clone of 11, which is a clone of 10: created in the second range, on another thread."""
    nodes = [
        {"graph_node_id": 10, "original_graph_node_id": 0, "thread_index": 1, "start_ns": 55},
        {"graph_node_id": 11, "original_graph_node_id": 10, "thread_index": 0, "start_ns": 5},
        {"graph_node_id": 12, "original_graph_node_id": 11, "thread_index": 0, "start_ns": 6},
        {"graph_node_id": 13, "original_graph_node_id": 0, "thread_index": 0, "start_ns": 400},  # in no range
    ]
    spans = rows_of([(0, 0, 20), (1, 50, 10), (0, 200, 50)])
    launches = rows_of([(0, 210, 2)] * 5)
    activities = [{"thread_index": 0, "graph_node_id": node} for node in (12, 11, 13, 99, 0)]
    found = attributed(spans, launches, graph_nodes=nodes, activities=activities)
    nesting, graph = int(Attribution.NESTING), int(Attribution.GRAPH)
    assert found["span"].tolist() == [1, 1, 2, 2, 2]
    assert found["attribution"].tolist() == [graph, graph, nesting, nesting, nesting]
    assert found["launch_span"].tolist() == [2] * 5


def test_a_node_of_another_process_is_another_node():
    nodes = [
        {"graph_node_id": 7, "thread_index": 0, "start_ns": 5},
        {"graph_node_id": 7, "thread_index": 3, "start_ns": 15},
    ]
    spans = rows_of([(0, 0, 10), (3, 10, 10)])
    activities = [{"thread_index": 0, "graph_node_id": 7}, {"thread_index": 3, "graph_node_id": 7}]
    found = attributed(spans, rows_of([(0, 90, 1), (3, 90, 1)]), graph_nodes=nodes, activities=activities)
    assert found["span"].tolist() == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 8), st.integers(0, 8)), max_size=10))
def test_clones_are_followed_to_the_first_of_them(rows):
    """A circle of damaged data ends somewhere; each other node has the time of the original at the chain's end."""
    frame = frame_of_rows("graph_nodes", [
        {"process_index": p, "graph_node_id": node, "original_graph_node_id": of, "thread_index": i, "start_ns": 10 * i}
        for i, (p, node, of) in enumerate(rows)
    ])  # fmt: skip
    found = original_creation(frame).set_index(["process_index", "graph_node_id"])
    first = {}
    for i, (p, node, of) in enumerate(rows):
        first.setdefault((p, node), (i, of))
    assert len(found) == len(first)
    for key, (row, original) in first.items():
        seen = {key}
        while (key[0], original) in first and original != 0:
            above = (key[0], original)
            if above in seen:
                break
            seen.add(above)
            row, original = first[above]
        else:
            assert found.loc[key, "start_ns"] == 10 * row
            assert found.loc[key, "thread_index"] == row


# Of a correlation id: a few small numbers are looked up in a table, far ones by a search.
IDS = st.sampled_from([-1, 0, 1, 2, 3, 10**9, 10**9 + 1])
API_ROWS = st.lists(st.tuples(st.integers(0, 1), IDS.filter(lambda one: one >= 0), st.integers(0, 1)), max_size=20)
WORK_ROWS = st.lists(st.tuples(st.integers(0, 2), IDS), max_size=8)


def joined(calls, work):
    return trace_of_rows(
        process_of_thread=(0, 1, 2),
        launches=[{"thread_index": p, "correlation_id": c, "api_class": driver} for p, c, driver in calls],
        activities=[{"thread_index": p, "correlation_id": c} for p, c in work],
    )


@examples(50)
@given(API_ROWS, WORK_ROWS)
def test_the_launch_is_the_first_runtime_call_of_the_process_with_that_id_else_the_first_driver_call(calls, work):
    found = join_launches(joined(calls, work))
    expected = []
    for process, wanted in work:
        same = [(driver, i) for i, (p, c, driver) in enumerate(calls) if (p, c) == (process, wanted)]
        expected.append(min(same)[1] if same and wanted != -1 else -1)
    assert found.tolist() == expected


@examples(40)
@given(API_ROWS, WORK_ROWS)
def test_ids_that_several_calls_share_are_counted_where_they_started_work(calls, work):
    trace = joined(calls, work)
    launch_id = join_launches(trace)
    used = {calls[i][:2] for i in launch_id.tolist() if i >= 0}
    expected = sum([call[:2] for call in calls].count(one) > 1 for one in used)
    assert shared_correlations(trace, launch_id) == expected


@pytest.mark.parametrize("far", [8 * 3 + 1022, 8 * 3 + 1023, 8 * 3 + 1024, 8 * 3 + 1025])
def test_both_ways_of_looking_up_ids_agree_where_one_gives_way_to_the_other(far):
    trace = joined([(0, 5 + far, 0), (0, 5, 0), (0, 7, 1)], [(0, 5), (0, 7), (0, 5 + far), (0, 6), (0, 4)])
    assert join_launches(trace).tolist() == [1, 2, 0, -1, -1]


def test_opaque_graphs_are_found_by_their_kind():
    kinds = [ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.GRAPH]
    trace = trace_of_rows(activities=[{"kind": int(kind)} for kind in kinds])
    assert opaque_graph_launches(trace).tolist() == [1, 3]


def test_work_outside_ranges_without_a_launch_and_of_a_graph_have_nodes_of_their_own(tmp_path):
    export = ExportBuilder().process(100).range("step", 0, 100).kernel("orphan", launch=None, run=(5, 9))
    export.kernel("outside", launch=(200, 201), run=(210, 213)).graph_launch(launch=(20, 25), run=(30, 60))
    tree = build_tree(load(export.write(tmp_path / "a.sqlite")).trace, Options(infer=False))
    kind = tree.nodes["kind"].to_numpy()[tree.activities["node_id"].to_numpy()].tolist()
    length = (tree.activities["end_ns"] - tree.activities["start_ns"]).tolist()
    assert dict(zip(kind, length)) == {NodeKind.NO_LAUNCH: 4, NodeKind.UNATTRIBUTED: 3, NodeKind.GRAPH: 30}


def test_ranges_of_a_thread_that_launches_nothing_need_a_reason_to_hold_launches():
    """A step around ten launches is one, also where pauses are long; a clock of another thread is not."""
    at = [1_000 * step + 20 * k for step in range(12) for k in range(10)]
    launches = [{"thread_index": 0, "start_ns": t, "end_ns": t + 5} for t in at]
    activities = [{"thread_index": 0, "name_id": 1 + k % 10} for k in range(len(at))]
    steps = [{"thread_index": 1, "start_ns": 1_000 * n - 5, "end_ns": 1_000 * n + 900, "name_id": 0} for n in range(12)]
    clock = [{"thread_index": 2, "start_ns": 70 * n, "end_ns": 70 * n + 60, "name_id": 1} for n in range(160)]
    spans = [*steps, *clock]
    trace = trace_of_rows(process_of_thread=PROCESS_OF_THREAD, spans=spans, launches=launches, activities=activities)
    text = np.array([row["name_id"] for row in spans])
    found = beside_the_work(trace, np.arange(len(launches)), text, DEFAULTS)
    assert not found[: len(steps)].any() and found[len(steps) :].all()
    trace = trace_of_rows(
        process_of_thread=PROCESS_OF_THREAD, spans=clock,
        launches=[{**row, "thread_index": 2} for row in launches], activities=activities,
    )  # fmt: skip
    assert not beside_the_work(trace, np.arange(len(launches)), text[len(steps) :], DEFAULTS).any()
