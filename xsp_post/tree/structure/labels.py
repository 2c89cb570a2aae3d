"""Trace → Tree, for launches without ranges: what an inferred node is called and what it probably is.

Everything here is a guess from kernel names and says how sure it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.names.families import BACKWARD_PATTERN, FAMILIES, families, matches
from xsp_post.tree.structure.constants import Constants

FORWARD, BACKWARD, OPTIMISER = "forward", "backward", "optimiser"
_CODE = {family: code for code, family in enumerate(FAMILIES)}
EMBEDDING, NORMALISATION = _CODE["embedding"], _CODE["normalisation"]
# Families that say what a block does, however short they run.
_TELLING = ("gemm", "convolution", "attention", "softmax", "communication")
_QUIET = ("elementwise", "memory", "other")
QUIET = tuple(_CODE[name] for name in _QUIET)
_CORES = (_CODE["attention"], _CODE["state_space"])
# Launches between two products, a letter each, those that are quiet aside: what an attention in pieces has there is a
# softmax, whose bias may be looked up, or its maximum, exp and sum, or its gradient. Another softmax is followed by
# what reads it: a loss, a choice of tokens or of experts.
_LETTERS = np.full(len(FAMILIES), ord("x"))
for _name, _letter in {"gemm": "p", "reduction": "r", "embedding": "l"}.items() | dict.fromkeys(_QUIET, " ").items():
    _LETTERS[_CODE[_name]] = ord(_letter)
_BETWEEN_PRODUCTS = re.compile(rb"(?<=p)(?:l*(s)s*|r(e)r|(g)g*l*)(?=p)")
# The words of layer guesses.
_TYPE_OF_FAMILY = {"gemm": "matrix product"}
_NETWORK = ("gemm", "convolution", "attention", "normalisation", "softmax", "embedding", "pooling")
_FRAMEWORK_PATTERN = r"at::native|^triton_|cudnn|tensorflow|\bxla\b|fusion_|aten::|ggml|onnxruntime|tensorrt|flash"

_GIVEN_NUMBER = re.compile(r"(?:_(?:0x[0-9a-f]+|\d+))+$")  # by a compiler, to each kernel that it makes

# A whole network takes more launches than this.
_MOST_IN_PART = 64
_MOST_NAMED = 4


@dataclass
class Traits:
    """What the names of launches say, one value per launch of a sequence.

    family int8 (index into `families.FAMILIES`); is_optimiser, is_backward, is_exponential, is_framework, is_fill,
    is_expert bool; plain int64 (equal where names differ by the number that a compiler gave).
    """

    family: np.ndarray
    is_optimiser: np.ndarray
    is_backward: np.ndarray
    is_exponential: np.ndarray
    is_framework: np.ndarray
    is_fill: np.ndarray  # writes a buffer with one value
    is_expert: np.ndarray  # products of experts, and what sends tokens to them
    plain: np.ndarray

    @property
    def is_product(self) -> np.ndarray:
        """Matrix products."""
        return self.family == _CODE["gemm"]

    @classmethod
    def of_names(cls, names: Strings, name_id: np.ndarray) -> Traits:
        """names: the texts; name_id int64 (n,) indexes it. Each name is looked at once."""
        code, used = pd.factorize(name_id, sort=True)
        texts = [str(names[identity]) if identity >= 0 else "" for identity in used.tolist()]
        family = np.array([_CODE[f] for f in families(texts, broad=True)], dtype=np.int8)
        narrow = families(texts)
        plain: dict[str, int] = {}
        number = [plain.setdefault(_GIVEN_NUMBER.sub("", text), len(plain)) for text in texts]
        return cls(
            family[code],
            (narrow == "optimiser")[code],
            matches(texts, BACKWARD_PATTERN)[code],
            matches(texts, "exp_kernel")[code],
            matches(texts, _FRAMEWORK_PATTERN)[code],
            ((narrow == "memory") & matches(texts, r"(?i)fill"))[code],
            np.isin(narrow, ["expert_gemm", "routing", "dispatch"])[code],
            np.array(number, np.int64)[code],
        )


def is_network(traits: Traits, rows: np.ndarray) -> bool:
    """Whether launches look like a neural network: products or convolutions, and a second sign of one."""
    present = np.bincount(traits.family[rows], minlength=len(FAMILIES)) > 0
    products = any(present[_CODE[f]] for f in ("gemm", "convolution", "attention"))
    kinds = sum(bool(present[_CODE[f]]) for f in _NETWORK)
    return products and (kinds >= 2 or bool(traits.is_framework[rows].any()))


def attentions(traits: Traits, rows: np.ndarray) -> np.ndarray:
    """Those of the rows that are the core of an attention, or of a state-space model in its place: fused kernels, of
    those with no product between them (a core in pieces) the first; else softmaxes from one product to the next."""
    family = traits.family[rows]
    products, fused = (np.flatnonzero(np.isin(family, which)) for which in (_CODE["gemm"], _CORES))
    if len(fused):
        return rows[fused[np.r_[True, np.diff(np.searchsorted(products, fused)) > 0]]]
    kind = np.select(
        [traits.is_exponential[rows], family != _CODE["softmax"], traits.is_backward[rows]],
        [ord("e"), _LETTERS[family], ord("g")],
        ord("s"),
    )
    loud = np.flatnonzero(kind != ord(" "))
    found = _BETWEEN_PRODUCTS.finditer(kind[loud].astype(np.uint8).tobytes())
    return rows[loud[[one.start(one.lastindex or 0) for one in found]]]


def is_one_layer(traits: Traits, rows: np.ndarray, *, may_look_up: bool = False) -> bool:
    """Whether launches look like one layer of a transformer rather than like a whole model: one or two attentions,
    softmaxes or exps (of a scan) between matrix products, and no embedding. ``may_look_up``: also with one (a layer
    picks tokens for its experts)."""
    family, products = traits.family[rows], np.flatnonzero(traits.is_product[rows])
    if len(products) < 2 or (not may_look_up and (family == _CODE["embedding"]).any()):
        return False
    is_mixing = traits.is_exponential[rows] | (family == _CODE["softmax"])
    return 1 <= max(len(attentions(traits, rows)), is_mixing[products[0] : products[-1]].sum()) <= 2


def is_part_of_network(traits: Traits, rows: np.ndarray) -> bool:
    """Whether launches are of a network, and too few for a whole one: no pooling, and no embedding."""
    ends = [_CODE[name] for name in ("pooling", "embedding")]
    return len(rows) <= _MOST_IN_PART and is_network(traits, rows) and not np.isin(traits.family[rows], ends).any()


def does_layer_work(traits: Traits, rows: np.ndarray) -> np.ndarray:
    """Which launches do what layers are made of: products, convolutions, attention, norms, pooling; bool."""
    codes = [_CODE[f] for f in ("gemm", "convolution", "attention", "normalisation", "softmax", "pooling")]
    return np.isin(traits.family[rows], codes)


def are_convolutions(traits: Traits, rows: np.ndarray) -> np.ndarray:
    """Which launches are convolutions; bool."""
    return traits.family[rows] == _CODE["convolution"]


def are_products(traits: Traits, rows: np.ndarray) -> np.ndarray:
    """Which launches are matrix products or convolutions; bool."""
    return np.isin(traits.family[rows], [_CODE["gemm"], _CODE["convolution"]])


def has_products(traits: Traits, rows: np.ndarray) -> bool:
    """Whether a layer may lie in these launches: an attention alone is a piece of one (a turn of a ring, a chunk)."""
    family = traits.family[rows]
    own = 0 if np.isin(family, _CORES).any() else 2 * (family == _CODE["softmax"]).any()  # of an attention in pieces
    return int(are_products(traits, rows).sum()) > own


def family_label(family: np.ndarray, duration: np.ndarray) -> str:
    """The families that matter in launch order, repeated ones once: ``gemm, softmax, gemm``.

    family int8 (n,), duration int64 (n,). Elementwise work, copies and the like are named only where nothing
    else runs; a family counts when it tells what a block does or has a tenth of its time.
    """
    time = np.bincount(family, weights=np.maximum(duration, 1), minlength=len(FAMILIES))
    shares = time / time.sum()
    shown = np.zeros(len(FAMILIES), dtype=bool)
    for code, name in enumerate(FAMILIES):
        shown[code] = shares[code] > 0 and name not in _QUIET and (name in _TELLING or shares[code] >= 0.1)
    if not shown.any():
        shown[int(shares.argmax())] = True
    sequence = family[shown[family]]
    sequence = sequence[np.concatenate([[True], sequence[1:] != sequence[:-1]])]
    words = [FAMILIES[code] for code in sequence[:_MOST_NAMED]]
    return ", ".join(words) + (" …" if len(sequence) > _MOST_NAMED else "")


def with_softmax(traits: Traits, rows: np.ndarray) -> np.ndarray:
    """Families of launches, where the exp of an attention in pieces counts as the softmax it is part of."""
    family, cores = traits.family[rows], attentions(traits, rows)
    family[np.searchsorted(rows, cores[traits.is_exponential[cores]])] = _CODE["softmax"]
    return family


def guess_type(traits: Traits, rows: np.ndarray, duration: np.ndarray, *, is_turn: bool = False) -> str:
    """What kind of layer launches may be; '' unknown.

    rows: positions in the sequence; duration int64, same shape. ``attention`` where `attentions` finds one;
    ``transformer block`` when further products follow it (in a backward pass: go before it); else the family with the
    most time. ``is_turn``: such launches follow one another, so that what follows the attention may stand before it.
    """
    time = np.bincount(traits.family[rows], weights=np.maximum(duration, 1), minlength=len(FAMILIES))
    shares = time / time.sum()
    cores, products = attentions(traits, rows), rows[traits.is_product[rows]]
    if len(cores):
        after, before = int((products > cores[-1]).sum()), int((products < cores[0]).sum())
        # after attention itself come the product with the values, where it is not part of a fused kernel, and the
        # projection; an MLP has two more. A gradient has two products for each.
        backward = has_gradients(traits, rows)
        own = 1 if traits.family[cores[0]] in _CORES else 2
        if is_turn and len(products) >= (own + 3) * (1 + backward):
            return "transformer block"
        if before >= 2 * own + 4 if backward else after >= own + 2:
            return "transformer block"
        return "attention" if traits.family[cores[0]] != _CODE["state_space"] else "state space"
    for name in ("convolution", "gemm"):
        if shares[_CODE[name]] >= 0.3:
            return _TYPE_OF_FAMILY.get(name, name)
    best = int(shares.argmax())
    return _TYPE_OF_FAMILY.get(FAMILIES[best], FAMILIES[best])


def block_word(guess: str, label: str, network: bool) -> str:
    """What a block is called: by what it is, else by what its kernels do."""
    if not network:
        return f"repeated part · {label}" if label else "repeated part"
    return (
        guess
        if guess in ("transformer block", "attention", "state space")
        else f"block · {label}"
        if label
        else "block"
    )


def parts_of_block(
    traits: Traits, rows: np.ndarray, duration: np.ndarray, symbols: np.ndarray
) -> list[tuple[int, int, str]]:
    """Attention and what follows it in a transformer block, as (start, end, word) in the block; [] for other blocks.

    The attention ends with the projection, the first product after its core (after the product with the values, where
    the core is no fused kernel); what follows begins as the block itself does, or with the next normalisation.
    """
    core = attentions(traits, rows) - rows[0]
    is_block = len(core) <= 2 and guess_type(traits, rows, duration) == "transformer block"
    if not is_block or traits.is_backward[rows].any():
        return []
    family = traits.family[rows]
    after = np.flatnonzero(traits.is_product[rows])
    after = after[after > core[-1]]
    skipped = 0 if family[core[0]] in _CORES else 1
    again = (symbols[1:-1] == symbols[0]) & (symbols[2:] == symbols[1])
    norm = np.flatnonzero(np.r_[False, again, False])
    if not ((norm > after[skipped]) & (norm < after[skipped + 1])).any():
        norm = np.flatnonzero(family == _CODE["normalisation"])
    norm = norm[(norm > after[skipped]) & (norm < after[skipped + 1])]
    cut = int(norm[0]) if len(norm) else int(after[skipped + 1])
    word = "experts" if traits.is_expert[rows[cut:]].any() else "MLP"
    mixer = "state space" if family[core[0]] == _CODE["state_space"] else "attention"
    return [(0, cut, mixer), (cut, len(rows), word)]


# ---------------------------------------------------------------- phases of a training step


def phases(thread: np.ndarray, traits: Traits, rows: np.ndarray) -> list[tuple[int, int, str]]:
    """Forward, backward and optimiser of one iteration as (start, end, label) within it; [] when it has none.

    thread int64 (m,), rows int64 (m,): positions in the sequence. PyTorch launches the backward pass from a
    thread of its own: a change of thread is a change of phase. On one thread, names decide.
    """
    found = _phases_by_thread(thread, traits, rows)
    return found or _phases_by_name(traits, rows)


def is_training_step(thread: np.ndarray, traits: Traits, rows: np.ndarray) -> bool:
    """Whether launches are more than a layer: an optimiser's work, or a forward and a backward pass on two threads."""
    return bool(traits.is_optimiser[rows].any()) or len(_phases_by_thread(thread, traits, rows)) > 1


