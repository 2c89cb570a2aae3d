"""Outcomes → the output folder: finished captures left alone, the rest worked on, one fleet store and page.

The folder holds ``stores/`` (one store per capture), ``records/`` (what makes a batch resumable), ``batch.json``
(what the fleet store was made of), ``fleet.xsp.sqlite`` and ``fleet.html``.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from xsp_post.base import stops
from xsp_post.base.errors import OutputError
from xsp_post.base.output import make_folder, read_note, write_text
from xsp_post.batch.engines import outcomes
from xsp_post.batch.jobs import Job
from xsp_post.batch.work import DONE, FAILED, RECORDS, STORES, Outcome, current_row, read_outcome, record_path
from xsp_post.model.capture import FLEET_STORE
from xsp_post.model.options import Options

FLEET_PAGE, STATE = "fleet.html", "batch.json"


class BatchResult(NamedTuple):
    """What a batch did. ``rows`` are those of the table fleet, in the order of the jobs."""

    folder: Path
    rows: list[dict[str, Any]]
    done_count: int  # analysed now
    current_count: int  # finished earlier and unchanged
    is_fleet_current: bool  # nothing was written
    said: list[str]  # what the captures say together

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["status"] == FAILED]


def run_batch(
    jobs: Sequence[Job],
    folder: Path,
    options: Options | None = None,
    *,
    workers: int = 1,
    scheduler: str = "",
    force: bool = False,
    page: bool = True,
    before: Callable[[list[Job]], None] | None = None,
    progress: Callable[[Job, Outcome], None] | None = None,
) -> BatchResult:
    """Analyse what is not finished, then write the fleet store (and page) if anything changed.

    ``force`` redoes everything. ``before`` is called with what will be worked on, ``progress`` with each outcome.
    Raises `OutputError` (folder), `ToolError` (cluster); a capture that fails is a row.
    """
    options = options or Options()
    folder = _prepared(folder)
    rows = {} if force else {job.name: row for job in jobs if (row := current_row(folder, job, options)) is not None}
    to_do = [job for job in jobs if job.name not in rows]
    if before is not None:
        before(to_do)
    made: dict[str, Outcome] = {}
    for job, outcome in outcomes(to_do, str(folder), options, workers=workers, scheduler=scheduler):
        made[job.name], rows[job.name] = outcome, outcome.row
        if progress is not None:
            progress(job, outcome)
    state = _state(jobs, rows)
    known = read_note(folder / STATE) or {}
    said = known.pop("said", [])
    is_current = (
        not to_do
        and known == state
        and (folder / FLEET_STORE).is_file()
        and (not page or (folder / FLEET_PAGE).is_file())
    )
    if not is_current:
        found = [made.get(job.name) or read_outcome(record_path(folder, job)) for job in jobs]
        said = _write_fleet(folder, found, page)
        write_text(folder / STATE, json.dumps({**state, "said": said}) + "\n", force=True)
    return BatchResult(folder, [rows[job.name] for job in jobs], len(to_do), len(jobs) - len(to_do), is_current, said)


def _prepared(folder: Path) -> Path:
    """The output folder, made if need be; one that holds other things is refused."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise OutputError(f"{folder} is a file, but a folder must be written there.", code="output-folder")
    make_folder(folder)
    if not os.path.isfile(folder / STATE) and any(folder.iterdir()):
        raise OutputError(f"{folder} holds files that are not of xsp-post batch.", code="batch-folder")
    folder = folder.resolve()
    for left in (STORES, RECORDS):  # of a worker that was killed; one batch at a time owns a folder
        for part in list((folder / left).rglob(".*.part*")):
            stops.remove(part)
    if not (folder / STATE).is_file():
        # from now on the folder is a batch's, whenever it is interrupted
        write_text(folder / STATE, "{}\n", force=True)
    return folder


def _state(jobs: Sequence[Job], rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the fleet store is made of, as a digest that any change of any row changes."""
    content = json.dumps([[job.name, rows[job.name]] for job in jobs], sort_keys=True)
    return {"version": 1, "captures": len(jobs), "sha256": hashlib.sha256(content.encode()).hexdigest()}


# -- the fleet ----------------------------------------------------------------------------------------------


def _write_fleet(folder: Path, found: Sequence[Outcome], page: bool) -> list[str]:
    """The store and the page of all captures; the sentences at the top of the page."""
    from xsp_post.model.results import Analysis
    from xsp_post.reports import fleet_page
    from xsp_post.store.store import write_store

    analysis = Analysis(fleet_frames(found))
    write_store(analysis, folder / FLEET_STORE, force=True)
    if page:
        write_text(folder / FLEET_PAGE, fleet_page.render(analysis), force=True)
    return [sentence for _, sentence in fleet_page.headlines(analysis)]


def fleet_frames(found: Sequence[Outcome]) -> "dict[str, pd.DataFrame]":
    """The tables of a fleet store (`fleet_…`) from the outcomes in order; failures are rows of `fleet`."""
    from xsp_post.tables.analyses import fleet

    contributions: list[dict[str, pd.DataFrame]] = []
    for index, outcome in enumerate(found):
        if all(name in outcome.frames for name in fleet.CONTRIBUTED):  # not of a failure or one of many ranks
            frames = {name: outcome.frames[name] for name in fleet.CONTRIBUTED}
            contributions.append({name: f.assign(capture_index=np.int64(index)) for name, f in frames.items()})
    tables = fleet.fleet_tables(contributions)
    tables["fleet"] = fleet.fleet_rows([outcome.row for outcome in found])
    return tables | _ranks(found)


def _ranks(found: Sequence[Outcome]) -> "dict[str, pd.DataFrame]":
    """Ranks and process groups of every job that has several: files that state a rank, or several devices in one."""
    from xsp_post.tables.analyses.ranks import rank_tables

    jobs = jobs_of([one.row for one in found])
    tables = [rank_tables([found[k].frames for k in group], name) for name, group in jobs.items()]
    several = [table for table in tables if len(table["ranks"]) > 1]
    return {
        name: pd.concat([one[name] for one in several], ignore_index=True) if several else nothing
        for name, nothing in rank_tables([]).items()
    }


def jobs_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Positions of the captures of each job: those whose names differ by the rank only, else those of a folder that
    state ranks, each once (of several recordings of a rank the first by name are one job, the second the next). Where
    each rank has a folder of its own, the folder above counts, as far up as it takes for ranks to meet."""
    alike: dict[str, list[int]] = {}
    for k, row in enumerate(rows):
        if row["status"] == DONE:
            alike.setdefault(row["job_name"] if row["rank"] >= 0 else row["capture_name"], []).append(k)
    ranks = {name: rows[group[0]]["rank"] for name, group in alike.items() if len(group) == 1}
    below: dict[str, set[int]] = {}  # ranks of the single captures at any depth of a folder
    for name, rank in ranks.items():
        while rank >= 0 and name != (name := os.path.dirname(name)):
            below.setdefault(name, set()).add(rank)
    seen: Counter[tuple[str, int]] = Counter()
    jobs: dict[str, list[int]] = {}
    for name, group in alike.items():
        rank = ranks.get(name, -1)
        if rank >= 0:
            folder = os.path.dirname(name)
            while len(below[folder]) == 1 and folder:
                folder = os.path.dirname(folder)
            seen[folder, rank] += 1
            name = os.path.join(folder, f"job~{seen[folder, rank]}" if seen[folder, rank] > 1 else "job")
        jobs.setdefault(name, []).extend(group)
    return jobs
