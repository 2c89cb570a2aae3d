"""Captures in: problems that nsys reported while recording (DIAGNOSTIC_EVENT) → findings, the most relevant first.

Most of its warnings are about CPU sampling and about helper processes that used no GPU: those are information.
"""

import re
from collections.abc import Sequence

from xsp_post.base.findings import Finding, finding

_SERIOUS = (2, 3)  # severity: warning, error
# Events are missing from the recording.
_LOSS = re.compile(
    r"not all .*(?:collected|recorded)|\blost\b|dropped|discard|overflow|incomplete|truncat|out of memory|"
    r"(?:size|time|disk) limit|buffers? (?:was|were|is|are) full|no space left",
    re.IGNORECASE,
)
# About what this program does not read: samples of the CPU, schedules, symbols, graphics, calls of the system.
_BESIDE = re.compile(
    r"\bCPU\b.*(?:sampl|backtrace)|\bIP samples|perf[_ ]event|paranoid|context switch|scheduling information|"
    r"\bMMAP\b|symbol(?:s|ic)? .*(?:resolve|process)|debuginfod|OpenGL|Vulkan|OS runtime|unwind|DWARF",
    re.IGNORECASE,
)
# Said of every process that did not use the library, whatever the others did.
_OF_ONE_PROCESS = re.compile(
    r"No (?P<a>\w+) events collected|(?P<b>\w+) profiling might have not been started", re.IGNORECASE
)
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/](?:[^\s'\"()\\/]+[\\/])+")
_NUMBER = re.compile(r"\d+")


def without_paths(text: str) -> str:
    """Folders stay out of findings: they hold user names."""
    return _PATH.sub("", text)


def diagnostic_findings(rows: Sequence[tuple[object, object]], *, has_kernels: bool) -> list[Finding]:
    """Findings of (severity, text) rows: events lost, other problems, notes; equal texts once, errors first."""
    found: dict[str, list[tuple[int, str]]] = {"diagnostic-loss": [], "diagnostic-event": [], "diagnostic-note": []}
    for severity, said in rows:
        if severity in _SERIOUS:
            text = " ".join(without_paths(str(said)).split())
            found[_code(text, has_kernels)].append((-int(str(severity)), text))
    result = []
    for code, texts in found.items():
        if texts:
            texts.sort(key=lambda one: one[0])
            distinct = {_NUMBER.sub("#", text): text for _, text in texts}
            example = " | ".join(list(distinct.values())[:3])
            result.append(finding(code, count=len(texts), example=example))
    return result


def _code(text: str, has_kernels: bool) -> str:
    of_process = _OF_ONE_PROCESS.search(text)
    if of_process:
        is_cuda = "cuda" in (of_process["a"] or of_process["b"]).lower()
        return "diagnostic-event" if is_cuda and not has_kernels else "diagnostic-note"
    if _BESIDE.search(text):
        return "diagnostic-note"
    return "diagnostic-loss" if _LOSS.search(text) else "diagnostic-event"
