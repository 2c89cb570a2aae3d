"""Results → files: a Perfetto trace (ui.perfetto.dev), written packet by packet with the ``perfetto`` package.

Tracks: the ranges of each thread, its launches below them, the streams of each device; arrows from a launch to
what it launched. Needs the extra ``perfetto``.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from xsp_post.base.errors import ToolError
from xsp_post.base.output import atomic_output
from xsp_post.exporters.base import Written, note_size
from xsp_post.exporters.timeline import CATEGORIES, Timeline, build_timeline
from xsp_post.model.results import Results

_SEQUENCE = 1  # packets of one writer
_CHUNK = 100_000
_NAMES_PER_PACKET = 10_000
END, BEGIN, INSTANT = 0, 1, 2  # order of events of one moment on one track


def write(
    results: Results, path: Path, *, capture_id: int | None = None, limit: int | None = None, force: bool = False
) -> Written:
    """A protobuf trace, compressed where ``path`` ends in ``.gz``. Raises OutputError, UsageError (capture),
    ToolError (the package is missing)."""
    messages = _messages()
    timeline = build_timeline(results, capture_id=capture_id, limit=limit)
    with atomic_output(path, force) as temporary, open(temporary, "wb") as raw:
        if Path(path).suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=3, mtime=0) as compressed:
                _write(timeline, cast("IO[bytes]", compressed), messages)
        else:
            _write(timeline, raw, messages)
    return note_size(Written(Path(path), timeline.counts(), timeline.findings))


def _messages() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise ToolError(
            "The package `perfetto` is not installed.",
            code="perfetto-missing",
            hint="pip install 'xsp-post[perfetto]', or use --to chrome.",
        ) from error
    return perfetto_trace_pb2


def _write(timeline: Timeline, file: IO[bytes], messages: Any) -> None:
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    builder = StreamingTraceProtoBuilder(file)
    uuids = _write_tracks(timeline, builder)
    _write_names(timeline, builder, messages)
    _write_events(timeline, uuids, builder, messages)


def _write_tracks(timeline: Timeline, builder: Any) -> np.ndarray:
    """Descriptors of processes, threads, devices and tracks; returns the uuid of each track."""
    known: dict[tuple[object, ...], int] = {}

    def describe(key: tuple[object, ...], fill: Any) -> int:
        if key not in known:
            known[key] = len(known) + 1
            packet = builder.create_packet()
            packet.trusted_packet_sequence_id = _SEQUENCE
            packet.track_descriptor.uuid = known[key]
            fill(packet.track_descriptor)
            builder.write_packet(packet)
        return known[key]

    gpu = str(timeline.capture.get("gpu_name") or "")
    uuids = np.zeros(len(timeline.tracks), np.int64)
    for i, track in enumerate(timeline.track_rows()):
        process_id, lane = track.process_id, track.lane
        if track.kind == "critical path":
            uuids[i] = describe((i,), _named("critical path of one execution"))
            continue
        if track.kind == "stream":
            parent = describe(
                ("gpu", process_id, track.device_id), _named(f"GPU {track.device_id} {gpu} · process {process_id}")
            )
            name = f"stream {track.stream_id}" + (f" ({lane + 1})" if lane else "")
            uuids[i] = describe((i,), _named(name, parent))
            continue
        process = describe(("process", process_id), _process(process_id))
        thread = describe(("thread", process_id, track.thread_id), _thread(process_id, track.thread_id, process))
        if track.kind == "ranges" and lane == 0:
            uuids[i] = thread
        else:
            name = track.kind if not lane else f"{track.kind}, overlapping ({lane + 1})"
            uuids[i] = describe((i,), _named(name, thread))
    return uuids


def _named(name: str, parent: int = 0) -> Any:
    def fill(descriptor: Any) -> None:
        descriptor.name = name
        if parent:
            descriptor.parent_uuid = parent

    return fill


def _process(process_id: int) -> Any:
    def fill(descriptor: Any) -> None:
        descriptor.process.pid = process_id & 0x7FFFFFFF
        descriptor.process.process_name = f"process {process_id}"

    return fill


def _thread(process_id: int, thread_id: int, parent: int) -> Any:
    def fill(descriptor: Any) -> None:
        descriptor.parent_uuid = parent
        descriptor.thread.pid = process_id & 0x7FFFFFFF
        descriptor.thread.tid = thread_id & 0x7FFFFFFF
        descriptor.thread.thread_name = f"thread {thread_id}" if thread_id >= 0 else "inferred"

    return fill


def _write_names(timeline: Timeline, builder: Any, messages: Any) -> None:
    """Interned texts, so that every event says a number: event names (also as values of annotations),
    categories, annotation names. Numbers start at 1."""
    for first in range(0, max(len(timeline.names), 1), _NAMES_PER_PACKET):
        packet = builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if first == 0:
            packet.sequence_flags = messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
            for i, category in enumerate(CATEGORIES):
                packet.interned_data.event_categories.add(iid=i + 1, name=category)
            for i, name in enumerate(("correlation_id", "layer")):
                packet.interned_data.debug_annotation_names.add(iid=i + 1, name=name)
        else:
            packet.sequence_flags = messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        used_as_detail = set(timeline.slices["detail_id"].unique().tolist())
        for i, text in enumerate(timeline.names[first : first + _NAMES_PER_PACKET], first):
            packet.interned_data.event_names.add(iid=i + 1, name=text)
            if i in used_as_detail:
                packet.interned_data.debug_annotation_string_values.add(iid=i + 1, str=text.encode("utf-8"))
        builder.write_packet(packet)


def _write_events(timeline: Timeline, uuids: np.ndarray, builder: Any, messages: Any) -> None:
    """Begin, end and instant events in order of time. On one track ends come before begins of the same moment,
    and an outer slice begins before the inner one; a slice of no length is an instant."""
    slices = timeline.slices
    start, end = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    is_instant = start == end
    long = np.flatnonzero(~is_instant)
    rows = np.concatenate([np.arange(len(slices)), long])
    kind = np.concatenate([np.where(is_instant, INSTANT, BEGIN), np.full(len(long), END)]).astype(np.int8)
    moment = np.concatenate([start, end[long]])
    # slices are sorted by track, start, longest first: their row number says which is the outer one
    order = np.lexsort((rows, kind, moment))
    track, name = uuids[slices["track"].to_numpy()], slices["name_id"].to_numpy()
    columns = (
        track,
        name,
        slices["category"].to_numpy(),
        slices["correlation_id"].to_numpy(),
        slices["detail_id"].to_numpy(),
        slices["flow_first"].to_numpy(),
        slices["flow_count"].to_numpy(),
    )
    event = messages.TrackEvent
    types = {END: event.TYPE_SLICE_END, BEGIN: event.TYPE_SLICE_BEGIN, INSTANT: event.TYPE_INSTANT}
    needs_state = messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
    for first in range(0, len(order), _CHUNK):
        part = order[first : first + _CHUNK]
        row = rows[part]
        for at, what, uuid, name_id, category, correlation, detail, flow, flows in zip(
            moment[part].tolist(), kind[part].tolist(), *(column[row].tolist() for column in columns)
        ):
            packet = builder.create_packet()
            packet.timestamp = at
            packet.trusted_packet_sequence_id = _SEQUENCE
            packet.sequence_flags = needs_state
            packet.track_event.type = types[what]
            packet.track_event.track_uuid = uuid
            if what != END:
                _describe(packet.track_event, name_id, category, correlation, detail, flow, flows)
            builder.write_packet(packet)


def _describe(event: Any, name_id: int, category: int, correlation: int, detail: int, flow: int, flows: int) -> None:
    event.name_iid = name_id + 1
    event.category_iids.append(category + 1)
    if correlation >= 0:
        event.debug_annotations.add(name_iid=1, int_value=correlation)
    if detail >= 0:
        event.debug_annotations.add(name_iid=2, string_value_iid=detail + 1)
    if flows:
        if CATEGORIES[category] == "launch":
            event.flow_ids.extend(range(flow, flow + flows))
        else:
            event.terminating_flow_ids.append(flow)
