"""Coded values of the table ``balance`` → texts for terminal and page: the questions, and the ways of attribution."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from xsp_post.base.texts import read_blocks

_BLOCKS = {block.name: block for block in read_blocks(Path(__file__).with_name("words.txt"))}
QUESTIONS = {name: block.title for name, block in _BLOCKS.items()}


def way(question: str, attribution: str) -> str:
    """A way of attribution in words; the value itself where it has none."""
    words = _BLOCKS[question].texts() if question in _BLOCKS else {}
    return words.get(attribution, attribution.replace("_", " "))


HIGH, MEDIUM = 0.85, 0.6


def confidence_words(ratio: npt.ArrayLike) -> np.ndarray:
    """``high``, ``medium`` or ``low`` for each ratio; object, same shape."""
    values = np.asarray(ratio, float)
    return np.select([values >= HIGH, values >= MEDIUM], ["high", "medium"], "low").astype(object)
