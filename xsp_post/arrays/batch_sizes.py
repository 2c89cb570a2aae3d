"""A sweep of batch sizes and its throughputs → which of them is optimal (XSP §III-D1): the one place of that rule."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# The first is the one that everything follows unless it is asked for another.
BATCH_POLICIES = ("settled", "first", "last", "max", "within")
GAIN_RATIO = 0.05  # a doubling must raise the throughput by more than this


def gain_per_doubling(batch_size: IntArray, throughput: FloatArray) -> FloatArray:
    """Relative throughput gained by doubling each batch size of one ascending sweep; NaN for the last.

    Between sizes that are not a factor of two apart the gain is spread evenly over the doublings between them:
    (throughput ratio)^(1 / log2 of the size ratio) − 1, which is the plain ratio − 1 for 1, 2, 4 …
    """
    gain = np.full(len(batch_size), np.nan)
    doublings = np.log2(batch_size[1:] / batch_size[:-1])
    gain[:-1] = (throughput[1:] / throughput[:-1]) ** (1 / doublings) - 1
    return gain


def optimal_position(
    batch_size: IntArray, throughput: FloatArray, policy: str = BATCH_POLICIES[0], gain_ratio: float = GAIN_RATIO
) -> int:
    """Position of the optimal batch size in one ascending sweep (docs/paper.md, E2 on why there are several).

    ``settled`` what the last doubling that still gains more than ``gain_ratio`` reaches. It gains over the most
              there was before, and the next size must confirm it, so that one slow or fast size decides nothing.
              None where the largest doubling still gains: that sweep is not finished
    ``first``   the smallest whose doubling gains no more than ``gain_ratio``: the paper's wording
    ``last``    going down from the top, as long as the last doubling gained no more than that
    ``max``     the most throughput; of equals the smallest
    ``within``  the smallest whose throughput is within ``gain_ratio`` of the most
    −1 for none, and for a sweep of fewer than two sizes; the other policies take the top where every doubling gains.
    """
    if len(batch_size) < 2:
        return -1
    small_gain = gain_per_doubling(batch_size, throughput)[:-1] <= gain_ratio
    top = len(batch_size) - 1
    if policy == "settled":
        return _settled(batch_size, throughput, gain_ratio)
    if policy == "first":
        return int(np.argmax(small_gain)) if small_gain.any() else top
    if policy == "last":
        return int(np.flatnonzero(~small_gain)[-1]) + 1 if (~small_gain).any() else 0
    if policy == "max":
        return int(np.argmax(throughput))
    if policy == "within":
        return int(np.argmax(throughput >= (1 - gain_ratio) * throughput.max()))
    raise ValueError(policy)


def _settled(batch_size: IntArray, throughput: FloatArray, gain_ratio: float) -> int:
    """Policy ``settled`` of `optimal_position`."""
    confirmed = np.minimum(throughput[1:], np.append(throughput[2:], np.inf))
    needed = np.maximum.accumulate(throughput)[:-1] * (1 + gain_ratio) ** np.log2(batch_size[1:] / batch_size[:-1])
    is_gain = confirmed > needed
    if is_gain[-1]:
        return -1
    return int(np.flatnonzero(is_gain)[-1]) + 1 if is_gain.any() else 0
