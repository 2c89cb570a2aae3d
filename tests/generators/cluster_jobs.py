"""Traces of PyTorch jobs with the faults of a cluster in use; of a fifth author, on the machine of `mesh_jobs`.

What is planted is not late in each step alike: a node that another job uses, a checkpoint now and then, a collector of
garbage at random steps, a GPU that throttles after a while, a stage or an expert with more work, a slow link."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from generators import mesh_jobs
from generators.mesh_jobs import Fault, MeshJob, Rank, Wait

# what is planted → what the product calls it; '' nobody is late
SAID = {
    "slow loader": "input", "noisy neighbour": "host", "uneven stages": "more work", "busy expert": "more work",
    "slow link": "", "checkpoint": "host", "garbage collection": "host", "throttling": "slower work",
    "compilation": "host", "turns": "slower work", "nothing": "",
}  # fmt: skip
SMALL = ({"dp": 8}, {"dp": 4, "tp": 2}, {"dp": 2, "pp": 4}, {"dp": 2, "ep": 4}, {"tp": 8}, {"dp": 2, "pp": 2, "tp": 2})
LARGE = ({"dp": 8, "tp": 8}, {"dp": 16, "pp": 4}, {"dp": 8, "ep": 8}, {"dp": 64})


def cluster_job(seed: int, large: bool = False) -> MeshJob:
    """Draw a job; seeds go round the faults."""
    draw = np.random.default_rng([seed, 501])
    case = list(SAID)[seed % len(SAID)]
    meshes = LARGE if large else SMALL
    axis = {"uneven stages": "pp", "busy expert": "ep", "turns": "pp"}.get(case, "")
    meshes = [mesh for mesh in meshes if axis in mesh and len(mesh) == 2] if axis else meshes
    mesh = meshes[int(draw.integers(len(meshes)))]
    job = mesh_jobs.mesh_job(seed, mesh=mesh, case="none")
    share, rank = float(draw.uniform(0.1, 0.3)), int(draw.integers(job.size))
    groups = mesh_jobs.groups_of(job, rank)
    ranks, size = [rank], share
    if case == "slow loader" and "pp" in mesh:  # only the first stage waits for input
        ranks = [groups["pp"][1][0]]
    if case == "noisy neighbour":  # all ranks of a machine, of a small job two
        together = 8 if large else 2
        ranks = list(range(rank // together * together, rank // together * together + together))
    if case == "uneven stages":  # the same stage of all replicas
        stage = groups["pp"][1].index(rank)
        ranks = [r for r in range(job.size) if mesh_jobs.groups_of(job, r)["pp"][1].index(r) == stage]
    if case == "checkpoint":
        ranks, size = [0], share * 6
    if case == "garbage collection":
        size = share * 3
    if case == "compilation":
        size = share * 10
    if case == "turns":
        ranks = mesh_jobs.groups_of(job, groups["pp"][1][0])["dp"][1][:2]
    if case == "nothing":
        ranks = []
    every, turn = (2, 1) if case == "turns" else (1, 0)
    faults = [Fault(one, case, size, every, k * turn) for k, one in enumerate(ranks)]
    late = {} if not SAID[case] else {one: SAID[case] for one in ranks}
    return replace(job, case=case, faults=faults, late=late, steps=12 if job.size <= 8 else 8, synchronous=True)


class ClusterRank(Rank):
    """A process with such a fault."""

    def is_active(self, fault: Fault, step: int) -> bool:
        chance = np.random.default_rng([self.job.seed, 6, fault.rank, step]).random()
        return {
            "checkpoint": step % 4 == 2, "garbage collection": chance < 0.4, "throttling": step >= self.job.steps // 2,
            "compilation": step == 1,
        }.get(fault.cause, super().is_active(fault, step))  # fmt: skip

    def amount(self, cause: str) -> float:
        if cause == "lower clock":
            return super().amount("throttling") + super().amount("turns")
        return super().amount({"late input": "slow loader"}.get(cause, cause))

    def pause(self, length: float) -> None:
        neighbour = 1 + 12 * super().amount("noisy neighbour")  # it takes the cores
        super().pause(length * neighbour)

    def wait_on_host(self) -> None:
        names = {"checkpoint": "save_checkpoint", "garbage collection": "", "compilation": "compile_fx"}
        for cause, name in names.items():
            if length := super().amount(cause) * self.step_us:
                self.synchronize()
                start = self.host
                self.host += length * float(np.exp(self.draw.normal(0, 0.2)))
                if name:
                    self.event("user_annotation", name, start, self.host, self.pid)
        if super().amount("noisy neighbour"):
            self.synchronize()
            self.host += super().amount("noisy neighbour") * self.step_us * float(np.exp(self.draw.normal(0, 0.3)))

    def layers(self, stages: int) -> int:
        return super().layers(stages) + any(f.cause == "uneven stages" and f.rank == self.rank for f in self.job.faults)

    def layer(self, backward: bool) -> Wait:
        busy = super().amount("busy expert")
        if not busy or "ep" not in self.groups:
            yield from super().layer(backward)
            return
        plain = self.operator

        def more_tokens(name, kernels, stream=7):
            if name == "aten::_grouped_mm":
                more = 1 + 5 * busy
                kernels = [(kernel, length * more, (round(132 * more), 1, 1)) for kernel, length, _ in kernels]
            plain(name, kernels, stream)

        self.operator = more_tokens
        yield from super().layer(backward)
        self.operator = plain

    def collective(self, axis: str, kind: str, length: float, stream: int, peers: tuple[int, ...] = ()) -> Wait:
        slow = any(f.cause == "slow link" and f.rank in self.groups[axis][1] for f in self.job.faults)
        yield from super().collective(axis, kind, length * (6 if slow else 1), stream, peers)


def write(job: MeshJob, folder: Path) -> list[Path]:
    return mesh_jobs.write(job, folder, ClusterRank)
