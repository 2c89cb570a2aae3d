"""Two sides → what the comparison opens with: both times of one window, their ratio with its interval, and one word."""

import re
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pandas as pd

from xsp_post.arrays.statistics import t_quantiles, trimmed_mean
from xsp_post.compare.differences import CAPTURES, FASTER, SIGNIFICANCE, SLOWER, STAND_IN_FREEDOM, differences
from xsp_post.compare.impact import EXECUTION, WORK, Impact
from xsp_post.compare.matching import SAMPLE_COLUMNS, Side
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.replay.recording import shared_captures
from xsp_post.tables.analyses.limits import LOADING

SAME, UNDECIDED = "same", "undecided"
# An interval within this is called "the same".
SAME_RATIO = 0.1
# The time from one execution to the next counts where the smaller of it and the time of one is less than this share of
# the larger,
_PACE_RATIO = 0.9
# or where it changed by this share more, or less, than the time of one did.
_APART_RATIO = 0.05
# A pause is a pace beyond the upper quartile by more than so many times the distance of the quartiles,
_PAUSE_QUARTILES = 3.0
# and beyond so many times the median.
_PAUSE_MEDIANS = 1.5
# What takes so many times the lower quartile is another kind of execution, not a disturbed one; one kind up to a ratio.
_OTHER_RATIO, _ALIKE_RATIO = 3.0, 1.5
# So many of the sizes that differ do so by one factor where the inputs are larger and nothing else is changed.
_MOST_SIZES = 0.8
# How far two runs of one program lie apart (one standard deviation, relative) where a side has one execution.
_ONE_SPREAD = 0.05
# What was measured, and how its interval was found.
LATENCY, PERIOD = "latency", "period"  # else WORK or RECORDING
OVER_CAPTURES, OVER_EXECUTIONS, ASSUMED, BY_NAME = "captures", "executions", "assumed", "names"


@dataclass(frozen=True)
class Headline:
    """Times in ns of one window on both sides. ``low``, ``high``: interval of other over base, less one. ``scale``:
    the work of an execution of the other in that of the base, where batch sizes differ (else 1). ``mean_ratio``: of
    the means of all executions, also the slow ones; ``slow``: how many those are of how many, on both sides.
    ``usual_ns``: times of the usual execution, where those of the slow ones decide and the times are means of all."""

    window: str
    label: str  # phase and batch size; '' where there is one only
    base_ns: float
    other_ns: float
    low: float
    high: float
    interval: str
    scale: float = 1.0
    mean_ratio: float = np.nan
    slow: tuple[tuple[int, int], ...] = ()
    usual_ns: tuple[float, ...] = ()
    pair: int = -1  # of cases, whose executions these are; −1 several
    outside: float = np.nan  # how much steps outside the recordings changed, where that is not alike

    @property
    def ratio(self) -> float:
        """Other over base, for the same amount of work."""
        return self.other_ns / self.base_ns / self.scale

    @property
    def word(self) -> str:
        """Faster or slower where the interval leaves out none, the same where it is narrow, else undecided."""
        if self.low > 0 or self.high < 0:
            return SLOWER if self.low > 0 else FASTER
        return SAME if max(abs(self.low), abs(self.high)) <= SAME_RATIO else UNDECIDED

    @property
    def p_value(self) -> float:
        """The chance of a ratio as far from none, below 5 % where the interval leaves out none; NaN: assumed."""
        low, high = np.log1p(self.low), np.log1p(self.high)
        normal = NormalDist()
        far = normal.inv_cdf(1 - SIGNIFICANCE / 2) * abs(low + high) / max(high - low, np.finfo(float).tiny)
        return np.nan if self.interval == ASSUMED else 2 * normal.cdf(-far)

    @property
    def is_same_but_slow_ones(self) -> bool:
        """Whether the usual execution takes the same, and all together do not, because of slow ones."""
        return self.word == SAME and abs(np.log(self.mean_ratio)) > np.log1p(SAME_RATIO)


