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
from xsp_post.replay.calls import LONG_HOST_NS
from xsp_post.replay.edges import EVENT_WAIT, WAITS
from xsp_post.replay.graph import Amounts, Graph
from xsp_post.replay.recording import Calls, Operations
from xsp_post.replay.resources import HOST, SHORTER, SYNCHRONISATION, Altered, usual

SUBJECTS = ("kernel", "layer", "attention", "copy", "comm", "launch", "sync", "host", "batch")
WORDS = {"layer": ("roof",), "kernel": ("roof",), "attention": ("fused",), "copy": ("overlap", "none"),
         "launch": ("graph",), "sync": ("none",), "host": ("none",)}  # fmt: skip
_WITHOUT = {
    "fused": "one kernel does what two products and the kernels between them do, in the products' time",
    "none": "what these copies bring is there already, and nobody launches them or waits for them",
}  # fmt: skip
_GRAPH_LAUNCH_NS = 5_000, 10_000  # one launch of a whole graph: between these
_GRAPH_GAP_NS = 1_000  # between kernels of a graph, at most
_TO_HOST, WITHIN_DEVICE = (rf"(?i)D(evice)?[- ]?(to|2)[- ]?{end}" for end in "HD")
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


def apply_change(change: Change, altered: Altered, results: Results, capture_id: int) -> Effect:
    """Alter a replay (in place). Raises `UsageError` where nothing matches."""
    effect = Effect(change.text)
    if change.subject == "launch":
        _launches(change, altered, effect)
    elif change.subject == "sync":
        _synchronisations(change, altered, effect)
    elif change.subject == "host":
        _host(change, altered, results, capture_id, effect)
    else:
        _operations(change, altered, results, capture_id, effect)
    if not effect.operation_count and not effect.call_count:
        raise UsageError(f"--change {change.text}: nothing in the capture matches it", code="change-matches-nothing")
    return effect


def _operations(change: Change, altered: Altered, results: Results, capture_id: int, effect: Effect) -> None:
    operations, amounts = altered.operations, altered.amounts
    chosen = _chosen(change, operations, results, capture_id)
    effect.operation_count = int(chosen.sum())
    effect.device_ns = int(operations.duration_ns[chosen].sum())
    effect.names = sorted({str(name) for name in pd.unique(operations.name[chosen])})[:5]
    if change.word == "overlap":
        _overlap(altered, np.flatnonzero(chosen), effect)
        return
    factor: float | np.ndarray = 1.0 if change.factor is None else change.factor
    if change.word == "roof":
        factor = _roof_factors(change, operations, results)
        unknown = chosen & np.isnan(factor)
        if unknown.any():
            lost = operations.duration_ns[unknown].sum() / max(effect.device_ns, 1)
            effect.left_out = (
                f"{unknown.sum()} operations ({lost:.0%} of their time) have no known flop and bytes: left as they are"
            )
        chosen &= ~unknown
        effect.operation_count *= bool(chosen.any())
        effect.assumption = "each reaches the roofline of its GPU"
    elif change.word in ("fused", "none"):
        altered.release(chosen)
        altered.remove(chosen)
        effect.assumption = _WITHOUT[change.word]
    elif change.subject == "batch":
        effect.assumption = "the time of each kernel grows with the batch, host and copies do not"
    altered.scale(chosen, np.nan_to_num(factor, nan=1.0))
    amounts.duration_ns[chosen] = np.maximum(amounts.duration_ns[chosen] + (change.added_ns or 0), 0)
    if change.subject == "layer" and change.factor is not None:
        # a layer of a CPU run is also the time between its operators
        calls = operations.call[chosen & altered.graph.recording.stream_is_host[operations.stream]]
        inside = calls[1:][calls[1:] == calls[:-1] + 1]
        amounts.before_ns[inside] = np.rint(amounts.before_ns[inside] * change.factor)


def _chosen(change: Change, operations: Operations, results: Results, capture_id: int) -> np.ndarray:
    """Which operations a change is about; bool."""
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
    if change.word in WORDS["copy"]:
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


