"""How well a tree tells the structure of a program whose structure is known (`generators.programs`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from generators.recorder import NOT_JUDGED, NOTHING, Truth

from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Tree

RIGHT = 0.95  # share of the kernels from which on an answer is right
ABSTAINED = 0.5


@dataclass(frozen=True)
class Answer:
    """One question about one program. ``share``: of the judged kernels that are in the right group (NaN: not judged);
    ``found`` and ``true``: how many groups there are; ``is_counted``: their number must be right too."""

    share: float
    found: int
    true: int
    is_counted: bool = False

    @property
    def verdict(self) -> str:
        """right, wrong, abstained, invented, or '' where nothing is judged."""
        if np.isnan(self.share):
            return ""
        if not self.true:
            return "invented" if self.found else "right"
        if not self.found:
            return "abstained"
        is_right = self.share >= RIGHT and (self.found == self.true or not self.is_counted)
        return "right" if is_right else "wrong"

    @property
    def points(self) -> float:
        """1 right, 0.5 abstained, 0 wrong or invented; NaN not judged."""
        return {"right": 1.0, "abstained": ABSTAINED, "": float("nan")}.get(self.verdict, 0.0)


@dataclass(frozen=True)
class Score:
    """What a tree says about one program."""

    executions: Answer
    layers: Answer
    warmup: Answer


def found_groups(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """The execution and the layer of each activity, negative for none; shape (activities,) each."""
    home = tree.activities["layer_node_id"].to_numpy()
    is_layer = (home >= 0) & (tree.nodes["level"].to_numpy()[np.maximum(home, 0)] == int(Level.LAYER))
    return tree.activities["iteration_index"].to_numpy(), np.where(is_layer, home, NOTHING)


def score(tree: Tree, truth: Truth) -> Score:
    """Judge a tree by the truth of its program."""
    kinds = tree.activities["kind"].to_numpy()
    work = np.flatnonzero((kinds == ActivityKind.KERNEL) | (kinds == ActivityKind.GRAPH))
    execution, layer = (group[work] for group in found_groups(tree))
    return Score(
        best(execution, [one[work] for one in truth.executions], is_counted=True),
        best(layer, [one[work] for one in truth.layers]),
        _warmup(tree, execution, truth, work),
    )


def best(found: np.ndarray, accepted: list[np.ndarray], *, is_counted: bool = False) -> Answer:
    """The answer under the accepted truth that it agrees with best."""
    answers = [replace(compare(found, one), is_counted=is_counted) for one in accepted]
    return max(answers, key=lambda one: (one.points, one.share), default=Answer(float("nan"), 0, 0))


def compare(found: np.ndarray, true: np.ndarray) -> Answer:
    """Two ways to group the same kernels, whatever the groups are called: shape (kernels,) each, negative for none.

    A kernel is right where its two groups are each other's best match. The share is that of the kernels which either
    puts into a group.
    """
    judged = true != NOT_JUDGED
    found, true = found[judged], true[judged]
    counts = len(np.unique(found[found >= 0])), len(np.unique(true[true >= 0]))
    either = (found >= 0) | (true >= 0)
    if not either.any():
        return Answer(1.0, *counts)
    both = (found >= 0) & (true >= 0)
    if not both.any():
        return Answer(0.0, *counts)
    pairs, size = np.unique(np.stack([found[both], true[both]]), axis=1, return_counts=True)
    mutual = _is_largest(pairs[0], size) & _is_largest(pairs[1], size)
    return Answer(float(size[mutual].sum() / either.sum()), *counts)


def _is_largest(group: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The first largest row of each group."""
    order = np.lexsort((np.arange(len(size)), -size, group))
    first = np.append(True, group[order][1:] != group[order][:-1])
    result = np.zeros(len(size), bool)
    result[order[first]] = True
    return result


def _warmup(tree: Tree, execution: np.ndarray, truth: Truth, work: np.ndarray) -> Answer:
    """Share of the executions whose warm-up flag is right: as one group that is there or not."""
    judged = np.array([flag is not None for flag in truth.is_warmup], bool)
    if not judged.any() or not len(tree.iterations):
        return Answer(float("nan"), 0, 0)
    number = truth.executions[0][work]
    both = (execution >= 0) & (number >= 0) & judged[np.maximum(number, 0)]
    if not both.any():
        return Answer(float("nan"), 0, 0)
    pairs = np.unique(np.stack([execution[both], number[both]]), axis=1)
    said = tree.iterations["is_warmup"].to_numpy(bool)[pairs[0]]
    is_right = said == np.array(truth.is_warmup, object)[pairs[1]].astype(bool)
    return Answer(float(is_right.mean()), 1, 1)


def layers_of_executions(layers: pd.DataFrame, pattern: str) -> list[int]:
    """How many layers each execution of a result holds whose type or name matches; only executions that hold any.

    ``layers``: that table of a result.
    """
    layers = layers[layers["iteration_index"].ge(0)]
    named = [layers[column].astype(str).str.contains(pattern) for column in ("layer_name", "layer_type")]
    return layers[np.logical_or.reduce(named)].groupby("iteration_index", observed=True).size().tolist()


def layers_of_tree(tree: Tree, pattern: str) -> list[int]:
    """`layers_of_executions` of a tree whose tables are not made."""
    nodes = tree.nodes
    rows = np.flatnonzero((nodes["level"].to_numpy() == int(Level.LAYER)) & (nodes["iteration_index"].to_numpy() >= 0))
    names = pd.Series(tree.names.folded_names[nodes["folded_id"].to_numpy()[rows]], dtype=object).astype(str)
    types = pd.Series(tree.names.node_text("layer_type", rows), dtype=object).astype(str)
    matching = (names.str.contains(pattern) | types.str.contains(pattern)).to_numpy()
    return np.unique(nodes["iteration_index"].to_numpy()[rows[matching]], return_counts=True)[1].tolist()
