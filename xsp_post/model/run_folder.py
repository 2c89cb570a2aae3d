"""``run`` → its folder: made new, continued or refused; what a failed run leaves of it; what is in it.

Layout: `capture`.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

from xsp_post.base.errors import CaptureError, OutputError, UsageError
from xsp_post.model import capture
from xsp_post.model.capture import DONE, OUT_OF_MEMORY, Capture, Workload


def prepare(workload: Workload, directory: Path, is_resumed: bool, is_forced: bool) -> Path:
    """The run's folder, new or the one to resume; OutputError where it cannot be."""
    directory = Path(os.path.realpath(directory)) if directory.is_symlink() else directory.absolute()
    if is_resumed and directory.exists():
        _check_resumable(workload, directory)
        return directory
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        if not (is_forced and capture.is_run_directory(directory)) and not _is_failed_start(directory):
            is_run = capture.is_run_directory(directory)
            raise OutputError(
                f"{directory} exists already. It was not changed.", code="run-exists",
                hint="Continue it with --resume, replace it with --force, or name another folder with -o." if is_run
                else "It is no folder of a run. Name another folder with -o.",
            )  # fmt: skip
        shutil.rmtree(directory)
    with as_output_error(directory):
        (directory / capture.CAPTURES_FOLDER).mkdir(parents=True, exist_ok=True)
    return directory


def _is_failed_start(directory: Path) -> bool:
    """Whether a run came to no capture at all (a mistake in the factory): nothing that the next try could lose."""
    own = {capture.MANIFEST_NAME, capture.CAPTURES_FOLDER}
    return (
        capture.is_run_directory(directory)
        and {path.name for path in directory.iterdir()} <= own
        and not capture.load_captures(directory)
        and capture.read_json(directory / capture.MANIFEST_NAME).get("status") == "failed"
    )


def _check_resumable(workload: Workload, directory: Path) -> None:
    before = capture.read_json(directory / capture.MANIFEST_NAME).get("workload", {})
    now = json.loads(json.dumps(workload.recorded()))
    for key, value in now.items():
        if key in before and before[key] != value:
            raise UsageError(
                f"The run in {directory} measured another workload: {key} is {before[key]!r} there and {value!r} here.",
                code="run-unlike",
            )


def clear_failed(directory: Path, is_kept: bool) -> str:
    """Remove what a failed run leaves and nothing can use; one sentence on what is there now."""
    made = load_all(directory)
    finished = [one for one in made if one.status == DONE]
    if is_kept:
        return f"Everything that was recorded, with the logs of the failed capture, is in {directory}."
    if not finished:
        shutil.rmtree(directory, ignore_errors=True)
        return f"Nothing was measured; {directory} was removed (--keep leaves it, with the logs)."
    for folder in (directory / capture.CAPTURES_FOLDER).iterdir():
        if folder not in [one.directory for one in made]:
            shutil.rmtree(folder, ignore_errors=True)
    count = f"{len(finished)} finished capture" + ("s are" if len(finished) > 1 else " is")
    return (
        f"{count} kept in {directory}: go on with the same command and --resume. "
        "The failed capture was removed (--keep leaves it, with its logs)."
    )


def load_all(directory: Path) -> list[Capture]:
    """Captures that are done or ran out of memory; damaged and failed ones will be made again."""
    found = []
    for file in sorted((directory / capture.CAPTURES_FOLDER).glob(f"*/{capture.CAPTURE_NAME}")):
        try:
            made = capture.load_capture(file)
            if made.status == DONE:
                made.source()
        except CaptureError:
            continue
        if made.status in (DONE, OUT_OF_MEMORY):
            found.append(made)
    return found


class as_output_error:
    """What the system refuses in a folder of ours, as an OutputError that names it (exit 6)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, OSError):
            return
        code = {errno.ENOSPC: "output-full", errno.EDQUOT: "output-full"}.get(error.errno or 0)
        if code is None:
            code = "output-denied" if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else "output-failed"
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(f"{self.folder} cannot be written to: {reason}.", code=code,
                          hint="Free some space, or name another folder with -o.") from error  # fmt: skip
