"""Trace → Tree, step "sizes of inference steps": requests, tokens and keys of each model execution, by its text or by
that of the one step around it or inside it; and the host's gap before it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.model.schemas.units import format_ns
from xsp_post.model.tree import Tree
from xsp_post.names.step_texts import SIZES, step_sizes

# Of how many ranges above a model execution the text may say its sizes.
_ABOVE = 3
_MOST_KINDS = 6


def sizes_of_steps(tree: Tree, model: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of iterations: sizes by the texts of steps, int64, −1 unknown; ``size_source``: text (its own), around,
    inside, or '' for none."""
    own = step_sizes(_texts(tree, model))
    known = np.max([own[column] for column in SIZES.values()], axis=0, initial=-1) > 0
    source = np.where(known, "text", "").astype(object)
    parent = tree.nodes["parent_id"].to_numpy()
    is_step = tree.names.node_is("role", "iteration")
    above = model
    for _ in range(_ABOVE if len(model) else 0):
        above = np.where(above > 0, parent[np.maximum(above, 0)], -1)
        times = np.bincount(np.maximum(above, 0), minlength=len(parent))[np.maximum(above, 0)]
        _fill(own, source, "around", np.where((above > 0) & is_step[above] & (times == 1), above, -1), tree)
    _fill(own, source, "inside", _only_step_inside(tree, model, is_step), tree)
    return {**own, "size_source": source}


def _only_step_inside(tree: Tree, model: np.ndarray, is_step: np.ndarray) -> np.ndarray:
    """The node of the one step text inside each execution, −1 for none or several."""
    is_inside = is_step.copy()
    is_inside[model] = False
    inside = np.flatnonzero(is_inside & (tree.nodes["iteration_index"].to_numpy() >= 0))
    index = tree.nodes["iteration_index"].to_numpy()[inside]
    single = np.bincount(index, minlength=len(model)) == 1
    found = np.full(len(model), -1, np.int64)
    found[index] = inside
    return np.where(single, found, -1)


def _fill(own: dict[str, np.ndarray], source: np.ndarray, word: str, nodes: np.ndarray, tree: Tree) -> None:
    """Sizes that are still unknown, from the texts of these nodes (−1 none)."""
    rows = np.flatnonzero(nodes >= 0)
    if not len(rows):
        return
    found = step_sizes(_texts(tree, nodes[rows]), of_engines=True)
    fresh = np.zeros(len(rows), bool)
    for column, values in found.items():
        missing = (own[column][rows] < 0) & (values > 0)
        own[column][rows[missing]] = values[missing]
        fresh |= missing
    at = rows[fresh]
    source[at] = np.where(source[at] == "", word, source[at] + f", {word}")


def _texts(tree: Tree, nodes: np.ndarray) -> np.ndarray:
    """The texts of nodes as captured, '' for none; object."""
    name = tree.nodes["name_id"].to_numpy()[nodes]
    texts = tree.strings[np.maximum(name, 0)] if len(tree.strings) else np.full(len(name), "", object)
    return np.where(name >= 0, texts, "").astype(object)


def host_gaps(frame: pd.DataFrame) -> np.ndarray:
    """From the end of each execution, its last device work included, to the start of the next one of its process,
    whatever its phase; 0 where they overlap. Float ns, NaN for the first ones."""
    start, process = frame["start_ns"].to_numpy(), frame["process_index"].to_numpy()
    end = start + frame["latency_ns"].to_numpy()
    order = np.lexsort((start, process))
    here, following = order[:-1], order[1:]
    gap = np.full(len(frame), np.nan)
    same = process[here] == process[following]
    gap[following[same]] = np.maximum(start[following] - end[here], 0)[same]
    return gap


def by_kind(frame: pd.DataFrame) -> str:
    """``: decode ×558 (p50 1.27 ms), prefill ×178 (p50 5.20 ms)`` of steps that name their sizes; '' of others."""
    rows = frame[(frame["size_source"] != "") & ~frame["is_warmup"]]
    if len(rows) < 2:
        return ""
    latency = rows.groupby("kind")["latency_ns"]
    parts = [(len(one), f"{kind} ×{len(one):,} (p50 {format_ns(one.median())})") for kind, one in latency]
    return ": " + ", ".join(text for _, text in sorted(parts, reverse=True)[:_MOST_KINDS])
