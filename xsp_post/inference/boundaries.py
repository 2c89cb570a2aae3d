"""Trace → Tree, for launches without ranges: where exactly a turn begins and ends, give or take no launch.

The phase of a repetition is open by nature; it is taken from where the repetition begins, from where it ends
if its first launches are odd, and each boundary from how well the end of one turn and the head of the next fit.
"""

from __future__ import annotations

import numpy as np

from xsp_post.inference.sequence import GramStatistics, bits_per_symbol

WINDOW = 12  # symbols looked at on each side of a boundary


def find_phase(
    symbols: np.ndarray,
    grams: np.ndarray,
    stats: GramStatistics,
    members: np.ndarray,
    cuts: np.ndarray,
    typical: int,
    period: int,
    length: int,
) -> tuple[int, int]:
    """Where the first turn begins, and the place in another turn that corresponds to it.

    members: positions, ascending, whose grams occur in a typical turn, the first one where the repetition may
    begin; cuts: one corresponding position per turn (give or take a few launches), typical: the one of a turn
    to prefer. What comes before the first turn may be made of the same parts in another order: the turn begins
    where the order is that of a turn too. Returns (anchor, begin): symbols from anchor on are what symbols from
    begin on should be.
    """
    begin = first = int(members[0])
    anchor = _corresponding(grams, stats, begin, cuts, typical, period, length)
    wanted = min(32, max(period // 4, 4))
    for _ in range(200):
        if begin == anchor or _in_order(symbols, begin, anchor, wanted) >= 0.5:
            break
        later = members[np.searchsorted(members, begin + _equal_run(symbols, begin, anchor, wanted) + 1) :]
        if not len(later) or later[0] > max(int(cuts[0]), first) + period // 2:
            begin = first
            anchor = _corresponding(grams, stats, begin, cuts, typical, period, length)
            break
        begin = int(later[0])
        anchor = _corresponding(grams, stats, begin, cuts, typical, period, length)
    return _before_an_odd_launch(symbols, begin, anchor, length)


def _in_order(symbols: np.ndarray, here: int, there: int, count: int) -> float:
    """Share of the next launches that are the same in both places, give or take two positions."""
    count = min(count, len(symbols) - max(here, there) - 2)
    if count <= 0 or there < 2:
        return 1.0
    own = symbols[here : here + count]
    same = own == symbols[there : there + count]
    for move in (-2, -1, 1, 2):
        same |= own == symbols[there + move : there + move + count]
    return float(same.mean())


def _equal_run(symbols: np.ndarray, here: int, there: int, count: int) -> int:
    count = min(count, len(symbols) - max(here, there))
    return int(np.argmin(np.append(symbols[here : here + count] == symbols[there : there + count], False)))


def _corresponding(
    grams: np.ndarray,
    stats: GramStatistics,
    begin: int,
    cuts: np.ndarray,
    typical: int,
    period: int,
    length: int,
) -> int:
    """The place in another turn that corresponds to `begin` by its gram, or one just after it; `begin` if none."""
    anchor = begin
    nearest = period
    for ahead in range(0, 2 * length):
        if begin + ahead >= len(grams):
            break
        gram = grams[begin + ahead]
        places = stats.position[stats.start[gram] : stats.start[gram] + stats.count[gram]] - ahead
        places = places[np.abs(places - begin) > period // 2]
        if not len(places):
            continue
        offset = (begin - int(cuts[0])) % period
        turn = np.clip(np.searchsorted(cuts + offset - period // 2, places, side="right") - 1, 0, len(cuts) - 1)
        off = np.abs(places - offset - cuts[turn])
        best = np.lexsort((np.abs(cuts[turn] - typical), off))[0]
        if off[best] < nearest:
            anchor, nearest = int(places[best]), int(off[best])
        # What recurs within a turn (in each block, say) is taken only where no other of its places is as near.
        if nearest <= max(3, stats.spacing[gram] // 3):
            break
    return anchor


def _before_an_odd_launch(symbols: np.ndarray, begin: int, anchor: int, length: int) -> tuple[int, int]:
    """(anchor, begin) moved back over one odd launch.

    An odd launch near the very start hides up to `length` launches before it.
    """
    fewest = max(2, int(np.ceil(6.0 / max(bits_per_symbol(symbols), 0.1))))  # agreement that is not chance
    for _ in range(2):
        step = _step_back(symbols, begin, anchor, length, fewest)
        if step is None:
            break
        begin, anchor = begin - step[0], anchor - step[1]
    return anchor, begin


def _step_back(symbols: np.ndarray, begin: int, anchor: int, length: int, fewest: int) -> tuple[int, int] | None:
    """How far (here, there) the agreement goes on to the left beyond one exchanged, added or missing launch."""
    best: tuple[int, int, int] | None = None
    for here, there in ((1, 1), (1, 0), (0, 1)):
        i, j = begin - here, anchor - there
        if i < 0 or j < 0:
            continue
        reach = min(i, j, 2 * length)
        same = symbols[i - reach : i][::-1] == symbols[j - reach : j][::-1]
        run = int(np.argmin(same)) if not same.all() else reach
        at_edge = run == i
        if (run >= fewest or (at_edge and run >= 1)) and (best is None or run > best[2]):
            best = (here + run, there + run, run)
    return best[:2] if best else None


def best_template(symbols: np.ndarray, predicted: np.ndarray, anchor: int, period: int, drift: int) -> tuple[int, int]:
    """Start and end of a turn whose own beginning and whose successor's are free of odd launches.

    That is the turn at the anchor, unless the next one begins unlike it.
    """
    n = len(symbols)
    head = symbols[anchor : anchor + min(2 * WINDOW, period)]
    begins, fit = boundary_scores(symbols, predicted, head[:0], head, min(drift, period // 2))
    order = np.argsort(begins, kind="stable")
    begins, fit = begins[order], fit[order]
    usual = np.abs(np.diff(begins) - period) <= max(4, period // 10)
    both = np.where(usual, np.minimum(fit[:-1], fit[1:]), -1.0)
    own = int(np.argmin(np.abs(begins - anchor))) if len(begins) else 0
    if len(both) and own < len(both) and begins[own] == anchor and both[own] >= 0.95:
        return anchor, int(begins[own + 1])
    if len(both) and both.max() >= 0.5:
        best = int(both.argmax())
        return int(begins[best]), int(begins[best + 1])
    return anchor, min(anchor + period, n)


def step_to_agree(
    symbols: np.ndarray,
    grams: np.ndarray,
    stats: GramStatistics,
    extent: tuple[int, int],
    template: tuple[int, int],
    predicted: np.ndarray,
    length: int,
) -> tuple[int, int]:
    """How far the phase moves back because the last turn lacks what the first has; (0, 0) mostly.

    When the last turn ends a few launches early, either its end is odd or the true start lies a few launches
    before `begin`, behind an odd launch. Whichever side agrees in more launches decides. Returns how far the
    template moves, and how far `begin` does (one more or less where a launch was added or is missing).
    """
    begin, finish = extent
    anchor, end = template
    place = finish - length
    if not len(predicted) or not 0 <= place < len(grams):
        return 0, 0
    gram = grams[place]
    places = stats.position[stats.start[gram] : stats.start[gram] + stats.count[gram]]
    last = places[np.argmin(np.abs((places - anchor) - (place - predicted[-1])))]
    lacking = end - (int(last) + length)
    if not 0 < lacking <= length or begin == 0 or anchor < lacking:
        return 0, 0
    known = np.unique(symbols[anchor:end])
    should = symbols[anchor - lacking : anchor]
    best, kept = 0, lacking
    for size in (lacking, lacking - 1, lacking + 1):  # none, one missing, or one added among them
        if not 0 < size <= begin:
            continue
        agreeing = _agreement(symbols[begin - size : begin], should, known)
        if agreeing > best:
            best, kept = agreeing, size
    at_end = _agreement(symbols[finish : finish + lacking], symbols[int(last) + length :][:lacking], known)
    return (lacking, kept) if best > at_end else (0, 0)


def _agreement(here: np.ndarray, should: np.ndarray, known: np.ndarray) -> int:
    """Launches that are what they should be count two, others of a kind that a turn has at all one."""
    size = min(len(here), len(should))
    return 2 * int((here[:size] == should[:size]).sum()) + int(np.isin(here[:size], known).sum())


def boundary_scores(
    symbols: np.ndarray,
    predicted: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    drift: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Best boundary within ±drift of each predicted one, and how well both sides fit there (0…1).

    symbols int64 (n,); predicted int64 (m,); left: symbols that end before a boundary, right: symbols that
    begin at it, either may be empty. The nearer to the boundary, the more a symbol counts.
    """
    n = len(symbols)
    wide_left, wide_right = len(left), len(right)
    wanted = np.concatenate([left, right])
    weight = np.concatenate(
        [
            0.5 + 0.5 * np.arange(1, wide_left + 1) / max(wide_left, 1),
            1.0 - 0.5 * np.arange(wide_right) / max(wide_right, 1),
        ]
    )
    moves = np.arange(-drift, drift + 1)
    preference = -1e-6 * np.abs(moves)  # the nearest of equally good ones
    best = predicted.copy()
    score = np.zeros(len(predicted))
    rows = max(1, 8_000_000 // max(len(moves) * len(wanted), 1))
    for first in range(0, len(predicted), rows):
        at = predicted[first : first + rows]
        place = at[:, None] + np.arange(-wide_left - drift, wide_right + drift)
        around = np.where((place >= 0) & (place < n), symbols[np.clip(place, 0, n - 1)], -1)
        agree = np.lib.stride_tricks.sliding_window_view(around, len(wanted), axis=1) == wanted
        scores = agree @ weight + preference
        choice = scores.argmax(axis=1)
        best[first : first + rows] = at + moves[choice]
        score[first : first + rows] = scores[np.arange(len(at)), choice]
    return best, score / max(float(weight.sum()), 1e-9)
