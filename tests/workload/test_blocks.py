"""Levels that share a process: their turns, what each records, and that none disturbs another."""

from __future__ import annotations

import gzip
import json
import sys
import time
import types
from collections import Counter
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra run)")

from xsp_post.model.capture import DONE, Capture, Workload  # noqa: E402
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL  # noqa: E402
from xsp_post.model.run_folder import DISTURBED_RATIO, block_latencies_ns, disturbance  # noqa: E402
from xsp_post.names import range_text  # noqa: E402
from xsp_post.workload import models, ranges, recorder  # noqa: E402
from xsp_post.workload.measure import Request, fitted_count, hook_effect, measure, rounds_of  # noqa: E402  # noqa: E402
from xsp_post.workload.recorder import Recording  # noqa: E402

SMALL_COUNT = 40
FACTORY = f"""
import torch
SMALL_COUNT = {SMALL_COUNT}
def net():
    model = torch.nn.Sequential(*[torch.nn.Linear(384, 384) for _ in range(4)])
    return model, torch.ones(64, 384)
def small():
    return torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(SMALL_COUNT)]), torch.ones(1, 8)
def encoder(batch_size):
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.rand(batch_size, 4, 16)
"""
SPANS = {"spans": "spans.json"}
PROFILERS = {RUN_MODEL: "none", RUN_LAYER: "none", RUN_KERNEL: "torch"}


