"""Trace → Tree, for launches without ranges: the outermost period of a sequence, and where each turn starts.

How: every stretch of k symbols (k long enough that equality is not chance) is a *gram*. Grams that recur at an
even spacing are *markers*; the largest spacing that enough markers share is the period. Each marker votes for
the starts, so that a missing or additional launch moves no boundary; the start of the first turn is where the
sequence begins to be made of grams of a turn; the exact boundary is where the end of one turn and the head of
the next fit best on both sides. No step looks at events one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsp_post.inference.boundaries import WINDOW, best_template, boundary_scores, find_phase, step_to_agree
from xsp_post.inference.sequence import (
    LONGEST_GRAM,
    GramStatistics,
    Hashed,
    bits_per_symbol,
    gram_statistics,
    medians,
    telling_length,
)

REGULAR, DIFFERENT, PARTIAL = 0, 1, 2  # kinds of turns
SHORTEST_PERIOD = 4  # launches
# What makes a spacing a period: occurrences of each marker, how many grams beyond `length` agree (0: any number), share
# of what is unexplained, reach over the sequence.
_EVIDENCE = ((6, 0, 0.03, 0.2), (4, 2, 0.02, 0.2), (3, 2, 0.02, 0.6), (3, 0, 0.3, 0.2), (2, 0, 0.5, 0.6))


@dataclass
class Repetition:
    """Turns [starts, ends) of one period, in order, not overlapping; they need not touch.

    kinds: `REGULAR` (as the template, but for single launches), `DIFFERENT`, `PARTIAL` (cut off at an end).
    template: start and end of a turn that stands for all; agreement: share of their short stretches that also
    occur in typical turns (1: no odd launch). Empty arrays when nothing repeats; then ``reason`` is a sentence.
    """

    starts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    ends: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    kinds: np.ndarray = field(default_factory=lambda: np.empty(0, np.int8))
    template: tuple[int, int] = (0, 0)
    reason: str = ""
    agreement: float = 1.0

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def period(self) -> int:
        return self.template[1] - self.template[0]

    def coverage(self, count: int) -> float:
        """Share of `count` launches that lie in regular turns."""
        regular = self.kinds == REGULAR
        return float((self.ends - self.starts)[regular].sum()) / max(count, 1)


def find_repetition(symbols: np.ndarray, *, shortest: int = SHORTEST_PERIOD, longest: int | None = None) -> Repetition:
    """The outermost repetition of a sequence of symbols (int64, shape (n,)), of those up to ``longest``; O(n log n).

    Tolerates missing, additional and exchanged symbols (about one in a hundred, more where the turns are
    short). On a sequence without structure it returns an empty repetition with the reason.
    """
    n = len(symbols)
    bits = bits_per_symbol(symbols)
    length = telling_length(n, bits)
    if length > LONGEST_GRAM:
        return Repetition(reason="nearly all launches are of one kernel, so that no pattern can be recognised")
    if n < max(2 * shortest, 2 * length):
        return Repetition(reason=f"{n} launches are too few to show a pattern")
    hashed = Hashed.of(symbols)
    grams = hashed.grams(length)
    stats = gram_statistics(grams)
    recurring = float((stats.count[grams] >= 2).mean())
    if recurring < 0.2:
        return Repetition(reason=f"of all stretches of {length} launches only {recurring:.0%} occur more than once")
    markers = _markers(stats, n, shortest, length, longest or n)
    if not markers.any():
        is_short = stats.is_regular & (stats.spacing < shortest)
        if stats.count[is_short].sum() >= 0.5 * len(grams):
            turn = int(np.median(stats.spacing[is_short]))
            said = "each launch" if turn == 1 else f"every {turn} launches"
            return Repetition(
                reason=f"the same comes {said}; turns of fewer than {shortest} launches are not looked for"
            )
        return Repetition(reason=f"{recurring:.0%} of the stretches of {length} launches recur, but at no even spacing")
    return _turns(hashed, grams, stats, markers, length)


# ---------------------------------------------------------------- the period


def _markers(stats: GramStatistics, n: int, shortest: int, length: int, longest: int) -> np.ndarray:
    """Grams that mark the outermost period; bool per gram (all False: none).

    Candidate spacings are tried from the largest down. One is taken when its grams explain a noticeable part
    of what the shorter spacings leave unexplained, and reach over a part of the sequence: the fewer the turns,
    the more of both, because a few coincidences look like a period.
    """
    usable = stats.is_regular & (stats.spacing >= shortest) & (stats.spacing <= longest)
    if not usable.any():
        return usable
    recurs = stats.count >= 2
    bins = np.zeros(len(stats.count), np.int64)
    bins[recurs] = np.rint(np.log(np.maximum(stats.spacing[recurs], 1)) / np.log(1.03)).astype(np.int64)
    highest = int(bins.max())
    occurrences = np.bincount(bins[recurs], weights=stats.count[recurs], minlength=highest + 3)
    explained_below = np.concatenate([[0.0], np.cumsum(occurrences)])  # by bins < index
    total = len(stats.position)
    for index in np.unique(bins[usable])[::-1]:
        near = usable & (np.abs(bins - index) <= 1)
        spacing = int(np.median(stats.spacing[near & (bins == index)]))
        open_count = max(total - explained_below[max(index - 1, 0)], 1.0)
        for fewest, most, share, reach in _EVIDENCE:
            chosen = near & (stats.count >= fewest)
            chosen &= stats.count * spacing >= 0.5 * (stats.last - stats.first + spacing)
            if not chosen.any():
                continue
            span = int((stats.last[chosen] - stats.first[chosen]).max()) + spacing
            agreeing = _company(stats, chosen, near, length, spacing) if most else chosen
            if most and int(agreeing.sum()) <= length + most:
                continue
            if span >= reach * n and stats.count[agreeing].sum() >= share * open_count:
                return chosen
    return np.zeros(len(stats.count), dtype=bool)


def _company(stats: GramStatistics, chosen: np.ndarray, near: np.ndarray, length: int, spacing: int) -> np.ndarray:
    """Grams of about the same spacing that stand close to a chosen one in some turn, those that occur twice too:
    the largest such company."""
    candidates = np.flatnonzero(near & (stats.count >= 2))
    place = stats.first[candidates] % spacing
    around = np.zeros((0,), np.int64)
    reach = 3 * length + 8
    for center in np.unique(stats.first[chosen] % spacing)[:256]:
        distance = np.abs(place - center)
        company = candidates[np.minimum(distance, spacing - distance) <= reach]
        around = company if len(company) > len(around) else around
    result = np.zeros_like(near)
    result[around] = True
    return result


def _votes(stats: GramStatistics, markers: np.ndarray, period: int, reference: int) -> tuple[np.ndarray, int, int]:
    """One position per turn at which the reference gram stands, or would stand; sorted int64.

    Also the positions of the first and the last marker that voted. Each occurrence of a marker votes for its own
    position less its usual distance from the reference.
    """
    rows = markers[stats.gram]
    position, gram = stats.position[rows], stats.gram[rows]
    own = stats.position[stats.start[reference] : stats.start[reference] + stats.count[reference]]
    before = np.searchsorted(own, position, side="right") - 1
    distance = position - own[np.maximum(before, 0)]
    counted = (before >= 0) & (distance < 1.3 * period)
    usual = medians(gram[counted], distance[counted], len(stats.count))
    vote = position - usual[gram]
    order = np.argsort(vote, kind="stable")
    voter = position[order]
    vote, is_own = vote[order], gram[order] == reference
    cluster = np.concatenate([[0], np.cumsum(np.diff(vote) > 0.2 * period)])
    sizes = np.bincount(cluster)
    starts = np.cumsum(sizes) - sizes
    cut = vote[starts + (sizes - 1) // 2]
    own_cluster = cluster[is_own]
    has_own = np.zeros(len(sizes), dtype=bool)
    has_own[own_cluster] = True
    cut[own_cluster[::-1]] = vote[is_own][::-1]  # the first of several wins
    keep = has_own | (sizes >= 0.2 * int(markers.sum()))
    cut, has_own, sizes = cut[keep], has_own[keep], sizes[keep]
    # A long insertion inside a turn makes the markers behind it vote for a turn that is not there.
    left = np.diff(cut, prepend=cut[0] - period)
    off = np.abs(left - np.maximum(np.rint(left / period), 1) * period) > 0.15 * period
    cut, sizes = cut[has_own | ~off], sizes[has_own | ~off]
    for _ in range(8):  # two turns that are too close: the one with more votes is real
        close = np.flatnonzero(np.diff(cut) < 0.6 * period)
        if not len(close):
            break
        weaker = np.where(sizes[close + 1] > sizes[close], close, close + 1)
        cut, sizes = np.delete(cut, weaker), np.delete(sizes, weaker)
    near = np.flatnonzero((vote > cut[0] - 0.2 * period) & (vote < cut[-1] + 0.2 * period))
    return cut, int(voter[near].min()), int(voter[near].max())


# ---------------------------------------------------------------- the turns


def _turns(hashed: Hashed, grams: np.ndarray, stats: GramStatistics, markers: np.ndarray, length: int) -> Repetition:
    n = len(hashed)
    period = int(np.median(np.repeat(stats.spacing[markers], stats.count[markers])))
    reference = _best_marker(stats, markers)
    cuts, first, last = _votes(stats, markers, period, reference)
    cuts = cuts[(cuts > -period) & (cuts < n)]
    inside = cuts[cuts >= 0]
    if len(inside) < 2:
        return Repetition(reason="a pattern occurs twice, but no two whole turns of it")
    shown = _typical_turns(hashed, inside, period)
    is_known = _grams_of(grams, inside[shown], period) & (stats.count >= 2)
    begin, finish = _extent(is_known[grams], first, last, length)
    typical = int(inside[shown[0]])
    members = begin + np.flatnonzero(is_known[grams[begin : begin + 3 * period]])
    anchor, begin = find_phase(hashed.symbols, grams, stats, members, inside, typical, period, length)
    # The same votes again, for a reference near the start of a turn: less drift between them.
    near = _best_marker_near(stats, markers, anchor, period, length)
    if near >= 0:
        cuts, _, _ = _votes(stats, markers, period, near)
        own = stats.position[stats.start[near] : stats.start[near] + stats.count[near]]
        closest = own[np.argmin(np.abs(own - anchor))]
        predicted = cuts + (anchor - closest)
    else:
        shift = anchor - int(inside[shown[0]])
        predicted = np.concatenate([cuts + shift - period, cuts[-1:] + shift])
    # The last grams end before the sequence does: turns shorter than a gram need starts beyond the last vote.
    more = np.arange(1, length // period + 1) * period
    later = predicted[-1] + more
    predicted = np.concatenate([predicted, later[later + 0.8 * period <= finish]])
    predicted = predicted[(predicted > begin + 0.3 * period) & (predicted < n - 1)]
    drift = 4 if near >= 0 else max(8, period // 50)
    anchor, end = best_template(hashed.symbols, predicted, anchor, period, drift)
    back, kept = step_to_agree(hashed.symbols, grams, stats, (begin, finish), (anchor, end), predicted, length)
    predicted, begin, template = predicted - back, begin - kept, (anchor - back, end - back)
    return _bounded_turns(hashed, is_known[grams], predicted, begin, finish, template, drift, length)


def _best_marker(stats: GramStatistics, markers: np.ndarray) -> int:
    candidates = np.flatnonzero(markers)
    order = np.lexsort((stats.first[candidates], -stats.steady[candidates]))
    return int(candidates[order[0]])


def _best_marker_near(stats: GramStatistics, markers: np.ndarray, anchor: int, period: int, length: int) -> int:
    """The marker that most turns have, among those that stand within a few launches of the anchor; −1: none."""
    rows = markers[stats.gram]
    distance = stats.position[rows] - anchor
    gram = stats.gram[rows]
    reach = max(2 * length, min(32, period // 4))
    close = (distance >= -length - 2) & (distance <= reach)
    if not close.any():
        return -1
    candidates, rank = gram[close], np.abs(distance[close])
    order = np.lexsort((rank, -stats.steady[candidates]))
    return int(candidates[order[0]])


def _typical_turns(hashed: Hashed, cuts: np.ndarray, period: int) -> np.ndarray:
    """Indices of up to three cuts whose turn is typical: most common content first, usual length next."""
    starts, ends = cuts[:-1], cuts[1:]
    content = hashed.stretches(starts, ends)
    _, inverse, counts = np.unique(content, return_inverse=True, return_counts=True)
    off = np.abs(ends - starts - period)
    order = np.lexsort((starts, off, -counts[inverse]))
    return order[:3]


def _grams_of(grams: np.ndarray, starts: np.ndarray, period: int) -> np.ndarray:
    """Which gram codes occur in a period from one of the starts; bool per code."""
    known = np.zeros(int(grams.max()) + 1, dtype=bool)
    for start in starts:  # at most three
        known[grams[start : start + period + 1]] = True
    return known


def _extent(is_member: np.ndarray, first: int, last: int, length: int) -> tuple[int, int]:
    """Where the sequence made of known grams begins and ends around [first, last]; end is exclusive.

    One odd launch spoils `length` grams; only a stretch longer than a few of those ends the repetition.
    """
    limit = 3 * length + 8
    edges = np.flatnonzero(np.diff(np.concatenate([[False], ~is_member, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    is_break = ends - begins > limit
    before = np.flatnonzero(is_break & (ends <= first))
    after = np.flatnonzero(is_break & (begins > last))
    begin = int(ends[before[-1]]) if len(before) else 0
    finish = int(begins[after[0]]) if len(after) else len(is_member)
    members = np.flatnonzero(is_member[begin:finish])
    return begin + int(members[0]), begin + int(members[-1]) + length


def _bounded_turns(
    hashed: Hashed,
    is_member: np.ndarray,
    predicted: np.ndarray,
    begin: int,
    finish: int,
    template: tuple[int, int],
    drift: int,
    length: int,
) -> Repetition:
    """Exact starts and ends from predicted starts; turns that do not fit are marked or left out."""
    symbols, n = hashed.symbols, len(hashed)
    body = symbols[template[0] : template[1]]
    size = len(body)
    window = min(WINDOW, size)
    head, tail = body[:window], body[-window:]
    drift = min(drift, max(size // 2 - 1, 1))
    inner, _ = boundary_scores(symbols, predicted, tail, head, drift)
    starts = np.unique(np.concatenate([[begin], inner[(inner > begin) & (inner < n)]]))
    starts = starts[np.concatenate([[True], np.diff(starts) > 0.3 * size])]
    ends = np.concatenate([starts[1:], [n]])
    lengths = ends - starts
    # A turn that is too long may have ended where it should have; what follows it is something else.
    too_long = np.flatnonzero((lengths > 1.1 * size + 2) | (ends == n))
    early, fit = boundary_scores(symbols, starts[too_long] + size, tail, tail[:0], max(drift, 4, size // 50))
    at_finish = (ends[too_long] == n) & (np.abs(early - finish) <= length)
    fits = ((fit >= 0.7) | ((fit >= 0.25) & at_finish)) & (early <= ends[too_long])
    ends[too_long[fits]] = early[fits]
    # Or it may start later: what came before it is only made of the same parts.
    too_long = np.flatnonzero(ends - starts > 1.1 * size + 2)
    late, fit = boundary_scores(symbols, ends[too_long] - size, head[:0], head, max(drift, 4))
    fits = (fit >= 0.7) & (late >= starts[too_long])
    starts[too_long[fits]] = late[fits]
    kinds = np.full(len(starts), DIFFERENT, np.int8)
    content = hashed.stretches(starts, ends)
    same = content == hashed.stretches(np.array([template[0]]), np.array([template[1]]))[0]
    known = np.concatenate([[0], np.cumsum(is_member)])
    upto = len(is_member)
    share = (known[np.minimum(ends, upto)] - known[np.minimum(starts, upto)]) / np.maximum(ends - starts, 1)
    close = np.abs(ends - starts - size) <= np.maximum(4, 0.1 * size)
    kinds[same | (close & (share >= 0.4))] = REGULAR
    is_last = np.arange(len(starts)) == len(starts) - 1
    keep = (kinds == REGULAR) | ((share >= 0.3) & (ends - starts <= 3 * size) & ~is_last)
    if len(starts) and kinds[-1] != REGULAR and finish - starts[-1] < size:
        ends[-1] = min(finish, n)  # cut off by the end of the recording, or by other work
        kinds[-1] = PARTIAL
        keep[-1] = ends[-1] - starts[-1] >= max(length, 2)
    agreement = float(np.average(share[keep], weights=(ends - starts)[keep])) if keep.any() else 0.0
    result = Repetition(starts[keep], ends[keep], kinds[keep], template, agreement=agreement)
    if int((result.kinds == REGULAR).sum()) < 2:
        return Repetition(reason="a pattern recurs, but fewer than two whole turns of it are alike")
    return result


# ---------------------------------------------------------------- several repetitions, one after another


def find_series(
    symbols: np.ndarray, *, shortest: int = SHORTEST_PERIOD, most: int = 8, longest: int | None = None
) -> list[Repetition]:
    """All repetitions of a sequence, side by side (warm-up with gradients, then inference, say); in order.

    Positions are those of `symbols`. When the list is empty, `find_repetition` says why.
    """
    open_parts = [(0, len(symbols))]
    found: list[Repetition] = []
    while open_parts and len(found) < most:
        open_parts.sort(key=lambda part: part[0] - part[1])
        begin, end = open_parts.pop(0)
        if end - begin < max(2 * shortest, 16, len(symbols) // 100):
            break
        part = find_repetition(symbols[begin:end], shortest=shortest, longest=longest)
        part = split_in_equals(part, symbols[begin:end])
        launches = int((part.ends - part.starts).sum())
        if not len(part) or part.coverage(end - begin) < 0.2 or launches < 0.05 * len(symbols):
            continue
        part = moved(part, begin)
        found.append(part)
        edges = np.concatenate([[begin], np.stack([part.starts, part.ends], 1).ravel(), [end]])
        open_parts += [(int(a), int(b)) for a, b in edges.reshape(-1, 2) if b - a >= 2 * shortest]
    return sorted(found, key=lambda part: int(part.starts[0]))


def moved(repetition: Repetition, offset: int) -> Repetition:
    """The same repetition of a sequence that starts `offset` earlier."""
    first, last = repetition.template
    return Repetition(
        repetition.starts + offset,
        repetition.ends + offset,
        repetition.kinds,
        (first + offset, last + offset),
        repetition.reason,
        repetition.agreement,
    )


def _agrees_sooner(body: np.ndarray, step: int, least: float) -> bool:
    """Whether a turn agrees with itself a shorter distance on than `step`, in at least this share of its symbols."""
    lags = np.arange(1, min(step, 257))
    return any(float((body[lag:] == body[:-lag]).mean()) >= least for lag in lags.tolist())


def split_in_equals(repetition: Repetition, symbols: np.ndarray) -> Repetition:
    """A turn made of two to four parts of one length that agree in 70 % of their symbols, and of nothing else,
    is that many turns (time steps that alternate their sweep direction, say); unless it agrees as well with itself a
    shorter distance on: the cells of a recurrent layer are parts of a turn, and so is a half of them."""
    size = repetition.period
    body = symbols[repetition.template[0] : repetition.template[1]]
    for parts in (4, 3, 2):
        step = size // parts
        if size % parts or step < SHORTEST_PERIOD:
            continue
        agreed = float((body == np.roll(body, step)).mean())
        if agreed < 0.7 or _agrees_sooner(body, step, agreed - 0.1):
            continue
        regular = (repetition.kinds == REGULAR) & (repetition.ends - repetition.starts == size)
        times = np.where(regular, parts, 1)
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        starts = np.repeat(repetition.starts, times) + within * step
        ends = np.where(np.repeat(regular, times), starts + step, np.repeat(repetition.ends, times))
        first = repetition.template[0]
        return Repetition(starts, ends, np.repeat(repetition.kinds, times), (first, first + step),
                          agreement=repetition.agreement)  # fmt: skip
    return repetition
