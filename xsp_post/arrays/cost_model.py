"""Times and sizes of steps → time = a + b·x + …, no term negative, robust against outliers, with its error elsewhere.

Errors are taken relative to the time; their scatter may shrink as steps get longer. A fifth of the steps is held back
from a first fit; the error is measured on these. The terms are then fitted to all steps.
A term is left out, with the reason, where the steps do not tell it apart from the terms before it; one that may
be named has one only where the others clearly leave something to it. Where the same step
takes longer and longer, the terms are those in the middle of the recording.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

FEWEST_STEPS = 15
_MOST_STEPS = 6000  # more do not make a fit better; the rest is held back as well
_LEAST_SPREAD = 0.01  # of a size, beside its largest value and beside what follows from the sizes before it
_LEAST_T = 3.0  # a term below so many of its standard errors is not told apart from nothing
_CLEAR_T = 5.0  # what is told apart for certain: the last term, and drift
_MOST_ERROR = 0.3  # a model with a larger scatter is none
_HUBER, _TUKEY, _MOST_TURNS, _SETTLED = 1.345, 4.685, 20, 1e-6  # the turns of each; the change of time after the last
_CORE, _VARIANCE_OF_CORE = 3.0, 0.9733  # deviations that the scatter is taken from; of a normal distribution
_FEWEST_QUARTER, _LEAST_DRIFT = 10, 0.01
CONSTANT, FOLLOWS, NO_EFFECT = "constant", "follows other sizes", "too small to see"
UNKNOWN, TOO_FEW = "unknown", "too few steps"


@dataclass
class CostModel:
    """``terms``: coefficient of each known size ("" the constant); ``covariance``: that of their errors;
    ``missing``: why others are not.

    ``sigma_ratio``: scatter of a step's time around the model, of long steps less by ``scatter_power`` of their time;
    ``error_ratio``, ``p90_error_ratio``: median and 90 % of the errors on held-back steps. ``low``, ``high``: sizes
    between which it was fitted. Without terms, no model.
    """

    terms: dict[str, float] = field(default_factory=dict)
    covariance: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    missing: dict[str, str] = field(default_factory=dict)
    fitted_count: int = 0
    held_back_count: int = 0
    sigma_ratio: float = np.nan
    scatter_power: float = 0.0
    slope_strength: float = 0.0  # of what is fitted beside the terms: the drift in its standard errors
    error_ratio: float = np.nan
    p90_error_ratio: float = np.nan
    low: dict[str, float] = field(default_factory=dict)
    high: dict[str, float] = field(default_factory=dict)
    trend: np.ndarray | float = 1.0  # of each step, what drift makes of its time

    def predicted(self, sizes: dict[str, np.ndarray]) -> np.ndarray:
        """The time of steps of these sizes, each shape (n,); float, NaN where a size that counts is unknown."""
        count = len(next(iter(sizes.values())))
        time = np.full(count, self.terms.get("", 0.0) if self.terms else np.nan)
        for name, value in self.terms.items():
            if name:
                time = time + value * np.where(sizes[name] >= 0, sizes[name], np.nan)
        return time

    @property
    def errors(self) -> dict[str, float]:
        return dict(zip(self.terms, np.sqrt(np.maximum(np.diag(self.covariance), 0)).tolist()))

    def error_of(self, sizes: dict[str, np.ndarray]) -> np.ndarray:
        """Standard error of `predicted`, over the time; large at sizes beside those that were fitted."""
        count = len(next(iter(sizes.values())))
        matrix = np.column_stack([sizes[name] if name else np.ones(count) for name in self.terms])
        return np.sqrt(np.maximum(((matrix @ self.covariance) * matrix).sum(axis=1), 0)) / self.predicted(sizes)

    def is_extrapolated(self, sizes: dict[str, float]) -> bool:
        """Whether a step of these sizes lies outside what was fitted; also in a size that made no difference there."""
        return any(not self.low[name] <= size <= self.high[name] for name, size in sizes.items() if name in self.low)


def fit_cost(time: np.ndarray, sizes: dict[str, np.ndarray], last: str = "") -> CostModel:
    """The model of ``time`` (n,), in order of time, by ``sizes`` (n,), −1 unknown; terms are tried in the order of
    ``sizes``. ``last``: the last of them."""
    model, course = _fit(time, sizes, last, np.zeros(len(time))), np.linspace(-1, 1, len(time))
    is_drifting = drift_of(_ratio(time, model.predicted(sizes)))[1]
    # sizes that grow or shrink along with it take a drift for theirs, if they are fitted without one
    if is_drifting or model.slope_strength >= _CLEAR_T:
        slower = _fit(time, sizes, last, course)
        ratio = _ratio(time, slower.predicted(sizes))
        if is_drifting or drift_of(ratio)[1]:
            model = slower
            if model.terms:
                model.trend = _slow_change(ratio)
    return model


def _ratio(time: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """NaN where a step has no time, or none is expected."""
    return np.divide(time, expected, out=np.full(len(time), np.nan), where=(time > 0) & (expected > 0))


def drift_of(ratio: np.ndarray) -> tuple[float, bool]:
    """How much more of its model's time the last quarter of the steps took than the first, and whether that is beyond
    chance; ``ratio`` (n,): time over the model's, NaN unknown."""
    quarter = len(ratio) // 4
    if quarter < _FEWEST_QUARTER or not np.isfinite(ratio).any():
        return np.nan, False
    parts = [ratio[:quarter], ratio[-quarter:]]
    middle = [float(np.nanmedian(one)) for one in parts]
    error = [1.2533 * 1.4826 * float(np.nanmedian(np.abs(one - m))) / quarter**0.5 for one, m in zip(parts, middle)]
    drift = middle[1] / middle[0] - 1
    return drift, bool(abs(drift) > max(_LEAST_DRIFT, _CLEAR_T * float(np.hypot(*error))))