def _roof_factors(change: Change, operations: Operations, results: Results) -> np.ndarray:
    """Share of its time that each operation would take at the roofline; NaN where that is not known."""
    ratio = np.full(len(operations), np.nan)
    by_layer = change.subject == "layer"
    kernel_layer = np.where(operations.kind == ActivityKind.KERNEL, operations.layer, -1)  # copies have no roof
    for table, key in (("a08", "name"), ("a10", "name"), ("a11", "layer_index"), ("a14", "layer_index")):
        if (key == "layer_index" and not by_layer) or table not in results.tables():
            continue
        known = results.frame(table, [key, "roof_ratio"]).dropna()
        known = known[known["roof_ratio"] > 0]
        if not len(known):
            continue
        values = known.assign(**{key: known[key].astype(object)}).groupby(key)["roof_ratio"].median()
        asked = pd.Series(np.asarray(operations.name, object) if key == "name" else kernel_layer)
        ratio = np.where(np.isnan(ratio), asked.map(values).to_numpy(float), ratio)
    return np.minimum(ratio, 1.0)


def _overlap(altered: Altered, rows: np.ndarray, effect: Effect) -> None:
    """Copies get streams of their own, one for each direction, and hold back neither kernels nor the host. What was
    copied before the executions is weights, as a rule, and stays."""
    graph, amounts, operations = altered.graph, altered.amounts, altered.operations
    first = altered.executions.first_call
    rows = rows[operations.place[rows] >= first[first >= 0].min(initial=len(altered.calls))]
    streams, names = len(graph.recording.stream_process), operations.name
    is_back = np.append(found_in(names.categories.astype(str).tolist(), _TO_HOST), False)[names.codes[rows]]
    amounts.stream[rows] += streams * (1 + is_back)
    amounts.is_blocking[rows] = False
    way = usual(amounts.latency_ns, ~np.isin(np.arange(len(operations)), rows))
    amounts.latency_ns[rows] = np.minimum(amounts.latency_ns[rows], way)
    calls = operations.call[rows]
    calls = calls[calls >= 0]
    own = altered.usual(amounts.own_ns)
    amounts.own_ns[calls] = np.where(amounts.own_ns[calls] > 0, np.minimum(amounts.own_ns[calls], own), own)
    waits = np.flatnonzero(amounts.waits & (altered.calls.wait == WAITS.index(EVENT_WAIT)))
    amounts.waits[waits[np.isin(graph.learnt.waited[waits], rows)]] = False
    amounts.orders = amounts.orders[~np.isin(amounts.orders, rows).any(axis=1)]
    effect.call_count = len(distinct(calls))
    effect.assumption = (
        "copies run on a stream of their own for each direction, from pinned memory; what needs their data was "
        "written early enough, so that only a wait for the whole device waits for them"
    )


def _launches(change: Change, altered: Altered, effect: Effect) -> None:
    graph, amounts, calls, operations = altered.graph, altered.amounts, altered.calls, altered.operations
    launched, launching = altered.launches()
    effect.call_count = int(launching.sum())
    if change.word != "graph":
        own = np.rint(amounts.own_ns[launching] * (1.0 if change.factor is None else change.factor))
        amounts.own_ns[launching] = np.maximum(own + (change.added_ns or 0), 0)
        return
    # a graph holds the launches between two calls that are not launches, within one execution
    iteration = np.full(len(calls), -1, np.int64)
    iteration[operations.call[launched]] = operations.iteration[launched]
    follows = np.zeros(len(calls), bool)
    follows[1:] = launching[1:] & launching[:-1] & (calls.thread[1:] == calls.thread[:-1])
    follows[1:] &= iteration[1:] == iteration[:-1]
    heads = launching & ~follows & np.append(follows[1:], False)
    loads = altered.loading() & (follows | heads)
    amounts.own_ns[follows & ~loads] = 0
    amounts.before_ns[follows & (amounts.before_ns < LONG_HOST_NS)] = 0
    shorter = heads & ~loads
    amounts.own_ns[shorter] = np.clip(amounts.own_ns[shorter], *_GRAPH_LAUNCH_NS)
    inside = launched & follows[np.maximum(operations.call, 0)] & ~graph.recording.behind_host
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


def _synchronisations(change: Change, altered: Altered, effect: Effect) -> None:
    amounts = altered.amounts
    rows = np.flatnonzero(amounts.waits & (altered.calls.synchronises | altered.calls.allocates))
    effect.call_count = len(rows)
    if change.word == "none":
        amounts.waits[rows] = False
        # a free has its own work to do, when the device has ended
        amounts.own_ns[rows] = np.where(altered.calls.allocates[rows], amounts.after_ns[rows], 0)
        effect.call_count += altered.release(altered.blocking_launches())
        effect.assumption = "no host call waits for the device, and no decision on the host needs a result of it"
        return
    if change.factor is not None:
        SHORTER[SYNCHRONISATION](altered, change.factor)
    amounts.after_ns[rows] += change.added_ns or 0


