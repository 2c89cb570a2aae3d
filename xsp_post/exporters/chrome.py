"""Results → files: Chrome's trace-event JSON (chrome://tracing, Perfetto, speedscope read it), streamed."""

import io
import json
from pathlib import Path
from typing import IO, Any

from xsp_post.exporters.base import CHUNK, Written, binary_output, note_size
from xsp_post.exporters.timeline import CATEGORIES, LAUNCH, Timeline, build_timeline
from xsp_post.model.results import Results


def write(results: Results, path: Path, *, force: bool = False, **part: Any) -> Written:
    """Complete events (``X``) in microseconds with the nanoseconds behind the point, flow arrows ``s`` → ``f``.

    Compressed where ``path`` ends in ``.gz``. Raises OutputError, UsageError (no such capture).
    """
    timeline = build_timeline(results, **part)
    with binary_output(path, force) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        _write(timeline, text)
    return note_size(Written(path, timeline.counts(), timeline.findings))


def _write(timeline: Timeline, file: IO[str]) -> None:
    file.write('{"displayTimeUnit":"ns","otherData":')
    keep = ("source_name", "level", "gpu_name", "workload_name", "framework")
    file.write(json.dumps({k: str(timeline.capture.get(k, "")) for k in keep}))
    file.write(',"traceEvents":[\n')
    process = _write_tracks(timeline, file)
    names = [json.dumps(name) for name in timeline.names]
    slices = timeline.slices
    names_of = "track name_id category start_ns end_ns correlation_id detail_id flow_first flow_count"
    columns = [slices[column].to_numpy() for column in names_of.split()]
    separator = ",\n" if len(timeline.tracks) else ""
    for first in range(0, len(slices), CHUNK):
        lines: list[str] = []
        for track, name, category, start, end, correlation, detail, flow, flows in zip(
            *(column[first : first + CHUNK].tolist() for column in columns)
        ):
            where = f'"pid":{process[track]},"tid":{track + 1},"ts":{_microseconds(start)}'
            arguments = f'"correlation_id":{correlation}' if correlation >= 0 else ""
            if detail >= 0:
                arguments += f',"layer":{names[detail]}'
            lines.append(
                f'{{"ph":"X","name":{names[name]},"cat":"{CATEGORIES[category]}",{where},'
                f'"dur":{_microseconds(end - start)},"args":{{{arguments}}}}}'
            )
            if flows and category == LAUNCH:
                lines += [
                    f'{{"ph":"s","id":{number},"name":"launch","cat":"flow",{where}}}'
                    for number in range(flow, flow + flows)
                ]
            elif flows:
                lines.append(f'{{"ph":"f","bp":"e","id":{flow},"name":"launch","cat":"flow",{where}}}')
        file.write(separator + ",\n".join(lines))
        separator = ",\n"
    file.write("\n]}\n")


def _microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _write_tracks(timeline: Timeline, file: IO[str]) -> list[int]:
    """Names of processes and tracks; returns the ``pid`` of each track. A device counts as a process of its own."""
    events: list[dict[str, object]] = []
    numbers: dict[tuple[int, int | None], int] = {}
    process: list[int] = []
    gpu = str(timeline.capture.get("gpu_name") or "")
    for i, track in enumerate(timeline.track_rows()):
        stream = track.kind == "stream"
        key = (track.process_id, track.device_id if stream else None)
        lane = f" ({track.lane + 1})" if track.lane else ""
        is_path = track.kind == "critical path"
        if key not in numbers:
            numbers[key] = len(numbers) + 1
            name = (
                f"GPU {track.device_id} {gpu} · process {track.process_id}"
                if stream
                else ("critical path" if is_path else f"process {track.process_id}")
            )
            events.append({"ph": "M", "name": "process_name", "pid": numbers[key], "args": {"name": name}})
        name = f"stream {track.stream_id}{lane}" if stream else f"thread {track.thread_id} {track.kind}{lane}"
        name = "critical path" if is_path else name
        process.append(numbers[key])
        events.append({"ph": "M", "name": "thread_name", "pid": numbers[key], "tid": i + 1, "args": {"name": name}})
        events.append(
            {"ph": "M", "name": "thread_sort_index", "pid": numbers[key], "tid": i + 1, "args": {"sort_index": i}}
        )
    file.write(",\n".join(json.dumps(event) for event in events))
    return process
