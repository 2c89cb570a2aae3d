"""stdout and stderr, whatever they are (closed, full, without a reader, not UTF-8) → streams that commands can use.

What cannot be written to stdout is data that is lost: `OutputError`. What cannot be written to stderr is passed over,
for a message must not end a command. A reader of stdout that went away (`| head`) ends it as SIGPIPE would, without a
word.
"""

import codecs
import errno
import io
import os
import select
import signal
import sys
from typing import Any

from xsp_post.base.errors import OutputError

_HANDLER = "xsp-post"
# for terminals that are not UTF-8; what is not here is spelled out
_PLAIN = {"µ": "u", "→": "->", "…": "...", "–": "-", "×": "x", "≤": "<=", "≥": ">=", "·": "|", "±": "+/-", "█": "#"}


def prepare() -> None:
    """Call first: nothing else may have taken the numbers of streams that are closed."""
    codecs.register_error(_HANDLER, _in_plain_characters)
    if not hasattr(signal, "SIGPIPE"):  # Windows
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=_HANDLER)
        return
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # it would end us between two steps, with files half-written
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # of 1: what is written to it fails
    sys.stdout = _wrapped(sys.stdout, 1, _Data)
    sys.stderr = _wrapped(sys.stderr, 2, _Messages)


def _wrapped(stream: Any, number: int, kind: type[io.FileIO]) -> Any:
    try:
        if stream is not None and stream.fileno() != number:
            return stream
    except (OSError, ValueError):  # no file: a test, a notebook
        return stream
    if stream is not None:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(kind(number, "w", closefd=False)),
        encoding=getattr(stream, "encoding", "utf-8"),
        errors=_HANDLER,
        line_buffering=getattr(stream, "line_buffering", number == 2),
        write_through=getattr(stream, "write_through", False),
    )


class _Data(io.FileIO):
    """stdout. After the first failure nothing is written to it any more."""

    is_lost = False

    def write(self, data: Any) -> int:
        if self.is_lost:
            return len(data)
        try:
            while (count := super().write(data)) is None:  # a pipe that does not wait is full
                select.select([], [self], [])
            return count
        except OSError as error:
            self.is_lost = True
            if error.errno == errno.EPIPE:
                raise SystemExit(128 + signal.SIGPIPE) from None
            reason = "it is closed" if error.errno == errno.EBADF else os.strerror(error.errno or errno.EIO)
            raise OutputError(
                f"The output was not printed whole: standard output cannot be written to ({reason}).",
                code="stdout-failed",
            ) from error


class _Messages(io.FileIO):
    """stderr."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)


def _in_plain_characters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in wrong), error.end
