"""Networks as data: which modules a block has, which operators they call, which kernels these launch on which stack.

A step of a block is (path of the module, its class, operator, what is computed). A stack says which kernels compute
that, with the names that the libraries give them. Kernels, grids and lengths follow from the place in the network:
every block of one kind launches the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

Step = tuple[str, str, str, str]  # module path, class, operator, what is computed


class Kernel(NamedTuple):
    name: str
    ns: int
    grid: int
    block: int


@dataclass(frozen=True)
class Group:
    """Blocks that follow each other and are alike."""

    path: str  # `model.layers`: the blocks are `model.layers.0` …
    kind: str  # class of a block
    count: int
    steps: tuple[Step, ...]
    classes: dict[str, str] = field(default_factory=dict)  # class of a module inside that holds others


@dataclass(frozen=True)
class Network:
    """Work before the blocks, groups of blocks, work after them."""

    name: str  # class of the whole
    before: tuple[Step, ...]
    groups: tuple[Group, ...]
    after: tuple[Step, ...]
    are_blocks_equal: bool = True  # else the blocks differ from each other: only names can tell them


GPT_BLOCK: tuple[Step, ...] = (
    ("ln_1", "LayerNorm", "aten::layer_norm", "norm"),
    ("attn.c_attn", "Conv1D", "aten::addmm", "gemm_qkv"),
    ("attn", "", "aten::split", ""),
    ("attn", "", "aten::scaled_dot_product_attention", "attention"),
    ("attn.c_proj", "Conv1D", "aten::addmm", "gemm"),
    ("attn.resid_dropout", "Dropout", "aten::dropout", "dropout"),
    ("", "", "aten::add", "add"),
    ("ln_2", "LayerNorm", "aten::layer_norm", "norm"),
    ("mlp.c_fc", "Conv1D", "aten::addmm", "gemm_up"),
    ("mlp.act", "NewGELUActivation", "aten::gelu", "gelu"),
    ("mlp.c_proj", "Conv1D", "aten::addmm", "gemm_down"),
    ("", "", "aten::add", "add"),
)
LLAMA_BLOCK: tuple[Step, ...] = (
    ("input_layernorm", "LlamaRMSNorm", "aten::pow", "rms"),
    ("self_attn.q_proj", "Linear", "aten::linear", "gemm"),
    ("self_attn.k_proj", "Linear", "aten::linear", "gemm_small"),
    ("self_attn.v_proj", "Linear", "aten::linear", "gemm_small"),
    ("self_attn", "", "aten::mul", "rope"),
    ("self_attn", "", "aten::cat", "cache"),
    ("self_attn", "", "aten::scaled_dot_product_attention", "attention"),
    ("self_attn.o_proj", "Linear", "aten::linear", "gemm"),
    ("", "", "aten::add", "add"),
    ("post_attention_layernorm", "LlamaRMSNorm", "aten::pow", "rms"),
    ("mlp.gate_proj", "Linear", "aten::linear", "gemm_up"),
    ("mlp.act_fn", "SiLU", "aten::silu", "silu"),
    ("mlp.up_proj", "Linear", "aten::linear", "gemm_up"),
    ("mlp", "", "aten::mul", "mul"),
    ("mlp.down_proj", "Linear", "aten::linear", "gemm_down"),
    ("", "", "aten::add", "add"),
)
BERT_BLOCK: tuple[Step, ...] = (
    ("attention.self.query", "Linear", "aten::linear", "gemm"),
    ("attention.self.key", "Linear", "aten::linear", "gemm"),
    ("attention.self.value", "Linear", "aten::linear", "gemm"),
    ("attention.self", "", "aten::matmul", "scores"),
    ("attention.self", "", "aten::div", "mul"),
    ("attention.self", "", "aten::softmax", "softmax"),
    ("attention.self", "", "aten::matmul", "values"),
    ("attention.output.dense", "Linear", "aten::linear", "gemm"),
    ("attention.output", "", "aten::add", "add"),
    ("attention.output.LayerNorm", "LayerNorm", "aten::layer_norm", "norm"),
    ("intermediate.dense", "Linear", "aten::linear", "gemm_up"),
    ("intermediate", "", "aten::gelu", "gelu"),
    ("output.dense", "Linear", "aten::linear", "gemm_down"),
    ("output", "", "aten::add", "add"),
    ("output.LayerNorm", "LayerNorm", "aten::layer_norm", "norm"),
)
DECODER_BLOCK: tuple[Step, ...] = (
    ("layer.0.layer_norm", "T5LayerNorm", "aten::pow", "rms"),
    ("layer.0.SelfAttention.q", "Linear", "aten::linear", "gemm"),
    ("layer.0.SelfAttention.k", "Linear", "aten::linear", "gemm"),
    ("layer.0.SelfAttention.v", "Linear", "aten::linear", "gemm"),
    ("layer.0.SelfAttention", "", "aten::matmul", "scores"),
    ("layer.0.SelfAttention", "", "aten::add_", "add"),
    ("layer.0.SelfAttention", "", "aten::softmax", "softmax"),
    ("layer.0.SelfAttention", "", "aten::matmul", "values"),
    ("layer.0.SelfAttention.o", "Linear", "aten::linear", "gemm"),
    ("layer.0", "", "aten::add", "add"),
    ("layer.1.layer_norm", "T5LayerNorm", "aten::pow", "rms"),
    ("layer.1.EncDecAttention.q", "Linear", "aten::linear", "gemm"),
    ("layer.1.EncDecAttention", "", "aten::matmul", "scores"),
    ("layer.1.EncDecAttention", "", "aten::softmax", "softmax"),
    ("layer.1.EncDecAttention", "", "aten::matmul", "values"),
    ("layer.1.EncDecAttention.o", "Linear", "aten::linear", "gemm"),
    ("layer.1", "", "aten::add", "add"),
    ("layer.2.layer_norm", "T5LayerNorm", "aten::pow", "rms"),
    ("layer.2.DenseReluDense.wi", "Linear", "aten::linear", "gemm_up"),
    ("layer.2.DenseReluDense.act", "ReLU", "aten::relu", "relu"),
    ("layer.2.DenseReluDense.wo", "Linear", "aten::linear", "gemm_down"),
    ("layer.2", "", "aten::add", "add"),
)
ENCODER_BLOCK = DECODER_BLOCK[:10] + DECODER_BLOCK[17:]
MIXER_BLOCK: tuple[Step, ...] = (
    ("norm", "RMSNorm", "aten::pow", "rms"),
    ("mixer.in_proj", "Linear", "aten::linear", "gemm_up"),
    ("mixer.conv1d", "Conv1d", "aten::conv1d", "conv1d"),
    ("mixer", "", "mamba_ssm::selective_scan_fwd", "scan"),
    ("mixer.out_proj", "Linear", "aten::linear", "gemm_down"),
    ("", "", "aten::add", "add"),
)
MOE_HEAD: tuple[Step, ...] = (
    *LLAMA_BLOCK[:10],
    ("mlp.gate", "Linear", "aten::linear", "gemm_small"),
    ("mlp", "", "aten::softmax", "softmax"),
    ("mlp", "", "aten::topk", "topk"),
)
EXPERT: tuple[Step, ...] = (
    ("mlp.experts.{}", "", "aten::index", "gather"),
    ("mlp.experts.{}.w1", "Linear", "aten::linear", "gemm_up"),
    ("mlp.experts.{}.act_fn", "SiLU", "aten::silu", "silu"),
    ("mlp.experts.{}.w3", "Linear", "aten::linear", "gemm_up"),
    ("mlp.experts.{}", "", "aten::mul", "mul"),
    ("mlp.experts.{}.w2", "Linear", "aten::linear", "gemm_down"),
    ("mlp.experts.{}", "", "aten::index_add_", "scatter"),
)
BOTTLENECK: tuple[Step, ...] = (
    ("conv1", "Conv2d", "aten::conv2d", "conv"),
    ("bn1", "BatchNorm2d", "aten::batch_norm", "batch_norm"),
    ("relu", "ReLU", "aten::relu_", "relu"),
    ("conv2", "Conv2d", "aten::conv2d", "conv3"),
    ("bn2", "BatchNorm2d", "aten::batch_norm", "batch_norm"),
    ("relu", "ReLU", "aten::relu_", "relu"),
    ("conv3", "Conv2d", "aten::conv2d", "conv"),
    ("bn3", "BatchNorm2d", "aten::batch_norm", "batch_norm"),
    ("", "", "aten::add_", "add"),
    ("relu", "ReLU", "aten::relu_", "relu"),
)


def _stacks() -> dict[str, dict[str, tuple[str, ...]]]:
    """The kernels of each stack, by what is computed (kernels.tsv). PyTorch's own are in all but one of them."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for line in Path(__file__).with_name("kernels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        stack, what, name = line.split("\t")
        own = found.setdefault(stack, {})
        own[what] = (*own.get(what, ()), name) if name else ()
    eager = found["eager"]
    return {stack: own if stack in ("llama_cpp", "gradient") else eager | own for stack, own in found.items()}


