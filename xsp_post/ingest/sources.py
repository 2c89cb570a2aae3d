"""Captures in: one path → what it is → the reader for it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_post.base.errors import CaptureError, UsageError
from xsp_post.base.text_safety import file_name_text
from xsp_post.ingest import files
from xsp_post.ingest.formats import BY_KEY, FORMATS, NSYS_FOLDER, NSYS_SQLITE, STORE, titles
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.ingest.tables import requests
from xsp_post.model import capture
from xsp_post.names.file_names import by_numbers, stated_rank

if TYPE_CHECKING:
    from xsp_post.model.counters import CounterReport
    from xsp_post.model.trace import Trace


@dataclass
class Loaded:
    """What one source held: a timeline, or counters."""

    path: Path
    kind: str
    trace: "Trace | None" = None
    counters: "CounterReport | None" = None


def sniff(path: Path) -> str:
    """The key of the format this file is of. Raises `CaptureError` (one sentence) for everything we cannot read."""
    if os.path.isdir(path) and os.access(path, os.R_OK) and BY_KEY[NSYS_FOLDER].matches(path):
        return NSYS_FOLDER
    files.require_readable(path)
    if files.head(path).startswith(files.LFS_MAGIC):
        raise CaptureError(f"{path}: is a Git LFS pointer, not the capture itself", code="capture-lfs-pointer")
    if path.suffix == ".qdstrm":
        raise CaptureError(
            f"{path}: is a raw stream that nsys has not imported",
            code="capture-qdstrm",
            hint=f"run: nsys import --input-file {path}",
        )
    for one in FORMATS:
        if one.matches(path):
            return one.key
    raise CaptureError(
        f"{path}: is not a capture that xsp-post reads", code="capture-unknown-format", hint=f"it reads: {titles()}"
    )


def expand(paths: list[Path]) -> list[Path]:
    """The paths with every run directory (of ``xsp-post run``) replaced by the recordings in it, and every folder whose
    captures state a rank each by these: one job.

    Raises `UsageError` for a source that is given twice, `ContradictionError` when the captures of a run
    directory are not of one workload.
    """
    given = [path.resolve() for path in paths]
    for path, name in zip(paths, given):
        if given.count(name) > 1:
            raise UsageError(f"{path} is given twice: its kernels would count twice", code="source-twice")
    expanded: list[Path] = []
    for path in paths:
        if os.path.isdir(path) and capture.is_run_directory(path):
            made = capture.load_captures(path)
            capture.check_alike(made)
            expanded += [one.source() for one in made]
        elif len(ranks := [stated_rank(one.name) for one in inside(path)]) == len({*ranks} - {-1}) > 1:
            expanded += inside(path)
        else:
            expanded.append(path)
    return expanded


def captures_in(paths: tuple[Path, ...], ranks: set[int]) -> list[Path]:
    """The captures themselves: of a folder (one file a bucket and rank) those in it, by the numbers in their names.

    Files whose name states a rank that is none of ``ranks`` are left out where that leaves any. Raises `CaptureError`
    for a folder without captures.
    """
    found: list[Path] = []
    for path in paths:
        if not os.path.isdir(path) or BY_KEY[NSYS_FOLDER].matches(path) or capture.is_run_directory(path):
            found += expand([path])
        elif not (captures := inside(path)):
            raise CaptureError(f"{path}: no capture lies in this folder", code="capture-is-directory")
        else:
            found += captures
    mine = [path for path in found if not ranks or stated_rank(path.name) in ranks | {-1}]
    return mine or found


def inside(folder: Path) -> list[Path]:
    """The captures of a folder, by the numbers in their names; none of a file, and of a folder that is one capture."""
    if not os.path.isdir(folder) or not os.access(folder, os.R_OK) or BY_KEY[NSYS_FOLDER].matches(folder):
        return []
    names = sorted(folder.iterdir(), key=lambda one: (by_numbers(one.name), one.name))
    return [one for one in names if one.is_file() and _is_capture(one)]


def _is_capture(path: Path) -> bool:
    try:
        return sniff(path) != STORE
    except CaptureError:
        return False


def make_before(paths: list[Path]) -> None:
    """What only a program of NVIDIA can read is read by it, for a sealed process, which may start none."""
    from xsp_post.ingest import ncu, nsys_report

    ncu.asked_before.clear()
    runs = [path for path in paths if os.path.isdir(path) and capture.is_run_directory(path)]
    inside = [one for path in paths if os.path.isdir(path) for one in path.iterdir()]
    for path in filter(os.path.isfile, (*paths, *inside, *(expand(runs) if runs else ()))):
        if nsys_report.has_report_name(path) and os.access(path, os.R_OK) and not files.is_sqlite(path):
            nsys_report.exported(path)
        elif os.access(path, os.R_OK) and ncu.needs_tool(path):
            ncu.asked_before[path] = ncu.import_by_tool(path)


def begin(path: Path) -> SqliteTables | None:
    """Begin to read a SQLite export in the background (None for every other source); hand it to `load`.

    Needs neither pandas nor the rest of the program, which can be imported meanwhile. Raises as `sniff` does.
    """
    if sniff(path) != NSYS_SQLITE:
        return None

    tables = SqliteTables(path)
    tables.read_ahead(list(requests(tables).values()))
    return tables


def load(path: Path, *, reading: SqliteTables | None = None) -> Loaded:
    """Read one source.

    A recording that `xsp-post run` made also gets what the run knows of it (level, batch size, layer facts).
    """
    from xsp_post.ingest import run_facts

    loaded, made = _load(path, reading), capture.capture_of(path)
    if loaded.trace is not None:
        loaded.trace = loaded.trace if made is None else run_facts.with_capture(loaded.trace, made)
        loaded.trace.provenance = replace(loaded.trace.provenance, **capture.step_times(path.parent))
        _with_stated_rank(loaded.trace, path.name)
        loaded.trace.provenance.source_name = file_name_text(loaded.trace.provenance.source_name)
    if loaded.counters is not None and made is not None:
        loaded.counters.batch_size = made.batch_size
        loaded.counters.findings += run_facts.failed_sets(made)
    return loaded


def _with_stated_rank(trace: "Trace", name: str) -> None:
    """The rank that a file's name states, for its one process with device work where the capture says none."""
    working = trace.activities["process_index"].unique()
    rank = stated_rank(name)
    if rank < 0 or len(working) != 1 or trace.processes["rank"].iloc[working[0]] >= 0:
        return
    ranks = trace.processes["rank"].to_numpy().copy()
    ranks[working[0]] = rank
    trace.processes = trace.processes.assign(rank=ranks)


def _load(path: Path, reading: SqliteTables | None) -> Loaded:
    if reading is not None:
        from xsp_post.ingest import nsys

        return Loaded(path, NSYS_SQLITE, trace=nsys.read_trace(reading))
    kind = sniff(path)
    trace, counters = BY_KEY[kind].load(path)
    return Loaded(path, kind, trace=trace, counters=counters)
