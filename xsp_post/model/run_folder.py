"""``run`` → its folder: made new, continued or refused; what a failed run leaves of it; what is in it.

Layout: `capture`.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from xsp_post.arrays import statistics
from xsp_post.base.errors import CaptureError, OutputError, UsageError
from xsp_post.base.output import failure
from xsp_post.model import capture
from xsp_post.model.capture import DONE, OUT_OF_MEMORY, Capture, Workload, read_json
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL
from xsp_post.names import range_text


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


LEAST_PROCESSES = 3
DISTURBED_RATIO = 1.03  # a block this much slower after one level than after another is disturbed by it


def block_latencies_ns(made: Capture) -> list[list[int]]:
    """Per block the latency of each measured iteration, the sum of its phases, in ns; empty without readings.

    A block begins where a measured iteration follows a warm-up.
    """
    path = made.path("spans")
    if path is None:
        return []
    values = read_json(path)
    parsed = [range_text.parse(text) for text in values["texts"]]
    blocks: list[dict[int, int]] = []
    is_settling = True
    for text_index, start_ns, end_ns in zip(values["text_indexes"], values["start_ns"], values["end_ns"]):
        said = parsed[text_index]
        if said is not None and said.kind == range_text.MODEL:
            if is_settling or not blocks:
                blocks.append({})
            blocks[-1][said.index] = blocks[-1].get(said.index, 0) + end_ns - start_ns
        if said is not None and said.kind in (range_text.MODEL, range_text.WARMUP):
            is_settling = said.kind == range_text.WARMUP
    return [list(block.values()) for block in blocks]


def model_latency_ns(made: Capture) -> float:
    """Trimmed mean over the measured iterations of a clock capture, in ns; 0 without any."""
    values = [value for block in block_latencies_ns(made) for value in block]
    return statistics.trimmed_mean(values) if values else 0.0


def disturbance(captures: Sequence[Capture]) -> float:
    """How many times slower level M is in blocks after M/L/G than in blocks after M/L, where that is shown by several
    processes and is above `DISTURBED_RATIO`; else 1."""
    ratios = []
    for made in captures:
        facts = made.path("facts")
        if made.level != RUN_MODEL or made.status != DONE or not made.process or facts is None:
            continue
        order = read_json(facts).get("block_levels", [])
        before = [above for above, level in pairwise(["", *order]) if level == RUN_MODEL]
        after = {level: [] for level in (RUN_LAYER, RUN_KERNEL)}  # type: dict[str, list[int]]
        for level, values in zip(before, block_latencies_ns(made)):
            after.get(level, []).extend(values)
        if all(after.values()):
            ratios.append(median(after[RUN_KERNEL]) / median(after[RUN_LAYER]))
    if len(ratios) < LEAST_PROCESSES:
        return 1.0
    summary = statistics.summarise_groups(np.log(ratios), np.zeros(len(ratios), np.int64), 1, trim_ratio=0.0).iloc[0]
    ratio = float(np.exp(summary["trimmed_mean"]))
    return ratio if summary["ci_low"] > 0 and ratio > DISTURBED_RATIO else 1.0
