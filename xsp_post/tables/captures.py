"""Graphs of single captures → the core tables of all of them side by side, each made when it is asked for."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from xsp_post.base.findings import worst_first
from xsp_post.model.results import Analysis, Results, side_by_side
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

    def found(self, code: str = "") -> pd.DataFrame:
        parts = [graph.found(code).assign(capture_id=number) for number, graph in zip(self._numbers, self._graphs)]
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
