"""What is odd but survivable: findings travel with the analysis into every table and report (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pandas as pd

ERROR, WARNING, INFO = "error", "warning", "info"

# The cure of findings about missing ranges. Lines that are indented are code, to be shown as lines.
HOW_TO_RECORD = """To record true layers, put three lines into the program:
    import xsp_post
    with xsp_post.ranges(model):
        model(inputs)
and run: nsys profile -t cuda,nvtx,cublas,cudnn --cuda-graph-trace=node -o report python program.py"""
SEVERITIES = (ERROR, WARNING, INFO)


@dataclass(frozen=True)
class Entry:
    """What a finding code means: default severity, title, cause and cure (docs/messages.md)."""

    severity: str
    title: str
    cause: str
    cure: str


@dataclass(frozen=True)
class Finding:
    """One data-quality finding: how often, one example, and what to do. Texts may come from a capture: hostile."""

    code: str
    severity: str
    count: int
    example: str
    hint: str
    capture_id: int = -1


def finding(code: str, *, count: int = 1, example: str = "", hint: str = "", severity: str = "") -> Finding:
    """A finding of a catalogued code; severity and hint default to the catalogue's. KeyError if unknown."""
    entry = CATALOGUE[code]
    return Finding(code, severity or entry.severity, int(count), example[:500], hint or entry.cure)


def to_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """Findings as rows of the store's `findings` table, worst first."""
    columns = ["capture_id", "code", "severity", "count", "example", "hint"]
    frame = pd.DataFrame([asdict(f) for f in findings], columns=columns)
    order = frame["severity"].map({s: i for i, s in enumerate(SEVERITIES)})
    return frame.loc[order.sort_values(kind="stable").index].reset_index(drop=True)


# code -> Entry; one per line group, alphabetical inside each room that raises it.
CATALOGUE: dict[str, Entry] = {}
