"""Limit and idle causes → what to do next: at most seven remedies, each with its evidence, assumption and upper bound.

The rules (`advice_kernels`, `advice_host`) find the remedies of `remedies.txt` whose needs the recording shows, and the
time that each concerns. No remedy promises more than a replay of its ideal (`ideal_gain`). First comes what saves most
as far as a replay knows (`Advice.place`).
"""

import math
import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.replay.experiment import ideal_gain
from xsp_post.replay.fidelity import Identity
from xsp_post.replay.resources import KERNELS, LAUNCHES
from xsp_post.tables.analyses import advice_host, advice_kernels
from xsp_post.tables.analyses.advice_evidence import Found, Situation, replayable
from xsp_post.tables.analyses.limits import (
    GRAPH_RECORDED,
    LEAST_OPERATIONS,
    LEAST_RATIO,
    SERIAL,
    Limit,
    operation_count,
)
from xsp_post.tables.analyses.remedies import REMEDIES

MOST = 7
# The ideal of a resource, where a remedy has none of its own.
_IDEAL = {
    "kernels": "kernels", "communication": "communication; ranks", "copies": "copy=overlap; copies",
    "host": "host; launches", "launches": "host; launches", "synchronisation": "sync=none; copy=overlap",
}  # fmt: skip
FAR = 2  # times the estimate: why a bound is so much more has to be said
_ONCE = {"none", "loading"}  # what is paid once is no part of what a replay repeats
_TWO_SPACES = re.compile(r" (?=[ ,:]|\.(?:\s|$))")  # where a word is empty


@dataclass(frozen=True)
class Advice:
    """One remedy. ``bound_ns`` is the most it can save on each device, ``estimate_ns`` what a replay of ``change``
    saves (−1: none); ``change`` is what `xsp-post what-if --change` takes, '' where a replay cannot say."""

    code: str
    what: str
    evidence: str
    assumption: str
    bound_ns: int
    bound_ratio: float
    change: str = ""
    bound_source: str = "time concerned"  # or: replay
    replay_error_ratio: float | None = None  # of the replay of the recording as it was
    bound_of: str = "the time"  # what the ratio is a share of
    estimate_ns: int = -1
    resource: str = ""  # that it spares
    is_limit: bool = False  # that resource limits the program
    is_bound: bool = True  # the bound is the most that the remedy saves; else only the time that it concerns
    more: str = ""  # when it saves far more than the estimate

    @property
    def place(self) -> tuple[bool, float]:
        """In the order: first what saves most, by a replay of the change, else by the bound, or half of a time that is
        no bound; half where it asks much, or spares launches alone, as a graph does; last what is paid once."""
        known = self.estimate_ns if self.estimate_ns >= 0 else self.bound_ns if self.is_bound else self.bound_ns / 2
        is_half = bool(REMEDIES[self.code].asks) or self.resource == LAUNCHES
        return self.resource == "none", -known / 2 if is_half else -known


def advise(results: Results, limit: Limit) -> list[Advice]:
    """The remedies worth trying. None where the capture does not show how the program ran (`Limit.is_of_no_run`)."""
    return list(_known(results, limit)[1])


def why_none(results: Results, limit: Limit) -> str:
    """Why `advise` has nothing to say, as one sentence."""
    if limit.is_of_no_run:
        is_graph = limit.reason == GRAPH_RECORDED
        what = "shows how a CUDA graph was recorded, not how it ran" if is_graph else "lacks many kernels that ran"
        return f"Nothing is advised: the capture {what}."
    if limit.reason == SERIAL:
        return "Nothing is advised here: Nsight Compute's own sections advise on each kernel."
    if (count := operation_count(results, limit.captures)) < LEAST_OPERATIONS:
        return f"Nothing is advised from only {count} device operation{'s' * (count != 1)}."
    least = format_ratio_percent(LEAST_RATIO, 0)
    beyond = ", and more than the error of its replay" if _known(results, limit)[0] else ""
    return f"No known change would save {least} or more{beyond}."


