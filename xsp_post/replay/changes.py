"""What-if changes: their texts (``kernel:.*sgemm.*=0.5x``) → edits of a replay's amounts."""

import math
import re
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.intervals import covered_before
from xsp_post.base.errors import UsageError
from xsp_post.model.kinds import ActivityKind
from xsp_post.model.results import Results, of_captures
from xsp_post.model.schemas.units import TIME_UNITS
from xsp_post.names.attention import unfused_attention
from xsp_post.names.patterns import found_in
from xsp_post.names.user_patterns import UserPattern
from xsp_post.replay.calls import LONG_HOST_NS, loads_code
from xsp_post.replay.edges import EVENT_WAIT, WAITS
from xsp_post.replay.executions import Executions
from xsp_post.replay.graph import Amounts, Graph

SUBJECTS = ("kernel", "layer", "attention", "copy", "comm", "launch", "sync", "host", "batch")
WORDS = {"layer": ("roof",), "kernel": ("roof",), "attention": ("fused",), "copy": ("overlap",), "launch": ("graph",),
         "sync": ("none",), "host": ("none",)}  # fmt: skip
_GRAPH_LAUNCH_NS = 5_000, 10_000  # one launch of a whole graph: between these
_GRAPH_GAP_NS = 1_000  # between kernels of a graph, at most
_TO_HOST = r"(?i)D(?:evice)?[- ]?(?:to|2)[- ]?H"
_TEXT = re.compile(r"(?P<subject>[a-z]+)(?::(?P<pattern>.+))?=(?P<value>[^=]+)$", re.DOTALL)
_FACTOR = re.compile(r"(\d+(?:\.\d*)?|\.\d+)x$")
_ADDED = re.compile(r"([+-]\d+(?:\.\d*)?)(ns|us|µs|ms|s)$")


@dataclass(frozen=True)
class Change:
    """One change as asked for. Exactly one of factor, added_ns and word is set."""

    text: str
    subject: str
    pattern: UserPattern | None
    factor: float | None = None
    added_ns: int | None = None
    word: str = ""


@dataclass
class Effect:
    """What a change touched, and on what assumption."""

    text: str
    operation_count: int = 0
    call_count: int = 0
    device_ns: int = 0  # recorded time of the operations it touched
    assumption: str = ""
    left_out: str = ""  # what it could not be applied to, and why
    names: list[str] = field(default_factory=list)


def parse_change(text: str) -> Change:
    """Read one change. Raises `UsageError` naming what is wrong with it."""
    match = _TEXT.match(text.strip())
    if match is None or match["subject"] not in SUBJECTS:
        raise _bad(
            text, f"is not a change: it begins with one of {', '.join(SUBJECTS)} in the form SUBJECT[:PATTERN]=VALUE"
        )
    subject, value = match["subject"], match["value"].strip()
    pattern = None
    if match["pattern"]:
        pattern = UserPattern(match["pattern"], f"--change {subject}:")
    if (subject in ("kernel", "layer") or (subject, value) == ("host", "none")) and pattern is None:
        raise _bad(text, f"needs a pattern: {subject}:REGEX={value}")
    if (factor := _FACTOR.match(value)) is not None:
        number = float(factor[1])
        if not math.isfinite(number):
            raise _bad(text, "has a factor that is not a number")
        return Change(text, subject, pattern, factor=number)
    if (added := _ADDED.match(value)) is not None and subject != "batch":
        return Change(text, subject, pattern, added_ns=round(float(added[1]) * TIME_UNITS[added[2]]))
    if value in WORDS.get(subject, ()):
        return Change(text, subject, pattern, word=value)
    known = " or ".join(("a factor (0.5x)", "a time (+2ms)", *WORDS.get(subject, ())))
    raise _bad(text, f"has the value {value!r}; {subject} takes {known}")


def _bad(text: str, problem: str) -> UsageError:
    return UsageError(f"--change {text}: {problem}", code="bad-change")


