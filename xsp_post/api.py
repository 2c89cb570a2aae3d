"""Results → notebooks and scripts: ``xsp_post.load(path)`` gives tables as DataFrames and charts as Altair objects.

profile = xsp_post.load("run.xsp.sqlite")      # or a capture, a run directory, a batch folder
profile.a10.nlargest(5, "latency_ns")          # any table by its name; columns: docs/columns.md
profile.chart("A9")                            # an Altair chart
profile.compare("other.xsp.sqlite").summary    # what differs, in sentences
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

import pandas as pd

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Results, for_people
from xsp_post.model.schemas import TABLES
from xsp_post.tables.catalogue import table_name, why_empty

if TYPE_CHECKING:
    import altair as alt

    from xsp_post.compare import CompareOptions
    from xsp_post.model.options import Options
    from xsp_post.replay.what_if import Prediction

PathLike: TypeAlias = Union[str, "os.PathLike[str]"]


class Profile(Mapping[str, pd.DataFrame]):
    """The results of one workload (or of a fleet, or a comparison): a mapping from table name to DataFrame.

    Tables are read when first asked for and kept. ``profile["a08"]``, ``profile.a08`` and ``profile.table("A8")``
    are the same frame. Times are int64 or float64 nanoseconds, texts of large tables categoricals;
    integers that may be unknown are Int64, <NA> where they are.
    """

    def __init__(self, results: Results, name: str = "") -> None:
        self.results = results
        self.name = name
        self._names = frozenset(results.tables())
        self._kept: dict[str, pd.DataFrame] = {}

    # -- tables -----------------------------------------------------------------------------------------------

    def table(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """One table by name (``kernels``) or id (``A8``); only some columns of it are read where they are named.

        Raises `UsageError` naming what there is.
        """
        key = table_name(name, self._names)
        if columns is not None and key not in self._kept:
            return for_people(self.results, key, columns)
        if key not in self._kept:
            self._kept[key] = for_people(self.results, key)
        return self._kept[key] if columns is None else self._kept[key][list(columns)]

    def describe(self, name: str) -> pd.DataFrame:
        """Columns of a table: name, dtype, meaning. Empty for a table that no schema lists."""
        key = table_name(name, self._names)
        listed = TABLES[key].columns if key in TABLES else ()
        return pd.DataFrame([(c.name, c.dtype, c.meaning) for c in listed], columns=["column", "dtype", "meaning"])

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self:
            raise KeyError(name)
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and bool(table_name(name, self._names))
        except UsageError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"{type(self).__name__} has no table or attribute {name!r}")
        return self.table(name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._names})

    def __repr__(self) -> str:
        captures = self.table("captures", ["capture_id"]) if "captures" in self._names else ()
        about = f", {len(captures)} captures" if len(captures) else ""
        return f"<{type(self).__name__} {self.name!r}: {len(self)} tables{about}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first screen of the tree, and all of it folded; of a comparison or a fleet its
        summary."""
        return _html_of(self.results, self.name) or self.summary.to_html(max_rows=40, index=False)

    @property
    def summary(self) -> pd.DataFrame:
        """One row per case (or per statement of a comparison, or per capture of a fleet)."""
        names = ("compare_summary", "fleet", "workload_summary")
        return self.table(next(name for name in names if name in self._names))

    # -- charts and files -------------------------------------------------------------------------------------

    def charts(self, *only: str, case: int | None = None) -> "dict[str, alt.TopLevelMixin]":
        """Charts by id as Altair objects, of the analyses named (``"A9"``), else all there are."""
        from xsp_post.reports import charts

        return charts(self.results, case=case, only=only)

    def chart(self, name: str, *, case: int | None = None) -> "alt.TopLevelMixin":
        """The chart of one analysis. Raises `UsageError` where its data was not recorded."""
        found = self.charts(name, case=case)
        if not found:
            raise UsageError(why_empty(name, self.results) or f"{name} has no chart", code="report-no-chart")
        return found.get(name.lower()) or next(iter(found.values()))

    def report(self, path: PathLike, *, force: bool = False) -> Path:
        """Write the HTML page; raises `OutputError` where ``path`` exists and ``force`` is not set."""
        from xsp_post.reports import write_report

        return write_report(self.results, path, force=force)

    def compare(self, other: "Profile | PathLike", options: "CompareOptions | None" = None) -> "Profile":
        """What differs in ``other`` (a profile, or a path that `load` takes): tables ``compare_…``."""
        from xsp_post.compare import compare

        theirs = other if isinstance(other, Profile) else load(other)
        return Profile(compare(self.results, theirs.results, options), f"{self.name} → {theirs.name}")

    def what_if(self, changes: Sequence[str], *, capture_id: int | None = None) -> "Prediction":
        """What an execution would take under changes (docs/what-if.md), e.g. ``["kernel:.*sgemm.*=0.5x"]``.

        Raises `UsageError` for changes that cannot be read or match nothing, `ContradictionError` where the replay of
        the recording as it was is too far off.
        """
        from xsp_post.replay.what_if import what_if

        return what_if(self.results, changes, capture_id)


def load(path: PathLike, *more: PathLike, options: "Options | None" = None) -> Profile:
    """A profile from a store, from captures (analysed now), a run directory, or the folder of a batch.

    Several paths are captures and counter reports of one workload. ``options``: `xsp_post.model.options.Options`.
    Raises `CaptureError` and other errors, each with a sentence that names the file.
    """
    from xsp_post.model.options import DEFAULTS
    from xsp_post.pipeline import results_of

    paths = [Path(one) for one in (path, *more)]
    return Profile(results_of(paths, options or DEFAULTS), paths[0].name)


_NEEDED = {"captures", "paths", "balance", "findings"}


def _html_of(results: Results, name: str) -> str:
    """HTML without scripts or styles from elsewhere; "" for results that hold no tree."""
    if not set(results.tables()) >= _NEEDED:
        return ""
    from rich.console import Console

    from xsp_post.reports.terminal import print_tree

    printed = []
    for how in ({"verbose": False}, {"depth": 4, "top": 8}):
        text = io.StringIO()
        print_tree(Console(file=text, width=120, force_terminal=False, color_system=None), results, **how)
        printed.append(f'<pre style="line-height:1.25;overflow-x:auto">{escape(text.getvalue())}</pre>')
    first, whole = printed
    return (
        f"<div><strong>{escape(name)}</strong>{first}"
        f"<details><summary>The whole tree, the balance and all findings</summary>{whole}</details></div>"
    )
