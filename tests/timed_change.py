"""How long a program of `tests/changes` takes before and after its change, without a profiler: prints JSON, in seconds.

Both take turns in one process, on one thread. An argument: the program's file.
"""

from __future__ import annotations

import json
import runpy
import statistics
import sys
import time

TURNS = 15


def timed(program: str) -> dict[str, float]:
    """Median seconds of each side."""
    import torch

    torch.set_num_threads(1)
    made = runpy.run_path(program)
    sides = {side: made[side]() for side in ("before", "after")}
    times: dict[str, list[float]] = {side: [] for side in sides}
    with torch.no_grad():
        for turn in range(TURNS + 2):
            for side, (module, inputs) in sides.items():
                start = time.perf_counter()
                module(inputs)
                times[side] += [time.perf_counter() - start] if turn >= 2 else []
    return {side: statistics.median(some) for side, some in times.items()}


if __name__ == "__main__":
    print(json.dumps(timed(sys.argv[1])))
