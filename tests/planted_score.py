"""Verdict, advice and `what-if` about programs with a planted bottleneck, against the program run without it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from generators.machine import Edit, write
from generators.planted import CURED, period, plant, window
from helpers import called, lever

import xsp_post
from xsp_post.base.errors import XspPostError

WORTH = 0.05  # wrong advice that promises less than this does no harm
SLACK = 0.02  # a promise may be so much below the gain: medians of steps with jitter
CHANGES = {
    "kernel:.*=0.5x": Edit(kernel=0.5),
    "launch=0.5x": Edit(launch=0.5),
    "host=0.5x": Edit(host=0.5),
    "copy=0.5x": Edit(copy=0.5),
    "launch=graph": Edit(flags=frozenset({"graph"})),
}


@dataclass(frozen=True)
class Said:
    """What is said of one program. ``gain``: what the cure saves of a step; ``promised``: by the first advice."""

    name: str
    about: str
    limit: str
    codes: list[str]
    is_verdict_right: bool
    is_advice_right: bool
    never: list[str]
    promised: float
    gain: float

    @property
    def is_bound_held(self) -> bool:
        """The first advice, where it is the right one, promises at least what its cure gains."""
        return not self.is_advice_right or not self.codes or self.promised >= self.gain - SLACK


def said_of(seed: int, folder: Path) -> Said:
    """`why` of one program, in this process."""
    one, program = plant(seed)
    _, cured = plant(seed, CURED)
    path = write(program, folder / f"planted_{seed}")
    data = json.loads(called("why", path, "--json").stdout)["data"]
    limits = [data["verdict"]["kind"], *data["verdict"]["limits"][:1]]
    codes = [lever(advice["code"]) for advice in data["advice"]]
    first = codes[0] if codes else ""
    return Said(
        one.name, program.about, limits[-1], codes,
        is_verdict_right=any(limit in one.limits for limit in limits),
        is_advice_right=first in one.advice,
        never=[a["code"] for a in data["advice"] if a["code"] in one.never and a["bound_ratio"] >= WORTH],
        promised=data["advice"][0]["bound_ratio"] if codes else 0.0,
        gain=min(1 - measure(cured) / measure(program) for measure in (period, window)),
    )  # fmt: skip


@dataclass(frozen=True)
class Predicted:
    """One prediction as shares of the step as it was; ``true``: of the program run again with the change."""

    name: str
    change: str
    predicted: float
    low: float
    high: float
    true: float
    refusal: str = ""

    @property
    def is_covered(self) -> bool:
        return self.low <= self.true <= self.high


def predictions_of(seed: int, folder: Path, changes: dict[str, Edit] = CHANGES) -> list[Predicted]:
    """`what-if` of one program for each change that touches it."""
    one, program = plant(seed)
    profile = xsp_post.load(write(program, folder / f"planted_{seed}"))
    before, rows = period(program), []
    for change, edit in changes.items():
        true = period(plant(seed, edit)[1]) / before
        try:
            amount = profile.what_if([change])
        except XspPostError as error:
            if "nothing in the capture matches" not in str(error):
                rows.append(Predicted(one.name, change, 1, 1, 1, true, str(error)))
            continue
        found = amount.period or amount.latency
        values = (found.predicted_ns, found.low_ns, found.high_ns)
        rows.append(Predicted(one.name, change, *(value / found.measured_ns for value in values), true))
    return rows
