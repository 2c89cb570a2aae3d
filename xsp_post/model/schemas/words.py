"""Coded values of the table ``balance`` → texts for terminal and page: the questions, and the ways of attribution."""

from pathlib import Path

from xsp_post.base.texts import read_blocks

_BLOCKS = {block.name: block for block in read_blocks(Path(__file__).with_name("words.txt"))}
QUESTIONS = {name: block.title for name, block in _BLOCKS.items()}


def way(question: str, attribution: str) -> str:
    """A way of attribution in words; the value itself where it has none."""
    words = _BLOCKS[question].texts() if question in _BLOCKS else {}
    return words.get(attribution, attribution.replace("_", " "))