def headlines(sides: list[Side], spread: float) -> list[Headline]:
    """One per phase and batch size that both sides have; else their main executions."""
    rows, sizes = [_executions(side) for side in sides], _size_ratio(sides)
    keys = ["phase", "batch_size"]
    matched = [frame[frame["pair_index"] >= 0] for frame in rows]
    common = [frame.groupby("pair_index")[keys].first() for frame in matched]
    pairs = common[0][common[0].index.isin(common[1].index)]
    made = []
    for one, group in pairs.groupby(keys, sort=False):
        mine = [frame[frame["pair_index"].isin(group.index)] for frame in matched]
        pair = int(group.index[0]) if len(group) == 1 else -1
        made.append((_words(*one), pair, _of_executions(mine, spread, sizes)))
    if len(made) == 1:
        made = [("", *made[0][1:])]
    if not made and all(len(frame) for frame in rows):
        mine = [_main(frame, keys) for frame in rows]
        made = [("", -1, _of_executions(mine, spread, sizes))]
    return [replace(one, label=label, pair=pair) for label, pair, one in made if one is not None]


def outside_changes(base: Results, other: Results) -> np.ndarray:
    """How much steps outside the recordings changed (without their waits for a processor: other programs' load), and
    those within: logarithms, NaN unknown."""
    frames = [frame_or_empty(side, "captures", ["step_awake_ns", "step_recorded_ns"]) for side in (base, other)]
    return np.subtract(*(np.log(frame.to_numpy(np.float64)).mean(axis=0) for frame in reversed(frames)))


def _words(phase: object, batch: object) -> str:
    return ", ".join(part for part in (str(phase), f"batch {batch}" if str(batch) not in ("-1", "0") else "") if part)


def _executions(side: Side) -> pd.DataFrame:
    """Measured executions with a latency, the pair that each is in, how long their device waited for code that was
    loaded or compiled, and their pace: from the end of one to the end of the next, where both are of one kind, and the
    process measured nothing else meanwhile; NaN else."""
    rows = side.cases.iterations
    case = rows["case_index"].to_numpy(np.int64)
    frame = side.cases.frame[["phase", "batch_size"]].iloc[case].reset_index(drop=True)
    rows = rows.reset_index(drop=True).assign(
        pair_index=side.pair_of_case[case], phase=frame["phase"].astype(object), batch_size=frame["batch_size"]
    )
    rows = rows[rows["is_measured"].astype(bool) & rows["is_model"].astype(bool) & rows["latency_ns"].gt(0)]
    keys = ["capture_id", "iteration_index"]
    idle = frame_or_empty(side.results, "idle", [*keys, "device_id", "cause", "start_ns", "end_ns"])
    idle = idle[idle["cause"].isin(LOADING)].assign(ns=lambda one: one["end_ns"] - one["start_ns"])
    loading = idle.groupby([*keys, "device_id"])["ns"].sum().groupby(keys).max()
    rows = rows.assign(loading_ns=loading.reindex(pd.MultiIndex.from_frame(rows[keys])).fillna(0).to_numpy())
    work = rows["device_offset_ns"] + rows["projection_ns"]  # where its device work ends, else the execution itself
    rows = rows.assign(end=rows["start_ns"] + work.fillna(rows["latency_ns"]))
    rows = rows.sort_values(["capture_id", "process_id", "end"])
    paces = [_paces(one) for _, one in rows.groupby(["capture_id", "process_id"])]
    is_lone = ~rows["capture_id"].isin(shared_captures(side.results))
    return rows.assign(pace=pd.concat([*paces, pd.Series(dtype=float)]).where(is_lone))


def _paces(rows: pd.DataFrame) -> pd.Series:
    """Of a process, by end. Of several executions that the host has at a time, all in a row are one pace: threads end
    theirs together, and a graph holds several."""
    begin, end = np.sort(rows["start_ns"]), np.sort(rows["end_ns"])
    place = np.arange(len(rows))
    count = int(max((place + 1 - np.searchsorted(end, begin, "right")).max(), 1))
    steps = rows[["end", "start_ns"]].diff(count)
    is_next = steps.gt(0).all(axis=1) & rows["case_index"].eq(rows["case_index"].shift(count)) & (place % count == 0)
    return steps["end"].where(is_next) / count


