"""Tree → core tables: ``captures`` and ``iterations``."""

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import covered_before, grouped_union_length, union
from xsp_post.arrays.processes import without_overlap
from xsp_post.arrays.repeats import dense, numbered
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.base.findings import Finding, finding
from xsp_post.base.messages import WARNING
from xsp_post.model.kinds import LOADING_TYPES
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL, Level
from xsp_post.model.results import empty_table, typed
from xsp_post.model.schemas import column_names
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.model.schemas.words import confidence_words
from xsp_post.model.trace import DEVICE_PARTS, ActivityKind, Provenance
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.names import range_text
from xsp_post.names.families import ROLES, families
from xsp_post.tables.core.columns import Threads, on_one_gpu


def captures_frame(tree: Tree, iterations: pd.DataFrame) -> pd.DataFrame:
    batches = iterations["batch_size"].to_numpy()
    provenance, events = tree.trace.provenance, (tree.nodes.iloc[:1], tree.trace.launches)  # the root, and all calls
    batch = int(batches[0]) if len(batches) and (batches == batches[0]).all() else provenance.batch_size
    row = {name: getattr(provenance, name) for name in _OF_PROVENANCE} | amounts_of_capture(tree) | {
        "level": provenance.level or _level_of(tree), "batch_size": batch, "level_rule": tree.level_rule,
        "execution_evidence": tree.execution_evidence, "layer_evidence": tree.layer_evidence,
        "clock_utc_ns": _clock_utc(provenance, int(tree.nodes["start_ns"].iloc[0])),
        "process_count": len(tree.trace.processes),
        "duration_ns": int(max(one["end_ns"].max() for one in events) - min(one["start_ns"].min() for one in events)),
    }  # fmt: skip
    return pd.DataFrame([{name: row[name] for name in column_names("captures") if name in row}])


_OF_PROVENANCE = (
    "collector", "source_name", "tool_version", "schema_version", "workload_name", "framework", "gpu_name",
    "file_operation_count", "clock_offset_ns", "run_process", "is_partial", "step_before_ns",
    "step_recorded_ns", "step_awake_ns",
)  # fmt: skip


def amounts_of_capture(tree: Tree) -> dict[str, int | float]:
    root, busy = tree.nodes.iloc[0], busy_per_gpu(tree)
    return {
        **{column: int(root[column]) for column in _OF_ROOT},
        "gpu_count": len(busy),
        # one GPU's union; several have a row each in `devices`
        "busy_ns": float(busy.sum()) if len(busy) < 2 else np.nan,
        "duration_ns": int(root["end_ns"] - root["start_ns"]),
    }


_OF_ROOT = ("kernel_count", "copy_count", "graph_count", "device_ns", "kernel_ns", "copy_ns", "graph_ns")
_SINCE_1970_NS = 10**18  # times of this size count from 1970 already


def _clock_utc(provenance: Provenance, first_ns: int) -> int:
    """What makes times of a trace into ns since 1970; −1 where the file does not say when it was recorded."""
    if first_ns >= _SINCE_1970_NS:
        return 0
    if provenance.session_start_utc_ns < _SINCE_1970_NS:
        return -1
    # nsys states when its clock was 0; the other readers when the first event was
    return provenance.session_start_utc_ns - (0 if provenance.collector == "nsys" else first_ns)


def _level_of(tree: Tree) -> str:
    """The deepest profiler that was on, judged by what is in the capture."""
    if len(tree.activities):
        return RUN_KERNEL
    return RUN_LAYER if (tree.nodes["level"].to_numpy() == int(Level.LAYER)).any() else RUN_MODEL


def iterations_frame(tree: Tree) -> pd.DataFrame:
    frame = tree.iterations.copy()
    frame["iteration_index"] = np.arange(len(frame), dtype=np.int64)
    activities = tree.activities
    where = (activities[c].to_numpy(np.int64) for c in ("iteration_index", "gpu_index"))
    frame["busy_ns"] = on_one_gpu(frame["busy_ns"].to_numpy(), *where)
    of_text = frame["batch_size"].to_numpy()
    frame["batch_size"] = np.where(of_text > 0, of_text, _batch_sizes(tree, frame))
    frame["phase"] = frame["phase"].astype(object)
    process = tree.trace.processes["process_id"].to_numpy(np.int64)
    frame["process_id"] = process[frame["process_index"].to_numpy()] if len(frame) else np.zeros(0, np.int64)
    frame = frame.assign(**_rates(frame), **_shares(tree, len(frame)))
    return frame[[c for c in column_names("iterations") if c in frame]]


