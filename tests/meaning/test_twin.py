"""`--layers-from`: ranges of a twin on captures whose truth is known (MEANING.md)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from builders import ExportBuilder
from recorded import analyzed

from xsp_post.base.errors import UsageError
from xsp_post.model.options import Options
from xsp_post.pipeline import analyze


def owners(analysis):
    """The path of the owner of each kernel, in launch order, without what stands above the ranges."""
    nodes = analysis.frame("nodes").set_index("node_id")
    names, parent = nodes["name"].astype(str).to_dict(), nodes["parent_id"].to_dict()
    paths = {}
    for node in nodes.index:
        chain, current = [], node
        while current >= 0 and current in names:
            chain.append(names[current])
            current = parent[current]
        paths[node] = [name for name in chain[::-1] if not name.startswith("[")]
    kernels = analysis.frame("kernels").sort_values(["launch_start_ns", "start_ns"])
    return [paths[node] for node in kernels["node_id"]], kernels


def test_the_natural_pair_gets_every_kernel_right(captures):
    folder = captures / "nsys"
    known = analyzed(folder / "transformer_2.7b_a100_nvtx.sqlite")
    carried = analyze(
        [folder / "transformer_2.7b_a100_no_nvtx.sqlite"],
        Options(layers_from=folder / "transformer_2.7b_a100_nvtx.sqlite"),
    )
    true, _ = owners(known)
    found, kernels = owners(carried)
    assert len(found) == 7_328
    assert found == true
    assert set(kernels["layer_attribution"].astype(str)) <= {"twin", "none"}


def test_a_replayed_graph_gets_the_modules_of_its_capture(captures):
    folder = captures / "kineto"
    options = Options(layers_from=folder / "vllm_decode_cuda_graph.capture.pt.trace.json.gz")
    analysis = analyze([folder / "vllm_decode_cuda_graph.pt.trace.json.gz"], options)
    found, _ = owners(analysis)
    assert len(found) == 425
    in_model = [path for path in found if "nn.Module: GptOssForCausalLM_0" in path]
    assert len(in_model) == 421
    mixture = [path for path in in_model if "vllm::moe_forward" in path]
    assert len(mixture) == 24 * 7
    aligned = analysis.frame("findings").set_index("code")["count"]
    assert aligned["twin-aligned"] == 421
    assert "twin-unaligned" not in aligned


@pytest.mark.parametrize("name", ["vllm_decode_cuda_graph", "vllm_piecewise", "sglang_decode"])
def test_the_device_time_lies_in_the_modules_that_the_capture_of_the_graphs_shows(captures, name):
    replay = captures / "kineto" / f"{name}.pt.trace.json.gz"
    twin = captures / "kineto" / f"{name}.capture.pt.trace.json.gz"
    found, kernels = owners(analyze([replay], Options(layers_from=twin)))
    recorded = set(analyzed(twin).frame("nodes")["name"].astype(str))
    modules = [[one for one in path if one.startswith("nn.Module: ")] for path in found]
    inside = np.array([bool(path) and set(path) <= recorded for path in modules])
    time = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    assert time[inside].sum() >= 0.95 * time.sum()


def program(names, with_ranges, start=0):
    """Three passes of ``names``; two layers of each half of them where ranges are wanted."""
    builder, at = ExportBuilder().process(100), start
    for step in range(3):
        begin = at
        for number, name in enumerate(names):
            builder.kernel(name, launch=(at, at + 5), run=(at + 10, at + 90))
            at += 100
            if with_ranges and (number + 1) % 10 == 0:
                builder.range(f"layer_{number // 10}_forward", at - 1_000, at - 1)
        if with_ranges:
            builder.range(f"step {step}", begin, at)
        at += 1_000
    return builder


def test_what_the_twin_does_not_have_stays_where_it_is_and_is_counted(tmp_path):
    names = [f"kernel_{k}" for k in range(20)]
    twin = program(names, True).write(tmp_path / "twin.sqlite")
    changed = names[:10] + ["other"] + names[10:]
    replay = program(changed, False).write(tmp_path / "replay.sqlite")
    analysis = analyze([replay], Options(layers_from=twin))
    found, kernels = owners(analysis)
    is_other = (kernels["name"].astype(str) == "other").to_numpy()
    assert [path for path, other in zip(found, is_other) if other] == [[]] * 3
    expected = [["step *", f"layer_{number // 10}_forward"] for _ in range(3) for number in range(20)]
    names_found = [[*path[:1], *path[1:]] for path, other in zip(found, is_other) if not other]
    assert [path[-1] for path in names_found] == [path[-1] for path in expected]
    counts = analysis.frame("findings").set_index("code")["count"]
    assert counts["twin-unaligned"] == 3
    assert counts["twin-aligned"] == 60


def test_three_passes_of_the_twin_are_three_executions_of_the_replay(tmp_path):
    names = [f"kernel_{k}" for k in range(20)]
    twin = program(names, True).write(tmp_path / "twin.sqlite")
    replay = program(names, False, start=500).write(tmp_path / "replay.sqlite")
    analysis = analyze([replay], Options(layers_from=twin))
    assert len(analysis.frame("iterations")) == 3
    layers = analysis.frame("layers")
    assert np.unique(layers["kernel_count"].to_numpy()).tolist() == [10]
    assert len(layers) == 6


def test_a_counter_report_is_not_a_twin(captures, tmp_path):
    pytest.importorskip("ncu_report")
    names = [f"kernel_{k}" for k in range(20)]
    replay = program(names, False).write(tmp_path / "replay.sqlite")
    report = next((captures / "ncu").glob("*.ncu-rep"))
    with pytest.raises(UsageError) as caught:
        analyze([replay], dataclasses.replace(Options(), layers_from=report))
    assert caught.value.code == "twin-without-launches"
