"""How well executions explain a recording: one score for ranges, turns of siblings, and loops of launches."""

import numpy as np
import numpy.typing as npt

from xsp_post.tree.structure.constants import Constants


def cost_ratio(coverage: npt.ArrayLike, likeness: npt.ArrayLike, count: npt.ArrayLike) -> np.ndarray:
    """Length of a description of the recording by executions, of one without: what they do not cover in full, one of
    them, and of each other one what differs from it. Arrays of one shape: 0…1, 0…1, number of executions."""
    return 1 - np.asarray(coverage) * np.asarray(likeness) * (1 - 1 / np.maximum(count, 1))


def worth(coverage: npt.ArrayLike, likeness: npt.ArrayLike, count: npt.ArrayLike, prior: npt.ArrayLike) -> np.ndarray:
    """The score: the mean of the time covered and of the description saved, times what texts and kernels say of such
    executions (``prior``, 0…1)."""
    return np.asarray(prior) * (np.asarray(coverage) + 1 - cost_ratio(coverage, likeness, count)) / 2


def are_alike(series: np.ndarray, size: np.ndarray, constants: Constants) -> np.ndarray:
    """Which executions have about the size (in launches) of another one of their series; bool, shape of both."""
    order = np.lexsort((size, series))
    step, most = np.diff(size[order]), np.maximum(2, constants.uneven_ratio * size[order][1:])
    near = (np.diff(series[order]) == 0) & (step <= most)
    alike = np.zeros(len(size), bool)
    alike[order] = np.r_[False, near] | np.r_[near, False]
    return alike
