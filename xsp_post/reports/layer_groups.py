"""The layers of a case → groups of equal layers, so that 32 equal blocks are one row.

Layers are equal where their paths differ in numbers only, with the same type, shape and kernels, and their latencies
lie close together.
"""

import re

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import pair_numbers, without_numbers

_DIGITS = re.compile(r"\d+")
# Latencies of one group, sorted: no step larger than this.
_STEP = 1.25


def layer_groups(layers: pd.DataFrame, launches: pd.DataFrame, limit: int) -> pd.DataFrame:
    """One row for each of the groups with the largest sums, largest first: first (row number of its slowest layer),
    layer_count, latency_ns (sum), latency_ratio (sum), min_ns, max_ns, first_index, last_index, first_path, last_path.

    ``layers``: rows of A2. ``launches``: layer_index and name of A8, which tell what ran inside.
    """
    key, _ = without_numbers(layers["layer_path"])
    inside = layers["layer_index"].map(_work_of_layers(launches)).fillna(0)
    for values in (layers["layer_type"], layers["shape_text"], inside):
        key = pair_numbers(key, pd.factorize(values)[0])
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
    groups = pd.DataFrame(
        {
            "first": by_time["row"].last(),
            "layer_count": by_time.size(),
            "latency_ns": by_time["latency_ns"].sum(),
            "latency_ratio": by_time["latency_ratio"].sum(),
            "min_ns": by_time["latency_ns"].min(),
            "max_ns": by_time["latency_ns"].max(),
            "first_index": by_index["layer_index"].first(),
            "last_index": by_index["layer_index"].last(),
            "first_path": by_index["layer_path"].first(),
            "last_path": by_index["layer_path"].last(),
        }
    )
    return groups.reindex(largest).reset_index(drop=True)


def _work_of_layers(launches: pd.DataFrame) -> pd.Series:
    """A number per layer index that is equal for equal kernels, however they are ordered."""
    codes = pd.util.hash_array(pd.factorize(launches["name"])[0].astype(np.int64))
    return pd.Series(codes, index=launches["layer_index"].to_numpy()).groupby(level=0).sum()


def starred(first: str, last: str) -> str:
    """What two texts that differ in numbers share: ``block.*`` of ``block.0`` and ``block.31``."""
    numbers = iter(_DIGITS.findall(last))
    return _DIGITS.sub(lambda found: found[0] if next(numbers, None) == found[0] else "*", first)