def _slow_change(ratio: np.ndarray) -> np.ndarray:
    """What drift makes of each step's time: straight between the medians of four quarters; 1 in the middle."""
    quarters = np.array_split(np.flatnonzero(np.isfinite(ratio)), 4)
    at, value = (np.array([np.median(of[one]) for one in quarters]) for of in (np.arange(len(ratio)), ratio))
    ends = [(at[k] - edge) / (at[k] - at[m]) * (value[m] - value[k]) for k, m, edge in ((0, 1, 0), (3, 2, len(ratio)))]
    places = [0, *at, len(ratio)]
    change = np.interp(np.arange(len(ratio)), places, [value[0] + ends[0], *value, value[3] + ends[1]])
    return change / np.median(change)


def _fit(time: np.ndarray, sizes: dict[str, np.ndarray], last: str, course: np.ndarray) -> CostModel:
    """`fit_cost` where times also grow or shrink along ``course`` (n,), zero in the middle."""
    known = (time > 0) & np.isfinite(time)
    names = []
    model = CostModel()
    for name, values in sizes.items():
        if (known & (values >= 0)).sum() > known.sum() / 2:
            names.append(name)
            known &= values >= 0
        else:
            model.missing[name] = UNKNOWN
    if known.sum() < FEWEST_STEPS:
        model.missing |= dict.fromkeys(names, TOO_FEW)
        return model
    y = time[known].astype(float)
    x = {name: sizes[name][known].astype(float) for name in names}
    is_held = _held_back(len(y))
    model.fitted_count, model.held_back_count = int((~is_held).sum()), int(is_held.sum())
    scale = {name: max(values.max(), 1.0) for name, values in x.items()}
    matrix = np.column_stack([np.ones(len(y)), *(values / scale[name] for name, values in x.items())])
    kept = [0]
    for column, name in enumerate(names, 1):
        reason = _reason_against(matrix[~is_held], kept, column)
        if reason:
            model.missing[name] = reason
        else:
            kept.append(column)
    labels = ["", *names]
    after = kept.pop() if last and labels[kept[-1]] == last else 0
    kept, value = _told_apart(matrix[~is_held], y[~is_held], kept, course[known][~is_held], after)
    model.missing |= {name: NO_EFFECT for name in names if labels.index(name) not in kept and name not in model.missing}
    off = np.abs(y / (matrix[:, kept] @ value) - 1)[is_held]
    model.error_ratio, model.p90_error_ratio = float(np.median(off)), float(np.quantile(off, 0.9))
    of_fit = np.ones(len(y), bool) if len(y) <= _MOST_STEPS else ~is_held
    x_fit, y_fit = matrix[of_fit][:, kept], y[of_fit]
    value, covariance, model.scatter_power, model.slope_strength = _robust(x_fit, y_fit, course[known][of_fit])
    if not course.any():
        model.slope_strength = _robust(x_fit, y_fit, np.linspace(-1, 1, len(y))[of_fit]).slope_strength
    model.sigma_ratio = float(1.4826 * np.median(np.abs(y / (matrix[:, kept] @ value) - 1)))
    if model.error_ratio <= _MOST_ERROR:
        units = np.array([scale.get(labels[k], 1.0) for k in kept])
        model.terms = {labels[k]: float(v) for k, v in zip(kept, value / units)}
        model.covariance = covariance / np.outer(units, units)
        model.low = {name: float(values[of_fit].min()) for name, values in x.items()}
        model.high = {name: float(values[of_fit].max()) for name, values in x.items()}
    return model


