"""Trace → Tree, step "what is one model execution": what a candidate is, and how the user selects it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

import numpy as np

from xsp_post.base.errors import UsageError
from xsp_post.model.options import EXECUTION_RULES

# A candidate that covers less of the device time than this does not describe the program.
LEAST_COVERAGE = 0.5
MARKERS, ROOTS, TRAINING, COUNTED, CYCLES, SEQUENCE = EXECUTION_RULES.values()
OUTERMOST = "outermost ranges"
_WORD_OF_RULE = {rule: word for word, rule in EXECUTION_RULES.items()}


@dataclass
class Candidate:
    """Ranges that may each be one execution (of a cycle: `turn` says which of them are one)."""

    rule: str
    spans: np.ndarray
    device_ns: int
    coverage_ratio: float
    names: list[tuple[str, int]] = field(default_factory=list)  # text and how often, the heaviest first
    turn: np.ndarray | None = None
    alone: np.ndarray = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  # executions beside the turns: one span each

    @property
    def option(self) -> str:
        """How the user selects this candidate."""
        if self.turn is not None:
            return option_of_rule(self.rule)
        if not self.names:
            return ""
        return " ".join(("--model-range", shlex.quote("|".join(_pattern(name) for name, _ in self.names[:3]))))


def option_of_rule(rule: str) -> str:
    """How the user selects what this rule finds."""
    return f"--executions {_WORD_OF_RULE[rule]}"


def wanted_candidate(found: list[Candidate], word: str) -> Candidate:
    for candidate in found:
        if candidate.rule == EXECUTION_RULES[word]:
            return candidate
    known = ", ".join(_WORD_OF_RULE[candidate.rule] for candidate in found) or "nothing"
    said = f"--executions {word}: no {EXECUTION_RULES[word]} in the capture; its ranges say: {known}"
    raise UsageError(said, code="executions-not-found")


_NUMBER = re.compile(r"\\\*")


def _pattern(folded: str) -> str:
    """A regular expression for the texts that fold to this one: a star stands for a number, one may follow the end."""
    return "^" + _NUMBER.sub(r"\\d+", re.escape(folded).replace(r"\ ", " ").replace(r"\-", "-"))
