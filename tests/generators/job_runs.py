"""Jobs of several ranks of which one is late for a planted reason, or none: one recording of all processes.

`job(seed)` makes one. Every step is a few stages; each ends in a collective that all ranks need before they go on.
Written apart from `jobs`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from random import Random

from generators.machine import Machine, Program
from generators.strangers import EAGER_ATTENTION, EAGER_MLP, NCCL, SCATTER

CAUSES = ("", "more kernels", "larger shapes", "slower clock", "input", "slow host", "copies", "lock")
WORDS = {
    "more kernels": "more work", "larger shapes": "more work", "slower clock": "slower work", "input": "input",
    "slow host": "host", "copies": "copies", "lock": "another wait",
}  # fmt: skip


@dataclass
class Job:
    """A recording and its truth: the late rank (−1: none), the planted cause, ms that it costs a step."""

    program: Program
    late_rank: int
    cause: str
    lateness_ms: float


def job(seed: int, ranks: int = 8, steps: int = 10) -> Job:
    rng = Random(f"job {seed}")
    cause = CAUSES[seed % len(CAUSES)]
    late = rng.randrange(ranks) if cause else -1
    machines = [
        Machine(Random(f"{seed} {rank}"), pid=7_000 + 20 * rank, device=rank, jitter=0.01) for rank in range(ranks)
    ]
    hosts = [m.thread(0, now=1_000_000 + rng.randint(0, 3_000_000), name="python") for m in machines]
    stages, named = rng.choice([2, 4]), rng.random() < 0.7
    collective = rng.choice([NCCL, SCATTER])
    kernels = EAGER_ATTENTION + EAGER_MLP
    work_ms = stages * sum(us for _, us in kernels) / 1000
    extra_ms = work_ms * rng.choice([0.15, 0.3, 0.6])
    for step in range(steps):
        ends = [0] * ranks
        for stage in range(stages):
            rows = []
            for rank, (m, h) in enumerate(zip(machines, hosts, strict=True)):
                is_late = rank == late
                with h.mark(step=step), h.range(f"step {step}.{stage}") if named else nullcontext():
                    if stage == 0:
                        with h.range("load_batch"):
                            h.host(60 + (extra_ms * 1000 if is_late and cause == "input" else 0))
                        h.copy((1 << 20) + (int(extra_ms * 6e6) if is_late and cause == "copies" else 0))
                        if is_late and cause == "lock":
                            begin = h.now
                            h.wait_until(h.now + int(extra_ms * 1e6))
                            m.os_calls.append(("pthread_mutex_lock", begin, h.now, h.tid))
                    factor = 1 + extra_ms / work_ms if is_late and cause in ("slower clock", "larger shapes") else 1
                    grid = int(216 * factor) if cause == "larger shapes" else 216
                    for name, us in kernels:
                        more = extra_ms * 1000 / stages / len(kernels) if is_late and cause == "slow host" else 0
                        h.host(3)
                        if more:
                            h.sync(7)
                            h.host(more)
                        h.launch(name, us * factor, grid=grid, after=ends[rank])
                    if is_late and cause == "more kernels":
                        h.launch("padded_tokens_kernel(float*, int)", extra_ms * 1000 / stages)
                    rows.append(h.launch(collective, 1, stream=20, after=m.free[7]))
            length = int(rng.uniform(150, 250) * 1000)
            end = max(row["start"] for row in rows) + length
            for rank, (row, m) in enumerate(zip(rows, machines, strict=True)):
                row["end"] = ends[rank] = m.free[20] = end + rng.randint(0, 2_000)
        for rank, h in enumerate(hosts):
            with h.mark(step=step):
                h.launch("adam_kernel(float*, int)", 30, after=ends[rank])
                h.sync()
    return Job(Program("job", machines, ["step"], about=cause), late, cause, extra_ms)
