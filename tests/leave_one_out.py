"""The finder's constants chosen on a part of the seeds and captures, and scored on the rest.

Each constant is moved alone, by factors. A fold takes for each constant the value that scores best on its part (the
default where none is better), and scores all of them together on both sides. What a seed or capture scores with each
value is computed once for all folds.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from multiprocessing import Pool
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from generators.programs import draw
from meaning_table import ROWS, Row
from structure_score import layers_of_tree, score

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.trace import Trace
from xsp_post.model.tree import Tree

FACTORS = (0.5, 0.7, 0.85, 1.2, 1.5, 2.0)
QUESTIONS = ("executions", "layers")
_traces: dict[str, Trace] = {}


@dataclass(frozen=True)
class Fold:
    """One choice. ``changed``: constants that are not the defaults; scores are means over both questions."""

    changed: dict[str, float]
    on_part: float
    on_rest: float
    default_on_rest: float


def can_be_chosen() -> bool:
    """Whether the finder takes constants."""
    return "constants" in inspect.signature(build_tree).parameters


def moved(defaults: Any) -> list[tuple[str, float, Any]]:
    """(name, factor, constants) for each constant and factor that changes it; the defaults first."""
    result: list[tuple[str, float, Any]] = [("", 1.0, defaults)]
    for one in fields(defaults):
        value = getattr(defaults, one.name)
        for factor in FACTORS:
            new = max(1, round(value * factor)) if isinstance(value, int) else value * factor
            if one.name.endswith("_ratio"):
                new = min(new, 1.0)
            if new != value:
                result.append((one.name, factor, replace(defaults, **{one.name: new})))
    return result


def item_points(item: tuple[str, int], constants: Sequence[Any], folder: Path) -> np.ndarray:
    """Points of a seed or a row of MEANING.md with each set of constants: shape (sets, questions), NaN not judged."""
    kind, number = item
    result = np.full((len(constants), len(QUESTIONS)), np.nan)
    if kind == "seed":
        program = draw(number)
        for place, some in enumerate(constants):
            found = score(_tree(program.trace, some), program.truth)
            result[place] = found.executions.points, found.layers.points
        return result
    row = ROWS[number]
    if row.name not in _traces:
        trace = load(folder / row.name).trace
        assert trace is not None
        _traces[row.name] = trace
    for place, some in enumerate(constants):
        result[place] = row_points(row, _tree(_traces[row.name], some))
    return result


def _tree(trace: Trace, constants: Any) -> Tree:
    more: dict[str, Any] = {"constants": constants} if constants is not None else {}
    return build_tree(trace, **more)


def row_points(row: Row, tree: Tree) -> tuple[float, float]:
    """What a tree has right of a row: executions, layers; 0.5 where it says nothing, NaN where the row does."""
    count = len(tree.iterations)
    executions = layers = float("nan")
    if row.executions is not None:
        executions = 1.0 if count == row.executions else 0.5 if not count else 0.0
    if row.layers is not None:
        counts = [set(layers_of_tree(tree, pattern)) for pattern, _ in row.layers]
        is_right = any(c == {n} for c, (_, n) in zip(counts, row.layers))
        layers = float(is_right if row.layers else not layers_of_tree(tree, ""))
    return executions, layers


def items(seeds: int, folder: Path) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """The seeds, and the rows whose capture is at hand and needs no twin."""
    rows = [k for k, row in enumerate(ROWS) if not row.twin and (folder / row.name).exists()]
    return [("seed", k) for k in range(seeds)], [("capture", k) for k in rows]


class Table:
    """Points of every item with every set of constants that was asked for."""

    def __init__(self, chosen: Sequence[tuple[str, int]], folder: Path, workers: int) -> None:
        self.items, self.folder, self.workers = list(chosen), folder, workers
        self.known: dict[Any, np.ndarray] = {}

    def of(self, constants: Sequence[Any]) -> np.ndarray:
        """Shape (items, sets, questions)."""
        new = [some for some in dict.fromkeys(constants) if some not in self.known]
        if new:
            with Pool(self.workers) as pool:
                work = [(item, new, self.folder) for item in self.items]
                points = np.array(pool.starmap(item_points, work, chunksize=4))
            self.known |= {some: points[:, k] for k, some in enumerate(new)}
        return np.stack([self.known[some] for some in constants], axis=1)


def folds(table: Table, defaults: Any, parts: Sequence[np.ndarray]) -> list[Fold]:
    """One choice on each part, scored on it and on the rest. ``parts``: bool per item, true what is chosen on."""
    settings = moved(defaults)
    points = table.of([some for _, _, some in settings])
    combined, changed = [], []
    for part in parts:
        gain = _means(points[part])
        best: dict[str, tuple[float, Any]] = {}
        for (name, _, some), mean in zip(settings[1:], gain[1:]):
            if mean > max(gain[0], best.get(name, (gain[0], None))[0]) + 1e-9:
                best[name] = (mean, getattr(some, name))
        changed.append({name: value for name, (_, value) in best.items()})
        combined.append(replace(defaults, **changed[-1]))
    together = table.of(combined)
    return [
        Fold(changed[k], _means(together[part, k : k + 1])[0], _means(together[~part, k : k + 1])[0],
             _means(points[~part, :1])[0])
        for k, part in enumerate(parts)
    ]  # fmt: skip


def _means(points: np.ndarray) -> np.ndarray:
    """Mean over items, then over questions; shape (sets,)."""
    return np.nanmean(np.nanmean(points, axis=0), axis=1)


def fifths(count: int) -> list[np.ndarray]:
    """Five folds: chosen on four fifths each."""
    place = np.arange(count)
    Random(5).shuffle(order := place.tolist())
    return [np.array(order) % 5 != k for k in range(5)]


def halves(count: int, repeats: int) -> list[np.ndarray]:
    """Random halves."""
    result = []
    for k in range(repeats):
        order = list(range(count))
        Random(k).shuffle(order)
        part = np.zeros(count, bool)
        part[order[: (count + 1) // 2]] = True
        result.append(part)
    return result


def reach(table: Table, defaults: Any) -> dict[str, tuple[float, float]]:
    """For each constant the smallest and largest factor at which no item of the table changes its points."""
    settings = moved(defaults)
    points = table.of([some for _, _, some in settings])
    same = [bool(np.array_equal(points[:, k], points[:, 0], equal_nan=True)) for k in range(len(settings))]
    result = {}
    for one in fields(defaults):
        mine = {factor: ok for (name, factor, _), ok in zip(settings, same) if name == one.name}
        below = [factor for factor in sorted(mine, reverse=True) if factor < 1]
        above = [factor for factor in sorted(mine) if factor > 1]
        result[one.name] = (_furthest(below, mine), _furthest(above, mine))
    return result


def _furthest(factors: list[float], same: dict[float, bool]) -> float:
    last = 1.0
    for factor in factors:
        if not same[factor]:
            break
        last = factor
    return last
