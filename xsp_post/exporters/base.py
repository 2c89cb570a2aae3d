"""Results → files: what every exporter starts from (one capture's frames) and ends with (what was written)."""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pandas as pd

from xsp_post.base import output
from xsp_post.base.errors import UsageError
from xsp_post.base.findings import Finding, finding
from xsp_post.base.output import atomic_output
from xsp_post.model.results import Results, frame_or_empty

SYNTHETIC = ("root", "unattributed", "no_launch", "graph")
VIEWER_LIMIT_BYTES = 400_000_000
CHUNK = 100_000  # rows turned into text or packets at a time


@dataclass(frozen=True)
class Written:
    """What an exporter wrote: where, how many of what, and what there is to say about it."""

    path: Path
    counts: dict[str, int]
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """The frames of one capture, restricted to the columns asked for."""

    capture: dict[str, Any]
    nodes: pd.DataFrame
    kernels: pd.DataFrame
    memory_operations: pd.DataFrame
    findings: list[Finding]
    memory_timeline: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def ranges(self) -> pd.DataFrame:
        """The nodes that are ranges: recorded or inferred, no synthetic ones."""
        return self.nodes[~self.nodes["span_kind"].isin(SYNTHETIC)]


def select(
    results: Results, *, capture_id: int | None = None, nodes: Sequence[str] = (), kernels: Sequence[str] = (),
    memory_operations: Sequence[str] = (), memory_timeline: Sequence[str] = (), limit: int | None = None,
) -> Selection:  # fmt: skip
    """One capture: ``capture_id``, or the one with most kernels (first of equals).

    With ``limit`` only the first so many kernels in time stay, and the ranges and other device work that
    began before the last of them ended; a finding says so. Raises UsageError where the capture is not there.
    """
    columns = "capture_id level source_name gpu_name workload_name framework batch_size kernel_count clock_utc_ns"
    captures = results.frame("captures", columns.split())  # the store of a batch has none, and says what to use instead
    findings: list[Finding] = []
    chosen = _choose(captures, capture_id, findings)
    number = int(chosen["capture_id"])

    def part(name: str, columns: Sequence[str], needed: Sequence[str]) -> pd.DataFrame:
        frame = frame_or_empty(results, name, list(dict.fromkeys((*needed, *columns))))
        mine = frame["capture_id"].to_numpy() == number
        return frame.reset_index(drop=True) if mine.all() else frame[mine].reset_index(drop=True)

    times = ("capture_id", "start_ns", "end_ns")
    frames = {
        "nodes": part("nodes", nodes, ("node_id", "span_kind", *times)),
        "kernels": part("kernels", kernels, ("kernel_id", *times)),
        "memory_operations": part("memory_operations", memory_operations, ("activity_id", "kind", *times)),
        "memory_timeline": part("memory_timeline", memory_timeline, ("capture_id", "start_ns")),
    }
    if limit is not None and (count := len(frames["kernels"])) > limit:
        findings.append(finding("export-limited", count=count - limit, example=f"{limit} of {count} kernels"))
        order = np.argsort(frames["kernels"]["start_ns"].to_numpy(), kind="stable")[:limit]
        frames["kernels"] = kept = frames["kernels"].iloc[np.sort(order)]
        last = int(kept["end_ns"].max()) if len(kept) else -(2**62)
        frames = {name: one[one["start_ns"] <= last].reset_index(drop=True) for name, one in frames.items()}
    return Selection(chosen, findings=findings, **frames)


def _choose(captures: pd.DataFrame, capture_id: int | None, findings: list[Finding]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [{str(k): v for k, v in row.items()} for row in captures.to_dict("records")]
    if capture_id is not None:
        rows = [row for row in rows if row["capture_id"] == capture_id]
    if not rows:
        wanted = "no capture at all" if capture_id is None else f"no capture number {capture_id}"
        raise UsageError(f"The results hold {wanted}.", code="export-no-capture")
    if len(rows) > 1:
        findings.append(finding("export-one-capture", count=len(rows)))
    return max(rows, key=lambda row: row["kernel_count"])


@contextmanager
def binary_output(path: Path, force: bool) -> Iterator[IO[bytes]]:
    """A file to write to that becomes ``path`` at the end; compressed where its name ends in ``.gz``: timelines repeat
    their texts and shrink about twentyfold. Raises OutputError."""
    with atomic_output(path, force) as temporary, open(temporary, "wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=3, mtime=0) as compressed:
                yield cast("IO[bytes]", compressed)
        else:
            yield raw


def note_size(written: Written) -> Written:
    """Add a finding where a viewer may refuse the file for its size."""
    size = output.written(written.path).stat().st_size
    if size > VIEWER_LIMIT_BYTES:
        written.findings.append(finding("export-large", example=f"{written.path.name}: {size} bytes"))
    return written
