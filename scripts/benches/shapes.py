"""Reading exports of many shapes: CPU time against pandas' import and SQLite's scan, bytes per row, size of the store.

What is slow is often slow for one shape only; `--growth` shows whether more rows cost more each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benches._measure import ROOT, XSP_POST, Measured, finish, measure, work_folder
from benches.ingest import scan_command

COMMANDS = ("tree", "why", "ingest")
TESTS = "import sys; sys.path[:0] = ['tests']; from generators.shapes import SHAPES, write_shape; "
MAKE = TESTS + "print(write_shape(sys.argv[1], sys.argv[2], int(sys.argv[3])))"
LIST = TESTS + "print(*SHAPES, sep=chr(10))"
# What is wanted of a million rows and more: ratios of CPU time, bytes a row, the store's size to the export's.
RATIOS = {"tree": 2.0, "why": 2.3, "ingest": 3.5}
BYTES = {"tree": 400, "why": 400, "ingest": 650}
STORE = 0.8
LEAST_ROWS = 1_000_000  # with fewer the program itself weighs more than the rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--shapes", default="", help="only these, with semicolons")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--growth", action="store_true", help="three and ten times as many rows, too")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a bar is missed; of a million rows on")
    parser.add_argument("--folder", type=Path, help="keep the files here (made once)")


def main(options: argparse.Namespace) -> int:
    missed: list[str] = []
    known = subprocess.run([sys.executable, "-c", LIST], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = [name for name in known.splitlines() if not options.shapes or name in options.shapes.split(";")]
    print(
        f"{'shape':<32} {'rows':>9} " + " ".join(f"{one:>6} {'CPU s':>6} {'B/row':>6}" for one in COMMANDS) + "  store"
    )
    with work_folder(options.folder) as folder:
        for name in wanted:
            for factor in (1, 3, 10) if options.growth else (1,):
                missed += one_shape(folder, name, factor * options.rows, options.repeat)
    return finish(missed, check=options.check)


def one_shape(folder: Path, name: str, wanted: int, repeat: int) -> list[str]:
    """One row of the table; a sentence per bar that was missed."""
    source = folder / f"{name.replace(' ', '_').replace(',', '')}_{wanted}.sqlite"
    count = source.with_suffix(".rows")
    if not source.exists():
        make = [sys.executable, "-c", MAKE, str(source), name, str(wanted)]
        count.write_text(subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    rows, store = int(count.read_text()), folder / "shape.xsp.sqlite"
    scan = scan_command(str(source), "tree")
    pandas = [sys.executable, "-c", f"import pandas, subprocess; subprocess.run({scan!r}, check=True)"]
    least = measure("pandas imported, and the scan", pandas, repeat=repeat)
    shown, missed = [f"{name:<32} {rows:9,}"], []
    for command in COMMANDS:
        words = [XSP_POST, command, str(source), *(["-o", str(store)] if command == "ingest" else [])]
        done = measure(f"{command}, {name}", words, repeat=repeat, before=lambda: store.unlink(missing_ok=True))
        ratio, each = done.cpu_seconds / least.cpu_seconds, done.megabytes * 1e6 / rows
        shown.append(f"{ratio:6.2f} {done.cpu_seconds:6.2f} {each:6.0f}")
        missed += _missed(done, ratio, each, command) if wanted >= LEAST_ROWS else []
    share = store.stat().st_size / source.stat().st_size
    if wanted >= LEAST_ROWS and share > STORE:
        missed.append(f"store, {name}: {share:.2f} of the export's size (bar {STORE})")
    print(" ".join(shown), f" {share:5.2f}", flush=True)
    return missed


def _missed(done: Measured, ratio: float, each: float, command: str) -> list[str]:
    bars = ((ratio, RATIOS[command], "× the import and the scan"), (each, BYTES[command], "bytes a row"))
    return [f"{done.work}: {value:.2f} {what} (bar {bar})" for value, bar, what in bars if value > bar]
