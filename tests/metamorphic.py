"""Changes of a recording that leave its structure as it is: the executions and layers found must stay the same.

Each change gives the new trace, for each of its activities the row it had before (−1: added), and which of the old
executions are left out of the comparison. None: the change does not apply to the recording.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random

import numpy as np
import pandas as pd
from structure_score import compare, found_groups

from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, SpanKind, Trace, typed_frame
from xsp_post.model.tree import Tree


@dataclass(frozen=True)
class Changed:
    """A changed recording. ``rows``: per activity its row before; ``left_out``: executions that are not compared."""

    trace: Trace
    rows: np.ndarray
    left_out: frozenset[int] = frozenset()
    with_layers: bool = True


Change = Callable[[Trace, Tree], "Changed | None"]


def agreement(changed: Changed, before: Tree, after: Tree) -> tuple[float, float]:
    """Share of the work in the same executions, and in the same layers, before and after a change."""
    result = []
    kinds = before.activities["kind"].to_numpy()
    execution, _ = found_groups(before)
    for one, other, wanted in zip(found_groups(before), found_groups(after), (True, changed.with_layers)):
        kept = np.flatnonzero((changed.rows >= 0) & (kinds[np.maximum(changed.rows, 0)] != ActivityKind.MEMSET))
        old = changed.rows[kept]
        judged = ~np.isin(execution[old], list(changed.left_out)) if changed.left_out else np.ones(len(old), bool)
        share = compare(other[kept][judged], one[old][judged]).share if wanted else 1.0
        result.append(share)
    return result[0], result[1]


# -- all rows stay --------------------------------------------------------------------------------------------


def rows_shuffled(trace: Trace, tree: Tree) -> Changed:
    """The rows of every table in another order; ranges of one time keep theirs, which says how they nest."""
    rng = np.random.default_rng(1)
    spans = trace.spans
    moment = spans.groupby(["thread_index", "start_ns"], sort=False).ngroup().to_numpy()
    span_order = np.argsort(rng.permutation(moment.max(initial=0) + 1)[moment], kind="stable")
    launch_order, work_order = rng.permutation(len(trace.launches)), rng.permutation(len(trace.activities))
    number = np.empty(len(launch_order), np.int64)
    number[launch_order] = np.arange(len(launch_order))

    def renumbered(frame: pd.DataFrame) -> pd.DataFrame:
        if not len(frame) or "launch_id" not in frame:
            return frame
        launch = frame["launch_id"].to_numpy()
        return frame.assign(launch_id=np.where(launch >= 0, number[np.maximum(launch, 0)], -1))

    shuffled = replace(
        trace,
        spans=_taken(spans, span_order),
        attributes=_attributes(trace, span_order),
        launches=_taken(trace.launches, launch_order),
        activities=_taken(trace.activities, work_order),
        synchronizations=renumbered(trace.synchronizations),
        cuda_events=renumbered(trace.cuda_events),
    )
    return Changed(shuffled, work_order)


def times_scaled(trace: Trace, tree: Tree) -> Changed:
    """Every time three times as far from the beginning, and all a day later."""
    return Changed(_moved(trace, 3, 86_400 * 10**9), _all(trace))


def times_shifted(trace: Trace, tree: Tree) -> Changed:
    """Every time an odd number of nanoseconds later."""
    return Changed(_moved(trace, 1, 123_456_789), _all(trace))


def ranges_renamed(trace: Trace, tree: Tree) -> Changed | None:
    """Words that mean nothing to a profiler become other words, the same ones everywhere; numbers stay."""
    named = (SpanKind.PUSH_POP, SpanKind.START_END, SpanKind.ANNOTATION, SpanKind.MODULE)
    own = np.isin(trace.spans["kind"].to_numpy(), named)
    used = np.unique(trace.spans["name_id"].to_numpy()[own])
    texts = [str(text) for text in trace.strings[used[used >= 0]]]
    renamed = [_other_words(text) for text in texts]
    if renamed == texts:
        return None
    strings = np.append(np.array(trace.strings, object), np.array(renamed, object))
    new = np.arange(len(trace.strings))
    new[used[used >= 0]] = len(trace.strings) + np.arange(len(renamed))
    name = trace.spans["name_id"].to_numpy()
    names = np.where(own & (name >= 0), new[np.maximum(name, 0)], name).astype(name.dtype)
    return Changed(replace(trace, strings=strings, spans=trace.spans.assign(name_id=names)), _all(trace))


# Words by which programs say what a range is, and names of operators and conventions, which are no user's words.
_MEANT = re.compile(
    r"forward|backward|step|iter|warm|batch|epoch|token|layer|block|optim|train|eval|infer|model|prefill|decode|execute|"
    r"context|generation|capture|attention|mlp|sublayer|loader|benchmark|frame|main|grad|loss|init|pass|profil|"
    r"nccl|cub|cuda|aten|void|thunk|hlo|fsdp|module|compiled|call|fx",
    re.I,
)  # fmt: skip


def _other_words(text: str) -> str:
    if text.startswith("nn.Module: "):  # a class, which may be called anything
        return re.sub(r"(?<=: )[A-Za-z]+", lambda word: f"X{word[0][::-1].lower()}", text)
    if re.search(r"::|\{|#|\(|Backward|/", text):
        return text
    return re.sub(r"[A-Za-z]{3,}", lambda word: word[0] if _MEANT.search(word[0]) else word[0][::-1].lower(), text)


def outer_range(trace: Trace, tree: Tree) -> Changed | None:
    """A range around everything on each thread that launches."""
    if not len(trace.spans) or not len(trace.launches) or not len(tree.iterations):
        return None  # without an execution: the range may be one
    threads = np.unique(trace.launches["thread_index"].to_numpy())
    threads = threads[threads >= 0]
    begin = min(int(trace.spans["start_ns"].min()), int(trace.launches["start_ns"].min())) - 1_000
    end = max(int(trace.spans["end_ns"].max()), int(trace.launches["end_ns"].max())) + 1_000
    process = trace.threads["process_index"].to_numpy()[threads]
    return Changed(
        _with_ranges(trace, "session", threads, process, [begin] * len(threads), [end] * len(threads)), _all(trace)
    )


def foreign_thread(trace: Trace, tree: Tree) -> Changed | None:
    """A thread of the first process that marks what it does and launches nothing."""
    if not len(trace.spans) or not len(trace.activities):
        return None
    begin, end = int(trace.activities["start_ns"].min()), int(trace.activities["end_ns"].max())
    rng = Random(2)
    starts = sorted(rng.randrange(begin, max(end - 10_000, begin + 1)) for _ in range(7))
    threads = pd.concat(
        [trace.threads, trace.threads.iloc[:1].assign(thread_id=999_999, name="watcher")], ignore_index=True
    )
    wider = replace(trace, threads=threads)
    index = np.full(7, len(trace.threads))
    process = np.full(7, threads["process_index"].iloc[-1])
    return Changed(_with_ranges(wider, "heartbeat", index, process, starts, [at + 3_000 for at in starts]), _all(trace))


def foreign_process(trace: Trace, tree: Tree) -> Changed | None:
    """Another process with a few kernels of its own on a device of its own."""
    if not len(trace.activities) or not len(trace.launches):
        return None
    rng = np.random.default_rng(3)
    begin, end = int(trace.activities["start_ns"].min()), int(trace.activities["end_ns"].max())
    at = np.sort(rng.integers(begin, max(end, begin + 2), 11))
    process = len(trace.processes)
    strings = np.append(np.array(trace.strings, object), [f"void composite_{k}(float4*)" for k in range(4)])
    names = len(trace.strings) + rng.integers(0, 4, len(at))
    first = int(max(trace.launches["correlation_id"].max(), trace.activities["correlation_id"].max())) + 1
    common = {"process_index": process, "correlation_id": first + np.arange(len(at))}
    launches = _like(
        trace.launches, len(at), start_ns=at - 6_000, end_ns=at - 2_000, thread_index=len(trace.threads), **common
    )
    named = {"name_id": names, "short_name_id": names, "start_ns": at, "end_ns": at + 2_000, "device_id": 0}
    no_graph = dict.fromkeys(("graph_node_id", "graph_id", "bytes", "copy_kind"), 0)
    work = _like(trace.activities, len(at), kind=int(ActivityKind.KERNEL), **named, **no_graph, **common)
    devices = trace.devices
    if len(devices):
        gpu = int(devices["gpu_index"].max()) + 1
        devices = pd.concat(
            [devices, devices.iloc[:1].assign(process_index=process, device_id=0, gpu_index=gpu)], ignore_index=True
        )
    wider = replace(
        trace,
        strings=strings,
        devices=devices,
        processes=_longer(trace.processes, _like(trace.processes, 1, process_id=77_777, global_id=77_777, rank=-1)),
        threads=_longer(trace.threads, _like(trace.threads, 1, process_index=process, thread_id=77_777, name="")),
        launches=_longer(trace.launches, launches),
        activities=_longer(trace.activities, work),
    )
    return Changed(_uncounted(wider), np.append(_all(trace), np.full(len(at), -1)))


# -- something is taken ---------------------------------------------------------------------------------------


def last_cut_off(trace: Trace, tree: Tree) -> Changed | None:
    """Nothing that began after the middle of the last execution's launches."""
    return _ended(trace, tree, last=1)


