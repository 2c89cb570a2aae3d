"""Tables of a capture → the host calls and device operations of a replay, as arrays in the recorded order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct_pairs
from xsp_post.arrays.intervals import covered_before
from xsp_post.arrays.joins import queued_before
from xsp_post.arrays.repeats import dense
from xsp_post.model.kinds import ActivityKind
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.names.families import FAMILIES, family_index
from xsp_post.names.patterns import found_in_column
from xsp_post.replay.calls import MAKES
from xsp_post.replay.edges import CALLS, EVENT_ORDER, GRAPH_ORDER, HOST_FUNCTION, SYNCHRONISATIONS, WAITS

_OPERATION_COLUMNS = ["capture_id", "iteration_index", "name", "process_id", "device_id", "stream_id",
                      "correlation_id", "start_ns", "end_ns", "launch_start_ns", "launch_end_ns",
                      "launch_thread_id", "layer_index"]  # fmt: skip
COUNTS = ["kernel_count", "copy_count", "graph_count"]
MOST_OPERATIONS = 200_000  # of a capture that is replayed as a whole
PART_OPERATIONS = 10_000  # of a larger one so many are, around its median execution
# A copy of a few values: its time is that of any copy, and who makes it wants to know them.
FEW_BYTES, SHORT_COPY_NS = 4096, 5_000
_NUMBER = {kind: number if kind in WAITS else -1 for number, kind in enumerate(CALLS)}
_ALLOCATES = f"Free|[Aa]lloc|[Rr]egister|MemCreate|{MAKES}"  # calls that take or free memory
FAULT_NS = 50_000  # from the end of one migration of pages to the next: the same kernel waits for both
CLOCK_TOLERANCE_NS = 2_000  # a trace in µs, a device clock beside a host clock


@dataclass
class Calls:
    """Host calls that launch or wait, by process and start. Arrays of shape (calls,)."""

    process: np.ndarray  # number of the process, 0…
    thread: np.ndarray  # number of the thread, 0…
    start_ns: np.ndarray
    end_ns: np.ndarray
    wait: np.ndarray  # index into `edges.WAITS`, −1: no waiting call
    stream_id: np.ndarray  # the stream a call waits for, −1 unknown
    allocates: np.ndarray  # bool: takes or frees memory

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def synchronises(self) -> np.ndarray:
        """Which wait for a device, and not to free memory; bool."""
        return (self.wait >= 0) & (self.wait < len(SYNCHRONISATIONS)) & ~self.allocates

    def ended_last(self, rows: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Of these calls the one that had ended last at each time, −1 none."""
        by_end = rows[np.argsort(self.end_ns[rows], kind="stable")]
        return np.append(by_end, -1)[np.searchsorted(self.end_ns[by_end], at, side="right") - 1]


@dataclass
class Operations:
    """Device operations, ordered by their call, then by start; those without a launch row stand before the next of
    their stream. Arrays of shape (operations,)."""

    kind: np.ndarray
    process: np.ndarray
    stream: np.ndarray  # number of the stream, 0… over all processes and devices
    start_ns: np.ndarray
    end_ns: np.ndarray
    call: np.ndarray  # launching call, −1 none
    place: np.ndarray  # position among the calls where it is enqueued: `call`, or that of the next of its stream
    iteration: np.ndarray  # −1 none
    layer: np.ndarray  # layers.layer_index, −1 none
    kernel: np.ndarray  # kernels.kernel_id, −1 none
    is_read: np.ndarray  # 1: a copy of a few values to the host
    migrated_ns: np.ndarray  # so long pages of unified memory moved while it ran
    name: pd.Categorical

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> np.ndarray:
        return np.maximum(self.end_ns - self.start_ns, 0)

    @cached_property
    def family(self) -> np.ndarray:
        """The family of each name, as an index into `FAMILIES`; of copies and graphs −1."""
        of_name = np.append(family_index(self.name.categories.astype(str).tolist()), np.int8(-1))[self.name.codes]
        return np.where(self.kind == ActivityKind.KERNEL, of_name, -1)

    @cached_property
    def queued(self) -> np.ndarray:
        """Which were in a queue when the first launch was recorded: they are of no execution. bool."""
        return queued_before(self.process, [self.stream], self.start_ns, self.end_ns, self.call >= 0)

    def are(self, family: str) -> np.ndarray:
        """Which are kernels of this family; bool."""
        return self.family == FAMILIES.index(family)


