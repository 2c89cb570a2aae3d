"""Confidence of an inference → high, medium or low: one rule for everything that is inferred.

Blocks: fit × (1 − 0.5^(n/2)) for n equal blocks of one parent, where *fit* (0…1) says how well the boundaries of this
execution agree with the typical one's; four fifths of that where the blocks hold less than half of their execution.
Executions: share of regular ones × (1 − 0.5^n) for n of them. So `HIGH` needs six equal blocks or three equal
executions, `MEDIUM` three or two; what is less is low, and is said to be wherever it is shown.
"""

import numpy as np
import numpy.typing as npt

HIGH, MEDIUM = 0.85, 0.6


def confidence_words(ratio: npt.ArrayLike) -> np.ndarray:
    """``high``, ``medium`` or ``low`` for each ratio; object, same shape."""
    values = np.asarray(ratio, float)
    return np.select([values >= HIGH, values >= MEDIUM], ["high", "medium"], "low").astype(object)
