"""Launch sequence → the loops in it: nested, of any period, found from the innermost to the outermost.

A loop is a stretch of symbols that repeats at one distance (its *lag*). It is taken where it shortens the description
of the sequence: the bits of the symbols that agree with those one lag before, less the bits of those that do not,
less what it costs to say where the loop is and how long its turns are. The shortest lag is taken first. Then each
loop becomes one symbol, whatever the number of its turns, and the sequence that is left is looked at in the same way:
layers with a varying number of experts become equal, then passes with equal layers, then requests with any number of
tokens. Each pass is a few comparisons of whole arrays; what is left gets shorter each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.tree.structure.constants import Constants
from xsp_post.tree.structure.hashes import Hashed, bits_per_symbol, random_words, telling_length

_MOST_PASSES = 24
_MOST_SAMPLES = 512
_MOST_LAGS = 64  # looked at in one pass over a sequence, those at which most recurs


@dataclass
class Loops:
    """Loops of one sequence: one entry each, inner ones before those around them.

    kind: number of what a turn consists of; start, end: positions in the sequence; first, last: rows of its turns.
    Per turn: turn_start, turn_end, and whether it is as most turns of its kind (`is_usual`).
    """

    start: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    end: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    kind: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    first: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    last: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    turn_start: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    turn_end: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    length: int = 0  # symbols of the sequence, equal neighbours as one
    size: int = 0  # symbols that describe it: what no loop holds, one turn of each kind, one per loop

    def __len__(self) -> int:
        return len(self.start)

    @property
    def count(self) -> np.ndarray:
        """Turns of each loop."""
        return self.last - self.first


@dataclass
class _State:
    """What is left of a sequence: symbols, where each begins in the sequence, and what it tells (bits)."""

    symbol: np.ndarray
    begin: np.ndarray  # one more than symbols: the last is the end
    bits: np.ndarray
    raw: np.ndarray  # the sequence itself

    def __len__(self) -> int:
        return len(self.symbol)


def find_loops(symbols: np.ndarray, constants: Constants) -> Loops:
    """All loops of a sequence of symbols (int64, shape (n,), dense codes); near-linear in n."""
    n = len(symbols)
    if n < 2 * constants.fewest_parts:
        return Loops(length=n, size=n)
    state = _without_runs(_State(symbols, np.arange(n + 1), np.zeros(n), symbols))
    next_symbol, size, length = int(symbols.max()) + 1, 0, len(state)
    share = (np.bincount(state.symbol) / len(state))[state.symbol]
    # what a symbol tells, of all that are not like the one before it; of two kinds that take turns next to nothing
    state.bits = np.maximum(np.log2((1 - np.r_[0.0, share[:-1]]) / share), -np.log2(constants.alike_ratio))
    if len(np.unique(state.symbol)) < 3:
        return Loops(length=length, size=length)
    found: list[_Runs] = []
    for _ in range(_MOST_PASSES):
        runs = _runs_of(state, constants)
        if not len(runs.start):
            break
        size += _size(runs)
        runs.kind += next_symbol
        found.append(runs.in_sequence(state))
        next_symbol += int(runs.kind.max()) - next_symbol + 1
        state = _without_runs(_folded(state, runs))
    result = _joined(found, state, size)
    result.length = length
    return result


@dataclass
class _Runs:
    """Loops of one pass, in order, not overlapping: [start, end) and turns, in elements of the state."""

    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    turn_count: np.ndarray
    turn_start: np.ndarray
    turn_end: np.ndarray

    def in_sequence(self, state: _State) -> _Runs:
        at = state.begin
        return _Runs(at[self.start], at[self.end], self.kind, self.turn_count, at[self.turn_start], at[self.turn_end])


def _size(runs: _Runs) -> int:
    """Elements that describe loops: a turn of each kind, by how much turns differ from it, and one per loop."""
    kind = np.repeat(runs.kind, runs.turn_count)
    length = runs.turn_end - runs.turn_start
    usual = np.zeros(int(runs.kind.max()) + 1, np.int64)
    usual[kind[::-1]] = length[::-1]
    return int(usual.sum() + np.abs(length - usual[kind]).sum()) + len(runs.start)


def _no_runs() -> _Runs:
    empty = np.zeros(0, np.int64)
    return _Runs(empty, empty, empty, empty, empty, empty)


def _joined(found: list[_Runs], state: _State, size: int) -> Loops:
    if not found:
        return Loops(size=len(state))
    count = np.concatenate([r.turn_count for r in found])
    last = np.cumsum(count)
    size += len(state)
    kind = pd.factorize(np.concatenate([r.kind for r in found]))[0]
    start, end, turn_start, turn_end = (
        np.concatenate([getattr(r, name) for r in found]) for name in ("start", "end", "turn_start", "turn_end")
    )
    return Loops(start, end, kind, last - count, last, turn_start, turn_end, size=size)


def _without_runs(state: _State) -> _State:
    """Equal neighbours as one element."""
    keep = np.flatnonzero(np.r_[True, state.symbol[1:] != state.symbol[:-1]])
    return _State(state.symbol[keep], np.append(state.begin[keep], state.begin[-1]), state.bits[keep], state.raw)


def _folded(state: _State, runs: _Runs) -> _State:
    """Each run as one element; it tells what one turn of it told."""
    n = len(state)
    inside = np.zeros(n + 1, np.int64)
    np.add.at(inside, runs.start, 1)
    np.add.at(inside, runs.end, -1)
    keep = np.cumsum(inside)[:-1] == 0
    keep[runs.start] = True
    symbol, bits = state.symbol.copy(), state.bits.copy()
    told = np.concatenate([[0.0], np.cumsum(state.bits)])
    symbol[runs.start] = runs.kind
    first = np.cumsum(runs.turn_count) - runs.turn_count
    bits[runs.start] = told[runs.turn_end[first]] - told[runs.turn_start[first]]
    rows = np.flatnonzero(keep)
    return _State(symbol[rows], np.append(state.begin[rows], state.begin[-1]), bits[rows], state.raw)


# ---------------------------------------------------------------- one pass


def _runs_of(state: _State, constants: Constants) -> _Runs:
    """Loops of the shortest lags, of those that shorten the description."""
    n = len(state)
    length = min(telling_length(n, bits_per_symbol(state.symbol), 2.0, 1), max(n // 8, 1))
    if n < 4:
        return _no_runs()
    hashed = Hashed.of(state.symbol)
    gap = _gaps(hashed.grams(length), n)
    lags = _lags(gap, constants)
    if not len(lags):
        return _no_runs()
    cost = np.log2(n) + np.log2(max(len(lags), 2))
    prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum(random_words(state.symbol), dtype=np.uint64)])
    is_free = np.ones(n + 1, bool)
    parts: list[_Runs] = []
    for lag in lags.tolist():
        found = _stretches(state, lag, is_free, cost, constants)
        if not len(found):
            continue
        words = _contents(prefix, found, lag)
        parts += _of_lag(state, hashed, prefix, found, words, lag, is_free, constants)
    if not parts:
        return _no_runs()
    return _in_order(parts)


def _in_order(parts: list[_Runs]) -> _Runs:
    kinds = np.repeat(np.arange(len(parts)), [len(p.start) for p in parts])
    start = np.concatenate([p.start for p in parts])
    order = np.argsort(start, kind="stable")
    count = np.concatenate([p.turn_count for p in parts])
    first = np.cumsum(count) - count
    rows = np.repeat(first[order], count[order]) + _within(count[order])
    turn_start = np.concatenate([p.turn_start for p in parts])[rows]
    turn_end = np.concatenate([p.turn_end for p in parts])[rows]
    end = np.concatenate([p.end for p in parts])
    return _Runs(start[order], end[order], kinds[order].astype(np.int64), count[order], turn_start, turn_end)


def _within(count: np.ndarray) -> np.ndarray:
    """0 … count − 1 for each count."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


