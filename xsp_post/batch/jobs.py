"""Paths → jobs: which files are captures, and which of them are one (before anything heavy is imported).

Files that are one capture: a run directory of ``xsp-post run`` (by its manifest); an export and the report it
was made from (same folder and stem: the export is read); a timeline and the Nsight Compute reports of the same
folder whose stem differs only by words such as ``ncu`` or ``counters`` (a report without a timeline is a capture
of its own). The file's name also tells, where the capture itself does not: the rank (``rank3``, ``rank_3``) and
the batch size (``bs16``, ``batch_16``); what is left of the stem then is the workload.
"""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from xsp_post.base.errors import UsageError
from xsp_post.base.text_safety import file_name_text
from xsp_post.ingest import formats
from xsp_post.ingest.json_text import head_bytes
from xsp_post.model.capture import is_run_directory
from xsp_post.names.file_names import RANK

MANY = 64  # ranks of a job
RECORDING = ".recording"  # ending of the folder that `record` writes a capture to
_HEAD_BYTES = 1 << 16
_WORLD_SIZE = re.compile(rb'"world_size": *(\d{1,7})\b')
_COUNTER_WORDS = re.compile(r"(?:^|[._-])(?:ncu|nsys|counters?|metrics?|roofline|profile)(?=$|[._-])", re.IGNORECASE)
_BATCH = re.compile(r"(?:^|[._-])(?:bs|batch(?:[._-]?size)?)[._=-]?(\d{1,7})(?=$|[._-])", re.IGNORECASE)


class Job(NamedTuple):
    """One capture of a batch. ``sources`` are absolute paths, the timeline first; picklable and small."""

    name: str  # unique, a relative path without suffix: names its store
    sources: tuple[str, ...]
    shown: str  # the first source as the user would find it, relative to what was given
    workload: str  # by the file's name
    job_name: str  # captures that differ by their rank only share it
    rank: int = -1
    batch_size: int = -1
    is_of_many: bool = False  # a rank of a job of so many that only what the job needs is made of it


def discover(paths: Sequence[str | os.PathLike[str]], *, leave_out: Path | None = None) -> tuple[list[Job], list[str]]:
    """All captures below the paths, in a stable order, and what was left out.

    ``paths``: files, folders (searched to any depth), glob patterns (``**`` too), run directories, and ``@FILE``
    with one path a line. ``leave_out``: the output folder. Raises `UsageError` when nothing is found or a list
    cannot be read; a named file that does not exist becomes a job (and a row that says so).
    """
    skipped: list[str] = []  # files that are no captures by their name or content
    found: dict[str, tuple[str, str]] = {}  # of each file, whatever links lead to it: (absolute path, relative name)
    for root, path in _expanded(paths):
        for entry in _captures_below(path, leave_out, skipped):
            absolute, real = os.path.abspath(entry), os.path.realpath(entry)
            if real not in found or (absolute == real and found[real][0] != real):
                found[real] = absolute, _relative(entry, root)
    jobs = _unique(_grouped([*found.values()]))
    if not jobs:
        raise UsageError(f"There is no capture in {', '.join(map(str, paths))}", code="batch-nothing")
    return jobs, skipped


def _expanded(paths: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[Path, Path]]:
    """(what names are relative to, path) for each path, with globs and lists written out."""
    for given in paths:
        text = os.fspath(given)
        path = Path(text)
        if text.startswith("@") and not os.path.lexists(path):
            yield from _expanded(_listed(Path(text[1:])))
        elif not os.path.lexists(path) and glob.has_magic(text):
            for match in sorted(glob.glob(text, recursive=True)):
                yield from _expanded([match])
        else:
            inside = os.path.isdir(path) and not _is_capture_folder(path)
            yield (path if inside else path.parent), path


