"""Tree → Analysis of one capture: the core tables (`schemas.results`) that everything after reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, to_frame
from xsp_post.model.confidence import confidence_words
from xsp_post.model.results import WORKLESS, Analysis, OnDemand, Results, with_findings
from xsp_post.model.tree import Tree, balance
from xsp_post.schemas import column_names
from xsp_post.tree_steps.folding import fold
from xsp_post.tree_tables.captures import captures_frame, iterations_frame
from xsp_post.tree_tables.columns import Threads
from xsp_post.tree_tables.devices import devices_frame
from xsp_post.tree_tables.idle import idle_frames
from xsp_post.tree_tables.operations import operations_frame

__all__ = ["core_frames", "core_on_demand", "summary_frames"]


def core_frames(
    tree: Tree, capture_id: int, on_rows: Callable[[dict[str, pd.DataFrame]], None] | None = None
) -> Analysis:
    """The core tables (`schemas.results`) of one capture. ``on_rows`` is called with the two large ones, ``nodes``
    and ``kernels``, as soon as they are finished: somebody may begin to write them."""
    found = _findings_of(tree, capture_id)
    results = OnDemand({}, _makers(tree, capture_id, found))
    for name in results.makers:
        results.frame(name)
        if name == "kernels" and on_rows is not None:
            on_rows(dict(results.frames))
    return with_findings(results.frames | {"kernel_metrics": _no_metrics()}, found)


def core_on_demand(tree: Tree) -> OnDemand:
    """The same of the only capture there is, each made when it is read, without the table ``idle`` and without
    findings of tables that are not read; ``workless`` where no work of its kernels is known."""
    from xsp_post.tree_tables.operators import says_work

    frames = {"findings": to_frame(_findings_of(tree, 0)), "kernel_metrics": _no_metrics()}
    if not says_work(tree):
        frames[WORKLESS] = pd.DataFrame()
    return OnDemand(frames, _makers(tree, 0, [], with_pieces=False))


def _findings_of(tree: Tree, capture_id: int) -> list[Finding]:
    return [replace(f, capture_id=capture_id) for f in tree.findings]


def _no_metrics() -> pd.DataFrame:
    return pd.DataFrame(columns=column_names("kernel_metrics"))


def _makers(
    tree: Tree, capture_id: int, found: list[Finding], *, with_pieces: bool = True
) -> dict[str, Callable[[Results], dict[str, pd.DataFrame]]]:
    """What makes each core table. What is odd about one is added to ``found`` when it is made."""
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

    threads = Threads(tree)

    def told(made: tuple[dict[str, pd.DataFrame], list[Finding]]) -> dict[str, pd.DataFrame]:
        found.extend(replace(f, capture_id=capture_id) for f in made[1])
        return made[0]

    def idle() -> dict[str, pd.DataFrame]:
        paths = fold(tree)
        return {"paths": paths, **idle_frames(tree, paths, with_pieces=with_pieces)}

    single: dict[str, Callable[[Results], pd.DataFrame]] = {
        "nodes": lambda _: nodes_frame(tree, threads),
        "kernels": lambda _: kernels_frame(tree, threads),
        "iterations": lambda _: iterations_frame(tree),
        "layers": lambda _: layers_frame(tree),
        "memory_operations": lambda _: memory_operations_frame(tree, threads),
        "operations": lambda _: operations_frame(tree),
        "devices": lambda _: devices_frame(tree),
        "balance": lambda _: balance(tree),
        "collectives": lambda of: collectives_frame(of.frame("kernels"), *message_sizes(tree)),
        "dependencies": lambda _: dependencies_frame(tree.trace, tree.activities["launch_id"].to_numpy()),
        "execution_candidates": lambda _: tree.execution_candidates.copy(),
        "inferred": lambda _: _inferred_frame(tree),
        "captures": lambda of: captures_frame(tree, of.frame("iterations")["batch_size"].to_numpy()),
    }
    several: dict[tuple[str, ...], Callable[[], dict[str, pd.DataFrame]]] = {
        ("operators", "kernel_work"): lambda: operator_frames(tree),
        ("paths", "idle_causes", "device_windows", *(("idle",) if with_pieces else ())): idle,
        ("memory_devices", "memory", "memory_timeline"): lambda: told(memory_frames(tree, threads)),
        ("gpu_samples", "gpu_timeline"): lambda: told(gpu_sample_frames(tree)),
    }

    def one(name: str) -> Callable[[Results], dict[str, pd.DataFrame]]:
        return lambda results: {name: _of_capture(name, single[name](results), capture_id)}

    def some(names: tuple[str, ...]) -> Callable[[Results], dict[str, pd.DataFrame]]:
        return lambda _: {name: _of_capture(name, frame, capture_id) for name, frame in several[names]().items()}

    return {name: one(name) for name in single} | {name: some(names) for names in several for name in names}


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
