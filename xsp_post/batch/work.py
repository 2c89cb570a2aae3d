"""One job → one store, one record, and small frames: what runs in a worker, on this machine or another.

The record of a capture lies below ``records/`` of the output folder. Its first line says what was read (name,
size, times and SHA-256 of every source), with which options, and the row of the table ``fleet``; its second line
holds the frames that the fleet's tables are made of. It is written last: what has a record is finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_post import __version__
from xsp_post.base.errors import EXIT_CAPTURE, EXIT_CONTRADICTION, EXIT_TOOL, XspPostError
from xsp_post.base.output import atomic_output
from xsp_post.base.text_safety import file_name_text
from xsp_post.batch.jobs import Job
from xsp_post.model.options import Options

if TYPE_CHECKING:
    import pandas as pd

    from xsp_post.model.results import Results


# Version of the records. Every number ever used:
# 1  first version (xsp-post 0.1.0)
# 2  counter reports without a timeline are captures; latencies of inferred iterations without the queue
# 3  values for a history
# 4  what the ranks did between collectives
# 5  process groups of collectives
RECORD_VERSION = 5
STORES, RECORDS = "stores", "records"
DONE, FAILED = "done", "failed"
# Failures that come from the capture's content: they stay until the capture changes.
_LASTING = (EXIT_CAPTURE, EXIT_CONTRADICTION, EXIT_TOOL)


def options_key(options: Options) -> dict[str, Any]:
    """What decides, beside the sources, whether a finished capture is still current."""
    key = {**asdict(options), "xsp_post": __version__, "record": RECORD_VERSION}
    return json.loads(json.dumps(key, default=str))  # as a record gives it back


@dataclass
class Outcome:
    """What came of one job: its row of `fleet`, and frames by table name (none for a failure)."""

    row: dict[str, Any]
    frames: dict[str, pd.DataFrame] = field(default_factory=dict)


# -- the worker's side --------------------------------------------------------------------------------------


def process(job: Job, folder: str, options: Options) -> Outcome:
    """Analyse one capture, write its store and its record. A failure the user can understand is an outcome too.

    ``folder`` is the output folder, seen by every worker under this name. Raises `OutputError`s (a full disk
    would fail every other job as well) and whatever is a defect.
    """
    from xsp_post.base.errors import OutputError

    out = Path(folder)
    sources = [fingerprint(Path(source)) for source in job.sources]
    store = out / STORES / f"{job.name}.xsp.sqlite"
    try:
        outcome = _analyse(job, store, options)
    except OutputError:
        raise
    except XspPostError as error:
        outcome = failure(job, error)
        store.unlink(missing_ok=True)  # of an earlier state of the capture
    outcome.row |= {"source_bytes": sum(source["size"] for source in sources)}
    header = {
        "options": options_key(options), "sources": sources, "tools": _tools(), "row": outcome.row,
        "is_lasting": outcome.row["status"] == DONE or outcome.row["exit_code"] in _LASTING,
    }  # fmt: skip
    _write_record(record_path(out, job), header, outcome.frames)
    return outcome


def failure(job: Job, error: XspPostError) -> Outcome:
    """The row of a capture that could not be analysed; its sentence names the file as the user gave it."""
    message = error.message
    for source in job.sources:
        message = message.replace(source, str(Path(job.shown).with_name(Path(source).name)))
    return Outcome(
        _named(job)
        | {"status": FAILED, "code": error.code, "message": file_name_text(message), "exit_code": error.exit_code}
    )


def _analyse(job: Job, store: Path, options: Options) -> Outcome:
    from xsp_post.pipeline import analyze
    from xsp_post.store.store import write_store

    paths = [Path(source) for source in job.sources]
    analysis = analyze(paths, options)
    store.parent.mkdir(parents=True, exist_ok=True)
    write_store(analysis, store, force=True)
    return contributed(analysis, job)


def contributed(analysis: Results, job: Job) -> Outcome:
    """What the results of one capture add to tables of many."""
    from xsp_post.tables.analyses import fleet, history, ranks

    frames = fleet.contribution(analysis, 0, job.name, job.workload, job.batch_size)
    frames |= ranks.rank_contribution(analysis, job.name, job.rank)
    frames[history.CONTRIBUTED] = history.history_contribution(analysis, job.name)
    row = _named(job) | fleet.summary_row(analysis)
    row |= {
        "status": DONE,
        "store_name": f"{STORES}/{job.name}.xsp.sqlite",
        "workload_name": fleet.workload_name(analysis) or job.workload,
    }
    return Outcome(row, frames)


def _named(job: Job) -> dict[str, Any]:
    return {
        "capture_name": job.name,
        "workload_name": job.workload,
        "job_name": job.job_name,
        "rank": job.rank,
        "source_name": job.shown,
        "source_count": len(job.sources),
        "code": "",
        "message": "",
        "store_name": "",
    }


# -- records ------------------------------------------------------------------------------------------------


def record_path(folder: Path, job: Job) -> Path:
    return folder / RECORDS / f"{job.name}.json"


def _tools() -> str:
    """Where nsys is: a report that failed because nsys was missing is tried again once it is there."""
    return shutil.which("nsys") or ""


def _write_record(path: Path, header: dict[str, Any], frames: dict[str, pd.DataFrame]) -> None:
    data = {name: {column: frame[column].tolist() for column in frame.columns} for name, frame in frames.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_output(path, force=True) as temporary:
        temporary.write_text(f"{json.dumps(header)}\n{json.dumps(data)}\n", encoding="ascii")


def read_header(path: Path) -> dict[str, Any] | None:
    """The first line of a record; None where there is none or it is damaged."""
    try:
        with path.open(encoding="utf-8") as file:
            return json.loads(file.readline())
    except (OSError, ValueError):
        return None


def read_outcome(path: Path) -> Outcome:
    """A finished job from its record: the same rows and frames as from the worker."""
    import pandas as pd

    with path.open(encoding="utf-8") as file:
        header, data = json.loads(file.readline()), json.loads(file.readline())
    return Outcome(header["row"], {name: pd.DataFrame(columns) for name, columns in data.items()})


def current_row(folder: Path, job: Job, options: Options) -> dict[str, Any] | None:
    """The row of a finished capture whose sources have not changed; None where it is to be (re)done.

    A file of the same size and times is taken for unchanged; one that was only touched is read and compared by
    its SHA-256.
    """
    header = read_header(record_path(folder, job))
    if header is None or not header.get("is_lasting") or header.get("options") != options_key(options):
        return None
    row = header["row"]
    if row["status"] == DONE and not (folder / row["store_name"]).is_file():
        return None
    if row["status"] == FAILED and row["exit_code"] == EXIT_TOOL and header["tools"] != _tools():
        return None
    known = header["sources"]
    if [entry["path"] for entry in known] != list(job.sources):
        return None
    return row if all(_is_unchanged(Path(path), entry) for path, entry in zip(job.sources, known)) else None


# -- content ------------------------------------------------------------------------------------------------


def fingerprint(path: Path) -> dict[str, Any]:
    """Size, times and SHA-256 of a source; a folder's are those of all files in it. Zeros where unreadable."""
    digest = hashlib.sha256()
    for name, file in _files(path):
        digest.update(os.fsencode(name) + b"\0")
        try:
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            digest.update(str(error.errno).encode())
    return {"path": str(path), "sha256": digest.hexdigest(), **_status(path)}


def _status(path: Path) -> dict[str, Any]:
    """What tells a change without reading: total size, latest change, number of files."""
    size = changed = count = 0
    for _, file in _files(path):
        try:
            status = file.stat()
        except OSError:
            continue
        size, count = size + status.st_size, count + 1
        changed = max(changed, status.st_mtime_ns, status.st_ctime_ns)
    return {"size": size, "changed_ns": changed, "file_count": count}


def _is_unchanged(path: Path, known: dict[str, Any]) -> bool:
    now = _status(path)
    if all(now[key] == known[key] for key in now):
        return True
    return now["size"] == known["size"] and fingerprint(path)["sha256"] == known["sha256"]


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """(name within the source, file), in a stable order."""
    if not os.path.isdir(path):
        if os.path.isfile(path) or not os.path.exists(path):  # a pipe would wait for a writer
            yield "", path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            yield file.relative_to(path).as_posix(), file
