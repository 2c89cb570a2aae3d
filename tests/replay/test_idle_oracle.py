"""Pieces of idle time against a plain reading of the same frames: one gap, one moment, one interval at a time."""

from __future__ import annotations

import itertools
from unittest.mock import patch

from builders import ExportBuilder
from helpers import explain_idle
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.replay import idle
from xsp_post.replay.calls import LATENCY_LIMIT_NS
from xsp_post.replay.gaps import find_gaps
from xsp_post.replay.idle import Cause

US = 1_000
CALLS = {
    "cudaMalloc": Cause.ALLOCATION, "cudaStreamSynchronize": Cause.SYNCHRONIZATION, "cudaMemcpyAsync": Cause.COPY_CALL,
    "cuLibraryLoadData": Cause.MODULE_LOAD, "cudaLaunchKernel": Cause.LAUNCH_CALL,
}  # fmt: skip
Interval = tuple[int, int, int, int]  # thread, start, end, number


def around(intervals: list[Interval], thread: int, begin: int, end: int) -> int:
    """Number of the shortest interval of a thread around a moment, of equals the last one; −1 for none."""
    found = [(e - s, -i) for t, s, e, i in intervals if t == thread and s <= begin and e >= end]
    return -min(found)[1] if found else -1


def loads_code(tree: Tree) -> set[int]:
    """Launches that were the first of their kernel, and took 100 µs and ten times the usual."""
    launches, work = tree.trace.launches, tree.activities
    taken = {
        int(launch): (int(launches["start_ns"].iloc[launch]), int(launches["end_ns"].iloc[launch]), int(name))
        for launch, name in zip(work["launch_id"], work["name_id"])
    }
    usual = sorted(end - start for start, end, _ in taken.values())[(len(taken) - 1) // 2]
    first: dict[int, int] = {}
    for launch in sorted(taken, key=lambda one: taken[one][0]):
        first.setdefault(taken[launch][2], launch)
    lengths = {launch: taken[launch][1] - taken[launch][0] for launch in first.values()}
    return {launch for launch, length in lengths.items() if length > max(100 * US, 10 * usual)}


def plain(tree: Tree) -> list[tuple]:
    """Device, start, end, cause, call, node and execution of every piece; alike neighbours of one gap are one."""
    launches, nodes, work = tree.trace.launches, tree.nodes, tree.activities
    calls = list(zip(launches["thread_index"], launches["start_ns"], launches["end_ns"], range(len(launches))))
    recorded = (nodes["kind"] < int(NodeKind.ROOT)).to_numpy()
    ranges = [
        (t, s, e, i)
        for i, (t, s, e) in enumerate(zip(nodes["thread_index"], nodes["start_ns"], nodes["end_ns"])) if recorded[i]
    ]  # fmt: skip
    text = [str(tree.strings[name]).split("_v")[0] for name in launches["name_id"]]
    edges = sorted({time for _, s, e, _ in (*calls, *ranges) for time in (s, e)})
    gaps, result = find_gaps(tree), []
    first_launches = loads_code(tree)
    runs = list(zip(*(times.tolist() for times in gaps.runs)))
    run_edges = sorted({time for run in runs for time in run})

    def states(thread: int, begin: int, end: int) -> list[tuple]:
        cuts = [begin, *(time for time in edges if begin < time < end), end]
        pieces = []
        for low, high in itertools.pairwise(cuts):
            call, node = around(calls, thread, low, high), around(ranges, thread, low, high)
            while call >= 0 and text[call] not in CALLS:  # says nothing of itself
                _, s, e, _ = calls[call]
                outer = around([one for one in calls if one[1:3] != (s, e)], thread, s, e)
                if outer < 0:
                    break
                call = outer
            cause = CALLS.get(text[call], Cause.HOST_CODE) if call >= 0 else Cause.HOST_CODE
            pieces.append((low, high, int(cause), text[call] if call >= 0 else "", node))
        return pieces

    for device, begin, end, previous, following in zip(gaps.device, gaps.start, gaps.end, gaps.previous, gaps.next):
        asked = following if following >= 0 else previous
        launch, before = (int(work["launch_id"].iloc[row]) if row >= 0 else -1 for row in (asked, previous))
        pieces: list[tuple] = []
        wanted = int(work["iteration_index"].iloc[following]) if following >= 0 else -1
        for low, high in itertools.pairwise([begin, *(time for time in run_edges if begin < time < end), end]):
            open_runs = [(s, i) for i, (s, e) in enumerate(runs) if s <= low and e >= high]
            run = wanted if wanted in [i for _, i in open_runs] else max(open_runs, default=(0, -1))[1]
            if launch < 0:
                pieces.append((low, high, int(Cause.UNKNOWN), "", -1, run))
                continue
            thread, _, returned, _ = calls[launch]
            middle = min(max(returned, low), high) if following >= 0 else high
            for piece in states(thread, low, middle) if middle > low else ():
                said = [piece]
                is_bare = piece[2] == int(Cause.HOST_CODE) and piece[3:] == ("", -1)
                if is_bare and before >= 0 and calls[before][0] != thread:
                    other = states(calls[before][0], *piece[:2])
                    if any(one[2] != int(Cause.HOST_CODE) or one[3:] != ("", -1) for one in other):
                        said = other
                if following >= 0 and launch in first_launches and piece[0] >= calls[launch][1]:
                    first = int(Cause.FIRST_LAUNCH)
                    said = [(*o[:2], first if o[2] == int(Cause.LAUNCH_CALL) else o[2], *o[3:]) for o in said]
                pieces += [(*one, run) for one in said]
            if high > middle:
                differs = work["stream_id"].iloc[following] != work["stream_id"].iloc[max(previous, 0)]
                queued = previous >= 0 and differs and returned <= begin
                cause = Cause.QUEUED if queued else Cause.LAUNCH_LATENCY
                cause = cause if high - middle <= LATENCY_LIMIT_NS else Cause.NOT_RECORDED
                pieces.append((middle, high, int(cause), text[launch], int(work["node_id"].iloc[following]), run))
        result += [(int(device), *piece) for piece in joined(pieces)]
    return result


def joined(pieces: list[tuple]) -> list[tuple]:
    done: list[tuple] = []
    for piece in pieces:
        if done and done[-1][2:] == piece[2:]:
            done[-1] = (done[-1][0], *piece[1:])
        else:
            done.append(piece)
    return [tuple(int(v) if not isinstance(v, str) else v for v in one) for one in done]


@examples(25)
@given(
    kernels=st.lists(
        st.tuples(
            st.integers(0, 400), st.integers(0, 60), st.integers(1, 90), st.integers(0, 2), st.sampled_from([3, 3, 150])
        ),
        min_size=1,
        max_size=9,
    ),
    calls=st.lists(
        st.tuples(
            st.integers(0, 900), st.integers(1, 200), st.sampled_from([*CALLS, "cudaGetDevice"]), st.integers(0, 2)
        ),
        max_size=8,
    ),
    ranges=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400), st.integers(0, 2)), max_size=7),
    at_once=st.sampled_from([1, 3, 100_000]),
)
def test_pieces_are_those_of_a_plain_reading(tmp_path_factory, kernels, calls, ranges, at_once):
    builder = ExportBuilder().process(100)
    for launch, wait, length, thread, took in {(one[0], one[3]): one for one in kernels}.values():
        run = launch + took + wait * 5
        builder.thread(100 + thread).kernel(
            f"k{length % 3}", launch=(launch * US, (launch + took) * US), run=(run * US, (run + length) * US),
            stream=7 + length % 2,
        )  # fmt: skip
    for at, length, name, thread in {(at, thread): (at, n, name, thread) for at, n, name, thread in calls}.values():
        builder.thread(100 + thread).api(name, at * US, (at + length) * US)
    for at, length, thread in ranges:
        builder.thread(100 + thread).range(f"r{length % 4}", at * US, (at + length) * US)
    folder = tmp_path_factory.mktemp("any")
    builder.write(folder / "report.sqlite")
    trace = load(folder / "report.sqlite").trace
    assert trace is not None
    tree = build_tree(trace)
    with patch.object(idle, "_AT_ONCE", at_once):
        found = explain_idle(tree)
    strings = [str(text).split("_v")[0] for text in found.strings] + [""]
    columns = ("device", "start_ns", "end_ns", "cause")
    ours = [
        (*map(int, row[:4]), strings[int(row[4])], *map(int, row[5:]))
        for row in found.pieces[[*columns, "call_id", "node_id", "iteration_index"]].itertuples(index=False, name=None)
    ]
    assert ours == plain(tree)
