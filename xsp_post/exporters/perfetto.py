"""Results → files: a Perfetto trace (ui.perfetto.dev), written packet by packet with the ``perfetto`` package.

Tracks: the ranges of each thread, its launches below them, the streams of each device; arrows from a launch to
what it launched; live memory over time where the capture recorded allocations. Needs the extra ``perfetto``.
"""

from pathlib import Path
from typing import IO, Any

import numpy as np

from xsp_post.base.lazy import optional
from xsp_post.exporters.base import CHUNK, Written, binary_output, note_size
from xsp_post.exporters.timeline import CATEGORIES, Timeline, build_timeline
from xsp_post.model.results import Results

_SEQUENCE = 1  # packets of one writer
_NAMES_PER_PACKET = 10_000
END, BEGIN, INSTANT = 0, 1, 2  # order of events of one moment on one track


def write(results: Results, path: Path, *, force: bool = False, **part: Any) -> Written:
    """A protobuf trace, compressed where ``path`` ends in ``.gz``. Raises OutputError, UsageError (capture),
    ToolError (the package is missing)."""
    messages = optional(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", "perfetto-missing",
        "The package `perfetto` is not installed.",
    )  # fmt: skip
    timeline = build_timeline(results, **part)
    with binary_output(path, force) as file:
        _write(timeline, file, messages)
    counts = timeline.counts()
    if len(timeline.memory):
        counts["memory events"] = len(timeline.memory)
    return note_size(Written(path, counts, timeline.findings))


def _write(timeline: Timeline, file: IO[bytes], messages: Any) -> None:
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

    builder = StreamingTraceProtoBuilder(file)
    tracks = _Descriptors(builder, str(timeline.capture.get("gpu_name") or ""))
    uuids = _write_tracks(timeline, tracks)
    _write_names(timeline, builder, messages)
    _write_events(timeline, uuids, builder, messages)
    _write_memory(timeline, tracks, builder, messages)


class _Descriptors:
    """Descriptors of processes, threads, devices and tracks, each written once."""

    def __init__(self, builder: Any, gpu: str) -> None:
        self._builder, self._gpu = builder, gpu
        self._known: dict[tuple[object, ...], int] = {}

    def describe(self, key: tuple[object, ...], **said: Any) -> int:
        """The uuid of what has this key; ``said``: fields of its descriptor."""
        if key not in self._known:
            self._known[key] = len(self._known) + 1
            packet = self._builder.create_packet()
            packet.trusted_packet_sequence_id = _SEQUENCE
            descriptor = packet.track_descriptor
            descriptor.MergeFrom(type(descriptor)(uuid=self._known[key], **said))
            self._builder.write_packet(packet)
        return self._known[key]

    def device(self, process_id: int, device_id: int) -> int:
        name = f"GPU {device_id} {self._gpu} · process {process_id}"
        return self.describe(("gpu", process_id, device_id), name=name)

    def process(self, process_id: int) -> int:
        said = {"pid": process_id & 0x7FFFFFFF, "process_name": f"process {process_id}"}
        return self.describe(("process", process_id), process=said)

    def thread(self, process_id: int, thread_id: int) -> int:
        said = {
            "pid": process_id & 0x7FFFFFFF, "tid": thread_id & 0x7FFFFFFF,
            "thread_name": f"thread {thread_id}" if thread_id >= 0 else "inferred",
        }  # fmt: skip
        return self.describe(("thread", process_id, thread_id), parent_uuid=self.process(process_id), thread=said)


def _write_tracks(timeline: Timeline, tracks: _Descriptors) -> np.ndarray:
    """The tracks of slices, and what they belong to; returns the uuid of each track."""
    describe = tracks.describe
    uuids = np.zeros(len(timeline.tracks), np.int64)
    for i, track in enumerate(timeline.track_rows()):
        process_id, lane = track.process_id, track.lane
        if track.kind == "critical path":
            uuids[i] = describe((i,), name="critical path")
            continue
        if track.kind == "stream":
            parent = tracks.device(process_id, track.device_id)
            name = f"stream {track.stream_id}" + (f" ({lane + 1})" if lane else "")
            uuids[i] = describe((i,), name=name, parent_uuid=parent)
            continue
        thread = tracks.thread(process_id, track.thread_id)
        if track.kind == "ranges" and lane == 0:
            uuids[i] = thread
        else:
            name = track.kind if not lane else f"{track.kind}, overlapping ({lane + 1})"
            uuids[i] = describe((i,), name=name, parent_uuid=thread)
    return uuids


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
        track, name, slices["category"].to_numpy(), slices["correlation_id"].to_numpy(),
        slices["detail_id"].to_numpy(), slices["flow_first"].to_numpy(), slices["flow_count"].to_numpy(),
    )  # fmt: skip
    event = messages.TrackEvent
    types = {END: event.TYPE_SLICE_END, BEGIN: event.TYPE_SLICE_BEGIN, INSTANT: event.TYPE_INSTANT}
    needs_state = messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
    for first in range(0, len(order), CHUNK):
        part = order[first : first + CHUNK]
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


def _write_memory(timeline: Timeline, tracks: _Descriptors, builder: Any, messages: Any) -> None:
    """A counter of live bytes per memory, and one of what the framework's allocator held from the driver."""
    place = ["process_id", "device_id", "memory_kind"]
    memory = timeline.memory.assign(memory_kind=timeline.memory["memory_kind"].astype(object))
    places: list[tuple[int, int, str]] = sorted(memory[place].drop_duplicates().itertuples(index=False, name=None))
    for process_id, device_id, kind in places:
        events = memory[(memory[place] == [process_id, device_id, kind]).all(axis=1)]
        is_device = kind == "device" and device_id >= 0
        parent = tracks.device(process_id, device_id) if is_device else tracks.process(process_id)
        for column, name in (("total_bytes", f"{kind} memory, live"), ("reserved_bytes", f"{kind} memory, reserved")):
            known = events[events[column] >= 0]
            if len(known):
                unit = {"unit": messages.CounterDescriptor.UNIT_SIZE_BYTES}
                key = (column, process_id, device_id, kind)
                uuid = tracks.describe(key, name=name, parent_uuid=parent, counter=unit)
                for moment, value in zip(known["start_ns"].tolist(), known[column].tolist()):
                    packet = builder.create_packet()
                    packet.timestamp = moment
                    packet.trusted_packet_sequence_id = _SEQUENCE
                    packet.track_event.type = messages.TrackEvent.TYPE_COUNTER
                    packet.track_event.track_uuid = uuid
                    packet.track_event.counter_value = value
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