def _gaps(grams: np.ndarray, n: int) -> np.ndarray:
    """How far the next equal gram is from each position, 0 for none; int64, shape (n,)."""
    order = np.argsort(grams, kind="stable")
    same = grams[order[1:]] == grams[order[:-1]]
    gap = np.zeros(n, np.int64)
    gap[order[:-1][same]] = (order[1:] - order[:-1])[same]
    return gap


def _lags(gap: np.ndarray, constants: Constants) -> np.ndarray:
    """The distances at which most recurs, ascending; of nearly equal ones the most frequent first."""
    counts = np.bincount(gap)
    counts[:2] = 0
    counts[counts < constants.near_ratio * np.arange(len(counts))] = 0
    best = np.argsort(-counts, kind="stable")[:_MOST_LAGS]
    leader: dict[int, int] = {}
    for lag in best[counts[best] > 0].tolist():
        near = [one for one in leader.values() if abs(lag - one) <= 1 + 3 * constants.near_ratio * one]
        leader[lag] = near[0] if near else lag
    return np.array(sorted(leader, key=lambda lag: (leader[lag], lag != leader[lag], -counts[lag])), np.int64)


def _stretches(state: _State, lag: int, is_free: np.ndarray, cost: float, constants: Constants) -> np.ndarray:
    """Free stretches that agree with themselves one lag on, in most of their bits and over at least two turns: rows
    (start, end, bits saved)."""
    n, symbol = len(state), state.symbol
    same = symbol[lag:] == symbol[:-lag]
    agree = same & is_free[: n - lag] & is_free[lag:n]
    if int(agree.sum()) < constants.alike_ratio * lag:
        return np.zeros((0, 3))
    bits = state.bits[: n - lag]
    worth = np.where(agree, bits, -bits * constants.alike_ratio / (1 - constants.alike_ratio))
    runs = _dense(agree, bits, lag, constants.alike_ratio)
    if not len(runs):
        return runs
    # the best part of each: from where the sum is least to where it is most
    total = np.concatenate([[0.0], np.cumsum(worth)])
    rows = []
    for start, end in runs.tolist():
        head = total[start : min(end, start + lag) + 1]
        start += int(len(head) - 1 - np.argmin(head[::-1]))
        tail = total[max(start, end - lag) : end + 1]
        end = max(start, end - lag) + int(np.argmax(tail))
        # the loop that follows may have begun with the last launches of the second turn
        if end - start < lag and not (end - start >= constants.holds_ratio * lag and same[end : start + lag].all()):
            continue
        inside = agree[start:end]
        saved = bits[start:end]
        gain = float(saved[inside].sum() - saved[~inside].sum()) - cost
        if gain > 0:
            rows.append((start, end + lag, gain))
    return np.array(rows, float).reshape(-1, 3)


