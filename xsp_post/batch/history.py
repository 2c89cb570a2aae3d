"""Captures and stores of one folder or many → their values in order, and the changes between them.

Captures are read as a batch reads them: stores and records stay in a folder, so that only what is new is read of a
folder that grows. Stores are read as they are.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from xsp_post.base.errors import CaptureError, UsageError
from xsp_post.base.text_safety import file_name_text
from xsp_post.batch import work
from xsp_post.batch.jobs import RECORDING, Job, discover
from xsp_post.batch.work import DONE, RECORDS, STORES, Outcome, contributed, read_outcome, record_path, stores_beside
from xsp_post.ingest.formats import STORE, of_name, stem_of
from xsp_post.model.capture import FLEET_STORE
from xsp_post.model.options import Options
from xsp_post.names.file_names import by_numbers

if TYPE_CHECKING:
    from xsp_post.model.results import Analysis

HISTORY_STORE, HISTORY_PAGE = "history.xsp.sqlite", "history.html"
TIME, NAME, COMMIT = ORDERS = ("time", "name", "commit")
_COMMIT = re.compile(r"(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])")


def history(
    paths: Sequence[str], folder: Path, options: Options, by: str = ""
) -> "tuple[Analysis, list[dict[str, Any]], list[str]]":
    """Tables `fleet`, `history_values` and `history` of the captures below the paths, rows of those that failed, and
    names of recordings that have no capture yet.

    ``by``: time (of the recording), name (numbers by their size) or commit (in the name, in the order of the Git
    repository of the current folder); "" time where every capture states one of its own, else name. ``folder``: where
    the stores of captures are kept. Raises `UsageError`, `OutputError`.
    """
    from xsp_post.batch.assembly import run_batch
    from xsp_post.model.results import Analysis
    from xsp_post.tables.analyses.fleet import fleet_rows
    from xsp_post.tables.analyses.history import CONTRIBUTED, history_table, history_values

    stores, jobs, unfinished = _split([Path(path) for path in paths], folder)
    found = []
    for job in map(_job_of, stores):
        try:
            found.append(_of_store(job))
        except CaptureError as error:
            found.append(work.failure(job, error))
    if jobs:
        run_batch(jobs, folder, options, workers=min(os.cpu_count() or 1, len(jobs)), page=False)
        found += [read_outcome(record_path(folder.resolve(), job)) for job in jobs]
    found = _renamed(found)
    done = _ordered([one for one in found if one.row["status"] == DONE], by)
    values = history_values([one.frames[CONTRIBUTED] for one in done])
    rows = [one.row for one in done]
    failed = [one.row for one in found if one.row["status"] != DONE]
    frames = {"fleet": fleet_rows([*rows, *failed]), CONTRIBUTED: values, "history": history_table(values)}
    return Analysis(frames), failed, unfinished


def _split(paths: Sequence[Path], folder: Path) -> tuple[list[Path], list[Job], list[str]]:
    """The stores that the paths are, or that folders hold directly (of a batch: its own), the captures below them, and
    recordings without one. A store that was made of one of the captures is left out."""
    stores: list[Path] = []
    others: list[Path] = []
    for path in paths:
        one = of_name(path.name)
        if one is not None and one.key == STORE and path.is_file():
            stores.append(path)
        elif (path / FLEET_STORE).is_file() and (path / RECORDS).is_dir():
            stores += sorted((path / STORES).rglob("*.xsp.sqlite"))
        else:
            others.append(path)
    stores += [store for path in others if path.is_dir() for store in sorted(path.glob("*.xsp.sqlite"))]
    try:
        jobs = [job._replace(is_of_many=False) for job in discover(others, leave_out=folder)[0]] if others else []
    except UsageError as error:
        if error.code != "batch-nothing" or not stores:
            raise
        jobs = []
    taken = {store for job in jobs for store in stores_beside(Path(job.sources[0]))}
    begun = {os.path.abspath(one): str(one) for path in others for one in path.rglob(f"*{RECORDING}")}
    unfinished = sorted(begun[one] for one in begun.keys() - {os.path.dirname(job.sources[0]) for job in jobs})
    return [store for store in stores if Path(os.path.abspath(store)) not in taken], jobs, unfinished


def _renamed(found: Sequence[Outcome]) -> list[Outcome]:
    """Each capture under what its path differs in from the others': ``run17/model.1`` → ``run17``."""
    names = [one.row["capture_name"] for one in found]
    for mark in "/." if len(set(names)) > 1 else "":
        parts = [name.split(mark) for name in names]
        most = min(map(len, parts)) - 1  # something stays
        end = min(_common([part[::-1] for part in parts]), most)
        begin = min(_common(parts), most - end) if mark == "/" else 0
        names = [mark.join(part[begin : len(part) - end]) for part in parts]
    return [
        Outcome(one.row | {"capture_name": name},
                {key: frame.assign(capture_name=name) for key, frame in one.frames.items() if key == "history_values"})
        for one, name in zip(found, names)
    ]  # fmt: skip


def _common(parts: Sequence[Sequence[str]]) -> int:
    """How many texts all begin with."""
    return sum(1 for _ in takewhile(lambda alike: len(set(alike)) == 1, zip(*parts)))


def values_of_store(path: Path) -> "pd.DataFrame":
    """What one result adds to a history (schemas: history_values)."""
    return _of_store(_job_of(path)).frames["history_values"]


def _job_of(store: Path) -> Job:
    name = file_name_text(store.with_name(stem_of(store.name)).as_posix())
    return Job(name, (str(store),), file_name_text(store.name), name, name)


def _of_store(job: Job) -> Outcome:
    from xsp_post.pipeline import results_of

    return contributed(results_of([Path(source) for source in job.sources]), job)


def _ordered(found: list[Outcome], by: str) -> list[Outcome]:
    """The captures in order. Raises `UsageError` where they do not say what decides it."""
    times = [int(one.frames["history_values"]["recorded_utc_ns"].max()) if len(one.frames["history_values"]) else -1
             for one in found]  # fmt: skip
    is_dated = all(time >= 0 for time in times) and len(set(times)) == len(times)
    if by == TIME and not is_dated:
        raise UsageError("Not every capture states a time of its own.", code="history-order")
    keys: list[Any] = [by_numbers(one.row["capture_name"]) for one in found]
    if by == COMMIT:
        keys = _commits([one.row["capture_name"] for one in found])
    elif by == TIME or (not by and is_dated):
        keys = times
    return [found[k] for k in sorted(range(len(found)), key=lambda k: keys[k])]


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
