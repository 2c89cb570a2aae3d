"""A tripwire that needs no real capture: every table of generated recordings, of a part of one, of levels, of a fleet,
and of comparisons, against hashes that were kept when somebody last looked at a change of them.

A change that is wanted: ``XSP_POST_RENEW=1 scripts/test tests/test_generated_outputs.py -n 0`` writes the hashes anew
(`tests/golden_generated.txt`); name it in the commit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from generators import engine_runs, graph_traces, job_runs, planted, programs, serving, simulator
from generators.machine import write_kineto, write_nsys
from generators.resnet50 import write_resnet50_export
from helpers import reconciled, small_analysis
from paper.data import compute_all

from xsp_post.compare import compare
from xsp_post.ingest.formats import NSYS_SQLITE
from xsp_post.ingest.sources import Loaded
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis, Results
from xsp_post.pipeline import captures_of, graph_of, part_of
from xsp_post.tables.analyses import fleet

KEPT = Path(__file__).with_name("golden_generated.txt")
IS_RENEWAL = bool(os.environ.get("XSP_POST_RENEW"))
Tables = Mapping[str, pd.DataFrame]
Case = Callable[[Path], Tables]


def _read(path: Path, *more: Path, **options: Any) -> Tables:
    return captures_of([path, *more], Options(**options)).complete().frames


def _machine(program: Any, write: Callable[[Any, Path], Path] = write_nsys) -> Case:
    return lambda folder: _read(write(program, folder / "recording"))


def _planted(seed: int) -> Case:
    return lambda folder: _read(write_nsys(planted.plant(seed)[1], folder / "recording"))


def _program(seed: int) -> Case:
    return lambda _: graph_of([Loaded(Path(), NSYS_SQLITE, programs.draw(seed).trace)]).complete().frames


def _simulated(seed: int) -> Case:
    def made(folder: Path) -> Tables:
        machine = simulator.Machine(simulator.draw_program(seed)).run()
        return _read(machine.write(folder / "recording.sqlite"), model_range="^step")

    return made


def _compared(base: Case, other: Case) -> Case:
    def made(folder: Path) -> Tables:
        (folder / "base").mkdir()
        (folder / "other").mkdir()
        return compare(Analysis(dict(base(folder / "base"))), Analysis(dict(other(folder / "other")))).frames

    return made


def _part(case: Callable[[Path], Results], **options: Any) -> Case:
    return lambda folder: part_of(case(folder), Options(**options)).complete().frames


def _resnet50(folder: Path) -> Results:
    return captures_of([write_resnet50_export(folder / "resnet50.sqlite", batch_size=4, iterations=4)])


def _analysed(results: Analysis) -> Analysis:
    tables, findings = compute_all(results)
    return Analysis({**results.frames, **tables}, [*results.findings, *findings])


def _levels(_: Path) -> Tables:
    return _analysed(reconciled(small_analysis())).frames


def _fleet(_: Path) -> Tables:
    members = [_analysed(small_analysis(workload_name=name, overhead_ns=ns)) for name, ns in (("a", 9_000), ("b", 1))]
    return fleet.fleet_tables([fleet.contribution(one, i, f"c{i}", f"c{i}") for i, one in enumerate(members)])


def _serving(seed: int) -> Case:
    made = serving.serving(seed, 60, outliers=3, drift=0.2)
    return lambda folder: _read(made.write(folder / "trace.pt.trace.json"))


def _twin(folder: Path) -> Tables:
    capture = graph_traces.captured(folder / "capture.pt.trace.json.gz", [1, 4], blocks=3)
    replay = graph_traces.replayed(folder / "replay.pt.trace.json.gz", [4, 1, 4], blocks=3)
    return _read(replay, layers_from=(capture,))


CASES: dict[str, Case] = {
    "levels": _levels,
    "fleet": _fleet,
    "twin": _twin,
    "resnet50": lambda folder: _resnet50(folder).complete().frames,
    "resnet50, one iteration": _part(_resnet50, iteration=3),
    "serving": _serving(3),
    "engine": lambda folder: _machine(engine_runs.run(2, steps=40).program, write_kineto)(folder),
    "job": lambda folder: _machine(job_runs.job(4, ranks=4, steps=4).program)(folder),
    **{f"planted {seed}": _planted(seed) for seed in range(0, 17, 2)},
    **{f"program {seed}": _program(seed) for seed in (0, 1, 3, 5, 8, 9, 11, 14, 17, 20, 23, 26, 30)},
    **{f"simulated {seed}": _simulated(seed) for seed in (402, 407, 411)},
    "compared, cured": _compared(_planted(1), _planted(18)),
    "compared, levels": _compared(_levels, lambda _: _analysed(reconciled(small_analysis(overhead_ns=70_000))).frames),
}


@pytest.mark.parametrize("name", CASES)
def test_tables_of_generated_recordings_are_as_kept(name, tmp_path):
    """Every column of every table, to ten digits."""
    frames = {table: frame for table, frame in sorted(CASES[name](tmp_path).items()) if len(frame)}
    now = {f"{name}: {table}": _line(frame) for table, frame in frames.items()}
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    if IS_RENEWAL:
        others = [line for line in lines if not line.startswith(f"{name}: ")]
        KEPT.write_text("".join(f"{line}\n" for line in sorted([*others, *(f"{k} = {v}" for k, v in now.items())])))
        return
    kept = dict(line.split(" = ") for line in lines if line.startswith(f"{name}: "))
    assert now.keys() == kept.keys()
    differing = {table: _differing(frames[table], kept[f"{name}: {table}"]) for table in frames}
    assert {table: columns for table, columns in differing.items() if columns} == {}


def _line(frame: pd.DataFrame) -> str:
    """The number of rows, and three hex digits a column."""
    return f"{len(frame)} {' '.join(_digest(frame[column]) for column in frame)}"


def _differing(frame: pd.DataFrame, kept: str) -> list[str]:
    """What is not as in a kept line: the number of rows or of columns, else the names of columns."""
    rows, *digests = kept.split()
    if len(frame) != int(rows) or len(frame.columns) != len(digests):
        return [f"{len(frame)} rows of {len(frame.columns)} columns, {rows} of {len(digests)} kept"]
    return [str(column) for column, digest in zip(frame, digests) if _digest(frame[column]) != digest]


def _digest(column: pd.Series) -> str:
    texts = [_text(value) for value in column.astype(object).tolist()]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:3]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.10g}"
    return "" if value is None or value is pd.NA else str(value)
