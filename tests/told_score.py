"""Programs that people wrote, recorded on a CPU and told as on a GPU: executions and layers found, and what limits.

    python tests/told_score.py [NAME…] [--ranges all,marks,none] [--seed N] [--scale X] [--limits] [--keep FOLDER]

``--limits``: what halving each resource saves, by running the program again on the changed machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from zlib import crc32

from generators.machine import Edit, Machine, Program, write
from generators.told import told
from stranger_score import judge
from structure_score import Answer

FOLDER = Path(__file__).parent / "data" / "told"
RANGES = ("all", "marks", "none")
SCALES = (2.0, 16.0, 64.0)
HALF = {"kernels": Edit(kernel=0.5), "host": Edit(host=0.5), "launches": Edit(launch=0.5), "copies": Edit(copy=0.5)}


def names() -> list[str]:
    return sorted(file.name.split(".")[0] for file in FOLDER.glob("*.json.xz"))


def program_of(name: str, ranges: str, seed: int = 1, scale: float = 0, edit: Edit | None = None) -> Program:
    """A program; without ``scale`` one of `SCALES` by its name."""
    number = crc32(name.encode()) % 999
    return told(FOLDER / f"{name}.json.xz", seed + number, scale or SCALES[number % 3], ranges, edit)


def answers_of(program: Program, name: str, folder: Path) -> dict[str, Answer]:
    return judge(program, write(program, folder / name))


def end_of(m: Machine) -> int:
    """How long all of it takes (ns)."""
    return max(m.busy_until(), *(thread.now for thread in m.threads.values())) - 1_000_000


def gains_of(name: str, *args: object) -> dict[str, float]:
    """Share of the program's time that half of each resource saves."""
    ends = {}
    for key, edit in {"": Edit(), **HALF}.items():
        ends[key] = end_of(program_of(name, *args, edit).machines[0])  # type: ignore[arg-type]
    return {key: 1 - end / ends[""] for key, end in ends.items() if key}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--ranges", default=",".join(RANGES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=0)
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    points: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name in asked.names or names():
        for ranges in asked.ranges.split(","):
            program = program_of(name, ranges, asked.seed, asked.scale)
            with tempfile.TemporaryDirectory() as folder:
                answers = answers_of(program, f"{name}_{ranges}", asked.keep or Path(folder))
            words = [f"{k}: {v.verdict} ({v.found} of {v.true}, {v.share:.2f})" for k, v in answers.items()]
            if asked.limits:
                gains = gains_of(name, ranges, asked.seed, asked.scale)
                words.append("half of " + ", ".join(f"{k} saves {v:.1%}" for k, v in gains.items()))
            for question, answer in answers.items():
                points[ranges, question].append(answer.points)
            print(f"{name:32} {ranges:6}", *words, flush=True)
    for (ranges, question), got in sorted(points.items()):
        print(f"{ranges:6} {question:11} {sum(got):.1f} of {len(got)}")


if __name__ == "__main__":
    sys.exit(main())
