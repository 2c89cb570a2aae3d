"""Tree → what each device did with its time: busy with what, idle, within executions and outside of them.

Time counts once: for kernels first, then for communication, then for copies, then for opaque graphs, so that the parts
sum to the busy time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import cut, distinct
from xsp_post.arrays.intervals import nest, union
from xsp_post.arrays.joins import rows_of
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.arrays.texts import index_of
from xsp_post.hardware.gpus import WARP
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Attribution, Tree
from xsp_post.names.families import BROAD, FAMILIES, OTHER, PRODUCTS, family_index, matches
from xsp_post.names.number_types import without_tensor_cores
from xsp_post.replay.gaps import at_work, device_codes, different, waiting_kernels

# Where a piece of time lies.
EXECUTION, WARMUP, OUTSIDE, LEAD_IN, LEAD_OUT, BETWEEN = (
    "execution", "warm-up", "outside", "lead-in", "lead-out", "between",
)  # fmt: skip
SCOPES = (EXECUTION, WARMUP, OUTSIDE, LEAD_IN, LEAD_OUT, BETWEEN)
_MATRIX = [FAMILIES.index(family) for family in PRODUCTS]
_COMMUNICATION, _OTHER = FAMILIES.index("communication"), FAMILIES.index(OTHER)
_ELEMENTWISE = [FAMILIES.index(family) for family, broad in BROAD.items() if broad == "elementwise"]
_WAITING = FAMILIES.index("waiting")
LAUNCH_SHAPE = tuple(f"{name}_{axis}" for name in ("block", "grid") for axis in "xyz")
_PARTS = ("kernel_busy_ns", "communication_ns", "copy_busy_ns", "graph_busy_ns")
_LAYOUT = r"nchwTo|nhwcTo|ToNchw|ToNhwc"


def scope_of_iterations(tree: Tree) -> np.ndarray:
    """Scope number of every execution, and at the end that of time outside of all (index −1). Executions that are a
    guess are none: all of the recording is outside."""
    warm = tree.iterations["is_warmup"].to_numpy(bool) if len(tree.iterations) else np.zeros(0, bool)
    if tree.is_guess:
        return np.full(len(warm) + 1, SCOPES.index(OUTSIDE))
    return np.append(np.where(warm, SCOPES.index(WARMUP), SCOPES.index(EXECUTION)), SCOPES.index(OUTSIDE))


def _with_between(tree: Tree, scope: np.ndarray, start_ns: np.ndarray | pd.Series) -> np.ndarray:
    """Scopes of what begins at these times: what lies outside of all executions, but between two measured ones, is
    part of their period, unless the process measured other captures in between."""
    if tree.trace.provenance.run_process:
        return scope
    measured = scope_of_iterations(tree)[:-1] == SCOPES.index(EXECUTION)
    begins = tree.execution_intervals[0][measured] if measured.any() else np.zeros(1, np.int64)
    is_between = (scope == SCOPES.index(OUTSIDE)) & (start_ns >= begins.min()) & (start_ns < begins.max())
    return np.where(is_between, SCOPES.index(BETWEEN), scope)


def _scope_of_activities(tree: Tree) -> np.ndarray:
    """Scope number of every activity. One of no execution, whose launch was not recorded, that begins while the device
    works for a measured one, is that execution's."""
    activities, iterations = tree.activities, tree.iterations
    begins, process = activities["start_ns"].to_numpy(), activities["process_index"].to_numpy()
    scope = scope_of_iterations(tree).astype(np.int8)[activities["iteration_index"].to_numpy()]
    scope = _with_between(tree, scope, begins)
    lost = activities["iteration_index"].lt(0) & activities["attribution"].eq(int(Attribution.NO_LAUNCH))
    alone = np.flatnonzero(lost & ~tree.queued)
    measured = scope_of_iterations(tree)[:-1] == SCOPES.index(EXECUTION)
    start, end = tree.execution_intervals
    around = nest(iterations["process_index"].to_numpy()[measured], start[measured], end[measured])
    scope[alone[around.innermost(process[alone], begins[alone], begins[alone]) >= 0]] = SCOPES.index(EXECUTION)
    return scope


def is_measured(tree: Tree) -> np.ndarray:
    """Which activities are of measured executions, or run between two of them; bool."""
    return np.isin(_scope_of_activities(tree), (SCOPES.index(EXECUTION), SCOPES.index(BETWEEN)))


