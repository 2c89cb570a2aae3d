"""What a thread did in each piece of its time, against a loop over its calls and ranges moment by moment."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples
from traces import trace_of_rows

from xsp_post.hierarchy import build_tree
from xsp_post.model.options import Options
from xsp_post.replay.host_state import LONG_NS, Cause, HostState

CALLS = {"cudaGetDevice": Cause.HOST_CODE, "cudaLaunchKernel": Cause.LAUNCH_CALL, "cudaMalloc": Cause.ALLOCATION,
         "cudaStreamSynchronize": Cause.SYNCHRONIZATION}  # fmt: skip
NAMES = (*CALLS, "work")
TIMES = st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(1, 12))


def nested(rows):
    """Only those that lie inside or outside each of the earlier ones of their thread, at other times than these."""
    kept = []
    for thread, start, length, *rest in rows:
        start, end = 4 * start + len(kept) % 4, 4 * (start + length) + len(kept) % 4
        same = [(s, e) for t, s, e, *_ in kept if t == thread]
        if all(end < s or e < start or (s < start and end < e) or (start < s and e < end) for s, e in same):
            kept.append((thread, start, end, *rest))
    return kept


def around(rows, thread, moment):
    """Those around a moment, the innermost first."""
    return sorted(
        (one for one in rows if one[0] == thread and one[1] <= moment < one[2]), key=lambda one: one[2] - one[1]
    )


@examples(40)
@given(st.lists(st.tuples(TIMES, st.integers(0, 3)), max_size=9), st.lists(TIMES, max_size=5))
@example([((0, 0, 12), 1), ((0, 2, 8), 0), ((0, 3, 6), 0), ((0, 4, 2), 0)], [])  # three that say nothing, in a launch
@example([((0, 0, 12), 0), ((0, 2, 8), 2), ((0, 3, 5), 0)], [(0, 1, 12)])
def test_each_moment_has_the_call_and_the_range_around_it(calls, ranges):
    calls = nested([(*times, name) for times, name in calls])
    ranges = nested(ranges)
    trace = trace_of_rows(
        process_of_thread=(0, 0), strings=NAMES,
        spans=[{"thread_index": t, "start_ns": s, "end_ns": e, "name_id": 4} for t, s, e in ranges],
        launches=[{"thread_index": t, "start_ns": s, "end_ns": e, "name_id": n, "correlation_id": k}
                  for k, (t, s, e, n) in enumerate(calls)],
    )  # fmt: skip
    tree = build_tree(trace, Options(infer=False))
    state = HostState(tree)
    asked = np.array([0, 1]), np.array([3, 0]), np.array([150, 170])
    state.watch(*asked)
    found = state.pieces(*asked)
    starts, ends = tree.nodes["start_ns"].to_numpy(), tree.nodes["end_ns"].to_numpy()
    for thread, low, high in zip(*(one.tolist() for one in asked)):
        mine = np.flatnonzero(found.row == thread)
        assert (found.start[mine[0]], found.end[mine[-1]]) == (low, high)
        assert (found.end[mine[:-1]] == found.start[mine[1:]]).all()
        for k in mine.tolist():
            for moment in {int(found.start[k]), int(found.end[k]) - 1}:
                inside = around(calls, thread, moment)
                said = next((one for one in inside if one[3]), inside[-1] if inside else None)
                assert found.call[k] == (said[3] if said else -1)
                assert found.cause[k] == (CALLS[NAMES[said[3]]] if said else Cause.HOST_CODE)
                of = around(ranges, thread, moment)
                node = int(found.node[k])
                assert (node >= 0) == bool(of) and found.is_bare[k] == (not of and said is None)
                assert not of or (int(starts[node]), int(ends[node])) == of[0][1:3]


PYTHON = ("model.py(3): forward", "/usr/lib/python3/torch/nn.py(5): call", "<built-in method add>")


@examples(40)
@given(st.lists(st.tuples(TIMES, st.integers(0, 2)), max_size=12), st.lists(TIMES, min_size=1, max_size=4))
@example([((0, 0, 12), 0), ((0, 1, 8), 1), ((0, 2, 4), 2), ((0, 3, 1), 0)], [(0, 1, 9), (0, 2, 3)])
def test_long_host_code_is_of_the_programs_frame_that_fills_half_of_it(frames, asked):
    """Of the frames around its middle the innermost that does, or the first around that one which is no library's."""
    frames = [(t, s * LONG_NS, e * LONG_NS, name) for t, s, e, name in nested([(*one, name) for one, name in frames])]
    trace = trace_of_rows(
        process_of_thread=(0, 0), strings=PYTHON,
        python_frames=[{"thread_index": t, "start_ns": s, "end_ns": e, "name_id": n} for t, s, e, n in frames],
    )  # fmt: skip
    state = HostState(build_tree(trace, Options(infer=False)))
    rows = [(t, (8 * s + 1) * LONG_NS // 2, (8 * (s + length) + 3) * LONG_NS // 2) for t, s, length in asked]
    thread, start, end = map(np.array, zip(*rows))
    state.watch(thread, start, end)
    found = state.pieces(thread, start, end)
    assert found.row.tolist() == list(range(len(rows)))
    for (of, low, high), call in zip(rows, found.call.tolist()):
        inside = around(frames, of, (low + high) // 2)
        filling = [k for k, (_, s, e, _) in enumerate(inside) if 2 * (min(e, high) - max(s, low)) >= high - low]
        said = [name for *_, name in inside[filling[0] :]] if filling else []
        assert call == next((name for name in said if not name), said[0] if said else -1)
