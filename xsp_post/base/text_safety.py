"""Text from a capture → one safe line, or CSV: control characters are replaced or quoted before output."""

import io
import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pandas as pd

# Characters that change how *other* characters look (bidirectional controls: Unicode TR 9 §2; zero width;
# fillers; line and paragraph separators), and the C0/C1 controls.
INVISIBLE = frozenset({
    0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x3164, 0xFEFF, 0xFFA0,
    *range(0x20), *range(0x7F, 0xA0), *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070),
    *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
})  # fmt: skip
# what a terminal's font may not have either: control, format, surrogate, private and unassigned characters
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def shown(text: str, limit: int = 100) -> str:
    """The text with hidden characters spelled out (``\\u202e``), at most ``limit`` characters long."""
    if text.isascii() and text.isprintable() and len(text) <= limit:
        return text
    visible = "".join(f"\\u{ord(c):04x}" if _is_hidden(c) else c for c in text[: 2 * limit])
    return visible if len(visible) <= limit else visible[: limit - 1] + "…"


def file_name_text(name: str) -> str:
    """A file's name as text that can be written anywhere: its bytes that are not UTF-8 as ``%FF``.

    Python reads such bytes as lone surrogates (PEP 383), which no database, JSON or terminal takes.
    """
    return "".join(f"%{ord(c) - 0xDC00:02X}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in name)


def path_text(path: str | os.PathLike[str]) -> str:
    """A path as one harmless line."""
    text = file_name_text(os.fspath(path))
    return shown(text, 6 * len(text) + 1)


def shown_lines(text: str) -> str:
    """A text of several lines, hidden characters of each spelled out."""
    return "\n".join(shown(line, 6 * len(line) + 1) for line in text.split("\n"))


def write_csv(frame: "pd.DataFrame", stream: TextIO) -> None:
    """A frame as CSV. pandas leaves a lone carriage return unquoted, where readers begin another row; here it is
    quoted."""
    frame.to_csv(_Rows(stream), index=False, lineterminator="\r\n")  # what ends a row is quoted within texts


class _Rows(io.TextIOBase):
    """Ends each row, which is written at once, as Unix does."""

    def __init__(self, stream: TextIO) -> None:
        self._write = stream.write

    def write(self, row: str) -> int:
        return self._write(row.removesuffix("\r\n") + "\n")


def did_you_mean(wanted: str, names: Iterable[str], most: int = 3, cutoff: float = 0.6) -> str:
    """``Did you mean resnet50 or resnet101?``, first what begins so; "" where no name is close."""
    import difflib

    every = list(names)
    begun = [name for name in every if wanted and name.startswith(wanted)]
    close = dict.fromkeys([*begun, *difflib.get_close_matches(wanted, every, n=most, cutoff=cutoff)])
    return f"Did you mean {' or '.join([*close][:most])}?" if close else ""


def shell_word(word: object) -> str:
    """A word of a command line that can be pasted; a path never looks like an option."""
    text = str(word)
    if isinstance(word, Path) and text.startswith("-"):
        text = f"./{text}"
    if shown(text, 6 * len(text) + 1) == text:
        import shlex

        return shlex.quote(text)
    return "$'" + "".join(_escaped(c) for c in text) + "'"


def shell_command(*words: object) -> str:
    """A command line that can be pasted into a shell."""
    return " ".join(shell_word(word) for word in words)


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character)) if _is_hidden(character) else character


def _is_hidden(character: str) -> bool:
    return ord(character) in INVISIBLE or unicodedata.category(character) in _HIDDEN
