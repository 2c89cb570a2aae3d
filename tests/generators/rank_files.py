"""Jobs whose ranks were recorded by nsys, a file each with a clock of its own; of a sixth author.

Layers of products with a collective behind each, inputs by a loader on the host, a synchronised step. One rank is late
by its host, its input, its GPU's clock or more work; or the network is slow, which makes nobody late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from generators.machine import Machine, Program, Thread, write_nsys

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM, ACT = "nvjet_tst_128x128_64x6_1x2_h_bz_coopA_NTN", "void at::native::vectorized_elementwise_kernel<4, gelu>(int)"
# what is planted → what the product calls it; '' nobody is late
SAID = {
    "host": "host", "input": "input", "clock": "slower work", "longer sequences": "more work", "network": "",
    "nothing": "", "host, sometimes": "host", "throttles later": "slower work", "slow copies": "copies",
}  # fmt: skip


@dataclass
class RankFiles:
    """Machines of one job and its truth: late rank → cause."""

    name: str
    cause: str
    machines: list[Machine]
    late: dict[int, str] = field(default_factory=dict)


def rank_files(seed: int, cause: str = "", size: int = 0, name: str = "train") -> RankFiles:
    """Draw a job; seeds go round the causes."""
    rng = Random(f"rank files {seed}")
    cause = cause or list(SAID)[seed % len(SAID)]
    size = size or rng.choice([8, 8, 16, 32])
    machines = [Machine(Random(rng.random()), pid=3_000, device=k % 8, jitter=0.01) for k in range(size)]
    speeds = [rng.gauss(1, 0.003) for _ in range(size)]  # no two GPUs are alike
    late = rng.randrange(size)
    share = rng.uniform(0.08, 0.3)
    layers, steps = rng.choice([3, 4, 6]), rng.choice([8, 12, 20])
    product = rng.choice([180, 400, 900])  # µs
    collective = product * rng.choice([0.2, 0.6])
    step_us = layers * (3.3 * product + collective)
    hosts = [m.thread(0, name="python") for m in machines]
    for step in range(steps):
        sometimes = cause != "host, sometimes" or step % 3 == 1
        later = cause != "throttles later" or step >= steps // 2
        open_rows: dict[int, dict] = {}
        for rank, h in enumerate(hosts):
            is_late = rank == late and sometimes and later
            row = {"text": f"step {step}", "start": h.now, "end": None, "tid": h.tid, "kind": "nvtx", "args": {}}
            h.m.ranges.append(row)
            open_rows[rank] = row
            with h.range("DataLoader.__next__"):
                h.host(60 + (share * step_us if is_late and cause == "input" else 0))
            more = share * step_us * 6_000 if is_late and cause == "slow copies" else 0
            h.copy(int(4e6 + more), "HtoD")
            if is_late and cause.startswith("host"):
                h.sync()
                h.host(share * step_us * (3 if cause == "host, sometimes" else 1))
        for layer in range(layers):
            for rank, h in enumerate(hosts):
                is_late = rank == late and sometimes and later
                slow = speeds[rank] * (1 + share if is_late and cause in ("clock", "throttles later") else 1)
                grid = 216
                if is_late and cause == "longer sequences":
                    slow, grid = slow * (1 + share), int(216 * (1 + share))
                for part in (1.0, 2.0):
                    h.launch(GEMM, product * part * slow, grid=grid)
                h.launch(ACT, product * 0.3 * slow, grid=grid)
            slow_link = 2.5 if cause == "network" else 1.0
            _meet(hosts, GATHER if layer == 0 else NCCL, collective * slow_link)
        for rank, h in enumerate(hosts):
            h.sync()
            open_rows[rank]["end"] = h.now
            h.host(50)
    made = RankFiles(name, cause, machines)
    made.late = {late: SAID[cause]} if SAID[cause] else {}
    return made


def _meet(hosts: list[Thread], name: str, us: float) -> None:
    """All ranks leave a collective together, once the last one is there."""
    rows = [h.launch(name, 1, grid=24, block=512) for h in hosts]
    end = max(row["start"] for row in rows) + int(us * 1000)
    for h, row in zip(hosts, rows, strict=True):
        row["end"] = end + h.m.rng.randrange(2_000)
        h.m.free[7] = row["end"]


def write(made: RankFiles, folder: Path, seed: int = 0) -> list[Path]:
    """A file a rank, whose clocks differ by up to seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = Random(f"clocks {seed}")
    files = []
    for rank, machine in enumerate(made.machines):
        ahead = rng.randrange(2_000_000_000)
        for row in (*machine.ranges, *machine.calls, *machine.work):
            row["start"] += ahead
            row["end"] += ahead
        files.append(write_nsys(Program(made.name, [machine], []), folder / f"{made.name}_rank{rank}"))
    return files
