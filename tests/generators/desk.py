"""What authors of programs share: a process that writes ranges of several dialects, and how a recording is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from generators.machine import NOT_JUDGED, US, Machine, Program, Thread, cut, lose

MATRIX = ("nvjet", "gemm", "cutlass_", "_conv")


@dataclass
class Named(Program):
    """A program with the names of its layers."""

    names: dict[int, str] = field(default_factory=dict)


def backward_of(name: str, us: float) -> list[tuple[str, float]]:
    """What autograd launches for a kernel of the forward pass: name and µs."""
    if "flash" in name or "fmha" in name or "sdpa" in name:
        if "cudnn" in name:
            return [
                ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_30_128x128x128_kernel0_0", 2 * us)
            ]
        return [("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128>>(P)", us / 6),
                ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>(P)",
                 2 * us)]  # fmt: skip
    if "fprop" in name:
        return [
            (name.replace("fprop", "dgrad"), us),
            (name.replace("fprop", "wgrad").replace("_gemm_", "_gemm_indexed_"), us),
        ]
    if any(word in name for word in MATRIX):
        back = name.replace("TNT", "NNT").replace("_tn", "_nn")
        return [(back, us), (back.replace("NNT", "NTT").replace("_nn", "_nt"), us)]
    if "norm" in name:
        return [
            ("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>(P)", us),
            ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 64, 1>(P)", us),
        ]
    if "SoftMaxForward" in name:
        return [(name.replace("Forward", "Backward"), us)]
    if name.startswith("_"):
        return [(name.replace("fwd", "bwd"), 2 * us)]
    return [
        (
            f"void at::native::vectorized_elementwise_kernel<4, {name.split('<')[0].split('::')[-1]}_backward>(int, P)",
            us,
        )
    ]


class Host:
    """A process with a thread ``t`` that launches."""

    m: Machine
    t: Thread
    is_kineto: bool
    has_ops: bool  # operators are recorded
    op_ids: ClassVar[bool] = False  # and numbered, where they are ranges
    gap: float  # µs of the host before a launch
    speed: float
    stream: int

    @contextmanager
    def new(self, labels: str = "", **fixed: int) -> Iterator[dict[str, int]]:
        """A group of its own under each of the labels."""
        groups = {**{one: self.m.group() for one in labels}, **fixed}
        with self.t.mark(**groups):
            yield groups

    def any(self, labels: str = "xyzwlk") -> Any:
        """What is launched inside may be of any group."""
        return self.t.mark(**dict.fromkeys(labels, NOT_JUDGED))

    @contextmanager
    def elsewhere(self, name: str = "pt_autograd_0", tid: int = 41, *, labels: str = "lk", wakes: int = 25,
                  returns: int = 12) -> Iterator[None]:  # fmt: skip
        """Another thread launches while this one waits; what it launches is not judged under ``labels``.

        ``wakes``, ``returns``: µs until it begins, and until this one goes on.
        """
        main = self.t
        self.t = self.m.thread(tid, main.now, name)
        self.t.wait_until(main.now + wakes * US)
        try:
            with self.any(labels):
                yield
        finally:
            main.wait_until(self.t.now + returns * US)
            self.t = main

    @contextmanager
    def put(self, text: str, **more: Any) -> Iterator[None]:
        """A range, whatever the view; none where the text is empty."""
        if not text:
            yield
        else:
            with self.t.range(text, "user_annotation" if self.is_kineto else "nvtx", **more):
                yield

    def one(
        self, name: str, us: float, operator: str = "", sequence: int = 0, *, back: bool = False, **more: Any
    ) -> None:
        self.t.host(self.gap)
        more.setdefault("stream", self.stream)
        with ExitStack() as stack:
            if self.has_ops and operator:
                node = operator.split("::")[-1].strip("_").title().replace("_", "") + "Backward0"
                if not self.is_kineto:
                    number = "" if back or not self.op_ids else f", op_id = {sequence * 3}"
                    stack.enter_context(self.t.range(f"{node if back else operator}, seq = {sequence}{number}"))
                elif back:
                    args = {"Sequence number": sequence, "Fwd thread id": 1}
                    stack.enter_context(self.t.range(f"autograd::engine::evaluate_function: {node}", "cpu_op"))
                    stack.enter_context(self.t.range(node, "cpu_op", **args))
                else:
                    stack.enter_context(self.t.range(operator, "cpu_op", **{"Sequence number": sequence}))
            self.t.launch(name, us * self.speed, **more)


class Desk(Host):
    """A process and what its recording shows.

    ``view``: "none", "own" (the program's ranges), "emit" (ranges of operators), "torch" (a PyTorch trace), "both" (one
    with the program's ranges). ``modules``: how hooks write a module ("": not).
    """

    blocks: ClassVar[dict[str, list[tuple[str, float]]]] = {}
    # begin with a norm that adds what the layer before left: it is of either layer, where no range says of which
    between: ClassVar[tuple[str, ...]] = ()

    def __init__(self, rng: Random, view: str = "none", *, modules: str = "", host: float = 0, program: str = "python3",
                 pid: int = 0, weights: bool = True) -> None:  # fmt: skip
        self.rng, self.view, self.modules = rng, view, modules
        self.is_kineto = view in ("torch", "both")
        self.has_own, self.has_ops = view in ("own", "both"), view in ("emit", "torch", "both")
        self.m = Machine(
            Random(rng.random()), pid=pid or rng.randint(500, 60_000), jitter=rng.choice((0.03, 0.06, 0.12)),
            launch_us=rng.choice((2.0, 3.0, 4.5, 7.0)), program=program,
        )  # fmt: skip
        self.t: Thread = self.m.thread(0, rng.randint(1_000_000, 3_000_000_000))
        self.gap, self.speed = host or rng.choice((0.5, 2.0, 5.0, 12.0)), rng.choice((0.4, 0.8, 1.3, 2.5))
        self.stream, self.sequence = rng.choice((7, 7, 13, 24)), rng.randint(0, 50_000)
        self.tape: list[tuple[str, float, str, int]] = []
        self.names: dict[int, str] = {}
        if weights and rng.random() < 0.35:  # the recording began with the process
            with self.t.mark(**dict.fromkeys("xyzw", NOT_JUDGED)), self.say(rng.choice(("load", "setup", "init", ""))):
                for _ in range(rng.randint(2, 30)):
                    self.t.copy(rng.choice((4_096, 1_000_000, 33_554_432)), pageable=rng.random() < 0.7)
                    self.t.host(rng.uniform(5, 300))
            self.t.host(rng.uniform(2_000, 90_000))

    # -- labels and ranges -----------------------------------------------------------------------------------

    def say(self, text: str, **more: Any) -> Any:
        """A range of the program's own."""
        return self.put(text if self.has_own else "", **more)

    @contextmanager
    def step(self, text: str = "", labels: str = "x", **fixed: int) -> Iterator[dict[str, int]]:
        with self.new(labels, **fixed) as groups, self.say(text):
            yield groups

    def called(self, kind: str, number: int, path: str) -> str:
        """What hooks call a module."""
        return {"path": f"{path}.{number}", "class": kind, "both": f"{path}.{number} ({kind})",
                "step": f"forward/{path}.{number}"}.get(self.modules, "")  # fmt: skip

    @contextmanager
    def layer(
        self, kind: str, number: int, path: str = "model.layers", labels: str = "l", **fixed: int
    ) -> Iterator[dict[str, int]]:
        """A call of a layer and the range that hooks write around it."""
        text = self.called(kind, number, path)
        with self.new(labels, **fixed) as groups, ExitStack() as stack:
            if self.modules == "frame":
                more = {"Python module id": number}
                stack.enter_context(self.t.range(f"nn.Module: {kind}_{number}", "python_function", **more))
            else:
                stack.enter_context(self.put(text))
            if self.modules:
                for one in labels:
                    self.names[groups[one]] = kind if self.modules in ("class", "frame") else f"{path}.{number}"
            yield groups

    # -- work ------------------------------------------------------------------------------------------------

    def go(self, *blocks: str, size: float = 1.0, times: int = 1, taped: bool = False, **more: Any) -> None:
        """The kernels of the blocks."""
        for _ in range(times):
            for block in blocks:
                self.kernels(self.blocks[block], size=size, taped=taped, **more)

    def kernels(
        self, rows: Iterable[tuple[str, float]], *, size: float = 1.0, taped: bool = False, **more: Any
    ) -> None:
        rows = list(rows)
        is_between = not self.modules and any(rows[0] == self.blocks[block][0] for block in self.between)
        for place, (text, us) in enumerate(rows):
            name, _, operator = text.partition(" @")
            self.sequence += 1
            labels = self.m.labels
            with self.any("lk" if is_between and not place and "l" in labels else ""):
                self.one(name, us * size, operator, self.sequence, **more)
            if taped:
                self.tape.append((name, us * size, operator, self.sequence))

    def backward(self, between: Callable[[int], None] | None = None) -> None:
        """Of all that was taped, on the thread of autograd; ``between``: after each kernel of the forward pass."""
        tape, self.tape = self.tape, []
        with self.elsewhere():
            for number, (name, us, operator, sequence) in enumerate(reversed(tape)):
                for kernel, long in backward_of(name, us):
                    self.one(kernel, long, operator, sequence, back=True)
                if between:
                    between(number)

    def graph(
        self, parts: list[tuple[str, dict[str, int]]], base: int, *, size: float = 1.0, opaque: bool = False
    ) -> None:
        """A replay: of each block its labels."""
        nodes, marks = [], []
        for block, labels in parts:
            for place, (text, us) in enumerate(self.blocks[block]):
                nodes.append((text.partition(" @")[0], us * size * self.speed))
                is_between = block in self.between and not place and "l" in labels
                marks.append({**labels, "l": NOT_JUDGED, "k": NOT_JUDGED} if is_between else labels)
        self.t.host(self.gap)
        self.t.graph(nodes, stream=self.stream, node_base=base << 32, marks=marks, opaque=opaque)

    def groups(self, number: int) -> list[int]:
        return [self.m.group() for _ in range(number)]

    def item(self) -> None:
        self.t.item(self.stream)

    def idle(self, low: float, high: float) -> None:
        self.t.host(self.rng.uniform(low, high))

    def program(self, about: str, executions: str = "x", layers: str = "", *, others: list[Machine] | None = None,
                **more: Any) -> Named:  # fmt: skip
        about += f", {self.view}" + f", modules {self.modules}" * bool(self.modules)
        more = {"is_kineto": self.is_kineto, "about": about, "names": self.names, **more}
        return Named("", [self.m, *(others or [])], list(executions), list(layers), **more)


def family_of(families: dict[str, Callable[[Random], Program]], author: str, seed: int) -> tuple[Program, Random]:
    """The program of a seed, families in turn, and what it is drawn with."""
    rng = Random(f"{author} {seed}")
    family = list(families)[seed % len(families)]
    program = families[family](rng)
    program.family = family.replace("_", " ")
    return program, rng


def damaged(program: Program, rng: Random, windows: tuple[tuple[float, float], ...], *, cuts: float = 0.1,
            losses: float = 0.15, launches: float = 0.001) -> Program:  # fmt: skip
    """The recording, in some draws only a window of it (one of ``windows``), in others with rows lost.

    ``launches``: the share of them that is lost then.
    """
    odd = rng.random()
    if program.is_noise:
        return program
    if odd < cuts:
        cut(program, *rng.choice(windows))
        program.about += ", cut"
    elif odd < losses and not program.is_kineto:
        lose(program, rng, 0.002, launches)
        program.about += ", rows lost"
    return program


def whole(program: Program, label: str) -> int:
    """How many groups under a label are in the recording, not cut through."""
    return len({row["labels"].get(label, -1) for m in program.machines for row in m.work} - {-1, NOT_JUDGED})


def drawn(families: dict[str, Callable[[Random], Program]], author: str, seed: int,
          windows: tuple[tuple[float, float], ...]) -> Program:  # fmt: skip
    """The program of a seed, families in turn; one recording in ten is cut, one in twenty lost rows. What is left of an
    execution that was cut through may hold layers or not; of a recording with next to nothing left all is kept."""
    program, rng = family_of(families, author, seed)
    if program.may_be_nothing:
        return program
    damaged(program, rng, windows)
    if program.about.endswith(", cut"):
        for row in (row for machine in program.machines for row in machine.work):
            if row["labels"].get(program.executions[0]) == NOT_JUDGED:
                row["labels"] |= dict.fromkeys(program.layers, NOT_JUDGED)
    if not (program.is_noise or any(whole(program, label) > 1 for label in program.executions)):
        program, _ = family_of(families, author, seed)  # the device was far behind the host
    return program
