"""Annotated CUDA graphs, by documentation: modules, source lines, edges, messages and counters of known truth."""

from __future__ import annotations

import gzip
import json
import pickle
import re

import numpy as np
import pytest
from generators.annotated_graphs import FORMS, METRICS, Engine
from generators.graph_traces import DEVICE, Recording

from xsp_post.compare.comparison import compare
from xsp_post.exporters.timeline import build_timeline
from xsp_post.ingest.sources import load
from xsp_post.model.options import Options
from xsp_post.model.trace import COPY_DIRECTIONS
from xsp_post.pipeline import analyze
from xsp_post.reports.frames import causes
from xsp_post.reports.terminal import _cells
from xsp_post.reports.tree_rows import tree_rows
from xsp_post.reports.verdict import cause_text
from xsp_post.reports.why import why
from xsp_post.tree.provenance import _path


def made(tmp_path, seed, form):
    run = Engine(seed, form).write(tmp_path)
    return run, analyze([run.trace])


def ordered(analysis):
    return analysis.frame("kernels").sort_values(["start_ns", "kernel_id"], ignore_index=True)


def right_share(run, analysis):
    """Share of the kernels' time that lies in the module that was captured around it, and in its layer."""
    nodes = analysis.frame("nodes").set_index("node_id")
    names, parent = nodes["name"].astype(str).to_dict(), nodes["parent_id"].to_dict()
    kernels, right = ordered(analysis), []
    for node, module in zip(kernels["node_id"], run.modules):
        path = []
        while node in names:
            path.append(names[node])
            node = parent[node]
        right.append(module == "" or (path[0] == module and any(module.startswith(one) for one in path)))
    weight = np.array(run.durations)
    return float(weight[right].sum() / weight.sum())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_time_lies_in_the_modules_that_were_captured(tmp_path, seed, form):
    run, analysis = made(tmp_path, seed, form)
    assert right_share(run, analysis) >= 0.95
    kernels = ordered(analysis)
    assert kernels["source_line"].astype(str).tolist() == run.places
    assert kernels["stream_id"].tolist() == run.streams
    layers = analysis.frame("layers")
    repeated = layers[layers["layer_type"].astype(str).str.contains("*", regex=False)]
    assert set(repeated.groupby("iteration_index").size()) == {run.layer_count}
    balance = analysis.frame("balance").set_index(["question", "attribution"])["kernel_ns"]
    assert balance["layer", "annotation"] >= 0.95 * balance["layer", "total"]


@pytest.mark.parametrize("form", FORMS)
def test_collectives_of_replays_say_their_message_and_group(tmp_path, form):
    run, analysis = made(tmp_path, 4, form)
    found = analysis.frame("collectives").sort_values("start_ns")
    assert found["message_bytes"].tolist() == run.messages
    assert set(found["group_size"]) == {Engine(4, form).ranks}
    assert set(found["group_name"].astype(str)) == {"tp #3"}


@pytest.mark.parametrize("form", ["spread", "lanes"])
def test_edges_of_a_graph_are_read_and_order_the_replay(tmp_path, form):
    run, analysis = made(tmp_path, 5, form)
    edges = load(run.trace).trace.graph_edges
    assert set(zip(edges["from_node_id"], edges["to_node_id"])) == run.edges
    orders = analysis.frame("dependencies")
    orders = orders[orders["kind"].astype(str) == "graph_order"]
    stream = ordered(analysis).drop_duplicates("graph_node_id").set_index("graph_node_id")["stream_id"]
    crossing = {(one, other) for one, other in run.edges if stream[one] != stream[other]}
    assert set(zip(orders["from_id"], orders["to_id"])) == crossing
    name = ordered(analysis).drop_duplicates("graph_node_id").set_index("graph_node_id")["name"].astype(str)
    assert orders["from_name"].astype(str).tolist() == name[orders["from_id"]].tolist()
    assert orders["to_name"].astype(str).tolist() == name[orders["to_id"]].tolist()
    assert _cells(orders["from_id"].astype(float), None)[0] == str(int(orders["from_id"].iloc[0]))
    assert len(orders) % len(crossing) == 0 or len(orders) > len(crossing)
    assert analysis.frame("replays")["error_ratio"].iloc[0] < 0.02


def test_counters_of_the_gpu_are_samples_of_its_metrics(tmp_path):
    _, analysis = made(tmp_path, 6, "spread")
    rows = analysis.frame("gpu_samples")
    whole = rows[rows["scope"].astype(str) == "capture"].iloc[0]
    assert whole["gpu_index"] == DEVICE and whole["covered_ns"] == whole["busy_ns"]
    said = (whole["sm_active_ratio"], whole["dram_ratio"], whole["gpc_clock_hz"], whole["power_w"])
    assert said == pytest.approx([*(value / 100 for value in list(METRICS.values())[:2]), 1.5e9, 512])
    findings = analysis.frame("findings").set_index("code")["example"].to_dict()
    assert "kineto-categories-unknown" not in findings
    assert "Counters" not in findings.get("kineto-rows-left-out", "") and "(%)" not in findings.get(
        "kineto-rows-left-out", ""
    )


