"""Logarithms of many measures over captures in order → where they changed for good: steps and drifts.

Candidates are one edge, two edges with any three levels, and a straight line. The noise of each is known from how alike
captures in a row are: in most measures, and in the measure without its best candidate. From `LEAST_SHUFFLED` captures
on, the captures are shuffled, all measures together: of a history without change, any measure exceeds what is told with
the probability `ALARM_RATE` (Westfall and Young 1993). With fewer, Student's t decides, its rate divided by the number
of tests. What was found is fitted to all measures, and what is left of them is looked at again.
"""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from xsp_post.arrays.statistics import CONFIDENCE, t_quantiles

ALARM_RATE = 0.002  # of a history without change, over all measures together
STEP, DRIFT = "step", "drift"
LEAST_SIDE = 2  # captures on each side of a step: one alone may be an outlier
LEAST_SHUFFLED = 20  # with fewer captures noise is taken for independent
_SHUFFLES, _ROWS = 2000, 50  # in all, and at a time: what lies in memory
_UNSURE = 3.0  # difference of log likelihoods up to which another place is possible: 95 % and more
_MOST_STEPS = 4
OF_NORMAL = 0.6745  # median distance of normal noise, in standard deviations
_EDGE, _EDGES, _LINE = range(3)  # the candidates

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Change(NamedTuple):
    """``first``: first capture that shows it (of a drift, where it begins); it lies in ``earliest`` … ``latest``.
    ``end``: one behind the last capture of a drift, else ``first``. ``members``: measures that show it, the strongest
    first."""

    kind: str
    first: int
    earliest: int
    latest: int
    end: int
    members: tuple[int, ...]


class _Best(NamedTuple):
    """Per measure: what the best candidates explain of the ``total`` sum of squares, and where their edges are."""

    total: FloatArray  # (…, 1, measures)
    explained: FloatArray  # (…, candidates, measures)
    first: IntArray  # (…, candidates, measures); of a line the middle
    second: IntArray  # as ``first`` where there is one edge


def changes(
    values: FloatArray, floor: FloatArray, least: FloatArray, rate: float = ALARM_RATE,
    sums: BoolArray | None = None, shared: FloatArray | None = None,
) -> list[Change]:  # fmt: skip
    """Changes of the measures in the order of the captures; the same input gives the same answer.

    ``values``: logarithms, of shape (captures, measures). ``floor``: standard deviation of a capture that is taken for
    granted, ``least``: smallest change worth a word, both (measures,). ``rate``: of false alarms in histories without
    a change. ``sums``: measures that show no change which no other shows. ``shared``: what each measure may follow,
    with a power of its own, (captures, any); the first is the speed of the machine.
    """
    count, measures = values.shape
    side = LEAST_SIDE + count // LEAST_SHUFFLED  # of more captures more outliers meet by chance
    if not measures or count < 2 * side:
        return []
    alone = np.ones(measures, bool) if sums is None else ~sums
    owners: dict[int, int] = {}  # of each edge: the column that shows it best
    lines = [] if shared is None else [*shared.T]
    speed = lines[0][:, None] if lines else np.zeros((count, 1))
    found, bar, at = [], np.zeros(measures), np.arange(count)[:, None]
    while True:
        edges = np.array([0, *sorted(owners), count])
        known = _known(edges, lines)
        rest = _columns(values - known @ (np.linalg.pinv(known) @ values), floor)
        copies = rest.shape[1] // measures
        floors, leasts, may = (np.tile(one, copies) for one in (floor, least, alone))
        best = _candidates(rest, edges, known, side)
        same = np.tile(rest[:, :measures], copies)
        size = np.stack([np.ptp(same - _without(same, known, at >= first, at >= second), axis=0)
                         for first, second in zip(best.first, best.second)])  # fmt: skip
        alike = _alike_captures(rest, best, known, may)
        scores = _scores(best, edges, alike, floors, _by_load(values[:, alone], _known(edges, []), speed, best))
        scores = np.where((size >= leasts) & may, scores, 0.0)
        usual, spread, limit = _by_chance(rest, edges, known, scores, alike, floors, rate, may, side)
        scores = (scores - usual) / spread
        shown = scores > limit
        shown[_EDGES] &= ~shown[[_EDGE, _LINE]].any()
        if not shown.any():
            break
        kind, strongest = (int(one) for one in np.unravel_index(np.where(shown, scores, -np.inf).argmax(), shown.shape))
        own = strongest % measures
        flat = values - known @ (np.linalg.pinv(np.column_stack([known, at])) @ values)[:-1]  # but for a line
        if shown[_LINE, strongest] and _is_line(flat[:, own], floor[own]):
            straight = _by_strength(scores[_LINE], shown[_LINE], measures)
            members = tuple(j for j in straight if _is_line(flat[:, j], floor[j]))
            most = max(members, key=lambda j: np.ptp(_line(flat[:, j : j + 1])))  # what bends less is between the two
            lines += [np.arange(count, dtype=float), _course(flat[:, most : most + 1])[:, 0]]
            found.append(Change(DRIFT, 0, 0, 0, count, members))
            continue
        kind = _EDGES if kind == _EDGES else _EDGE
        one, two = rest[:, [strongest]], [places[kind, [strongest]] for places in (best.first, best.second)]
        place = min(two, key=lambda place: (_without(one, known, at >= place) ** 2).sum())  # the other one next
        owners[int(place[0])] = strongest
        bar = (usual + spread * limit)[_EDGE]
    flat = values - known[:, len(edges) - 1 :] @ (np.linalg.pinv(known) @ values)[len(edges) - 1 :]
    found += _placed(flat, floor, least, owners, bar, side)
    return sorted(found, key=lambda one: (one.first, one.end))


