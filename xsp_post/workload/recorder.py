"""``run`` → capture: one level of a measured process: its ranges, its profiler, and the file it writes.

Level M: two clock readings around each synchronised iteration, nothing else. M/L: the same, and two readings
around each layer. M/L/G: ranges for the profiler that watches (torch.profiler here, nsys or ncu outside).
Hooks are on the model, and torch.profiler runs, only while a block of the level runs.
"""

import gc
import gzip
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from xsp_post.model.capture import Workload
from xsp_post.model.levels import RUN_LAYER, RUN_MODEL
from xsp_post.names import range_text
from xsp_post.workload.models import Built, Parts
from xsp_post.workload.ranges import AnnotationSink, ClockSink, LayerRanges, NvtxSink, Sink, heard_by

SPANS_VERSION = 1  # of spans.json: 1 first version (xsp-post 0.1.0)


@dataclass(frozen=True)
class Recording:
    """What one level of the process is to record, and where to."""

    level: str
    profiler: str  # none, torch, cuda (bracketed by cudaProfilerStart/Stop for nsys and ncu), nvtx (no bracket)
    output: Path


class Recorder:
    """Runs the blocks of one level; `write` leaves ``spans.json`` or ``trace.json.gz``."""

    def __init__(self, recording: Recording, workload: Workload, built: Built, batch_size: int) -> None:
        self.recording = recording
        self._workload, self._built, self._batch_size = workload, built, batch_size
        self._sink = _sink(recording.profiler)
        self._synchronize = synchronizer(workload.device)
        self._layers = self._layer_ranges()
        self._counts = {True: 0, False: 0}  # iterations so far: warm-up, measured
        names = (range_text.FORWARD, range_text.BACKWARD, range_text.OPTIMIZER) if workload.mode == "train" else ()
        self._parts_of_step = {name: self._sink.prepare(name, range_text.PART, 0) for name in names}
        self._traces: list[Path] = []

    def run(self, settling_count: int, measured_count: int) -> None:
        """One block. The last settling iteration lies within the recording, so that the profiler's own first-use
        cost falls into it."""
        prepared = self._prepare(settling_count, measured_count)
        inside = 1 if settling_count and self.recording.profiler != "none" else 0
        self._listen()
        try:
            gc.collect(1)  # what is young: all of torch would take longer than a block
            # outside of a recording an annotation has no reader but the same cost: the path stays the same
            for texts in prepared[: settling_count - inside]:
                self._once(texts)
            with self._recorded():
                for texts in prepared[settling_count - inside :]:
                    self._once(texts)
        finally:
            heard_by.clear()
            if self._layers is not None:
                self._layers.remove()
            self._built.parts.begin, self._built.parts.end = Parts.begin, Parts.end

    def _listen(self) -> None:
        """Steps that the program marks; below level M hooks on the layers, and the parts of a training step."""
        heard_by.append(self._sink)
        if self._layers is not None:
            self._layers.attach()
        if self.recording.level != RUN_MODEL:
            self._built.parts.begin = lambda name: self._sink.push(self._parts_of_step[name])
            self._built.parts.end = lambda: self._sink.pop(None)

    def write(self) -> None:
        """The file that ``ingest`` reads; torch.profiler's blocks become one trace."""
        if isinstance(sink := self._sink, ClockSink):  # readings on ``time.perf_counter_ns``, each text once
            values = {
                "format": "xsp-spans", "version": SPANS_VERSION, "clock": "perf_counter_ns", "texts": sink.texts,
                "text_indexes": sink.text_indexes, "start_ns": sink.start_ns, "end_ns": sink.end_ns,
            }  # fmt: skip
            (self.recording.output / "spans.json").write_text(json.dumps(values), encoding="utf-8")
        elif self._traces:
            write_trace(self._traces, self.recording.output / "trace.json.gz")

    def _once(self, texts: list[Any]) -> None:
        for phase, text in zip(self._built.phases, texts):
            if self._layers is not None:
                self._layers.begin_iteration()
            self._synchronize()
            self._sink.push(text)
            phase.run()
            self._synchronize()
            self._sink.pop(None)

    def _prepare(self, settling_count: int, measured_count: int) -> list[list[Any]]:
        """The model ranges' texts of a block, one per phase, made before anything is timed."""
        prepared = []
        for is_warmup in [True] * settling_count + [False] * measured_count:
            index = self._counts[is_warmup]
            self._counts[is_warmup] += 1
            texts = [range_text.format_model(phase.name, index, is_warmup=is_warmup) for phase in self._built.phases]
            prepared.append([self._sink.prepare(text, range_text.MODEL, self._batch_size) for text in texts])
        return prepared

    def _layer_ranges(self) -> LayerRanges | None:
        workload, level = self._workload, self.recording.level
        if level == RUN_MODEL or workload.is_compiled:
            return None
        is_serialized = level == RUN_LAYER and workload.is_serialized and workload.device == "cuda"
        return LayerRanges(
            self._built.model, self._sink, depth=workload.layer_depth, kinds=workload.layer_kinds,
            synchronize=self._synchronize if is_serialized else None, is_attached=False,
        )  # fmt: skip

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        profiler = self.recording.profiler
        if profiler == "torch":
            with profile(self._workload.device) as recorded:
                yield
            self._traces.append(self.recording.output / f"block{len(self._traces)}.json")
            recorded.export_chrome_trace(str(self._traces[-1]))
        elif profiler == "cuda":
            torch.cuda.profiler.start()
            try:
                yield
            finally:
                torch.cuda.synchronize()
                torch.cuda.profiler.stop()
        else:
            yield


