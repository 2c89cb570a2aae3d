"""Two programs, one after the other, as one recording of one process."""

from __future__ import annotations

from dataclasses import replace

from generators.machine import Program


def one_after_another(one: Program, other: Program, pause_ns: int = 30_000_000) -> tuple[Program, int]:
    """The recording of both, and when the second one begins, ns. Each is of one process; both are used up."""
    first, second = one.machines[0], other.machines[0]
    begin = max(row["end"] or row["start"] for row in _rows(first)) + pause_ns
    later = begin - min(row["start"] for row in _rows(second))
    for row in _rows(second):
        row["start"] += later
        row["end"] = None if row["end"] is None else row["end"] + later
        row["tid"] += first.pid - second.pid
        row |= {"pid": first.pid} if "pid" in row else {}
        row |= {"correlation": row["correlation"] + first.correlation} if "correlation" in row else {}
    first.ranges += second.ranges
    first.calls += second.calls
    first.work += second.work
    first.os_calls += [(n, a + later, b + later, tid + first.pid - second.pid) for n, a, b, tid in second.os_calls]
    return replace(one, family=f"{one.family}, then {other.family}"), begin


def _rows(machine) -> list[dict]:
    return machine.ranges + machine.calls + machine.work
