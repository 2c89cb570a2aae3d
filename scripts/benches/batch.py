"""Bench of batch: two workers against one on many small captures, and a second call that has nothing to do.

Two processes on two cores share them with whatever else runs: read the ratio beside the load, and the CPU time
of one worker, which says how much of its time it was kept waiting. Run: scripts/bench batch
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import sys
from pathlib import Path

from benches._measure import ROOT, XSP_POST, Bar, Measured, finish, measure, report, work_folder

LEAST_SPEEDUP = 1.7
NOTHING_TO_DO_S = 2.0


def make_captures(folder: Path, count: int, kernels: int) -> None:
    """`count` exports of one generated shape whose bytes differ, so that each is a capture of its own."""
    sys.path.insert(0, str(ROOT / "tests"))
    from generators.big import write_big_export

    first = folder / "c0000.sqlite"
    write_big_export(first, kernels)
    first.with_name(f"{first.name}.truth.json").unlink()
    for number in range(1, count):
        path = folder / f"c{number:04d}.sqlite"
        shutil.copyfile(first, path)
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE mark_{number} (number INTEGER)")
        connection.close()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--captures", type=int, default=200)
    parser.add_argument("--kernels", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep captures and results here")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a bar is missed")


def main(options: argparse.Namespace) -> int:
    with work_folder(options.folder) as folder:
        captures = folder / "captures"
        if not captures.exists():
            captures.mkdir()
            _in_child(captures, options)
        results = folder / "results"

        def run(workers: int, *, again: bool = False) -> Measured:
            command = [
                XSP_POST,
                "batch",
                str(captures),
                "-o",
                str(results),
                "--workers",
                str(workers),
                "--no-report",
                "--json",
            ]
            work = f"{options.captures} captures, {workers} worker{'s' if workers > 1 else ''}"
            before = None if again else lambda: shutil.rmtree(results, ignore_errors=True)
            return measure("the same again" if again else work, command, repeat=options.repeat, before=before)

        one, two = run(1), run(2)
        again = run(2, again=True)
        missed = report([(two, Bar(ratio=1 / LEAST_SPEEDUP)), (again, Bar(seconds=NOTHING_TO_DO_S))], one)
        speedup = one.seconds / two.seconds
        print(
            f"two workers are {speedup:.2f} × as fast as one (bar {LEAST_SPEEDUP}); "
            f"{one.seconds / options.captures * 1e3:.0f} ms a capture with one"
        )
    return finish(missed, check=options.check)


def _in_child(folder: Path, options: argparse.Namespace) -> None:
    """Make the captures in another process, so that what it imports does not weigh on what is measured."""
    import subprocess

    code = (
        "import sys; sys.path.insert(0, 'scripts'); from pathlib import Path; from benches.batch import "
        "make_captures; make_captures(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(folder), str(options.captures), str(options.kernels)],
        cwd=ROOT,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
