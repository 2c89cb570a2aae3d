"""`record`: a program of the user → a capture in a folder, by nsys or by torch's profiler in its own process."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xsp_post.base import children
from xsp_post.base.errors import ToolError, UsageError
from xsp_post.base.module_path import OWN_FOLDER
from xsp_post.base.output import read_note
from xsp_post.hardware import machine, tools
from xsp_post.model.capture import SUMMARY
from xsp_post.workload.collectors.nsys import profile_flags

TRACE = "trace.json.gz"  # what `workload.program` leaves, beside a summary
_PYTHON = re.compile(r"python[\d.]*(\.exe)?$", re.I)
_SHEBANG = re.compile(rb"#!(\S*python[\d.]*)\s*\n")
_VALUED = ("-W", "-X")  # options of Python that a value follows
_HINT = "xsp-post record -- python train.py"


@dataclass(frozen=True)
class Recording:
    """What is wanted: steps before and within the recording, which profiler, and whether the program goes on."""

    warmup_count: int
    step_count: int
    collector: str  # auto, nsys, torch
    to_the_end: bool


@dataclass(frozen=True)
class Recorded:
    """The capture, one of each process that a launcher started, and the program's exit code."""

    captures: list[Path]
    exit_code: int


def next_name(folder: Path, program: str, label: str) -> tuple[str, str]:
    """A name for the next recording of the program, and that of the last one ('' for the first)."""
    stem = _plain(Path(program).stem) or "program"
    form = re.compile(rf"{re.escape(stem)}\.(\d+)(\.[\w-]+)?\.xsp\.sqlite")
    files = folder.iterdir() if folder.is_dir() else ()
    numbered = {int(found[1]): path.name for path in files if (found := form.fullmatch(path.name))}
    last = max(numbered, default=0)
    suffix = f".{_plain(label)}" if label else ""
    return f"{stem}.{last + 1}{suffix}", numbered.get(last, "")


def _plain(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text).strip("-")


def record(words: list[str], wanted: Recording, folder: Path) -> Recorded:
    """Run the program and record it in ``folder``, which is new. Its stdout goes to our stderr.

    Raises `UsageError` for a program that cannot be recorded so, `ToolError` where nothing was recorded.
    """
    python, program = split_command(words)
    if python and program[0] != "-m" and not os.path.exists(program[0]):
        raise UsageError(f"{program[0]}: no such file", code="record-program", hint=f"Name the program: {_HINT}")
    profiler = _profiler(wanted.collector, bool(python))
    settings = {
        **asdict(wanted), "output": str(folder.resolve()), "profiler": "cuda" if profiler == "nsys" else "torch",
        "ranges": "nvtx" if profiler == "nsys" else "torch",
    }  # fmt: skip
    command = watched(words, settings)
    report = folder / "report.nsys-rep"
    if profiler == "nsys":
        tool = tools.find_nsys()
        assert tool is not None  # `_profiler` found it
        flags = [flag for flag in profile_flags(tool, True) if python or not flag.startswith("--capture-range")]
        command = [str(tool.path), "profile", *flags, f"--output={report.with_suffix('')}", *command]
    capture = report if profiler == "nsys" else folder / TRACE
    told = folder / f"{capture.name.partition('.')[0]}_torch_trace"
    code = _run(command, _compiler_settings(told) if python else {})
    if told.is_dir() and not any(b"inductor_provenance" in log.read_bytes() for log in told.iterdir()):
        shutil.rmtree(told)  # nothing was compiled
    captures = [capture] if capture.is_file() else sorted(folder.rglob(capture.name))
    if not captures:
        raise _nothing_recorded(code, folder, wanted)
    return Recorded(captures, code)


def watched(words: list[str], settings: dict[str, Any]) -> list[str]:
    """The command by which `workload.program` runs a Python program; any other program's own."""
    python, program = split_command(words)
    watch = ["-c", children.START, "xsp_post.workload.program", json.dumps(settings)]
    return [*python, *watch, *program] if python else words


def split_command(words: list[str]) -> tuple[list[str], list[str]]:
    """``python -u train.py --lr 1`` → the interpreter with its options, and the program; no interpreter: any program.
    A script whose first line names an interpreter (`torchrun`) is a program of that.

    Raises `UsageError` for `python -c`, which has no file.
    """
    if words[0].endswith(".py"):
        return [sys.executable], words
    if not _PYTHON.search(os.path.basename(words[0])):
        path = shutil.which(words[0]) or words[0]
        named = _SHEBANG.match(Path(path).read_bytes()) if os.path.isfile(path) else None
        return ([os.fsdecode(named[1])], [path, *words[1:]]) if named else ([], words)
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        if words[at] == "-c":
            raise UsageError("record cannot watch python -c: write the program to a file", code="record-program")
        at += 2 if words[at] in _VALUED else 1
    if at + (words[at : at + 1] == ["-m"]) >= len(words):
        raise UsageError("record needs a program behind python", code="record-program")
    return words[:at], words[at:]


def _profiler(collector: str, is_python: bool) -> str:
    has_nsys = tools.find_nsys() is not None
    if collector == "nsys" and not has_nsys:
        raise ToolError("nsys was not found.", code="nsys-missing", hint="Use --collector torch.")
    if collector == "auto":
        collector = "nsys" if has_nsys and (machine.gpus() or not is_python) else "torch"
    if collector == "torch" and not is_python:
        said = "torch's profiler can record Python programs only, and nsys was not found"
        raise UsageError(said, code="record-program", hint=f"Start the program with python: {_HINT}")
    return collector


def _compiler_settings(folder: Path) -> dict[str, str]:
    """By which torch writes into ``folder`` what its compiler makes, if it compiles: found beside the capture by the
    folder's name. None where the program has a folder of its own for that."""
    if "TORCH_TRACE" in os.environ:
        return {}
    return {"TORCH_TRACE": str(folder.resolve()), "INDUCTOR_PROVENANCE": "1",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1"}  # fmt: skip


def _run(command: list[str], settings: dict[str, str]) -> int:
    """The exit code of the program, which has our stdin and terminal, and its stdout on our stderr."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), OWN_FOLDER]))
    environment = {**children.QUIET, **settings, **os.environ, "PYTHONPATH": path}
    try:
        with subprocess.Popen(command, env=environment, stdout=2, preexec_fn=children.end_with_parent()) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:  # the program has had it too
                process.send_signal(signal.SIGTERM)
                raise
    except OSError as error:
        raise ToolError(f"{command[0]} could not be started: {error.strerror}.", code="record-program") from error


def _nothing_recorded(code: int, folder: Path, wanted: Recording) -> ToolError:
    begun = [(read_note(path) or {}).get("begun_ns", []) for path in folder.rglob(SUMMARY)]
    count = max([len(one) - 1 for one in begun if one], default=0)
    hint = ""
    if code:
        said, hint = f"The program ended with {code} before anything was recorded.", "What it wrote above says why."
    elif not count:
        said = "The program called no torch module with parameters, so nothing was recorded."
        hint = 'Say in it where a step begins: with xsp_post.record("run") as step: …, and step() in its loop. '
        hint += "Start processes of its own by torchrun: those of multiprocessing are not recorded."
    else:
        first = wanted.warmup_count
        said = f"The program ended with step {count} of its models; recording begins after --warmup {first}."
    return ToolError(said, code="record-nothing", hint=hint)
