"""Jobs of many ranks as tables: steps of kernels, copies and host time that end in a collective, one rank late.

Every rank has a clock of its own. The planted rank is late for one cause; the others wait in the collective for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.model.results import Analysis
from xsp_post.replay.collectives import collectives_frame

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevComm*)"
KERNELS = (("ampere_sgemm_128x64_tn", 64), ("elementwise_kernel", 256), ("layer_norm_kernel", 32))
MIXED = "kernels and host"  # half of it each: no cause explains most
CAUSES = ("more work", "launches", "shapes", "slower work", "one slow kernel", "host", "input", "copies",
          "another wait")  # fmt: skip


@dataclass
class Job:
    ranks: list[Analysis]
    late: int
    cause: str  # as the table names it
    late_ns: int  # planted, over all steps but the first


def job(seed: int, count: int, cause: str, steps: int = 12, noise: float = 0.002) -> Job:
    """``cause``: one of `CAUSES`, or '' for none."""
    random = np.random.default_rng(seed)
    late = int(random.integers(count)) if cause else -1
    size = random.uniform(0.08, 0.3)
    lengths = random.integers(100_000, 400_000, len(KERNELS))
    own = [_own_time(random, k == late, cause, size, lengths, steps, noise) for k in range(count)]
    arrival = np.array([[sum(length for *_, length in step) for step in rank] for rank in own])
    ends = arrival.max(axis=0) + 30_000
    later = arrival[:, 1:].sum(axis=1)  # the first step has no collective before it
    planted = later[late] - np.median(np.delete(later, late)) if cause else 0
    named = {"one slow kernel": "slower work", MIXED: "unknown"} | dict.fromkeys(("shapes", "launches"), "more work")
    named = named.get(cause, cause)
    return Job([_results(random, rank, ends) for rank in own], late, named, int(planted))


def _own_time(random, is_late, cause, size, lengths, steps, noise):
    """Per step what one rank does before its collective: (kind, name, grid, length)."""
    total = int(lengths.sum()) * 4
    result = []
    for _ in range(steps):
        rows = [("host", "host_code", 0, 60_000), ("copy", "HtoD", 0, 80_000), ("p2p", SEND_RECV, 0, 40_000)]
        for _ in range(4):
            rows += [("kernel", name, grid, int(length)) for (name, grid), length in zip(KERNELS, lengths)]
        if is_late:
            rows = _altered(rows, cause, size, total)
        lengths_now = [max(int(row[3] * random.normal(1, noise)), 1) for row in rows]
        result.append([(*row[:3], length) for row, length in zip(rows, lengths_now)])
    return result


def _altered(rows, cause, size, total):
    extra = int(size * total)
    if cause == "more work":
        return [*rows, ("kernel", "ampere_sgemm_128x64_tn", 64, extra)]
    if cause == "launches":  # small kernels, each after as much host code as the others' have
        more = extra // 10_000
        return [*rows, *[("kernel", "small_kernel", 8, 5_000)] * more, ("host", "host_code", 0, 5_000 * more)]
    if cause == "shapes":
        return [(k, n, g * 2, int(x * (1 + 2 * size))) if n == KERNELS[0][0] else (k, n, g, x) for k, n, g, x in rows]
    if cause == "slower work":
        return [(k, n, g, int(x * (1 + size))) if k == "kernel" else (k, n, g, x) for k, n, g, x in rows]
    if cause == "one slow kernel":
        return [(k, n, g, int(x * (1 + 3 * size))) if n == KERNELS[2][0] else (k, n, g, x) for k, n, g, x in rows]
    if cause == MIXED:
        return [*rows, ("kernel", "other_kernel", 64, extra // 2), ("host", "host_code", 0, extra // 2)]
    added = {"host": ("host", "host_code", 0), "input": ("host", "DataLoader", 0), "copies": ("copy", "DtoD", 0),
             "another wait": ("p2p", SEND_RECV, 0)}[cause]  # fmt: skip
    return [*rows, (*added, extra)]


def _results(random, rank, ends) -> Analysis:
    """One capture of one rank, its clock off by hours."""
    clock = int(random.integers(10**13))
    kernels, copies, idle, at = [], [], {}, clock
    for step, end in zip(rank, ends):
        stop = at + int(end)
        for kind, name, grid, length in step:
            if kind == "host":
                idle[name] = idle.get(name, 0) + length
            elif kind == "copy":
                copies.append(("memcpy", name, at, at + length))
            else:
                kernels.append((name, grid, at, at + length))
            at += length
        kernels.append((ALL_REDUCE, 24, at, stop))
        at = stop
    frame = pd.DataFrame(kernels, columns=["name", "grid_x", "start_ns", "end_ns"])
    frame = frame.assign(capture_id=0, process_id=1, device_id=0, grid_y=1, grid_z=1)
    copied = pd.DataFrame(copies, columns=["kind", "direction", "start_ns", "end_ns"])
    copied = copied.assign(capture_id=0, process_id=1, device_id=0)
    causes = pd.DataFrame({"idle_ns": list(idle.values()), "owner": list(idle)})
    causes = causes.assign(capture_id=0, device_id=0, scope="execution", cause="host_code", call_name="", detail="")
    captures = pd.DataFrame({"capture_id": [0], "level": ["M/L/G"], "kernel_count": [len(kernels)]})
    met = collectives_frame(frame.assign(stream_id=7, launch_start_ns=-1)).assign(capture_id=0)
    frames = {"kernels": frame, "memory_operations": copied, "idle_causes": causes, "captures": captures}
    return Analysis({**frames, "collectives": met})