def _known(edges: IntArray, lines: list[FloatArray]) -> FloatArray:
    """What was found, a column each: a level between any two edges, and lines."""
    return np.column_stack([np.arange(edges[-1])[:, None] >= edges[:-1], *lines]).astype(float)


def _columns(values: FloatArray, floor: FloatArray) -> FloatArray:
    """The values, and values of the same order that are spread as normal noise is (van der Waerden 1952): a measure
    with rare outliers is as likely as any other to show a step by chance."""
    if len(values) < LEAST_SHUFFLED:
        return values
    usual = np.median(values, axis=0)
    spread = np.hypot(np.median(np.abs(values - usual), axis=0) / OF_NORMAL, floor)
    share = (pd.DataFrame(values).rank().to_numpy() - 0.5) / len(values)  # equal values share a rank
    return np.hstack([values, usual + spread * np.vectorize(NormalDist().inv_cdf)(share)])


def _by_strength(score: FloatArray, chosen: BoolArray, measures: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(j) % measures for j in np.argsort(-score, kind="stable") if chosen[j]))


def _candidates(values: FloatArray, edges: IntArray, known: FloatArray, side: int) -> _Best:
    """Of one order of the captures, or of many, beside what is ``known``: ``values`` has shape (…, captures, measures).
    ``side``: fewest captures between two edges."""
    count, places = edges[-1], np.arange(edges[-1])
    basis = np.linalg.svd(known, full_matrices=False)[0]
    values = values - basis @ (basis.T @ values)
    shown = np.cumsum(values[..., ::-1, :], axis=-2)[..., ::-1, :]  # of a level from each capture on
    share = np.cumsum(basis[::-1], axis=0)[::-1]
    power = np.minimum.outer(count - places, count - places) - share @ share.T
    number = np.searchsorted(edges, places, side="right")
    start, end = edges[number - 1], edges[number]
    explained, first, second = (np.full((*values.shape[:-2], 3, values.shape[-1]), k) for k in (0.0, *[count / 2] * 2))
    for long in (0, *range(side, count - 2 * side + 1)):  # 0: one edge
        begin = places[(places - start >= side) & (places + long + side <= end)]
        if not len(begin):
            break
        low, high = shown[..., begin, :], shown[..., begin + long, :]
        own, other, both = (power[one][:, None] for one in ((begin, begin), (begin + long,) * 2, (begin, begin + long)))
        gain = low**2 / own
        if long:
            gain += (high - low * (both / own)) ** 2 / (other - both**2 / own)
        place = gain.argmax(axis=-2)
        gain = np.take_along_axis(gain, place[..., None, :], axis=-2)[..., 0, :]
        kind = _EDGES if long else _EDGE
        more = gain > explained[..., kind, :]
        for part, new in ((explained, gain), (first, begin[place]), (second, begin[place] + long)):
            part[..., kind, :] = np.where(more, new, part[..., kind, :])
    line = places - basis @ (basis.T @ places)
    if (line**2).sum() > 1:  # not known yet
        explained[..., _LINE, :] = np.einsum("c,...cm->...m", line, values) ** 2 / (line**2).sum()
    return _Best((values**2).sum(axis=-2)[..., None, :], explained, first.astype(np.int64), second.astype(np.int64))