def apply_change(
    change: Change, graph: Graph, amounts: Amounts, executions: Executions, results: Results, capture_id: int
) -> Effect:
    """Alter the amounts (in place). Raises `UsageError` where nothing matches."""
    effect = Effect(change.text)
    if change.subject in ("kernel", "layer", "attention", "copy", "comm", "batch"):
        _operations(change, graph, amounts, executions, results, capture_id, effect)
    elif change.subject == "launch":
        _launches(change, graph, amounts, effect)
    elif change.subject == "sync":
        _synchronisations(change, graph, amounts, effect)
    else:
        _host(change, graph, amounts, executions, results, capture_id, effect)
    if not effect.operation_count and not effect.call_count:
        raise UsageError(f"--change {change.text}: nothing in the capture matches it", code="change-matches-nothing")
    return effect


def _operations(
    change: Change, graph: Graph, amounts: Amounts, executions: Executions, results: Results, capture_id: int,
    effect: Effect,
) -> None:  # fmt: skip
    operations = graph.recording.operations
    chosen = _chosen(change, graph, results, capture_id)
    rows = np.flatnonzero(chosen)
    effect.operation_count = len(rows)
    effect.device_ns = int(operations.duration_ns[rows].sum())
    effect.names = sorted({str(name) for name in pd.unique(operations.name[rows])})[:5]
    if change.word == "overlap":
        _overlap(graph, amounts, rows, effect)
        return
    factor: float | np.ndarray = 1.0 if change.factor is None else change.factor
    if change.word == "roof":
        factor, known = _roof_factors(change, graph, results, capture_id, rows)
        missing = int((~known).sum())
        if missing:
            lost = operations.duration_ns[rows[~known]].sum() / max(effect.device_ns, 1)
            effect.left_out = (
                f"{missing} operations ({lost:.0%} of their time) have no known flop and bytes: left as they are"
            )
        if not known.any():
            rows, factor, effect.operation_count = rows[:0], factor[:0], 0
        effect.assumption = "each reaches the roofline of its GPU"
    elif change.word == "fused":
        factor = 0.0
        effect.assumption = "one kernel does what two products and the kernels between them do, in the products' time"
    elif change.subject == "batch":
        effect.assumption = "the time of each kernel grows with the batch, host and copies do not"
    amounts.duration_ns[rows] = np.maximum(np.rint(amounts.duration_ns[rows] * factor) + (change.added_ns or 0), 0)
    if change.subject == "copy" and change.factor is not None:
        shorten_copy_calls(graph, amounts, rows, change.factor)
    on_host = rows[graph.recording.stream_is_host[operations.stream[rows]]]
    if len(on_host) and change.subject == "layer":  # a layer of a CPU run is also the time between its operators
        calls = operations.call[on_host]
        inside = calls[1:][calls[1:] == calls[:-1] + 1]
        amounts.before_ns[inside] = np.rint(
            amounts.before_ns[inside] * (1.0 if isinstance(factor, np.ndarray) else factor)
        )


def shorten_copy_calls(graph: Graph, amounts: Amounts, copies: np.ndarray, factor: float) -> None:
    """What calls that block for these copies (rows) do before and after them takes ``factor`` times as long."""
    rows = copies[amounts.is_blocking[copies]]
    calls = np.unique(graph.recording.operations.call[rows])
    for times, of in ((amounts.latency_ns, rows), (amounts.after_ns, calls)):
        times[of] = np.rint(times[of] * factor)


def without_operations(graph: Graph, amounts: Amounts, gone: np.ndarray) -> np.ndarray:
    """Operations that are gone (bool) take no time and leave no gap; the calls that launched nothing else."""
    amounts.duration_ns[gone] = amounts.latency_ns[gone] = 0
    amounts.gap_ns[gone] = np.minimum(amounts.gap_ns[gone], 0)
    call, ends = graph.recording.operations.call, np.zeros(len(graph.recording.calls) + 1, bool)
    ends[call[gone]] = True
    ends[call[~gone]] = False
    return np.flatnonzero(ends[:-1])  # the last one: no call