def _dense(agree: np.ndarray, bits: np.ndarray, lag: int, least: float) -> np.ndarray:
    """Stretches in which every window of one lag agrees in ``least`` of its bits and of its elements; rows
    (start, end)."""
    if len(agree) < lag:
        return np.zeros((0, 2), np.int64)
    if agree.all():
        return np.array([[0, len(agree)]])
    good = np.concatenate([[0.0], np.cumsum(np.where(agree, bits, 0.0))])
    every = np.concatenate([[0.0], np.cumsum(bits)])
    number = np.concatenate([[0], np.cumsum(agree)])
    is_good = good[lag:] - good[:-lag] >= least * (every[lag:] - every[:-lag])
    is_good &= number[lag:] - number[:-lag] >= least * lag
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_good, [False]]).astype(np.int8)))
    return np.stack([edges[::2], edges[1::2] - 1 + lag], axis=1)


def _contents(prefix: np.ndarray, found: np.ndarray, lag: int) -> np.ndarray:
    """What most windows of one lag in each stretch consist of, in any order: a hash, uint64."""
    words = np.zeros(len(found), np.uint64)
    for row, (start, end) in enumerate(found[:, :2].astype(np.int64).tolist()):
        window = prefix[start + lag : end + 1] - prefix[start : end - lag + 1]
        values, often = np.unique(window[:4096], return_counts=True)
        words[row] = values[int(np.argmax(often))]
    return words