class Recording(NamedTuple):
    """What one capture's replay stands on."""

    calls: Calls
    operations: Operations
    stream_process: np.ndarray  # per stream
    stream_is_host: np.ndarray  # per stream: operators of a CPU run, all of which ended with their own call
    stream_id: np.ndarray  # per stream: its number in the capture
    orders: np.ndarray  # (edges, 2) operations: the second waited for an event after the first
    behind_host: np.ndarray  # per operation, bool: a function of the host comes before it on its stream
    processes: list[int]  # process ids
    iterations: pd.DataFrame  # of this capture: as in the table
    is_part: bool = False  # of a large capture: the median execution and those beside it
    is_shared: bool = False  # `shared_captures`

    @property
    def begin_ns(self) -> int:
        """The earliest time of anything in it."""
        starts = [x.min() for x in (self.calls.start_ns, self.operations.start_ns) if len(x)]
        return int(min(starts)) if starts else 0


def guessed_captures(results: Results) -> set[int]:
    """The captures whose executions are a guess: such executions are none, as in device_windows."""
    chosen = frame_or_empty(results, "execution_candidates", ["capture_id", "is_chosen", "confidence"])
    return set(chosen["capture_id"][chosen["is_chosen"].astype(bool) & chosen["confidence"].astype(str).eq("low")])


def shared_captures(results: Results) -> set[int]:
    """The captures of `xsp-post run` whose process measured others in between: what lies between two executions is
    none of the program."""
    captures = frame_or_empty(results, "captures", ["capture_id", "run_process"])
    return set(captures["capture_id"][captures["run_process"].astype(object).fillna("").ne("")])


def read_recording(results: Results, capture_id: int) -> Recording:
    """The calls and operations of one capture, from a store or an analysis in memory; of a large one a part."""
    iterations = frame_or_empty(results, "iterations")
    wanted = iterations["capture_id"].eq(capture_id) & (capture_id not in guessed_captures(results))
    iterations = iterations[wanted].reset_index(drop=True)
    span = _part(results, capture_id, iterations)
    rows, name = _operations(results, capture_id, span)
    edges = of_captures(results, "dependencies", capture_id)
    if span is not None:
        edges, iterations = (frame[frame["start_ns"].between(*span)] for frame in (edges, iterations))
        iterations = iterations.reset_index(drop=True)
    waits = edges[edges["kind"].isin(CALLS)]
    processes = sorted({*rows["process_id"].tolist(), *waits["process_id"].tolist()})
    process_of = {one: number for number, one in enumerate(processes)}
    rows["process"] = rows["process_id"].map(process_of).astype(np.int64)
    calls, call_of_row = _calls(rows, waits, process_of)
    stream, streams = _streams(rows)
    is_host = streams[:, 1] < 0
    is_host[stream[(rows["end_ns"] > rows["launch_end_ns"]).to_numpy() & (call_of_row >= 0)]] = False
    place = _place(stream, rows, call_of_row, calls)
    order = np.lexsort((rows["start_ns"].to_numpy(), call_of_row >= 0, place))
    columns = ("kind", "process", "start_ns", "end_ns", "iteration_index", "layer_index", "kernel_id", "is_read",
               "migrated_ns")  # fmt: skip
    taken = {one.removesuffix("_index").removesuffix("_id"): rows[one].to_numpy()[order] for one in columns}
    operations = Operations(
        **taken, stream=stream[order], call=call_of_row[order], place=place[order], name=name[order]
    )
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    keys = {
        EVENT_ORDER: ["process_id", "correlation_id"],
        GRAPH_ORDER: ["process_id", "graph_node_id", "launch_start_ns"],
    }
    orders = np.concatenate([_orders(rows[key], edges[edges["kind"] == kind], number) for kind, key in keys.items()])
    waited = pd.MultiIndex.from_frame(edges.loc[edges["kind"] == HOST_FUNCTION, ["process_id", "to_id"]])
    behind = pd.MultiIndex.from_frame(rows[["process_id", "correlation_id"]]).isin(waited)[order]
    return Recording(
        calls, operations, streams[:, 0], is_host, streams[:, 2], orders, behind,
        [int(one) for one in processes], iterations, span is not None, capture_id in shared_captures(results),
    )  # fmt: skip


