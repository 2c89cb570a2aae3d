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

from benches._measure import ROOT, XSP_POST, Bar, Measured, finish, measure, report, work_folder

# The columns that a command asks for, from its own list of them: {table: columns}, those the export has.
ASKED = """
import json, sys
from pathlib import Path
from xsp_post.ingest.tables import requests
from xsp_post.ingest.sqlite_tables import SqliteTables
tables = SqliteTables(Path(sys.argv[1]))
asked = requests(tables).values()
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
    parser.add_argument("--small", action="store_true", help="only the 7,000-kernel capture")
    parser.add_argument("--growth", action="store_true", help="also a tenth and five times as many kernels")
    parser.add_argument("--folder", type=Path, help="keep the files here (made once)")


def main(options: argparse.Namespace) -> int:
    with work_folder(options.folder) as folder:
        missed = small(folder, options.repeat)
        if not options.small:
            missed += million(folder, options.kernels, options.repeat)
            for name in OPERATOR_SHAPES:
                missed += operators(folder, options.kernels, options.repeat, name)
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
    """SQLite's own loop over the columns that ``tree``, ``why`` or ``ingest`` reads, in a process of its own."""
    asked = subprocess.run([sys.executable, "-c", ASKED, source, command], check=True, capture_output=True, text=True)
    statements = []
    for table, columns in json.loads(asked.stdout).items():
        # total(), not sum(): global ids add up to more than 64 bits
        sums = ", ".join(f'total(length("{c}"))' if c in TEXTS else f'total("{c}")' for c in columns)
        if columns:
            statements.append(f'SELECT {sums} FROM "{table}"')
    return [sys.executable, "-S", "-c", SCAN, source, *statements]


def against_the_scan(source: str, store: Path, repeat: int, limits: dict[str, Bar]) -> list[str]:
    """CPU time of commands as a ratio to pandas' import and SQLite's scan of the same columns, same run."""
    missed = []
    for command, limit in limits.items():
        scan = scan_command(source, command)
        yardstick = [sys.executable, "-c", f"import pandas, subprocess; subprocess.run({scan!r}, check=True)"]
        reference = measure(f"pandas imported, and the scan of {command}", yardstick, repeat=repeat)
        words = [XSP_POST, command, source, *(["-o", str(store)] if command == "ingest" else [])]
        done = measure(f"xsp-post {command} EXPORT", words, repeat=repeat, before=lambda: store.unlink(missing_ok=True))
        missed += report([(done, limit)], reference)
    return missed


# Layers and operators: the bars that are wanted (of `why` 8 s and 1200 MB are, which is less). No two texts alike: bars
# against getting worse.
LAYERS = {
    "tree": Bar(cpu_ratio=2.5, megabytes=500),
    "why": Bar(cpu_ratio=2.3, megabytes=600),
    "ingest": Bar(cpu_ratio=4.0, megabytes=800),
}
OPERATORS = {
    "tree": Bar(cpu_ratio=2.5, megabytes=500),
    "why": Bar(cpu_ratio=2.7, megabytes=620),
    "ingest": Bar(cpu_ratio=4.0, megabytes=800),
}
OP_IDS = {
    "tree": Bar(cpu_ratio=3.6, megabytes=620),
    "why": Bar(cpu_ratio=3.0, megabytes=700),
    "ingest": Bar(cpu_ratio=5.5, megabytes=1200),
}


GAPS = {
    "tree": Bar(cpu_ratio=3.0, megabytes=620),
    "why": Bar(cpu_ratio=2.7, megabytes=650),
    "ingest": Bar(cpu_ratio=4.0, megabytes=950),
}
OPERATOR_SHAPES = {
    "a range per kernel": (OPERATORS, ("--shape", "operators")),
    "no two texts alike": (OP_IDS, ("--shape", "operators", "--op-ids")),
    "a range and a gap per kernel": (GAPS, ("--shape", "gaps")),
}


def limits_of(bars: dict[str, Bar], kernels: int) -> dict[str, Bar]:
    """With another count than a million only the ratios are held."""
    return bars if kernels == MILLION else {name: Bar(cpu_ratio=bar.cpu_ratio) for name, bar in bars.items()}


def million(folder: Path, kernels: int, repeat: int) -> list[str]:
    """Kernels in layers; then what reads the store."""
    source, store = export(folder, kernels), folder / f"k{kernels}.xsp.sqlite"
    print(f"{kernels:,} kernels")
    missed = against_the_scan(source, store, repeat, limits_of(LAYERS, kernels))
    rows = []
    for words in (["tree"], ["table", "a08"], ["table", "a10"], ["table", "a11"], ["table", "layers"]):
        name = f"xsp-post {' '.join(words)} STORE"
        rows.append((measure(name, [XSP_POST, *words, str(store)], repeat=repeat), Bar(cpu_ratio=2.0)))
    return missed + report(rows, pandas_alone(repeat))


def pandas_alone(repeat: int) -> Measured:
    return measure("pandas imported", [sys.executable, "-c", "import pandas"], repeat=repeat)


def operators(folder: Path, kernels: int, repeat: int, name: str) -> list[str]:
    """Every kernel in a range of its own."""
    bars, words = OPERATOR_SHAPES[name]
    source = export(folder, kernels, *words)
    print(f"{kernels:,} kernels, {name}")
    return against_the_scan(source, folder / "operators.xsp.sqlite", repeat, limits_of(bars, kernels))


def small(folder: Path, repeat: int) -> list[str]:
    """A 7,000-kernel capture: what most people have. CPU time as a ratio to importing pandas in the same run."""
    source, store, page = export(folder, 7000), folder / "k7000.xsp.sqlite", folder / "k7000.html"
    ingest = [XSP_POST, "ingest", source, "-o", str(store)]

    def fresh() -> None:
        store.unlink(missing_ok=True)
        page.unlink(missing_ok=True)

    works = [
        ("xsp-post tree EXPORT, 7,000 kernels", [XSP_POST, "tree", source], Bar(cpu_ratio=1.6)),
        ("xsp-post why EXPORT, 7,000 kernels", [XSP_POST, "why", source], Bar(cpu_ratio=1.8)),
        ("xsp-post ingest --report, 7,000 kernels", [*ingest, "--report", str(page)], Bar(cpu_ratio=4.2)),
        ("xsp-post ingest EXPORT, 7,000 kernels", ingest, Bar(cpu_ratio=3.0)),
        ("xsp-post table layers STORE", [XSP_POST, "table", "layers", str(store)], Bar(cpu_ratio=1.2)),
        ("xsp-post --help", [XSP_POST, "--help"], Bar(seconds=0.5)),
    ]
    rows = [
        (measure(name, words, repeat=repeat, before=fresh if "ingest" in words else None), bar)
        for name, words, bar in works
    ]
    return report(rows, pandas_alone(repeat))


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
