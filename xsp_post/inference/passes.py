"""Trace → Tree, for launches without ranges: which turns are passes through a whole model.

What repeats may be a part of a pass (its layers), a pass, or a loop over passes (a request, and the tokens decoded for
it). What holds the layers of a transformer, one after another, is a pass; else the pauses of the host tell. Beside the
passes that repeat, one with as many layers but other kernels is a pass too (the prefill before the decoding).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xsp_post.inference.blocks import tandem_repeats
from xsp_post.inference.labels import Traits, attentions, is_one_layer
from xsp_post.inference.repetition import REGULAR, Repetition
from xsp_post.inference.sequence import Hashed
from xsp_post.inference.turns import Iterations, find_iterations, turned_to_breaks

# What repeats in a turn makes a loop of it from this share on; where that is a pass by its layers, from the second.
_MOST_OF_TURN, _LEAST_OF_TURN = 0.8, 0.5
# Fewer blocks than this, or blocks that are less of a pass, do not show that it is one.
FEWEST_LAYERS = 4
_LEAST_IN_BLOCKS = 0.5
# A stretch between passes may be one itself up to so many times their length.
_LENGTH_FACTOR = 2.0
_SHORTEST_LAYER = 4  # launches
_MOST_STRETCHES = 256
# Loops inside a pass: at least so many, and so much of the launches between them.
_FEWEST_LOOPS, _LEAST_BETWEEN = 4, 0.2


def as_one_iteration(found: Iterations, count: int) -> Iterations:
    """The whole sequence as a single iteration: what repeat are its layers."""
    first, last = int(found.starts[0]), int(found.ends[-1])
    period = max(one.period for one in found.repetitions)
    first = 0 if first <= period else first
    last = count if count - last <= period else last
    return _of_bounds(np.array([first]), np.array([last]))


def of_layers(found: Iterations, symbols: np.ndarray) -> Iterations:
    """Iterations made of layers, which are the turns found: one, or several of as many layers each with equal stretches
    between them (the end of one pass, and the beginning of the next)."""
    begin, end, size, _ = _runs(found, symbols)
    between = begin[1:] - end[:-1]
    if len(begin) < 2 or size.min() < FEWEST_LAYERS or size.max() > size.min() or between.max() > between.min():
        return as_one_iteration(found, len(symbols))
    head = min(int(begin[0]), int(between[0]))
    return _of_bounds(begin - head, np.minimum(end + int(between[0]) - head, len(symbols)))


def _runs(found: Iterations, symbols: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Turns one after another: start and end of each such run, how many turns it has, and where its last one starts.
    What a turn that is too long holds before or after its period lies between runs."""
    period = np.array([one.period for one in found.repetitions])[found.series]
    starts, ends = found.starts.copy(), found.ends.copy()
    long = np.flatnonzero(ends - starts > period)
    template = np.array([one.template for one in found.repetitions])[found.series[long]]
    hashed = Hashed.of(symbols)
    usual = hashed.stretches(template[:, 0], template[:, 1])
    is_late = hashed.stretches(ends[long] - period[long], ends[long]) == usual
    is_early = hashed.stretches(starts[long], starts[long] + period[long]) == usual
    is_early |= ~is_late & (ends[long] - starts[long] > 1.1 * period[long])
    ends[long] = np.where(is_early, starts[long] + period[long], ends[long])
    starts[long] = np.where(is_late & ~is_early, ends[long] - period[long], starts[long])
    opens = np.flatnonzero(np.r_[True, starts[1:] > ends[:-1]])
    last = np.r_[opens[1:], len(found)] - 1
    return starts[opens], ends[last], last + 1 - opens, starts[last]


def _of_bounds(starts: np.ndarray, ends: np.ndarray) -> Iterations:
    regular = np.full(len(starts), REGULAR, np.int8)
    return Iterations.of([Repetition(starts, ends, regular, (int(starts[0]), int(ends[0])))])


