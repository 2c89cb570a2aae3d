"""``run`` → **capture**: the plan of a measurement, what was recorded, and the run directory.

A run directory holds ``manifest.json`` and one folder per capture,
``captures/<nn>_<level>_b<batch size>_r<repeat>/`` with ``capture.json``, ``stdout.log``, ``stderr.log`` and
what the collector wrote: ``spans.json`` (clock readings), ``trace.json.gz`` (torch.profiler),
``report.nsys-rep`` and ``report.sqlite`` (nsys); ``facts.json`` says what the child knew about its layers.
Captures that one process made name the same `Capture.process`; the logs are with the first of them.

Never recorded: environment variables, host and user names, folders of the user (docs/architecture.md).
"""

import hashlib
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from xsp_post.base.errors import CaptureError, ContradictionError
from xsp_post.base.output import read_note, write_text
from xsp_post.model.levels import RUN_LEVELS

# Version of manifest.json and capture.json. Every number ever used:
# 1  first version (xsp-post 0.1.0)
MANIFEST_VERSION = 1

MANIFEST_NAME = "manifest.json"
CAPTURE_NAME = "capture.json"
CAPTURES_FOLDER = "captures"
SUMMARY = "summary.json"  # what `record` leaves beside a recording: when each step of the program began
FLEET_STORE = "fleet.xsp.sqlite"  # in the folder of a batch

DONE, FAILED, OUT_OF_MEMORY = "done", "failed", "out_of_memory"

# What an analysis reads first, best first: role -> file name within the capture's folder.
SOURCE_ROLES = ("export", "report", "trace", "spans")

# Captures that differ in one of these are not of one workload (batch size is compared by who merges).
_LIKE_SETTINGS = (
    "model", "device", "dtype", "mode", "input_shape", "is_compiled", "seed", "warmup_count", "iteration_count",
    "layer_depth", "layer_kinds", "model_file_sha256",
)  # fmt: skip
_LIKE_ENVIRONMENT = ("torch_version", "cuda_version", "device_name", "driver_version", "python_version", "thread_count")


@dataclass(frozen=True)
class Workload:
    """What every capture of a run has in common. The batch size is the capture's own."""

    model: str  # as typed: a built-in name, torchvision:NAME, …, path/to/file.py:factory
    device: str = "cpu"  # cpu or cuda
    dtype: str = "float32"
    mode: str = "inference"  # inference or train
    input_shape: tuple[int, ...] = ()  # of one input, without the batch; () the model's own
    is_compiled: bool = False
    seed: int = 0
    warmup_count: int = 3
    iteration_count: int = 10
    is_fitted: bool = False  # more iterations of a fast model, fewer of a slow one (processes that levels share)
    layer_depth: int = -1  # −1: leaf modules
    layer_kinds: tuple[str, ...] = ()  # class names that are layers; () any
    is_serialized: bool = True  # M/L: the device is synchronised around every layer
    is_launch_blocking: bool = False  # CUDA_LAUNCH_BLOCKING=1 in M/L and M/L/G (XSP's own scripts)
    thread_count: int = 0  # CPU threads of torch; 0 torch's own choice

    def recorded(self) -> dict[str, Any]:
        """The settings as they may be written down: a factory's file without its folder."""
        values = asdict(self)
        values["model"] = display_name(self.model)
        values["model_file_sha256"] = _file_digest(self.model)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _file_digest(model: str) -> str:
    """SHA-256 of a factory's file, so that an edited model is not taken for the same; '' for other models."""
    path, separator, _ = model.rpartition(":")
    file = Path(path)
    if not separator or not path.endswith(".py") or not file.is_file():
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def display_name(model: str) -> str:
    """A model's name without the folder of a user's file: ``/home/…/net.py:build`` → ``net.py:build``."""
    path, separator, factory = model.rpartition(":")
    return f"{Path(path).name}:{factory}" if separator and path.endswith(".py") else model


class CapturePlan(NamedTuple):
    """One capture to be made."""

    workload: Workload
    level: str  # one of levels.RUN_LEVELS
    batch_size: int
    repeat: int  # 0-based
    collector: str  # clock, torch, nsys, ncu
    directory: Path  # exists and is empty when collect() begins
    timeout_s: float = 900.0
    metric_set: str = ""  # of level M/L/G+counters: flops, memory, occupancy; '' elsewhere

    @property
    def name(self) -> str:
        """What messages call it: see `step_name`."""
        return step_name(self.level, self.batch_size, self.repeat, self.metric_set)


@dataclass
class Capture:
    """What one child process recorded. ``files`` maps a role (see `SOURCE_ROLES`, facts, stdout, stderr) to a
    file name within ``directory``."""

    level: str
    batch_size: int
    repeat: int
    collector: str
    status: str = DONE
    message: str = ""  # why it failed
    files: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    wall_ns: int = -1  # of its process; where several captures share it, its part
    process: str = ""  # folder of the first capture of the process that several share; '' a process of its own
    metric_set: str = ""  # which counters; '' none, or (in run directories of old) all in one
    directory: Path = field(default=Path(), compare=False)

    @property
    def name(self) -> str:
        return step_name(self.level, self.batch_size, self.repeat, self.metric_set)

    @property
    def reason(self) -> str:
        """Why it failed, on one line: the sentence, and the last line of what the child said."""
        first, *others = self.message.splitlines() or [""]
        return first.rstrip(".:") + (f": {others[-1].lstrip(' |')}" if others else "")

    def path(self, role: str) -> Path | None:
        """The file of a role, None where the capture has none."""
        name = self.files.get(role)
        return None if name is None else self.directory / name

    def source(self) -> Path:
        """The file ``ingest`` reads. CaptureError when the capture recorded none."""
        for role in SOURCE_ROLES:
            path = self.path(role)
            if path is not None and path.is_file():
                return path
        raise CaptureError(
            f"The capture {self.directory.name} ({self.name}) holds no recording: {self.message or self.status}.",
            code="capture-empty",
            hint="Repeat it: xsp-post run … --resume.",
        )

    def save(self) -> None:
        """Write ``capture.json``, whole or not at all."""
        values = asdict(self)
        del values["directory"]
        write_json(self.directory / CAPTURE_NAME, {"manifest_version": MANIFEST_VERSION, **values})