def _held_back(count: int) -> np.ndarray:
    """A fifth of the steps, spread over all of them without a period; of very many all but `_MOST_STEPS`; bool."""
    number = (np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    share = max(0.2, 1 - _MOST_STEPS / max(count, 1))
    return number < np.uint64(share * (1 << 24))


def _reason_against(matrix: np.ndarray, kept: list[int], column: int) -> str:
    """Why a size cannot be told apart from the ones before it; '' where it can."""
    values = matrix[:, column]
    spread = float(np.std(values))
    if spread <= _LEAST_SPREAD * np.abs(values).max():
        return CONSTANT
    before = matrix[:, kept]
    rest = values - before @ np.linalg.lstsq(before, values, rcond=None)[0]
    return FOLLOWS if np.std(rest) < _LEAST_SPREAD * spread else ""


def _told_apart(
    matrix: np.ndarray, time: np.ndarray, kept: list[int], course: np.ndarray, after: int
) -> tuple[list[int], np.ndarray]:
    """The columns whose terms are told apart from nothing, and the terms; the weakest goes first. The column ``after``
    (0: none) goes at once where it is not clearly told apart from the others."""
    if after and _strength(_robust(matrix[:, [*kept, after]], time, course))[-1] >= _CLEAR_T:
        kept = [*kept, after]
    while True:
        found = _robust(matrix[:, kept], time, course)
        strength = _strength(found)
        weakest = int(np.argmin(strength))
        if strength[weakest] >= _LEAST_T or len(kept) == 1:
            return kept, found.value
        kept = kept[:weakest] + kept[weakest + 1 :]


class _Found(NamedTuple):
    """Terms, shape (columns,), the covariance of their errors, the power of the scatter, and the slope along the course
    in its standard errors."""

    value: np.ndarray
    covariance: np.ndarray
    power: float
    slope_strength: float


def _strength(found: _Found) -> np.ndarray:
    """Each term in its standard errors."""
    errors = np.sqrt(np.maximum(np.diag(found.covariance), 0))
    return np.divide(found.value, errors, out=np.where(found.value > 0, np.inf, 0.0), where=errors > 0)


def _robust(matrix: np.ndarray, time: np.ndarray, course: np.ndarray) -> _Found:
    """Non-negative terms: weights after Huber until it settles, then after Tukey, to which an outlier is nothing. What
    follows ``course`` no term tells."""
    fitted = before = np.full(len(time), np.median(time))
    weight, scatter = np.ones((2, len(time)))
    value = np.zeros(matrix.shape[1])
    slope = power = 0.0
    turn = 0
    while turn < 2 * _MOST_TURNS:
        scaled = np.column_stack([matrix, time, course * fitted]) * (np.sqrt(weight) / (fitted * scatter))[:, None]
        normal = whole = scaled.T @ scaled
        along = normal[:-1, -1] / max(normal[-1, -1], 1e-9)  # of the terms and the time: their part along the course
        normal = normal[:-1, :-1] - np.outer(along, normal[:-1, -1])
        value = _non_negative(normal[:-1, :-1], normal[:-1, -1])
        slope = float(along[-1] - along[:-1] @ value)
        fitted = np.maximum(matrix @ value, 1e-9 * time.max())
        off = time / (fitted * (1 + slope * course)) - 1
        if turn in (5, _MOST_TURNS + 2):
            power = _scatter_power(np.abs(off), fitted)
        scatter = scatter_of(fitted, power)
        sigma = max(1.4826 * float(np.median(np.abs(off) / scatter)), 1e-6)
        ratio = np.abs(off) / (sigma * scatter)
        if turn < _MOST_TURNS:
            weight = _HUBER / np.maximum(ratio, _HUBER)
        else:
            weight = np.where(ratio < _TUKEY, (1 - (ratio / _TUKEY) ** 2) ** 2, 0.0)
        is_settled = turn % _MOST_TURNS > 5 and np.abs(fitted - before).max() < _SETTLED * fitted.max()
        turn, before = (_MOST_TURNS * (1 + turn // _MOST_TURNS) if is_settled else turn + 1), fitted
    sigma, shared = sigma_of(off / scatter, len(value)), whole[:-2, -1]
    own = float(whole[-1, -1] - shared @ np.linalg.lstsq(whole[:-2, :-2], shared, rcond=None)[0])  # told by no term
    strength = abs(slope) * max(own, 0.0) ** 0.5 / max(sigma, 1e-9)
    return _Found(value, sigma**2 * np.linalg.pinv(normal[:-1, :-1]), power, strength)


def sigma_of(off: np.ndarray, terms: int) -> float:
    """The deviation of errors around a model of so many terms, by those that are no outliers."""
    core = off[np.abs(off) < _CORE * 1.4826 * float(np.median(np.abs(off)))]
    return float((core**2).sum() / max(len(core) - terms, 1) / _VARIANCE_OF_CORE) ** 0.5


def scatter_of(expected: np.ndarray, power: float) -> np.ndarray:
    """The scatter of steps beside that of a step of median time; NaN where nothing is expected."""
    return (expected / np.nanmedian(expected)) ** -power if power else np.ones(len(expected))


def _scatter_power(off: np.ndarray, fitted: np.ndarray) -> float:
    """By which power of the time the relative errors shrink: from 0, all alike, to 1, of one length."""
    size = np.log(fitted)
    size -= size.mean()
    return float(np.clip(-(size @ np.log(np.maximum(off, 1e-9))) / max(size @ size, 1e-9), 0, 1))


def _non_negative(normal: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The least squares solution without negative terms, of normal equations of few columns: the best of all subsets
    of columns whose own solution has none."""
    count = len(right)
    has = (np.arange(1 << count)[:, None] >> np.arange(count) & 1).astype(bool)
    left_out = np.eye(count) * normal.diagonal().max()
    parts = np.where(has[:, :, None] & has[:, None, :], normal, left_out)
    found = np.where(has, (np.linalg.pinv(parts, hermitian=True) @ np.where(has, right, 0)[:, :, None])[:, :, 0], 0)
    return found[np.argmax(np.where((found >= 0).all(axis=1), found @ right, -np.inf))]