STACKS = _stacks()

_LENGTHS = {"gemm": 9, "scores": 7, "values": 7, "attention": 12, "conv": 10, "head": 30, "scan": 15}


class Stack:
    """The kernels of one program: name, length, grid and block by what is computed and where."""

    def __init__(self, name: str, rng: Random) -> None:
        self.name, self.names, self.rng = name, STACKS[name], rng
        self.unit_ns = rng.choice((2_000, 6_000, 20_000))
        self.clearing = rng.choice((0.0, 0.0, 0.5)) if name in ("hopper", "ampere") else 0.0
        self.known: dict[tuple[str, str, str, float], tuple[Kernel, ...]] = {}

    def clears(self, what: str, place: str) -> bool:
        """Whether the library clears its workspace before a product."""
        return what.startswith("gemm") and Random(f"{self.unit_ns} {self.name} {place}").random() < self.clearing

    def forward(self, what: str, place: str, scale: float = 1.0) -> tuple[Kernel, ...]:
        """The kernels of a computation. ``place``: where in a block; ``scale``: of the problem's size."""
        return self._kernels(what, place, "", scale)

    def backward(self, what: str, place: str, scale: float = 1.0) -> tuple[Kernel, ...]:
        """The kernels of its gradient."""
        return self._kernels(what, place, "backward", scale)

    def _kernels(self, what: str, place: str, direction: str, scale: float) -> tuple[Kernel, ...]:
        key = (what, place, direction, scale)
        if key not in self.known:
            names = self.names.get(what, ())
            if direction:
                names = _gradient(what, names)
            rng = Random(f"{self.name} {what} {place} {direction}")
            number = rng.randint(0, 30)
            heavy = next((v for k, v in _LENGTHS.items() if what.startswith(k)), 1)
            self.known[key] = tuple(
                Kernel(
                    name.format(number + k),
                    int(self.unit_ns * scale * heavy * (0.7 + 0.6 * rng.random())),
                    max(1, int(scale * rng.choice((8, 20, 36, 80, 128, 264)) * (1 + 3 * (heavy < 2)))),
                    rng.choice((128, 256)),
                )
                for k, name in enumerate(names)
            )
        return self.known[key]


