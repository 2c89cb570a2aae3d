"""``run`` → **capture**: the interface of a collector, and how a measured child process is run.

A collector answers `check` (is it here, what does it give, what would bring it), `shares_process` (can its level be
switched on and off in a process that measures other levels too, and leave those as they are) and `collect` (one
capture). `collect` returns a capture that is done or ran out of memory; everything else that goes wrong is a
ToolError or UsageError, and the folder keeps ``capture.json`` with status failed and both logs. Captures that share a
process are made by `together.collect_together`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xsp_post.base import children, errors, stops
from xsp_post.base.errors import ToolError, XspPostError
from xsp_post.base.module_path import OWN_FOLDER
from xsp_post.hardware import machine
from xsp_post.hardware.tools import Tool
from xsp_post.model.capture import DONE, FAILED, OUT_OF_MEMORY, Capture, CapturePlan, Workload, read_json
from xsp_post.model.levels import RUN_MODEL

STDOUT, STDERR, FACTS, FAILURE = "stdout.log", "stderr.log", "facts.json", "failure.json"

_GRACE_S = 5.0  # between asking a process group to end and making it end
_INTERRUPTED_GRACE_S = 1.0  # the same where the user waits for it
_LAST_LINES = 8


@dataclass(frozen=True)
class Availability:
    """What ``xsp-post doctor`` says of a collector."""

    name: str
    is_available: bool
    version: str
    found: str  # what was found, or that nothing was
    gives: str  # what it would let you see
    remedy: str  # what to do where it is missing ('' where it is there)


class Collector:
    """A way to make captures."""

    name: str
    gives: str

    def check(self) -> Availability:
        """Whether it can be used here; starts nothing that lasts."""
        raise NotImplementedError

    def shares_process(self, device: str) -> bool:
        """Whether it may be on in some blocks of a process, and leaves no trace in the others."""
        return False

    def collect(self, plan: CapturePlan) -> Capture:
        """Make one capture in ``plan.directory``, which exists and is empty."""
        raise NotImplementedError


class ToolCollector(Collector):
    """A collector that is a command line tool, attached to the whole child."""

    remedy: str
    missing: str  # code of the error where it is not there

    def tool(self) -> Tool | None:
        """The tool as it is installed here."""
        raise NotImplementedError

    def check(self) -> Availability:
        tool = self.tool()
        if tool is None or not tool.version:
            found = f"{self.name} was not found" if tool is None else f"{tool.path} does not answer --version"
            return Availability(self.name, False, "", found, self.gives, self.remedy)
        return Availability(self.name, True, tool.version, str(tool.path), self.gives, "")

    def required(self) -> Tool:
        """The tool. ToolError where it is not installed."""
        tool = self.tool()
        if tool is None:
            raise ToolError(f"{self.name} was not found.", code=self.missing, hint=f"{self.remedy}.")
        return tool


def is_left(capture: Capture, report: Path, returncode: int) -> bool:
    """Whether a tool left a report with something in it; where it ended badly, the capture says so."""
    is_there = report.is_file() and report.stat().st_size > 0
    if is_there and returncode:
        capture.message = f"{capture.collector} ended with {returncode}; its report was written and is used"
    return is_there


@dataclass(frozen=True)
class Ended:
    """How a child process ended. ``returncode`` −n: by signal n."""

    returncode: int
    wall_ns: int
    is_timed_out: bool
    is_out_of_memory: bool


def child_command(plan: CapturePlan, profiler: str, *others: tuple[CapturePlan, str]) -> list[str]:
    """The child for one capture, or several in one process; ``profiler`` as in ``workload.recorder.Recording``."""
    workload = plan.workload
    is_users = _is_users(workload)
    command = [sys.executable, "-m", "xsp_post.workload"] if is_users else children.python("xsp_post.workload")
    request = {
        "levels": [(one.level, its_profiler, str(one.directory)) for one, its_profiler in ((plan, profiler), *others)],
        "command_id": os.getpid(), "batch_size": plan.batch_size, "repeat": plan.repeat, "workload": asdict(workload),
    }  # fmt: skip
    return [*command, json.dumps(request)]


def run_child(command: Sequence[str], plan: CapturePlan) -> Ended:
    """Run a command in a process group of its own, its output in the capture's logs, until it ends or
    ``plan.timeout_s`` is over. On Ctrl-C, or any other end of the waiting, the whole group is ended too.

    ToolError (code `child-start`) when it cannot be started.
    """
    kills_before = machine.out_of_memory_kills()
    started = time.perf_counter_ns()
    try:
        with (plan.directory / STDOUT).open("ab") as stdout, (plan.directory / STDERR).open("ab") as stderr:
            process = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                env=_environment(plan), start_new_session=True, preexec_fn=children.end_with_parent(),
            )  # fmt: skip
    except OSError as error:
        raise ToolError(
            f"{command[0]} could not be started for the capture {plan.name}: {error.strerror}.", code="child-start"
        ) from error
    is_timed_out = False
    grace_s = _INTERRUPTED_GRACE_S
    try:
        process.wait(plan.timeout_s)
    except subprocess.TimeoutExpired:
        is_timed_out, grace_s = True, _GRACE_S
    finally:
        _end_group(process, grace_s)
    return Ended(
        returncode=process.returncode,
        wall_ns=time.perf_counter_ns() - started,
        is_timed_out=is_timed_out,
        is_out_of_memory=machine.out_of_memory_kills() > kills_before,
    )


def _end_group(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End what is left of the child's group: asked first, made to after a while."""
    stops.give_time(grace_s)
    try:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
    finally:
        with suppress(ProcessLookupError, PermissionError):  # also what the child itself started and left behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _is_users(workload: Workload) -> bool:
    """Whether the child runs a file of the user, which imports what lies in the current folder as any program does."""
    return workload.model.rpartition(":")[0].endswith(".py")


