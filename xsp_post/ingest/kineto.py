"""``ingest``: a PyTorch-profiler trace (Kineto JSON, plain or gzipped; CUDA, ROCm or CPU) → ``Trace``.

Host rows: ``user_annotation`` (ours, named ``xsp/…``, become ranges of the domain ``xsp``), ``cpu_op`` and
the ``nn.Module`` frames among ``python_function``. Device rows: ``kernel``, ``gpu_memcpy``, ``gpu_memset``,
joined to ``cuda_runtime``/``cuda_driver`` calls by ``correlation`` (HIP traces use the same names). In a
trace of a CPU run the operators that do the work are the lowest level there is: they become the kernels,
with themselves as launches, and a finding says so.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.intervals import nest
from xsp_post.arrays.rollup import rows_by_depth
from xsp_post.arrays.statistics import medians
from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.ingest import allocations, interning, kineto_graphs, kineto_threads, trace_events
from xsp_post.ingest.interning import int_column
from xsp_post.ingest.kineto_columns import MODULE_PREFIX, Collector, Columns
from xsp_post.ingest.unmatched_launches import unmatched_launches
from xsp_post.model.trace import ActivityKind, Provenance, SpanKind, Trace
from xsp_post.names import range_text
from xsp_post.tree.structure.hashes import random_words

_HOST_TYPE = 0  # "Device Type" of a [memory] event: c10::DeviceType::CPU
_CPU_DEVICE = -1


def read_kineto(path: Path) -> Trace:
    """Read one PyTorch trace; times are its own clock in ns (Kineto writes µs), texts interned.

    ``attributes`` has shape_text, layer_type, sequence, arguments_id (what an operator was given: `work.signature`) and
    allocated_bytes per span. ``dynamic_shared_memory_bytes`` is the total per block (the format does not tell static
    from dynamic).
    Raises CaptureError when the file is damaged or holds no event of a PyTorch profiler.
    """
    collector = Collector()
    metadata = trace_events.read_events(path, collector.add)
    if not any(collector.parts[name] for name in ("spans", "launches", "activities")):
        found = _counted(collector.not_understood)
        raise CaptureError(
            f"{path}: holds no operator, annotation, device call or kernel of a PyTorch profiler"
            + (f"; categories that are not understood: {found}" if found else ""),
            code="trace-without-events",
        )
    return _Assembly(collector, metadata).trace(path.name)


class _Assembly:
    """The collected columns as the frames of a Trace."""

    def __init__(self, collector: Collector, metadata: dict[str, Any]) -> None:
        self.strings = collector.strings
        self.metadata = metadata
        self.labels = collector.labels
        frames = map(_concatenated, collector.parts.values())
        self.spans, self.launches, self.activities, self.allocations, self.synchronizations, *others = frames
        self.overheads, self.frames, self.counters, self.arrows, self.nodes = others
        for frame in (self.activities, self.nodes):
            kineto_graphs.make_ids_whole(frame)
        self.findings = _collection_findings(collector)
        self.not_understood = collector.not_understood
        self.is_cpu_only = False

    def trace(self, source_name: str) -> Trace:
        """Join, index and type everything."""
        hosts = [frame for frame in (self.spans, self.launches) if len(frame)]
        counted = kineto_threads.index(hosts, [self.allocations, self.overheads, self.frames])
        self.processes, self.threads = kineto_threads.named(counted, self.labels, self.metadata)
        self._mark_kernels_of_the_cpu()
        self._give_activities_a_process()
        if len(self.launches) and len(self.activities) and not self.is_cpu_only:
            self.findings += unmatched_launches(self.launches, self.activities, self.strings.array())
        domains = self._own_domain()
        self.spans = self.spans.sort_values(
            ["start_ns", "end_ns", "source_row_id"], ascending=[True, False, True], ignore_index=True
        )
        spans = interning.conform(self.spans, interning.SPAN_DTYPES)
        attributes = self._attributes()
        devices = self._devices()
        launches = interning.conform(self.launches, interning.LAUNCH_DTYPES)
        if "kernel_name_id" in self.launches:
            launches["kernel_name_id"] = self.launches["kernel_name_id"].fillna(-1).to_numpy(np.int32)
        return Trace(
            provenance=self._provenance(source_name, devices), strings=self.strings.array(), spans=spans,
            launches=launches, activities=interning.conform(self.activities, interning.ACTIVITY_DTYPES),
            domains=domains, processes=self.processes, threads=self.threads, devices=devices, attributes=attributes,
            findings=self.findings,
            synchronizations=kineto_threads.synchronizations(self.synchronizations, launches, self.strings.array()),
            profiler_overhead=kineto_threads.overheads(self.overheads),
            python_frames=kineto_threads.python_frames(self.frames),
            allocations=allocations.of_kineto(self.allocations),
            graph_edges=kineto_graphs.graph_edges(self.arrows, self.activities, self.nodes),
            gpu_samples=partial(kineto_graphs.gpu_samples, self.counters, self.strings.array()),
        )  # fmt: skip

    def _mark_kernels_of_the_cpu(self) -> None:
        """Without device rows and without GPU calls, working operators become activities launched by themselves.

        Not where events were not understood: those may be the device's.
        """
        if len(self.activities) or self.not_understood:
            return
        if len(self.launches):
            self.findings.append(finding("kineto-kernels-not-recorded", count=len(self.launches)))
            return
        operators = self.spans[self.spans["kind"] == int(SpanKind.OPERATOR)]
        if operators.empty:
            return
        texts = self.strings.array()
        leaves = operators[is_lowest(operators, texts)]
        talks = self.spans[self.spans["kind"] == int(SpanKind.ANNOTATION)]
        calls, talks = collectives_of(leaves, talks, texts)
        leaves = pd.concat([leaves.drop(index=calls), talks]).sort_values("start_ns", kind="stable")
        caller = pd.Series(leaves.index, leaves.index)
        caller[talks.index] = calls
        leaves, launched = (frame.reset_index(drop=True) for frame in (leaves, self.spans.loc[caller]))
        correlation_ids = np.arange(1, len(leaves) + 1)
        times = ["name_id", "start_ns", "end_ns", "process_id"]
        self.launches = launched[[*times, "thread_index", "process_index"]].assign(
            correlation_id=correlation_ids, api_class=0
        )
        self.activities = leaves[times].assign(
            kind=int(ActivityKind.KERNEL), short_name_id=leaves["name_id"], correlation_id=correlation_ids,
            device_id=_CPU_DEVICE, stream_id=leaves["thread_index"], process_index=leaves["process_index"],
        )  # fmt: skip
        self.is_cpu_only = True
        example = str(texts[leaves["name_id"].iloc[0]])
        self.findings.append(finding("cpu-operators-as-kernels", count=len(leaves), example=example))

    def _give_activities_a_process(self) -> None:
        """Kineto gives device rows the device as process: the launch with the same correlation id owns them; of several
        processes, whose ids are alike, the one whose launches come before most work of that device, and shortly."""
        if self.is_cpu_only or self.activities.empty:
            return
        owner = pd.Series(dtype=np.int32)
        if len(self.launches) and self.launches["process_index"].any():
            calls = self.launches.drop_duplicates(["correlation_id", "process_index"])
            calls = calls[["correlation_id", "process_index", "start_ns"]].rename(columns={"start_ns": "called_ns"})
            rows = self.activities[["correlation_id", "device_id", "start_ns"]].reset_index()
            pairs = rows.merge(calls, on="correlation_id")
            self.findings += if_any("kineto-process-ambiguous", pairs.duplicated("index"))
            delay = (pairs["start_ns"] - pairs["called_ns"]).astype(float)
            pairs = pairs.assign(is_late=delay < 0, delay=np.sqrt(delay.clip(lower=0)))
            groups = pairs.groupby(["device_id", "process_index"])
            pairs[["is_late", "delay"]] = groups[["is_late", "delay"]].transform("mean")
            fits = pairs.drop_duplicates(["device_id", "process_index"]).sort_values(["is_late", "delay"])
            fits = fits[fits["is_late"] <= fits.groupby("device_id")["is_late"].transform("min") + _AS_WELL]
            taken: dict[int, int] = {}  # ranks do alike: each has a device of its own where that fits as well
            for device, process in fits[["device_id", "process_index"]].itertuples(index=False):
                if device not in taken.values() and process not in taken:
                    taken[process] = device
            pairs["is_other"] = pairs["process_index"].map(taken) != pairs["device_id"]
            best = pairs.sort_values(["is_other", "is_late", "delay"]).drop_duplicates("index")
            owner = best.set_index("index")["process_index"]
        self.activities["process_index"] = owner.reindex(self.activities.index).fillna(0).astype(np.int32)
        self.activities = self.activities.sort_values(["start_ns", "source_row_id"], ignore_index=True)

    def _own_domain(self) -> pd.DataFrame:
        """Annotations ``xsp/<text>`` become push/pop ranges <text> of the domain xsp, per process."""
        self.spans["domain_index"] = np.int32(-1)
        columns = {"process_index": np.zeros(0, np.int32), "name": np.zeros(0, object)}
        if self.spans.empty or not any(text.startswith(range_text.PREFIX) for text in self.strings.array()):
            return pd.DataFrame(columns)
        unique, inverse = np.unique(self.spans["name_id"].to_numpy(), return_inverse=True)
        texts = self.strings.array()[unique]
        is_own_text = np.array([text.startswith(range_text.PREFIX) for text in texts], dtype=bool)
        own = is_own_text[inverse] & (self.spans["kind"] == int(SpanKind.ANNOTATION)).to_numpy()
        if not own.any():
            return pd.DataFrame(columns)
        bare = self.strings.add([str(text).removeprefix(range_text.PREFIX) for text in texts])
        process_indexes = distinct(self.spans["process_index"].to_numpy()[own])
        domain_of_process = np.searchsorted(process_indexes, self.spans["process_index"].to_numpy())
        self.spans["name_id"] = np.where(own, bare[inverse], self.spans["name_id"])
        self.spans["kind"] = np.where(own, int(SpanKind.PUSH_POP), self.spans["kind"])
        self.spans["domain_index"] = np.where(own, domain_of_process, -1)
        self._take_shape_marks(own, bare, inverse)
        columns["process_index"] = process_indexes.astype(np.int32)
        columns["name"] = np.full(len(process_indexes), range_text.DOMAIN, dtype=object)
        return pd.DataFrame(columns)

    def _take_shape_marks(self, own: np.ndarray, bare: np.ndarray, inverse: np.ndarray) -> None:
        """Our marks ``shape:[8,64]`` (see `range_text`) give the layer around them its shape and go."""
        texts = self.strings.array()[bare]
        marks = [range_text.parse(str(text)) for text in texts]
        shapes = [one.shape_text if one is not None and one.kind == range_text.SHAPE else None for one in marks]
        shape_ids = self.strings.add(shapes)[inverse]
        is_mark = own & (shape_ids >= 0)
        if not is_mark.any():
            return
        layers, marks = self.spans[own & ~is_mark], self.spans[is_mark]
        columns = ["thread_index", "start_ns", "end_ns"]
        around = nest(*(layers[column].to_numpy().astype(np.int64) for column in columns)).innermost(
            *(marks[column].to_numpy().astype(np.int64) for column in columns)
        )
        if "shape_id" not in self.spans.columns:
            self.spans["shape_id"] = -1.0
        found = around >= 0
        self.spans.loc[layers.index[around[found]], "shape_id"] = shape_ids[is_mark][found]
        self.spans = self.spans[~is_mark]

    def _attributes(self) -> pd.DataFrame:
        """Extras per span (index = span id); −1 and '' where the trace has none."""
        spans = self.spans

        def numbers(column: str) -> np.ndarray:
            values = spans[column] if column in spans.columns else pd.Series(-1, index=spans.index)
            return values.fillna(-1).to_numpy().astype(np.int64)

        columns: dict[str, Any] = {
            "sequence": numbers("sequence"), "arguments_id": numbers("arguments_id"),
            "shape_text": self._by_text(numbers("shape_id"), str),
            "layer_type": self._by_text(numbers("name_id"), _module_class),
        }  # fmt: skip
        if len(self.allocations) and len(spans):
            columns["allocated_bytes"] = self._allocated_bytes()
        if "message_text_id" in spans:
            columns["message_text_id"] = numbers("message_text_id")
        return pd.DataFrame(columns, index=spans.index)

    def _by_text(self, numbers: np.ndarray, said: Callable[[str], str]) -> pd.Categorical:
        """What texts say, by their numbers (−1 none, ''); each is looked at once."""
        used, codes = np.unique(numbers, return_inverse=True)
        texts = self.strings.array()
        return pd.Categorical(np.array(["" if one < 0 else said(texts[one]) for one in used], object)).take(codes)

    def _allocated_bytes(self) -> np.ndarray:
        """Bytes allocated (not net of what was freed) on the span's thread while it was open: of the GPU's memory, in
        a trace of a CPU alone of the host's. Both are never added together."""
        made = self.allocations[self.allocations["bytes"] > 0].sort_values("start_ns")
        if "device_type" in made and not self._has_no_gpu():
            made = made[made["device_type"] != _HOST_TYPE]
        result = np.zeros(len(self.spans), dtype=np.int64)
        for thread_index, rows in self.spans.groupby("thread_index").indices.items():
            own = made[made["thread_index"] == thread_index]
            running = np.concatenate([[0], np.cumsum(own["bytes"].to_numpy())])
            times = own["start_ns"].to_numpy()
            until = np.searchsorted(times, self.spans["end_ns"].to_numpy()[rows], side="right")
            since = np.searchsorted(times, self.spans["start_ns"].to_numpy()[rows], side="left")
            result[rows] = running[until] - running[since]
        return result

    def _devices(self) -> pd.DataFrame:
        """One row per process and device with work; facts from deviceProperties where they are."""
        used = pd.DataFrame({"process_index": [0], "device_id": [_CPU_DEVICE if self._has_no_gpu() else 0]})
        if len(self.activities):
            used = self.activities[["process_index", "device_id"]].drop_duplicates()
        used = used.sort_values(["process_index", "device_id"], ignore_index=True).astype(np.int32)
        facts = self.metadata.get("deviceProperties")
        listed = [f for f in facts if isinstance(f, dict)] if isinstance(facts, list) else []
        by_id = {f["id"]: f for f in listed if isinstance(f.get("id"), int)}
        # A trace of one device may number it differently from its properties (HIP_VISIBLE_DEVICES).
        only = next(iter(by_id.values())) if len(by_id) == 1 and used["device_id"].nunique() == 1 else {}
        rows = [by_id.get(device_id, only) for device_id in used["device_id"].tolist()]
        is_cpu = (used["device_id"] == _CPU_DEVICE).to_numpy()
        names = np.array([str(row.get("name") or "") for row in rows], dtype=object)
        capability = [
            f"{row['computeMajor']}.{row.get('computeMinor', 0)}" if "computeMajor" in row else "" for row in rows
        ]
        return used.assign(
            gpu_index=used["device_id"],
            gpu_name=np.where(is_cpu, "CPU", names),
            sm_count=int_column([row.get("numSms", -1) for row in rows]),
            memory_bytes=int_column([row.get("totalGlobalMem", -1) for row in rows]),
            compute_capability=np.array(capability, dtype=object),
        )

    def _has_no_gpu(self) -> bool:
        return self.is_cpu_only or not self.metadata.get("deviceProperties")

    def _provenance(self, source_name: str, devices: pd.DataFrame) -> Provenance:
        frames = [frame for frame in (self.spans, self.launches, self.activities) if len(frame)]
        first_ns = min(int(frame["start_ns"].min()) for frame in frames)
        base_ns = int_column([self.metadata.get("baseTimeNanoseconds", 0)], 0)[0]
        session_start_ns = int(base_ns) + first_ns
        gpu_names = [name for name in devices["gpu_name"] if name]
        options = {key: str(self.metadata[key]) for key in _OPTION_KEYS if key in self.metadata}
        return Provenance(
            source_name, "torch", framework="torch", schema_version=str(self.metadata.get("schemaVersion", "")),
            gpu_name=gpu_names[0] if gpu_names else "", options=options,
            driver_version=str(self.metadata.get("cuda_driver_version", "")),
            session_start_utc_ns=session_start_ns if 0 <= session_start_ns < 2**63 else -1,
        )  # fmt: skip