def _gradient(what: str, names: tuple[str, ...]) -> tuple[str, ...]:
    for beginning, kernels in STACKS["gradient"].items():
        if what.startswith(beginning) or (beginning == "gemm" and what in ("scores", "values", "head")):
            return tuple(kernel.format(names[0] if names else "gemm") for kernel in kernels) if names else ()
    return tuple(f"{name.split('(')[0]}_backward" for name in names[:1])


_LM_BEFORE: tuple[Step, ...] = (("embed_tokens", "Embedding", "aten::embedding", "embedding"),)
_LM_AFTER: tuple[Step, ...] = (
    ("norm", "LlamaRMSNorm", "aten::pow", "rms"),
    ("lm_head", "Linear", "aten::linear", "head"),
)


def _llama(rng: Random, count: int) -> Network:
    family = rng.choice(("Llama", "Qwen2", "Mistral"))
    steps = tuple((path, kind.replace("Llama", family), *rest) for path, kind, *rest in LLAMA_BLOCK)
    group = Group(
        "model.layers",
        f"{family}DecoderLayer",
        count,
        steps,
        {"self_attn": f"{family}Attention", "mlp": f"{family}MLP"},
    )
    return Network(f"{family}ForCausalLM", _LM_BEFORE, (group,), _LM_AFTER)


