"""Texts by number → a column for a frame."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings


def categorical(codes: np.ndarray, texts: Strings) -> pd.Categorical[str]:
    """Texts by number as a categorical that holds only the texts in use; −1 becomes ''."""
    rows, unique = pd.factorize(codes)
    used = texts[np.maximum(unique, 0)] if len(texts) else np.full(len(unique), "", object)
    values = pd.Index(used if (unique >= 0).all() else np.where(unique >= 0, used, ""), dtype=object)
    if not values.is_unique:
        row_of_value, different = pd.factorize(values)
        rows, values = row_of_value[rows], pd.Index(different)
    return pd.Categorical.from_codes(rows, values)
