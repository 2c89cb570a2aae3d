"""Regular expressions that a user, or a file beside a capture, gives: whatever they are, a search ends.

RE2 takes time in proportion to the texts. What it cannot express, or reads otherwise than Python (texts that are not
ASCII, lines), is left to Python in a process of its own, which is ended after a while.
"""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pyarrow as pa

from xsp_post.base import children
from xsp_post.base.errors import UsageError
from xsp_post.names.patterns import matches, to_arrow

LONGEST_PATTERN = 10_000  # characters
_LIMIT_S = 5.0
_PLAIN = re.compile(r"[\t -~]*").fullmatch
_OTHERWISE_IN_RE2 = ("{,", "[[", "--", "&&", "~~", "||")


@dataclass(frozen=True)
class UserPattern:
    """A regular expression of Python's kind, and the option that gave it. Raises `UsageError` where it is none."""

    text: str
    option: str

    def __post_init__(self) -> None:
        if len(self.text) > LONGEST_PATTERN:
            raise self._bad(f"is longer than {LONGEST_PATTERN:,} characters")
        try:
            re.compile(self.text)
        except (re.error, OverflowError, RecursionError) as error:
            raise self._bad(f"is not a regular expression: {error}") from error

    def found_in(self, texts: Sequence[str]) -> np.ndarray:
        """In which texts it is found; bool. Raises `UsageError` where a search takes too long."""
        plain = np.fromiter((_PLAIN(text) is not None for text in texts), bool, len(texts))
        if any(sign in self.text for sign in _OTHERWISE_IN_RE2):
            plain[:] = False
        found = np.zeros(len(texts), bool)
        if plain.any():
            try:
                found[plain] = matches(to_arrow(list(compress(texts, plain))), self.text)
            except pa.ArrowInvalid:  # it cannot be expressed there
                plain[:] = False
        if not plain.all():
            found[~plain] = self._found_apart(list(compress(texts, ~plain)))
        return found

    def _found_apart(self, texts: list[str]) -> np.ndarray:
        try:
            done = subprocess.run(
                children.python("xsp_post.base.pattern_child"), input=json.dumps([self.text, texts]).encode(),
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_LIMIT_S, check=False,
                env=children.environment(), preexec_fn=children.end_with_parent(),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise self._bad(f"was searched for {_LIMIT_S:.0f} s without an end") from error
        if done.returncode:
            raise self._bad("cannot be searched for")
        found = np.zeros(len(texts), bool)
        found[json.loads(done.stdout)] = True
        return found

    def _bad(self, what: str) -> UsageError:
        shown = self.text if len(self.text) <= 200 else self.text[:200] + "…"
        return UsageError(f"{self.option} {shown!r} {what}", code="bad-range-pattern")
