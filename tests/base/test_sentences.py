"""The catalogue of sentences: short, with slots that the program fills, and used."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from xsp_post.base.texts import SENTENCES, read_sentences, sentence

MOST_WORDS = 25
WORDS_OF_A_SLOT = 2
# Names that stand for several: of kinds, causes, resources and groups of time, which data choose.
BY_DATA = (
    "word",
    "short",
    "resource",
    "group",
    "scope",
    "cause",
    "limit",
    "kernels",
    "note",
    "compare",
    "next",
    "history",
)


def word_count(text: str) -> int:
    """Words of the longest sentence of a text, a slot counting as several."""
    sentences = re.split(r"(?<=[.!?]) ", re.sub(r"\{\w+\}", "slot " * WORDS_OF_A_SLOT, text))
    return max(len(re.findall(r"[^\s:;,.–]+", one)) for one in sentences)


@pytest.mark.parametrize("key", SENTENCES)
def test_a_sentence_is_short(key):
    assert word_count(SENTENCES[key]) <= MOST_WORDS


def test_words_are_counted_with_slots():
    assert word_count("At {share} the {work} wait. One.") == 7
    assert word_count("a, b; c") == 3


@pytest.mark.parametrize("key", SENTENCES)
def test_slots_are_plain_names(key):
    names = [name for _, name, spec, conversion in Formatter().parse(SENTENCES[key]) if name is not None]
    assert all(name.isidentifier() for name in names)
    said = sentence(key, **dict.fromkeys(names, "x"))
    assert "{" not in said and (said[0] == said[0].upper() or not said.endswith("."))
    if names:
        with pytest.raises(KeyError):
            sentence(key)


def test_every_sentence_is_used(root):
    code = "\n".join(path.read_text() for path in (root / "xsp_post").rglob("*.py"))
    unused = [
        key for key in SENTENCES
        if f'"{key}"' not in code and not (key.split(".")[0] in BY_DATA and f"{key.split('.')[0]}.{{" in code)
    ]  # fmt: skip
    assert not unused


def test_a_line_that_cannot_be_read_is_refused(tmp_path):
    for text in ("[a]\nno colon", "[a]\nx: 1\nx: 2", "x: above"):
        path = tmp_path / "sentences.txt"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"sentences\.txt, line"):
            read_sentences(path)