_AS_WELL = 0.02  # share of the work that precedes its launch
_COLUMNS = ("name_id", "process_id", "thread_id", "start_ns", "end_ns", "source_row_id", "is_open", "kind")
_OPTION_KEYS = ("record_shapes", "with_stack", "with_flops", "with_modules", "profile_memory",
                "cuda_runtime_version", "hip_runtime_version")  # fmt: skip


def _module_class(text: str) -> str:
    """Class of an nn.Module frame: ``nn.Module: Linear_3`` → Linear; '' for other spans."""
    return text.removeprefix(MODULE_PREFIX).rsplit("_", 1)[0] if text.startswith(MODULE_PREFIX) else ""


def _concatenated(parts: list[Columns]) -> pd.DataFrame:
    """The pieces one behind the other; NaN where one has no such column. Takes the pieces away."""
    if not parts:
        return pd.DataFrame({column: np.zeros(0, np.int64) for column in _COLUMNS})
    lengths = [len(part["start_ns"]) for part in parts]
    columns = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        found = [part.pop(name, None) for part in parts]
        columns[name] = np.concatenate(
            [np.full(length, np.nan) if one is None else one for one, length in zip(found, lengths)]
        )
    return pd.DataFrame(columns, copy=False)


def _collection_findings(collector: Collector) -> list[Finding]:
    left_out, unknown = +collector.left_out, collector.not_understood
    return [
        *if_any("kineto-time-unreadable", collector.unreadable_count),
        *if_any("kineto-rows-left-out", left_out.total(), _counted(left_out)),
        *if_any("kineto-categories-unknown", unknown.total(), _counted(unknown)),
    ]


