"""Intervals and tests against simulated processes: coverage, false alarms, power, and sums of trimmed parts.

Latencies are drawn, never measured: a process has a mean of its own (process spread, relative), its iterations an
autocorrelation and a noise of 1 % (normal, or lognormal with a long tail). The functions that every capture goes
through then say an interval or a verdict, and the share that is right is counted. --quick draws fewer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from xsp_post.arrays.processes import summarise_repeats
from xsp_post.arrays.statistics import compare_summaries, summarise_groups
from xsp_post.compare.differences import LEAST_SPREAD, POWER, SIGNIFICANCE, differences, holm

CORRELATIONS = (0.0, 0.4, 0.8)
SPREADS = (0.0, 0.005, 0.01)
NOISES = ("normal", "lognormal")
MEAN_NS, NOISE_RATIO, TAIL = 1e7, 0.01, 0.5
COVERAGE = (0.93, 0.98)


@dataclass(frozen=True)
class Row:
    """One simulated claim: the share of draws in which it was right, and between what that must lie."""

    claim: str
    case: str
    share: float
    least: float
    most: float
    draws: int

    @property
    def is_met(self) -> bool:
        """Within the limits, give or take what so many draws leave to chance (two standard errors)."""
        chance = 2 * np.sqrt(max(self.share * (1 - self.share), 0.01) / self.draws)
        return bool(self.least - chance <= self.share <= self.most + chance)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=4000, help="simulated experiments of every case")
    parser.add_argument("--quick", action="store_true", help="150 of every case: some 15 s")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is not met")


def main(options: argparse.Namespace) -> int:
    from benches._measure import finish

    rows = []
    for row in simulate(150 if options.quick else options.draws):
        rows.append(row)
        verdict = "ok" if row.is_met else "MISSED"
        print(f"{row.claim:<38} {row.case:<52} {row.share:7.3f}  {verdict} {row.least:g}–{row.most:g}", flush=True)
    missed = [f"{row.claim}, {row.case}: {row.share:.3f}" for row in rows if not row.is_met]
    return finish(missed, check=options.check)


def simulate(draws: int, seed: int = 1) -> Iterator[Row]:
    """Every claim over every noise model."""
    random = np.random.default_rng(seed)
    for noise in NOISES:
        yield from within_process(random, draws, noise)
    for noise in NOISES:
        yield from over_processes(random, draws, noise)
    yield from false_alarms(random, draws)
    yield from many_rows(random, draws)
    yield from power(random, draws)
    yield from totals(random, draws)


# -- noise ------------------------------------------------------------------------------------------------------


def iterations(
    random: np.random.Generator, shape: tuple[int, ...], correlation: float, spread: float = 0.0, noise: str = "normal"
) -> np.ndarray:
    """Latencies of shape (…, process, iteration), in ns."""
    series = random.standard_normal(shape)
    for i in range(1, shape[-1]):
        series[..., i] = correlation * series[..., i - 1] + np.sqrt(1 - correlation**2) * series[..., i]
    if noise == "lognormal":
        series = (np.exp(TAIL * series) - 1) / TAIL
    process = spread * random.standard_normal((*shape[:-1], 1))
    return MEAN_NS * (1 + process) * (1 + NOISE_RATIO * series)


def true_mean_ns(noise: str) -> float:
    """The trimmed mean of endlessly many iterations: what an interval of it is to cover."""
    if noise == "normal":
        return MEAN_NS
    long = np.sort(np.random.default_rng(0).standard_normal(1_000_000))[200_000:800_000]
    return float(MEAN_NS * (1 + NOISE_RATIO * ((np.exp(TAIL * long) - 1) / TAIL).mean()))


def _summaries(values: np.ndarray):
    """`summarise_repeats` of (draw, process, iteration)."""
    draws, processes, count = values.shape
    group = np.repeat(np.arange(draws), processes * count)
    process = np.tile(np.repeat(np.arange(processes), count), draws)
    return summarise_repeats(values.ravel(), group, process, draws)


def _covered(summary, truth: float) -> float:
    return float(((summary["ci_low"] <= truth) & (summary["ci_high"] >= truth)).mean())


# -- claims -----------------------------------------------------------------------------------------------------


def within_process(random: np.random.Generator, draws: int, noise: str) -> Iterator[Row]:
    """An interval of one process covers the mean of that process."""
    for count in (10, 30, 100):
        for correlation in CORRELATIONS:
            values = iterations(random, (draws, 1, count), correlation, noise=noise)
            case = f"{noise}, {count} iterations, autocorrelation {correlation}"
            yield Row("interval within one process", case, _covered(_summaries(values), true_mean_ns(noise)),
                      *COVERAGE, draws)  # fmt: skip


def over_processes(random: np.random.Generator, draws: int, noise: str) -> Iterator[Row]:
    """An interval over processes covers their mean; that of an overhead covers the difference of two levels."""
    truth = true_mean_ns(noise)
    for processes in (3, 5):
        for correlation in CORRELATIONS:
            for spread in SPREADS:
                shape = (draws, processes, 10)
                one, other = (_summaries(iterations(random, shape, correlation, spread, noise)) for _ in "ab")
                case = f"{noise}, {processes} processes, autocorrelation {correlation}, spread {spread:.1%}"
                yield Row("interval over processes", case, _covered(one, truth), *COVERAGE, draws)
                yield Row("interval of an overhead", case, _covered(compare_summaries(one, other), 0.0),
                          COVERAGE[0], 0.99, draws)  # fmt: skip


def _compared(one: np.ndarray, other: np.ndarray):
    """`differences` of (draw, process, iteration) on either side."""
    draws = len(one)
    sides = [np.full(values.size, side) for side, values in enumerate((one, other))]
    groups = [np.repeat(np.arange(draws), values[0].size) for values in (one, other)]
    captures = [
        np.tile(np.repeat(np.arange(values.shape[1]), values.shape[2]), draws) + 100 * side
        for side, values in enumerate((one, other))
    ]
    values = np.concatenate((one.ravel(), other.ravel()))
    return differences(values, *(np.concatenate(parts) for parts in (groups, sides, captures)), draws,
                       LEAST_SPREAD["gpu"])  # fmt: skip


def false_alarms(random: np.random.Generator, draws: int) -> Iterator[Row]:
    """compare of two runs of one program."""
    for processes in (1, 3, 5):
        for correlation in CORRELATIONS:
            for spread in SPREADS:
                shape = (draws, processes, 10)
                found = _compared(*(iterations(random, shape, correlation, spread) for _ in "ab"))
                case = f"{processes} processes, autocorrelation {correlation}, spread {spread:.1%}"
                alarms = float((found["p_value"] < SIGNIFICANCE).mean())
                yield Row("false alarms of compare", case, alarms, 0.0, SIGNIFICANCE, draws)


def many_rows(random: np.random.Generator, draws: int, rows: int = 20) -> Iterator[Row]:
    """compare of two runs of one program: any alarm at all among its rows."""
    draws = max(draws // rows, 100)
    for processes in (3, 5):
        shape = (draws * rows, processes, 10)
        found = _compared(*(iterations(random, shape, 0.8, 0.01) for _ in "ab"))
        p_values = found["p_value"].to_numpy().reshape(draws, rows)
        alarms = float(np.mean([(holm(p) < SIGNIFICANCE).any() for p in p_values]))
        yield Row("any false alarm of compare", f"{processes} processes, {rows} rows", alarms, 0.0, SIGNIFICANCE, draws)


def power(random: np.random.Generator, draws: int) -> Iterator[Row]:
    """A change of the size that compare prints is shown four times of five (at least: the floors are cautious)."""
    for processes in (1, 3, 5):
        for correlation in CORRELATIONS:
            for spread in (0.0, 0.01):
                shape = (draws, processes, 10)
                one, other = (iterations(random, shape, correlation, spread) for _ in "ab")
                size = float(np.median(_compared(one, other)["detectable"]))
                shown = float((_compared(one, other + size)["p_value"] < SIGNIFICANCE).mean())
                case = (
                    f"{processes} processes, autocorrelation {correlation}, spread {spread:.1%}: {size / MEAN_NS:.1%}"
                )
                yield Row("power as printed", case, shown, POWER - 0.05, 1.0, draws)


def totals(random: np.random.Generator, draws: int, parts: int = 20, count: int = 10) -> Iterator[Row]:
    """Of a loaded machine, where now this and now that part is slow: parts trimmed one by one, and the total trimmed as
    one, as shares of the trimmed mean of endlessly many totals."""

    def made(executions: int) -> np.ndarray:
        hit = random.random((executions, parts)) < 0.1
        return 1 + NOISE_RATIO * random.standard_normal((executions, parts)) + 3 * hit

    truth = float(summarise_groups(made(200_000).sum(axis=1), np.zeros(200_000, int), 1)["trimmed_mean"].iloc[0])
    values = made(draws * count)
    by_part = (np.arange(draws * count)[:, None] // count) * parts + np.arange(parts)
    singly = summarise_groups(values.ravel(), by_part.ravel(), draws * parts)["trimmed_mean"].to_numpy()
    whole = summarise_groups(values.sum(axis=1), np.repeat(np.arange(draws), count), draws)["trimmed_mean"]
    case = f"{parts} parts, each slow in one of ten executions"
    yield Row("total trimmed as one, of the true one", case, float(whole.mean() / truth), 0.99, 1.01, draws)
    yield Row("sum of trimmed parts, of the true one", case, float(singly.sum() / draws / truth), 0.7, 0.95, draws)