def has_gradients(traits: Traits, rows: np.ndarray) -> bool:
    """Whether more of the launches are backward work than an operator or two that is called so."""
    return int(traits.is_backward[rows].sum()) >= max(3, 0.02 * len(rows))


def is_all_gradients(traits: Traits, rows: np.ndarray, constants: Constants) -> bool:
    """Whether a turn of a loop is backward work from end to end: no long stretch of it has none."""
    backward = np.flatnonzero(traits.is_backward[rows])
    gaps = np.diff(np.append(backward, backward[:1] + len(rows)))
    return len(backward) > 1 and int(gaps.max()) <= (1 - constants.alike_ratio) * len(rows)


def _phases_by_thread(thread: np.ndarray, traits: Traits, rows: np.ndarray) -> list[tuple[int, int, str]]:
    m = len(thread)
    edges = np.concatenate([[0], np.flatnonzero(thread[1:] != thread[:-1]) + 1, [m]])
    sizes = np.diff(edges)
    if not 2 <= len(sizes) <= 64 or np.median(sizes) < 8 or sizes[1:-1].min(initial=2) < 2:
        return []
    pieces: list[tuple[int, str]] = []
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if thread[start] != thread[0]:
            pieces.append((end, BACKWARD))
            continue
        stop = _end_of_update(traits, rows, start, end)
        pieces += [(stop, OPTIMISER)] * (stop > start) + [(end, FORWARD)] * (stop < end)
    return _numbered(pieces)