def main_executions(iterations: pd.DataFrame, of_every_kind: bool = False) -> tuple[pd.DataFrame, str]:
    """The measured executions (no warm-up) of the kind that took most device time, or of all, by process and start, and
    what that one is; none where no execution has any."""
    if not len(iterations):
        return iterations, ""
    steady = iterations[~iterations["is_warmup"].to_numpy(bool)]
    steady = steady if len(steady) else iterations
    kind = next((name for name in ("kind", "phase") if name in steady and steady[name].astype(str).ne("").any()), "")
    labels = steady[kind].astype(str) if kind else pd.Series("execution", index=steady.index)
    weight = steady["busy_ns"].groupby(labels).sum()
    if not weight.max() > 0:
        return iterations.iloc[:0], ""
    label = str(weight.idxmax())
    return steady[(labels == label) | of_every_kind].sort_values(["process_id", "start_ns"]), label


def name_of_executions(results: Results, captures: int | Sequence[int]) -> str:
    """What the tree calls the executions of these captures; "" where they have several names."""
    known = of_captures(results, "execution_candidates", captures, ["name", "is_chosen"])
    names = known.loc[known["is_chosen"].astype(bool), "name"].astype(str).unique().tolist()
    return names[0] if len(names) == 1 else ""


def _part(results: Results, capture_id: int, iterations: pd.DataFrame) -> tuple[int, int] | None:
    """First and last ns of the launches that are replayed of a large capture; None: all of it. They are those of the
    median execution and of as many before and after it as `PART_OPERATIONS` hold, else those in the middle."""
    counts = of_captures(results, "captures", capture_id, COUNTS)[COUNTS]
    count, kernel_count = int(counts.to_numpy().sum()), int(counts["kernel_count"].sum())
    if count <= MOST_OPERATIONS:
        return None
    chosen, _ = main_executions(iterations)
    chosen = chosen[chosen["process_id"] == chosen["process_id"].min()]
    each = np.inf
    if len(chosen):  # its share of all operations, as far as kernels say
        each = float(chosen["kernel_count"].median()) * count / kernel_count if kernel_count else count / len(chosen)
    if each <= MOST_OPERATIONS:
        middle = int((chosen["latency_ns"] - chosen["latency_ns"].median()).abs().to_numpy().argmin())
        many = int(np.clip(PART_OPERATIONS // max(each, 1), 1, len(chosen)))
        first = int(np.clip(middle - many // 2, 0, len(chosen) - many))
        last = first + many - 1
        end = chosen["start_ns"].iloc[last + 1] - 1 if last + 1 < len(chosen) else chosen["end_ns"].iloc[last]
        return int(chosen["start_ns"].iloc[first]), int(end)
    work = results.frame("kernels" if kernel_count else "memory_operations", ["capture_id", "start_ns"])
    starts = np.sort(work["start_ns"].to_numpy()[work["capture_id"].to_numpy() == capture_id])
    low = max((len(starts) - PART_OPERATIONS) // 2, 0)
    return (int(starts[low]), int(starts[low : low + PART_OPERATIONS][-1])) if len(starts) else None


def _operations(results: Results, capture_id: int, span: tuple[int, int] | None) -> tuple[pd.DataFrame, pd.Categorical]:
    """Kernels and other device operations of a capture that were launched in a span, and their names."""
    kernels = _launched(results.frame("kernels", [*_OPERATION_COLUMNS, "kernel_id", "graph_node_id"]), capture_id, span)
    kernels = kernels.assign(kind=int(ActivityKind.KERNEL), is_read=0)
    columns = [*_OPERATION_COLUMNS, "kind", "direction", "bytes"]
    memory = _launched(results.frame("memory_operations", columns), capture_id, span)
    moves = found_in_column(memory["direction"], "unified")  # no operations: faults of the kernels
    pages = memory[moves].sort_values("start_ns")
    begin, end = (pages[name].to_numpy(np.int64).copy() for name in ("start_ns", "end_ns"))
    end[:-1] = np.where(begin[1:] - end[:-1] < FAULT_NS, np.maximum(begin[1:], end[:-1]), end[:-1])
    memory = memory[~moves]
    is_read = memory["direction"].astype(object).eq("device to host") & are_few(memory)
    codes = {kind.name.lower(): int(kind) for kind in ActivityKind}
    kind = memory["kind"].astype(object).map(codes).fillna(1).astype(np.int64)
    memory = memory.drop(columns=["direction", "bytes"])
    memory = memory.assign(kind=kind, kernel_id=-1, is_read=is_read.astype(np.int64), graph_node_id=-1)
    parts = [frame for frame in (kernels, memory) if len(frame)] or [kernels]
    names = [frame.pop("name") for frame in parts]
    rows = pd.concat(parts, ignore_index=True)
    whole = ["iteration_index", "layer_index", "process_id", "device_id", "stream_id", "launch_start_ns",
             "launch_end_ns", "launch_thread_id", "graph_node_id", "start_ns", "end_ns", "kind"]  # fmt: skip
    filled = {name: pd.to_numeric(rows[name]).fillna(-1).astype(np.int64) for name in whole}
    beside = [covered_before(begin, end, filled[name].to_numpy()) for name in ("end_ns", "start_ns")]
    return rows.assign(**filled, migrated_ns=beside[0] - beside[1]), _numbered(names)


def are_few(copies: pd.DataFrame) -> pd.Series:
    """Which copies between host and device are of a few values."""
    return copies["bytes"].le(FEW_BYTES)


def _launched(rows: pd.DataFrame, capture_id: int, span: tuple[int, int] | None) -> pd.DataFrame:
    """The rows of a capture whose launch, else whose start, lies in the span."""
    mine = rows["capture_id"].to_numpy() == capture_id
    if span is not None:
        launch = rows["launch_start_ns"].to_numpy()
        launch = np.where(launch >= 0, launch, rows["start_ns"].to_numpy())
        mine &= (launch >= span[0]) & (launch <= span[1])
    return rows[mine]


def _numbered(names: list[pd.Series]) -> pd.Categorical:
    if len(names) == 1 and isinstance(names[0].dtype, pd.CategoricalDtype):
        return pd.Categorical(names[0])
    codes, texts = pd.factorize(np.concatenate([name.to_numpy(object) for name in names]))
    return pd.Categorical.from_codes(codes, pd.Index(texts, dtype=object))


def _streams(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The stream of each operation, 0…, and process, device and stream number of each stream."""
    some = rows[["process", "device_id", "stream_id"]].to_numpy()
    code, first = dense(*some.T)
    return code, some[first]


def _orders(rows: pd.DataFrame, edges: pd.DataFrame, number: np.ndarray) -> np.ndarray:
    """Pairs of operations that edges order; those launched in another order than they are named are left out. rows:
    by what an edge names operations."""
    if not len(edges):
        return np.zeros((0, 2), np.int64)
    keys = pd.MultiIndex.from_frame(rows)
    first = pd.Series(number, index=keys)
    first = first[~first.index.duplicated()]
    ends = []
    for column in ("from_id", "to_id"):
        asked = pd.MultiIndex.from_arrays([edges["process_id"], edges[column], edges["start_ns"]][: keys.nlevels])
        ends.append(first.reindex(asked).fillna(-1).to_numpy().astype(np.int64))
    pairs = np.stack(ends, axis=1)
    return distinct_pairs(pairs[(pairs[:, 0] >= 0) & (pairs[:, 0] < pairs[:, 1])])


def _calls(rows: pd.DataFrame, waits: pd.DataFrame, process_of: dict[int, int]) -> tuple[Calls, np.ndarray]:
    """All calls by process and start, and the call of every operation (−1 none)."""
    launched = np.flatnonzero(rows["launch_start_ns"].to_numpy() >= 0)
    keys = [rows[name].to_numpy()[launched] for name in
            ("process", "launch_thread_id", "launch_start_ns", "launch_end_ns")]  # fmt: skip
    number, first = dense(*keys)
    unique, count = [key[first] for key in keys], len(first)
    allocates = waits["call_name"].astype(str).str.contains(_ALLOCATES).to_numpy(bool)
    table = pd.DataFrame(
        {
            "process": np.concatenate([unique[0], waits["process_id"].map(process_of).to_numpy(np.int64)]),
            "thread_id": np.concatenate([unique[1], waits["thread_id"].to_numpy(np.int64)]),
            "start_ns": np.concatenate([unique[2], waits["start_ns"].to_numpy(np.int64)]),
            "end_ns": np.concatenate([unique[3], waits["end_ns"].to_numpy(np.int64)]),
            "wait": np.concatenate([np.full(count, -1), waits["kind"].map(_NUMBER).to_numpy(np.int64)]),
            "allocates": np.concatenate([np.zeros(count, bool), allocates]),
            "is_launch": np.arange(count + len(waits)) < count,
            "stream_id": np.concatenate([np.full(count, -1), waits["stream_id"].fillna(-1)]).astype(np.int64),
        }
    )
    table["thread"] = pd.factorize(table["process"] * (1 << 40) + table["thread_id"])[0]
    table["end_ns"] = np.maximum(table["end_ns"], table["start_ns"])
    by_start = np.lexsort((~table["is_launch"], -table["end_ns"], table["start_ns"], table["process"]))
    # a call inside a launching or allocating one of its thread is part of that
    table = table.iloc[by_start]
    latest = table["end_ns"].where(table["is_launch"] | table["allocates"], 0).groupby(table["thread"]).cummax()
    before = latest.groupby(table["thread"]).shift(fill_value=0)
    keep = (table["is_launch"] | (table["end_ns"] > before)).to_numpy()
    position = np.full(len(table), -1, np.int64)
    position[by_start[keep]] = np.arange(int(keep.sum()))
    call_of_row = np.full(len(rows), -1, np.int64)
    call_of_row[launched] = position[number]
    table = table[keep]
    columns = {name: table[name].to_numpy() for name in 
               ("process", "thread", "start_ns", "end_ns", "wait", "stream_id", "allocates")}  # fmt: skip
    return Calls(**columns), call_of_row


def _place(stream: np.ndarray, rows: pd.DataFrame, call: np.ndarray, calls: Calls) -> np.ndarray:
    """The position among the calls where each operation is enqueued. One without a launch was there before the first
    call of its process returned that ended after it: between its neighbours on the stream."""
    place, end = call.copy(), rows["end_ns"].to_numpy()
    missing = np.flatnonzero(call < 0)
    if not len(missing):
        return place
    for process in range(int(rows["process"].max()) + 1):
        mine = np.flatnonzero(calls.process == process)
        lost = missing[rows["process"].to_numpy()[missing] == process]
        at = np.searchsorted(np.maximum.accumulate(calls.end_ns[mine]), end[lost], side="left")
        place[lost] = np.append(mine, len(calls))[at]
    order = np.lexsort((rows["start_ns"].to_numpy(), stream))
    known = pd.Series(np.where(call[order] >= 0, call[order], np.nan)).groupby(stream[order])
    earliest, latest = known.ffill().fillna(-1).to_numpy() + 1, known.bfill().fillna(len(calls)).to_numpy()
    place[order] = np.where(call[order] >= 0, call[order], np.clip(place[order], earliest, latest).astype(np.int64))
    return place