def layers_in(symbols: np.ndarray, traits: Traits, first: int, last: int) -> tuple[int, int, int]:
    """Start (from ``first``), length and number of the equal transformer layers that most of [first, last) consists of;
    zeros for none. traits has one value per symbol."""
    repeats = tandem_repeats(symbols[first:last])
    repeats = repeats[repeats[:, 2] >= FEWEST_LAYERS]
    size = repeats[:, 1] * repeats[:, 2]
    if size.sum() < _LEAST_IN_BLOCKS * (last - first):
        return 0, 0, 0
    start, length, count = repeats[int(size.argmax())].tolist()
    # a block may begin anywhere in a layer, between the parts of its attention too
    begins = (first + start, first + start + length // 2)
    is_layer = any(is_one_layer(traits, np.arange(begin, begin + length), may_look_up=True) for begin in begins)
    rest = np.ones(last - first, bool)
    for begin, size_of_all in zip(repeats[:, 0].tolist(), size.tolist(), strict=True):
        rest[begin : begin + size_of_all] = False
    # layers whose attentions differ and that take turns (local and global ones) are all parts of one pass
    usual = symbols[begins[0] : begins[0] + length]
    has_others = not np.isin(symbols[attentions(traits, first + np.flatnonzero(rest))], usual).all()
    return (start, length, count) if is_layer and not has_others else (0, 0, 0)


def passes_in_turns(found: Iterations, symbols: np.ndarray, strength: np.ndarray, traits: Traits) -> Iterations:
    """The passes that the turns consist of, where a turn is a loop over them. What repeats in a turn is a pass where
    it holds transformer layers and nothing trains (a training step may take several batches); else where it repeats
    blocks, and the host pauses before it as it does before a turn."""
    if len(found.repetitions) != 1:
        return found
    first, last = found.repetitions[0].template
    turn = symbols[first:last]
    repeats = tandem_repeats(turn)
    repeats = repeats[repeats[:, 2] >= 3]
    size = repeats[:, 1] * repeats[:, 2]
    if not len(size) or size.max() < _LEAST_OF_TURN * len(turn):
        return found
    start, period, _ = repeats[int(size.argmax())].tolist()
    trains = traits.is_optimiser[first:last].any() or traits.is_backward[first:last].any()
    if not trains and layers_in(symbols, traits, first + start, first + start + period)[2]:
        passes = find_iterations(symbols, strength, longest=round(1.2 * period))
        passes = with_other_passes(passes, symbols, traits, strength)
        return passes if passes.coverage(len(symbols)) >= _MOST_OF_TURN * found.coverage(len(symbols)) else found
    inside = tandem_repeats(turn[start : start + period])
    if size.max() < _MOST_OF_TURN * len(turn) or _in_repeats(inside) < 0.5 * period:
        return found
    passes = find_iterations(symbols, strength, longest=round(1.2 * period))
    if passes.coverage(len(symbols)) < _MOST_OF_TURN or float(np.ptp(strength[1:])) == 0:
        return found
    pauses = [float(np.median(strength[one.starts[one.starts > 0]])) for one in (found, passes)]
    return passes if begin_at_pauses(passes, strength) and pauses[1] >= 0.3 * pauses[0] else found


def _in_repeats(repeats: np.ndarray) -> int:
    return int((repeats[:, 1] * repeats[:, 2])[repeats[:, 2] >= 3].sum())


def with_other_passes(
    found: Iterations, symbols: np.ndarray, traits: Traits, strength: np.ndarray | None = None
) -> Iterations:
    """The iterations and, between them, passes through layers of other kernels: the prefill before the decoding, the
    text encoder before the denoising. Turns that are single layers of such a pass give way to it. Where passes end
    alike, the turns seem to begin with the end of the one before the first; with ``strength``, the pauses of the host,
    they begin there."""
    layers = [layers_in(symbols, traits, *one.template) for one in found.repetitions]
    launches = np.array([len(one) * one.period for one in found.repetitions])
    weight = launches * np.array([count > 0 for _, _, count in layers], bool)
    if not weight.any():
        return found
    main = int(weight.argmax())
    begin, end = _passes_between(found, symbols, traits, main, layers[main])
    if not len(begin):
        return found
    if strength is not None:
        turned = turned_to_breaks(found.repetitions[main], symbols, strength, True)
        if turned is not found.repetitions[main]:
            repetitions = [turned if number == main else one for number, one in enumerate(found.repetitions)]
            return with_other_passes(Iterations.of(repetitions), symbols, traits)
    return _joined(found, begin, end, found.repetitions[main].period)


def _passes_between(
    found: Iterations, symbols: np.ndarray, traits: Traits, main: int, usual: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Where passes that are none of the iterations start and end. ``usual``: the layers of repetition ``main``."""
    period, (head, length, count) = found.repetitions[main].period, usual
    is_pass = np.array([one.period > 2 * length for one in found.repetitions])[found.series]
    order = np.argsort(found.starts[is_pass], kind="stable")
    starts, ends = found.starts[is_pass][order], found.ends[is_pass][order]
    # a turn that is too long may be one, and a pass after it
    ends = np.where((ends - starts) * _LENGTH_FACTOR >= 3 * period, starts + period, ends)
    begin, end = np.concatenate([[0], ends]), np.concatenate([starts, [len(symbols)]])
    # before the first pass and after the last one there may be anything
    begin[0] = max(0, end[0] - int(_LENGTH_FACTOR * period))
    end[-1] = min(end[-1], begin[-1] + int(_LENGTH_FACTOR * period))
    size = end - begin
    chosen = np.flatnonzero((size >= FEWEST_LAYERS * _SHORTEST_LAYER) & (size <= _LENGTH_FACTOR * period))
    begin, end = begin[chosen], end[chosen]
    _, first, same = np.unique(Hashed.of(symbols).stretches(begin, end), return_index=True, return_inverse=True)
    if not len(first) or len(first) > _MOST_STRETCHES:
        return begin[:0], end[:0]
    around = (head, period - head - length * count)
    bounds = np.array([_pass_in(symbols, traits, int(begin[row]), int(end[row]), around) for row in first.tolist()])
    fits = bounds[same, 1] > 0
    return (begin + bounds[same, 0])[fits], (begin + bounds[same, 1])[fits]


def _pass_in(symbols: np.ndarray, traits: Traits, begin: int, end: int, usual: tuple[int, int]) -> tuple[int, int]:
    """Where, from ``begin``, a pass starts and ends that mostly consists of layers; zeros for none. ``usual``: how many
    launches come before the layers, and after them."""
    head, tail = usual
    start, length, found = layers_in(symbols, traits, begin, end)
    if not found:
        return 0, 0
    stop = start + length * found
    first = 0 if start - head <= length else start - head
    last = end - begin if end - begin - stop - tail <= length else stop + tail
    return first, last


def _joined(found: Iterations, begin: np.ndarray, end: np.ndarray, period: int) -> Iterations:
    """Iterations with further ones, of one kind, in place of those that lie in them; in order."""
    inside = np.searchsorted(begin, found.starts, side="right") - 1
    stays = (inside < 0) | (found.starts >= end[np.maximum(inside, 0)])
    following = np.append(begin, len(begin) and np.iinfo(np.int64).max)[inside + 1]
    cut = found.ends > following
    ends = np.where(cut, following, found.ends)
    kinds = np.where(cut & (np.abs(ends - found.starts - period) <= 0.1 * period), REGULAR, found.kinds)
    used = np.unique(found.series[stays])
    repetitions = []
    for number in used.tolist():
        rows = stays & (found.series == number)
        fewer = {"starts": found.starts[rows], "ends": ends[rows], "kinds": kinds[rows]}
        repetitions.append(replace(found.repetitions[number], **fewer))
    return Iterations.of([*repetitions, *_of_bounds(begin, end).repetitions])


def begin_at_pauses(found: Iterations, strength: np.ndarray) -> bool:
    """Whether the host pauses where turns begin: longer than before 85 % of a turn's other launches, and twice
    as long as usual. True where all pauses are alike, because then they say nothing."""
    starts = found.starts[found.starts > 0]
    if not len(starts) or float(np.ptp(strength[1:])) == 0:
        return True
    inside = strength[int(found.starts[0]) + 1 : int(found.ends[-1])]
    usual = np.sort(inside)
    at = np.median(strength[starts])
    rank = np.searchsorted(usual, at, side="right") / max(len(usual), 1)
    return bool(rank >= 0.85 and at >= 2 * np.median(usual))


def turns_to_leave_out(found: Iterations, symbols: np.ndarray, traits: Traits) -> np.ndarray | None:
    """Which launches to leave out so that loops inside a pass, run a varying number of times (the experts of a layer),
    do not hide its period: all turns of each loop but its last. bool (n,); None where the turns are no such loop.

    They are one where what lies between the loops recurs and holds a part of the launches, and no turn is a pass."""
    if not len(found):
        return None
    for one in found.repetitions:
        rows = np.arange(*one.template)
        if traits.is_optimiser[rows].any() or layers_in(symbols, traits, *one.template)[2]:
            return None
    starts, ends, _, last = _runs(found, symbols)
    begin, end = ends[:-1], starts[1:]
    if len(begin) < _FEWEST_LOOPS or (end - begin).sum() < _LEAST_BETWEEN * (ends[-1] - starts[0]):
        return None
    _, often = np.unique(Hashed.of(symbols).stretches(begin, end), return_counts=True)
    if often.max() < 0.5 * len(begin):
        return None
    step = np.zeros(len(symbols) + 1, np.int64)
    np.add.at(step, starts, 1)
    np.add.at(step, last, -1)
    return np.cumsum(step)[:-1] > 0
