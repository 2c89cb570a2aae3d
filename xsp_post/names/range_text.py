"""``run`` → capture: the grammar of our own ranges, written by `workload.ranges` and read by ``ingest``.

The ranges live in the NVTX domain `DOMAIN`; in a PyTorch-profiler trace, which knows no domains, the
same text carries the prefix `PREFIX`. These texts exist:

==========  ====================================  ======================================================
kind        text                                  example
==========  ====================================  ======================================================
model       ``model:<phase>#<iteration>``         ``model:forward#3``
warmup      ``warmup:<phase>#<iteration>``        ``warmup:decode#0``
part        ``forward``, ``backward``,            of a training step
            ``optimizer``
step        ``step:<kind> requests=… tokens=…`` ``step:decode requests=2 tokens=2 keys=90 squares=2 products=90 …``
            and further sums                      (of inference; step_texts.txt reads it)
layer       ``<module path>:<Class>#<call>``      ``layer1.0.conv1:Conv2d#0``
shape       ``shape:[<sizes>]``, and `` flop:<n>  ``shape:[8,64,112,112] flop:… bytes:…`` (a mark, just
            bytes:<n>`` where it is known         before a layer's end)
==========  ====================================  ======================================================

``<call>`` counts the calls of that module within one iteration from 0; together with the path it is the
key by which layers are matched across runs. A phase is a lower-case word (``forward``, ``train_step``,
``prefill``, ``decode``). Texts hold no ``/`` and no ``@``: the filters of nsys and ncu split there.
Pure Python: readers need no torch.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

DOMAIN = "xsp"
PREFIX = "xsp/"  # in front of the text where the format knows no domains (PyTorch-profiler annotations)

MODEL, WARMUP, PART, LAYER, SHAPE, STEP = "model", "warmup", "part", "layer", "shape", "step"
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
ROOT_PATH = "(root)"  # the module path of the model itself, where it has no name

_PHASE = re.compile(r"(model|warmup):([a-z][a-z0-9_]*)#(\d+)\Z")
_LAYER = re.compile(r"([^:/@]+):([^:/@#]+)#(\d+)\Z")
_SHAPE = re.compile(r"shape:\[(\d+(?:,\d+)*)?\](?: flop:(\d{1,18}) bytes:(\d{1,18}))?\Z")
_NOT_IN_TEXT = re.compile(r"[:/@#\s\x00]+")


def format_step(
    kind: str, tokens: Sequence[int], context: Sequence[int], bucket: int = 0, ids: Sequence[object] = ()
) -> str:
    """Text of one step of inference: of each request the tokens that it computes, and the keys that they attend to."""
    pairs = [(int(q), int(k)) for q, k in zip(tokens, context, strict=True)]
    sizes = {
        "requests": len(pairs),
        "tokens": sum(q for q, _ in pairs),
        "keys": sum(k for _, k in pairs),
        "squares": sum(q * q for q, _ in pairs),
        "products": sum(q * k for q, k in pairs),
        "longest": max((k for _, k in pairs), default=0),
        "bucket": bucket,
    }
    names = [f"ids={','.join(re.sub('[^A-Za-z0-9_.-]', '_', str(one)) for one in ids)}"] if len(ids) else []
    return " ".join([f"step:{kind}", *(f"{name}={value}" for name, value in sizes.items() if value > 0), *names])


@dataclass(frozen=True)
class RangeText:
    """One parsed text. ``name``: phase or module path; ``index``: iteration or call, −1 for a shape. Of a shape also
    the forward flop and the least bytes of the call, −1 where it does not say."""

    kind: str
    name: str = ""
    layer_type: str = ""
    index: int = -1
    shape: tuple[int, ...] = ()
    flop_count: int = -1
    least_bytes: int = -1

    @property
    def shape_text(self) -> str:
        return f"[{','.join(map(str, self.shape))}]"


def format_model(phase: str, iteration: int, *, is_warmup: bool = False) -> str:
    return f"{WARMUP if is_warmup else MODEL}:{phase}#{iteration}"


def format_layer(path: str, layer_type: str, call_index: int) -> str:
    path, layer_type = layer_names(path, layer_type)
    return f"{path}:{layer_type}#{call_index}"


def layer_names(path: str, layer_type: str) -> tuple[str, str]:
    """Path and type of a layer as texts have them; characters the grammar keeps for itself become ``_``."""
    path = _NOT_IN_TEXT.sub("_", path) or ROOT_PATH
    layer_type = _NOT_IN_TEXT.sub("_", layer_type) or "_"
    if path in (MODEL, WARMUP) and layer_type[:1].islower():
        layer_type = layer_type[:1].upper() + layer_type[1:]  # else it would read as a model range
    return path, layer_type


def format_shape(shape: Sequence[int], work: tuple[int, int] | None = None) -> str:
    """Text of the mark that carries a layer's output shape and, where known, its (forward flop, least bytes)."""
    text = f"shape:[{','.join(str(int(size)) for size in shape)}]"
    return text if work is None else f"{text} flop:{work[0]} bytes:{work[1]}"


def parse(text: str) -> RangeText | None:
    """What a text of our domain says, with or without `PREFIX`; None where it is none of ours.

    Total: any string is accepted, captures are hostile.
    """
    text = text.removeprefix(PREFIX)
    if text in (FORWARD, BACKWARD, OPTIMIZER):
        return RangeText(PART, name=text)
    if match := _PHASE.match(text):
        kind, phase, index = match.groups()
        return RangeText(kind, name=phase, index=int(index))
    if match := _SHAPE.match(text):
        sizes, flop, least = match.groups()
        shape = tuple(int(s) for s in sizes.split(",")) if sizes else ()
        return RangeText(SHAPE, shape=shape, flop_count=int(flop or -1), least_bytes=int(least or -1))
    if match := _LAYER.match(text):
        path, layer_type, call = match.groups()
        return RangeText(LAYER, name=path, layer_type=layer_type, index=int(call))
    return None