def _known(results: Results, limit: Limit) -> tuple[bool, list[Advice]]:
    """Whether remedies were tried, and the advice. The last are kept: a report asks for them in several places."""
    last: list[tuple[Limit, bool, list[Advice]]] = results.kept("advice", list)
    if not last or last[0][0] != limit:
        found, devices = _worth(results, limit), max(limit.device_count, 1)
        bounded = [one for one in (_bounded(results, limit, one) for one in found) if one is not None]
        # times of one device, as the verdict's: the mean of several
        each = [(one, one.bound_ns // devices, one.estimate_ns // devices) for one in bounded]
        said = [replace(one, bound_ns=bound, estimate_ns=estimate) for one, bound, estimate in each]
        said.sort(key=lambda one: one.place)
        said = [one for k, one in enumerate(said) if one.code not in {before.code for before in said[:k]}]
        last[:] = [(limit, bool(found), said[:MOST])]
    return last[0][1:]


def _worth(results: Results, limit: Limit) -> list[Found]:
    """The remedies that concern enough of the time, before any replay."""
    if not limit.window_ns or not limit.window or limit.is_of_no_run:
        return []
    is_little = operation_count(results, limit.captures) < LEAST_OPERATIONS
    situation = Situation(results, limit)
    found = [one for rules in (advice_kernels.RULES, advice_host.RULES) for rule in rules for one in rule(situation)]
    return [
        one
        for one in found
        if one.spent_ns >= LEAST_RATIO * (one.whole_ns or limit.whole_ns)
        and (not is_little or REMEDIES[one.code].least)
    ]


def _bounded(results: Results, limit: Limit, one: Found) -> Advice | None:
    """The remedy with its texts, never above its ideal; None where the ideal is below the replay's error."""
    remedy = REMEDIES[one.code]
    words = one.words
    change = remedy.change.format(**words)
    whole = one.whole_ns or limit.whole_ns
    one = replace(one, spent_ns=min(one.spent_ns, whole))  # ranks wait beside the executions, too
    is_open = one.is_open or (one.factors is not None and not one.factors.all())  # with a kernel its launch goes
    is_faster = KERNELS in limit.limits or one.factors is None or LAUNCHES not in remedy.resources
    what = _TWO_SPACES.sub("", (remedy.what if one.is_sure else remedy.unsure).format(**words))
    advice = Advice(
        one.code, what, one.evidence, remedy.assumed.format(**words), int(one.spent_ns), one.spent_ns / whole, change,
        bound_of=f"the {format_ns(whole / max(limit.device_count, 1))} {one.whole}" if one.whole else "the time",
        resource=remedy.resource if is_faster else LAUNCHES,
        is_limit=not remedy.resources.isdisjoint(limit.limits), is_bound=one.is_bound and not is_open,
    )  # fmt: skip
    has_none = one.whole or remedy.resources & _ONCE or remedy.ideal == "none"
    identity = None if has_none else replayable(results, limit)
    if identity is None:
        return advice
    factors, likely = (None if part is None else _of_operations(identity, part) for part in (one.factors, one.likely))
    texts = [] if factors is not None else (one.ideal or remedy.ideal or change or _IDEAL[remedy.resource]).split("; ")
    gain = ideal_gain(results, identity, limit.captures[0], texts, factors)
    if gain is None:
        return advice
    if gain < max(identity.error_ratio, LEAST_RATIO):
        return None
    most = min(math.ceil(gain * whole), limit.known_ns)
    asked = [text for text in (one.surely or remedy.surely or change).split("; ") if text]
    part = factors if likely is None and not asked else likely
    asks = part is not None or (asked and (asked != texts or not one.is_bound))
    known = ideal_gain(results, identity, limit.captures[0], asked, part) if one.has_estimate and asks else None
    if known is not None and known < LEAST_RATIO:
        return None
    bound = most if one.is_open or factors is not None else min(most, int(one.spent_ns))
    estimate = -1 if known is None else min(max(math.floor(known * whole), 0), bound)
    return replace(advice, bound_ns=bound, bound_ratio=bound / whole, estimate_ns=estimate, bound_source="replay",
                   more=remedy.more if 0 <= FAR * estimate <= bound else "", is_bound=one.is_bound,
                   replay_error_ratio=identity.error_ratio)  # fmt: skip


def _of_operations(identity: Identity, factors: pd.Series) -> np.ndarray:
    """The factor of each operation of a replay, of those of kernels by their start."""
    operations = identity.graph.recording.operations
    at = np.searchsorted(factors.index.to_numpy(), operations.start_ns)
    at = np.minimum(at, max(len(factors) - 1, 0))
    known = factors.index.to_numpy()[at] == operations.start_ns
    return np.where(known, factors.to_numpy()[at], 1.0)
