"""Captures in: one path → what it is → the reader for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_post.base.errors import CaptureError, UsageError
from xsp_post.base.text_safety import file_name_text
from xsp_post.ingest import files
from xsp_post.ingest.folder_tables import FolderTables
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.model import capture

if TYPE_CHECKING:
    from xsp_post.model.counters import CounterReport
    from xsp_post.model.trace import Trace

NSYS_SQLITE, NSYS_FOLDER, NSYS_REPORT = "nsys-sqlite", "nsys-folder", "nsys-report"
NCU_REPORT, KINETO, JAEGER, STORE, CLOCK = "ncu-report", "kineto", "jaeger", "store", "clock"


@dataclass
class Loaded:
    """What one source held: a timeline, or counters."""

    path: Path
    kind: str
    trace: Trace | None = None
    counters: CounterReport | None = None


def sniff(path: Path) -> str:
    """What kind of file this is. Raises `CaptureError` (one sentence) for everything we cannot read."""
    if os.path.isdir(path) and os.access(path, os.R_OK):
        tables = FolderTables(path).tables()
        if {"StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL"} & tables:
            return NSYS_FOLDER
    files.require_readable(path)
    head = files.head(path)
    if head.startswith(files.SQLITE_MAGIC):
        return STORE if is_store(path) else NSYS_SQLITE
    if head.startswith(files.LFS_MAGIC):
        raise CaptureError(
            f"{path}: is a Git LFS pointer, not the capture itself",
            code="capture-lfs-pointer",
            hint="run: git lfs pull",
        )
    if path.suffix == ".qdstrm":
        raise CaptureError(
            f"{path}: is a raw stream that nsys has not imported",
            code="capture-qdstrm",
            hint=f"run: nsys import --input-file {path}",
        )
    if path.suffix in (".nsys-rep", ".qdrep"):
        return NSYS_REPORT
    from xsp_post.ingest import clock, jaeger, kineto, ncu

    for kind, test in (
        (NCU_REPORT, ncu.sniff_ncu),
        (CLOCK, clock.sniff_clock),
        (JAEGER, jaeger.sniff_jaeger),
        (KINETO, kineto.sniff_kineto),
    ):
        if test(path):
            return kind
    raise CaptureError(
        f"{path}: is not a capture that xsp-post reads (it begins with {head[:8]!r})",
        code="capture-unknown-format",
        hint="give an nsys SQLite export, parquetdir, .nsys-rep, .ncu-rep, or a PyTorch or Jaeger trace",
    )


def is_store(path: Path) -> bool:
    """Whether a SQLite file is a store of ours."""
    try:
        return "xsp_meta" in SqliteTables(path).tables()
    except CaptureError:
        return False


def expand(paths: list[Path]) -> list[Path]:
    """The paths with every run directory (of ``xsp-post run``) replaced by the recordings in it.

    Raises `UsageError` for a source that is given twice, `ContradictionError` when the captures of a run
    directory are not of one workload.
    """
    given = [path.resolve() for path in paths]
    for path, name in zip(paths, given):
        if given.count(name) > 1:
            raise UsageError(
                f"{path} is given twice: its kernels would count twice",
                code="source-twice",
                hint="name every capture once",
            )
    expanded: list[Path] = []
    for path in paths:
        if os.path.isdir(path) and capture.is_run_directory(path):
            made = capture.load_captures(path)
            capture.check_alike(made)
            expanded += [one.source() for one in made]
        else:
            expanded.append(path)
    return expanded


def begin(path: Path, *, detail: bool) -> SqliteTables | None:
    """Begin to read a SQLite export in the background (None for every other source); hand it to `load`.

    Needs neither pandas nor the rest of the program, which can be imported meanwhile. Raises as `sniff` does.
    """
    if sniff(path) != NSYS_SQLITE:
        return None
    from xsp_post.ingest.nsys_requests import requests

    tables = SqliteTables(path)
    tables.read_ahead(list(requests(tables, detail=detail).values()))
    return tables


def load(path: Path, *, detail: bool = True, reading: SqliteTables | None = None) -> Loaded:
    """Read one source. Without ``detail`` nsys exports are read without launch dimensions and payloads.

    A recording that `xsp-post run` made also gets what the run knows of it (level, batch size, layer facts).
    """
    from xsp_post.ingest import run_facts

    loaded = _load(path, detail, reading)
    if loaded.trace is not None:
        loaded.trace = run_facts.apply(loaded.trace, path)
        _with_stated_rank(loaded.trace, path.name)
        loaded.trace.provenance.source_name = file_name_text(loaded.trace.provenance.source_name)
    if loaded.counters is not None and (made := capture.capture_of(path)) is not None:
        from xsp_post.ingest.metric_sets import failed_sets

        loaded.counters.batch_size = made.batch_size
        loaded.counters.findings += failed_sets(made)
    return loaded


def _with_stated_rank(trace: Trace, name: str) -> None:
    """The rank that a file's name states, for its one process with device work where the capture says none."""
    from xsp_post.names.file_names import stated_rank

    working = trace.activities["process_index"].unique()
    rank = stated_rank(name)
    if rank < 0 or len(working) != 1 or trace.processes["rank"].iloc[working[0]] >= 0:
        return
    ranks = trace.processes["rank"].to_numpy().copy()
    ranks[working[0]] = rank
    trace.processes = trace.processes.assign(rank=ranks)


def _load(path: Path, detail: bool, reading: SqliteTables | None) -> Loaded:
    kind = NSYS_SQLITE if reading is not None else sniff(path)
    if kind == CLOCK:
        from xsp_post.ingest.clock import read_clock

        return Loaded(path, kind, trace=read_clock(path))
    if kind in (NSYS_SQLITE, NSYS_FOLDER, NSYS_REPORT):
        from xsp_post.ingest import nsys

        if kind == NSYS_REPORT:
            from xsp_post.ingest.nsys_report import exported

            source_path, kind = exported(path), NSYS_SQLITE
            trace = nsys.read_trace(SqliteTables(source_path), detail=detail)
            trace.provenance.source_name = path.name
        else:
            tables = reading or (SqliteTables(path) if kind == NSYS_SQLITE else FolderTables(path))
            trace = nsys.read_trace(tables, detail=detail)
        return Loaded(path, kind, trace=trace)
    if kind == NCU_REPORT:
        from xsp_post.ingest.ncu import read_ncu

        return Loaded(path, kind, counters=read_ncu(path))
    if kind == KINETO:
        from xsp_post.ingest.kineto import read_kineto

        return Loaded(path, kind, trace=read_kineto(path, detail=detail))
    if kind == JAEGER:
        from xsp_post.ingest.jaeger import read_jaeger_with_counters

        trace, counters = read_jaeger_with_counters(path)
        return Loaded(path, kind, trace=trace, counters=counters)
    raise CaptureError(
        f"{path}: is a store made by xsp-post, not a capture",
        code="capture-is-store",
        hint=f"look at it with: xsp-post tree {path}",
    )
