"""Files of text in the package (columns, labels, messages) → their entries, read when the first one is asked for."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

Entry = TypeVar("Entry")


class TextTable(Mapping[str, Entry]):
    """Name → entry, in the order of the file. Nothing is read before the first access."""

    def __init__(self, read: Callable[[], dict[str, Entry]]) -> None:
        self._read = read

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return self._read()

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Block(NamedTuple):
    """A line in brackets, what stands behind them, and the lines below it; lines with their numbers in the file."""

    path: Path
    number: int
    name: str
    title: str
    lines: list[tuple[int, str]]

    def refuse(self, reason: str, number: int = 0) -> NoReturn:
        """Text that cannot be read is a defect of the package: ValueError with file and line."""
        raise ValueError(f"{self.path.name}, line {number or self.number}: {reason}")

    def texts(self) -> dict[str, str]:
        """Its lines ``name: text``, by name; a line that begins with two spaces goes on with the text above.

        Raises:
            ValueError: another line, or a name that stands twice; with file and line.
        """
        found: dict[str, str] = {}
        for number, line in self.lines:
            name, colon, text = line.partition(": ")
            if line.startswith("  ") and found:
                found[next(reversed(found))] += f" {line.strip()}"
            elif not colon or name in found:
                self.refuse(f"{line!r} is not name: text, or its name stands twice", number)
            else:
                found[name] = text
        return found


def read_blocks(path: Path) -> list[Block]:
    """The blocks of a file; ``[name] title`` starts one. Empty lines and comments (#) are left out.

    Raises:
        ValueError: a line above the first block, or a name that stands twice; with file and line.
    """
    blocks: dict[str, Block] = {}
    block: Block | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("["):
            name, _, title = line[1:].partition("]")
            block = Block(path, number, name, title.strip(), [])
            if name in blocks:
                block.refuse(f"[{name}] stands twice")
            blocks[name] = block
        elif line and not line.startswith("#"):
            if block is None:
                raise ValueError(f"{path.name}, line {number}: stands above the first [name]")
            block.lines.append((number, line))
    return list(blocks.values())


def read_patterns(path: Path) -> dict[str, str]:
    """``name`` → regular expression: the lines below the name, each behind two spaces, put together."""
    return {block.name: "".join(line[2:] for _, line in block.lines) for block in read_blocks(path)}


def read_sentences(path: Path) -> dict[str, str]:
    """``group.name`` → text, in order; the first lines of the file say how it is written.

    Raises:
        ValueError: a line cannot be read; with file and line.
    """
    return {f"{block.name}.{name}": text for block in read_blocks(path) for name, text in block.texts().items()}


SENTENCES = TextTable(lambda: read_sentences(Path(__file__).with_name("sentences.txt")))


def sentence(key: str, **slots: object) -> str:
    """The sentence ``group.name`` with its slots filled in and a large first letter where it is a whole sentence.

    Raises `KeyError` for a key or a slot that is not there.
    """
    text = SENTENCES[key].format(**slots)
    return text[:1].upper() + text[1:] if text.endswith(".") else text