def test_a_counter_holds_until_its_next_sample_and_not_over_a_pause(tmp_path):
    recording = Recording()
    for _ in range(3):
        recording.kernel("k", recording.call("cudaLaunchKernel"), 50)
    for at, name, value in ((1000, "SM Active (%)", 10), (1010, "SM Active (%)", 30), (1020, "SM Active (%)", 50),
                            (1200, "SM Active (%)", 70), (1005, "Power (W)", 300), (1015, "Power (W)", 400),
                            (1025, "odd", 1), (1030, "Power (W)", "much")):  # fmt: skip
        event = {"ph": "C", "name": name, "pid": f"GPU {DEVICE} Counters", "ts": at, "args": {"": value}}
        recording.events.append(event)
    trace = load(recording.write(tmp_path / "a.pt.trace.json.gz")).trace
    samples = trace.gpu_samples().set_index("start_ns")
    at = lambda column, us: samples[column].get(us * 1000)  # noqa: E731
    assert [at("sm_active_ratio", us) for us in (1000, 1005, 1010, 1020, 1200)] == [0.1, 0.1, 0.3, 0.5, 0.7]
    assert [at("power_w", us) for us in (1005, 1010, 1020)] == [300, 300, 400]
    assert (samples["end_ns"] - samples.index <= 30_000).all()
    assert np.isnan(at("power_w", 1200))
    left_out = {one.code: one.example for one in trace.findings}["kineto-rows-left-out"]
    assert "1 odd" in left_out and "Power" not in left_out


def test_a_stream_waits_for_the_event_that_torch_names(tmp_path):
    recording = Recording()
    first = recording.call("cudaLaunchKernel")
    recording.kernel("produce", first, 30, stream=7)
    record = recording.call("cudaEventRecord")
    wait = recording.call("cudaStreamWaitEvent")
    recording.add("cuda_sync", "Stream Wait Event", recording.at, recording.at + 1, pid=DEVICE, stream=9,
                  cuda_sync_kind="Stream Wait Event", correlation=wait, device=DEVICE, context=1, wait_on_stream=-1,
                  wait_on_cuda_event_id=4, wait_on_cuda_event_record_corr_id=record)  # fmt: skip
    second = recording.call("cudaLaunchKernel")
    recording.kernel("consume", second, 30, stream=9)
    orders = analyze([recording.write(tmp_path / "a.pt.trace.json.gz")]).frame("dependencies")
    orders = orders[orders["kind"].astype(str) == "event_order"]
    assert orders[["from_id", "to_id"]].to_numpy().tolist() == [[first, second]]


def test_a_copy_says_its_direction_in_its_arguments(tmp_path):
    recording = Recording()
    for kind, sides in (
        ("HtoD", ("pinned", "device")),
        ("DtoH", ("device", "pageable")),
        ("DtoD", ("device", "device_static")),
    ):
        event = recording.kernel("Memcpy", recording.call("cudaMemcpyAsync"), bytes=64)
        event["cat"] = "gpu_memcpy"
        event["args"] |= {"copy kind": kind, "src kind": sides[0], "dst kind": sides[1]}
    trace = load(recording.write(tmp_path / "a.pt.trace.json.gz")).trace
    assert [COPY_DIRECTIONS[one] for one in trace.activities["copy_kind"]] == [
        "host to device", "device to host", "device to device",
    ]  # fmt: skip
    assert trace.strings[trace.activities["name_id"].iloc[0]] == "Memcpy HtoD (Pinned -> Device)"


@pytest.mark.parametrize("change", [
    {"id": 1 << 70}, {"id": "x"}, {"pid": None}, {"tid": [1]}, {"ts": "x"}, {"id": -(1 << 41)}, {"id": (1 << 40) + 1},
])  # fmt: skip
def test_arrows_and_counters_of_odd_values_end_in_no_traceback(tmp_path, change):
    run = Engine(1, "spread").write(tmp_path)
    document = json.loads(gzip.decompress(run.trace.read_bytes()))
    for event in document["traceEvents"][::3]:
        if event["ph"] in "sfC":
            event |= change
    run.trace.write_bytes(gzip.compress(json.dumps(document).encode()))
    trace = load(run.trace).trace
    assert set(zip(trace.graph_edges["from_node_id"], trace.graph_edges["to_node_id"])) <= run.edges
    trace.gpu_samples()


def test_tables_tree_and_exports_name_the_source_lines(tmp_path):
    run, analysis = made(tmp_path, 3, "nested")
    a08 = analysis.frame("a08")
    assert set(a08["source_line"].astype(str)) <= set(run.places) and a08["source_line"].astype(str).ne("").all()
    assert set(analysis.frame("dominant_kernels")["source_line"].astype(str)) <= set(run.places)
    rows = tree_rows(analysis, depth=9)
    rows = set(zip(rows["name"], rows["source_line"]))
    # kernels of one name, each with its line; and a range whose kernels have one
    assert {("nvjet_hsh_64x64", "self_attn.py:11"), ("nvjet_hsh_64x64", "self_attn.py:13")} <= rows
    assert ("lm_head", "model.py:32") in rows
    timeline = build_timeline(analysis)
    details = timeline.slices["detail_id"].to_numpy()
    assert any(timeline.names[one].endswith(" · comm.py:8") for one in np.unique(details[details >= 0]))


