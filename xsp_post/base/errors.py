"""What ends a command: one family of errors per exit code (docs/architecture.md). Raised where the cause is
known, caught once, in ``cli.main``."""

import errno
import os
from functools import partial

EXIT_BAR_NOT_MET = 1
EXIT_USAGE = 2
EXIT_TOOL = 3
EXIT_CAPTURE = 4
EXIT_CONTRADICTION = 5
EXIT_OUTPUT = 6
EXIT_UNDECIDED = 7
EXIT_INTERRUPTED = 130


class XspPostError(Exception):
    """A failure the user can understand: one sentence, a stable code, and what to do about it.

    ``code`` has a paragraph in docs/messages.md (see `messages.ERRORS`); ``hint`` is printed on its own line: the cure
    that stands there, where the place that raises the error knows nothing better.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.own_hint = hint

    @property
    def hint(self) -> str:
        """What to do about it."""
        try:
            from xsp_post.base.messages import ERRORS

            return self.own_hint or (ERRORS[self.code].cure if self.code in ERRORS else "")
        except MemoryError:  # the error may be about that
            return self.own_hint

    def __reduce__(self) -> tuple[object, ...]:  # keyword-only arguments survive pickling to worker processes
        return partial(type(self), self.message, code=self.code, hint=self.own_hint), ()


class BarNotMetError(XspPostError):
    """A bar the user set (`--fail-if`) was not met."""

    exit_code = EXIT_BAR_NOT_MET


class UndecidedError(BarNotMetError):
    """A bar the user set (`--fail-if`) could not be decided."""

    exit_code = EXIT_UNDECIDED


class UsageError(XspPostError):
    """The command line or a configuration cannot be followed."""


class ToolError(XspPostError):
    """A program we need is missing, failed or hung."""

    exit_code = EXIT_TOOL


class CaptureError(XspPostError):
    """A file is not a capture we can read."""

    exit_code = EXIT_CAPTURE


class ContradictionError(XspPostError):
    """The numbers contradict each other."""

    exit_code = EXIT_CONTRADICTION


class OutputError(XspPostError):
    """An output cannot be written."""

    exit_code = EXIT_OUTPUT


_NO_ROOM = {errno.ENOSPC: "full", errno.EDQUOT: "full", errno.EROFS: "denied", errno.EFBIG: "failed"}
# of a library that is loaded, a file that is mapped, a thread
_WITHOUT_MEMORY = ("failed to map segment", "Cannot allocate memory", "can't start new thread")
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def in_words(error: BaseException) -> XspPostError:
    """Any error as one that has a sentence. The text of a foreign one may quote a capture: it is left out."""
    if isinstance(error, XspPostError):
        return error
    if isinstance(error, MemoryError) or any(text in str(error) for text in _WITHOUT_MEMORY):
        # there is none to look the hint up
        hint = "Use a machine with more memory, or export a part of the recording: nsys export --times."
        return CaptureError("There is not enough memory for this.", code="out-of-memory", hint=hint)
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        name = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        if error.errno in _NO_ROOM:
            return OutputError(f"{name}cannot be written ({reason})", code=f"output-{_NO_ROOM[error.errno]}")
        return CaptureError(f"{name}cannot be read ({reason})", code="capture-unreadable")
    return ToolError(f"xsp-post failed ({defect(error)}).", code="defect-internal")


def defect(error: BaseException) -> str:
    """What kind of error it was, and in which of our lines."""
    import traceback  # slow to import

    ours = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(_HERE)]
    place = f" in {os.path.relpath(ours[-1].filename, _HERE)}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}{place}"