def _rates(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Tokens a second and time per token of each execution, NaN unknown."""
    time = without_overlap(frame.assign(capture_id=0))
    tokens = np.where((frame["token_count"] > 0) & (time > 0), frame["token_count"], np.nan)
    return {"throughput_tokens_per_s": tokens / np.maximum(time, 1) * 1e9, "time_per_token_ns": time / tokens}


def _shares(tree: Tree, count: int) -> dict[str, np.ndarray]:
    """The share of each role in the kernel time of the executions; NaN without kernels."""
    rows, roles = tree.activities, list(dict.fromkeys(ROLES.values()))
    kept = (rows["kind"].to_numpy() == ActivityKind.KERNEL) & (rows["iteration_index"].to_numpy() >= 0)
    code, used = pd.factorize(rows["name_id"].to_numpy()[kept])
    role = np.array([roles.index(ROLES[one]) for one in families(tree.strings[np.maximum(used, 0)])], np.int64)[code]
    length = (rows["end_ns"].to_numpy() - rows["start_ns"].to_numpy())[kept]
    cell = rows["iteration_index"].to_numpy(np.int64)[kept] * len(roles) + role
    sums = np.bincount(cell, weights=length, minlength=count * len(roles)).reshape(count, len(roles))
    whole = sums.sum(axis=1, keepdims=True)
    shares = np.divide(sums, whole, out=np.full(sums.shape, np.nan), where=whole > 0)
    return {f"{one.replace(' ', '_')}_ratio": shares[:, k] for k, one in enumerate(roles)}


def _batch_sizes(tree: Tree, frame: pd.DataFrame) -> np.ndarray:
    """Inputs per iteration: the payload of our own model ranges, else what the capture's manifest said."""
    default = tree.trace.provenance.batch_size
    result = np.full(len(frame), default, np.int64)
    attributes = tree.trace.attributes
    span = frame["node_id"].to_numpy() - 1
    inside = span < len(tree.trace.spans)
    if "batch_size" in attributes:
        values = attributes["batch_size"].reindex(span[inside]).to_numpy(float)
        result[inside] = np.where(np.isnan(values) | (values <= 0), result[inside], values)
    if "payload_text_id" in tree.trace.spans:
        payload = tree.trace.spans["payload_text_id"].to_numpy()[span[inside]]
        domains = np.append(tree.trace.domains["name"].to_numpy(object), "")
        is_own = domains[tree.trace.spans["domain_index"].to_numpy()[span[inside]]] == range_text.DOMAIN
        for row, text_id in zip(np.flatnonzero(inside)[is_own].tolist(), payload[is_own].tolist()):
            text = str(tree.strings[text_id]) if text_id >= 0 else ""
            if text.isdigit() and int(text) > 0:
                result[row] = int(text)
    return result


# -- Tree → core tables: ``inferred``, what is known of inferred ranges, and ``execution_candidates`` ------------------


def inferred_frame(tree: Tree) -> pd.DataFrame:
    known = tree.inferred.drop(columns="arguments", errors="ignore")  # of carried-over operators: for their work only
    known = known.rename(columns={"confidence": "confidence_ratio"})
    return known.assign(confidence=confidence_words(known["confidence_ratio"].to_numpy(float)))


def candidates_frame(tree: Tree) -> pd.DataFrame:
    return tree.execution_candidates.copy()


# -- Tree → how much of the recording the profiler itself took, as findings --------------------------------------------

_LEAST_RATIO, _WARNING_RATIO = 0.01, 0.1
_RECORDS_RATIO = 0.25  # of the executions: so much cost of records changes what limits


def profiler_cost(tree: Tree) -> tuple[int, list[Finding]]:
    """Time in which the profiler worked on any thread, ns; a finding where that is 1 % of the recording or more."""
    frame = tree.trace.profiler_overhead
    frame = frame[~np.isin(frame["overhead_type"].to_numpy(), LOADING_TYPES)]
    low, high = int(tree.nodes["start_ns"].iloc[0]), int(tree.nodes["end_ns"].iloc[0])
    start, end = (np.clip(frame[name].to_numpy(), low, high) for name in ("start_ns", "end_ns"))
    order = np.argsort(start, kind="stable")
    begin, until = union(start[order], end[order])
    spent = int((until - begin).sum())
    ratio, found = spent / max(high - low, 1), _cost_of_records(tree)
    if ratio >= _LEAST_RATIO:
        severity = WARNING if ratio >= _WARNING_RATIO else ""
        said = f"{format_ns(spent)}, {format_ratio_percent(ratio)} of the recording"
        found.append(finding("profiler-overhead", count=len(frame), example=said, severity=severity))
    return spent, found


def _cost_of_records(tree: Tree) -> list[Finding]:
    """What PyTorch's profiler may have taken to write its records of the threads that launch: twice their number,
    times the lower quartile of the time from where any of them begins or ends to where the next range begins, in which
    hardly anything but the writing happens, if ranges nest; of frames, which are written in another way, of frames."""
    nodes, launches, trace = tree.nodes, tree.trace.launches, tree.trace
    if trace.provenance.collector != "torch" or launches.empty or tree.iterations.empty:
        return []
    ranges = nodes[(nodes["kind"].to_numpy() < int(NodeKind.ROOT)) & (nodes["thread_index"].to_numpy() >= 0)]
    kinds = [frame[["thread_index", "start_ns", "end_ns"]] for frame in (ranges, launches, trace.python_frames)]
    rows = pd.concat(kinds, ignore_index=True).assign(kind=np.repeat(np.arange(len(kinds)), [*map(len, kinds)]))
    rows = rows[rows["thread_index"].isin(launches["thread_index"].unique())]
    executions = tree.iterations.sort_values("start_ns")
    begin, end = union(*(executions[name].to_numpy(np.int64) for name in ("start_ns", "end_ns")))
    whole = int((end - begin).sum())
    edges = pd.concat([rows.assign(at=rows["start_ns"]), rows.assign(at=rows["end_ns"], kind=-1)])
    edges = edges.sort_values(["thread_index", "at"], kind="stable", ignore_index=True)
    kind, step = edges["kind"], edges.groupby("thread_index")["at"].diff()
    nested = kind[(kind >= 0) & (kind == kind.shift())].unique()
    each = step[kind.isin(nested)].groupby(kind).quantile(0.25).reindex([0, 0, 2]).to_numpy()
    start = rows["start_ns"].to_numpy(np.int64)
    mine = rows["kind"][covered_before(begin, end, start + 1) > covered_before(begin, end, start)]
    spent = 2 * float(np.nansum(each[mine]))
    if spent < _RECORDS_RATIO * whole:
        return []
    times = [format_ns(time / len(executions)) for time in (spent, whole)]
    said = f"{times[0]} of the {times[1]} of an execution ({format_ratio_percent(spent / whole)})"
    return [finding("profiler-records", count=len(mine) // len(executions), example=said)]


# -- ``launch_groups``: kernels by green context and cluster of thread blocks, and how early they let others begin ----

_KEYS = ["process_index", "device_id", "green_context_id", "cluster_x", "cluster_y", "cluster_z"]
_MOMENTS = {"preexit_ns": "early_ns", "bulk_release_ns": "release_ns", "last_block_ns": "tail_ns"}  # time to the end


def launch_groups_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    """One row a process, device, green context and cluster; no rows where no kernel has one or lets others begin."""
    kernels = tree.kernels
    zeros = np.zeros(len(kernels), np.int64)
    frame = pd.DataFrame({name: kernels.get(name, zeros) for name in _KEYS}, copy=False)
    frame = frame.assign(kernel_count=1, kernel_ns=(kernels["end_ns"] - kernels["start_ns"]).to_numpy())
    for moment, column in _MOMENTS.items():
        rest = kernels["end_ns"].to_numpy() - np.asarray(kernels.get(moment, zeros))
        is_inside = (rest >= 0) & (rest <= frame["kernel_ns"])  # a time outside of the kernel is none
        frame[column] = np.where(is_inside, rest, 0)
        if moment == "preexit_ns":
            frame["early_count"] = is_inside
    if not (frame[["green_context_id", "cluster_x", "early_count"]].to_numpy() > 0).any():
        return empty_table("launch_groups").drop(columns="capture_id")
    found = frame.groupby(_KEYS, sort=True).sum().reset_index()
    found["process_id"] = threads.process_id(found["process_index"].to_numpy())
    return found[column_names("launch_groups")[1:]].astype(np.int64)


_LEAST_OVERLAP = 0.01  # of a device's time within streams, to be worth a word: below that it may be the clocks'


def devices_frame(tree: Tree) -> tuple[pd.DataFrame, list[Finding]]:
    """The devices table; what a capture does not say of its GPU is −1, NaN or ''. And whether streams overlap."""
    places, of_activity = _places(tree)
    amounts = _amounts(tree, places, of_activity)
    overlap = amounts["stream_overlap_ns"] = _within_streams(tree, of_activity, amounts)
    found, large = [], np.flatnonzero(overlap > _LEAST_OVERLAP * amounts["device_ns"])
    if len(large):
        whole, busy = (int(amounts[name][large].sum()) for name in ("device_ns", "own_busy_ns"))
        example = f"{format_ns(int(overlap[large].sum()))}: device time {format_ns(whole)}, busy {format_ns(busy)}"
        found.append(finding("streams-overlap", count=len(large), example=example))
    ranks = tree.ranks.set_index("process_index")["rank"] if len(tree.ranks) else pd.Series(dtype="int64")
    process = places["process_index"].to_numpy(int)
    known: dict[str, object] = {
        **{str(c): places[c].to_numpy() for c in places.columns},
        "process_id": tree.trace.processes["process_id"].to_numpy()[process] if len(process) else process,
        "rank": ranks.reindex(process).fillna(-1).to_numpy(np.int64),
        **amounts,
    }
    frame = typed("devices", pd.DataFrame(known, index=pd.RangeIndex(len(places)))).drop(columns="capture_id")
    return frame, found


def _within_streams(tree: Tree, of_activity: np.ndarray, amounts: dict[str, np.ndarray]) -> np.ndarray:
    """Device time in which several operations of one stream ran at once, ns, per row of the table."""
    if (amounts["device_ns"] <= amounts["own_busy_ns"]).all():
        return np.zeros(len(amounts["device_ns"]), np.int64)
    context = tree.activities.get("context_id", np.zeros(len(of_activity), np.int64))
    keys = pd.DataFrame({"place": of_activity, "context": context, "stream": tree.activities["stream_id"]})
    stream, first = numbered(keys, ["place", "context", "stream"])
    lengths = _unions(tree.activities, stream, len(first))
    return amounts["device_ns"] - sums_per_node(of_activity[first], lengths, len(amounts["device_ns"]))


def busy_per_gpu(tree: Tree) -> pd.Series:
    """Union of all device intervals of each physical GPU, by gpu_index."""
    activities = tree.activities
    gpu = activities["gpu_index"].to_numpy()
    if len(gpu) and (gpu == gpu[0]).all():
        return pd.Series([int(tree.nodes["busy_ns"].iloc[0])], index=gpu[:1])  # the root's: united already
    codes, gpus = pd.factorize(gpu)
    return pd.Series(_unions(activities, codes, len(gpus)), index=gpus)


def _unions(activities: pd.DataFrame, group: np.ndarray, count: int) -> np.ndarray:
    return grouped_union_length(group, activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy(), count)


def _places(tree: Tree) -> tuple[pd.DataFrame, np.ndarray]:
    """Devices of processes, those that the capture lists and those that only their work tells of; and which of them
    each activity ran on."""
    activities, listed = tree.activities, tree.trace.devices.reset_index(drop=True)
    keys = ["process_index", "device_id"]
    code, first = dense(*(activities[c].to_numpy() for c in keys))
    met = activities[[*keys, "gpu_index"]].iloc[first].astype(np.int64).reset_index(drop=True)
    listed_keys = pd.MultiIndex.from_frame(listed[keys]) if len(listed) else pd.MultiIndex.from_arrays([[], []])
    fresh = met[listed_keys.get_indexer(pd.MultiIndex.from_frame(met[keys])) < 0]
    places = pd.concat([listed, fresh], ignore_index=True) if len(listed) else fresh.reset_index(drop=True)
    at = pd.MultiIndex.from_frame(places[keys].astype(np.int64)).get_indexer(pd.MultiIndex.from_frame(met[keys]))
    return places, at[code]


def _amounts(tree: Tree, places: pd.DataFrame, of_activity: np.ndarray) -> dict[str, np.ndarray]:
    """What ran on each device of a process, and how long its GPU was busy in which window."""
    activities, count = tree.activities, len(places)
    start, end, kind = (activities[c].to_numpy() for c in ("start_ns", "end_ns", "kind"))
    result: dict[str, np.ndarray] = {"device_ns": sums_per_node(of_activity, end - start, count)}
    for part, kinds in DEVICE_PARTS.items():
        chosen = np.isin(kind, [int(k) for k in kinds])
        result[f"{part}_count"] = np.bincount(of_activity[chosen], minlength=count).astype(np.int64)
        result[f"{part}_ns"] = sums_per_node(of_activity[chosen], (end - start)[chosen], count)
    per_gpu = busy_per_gpu(tree)
    result["busy_ns"] = per_gpu.reindex(places["gpu_index"].to_numpy()).fillna(0).to_numpy(np.int64)
    result["own_busy_ns"] = _unions(activities, of_activity, count)
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(first, of_activity, start)
    np.maximum.at(last, of_activity, end)
    result["first_start_ns"], result["last_end_ns"] = np.where(last < 0, -1, first), last
    root = tree.nodes.iloc[0]
    result["duration_ns"] = np.full(count, int(root["end_ns"] - root["start_ns"]), np.int64)
    return result
