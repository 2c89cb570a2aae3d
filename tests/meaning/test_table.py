"""Every cell of MEANING.md's table that is a number or a word, for every capture that is at hand."""

from __future__ import annotations

import pytest
from meaning_table import DEVICE, EXECUTIONS, LAYERS, LIMIT, ROWS, Row
from recorded import analyzed, tree_of
from structure_score import layers_of_executions

from xsp_post.model.options import Options
from xsp_post.tables.analyses.limits import find_limit

pytestmark = pytest.mark.guard  # a drawn part let wrong cells through


def cells(cell: str) -> list:
    """The rows that state this cell; those that are known to be read wrongly must be."""
    return [
        pytest.param(
            row,
            id=row.name.split("/")[1].split(".pt.")[0].removesuffix(".sqlite") + "+twin" * bool(row.twin),
            marks=[pytest.mark.xfail(strict=True, reason=row.wrong[cell])] if cell in row.wrong else [],
        )
        for row in ROWS
        if row.states(cell)
    ]


def results(captures, row: Row):
    """Its tables, with the ranges of its twin where it has one."""
    return analyzed(captures / row.name, Options(layers_from=captures / row.twin) if row.twin else None)


@pytest.mark.parametrize("row", cells(EXECUTIONS))
def test_model_executions(captures, row):
    executions = results(captures, row).frame("iterations")
    assert len(executions) == row.executions
    counts = executions["kernel_count"].tolist()
    assert not row.kernels or counts == list(row.kernels)


@pytest.mark.parametrize("row", cells(LAYERS))
def test_layers_of_each_execution(captures, row):
    layers = results(captures, row).frame("layers")
    if not row.layers:
        assert not len(layers)
        return
    counts = [layers_of_executions(layers, pattern) for pattern, _ in row.layers]
    assert any(len(count) and set(count) == {number} for count, (_, number) in zip(counts, row.layers)), counts


@pytest.mark.parametrize("row", cells(DEVICE))
def test_device_time(captures, row):
    found = results(captures, row)
    devices = found.frame("devices").drop_duplicates("gpu_index")
    per_process = found.frame("devices").drop_duplicates(["process_id", "device_id"])
    for part, milliseconds in row.device_ms.items():
        frame, column = (devices, "busy_ns") if part == "busy" else (per_process, f"{part}_ns")
        assert frame[column].sum() / 1e6 == pytest.approx(milliseconds, rel=0.01, abs=0.05), part
    if row.busy_ratio is not None:
        limit = find_limit(found)
        assert limit.busy_ns / limit.window_ns == pytest.approx(row.busy_ratio, abs=0.006)


@pytest.mark.parametrize("row", cells(LIMIT))
def test_what_limits_it(captures, row):
    assert find_limit(results(captures, row)).kind in row.limits


@pytest.mark.parametrize(("name", "aligned"), [("vllm_decode_cuda_graph", 421), ("vllm_piecewise", 361)])
def test_replayed_kernels_meet_those_of_the_capture(captures, name, aligned):
    row = next(row for row in ROWS if row.name.startswith(f"kineto/{name}.") and row.twin)
    findings = results(captures, row).frame("findings").set_index("code")["count"]
    assert findings.get("twin-aligned", 0) == aligned


@pytest.mark.parametrize("name", [
    pytest.param("sam_host_loop", marks=pytest.mark.xfail(strict=True, reason="no execution is found")),
    "sam_vectorised",
])  # fmt: skip
def test_the_users_root_range_is_the_execution(captures, name):
    tree = tree_of(captures / f"kineto/{name}.pt.trace.json.gz")
    nodes = tree.iterations["node_id"].to_numpy()
    texts = tree.names.folded_names[tree.nodes["folded_id"].to_numpy()[nodes]].tolist()
    assert [text.startswith("generate_masks") for text in texts] == [True]


@pytest.mark.parametrize("name", ["compiled_rtx3060", "compiled_graphs_rtx3060"])
def test_a_compiled_function_is_forward_whole_and_its_gradient_backward(captures, name):
    tree = tree_of(captures / f"kineto/{name}.pt.trace.json.gz")
    folded = tree.names.folded_names[tree.nodes["folded_id"].to_numpy()]
    assert tree.nodes["is_backward"].to_numpy()[folded == "CompiledFunctionBackward"].all()
    assert not tree.nodes["is_backward"].to_numpy()[folded == "CompiledFunction"].any()


def test_idle_without_a_recorded_reason_is_left_out(captures):
    row = next(row for row in ROWS if row.name.startswith("kineto/sglang_decode."))
    assert find_limit(results(captures, row)).unknown_ns / 1e6 == pytest.approx(463, abs=1)


@pytest.mark.parametrize(("base", "other", "gain"), [
    ("dataloader_0_workers", "dataloader_4_workers", (211.3 - 173.3) / 211.3),
    pytest.param("sam_host_loop", "sam_vectorised", 0.459,
                 marks=pytest.mark.xfail(strict=True, reason="inferred periods inside the range win")),
])  # fmt: skip
def test_what_a_real_change_gained(captures, base, other, gain):
    """Median latency of an execution, before and after."""
    latency = [
        results(captures, next(row for row in ROWS if f"/{name}." in row.name))
        .frame("iterations")["latency_ns"]
        .median()
        for name in (base, other)
    ]
    assert 1 - latency[1] / latency[0] == pytest.approx(gain, abs=0.01)
