"""The numbers against plain loops: small random exports, every definition written out naively."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from builders import ExportBuilder
from helpers import core_tables
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import Loaded, load
from xsp_post.model.options import Options
from xsp_post.model.tree import Attribution
from xsp_post.pipeline import graph_of

THREADS = ((100, 100), (100, 101), (300, 300))  # (process, thread); 100 and 101 share correlation ids with 300
TIMES = st.integers(0, 40)
# even starts, odd ends: where an end falls on another's start the tree's rule differs on purpose
RANGES = st.lists(
    st.tuples(
        st.integers(0, 2), TIMES, st.integers(0, 30), st.sampled_from("ABC"),
        st.sampled_from(["push", "push", "push", "start", "cross", "open"]), st.sampled_from(["", "own"]),
    ),
    max_size=9,
)  # fmt: skip
# thread, launch start, launch length, run start, run length, what, how the launch was recorded
WORK = st.lists(
    st.tuples(
        st.integers(0, 2), TIMES, st.integers(0, 3), TIMES, st.integers(0, 9),
        st.sampled_from(["kernel", "kernel", "copy", "set"]),
        st.sampled_from(["call", "call", "call", "twice", "backtrace", "orphan", "shared"]),
    ),
    max_size=10,
)  # fmt: skip

SQL = """
WITH ev AS (
  SELECT n.rowid AS rid, n.start AS s,
         coalesce(n.end, (SELECT max(max(start), max(coalesce(end, start))) FROM NVTX_EVENTS)) AS e,
         n.globalTid AS gt
  FROM NVTX_EVENTS n WHERE n.eventType IN (59, 60, 70, 71) AND n.endGlobalTid IS NULL),
op AS (SELECT start, end, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL
       UNION ALL SELECT start, end, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_MEMCPY
       UNION ALL SELECT start, end, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_MEMSET),
lnk AS (SELECT r.start AS s, r.end AS e, r.globalTid AS gt, r.correlationId AS c, op.start AS gs, op.end AS ge
        FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN op
          ON op.correlationId = r.correlationId AND op.globalPid = (r.globalTid & ~0xFFFFFF)
        WHERE r.eventClass IN (0, 1))
SELECT ev.rid, min(lnk.gs), max(lnk.ge), count(DISTINCT lnk.c)
FROM ev JOIN lnk ON lnk.gt = ev.gt AND ev.s <= lnk.s AND ev.e >= lnk.e GROUP BY ev.rid
"""  # NSYS B.2: what `nvtx_gpu_proj_trace` prints


def written(ranges, work, path):
    """The export, and its launches as (thread, start, end, process, correlation) and work as dicts."""
    builder = ExportBuilder(lazy=False)
    for thread, start, length, text, kind, domain in ranges:
        process, tid = THREADS[thread]
        builder.process_id, builder.thread_id = process, tid
        start, end = 2 * start, 2 * (start + length) + 1
        if kind == "push":
            builder.range(text, start, end, domain=domain)
        elif kind == "start":
            builder.start_end(text, start, end, domain=domain)
        elif kind == "open":
            builder.range(text, start, None, domain=domain)
        else:
            builder.cross_thread(text, start, end, end_thread=THREADS[(thread + 1) % 2][1], domain=domain)
    done, correlation = [], 0
    for thread, at, length, begin, lasted, what, how in work:
        process, tid = THREADS[thread]
        builder.process_id, builder.thread_id = process, tid
        launch = (2 * at, 2 * (at + length) + 1)
        run = (100 + 2 * begin, 100 + 2 * begin + lasted)
        if how != "shared" or not done or done[-1]["process"] != process or done[-1]["launch"] is None:
            correlation += 1
            if how != "orphan":
                builder.api("cudaLaunchKernel", *launch, correlation=correlation)
                if how == "twice":  # the driver's row of the same call, a little inside
                    builder.duplicate_api("cuLaunchKernel", launch[0], launch[1])
                if how == "backtrace":
                    builder.duplicate_api("backtrace", 0, 500, event_class=67)
            made = (process, tid, *launch) if how != "orphan" else None
        else:
            made = done[-1]["launch"]  # several device rows of one call
        add = {"kernel": lambda **k: builder.kernel("k", **k), "copy": lambda **k: builder.memcpy(8, **k),
               "set": lambda **k: builder.memset(8, **k)}[what]  # fmt: skip
        add(run=run, correlation=correlation)
        done.append({"process": process, "launch": made, "run": run, "what": what, "correlation": correlation})
    builder.write(path)
    return done


def spans_of(path):
    """Ranges as the file has them: rowid → (process, thread, start, end, opened-first key, cross-thread)."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute(
            "SELECT rowid, start, end, globalTid, endGlobalTid FROM NVTX_EVENTS WHERE eventType IN (59, 60)"
        ).fetchall()
        last = connection.execute("SELECT max(max(start), max(coalesce(end, start))) FROM NVTX_EVENTS").fetchone()[0]
        official = {r[0]: r[1:] for r in connection.execute(SQL)}
    connection.close()
    return {
        rid: ((tid >> 24) & 0xFFFFFF, tid & 0xFFFFFF, start, last if end is None else end, closer is not None)
        for rid, start, end, tid, closer in rows
    }, official


