"""Logarithms of many measures over captures in order → where they changed for good: steps and drifts.

A measure's statistic is its largest t, over all places of a step and for a straight line. From `LEAST_SHUFFLED`
captures on, the captures are shuffled, all measures together: of a history without change, any measure exceeds the
critical value with the probability `ALARM_RATE`, whatever the noise and the dependence of the measures (Westfall and
Young 1993). With fewer, Student's t decides, its rate divided by the number of tests. The strongest change cuts the
captures in two, and each part is looked at again (binary segmentation).
"""

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

from xsp_post.arrays.statistics import CONFIDENCE, t_quantiles

ALARM_RATE = 0.002  # of a history without change, over all measures together
STEP, DRIFT = "step", "drift"
LEAST_SIDE = 2  # captures on each side of a step: one alone may be an outlier
_CLEAR, _CLEAR_SCORE = 8.0, 6.0  # t of a step that noise which wanders does not reach: of values, of normal scores
_LEAST_SIDE_OF_MANY = 3  # where there are so many captures that two outliers meet at an end by chance
LEAST_SHUFFLED = 20  # with fewer captures noise is taken for independent
_SHUFFLES = (100, 1900)  # the first few end the search in most histories without change
_HOPELESS = 0.1  # share of the first shuffles that exceed what was seen
_UNSURE = 3.0  # difference of log likelihoods up to which another place is possible: 95 % and more
_MOST_STEPS = 4
_MOST_ALIKE = 0.95
OF_NORMAL = 0.6745  # median distance of normal noise, in standard deviations
_DEEPEST = 24
_TOGETHER = 7  # captures in a row that stay neighbours where noise wanders
_ROWS = 50  # shuffles at a time: what lies in memory

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Change:
    """``first``: first capture that shows it (of a drift, where it begins); it lies in ``earliest`` … ``latest``.
    ``end``: one behind the last capture of a drift, else ``first``. ``members``: measures that show it, the strongest
    first."""

    kind: str
    first: int
    earliest: int
    latest: int
    end: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class _Scores:
    """Per measure: the best place of a step, its t there, the t of a straight line."""

    place: IntArray
    step: FloatArray
    line: FloatArray

    @property
    def best(self) -> FloatArray:
        return np.maximum(self.step, self.line)


def changes(
    values: FloatArray, floor: FloatArray, least: FloatArray, weights: FloatArray | None = None
) -> list[Change]:
    """Changes of the measures in the order of the captures; the same input gives the same answer.

    ``values``: logarithms, of shape (captures, measures). ``floor``: standard deviation of a capture that is taken for
    granted, ``least``: smallest change worth a word, both (measures,). ``weights``: shares of the false-alarm rate,
    (measures,), where Student's t decides; default equal.
    """
    count = values.shape[1]
    if not count:
        return []
    shares = np.full(count, 1 / count) if weights is None else weights
    found = _search(values.astype(np.float64), slice(0, len(values)), floor, least, shares, 0)
    return _placed(values, floor, sorted(found, key=lambda one: (one.first, one.end)))


def _search(
    whole: FloatArray, part: slice, floor: FloatArray, least: FloatArray, shares: FloatArray, depth: int
) -> list[Change]:
    """Changes in a part of the history, whose captures outside of it tell what noise is."""
    count, offset = part.stop - part.start, part.start
    side = _least_side(len(whole))
    if count < 2 * side or depth > _DEEPEST:
        return []
    scores, spread = _normal_scores(whole, floor)
    as_scores = (scores, np.minimum(least, spread), _CLEAR_SCORE, False)
    for all_values, asked, clear, may_drift in ((whole, least, _CLEAR, True), as_scores):
        values = all_values[part]
        wander = _wander(values, floor)
        seen = _scores(values, wander, floor, asked, side)
        seen = replace(seen, line=seen.line * may_drift)  # a straight line is none among scores
        noise = all_values.copy()  # one large difference would be as large anywhere
        change = _changed(values, replace(seen, line=seen.step * 0)) - np.median(values, axis=0)
        noise[part] -= np.where(seen.step > clear, change, 0.0)
        shown = seen.best > _critical(noise, count, wander, floor, shares, seen, side)
        shown &= np.ptp(_changed(whole[part], seen), axis=0) >= least
        if len(whole) >= LEAST_SHUFFLED:
            after = np.arange(count)[:, None] >= seen.place
            shown &= (seen.line > seen.step) | _lasts(whole[part], after ^ (2 * seen.place <= count), 2)
        if shown.any() or len(whole) < LEAST_SHUFFLED:
            break
    if not shown.any():  # what goes and comes back hides its two steps from each other
        begins, strength = _clear_stay(whole[part], floor, least, side)
        shown, values = strength > 0, whole[part]
        seen = replace(seen, place=begins, step=strength, line=strength * 0)
        may_drift = False
    if not shown.any():
        return []
    strongest = int(np.where(shown, seen.best, 0).argmax())
    rest = whole.copy()
    if may_drift and _is_line(values[:, strongest], floor[strongest]):
        lines = [j for j in _by_strength(seen.line, shown) if _is_line(values[:, j], floor[j])]
        rest[part, lines] -= _course(values[:, lines])
        later = _search(rest, part, floor, least, shares, depth + 1)
        same = [one for one in later if (one.kind, one.first, one.end) == (DRIFT, offset, part.stop)]
        lines += [j for one in same for j in one.members]  # which steps described as well at first
        drift = Change(DRIFT, offset, offset, offset, part.stop, tuple(lines))
        return [drift, *(one for one in later if one not in same)]
    place = int(seen.place[strongest])
    low, high = possible_places(values[:, strongest], floor[strongest], place)
    own = [possible_places(values[:, j], floor[j], int(seen.place[j])) for j in range(values.shape[1])]
    near = np.array([one[0] <= high and low <= one[1] for one in own])
    step = Change(
        STEP, offset + place, offset + low, offset + high, offset + place, tuple(_by_strength(seen.step, shown & near))
    )
    sides = slice(offset, offset + place), slice(offset + place, part.stop)
    for one in sides:  # all at one level
        rest[one] += np.median(whole[part], axis=0) - np.median(whole[one], axis=0)
    return [step, *(found for one in sides for found in _search(rest, one, floor, least, shares, depth + 1))]


