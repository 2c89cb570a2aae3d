"""``run`` → capture: from a model's name to a module, its inputs and its phases.

Names: a built-in (`catalogue.BUILT_IN`), ``torchvision:NAME``, ``timm:NAME``, ``transformers:CLASS`` (built from
configuration with random weights, nothing is downloaded), or ``path/to/file.py:factory``. A factory is
called with those of ``batch_size``, ``device`` and ``dtype`` that it names as parameters, and returns
``(module, inputs)`` or ``(module, inputs, {phase: callable})``; inputs are a tensor, a tuple or a dict.

How much work one call of a layer is at the least follows from the sizes of its tensors (`sized_work`). Least bytes are
what has to move: inputs + parameters and buffers + outputs, each once; of an embedding's table the rows that are
looked up.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils.flop_counter import conv_flop_count

from xsp_post.base.errors import ToolError, UsageError
from xsp_post.base.text_safety import did_you_mean
from xsp_post.model.capture import Workload, display_name
from xsp_post.names import range_text
from xsp_post.work.convolutions import read_positions
from xsp_post.workload import gpt, vision
from xsp_post.workload.catalogue import check_name
from xsp_post.workload.vision import Add

FORWARD, TRAIN_STEP, PREFILL, DECODE = "forward", "train_step", "prefill", "decode"
_PROMPT_LENGTH = 64


@dataclass(frozen=True)
class Phase:
    """One model range per iteration: its name, what runs inside, and the same forward work on a copy of the
    model on another device (None where only the user's own callable knows it)."""

    name: str
    run: Callable[[], Any]
    replay: Callable[[nn.Module, torch.device], Any] | None = None


@dataclass
class Parts:
    """Told where forward, backward and optimizer of a training step begin and end, whoever wants to know."""

    begin: Callable[[str], None] = lambda name: None
    end: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Built:
    """A model on its device with what an iteration does: its phases, one after another."""

    model: nn.Module
    phases: tuple[Phase, ...]
    parts: Parts = field(default_factory=Parts)


_VISION: dict[str, Callable[[], nn.Module]] = {
    "resnet50": vision.ResNet50, "mobilenet_v1": vision.MobileNetV1, "vgg16": vision.VGG16,
}  # fmt: skip


def build(workload: Workload, batch_size: int) -> Built:
    """The workload's model with seeded random weights on its device, ready to iterate.

    Raises UsageError for a name or setting that cannot be followed, ToolError for a package that is
    missing or a factory that fails. Memory that runs out passes through as torch raises it.
    """
    check_name(workload.model)
    device = torch.device(workload.device)
    dtype = _dtype(workload.dtype)
    torch.manual_seed(workload.seed)
    collection, separator, name = workload.model.rpartition(":")
    phases: dict[str, Callable[[], Any]] = {}
    if separator and collection.endswith(".py"):
        model, inputs, phases = _from_factory(Path(collection), name, batch_size, device, dtype)
        model = model.to(device=device)
    elif workload.model == "gpt":
        return _gpt(workload, batch_size, device, dtype)
    else:
        if separator:
            model, shape, integer_limit = _from_collection(collection, name)
        else:
            model, shape, integer_limit = _VISION[workload.model](), (3, 224, 224), 0
        model = model.to(device=device, dtype=dtype)
        shape = workload.input_shape or shape
        if integer_limit:
            inputs = torch.randint(integer_limit, (batch_size, *shape)).to(device)
        else:
            inputs = vision.image_batch(batch_size, shape, dtype, device)
    return _assemble(workload, model, inputs, phases)


def _assemble(workload: Workload, model: nn.Module, inputs: Any, phases: dict[str, Callable[[], Any]]) -> Built:
    positional, named = _arguments(inputs)
    model.train(workload.mode == "train")
    runner = torch.compile(model) if workload.is_compiled else model

    def replay(module: nn.Module, device: torch.device) -> Any:
        return module(*_moved(positional, device), **_moved(named, device))

    parts = Parts()
    listed: tuple[Phase, ...]
    if workload.mode == "train":
        listed = (Phase(TRAIN_STEP, _training_step(model, runner, positional, named, parts), replay),)
    elif phases:
        listed = tuple(Phase(phase, run) for phase, run in phases.items())
    else:
        listed = (Phase(FORWARD, lambda: runner(*positional, **named), replay),)
    return Built(model, listed, parts)


def _training_step(
    model: nn.Module, runner: Callable[..., Any], positional: Sequence[Any], named: dict[str, Any], parts: Parts
) -> Callable[[], Any]:
    """Forward, backward of the mean output, SGD step. The loss is a stand-in: time is measured, not learning."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        parts.begin(range_text.FORWARD)
        loss = _first_tensor(runner(*positional, **named)).float().mean()
        parts.end()
        parts.begin(range_text.BACKWARD)
        loss.backward()
        parts.end()
        parts.begin(range_text.OPTIMIZER)
        optimizer.step()
        parts.end()
        return loss.detach()

    return step


def _gpt(workload: Workload, batch_size: int, device: torch.device, dtype: torch.dtype) -> Built:
    """Prefill of a prompt, then one decode step: two phases, since they are bound by different things."""
    length = workload.input_shape[0] if workload.input_shape else _PROMPT_LENGTH
    if not 1 <= length < gpt.CONTEXT:
        said = f"A prompt of {length} tokens does not fit gpt's context of {gpt.CONTEXT}."
        raise UsageError(said, code="model-input", hint=f"Choose --input-shape 1 … {gpt.CONTEXT - 1}.")
    model = gpt.GPT().to(device=device, dtype=dtype)
    prompt = torch.randint(gpt.VOCABULARY, (batch_size, length)).to(device)
    token = torch.randint(gpt.VOCABULARY, (batch_size, 1)).to(device)
    if workload.mode == "train":
        raise UsageError("The built-in gpt is for inference: its cache has no gradient.", code="model-input")
    model.eval()
    runner = torch.compile(model) if workload.is_compiled else model

    def phase(name: str, tokens: Tensor, position: int) -> Phase:
        return Phase(name, lambda: runner(tokens, position), lambda module, where: module(tokens.to(where), position))

    return Built(model, (phase(PREFILL, prompt, 0), phase(DECODE, token, length)))


def _from_factory(
    file: Path, name: str, batch_size: int, device: torch.device, dtype: torch.dtype
) -> tuple[nn.Module, Any, dict[str, Callable[[], Any]]]:
    module = _import_file(file)
    factory = getattr(module, name, None)
    if not callable(factory):
        offer = did_you_mean(name, [n for n in vars(module) if callable(vars(module)[n])])
        raise UsageError(f"{file.name} has no function {name!r}. {offer}".rstrip(), code="model-unknown")
    offered = {"batch_size": batch_size, "device": device, "dtype": dtype}
    parameters = inspect.signature(factory).parameters
    result = factory(**{key: value for key, value in offered.items() if key in parameters})
    is_pair = isinstance(result, (tuple, list)) and len(result) in (2, 3) and isinstance(result[0], nn.Module)
    if not is_pair:
        said = f"{display_name(f'{file}:{name}')} returned {type(result).__name__}, not (module, inputs)."
        raise UsageError(said, code="model-factory")
    phases = dict(result[2]) if len(result) == 3 else {}
    return result[0], _moved(result[1], device), phases


def _import_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_xsp_workload_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file.name} cannot be imported as Python.", code="model-unknown")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _from_collection(collection: str, name: str) -> tuple[nn.Module, tuple[int, ...], int]:
    """Module, shape of one input, and the limit of integer inputs (0: real-valued inputs)."""
    try:
        library = importlib.import_module(collection)
    except ImportError:
        said = f"{collection}:{name} needs the package {collection}, which is not installed."
        raise ToolError(said, code="model-package", hint=f"Install it: pip install {collection}.") from None
    if collection == "torchvision":
        models = library.models
        _check_offer(collection, name, models.list_models())
        return models.get_model(name, weights=None), (3, 224, 224), 0
    if collection == "timm":
        _check_offer(collection, name, library.list_models())
        model = library.create_model(name, pretrained=False)
        return model, tuple(model.default_cfg.get("input_size", (3, 224, 224))), 0
    _check_offer(collection, name, [n for n in dir(library) if n.endswith(("Model", "LM", "Classification"))])
    cls = getattr(library, name)
    model = cls(cls.config_class())
    return model, (_PROMPT_LENGTH,), int(getattr(model.config, "vocab_size", 2))


def _check_offer(collection: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        said = f"{collection} has no model {name!r}. {did_you_mean(name, names)}".rstrip()
        raise UsageError(said, code="model-unknown", hint=f"{collection} lists {len(names)} models.")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise UsageError(f"{name!r} is not a floating-point type of torch.", code="model-input")
    return dtype


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), inputs
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _moved(value: Any, device: torch.device) -> Any:
    """The same nest of tuples, lists and dicts with its tensors on ``device``."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    return value


def _first_tensor(value: Any) -> Tensor:
    for tensor in tensors(value):
        return tensor
    raise UsageError("The model's output holds no tensor to train on.", code="model-input")


def tensors(value: Any) -> list[Tensor]:
    """All tensors in a nest of tuples, lists, dicts and objects like dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


# Layers of torch whose flop hang on more than the sizes of their first input and output.
_UNSAID = (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, nn.Bilinear)

# Layers of torch that look at their input in another way and move nothing.
_VIEWS = (nn.Flatten, nn.Unflatten, nn.Identity)


def sized_work(module: nn.Module, inputs: Any, output: Any) -> tuple[int, int] | None:
    """(forward flop, least bytes) of one call of a layer of torch.nn; None for what its sizes do not say.

    Flops are counted as `torch.utils.flop_counter` does: 2 per multiply-add of convolutions and matrix products,
    elementwise work 0. A layer that somebody wrote may compute anything, so nothing is said of it.
    """
    read, written = tensors(inputs), tensors(output)
    if isinstance(module, Add) and len(written) == 1:
        return 0, bytes_of(inputs) + bytes_of(output)
    if isinstance(module, _VIEWS):
        return 0, 0
    is_known = type(module).__module__.startswith("torch.nn.modules.") and next(module.children(), None) is None
    if not is_known or isinstance(module, _UNSAID) or not read or len(written) != 1:
        return None
    flop = 0
    if isinstance(module, _ConvNd):
        if read[0].dim() != module.weight.dim():  # without a batch
            return None
        read_size, weight_size, written_size = (list(tensor.shape) for tensor in (read[0], module.weight, written[0]))
        is_transposed = isinstance(module, _ConvTransposeNd)
        flop = conv_flop_count(read_size, weight_size, written_size, transposed=is_transposed)
    elif isinstance(module, nn.Linear):
        flop = 2 * written[0].numel() * module.in_features
    return int(flop), read_bytes(module, inputs) + own_bytes(module, inputs) + bytes_of(output)


def read_bytes(module: nn.Module, inputs: Any) -> int:
    """Bytes of its inputs that a layer looks at: of a convolution's only what some output needs, so that a strided 1×1
    kernel skips most of it."""
    read = tensors(inputs)
    if not isinstance(module, _ConvNd) or isinstance(module, _ConvTransposeNd) or not read:
        return bytes_of(inputs)
    if isinstance(module.padding, str) or read[0].dim() != module.weight.dim():
        return bytes_of(inputs)
    sizes = list(read[0].shape)
    axes = zip(sizes[2:], module.kernel_size, module.stride, module.padding, module.dilation)
    seen = sizes[0] * sizes[1] * prod(read_positions(*axis) for axis in axes)
    return bytes_of(inputs) - (read[0].numel() - seen) * read[0].element_size()


def own_bytes(module: nn.Module, inputs: Any) -> int:
    """Bytes of the module's own tensors that one call has to read: all, but of an embedding the rows looked up."""
    held: list[Tensor] = [*module.parameters(), *module.buffers()]
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and (indices := tensors(inputs)):
        return min(bytes_of(held), indices[0].numel() * module.embedding_dim * module.weight.element_size())
    return bytes_of(held)


def bytes_of(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(value))