def profile(device: str) -> torch.profiler.profile:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    # sizes and types of operators: their flop and bytes in every phase (docs/work.md)
    return torch.profiler.profile(activities=activities, record_shapes=True)


def synchronizer(device: str) -> Callable[[], None]:
    """What waits for the device; the CPU is always synchronised."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def _sink(profiler: str) -> Sink:
    if profiler == "none":
        return ClockSink()
    return AnnotationSink() if profiler == "torch" else NvtxSink()


def write_recording(profiler: Any, trace: Path) -> None:
    """The trace of a stopped torch.profiler, and what the program named the nodes of its CUDA graphs by beside it."""
    part = trace.with_name(".trace.json")
    profiler.export_chrome_trace(str(part))
    write_annotations(trace)
    write_trace([part], trace)


def write_annotations(capture: Path) -> None:
    """What the program named the nodes of its CUDA graphs by (`mark_kernels`), beside a capture, where there is any."""
    for name in ("torch.cuda.graph_annotations", "torch.cuda._graph_annotations"):
        known = dict(sys.modules[name].get_kernel_annotations()) if name in sys.modules else {}
        if known:
            capture.with_name(f"{capture.name.partition('.')[0]}.annotations.pkl").write_bytes(pickle.dumps(known))
            return


# torch.profiler writes the host's name and the file's path, each on a line of its own
_PRIVATE = re.compile(rb'("(?:host_name|traceName)"\s*:\s*")[^"]*(")')


def write_trace(parts: list[Path], target: Path) -> None:
    """Traces of one process as one gzipped trace, without the host's name and the folder; the parts go."""
    whole = target.with_name(f".{target.name}")  # no capture before it is complete
    with gzip.open(whole, "wb", compresslevel=6) as stream:
        if len(parts) == 1:
            with parts[0].open("rb") as source:
                stream.writelines(_PRIVATE.sub(rb"\1\2", line) for line in source)
        else:
            stream.write(json.dumps(_joined(parts)).encode())
    whole.replace(target)
    for part in parts:
        part.unlink()


def _joined(parts: list[Path]) -> dict[str, Any]:
    """The first trace with the events of the others, all on its clock. Ids are unique within a process."""
    whole: dict[str, Any] = {}
    for part in parts:
        trace = json.loads(part.read_text(encoding="utf-8", errors="replace"))
        trace["host_name"] = trace["traceName"] = ""
        if not whole:
            whole = trace
            continue
        base = "baseTimeNanoseconds"
        shift_us = (trace.get(base, 0) - whole.get(base, 0)) / 1000
        for event in trace["traceEvents"] if shift_us else ():
            if "ts" in event:
                event["ts"] += shift_us
        whole["traceEvents"] += trace["traceEvents"]
    return whole