def _clear_stay(values: FloatArray, floor: FloatArray, least: FloatArray, side: int) -> tuple[IntArray, FloatArray]:
    """Where each measure goes to another level from which it comes back, and the t of that level, 0 where it is not
    clear: there are half as many such levels as captures for each place of a step, which chance has more of."""
    count = len(values)
    best, begins, width = np.zeros(values.shape[1]), *np.full((2, values.shape[1]), side, float)
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values - values.mean(axis=0), axis=0)])
    for long in range(side, count - 2 * side + 1):
        inside = sums[side + long : count - side + 1] - sums[side : count - side - long + 1]
        explained = inside**2 * count / (long * (count - long))
        place = explained.argmax(axis=0)
        most = np.take_along_axis(explained, place[None], axis=0)[0]
        best, begins, width = (
            np.where(most > best, *one) for one in ((most, best), (place + side, begins), (long, width))
        )
    at = np.arange(count)[:, None]
    stays = (at >= begins) & (at < begins + width)
    rest = values - _step(values, stays)
    noise = np.sqrt((rest**2).sum(axis=0) / max(count - 3, 1) + floor**2)
    wander = _wander(rest, floor)
    score = np.sqrt(best * (1 - wander) / (1 + wander)) / noise
    size = np.ptp(_step(values, stays), axis=0)
    lasts = _lasts(values, stays, count)
    clear = np.hypot(_CLEAR, np.sqrt(2 * np.log(count / 2)))
    return begins.astype(np.int64), np.where((score > clear) & (size >= least) & lasts, score, 0.0)


def _lasts(values: FloatArray, inside: npt.NDArray[np.bool_], places: int) -> npt.NDArray[np.bool_]:
    """Whether the captures inside are no outliers side by side, at any of so many places: as many come half as far by
    chance as do outside."""
    away = values - np.nanmedian(np.where(inside, np.nan, values), axis=0)
    size = np.nanmean(np.where(inside, away, np.nan), axis=0)
    far = away * np.sign(size) > np.abs(size) / 2
    chance = (1 + (far & ~inside).sum(axis=0)) / (1 + (~inside).sum(axis=0))
    return np.asarray(chance ** (far & inside).sum(axis=0) * places * values.shape[1] < ALARM_RATE)


def _least_side(count: int) -> int:
    return LEAST_SIDE if count < LEAST_SHUFFLED else _LEAST_SIDE_OF_MANY


