"""Results and limit → what advice stands on beside windows and causes: PyTorch, attention, copies, what came before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.names.attention import unfused_attention
from xsp_post.names.platforms import PYTHON, PYTORCH
from xsp_post.replay.tables import MOST_OPERATIONS
from xsp_post.tables.analyses.limits import Limit


def platforms_of(results: Results, captures: Sequence[int]) -> frozenset[str]:
    """The languages, frameworks and platforms that these captures show (names of `platforms.txt`)."""
    shown = frame_or_empty(results, "platforms", ["capture_id", "platform"])
    return frozenset(shown.loc[shown["capture_id"].isin(list(captures)), "platform"].astype(str))


def is_torch(results: Results, limit: Limit) -> bool:
    """Whether PyTorch is called from Python: its names for what is advised are of use."""
    return {PYTORCH, PYTHON} <= platforms_of(results, limit.captures)


def sums_gradients(results: Results, limit: Limit) -> bool:
    """Whether collectives sum over ranks, as they do with gradients."""
    return _says(results, limit, "kernels", "name", "(?i)all_?reduce|reduce_?scatter")


def _says(results: Results, limit: Limit, table: str, column: str, pattern: str) -> bool:
    """Whether any text of a column has a pattern."""
    rows = frame_or_empty(results, table, ["capture_id", column])
    names = rows.loc[rows["capture_id"].isin(limit.captures), column]
    return bool(pd.Series(names.unique()).astype(str).str.contains(pattern, regex=True).any())


def attention(results: Results, limit: Limit) -> tuple[int, int]:
    """How often attention ran as kernels of its own between two matrix products, and their time in the limit's
    scope, ns."""
    if int(limit.window["kernel_count"]) > MOST_OPERATIONS or "kernels" not in results.tables():
        return 0, 0
    keys = ["capture_id", "process_id", "device_id", "stream_id"]
    rows = results.frame("kernels", [*keys, "iteration_index", "name", "start_ns", "end_ns"])
    rows = rows[_in_scope(results, limit, rows)]
    stream = rows.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    mask, count = unfused_attention(rows["name"], stream, rows["start_ns"].to_numpy())
    return count, int((rows["end_ns"] - rows["start_ns"]).to_numpy()[mask].sum())


def _in_scope(results: Results, limit: Limit, rows: pd.DataFrame) -> np.ndarray:
    """Which operations belong to what a limit speaks of; bool."""
    iterations = frame_or_empty(results, "iterations", ["capture_id", "iteration_index", "is_warmup"])
    index = rows["iteration_index"].fillna(-1).to_numpy(np.int64)
    mine = rows["capture_id"].isin(limit.captures).to_numpy()
    if limit.scope == "outside":
        return mine & (index < 0)
    chosen = iterations[iterations["is_warmup"].astype(bool).eq(limit.scope == "warm-up")]
    wanted = pd.MultiIndex.from_frame(chosen[["capture_id", "iteration_index"]])
    return mine & (index >= 0) & pd.MultiIndex.from_arrays([rows["capture_id"], index]).isin(wanted)


def copy_shares(results: Results, limit: Limit) -> tuple[float, float]:
    """Share of the copies' time in copies that stay on the device; and of the others' time, that of pinned memory."""
    columns = ["capture_id", "iteration_index", "kind", "direction", "memory_kind", "start_ns", "end_ns"]
    rows = frame_or_empty(results, "memory_operations", columns)
    rows = rows[_in_scope(results, limit, rows) & rows["kind"].astype(str).eq("memcpy").to_numpy()]
    time = (rows["end_ns"] - rows["start_ns"]).to_numpy()
    inside = rows["direction"].astype(str).eq("device to device").to_numpy()
    pinned = ~inside & rows["memory_kind"].astype(str).eq("pinned").to_numpy()
    return float(time[inside].sum() / max(time.sum(), 1)), float(time[pinned].sum() / max(time[~inside].sum(), 1))


@dataclass(frozen=True)
class Copies:
    """Copies of one direction and kind of memory: how many, how long, how much."""

    count: int
    time_ns: int
    bytes: int
    direction: str
    memory_kind: str


def copies_before(results: Results, limit: Limit) -> Copies | None:
    """The copies before the first execution, of the direction with most time; None without any."""
    columns = ["capture_id", "kind", "direction", "memory_kind", "start_ns", "end_ns", "bytes"]
    rows = frame_or_empty(results, "memory_operations", columns)
    iterations = frame_or_empty(results, "iterations", ["capture_id", "start_ns"])
    first = iterations.groupby("capture_id")["start_ns"].min()
    early = rows["end_ns"].to_numpy() <= rows["capture_id"].map(first).fillna(-1).to_numpy()
    rows = rows[early & rows["kind"].astype(str).eq("memcpy") & rows["capture_id"].isin(limit.captures)]
    if rows.empty:
        return None
    rows = rows.assign(time_ns=rows["end_ns"] - rows["start_ns"], count=1)
    rows = rows.astype({"direction": str, "memory_kind": str})
    summed = rows.groupby(["direction", "memory_kind"])[["time_ns", "bytes", "count"]].sum()
    top = summed.sort_values("time_ns").reset_index().iloc[-1]
    return Copies(int(top["count"]), int(top["time_ns"]), int(top["bytes"]), str(top["direction"]),
                  str(top["memory_kind"]))  # fmt: skip
