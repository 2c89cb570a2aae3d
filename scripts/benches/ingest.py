"""Reading an export of a million kernels, against SQLite's own scan of the same columns.

The scan is the yardstick because it is the work nobody can save: SQLite's C loop over the rows and columns
that the tree needs, in the same run on the same machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benches._measure import ROOT, XSP_POST, Bar, finish, measure, report, work_folder

# The columns that a command asks for, from its own list of them: {table: columns}, those the export has.
ASKED = """
import json, sys
from pathlib import Path
from xsp_post.ingest.nsys_requests import requests
from xsp_post.ingest.sqlite_tables import SqliteTables
tables = SqliteTables(Path(sys.argv[1]))
asked = requests(tables, detail=sys.argv[2] == "ingest").values()
print(json.dumps({r.table: [w.column for w in r.wants if w.column in tables.columns(r.table)] for r in asked}))
"""
TEXTS = ("text", "jsonText", "value")  # looked at by their length; of numbers every value is added up
SCAN = """
import sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
for statement in sys.argv[2:]:
    connection.execute(statement).fetchall()
"""
MILLION = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", type=int, default=MILLION)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit code 1 when a bar is missed")
    parser.add_argument("--small", action="store_true", help="only the 4,000-kernel capture")
    parser.add_argument("--growth", action="store_true", help="also a tenth and five times as many kernels")
    parser.add_argument("--folder", type=Path, help="keep the files here (made once)")


def main(options: argparse.Namespace) -> int:
    with work_folder(options.folder) as folder:
        missed = small(folder, options.repeat)
        if not options.small:
            missed += million(folder, options.kernels, options.repeat)
            for op_ids in (False, True):
                missed += operators(folder, options.kernels, options.repeat, op_ids=op_ids)
        if options.growth and not options.small:
            missed += growth(folder, options.kernels)
    return finish(missed, check=options.check)


def export(folder: Path, kernels: int, *words: str) -> str:
    """A generated export of that many kernels; ``words``: more options of `make_export`."""
    path = folder / f"k{kernels}{''.join(words).replace('--', '_')}.sqlite"
    if not path.exists():
        make = [sys.executable, ROOT / "scripts/make_export", path, "--kernels", str(kernels), *words]
        subprocess.run(make, check=True)
    return str(path)


def scan_command(source: str, command: str) -> list[str]:
    """SQLite's own loop over the columns that ``tree`` or ``ingest`` reads, in a process of its own."""
    asked = subprocess.run([sys.executable, "-c", ASKED, source, command], check=True, capture_output=True, text=True)
    statements = []
    for table, columns in json.loads(asked.stdout).items():
        # total(), not sum(): global ids add up to more than 64 bits
        sums = ", ".join(f'total(length("{c}"))' if c in TEXTS else f'total("{c}")' for c in columns)
        if columns:
            statements.append(f'SELECT {sums} FROM "{table}"')
    return [sys.executable, "-S", "-c", SCAN, source, *statements]


def million(folder: Path, kernels: int, repeat: int) -> list[str]:
    """The bars of a million kernels; with another count only the ratios are held."""
    source, store = export(folder, kernels), folder / f"k{kernels}.xsp.sqlite"
    at_million = kernels == MILLION
    scans = {
        command: measure(f"SQLite's scan of what {command} reads", scan_command(source, command), repeat=repeat)
        for command in ("tree", "ingest")
    }
    print(f"{kernels:,} kernels")
    tree = measure("xsp-post tree EXPORT", [XSP_POST, "tree", source], repeat=repeat)
    missed = report([(tree, Bar(ratio=3, megabytes=700 if at_million else float("inf")))], scans["tree"])
    ingest = measure(
        "xsp-post ingest EXPORT -o STORE",
        [XSP_POST, "ingest", source, "-o", str(store)],
        repeat=repeat,
        before=lambda: store.unlink(missing_ok=True),
    )
    rows = [(ingest, Bar(ratio=5, megabytes=1200 if at_million else float("inf")))]
    for words in (["tree"], ["table", "a08"], ["table", "a10"], ["table", "a11"], ["table", "layers"]):
        name = f"xsp-post {' '.join(words)} STORE"
        rows.append((measure(name, [XSP_POST, *words, str(store)], repeat=repeat), Bar(seconds=1)))
    return missed + report(rows, scans["ingest"])


def operators(folder: Path, kernels: int, repeat: int, *, op_ids: bool) -> list[str]:
    """Every kernel in a range of its own. CPU time, as a ratio to pandas' import and SQLite's scan in the same run."""
    source = export(folder, kernels, "--shape", "operators", *(["--op-ids"] if op_ids else []))
    store = folder / "operators.xsp.sqlite"
    at_million = kernels == MILLION
    texts = "no two texts alike" if op_ids else "a range per kernel"
    print(f"{kernels:,} kernels, {texts}")
    missed = []
    # bars against getting worse; the aim is 2.5 and 4 times, 500 and 800 MB
    for command, ratio, megabytes in (("tree", 7.0, 950), ("ingest", 10.5, 1450)):
        scan = scan_command(source, command)
        yardstick = [sys.executable, "-c", f"import pandas, subprocess; subprocess.run({scan!r}, check=True)"]
        reference = measure(f"pandas imported, and the scan of {command}", yardstick, repeat=repeat)
        words = [XSP_POST, command, source, *(["-o", str(store)] if command == "ingest" else [])]
        done = measure(
            f"xsp-post {command}, {texts}", words, repeat=repeat, before=lambda: store.unlink(missing_ok=True)
        )
        limit = Bar(cpu_ratio=ratio, megabytes=megabytes if at_million else float("inf"))
        missed += report([(done, limit)], reference)
    return missed


def small(folder: Path, repeat: int) -> list[str]:
    """A 4,000-kernel capture: what most people have."""
    source, store = export(folder, 4000), folder / "k4000.xsp.sqlite"
    rows = [
        (measure("xsp-post tree EXPORT, 4,000 kernels", [XSP_POST, "tree", source], repeat=repeat), Bar(seconds=1.5)),
        (
            measure(
                "xsp-post ingest EXPORT, 4,000 kernels",
                [XSP_POST, "ingest", source, "-o", str(store)],
                repeat=repeat,
                before=lambda: store.unlink(missing_ok=True),
            ),
            Bar(seconds=1.5),
        ),
        (measure("xsp-post --help", [XSP_POST, "--help"], repeat=repeat), Bar(seconds=0.5)),
    ]
    return report(rows)


def growth(folder: Path, kernels: int) -> list[str]:
    """Time per kernel from a tenth to five times as many: must not grow."""
    print(f"{'kernels':>12} {'tree s':>8} {'µs/kernel':>10} {'peak MB':>8}")
    per_kernel = []
    for count in (kernels // 10, kernels, 5 * kernels):
        tree = measure("tree", [XSP_POST, "tree", export(folder, count)], repeat=1)
        per_kernel.append(1e6 * tree.seconds / count)
        print(f"{count:12,} {tree.seconds:8.2f} {per_kernel[-1]:10.2f} {tree.megabytes:8.0f}")
    grows = per_kernel[-1] > 1.15 * per_kernel[0]
    return [f"time per kernel grows from {per_kernel[0]:.2f} to {per_kernel[-1]:.2f} µs"] if grows else []
