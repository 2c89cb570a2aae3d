"""Graphs of single captures → the core tables of all of them side by side, each made when it is asked for."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from xsp_post.base.findings import worst_first
from xsp_post.model.results import Analysis, Results
from xsp_post.model.schemas import TABLES, column_names
from xsp_post.tables.graph import FINDINGS, Graph

# columns that number the rows of a table of one capture; in the tables of several the numbers go on
_NUMBERED = {
    "node_id": "nodes", "parent_id": "nodes", "layer_node_id": "nodes", "kernel_id": "kernels",
    "activity_id": "memory_operations", "memory_id": "memory",
}  # fmt: skip
# what is made of each capture for tables of all of them
_BETWEEN = ("own_collectives",)


class Captures(Results):
    """The core tables of a workload's captures: column ``capture_id``, and ids that are unique.

    ``numbers``: the captures' own ids, where their rows have unique ids already.
    """

    def __init__(self, graphs: list[Graph], numbers: Sequence[int] | None = None) -> None:
        self._graphs, self._are_numbered = graphs, numbers is not None
        self._numbers = numbers if numbers is not None else range(len(graphs))
        self._made: dict[str, pd.DataFrame] = {}

    def tables(self) -> list[str]:
        return sorted({name for graph in self._graphs for name in _tables(graph)})

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name == FINDINGS:
            for graph in self._graphs:
                graph.frame(FINDINGS)
            return self.found()
        if name not in self._made:
            if name not in self.tables():
                raise KeyError(name)
            parts = [_of_capture(name, graph.value(name), at) for at, graph in zip(self._numbers, self._graphs)]
            self._made[name] = side_by_side([self._numbered(part, row) for row, part in enumerate(parts)])
        return self._made[name] if columns is None else self._made[name][list(columns)]

    def found(self) -> pd.DataFrame:
        parts = [graph.found().assign(capture_id=number) for number, graph in zip(self._numbers, self._graphs)]
        return worst_first(side_by_side(parts))

    def complete(self) -> Results:
        for number, graph in enumerate(self._graphs):
            graph.complete()
            made = Analysis({name: graph.value(name) for name in _tables(graph)})
            self._graphs[number] = Graph(made, (), {})
        return Analysis({name: self.frame(name) for name in self.tables()})

    def _numbered(self, frame: pd.DataFrame, number: int) -> pd.DataFrame:
        """The rows of one capture, their ids after those of the captures before it."""
        columns = [column for column in _NUMBERED if column in frame] if number and not self._are_numbered else []
        offset = {
            table: sum(len(graph.value(table)) for graph in self._graphs[:number])
            for table in {_NUMBERED[column] for column in columns}
        }
        changed = {column: frame[column] + offset[_NUMBERED[column]] for column in columns}
        return frame.assign(**{column: ids.where(frame[column] >= 0, frame[column]) for column, ids in changed.items()})


def _tables(graph: Graph) -> list[str]:
    return [*graph.tables(), *(name for name in _BETWEEN if graph.has(name))]


def _of_capture(name: str, frame: pd.DataFrame, capture_id: int) -> pd.DataFrame:
    """The frame with its capture, columns in the schema's order."""
    columns = {str(c): frame[c].array for c in frame}
    columns["capture_id"] = np.broadcast_to(np.int64(capture_id), (len(frame),))  # one number, read as many times
    if name in TABLES:
        columns = {c: columns[c] for c in column_names(name) if c in columns}
    return pd.DataFrame(columns, copy=False)


def side_by_side(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """The rows of several frames; a column that one of them lacks is unknown there."""
    filled = [f for f in frames if len(f)] or frames[:1]
    if len(filled) == 1:
        return filled[0].reset_index(drop=True)
    columns: dict[str, object] = {}
    for name in dict.fromkeys(column for f in filled for column in f.columns):
        parts = _of_one_kind([f.get(name) for f in filled], [len(f) for f in filled])
        if all(isinstance(p.dtype, pd.CategoricalDtype) for p in parts):
            # readers make texts of either dtype, object or str
            texts = [p.cat.rename_categories(p.cat.categories.astype(object).tolist()) for p in parts]
            columns[name] = union_categoricals(texts)
        else:
            columns[name] = pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns)


def _of_one_kind(parts: list[pd.Series | None], counts: list[int]) -> list[pd.Series]:
    """A column of several frames; where a frame does not have it, its values are unknown."""
    has_texts = any(part is not None and isinstance(part.dtype, pd.CategoricalDtype) for part in parts)
    unknown = pd.CategoricalDtype([""]) if has_texts else float
    value = "" if has_texts else float("nan")
    return [pd.Series([value] * n, dtype=unknown) if part is None else part for part, n in zip(parts, counts)]
