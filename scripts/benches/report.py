"""Bench of the report: the page of a million-kernel store in under 8 s, 1 GB and 5 MB; and of the shipped example.

Run: scripts/bench report [--kernels 1000000] [--repeat 3] [--folder DIR] [--check]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benches._measure import ROOT, XSP_POST, Bar, finish, measure, report, work_folder

LIMIT_S, LIMIT_MB, LIMIT_PAGE_MB = 8.0, 1000.0, 5.0
EXAMPLE = ROOT / "examples/resnet50_generated.sqlite"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `scripts/bench report`."""
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the exports and stores here")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")


def main(options: argparse.Namespace) -> int:
    """Make the stores, measure the reports, print the table."""
    with work_folder(options.folder) as folder:
        rows, sizes = [], []
        for name, source in (("example", EXAMPLE), (f"{options.kernels} kernels", _export(folder, options.kernels))):
            store, page = folder / f"{source.stem}.xsp.sqlite", folder / f"{source.stem}.html"
            if not store.exists():
                ingest = [XSP_POST, "ingest", str(source), "-o", str(store)]
                subprocess.run(ingest, check=True, stdout=subprocess.DEVNULL)
            command = [XSP_POST, "report", str(store), "-o", str(page), "--force"]
            bar = Bar(seconds=LIMIT_S, megabytes=LIMIT_MB)
            rows.append((measure(f"report, {name}", command, repeat=options.repeat), bar))
            sizes.append((name, page.stat().st_size / 1e6))
        missed = report(rows)
        for name, size in sizes:
            print(f"page of {name}: {size:.1f} MB")
            if size > LIMIT_PAGE_MB:
                missed.append(f"page of {name}: {size:.1f} MB (bar {LIMIT_PAGE_MB:g})")
        return finish(missed, check=options.check)


def _export(folder: Path, kernels: int) -> Path:
    path = folder / f"big_{kernels}.sqlite"
    if not path.exists():
        make = [sys.executable, str(ROOT / "scripts/make_export"), str(path), "--kernels", str(kernels)]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return path