def _gpt(rng: Random, count: int) -> Network:
    before = (
        ("wte", "Embedding", "aten::embedding", "embedding"),
        ("wpe", "Embedding", "aten::embedding", "embedding"),
        ("", "", "aten::add", "add"),
    )
    after = (("ln_f", "LayerNorm", "aten::layer_norm", "norm"), ("lm_head", "Linear", "aten::linear", "head"))
    group = Group("transformer.h", "GPT2Block", count, GPT_BLOCK, {"attn": "GPT2Attention", "mlp": "GPT2MLP"})
    return Network("GPT2LMHeadModel", before, (group,), after)


def _bert(rng: Random, count: int) -> Network:
    before = (
        ("embeddings.word_embeddings", "Embedding", "aten::embedding", "embedding"),
        ("embeddings", "", "aten::add", "add"),
        ("embeddings.LayerNorm", "LayerNorm", "aten::layer_norm", "norm"),
    )
    after = (
        ("pooler.dense", "Linear", "aten::linear", "gemm_small"),
        ("classifier", "Linear", "aten::linear", "gemm_small"),
    )
    group = Group(
        "bert.encoder.layer",
        "BertLayer",
        count,
        BERT_BLOCK,
        {
            "attention": "BertAttention",
            "attention.self": "BertSelfAttention",
            "attention.output": "BertSelfOutput",
            "intermediate": "BertIntermediate",
            "output": "BertOutput",
        },
    )
    return Network("BertForSequenceClassification", before, (group,), after)


def _t5(rng: Random, count: int) -> Network:
    inner = {
        f"layer.{k}": kind for k, kind in enumerate(("T5LayerSelfAttention", "T5LayerCrossAttention", "T5LayerFF"))
    }
    inner |= {
        "layer.0.SelfAttention": "T5Attention",
        "layer.1.EncDecAttention": "T5Attention",
        "layer.2.DenseReluDense": "T5DenseActDense",
    }
    groups = (
        Group("encoder.block", "T5Block", count, ENCODER_BLOCK, inner),
        Group("decoder.block", "T5Block", max(2, count - rng.choice((0, 0, 2))), DECODER_BLOCK, inner),
    )
    return Network("T5ForConditionalGeneration", _LM_BEFORE, groups, _LM_AFTER)


def _mamba(rng: Random, count: int) -> Network:
    return Network(
        "MambaForCausalLM", _LM_BEFORE, (Group("backbone.layers", "MambaBlock", count, MIXER_BLOCK),), _LM_AFTER
    )


def _resnet(rng: Random, count: int) -> Network:
    before = (
        ("conv1", "Conv2d", "aten::conv2d", "conv"),
        ("bn1", "BatchNorm2d", "aten::batch_norm", "batch_norm"),
        ("relu", "ReLU", "aten::relu_", "relu"),
        ("maxpool", "MaxPool2d", "aten::max_pool2d", "pool"),
    )
    depths = ((3, 4, 6, 3), (2, 2, 2, 2), (3, 4, 23, 3))[min(2, rng.randint(0, 3) % 3)]
    groups = tuple(Group(f"layer{k + 1}", "Bottleneck", depth, BOTTLENECK) for k, depth in enumerate(depths))
    return Network("ResNet", before, groups, (("fc", "Linear", "aten::linear", "gemm_small"),), are_blocks_equal=False)


NETWORKS = {"llama": _llama, "gpt": _gpt, "bert": _bert, "t5": _t5, "mamba": _mamba, "resnet": _resnet}


def network(name: str, rng: Random, count: int) -> Network:
    """A network with that many blocks."""
    return NETWORKS[name](rng, count)


def expert_steps(chosen: list[int]) -> Iterator[Step]:
    """The steps of a mixture-of-experts block whose router chose these experts."""
    yield from MOE_HEAD
    for expert in chosen:
        for path, kind, operator, what in EXPERT:
            yield path.format(expert), kind, operator, what
    yield "", "", "aten::add", "add"