def _of_lag(
    state: _State, hashed: Hashed, prefix: np.ndarray, found: np.ndarray, words: np.ndarray, lag: int,
    is_free: np.ndarray, constants: Constants,
) -> list[_Runs]:  # fmt: skip
    """The loops of one lag: each kind of content that saves enough, cut into turns; ``is_free`` is changed."""
    parts = []
    number = pd.factorize(words)[0]
    gain = np.bincount(number, weights=found[:, 2])
    for kind in np.argsort(-gain, kind="stable").tolist():
        if gain[kind] < constants.spare_bits:
            break
        mine = found[number == kind, :2].astype(np.int64)
        mine = mine[[bool(is_free[a:b].all()) for a, b in mine.tolist()]]
        if not len(mine) or (lag < constants.fewest_launches and _is_half(state, mine, lag, constants)):
            continue
        made = _cut(state, hashed, prefix, mine, lag, is_free, constants)
        if len(made.start):
            for start, end in zip(made.start.tolist(), made.end.tolist(), strict=True):
                is_free[start:end] = False
            parts.append(made)
    return parts


def _is_half(state: _State, runs: np.ndarray, lag: int, constants: Constants) -> bool:
    """Whether turns take turns: every second one is alike in all, and to say where neighbours differ, again and again,
    takes more than to say both (an attention and an MLP of as many launches)."""
    differs, all_bits = np.zeros(2), 0.0
    for start, end in runs.tolist():
        for number, far in enumerate((lag, 2 * lag)):
            near = np.arange(start, max(start, end - far))
            differs[number] += state.bits[near][state.symbol[near] != state.symbol[near + far]].sum()
        all_bits += state.bits[start:end].sum()
    told = all_bits * lag / (runs[:, 1] - runs[:, 0]).sum()  # by one turn
    return bool(differs[1] < constants.near_ratio * differs[0] and differs[0] > told + constants.spare_bits)


# ---------------------------------------------------------------- turns


def _cut(
    state: _State, hashed: Hashed, prefix: np.ndarray, runs: np.ndarray, lag: int, is_free: np.ndarray,
    constants: Constants,
) -> _Runs:  # fmt: skip
    """Turns of the loops of one kind. All begin at the same place of the content, where most stretches begin or end."""
    phase, typical = _phases(hashed, prefix, runs, lag)
    offset = _usual_phase(state, phase, runs, lag)

    def turns(offset: int) -> tuple[_Runs, np.ndarray]:
        starts = [np.arange(at, end - lag + 1, lag) for at, end in
                  zip((runs[:, 0] + (offset - phase) % lag).tolist(), runs[:, 1].tolist(), strict=True)]  # fmt: skip
        template = hashed.symbols[typical + (np.arange(lag) + offset) % lag]
        return _with_odd_turns(hashed, state.bits, np.concatenate(starts), template, is_free, constants), template

    made, template = turns(offset)
    cut_off = int(made.start[0] == 0) + int(made.end[-1] == len(state))  # turns at the ends of the recording
    for shift in _begins_sooner(hashed.symbols, made, template, is_free):
        moved, _ = turns((offset - shift) % lag)
        if len(moved.turn_start) >= len(made.turn_start) - cut_off:
            return moved
    return made  # some loops would lose a turn


def _begins_sooner(symbols: np.ndarray, made: _Runs, template: np.ndarray, is_free: np.ndarray) -> list[int]:
    """By how many symbols most loops could begin before their first turn, where what stands there is the end of a turn;
    and by how many all of them that could."""
    lag = len(template)
    rows = _sample(len(made.start))
    at = made.start[rows][:, None] - np.arange(1, lag)[None, :]
    same = (symbols[np.maximum(at, 0)] == template[::-1][: lag - 1]) & (at >= 0) & is_free[np.maximum(at, 0)]
    score = np.cumsum(np.where(same, 1, -3), axis=1)
    best = np.argmax(score, axis=1)
    sooner = np.where(score[np.arange(len(rows)), best] > 0, best + 1, 0) if lag > 1 else np.zeros(1, np.int64)
    often = np.bincount(sooner)
    if not often[1:].any() or often.max() * 2 < len(rows) or not np.argmax(often):
        return []
    return [int(np.argmax(often)), int(sooner[sooner > 0].min())]


