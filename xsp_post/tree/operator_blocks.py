"""Trace → Tree, step "operators without modules": which operator ranges may fold into the blocks they repeat in, and
what such blocks are called.

A profile without module frames knows operators only: hundreds of `aten::linear` say little. The blocks that repeat are
inferred over them, as they would be without operators, and named by them; where nothing repeats, operators are layers.
"""

import re

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.forest import forest_of
from xsp_post.model.levels import Level
from xsp_post.model.tree import NodeKind
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.structure.constants import Constants

_MOST_NAMED = 3
_BACKWARD = re.compile(r"Backward\**\d*$")


def open_operators(names: NodeNames, nodes: pd.DataFrame, activities: pd.DataFrame, constants: Constants) -> np.ndarray:
    """Outermost operator ranges that may be parts of blocks, and layers that are as many attentions as MLPs; bool per
    node, none set where modules were recorded."""
    nothing = np.zeros(len(nodes), bool)
    is_operator = names.node_is("role", "operator") & (nodes["level"].to_numpy() != int(Level.LIBRARY))
    layer = (nodes["level"].to_numpy() == int(Level.LAYER)) & ~names.node_is("role", "phase")
    halves = [
        layer & names.folded_with(word)[nodes["folded_id"].to_numpy()]
        for word in ("(?i)att(?:entio)?n", "(?i)mlp|ffn|moe")
    ]
    if halves[0].sum() == halves[1].sum():
        is_operator |= halves[0] ^ halves[1]
    if not (is_operator & layer).any():
        return nothing
    parent = nodes["parent_id"].to_numpy()
    held = rollup.add_up(_own_time(nodes, activities), parent)
    recorded = layer & ~is_operator & (nodes["kind"].to_numpy() != int(NodeKind.INFERRED))
    outermost = is_operator & ~forest_of(parent).inside(is_operator)
    # a range or two around a collective are no layers
    return nothing if held[recorded].sum() >= constants.most_ratio * held[outermost].sum() else outermost


def inside_of(chosen: np.ndarray, nodes: pd.DataFrame) -> np.ndarray:
    """Which nodes are chosen (bool per node) or lie in one that is."""
    return chosen | forest_of(nodes["parent_id"].to_numpy()).inside(chosen)


def _own_time(nodes: pd.DataFrame, activities: pd.DataFrame) -> np.ndarray:
    length = np.maximum(activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy(), 0)
    return rollup.sums_per_node(activities["node_id"].to_numpy(), length, len(nodes))


def name_by_operators(
    found: pd.DataFrame, node_of_launch: np.ndarray, node: np.ndarray, duration: np.ndarray, operators: np.ndarray,
    names: NodeNames, nodes: pd.DataFrame,
) -> None:  # fmt: skip
    """Blocks and stretches of ``found`` named by the operators in them (in place), those of one name alike.

    node_of_launch: row of found per launch (−1); node, duration: the recorded node and device time of each launch;
    operators: outermost operator ranges, bool per node.
    """
    if not operators.any() or not len(found):
        return
    operator = forest_of(nodes["parent_id"].to_numpy()).outermost_around(operators)[node]
    folded = np.where(operator >= 0, nodes["folded_id"].to_numpy()[np.maximum(operator, 0)], -1)
    above = found["parent"].to_numpy()
    is_named = found["kind"].isin(["block", "stretch"]).to_numpy() & (found["level"] == "LAYER").to_numpy()
    holder = np.where(is_named, np.arange(len(found)), -1)
    for _ in range(8):  # inferred nodes are at most a few levels deep
        holder = np.where(holder >= 0, holder, np.where(above >= 0, holder[np.maximum(above, 0)], -1))
    placed = node_of_launch >= 0
    block = np.where(placed, holder[np.maximum(node_of_launch, 0)], -1)
    text, plain = found["name"].to_numpy(object).copy(), found["folded_name"].to_numpy(object).copy()
    number, kinds = pd.factorize(plain)
    for kind in range(len(kinds)):  # different names of inferred nodes: a few
        rows = np.flatnonzero((number == kind) & is_named)
        if not len(rows):
            continue
        mine = np.flatnonzero((block == rows[len(rows) // 2]) & (folded >= 0))
        if not len(mine):
            continue
        label = _label(folded[mine], duration[mine], names)
        text[rows] = [_called(t, label) for t in text[rows].tolist()]
        plain[rows] = _called(str(kinds[kind]), label)
    found["name"], found["folded_name"] = text, plain


def _called(word: str, label: str) -> str:
    """``block, backward · MmBackward, TanhBackward``."""
    word = word.split(" · ")[0]
    is_backward = all(_BACKWARD.search(one) for one in label.split(", ")) and "backward" not in word
    return f"{word}{', backward' * is_backward} · {label}"


def _label(folded: np.ndarray, duration: np.ndarray, names: NodeNames) -> str:
    """The heaviest operators in the order they run: ``aten::linear, FlashAttnFunc, AllToAll4D``."""
    codes, used = pd.factorize(folded)
    time = np.bincount(codes, weights=np.maximum(duration, 1))
    shown = np.sort(np.argsort(-time, kind="stable")[:_MOST_NAMED])
    return ", ".join(str(names.folded_names[used[k]]).rpartition(": ")[2] for k in shown.tolist())
