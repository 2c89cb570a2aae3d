"""Captures in: JSON text → Python values; damaged text gives one error message."""

import gzip
import io
import json
import re
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from xsp_post.base import limits
from xsp_post.base.errors import CaptureError
from xsp_post.ingest.files import GZIP_MAGIC

_DIGITS = 19  # of numbers that fit int64; longer ones become text, which no column takes for a number
# An escaped backslash or a pair of surrogates (kept), or half of a pair, which no file, database or terminal takes.
_SURROGATES = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class Decoder:
    """Decodes pieces of one file. ``keep_fractions``: numbers with a fraction stay text, so that none is rounded."""

    def __init__(self, path: Path, *, keep_fractions: bool = False) -> None:
        self.path = path
        options: dict[str, Any] = {"parse_float": str} if keep_fractions else {}
        self._plain = json.JSONDecoder(**options)
        self._careful = json.JSONDecoder(**options, parse_int=_number)

    def decode(self, text: str) -> Any:
        """The value that the whole text is. Raises `json.JSONDecodeError`, or `CaptureError` for nesting."""
        return self._guarded("decode", text)

    def first(self, text: str) -> tuple[Any, int]:
        """The value that the text begins with, and where in the text it ends."""
        value, end = self._guarded("raw_decode", text)
        return value, end

    def _guarded(self, method: str, text: str) -> Any:
        clean = whole_characters(text)
        try:
            try:
                return getattr(self._plain, method)(clean)
            except json.JSONDecodeError:
                raise
            except ValueError:  # an integer of thousands of digits
                return getattr(self._careful, method)(clean)
        except RecursionError as error:
            raise CaptureError(
                f"{self.path}: its JSON is nested deeper than can be read (about 900 levels)", code="json-too-deep"
            ) from error


def whole_characters(text: str) -> str:
    """The text with halves of surrogate pairs, written as escapes, replaced; as long as it was."""
    if not _HALF.search(text):
        return text
    return _SURROGATES.sub(lambda match: match[0] if match[1] else "\\ufffd", text)


_VALUES = json.JSONDecoder(parse_float=str)


def value_of(text: Any) -> Any:
    """The value that the bytes are, numbers with a fraction as text; None for nothing and for damaged text."""
    try:
        return _VALUES.decode(whole_characters(bytes(text).decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits


def open_text(path: Path) -> TextIO:
    """A text stream of a plain or gzipped file; bytes that are not UTF-8 become replacement characters.

    Reading raises `CaptureError` beyond the limit of uncompressed bytes.
    """
    return io.TextIOWrapper(
        io.BufferedReader(open_bytes(path), 1 << 20), encoding="utf-8-sig", errors="replace", newline=""
    )


def open_bytes(path: Path) -> io.RawIOBase:
    """The same as bytes; ``read`` gives as many as are asked for, as long as there are."""
    with path.open("rb") as raw:
        is_gzip = raw.read(2) == GZIP_MAGIC
    if not is_gzip:
        return path.open("rb", buffering=0)
    if not limits.are_lifted() and limits.said_bytes(path) > _limit_bytes(path):
        _count(path)
    return _Limited(path)


def _limit_bytes(path: Path) -> int:
    return max(limits.UNCOMPRESSED_BYTES, limits.UNCOMPRESSED_RATIO * path.stat().st_size)


def _count(path: Path) -> None:
    """`CaptureError` where there is more than the limit, found without decoding anything. Damage is found later."""
    with suppress(EOFError, OSError, zlib.error), _Limited(path) as packed:
        buffer = bytearray(1 << 20)
        while packed.readinto(buffer):
            pass


class _Limited(io.RawIOBase):
    """The uncompressed bytes of a gzip file, up to the limit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = gzip.open(path, "rb")  # noqa: SIM115  (closed by `close`)
        self._limit = _limit_bytes(path)
        self._left = -1 if limits.are_lifted() else self._limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._counted(self._file.readinto(buffer))

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._counted(len(data))
        return data

    def _counted(self, count: int) -> int:
        if self._left >= 0:
            self._left -= count
            if self._left < 0:
                raise limits.over_limit(
                    self._path, "is compressed and holds more than it seems", f"{self._limit:,} bytes uncompressed"
                )
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def head(path: Path, characters: int = 1 << 16) -> str:
    """The first characters of a plain or gzipped text file, as far as they can be read."""
    return head_bytes(path, characters).decode("utf-8", "replace").removeprefix("\ufeff")


def head_bytes(path: Path, count: int) -> bytes:
    """The same of any file, as bytes."""
    try:
        with path.open("rb") as raw:
            start = raw.read(count)
        return zlib.decompressobj(31).decompress(start, count) if start.startswith(GZIP_MAGIC) else start
    except (OSError, zlib.error):
        return b""
