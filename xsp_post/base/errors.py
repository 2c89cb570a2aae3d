"""What ends a command: one family of errors per exit code (docs/architecture.md). Raised where the cause is
known, caught once, in ``cli.main``."""

from __future__ import annotations

EXIT_BAR_NOT_MET = 1
EXIT_USAGE = 2
EXIT_TOOL = 3
EXIT_CAPTURE = 4
EXIT_CONTRADICTION = 5
EXIT_OUTPUT = 6
EXIT_INTERRUPTED = 130


class XspPostError(Exception):
    """A failure the user can understand: one sentence, a stable code, and what to do about it.

    ``code`` has a paragraph in docs/messages.md (see `messages.ERRORS`); ``hint`` is printed on its own line.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint

    def __reduce__(self):  # keyword-only arguments survive pickling to worker processes
        return (_rebuild, (type(self), self.message, self.code, self.hint))


def _rebuild(cls: type[XspPostError], message: str, code: str, hint: str) -> XspPostError:
    return cls(message, code=code, hint=hint)


class BarNotMetError(XspPostError):
    """A bar the user set (`--fail-if`) was not met."""

    exit_code = EXIT_BAR_NOT_MET


class UsageError(XspPostError):
    """The command line or a configuration cannot be followed."""

    exit_code = EXIT_USAGE


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