def step_name(level: str, batch_size: int, repeat: int, metric_set: str = "") -> str:
    """``M/L, batch 8, repeat 1``, of a process that several levels share ``M + M/L, …``; counters are read once:
    ``M/L/G+counters (flops), batch 8``."""
    if metric_set:
        return f"{level} ({metric_set}), batch {batch_size}"
    return f"{level}, batch {batch_size}, repeat {repeat + 1}"


def folder_name(index: int, level: str, batch_size: int, repeat: int, metric_set: str = "") -> str:
    """``03_ML_b8_r1``: running number, level, batch size, repeat; ``07_MLGC-flops_b8_r0`` with a metric set."""
    short = level.replace("/", "").replace("+counters", "C") + (f"-{metric_set}" if metric_set else "")
    return f"{index:02d}_{short}_b{batch_size}_r{repeat}"


def load_capture(path: str | Path) -> Capture:
    """The capture in a folder (or of its ``capture.json``). CaptureError where it cannot be read."""
    path = Path(path)
    file = path / CAPTURE_NAME if path.is_dir() else path
    values = read_json(file)
    names = {f.name for f in fields(Capture)} - {"directory"}
    missing = {"level", "batch_size", "repeat", "collector", "files"} - set(values)
    if missing or values["level"] not in RUN_LEVELS:
        raise CaptureError(
            f"{file} is not a capture description: {', '.join(sorted(missing)) or 'its level'} is missing or unknown.",
            code="capture-manifest",
        )
    return Capture(**{key: value for key, value in values.items() if key in names}, directory=file.parent)


def capture_of(source: str | Path) -> Capture | None:
    """The capture a recording belongs to: its folder's ``capture.json``, None where there is none."""
    file = Path(source).parent / CAPTURE_NAME
    return load_capture(file) if file.is_file() else None


def load_captures(run_directory: str | Path, *, status: str = DONE) -> list[Capture]:
    """The captures of a run directory with that status, in the order they were made."""
    folder = Path(run_directory) / CAPTURES_FOLDER
    loaded = [load_capture(file) for file in sorted(folder.glob(f"*/{CAPTURE_NAME}"))]
    return [capture for capture in loaded if capture.status == status]


def is_run_directory(path: str | Path) -> bool:
    """Whether a folder is what ``xsp-post run`` leaves."""
    return os.path.isfile(Path(path) / MANIFEST_NAME) and os.path.isdir(Path(path) / CAPTURES_FOLDER)


def step_times(folder: Path) -> dict[str, Any]:
    """Median length of a step, from its begin to the next, of a program under `record`: before the recording (its first
    step left out; awake: without its waits for a processor, too) and within; NaN unknown."""
    summary = read_note(folder / SUMMARY)
    try:
        clocks = summary["begun_ns"], summary.get("awake_ns", summary["begun_ns"])
        lengths, awake = ([float(end - begin) for begin, end in pairwise(clock)] for clock in clocks)
        first = summary["warmup_count"]
        if 0 < first <= min(len(lengths), len(awake)):
            lengths[first - 1] -= summary.get("starting_ns", 0)
            awake[first - 1] -= summary.get("starting_awake_ns", summary.get("starting_ns", 0))
        parts = {
            "step_before_ns": lengths[1:first],
            "step_recorded_ns": lengths[first:],
            "step_awake_ns": awake[1:first],
        }
    except (TypeError, KeyError, AttributeError, OverflowError):  # none, or somebody else's
        return {}
    return {name: statistics.median(part) for name, part in parts.items() if part and min(part) > 0}


def check_alike(captures: Sequence[Capture]) -> None:
    """ContradictionError, naming the key and both values, unless all captures are of one workload."""
    told = [{**one.settings, **{key: one.environment.get(key) for key in _LIKE_ENVIRONMENT}} for one in captures]
    for other, theirs in zip(captures[1:], told[1:]):
        for key in (*_LIKE_SETTINGS, *_LIKE_ENVIRONMENT):
            mine, its = told[0].get(key), theirs.get(key)
            if None not in (mine, its) and mine != its:
                said = f"{other.directory.name} is not of the workload of {captures[0].directory.name}: {key} is"
                raise ContradictionError(f"{said} {its!r} there and {mine!r} here.", code="captures-unlike")


def write_json(path: Path, values: dict[str, Any]) -> None:
    """A small JSON file, replaced in one step (OutputError, exit 6, where the disk refuses)."""
    write_text(path, json.dumps(values, indent=1, allow_nan=False) + "\n", force=True)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of ours; CaptureError naming the file otherwise."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CaptureError(
            f"{path} does not exist.", code="capture-manifest", hint="Name a folder that xsp-post run has written."
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise CaptureError(f"{path} cannot be read: {reason}.", code="capture-manifest") from error
    if not isinstance(values, dict):
        raise CaptureError(f"{path} cannot be read: it does not hold a JSON object.", code="capture-manifest")
    version = values.get("manifest_version", MANIFEST_VERSION)
    if not isinstance(version, int) or version > MANIFEST_VERSION:
        raise CaptureError(
            f"{path} has version {version}; this xsp-post reads up to {MANIFEST_VERSION}.", code="capture-manifest"
        )
    return values