def _host(change: Change, altered: Altered, results: Results, capture_id: int, effect: Effect) -> None:
    """Host time between the calls: all of it, or inside the ranges that a pattern names; what is added comes before
    the first call of each execution, or range. ``none``: nothing of what is inside them is done, on the device
    neither."""
    amounts, calls, factor = altered.amounts, altered.calls, 0.0 if change.word == "none" else change.factor
    part, is_inside = amounts.before_ns, np.zeros(len(calls), bool)
    first = altered.executions.first_call
    spans = np.zeros((0, 3), np.int64)
    if change.pattern is not None:
        spans = _ranges(change.pattern, altered.graph, results, capture_id)
        first, part, is_inside = _inside(spans, calls, amounts)
    first = first[first >= 0]
    effect.call_count = int((part > 0).sum()) if factor is not None else len(first)
    if change.word == "none":
        amounts.own_ns[is_inside] = amounts.after_ns[is_inside] = 0
        amounts.waits[is_inside] = False
        call = altered.operations.call
        altered.without_operations((call >= 0) & is_inside[call])
        effect.call_count = int((is_inside | (part > 0)).sum())
        effect.assumption = "what is inside these ranges is done elsewhere"
    elif factor is not None:
        effect.assumption = (
            "the time between calls and in those that take or free memory changes, that in other calls does not"
        )
    if factor is None:
        np.add.at(amounts.before_ns, first, change.added_ns or 0)
        np.maximum(amounts.before_ns, 0, out=amounts.before_ns)
    elif change.pattern is None:
        SHORTER[HOST](altered, factor)
    else:
        amounts.before_ns += np.rint(np.clip(part, 0, amounts.before_ns) * (factor - 1)).astype(np.int64)
        takes = is_inside & calls.allocates  # memory: the work of the driver on the host, as in the experiment
        for times in (amounts.own_ns, amounts.after_ns):
            times[takes] = np.rint(times[takes] * factor)
        _shorten_edges(altered, spans, factor)


def _inside(spans: np.ndarray, calls: Calls, amounts: Amounts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of spans (process, begin, end): the first call in each, −1 none; of calls: how much of the host time before each
    lies in one, and whether it does."""
    first = np.full(len(spans), -1, np.int64)
    part, is_inside = np.zeros(len(calls), np.int64), np.zeros(len(calls), bool)
    for number in np.unique(calls.process).tolist():
        mine, asked = np.flatnonzero(calls.process == number), np.flatnonzero(spans[:, 0] == number)
        begin, end = spans[asked, 1], spans[asked, 2]
        start = calls.start_ns[mine]
        low = np.append(mine, -1)[np.searchsorted(start, begin, side="left")]
        first[asked] = np.where(np.append(calls.start_ns, 0)[low] < end, low, -1)
        covered = covered_before(begin, end, start)
        part[mine] = covered - covered_before(begin, end, start - amounts.before_ns[mine])
        is_inside[mine] = covered_before(begin, end, start + 1) > covered
    return first, part, is_inside


def _shorten_edges(altered: Altered, spans: np.ndarray, factor: float) -> None:
    """Of what executions do before their first call and after their last one, what lies in these spans (in place)."""
    calls, executions, process = altered.calls, altered.executions, altered.executions.process
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


def _ranges(pattern: UserPattern, graph: Graph, results: Results, capture_id: int) -> np.ndarray:
    """Process, begin and end of each range whose name matches."""
    nodes = of_captures(results, "nodes", capture_id, ["name", "process_id", "start_ns", "end_ns"])
    codes, names = pd.factorize(nodes["name"].astype(object))
    nodes = nodes[np.append(pattern.found_in(list(map(str, names))), False)[codes]]
    number = {one: number for number, one in enumerate(graph.recording.processes)}
    process = nodes["process_id"].map(number).fillna(-1).astype(np.int64)
    return np.stack([process, nodes["start_ns"], nodes["end_ns"]], axis=1).astype(np.int64)
