"""What is said of a program before a public change, and of the pair, against the gain (`generators.changed`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from generators.changed import draw, saved
from generators.machine import write
from helpers import called, lever

SLACK, NOISE = 0.02, 0.02  # shares of a step: medians of steps with jitter; a gain below is none
QUESTIONS = ("verdict", "lever", "bound", "compare", "what-if")
HALVED = {"kernels": "kernel:.*=0.5x", "host": "host=0.5x", "launches": "launch=0.5x", "copies": "copy=0.5x"}


@dataclass(frozen=True)
class Said:
    """Of one pair. ``promised``: by the lever, where it is among the first three; ``lacks``: which questions fail."""

    name: str
    about: str
    limit: str
    codes: list[str]
    promised: float
    gain: float
    sentence: str
    lacks: list[str]


def said_of(seed: int, folder: Path) -> Said:
    """`why` of the program, `what-if` of its first limit, `compare` with what it is after the change."""
    pair, before = draw(seed)
    base = write(before, folder / f"before_{seed}")
    other = write(draw(seed, after=True)[1], folder / f"after_{seed}")
    data = json.loads(called("why", base, "--json").stdout)["data"]
    advice, gain, limit = data["advice"], saved(seed), data["verdict"]["limits"][:1]
    first = advice[:3]
    promised = max((one["bound_ratio"] for one in first if lever(one["code"]) in pair.levers), default=-1.0)
    sentence = called("compare", base, other).stdout.splitlines()[0]
    lacks = [] if set(limit) & pair.limits else ["verdict"]
    lacks += [] if promised >= 0 else ["lever"]
    lacks += ["bound"] if 0 <= promised < gain - SLACK and not (pair.is_per_sample or pair.does_more) else []
    if not pair.is_per_sample and not sentence.startswith("Faster" if gain > NOISE else ("Not", "No")):
        lacks.append("compare")
    lacks += contradictions(data, base)
    codes = [f"{one['code']} {one['bound_ratio']:.1%}" for one in advice[:4]]
    return Said(pair.name, before.about, ", ".join(limit), codes, promised, gain, sentence, lacks)


def contradictions(data: dict, base: Path) -> list[str]:
    """Where verdict, advice and `what-if` of one recording do not agree."""
    said, gains = [], {one["resource"]: one for one in data["verdict"]["gains"] if not one["part"]}
    for limit in data["verdict"]["limits"][:1]:
        if limit in HALVED and limit in gains and not gains["communication"]["is_shown"]:  # of kernels, too
            answer = called("what-if", base, "--change", HALVED[limit], "--json")
            if answer.returncode:
                continue
            rows = json.loads(answer.stdout)["data"]["predictions"]
            period = next((-row["change_ratio"] for row in rows if row["quantity"] == "period"), None)
            gain = gains[limit]
            if period is not None and not gain["low_gain_ratio"] - SLACK <= period <= gain["high_gain_ratio"] + SLACK:
                said.append(f"what-if {period:.1%} beside a gain of {gain['gain_ratio']:.1%}")
    if any(one["bound_ratio"] > 1 for one in data["advice"]):
        said.append("a bound above the whole")
    return said
