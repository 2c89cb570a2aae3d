"""Results → files: XSP's span model (one trace per capture; every span tagged ``trace_level``) as Jaeger or OTLP JSON.

XSP §III and MLModelScope's tracer: each range is a span below its parent's; a launch and its execution are two
spans with one ``correlation_id``, both below the range that launched, named ``cuda_launch`` and ``gpu_kernel``.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from xsp_post.exporters.base import CHUNK, Selection, Written, binary_output, note_size, select
from xsp_post.model.kinds import GEOMETRY
from xsp_post.model.levels import RUN_LAYER, RUN_MODEL
from xsp_post.model.results import Results

# Our levels and MLModelScope's (tracer/level.go); `xsp_level` keeps ours, which are finer.
TRACE_LEVELS = {
    "CAPTURE": "APPLICATION_TRACE", "APPLICATION": "APPLICATION_TRACE", "MODEL": "MODEL_TRACE",
    "MODULE": "FRAMEWORK_TRACE", "LAYER": "FRAMEWORK_TRACE", "OPERATION": "FRAMEWORK_TRACE",
    "LIBRARY": "ML_LIBRARY_TRACE",
}  # fmt: skip
_KERNELS = "SYSTEM_LIBRARY_TRACE"
RUN_LEVELS = {RUN_MODEL: "MODEL_TRACE", RUN_LAYER: "FRAMEWORK_TRACE"}  # of deeper runs: `_KERNELS`
_NODE_TAGS = ("domain", "process_id", "thread_id", "layer_type", "shape_text", "iteration_index")
_KERNEL_TAGS = ("correlation_id", "process_id", "device_id", "stream_id", "attribution", "layer_index")

# One span: number, parent's number (0 none), name, start and end in ns, (process, thread), tags
Span = tuple[int, int, str, int, int, tuple[int, int], dict[str, object]]


def _write(
    results: Results, path: Path, *, write: Callable[[Selection, IO[str]], int], force: bool = False, **part: Any
) -> Written:
    """Raises OutputError, UsageError."""
    launch = ("launch_start_ns", "launch_end_ns", "launch_thread_id")
    selection = select(
        results, **part, nodes=("parent_id", "level", "name", *_NODE_TAGS),
        kernels=("name", "node_id", *_KERNEL_TAGS, *GEOMETRY, *launch),
        memory_operations=("name", "node_id", "bytes", *_KERNEL_TAGS[:-1], *launch),
    )  # fmt: skip
    with binary_output(path, force) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        count = write(selection, text)
    frames = (selection.ranges, selection.kernels, selection.memory_operations)
    counts = dict(zip(("spans", "ranges", "kernels", "memory operations"), (count, *map(len, frames))))
    return note_size(Written(path, counts, selection.findings))


def spans(selection: Selection) -> Iterator[Span]:
    """All spans of a capture: nodes first, then device work, each launch just before its execution."""
    nodes = selection.nodes
    number = pd.Series(np.arange(1, len(nodes) + 1), index=nodes["node_id"].to_numpy())
    parent = number.reindex(nodes["parent_id"]).fillna(0).to_numpy(dtype=np.int64)
    following = len(nodes) + 1
    for first, part in _chunks(nodes):
        tags = _tags(part, _NODE_TAGS)
        columns = (
            part[name].astype(object).tolist()
            for name in ("name", "level", "start_ns", "end_ns", "process_id", "thread_id")
        )
        for i, (name, level, start, end, process, thread) in enumerate(zip(*columns)):
            tag = {"trace_level": TRACE_LEVELS.get(level, "FULL_TRACE"), "xsp_level": level, **tags[i]}
            yield first + i + 1, int(parent[first + i]), str(name), start, end, (process, thread), tag
    for frame in (selection.kernels, selection.memory_operations):
        above = number.reindex(frame["node_id"]).fillna(0).to_numpy(dtype=np.int64)
        for first, part in _chunks(frame):
            for span in _device_spans(part, above[first : first + CHUNK], following):
                yield span
                following += 1


def _device_spans(part: pd.DataFrame, above: np.ndarray, following: int) -> Iterator[Span]:
    is_kernel = "kernel_id" in part
    tags = _tags(part, (*_KERNEL_TAGS, "bytes"))
    kinds = ["kernel"] * len(part) if is_kernel else part["kind"].astype(str).tolist()
    geometry = part[list(GEOMETRY)].to_numpy().tolist() if is_kernel else [[]] * len(part)
    times = part[["start_ns", "end_ns", "launch_start_ns", "launch_end_ns", "process_id", "launch_thread_id"]]
    rows = times.to_numpy().tolist()
    for i, name in enumerate(part["name"].astype(object)):
        start, end, launch_start, launch_end, process, thread = rows[i]
        common: dict[str, object] = {"trace_level": _KERNELS, "kernel": str(name), **tags[i]}
        if launch_start >= 0:
            tag = {**common, "thread_id": thread, "xsp_level": "LAUNCH"}
            yield following, int(above[i]), "cuda_launch", launch_start, launch_end, (process, thread), tag
            following += 1
        sizes = {"grid_dim": geometry[i][:3], "block_dim": geometry[i][3:]} if is_kernel else {}
        shape = {key: f"[{' '.join(map(str, three))}]" for key, three in sizes.items()}
        tag = {**common, "name": str(name), **shape, "xsp_level": "KERNEL"}
        yield following, int(above[i]), f"gpu_{kinds[i]}", start, end, (process, thread), tag
        following += 1


def _chunks(frame: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    for first in range(0, len(frame), CHUNK):
        yield first, frame.iloc[first : first + CHUNK]


def _tags(part: pd.DataFrame, names: tuple[str, ...]) -> list[dict[str, object]]:
    """What is known of each row: −1 and '' mean unknown and are left out."""
    names = tuple(name for name in names if name in part)
    columns = [part[name].astype(object).tolist() for name in names]
    return [{name: value for name, value in zip(names, row) if value not in (-1, "")} for row in zip(*columns)]


def _trace_id(selection: Selection) -> str:
    """The same capture always gets the same id."""
    text = f"{selection.capture.get('source_name')}|{selection.capture['capture_id']}|{len(selection.kernels)}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _facts(selection: Selection) -> dict[str, object]:
    capture = selection.capture
    facts = {name: capture.get(name) for name in ("gpu_name", "framework", "batch_size", "source_name")}
    level = RUN_LEVELS.get(str(capture.get("level")), _KERNELS)
    facts = {"gpu": facts.pop("gpu_name"), **facts, "evaluation_trace_level": level}
    return {key: value for key, value in facts.items() if value not in (None, "", -1)}


def _service(selection: Selection) -> str:
    return str(selection.capture.get("workload_name") or "xsp-post")


def _jaeger(selection: Selection, file: IO[str]) -> int:
    """Jaeger's JSON (what its UI loads and ``xsp-post ingest`` reads). Times are whole microseconds there; the
    tags ``start_ns`` and ``duration_ns`` keep the nanoseconds."""
    trace = _trace_id(selection)
    processes: dict[tuple[int, int], str] = {}  # Jaeger knows no threads: each is a process of its own

    def tag(key: str, value: object) -> dict[str, object]:
        if isinstance(value, (int, np.integer)):
            return {"key": key, "type": "int64", "value": int(value)}
        return {"key": key, "type": "string", "value": str(value)}

    def text(span: Span) -> str:
        number, parent, name, start, end, thread, tags = span
        process = processes.setdefault(thread, f"p{len(processes) + 1}")
        references = [{"refType": "CHILD_OF", "traceID": trace, "spanID": f"{parent:016x}"}] if parent else []
        # both ends rounded down: a child that lay inside its parent still does
        times = {"startTime": start // 1000, "duration": end // 1000 - start // 1000}
        said = [tag(k, v) for k, v in {**tags, "start_ns": start, "duration_ns": end - start}.items()]
        who = {"traceID": trace, "spanID": f"{number:016x}", "operationName": name, "references": references}
        return json.dumps({**who, **times, "tags": said, "logs": [], "processID": process})

    file.write(f'{{"data":[{{"traceID":"{trace}","spans":[\n')
    count = _join(map(text, spans(selection)), file)
    service, facts = _service(selection), _facts(selection)
    described = {}
    for (process_id, thread_id), name in processes.items():
        known = {**facts, "process_id": process_id, "thread_id": thread_id}
        said = [tag(key, value) for key, value in known.items() if value != -1]
        described[name] = {"serviceName": service, "tags": said}
    file.write(f'\n],"processes":{json.dumps(described)},"warnings":null}}],"total":1}}\n')
    return count


def _otlp(selection: Selection, file: IO[str]) -> int:
    """OpenTelemetry's OTLP JSON, one export request, times in nanoseconds."""
    trace = _trace_id(selection)

    def attribute(key: str, value: object) -> dict[str, object]:
        if isinstance(value, (int, np.integer)):
            return {"key": key, "value": {"intValue": str(int(value))}}  # OTLP JSON: 64-bit integers as text
        return {"key": key, "value": {"stringValue": str(value)}}

    since_1970 = max(int(selection.capture.get("clock_utc_ns", 0)), 0)  # 0: not known; times since the start then

    def text(span: Span) -> str:
        number, parent, name, start, end, _, tags = span
        first, last = (str(max(moment + since_1970, 0)) for moment in (start, end))
        entry: dict[str, Any] = {
            "traceId": trace, "spanId": f"{number:016x}", "name": name, "kind": 1, "startTimeUnixNano": first,
            "endTimeUnixNano": last, "attributes": [attribute(k, v) for k, v in tags.items()],
        }  # fmt: skip
        return json.dumps(entry | ({"parentSpanId": f"{parent:016x}"} if parent else {}))

    said = {"service.name": _service(selection), **_facts(selection)}
    resource = json.dumps({"attributes": [attribute(key, value) for key, value in said.items()]})
    file.write(f'{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{{"name":"xsp-post"}},"spans":[\n')
    count = _join(map(text, spans(selection)), file)
    file.write("\n]}]}]}\n")
    return count


write_jaeger, write_otlp = partial(_write, write=_jaeger), partial(_write, write=_otlp)


def _join(texts: Iterator[str], file: IO[str]) -> int:
    count = 0
    for text in texts:
        file.write(",\n" + text if count else text)
        count += 1
    return count
