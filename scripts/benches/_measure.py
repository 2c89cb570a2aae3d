"""How benchmarks measure: a whole process, its seconds and its peak memory; and the table they print."""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
XSP_POST = str(Path(sys.executable).with_name("xsp-post"))


@dataclass(frozen=True)
class Measured:
    """One command, run some times."""

    work: str
    seconds: float  # median
    megabytes: float  # peak resident set, the largest of all runs; of the process itself and its children
    spread: float  # slowest − fastest, seconds
    cpu_seconds: float = float("nan")  # user and system time, of the process and its children; median


def measure(work: str, command: Sequence[str], *, repeat: int, before: Callable[[], None] | None = None) -> Measured:
    """Run `command` `repeat` times, calling `before` ahead of each. SystemExit with its stderr when it fails.

    A child's peak counts what its parent held when it forked, so keep benchmark modules light: import
    nothing big in them, measure in children only.
    """
    compileall.compile_dir(ROOT / "xsp_post", quiet=1)  # as installing does; else each process compiles 150 modules
    seconds, peaks, cpu = [], [], []
    for _ in range(repeat):
        if before:
            before()
        with tempfile.TemporaryFile() as errors:
            began = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)  # the resources of this child alone
            seconds.append(time.perf_counter() - began)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                errors.seek(0)
                tail = errors.read().decode(errors="replace")[-2000:]
                raise SystemExit(f"{work}: exit code {process.returncode}\n{tail}")
        cpu.append(usage.ru_utime + usage.ru_stime)
        peaks.append(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6)
    return Measured(work, statistics.median(seconds), max(peaks), max(seconds) - min(seconds), statistics.median(cpu))


@dataclass(frozen=True)
class Bar:
    """What a measurement must stay under."""

    seconds: float = float("inf")
    megabytes: float = float("inf")
    ratio: float = float("inf")  # to the reference's seconds
    cpu_ratio: float = float("inf")  # CPU time to the reference's CPU time


def report(rows: Sequence[tuple[Measured, Bar]], reference: Measured | None = None) -> list[str]:
    """Print the table, the reference first; return a sentence per bar that was missed."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; a busy machine measures badly")
    print(f"{'work':<44} {'seconds':>8} {'± spread':>9} {'CPU s':>7} {'peak MB':>8} {'ratio':>6}  bar")
    missed = []
    for measured, bar in [*([(reference, Bar())] if reference else []), *rows]:
        ratio = measured.seconds / reference.seconds if reference else float("nan")
        cpu_ratio = _cpu_ratio(measured, reference)
        shown = ratio if bar.ratio < float("inf") else cpu_ratio  # the one that has a bar
        bars = [
            (bar.seconds, measured.seconds, "s"),
            (bar.ratio, ratio, "× the scan"),
            (bar.megabytes, measured.megabytes, "MB"),
            (bar.cpu_ratio, cpu_ratio, "× its CPU time"),
        ]
        asked = [f"< {limit:g} {unit}" for limit, _, unit in bars if limit != float("inf")]
        broken = [f"{value:.2f} {unit} (bar {limit:g})" for limit, value, unit in bars if value > limit]
        missed += [f"{measured.work}: {text}" for text in broken]
        verdict = "" if not asked else "MISSED " if broken else "ok "
        print(
            f"{measured.work:<44} {measured.seconds:8.2f} {measured.spread:9.2f} {measured.cpu_seconds:7.2f} "
            f"{measured.megabytes:8.0f} "
            f"{f'{shown:6.2f}' if reference else '':>6}  {verdict}{', '.join(asked)}",
            flush=True,
        )
    return missed


def _cpu_ratio(measured: Measured, reference: Measured | None) -> float:
    return measured.cpu_seconds / reference.cpu_seconds if reference else float("nan")


def finish(missed: Sequence[str], *, check: bool) -> int:
    """Exit code of a benchmark; says which bars were missed."""
    for sentence in missed:
        print(f"missed: {sentence}", file=sys.stderr)
    return 1 if check and missed else 0


@contextmanager
def work_folder(folder: Path | None):
    """`folder`, kept, or a temporary one that goes away."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="xsp-post-bench-") as path:
        yield Path(path)