def _counted(categories: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in categories.most_common(8))


# -- which operators of a CPU run do the work --------------------------------------------------------------------------

_WRAPPERS = ("autograd::engine::evaluate_function", "torch::autograd::")  # the engine around the operator
# operators that make or re-shape tensors and compute nothing
_BOOKKEEPING = frozenset(f"aten::{name}" for name in (
    "alias", "as_strided", "as_strided_", "chunk", "detach", "empty", "empty_like", "empty_strided", "expand",
    "flatten", "narrow", "permute", "reshape", "resize_", "resolve_conj", "resolve_neg", "select", "slice", "split",
    "squeeze", "t", "transpose", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
))  # fmt: skip
_CALLED = ("c10d::",)
_CARRIED_OUT = ("gloo:", "mpi:", "ucc:")  # ranges on threads of libraries of collectives
_WORKING_SHARE = 0.75  # far from both kinds: who works has above 0.85 of its time in itself, who passes on below 0.55
_LONG_NS, _LONG_SHARE = 100_000, 0.25  # but nobody passes on for as long, for each call that it makes
_NATIVE = "aten::"  # runs no Python


def is_lowest(operators: pd.DataFrame, texts_by_id: np.ndarray) -> np.ndarray:
    """Operators that do the work: leaves, operators that call nothing but bookkeeping, and operators that
    over the whole trace spend most of their time in themselves (``aten::addmm`` calls ``aten::copy_``, but
    multiplies itself), or more than passing on takes.

    Decided per operator name and what it calls (``aten::_convolution`` passes one kind on and computes another itself),
    and by times only where names do not tell, so that noise cannot make two runs of one program differ in their
    kernels; none lies within another, so their times add up.
    """
    start_ns, end_ns = operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy()
    nesting = nest(
        operators["thread_index"].to_numpy().astype(np.int64), start_ns, end_ns, operators["source_row_id"].to_numpy()
    )
    parent, has_parent = nesting.parent, nesting.parent >= 0
    duration_ns = end_ns - start_ns
    self_ns = duration_ns.copy()
    np.subtract.at(self_ns, parent[has_parent], duration_ns[has_parent])
    names, name = np.unique(operators["name_id"].to_numpy(), return_inverse=True)
    texts = [str(text) for text in texts_by_id[names]]
    is_wrapper = np.array([text.startswith(_WRAPPERS) for text in texts], dtype=bool)
    is_work = np.array([text not in _BOOKKEEPING for text in texts], dtype=bool)
    kind, count = _kinds(name, parent, is_work)
    calls_work = np.zeros(count, dtype=bool)
    calls_work[kind[parent[has_parent]][is_work[name[has_parent]]]] = True
    # the typical call's share: one call that the machine interrupted must not make a worker of who passes on
    share = self_ns / np.maximum(duration_ns, 1)
    of_kind, of_name = medians(share, kind, count)[kind], medians(share, name, len(names))[name]
    works = ~calls_work[kind] | (np.maximum(of_kind, of_name) >= _WORKING_SHARE)
    each_ns = self_ns / (1 + np.bincount(parent[has_parent], minlength=len(parent)))
    is_native = np.array([text.startswith(_NATIVE) for text in texts], dtype=bool)
    # inputs of one size are computed or passed on alike: who converts many small ones may compute a few large ones
    of_size = pd.Series(each_ns).groupby([kind, operators.get("shape_id", operators["name_id"]).to_numpy()])
    least_ns = np.where(of_size.transform("size") > 1, of_size.transform("min"), 0)
    typical_ns = np.maximum(medians(each_ns, kind, count)[kind], least_ns)
    works |= is_native[name] & (typical_ns >= _LONG_NS) & (of_kind >= _LONG_SHARE)
    works &= ~is_wrapper[name]
    is_leaf = np.ones(len(operators), dtype=bool)
    is_leaf[parent[has_parent]] = False
    works |= is_leaf
    is_covered = np.zeros(len(operators), dtype=bool)
    for rows in rows_by_depth(nesting.depth)[1:]:
        is_covered[rows] = is_covered[parent[rows]] | works[parent[rows]]
    return works & ~is_covered


