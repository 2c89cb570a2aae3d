"""Tree → Analysis of one capture: the core tables (`schemas.results`) that everything after reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from xsp_post.model.confidence import confidence_words
from xsp_post.model.results import Analysis, with_findings
from xsp_post.model.tree import Tree, balance
from xsp_post.schemas import column_names
from xsp_post.tree_steps.folding import fold
from xsp_post.tree_tables.captures import captures_frame, iterations_frame
from xsp_post.tree_tables.columns import Threads
from xsp_post.tree_tables.devices import devices_frame
from xsp_post.tree_tables.idle import idle_frames
from xsp_post.tree_tables.operations import operations_frame

__all__ = ["core_frames", "summary_frames"]


def core_frames(
    tree: Tree, capture_id: int, on_rows: Callable[[dict[str, pd.DataFrame]], None] | None = None
) -> Analysis:
    """The core tables (`schemas.results`) of one capture. ``on_rows`` is called with the two large ones, ``nodes``
    and ``kernels``, as soon as they are finished: somebody may begin to write them."""
    # imported here, because the printed tree needs none of them
    from xsp_post.replay.collectives import collectives_frame
    from xsp_post.replay.waits import dependencies_frame
    from xsp_post.tree_tables.collectives import message_sizes
    from xsp_post.tree_tables.gpu_samples import gpu_sample_frames
    from xsp_post.tree_tables.kernels import kernels_frame, memory_operations_frame
    from xsp_post.tree_tables.layers import layers_frame
    from xsp_post.tree_tables.memory import memory_frames
    from xsp_post.tree_tables.nodes import nodes_frame
    from xsp_post.tree_tables.operators import operator_frames

    found = [replace(f, capture_id=capture_id) for f in tree.findings]
    threads = Threads(tree)
    rows = {"nodes": nodes_frame(tree, threads), "kernels": kernels_frame(tree, threads)}
    frames = {name: _of_capture(name, frame, capture_id) for name, frame in rows.items()}
    if on_rows is not None:
        on_rows(dict(frames))
    rest = {
        "iterations": iterations_frame(tree),
        "paths": fold(tree),
        "layers": layers_frame(tree),
        "memory_operations": memory_operations_frame(tree, threads),
        "operations": operations_frame(tree),
        "devices": devices_frame(tree),
        "balance": balance(tree),
        "collectives": collectives_frame(rows["kernels"], *message_sizes(tree)),
        "dependencies": dependencies_frame(tree.trace, tree.activities["launch_id"].to_numpy()),
        **operator_frames(tree),
        "execution_candidates": tree.execution_candidates.copy(),
        "inferred": _inferred_frame(tree),
    }
    rest["captures"] = captures_frame(tree, rest["iterations"]["batch_size"].to_numpy())
    rest |= idle_frames(tree, rest["paths"])
    for made, told in (memory_frames(tree, threads), gpu_sample_frames(tree)):
        rest |= made
        found += [replace(f, capture_id=capture_id) for f in told]
    frames |= {name: _of_capture(name, frame, capture_id) for name, frame in rest.items()}
    frames["kernel_metrics"] = pd.DataFrame(columns=column_names("kernel_metrics"))
    return with_findings(frames, found)


def _inferred_frame(tree: Tree) -> pd.DataFrame:
    known = tree.inferred.drop(columns="arguments", errors="ignore")  # of carried-over operators: for their work only
    known = known.rename(columns={"confidence": "confidence_ratio"})
    return known.assign(confidence=confidence_words(known["confidence_ratio"].to_numpy(float)))


def _of_capture(name: str, frame: pd.DataFrame, capture_id: int) -> pd.DataFrame:
    """The frame with its capture, columns in the schema's order."""
    owner = np.full(len(frame), capture_id, np.int64)
    if "capture_id" in frame:
        frame["capture_id"] = owner
    else:
        frame.insert(0, "capture_id", owner)
    there = frame.columns.tolist()
    known = set(there)
    order = list(dict.fromkeys([*(c for c in column_names(name) if c in known), *there]))
    return frame if order == there else frame[order]


def summary_frames(tree: Tree, capture_id: int = 0) -> Analysis:
    """What `tree` prints, without the million rows behind it: captures, devices, paths and what ran in
    them, balance, causes of waits, findings."""
    frames = {"paths": fold(tree), "operations": operations_frame(tree), "devices": devices_frame(tree),
              "balance": balance(tree), "captures": captures_frame(tree)}  # fmt: skip
    frames |= idle_frames(tree, frames["paths"], with_pieces=False)
    frames["execution_candidates"] = tree.execution_candidates.copy()
    for name, frame in frames.items():
        frame.insert(0, "capture_id", np.full(len(frame), capture_id, np.int64))
        frames[name] = frame
    return with_findings(frames, [replace(f, capture_id=capture_id) for f in tree.findings])
