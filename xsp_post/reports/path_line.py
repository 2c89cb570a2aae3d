"""The critical path of an execution → one line: which parts of the stack decide its length, and how much each."""

from __future__ import annotations

import pandas as pd

from xsp_post.base.text_safety import shown
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports.facts import device_of
from xsp_post.schemas.units import format_count, format_ns, format_ratio_percent

_MOST_PARTS = 4
_LEAST_RATIO = 0.03
_LONGEST_NAME = 40
_DEVICE = {"kernel": "kernels", "memcpy": "copies", "memset": "memsets", "graph": "graphs"}


def critical_path_line(results: Results, capture_id: int) -> str:
    """``Critical path of execution 2, 9.24 s: 62 % kernels of block, 30 % host, …``; "" where no path is known."""
    steps = frame_or_empty(
        results, "critical_path", ["capture_id", "iteration_index", "kind", "layer_index", "duration_ns"]
    )
    steps = steps[steps["capture_id"] == capture_id]
    total = int(steps["duration_ns"].sum())
    if not total:
        return ""
    layers = frame_or_empty(results, "layers", ["capture_id", "layer_index", "layer_path", "layer_type"])
    layers = layers[layers["capture_id"] == capture_id].drop_duplicates("layer_index")
    device = _DEVICE | {"kernel": device_of(results).work}
    part = steps["kind"].astype(object)
    works = part.isin(list(device))
    layer_of = steps.loc[works, "layer_index"]
    owner = layer_of.map(_owners(layers[layers["layer_index"].isin(layer_of)])).astype(object).fillna("no layer")
    part[works] = part[works].map(device) + " of " + owner
    shares = steps["duration_ns"].groupby(part.to_numpy()).sum().sort_values(ascending=False, kind="stable") / total
    named = shares[shares >= _LEAST_RATIO].head(_MOST_PARTS)
    texts = [f"{format_ratio_percent(ratio)} {name}" for name, ratio in named.items()]
    if (rest := 1 - float(named.sum())) >= 0.005:
        texts.append(f"{format_ratio_percent(rest)} other")
    number = steps["iteration_index"].iloc[0]
    measured = frame_or_empty(results, "iterations", ["capture_id", "is_warmup"])
    count = int((measured["capture_id"].eq(capture_id) & ~measured["is_warmup"].astype(bool)).sum())
    nearest = f" (of {format_count(count)} the one nearest the median)" if count > 1 else ""
    what = "the recording" if pd.isna(number) else f"execution {int(number)}{nearest}"
    return f"Critical path of {what}, {format_ns(total)}: {', '.join(texts)}"


def _owners(layers: pd.DataFrame) -> dict[int, str]:
    """By layer: its type where it has one, else its path; layers of one type count as one part."""
    kinds, paths = layers["layer_type"].astype(str), layers["layer_path"].astype(str)
    names = kinds.where(kinds != "", paths).tolist()
    texts = {name: shown(name, _LONGEST_NAME) for name in set(names)}
    return dict(zip(layers["layer_index"].tolist(), map(texts.__getitem__, names)))