def scope_of_pieces(tree: Tree, pieces: pd.DataFrame) -> np.ndarray:
    """Scope number of every piece of idle time. What an execution did before the first operation of the device is
    its lead-in, after the last one its lead-out: the device waited for the program, not for its next operation."""
    if not len(pieces):
        return np.zeros(0, np.int64)
    scope = _with_between(tree, scope_of_iterations(tree)[pieces["iteration_index"].to_numpy()], pieces["start_ns"])
    is_inside = (scope != SCOPES.index(OUTSIDE)) & (scope != SCOPES.index(BETWEEN))
    scope = np.where(is_inside & (pieces["next_activity"].to_numpy() < 0), SCOPES.index(LEAD_OUT), scope)
    return np.where(is_inside & (pieces["previous_activity"].to_numpy() < 0), SCOPES.index(LEAD_IN), scope)


def device_windows(tree: Tree, devices: pd.DataFrame, causes: pd.DataFrame) -> pd.DataFrame:
    """One row per device and scope in which time was spent (schemas: device_windows, without capture_id).

    ``causes``: the table idle_causes, which sums the idle time of each.
    """
    codes, _ = device_codes(tree)
    of_activity = _scope_of_activities(tree)
    activity_names = _names_of(tree)
    family = activity_names.family[activity_names.code]
    runs = tree.execution_intervals
    facts, waits = _gpu_facts(tree), waiting_kernels(tree)
    device_of_cause, scope_of_cause = causes["device_id"].to_numpy(), causes["scope"].cat.codes.to_numpy()
    idle_of_cause = causes["idle_ns"].to_numpy()
    rows = []
    for number, device in enumerate(devices.to_dict("records")):  # a handful of devices
        mine = rows_of(codes == number)
        works = at_work(mine, waits, len(codes))
        busy = _busy_parts(tree, works, family[works], runs)
        inside = of_activity[mine]
        for index, name in enumerate(SCOPES):
            parts = busy[index]
            idle = int(idle_of_cause[(device_of_cause == device["device_id"]) & (scope_of_cause == index)].sum())
            if not idle and not parts.any():
                continue
            chosen = np.flatnonzero(inside == index)
            if not isinstance(mine, slice):
                chosen = mine[chosen]
            gpu_name, multiprocessors = facts.get(device["device_id"], ("", 0))
            total = int(parts.sum())
            rows.append({
                "device_id": int(device["device_id"]), "gpu_name": gpu_name, "scope": name,
                "window_ns": total + idle, "busy_ns": total, "idle_ns": idle, **dict(zip(_PARTS, parts.tolist())),
                **_kernel_facts(tree, chosen, activity_names, multiprocessors),
            })  # fmt: skip
    return pd.DataFrame(rows)


class _Names(NamedTuple):
    """What the names of activities say, once for each different one."""

    code: np.ndarray  # of each activity, into the others
    texts: pd.Index[str]  # '' for none
    family: np.ndarray  # index into `FAMILIES`; int8
    is_layout: np.ndarray
    is_simt: np.ndarray  # a matrix product without tensor cores


def _names_of(tree: Tree) -> _Names:
    code, used = pd.factorize(tree.activities["name_id"].to_numpy())
    code = code.astype(np.int32)
    texts = index_of(used, tree.strings)
    family = family_index(texts)
    matrix = np.flatnonzero(np.isin(family, _MATRIX))
    is_simt = np.zeros(len(texts), bool)
    is_simt[matrix] = without_tensor_cores(texts[matrix].tolist())
    return _Names(code, texts, family, matches(texts, _LAYOUT), is_simt)


def _gpu_facts(tree: Tree) -> dict[int, tuple[str, int]]:
    """Name and number of multiprocessors (0 unknown) of each GPU by its gpu_index."""
    devices = tree.trace.devices
    if not len(devices) or "gpu_index" not in devices:
        return {}
    count = devices["sm_count"].fillna(0).astype(int) if "sm_count" in devices else [0] * len(devices)
    return dict(zip(devices["gpu_index"].astype(int).tolist(), zip(devices["gpu_name"].astype(str), count)))