def _phases(hashed: Hashed, prefix: np.ndarray, runs: np.ndarray, lag: int) -> tuple[np.ndarray, int]:
    """At which place of a typical turn each stretch starts (0 … lag − 1), and where that turn starts.

    A turn is typical where it consists of what most windows of one lag consist of; one is looked for in each stretch.
    """
    symbols = hashed.symbols
    windows = [prefix[a + lag : b + 1] - prefix[a : b - lag + 1] for a, b in runs.tolist()]
    values, often = np.unique(np.concatenate([w[: 8 * lag] for w in windows]), return_counts=True)
    usual = values[int(np.argmax(often))]
    at = np.array([int(np.argmax(w == usual)) for w in windows])  # 0: none is typical
    longest = max(range(len(runs)), key=lambda k: (bool(windows[k][at[k]] == usual), runs[k, 1] - runs[k, 0]))
    typical = int(runs[longest, 0] + at[longest])
    own = np.concatenate([symbols[typical : typical + lag]] * 2)
    phases = np.zeros(len(runs), np.int64)
    known: dict[int, int] = {}
    begin = runs[:, 0] + at
    for number, (start, word) in enumerate(
        zip(begin.tolist(), hashed.stretches(begin, begin + lag).tolist(), strict=True)
    ):
        if word not in known:
            candidates = np.flatnonzero(own[:lag] == symbols[start])[:256]
            candidates = candidates if len(candidates) else np.arange(min(lag, 256))
            agree = [int((own[c : c + lag] == symbols[start : start + lag]).sum()) for c in candidates.tolist()]
            known[word] = int(candidates[int(np.argmax(agree))])
        phases[number] = (known[word] - at[number]) % lag
    return phases, typical


def _usual_phase(state: _State, phase: np.ndarray, runs: np.ndarray, lag: int) -> int:
    """The place of the content where turns begin: the one where most stretches start or end; of equals the one where
    the first ends. A start or an end counts the less, the more of what is beyond it could be in a turn: there an odd
    turn broke the loop, and no end of it."""
    ends = (phase + runs[:, 1] - runs[:, 0]) % lag
    rows = _sample(len(runs))
    raw, begin, n = state.raw, state.begin, len(state.raw)
    width = np.int64(raw.max()) + 1
    pairs = raw[:-1] * width + raw[1:]
    weights = []
    for start, end in zip(begin[runs[rows, 0]].tolist(), begin[runs[rows, 1]].tolist(), strict=True):
        size = int(begin[np.searchsorted(begin, start) + lag]) - start
        turn = pairs[start : start + size]
        sides = pairs[max(0, start - size) : max(0, start - 1)], pairs[end : min(end + size, n - 1)]
        weights.append([float(np.isin(side, turn).mean()) if len(side) else 0.5 for side in sides])
    # a first turn is odd more often than a last one: of equals the end counts
    weight = np.array([1.0, 1.05]) - np.array(weights)
    votes = np.bincount(phase[rows], weights=weight[:, 0], minlength=lag)
    votes += np.bincount(ends[rows], weights=weight[:, 1], minlength=lag)
    return int(np.argmax(votes))


def _sample(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_SAMPLES)).astype(np.int64))