def _chosen(change: Change, graph: Graph, results: Results, capture_id: int) -> np.ndarray:
    """Which operations a change is about; bool."""
    operations = graph.recording.operations
    is_kernel = operations.kind == ActivityKind.KERNEL
    talks = operations.are("communication")
    if change.subject == "layer" and change.pattern is not None:
        return np.isin(operations.layer, _layers(change.pattern, results, capture_id))
    if change.subject == "attention":
        rows = np.flatnonzero(is_kernel)
        inside, _ = unfused_attention(operations.name[rows], operations.stream[rows], operations.start_ns[rows])
        return np.isin(np.arange(len(operations)), rows[inside])
    mask = {
        "kernel": is_kernel, "batch": is_kernel & ~talks, "comm": talks,
        "copy": np.isin(operations.kind, (ActivityKind.MEMCPY, ActivityKind.MEMSET)),
    }[change.subject]  # fmt: skip
    if change.word == "overlap":
        mask = operations.kind == ActivityKind.MEMCPY
    if change.pattern is None:
        return mask
    codes, names = pd.factorize(operations.name)
    return mask & np.append(change.pattern.found_in(list(map(str, names))), False)[codes]


def _layers(pattern: UserPattern, results: Results, capture_id: int) -> np.ndarray:
    layers = of_captures(results, "layers", capture_id, ["layer_index", "layer_name", "layer_path"])
    layers = layers.drop_duplicates("layer_index")
    paths, names = (layers[column].astype(str).tolist() for column in ("layer_path", "layer_name"))
    return layers["layer_index"].to_numpy()[pattern.found_in(paths) | pattern.found_in(names)]


