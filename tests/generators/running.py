"""Runs a network on a recorder: forward, backward, the optimiser, and what comes between."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from random import Random

from generators.networks import STACKS, Network, Stack, Step, expert_steps
from generators.ranges import Writer
from generators.recorder import NOT_JUDGED, Recorder, _Thread
from xsp_post.model.trace import SpanKind

# One operator that ran: what its gradient needs.
_Done = tuple[str, str, str, int, int]  # operator, what, place, sequence, layer


class Model:
    """A network with its kernels, ranges and recorder."""

    def __init__(self, network: Network, stack: Stack, recorder: Recorder, writer: Writer, rng: Random) -> None:
        self.network, self.stack, self.recorder, self.writer, self.rng = network, stack, recorder, writer, rng
        self.experts = self.experts_used = 0

    def forward(self, *, scale: float = 1.0, count: int | None = None) -> list[_Done]:
        """One pass; ``count``: so many groups of blocks only."""
        done: list[_Done] = []
        network, writer = self.network, self.writer
        with writer.root(network.name):
            self._steps(network.before, "before", "", 0, {}, scale, NOT_JUDGED, done)
            for group in network.groups[:count]:
                for number in range(group.count):
                    path = f"{group.path}.{number}"
                    with self.recorder.layer() as layer, writer.block(path, group.kind, number):
                        steps = tuple(self._with_experts()) if self.experts else group.steps
                        self._steps(steps, group.path, path, number, group.classes, scale, layer, done)
            self._steps(network.after, "after", "", 0, {}, scale, NOT_JUDGED, done)
        return done

    def _with_experts(self) -> list[Step]:
        chosen = sorted(self.rng.sample(range(self.experts), self.rng.randint(2, min(self.experts, self.experts_used))))
        return list(expert_steps(chosen))

    def _steps(
        self, steps: tuple[Step, ...], place: str, block: str, number: int, classes: dict[str, str], scale: float,
        layer: int, done: list[_Done],
    ) -> None:  # fmt: skip
        writer, recorder, stack = self.writer, self.recorder, self.stack
        with ExitStack() as held:
            holder = ""
            for step, (path, kind, operator, what) in enumerate(steps):
                own = path.rsplit(".", 1)[0] if kind else path
                own = own if own in classes else path.split(".")[0]
                if block and own != holder:
                    held.close()
                    holder = own
                    if own in classes:
                        held.enter_context(writer.holder(block, number, own, classes[own]))
                spot = f"{place}/{path.translate(_DIGITS) if self.experts else step}"
                with writer.parts(block or "model", number, path, kind, classes), writer.operator(operator) as sequence:
                    if stack.clears(what, spot):
                        recorder.memset(65_536)
                    for kernel in stack.forward(what, spot, scale) if what else ():
                        recorder.kernel(kernel.name, kernel.ns, grid=kernel.grid, block=kernel.block)
                if what:
                    done.append((operator, what, spot, sequence, layer))

    def backward(self, done: list[_Done], thread: _Thread, *, scale: float = 1.0, reduce: str = "") -> None:
        """The gradients in reverse, on the autograd engine's thread; ``reduce``: all-reduce of every so many."""
        recorder = self.recorder
        with recorder.on(thread):
            since = 0
            for operator, what, spot, sequence, layer in reversed(done):
                kernels = self.stack.backward(what, spot, scale)
                home = recorder.labelled(layer=NOT_JUDGED) if layer < 0 else recorder.layer(layer, 1)
                with home, self.writer.gradient(operator, sequence):
                    for kernel in kernels:
                        recorder.kernel(kernel.name, kernel.ns, grid=kernel.grid, block=kernel.block)
                since += what.startswith("gemm")
                if reduce and since >= 12:
                    since = 0
                    with recorder.labelled(layer=NOT_JUDGED):
                        recorder.kernel(reduce, 40 * self.stack.unit_ns, grid=16, block=512, stream=20)

    def optimizer(self, kernels: int) -> None:
        """The update of the weights."""
        with self.writer.phase("optimizer"):
            for _ in range(kernels):
                self.recorder.kernel(STACKS["eager"]["update"][0], 12 * self.stack.unit_ns, grid=320, block=512)

    def zero_grad(self) -> None:
        """The gradients are put to zero (a range without device work, as PyTorch's default is)."""
        with self.writer.phase("zero_grad"):
            self.recorder.wait(8_000)

    def loss(self) -> list[_Done]:
        """The loss after the model's pass."""
        done: list[_Done] = []
        self._steps((("", "", "aten::cross_entropy_loss", "loss"),), "loss", "", 0, {}, 1.0, NOT_JUDGED, done)
        return done

    def sample(self) -> None:
        """The next token is chosen, and the host reads it."""
        with self.recorder.aside():
            for kernel in self.stack.forward("argmax", "sample"):
                self.recorder.kernel(kernel.name, kernel.ns, grid=1, block=kernel.block)
            self.recorder.copy(4, to_host=True)
        self.recorder.synchronize()

    def load_batch(self, *, stream: int = 7) -> None:
        """The input is copied to the device and converted."""
        self.recorder.copy(self.rng.choice((4_096, 600_000)), stream=stream)

    def prepare(self) -> None:
        """Weights are made and copied before anything runs; not part of an execution."""
        recorder = self.recorder
        for _ in range(self.rng.randint(3, 30)):
            recorder.copy(2_000_000)
        if self.rng.random() < 0.5:
            for _ in range(self.rng.randint(5, 40)):
                recorder.kernel(STACKS["eager"]["initialize"][0], 20_000, grid=864, block=256)
                if self.rng.random() < 0.5:
                    recorder.kernel(STACKS["eager"]["convert"][0], 5_000, grid=64)

    def around(self, text: str) -> AbstractContextManager[None]:
        """A range of the program's own."""
        kind = SpanKind.ANNOTATION if self.writer.dialect.is_kineto else SpanKind.PUSH_POP
        return self.recorder.span(text, kind)


_DIGITS = str.maketrans("", "", "0123456789")
