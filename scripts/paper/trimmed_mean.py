"""A sample → the trimmed mean as the paper's code computes it, for comparison with ours."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from xsp_post.arrays.statistics import TRIM_RATIO, trim_count


def paper_trimmed_mean(values: npt.ArrayLike, trim_ratio: float = TRIM_RATIO) -> float:
    """The trimmed mean as the paper's code computes it, errors included; never a default.

    n < 3: plain mean. n = 3: median. n ≥ 4: the mean of sorted[⌊0.2n⌋ : min(n − 1, n − ⌊0.2n⌋)], so that
    n = 4 loses its maximum only. Rounded to three decimals.
    """
    sample = np.sort(np.asarray(values, dtype=np.float64))
    n = sample.size
    if n == 0:
        return math.nan
    if n < 3:
        return round(float(sample.mean()), 3)
    if n == 3:
        return round(float(sample[1]), 3)
    dropped = int(trim_count(n, trim_ratio))
    return round(float(sample[dropped : min(n - 1, n - dropped)].mean()), 3)
