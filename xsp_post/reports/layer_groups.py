"""The layers of a case → groups of equal layers, so that 32 equal blocks are one row.

Layers are equal where their paths differ in numbers only, with the same type, shape and kernels, and their latencies
lie close together.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

_DIGITS = re.compile(r"\d+")
# Latencies of one group, sorted: no step larger than this.
_STEP = 1.25


def layer_groups(layers: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """One row per group, largest sum first: first (row number of its slowest layer), layer_count, latency_ns (sum),
    latency_ratio (sum), median_ns, min_ns, max_ns, first_index, last_index, first_path, last_path.

    ``layers``: rows of A2. ``launches``: layer_index and name of A8, which tell what ran inside.
    """
    rows = layers.reset_index(drop=True)
    keys = {
        "path": rows["layer_path"].astype(str).map(lambda path: _DIGITS.sub("#", path)),
        "type": rows["layer_type"].astype(str),
        "shape": rows["shape_text"].astype(str),
        "inside": rows["layer_index"].map(_work_of_layers(launches)).fillna(0),
    }
    key = pd.DataFrame(keys).groupby(list(keys), sort=False).ngroup()
    frame = rows.assign(key=key, row=np.arange(len(rows))).sort_values(["key", "latency_ns"])
    before = frame.groupby("key")["latency_ns"].shift()
    begins = before.isna() | (frame["latency_ns"] > _STEP * before)
    frame["group"] = begins.cumsum()
    by_time = frame.groupby("group")
    by_index = frame.sort_values("layer_index").groupby("group")
    groups = pd.DataFrame(
        {
            "first": by_time["row"].last(),
            "layer_count": by_time.size(),
            "latency_ns": by_time["latency_ns"].sum(),
            "latency_ratio": by_time["latency_ratio"].sum(),
            "median_ns": by_time["latency_ns"].median(),
            "min_ns": by_time["latency_ns"].min(),
            "max_ns": by_time["latency_ns"].max(),
            "first_index": by_index["layer_index"].first(),
            "last_index": by_index["layer_index"].last(),
            "first_path": by_index["layer_path"].first().astype(str),
            "last_path": by_index["layer_path"].last().astype(str),
        }
    )
    return groups.sort_values(["latency_ns", "first_index"], ascending=[False, True]).reset_index(drop=True)


def _work_of_layers(launches: pd.DataFrame) -> pd.Series:
    """A number per layer index that is equal for equal kernels, however they are ordered."""
    names = pd.Series(launches["name"].astype(object).to_numpy(), dtype=object)
    codes = pd.util.hash_array(names.factorize()[0].astype(np.int64))
    return pd.Series(codes, index=launches["layer_index"].to_numpy()).groupby(level=0).sum()


def starred(first: str, last: str) -> str:
    """What two texts that differ in numbers share: ``block.*`` of ``block.0`` and ``block.31``."""
    numbers = iter(_DIGITS.findall(last))
    return _DIGITS.sub(lambda found: found[0] if next(numbers, None) == found[0] else "*", first)
