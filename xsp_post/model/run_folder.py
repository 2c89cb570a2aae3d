"""``run`` → its folder: made new, continued or refused; what a failed run leaves of it; what is in it.

Layout: `capture`.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xsp_post.base.errors import CaptureError, OutputError, UsageError
from xsp_post.base.output import failure
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


@contextmanager
def as_output_error(folder: Path) -> Iterator[None]:
    """What the system refuses in a folder of ours, as an OutputError that names it (exit 6)."""
    try:
        yield
    except OSError as error:
        raise failure(folder, error) from error
