"""How programs mark what they do: the texts of steps, modules, operators and phases in a dozen conventions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random

from generators.recorder import Recorder
from xsp_post.model.trace import SpanKind

LEVELS = ("step", "root", "module", "part", "operator", "phase")


@dataclass(frozen=True)
class Dialect:
    """Texts by level; '' where the convention has none. ``{k}`` number of the step, ``{i}`` of the block, ``{path}``,
    ``{kind}`` and ``{n}`` (instance of its class) of a module, ``{op}`` an operator, ``{what}`` a phase."""

    step: str = ""
    root: str = ""
    module: str = ""  # a block
    part: str = ""  # a module inside a block
    operator: str = ""
    phase: str = ""
    is_kineto: bool = False
    has_gradients: bool = False  # ranges of the autograd engine, with sequence numbers
    phases: dict[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()  # parts that are marked; none: all
    optional: tuple[str, ...] = ()  # levels that a program may leave out


def _own(step: str, module: str, part: str = "", root: str = "", **more: str) -> Dialect:
    return Dialect(step, root, module, part, optional=("step", "module", "part", "root"), **more)


_TORCH_PHASES = {"forward": "## forward ##", "backward": "## backward ##", "optimizer": "Optimizer.step#AdamW.step",
                 "zero_grad": "Optimizer.zero_grad#AdamW.zero_grad"}  # fmt: skip
_PLAIN_PHASES = {"forward": "forward", "backward": "backward", "optimizer": "optimizer"}

DIALECTS: dict[str, Dialect] = {
    "none": Dialect(),
    "emit_nvtx": Dialect("", "", "", "", "{op}", "", has_gradients=True),
    "emit_nvtx_steps": Dialect("step {k}", "", "", "", "{op}", "{what}", has_gradients=True, phases=_PLAIN_PHASES),
    "kineto": Dialect(
        "ProfilerStep#{k}",
        "nn.Module: {kind}_0",
        "nn.Module: {kind}_{i}",
        "nn.Module: {kind}_{n}",
        "{op}",
        "{what}",
        True,
        True,
        _TORCH_PHASES,
        ("step",),
    ),
    "kineto_operators": Dialect(
        "ProfilerStep#{k}", "", "", "", "{op}", "{what}", True, True, _TORCH_PHASES, ("step", "phase")
    ),
    "kineto_annotations": Dialect(
        "iteration {k}",
        "",
        "block {i}",
        "",
        "{op}",
        "{what}",
        True,
        True,
        {"forward": "forward_pass", "backward": "backward_pass", "optimizer": "Optimizer.step#SGD.step"},
        ("module", "phase"),
    ),
    "hooks": Dialect("forward", "", "{path}", "{path}", "", "{what}", phases=_PLAIN_PHASES, optional=("step",)),
    "pyprof": Dialect(
        "Iteration {k}",
        "",
        "{{'Module': '{path}', 'Inputs': [[8, 128, 768]]}}",
        "{{'Module': '{path}', 'Inputs': [[8, 128, 768]]}}",
        "",
        "",
        optional=("step", "part"),
    ),
    "counters": _own("iteration_{k}", "layer_{i}", "layer_{i}_{what}"),
    "iteration": Dialect("iteration {k}", phase="{what}", phases=_PLAIN_PHASES, optional=("phase",)),
    "bare": _own("step", "transformer layer", "{what}", phase="{what}"),
    "batches": _own("batch {k} of 128", "Block[{i}]", ""),
    "xsp_like": _own("inference #{k}", "{path} ({kind})", "{path} ({kind})"),
    "tensorrt": Dialect("ExecutionContext::enqueue", "", "", "/{slashed}/{camel}", "", ""),
    "megatron": Dialect(
        "train-step",
        "",
        "megatron.core.transformer.transformer_layer.TransformerLayer.forward",
        "megatron.core.transformer.transformer_layer.TransformerLayer._forward_{what}",
        "",
        "{what}",
        phases={"forward": "forward-compute", "backward": "backward-compute", "optimizer": "optimizer"},
        optional=("step",),
    ),
    "jax": Dialect("train#step_num={k},_r=1#", "XlaModule:#hlo_module={root},program_id=7#", "", "", "", ""),
    "vllm": Dialect(
        "execute_{tokens}_context_{context}(sq{tokens}sk{tokens})_generation_{batch}(sq{batch}sk4096)",
        "nn.Module: {kind}_0",
        "nn.Module: {kind}_{i}",
        "nn.Module: {kind}_{n}",
        "{op}",
        "",
        True,
        False,
        {},
        ("root", "module", "part"),
    ),
    "sglang": Dialect(
        "step[{mode} bs={batch} toks={tokens}]",
        "nn.Module: {kind}_0",
        "nn.Module: {kind}_{i}",
        "nn.Module: {kind}_{n}",
        "{op}",
        "",
        True,
        False,
        {},
        ("root", "module", "part"),
    ),
    "attention": Dialect(
        "",
        "",
        "",
        "scaled dot product attention",
        only=("attn", "self_attn", "attention.self", "layer.0.SelfAttention"),
    ),
    "phases": Dialect(),  # texts follow
    "tokens": _own("token_{k}_processing", "layer_{i}_token", ""),
    "decode_steps": _own("decode_token", "decoder_layer_{i}", "{what}"),
}
KINETO = frozenset(name for name, dialect in DIALECTS.items() if dialect.is_kineto)

# What programs that mark themselves write: a word and a number, in one of these forms.
_STEP_WORDS = (
    "iteration", "iter", "step", "batch", "token", "frame", "sample", "request", "image", "Step", "denoise_step", "run",
    "inference", "time_step", "decode", "generation", "minibatch",
)  # fmt: skip
_STEP_FORMS = (
    "{word} {{k}}", "{word}_{{k}}", "{word}-{{k}}", "{word}{{k}}", "{word}#{{k}}", "{word}[{{k}}]", "[{{k}}] {word}",
    "{word}_{{k}}_processing", "{word} {{k}}/50", "{word}: {{k}}", "process_{word}_{{k}}", "{word}",
    "model {word} {{k}}",
)  # fmt: skip
_LAYER_WORDS = ("layer", "block", "encoder_layer", "decoder layer", "transformer_block", "Layer", "resblock", "h")
_LAYER_FORMS = (
    "{word}_{{i}}", "{word} {{i}}", "{word}.{{i}}", "{word}[{{i}}]", "{word}{{i}}", "{word}_{{i}}_token", "{word}",
    "forward {word} {{i}}", "{{kind}} {{i}}", "{word}_{{i}} (forward)",
)  # fmt: skip


def _free(rng: Random) -> Dialect:
    """Texts as somebody may have chosen them."""
    step = rng.choice(_STEP_FORMS).format(word=rng.choice(_STEP_WORDS))
    layer = rng.choice(_LAYER_FORMS).format(word=rng.choice(_LAYER_WORDS))
    part = rng.choice(("", "", "{what}", "{what}_forward"))
    return Dialect(step, "", layer, part, optional=("module", "part"))


INFERENCE = (
    "none", "emit_nvtx_steps", "kineto", "kineto_operators", "kineto_annotations", "hooks", "pyprof", "counters",
    "iteration", "bare", "batches", "xsp_like", "attention", "free", "free", "free", "free",
)  # fmt: skip
TRAINING = (
    "none", "emit_nvtx", "emit_nvtx_steps", "kineto", "kineto_operators", "kineto_annotations", "iteration", "bare",
    "megatron", "hooks", "free",
)  # fmt: skip


def camel(text: str) -> str:
    """`layer_norm` → `LayerNorm`."""
    return "".join(word[:1].upper() + word[1:] for word in text.split("_"))


class Writer:
    """Writes the ranges of one program. ``shown``: the levels that it marks."""

    def __init__(self, recorder: Recorder, name: str, rng: Random) -> None:
        self.recorder, self.name = recorder, name
        self.dialect = _free(rng) if name == "free" else DIALECTS[name]
        dialect = self.dialect
        gone = {level for level in dialect.optional if rng.random() < 0.3}
        if gone >= {"step", "root", "module"} & set(dialect.optional):
            gone -= {"step", "module"}
        self.shown = {level for level in LEVELS if getattr(dialect, level) and level not in gone}
        self.first = rng.choice((0, 0, 1, 100))
        self.sequence = rng.randint(100, 9_000)
        self.instances: dict[str, int] = {}

    @property
    def marks_layers(self) -> bool:
        """Whether a range says where a block begins and ends."""
        return "module" in self.shown

    @property
    def marks_parts_only(self) -> bool:
        """Whether ranges name modules inside blocks, and none the blocks: which of them are layers is open."""
        return "part" in self.shown and "module" not in self.shown and not self.dialect.only

    def step(self, number: int, **fields: object) -> AbstractContextManager[None]:
        """Around one model execution."""
        kind = SpanKind.ANNOTATION if self.dialect.is_kineto else SpanKind.PUSH_POP
        text = self.dialect.step.format(k=self.first + number, **fields) if "step" in self.shown else ""
        self.instances.clear()
        return self.recorder.span(text, kind)

    def root(self, kind: str) -> AbstractContextManager[None]:
        """Around a call of the whole model."""
        text = self.dialect.root.format(kind=kind, root=f"jit_{kind.lower()}") if "root" in self.shown else ""
        return self.recorder.span(text, SpanKind.MODULE if self.dialect.is_kineto else SpanKind.PUSH_POP)

    def phase(self, what: str) -> AbstractContextManager[None]:
        """Around a part of a step."""
        text = self.dialect.phases.get(what, "") if "phase" in self.shown else ""
        return self.recorder.span(text, SpanKind.ANNOTATION if self.dialect.is_kineto else SpanKind.PUSH_POP)

    def block(self, path: str, kind: str, number: int) -> AbstractContextManager[None]:
        """Around one block."""
        if "module" not in self.shown:
            return nullcontext()
        return self._module(self.dialect.module, path, kind, number)

    def _module(self, text: str, path: str, kind: str, number: int) -> AbstractContextManager[None]:
        said = SpanKind.PUSH_POP
        if self.dialect.is_kineto:
            said = SpanKind.MODULE if text.startswith("nn.Module") else SpanKind.ANNOTATION
        instance = self.instances[kind] = self.instances.get(kind, -1) + 1
        last = path.rsplit(".", 1)[-1]
        return self.recorder.span(
            text.format(path=path, kind=kind, n=instance, i=number, what=last, slashed=path.replace(".", "/"),
                        camel=camel(last)), said)  # fmt: skip

    @contextmanager
    def parts(self, block: str, number: int, path: str, kind: str, classes: dict[str, str]) -> Iterator[None]:
        """Around one module inside a block: the modules that hold it, and itself."""
        if "part" not in self.shown or not path or self.dialect.only:
            yield
            return
        with ExitStack() as stack:
            if kind:
                stack.enter_context(self._module(self.dialect.part, f"{block}.{path}", kind, number))
            yield

    def holder(self, block: str, number: int, path: str, kind: str) -> AbstractContextManager[None]:
        """Around the modules that one module holds."""
        if "part" not in self.shown or (self.dialect.only and path not in self.dialect.only):
            return nullcontext()
        return self._module(self.dialect.part, f"{block}.{path}", kind, number)

    @contextmanager
    def operator(self, name: str) -> Iterator[int]:
        """Around one operator; gives its sequence number."""
        if "operator" not in self.shown:
            yield -1
            return
        self.sequence += 1
        kind = SpanKind.OPERATOR if self.dialect.is_kineto else SpanKind.PUSH_POP
        text = name if self.dialect.is_kineto else f"{name}, seq = {self.sequence}, op_id = {3 * self.sequence}"
        with self.recorder.span(text, kind, sequence=self.sequence, spent=400):
            yield self.sequence

    @contextmanager
    def gradient(self, name: str, sequence: int) -> Iterator[None]:
        """Around the gradient of an operator."""
        if not self.dialect.has_gradients or sequence < 0:
            yield
            return
        kind = SpanKind.OPERATOR if self.dialect.is_kineto else SpanKind.PUSH_POP
        grad = f"{camel(name.split('::')[-1].strip('_'))}Backward0"
        number = "" if self.dialect.is_kineto else f", op_id = {5 * sequence}"
        own = grad if self.dialect.is_kineto else f"{grad}, seq = {sequence}, op_id = {5 * sequence + 1}"
        with (
            self.recorder.span(
                f"autograd::engine::evaluate_function: {grad}{number}", kind, sequence=sequence, spent=300
            ),
            self.recorder.span(own, kind, sequence=sequence, spent=300),
        ):
            yield
