"""Trace → Tree, step "which range is a layer": the modules of a capture, the level of them that its owner would
call layers, and the sentence that says what was chosen.

Evidence, in this order: what repeats (several modules of one class, with like contents), how much device time
those hold (host time where no device work was recorded), and what their texts say (`TransformerLayer`, `blocks.3`;
an attention or an MLP is a part of a layer, a stack is a group of them). Blocks made of convolutions are looked
into: there the convolutions, norms and activations themselves are the layers, as in XSP.
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.names.range_text import parse
from xsp_post.tree.ranges import Ranges

_MOST_CLASSES = 8

_PART = (
    r"Attention|Attn|MLP|Mlp|FeedForward|FFN?(?![a-z])|MoE|Moe|Experts?(?![a-z])|Norm|Linear|Dense|Embed|Conv|Pool|Activation"
    r"|Dropout|Output|Intermediate|Head|Router|Gate"
)
_PART_OF_LAYER = re.compile(rf"(?:{_PART})\w*$")
_BLOCK_CLASS = re.compile(r"(?:Layer|Block|Bottleneck|Cell|Unit)(?:V?\*?\d*)$")
_GROUP_CLASS = re.compile(
    r"(?:Sequential|ModuleList|Stage|Stack|Encoder|Decoder|Model|Transformer|Backbone|DataParallel|FSDPModule|Wrapper"
    r"|Checkpoint\w*|OptimizedModule|CompiledFxGraph)\*?$"
)
_BLOCK_PATH = re.compile(
    r"(?:^|[._/\- ])(?:(?:transformer_?|decoder_?|encoder_?|res)?(?:layers?|blocks?)|h)"
    r"[ ._\-]?\*(?:[_. ](?:forward|fwd))?$",
    re.IGNORECASE,
)
_LAST_NUMBER = re.compile(r"[0-9]{1,6}(?![0-9A-Za-z])")
_IN_LIST = re.compile(r"[._/]\*$")
_CONVOLUTION = re.compile(r"Conv(?!ersation)|BatchNorm|Pool\d?d|Pool(?:ing)?$")
_ATTENTION = re.compile(r"Attention|Attn", re.IGNORECASE)


@dataclass
class _Modules:
    """Module ranges of a capture: mask over all ranges, class per range (−1 none) and text per class."""

    mask: np.ndarray
    class_of: np.ndarray
    texts: list[str]
    weight: np.ndarray  # time inside, ns
    total: float


def module_layers(ranges: Ranges, module: np.ndarray) -> tuple[np.ndarray, str]:
    """Which of the module ranges (bool mask) are the layers, and what they are called in a sentence.

    Blocks where a class of modules repeats (`TimesformerLayer`) and holds most of the time; else the innermost ones.
    """
    inner = ranges.innermost(module)
    if not (module & ~inner).any():
        return inner, "module names"
    modules = _modules(ranges, module)
    blocks = _blocks(ranges, modules, inner)
    if not blocks.any():
        return inner, "module names"
    open_modules = module & ~blocks & ~ranges.inside(blocks) & ~ranges.around(blocks)
    other_layers = _layers_outside_blocks(ranges, modules, open_modules, inner)
    return blocks | other_layers, "the modules that repeat"


def siblings_that_count(ranges: Ranges, mask: np.ndarray) -> np.ndarray:
    """Those of the ranges that number themselves through their parent, from 0 or 1 on, each with work inside:
    ``DownBlock_0, DownBlock_1, MidBlock_2`` are blocks of one model, whatever each is called. bool per range."""
    rows = np.flatnonzero(mask & ranges.has_device_work & (ranges.parent >= 0))
    codes, used = pd.factorize(ranges.name_id[rows])
    found = [_LAST_NUMBER.findall(ranges.text(row)) for row in used.tolist()]
    number = np.array([int(one[-1]) if one else -1 for one in found] or [-1])[codes]
    rows, number = rows[number >= 0], number[number >= 0]
    order = np.lexsort((ranges.times.start_ns[rows], ranges.parent[rows]))
    rows, number = rows[order], number[order]
    follows = (np.diff(number, prepend=-9) == 1) & (np.diff(ranges.parent[rows], prepend=-1) == 0)
    run = np.cumsum(~follows)
    counts = (np.bincount(run)[run] >= ranges.constants.fewest_turns) & np.isin(
        number[np.flatnonzero(~follows)], (0, 1)
    )[run - 1]
    result = np.zeros(len(mask), bool)
    result[rows[counts]] = True
    return result


def _modules(ranges: Ranges, module: np.ndarray) -> _Modules:
    """Ranges by class of module: their class name, or their text with a star for each number in it."""
    codes, used = pd.factorize(ranges.name_id[module], sort=True)
    layer_type = ranges.parsed.texts("layer_type", used)
    texts = [class_text(one, ranges.text(u)) for one, u in zip(layer_type, used.tolist())]
    numbers, names = pd.factorize(np.array(texts, dtype=object))
    class_of = np.full(len(module), -1, np.int64)
    class_of[module] = numbers[codes]
    weight = ranges.time_inside()
    total = float(weight[ranges.outermost(module)].sum())
    return _Modules(module, class_of, [str(name) for name in names], weight, max(total, 1.0))


def class_text(layer_type: str, text: str) -> str:
    """What modules of one class share: the class name of a framework's module, else the text without numbers."""
    if layer_type and (text.startswith("nn.Module: ") or parse(text) is not None):
        return layer_type
    head = text.split("(")[-1].rstrip(")") if text.startswith("FSDP") else text
    return re.sub(r"\d+", "*", re.split(r", (?:seq|op_id|sizes) = ", head, maxsplit=1)[0])