def shortest_around(spans, process, thread, start, end, besides=None):
    """The shortest range of a thread around an interval; among equals the one that begins last, then opened last."""
    around = [
        (e - s, -s, -rid, rid) for rid, (p, t, s, e, crosses) in spans.items()
        if (p, t) == (process, thread) and not crosses and s <= start and e >= end and rid != besides
        and not (besides is not None and (s, e) == (start, end) and rid > besides)
    ]  # fmt: skip
    return min(around)[3] if around else None


def covered(intervals):
    """Length of a union, nanosecond by nanosecond."""
    return len({t for start, end in intervals for t in range(start, end)})


@examples(60)
@given(RANGES, WORK)
@example(  # the range of thread 101 hangs below the execution of thread 100
    [(0, 0, 0, "B", "push", ""), (1, 0, 0, "A", "push", ""), (0, 0, 0, "A", "push", ""), (0, 0, 0, "A", "push", "")],
    [(0, 0, 0, 0, 0, "kernel", "call"), (1, 0, 0, 15, 1, "copy", "call")],
)
def test_every_number_of_the_tree_is_what_plain_loops_count(tmp_path_factory, ranges, work):
    path = Path(tmp_path_factory.getbasetemp()) / "oracle.sqlite"
    done = written(ranges, work, path)
    spans, official = spans_of(path)
    tree = build_tree(load(path).trace)
    nodes, activities = tree.nodes, tree.activities
    node_of = {int(row): k for k, row in enumerate(nodes["source_row_id"].tolist()) if row >= 0}
    assert sorted(node_of) == sorted(spans)
    row_of = {k: row for row, k in node_of.items()}

    # nesting: the shortest range around, opened first outside
    parent = {
        rid: None if crosses else shortest_around(spans, p, t, s, e, besides=rid)
        for rid, (p, t, s, e, crosses) in spans.items()
    }
    # a range of another thread may hang below the execution around it: nothing of its own thread is around it then
    above, thread = nodes["parent_id"].to_numpy(), nodes["thread_index"].to_numpy()
    own_thread = {rid: k for rid, k in node_of.items() if above[k] <= 0 or thread[above[k]] == thread[k]}
    found = {rid: row_of.get(int(above[k])) if rid in own_thread else None for rid, k in node_of.items()}
    assert found == parent
    # that execution counts its work too, though nothing of it is host time or projection of the execution's thread
    holder = dict(parent)
    for rid in node_of.keys() - own_thread.keys():
        holder[rid] = row_of[int(above[node_of[rid]])]
        (process, thread_id, start, end, _), (other, its_thread, first, last, _) = spans[rid], spans[holder[rid]]
        assert parent[rid] is None and other == process and its_thread != thread_id and first <= start and end <= last

    # where each was launched
    order = [{"kernel": 0, "copy": 1, "set": 2}[d["what"]] for d in done]
    listed = [done[k] for k in sorted(range(len(done)), key=lambda k: (order[k], k))]
    expected = []
    for item in listed:
        if item["launch"] is None:
            expected.append(("NO_LAUNCH", None))
            continue
        process, thread, start, end = item["launch"]
        own = shortest_around(spans, process, thread, start, end)
        others = [shortest_around(spans, p, t, start, end) for p, t in THREADS if p == process and t != thread]
        others = [(spans[r][3] - spans[r][2], r) for r in others if r is not None]
        if own is not None:
            expected.append(("NESTING", own))
        elif others:
            expected.append(("THREAD_TIME", min(others)[1]))
        else:
            expected.append(("NONE", None))
    got = [
        (Attribution(how).name, row_of.get(int(node)))
        for how, node in zip(activities["attribution"].tolist(), activities["node_id"].tolist())
    ]
    # ties between two other threads' ranges of one length may go either way
    for (how, rid), (expected_how, expected_rid) in zip(got, expected, strict=True):
        assert how == expected_how
        if how == "THREAD_TIME":
            assert spans[rid][3] - spans[rid][2] == spans[expected_rid][3] - spans[expected_rid][2]
        else:
            assert rid == expected_rid

    # amounts of every range, from the activities below it
    def below(rid):
        found = set()
        for k, (_, owner) in enumerate(got):
            while owner is not None:
                if owner == rid:
                    found.add(k)
                owner = holder[owner]
        return [listed[k] for k in found]

    for rid, k in node_of.items():
        inside, node = below(rid), nodes.iloc[k]
        kernels = [d for d in inside if d["what"] == "kernel"]
        assert node["kernel_count"] == len(kernels)
        assert node["kernel_ns"] == sum(d["run"][1] - d["run"][0] for d in kernels)
        assert node["busy_ns"] == covered([d["run"] for d in inside])
        assert node["memory_bytes"] == 8 * (len(inside) - len(kernels))
        length = spans[rid][3] - spans[rid][2]
        children = sum(spans[r][3] - spans[r][2] for r, p in parent.items() if p == rid)
        assert node["self_ns"] == max(0, length - children)
        # projections belong to the launching thread alone, exactly as NVIDIA's report has them
        projected = (int(node["projected_start_ns"]), int(node["projected_end_ns"]))
        assert (*projected, node["device_operation_count"]) == official.get(rid, (-1, -1, 0))