def _normal_scores(values: FloatArray, floor: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values of the same order that are spread as normal noise is (van der Waerden 1952), and their standard deviation:
    a measure with rare outliers, two of which may meet, is as likely as any other to show a step by chance."""
    usual = np.median(values, axis=0)
    spread = np.hypot(np.median(np.abs(values - usual), axis=0) / OF_NORMAL, floor)
    share = (pd.DataFrame(values).rank().to_numpy() - 0.5) / len(values)  # equal values share a rank
    return usual + spread * np.vectorize(NormalDist().inv_cdf)(share), spread


def _by_strength(score: FloatArray, chosen: npt.NDArray[np.bool_]) -> list[int]:
    return [int(j) for j in np.argsort(-score, kind="stable") if chosen[j]]


def _scores(
    values: FloatArray, wander: FloatArray, floor: FloatArray, least: FloatArray, side: int = LEAST_SIDE
) -> _Scores:
    """Scores of one order of the captures, or of many: ``values`` has shape (…, captures, measures), ``wander`` (…,
    measures): the correlation with the capture before. ``side``: fewest captures on a side of a step.

    Generalised least squares: what each capture adds to that of the one before is explained by a step or a line, of
    which the same is taken off.
    """
    count, stay = values.shape[-2], (1 - wander)[..., None, :]
    level = _innovations(np.ones(values.shape), wander)
    levels = (level**2).sum(axis=-2, keepdims=True)
    centred = _centred(_innovations(values, wander), level)
    total = (centred**2).sum(axis=-2)
    after = np.arange(count - side, side - 1, -1, dtype=np.float64)[:, None] - 1  # behind the first one
    places = slice(side, count - side + 1)
    tail = np.cumsum(centred[..., ::-1, :], axis=-2)[..., ::-1, :]
    shown = stay * tail[..., places, :] + (1 - stay) * centred[..., places, :]
    power = 1 + after * stay**2 - (stay + after * stay**2) ** 2 / levels
    explained = shown**2 / power
    place = explained.argmax(axis=-2)
    best = np.expand_dims(place, -2)
    explained, size = (np.take_along_axis(part, best, axis=-2).squeeze(-2) for part in (explained, shown / power))
    at = np.broadcast_to(np.arange(count, dtype=np.float64)[:, None], values.shape)
    at = _centred(_innovations(at, wander), level)
    power = (at**2).sum(axis=-2)
    slope = (centred * at).sum(axis=-2) / power
    scores = []
    for part, change in ((explained, np.abs(size)), (slope**2 * power, np.abs(slope) * (count - 1))):
        noise = np.sqrt(np.maximum(total - part, 0) / (count - 2) + floor**2)
        scores.append(np.where(change >= least, np.sqrt(part) / noise, 0.0))
    return _Scores(place + side, scores[0], scores[1])


def _innovations(values: FloatArray, wander: FloatArray) -> FloatArray:
    """What each capture adds to what it has of the one before (Prais and Winsten 1954)."""
    wander = wander[..., None, :]
    later = values[..., 1:, :] - wander * values[..., :-1, :]
    return np.concatenate([values[..., :1, :] * np.sqrt(1 - wander**2), later], axis=-2)


def _wandering(added: FloatArray, wander: FloatArray) -> FloatArray:
    """Captures that add this (`_innovations`) to those before."""
    values = added.copy()
    values[..., 0, :] /= np.sqrt(1 - wander**2)
    for k in range(1, values.shape[-2]) if wander.any() else ():
        values[..., k, :] += wander * values[..., k - 1, :]
    return values


def _centred(values: FloatArray, level: FloatArray) -> FloatArray:
    """The values without the constant that fits them best, which is transformed as they are."""
    share = (values * level).sum(axis=-2, keepdims=True) / (level**2).sum(axis=-2, keepdims=True)
    return values - level * share


def _changed(values: FloatArray, seen: _Scores) -> FloatArray:
    """The best step or line of each measure, about 0."""
    after = np.arange(values.shape[-2])[:, None] >= seen.place[..., None, :]
    line = _line(values)
    is_line = (seen.line > seen.step)[..., None, :]
    return np.where(is_line, line - line.mean(axis=-2, keepdims=True), _step(values, after))


def _wander(values: FloatArray, floor: FloatArray) -> FloatArray:
    """The correlation of a capture with the one before, per measure; 0 where none can be told."""
    count = values.shape[-2]
    none = np.zeros((*values.shape[:-2], values.shape[-1]))
    if count < LEAST_SHUFFLED:
        return none
    rest = values - values.mean(axis=-2, keepdims=True)
    rest = rest - _changed(rest, _scores(rest, none, floor, floor * 0))  # what may be a change is no noise
    power = (rest**2).sum(axis=-2) + count * floor**2
    alike = (rest[..., 1:, :] * rest[..., :-1, :]).sum(axis=-2) / np.where(power > 0, power, 1.0)
    alike += (3 + 15 * np.maximum(alike, 0)) / count  # what the best of all steps takes of it, by simulation
    usual = np.median(alike, axis=-1, keepdims=True)  # the machine's: what one measure has more is a change
    alike = np.clip(alike, usual, usual + 2 / np.sqrt(count))
    return np.where(alike > 1 / np.sqrt(count), np.clip(alike, 0.0, _MOST_ALIKE), 0.0)


def _step(values: FloatArray, after: npt.NDArray[np.bool_]) -> FloatArray:
    """The mean of each side in place of its values."""
    low, high = (
        (values * side).sum(axis=-2, keepdims=True) / side.sum(axis=-2, keepdims=True) for side in (~after, after)
    )
    return np.where(after, high, low)


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


def _critical(
    noise: FloatArray, count: int, wander: FloatArray, floor: FloatArray, shares: FloatArray, seen: _Scores, side: int,
) -> FloatArray:  # fmt: skip
    """What a measure's best score in ``count`` captures must exceed, (measures,), where all captures are ``noise``."""
    if len(noise) < LEAST_SHUFFLED:
        tests = count - 2 * LEAST_SIDE + 2  # places of a step, and a line
        return np.array([float(t_quantiles(count - 2, 1 - ALARM_RATE * share / tests)) for share in shares])
    more = np.where(wander > 0, np.minimum(wander + 1 / np.sqrt(count), _MOST_ALIKE), 0.0)  # it is not known exactly
    added = _centred(_innovations(noise, more), _innovations(np.ones(noise.shape), more))
    random = np.random.default_rng(count)
    scores = np.empty((0, len(shares)))
    for shuffles in _SHUFFLES:
        for _ in range(0, shuffles, _ROWS):
            order = _shuffled(random, len(noise), _TOGETHER if more.any() else 1)[:, :count]
            drawn = _wandering(added[order], more)
            found = _wander(drawn, floor) if more.any() else wander
            scores = np.concatenate([scores, _scores(drawn, found, floor, floor * 0, side).best])
        # by chance; of a measure with outliers that is more, which must not hide the others (Romano and Wolf 2005)
        usual, spread = scores.mean(axis=0), np.maximum(scores.std(axis=0), np.finfo(float).tiny)
        highest = ((scores - usual) / spread).max(axis=1)
        if (highest >= ((seen.best - usual) / spread).max()).mean() > _HOPELESS:
            return np.full(len(shares), np.inf)
    return usual + spread * np.quantile(highest, 1 - ALARM_RATE / 2)


def _shuffled(random: np.random.Generator, count: int, together: int) -> IntArray:
    """Orders of the captures (`_ROWS`, captures), of which so many stay neighbours."""
    block = (np.arange(count) + random.integers(together, size=(_ROWS, 1))) // together
    key = random.random((_ROWS, count // together + 2))
    return np.argsort(np.take_along_axis(key, block, axis=1), axis=1, kind="stable")


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


def possible_places(values: FloatArray, floor: float, place: int) -> tuple[int, int]:
    """First and last place at which the step of one measure may as well be."""
    count = len(values)
    before = np.arange(1, count)
    sums = np.cumsum(values - values.mean())[:-1]
    explained = sums**2 * count / (before * (count - before))
    rest = ((values - values.mean()) ** 2).sum() - explained
    variance = max(rest[place - 1], 0.0) / max(count - 2, 1) + floor**2
    near = np.flatnonzero((rest - rest[place - 1]) <= 2 * _UNSURE * variance) + 1
    near = near[(near >= LEAST_SIDE) & (near <= count - LEAST_SIDE)] if len(near) else near
    return (int(near.min()), int(near.max())) if len(near) else (place, place)


def _placed(values: FloatArray, floor: FloatArray, found: list[Change]) -> list[Change]:
    """Every step placed again between its neighbours, by the measure that shows it best."""
    side = _least_side(len(values))
    edges = [0, *(one.first for one in found if one.kind == STEP), len(values)]
    result, number = [], 0
    for one in found:
        if one.kind == STEP:
            number += 1
            start, end = edges[number - 1], edges[number + 1]
            part = values[start:end][:, list(one.members)]
            members = list(one.members)
            wander = _wander(part, floor[members])
            place = int(_scores(part, wander, floor[members], floor[members] * 0, side).place[0])
            low, high = possible_places(part[:, 0], floor[one.members[0]], place)
            one = replace(one, first=start + place, earliest=start + low, latest=start + high, end=start + place)
        result.append(one)
    return result


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
    """How many captures tell as much as one independent one, per measure: 1 + twice the sum of the correlations with
    later captures up to the first that is none (Geyer 1992). ``rest``: less the means of two sides."""
    count = len(rest)
    if count < LEAST_SHUFFLED:
        return np.ones(rest.shape[1])
    power = np.maximum((rest**2).sum(axis=0), np.finfo(float).tiny)
    later = range(1, count // 3)
    alike = np.array([(rest[k:] * rest[:-k]).sum(axis=0) for k in later]) / power + 2 / count  # what the means took
    weight = 1 - np.array(later)[:, None] / count
    return 1 + 2 * (np.where(np.cumprod(alike > 0, axis=0), alike, 0.0) * weight).sum(axis=0)


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