def _listed(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: the list of captures cannot be read ({error})", code="batch-list") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _is_capture_folder(path: Path) -> bool:
    one = formats.of_name(path.name)
    return is_run_directory(path) or (one is not None and one.is_folder)


def _captures_below(path: Path, leave_out: Path | None, skipped: list[str]) -> Iterator[Path]:
    """A file as it is; of a folder everything that can be a capture, in name order."""
    if not os.path.isdir(path) or _is_capture_folder(path):
        yield path
        return
    closed: list[Path] = []  # folders that cannot be listed: a row each that says so
    closed_to_us = "" if leave_out is None else os.path.realpath(leave_out)

    def note(error: OSError) -> None:
        closed.append(Path(os.fsdecode(error.filename)))

    for folder, folders, files in os.walk(path, onerror=note, followlinks=False):
        here = Path(folder)
        captures = [name for name in sorted(folders) if _is_capture_folder(here / name)]
        yield from (here / name for name in captures)
        others = [name for name in sorted(folders) if not name.startswith(".") and name not in captures]
        folders[:] = [name for name in others if os.path.realpath(here / name) != closed_to_us]
        for name in sorted(files):
            if _is_capture_name(here / name):
                yield here / name
            elif not name.startswith("."):
                skipped.append(str(here / name))
    yield from closed


def _is_capture_name(path: Path) -> bool:
    """Whether a file of a folder is taken: by its suffix; JSON by its first bytes, since most JSON is not a trace."""
    one = formats.of_name(path.name)
    if one is None or one.is_folder or one.key == formats.STORE or path.name.startswith("."):
        return False
    return not formats.has_common_name(path.name) or _looks_like_trace(path)


def _looks_like_trace(path: Path) -> bool:
    """A cheap look; the readers' own test decides in the worker. A damaged one is taken for one: a row that says so."""
    head = head_bytes(path, 4096)
    words = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"traceID"', b'"spans"', b'"clock"')
    return not head or any(word in head for word in words)


def _relative(path: Path, root: Path) -> str:
    try:
        return path.relative_to(root).as_posix()
    except ValueError:
        return path.name


# -- what belongs together ----------------------------------------------------------------------------------


def _grouped(files: Sequence[tuple[str, str]]) -> list[Job]:
    """Jobs of (absolute path, relative name): reports behind their exports, counters behind their timelines."""
    timelines: dict[tuple[str, str], list[tuple[str, str]]] = {}
    counters: list[tuple[str, str]] = []
    for absolute, shown in files:
        if _tool(absolute) == "ncu":
            counters.append((absolute, shown))
            continue
        folder, name = os.path.split(absolute)
        # traces of other profilers are captures of their own, whatever they are called
        kind = formats.stem_of(name) if _tool(name) == "nsys" else name
        timelines.setdefault((folder, kind), []).append((absolute, shown))
    order = {one: number for number, one in enumerate(formats.FORMATS)}  # the first of files of one stem is read
    chosen = [
        min(group, key=lambda one: order[formats.of_name(one[0]) or formats.FORMATS[-1]])
        for group in timelines.values()
    ]
    reports: dict[str, list[str]] = {}
    alone: list[tuple[str, str]] = []
    for absolute, shown in counters:
        owners = [one for one, _ in chosen if _key(one) == _key(absolute)]
        if len(owners) == 1:
            reports.setdefault(owners[0], []).append(absolute)
        else:
            alone.append((absolute, shown))
    place = {absolute: position for position, (absolute, _) in enumerate(files)}
    every = sorted([*chosen, *alone], key=lambda one: place[one[0]])
    return [_job(absolute, shown, reports.get(absolute, [])) for absolute, shown in every]


def _tool(path: str) -> str:
    """The tool whose format a file is of by its name, "" where the name does not say."""
    one = formats.of_name(path)
    return one.tool if one else ""


def _key(path: str) -> tuple[str, str]:
    """Folder and stem without the words that tell a counter report from a timeline."""
    folder, name = os.path.split(path)
    return folder, _COUNTER_WORDS.sub("", formats.stem_of(name)).strip("._-").lower()


def _job(absolute: str, shown: str, reports: Iterable[str]) -> Job:
    shown = file_name_text(shown)
    folder, name = os.path.split(shown)
    stem = formats.stem_of(name)
    if (parent := os.path.basename(os.path.dirname(absolute))).endswith(RECORDING):  # the user's name is the folder's
        folder, stem = os.path.dirname(folder), file_name_text(parent.removesuffix(RECORDING))
    rank, without_rank = _cut(RANK, stem)
    batch_size, workload = _cut(_BATCH, without_rank)
    job_name = os.path.join(folder, without_rank) if without_rank else stem
    sources, workload = (absolute, *reports), workload or without_rank or stem
    return Job(os.path.join(folder, stem), sources, shown, workload, job_name, rank, batch_size)


def _cut(pattern: re.Pattern[str], stem: str) -> tuple[int, str]:
    """The number that the pattern finds (−1 none) and the stem without it."""
    match = pattern.search(stem)
    if match is None:
        return -1, stem
    return int(match.group(1)), (stem[: match.start()] + stem[match.end() :]).strip("._-")


def _unique(jobs: Sequence[Job]) -> list[Job]:
    """Names made unique, and safe as the name of a store below the output folder."""
    taken: set[str] = set()
    result = []
    for job in jobs:
        parts = [part for part in job.name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        name = base = "/".join(part[:120] for part in parts) or "capture"
        number = 2
        while name.lower() in taken:  # some file systems do not tell upper from lower case
            name, number = f"{base}~{number}", number + 1
        taken.add(name.lower())
        result.append(job._replace(name=name))
    return _of_many(result) if len(result) >= MANY else result


def _of_many(jobs: Sequence[Job]) -> list[Job]:
    """Marks the ranks of a job of many: as many files differ by their rank only, or the trace says so."""
    folders = [os.path.split(job.name) for job in jobs]  # of ``rank0`` …
    series = [folder if name == job.job_name else job.job_name for job, (folder, name) in zip(jobs, folders)]
    alike = Counter(name for job, name in zip(jobs, series) if job.rank >= 0)
    return [
        job._replace(is_of_many=max(alike[name] * (job.rank >= 0), _world_size(job.sources[0])) >= MANY)
        for job, name in zip(jobs, series)
    ]


def _world_size(path: str) -> int:
    """Ranks of the job that a PyTorch trace is of, as its first lines say; 0 unknown."""
    is_json = path.endswith((".json", ".json.gz"))
    found = _WORLD_SIZE.search(head_bytes(Path(path), _HEAD_BYTES)) if is_json else None
    return int(found.group(1)) if found else 0