def _environment(plan: CapturePlan) -> dict[str, str]:
    environment = {**children.QUIET, **children.environment()}
    if _is_users(plan.workload):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [OWN_FOLDER, os.environ.get("PYTHONPATH", "")]))
    if plan.workload.is_launch_blocking and plan.level != RUN_MODEL:
        environment["CUDA_LAUNCH_BLOCKING"] = "1"
    return environment


def begin(plan: CapturePlan, collector: str, **settings: Any) -> Capture:
    """The capture that is about to be made, with its settings."""
    return Capture(
        level=plan.level, batch_size=plan.batch_size, repeat=plan.repeat, collector=collector,
        metric_set=plan.metric_set, settings={**plan.workload.recorded(), **settings}, directory=plan.directory,
        files={"stdout": STDOUT, "stderr": STDERR},
    )  # fmt: skip


def conclude(capture: Capture, ended: Ended, files: Mapping[str, str], *, is_exit_code_ours: bool = True) -> Capture:
    """Judge a child's end, fill the capture and save it.

    Out of memory gives a capture of that status. Raises the child's own error where it wrote one
    (``failure.json``), else ToolError `child-hung` or `child-failed` with the last lines of its stderr.
    ``is_exit_code_ours`` false: the exit code is a profiler's, and only ``facts.json`` tells success.
    """
    capture.wall_ns = ended.wall_ns
    failure = _failure(capture, ended, is_exit_code_ours)
    if failure is None:
        facts = read_json(capture.directory / FACTS)
        capture.environment = facts.get("environment", {})
        capture.files.update({"facts": FACTS, **files})
        capture.status = DONE
    else:
        capture.message = failure.message
        capture.status = OUT_OF_MEMORY if failure.code == "child-memory" else FAILED
    capture.save()
    if failure is not None and capture.status == FAILED:
        raise failure
    return capture


def fail(capture: Capture, message: str, code: str, hint: str = "") -> ToolError:
    """The error to raise, after the capture was saved as failed with it."""
    error = ToolError(message, code=code, hint=hint)
    capture.status, capture.message = FAILED, error.message
    capture.save()
    return error


def _failure(capture: Capture, ended: Ended, is_exit_code_ours: bool) -> XspPostError | None:
    failure: dict[str, Any] = {}
    with suppress(errors.CaptureError):
        failure = read_json(capture.directory / FAILURE)
    if failure.get("kind") == "error":
        return _rebuilt(failure, ended.returncode)
    if failure.get("kind") == "out_of_memory" or ended.is_out_of_memory:
        reason = str(failure.get("message", "the operating system ended the process because memory ran out"))
        return ToolError(f"The capture {capture.name} ran out of memory: {reason}", code="child-memory")
    if ended.is_timed_out:
        said = f"The capture {capture.name} did not end within {ended.wall_ns / 1e9:.0f} s and was stopped."
        return ToolError(said + last_lines(capture.directory), code="child-hung")
    if ended.returncode == errors.EXIT_OUTPUT and is_exit_code_ours:
        return errors.OutputError(f"{capture.directory} was not written: the disk is full.", code="output-full")
    is_complete = (capture.directory / FACTS).is_file()
    if is_complete and (ended.returncode == 0 or not is_exit_code_ours):
        return None
    how = f"was ended by signal {-ended.returncode}" if ended.returncode < 0 else f"ended with {ended.returncode}"
    said = f"The child process of the capture {capture.name} {how}.{last_lines(capture.directory)}"
    hint = f"Its whole output: {capture.directory / STDERR}; then xsp-post run … --resume."
    return ToolError(said, code="child-failed", hint=hint)


def _rebuilt(failure: Mapping[str, Any], exit_code: int) -> XspPostError:
    """The child's own error, of the family its exit code says."""
    families = (errors.UsageError, errors.ToolError, errors.CaptureError, errors.OutputError)
    family = next((f for f in families if f.exit_code == exit_code), ToolError)
    said = {"code": "child-failed", "hint": "", **failure}
    return family(str(failure.get("message", "")), code=str(said["code"]), hint=str(said["hint"]))


def last_lines(folder: Path, count: int = _LAST_LINES) -> str:
    """The last lines of the child's stderr, on lines of their own; '' where it wrote none."""
    try:
        with (folder / STDERR).open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 64 * 1024))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip()][-count:]
    return "".join(f"\n  | {line}" for line in lines)
