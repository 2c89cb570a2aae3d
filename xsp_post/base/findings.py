"""Findings: problems in the data that do not end a command. They are kept with the results (docs/architecture.md)."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.messages import FINDINGS, SEVERITIES


@dataclass(frozen=True)
class Finding:
    """One data-quality finding: how often, one example, and what to do. Texts may come from a capture: hostile."""

    code: str
    severity: str
    count: int
    example: str
    hint: str
    capture_id: int = -1

    @property
    def title(self) -> str:
        """What the catalogue calls this code."""
        return FINDINGS[self.code].title

    @property
    def cause(self) -> str:
        """Where it comes from, as the catalogue says it."""
        return FINDINGS[self.code].cause


def finding(code: str, *, count: int = 1, example: str = "", hint: str = "", severity: str = "") -> Finding:
    """A finding of a catalogued code; severity and hint default to its entry's. KeyError if unknown."""
    entry = FINDINGS[code]
    return Finding(code, severity or entry.severity, int(count), example[:500], hint or entry.cure)


def if_any(code: str, where: Any, example: str | Callable[[int], object] = "") -> list[Finding]:
    """The finding where a number is above 0 or a mask true somewhere, else none. ``example``: by the first such row."""
    count = int(np.sum(where))
    if count and not isinstance(example, str):
        example = str(example(int(np.argmax(where))))
    return [finding(code, count=count, example=str(example))] if count else []


def to_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """Findings as rows of the store's `findings` table, worst first, with the texts of their codes."""
    columns = ["capture_id", "code", "severity", "title", "count", "example", "cause", "hint"]
    rows = [{**asdict(f), "title": f.title, "cause": f.cause} for f in findings]
    return worst_first(pd.DataFrame(rows, columns=columns))


def worst_first(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the table by severity, those of one severity in their order."""
    place = dict(zip(SEVERITIES, range(len(SEVERITIES))))  # an edited store may name another one: last
    order = frame["severity"].map(lambda one: place.get(one, len(place))).to_numpy(int).argsort(kind="stable")
    return frame.iloc[order].reset_index(drop=True)


def from_frame(frame: pd.DataFrame) -> list[Finding]:
    columns = [str(c) for c in frame if c not in ("title", "cause")]
    return [Finding(**dict(zip(columns, row))) for row in zip(*(frame[c].tolist() for c in columns))]