def paces(side: Side) -> pd.DataFrame:
    """``quantity`` period and `matching.SAMPLE_COLUMNS`: the pace of each execution that has one."""
    rows = _executions(side).dropna(subset="pace")
    rows = rows[rows["pair_index"] >= 0].assign(quantity=PERIOD, side=side.side, value=lambda one: one["pace"])
    return rows[["quantity", *SAMPLE_COLUMNS]]


def _main(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The executions of the kind that took most time."""
    taken = rows.groupby(keys, sort=False)["latency_ns"].transform("sum")
    return rows[taken == taken.max()]


def _size_ratio(sides: list[Side]) -> float:
    """The one factor by which sizes of the same operators differ; 1 where there is none, or more than one, or where the
    last sizes of operands differ (features: another model, not larger inputs)."""
    rows = []
    for side in sides:
        frame = frame_or_empty(side.results, "operators", ["operator", "sizes", "call_count"])
        frame = frame.assign(like=frame["sizes"].astype(str).str.replace(r"\d+", "#", regex=True))
        keys = ["operator", "like", "call_count"]
        rows.append(frame.assign(place=frame.groupby(keys).cumcount()))
    both = rows[0].merge(rows[1], on=[*keys, "place"])
    both = both[both["like"].str.contains("#", regex=False)]  # without sizes an operator says nothing
    texts = [" ".join(both[f"sizes_{which}"].astype(str)) for which in "xy"]
    base, other = (np.array(re.findall(r"\d+", text), np.float64) for text in texts)
    factors, counts = np.unique((other / np.maximum(base, 1))[base != other], return_counts=True)
    is_last = np.array(re.findall(r"\d+(\]?)", texts[0])) == "]"
    is_one = len(counts) and counts.max() >= _MOST_SIZES * counts.sum() and counts.sum() >= len(both) / 2
    is_one = is_one and is_last[base != other].mean() < 0.5
    return float(factors[counts.argmax()]) if is_one else 1.0


def _of_executions(rows: list[pd.DataFrame], spread: float, sizes: float) -> Headline | None:
    """Latency against latency; where executions overlap on a side, or something takes time between them, the pace of
    both. ``sizes``: `_size_ratio`."""
    latency = [trimmed_mean(frame["latency_ns"]) for frame in rows]
    pace = [_elapsed(frame["pace"].dropna().to_numpy(np.float64)) for frame in rows]
    lone = [_elapsed(frame["latency_ns"][frame["pace"].notna()].to_numpy(np.float64)) for frame in rows]
    ratios = np.divide(pace, lone)
    is_far = (ratios < _PACE_RATIO) | (ratios > 1 / _PACE_RATIO)
    is_pace = bool((is_far.any() | (ratios.max() > (1 + _APART_RATIO) * ratios.min())) & ~np.isnan(ratios).any())
    samples = [frame.assign(value=frame["pace" if is_pace else "latency_ns"]).dropna(subset="value") for frame in rows]
    values = np.concatenate([frame["value"].to_numpy(np.float64) for frame in samples])
    side = np.repeat([0, 1], [len(frame) for frame in samples])
    capture = np.concatenate([frame["capture_id"].to_numpy(np.int64) for frame in samples])
    base, other = pace if is_pace else latency
    if not base > 0 or not other > 0 or not (values > 0).all():
        return None
    batches = [int(frame["batch_size"].iloc[0]) for frame in rows]
    scale = batches[1] / batches[0] if min(batches) > 0 else sizes
    half, interval = _half_interval(values, side, capture, spread)
    ratio = other / base / scale
    low, high = ratio * np.exp(-half) - 1, ratio * np.exp(half) - 1
    each = [values[side == which] for which in (0, 1)]
    means = [float(times.mean()) for times in each]
    is_other = [times > _OTHER_RATIO * np.quantile(times, 0.25) for times in each]
    slow = tuple((int((_is_slow(times) | other).sum()), len(times)) for times, other in zip(each, is_other))
    window = PERIOD if is_pace else LATENCY
    said = Headline(window, "", base, other, low, high, interval, scale, means[1] / means[0] / scale, slow)
    loading = [frame["loading_ns"].to_numpy(np.float64) for frame in samples]
    ends = [_mean_between(*one) for one in zip(each, is_other, loading)]
    usual = ~np.concatenate(is_other)
    if said.word in (FASTER, SLOWER) or usual.all() or ends[0] is None or ends[1] is None:
        return said
    half, interval = _half_interval(values[usual], side[usual], capture[usual], spread)
    low, high = (ends[1][k] / ends[0][1 - k] / scale * np.exp((2 * k - 1) * half) - 1 for k in (0, 1))
    all_of_them = replace(said, base_ns=means[0], other_ns=means[1], low=low, high=high, interval=interval,
                          usual_ns=tuple(float(times[~one].mean()) for times, one in zip(each, is_other)))  # fmt: skip
    return all_of_them if all_of_them.word in (FASTER, SLOWER) else said


def _half_interval(values: np.ndarray, side: np.ndarray, capture: np.ndarray, spread: float) -> tuple[float, str]:
    """Half the interval of the difference of logarithms, and how it was found."""
    tested = differences(values, np.zeros(len(values), np.int64), side, capture, 1, spread).iloc[0]
    if np.isnan(tested["half"]):
        return _assumed(max(_ONE_SPREAD, spread)), ASSUMED
    return float(tested["half"]), OVER_CAPTURES if tested["interval_over"] == CAPTURES else OVER_EXECUTIONS


def _mean_between(times: np.ndarray, is_other: np.ndarray, loading_ns: np.ndarray) -> tuple[float, float] | None:
    """Between which values the mean of all executions lies. Those of another kind that loaded or compiled code are no
    chance; of others that take alike long the recording may hold one more or less. None: one alone, or unlike ones."""
    slow, mean = times[is_other], float(times.mean())
    extra = float((slow - times[~is_other].mean()).sum()) if len(slow) else 0.0
    if loading_ns[is_other].sum() >= extra / 2:
        return mean, mean
    if len(slow) < 2 or slow.max() > _ALIKE_RATIO * slow.min():
        return None
    return mean - extra / len(slow) / len(times), mean + extra / len(slow) / len(times)


def _elapsed(paces: np.ndarray) -> float:
    """The mean of paces without pauses: trimming would leave out what every fourth execution takes longer."""
    if not len(paces):
        return np.nan
    return float(paces[~_is_slow(paces)].mean())


def _is_slow(times: np.ndarray) -> np.ndarray:
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    return times > max(high + _PAUSE_QUARTILES * (high - low), _PAUSE_MEDIANS * middle)


def _assumed(spread: float) -> float:
    """Half the interval, as a logarithm, of two values of such a spread."""
    freedom = np.array([STAND_IN_FREEDOM])
    return float(t_quantiles(freedom, 1 - SIGNIFICANCE)[0] * spread * np.sqrt(2))


def of_recordings(sides: list[Side], found: Impact | None, spread: float) -> list[Headline]:
    """The time of the recordings as they are, or that of the same kernels."""
    if found is None or found.unit == EXECUTION:
        return []
    window = next(row for row in found.totals.to_dict("records") if row["quantity"] == "window")
    base, other = (float(window[f"{side}_per_unit"]) / found.device_count for side in ("base", "other"))
    if not base > 0 or not other > 0:
        return []
    scale, is_work = _size_ratio(sides), found.unit == WORK
    # the kernels of a long recording average what disturbs one execution
    half = _assumed(spread if is_work else max(_ONE_SPREAD, spread))
    ends = (found.high, found.low) if is_work else (1.0, 1.0)
    ratios = window["other_value"] / window["base_value"] / np.array(ends) / scale
    low, high = ratios * np.exp((-half, half)) - 1
    return [Headline(found.unit, "", base, other, low, high, BY_NAME if is_work else ASSUMED, scale)]
