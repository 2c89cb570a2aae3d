"""Findings as the page shows them: worst first, one per code, with cause and cure."""

from dataclasses import dataclass

from xsp_post.base.messages import INFO, SEVERITIES
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports.text import visible


@dataclass(frozen=True)
class Shown:
    """A finding code with everything the page says of it."""

    code: str
    severity: str
    title: str
    cause: str
    cure: str
    count: int
    examples: tuple[str, ...]


def shown_findings(results: Results) -> list[Shown]:
    """One entry per code, worst severity and most rows first."""
    frame = frame_or_empty(results, "findings")
    if frame.empty:
        return []
    frame = frame.assign(code=frame["code"].astype(str), severity=frame["severity"].astype(str))
    order = {severity: i for i, severity in enumerate(SEVERITIES)}
    found = []
    for code, rows in frame.groupby("code", sort=False):
        severity = min(rows["severity"], key=lambda s: order.get(s, len(order)))
        examples = dict.fromkeys(visible(text, 300) for text in rows["example"].astype(str) if text)
        hints = list(dict.fromkeys(_lines(text) for text in rows["hint"].astype(str) if text))
        known, title = severity if severity in order else INFO, visible(str(rows["title"].iloc[0]), 200)
        cause, count = _lines(str(rows["cause"].iloc[0])), int(rows["count"].sum())
        found.append(Shown(str(code), known, title, cause, " ".join(hints[:2]), count, tuple(examples)[:3]))
    return sorted(found, key=lambda f: (order[f.severity], -f.count, f.code))


def _lines(text: str) -> str:
    """A hint with the line breaks of the code in it."""
    return "\n".join(visible(line, 600) for line in text.splitlines()[:8])
