"""Tree → the sentence that says what the layers are, how many each execution holds and how much device time they
cover; and the warning where much of a model counts for none of them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.statistics import medians
from xsp_post.base.findings import Finding, finding
from xsp_post.model.confidence import confidence_words
from xsp_post.model.levels import Level
from xsp_post.model.tree import NodeKind
from xsp_post.tree_steps.node_names import NodeNames

# A model's [self] is a remainder; above this share of its device time it is one that hides layers.
MOST_SELF = 0.2
_MOST_NAMED = 2
# Executions that hold this share of the device time hold all of it, as far as a sentence in whole percent goes.
_ALL = 0.995


def layer_evidence(nodes: pd.DataFrame, activities: pd.DataFrame, names: NodeNames) -> tuple[str, list[Finding]]:
    """``layers: `BertLayer` ×4, 81 % of device time; 2 others, 17 %`` ('' without layers), and findings.

    Counted per execution where there are executions; shares are of the device time of the executions, which is said
    where it is not all of it, else of the capture. nodes need layer_node_id and iteration_index.
    """
    level = nodes["level"].to_numpy()
    layers = np.flatnonzero(level == int(Level.LAYER))
    duration = np.maximum(activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy(), 0)
    home, node = activities["layer_node_id"].to_numpy(), activities["node_id"].to_numpy()
    in_model = (nodes["iteration_index"].to_numpy()[node] >= 0) | (activities["iteration_index"].to_numpy() >= 0)
    counted = in_model if in_model.any() else np.ones(len(duration), bool)
    total = int(duration[counted].sum())
    is_layer = (home >= 0) & (level[np.maximum(home, 0)] == int(Level.LAYER)) & counted
    findings = []
    if total and in_model.any():
        own = int(duration[counted & (home >= 0) & ~is_layer].sum())
        if own > MOST_SELF * total:
            example = f"{own / total * 100:.0f} % of the device time of the model executions is in no layer"
            findings.append(
                finding("model-self", count=int((counted & (home >= 0) & ~is_layer).sum()), example=example)
            )
    if not len(layers):
        return "", findings
    held = np.bincount(home[is_layer], weights=duration[is_layer].astype(float), minlength=len(nodes))[layers]
    frame = _kinds(nodes, layers, held, names)
    is_all = total >= _ALL * int(duration.sum())
    return _sentence(frame, total, "device time" if is_all else "the executions' device time"), findings


def _kinds(nodes: pd.DataFrame, layers: np.ndarray, held: np.ndarray, names: NodeNames) -> pd.DataFrame:
    """Layers by what they are called: how many an execution holds, and their device time; heaviest first."""
    folded, which = np.unique(nodes["folded_id"].to_numpy()[layers], return_inverse=True)
    first = np.zeros(len(folded), np.int64)
    first[which[::-1]] = np.arange(len(layers))[::-1]
    kind = names.node_text("layer_type", layers[first])
    inferred = nodes["is_inferred"].to_numpy()[layers[first]]
    texts = names.folded_names[folded]
    hooked = nodes["kind"].to_numpy()[layers[first]] == int(NodeKind.HOOK_PAIR)
    texts = np.where(hooked, pd.Series(texts, dtype=object).str.replace(r"\d+", "*", regex=True), texts)
    called, kinds = pd.factorize(np.where((kind == "") | inferred, texts, kind))
    # one column per execution of a process; what is outside executions counts per process
    iteration = nodes["iteration_index"].to_numpy()[layers].astype(np.int64)
    process = nodes["process_index"].to_numpy()[layers].astype(np.int64)
    place = np.where(iteration >= 0, iteration, iteration.max(initial=-1) + 1 + np.maximum(process, 0))
    width = int(place.max()) + 1
    counts = np.bincount(called[which] * width + place, minlength=len(kinds) * width).reshape(len(kinds), width)
    # the same layer again (a second pass that nothing marks) is not counted again
    several = np.bincount(called) > 1
    seen = np.unique(which * width + place)
    distinct = np.bincount(called[seen // width] * width + seen % width, minlength=counts.size).reshape(counts.shape)
    outside = np.arange(width) > iteration.max(initial=-1)
    counts = np.where(several[:, None] & outside, distinct, counts)
    if (iteration >= 0).any():
        inside = counts[:, : int(iteration.max()) + 1]
        counts = np.where(
            inside.any(axis=1, keepdims=True), np.pad(inside, ((0, 0), (0, width - inside.shape[1]))), counts
        )
    sure = np.ones(len(kinds))
    np.minimum.at(sure, called[which], nodes["confidence_ratio"].to_numpy()[layers])
    is_inferred = np.zeros(len(kinds), bool)
    is_inferred[called[inferred]] = True
    row, column = np.nonzero(counts)
    frame = pd.DataFrame({
        "called": kinds, "how": np.where(is_inferred, confidence_words(sure), ""),
        "count": np.nan_to_num(medians(counts[row, column], row, len(kinds))).astype(int),
        "held": np.bincount(called[which], weights=held, minlength=len(kinds)),
    })  # fmt: skip
    return frame.sort_values("held", ascending=False, kind="stable").set_index("called")


def _sentence(frame: pd.DataFrame, total: int, of_what: str) -> str:
    leading = frame.head(_MOST_NAMED) if not total else frame[frame["held"] >= 0.1 * total].head(_MOST_NAMED)
    leading = leading if len(leading) else frame.head(1)
    parts = []
    for called, row in leading.iterrows():  # at most two
        share = f", {100 * row['held'] / total:.0f} % of {of_what}" if total else ""
        word = f" (inferred, {row['how']} confidence)" if row["how"] else ""
        parts.append(f"`{called}` ×{int(row['count'])}{word}{share}")
    rest = frame.iloc[len(leading) :] if len(frame) > len(leading) else frame.iloc[:0]
    if len(rest):
        share = f", {rest['held'].sum() / total * 100:.0f} %" if total else ""
        parts.append(f"{len(rest)} other{'s' if len(rest) > 1 else ''}{share}")
    return "layers: " + "; ".join(parts)
