"""Trace → Tree, step "what is one model execution": candidates of ranges and launches, the best by one score.

Candidates: step and model markers and ranges that count themselves, at the levels of nesting that score best; calls of
the model; siblings that follow one another again and again; siblings up to the end of each training step; outermost
ranges; and what the launch sequence repeats, where it could score higher than all of them. `structure.score` is the
score: device time covered, how alike the executions are, how many there are, and what the texts say.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.cutting import distinct
from xsp_post.base.errors import UsageError
from xsp_post.model.options import EXECUTION_RULES
from xsp_post.model.trace import SpanKind
from xsp_post.names.patterns import found_in
from xsp_post.tree import kinds, layering
from xsp_post.tree.cycles import find_cycle
from xsp_post.tree.execution_work import Times
from xsp_post.tree.node_names import PART_OF_LAYER as _PART_OF_LAYER
from xsp_post.tree.node_names import without_numbers
from xsp_post.tree.ranges import Ranges
from xsp_post.tree.structure.constants import Constants
from xsp_post.tree.structure.score import are_alike, cost_ratio, worth

MARKERS, ROOTS, TRAINING, COUNTED, CYCLES, SEQUENCE = EXECUTION_RULES.values()
OUTERMOST, REPLAYS = "outermost ranges", "replays of a CUDA graph"
PERIODS = ("device_ns", "launch_count", "series_index", "start_ns", "process_index")
_WORD_OF_RULE = {rule: word for word, rule in EXECUTION_RULES.items()}
_MOST_DEPTH = 8
_STEPS, _UPDATES = r"\.step$", r"(?i)^opt|\.step$"

_NUMBER = re.compile(r"\\\*")


@dataclass
class Candidate:
    """Ranges that may each be one execution (``turn`` says which of them are one, where several are; none: launches).

    likeness_ratio: how much of the device time is in executions that launch as much as another one; cost_ratio: length
    of a description of the recording by these executions, of one without; score: `structure.score.worth`.
    """

    rule: str
    spans: np.ndarray
    device_ns: int
    coverage_ratio: float
    likeness_ratio: float = 0.0
    cost_ratio: float = 1.0
    score: float = 0.0
    names: list[tuple[str, int]] = field(default_factory=list)  # text and how often, the heaviest first
    turn: np.ndarray | None = None
    called: list[str] = field(default_factory=list)  # name of each turn
    recurs: bool = True  # whether each text of them, numbers aside, occurs several times
    is_again: bool = True  # whether a text of those that hold work does
    is_outscored: bool = False  # whether the launches say better what an execution is
    # executions beside the turns: one span each
    alone: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    # of launches that repeat: when each turn starts, and of which processes
    starts_ns: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    processes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def option(self) -> str:
        """How the user selects this candidate."""
        if (self.turn is not None or self.rule == SEQUENCE) and self.rule in _WORD_OF_RULE:
            return f"--executions {_WORD_OF_RULE[self.rule]}"
        if not self.names:
            return ""
        return " ".join(("--model-range", shlex.quote("|".join(pattern_of(name) for name, _ in self.names[:3]))))


def pattern_of(folded: str) -> str:
    """A regular expression for the texts that fold to this one: a star stands for a number, one may follow the end."""
    return "^" + _NUMBER.sub(r"\\d+", re.escape(folded).replace(r"\ ", " ").replace(r"\-", "-"))


@dataclass
class Executions:
    """``model``: which spans are executions; ``turn``: number of the execution a span belongs to as one of several
    siblings, −1 none; the preferred candidate (None: no evidence) and all others, the best first; the process of each
    execution."""

    model: np.ndarray
    turn: np.ndarray
    chosen: Candidate | None
    others: list[Candidate]
    processes: np.ndarray

    @property
    def is_training(self) -> bool:
        """Whether the executions are training steps that begin with a forward pass."""
        return self.chosen is not None and self.chosen.rule == TRAINING


def find_executions(ranges: Ranges, library: np.ndarray, wanted: str = "") -> Executions:
    """The model executions that ranges mark, of each program that was recorded. Without evidence none is preferred.
    ``wanted``: a word of `EXECUTION_RULES`. Raises `UsageError` where there is none of that kind."""
    program, constants = _programs(ranges), ranges.constants
    several = range(int(program.max(initial=0)) + 1)
    finders = [_Finder(ranges, library, program if len(several) > 1 else None, k) for k in several]
    found = [_chosen(finder, wanted, constants) for finder in finders]
    for one in [c for best, more in found for c in (best, *more) if c is not None]:
        one.coverage_ratio = one.device_ns / max(ranges.times.work.total_ns, 1)  # of all that was recorded
    chosen = sorted((c for c, _ in found if c is not None), key=lambda c: (c.rule == SEQUENCE, -c.device_ns))
    model, turn = np.zeros(len(ranges.parent), bool), np.broadcast_to(np.int64(-1), (len(ranges.parent),))
    for candidate in chosen:
        if candidate.turn is None:
            model[candidate.spans] = True
        else:
            turn = turn.copy()
            turn[candidate.spans] = candidate.turn + turn.max() + 1
            model[candidate.alone] = True
    others = sorted((c for _, more in found for c in more), key=lambda c: -c.coverage_ratio)
    of_span = ranges.times.process_index
    processes = [of_span[c.spans[np.unique(c.turn, return_index=True)[1]] if c.turn is not None else c.spans]
                 if len(c.spans) else c.processes for c in chosen]  # fmt: skip
    return Executions(model, turn, _together(chosen), others, np.concatenate([np.zeros(0, np.int64), *processes]))


def _programs(ranges: Ranges) -> np.ndarray:
    """Number of the program of each process: those whose ranges have other texts are other programs."""
    process, text = ranges.times.process_index, ranges.folded_id
    used = distinct(ranges.times.work.process_index)
    number = np.zeros(int(max(process.max(initial=0), used.max(initial=0))) + 1, np.int64)
    known: list[set[int]] = []
    for one in used.tolist() if len(used) > 1 else []:
        texts = set(np.unique(text[process == one]).tolist())
        alike = [k for k, other in enumerate(known) if texts and len(texts & other) >= len(texts ^ other)]
        number[one] = alike[0] if alike else len(known)
        known += [] if alike else [texts]
    return number


def _together(chosen: list[Candidate]) -> Candidate | None:
    """What was taken in each program as one candidate, called by the rule of the first one."""
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    shares = np.array([c.device_ns for c in chosen]) / max(sum(c.device_ns for c in chosen), 1)
    likeness, cost = (float(shares @ [getattr(c, name) for c in chosen]) for name in ("likeness_ratio", "cost_ratio"))
    return replace(
        chosen[0], spans=np.concatenate([c.spans for c in chosen]), device_ns=sum(c.device_ns for c in chosen),
        coverage_ratio=sum(c.coverage_ratio for c in chosen), likeness_ratio=likeness, cost_ratio=cost,
        names=[name for c in chosen for name in c.names], recurs=all(c.recurs for c in chosen),
        turn=next((c.turn for c in chosen if c.turn is not None), None), called=[n for c in chosen for n in c.called],
        processes=np.concatenate([c.processes for c in chosen]),
    )  # fmt: skip


def _chosen(finder: _Finder, wanted: str, constants: Constants) -> tuple[Candidate | None, list[Candidate]]:
    """The best candidate of one program, and the others."""
    ways: list[Callable[[], Candidate | None]] = [
        finder.numbered, finder.markers, finder.training, finder.roots, finder.counted, finder.cycle, finder.outermost
    ]  # fmt: skip
    found = [candidate for way in ways if (candidate := way()) is not None]
    if not any(c.coverage_ratio >= constants.most_ratio for c in found):
        found += [c for c in (finder.periods(),) if c is not None]
    found.sort(key=lambda c: -round(c.score, 2))  # of equals the more explicit
    chosen: Candidate | None
    if wanted:
        chosen = _wanted(found, wanted)
    else:
        explicit = (MARKERS, ROOTS, TRAINING)  # little of the device time: the program still says what a step is
        marked = [c for c in found if c.rule in explicit]
        most = [c for c in found if finder.holds_most(c)]
        chosen = next(iter(most or marked), None)
        chosen = chosen if chosen is None or chosen.turn is not None else finder.whole_of(chosen, found)
        if chosen is not None and finder.may_be_stages(chosen):
            periods = next((c for c in found if c.rule == SEQUENCE), None) or finder.periods()
            is_compiled = finder.is_compiled(chosen)  # a model, or pieces of it
            spare = constants.near_ratio * (1 - 2 * is_compiled) if chosen.turn is None else 0.0
            least = 0.0 if periods is None else (1 - spare) * periods.coverage_ratio
            if periods is not None and least > chosen.coverage_ratio:
                # what stands as often in each turn of the launches and holds less is a stage of what repeats: of a
                # range around it that holds as much as the turns, else of these
                begins = finder.begins(chosen)
                count = len(begins)
                whole = [c for c in found if len(c.spans) == count and c.coverage_ratio >= least]
                turn, turns = np.searchsorted(periods.starts_ns, begins, side="right"), len(periods.starts_ns)
                held = np.bincount(turn, minlength=turns + 1)[1:]
                is_stage = abs(periods.names[0][1] - count) <= max(1, constants.near_ratio * count)
                middle = held[1:-1]  # the recording may begin and end inside a turn
                is_stage |= len(middle) >= constants.fewest_turns and bool((middle == middle[0]).all())
                is_stage &= not is_compiled or held.max(initial=0) > 1
                chosen = [*whole, periods][0] if is_stage else chosen
        if chosen is not None and finder.explains_less(chosen):
            better = finder.of_launches(chosen)
            if better is None and chosen.rule == OUTERMOST:
                chosen.is_outscored = True  # it is looked into
            else:
                chosen = better or next((c for c in found if c.rule == SEQUENCE), None) or finder.periods()
    return chosen, [c for c in found if c is not chosen]


def described(ranges: Ranges, model: np.ndarray, rule: str) -> Candidate | None:
    """The candidate that some other rule chose (the user's options, our own ranges, depth), weighed as the others."""
    return _Finder(ranges, np.zeros(len(model), bool), None, 0).of_ranges(rule, np.flatnonzero(model), 1.0)


def _wanted(found: list[Candidate], word: str) -> Candidate:
    for candidate in found:
        if candidate.rule == EXECUTION_RULES[word]:
            return candidate
    known = ", ".join(_WORD_OF_RULE[c.rule] for c in found if c.rule not in (OUTERMOST, SEQUENCE)) or "nothing"
    said = f"--executions {word}: no {EXECUTION_RULES[word]} in the capture; its ranges say: {known}"
    raise UsageError(said, code="executions-not-found")


class _Finder:
    """The candidates of one program (``program``: its number per process; None: there is one); sums of device time are
    computed once."""

    def __init__(self, ranges: Ranges, library: np.ndarray, program: np.ndarray | None, number: int) -> None:
        self.ranges, self.constants = ranges, ranges.constants
        self.times: Times = ranges.times
        self.work = ranges.times.work
        self.open = ~library & ~ranges.has_role("mark") & ~ranges.beside
        self.is_mine = np.ones(0, bool) if program is None else program == number  # per process
        if program is not None:
            self.open &= self.is_mine[self.times.process_index]
            self.work = self.work.of(self.is_mine[self.work.process_index])
        self.is_plain = ranges.has_role("") & self.open & (ranges.kind != SpanKind.OPERATOR)

    @cached_property
    def inside(self) -> tuple[np.ndarray, np.ndarray]:
        """Device time launched in each span, by its own thread, and how many operations."""
        own = np.flatnonzero(self.work.span >= 0)
        span, parent = self.work.span[own], self.ranges.parent
        sums = rollup.sums_per_node(span, self.work.ns[own], len(parent))
        return rollup.add_up(sums, parent), rollup.add_up(np.bincount(span, minlength=len(parent)), parent)

    def _often(self, mask: np.ndarray) -> np.ndarray:
        """How much of the work in ``mask`` was launched in each span, by its own thread."""
        span, parent = self.work.span[mask & (self.work.span >= 0)], self.ranges.parent
        return rollup.add_up(np.bincount(span, minlength=len(parent)), parent)

    @cached_property
    def _updates(self) -> np.ndarray:
        """Which of the plain ranges update weights and do no layer's work, by their kernels."""
        return self.is_plain & (self._often(self.work.updates) > 0) & ~self._computes

    @cached_property
    def _computes(self) -> np.ndarray:
        return self._often(self.work.computes) > 0

    @cached_property
    def _training(self) -> np.ndarray:
        """Which spans are, or lie in, backward or optimiser work."""
        return self.times.is_training | self.ranges.inside(self.times.is_training)

    @cached_property
    def several_threads(self) -> bool:
        """Whether work was launched by several threads, or outside every range."""
        span = self.work.span
        return bool((span < 0).any()) or len(np.unique(self.times.thread_index[span])) > 1

    def held(self, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Device time and operations of each of the spans (none inside another), what other threads launched meanwhile
        included."""
        if not self.several_threads:
            return self.inside[0][spans], self.inside[1][spans]
        times = self.times
        lies = (times.process_index[spans], times.start_ns[spans], times.end_ns[spans])
        owner, work = self._owner(spans, np.arange(len(spans)), *lies), self.work
        return _sums(owner, work.ns, len(spans))

    def _owner(
        self, spans: np.ndarray, number: np.ndarray, process: np.ndarray, start: np.ndarray, end: np.ndarray
    ) -> np.ndarray:
        """Number of the execution that each piece of work belongs to: that of the span it was launched in, else the one
        (process, start and end of each) that it was launched during; −1 none."""
        work, label = self.work, np.full(len(self.ranges.parent), -1, np.int64)
        label[spans] = number
        owner = np.where(work.span >= 0, layering.inherit(label, self.ranges.parent)[work.span], -1)
        loose = np.flatnonzero(owner < 0)
        owner[loose] = layering.covering(work.process_index[loose], work.at_ns[loose], process, start, end)
        return owner

    def holds_most(self, candidate: Candidate) -> bool:
        """Whether a candidate holds most of the time, or most launches beside long copies."""
        launches = self.inside[1][candidate.spans].sum() / max(len(self.work.ns), 1)
        return max(candidate.coverage_ratio, launches) >= self.constants.most_ratio

    def may_be_stages(self, candidate: Candidate) -> bool:
        """Whether ranges that no text calls a step recur, and leave a part of the work beside them; or whether turns
        are of recorded layers alone, which do not say where a pass begins."""
        spans, count = candidate.spans, len(self.begins(candidate))
        if candidate.rule == SEQUENCE or count < self.constants.fewest_turns:
            return False
        if candidate.turn is not None:
            return candidate.rule == CYCLES and bool(self.ranges.has_role("module")[spans].all())
        is_part = candidate.coverage_ratio < self.constants.holds_ratio or self.is_compiled(candidate)
        return is_part and not self.ranges.has_role("iteration")[spans].any()

    def is_compiled(self, candidate: Candidate) -> bool:
        """Whether a compiler made its ranges: it names pieces of a model as it names a model."""
        return bool(self.ranges.has_dialect("torch_compile")[candidate.spans].all())

    def explains_less(self, candidate: Candidate) -> bool:
        """Whether executions that no text names explain the launches less well than those of the launches do."""
        if candidate.rule not in (TRAINING, OUTERMOST) or self.ranges.has_role("iteration")[candidate.spans].any():
            return False
        called = self._called[candidate.spans]
        if candidate.rule == OUTERMOST and np.bincount(called)[called].min() >= self.constants.fewest_turns:
            return False
        sequences = self.ranges.periods().found.sequences
        sequences = [one for one in sequences if not len(self.is_mine) or self.is_mine[one.process_index]]
        if max((len(one.executions) for one in sequences), default=0) < self.constants.fewest_turns:
            return False  # twice may be chance
        from xsp_post.tree.structure.find import explained

        turn = np.arange(len(called)) if candidate.turn is None else candidate.turn
        *_, lies = self._lies(candidate.spans, turn, candidate.alone)
        process, begin, end = (lies[column].to_numpy() for column in lies)
        if np.bincount(process).max() < 2:  # what would recur is not said
            return False
        beside = called if candidate.turn is None else self._called[candidate.alone] + 1
        series = np.append(np.zeros(len(process) - len(beside), np.int64), beside)
        given, found = explained(sequences, process, begin, end, series)
        return found > given

    def of_launches(self, candidate: Candidate) -> Candidate | None:
        """The executions of the launch sequence as turns of the outermost ranges that lie in one of them each; None
        where other ranges hold a part of their work."""
        ranges, times, work = self.ranges, self.times, self.work
        found = ranges.periods().executions
        process, begin, end = (found[c].to_numpy() for c in ("process_index", "start_ns", "end_ns"))
        number = layering.covering(work.process_index, work.at_ns, process, begin, end) + 1
        own, count = work.span >= 0, len(self.open)
        many, total, squares = (
            rollup.add_up(rollup.sums_per_node(work.span[own], power[own], count), ranges.parent)
            for power in (number**0, number, number**2)
        )
        mean = total // np.maximum(many, 1)
        is_one = (mean > 0) & (total == many * mean) & (squares == many * mean**2)  # all of its launches are of one
        rows = np.flatnonzero(ranges.outermost(is_one & self.open))
        rows = rows[np.argsort(times.start_ns[rows], kind="stable")]
        last = pd.Series(ranges.parent[rows]).groupby([mean[rows], times.thread_index[rows]]).transform("last")
        spans = rows[ranges.parent[rows] == last.to_numpy()]
        if many[spans].sum() < (1 - self.constants.near_ratio) * (number > 0).sum():
            return None
        kept, turn = np.unique(mean[spans], return_inverse=True)
        result = self._of_turns(candidate.rule, spans, turn, candidate.called[0] if candidate.called else "")
        trains = np.isin(np.arange(len(kept)), turn[self._training[spans]])
        names = found["folded_name"].to_numpy()[kept - 1]
        return replace(result, called=np.where(trains & bool(candidate.called), result.called, names).tolist())

    def whole_of(self, candidate: Candidate, found: list[Candidate]) -> Candidate:
        """What a candidate is a part of, else itself: training steps, turns of ranges with several in each, outermost
        ranges that recur and hold more."""
        for outer in found:
            if outer.rule == CYCLES:
                is_part = len(self.begins(outer)) < len(candidate.spans)
            else:
                least = 1 - self.constants.near_ratio if outer.rule == OUTERMOST else 1.0
                is_part = outer.rule == TRAINING or (outer.rule == OUTERMOST and outer.recurs)
                is_part &= candidate.coverage_ratio < least * outer.coverage_ratio
            mask = np.zeros(len(self.open), bool)
            mask[np.append(outer.spans, outer.alone)] = True
            if outer is not candidate and is_part and (mask | self.ranges.inside(mask))[candidate.spans].all():
                candidate = outer
        return candidate

    def begins(self, candidate: Candidate) -> np.ndarray:
        """When each of the executions begins, ns."""
        start, turn = self.times.start_ns[candidate.spans], candidate.turn
        return start if turn is None else pd.Series(start).groupby(turn).min().to_numpy()

    # -- weighing --------------------------------------------------------------------------------------------------

    def of_ranges(self, rule: str, spans: np.ndarray, prior: float) -> Candidate | None:
        """A candidate of these ranges (none inside another), those of one text alike; None for none."""
        if not len(spans):
            return None
        ns, count = self.held(spans)
        return self._weighed(rule, spans, ns, count, self.ranges.folded_id[spans], prior)

    def _weighed(
        self, rule: str, spans: np.ndarray, ns: np.ndarray, count: np.ndarray, series: np.ndarray,
        prior: float | np.ndarray,
    ) -> Candidate:  # fmt: skip
        """A candidate of one execution per span; ns, count, series and prior of each."""
        if ns.any():  # a range without work is none beside others that hold it, nor a kind with next to none
            called = self._called[spans]
            of_kind = rollup.sums_per_node(called, ns, int(called.max()) + 1)[called]
            is_large = of_kind >= (1 - self.constants.holds_ratio) ** 2 * of_kind.max()
            keep = (ns > 0) & (is_large | self.ranges.has_role("iteration")[spans])
            spans, ns, count, series = spans[keep], ns[keep], count[keep], series[keep]
            prior = prior[keep] if isinstance(prior, np.ndarray) else prior
        table = self._series(ns, count, series, prior)
        texts = self.ranges.folded_texts
        codes, named = pd.factorize(self.ranges.folded_id[spans])
        often, order = np.bincount(codes), np.argsort(-np.bincount(codes, weights=ns), kind="stable")
        names = [(str(texts[named[k]]), int(often[k])) for k in order.tolist()]
        return self._summed(rule, spans, table, names)

    def _series(self, ns: np.ndarray, count: np.ndarray, series: np.ndarray, prior: float | np.ndarray) -> pd.DataFrame:
        """Executions that are alike by name: coverage, likeness, number, prior and worth of each series."""
        alike = are_alike(series, count, self.constants)
        frame = pd.DataFrame({"ns": ns, "alike": alike * ns, "size": 1, "prior": prior, "series": series})
        table = frame.groupby("series").agg({"ns": "sum", "alike": "sum", "size": "sum", "prior": "first"})
        table["likeness"] = table["alike"] / np.maximum(table["ns"], 1)
        table["coverage"] = table["ns"] / max(self.work.total_ns, 1)
        table["worth"] = worth(table["coverage"], table["likeness"], table["size"], table["prior"])
        return table

    def _summed(self, rule: str, spans: np.ndarray, table: pd.DataFrame, names: list[tuple[str, int]]) -> Candidate:
        held = int(table["ns"].sum())
        saved = (1 - cost_ratio(table["coverage"], table["likeness"], table["size"])).sum()
        return Candidate(
            rule, spans, held, held / max(self.work.total_ns, 1), float(table["alike"].sum() / max(held, 1)),
            float(np.clip(1 - saved, 0, 1)), float(table["worth"].sum()), names,
        )  # fmt: skip

    def _levels(self, rule: str, mask: np.ndarray, prior: np.ndarray) -> Candidate | None:
        """Of ranges inside one another those that score best together: by name, a name inside another one by itself."""
        ranges, left, series = self.ranges, mask.copy(), np.full(len(mask) + 1, -1, np.int64)
        above = np.append(ranges.forest.nearest(mask), -1)[np.append(ranges.parent, -1)]
        rows, held, counts, parents, number = [], [], [], [], 0
        width = int(ranges.folded_id.max(initial=0)) + 1
        for _ in range(_MOST_DEPTH):
            spans = np.flatnonzero(ranges.outermost(left))
            if not len(spans):
                break
            left[spans] = False
            home = series[above[spans]]
            codes, named = pd.factorize(home * width + ranges.folded_id[spans])
            series[spans] = number + codes
            number += len(named)
            parents.append(named // width)
            ns, count = self.held(spans)
            rows.append(spans)
            held.append(ns)
            counts.append(count)
        if not rows:
            return None
        spans, ns, count, parent = (np.concatenate(parts) for parts in (rows, held, counts, parents))
        own = self._series(np.where(ns > 0, ns, 0), count, series[spans], prior[spans])["worth"].to_numpy()
        inner = np.zeros(len(own))
        least = np.full(len(own), self.constants.holds_ratio)
        # a step is more than its passes
        least[series[above[:-1][self.times.is_training & ~mask & (above[:-1] >= 0)]]] = 1
        is_open, reached = np.zeros(len(own), bool), np.zeros(len(own), bool)
        for k in range(len(own) - 1, -1, -1):  # inner ones come last
            is_open[k] = inner[k] > least[k] * own[k]
            if parent[k] >= 0:
                inner[parent[k]] += inner[k] if is_open[k] else own[k]
        for k, p in enumerate(parent.tolist()):
            reached[k] = p < 0 or (reached[p] and is_open[p])
        taken = (reached & ~is_open & (own > 0))[series[spans]]
        if not taken.any():
            return None
        return self._weighed(rule, spans[taken], ns[taken], count[taken], series[spans[taken]], prior[spans[taken]])

    # -- candidates ------------------------------------------------------------------------------------------------

    def markers(self) -> Candidate | None:
        """Explicit markers, phases outside them, and what counts itself inside them."""
        ranges, prior = self.ranges, np.full(len(self.open), self.constants.prior_of_model)
        marked = ranges.has_role("iteration", "model") & self.open
        prior[ranges.has_role("iteration")] = 1.0
        phase = ranges.has_role("phase") & self.open
        # a phase outside every step is a run of its own (`Forward` in a benchmark loop); inside one it is a part
        loose = phase & ~ranges.inside(marked) & ~ranges.around(marked)
        prior[loose] = self.constants.prior_of_place
        if not marked.any() and not (loose & ~self.times.is_training).any():
            return None  # backward or optimiser ranges alone: parts of steps that nothing marks
        inner = (self._counts | self._roots) & ranges.inside(marked)
        inner |= self._beside(self._counts & inner)
        if marked.any():  # calls of the model beside the steps, as in an evaluation
            inner |= self._roots & ~ranges.inside(loose) & ~ranges.around(marked | loose)
        inner |= self._beside(marked | loose) & ~phase
        found = self._levels(MARKERS, marked | ranges.outermost(loose) | inner, prior)
        # one range called like a phase, among others: a word
        if found is None or marked.any() or len(found.spans) >= 2:
            return found
        return found if found.coverage_ratio >= self.constants.most_ratio else None

    def _beside(self, marked: np.ndarray) -> np.ndarray:
        """Ranges that do a layer's work beside marked ones, in nearly every range that holds these (an encoder, or the
        prefill, before the steps of a decoder); bool."""
        parent, called = self.ranges.parent, self._called
        can = self.is_plain | (self.ranges.has_role("phase") & self.open & ~self._training)
        homes = np.unique(parent[marked])
        rows = np.flatnonzero(can & self._computes & ~marked & ~self.ranges.around(marked))
        rows = rows[np.isin(parent[rows], homes)]
        often = np.bincount(called[rows], minlength=int(called.max(initial=0)) + 1)
        least = max(self.constants.fewest_turns, self.constants.alike_ratio * len(homes))
        result = np.zeros(len(parent), bool)
        result[rows[often[called[rows]] >= least]] = True
        return result

    @cached_property
    def _counts(self) -> np.ndarray:
        """Ranges whose text counts what repeats (`token_3_processing`), several of a name, and with work inside."""
        plain, ranges = (self.times.count >= 0) & self.is_plain, self.ranges
        if not plain.any():
            return plain
        called = self._called
        often = np.bincount(called[plain], minlength=int(called.max()) + 1) >= 2
        epochs = found_in(ranges.folded_texts, "(?i)epoch")[ranges.folded_id] & self.open
        if epochs.any():  # what has a number of its own in an epoch is a step, whatever it is called
            texts = pd.Series(ranges.name_id).groupby(called).transform("nunique").to_numpy()
            plain |= ranges.outermost(self.is_plain & ranges.inside(epochs) & (texts > 1))
            often[called[plain]] = True
        return plain & often[called] & (self.inside[0] > 0)

    @cached_property
    def _called(self) -> np.ndarray:
        """Number of the text of each range, all numbers in it aside."""
        return without_numbers(self.ranges.folded_texts)[self.ranges.folded_id]

    def counted(self) -> Candidate | None:
        """Ranges that count themselves."""
        return self._levels(COUNTED, self._counts, np.full(len(self.open), self.constants.prior_of_model))

    def numbered(self) -> Candidate | None:
        """Outermost ranges of several texts that count alike: those of one number are one execution."""
        ranges, times = self.ranges, self.times
        marked = ranges.has_role("iteration") & self.open & (times.count >= 0) & (self.inside[0] > 0)
        rows = np.flatnonzero(ranges.outermost(self._counts | marked))
        if not len(rows):
            return None
        rows = rows[np.lexsort((times.start_ns[rows], times.process_index[rows]))]
        frame = pd.DataFrame({"process": times.process_index[rows], "called": self._called[rows],
                              "number": times.count[rows]})  # fmt: skip
        often = frame.groupby("called")["number"].transform("size")
        frame = frame[often >= self.constants.holds_ratio * often.max()]
        turn = frame.groupby(["process", "number"]).ngroup().to_numpy()
        texts, step = frame["called"].nunique(), frame.groupby(["process", "called"])["number"].diff().dropna()
        is_once = not frame.duplicated().any() and len(frame) >= self.constants.holds_ratio * texts * (turn.max() + 1)
        if texts < 2 or not is_once or (step == 1).mean() < self.constants.holds_ratio:
            return None
        spans = rows[frame.index]
        return self._of_turns(COUNTED, spans, turn, str(ranges.folded_texts[ranges.folded_id[spans[0]]]))

    @cached_property
    def _roots(self) -> np.ndarray:
        """Calls of the outermost module that holds modules and most of the device time, and of others that hold a good
        part and are called less often (an encoder beside the steps of a decoder)."""
        ranges = self.ranges
        module = ((ranges.kind == SpanKind.MODULE) | ranges.has_dialect("torch_compile")) & ranges.has_role("module")
        outer = ranges.outermost(module & self.open)
        is_root = np.zeros(int(ranges.folded_id.max(initial=0)) + 1, bool)
        is_root[ranges.folded_id[outer & ranges.around(module)]] = True
        roots = outer & is_root[ranges.folded_id] & (self.inside[0] > 0)
        if not roots.any():
            return roots
        held = np.bincount(ranges.folded_id[roots], weights=self.inside[0][roots])
        often = np.bincount(ranges.folded_id[roots])
        most = int(np.argmax(held))
        beside = (held >= self.constants.large_ratio * held.sum()) & (often <= self.constants.most_ratio * often[most])
        beside[most] = True
        return roots & np.isin(ranges.folded_id, np.flatnonzero(beside))

    def roots(self) -> Candidate | None:
        """Calls of the whole model."""
        return self.of_ranges(ROOTS, np.flatnonzero(self._roots), self.constants.prior_of_model)

    def outermost(self) -> Candidate | None:
        """Outermost plain ranges that hold ranges or many launches; not what is captured into a graph."""
        ranges = self.ranges
        captures = found_in(ranges.folded_texts, "(?i)captur")[ranges.folded_id]
        part = found_in(ranges.folded_texts, _PART_OF_LAYER)[ranges.folded_id]
        outer = self.is_plain & (ranges.depth == 0) & ~captures & ~part
        inner = self.is_plain & np.isin(ranges.parent, np.flatnonzero(outer)) & ~captures & ~part
        if not self._recur(outer) and self._recur(inner):  # a range around everything says nothing
            outer = inner
        called = self._called
        held = np.bincount(called[outer], weights=self.inside[0][outer], minlength=int(called.max(initial=0)) + 1)
        most = held >= self.constants.holds_ratio * max(self.work.total_ns, 1)
        most &= np.bincount(called[outer], minlength=len(held)) >= self.constants.fewest_turns
        large = ranges.around(self.open) | (self.inside[1] >= self.constants.fewest_launches) | most[called]
        spans = np.flatnonzero(outer & large)
        found = self.of_ranges(OUTERMOST, spans, self.constants.prior_of_place)
        if found is None:
            return None
        often = np.bincount(called[found.spans])[called[found.spans]]
        is_small = np.median(self.held(found.spans)[1]) < self.constants.fewest_launches
        is_unlike = found.likeness_ratio == 0 or (is_small and (often > 1).mean() < self.constants.alike_ratio)
        if is_unlike and len(often) >= self.constants.fewest_turns and not self._share(found.spans):
            return None  # each launches its own: they explain nothing
        # one that does not recur is looked into; recorded ranges are not replaced
        found.recurs = bool(often.min() >= self.constants.fewest_turns and ranges.around(self.open)[found.spans].any())
        found.is_again = bool((np.bincount(called[found.spans[self.held(found.spans)[0] > 0]]) > 1).any())
        return found

    def _recur(self, mask: np.ndarray) -> bool:
        """Whether ranges of one text, often enough, hold nearly all of the work."""
        called = self._called[mask]
        often, held = np.bincount(called), np.bincount(called, weights=self.inside[0][mask])
        large = held >= self.constants.holds_ratio * max(self.work.total_ns, 1)
        return bool((often[large] >= self.constants.fewest_turns).any())

    def _share(self, spans: np.ndarray) -> bool:
        """Whether most of what ranges launch is of kernels that several of them launch."""
        number = np.full(len(self.open), -1, np.int64)
        number[spans] = np.arange(len(spans))
        own = np.flatnonzero(self.work.span >= 0)
        home = layering.inherit(number, self.ranges.parent)[self.work.span[own]]
        name = pd.Series(self.work.name_id[own][home >= 0])
        several = pd.Series(home[home >= 0]).groupby(name).transform("nunique") > 1
        return bool(several.mean() >= self.constants.alike_ratio)

    def training(self) -> Candidate | None:
        """Siblings up to the end of each training step: up to the optimiser's, else the backward work's."""
        ranges, times = self.ranges, self.times
        zero = found_in(ranges.folded_texts, "(?i)zero")[ranges.folded_id]
        # an engine's own step is one where it does something, but for a layer's work
        steps = found_in(ranges.folded_texts, _STEPS)[ranges.folded_id] & (self.inside[1] > 0) & ~self._computes
        steps |= self._updates & times.is_training.any()
        trains = (times.is_training | (steps & ~ranges.has_role("iteration"))) & self.open & ~zero
        trains &= ~ranges.inside(trains)
        if not trains.any():
            return None
        marked = (ranges.has_role("iteration", "model", "phase") | self._roots) & self.open & ~self._training
        siblings = ranges.outermost(self.open & ~ranges.around(trains | marked))
        turns, calls, alone = np.full(len(trains), -1, np.int64), "", []
        count = 0
        for process in distinct(times.process_index[trains]).tolist():
            rows = np.flatnonzero(siblings & (times.process_index == process))
            before = rows[~self._training[rows]]
            if not len(before):
                return None
            held = np.bincount(times.thread_index[before], weights=self.inside[0][before] + 1.0)
            rows = rows[(times.thread_index[rows] == int(np.argmax(held))) | trains[rows]]
            rows = rows[np.argsort(times.start_ns[rows], kind="stable")]
            found = self._steps_of(rows, trains, marked)
            if found is None:
                return None
            turn, call, beside = found
            turns[rows[turn >= 0]] = count + turn[turn >= 0]
            count += int(turn.max()) + 1
            calls = calls or (str(ranges.folded_texts[call]) if marked[rows].any() else "")
            alone += beside.tolist()
        turns, beside = self._within_ranges(turns, siblings, trains)
        spans = np.flatnonzero(turns >= 0)
        if not len(spans):
            return None  # what was recorded of the only step is no step
        name = f"{kinds.TRAINING} of {calls}" if calls else kinds.TRAINING
        turn = np.unique(turns[spans], return_inverse=True)[1]
        result = self._of_turns(TRAINING, spans, turn, name, np.union1d(np.array(alone, np.int64), beside))
        result.score *= self.constants.prior_of_place if self._says_steps(trains) else 1.0
        return result

    def _within_ranges(
        self, turn: np.ndarray, siblings: np.ndarray, trains: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Number of the step of each range (``turn``, of ``siblings``; −1 none) where none crosses the end of a range,
        and ranges beside the steps that do a layer's work. A range that holds siblings of one step alone, and not all
        of them, is of it; around several it bounds these. What no end stands behind (of ``trains``) is a step that was
        cut off where it does what the others do."""
        parent, folded, left = self.ranges.parent, self.ranges.folded_id, siblings.copy()
        turn, whole = turn.copy(), turn[trains & (turn >= 0)]
        for _ in range(_MOST_DEPTH):
            rows = np.flatnonzero(left)
            lies = pd.DataFrame({"home": parent[rows], "turn": turn[rows], "thread": self.times.thread_index[rows]})
            many = lies.groupby(["turn", "thread"])["home"].transform("nunique") > 1
            is_one = lies.groupby("home")["turn"].transform("nunique") == 1
            inside = rows[many & is_one & (lies["turn"] >= 0) & (lies["home"] >= 0)]
            inside = inside[~self.ranges.around(np.isin(np.arange(len(parent)), parent[rows]))[parent[inside]]]
            if not len(inside):
                break
            home, number = parent[inside], turn[inside]
            left[inside], turn[inside] = False, -1
            left[home], turn[home] = True, number
        rows = np.flatnonzero(turn >= 0)
        rows = rows[np.argsort(self.times.start_ns[rows], kind="stable")]
        last = pd.Series(parent[rows]).groupby([turn[rows], self.times.thread_index[rows]]).transform("last").to_numpy()
        turn[rows[parent[rows] != last]] = -1
        known = self._computes & np.isin(folded, folded[np.isin(turn, whole)])
        turn[~np.isin(turn, np.append(whole, turn[known]))] = -1
        beside = self._computes & ~self._training & (self.ranges.kind != SpanKind.OPERATOR) & (turn < 0)
        return turn, np.flatnonzero(beside & siblings & np.isin(folded, folded[rows[beside[rows]]]))

    def _says_steps(self, trains: np.ndarray) -> bool:
        """Whether steps are marked around the training work, several of them: a turn crosses none of their ends."""
        ranges, times, rows = self.ranges, self.times, np.flatnonzero(trains)
        epochs = found_in(ranges.folded_texts, "(?i)epoch")[ranges.folded_id]
        steps = (ranges.has_role("iteration") | self._counts) & self.open & ~trains & ~epochs
        steps = np.flatnonzero(ranges.outermost(steps))
        lies = (times.process_index, times.start_ns)
        around = layering.covering(*(v[rows] for v in lies), *(v[steps] for v in (*lies, times.end_ns)))
        held, within = self.inside[0][rows], around >= 0
        if len(np.unique(around[within])) < 2:
            return False
        # the first or the last step may be cut off, and lack its mark: that is work of one step at most
        start, end = (f(v[steps]) for f, v in ((np.min, times.start_ns), (np.max, times.end_ns)))
        beyond = held[(times.start_ns[rows] < start) | (times.start_ns[rows] > end)].sum()
        beyond *= beyond <= np.bincount(around[within], weights=held[within]).max()
        return bool(held[within].sum() >= self.constants.holds_ratio * (held.sum() - beyond))

    def _steps_of(
        self, rows: np.ndarray, trains: np.ndarray, marked: np.ndarray
    ) -> tuple[np.ndarray, int, np.ndarray] | None:
        """Number of the step of each of a process's ranges (in order of their start), the name that most of the work of
        forward passes has, and calls that are in no step; None for no steps."""
        ranges, folded = self.ranges, self.ranges.folded_id[rows]
        trains, is_call = trains[rows], marked[rows]
        optimises = trains & (found_in(ranges.folded_texts, _UPDATES)[folded] | self._updates[rows])
        updates = (self._often(self.work.updates)[rows] > 0) & ~self._computes[rows]  # operators, too
        ends = optimises if optimises.any() else trains | updates
        held = self.inside[0][rows]
        if not optimises.any() and held[trains].sum() < self.constants.large_ratio * held.sum():
            return None  # a backward pass is a good part of a step
        # the last update before work of a layer ends a step
        works = self._computes[rows] & ~ends if (self._computes[rows] & ~ends).any() else ~ends
        last = np.flatnonzero(ends)
        last = last[np.diff(np.cumsum(works)[last], append=len(rows)) > 0]
        # with what another thread does meanwhile
        last = np.searchsorted(self.times.start_ns[rows], self.times.end_ns[rows[last]]) - 1
        turn = np.searchsorted(last, np.arange(len(rows)))
        weight = np.where(self._training[rows], 0.0, self.inside[0][rows] + 1.0)
        call = int(np.argmax(np.bincount(folded, weights=weight * (is_call | ~is_call.any()))))
        is_pass = True
        if not is_call.any():
            is_call = (folded == call) & (weight > 0)
            if not optimises.any() and ranges.has_role("operator")[rows[is_call]].any():
                return None  # operators forward and backward: nothing says where a step ends
            is_pass = not ranges.has_role("operator")[rows[is_call]].any()
        # as many calls in each step: those before are evaluation; the last step may have been cut off
        calls = np.bincount(turn[is_call], minlength=int(turn[-1]) + 1)
        has_end = np.bincount(turn[ends], minlength=len(calls)) > 0
        usual = int(calls[has_end & (calls > 0)].min(initial=len(rows)))
        more = (has_end & (calls > usual))[turn] & is_call
        is_often = 2 * len(np.unique(turn[more])) >= max(int(has_end.sum()), 4)
        if is_often and set(folded[more]) > set(folded[is_call & ~more]):
            usual = int(calls.max())  # steps of two kinds, as of a GAN's two models: nobody evaluates so often
        beyond = np.where(has_end, np.maximum(calls - usual, 0), np.where(calls > usual, calls, 0))
        nth = np.cumsum(is_call) - (np.cumsum(calls) - calls)[turn]
        # none is evaluation that is followed by backward work, or stands behind such work of its step
        work = np.flatnonzero(trains & ~optimises)[::-1]
        began, later = np.full(len(calls), len(rows)), np.full(len(rows), len(rows))
        began[turn[work]] = work
        later[:-1] = np.minimum.accumulate(np.where(is_call, np.arange(len(rows)), len(rows))[::-1])[::-1][1:]
        is_beside = is_call & (nth <= beyond[turn]) & ((later < began[turn]) | ~has_end[turn])
        # a step begins after those, or with what comes again before its call
        last = np.zeros(len(calls), np.int64)
        np.maximum.at(last, turn[is_beside], np.flatnonzero(is_beside) + 1)
        again = np.isin(folded, folded[turn > 0]) | (np.cumsum(is_call) > 0)
        # what stands before that, and behind the last step, ends a step (weights are averaged)
        begun = pd.Series(folded == folded[np.argmax(again)]).groupby(turn).cumsum().to_numpy() > 0
        head, tail = ~begun & (turn > 0) & has_end[turn], ~has_end[turn] & ~begun
        often = pd.Series(turn[head]).groupby(folded[head]).nunique()
        each = often.index[often == often.max()]
        is_all = not ((begun & ~has_end[turn]) | (works & (head | tail))).any()
        if tail.any() and is_all and {*each} <= {*folded[tail]} <= {*often.index}:
            turn, again = turn - (head | tail), again | tail
        # one that was cut off computes, and is no evaluation
        is_cut = (np.bincount(turn[works], minlength=len(calls)) > 0) & (calls > 0) & (calls <= usual)
        is_cut &= ~np.isin(calls, beyond[has_end & (beyond > 0)])
        keep = (np.arange(len(rows)) >= last[turn]) & again & (has_end | is_cut)[turn]
        return np.where(keep, turn, -1), call, rows[is_beside & is_pass]

    def cycle(self) -> Candidate | None:
        """Sibling ranges that follow one another in the same order, again and again."""
        ranges, times = self.ranges, self.times
        taken = self.open & (ranges.kind != SpanKind.OPERATOR) & ~ranges.has_role("operator")
        if np.bincount(ranges.folded_id[taken]).max(initial=0) < self.constants.fewest_turns:
            return None  # no text of them occurs often enough
        taken &= ~found_in(ranges.folded_texts, _PART_OF_LAYER)[ranges.folded_id]
        taken &= ~ranges.inside(self._roots)  # what repeats inside a call of the model are its layers
        found = find_cycle(
            ranges.parent, ranges.folded_id, times.thread_index, times.start_ns, times.end_ns, *self.inside, taken,
            self.work.total_ns, self.constants,
        )  # fmt: skip
        if found is None:
            return None
        texts = ranges.folded_texts
        name = f"{texts[found.first_name]} … {texts[found.last_name]}"
        alone = found.alone[~self._training[found.alone]]
        return self._of_turns(CYCLES, found.spans, found.turn, name, alone)

    def periods(self) -> Candidate | None:
        """What the launch sequence repeats."""
        found = self.ranges.periods().executions
        if len(self.is_mine):
            found = found[self.is_mine[found["process_index"]]]
        if not len(found):
            return None
        ns, count, series, start, process = (found[c].to_numpy() for c in PERIODS)
        table = self._series(ns, count, series, self.constants.prior_of_place)
        result = self._summed(SEQUENCE, np.zeros(0, np.int64), table, [(found["folded_name"].iloc[0], len(ns))])
        return replace(result, starts_ns=np.sort(start), processes=process)

    def _lies(
        self, spans: np.ndarray, turn: np.ndarray, alone: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
        """Numbers of turns and of ranges beside them, the place of each range among these, and where each lies."""
        spans, number = np.append(spans, alone), np.append(turn, int(turn.max()) + 1 + np.arange(len(alone)))
        times = pd.DataFrame({"process": self.times.process_index[spans], "start": self.times.start_ns[spans],
                              "end": self.times.end_ns[spans]})  # fmt: skip
        used, place = np.unique(number, return_inverse=True)
        return used, place, times.groupby(place).agg({"process": "first", "start": "min", "end": "max"})

    def _of_turns(
        self, rule: str, spans: np.ndarray, turn: np.ndarray, name: str, alone: np.ndarray | None = None
    ) -> Candidate:
        """A candidate of executions that are several siblings each."""
        alone = np.zeros(0, np.int64) if alone is None else alone
        used, number, lies = self._lies(spans, turn, alone)
        owner = self._owner(np.append(spans, alone), number, *(lies[c].to_numpy() for c in lies))
        ns, count = _sums(owner, self.work.ns, len(lies))
        series = used > int(turn.max())
        # training work says as much as a text does where a step ends, and so do stages that count with a marker
        is_said = rule == TRAINING or (rule == COUNTED and self.ranges.has_role("iteration")[spans].any())
        prior = 1.0 if is_said else self.constants.prior_of_model
        priors = np.where(series, self.constants.prior_of_place, prior)
        table = self._series(ns, count, series.astype(np.int64), priors)
        found = self._summed(rule, spans[: len(turn)], table, [(name, int(turn.max()) + 1)])
        found.turn, found.alone, found.called = turn, alone, [name] * (int(turn.max()) + 1)
        return found


def _sums(owner: np.ndarray, ns: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sum of the times of each owner (−1 none), and how many there are."""
    has = owner >= 0
    return rollup.sums_per_node(owner[has], ns[has], count), np.bincount(owner[has], minlength=count)
