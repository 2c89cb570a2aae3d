"""Captures that are large in one way: a PyTorch trace, different names, layers with a page, deep and flat nesting.

Each work is a ratio of CPU time to work that cannot be saved, measured in the same run: importing pandas, for a
PyTorch trace unpacking and decoding it by type, for nesting the same on a third of the ranges.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benches._measure import ROOT, XSP_POST, Bar, finish, measure, report, work_folder
from benches.ingest import pandas_alone

DECODE = """
import gzip, sys
import msgspec
class Arguments(msgspec.Struct, gc=False):
    correlation: int | None = None
class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int = 0
    tid: int = 0
    ts: float = 0
    dur: float = 0
    args: Arguments | None = None
class Trace(msgspec.Struct):
    traceEvents: list[Event]
msgspec.json.decode(gzip.open(sys.argv[1]).read(), type=Trace)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes; below 1 no memory is held")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="of the works only those whose name holds this")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a bar is missed")
    parser.add_argument("--folder", type=Path, help="keep the files here (made once)")


def main(options: argparse.Namespace) -> int:
    missed: list[str] = []
    with work_folder(options.folder) as folder:
        for name, work in {"pytorch": pytorch, "names": names, "layers": layers, "nesting": nesting}.items():
            if options.only in name:
                missed += work(folder, options.scale, options.repeat)
    return finish(missed, check=options.check)


def capture(folder: Path, count: int, *words: str) -> Path:
    """A generated capture of that many kernels, or of events with ``--pytorch``."""
    suffix = ".json.gz" if "--pytorch" in words else ".sqlite"
    path = folder / f"x{count}{''.join(words).replace('--', '_')}{suffix}"
    if not path.exists():
        amount = ["--pytorch", str(count)] if "--pytorch" in words else ["--kernels", str(count), *words]
        subprocess.run([sys.executable, ROOT / "scripts/make_export", path, *amount], check=True)
    return path


def _bar(scale: float, ratio: float, megabytes: float = float("inf")) -> Bar:
    return Bar(cpu_ratio=ratio, megabytes=megabytes if scale >= 1 else float("inf"))


def _ingest(source: Path, store: Path, *words: str) -> list[str]:
    return [XSP_POST, "ingest", str(source), "-o", str(store), "--force", *words]


def pytorch(folder: Path, scale: float, repeat: int) -> list[str]:
    """`tree` and `ingest` of a PyTorch trace of a million events."""
    events = int(1_000_000 * scale)
    source = capture(folder, events, "--pytorch")
    reference = measure("gunzip, decoding by type", [sys.executable, "-c", DECODE, str(source)], repeat=repeat)
    works = [
        ("tree", [XSP_POST, "tree", str(source)], TREE_OF_EVENTS),
        ("ingest", _ingest(source, folder / "events.xsp.sqlite"), INGEST_OF_EVENTS),
    ]
    rows = [
        (measure(f"xsp-post {name}, {events:,} events", words, repeat=repeat), _bar(scale, *bar))
        for name, words, bar in works
    ]
    return report(rows, reference)


def names(folder: Path, scale: float, repeat: int) -> list[str]:
    """`ingest` of kernels and ranges of which no two are called alike."""
    count = int(200_000 * scale)
    words = _ingest(capture(folder, count, "--shape", "names"), folder / "names.xsp.sqlite")
    done = measure(f"xsp-post ingest, {count:,} different names", words, repeat=repeat)
    return report([(done, _bar(scale, *NAMES))], pandas_alone(repeat))


def layers(folder: Path, scale: float, repeat: int) -> list[str]:
    """`ingest --report` of one execution with many layers."""
    count = int(100_000 * scale)
    source, page = capture(folder, count, "--shape", "many-layers"), folder / "layers.html"
    words = _ingest(source, folder / "layers.xsp.sqlite", "--report", str(page))
    done = measure(f"xsp-post ingest --report, {count:,} layers", words, repeat=repeat)
    return report([(done, _bar(scale, *LAYERS))], pandas_alone(repeat))


def nesting(folder: Path, scale: float, repeat: int) -> list[str]:
    """`tree` of ranges inside one another and side by side: of three times as many no more than four times as long."""
    missed = []
    works = (("deep", 100_000, DEEP_GROWTH, 370.0), ("flat", 1_000_000, FLAT_GROWTH, 590.0))
    for shape, most, ratio, megabytes in works:
        small, large = (
            measure(
                f"xsp-post tree, {count:,} ranges, {shape}",
                [XSP_POST, "tree", str(capture(folder, count, "--shape", shape))],
                repeat=repeat,
            )
            for count in (int(most * scale * 0.3), int(most * scale))
        )
        missed += report([(large, _bar(scale, ratio, megabytes))], small)
    return missed


# Ratio and megabytes; bars against getting worse (the aims: docs/performance.md).
TREE_OF_EVENTS, INGEST_OF_EVENTS = (3.0, 400.0), (5.8, 570.0)
NAMES, LAYERS = (16.0, 1050.0), (14.0, 720.0)
DEEP_GROWTH, FLAT_GROWTH = 4.0, 4.0
