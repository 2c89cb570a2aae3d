"""`xsp_post.ranges` records whatever listens: torch.profiler around, inside or beside the block; else it says so."""

from __future__ import annotations

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile, schedule  # noqa: E402

import xsp_post  # noqa: E402

CPU = [ProfilerActivity.CPU]


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def recorded(profiler):
    return sorted(event.name for event in profiler.events() if event.name.startswith("xsp/"))


@pytest.fixture(autouse=True)
def no_tool(monkeypatch):
    for name in ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("is_profiler_outside", [True, False])
def test_the_profiler_may_be_outside_or_inside(model, is_profiler_outside):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        if is_profiler_outside:
            with profile(activities=CPU) as profiler, xsp_post.ranges(model):
                model(torch.zeros(2, 4))
        else:
            with xsp_post.ranges(model), profile(activities=CPU) as profiler:
                model(torch.zeros(2, 4))
    assert recorded(profiler) == ["xsp/0:Linear#0", "xsp/1:ReLU#0", "xsp/model:forward#0"]


def test_a_schedule_records_its_active_steps_only(model):
    seen = []
    plan = schedule(wait=2, warmup=0, active=1, repeat=1)
    with (
        xsp_post.ranges(model),
        profile(activities=CPU, schedule=plan, on_trace_ready=lambda p: seen.extend(recorded(p))) as p,
    ):
        for _ in range(4):
            model(torch.zeros(2, 4))
            p.step()
    assert [name for name in seen if "model" in name] == ["xsp/model:forward#2"]


def test_a_profiler_that_ends_within_a_call_leaves_the_ranges_paired(model):
    with xsp_post.ranges(model):
        profiler = profile(activities=CPU)
        profiler.start()
        handle = model[1].register_forward_hook(lambda *_: profiler.stop())
        model(torch.zeros(2, 4))
        handle.remove()
        with profile(activities=CPU) as second:
            model(torch.zeros(2, 4))
    assert recorded(second) == ["xsp/0:Linear#0", "xsp/1:ReLU#0", "xsp/model:forward#1"]


def test_ranges_that_come_within_a_call_leave_it_alone(model):
    with profile(activities=CPU) as profiler, contextlib.ExitStack() as stack:
        model.register_forward_pre_hook(lambda *_: stack.enter_context(xsp_post.ranges(model[1])))
        model[1].register_forward_pre_hook(lambda *_: stack.enter_context(xsp_post.ranges(model[1])))
        assert model(torch.ones(2, 4)).shape == (2, 4)
    assert len(recorded(profiler)) == 2  # of the first one: the model's range and the layer's


def test_it_says_when_nothing_listened_or_nothing_was_called(model):
    with pytest.warns(UserWarning, match="nothing listened"), xsp_post.ranges(model):
        model(torch.zeros(2, 4))
    with pytest.warns(UserWarning, match="was not called"), xsp_post.ranges(model):
        pass


def test_under_nsys_it_is_silent(model, monkeypatch):
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/tool/lib.so")
    pytest.importorskip("nvtx")
    from xsp_post.workload.ranges import ListeningSink

    sink = ListeningSink()
    sink.push(sink.prepare("x", "layer", 0))
    sink.pop(None)
    assert sink.complaint() == ""


@pytest.mark.parametrize("is_compiled_before", [True, False])
def test_a_compiled_model_stays_one_graph(is_compiled_before):
    """Hooks that the compiler read would break the graph at every module, and be another program."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)))
    graphs: list[int] = []

    def backend(graph, _):
        graphs.append(sum(node.op == "call_function" for node in graph.graph.nodes))
        return graph.forward

    def compiled():
        torch.compiler.reset()
        return torch.compile(model, backend=backend)

    called = compiled() if is_compiled_before else None
    with profile(activities=CPU) as profiler, xsp_post.ranges(model):
        called = called or compiled()
        for _ in range(2):
            called(torch.ones(2, 4))
        model(torch.ones(2, 4))
    assert graphs == [6]
    assert "xsp/model:forward#0" in recorded(profiler)  # of the call beside it
