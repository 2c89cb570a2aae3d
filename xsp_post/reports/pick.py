"""Results → the capture and the executions that the drawings show."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import dense, without_numbers
from xsp_post.model.results import Results, of_captures
from xsp_post.reports.text import visible


class Window(NamedTuple):
    """One execution on the host's clock: its range, extended to its last device work."""

    capture_id: int
    iteration_index: int
    start_ns: int
    end_ns: int
    title: str


def layer_of_node(results: Results, capture_id: int) -> pd.Series:
    """layer_index of each node of a capture that is a layer."""
    layers = of_captures(results, "layers", capture_id, ["node_id", "layer_index"])
    return layers.drop_duplicates("node_id").set_index("node_id")["layer_index"]


def windows(results: Results, capture_id: int) -> list[Window]:
    """The median, the first and the slowest of the measured executions of the phase that took most time, as they ran;
    each once. Real executions are chosen, none is averaged: what the timeline shows did happen."""
    columns = ["iteration_index", "phase", "start_ns", "end_ns", "latency_ns", "is_warmup"]
    mine = of_captures(results, "iterations", capture_id, columns)
    measured = mine[~mine["is_warmup"].astype(bool)]
    measured = measured if len(measured) else mine
    if measured.empty:
        return []
    heaviest = str(measured.groupby("phase", observed=True, sort=False)["latency_ns"].sum().idxmax())
    measured = measured[measured["phase"].astype(str).eq(heaviest)].sort_values("start_ns", kind="stable")
    latency = measured["latency_ns"]
    rows = {"median": (latency - latency.median()).abs().idxmin(), "first": measured.index[0],
            "slowest": latency.idxmax()}  # fmt: skip
    words = {row: f"{word} execution" for word, row in reversed(rows.items())}
    if len(measured) == 1:
        words = {row: "execution" for row in words}
    return [
        Window(capture_id, int(row["iteration_index"]), int(row["start_ns"]),
               max(int(row["end_ns"]), int(row["start_ns"] + row["latency_ns"])),
               f"{words[index]} ({int(row['iteration_index'])}, {visible(heaviest, 60)})")
        for index, row in measured.loc[[row for row in measured.index if row in words]].iterrows()
    ]  # fmt: skip


_DIGITS = re.compile(r"\d+")
# Latencies of one group, sorted: no step larger than this.
_STEP = 1.25


def layer_groups(layers: pd.DataFrame, launches: pd.DataFrame, limit: int) -> pd.DataFrame:
    """One row for each of the groups with the largest sums, largest first: first (row number of its slowest layer),
    layer_count, latency_ns (sum), latency_ratio (sum), min_ns, max_ns, first_index, last_index, path (starred).

    ``layers``: rows of A2. ``launches``: layer_index and name of A8, which tell what ran inside.
    """
    key, _ = without_numbers(layers["layer_path"])
    # a number per layer that is equal for equal kernels, however they are ordered
    codes = pd.Series(pd.util.hash_array(pd.factorize(launches["name"])[0].astype(np.int64)))
    work = codes.groupby(launches["layer_index"].to_numpy()).sum()
    inside = layers["layer_index"].map(work).fillna(0)
    for values in (layers["layer_type"], layers["shape_text"], inside):
        key = dense(key, pd.factorize(values)[0])[0]
    latency = layers["latency_ns"].to_numpy(np.float64)
    order = np.lexsort((latency, key))
    key, latency = key[order], latency[order]
    before = np.where(np.diff(key, prepend=-1) == 0, np.roll(latency, 1), np.nan)
    group = np.cumsum(np.isnan(before) | (latency > _STEP * before)) - 1
    sums = pd.DataFrame({"latency_ns": latency, "first_index": layers["layer_index"].to_numpy()[order]}).groupby(group)
    summed = sums.agg({"latency_ns": "sum", "first_index": "min"})
    largest = summed.sort_values(["latency_ns", "first_index"], ascending=[False, True]).index[:limit]
    wanted = np.isin(group, largest)
    columns = ["latency_ns", "latency_ratio", "layer_index", "layer_path"]
    frame = layers[columns].iloc[order[wanted]].astype({"layer_path": object})
    frame = frame.assign(row=order[wanted], group=group[wanted])
    by_time, by_index = frame.groupby("group"), frame.sort_values("layer_index").groupby("group")
    groups = pd.DataFrame({
        "first": by_time["row"].last(), "layer_count": by_time.size(), "latency_ns": by_time["latency_ns"].sum(),
        "latency_ratio": by_time["latency_ratio"].sum(), "min_ns": by_time["latency_ns"].min(),
        "max_ns": by_time["latency_ns"].max(), "first_index": by_index["layer_index"].first(),
        "last_index": by_index["layer_index"].last(), "path": by_index["layer_path"].agg(starred),
    })  # fmt: skip
    return groups.reindex(largest).reset_index(drop=True)


def starred(texts: Iterable[str]) -> str:
    """What texts that differ in numbers share: ``block.*`` of ``block.0``, ``block.1`` and ``block.31``."""
    first, *others = dict.fromkeys(texts)
    numbers = zip(*map(_DIGITS.findall, [first, *others]))
    return _DIGITS.sub(lambda found: found[0] if set(next(numbers, ())) == {found[0]} else "*", first)
