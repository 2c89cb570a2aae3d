"""Kernels by name of two results → whether the clock of the GPU differs, as far as the captures tell.

The captures state the highest clock of a GPU (`devices.clock_hz`), not the one it ran at. Kernels that all take the
same factor longer point to the clock: a change of the program slows some kernels and not others.
"""

import numpy as np
import pandas as pd

from xsp_post.base.texts import sentence
from xsp_post.compare.structure import Statement
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_hz, format_ratio_percent

LEAST_CHANGE = 0.03  # a smaller factor is not told from noise, nor is a smaller change named
SPREAD = 0.02  # kernels within this of the factor go with it
LEAST_SHARE = 0.8  # of the common kernel time that goes with it
LEAST_NAMES = 4


def clock_statements(base: Results, other: Results, names: pd.DataFrame) -> list[Statement]:
    """The stated clocks where they differ, and the common factor of all kernels where there is one; else nothing."""
    statements: list[Statement] = []
    stated = [_stated(results) for results in (base, other)]
    differs = all(stated) and stated[0] != stated[1]
    if differs:
        base_clock, other_clock = (" and ".join(format_hz(clock) for clock in sorted(clocks)) for clocks in stated)
        statements.append(("clock", sentence("compare.clocks", base=base_clock, other=other_clock), True))
    if (found := common_factor(names)) is not None:
        factor, share = found
        is_longer = factor > 1
        text = sentence(
            "compare.factor", share=format_ratio_percent(share), change=format_ratio_percent(abs(factor - 1)),
            way="longer" if is_longer else "shorter", clock="lower" if is_longer else "higher",
            known="" if differs else sentence("compare.clock-unknown"),
        )  # fmt: skip
        statements.append(("clock", text, True))
    return statements


def _stated(results: Results) -> set[float]:
    clocks = frame_or_empty(results, "devices", ["clock_hz", "device_ns"])
    used = clocks[(clocks["device_ns"] > 0) & (clocks["clock_hz"] > 0)]
    return set(used["clock_hz"].astype(float))


def common_factor(names: pd.DataFrame) -> tuple[float, float] | None:
    """By what factor nearly all kernels on both sides take longer (weighted by their time), and the share of the time
    that goes with it; None where kernels differ in other ways, or not at all. Communication waits for other ranks."""
    both = names[(names["base_count"] > 0) & (names["other_count"] > 0) & ~names["is_communication"].astype(bool)]
    if len(both) < LEAST_NAMES:
        return None
    weight = (both["base_mean_ns"] * both["base_count"]).to_numpy(float)
    ratio = (both["other_mean_ns"] / both["base_mean_ns"]).to_numpy(float)
    order = np.argsort(ratio, kind="stable")
    middle = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)
    factor = float(ratio[order][min(int(middle), len(order) - 1)])
    alike = np.abs(ratio - factor) <= SPREAD * factor
    share = float(weight[alike].sum() / weight.sum())
    if abs(factor - 1) < LEAST_CHANGE or share < LEAST_SHARE or int(alike.sum()) < LEAST_NAMES:
        return None
    return factor, share