def _busy_parts(
    tree: Tree, mine: np.ndarray | slice, family: np.ndarray, runs: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Busy time of one device by scope and part, each moment once; shape (scopes, parts)."""
    activities = tree.activities
    start, end = activities["start_ns"].to_numpy()[mine], activities["end_ns"].to_numpy()[mine]
    kind = activities["kind"].to_numpy()[mine]
    is_graph = kind == ActivityKind.GRAPH
    is_copy = (kind == ActivityKind.MEMCPY) | (kind == ActivityKind.MEMSET)
    is_talk = ~is_graph & ~is_copy & (family == _COMMUNICATION)
    is_kernel = ~is_graph & ~is_copy & ~is_talk
    result = np.zeros((len(SCOPES), 4), np.int64)
    taken = np.zeros(len(SCOPES), np.int64)
    so_far = np.zeros(len(start), bool)
    process = different(activities["process_index"].to_numpy()[mine])
    for part, members in enumerate((is_kernel, is_talk, is_copy, is_graph)):
        if not members.any():
            continue
        so_far |= members
        wanted = slice(None) if so_far.all() else so_far
        covered = _covered(tree, runs, process, start[wanted], end[wanted])
        result[:, part] = covered - taken
        taken = covered
    return result


def _covered(
    tree: Tree, runs: tuple[np.ndarray, np.ndarray], process: np.ndarray, start: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """Length of the union of intervals within each scope."""
    low, high = union(start, end)
    run_start, run_end = runs
    result = np.zeros(len(SCOPES), np.int64)
    mine = np.isin(tree.iterations["process_index"].to_numpy(), process) if len(run_start) else None
    if mine is None or not mine.any():
        result[SCOPES.index(OUTSIDE)] = int((high - low).sum())
        return result
    run_start, run_end = run_start[mine], run_end[mine]
    scope = scope_of_iterations(tree)[:-1][mine]
    _, low, high = cut(low, high, distinct(np.concatenate([run_start, run_end])))
    found = np.full(len(low), SCOPES.index(OUTSIDE))
    # a moment of both counts as measured
    for one in (SCOPES.index(WARMUP), SCOPES.index(EXECUTION)):
        s, e = union(run_start[scope == one], run_end[scope == one])
        if len(s):
            at = np.searchsorted(s, low, side="right") - 1
            found[(at >= 0) & (e[np.maximum(at, 0)] >= high)] = one
    np.add.at(result, _with_between(tree, found, low), high - low)
    return result


def _kernel_facts(tree: Tree, rows: np.ndarray, names: _Names, multiprocessors: int) -> dict[str, object]:
    """Sums of kernel durations that a verdict needs: by what kernels do, and the heaviest name."""
    activities = tree.activities
    rows = rows[activities["kind"].to_numpy()[rows] == ActivityKind.KERNEL]
    duration = activities["end_ns"].to_numpy()[rows] - activities["start_ns"].to_numpy()[rows]
    codes = names.code[rows]
    is_work = ~np.isin(names.family[codes], (_COMMUNICATION, _WAITING))
    by_name = sums_per_node(codes, duration, len(names.texts))
    is_matrix = np.isin(names.family, _MATRIX)
    top = int(codes[by_name[codes].argmax()]) if len(codes) else -1  # of equal sums the first that ran
    return {
        "kernel_count": len(rows),
        "kernel_ns": int(by_name.sum()),
        "matrix_ns": int(by_name[is_matrix].sum()),
        "matrix_count": int(is_matrix[codes].sum()),
        "simt_matrix_ns": int(by_name[names.is_simt].sum()),
        "elementwise_ns": int(by_name[np.isin(names.family, _ELEMENTWISE)].sum()),
        "layout_ns": int(by_name[names.is_layout].sum()),
        "other_kernel_ns": int(by_name[names.family == _OTHER].sum()),
        "small_launch_ns": int(duration[is_work & _is_small(tree, rows, multiprocessors)].sum()),
        "top_kernel": names.texts[top] if top >= 0 else "",
        "top_kernel_ns": int(by_name[top]) if top >= 0 else 0,
    }


def _is_small(tree: Tree, rows: np.ndarray, multiprocessors: int) -> np.ndarray:
    """Kernels of fewer threads in a block than run together, or of fewer blocks than their GPU has multiprocessors.
    Shape (rows,); False where the launch is not known."""
    if "block_x" not in tree.activities:
        return np.zeros(len(rows), bool)
    threads, blocks = np.ones((2, len(rows)), np.int64)
    for number, column in enumerate(LAUNCH_SHAPE):
        (threads if number < 3 else blocks)[:] *= tree.activities[column].to_numpy()[rows]
    return (threads > 0) & ((threads < WARP) | (blocks < multiprocessors))
