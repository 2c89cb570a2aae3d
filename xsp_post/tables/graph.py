"""The one way to make a table: the first time that somebody asks for it, from what its declaration says it needs.

A `Graph` knows some tables already (its ``base``: a store, the captures, a part of a recording), holds a few values
that no step makes (options, counter reports), and makes everything else by the steps of `catalogue`.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, from_frame, to_frame, worst_first
from xsp_post.model.results import Analysis, Results, finite, shaped
from xsp_post.model.schemas import TABLES

FINDINGS = "findings"
_LEAST = ("captures",)  # whatever reads tables reads those of captures, not those of a batch
WANTED = "wanted"  # need of a step: those of its tables that are wanted now (frozenset of names)


@dataclass(frozen=True)
class Step:
    """What makes one table or value, or several together.

    ``by`` is the function, ``module:function`` below xsp_post, imported when it is first called. Its arguments are
    the tables and values of ``needs``, in that order; where it ``reads`` tables, the first argument is `Results` of
    these alone (those that are not there are left out of its `tables`). It returns the table, or its columns in any
    order (of several tables: a mapping), or that and a list of findings, whose codes are in ``finds`` (``*``: any).
    ``recorded`` is what a recording must hold for the table to have rows (`missing`). Names are separated by spaces.
    """

    makes: str
    by: str
    needs: str = ""
    reads: str = ""
    finds: str = ""
    recorded: str = ""

    @property
    def names(self) -> list[str]:
        return self.makes.split()

    def call(self, *arguments: Any) -> Any:
        """What the function returns."""
        module, _, function = self.by.partition(":")
        return getattr(import_module(f"xsp_post.{module}"), function)(*arguments)


class Graph(Results):
    """The tables of one workload (or of one of its captures), each made once. Not to be altered.

    ``remade``: tables of the base that are made anew, because the options are others than those of the base.
    """

    def __init__(
        self, base: Results, steps: Iterable[Step], values: Mapping[str, Any], remade: Iterable[str] = ()
    ) -> None:
        self._base, self._steps, self._made = base, tuple(steps), dict(values)
        self._given = frozenset(base.tables()) - frozenset(remade)
        self._makers = self._possible()
        self._columns: dict[str, dict[Any, pd.Series]] = {}
        self._found: dict[Step, list[Finding]] = {}
        self._wanted: frozenset[str] = frozenset()

    def _possible(self) -> dict[str, Step]:
        """The step of each name that can be made: all that it needs is there or can be made."""
        makers: dict[str, Step] = {}
        known, left = {*self._made, *self._given, WANTED}, list(self._steps)
        while ready := [one for one in left if known.issuperset([*one.needs.split(), *_LEAST[: bool(one.reads)]])]:
            for one in ready:
                makers.update((name, one) for name in one.names if name not in known)
                known.update(one.names)  # the first step that can make a name makes it
            left = [one for one in left if one not in ready]
        return makers

    # -- Results ----------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        return list(self._tables)

    @cached_property
    def _tables(self) -> list[str]:
        known = {*self._makers, *self._made, *self._given}
        return sorted({*(name for name in known if name in TABLES), FINDINGS})

    @property
    def path(self) -> Any:
        """The file of the store that the tables come from; None for captures."""
        return getattr(self._base, "path", None)

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name == FINDINGS:
            if FINDINGS in self._given:
                self._base.frame(FINDINGS)
            self._settle(lambda codes: bool(codes))
            return _columns(self.found(), columns)
        if name in self._given and name not in self._made:
            return self._read(name, columns)
        if name not in self._made:
            if name not in self._makers:
                return self._base.frame(name, columns)  # it says why it is not there
            self._run(self._makers[name], name)
        return _columns(self._made[name], columns)

    def _read(self, name: str, columns: Sequence[str] | None) -> pd.DataFrame:
        """A table of the base, or some columns of it, each read once."""
        if columns is None or self.path is None:  # all of it is in memory
            self._made[name] = finite(self._base.frame(name))
            return _columns(self._made[name], columns)
        known = self._columns.setdefault(name, {})
        if missing := [column for column in dict.fromkeys(columns) if column not in known]:
            known.update(finite(self._base.frame(name, missing)).items())
        return pd.DataFrame({column: known[column] for column in columns}, copy=False)

    def near(self, name: str, low_ns: int, high_ns: int, iterations: tuple[int, int] | None = None) -> pd.DataFrame:
        is_read = name in self._given and name not in self._made
        return finite(self._base.near(name, low_ns, high_ns, iterations)) if is_read else self.frame(name)

    def numbered(self, name: str, column: str, ids: np.ndarray) -> pd.DataFrame:
        is_read = name in self._given and name not in self._made
        return finite(self._base.numbered(name, column, ids)) if is_read else super().numbered(name, column, ids)

    def value(self, name: str) -> Any:
        """A table, or a value that is none."""
        return self._made[name] if name in self._made else self.frame(name)

    def _settle(self, is_asked: Callable[[list[str]], bool]) -> None:
        """Make what may find the codes that are asked for."""
        for step in dict.fromkeys(self._makers.values()):
            if is_asked(step.finds.split()):
                self._run(step, step.names[0])

    def found(self, code: str = "") -> pd.DataFrame:
        self._settle(lambda codes: code in codes)
        own = self.raised()
        if FINDINGS not in self._given:
            return to_frame(own)
        settled = {code for step in self._makers.values() for code in step.finds.split()}
        known = self._base.found(code)
        kept = known[~known["code"].astype(object).isin(settled)]
        if not own:
            return kept.reset_index(drop=True)
        fresh = to_frame(own)
        return worst_first(pd.concat([kept.astype({c: fresh[c].dtype for c in fresh}), fresh], ignore_index=True))

    def has(self, name: str) -> bool:
        """Whether a table or value is there or can be made."""
        return name in self._given or name in self._makers

    def made(self) -> set[str]:
        """Names of the tables that were made or read so far."""
        return {name for name in (*self._made, *self._columns) if name in TABLES}

    def raised(self) -> list[Finding]:
        """What the steps found that were made."""
        return [one for step in self._steps for one in self._found.get(step, ())]

    def only(self, names: Iterable[str]) -> "Some":
        """Some of the tables, for a command that must answer at once."""
        return Some(self, names)

    # -- making -----------------------------------------------------------------------------------------------

    def _run(self, step: Step, name: str) -> None:
        """Make what a step makes; what is there already stays."""
        if name in self._made:
            return
        wanted = frozenset({name, *self._wanted})
        arguments = [wanted if need == WANTED else self.value(need) for need in step.needs.split()]
        made = step.call(*([self.only(step.reads.split())] if step.reads else []), *arguments)
        made, found = made if isinstance(made, tuple) else (made, [])
        assert step.finds == "*" or {one.code for one in found} <= set(step.finds.split()), (step.makes, found)
        self._found[step] = found
        if name in TABLES and len(step.names) == 1 and isinstance(made, dict):
            made = shaped(name, made)
        for one, value in ({name: made} if len(step.names) == 1 else made).items():
            if one not in self._given:
                self._made.setdefault(one, value)

    def complete(self) -> Analysis:
        self._wanted = frozenset(self.tables())
        self._base = self._base.complete()
        for name in self._makers:  # in the order of the catalogue
            self.value(name)
        frames = {name: self.frame(name) for name in self.tables()}
        made = Analysis(frames, from_frame(frames[FINDINGS]))
        made.__dict__["_kept"] = self.__dict__.get("_kept", {})
        return made


class Some(Results):
    """A few tables of other results: what one step reads, or what a command shows that must answer at once.

    Its findings are those of the tables that were made.
    """

    def __init__(self, results: Graph, names: Iterable[str]) -> None:
        self._results = results
        self._names = [name for name in names if name in results.tables()]

    def tables(self) -> list[str]:
        return sorted(self._names)

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name not in self._names:
            raise KeyError(name)
        return _columns(self.found(), columns) if name == FINDINGS else self._results.frame(name, columns)

    def found(self, code: str = "") -> pd.DataFrame:
        return self._results.found(code)

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        return self._results.kept(key, make)


def _columns(frame: pd.DataFrame, columns: Sequence[str] | None) -> pd.DataFrame:
    # in half of the time of frame[list(columns)]
    return frame if columns is None else pd.DataFrame({c: frame[c] for c in columns}, frame.index, copy=False)