def halved(trace: Trace, tree: Tree) -> Changed | None:
    """The first half of the executions, and the middle one in part."""
    return _ended(trace, tree, last=(len(tree.iterations) + 1) // 2)


def inner_ranges_gone(trace: Trace, tree: Tree) -> Changed | None:
    """No range inside a layer was recorded."""
    return _without_level(trace, tree, Level.OPERATION, with_layers=True)


def layer_ranges_gone(trace: Trace, tree: Tree) -> Changed | None:
    """No range of a layer or inside one was recorded: the executions stay."""
    return _without_level(trace, tree, Level.LAYER, with_layers=False)


_ALL = (
    rows_shuffled, times_scaled, times_shifted, ranges_renamed, outer_range, foreign_thread, foreign_process,
    last_cut_off, halved, inner_ranges_gone, layer_ranges_gone,
)  # fmt: skip
CHANGES: dict[str, Change] = {change.__name__: change for change in _ALL}


def _ended(trace: Trace, tree: Tree, *, last: int) -> Changed | None:
    """The recording without the last executions; of the first of those a half stays."""
    order = tree.iterations.sort_values("start_ns").index.to_numpy()
    if len(order) - last < 3 or tree.nodes["process_index"].iloc[tree.iterations["node_id"]].nunique() > 1:
        return None
    launch, number = tree.activities["launch_id"].to_numpy(), tree.activities["iteration_index"].to_numpy()
    cut, left_out = order[-last], frozenset(order[-last:].tolist())
    inside = np.unique(launch[(number == cut) & (launch >= 0)])
    if len(inside) < 4:
        return None
    end = int(np.median(trace.launches["start_ns"].to_numpy()[inside]))
    launches = trace.launches["start_ns"].to_numpy() < end
    kept = np.flatnonzero(
        np.where(launch >= 0, launches[np.maximum(launch, 0)], trace.activities["start_ns"].to_numpy() < end)
    )
    spans = np.flatnonzero(trace.spans["start_ns"].to_numpy() < end)
    ended = trace.spans.iloc[spans].assign(end_ns=lambda rows: rows["end_ns"].clip(upper=end))
    number_of = np.cumsum(launches) - 1

    def renumbered(frame: pd.DataFrame) -> pd.DataFrame:
        if not len(frame) or "launch_id" not in frame:
            return frame
        own = frame["launch_id"].to_numpy()
        frame = frame.assign(launch_id=np.where(own >= 0, number_of[np.maximum(own, 0)], -1))
        return frame[(own < 0) | launches[np.maximum(own, 0)]].reset_index(drop=True)

    shorter = replace(
        trace,
        spans=ended.reset_index(drop=True),
        attributes=_attributes(trace, spans),
        launches=trace.launches[launches].reset_index(drop=True),
        activities=_taken(trace.activities, kept),
        synchronizations=renumbered(trace.synchronizations),
        cuda_events=renumbered(trace.cuda_events),
    )
    return Changed(_uncounted(shorter), kept, left_out)


def _without_level(trace: Trace, tree: Tree, level: Level, *, with_layers: bool) -> Changed | None:
    recorded = tree.nodes["level"].to_numpy()[1 : len(trace.spans) + 1]
    gone = (recorded >= int(level)) & (recorded < int(Level.KERNEL))
    is_execution = tree.nodes["iteration_index"].to_numpy()[1 : len(trace.spans) + 1] >= 0
    if len(recorded) != len(trace.spans) or not (gone & is_execution).any() or gone.all():
        return None
    kept = np.flatnonzero(~gone)
    fewer = replace(trace, spans=_taken(trace.spans, kept), attributes=_attributes(trace, kept))
    return Changed(fewer, _all(trace), with_layers=with_layers)


# -- how ------------------------------------------------------------------------------------------------------


def _all(trace: Trace) -> np.ndarray:
    return np.arange(len(trace.activities))


def _uncounted(trace: Trace) -> Trace:
    """The number of rows in the file is not that of the changed recording."""
    return replace(trace, provenance=replace(trace.provenance, file_operation_count=-1))


def _taken(frame: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
    return frame.iloc[rows].reset_index(drop=True)


def _longer(frame: pd.DataFrame, more: pd.DataFrame) -> pd.DataFrame:
    """A frame and more rows, with the types of the first."""
    return pd.concat([frame, more], ignore_index=True).astype({name: frame.dtypes[name] for name in frame})


def _like(frame: pd.DataFrame, count: int, **columns: object) -> pd.DataFrame:
    """So many copies of a frame's first row, with other values."""
    return frame.iloc[np.zeros(count, int)].reset_index(drop=True).assign(**columns)


def _with_ranges(
    trace: Trace, text: str, threads: np.ndarray, processes: np.ndarray, starts: list[int], ends: list[int]
) -> Trace:
    """The trace with more ranges of one text, as the profiler would have written them."""
    kind = SpanKind.ANNOTATION if trace.provenance.collector == "torch" else SpanKind.PUSH_POP
    base = trace.spans if len(trace.spans) else typed_frame(dict(trace.spans.dtypes.astype(str)))
    added = _like(
        base, len(starts), kind=int(kind), thread_index=threads, process_index=processes, domain_index=-1,
        name_id=len(trace.strings), start_ns=starts, end_ns=ends, source_row_id=int(base["source_row_id"].max()) + 1
        + np.arange(len(starts)), is_open=False, is_cross_thread=False, payload_text_id=-1,
    )  # fmt: skip
    if "shape_text_id" in added:
        added["shape_text_id"] = -1
    spans = _longer(base, added)
    # a range around others is written before them: ranges of one time nest in the order of their rows
    order = np.lexsort((np.append(np.ones(len(base)), np.zeros(len(added))), spans["start_ns"].to_numpy()))
    rows = np.where(order < len(base), order, -1)
    strings = np.append(np.array(trace.strings, object), text)
    return replace(trace, strings=strings, spans=_taken(spans, order), attributes=_attributes(trace, rows))


def _attributes(trace: Trace, rows: np.ndarray) -> pd.DataFrame:
    """What is known of these ranges; −1: of one that was added. Rows and columns may be missing: not known."""
    if not len(trace.attributes):
        return trace.attributes
    taken = trace.attributes.reindex(rows).reset_index(drop=True)
    blank = {name: "" for name in ("shape_text", "layer_type") if name in taken}
    for name, value in blank.items():
        taken[name] = taken[name].astype(object).fillna(value)
    numbers = [name for name in taken if name not in blank and pd.api.types.is_integer_dtype(trace.attributes[name])]
    return taken.fillna(dict.fromkeys(numbers, -1)).astype({name: trace.attributes[name].dtype for name in numbers})


def _moved(trace: Trace, factor: int, shift: int) -> Trace:
    """All times of a trace scaled about its first one, and shifted."""
    origin = min(
        (int(frame["start_ns"].min()) for frame in (trace.spans, trace.launches, trace.activities) if len(frame)),
        default=0,
    )

    def moved(times: pd.Series | np.ndarray) -> pd.Series | np.ndarray:
        return (times - origin) * factor + origin + shift

    frames = {}
    for one in fields(trace):
        frame = getattr(trace, one.name)
        if isinstance(frame, pd.DataFrame) and len(frame):
            columns = [c for c in ("start_ns", "end_ns", "timestamp_ns") if c in frame]
            frames[one.name] = frame.assign(**{c: frame[c].where(frame[c] < 0, moved(frame[c])) for c in columns})
    return replace(trace, **frames, module_loading_ns=moved(trace.module_loading_ns))
