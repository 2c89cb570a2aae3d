"""One job → one store, one record, and small frames: what runs in a worker, on this machine or another.

The record of a capture lies below ``records/`` of the output folder. Its first line says what was read (name,
size, times and SHA-256 of every source), with which options, and the row of the table ``fleet``; its second line
holds the frames that the fleet's tables are made of. It is written last: what has a record is finished.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from xsp_post import __version__
from xsp_post.base.errors import EXIT_CAPTURE, EXIT_CONTRADICTION, EXIT_TOOL, CaptureError, OutputError, XspPostError
from xsp_post.base.output import atomic_output, write_text
from xsp_post.base.text_safety import file_name_text
from xsp_post.batch.jobs import RECORDING, Job
from xsp_post.ingest.formats import stem_of
from xsp_post.model.options import ROOFS, TREE, Options

if TYPE_CHECKING:
    from xsp_post.model.results import Results


RECORD_VERSION = 7
STORES, RECORDS = "stores", "records"
DONE, FAILED = "done", "failed"
# Failures that come from the capture's content: they stay until the capture changes.
_LASTING = (EXIT_CAPTURE, EXIT_CONTRADICTION, EXIT_TOOL)


def options_key(options: Options, job: Job) -> dict[str, Any]:
    """What decides, beside the sources, whether a finished capture is still current."""
    key = {**asdict(options), "xsp_post": __version__, "record": RECORD_VERSION, "is_of_many": job.is_of_many}
    del key["memory"]
    return json.loads(json.dumps(key, default=str))  # as a record gives it back


@dataclass
class Outcome:
    """What came of one job: its row of `fleet`, and frames by table name (none for a failure)."""

    row: dict[str, Any]
    frames: "dict[str, pd.DataFrame]" = field(default_factory=dict)


# -- the worker's side --------------------------------------------------------------------------------------


def process(job: Job, folder: str, options: Options) -> Outcome:
    """Analyse one capture, write its store and its record. A failure the user can understand is an outcome too.

    ``folder`` is the output folder, seen by every worker under this name. Raises `OutputError`s (a full disk
    would fail every other job as well) and whatever is a defect.
    """
    out = Path(folder)
    sources = [fingerprint(Path(source)) for source in job.sources]
    store = store_path(out, job)
    try:
        outcome = _analyse(job, store, options)
    except OutputError:
        raise
    except XspPostError as error:
        outcome = failure(job, error)
    outcome.row |= {"source_bytes": sum(source["size"] for source in sources)}
    header = {
        "options": options_key(options, job), "sources": sources, "tools": _tools(), "row": outcome.row,
        "is_lasting": outcome.row["status"] == DONE or outcome.row["exit_code"] in _LASTING,
    }  # fmt: skip
    path = record_path(out, job)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, f"{json.dumps(header)}\n{json.dumps(plain(outcome)[1])}\n", force=True)
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
    from xsp_post.pipeline import captures_of, results_of
    from xsp_post.store.store import write_store

    paths = [Path(source) for source in job.sources]
    if job.is_of_many:
        return _rank_of_many(captures_of(paths, replace(options, infer=False)), job)
    store.parent.mkdir(parents=True, exist_ok=True)
    is_plain = len(paths) == 1 and options.is_default(TREE) and options.is_default(ROOFS)
    for made in [one for one in stores_beside(paths[0]) if is_plain and _is_made_of(one, paths[0])]:
        with suppress(CaptureError):
            outcome = contributed(results_of([made]), job)
            with atomic_output(store, force=True) as part:
                shutil.copyfile(made, part)
            return outcome
    analysis = captures_of(paths, options).complete()
    write_store(analysis, store, force=True)
    return contributed(analysis, job)


def stores_beside(capture: Path) -> list[Path]:
    """Where `ingest` and `record` write the store of a capture, if nothing else is said."""
    folder, ending = capture.parent, ".xsp.sqlite"
    own = capture.with_name(stem_of(capture.name) + ending)
    return [own, folder.with_suffix(ending)] if folder.suffix == RECORDING else [own]


def _is_made_of(store: Path, capture: Path) -> bool:
    """Whether a store is of a capture as it is now, and of this version."""
    from xsp_post.store.store import open_store

    with suppress(CaptureError, OSError):
        if store.stat().st_mtime_ns >= capture.stat().st_mtime_ns:
            found, name = open_store(store), capture.name if store.parent == capture.parent else capture.parent.stem
            is_of_it = found.frame("captures")["source_name"].tolist() == [name]
            return is_of_it and found.meta["writer"] == f"xsp-post {__version__}"
    return False


def _rank_of_many(results: "Results", job: Job) -> Outcome:
    """What the tables of a job need of one of its ranks: a third of the time of all tables and a store."""
    from xsp_post.tables.analyses import fleet, ranks

    frames = ranks.rank_contribution(results, job.name, job.rank)
    return Outcome(_named(job) | _ranked(frames) | fleet.capture_row(results) | {"status": DONE}, frames)


def _ranked(frames: "dict[str, pd.DataFrame]") -> dict[str, int]:
    """The rank of a capture of one rank; −1 none, or several."""
    ranks = frames["ranks"]["rank"]
    return {"rank": int(ranks.iloc[0]) if len(ranks) == 1 else -1}


def contributed(analysis: "Results", job: Job) -> Outcome:
    """What the results of one capture add to tables of many."""
    from xsp_post.tables.analyses import fleet, history, ranks

    frames = fleet.contribution(analysis, 0, job.name, job.workload, job.batch_size)
    frames |= ranks.rank_contribution(analysis, job.name, job.rank)
    frames[history.CONTRIBUTED] = history.history_contribution(analysis, job.name, frames["fleet_families"])
    row = _named(job) | _ranked(frames) | fleet.summary_row(analysis)
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


def store_path(folder: Path, job: Job) -> Path:
    return folder / STORES / f"{job.name}.xsp.sqlite"


def _tools() -> str:
    """Where nsys is: a report that failed because nsys was missing is tried again once it is there."""
    return shutil.which("nsys") or ""


def plain(outcome: Outcome) -> list[Any]:
    """An outcome as JSON has it."""
    frames = outcome.frames.items()
    return [outcome.row, {name: {column: frame[column].tolist() for column in frame} for name, frame in frames}]


def as_outcome(said: list[Any]) -> Outcome:
    """An outcome from JSON: the same rows and frames."""
    row, data = said
    return Outcome(row, {name: pd.DataFrame(columns) for name, columns in data.items()})


def read_outcome(path: Path) -> Outcome:
    """A finished job from its record: the same rows and frames as from the worker."""
    with path.open(encoding="utf-8") as file:
        return as_outcome([json.loads(file.readline())["row"], json.loads(file.readline())])


def current_row(folder: Path, job: Job, options: Options) -> dict[str, Any] | None:
    """The row of a finished capture whose sources have not changed; None where it is to be (re)done.

    A file of the same size and times is taken for unchanged; one that was only touched is read and compared by
    its SHA-256.
    """
    try:
        with record_path(folder, job).open(encoding="utf-8") as file:
            header = json.loads(file.readline())
    except (OSError, ValueError):
        return None
    if not header.get("is_lasting") or header.get("options") != options_key(options, job):
        return None
    row = header["row"]
    if row["store_name"] and not (folder / row["store_name"]).is_file():
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