def _roof_factors(
    change: Change, graph: Graph, results: Results, capture_id: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Share of its time that each operation would take at the roofline, and whether that is known."""
    operations = graph.recording.operations
    ratio = np.full(len(rows), np.nan)
    by_layer = change.subject == "layer"
    for table, key in (("a08", "name"), ("a10", "name"), ("a11", "layer_index"), ("a14", "layer_index")):
        if (key == "layer_index" and not by_layer) or table not in results.tables():
            continue
        known = results.frame(table, [key, "roof_ratio"]).dropna()
        known = known[known["roof_ratio"] > 0]
        if not len(known):
            continue
        values = known.assign(**{key: known[key].astype(object)}).groupby(key)["roof_ratio"].median()
        asked = pd.Series((np.asarray(operations.name, object) if key == "name" else operations.layer)[rows])
        found = asked.map(values).to_numpy(float)
        ratio = np.where(np.isnan(ratio), found, ratio)
    known_rows = ~np.isnan(ratio)
    return np.where(known_rows, np.minimum(ratio, 1.0), 1.0), known_rows


def _overlap(graph: Graph, amounts: Amounts, rows: np.ndarray, effect: Effect) -> None:
    """Copies get streams of their own, one for each direction, and hold back neither kernels nor the host."""
    streams, names = len(graph.recording.stream_process), graph.recording.operations.name
    is_back = np.append(found_in(names.categories.astype(str).tolist(), _TO_HOST), False)[names.codes[rows]]
    amounts.stream[rows] += streams * (1 + is_back)
    amounts.is_blocking[rows] = False
    amounts.latency_ns[rows] = np.minimum(
        amounts.latency_ns[rows], usual(amounts.latency_ns, ~np.isin(np.arange(len(amounts.duration_ns)), rows))
    )
    calls = graph.recording.operations.call[rows]
    calls = calls[calls >= 0]
    own = usual(amounts.own_ns, graph.recording.calls.wait < 0)
    amounts.own_ns[calls] = np.where(amounts.own_ns[calls] > 0, np.minimum(amounts.own_ns[calls], own), own)
    waits = np.flatnonzero(amounts.waits & (graph.recording.calls.wait == WAITS.index(EVENT_WAIT)))
    amounts.waits[waits[np.isin(graph.learnt.waited[waits], rows)]] = False
    gone = np.isin(amounts.orders, rows).any(axis=1)
    amounts.orders = amounts.orders[~gone]
    effect.call_count = len(distinct(calls))
    effect.assumption = (
        "copies run on a stream of their own for each direction, from pinned memory; what needs their data was "
        "written early enough, so that only a wait for the whole device waits for them"
    )


def usual(values: np.ndarray, chosen: np.ndarray) -> int:
    """The median of the chosen values above 0, ns; 5 µs where there is none."""
    positive = values[chosen & (values > 0)]
    return int(np.median(positive)) if len(positive) else 5_000


def _launches(change: Change, graph: Graph, amounts: Amounts, effect: Effect) -> None:
    calls, operations = graph.recording.calls, graph.recording.operations
    on_device = (operations.call >= 0) & ~graph.recording.stream_is_host[operations.stream]
    launching = np.zeros(len(calls), bool)
    launching[operations.call[on_device & ~amounts.is_blocking]] = True
    rows = np.flatnonzero(launching)
    effect.call_count = len(rows)
    if change.word != "graph":
        amounts.own_ns[rows] = np.maximum(
            np.rint(amounts.own_ns[rows] * (1.0 if change.factor is None else change.factor)) + (change.added_ns or 0),
            0,
        )
        return
    # a graph holds the launches between two calls that are not launches, within one execution
    iteration = np.full(len(calls), -1, np.int64)
    iteration[operations.call[on_device]] = operations.iteration[on_device]
    follows = np.zeros(len(calls), bool)
    follows[1:] = launching[1:] & launching[:-1] & (calls.thread[1:] == calls.thread[:-1])
    follows[1:] &= iteration[1:] == iteration[:-1]
    heads = launching & ~follows & np.append(follows[1:], False)
    loads = loading(graph) & (follows | heads)
    amounts.own_ns[follows & ~loads] = 0
    amounts.before_ns[follows & (amounts.before_ns < LONG_HOST_NS)] = 0
    shorter = heads & ~loads
    amounts.own_ns[shorter] = np.clip(amounts.own_ns[shorter], *_GRAPH_LAUNCH_NS)
    inside = on_device & follows[np.maximum(operations.call, 0)] & ~graph.recording.behind_host
    amounts.gap_ns[inside] = np.minimum(amounts.gap_ns[inside], _GRAPH_GAP_NS)
    amounts.queue_depth = 0
    effect.operation_count = int(inside.sum())
    graphs = int(heads.sum())
    effect.assumption = (
        f"launches between two synchronisations become {graphs:,} graph{'' if graphs == 1 else 's'}, each launched in "
        "at most "
        f"{_GRAPH_LAUNCH_NS[1] // 1000} µs; the host code between the launches goes where it takes less than "
        f"{LONG_HOST_NS // 1000} µs, and shapes stay the same"
    )
    if loads.any():
        effect.left_out = (
            f"{int(loads.sum()):,} first launches that loaded the code of their kernel: it is loaded with graphs too"
        )


def loading(graph: Graph) -> np.ndarray:
    """Which calls are first launches of a kernel that loaded its code; bool."""
    calls, operations = graph.recording.calls, graph.recording.operations
    rows = (operations.call >= 0) & (operations.kind == ActivityKind.KERNEL) & ~graph.learnt.is_node
    rows = np.flatnonzero(rows)
    call, name = operations.call[rows], operations.name
    kernel = operations.process[rows] * (len(name.categories) + 1) + name.codes[rows]
    result = np.zeros(len(calls), bool)
    result[call[loads_code(calls.start_ns[call], calls.end_ns[call], kernel)]] = True
    return result


def _synchronisations(change: Change, graph: Graph, amounts: Amounts, effect: Effect) -> None:
    rows = np.flatnonzero(amounts.waits)
    effect.call_count = len(rows)
    if change.word == "none":
        amounts.waits[rows] = False
        # a free has its own work to do, when the device has ended
        amounts.own_ns[rows] = np.where(graph.recording.calls.allocates[rows], amounts.after_ns[rows], 0)
        effect.call_count += _release(graph, amounts, blocking_launches(graph, amounts))
        effect.assumption = "no host call waits for the device, and no decision on the host needs a result of it"
        return
    factor = 1.0 if change.factor is None else change.factor
    amounts.after_ns[rows] = np.rint(amounts.after_ns[rows] * factor) + (change.added_ns or 0)
    amounts.own_ns[rows] = np.rint(amounts.own_ns[rows] * factor)


def release_reads(graph: Graph, amounts: Amounts) -> int:
    """Nobody waits for single values that are copied to the host, nor in a launch (in place): how many are."""
    reads = graph.recording.operations.is_read.astype(bool) & amounts.is_blocking
    return _release(graph, amounts, reads | blocking_launches(graph, amounts))


def blocking_launches(graph: Graph, amounts: Amounts) -> np.ndarray:
    """Kernels whose launch returned when they had ended; bool."""
    operations = graph.recording.operations
    is_device = ~graph.recording.stream_is_host[operations.stream]
    return amounts.is_blocking & is_device & (operations.kind == ActivityKind.KERNEL)


def _release(graph: Graph, amounts: Amounts, chosen: np.ndarray) -> int:
    """The calls of these operations do not wait for them (in place): how many."""
    rows = np.flatnonzero(chosen)
    amounts.is_blocking[rows] = False
    amounts.latency_ns[rows] = 0
    amounts.own_ns[graph.recording.operations.call[rows]] = usual(amounts.own_ns, graph.recording.calls.wait < 0)
    return len(rows)


def _host(
    change: Change, graph: Graph, amounts: Amounts, executions: Executions, results: Results, capture_id: int,
    effect: Effect,
) -> None:  # fmt: skip
    """Host time between the calls: of the executions, or inside the ranges that a pattern names. ``none``: nothing of
    what is inside them is done, on the device neither."""
    calls, process = graph.recording.calls, graph.recording.calls.process
    factor = 0.0 if change.word == "none" else change.factor
    if change.pattern is not None:
        spans = _ranges(change.pattern, graph, results, capture_id)
    else:
        spans = _execution_spans(graph, executions)
        if factor is not None:  # with what lies between two executions of a process
            hull = pd.DataFrame(spans).groupby(0, as_index=False).agg({1: "min", 2: "max"})
            spans = hull.to_numpy(np.int64)
    first = np.full(len(spans), -1, np.int64)
    part, is_inside = np.zeros(len(calls), np.int64), np.zeros(len(calls), bool)
    for number in range(len(graph.recording.processes)):
        mine, asked = np.flatnonzero(process == number), np.flatnonzero(spans[:, 0] == number)
        if not len(mine) or not len(asked):
            continue
        low = np.searchsorted(calls.start_ns[mine], spans[asked, 1], side="left")
        first[asked] = np.where(low < len(mine), mine[np.minimum(low, len(mine) - 1)], -1)
        began = calls.start_ns[mine] - amounts.before_ns[mine]
        begin, end = spans[asked, 1], spans[asked, 2]
        covered = covered_before(begin, end, calls.start_ns[mine])
        part[mine] = covered - covered_before(begin, end, began)
        is_inside[mine] = covered_before(begin, end, calls.start_ns[mine] + 1) > covered
    inside = np.flatnonzero(first >= 0)
    inside = inside[calls.start_ns[first[inside]] < spans[inside, 2]]
    effect.call_count = int((part > 0).sum()) if factor is not None else len(inside)
    if change.word == "none":
        amounts.own_ns[is_inside] = amounts.after_ns[is_inside] = 0
        amounts.waits[is_inside] = False
        call = graph.recording.operations.call
        without_operations(graph, amounts, (call >= 0) & is_inside[call])
        effect.call_count = int((is_inside | (part > 0)).sum())
        effect.assumption = "what is inside these ranges is done elsewhere"
    if factor is not None:
        amounts.before_ns += np.rint(np.clip(part, 0, amounts.before_ns) * (factor - 1)).astype(np.int64)
        takes = is_inside & calls.allocates  # memory: the work of the driver on the host, as in the experiment
        for times in (amounts.own_ns, amounts.after_ns):
            times[takes] = np.rint(times[takes] * factor)
        if change.pattern is not None:
            _shorten_edges(graph, executions, spans, factor)
        else:  # what lies before the first call and after the last one
            for edge in (executions.lead_ns, executions.tail_ns, executions.since_ns):
                edge[:] = np.rint(edge * factor)
            early = executions.begin_ns < 0  # before anything that was recorded
            executions.begin_ns[early] *= factor
        effect.assumption = (
            effect.assumption
            or "the time between calls and in those that take or free memory changes, that in other calls does not"
        )
    else:
        np.add.at(amounts.before_ns, first[inside], change.added_ns or 0)
        np.maximum(amounts.before_ns, 0, out=amounts.before_ns)


def _shorten_edges(graph: Graph, executions: Executions, spans: np.ndarray, factor: float) -> None:
    """Of what executions do before their first call and after their last one, what lies in these spans (in place)."""
    calls, process = graph.recording.calls, executions.process
    begin = np.append(calls.start_ns, 0)[executions.first_call] - executions.lead_ns
    last, before = (np.append(calls.end_ns, 0)[of] for of in (executions.last_call, executions.before))
    edges = ((executions.lead_ns, begin), (executions.since_ns, before), (executions.tail_ns, last))
    for number in np.unique(spans[:, 0]).tolist():
        mine = np.flatnonzero(process == number)
        of = spans[spans[:, 0] == number]
        for edge, since in edges:
            until = since[mine] + np.nan_to_num(edge[mine]).astype(np.int64)
            covered = covered_before(of[:, 1], of[:, 2], until) - covered_before(of[:, 1], of[:, 2], since[mine])
            edge[mine] -= np.rint(covered * (1 - factor)).astype(edge.dtype)


def _execution_spans(graph: Graph, executions: Executions) -> np.ndarray:
    """Process, begin and end on the host of each execution."""
    calls = graph.recording.calls
    if (executions.last_call < 0).all():  # the recording as one
        numbers = np.unique(calls.process)
        return np.array([[one, 0, calls.end_ns[calls.process == one].max()] for one in numbers.tolist()], np.int64)
    rows = np.flatnonzero((executions.first_call >= 0) & (executions.last_call >= executions.first_call))
    first, last = executions.first_call[rows], executions.last_call[rows]
    tail = np.nan_to_num(executions.tail_ns[rows]).astype(np.int64)
    begin = calls.start_ns[first] - executions.lead_ns[rows]
    return np.stack([calls.process[first], begin, calls.end_ns[last] + tail], axis=1)


def _ranges(pattern: UserPattern, graph: Graph, results: Results, capture_id: int) -> np.ndarray:
    """Process, begin and end of each range whose name matches."""
    nodes = of_captures(results, "nodes", capture_id, ["name", "process_id", "start_ns", "end_ns"])
    codes, names = pd.factorize(nodes["name"].astype(object))
    nodes = nodes[np.append(pattern.found_in(list(map(str, names))), False)[codes]]
    number = {one: number for number, one in enumerate(graph.recording.processes)}
    process = nodes["process_id"].map(number).fillna(-1).astype(np.int64)
    return np.stack([process, nodes["start_ns"], nodes["end_ns"]], axis=1).astype(np.int64)