def _scores(
    best: _Best, edges: IntArray, alike: FloatArray, floor: FloatArray, load: FloatArray | float = 0.0
) -> FloatArray:
    """What candidates explain, by what they would explain of the noise that they leave, and of ``load`` (`_by_load`).
    ``alike``: correlations with the next captures, (captures, measures)."""
    count, which = edges[-1], np.arange(alike.shape[1])
    weight = np.ones((count + 1, len(which)))  # variance of the mean of so many captures, of independent ones 1
    weight[0] = 0
    weight[2 : 2 + len(alike)] += np.cumsum(2 * alike, axis=0)
    weight[2 + len(alike) :] = weight[1 + len(alike)]
    weight = np.cumsum(weight, axis=0) / np.maximum(np.arange(count + 1), 1)[:, None]
    number = np.searchsorted(edges, best.first, side="right")
    start, end = edges[number - 1], edges[number]
    more = sum(weight[long, which] for long in (best.first - start, best.second - best.first, end - best.second))
    more = np.maximum(more - weight[end - start, which], 1)
    more[..., _LINE, :] = weight[count]
    noise = (best.total - best.explained) / np.maximum(count - weight[np.diff(edges)].sum(axis=0) - more, 1) + floor**2
    return np.sqrt(best.explained / (more * noise + load))


def _by_load(values: FloatArray, levels: FloatArray, speed: FloatArray, best: _Best) -> FloatArray:
    """What the candidates explain where the ``speed`` of the machine, (captures, 1), changes: load slows each measure
    by a power of its own, and the next load by another (random effects). Captures in a row say how unlike these are,
    for load lasts: what one power for all captures leaves of most measures is alike there."""
    at = np.arange(len(speed))[:, None] + 0.0 * best.total[0]
    course = speed - levels @ (np.linalg.pinv(levels) @ speed)
    known = np.column_stack([levels, course])
    rest = course * (values - known @ (np.linalg.pinv(known) @ values))
    unlike, most = (np.median((one[1:] * one[:-1]).sum(axis=0)) for one in (rest, course**2))
    shapes = ([at >= best.first[_EDGE]], [at >= best.first[_EDGES], at >= best.second[_EDGES]], [at])
    left = [(_without(course + 0 * at, levels, *some) ** 2).sum(axis=0) for some in shapes]
    return ((course**2).sum() - np.array(left)) * max(unlike, 0.0) / max(most * OF_NORMAL**2, np.finfo(float).tiny)


def _alike_captures(values: FloatArray, best: _Best, known: FloatArray, may: BoolArray) -> FloatArray:
    """`_scores`: how alike captures in a row are in most measures, or in one without its best edges or line."""
    at = np.arange(len(values))[:, None] + 0.0 * values[:1]
    steps = _without(values, known, at >= best.first[_EDGES], at >= best.second[_EDGES])
    own = np.where(best.explained[_EDGES] > best.explained[_LINE], steps, _without(values, known, at))
    alike = _alike(own - own.mean(axis=0), 3)
    every = _alike(values - values.mean(axis=0), 1) if may.sum() > 2 else alike  # of one measure that is its change
    return np.maximum(alike, np.median(every[:, may], axis=1, keepdims=True))


def _without(values: FloatArray, known: FloatArray, *shapes: npt.NDArray[Any]) -> FloatArray:
    """The values less what the shapes, (captures, measures), explain of them beside what is known."""
    project = known @ np.linalg.pinv(known)
    done: list[FloatArray] = []
    for one in shapes:
        shape = one - project @ one
        for other in done:
            shape = shape - other * (other * shape).sum(axis=0)
        power = (shape**2).sum(axis=0)
        done.append(shape / np.sqrt(np.where(power > 1e-9, power, np.inf)))  # not twice the same
        values = values - done[-1] * (done[-1] * values).sum(axis=0)
    return values


def _line(values: FloatArray) -> FloatArray:
    """The straight line of least squares through each column, less its first value."""
    at = np.arange(values.shape[-2]) - (values.shape[-2] - 1) / 2
    slope = np.einsum("c,...cm->...m", at, values) / (at**2).sum()
    return (at - at[0])[:, None] * slope[..., None, :]


