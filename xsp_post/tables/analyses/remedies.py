"""remedies.txt → every remedy with its texts: what to do, what it needs, what it promises; and words by platform."""

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.names.platforms import COMPILED, PYTHON, PYTORCH

_ELSE = "else"


@dataclass(frozen=True)
class Remedy:
    """A block of remedies.txt. ``resource``: of `replay.experiment`, several joined by +, or none."""

    code: str
    resource: str
    change: str
    what: str
    needs: str
    promises: str
    assumed: str
    ideal: str = ""
    unsure: str = ""
    more: str = ""

    @property
    def resources(self) -> set[str]:
        """What it spares."""
        return set(self.resource.split("+"))


def _read() -> dict[str, Remedy]:
    blocks = read_blocks(_PATH)
    return {
        block.name: Remedy(block.name, *(block.title + " ").split(" ")[:2], **block.texts())
        for block in blocks
        if not block.name.startswith("*")
    }


_PATH = Path(__file__).with_name("remedies.txt")
REMEDIES = TextTable(_read)
WORDS = TextTable(lambda: {one.name[1:]: one.texts() for one in read_blocks(_PATH) if one.name.startswith("*")})


def words_for(platforms: Set[str]) -> dict[str, str]:
    """The words of texts for a program of these platforms. Those of PyTorch are Python's: not for others."""
    known = set(platforms) if PYTHON in platforms else set(platforms) - {PYTORCH, COMPILED}
    return {
        name: next(text for platform, text in lines.items() if platform == _ELSE or platform in known)
        for name, lines in WORDS.items()
    }