def _kinds(name: np.ndarray, parent: np.ndarray, is_work: np.ndarray) -> tuple[np.ndarray, int]:
    """Number of the kind of each operator, and how many there are: those of one name that call work of the same names.
    ``name`` and ``parent`` (−1 none) of each operator, ``is_work`` of each name."""
    called = np.flatnonzero((parent >= 0) & is_work[name])
    pairs = np.unique(np.stack([parent[called], name[called]], axis=1), axis=0)
    inside = np.zeros(len(name), np.uint64)
    np.add.at(inside, pairs[:, 0], random_words(pairs[:, 1]))
    kinds, kind = np.unique(inside + random_words(name + np.int64(1 << 40)), return_inverse=True)
    return kind, len(kinds)


def collectives_of(operators: pd.DataFrame, ranges: pd.DataFrame, texts: np.ndarray) -> tuple[pd.Index, pd.DataFrame]:
    """Collectives of a CPU run: the operators that call them (labels, shape (n,)), and the ranges in which another
    thread carries them out (n rows). The k-th call of a kind is the k-th range of it; kinds with unlike numbers are
    left out.
    """
    sides = []
    for frame, prefixes in ((operators, _CALLED), (ranges, _CARRIED_OUT)):
        name = pd.Series(texts[frame["name_id"].to_numpy(np.int64)].astype(str), index=frame.index)
        chosen = frame[name.str.startswith(prefixes)].sort_values("start_ns", kind="stable")
        kind = name[chosen.index].str.replace(r"^\w+:|[^a-z]", "", regex=True)
        who = chosen["process_index"].astype(str).str.cat(kind, " ")
        sides.append(
            pd.DataFrame({"who": who, "order": who.groupby(who).cumcount(), "count": who.map(who.value_counts())})
        )
    calls, found = (side.reset_index(names="label") for side in sides)
    both = calls.merge(found, on=["who", "order", "count"], validate="one_to_one")
    return pd.Index(both["label_x"]), ranges.loc[both["label_y"]]
