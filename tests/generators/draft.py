"""A program while it is drawn: its random choices, what runs it, and in the end the recording with its truth."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from generators import ranges
from generators.networks import Stack, network
from generators.ranges import Dialect, Writer
from generators.recorder import NOT_JUDGED, NOTHING, Faults, Recorder, Truth
from generators.running import Model
from xsp_post.model.trace import ActivityKind, Trace

MOST_KERNELS = 2_600


@dataclass
class Program:
    """One drawn program."""

    seed: int
    family: str
    about: str
    trace: Trace
    truth: Truth

    @property
    def has_structure(self) -> bool:
        """Whether anything repeats at all."""
        return bool(self.truth.kind)


class Draft:
    """A program while it is drawn."""

    def __init__(
        self,
        seed: int,
        family: str,
        dialects: tuple[str, ...],
        *,
        nets: tuple[str, ...] = ("llama", "gpt", "bert"),
        blocks: tuple[int, int] = (2, 14),
        stacks: tuple[str, ...] = ("ampere", "hopper", "turing", "triton"),
        faults: bool = True,
    ) -> None:
        self.seed, self.family = seed, family
        self.rng = rng = Random(f"{family} {seed}")
        self.dialect = rng.choice(dialects)
        kineto = self.dialect in ranges.KINETO or (self.dialect == "none" and rng.random() < 0.3)
        self.recorder = Recorder(rng, kineto=kineto, faults=self._faults(rng) if faults else None)
        self.writer = Writer(self.recorder, self.dialect, rng)
        self.stack = Stack(rng.choice(stacks), rng)
        net = network(rng.choice(nets), rng, rng.randint(*blocks))
        self.model = Model(net, self.stack, self.recorder, self.writer, rng)
        self.has_layers = net.are_blocks_equal or self.writer.shown & {"module", "part", "operator"} == {"module"}
        self.has_layers &= not self.writer.marks_parts_only

    @staticmethod
    def _faults(rng: Random) -> Faults:
        if rng.random() < 0.5:
            return Faults(first_launch_ns=rng.choice((0, 0, 400_000, 5_000_000)))
        return Faults(
            missing=rng.choice((0, 0, 0.002, 0.01)),
            orphan=rng.choice((0, 0, 0.01)),
            extra=rng.choice((0, 0.004)),
            first_launch_ns=rng.choice((0, 300_000)),
            stall=rng.choice((0, 0, 0, 0.001)),
        )

    def turns(self, least: int = 3, most: int = 10, *, passes: float = 1.0) -> int:
        """How many executions fit: a pass has some hundred kernels."""
        steps = sum(group.count * len(group.steps) for group in self.model.network.groups)
        return max(least, min(self.rng.randint(least, most), int(MOST_KERNELS / (1.5 * passes * max(steps, 1)))))

    def between(self, *, wait: bool | None = None) -> None:
        """What the host does after an execution."""
        if wait or (wait is None and self.synchronous):
            self.recorder.synchronize()
        self.recorder.wait(self.pause)

    def pace(self) -> None:
        """Whether the host waits for each execution, and how long it pauses."""
        self.synchronous = self.rng.random() < 0.6
        self.pause = self.rng.choice((3_000, 40_000, 400_000))

    def replace_texts(self, dialect: Dialect) -> None:
        """Write these texts instead."""
        self.writer.dialect = dialect
        self.writer.shown = {level for level in ranges.LEVELS if getattr(dialect, level)}

    def done(self, *, layers: bool | None = None) -> Program:
        """The recording and its truth."""
        trace, truth = self.recorder.trace()
        number, layer, part, aside = truth.T
        executions = [number] + [np.where(aside > 0, NOTHING, number)] * bool(aside.any())
        accepted = [layer]
        if (part > 0).any():
            accepted = [np.where(layer >= 0, 2 * layer + part, layer), layer]
        layers = self.has_layers if layers is None else layers
        if not self.writer.marks_layers:
            names = trace.activities["name_id"].to_numpy()
            accepted = [without_ambiguous(one, names, number, trace) for one in accepted]
        found = Truth(executions, accepted if layers else [], self.recorder.kinds, self.recorder.warmups)
        said = self.writer.dialect
        shown = ",".join(level for level in ranges.LEVELS if level in self.writer.shown) or "nothing"
        shown += f": {said.step!r} {said.module!r}" if self.dialect == "free" else ""
        net = self.model.network
        blocks = "+".join(str(group.count) for group in net.groups)
        about = (
            f"{self.family}: {net.name} ({blocks} blocks) on {self.stack.name}, ranges {self.dialect} ({shown}), "
            f"{len(self.recorder.kinds)} executions, {len(trace.activities)} device rows"
        )
        return Program(self.seed, self.family, about, trace, found)


def without_ambiguous(layer: np.ndarray, names: np.ndarray, execution: np.ndarray, trace: Trace) -> np.ndarray:
    """Layers without the kernels at their ends that the order of names alone cannot tell apart.

    Where the kernel before a run of equal blocks is the one that ends each block, the run may as well begin one
    earlier, and so on; likewise at its end. Those kernels are `NOT_JUDGED`.
    """
    kernels = np.flatnonzero(trace.activities["kind"].to_numpy() == ActivityKind.KERNEL)
    result = layer.copy()
    for number in np.unique(execution[kernels]).tolist():
        rows = kernels[execution[kernels] == number]
        own, name = layer[rows], names[rows]
        starts = np.flatnonzero((own >= 0) & np.append(True, own[1:] != own[:-1]))
        if len(starts) < 2:
            continue
        for sign in (-1, 1):
            first, last = _run(own, starts)
            moved = 0
            while moved < 6:
                edge = first - 1 - moved if sign < 0 else last + 1 + moved
                inside = last - moved if sign < 0 else first + moved
                if not 0 <= edge < len(name) or own[edge] >= 0 or name[edge] != name[inside]:
                    break
                moved += 1
            for k in range(moved):
                ends = np.append(starts[1:] - 1, last) - k if sign < 0 else starts + k
                result[rows[np.clip(ends, 0, len(rows) - 1)]] = NOT_JUDGED
                edge = first - 1 - k if sign < 0 else last + 1 + k
                result[rows[edge]] = NOT_JUDGED
    return result


def _run(own: np.ndarray, starts: np.ndarray) -> tuple[int, int]:
    inside = np.flatnonzero(own >= 0)
    return int(starts[0]), int(inside[-1])
