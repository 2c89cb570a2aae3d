"""The yardstick measures what it says: whole processes, their own memory, and it holds the bars."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from benches import _measure, ingest


def python(code):
    return [sys.executable, "-S", "-c", code]


def test_seconds_and_memory_of_one_process():
    code = """if True:
        import sys; sys.path.insert(0, sys.argv[1])
        from benches import _measure
        def run(code, repeat):
            return _measure.measure("x", [sys.executable, "-S", "-c", code], repeat=repeat)
        big, small = run("x = bytearray(80_000_000)", 1), run("import time; time.sleep(0.3)", 2)
        print(big.megabytes, small.megabytes, small.seconds)"""
    # in a process of its own: a child's peak counts what its parent held when it forked
    out = subprocess.run(
        [sys.executable, "-c", code, ROOT / "scripts"], capture_output=True, text=True, check=True
    ).stdout
    big, small, seconds = map(float, out.split())
    assert big > 80 > small
    assert 0.3 <= seconds < 30


def test_a_failing_command_ends_the_benchmark_with_its_words():
    with pytest.raises(SystemExit, match="out of cheese"):
        _measure.measure("x", python("import sys; sys.exit('out of cheese')"), repeat=1)


def test_bars(capsys):
    reference = _measure.Measured("scan", 1.0, 10, 0)
    rows = [
        (_measure.Measured("quick", 2.9, 600, 0), _measure.Bar(ratio=3, megabytes=700)),
        (_measure.Measured("slow", 3.1, 800, 0), _measure.Bar(ratio=3, megabytes=700)),
    ]
    missed = _measure.report(rows, reference)
    assert [sentence.split(":")[0] for sentence in missed] == ["slow", "slow"]
    assert "MISSED" in capsys.readouterr().out
    assert (_measure.finish(missed, check=True), _measure.finish(missed, check=False)) == (1, 0)
    assert _measure.finish([], check=True) == 0


def test_the_scan_reads_the_columns_that_are_there(tmp_path):
    source = ingest.export(tmp_path, 500)
    subprocess.run(ingest.scan_command(source, "ingest"), check=True)


def test_the_dispatcher_knows_its_benchmarks():
    bench = subprocess.run([ROOT / "scripts/bench", "--list"], capture_output=True, text=True, check=True)
    listed = bench.stdout.split()
    assert "ingest" in listed
    assert all((ROOT / "scripts/benches" / f"{name}.py").exists() for name in listed)