def test_nested_scopes_that_spell_their_path_stand_once():
    said = ["layers.1", "layers.1.mlp"]
    assert _path(said) == said
    assert _path(["outer", "attention", "outer"]) == ["outer", "attention", "outer"]


def test_a_pickle_may_name_nodes_without_their_graph(tmp_path):
    """`key_by="source"`: the number of the node alone, as the trace has it beside that of the graph."""
    engine = Engine(7, "pickle")
    run = engine.write(tmp_path, [next(iter(engine.graphs))] * 3)
    (tmp_path / "run.annotations.pkl").write_bytes(
        pickle.dumps({key & 0xFFFFFFFF: said for key, said in engine.texts.items()})
    )
    assert right_share(run, analyze([run.trace])) >= 0.95


def test_annotations_of_another_program_with_the_same_numbers_are_refused(tmp_path):
    """Graphs are numbered from one: numbers alone do not tell programs apart, collectives do."""
    engine = Engine(4, "pickle")
    run = engine.write(tmp_path)
    nodes = sorted(engine.texts)
    other = dict(zip(nodes, [engine.texts[one] for one in [*nodes[1:], nodes[0]]]))  # its collectives lie elsewhere
    (tmp_path / "run.annotations.pkl").write_bytes(pickle.dumps(other))
    analysis = analyze([run.trace])
    refused = analysis.frame("findings").set_index("code")["example"]["side-file-refused"]
    assert re.fullmatch(r"run.annotations.pkl: it names collectives on \d+ kernels, none of which is one here", refused)
    assert "annotation" not in set(ordered(analysis)["attribution"].astype(str))


def test_why_and_compare_name_modules_with_their_source_lines(tmp_path):
    (tmp_path / "slow").mkdir()
    run, base = made(tmp_path, 3, "nested")
    engine = Engine(3, "nested")
    place = next(node.place for graph in engine.graphs.values() for node in graph if node.kernel)
    for graph in engine.graphs.values():
        for node in graph:
            node.duration *= 3 if node.place == place else 1
    other = analyze([engine.write(tmp_path / "slow").trace])
    said = why(base)
    assert said.places.startswith("Most device time: ") and len(said.places) < 300
    assert re.search(r"% \S+ \(\w+\.py:\d+\)", said.places), said.places
    found = compare(base, other)
    kernels = found.frame("compare_kernels")
    assert set(kernels["source_line"]) <= set(run.places)
    slower = kernels[kernels["difference_ratio"] > 1]
    assert set(slower["source_line"]) == {place}
    assert f"({place})" in " ".join(found.frame("compare_summary")["statement"])


def test_waits_name_the_lines_of_their_modules(tmp_path):
    run, base = made(tmp_path, 3, "nested")
    said, lines, spent = why(base), {}, {}
    for module, place, duration in zip(run.modules, run.places, run.durations):
        lines.setdefault(module, set()).add(place)
        key = (re.sub(r"\d+", "*", module), place)
        spent[key] = spent.get(key, 0) + duration
    waits = [row for row in said.causes if row.owner in lines]
    assert waits and all(row.source_line in lines[row.owner] for row in waits)
    assert f"in {waits[0].owner} ({waits[0].source_line})" in cause_text(waits[0])
    assert f"{waits[0].owner} ({waits[0].source_line})" in set(causes(base, None)["owner"])  # on the page
    # of kernels of one name, launched at two lines, each line has its own time
    assert re.findall(r"% (\S+) \((\S+)\)", said.places) == sorted(spent, key=spent.get)[:-3:-1]


def test_advice_on_kernels_names_the_line_with_most_of_them(tmp_path):
    recording = Recording()
    for _ in range(10):
        since = recording.at
        for name, line, duration in (("gemm", 3, 500), ("elementwise_kernel", 4, 80), ("softmax_kernel", 5, 40)):
            event = recording.kernel(name, recording.call("cudaLaunchKernel"), duration)
            event["args"]["stack"] = f"/a/net.py:{line}:forward"
        recording.at = recording.device_at
        recording.around("user_annotation", "step", since)
    said = why(analyze([recording.write(tmp_path / "a.pt.trace.json.gz")]))
    (fuse,) = [one for one in said.advice if "elementwise" in one.what]
    assert "Most of it in step (net.py:4)." in fuse.evidence


def test_a_part_of_a_recording_keeps_the_source_lines(tmp_path):
    run, whole = made(tmp_path, 3, "nested")
    part = analyze([run.trace], Options(iteration=1))
    assert set(part.frame("operations")["source_line"].astype(str)) == set(
        whole.frame("operations")["source_line"].astype(str)
    )
    assert why(part).places
