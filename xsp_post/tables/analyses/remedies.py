"""remedies.txt → every remedy with its texts: what to do, what it needs, what it promises; and words by platform."""

from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from xsp_post.base.texts import Block, TextTable, read_blocks
from xsp_post.model.schemas.units import formatter_of
from xsp_post.names.platforms import COMPILED, PYTHON, PYTORCH

_ELSE = "else"
WAITED = "The device waited {spent_ns} {pieces}{most}."


class Remedy(NamedTuple):
    """A block of remedies.txt. ``resource``: of `replay.experiment`, several joined by +, or none; ``seen``: its
    evidence, '' or by a word."""

    code: str
    resource: str
    change: str
    what: str
    needs: str
    assumed: str
    seen: dict[str, str]
    promises: str = ""
    acts: str = ""
    ideal: str = ""
    surely: str = ""
    unsure: str = ""
    more: str = ""
    asks: str = ""
    least: str = ""

    @property
    def resources(self) -> set[str]:
        """What it spares."""
        return set(self.resource.split("+"))

    def evidence(self, seen: str, facts: Mapping[str, Any]) -> str:
        """What the recording shows; ``facts`` are written by the units of their names."""
        slots = {name: (formatter_of(name) or str)(value) for name, value in facts.items()}
        return self.seen.get(seen, WAITED).format(**slots)


def _remedy(block: Block) -> Remedy:
    texts: dict[str, Any] = block.texts()
    seen = {name[5:]: texts.pop(name) for name in [*texts] if name.startswith("seen")}
    resource, change = (block.title + " ").split(" ")[:2]
    return Remedy(block.name, resource, change, seen=seen, **texts)


_PATH = Path(__file__).with_name("remedies.txt")
REMEDIES = TextTable(lambda: {one.name: _remedy(one) for one in read_blocks(_PATH) if not one.name.startswith("*")})
WORDS = TextTable(lambda: {one.name[1:]: one.texts() for one in read_blocks(_PATH) if one.name.startswith("*")})


def words_for(platforms: Set[str]) -> dict[str, str]:
    """The words of texts for a program of these platforms. Those of PyTorch are Python's: not for others."""
    known = set(platforms) if PYTHON in platforms else set(platforms) - {PYTORCH, COMPILED}
    return {
        name: next(text for platform, text in lines.items() if platform == _ELSE or platform in known)
        for name, lines in WORDS.items()
    }
