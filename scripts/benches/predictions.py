"""Predictions against reality: what `what-if` says of a model, and what the model takes when it is really changed.

Each model and its changed variants run in one process under torch.profiler, in turns, so that noise of the machine
meets all of them. The recording is cut into one trace per variant; the changes are predicted from the trace of the
unchanged model alone. CPU only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benches._measure import finish, work_folder

WIDEST_RATIO = 0.10  # of an interval, to each side
LEAST_WITHIN_RATIO = 0.9  # of the pairs
QUIET_RATIO = 0.01  # of an execution; executions that lost the processor for longer are repeated
MOST_ROUNDS = 4  # times the rounds asked for


@dataclass(frozen=True)
class Edit:
    """A change as `what-if` takes it, and how the same is done to a model. ``apply`` gets the model and alters it."""

    change: str
    apply: Callable[[Any], None]
    batch_factor: int = 1


@dataclass(frozen=True)
class Pair:
    """One prediction and what came true."""

    model: str
    change: str
    before_ns: float
    predicted_ns: float
    low_ns: float
    high_ns: float
    real_ns: float

    @property
    def is_within(self) -> bool:
        return self.low_ns <= self.real_ns <= self.high_ns

    @property
    def half_width_ratio(self) -> float:
        return (self.high_ns - self.low_ns) / 2 / self.predicted_ns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15, help="executions of every variant")
    parser.add_argument("--repeat", type=int, default=1, help="recordings of every model")
    parser.add_argument("--check", action="store_true", help="exit code 1 when fewer than 9 of 10 are within")
    parser.add_argument("--folder", type=Path, help="keep the traces here")


def main(options: argparse.Namespace) -> int:
    pairs: list[Pair] = []
    with work_folder(options.folder) as folder:
        for number in range(options.repeat):
            for name, (make, shape, edits) in programs().items():
                traces = record(make, shape, edits, options.rounds, folder / f"{name}{number}")
                pairs += predictions(name, edits, traces)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; a busy machine makes the intervals wider\n")
    print("| model | change | before | predicted | interval | real | |\n|---|---|---:|---:|---:|---:|---|")
    for one in pairs:
        print(
            f"| {one.model} | `{one.change}` | {one.before_ns / 1e6:.2f} ms | {one.predicted_ns / 1e6:.2f} ms "
            f"| ±{one.half_width_ratio:.1%} | {one.real_ns / 1e6:.2f} ms ({one.real_ns / one.predicted_ns - 1:+.1%}) "
            f"| {'within' if one.is_within else 'MISSED'} |"
        )
    within = sum(one.is_within for one in pairs)
    widest = max(one.half_width_ratio for one in pairs)
    print(f"\n{within} of {len(pairs)} within their interval; the widest is ±{widest:.1%}")
    missed = [] if within >= LEAST_WITHIN_RATIO * len(pairs) else [f"{len(pairs) - within} predictions are outside"]
    missed += [] if widest <= WIDEST_RATIO + 1e-9 else [f"an interval of ±{widest:.1%} (bar ±{WIDEST_RATIO:.0%})"]
    return finish(missed, check=options.check)


def programs() -> dict[str, tuple[Callable[[], Any], tuple[int, ...], list[Edit]]]:
    """Name → how the model is made, the shape of its input, and what is changed."""
    from torch import nn

    def mlp():
        layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
        return nn.Sequential(*layers)

    def convolutions():
        block = [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
        return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), *block, nn.Conv2d(64, 128, 3, padding=1), nn.ReLU())

    def transformer():
        return nn.Sequential(*(Block(256) for _ in range(3)))

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
            self.up, self.down, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            x = x + (q @ k.transpose(-1, -2) / 16).softmax(-1) @ v
            return x + self.down(self.act(self.up(x)))

    def common(twice: str, skip: str, pause_ms: int) -> list[Edit]:
        return [
            Edit(f"layer:{twice}:=2x", lambda m: run_more(m, f"{twice}$")),
            Edit(f"layer:{skip}:=0x", lambda m: leave_out(m, f"{skip}$")),
            Edit(f"host:^model=+{pause_ms}ms", lambda m: pause(m, pause_ms)),
            Edit("batch=2x", lambda m: None, batch_factor=2),
        ]

    return {
        "mlp": (mlp, (128, 1024), [
            *common("^[024]", "^[68]", 6),
            Edit("kernel:addmm=2x", lambda m: run_more(m, r"^(0|2|4|6|8|10)$")),
        ]),
        "convolutions": (convolutions, (4, 3, 64, 64), [
            *common("^1", "^1", 10),
            Edit("kernel:conv=2x", lambda m: run_more(m, r"^[014]$")),
        ]),
        "transformer": (transformer, (4, 128, 256), [
            Edit("layer:down:=2x", lambda m: run_more(m, "down$")),
            Edit("layer:(up|qkv):=2x", lambda m: run_more(m, "(up|qkv)$")),
            Edit("layer:qkv:=3x", lambda m: run_more(m, "qkv$", 3)),
            Edit("host:^model=+6ms", lambda m: pause(m, 6)),
            Edit("batch=2x", lambda m: None, batch_factor=2),
        ]),
    }  # fmt: skip


def run_more(model, pattern: str, times: int = 2) -> None:
    """Every call of the modules whose path matches does its work this often."""
    for module in _matching(model, pattern):
        module.forward = _repeated(module.forward, times)


def _repeated(forward, times: int):
    def again(*inputs):
        for _ in range(times - 1):
            forward(*inputs)
        return forward(*inputs)

    return again


def leave_out(model, pattern: str) -> None:
    """The modules give back their input."""
    for module in _matching(model, pattern):
        module.forward = lambda x: x


def pause(model, milliseconds: float) -> None:
    """The host does something else at the beginning of every execution."""

    def wait(module, inputs):
        until = time.perf_counter_ns() + milliseconds * 1_000_000
        while time.perf_counter_ns() < until:
            pass

    model.register_forward_pre_hook(wait)


def _matching(model, pattern: str):
    import re

    found = [module for path, module in model.named_modules() if path and re.search(pattern, path)]
    assert found, pattern
    return found


def record(make, shape: tuple[int, ...], edits: list[Edit], rounds: int, folder: Path) -> list[Path]:
    """Traces of the model as it is and of each variant, all from one recording in which they take turns."""
    import torch

    from xsp_post.workload.ranges import AnnotationSink, LayerRanges

    torch.set_num_threads(1)
    _keep_memory()
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    variants = []
    for edit in (Edit("", lambda m: None), *edits):
        model = make().eval()
        edit.apply(model)
        inputs = torch.randn(shape[0] * edit.batch_factor, *shape[1:])
        variants.append((model, inputs, LayerRanges(model, AnnotationSink())))
    order, turns = random.Random(1), []  # of each turn: the variant, and the share of its time without the processor

    def go(at: int, text: str) -> float:
        """Run one execution; the share of its time in which something else had the processor."""
        model, inputs, layers = variants[at]
        layers.begin_iteration()
        began, own = time.perf_counter_ns(), time.thread_time_ns()
        with torch.profiler.record_function(text):
            model(inputs)
        wall, own = time.perf_counter_ns() - began, time.thread_time_ns() - own
        return 1 - own / wall

    gc.collect()
    gc.disable()
    with torch.inference_mode():
        for at in range(len(variants)):
            go(at, "warm-up")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for at in range(len(variants)):
                go(at, "first")  # the profiler's own first use
            for _ in range(MOST_ROUNDS * rounds):
                for at in order.sample(range(len(variants)), len(variants)):
                    turns.append((at, go(at, f"xsp/model:forward#{len(turns)}")))
                quiet = [at for at, lost in turns if lost < QUIET_RATIO]
                if min(map(quiet.count, range(len(variants)))) >= rounds:
                    break
    gc.enable()
    whole = folder / "whole.json"
    profile.export_chrome_trace(str(whole))
    chosen = {}
    for at in range(len(variants)):  # those that were disturbed least
        mine = sorted((lost, number) for number, (one, lost) in enumerate(turns) if one == at)
        chosen.update({f"xsp/model:forward#{number}": at for _, number in mine[:rounds]})
    return split(whole, chosen, len(variants))


def _keep_memory() -> None:
    """glibc gives no memory back: else page faults come and go with the sizes of earlier tensors."""
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        most_mapped, trim_threshold = -4, -1
        allocator.mallopt(most_mapped, 0)
        allocator.mallopt(trim_threshold, 2**31 - 1)


def split(whole: Path, variant_of: dict[str, int], count: int) -> list[Path]:
    """One trace per variant: the events inside its executions. ``variant_of``: by the text of an execution."""
    events = json.loads(whole.read_text(encoding="utf-8"))["traceEvents"]
    spans = [one for one in events if one.get("ph") == "X"]
    windows = sorted(
        (one["ts"], one["ts"] + one["dur"], variant_of[one["name"]]) for one in spans if one["name"] in variant_of
    )
    mine: list[list[dict]] = [[] for _ in range(count)]
    at = 0
    for event in sorted(spans, key=lambda one: one["ts"]):
        while at < len(windows) and event["ts"] > windows[at][1]:
            at += 1
        if at < len(windows) and windows[at][0] <= event["ts"]:
            mine[windows[at][2]].append(event)
    paths = []
    for number, own in enumerate(mine):
        paths.append(whole.with_name(f"variant{number}.json"))
        paths[-1].write_text(json.dumps({"schemaVersion": 1, "traceEvents": own}), encoding="utf-8")
    return paths


def predictions(name: str, edits: list[Edit], traces: list[Path]) -> list[Pair]:
    """The changes predicted from the first trace, and the median latencies of the others."""
    from xsp_post.pipeline import analyze
    from xsp_post.replay.what_if import what_if

    before, pairs = analyze(traces[:1]), []
    for edit, trace in zip(edits, traces[1:]):
        said = what_if(before, [edit.change]).latency
        real = analyze([trace]).frame("iterations", ["latency_ns"])["latency_ns"].median()
        pairs.append(Pair(name, edit.change, said.measured_ns, said.predicted_ns, said.low_ns, said.high_ns, real))
    return pairs
