"""Inferring iterations and blocks from a million launches without a range: under 5 s and 1 GB, whatever they are.

Each case is a launch frame in a file; measured is a process that reads it and calls `structure.infer`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benches._measure import ROOT, Bar, finish, measure, report, work_folder

LIMIT_S, LIMIT_MB = 5.0, 1000.0
MILLION = 1_000_000
# name -> how tests/sequences.noisy_turns makes it, but for the number of turns; noise is odd launches per launch
CASES: dict[str, dict[str, float]] = {
    "equal iterations of 1,833 launches": {},
    "the same, 1 % odd launches": {"noise": 0.01},
    "iterations of 49 launches, 1 % odd": {"noise": 0.01, "blocks": 1, "block": 40},
    "iterations of 200,009 launches": {"blocks": 2000, "block": 100},
    "iterations of 6 launches": {"blocks": 1, "block": 6, "head": 0, "tail": 0},
    "two streams, interleaved by chance": {"streams": 2},
    "no structure at all": {"random": 1},
}
WRITE = """
import sys, json
sys.path.insert(0, sys.argv[1])
import numpy as np
from sequences import launch_frame, noisy_turns
path, count, case = sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
streams, random = case.pop("streams", 1), case.pop("random", 0)
rng = np.random.default_rng(1)
def sequence(seed, size):
    turn = case.get("head", 5) + case.get("blocks", 32) * case.get("block", 57) + case.get("tail", 4)
    return noisy_turns(seed, turns=max(4, size // turn), **case).symbols[:size]
if random:
    frame = launch_frame(rng.integers(0, 40, count))
else:
    parts = [sequence(seed, count // streams) + 90 * seed for seed in range(streams)]
    place = np.concatenate([np.linspace(0, 1, len(part)) for part in parts])
    stream = np.repeat(np.arange(streams), [len(part) for part in parts])
    order = np.argsort(place + rng.normal(0, 20 / count, len(place)) * (streams > 1), kind="stable")
    keep = np.empty(len(order), np.int64)
    for number in range(streams):
        keep[stream[order] == number] = np.flatnonzero(stream == number)
    frame = launch_frame(np.concatenate(parts)[keep], stream_id=stream[keep])
np.savez(path, **{name: frame[name].to_numpy() for name in frame})
"""
INFER = """
import sys
import numpy as np, pandas as pd
from xsp_post.tree.structure.find import infer
sys.path.insert(0, sys.argv[1])
from sequences import NAMES
with np.load(sys.argv[2]) as columns:
    launches = pd.DataFrame({name: columns[name] for name in columns}, copy=False)
result = infer(launches, NAMES)
expected = sys.argv[3] == "structure"
assert bool(len(result.nodes)) == expected, result.findings
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launches", type=int, default=MILLION)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="exit code 1 when a bar is missed")
    parser.add_argument("--folder", type=Path, help="keep the files here (made once)")


def main(options: argparse.Namespace) -> int:
    import json

    tests = str(ROOT / "tests")
    scale = options.launches / MILLION
    rows = []
    with work_folder(options.folder) as folder:
        for number, (name, case) in enumerate(CASES.items()):
            path = folder / f"infer{number}_{options.launches}.npz"
            if not path.exists():
                command = [sys.executable, "-c", WRITE, tests, str(path), str(options.launches), json.dumps(case)]
                subprocess.run(command, check=True)
            expected = "nothing" if "random" in case else "structure"
            measured = measure(name, [sys.executable, "-c", INFER, tests, str(path), expected], repeat=options.repeat)
            rows.append((measured, Bar(seconds=LIMIT_S * max(scale, 0.4), megabytes=LIMIT_MB * max(scale, 0.4))))
    return finish(report(rows), check=options.check)