# ---------------------------------------------------------------- blocks


def _blocks(ranges: Ranges, modules: _Modules, inner: np.ndarray) -> np.ndarray:
    """The modules that are the model's repeated blocks, outermost ones; none set where no class of them is."""
    taken = np.zeros(len(modules.mask), bool)
    alike, alike_one = _like_siblings(ranges, modules)
    convolutional = _convolutional(ranges, modules, inner)
    held = np.bincount(modules.class_of[inner & modules.mask], minlength=len(modules.texts)) > 0
    rejected: set[int] = set()
    constants = ranges.constants  # further classes, as a decoder beside an encoder, need less of the time
    for _ in range(_MOST_CLASSES):
        free = modules.mask & ~taken & ~ranges.inside(taken) & ~ranges.around(taken)
        least = constants.near_ratio if taken.any() else constants.large_ratio
        best, best_score, best_rows = -1, 0.0, taken
        for number, text in enumerate(modules.texts):  # classes are few
            if number in rejected or alike[number] < 2:
                continue
            rows = free & (modules.class_of == number)
            rows = ranges.outermost(rows & (alike_one | ~ranges.around(rows & alike_one)))
            coverage = float(modules.weight[rows].sum()) / modules.total
            is_most = coverage >= constants.holds_ratio and bool(_BLOCK_CLASS.search(text))
            if held[number] and not (is_most or is_block_text(text)):
                continue  # without modules inside, only its text can say that it is a block and no part of one
            score = coverage * _rank_of_text(text)
            if coverage >= least and score > (2 - constants.holds_ratio) * best_score:
                best, best_score, best_rows = number, score, rows
        if best < 0:
            break
        rejected.add(best)
        if convolutional[best] or (taken.any() and _rank_of_text(modules.texts[best]) < 1.0):
            continue
        taken |= best_rows
    return taken


def is_block_text(text: str) -> bool:
    """Whether a class name, or a path with a star for each number, is that of a model's block."""
    if _BLOCK_CLASS.search(text):
        stem = re.sub(r"(?:Layer|Block|Cell|Unit)(?:V?\*?\d*)$", "", text)
        return not _PART_OF_LAYER.search(stem) or bool(re.search(r"(?:De|En)coder$|Transformer$", stem))
    return bool(_BLOCK_PATH.search(text))