def _course(values: FloatArray) -> FloatArray:
    """The line through the logarithms, or through what they are of where that is nearer to them; less its begin."""
    plain = np.exp(values - values.max(axis=0))
    line = (plain - _line(plain)).mean(axis=0) + _line(plain)
    bent = np.log(np.maximum(line, plain.min(axis=0)))
    straight = _line(values)
    return np.where((values - bent).var(axis=0) < (values - straight).var(axis=0), bent - bent[0], straight)


def _by_chance(
    values: FloatArray, edges: IntArray, known: FloatArray, seen: FloatArray, alike: FloatArray, floor: FloatArray,
    rate: float, may: BoolArray, side: int,
) -> tuple[FloatArray, FloatArray, float]:  # fmt: skip
    """The mean and the spread of the best scores in captures without a change, (candidates, measures), and how many
    spreads beyond the mean is what any of them reaches by chance."""
    count = len(values)
    if count < LEAST_SHUFFLED:
        tests = count - 2 * LEAST_SIDE + 2  # places of a step, and a line
        bar = float(t_quantiles(count - 2, 1 - rate / may.sum() / tests))
        return np.zeros(seen.shape), np.where(np.arange(3)[:, None] == _EDGES, np.inf, bar) + 0 * seen, 1.0
    random, scores = np.random.default_rng(count), np.empty((0, *seen.shape))
    alike = np.median(alike, axis=1, keepdims=True)
    apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    power, shape = np.linalg.eigh(np.append(np.append(1.0, alike), np.zeros(count))[apart])
    row = shape * np.sqrt(np.maximum(power, 0)) @ shape.T  # makes captures that are so alike of independent ones
    alike = np.repeat(alike, len(may), axis=1)
    for _ in range(0, _SHUFFLES, _ROWS):
        drawn = row @ values[random.random((_ROWS, count)).argsort(axis=1)]
        scores = np.concatenate([scores, _scores(_candidates(drawn, edges, known, side), edges, alike, floor)])
        # in units of its own chance: a measure with outliers must not hide the others (Romano and Wolf 2005)
        usual, spread = scores.mean(axis=0), np.maximum(scores.std(axis=0), np.finfo(float).tiny)
        highest = ((scores - usual) / spread)[..., may].max(axis=(1, 2))
        if (highest >= ((seen - usual) / spread).max()).sum() > rate * _SHUFFLES:  # Besag and Clifford 1991
            return usual, spread, np.inf
    return usual, spread, float(np.quantile(highest, 1 - rate))


