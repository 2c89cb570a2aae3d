"""Texts of a recording → the languages, frameworks and platforms that they show; rules are lines of platforms.txt."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from xsp_post.names.patterns import found_in, read_rules

PYTORCH, COMPILED, PYTHON, CPP = "PyTorch", "compiled", "Python", "C++"
_LANGUAGES = {PYTHON, "Julia", "Rust", "OpenMP", "OpenACC", "JAX", "MTIA"}


class Rule(NamedTuple):
    """A platform, the kind of text that shows it, its pattern, and why."""

    platform: str
    source: str
    pattern: str
    why: str


class Shown(NamedTuple):
    """One kind of evidence for a platform: how many different texts show it, and the first of them."""

    platform: str
    source: str
    text_count: int
    example: str


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(Rule(*line) for line in read_rules(Path(__file__).with_name("platforms.txt"), 2))


def shown_platforms(texts: Mapping[str, Sequence[str]]) -> list[Shown]:
    """What different texts show, by source (as in `platforms.txt`). Of programs only the file's name is looked at.

    PyTorch is Python, unless the programs are known and none of them is. What shows no language but calls CUDA or HIP
    is C++."""
    programs = [PurePosixPath(text).name for text in texts.get("programs", ()) if text]
    found = []
    for rule in rules():
        asked = programs if rule.source == "programs" else texts.get(rule.source, ())
        hits = [text for text, hit in zip(asked, found_in(asked, rule.pattern)) if hit] if len(asked) else []
        if hits:
            found.append(Shown(rule.platform, rule.source, len(hits), hits[0]))
    by_name = {one.platform: one for one in reversed(found)}
    if PYTORCH in by_name and not programs and not by_name.keys() & _LANGUAGES:
        found.append(by_name[PYTORCH]._replace(platform=PYTHON))
    elif not by_name.keys() & _LANGUAGES and (shown := by_name.get("CUDA", by_name.get("HIP"))):
        found.append(shown._replace(platform=CPP))
    return found