def _with_odd_turns(
    hashed: Hashed, bits: np.ndarray, starts: np.ndarray, template: np.ndarray, is_free: np.ndarray,
    constants: Constants,
) -> _Runs:  # fmt: skip
    """Turns joined to loops; between two of them, and beside them, turns that are nearly like the others."""
    symbols, lag = hashed.symbols, len(template)
    n = len(symbols)
    starts = distinct(starts)
    starts = starts[np.r_[True, np.diff(starts) >= lag]]
    # single turns elsewhere
    taken = np.concatenate([[0], np.cumsum(~is_free)])
    begins = np.flatnonzero(symbols[: n - lag + 1] == template[0])
    begins = begins[taken[begins + lag] == taken[begins]]
    own = Hashed.of(template).stretches(np.array([0]), np.array([lag]))[0]
    begins = begins[hashed.stretches(begins, begins + lag) == own]
    near = np.searchsorted(starts, begins)
    before = np.where(near > 0, begins - starts[np.maximum(near - 1, 0)], lag)
    after = np.where(near < len(starts), starts[np.minimum(near, len(starts) - 1)] - begins, lag)
    begins = begins[(before >= lag) & (after >= lag)]
    begins = begins[np.r_[True, np.diff(begins) >= lag]] if len(begins) else begins
    starts = np.union1d(starts, begins)
    ends = starts + lag
    extra_start, extra_end = [], []
    slack = max(1, round(constants.drift_ratio * lag) + 1)
    told = float(bits[starts[0] : ends[0]].sum())

    def is_like(a: int, b: int, least: float) -> bool:
        """Whether [a, b) holds nearly what the template holds."""
        if a < 0 or b > n or taken[b] > taken[a]:
            return False
        agreed = agreement(symbols[a:b], template, 2 * slack, bits[a:b])
        return agreed >= least * max(told, float(bits[a:b].sum()))

    if lag >= constants.fewest_parts:
        room = np.r_[starts, n] - np.r_[0, ends]
        for k in np.flatnonzero(room >= lag - 3 * slack).tolist():
            left = int(ends[k - 1]) if k else 0
            right = int(starts[k]) if k < len(starts) else n
            while k and right - left >= lag - slack:
                free = int(np.searchsorted(taken, taken[left], side="right")) - 1  # up to what another loop took
                stop = _like_end(symbols, left, min(right, free), template, slack)
                if stop < 0 or not is_like(left, stop, constants.alike_ratio):
                    break
                extra_start.append(left)
                extra_end.append(stop)
                left = stop
            while k < len(starts) and right - left >= lag - slack:
                begin = n - _like_end(symbols[::-1], n - right, n - left, template[::-1], slack)
                if begin > n or begin < left or not is_like(begin, right, constants.alike_ratio):
                    break
                extra_start.append(begin)
                extra_end.append(right)
                right = begin
            # between two turns one with more that is odd
            is_between = 0 < k < len(starts) and abs(right - left - lag) <= 3 * slack
            if is_between and is_like(left, right, constants.alike_ratio**2):
                extra_start.append(left)
                extra_end.append(right)
    turn_start = np.concatenate([starts, np.array(extra_start, np.int64)])
    turn_end = np.concatenate([ends, np.array(extra_end, np.int64)])
    order = np.argsort(turn_start, kind="stable")
    turn_start, turn_end = turn_start[order], turn_end[order]
    return _loops_of(turn_start, turn_end)


def _like_end(symbols: np.ndarray, left: int, right: int, template: np.ndarray, slack: int) -> int:
    """Where a turn that starts at ``left`` and is nearly like the template ends: where its last symbols agree best
    with the template's; −1 for none."""
    lag = len(template)
    size = min(6, lag)
    best, score = -1, -1.0
    for shift in sorted(range(-slack, slack + 1), key=abs):
        stop = left + lag + shift
        if stop > right or stop - size < left:
            continue
        agree = float((symbols[stop - size : stop] == template[-size:]).sum())
        if agree > score:
            best, score = stop, agree
    return best


def agreement(one: np.ndarray, other: np.ndarray, slack: int, weight: np.ndarray | None = None) -> float:
    """How many symbols of a stretch stand, with a neighbour, at their place in another one, give or take ``slack``:
    what missing and additional symbols move agrees still. ``weight``: what each symbol of the first one counts."""
    agrees = np.zeros(len(one), bool)
    for shift in range(-slack, slack + 1):
        begin, end = max(0, -shift), min(len(one), len(other) - shift)
        if end - begin < 2:
            continue
        same = one[begin:end] == other[begin + shift : end + shift]
        pair = same[1:] & same[:-1]
        agrees[begin : end - 1] |= pair
        agrees[begin + 1 : end] |= pair
    return float(agrees.sum() if weight is None else weight[agrees].sum())


def _loops_of(turn_start: np.ndarray, turn_end: np.ndarray) -> _Runs:
    """Turns that touch are one loop."""
    opens = np.flatnonzero(np.r_[True, turn_start[1:] != turn_end[:-1]])
    count = np.diff(np.append(opens, len(turn_start)))
    last = opens + count - 1
    return _Runs(turn_start[opens], turn_end[last], np.zeros(len(opens), np.int64), count, turn_start, turn_end)
