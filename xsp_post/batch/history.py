"""Captures and stores of one folder or many → their values in order, and the changes between them.

Captures are read as a batch reads them: stores and records stay in a folder, so that only what is new is read of a
folder that grows. Stores are read as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_post.base.errors import UsageError
from xsp_post.base.text_safety import file_name_text
from xsp_post.batch.jobs import Job, discover
from xsp_post.batch.work import DONE, RECORDS, STORES, Outcome, contributed, read_outcome, record_path
from xsp_post.ingest.formats import STORE, of_name, stem_of
from xsp_post.model.capture import FLEET_STORE
from xsp_post.model.options import Options

if TYPE_CHECKING:
    import pandas as pd

    from xsp_post.model.results import Analysis

HISTORY_STORE, HISTORY_PAGE = "history.xsp.sqlite", "history.html"
TIME, NAME, COMMIT = ORDERS = ("time", "name", "commit")
_COMMIT = re.compile(r"(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])")


def history(
    paths: Sequence[str], folder: Path, options: Options, by: str = ""
) -> tuple[Analysis, list[dict[str, Any]]]:
    """Tables `fleet`, `history_values` and `history` of the captures below the paths, and rows of those that failed.

    ``by``: time (of the recording), name (numbers by their size) or commit (in the name, in the order of the Git
    repository of the current folder); "" time where every capture states one of its own, else name. ``folder``: where
    the stores of captures are kept. Raises `UsageError`, `OutputError`.
    """
    from xsp_post.batch.assembly import run_batch
    from xsp_post.model.results import Analysis
    from xsp_post.tables.analyses.fleet import fleet_rows
    from xsp_post.tables.analyses.history import CONTRIBUTED, history_table, history_values

    stores = [store for path in paths for store in _stores(Path(path))]
    others = [path for path in paths if not _stores(Path(path))]
    found = [_of_store(store) for store in stores]
    if others:
        jobs = [replace(job, is_of_many=False) for job in discover(others, leave_out=folder)[0]]
        run_batch(jobs, folder, options, workers=min(os.cpu_count() or 1, len(jobs)), page=False)
        found += [read_outcome(record_path(folder.resolve(), job)) for job in jobs]
    done = _ordered([one for one in found if one.row["status"] == DONE], by)
    values = history_values([one.frames[CONTRIBUTED] for one in done])
    rows = [one.row for one in done]
    failed = [one.row for one in found if one.row["status"] != DONE]
    frames = {"fleet": fleet_rows([*rows, *failed]), CONTRIBUTED: values, "history": history_table(values)}
    return Analysis(frames), failed


def _stores(path: Path) -> list[Path]:
    """The store that a path is, or those of a folder: of a batch, or one that holds stores directly."""
    one = of_name(path.name)
    if one is not None and one.key == STORE and path.is_file():
        return [path]
    if (path / FLEET_STORE).is_file() and (path / RECORDS).is_dir():
        return sorted((path / STORES).rglob("*.xsp.sqlite"))
    return sorted(path.glob("*.xsp.sqlite")) if path.is_dir() else []


def values_of_store(path: Path) -> pd.DataFrame:
    """What one result adds to a history (schemas: history_values)."""
    return _of_store(path).frames["history_values"]


def _of_store(path: Path) -> Outcome:
    from xsp_post.pipeline import results_of

    name = file_name_text(stem_of(path.name))
    return contributed(results_of([path]), Job(name, (str(path),), file_name_text(path.name), name, name))


def _ordered(found: list[Outcome], by: str) -> list[Outcome]:
    """The captures in order. Raises `UsageError` where they do not say what decides it."""
    times = [int(one.frames["history_values"]["recorded_utc_ns"].max()) if len(one.frames["history_values"]) else -1
             for one in found]  # fmt: skip
    is_dated = all(time >= 0 for time in times) and len(set(times)) == len(times)
    if by == TIME and not is_dated:
        raise UsageError("Not every capture states a time of its own.", code="history-order")
    keys: list[Any] = [_by_number(one.row["capture_name"]) for one in found]
    if by == COMMIT:
        keys = _commits([one.row["capture_name"] for one in found])
    elif by == TIME or (not by and is_dated):
        keys = times
    return [found[k] for k in sorted(range(len(found)), key=lambda k: keys[k])]


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part.lower()) for part in re.split(r"(\d+)", name)]


def _commits(names: list[str]) -> list[int]:
    """The place of each name's commit in the repository of the current folder."""
    try:
        command = ["git", "rev-list", "--topo-order", "--reverse", "HEAD"]
        asked = subprocess.run(command, capture_output=True, check=True)
        known = asked.stdout.decode("ascii").split()
    except (OSError, subprocess.CalledProcessError):
        known = []
    places = []
    for name in names:
        words = _COMMIT.findall(name.lower())
        found = [place for place, commit in enumerate(known) if any(commit.startswith(word) for word in words)]
        if len(found) != 1:
            raise UsageError(
                f"{name}: no commit of the repository of the current folder is in its name.", code="history-order"
            )
        places += found
    return places
