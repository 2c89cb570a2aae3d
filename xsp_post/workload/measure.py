"""``run`` → capture: warm up, iterate, and write the measurements of the level.

Level M: two clock readings around each synchronised iteration, nothing else. M/L: the same, and two readings
around each layer. M/L/G: ranges for the profiler that watches (torch.profiler here, nsys or ncu outside).
Every level runs the same seed, warm-up and iterations, so that only the profiling differs.
"""

from __future__ import annotations

import gc
import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from xsp_post.base.errors import UsageError
from xsp_post.model.capture import Workload
from xsp_post.model.levels import RUN_LAYER, RUN_MODEL
from xsp_post.names import range_text
from xsp_post.workload.environment import environment
from xsp_post.workload.facts import functional_facts, layer_facts
from xsp_post.workload.models import Built, build
from xsp_post.workload.ranges import AnnotationSink, ClockSink, LayerRanges, NvtxSink, Sink

SPANS_VERSION = 1  # of spans.json: 1 first version (xsp-post 0.1.0)
FACTS_VERSION = 1  # of facts.json: 1 first version (xsp-post 0.1.0)


@dataclass(frozen=True)
class Request:
    """One capture, as the child is asked for it."""

    workload: Workload
    level: str
    batch_size: int
    profiler: str  # none, torch, cuda (bracketed by cudaProfilerStart/Stop for nsys and ncu), nvtx (no bracket)
    output: Path


def measure(request: Request) -> None:
    """Run one capture and write ``spans.json`` or ``trace.json.gz``, and ``facts.json``, into ``output``."""
    workload = request.workload
    if workload.thread_count:
        torch.set_num_threads(workload.thread_count)
    if workload.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "torch sees no CUDA device here.",
            code="device-missing",
            hint="Use --device cpu, or see what is missing: xsp-post doctor.",
        )
    torch.backends.cudnn.benchmark = False  # heuristic choice, as XSP's runs: no timing race picks kernels
    built = build(workload, request.batch_size)
    sink = _sink(request)
    with torch.inference_mode(workload.mode == "inference"):
        _iterate(request, built, sink)
    if isinstance(sink, ClockSink):
        _write_spans(request.output / "spans.json", sink)
    _write_facts(request, built)


def _sink(request: Request) -> Sink:
    if request.profiler == "none":
        return ClockSink()
    return AnnotationSink() if request.profiler == "torch" else NvtxSink()


def _iterate(request: Request, built: Built, sink: Sink) -> None:
    """Warm-up and measured iterations; the last warm-up lies within the recording, where one was asked for,
    so that the profiler's own first-use cost falls into it."""
    workload = request.workload
    synchronize = _synchronizer(workload.device)
    layers = _layers(request, built, sink, synchronize)
    prepared = _prepare(workload, built, sink, request.batch_size)
    gc.collect()
    recorded_warmups = 1 if workload.warmup_count and request.profiler != "none" else 0

    def once(is_warmup: bool, index: int) -> None:
        for phase in built.phases:
            if layers is not None:
                layers.begin_iteration()
            synchronize()
            sink.push(prepared[is_warmup, phase.name, index])
            phase.run()
            synchronize()
            sink.pop(None)

    def rehearse(first: int, last: int) -> None:
        for index in range(first, last):
            once(True, index)

    split = workload.warmup_count - recorded_warmups
    # outside of a recording an annotation has no reader but the same cost: the path stays the same
    rehearse(0, split)
    with _recording(request):
        rehearse(split, workload.warmup_count)
        for index in range(workload.iteration_count):
            once(False, index)
    if layers is not None:
        layers.remove()


def _prepare(workload: Workload, built: Built, sink: Sink, batch_size: int) -> dict[tuple[bool, str, int], Any]:
    """The model ranges' texts, made before anything is timed."""
    prepared = {}
    for is_warmup, count in ((True, workload.warmup_count), (False, workload.iteration_count)):
        for phase in built.phases:
            for index in range(count):
                text = range_text.format_model(phase.name, index, is_warmup=is_warmup)
                prepared[is_warmup, phase.name, index] = sink.prepare(text, range_text.MODEL, batch_size)
    return prepared


def _layers(request: Request, built: Built, sink: Sink, synchronize: Callable[[], None]) -> LayerRanges | None:
    workload = request.workload
    if request.level == RUN_MODEL or workload.is_compiled:
        return None
    is_serialized = request.level == RUN_LAYER and workload.is_serialized and workload.device == "cuda"
    return LayerRanges(
        built.model,
        sink,
        depth=workload.layer_depth,
        kinds=workload.layer_kinds,
        synchronize=synchronize if is_serialized else None,
    )


def _synchronizer(device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device == "cuda" else _nothing


def _nothing() -> None:
    """The CPU is always synchronised."""


@contextmanager
def _recording(request: Request) -> Iterator[None]:
    if request.profiler == "torch":
        activities = [torch.profiler.ProfilerActivity.CPU]
        if request.workload.device == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        # sizes and types of operators: their flop and bytes in every phase (docs/work.md)
        with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
            yield
        _export(profile, request.output)
    elif request.profiler == "cuda":
        torch.cuda.profiler.start()
        try:
            yield
        finally:
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
    else:
        with nullcontext():
            yield


_HOST_NAME = re.compile(rb'^(\s*"host_name"\s*:\s*")[^"]*(")')


def _export(profile: torch.profiler.profile, folder: Path) -> None:
    """``trace.json.gz`` without the host's name, which torch.profiler writes on a line of its own."""
    plain = folder / "trace.json"
    profile.export_chrome_trace(str(plain))
    with plain.open("rb") as source, gzip.open(folder / "trace.json.gz", "wb", compresslevel=6) as target:
        target.writelines(_HOST_NAME.sub(rb"\1\2", line) for line in source)
    plain.unlink()


def _write_spans(path: Path, sink: ClockSink) -> None:
    """``spans.json``: texts once; per range the text's index, start and end on ``time.perf_counter_ns``."""
    values = {
        "format": "xsp-spans", "version": SPANS_VERSION, "clock": "perf_counter_ns", "texts": sink.texts,
        "text_indexes": sink.text_indexes, "start_ns": sink.start_ns, "end_ns": sink.end_ns,
    }  # fmt: skip
    path.write_text(json.dumps(values), encoding="utf-8")


def _write_facts(request: Request, built: Built) -> None:
    """``facts.json``: environment, phases and, below level M, the layers' facts."""
    workload = request.workload
    values: dict[str, Any] = {
        "format": "xsp-facts", "version": FACTS_VERSION, "environment": environment(workload.device),
        "phases": [phase.name for phase in built.phases],
        "parameter_count": sum(parameter.numel() for parameter in built.model.parameters()),
    }  # fmt: skip
    if request.level != RUN_MODEL and not workload.is_compiled:
        facts, flop_source, allocated_source = layer_facts(
            built, workload.layer_depth, workload.layer_kinds, workload.mode == "inference"
        )
        values["layers"] = asdict(facts)
        values["functional"] = asdict(functional_facts(built, workload.layer_depth, workload.layer_kinds))
        values["flop_source"], values["allocated_source"] = flop_source, allocated_source
    (request.output / "facts.json").write_text(json.dumps(values), encoding="utf-8")