def _rank_of_text(text: str) -> float:
    """What a class's text says about it: a block of a model 1, nothing 0.6, a member of a list 0.7, a group of
    blocks or a part of one 0.3."""
    if is_block_text(text):
        return 1.0
    if _GROUP_CLASS.search(text) or _PART_OF_LAYER.search(text):
        return 0.3
    return 0.7 if _IN_LIST.search(text) else 0.6


def _like_siblings(ranges: Ranges, modules: _Modules) -> tuple[np.ndarray, np.ndarray]:
    """How many modules of each class have the same contents (classes of the modules in them) and stand beside one
    another: in one parent, or under names of their own (`BertLayer_0`, `BertLayer_1`). int64 per class; and which
    modules have such a one beside them, bool per range."""
    count = len(modules.texts)
    rows = np.flatnonzero(modules.mask)
    class_of = modules.class_of[rows]
    word = np.random.default_rng(0).integers(1, 2**62, count, dtype=np.int64)
    parent = np.where(ranges.parent >= 0, ranges.forest.nearest(modules.mask)[ranges.parent], -1)  # of modules
    signature = np.zeros(len(modules.mask), np.int64)
    has = parent[rows] >= 0
    np.add.at(signature, parent[rows[has]], word[class_of[has]])
    frame = pd.DataFrame({
        "class": class_of, "signature": signature[rows], "parent": ranges.parent[rows], "name": ranges.name_id[rows]
    })  # fmt: skip
    by_contents = frame.groupby(["class", "signature"], sort=False)
    named = by_contents["name"].nunique().groupby("class").max()
    beside = frame.groupby(["class", "signature", "parent"], sort=False)["name"]
    in_one_parent = beside.size().groupby("class").max()
    alike = np.zeros(len(modules.mask), bool)
    alike[rows] = (by_contents["name"].transform("nunique") > 1) | (beside.transform("size") > 1)
    result = np.zeros(count, np.int64)
    np.maximum.at(result, named.index.to_numpy(), named.to_numpy())
    np.maximum.at(result, in_one_parent.index.to_numpy(), in_one_parent.to_numpy())
    return result, alike


def _convolutional(ranges: Ranges, modules: _Modules, inner: np.ndarray) -> np.ndarray:
    """Which classes consist of convolutions, batch norms and pooling, without attention; bool per class."""
    count = len(modules.texts)
    is_conv = np.array([bool(_CONVOLUTION.search(text)) for text in modules.texts] + [False], bool)
    attends = np.array([bool(_ATTENTION.search(text)) for text in modules.texts] + [False], bool)
    leaf = inner & modules.mask
    work = np.where(leaf, np.maximum(modules.weight, 1), 0)
    conv = np.where(is_conv[modules.class_of], work, 0)
    attention = (attends[modules.class_of] & modules.mask).astype(np.int64)
    sums = [
        np.bincount(modules.class_of[modules.mask], rollup.add_up(v, ranges.parent)[modules.mask], count)
        for v in (conv, work, attention)
    ]
    return (sums[0] >= ranges.constants.convolution_ratio * np.maximum(sums[1], 1)) & (sums[2] == 0)


def _layers_outside_blocks(ranges: Ranges, modules: _Modules, free: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Layers beside the blocks: embeddings, last norms, heads. Outermost ones; of what holds convolutions or a
    fifth of all time, or only groups others (`Sequential`), the innermost."""
    convolutional = np.append(_convolutional(ranges, modules, inner), False)[modules.class_of]
    is_group = np.array([bool(_GROUP_CLASS.search(text)) for text in modules.texts] + [False], bool)
    heavy = modules.weight >= ranges.constants.large_ratio * modules.total
    opened = free & ~inner & (convolutional | heavy | is_group[modules.class_of])
    return ranges.outermost(free & ~opened)
