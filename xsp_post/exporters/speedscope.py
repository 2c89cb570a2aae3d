"""Results → files: a flame graph for speedscope.app, aggregated by path, so that it is small for any capture.

Two profiles: device time (kernels by the path of the range that launched them, kernel name as the leaf) and host
time (what each range spent outside its children). Format: speedscope's file-format-schema.json, ``sampled``.
Each stack is written whole, so that ranges nested thousands deep are one frame below `_DEEPEST`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.output import write_text
from xsp_post.exporters.base import Selection, Written, select
from xsp_post.model.results import Results

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_DEEPEST = 1000  # frames; real programs nest some tens deep
_DEEPER = "[deeper ranges]"


def write(results: Results, path: Path, *, force: bool = False, **part: Any) -> Written:
    """One JSON file. Raises OutputError, UsageError (no such capture)."""
    columns: dict[str, Any] = {
        "nodes": ("parent_id", "path_id", "folded_name", "self_ns"),
        "kernels": ("node_id", "short_name"),
    }
    selection = select(results, capture_id=part.get("capture_id"), **columns)
    document = data(selection)
    write_text(path, json.dumps(document, separators=(",", ":")), force)
    counts = {f"stacks of {profile['name']}": len(profile["samples"]) for profile in document["profiles"]}
    return Written(Path(path), counts, selection.findings)


def data(selection: Selection) -> dict[str, Any]:
    """The document: weights are nanoseconds and add up to the capture's kernel time and recorded host time."""
    frames: dict[str, int] = {}  # each text once, with its number
    paths = _paths(selection.nodes)
    stacks, shown = _stacks(paths, frames)
    of_node = pd.Series(selection.nodes["path_id"].map(shown).to_numpy(), index=selection.nodes["node_id"].to_numpy())

    kernels = selection.kernels
    duration = kernels["end_ns"].to_numpy() - kernels["start_ns"].to_numpy()
    leaf = kernels["short_name"].astype(object).to_numpy()
    path_id = of_node.reindex(kernels["node_id"]).fillna(-1).to_numpy(dtype=np.int64)
    by_path = pd.Series(duration).groupby([path_id, leaf], sort=False).sum()
    device = [
        ([*stacks.get(path, []), _number(frames, name)], weight)
        for (path, name), weight in zip(by_path.index, by_path.tolist())
    ]

    # synthetic nodes have no host time of their own
    own = selection.ranges.groupby(selection.ranges["path_id"].map(shown), sort=False)["self_ns"].sum()
    host = [(stacks[path], weight) for path, weight in zip(own.index.tolist(), own.tolist()) if weight > 0]
    name = str(selection.capture.get("workload_name") or selection.capture.get("source_name") or "capture")
    return {
        "$schema": _SCHEMA,
        "exporter": "xsp-post",
        "name": name,
        "activeProfileIndex": 0,
        "profiles": [_profile("device time (kernels)", device), _profile("host time (ranges)", host)],
        "shared": {"frames": [{"name": name} for name in frames]},
    }


def _number(frames: dict[str, int], name: object) -> int:
    return frames.setdefault(str(name), len(frames))


def _paths(nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per folded path: its name and the path above it (−1 for the root)."""
    first = nodes.drop_duplicates("path_id")
    path_of = pd.Series(nodes["path_id"].to_numpy(), index=nodes["node_id"].to_numpy())
    above = path_of.reindex(first["parent_id"]).fillna(-1).to_numpy(dtype=np.int64)
    return pd.DataFrame(
        {"above": above, "name": first["folded_name"].astype(object).to_numpy()}, index=first["path_id"].to_numpy()
    )


def _stacks(paths: pd.DataFrame, frames: dict[str, int]) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Frame numbers from the root to each path that has a stack of its own; and by path the one that it is shown as."""
    above = dict(zip(paths.index.tolist(), paths["above"].tolist()))
    number = {path: _number(frames, name) for path, name in zip(paths.index.tolist(), paths["name"])}
    stacks: dict[int, list[int]] = {}
    shown: dict[int, int] = {}
    for path in above:
        chain: dict[int, None] = {}  # as an ordered set
        at = path
        while at in above and at not in shown and at not in chain:
            chain[at] = None
            at = above[at]
        for step in reversed(chain):
            around = shown.get(above[step], -1)
            stack = stacks.get(around, [])
            if len(stack) > _DEEPEST:
                shown[step] = around
            else:
                stacks[step] = [*stack, number[step] if len(stack) < _DEEPEST else _number(frames, _DEEPER)]
                shown[step] = step
    return stacks, shown


def _profile(name: str, samples: list[tuple[list[int], int]]) -> dict[str, Any]:
    heaviest_first = sorted(samples, key=lambda sample: -sample[1])
    total = sum(weight for _, weight in heaviest_first)
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": total,
        "samples": [stack for stack, _ in heaviest_first],
        "weights": [weight for _, weight in heaviest_first],
    }