def _end_of_update(traits: Traits, rows: np.ndarray, start: int, end: int) -> int:
    """Where the update of weights in [start, end) ends: with what follows it, unless that is a pass; start for none."""
    update = start + np.flatnonzero(traits.is_optimiser[rows[start:end]])
    if not len(update):
        return start
    stop = int(update[-1]) + 1
    return stop if does_layer_work(traits, rows[stop:end]).any() else end


def _phases_by_name(traits: Traits, rows: np.ndarray) -> list[tuple[int, int, str]]:
    m = len(rows)
    backward = np.flatnonzero(traits.is_backward[rows])
    if not has_gradients(traits, rows):
        return []
    first = int(backward[0])
    optimiser = np.flatnonzero(traits.is_optimiser[rows])
    optimiser = optimiser[optimiser > backward[-1]]
    last = int(optimiser[0]) if len(optimiser) >= 2 else m
    stop = _end_of_update(traits, rows, 0, first)  # that of the step before
    stop = 0 if does_layer_work(traits, rows[:stop]).any() else stop
    pieces = [(stop, OPTIMISER), (first, FORWARD), (last, BACKWARD), (m, OPTIMISER)]
    return _numbered([one for one, before in zip(pieces, [(0, ""), *pieces], strict=False) if one[0] > before[0]])


def _numbered(pieces: list[tuple[int, str]]) -> list[tuple[int, int, str]]:
    """Pieces (end, label), as (start, end, label); labels that come twice get a number: forward 1, backward 1 …; none
    where there is one piece."""
    labels = [label for _, label in pieces]
    nth = [labels[: k + 1].count(label) for k, label in enumerate(labels)]
    names = [f"{label} {k}" if labels.count(label) > 1 else label for label, k in zip(labels, nth, strict=True)]
    ends = [end for end, _ in pieces]
    return list(zip([0, *ends], ends, names, strict=False)) if len(pieces) > 1 else []