def recorded(folder, ranges, work):
    """The export of an example, its ranges named as steps and layers."""
    path = Path(folder.getbasetemp()) / "sums.sqlite"
    named = [(t, s, n, {"A": "step 1", "B": "model.layers.0.mlp", "C": "model.layers.1.attn"}[x], k, d)
             for t, s, n, x, k, d in ranges]  # fmt: skip
    written(named, work, path)
    return path


@examples(8)
@given(RANGES, WORK)
def test_whatever_was_recorded_every_analysis_is_made(tmp_path_factory, ranges, work):
    path = recorded(tmp_path_factory, ranges, work)
    results = graph_of([Loaded(path, "nsys-sqlite", trace=load(path).trace)]).complete()
    assert {f"a{number:02}" for number in range(1, 16)} <= set(results.tables())
    assert results.frame("a10")["kernel_count"].sum() <= len(results.frame("kernels"))


@examples(60)
@given(RANGES, WORK)
def test_layers_add_up_to_their_iterations(tmp_path_factory, ranges, work):
    path = recorded(tmp_path_factory, ranges, work)
    results = core_tables(build_tree(load(path).trace, Options()))
    layers, kernels, iterations = (results.frame(n) for n in ("layers", "kernels", "iterations"))
    total = int((kernels["end_ns"] - kernels["start_ns"]).sum())
    balance = results.frame("balance")
    for question in ("launch", "layer"):
        rows = balance[balance["question"] == question].set_index("attribution")["kernel_ns"]
        assert rows["total"] == total == rows.drop("total").sum()
    counted = kernels[kernels["layer_index"] > 0]
    assert int(layers["kernel_ns"].sum()) == int(counted["duration_ns"].sum())
    assert int(layers["kernel_count"].sum()) == len(counted)
    for iteration in iterations.to_dict("records"):
        mine = kernels[kernels["iteration_index"] == iteration["iteration_index"]]
        assert iteration["kernel_count"] == len(mine) and iteration["kernel_ns"] == mine["duration_ns"].sum()
        its_layers = layers[layers["iteration_index"] == iteration["iteration_index"]]
        loose = mine[mine["layer_index"] < 0]
        assert its_layers["kernel_ns"].sum() + loose["duration_ns"].sum() == iteration["kernel_ns"]