def _placed(
    values: FloatArray, floor: FloatArray, least: FloatArray, owners: dict[int, int], bar: FloatArray, side: int
) -> list[Change]:
    """Every step placed again between its neighbours, by the column that shows it best, and the measures that do."""
    count, measures = values.shape
    clean = _columns(values, floor)
    floors = np.tile(floor, clean.shape[1] // measures)
    edges, placed, result = [0, *sorted(owners), count], [], []
    for start, old, end in zip(edges, edges[1:], edges[2:]):
        places = possible_places(clean[start:end, owners[old]], floors[owners[old]], side)
        placed.append([start + one for one in places])
    edges = [0, *(one[0] for one in placed), count]
    known = _known(np.array(edges), [])
    rest = clean - known @ (np.linalg.pinv(known) @ clean)
    noise = np.sqrt((rest**2).sum(axis=0) / max(count - len(edges) + 1, 1) + floors**2)
    for start, (place, low, high), end, strongest in zip(edges, placed, edges[2:], (owners[k] for k in sorted(owners))):
        more = np.abs(clean[place:end].mean(axis=0) - clean[start:place].mean(axis=0))
        score = more / (noise * np.sqrt(1 / (place - start) + 1 / (end - place))) / bar
        score[strongest] = np.inf
        shown = (score > 1) & np.tile(more[:measures] >= least, len(floors) // measures)
        shown[strongest] = True
        result.append(Change(STEP, place, low, high, place, _by_strength(score, shown, measures)))
    return result


# -- one measure --------------------------------------------------------------------------------------------


def _is_line(values: FloatArray, floor: float) -> bool:
    """Whether a straight line describes a measure better than any few steps do (Bayesian information criterion)."""
    count = len(values)
    line = count * (values - _course(values[:, None])[:, 0]).var()
    line_cost = count * np.log(line / count + floor**2) + 2 * np.log(count)
    stairs = _stairs(values)
    cost = count * np.log(stairs / count + floor**2) + (2 * np.arange(len(stairs)) + 1) * np.log(count)
    return bool(line_cost < cost.min())


def _stairs(values: FloatArray) -> FloatArray:
    """Least sum of squares about 1, 2 … levels, each of `LEAST_SIDE` captures or more."""
    count = len(values)
    sums, squares = (
        np.append(0.0, np.cumsum(part)) for part in (values - values.mean(), (values - values.mean()) ** 2)
    )
    start, end = np.ogrid[: count + 1, : count + 1]
    length = end - start
    level = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / np.maximum(length, 1)
    level = np.where(length >= LEAST_SIDE, np.maximum(level, 0.0), np.inf)
    best, result = level[0], [level[0, -1]]
    for _ in range(min(_MOST_STEPS, count // LEAST_SIDE - 1)):
        best = (best[:, None] + level).min(axis=0)
        result.append(best[-1])
    return np.array(result)


def possible_places(values: FloatArray, floor: float, side: int) -> tuple[int, int, int]:
    """The place of a step that leaves least of one measure, ``side`` captures or more from both ends, and the first and
    the last place at which it may as well be."""
    count = len(values)
    before = np.arange(1, count)
    sums = np.cumsum(values - values.mean())[:-1]
    rest = ((values - values.mean()) ** 2).sum() - sums**2 * count / (before * (count - before))
    place = side + int(rest[side - 1 : count - side].argmin())
    variance = max(rest[place - 1], 0.0) / max(count - 2, 1) + floor**2
    near = np.flatnonzero((rest - rest[place - 1]) <= 2 * _UNSURE * variance) + 1
    near = near[(near >= LEAST_SIDE) & (near <= count - LEAST_SIDE)]
    return place, int(near.min()), int(near.max())


def sizes(values: FloatArray, floor: FloatArray, start: int, place: int, end: int) -> FloatArray:
    """Mean before, mean after, and the 95 % interval of their difference, per measure: shape (4, measures).

    ``values`` has shape (captures, measures): captures ``start`` … ``place`` - 1 against ``place`` … ``end`` - 1.
    """
    sides = values[start:place], values[place:end]
    before, after = (side.mean(axis=0) for side in sides)
    rest = np.concatenate([side - side.mean(axis=0) for side in sides])
    alike = _alike_in_a_row(rest)
    variance = (rest**2).sum(axis=0) / max(end - start - 2, 1) * alike
    error = np.sqrt((variance + floor**2) * (1 / len(sides[0]) + 1 / len(sides[1])))
    half = t_quantiles(np.maximum((end - start) / alike - 2, 1), CONFIDENCE) * error
    return np.stack((before, after, after - before - half, after - before + half))


def _alike_in_a_row(rest: FloatArray) -> FloatArray:
    """How many captures tell as much as one independent one, per measure. ``rest``: less the means of two sides."""
    alike = _alike(rest, 2)
    return 1 + 2 * (alike * (1 - np.arange(1, len(alike) + 1) / len(rest))[:, None]).sum(axis=0)


def _alike(rest: FloatArray, means: int) -> FloatArray:
    """Correlations with the next captures up to the first that is none (Geyer 1992), (captures, measures). ``means``:
    how many were taken off."""
    count = len(rest)
    power = np.maximum((rest**2).sum(axis=0), np.finfo(float).tiny)
    later = range(1, count // 3 if count >= LEAST_SHUFFLED else 1)
    alike = np.array([(rest[k:] * rest[:-k]).sum(axis=0) for k in later]).reshape(-1, rest.shape[1]) / power
    alike += means / count
    return np.where(np.cumprod(alike > 0, axis=0), alike, 0.0)


def drift_sizes(values: FloatArray, floor: FloatArray) -> FloatArray:
    """As `sizes`, of a straight line: its first and last value, and the interval of their difference."""
    count = len(values)
    line = _line(values)
    first = (values - line).mean(axis=0)
    freedom = max(count - 2, 1)
    variance = ((values - line - first) ** 2).sum(axis=0) / freedom + floor**2
    error = np.sqrt(variance * 12 * (count - 1) / (count * (count + 1)))
    half = float(t_quantiles(freedom, CONFIDENCE)) * error
    return np.stack((first, first + line[-1], line[-1] - half, line[-1] + half))