class CallClock:
    """A clock that goes on by one with each call of Python or C in its thread."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        sys.setprofile(self.seen)  # a profiler that ended took it away
        return self.count

    def seen(self, frame, event, argument) -> None:
        self.count += event in ("call", "c_call")


@pytest.fixture(scope="module")
def factory(tmp_path_factory):
    path = tmp_path_factory.mktemp("blocks") / "net.py"
    path.write_text(FACTORY)
    return path


def measured(workload, folder, levels, repeat=1) -> dict[str, Capture]:
    """One process with these levels, in this one."""
    recordings = []
    for number, level in enumerate(levels):
        output = folder / f"{repeat}-{len(levels)}-{number}"
        output.mkdir()
        recordings.append(Recording(level, PROFILERS[level], output))
    measure(Request(workload, 1, tuple(recordings), repeat))
    files = {"spans": "spans.json", "facts": "facts.json"}
    return {one.level: Capture(one.level, 1, repeat, "clock", DONE, files=files, process="p", directory=one.output)
            for one in recordings}  # fmt: skip


def test_every_round_holds_a_block_of_each_level_in_random_order():
    rounds = rounds_of(3, 12, 0.1, "0-0")
    assert len(rounds) == 5 and all({block.level_index for block in one} == {0, 1, 2} for one in rounds)
    assert [{block.measured_count for block in one} for one in rounds] == [{3}, {3}, {2}, {2}, {2}]
    assert {block.settling_count for one in rounds for block in one} == {1}, "a block always settles"
    assert [rounds_of(1, 1, second, "")[0][0].settling_count for second in (0.002, 1e-6)] == [3, 10], "for 5 ms"
    orders = {tuple(block.level_index for block in rounds_of(3, 1, 0.1, f"0-{repeat}")[0]) for repeat in range(40)}
    assert len(orders) == 6 and rounds_of(3, 12, 0.1, "0-0") == rounds


def test_a_fast_model_has_more_iterations_and_a_slow_one_fewer_rounds(factory, tmp_path, monkeypatch):
    assert [fitted_count(10, second) for second in (1e-5, 0.01, 0.1, 5.0)] == [50, 25, 10, 10]
    monkeypatch.setattr("xsp_post.workload.measure.PROCESS_S", 0.0)
    monkeypatch.setattr("xsp_post.workload.measure.fitted_count", lambda count, second: 2 * count)
    workload = Workload(f"{factory}:net", iteration_count=5, is_fitted=True, warmup_count=0, thread_count=1)
    made = measured(workload, tmp_path, [RUN_MODEL, RUN_LAYER])
    assert [len(block) for block in block_latencies_ns(made[RUN_MODEL])] == [2, 2]
    order = json.loads((made[RUN_MODEL].directory / "facts.json").read_text())["block_levels"]
    assert len(order) == 4 and set(order) == {RUN_MODEL, RUN_LAYER}


def test_levels_of_one_process_run_the_same_calls_where_nothing_is_profiled(factory, tmp_path, monkeypatch):
    """Level M of a shared process is level M of its own process, and M/L/G leaves no trace in the blocks after it.
    The clock counts the calls of Python and of C, so that no busy machine decides."""
    monkeypatch.setattr(ranges, "time", types.SimpleNamespace(perf_counter_ns=CallClock()))
    workload = Workload(f"{factory}:small", iteration_count=10, warmup_count=2, thread_count=1)
    try:
        alone = block_latencies_ns(measured(workload, tmp_path, [RUN_MODEL])[RUN_MODEL])[0]
        made = measured(workload, tmp_path, [RUN_MODEL, RUN_LAYER, RUN_KERNEL])
    finally:
        sys.setprofile(None)
    order = json.loads((made[RUN_MODEL].directory / "facts.json").read_text())["block_levels"]
    assert {above for above, level in pairwise(order) if level == RUN_MODEL} >= {RUN_KERNEL}
    assert len(set(alone)) == 1 and alone[0] > 2 * SMALL_COUNT, "the calls of each layer count"
    assert block_latencies_ns(made[RUN_MODEL]) == [[alone[0]] * 2] * 5
    assert min(block_latencies_ns(made[RUN_LAYER])[0]) > alone[0] + SMALL_COUNT, "hooks are calls"


def test_levels_of_one_process_are_equally_fast_where_nothing_is_profiled(factory, tmp_path, monkeypatch):
    """As above, in the thread's CPU time: the best iteration of as many processes as this shared machine needs. The
    layers are so small that a profiler which is still on costs each iteration far more than the bound."""
    monkeypatch.setattr(ranges, "time", types.SimpleNamespace(perf_counter_ns=time.thread_time_ns))
    workload = Workload(f"{factory}:small", iteration_count=30, warmup_count=2, thread_count=1)
    values: dict[str, list[int]] = {"alone": [], RUN_LAYER: [], RUN_KERNEL: [], RUN_MODEL: [], "": []}
    for repeat in range(1, 21):
        values["alone"] += block_latencies_ns(measured(workload, tmp_path, [RUN_MODEL], repeat)[RUN_MODEL])[0]
        made = measured(workload, tmp_path, [RUN_MODEL, RUN_LAYER, RUN_KERNEL], repeat)[RUN_MODEL]
        turns = block_latencies_ns(made)
        assert [len(one) for one in turns] == [6] * 5 and len(values["alone"]) == 30 * repeat
        order = json.loads((made.directory / "facts.json").read_text())["block_levels"]
        for above, block in zip([above for above, level in pairwise(["", *order]) if level == RUN_MODEL], turns):
            values[above] += block
        shared = min(values[RUN_LAYER] + values[RUN_KERNEL]) / min(values["alone"])
        after = min(values[RUN_KERNEL]) / min(values[RUN_LAYER])
        if repeat >= 2 and abs(shared - 1) <= 0.1 and abs(after - 1) <= 0.1:
            return
    pytest.fail(f"level M is {shared:.3f} times as slow in a shared process, {after:.3f} times after M/L/G")


def test_each_level_of_a_process_leaves_its_own_recording(factory, tmp_path):
    workload = Workload(f"{factory}:net", iteration_count=7, warmup_count=2, thread_count=1)
    made = measured(workload, tmp_path, [RUN_MODEL, RUN_LAYER, RUN_KERNEL])
    for level in (RUN_MODEL, RUN_LAYER):
        values = json.loads((made[level].directory / "spans.json").read_text())
        texts = [range_text.parse(values["texts"][i]) for i in values["text_indexes"]]
        kinds = Counter(text.kind for text in texts)
        settling = kinds[range_text.WARMUP]
        assert kinds[range_text.MODEL] == 7 and settling >= 5 and settling % 5 == 0, "some settle in each block"
        assert kinds[range_text.LAYER] == (0 if level == RUN_MODEL else 4 * (7 + settling))
        assert len(set(values["texts"])) == len(values["texts"])
    folder = made[RUN_KERNEL].directory
    trace = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    own = [event for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
    assert Counter(event["name"].split("#")[0] for event in own)["xsp/model:forward"] == 7
    assert Counter(event["name"].split("#")[0] for event in own)["xsp/warmup:forward"] == 5
    start_us = [event["ts"] for event in own if event["name"].startswith("xsp/model:")]
    assert start_us == sorted(start_us) and {path.name for path in folder.iterdir()} == {"trace.json.gz", "facts.json"}
    assert trace["host_name"] == "" and str(tmp_path) not in json.dumps(trace)
    ids = [event["args"]["External id"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    assert len(set(ids)) == len(ids)


def test_traces_with_other_base_times_are_put_on_one_clock(tmp_path):
    for number, base in enumerate((5_000_000_000, 6_000_000_000)):
        trace = {"baseTimeNanoseconds": base, "host_name": "secret", "traceEvents": [{"name": "a", "ts": 1.5}, {}]}
        (tmp_path / f"{number}.json").write_text(json.dumps(trace))
    recorder.write_trace([tmp_path / "0.json", tmp_path / "1.json"], tmp_path / "trace.json.gz")
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert trace["traceEvents"] == [{"name": "a", "ts": 1.5}, {}, {"name": "a", "ts": 1_000_001.5}, {}]


@pytest.mark.parametrize(("slower", "expected"), [(1.0, 1.0), (1.25, 1.25)])
def test_a_level_that_slows_the_next_block_is_noticed(tmp_path, slower, expected):
    order = [RUN_LAYER, RUN_MODEL, RUN_KERNEL, RUN_MODEL]
    made = []
    for process in range(4):
        folder = tmp_path / str(process)
        folder.mkdir()
        latencies = [1000 + process, 1010, (1000 + process) * slower, 1010 * slower]
        texts = ["warmup:forward#0", "model:forward#0", "model:forward#1", "warmup:forward#1", "model:forward#2",
                 "model:forward#3"]  # fmt: skip
        ends = [9, *latencies[:2], 9, *latencies[2:]]
        spans = {"texts": texts, "text_indexes": list(range(6)), "start_ns": [0] * 6, "end_ns": ends}
        (folder / "spans.json").write_text(json.dumps(spans))
        (folder / "facts.json").write_text(json.dumps({"block_levels": order}))
        files = {"spans": "spans.json", "facts": "facts.json"}
        made.append(Capture(RUN_MODEL, 1, process, "clock", files=files, process=str(process), directory=folder))
    assert disturbance(made) == pytest.approx(expected, rel=1e-6)
    assert expected == 1.0 or expected > DISTURBED_RATIO
    assert disturbance(made[:2]) == 1.0


def test_an_encoder_layer_leaves_its_fused_path_under_hooks(factory):
    workload = Workload(f"{factory}:encoder", thread_count=1)
    built = models.build(workload, 2)
    with torch.inference_mode():
        effect = hook_effect(built, workload)
    assert effect["kind"] == "operators"
    assert effect["without"]["aten::_transformer_encoder_layer_fwd"] == 2
    assert effect["with"]["aten::_transformer_encoder_layer_fwd"] == 0 and effect["with"]["aten::linear"] > 0
    assert not any(module._forward_hooks for module in built.model.modules())


def test_a_run_of_an_encoder_calls_no_difference_to_level_m_overhead(factory, tmp_path):
    """Two processes, as `run` leaves them, up to the table."""
    from xsp_post import pipeline

    workload = Workload(f"{factory}:encoder", iteration_count=4, warmup_count=1, thread_count=1)
    for repeat in range(2):
        for number, made in enumerate(measured(workload, tmp_path, PROFILERS, repeat).values()):
            made.process, made.settings = f"process {repeat}", {"model": "encoder", "device": "cpu"}
            made.files = {"facts": "facts.json", **({"trace": "trace.json.gz"} if number == 2 else SPANS)}
            made.save()
    sources = [path for path in sorted(tmp_path.glob("*/*")) if path.name in ("spans.json", "trace.json.gz")]
    analysis = pipeline.analyze(sources)
    table = analysis.frame("overhead")
    model = table[table["event_kind"] == "model"].set_index("level")
    assert "with layer ranges other code runs" in model.loc[RUN_LAYER, "verdict"]
    assert model.loc[[RUN_LAYER, RUN_KERNEL], "total_overhead_ns"].isna().all()
    assert model["latency_ns"].notna().all() and model.loc[RUN_KERNEL, "interval_over"] == "pairs"
    assert model.loc[RUN_KERNEL, "overhead_ns"] == model.loc[RUN_KERNEL, "overhead_ns"]
    [found] = [one for one in analysis.findings if one.code == "hooks-change-program"]
    assert "2 × aten::_transformer_encoder_layer_fwd" in found.example


def test_hooks_on_plain_layers_change_nothing(factory):
    workload = Workload(f"{factory}:net", thread_count=1)
    built = models.build(workload, 1)
    with torch.inference_mode():
        effect = hook_effect(built, workload)
    assert effect["without"] == effect["with"] == {}
