"""Trace → Tree, step "what is one model execution": candidates by evidence, what each covers, and which is preferred.

Candidates: step and model markers, root modules, counted ranges that repeat, cycles of sibling ranges, and the
outermost ranges. (What the launch sequence alone says is added later: `passes`.) Of markers inside one another the
innermost counts that still holds `HOLDS` of the device time of the one around it. A marker that holds backward or
optimiser work is one execution however many root modules it calls; otherwise each call of one root module is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from xsp_post.arrays import rollup
from xsp_post.model.trace import SpanKind
from xsp_post.names.patterns import found_in
from xsp_post.tree import kinds, layering
from xsp_post.tree.candidates import (
    COUNTED,
    CYCLES,
    LEAST_COVERAGE,
    MARKERS,
    ROOTS,
    TRAINING,
    Candidate,
    wanted_candidate,
)  # fmt: skip
from xsp_post.tree.cycles import FEWEST_TURNS, Cycle, find_cycle
from xsp_post.tree.execution_work import Times
from xsp_post.tree.ranges import Ranges
from xsp_post.tree.training_turns import training_turns, turns_until

# An inner marker stands for the one around it from this share of its device time.
HOLDS = 0.9
_FEWEST_COUNTED = 2

# Parts of a layer, not distinguished by a number: their cycle is that of the layers, not of the executions.
_PART_OF_LAYER = (
    r"(?i)^\D*(?:attention|attn|softmax|qkv|(?:^|[^a-z])(?:mlp|ffn?|moe|(?:layer|batch|rms)?_?norm|linear|conv|matmul|gemm"
    r"|embed(?:ding)?s?|dropout|experts?|residual|layer|block)(?:[^a-z]|$))\D*$"
)

_FORWARD = re.compile(r"(?i)(?:^|[^a-z])(?:forward|fwd)(?:[^a-z]|$)|^(?:model|net|network)(?:[^a-z]|$)")


@dataclass
class Executions:
    """``model``: which spans are executions; ``turn``: number of the execution a span belongs to as one of several
    siblings, −1 none; the preferred candidate (None: no evidence) and all others, the best first."""

    model: np.ndarray
    turn: np.ndarray
    chosen: Candidate | None
    others: list[Candidate]

    @property
    def is_training(self) -> bool:
        """Whether the executions are training steps that begin with a forward pass."""
        return self.chosen is not None and self.chosen.rule == TRAINING


def find_executions(ranges: Ranges, library: np.ndarray, wanted: str = "") -> Executions:
    """The model executions that ranges mark. Without evidence none is preferred. ``wanted``: a word of
    `EXECUTION_RULES`. Raises `UsageError` where there is none of that kind."""
    finder = _Finder(ranges, library)
    markers, roots, counted = finder.markers(), finder.roots(), finder.counted()
    steps = finder.training_steps(roots)
    cycle = finder.cycle() if steps is None or wanted else None
    chosen = _prefer(finder, markers, steps or roots, counted, cycle)
    is_open = steps is None or roots is None
    passes = finder.forward_passes(markers) if is_open and (chosen is markers or wanted) else None
    if passes is not None:
        steps = finder.training_steps(passes) or steps
        chosen = steps or chosen
    found = [c for c in (markers, steps, roots, counted, cycle) if c is not None]
    if wanted:
        chosen = wanted_candidate(found, wanted)
    model, turn = np.zeros(len(ranges.parent), bool), np.broadcast_to(np.int64(-1), (len(ranges.parent),))
    if chosen is not None and chosen.turn is not None:
        turn = turn.copy()
        turn[chosen.spans] = chosen.turn
        model[chosen.alone] = True
    elif chosen is not None:
        model[chosen.spans] = True
    others = sorted((c for c in found if c is not chosen), key=lambda c: -c.coverage_ratio)
    return Executions(model, turn, chosen, others)


def described(ranges: Ranges, model: np.ndarray, rule: str) -> Candidate | None:
    """The candidate that some other rule chose (the user's options, our own ranges, depth), weighed as the others."""
    return _Finder(ranges, np.zeros(len(model), bool)).candidate(rule, model)


def _prefer(
    finder: _Finder,
    markers: Candidate | None,
    roots: Candidate | None,
    counted: Candidate | None,
    cycle: Candidate | None,
) -> Candidate | None:
    if markers is not None and cycle is not None and finder.belongs_together(markers, cycle):
        return cycle
    if roots is not None and cycle is not None and len(np.intersect1d(roots.spans, cycle.spans)):
        return cycle
    known = [c for c in (markers, roots, counted, cycle) if c is not None]
    enough = [c for c in known if c.coverage_ratio >= LEAST_COVERAGE]
    if enough:
        return enough[0]
    # little of the device time lies in any of them: explicit markers still say what the program calls a step
    return markers or (max(known, key=lambda c: c.coverage_ratio) if roots is not None else None)


class _Finder:
    """The candidates of one capture; sums of device time are computed once."""

    def __init__(self, ranges: Ranges, library: np.ndarray) -> None:
        self.ranges, self.library = ranges, library
        self.times: Times = ranges.times
        self.work = ranges.times.work
        self.is_operator = (ranges.kind == SpanKind.OPERATOR) | ranges.has_role("operator")

    @cached_property
    def inside_ns(self) -> np.ndarray:
        """Device time launched in each span, by its own thread."""
        work, ranges = self.work, self.ranges
        own = work.span >= 0
        sums = rollup.sums_per_node(work.span[own], work.ns[own], len(ranges.parent))
        return rollup.add_up(sums, ranges.parent)

    @cached_property
    def training(self) -> np.ndarray:
        """Which spans are, or lie in, backward or optimiser work."""
        return self.times.is_training | self.ranges.inside(self.times.is_training)

    @cached_property
    def several_threads(self) -> bool:
        """Whether work was launched by several threads, or outside every range."""
        span = self.work.span
        return bool((span < 0).any()) or len(np.unique(self.times.thread_index[span])) > 1

    def owner(self, spans: np.ndarray) -> np.ndarray:
        """For each row of the work the position in ``spans`` (not nested) of the execution it belongs to, −1 none: by
        nesting, else by the time of its launch."""
        ranges, times, work = self.ranges, self.times, self.work
        label = np.full(len(ranges.parent), -1, np.int64)
        label[spans] = np.arange(len(spans))
        label = layering.inherit(label, ranges.parent)
        found = np.where(work.span >= 0, label[work.span], -1) if len(label) else np.full(len(work.span), -1, np.int64)
        if self.several_threads and len(spans):
            loose = np.flatnonzero(found < 0)
            found[loose] = layering.covering(
                work.process_index[loose], work.at_ns[loose],
                times.process_index[spans], times.start_ns[spans], times.end_ns[spans],
            )  # fmt: skip
        return found

    def device_ns(self, spans: np.ndarray) -> np.ndarray:
        """Device time of each of the spans as executions, work of other threads meanwhile included."""
        if not self.several_threads:
            return self.inside_ns[spans]
        owner = self.owner(spans)
        has = owner >= 0
        return rollup.sums_per_node(owner[has], self.work.ns[has], len(spans))

    def training_ns(self, spans: np.ndarray) -> np.ndarray:
        """The part of it that is backward or optimiser work."""
        trains = np.append(self.training, False)[self.work.span]
        if not trains.any():
            return np.zeros(len(spans), np.int64)
        owner = self.owner(spans)
        has = (owner >= 0) & trains
        return rollup.sums_per_node(owner[has], self.work.ns[has], len(spans))

    def candidate(self, rule: str, mask: np.ndarray) -> Candidate | None:
        """A candidate of these spans; None for none."""
        spans = np.flatnonzero(mask)
        if not len(spans):
            return None
        device_ns = self.device_ns(spans)
        return self._weighed(rule, spans, device_ns, self._names(spans, device_ns))

    def _weighed(self, rule: str, spans: np.ndarray, device_ns: np.ndarray, names: list[tuple[str, int]]) -> Candidate:
        total = int(device_ns.sum())
        return Candidate(rule, spans, total, total / max(self.work.total_ns, 1), names)

    def _names(self, spans: np.ndarray, weight: np.ndarray) -> list[tuple[str, int]]:
        """Folded texts and how often each occurs, the heaviest first."""
        codes, unique = _numbered(self.ranges.folded_id[spans])
        order = np.argsort(-np.bincount(codes, weights=weight.astype(float)), kind="stable")
        counts = np.bincount(codes)
        texts = self.ranges.folded_texts
        return [(str(texts[unique[k]]), int(counts[k])) for k in order.tolist()]

    # -- markers ---------------------------------------------------------------------------------------------------

    def markers(self) -> Candidate | None:
        """Explicit markers: the innermost ones that hold the work of those around them, and phases outside them."""
        ranges = self.ranges
        marked = ranges.has_role("iteration", "model") & ~self.library
        phase = ranges.has_role("phase") & ~self.library
        # a phase outside every step is a run of its own (`Forward` in a benchmark loop); inside one it is a part
        loose = phase & ~ranges.inside(marked) & ~ranges.around(marked)
        if not (loose & ~self.times.is_training).any() and not marked.any():
            loose[:] = False  # backward or optimiser ranges alone: parts of steps that nothing marks
        current = ranges.outermost(marked)
        if current.any():
            current = self._innermost(current, marked | self.counts())
        return self.candidate(MARKERS, current | ranges.outermost(loose))

    def counts(self) -> np.ndarray:
        """Ranges whose text counts what repeats (`token_3_processing`), several of a name, and with work inside."""
        ranges = self.ranges
        plain = self.times.is_counted & ranges.has_role("") & ~self.library & ~self.is_operator
        if not plain.any():
            return plain
        often = np.bincount(ranges.folded_id[plain], minlength=int(ranges.folded_id.max()) + 1) >= _FEWEST_COUNTED
        return plain & often[ranges.folded_id] & (self.inside_ns > 0)

    def _innermost(self, current: np.ndarray, marked: np.ndarray) -> np.ndarray:
        """Go inwards by name while the markers inside hold `HOLDS` of the device time, and no training work less."""
        ranges = self.ranges
        for _ in range(8):
            inner = ranges.outermost(marked & ranges.inside(current))
            if not inner.any():
                break
            outer_spans, inner_spans = np.flatnonzero(current), np.flatnonzero(inner)
            label = np.full(len(current), -1, np.int64)
            label[outer_spans] = np.arange(len(outer_spans))
            home = layering.inherit(label, ranges.parent)[inner_spans]
            name, names = _numbered(ranges.folded_id[outer_spans])
            stays = np.zeros(len(names), bool)
            # an optimiser's short work outside makes the outer marker the training step
            for amounts, share in ((self.device_ns, HOLDS), (self.training_ns, 1.0)):
                around = rollup.sums_per_node(name, amounts(outer_spans), len(names))
                held = rollup.sums_per_node(name[home], amounts(inner_spans), len(names))
                stays |= held < share * around
            stays |= rollup.sums_per_node(name[home], np.ones(len(home), np.int64), len(names)) == 0
            stays |= rollup.sums_per_node(name, self.device_ns(outer_spans), len(names)) == 0
            if stays.all():
                break
            opened = ~stays[name]
            current[outer_spans[opened]] = False
            current[inner_spans[opened[home]]] = True
        return current

    # -- where there is no marker ----------------------------------------------------------------------------------

    def _root_modules(self) -> np.ndarray:
        """Outermost framework modules that hold other modules, by name."""
        ranges = self.ranges
        module = ((ranges.kind == SpanKind.MODULE) | ranges.has_dialect("torch_compile")) & ranges.has_role("module")
        outer = ranges.outermost(module & ~self.library)
        holds = outer & ranges.around(module)
        is_root = np.zeros(int(ranges.folded_id.max(initial=0)) + 1, bool)
        is_root[ranges.folded_id[holds]] = True
        return outer & is_root[ranges.folded_id]

    def roots(self) -> Candidate | None:
        """Calls of the whole model that holds most of the device time."""
        roots = self._root_modules() & (self.inside_ns > 0)
        spans = np.flatnonzero(roots)
        if not len(spans):
            return None
        codes, unique = _numbered(self.ranges.folded_id[spans])
        best = int(np.argmax(rollup.sums_per_node(codes, self.inside_ns[spans], len(unique))))
        chosen = np.zeros(len(roots), bool)
        chosen[spans[codes == best]] = True
        return self.candidate(ROOTS, chosen)

    def training_steps(self, roots: Candidate | None) -> Candidate | None:
        """Calls of the whole model that training work follows outside of them: a step is all up to the next. Without
        any such call, all up to the optimiser's step."""
        if not self.training.any():
            return None
        ranges, times = self.ranges, self.times
        is_zero = found_in(ranges.folded_texts, "(?i)zero")[ranges.folded_id]
        is_optimizer = found_in(ranges.folded_texts, "(?i)^opt")[ranges.folded_id] & times.is_training & ~is_zero
        if roots is None:
            return self._until_the_optimizer(is_optimizer & ~ranges.inside(is_optimizer))
        is_root = np.zeros(len(ranges.parent), bool)
        is_root[roots.spans] = True
        trains = times.is_training & ~ranges.inside(is_root)
        found = training_turns(
            roots.spans, ranges.parent, times.thread_index, times.process_index, times.start_ns,
            trains & ~is_zero, is_optimizer, ~self.library & ~ranges.has_role("mark") & ~ranges.around(is_root),
        )  # fmt: skip
        if found is None:
            return None
        turn, alone = found
        spans = np.flatnonzero(turn >= 0)
        steps = self._steps(turn, spans, f"{kinds.TRAINING} of {roots.names[0][0]}")
        steps.alone = alone
        return steps

    def _until_the_optimizer(self, is_optimizer: np.ndarray) -> Candidate | None:
        ranges, times = self.ranges, self.times
        if not is_optimizer.any():
            return None
        turn = turns_until(
            np.flatnonzero(is_optimizer), ranges.parent, times.thread_index, times.process_index, times.start_ns,
            ranges.folded_id, times.is_training, ~self.library & ~ranges.has_role("mark"),
        )  # fmt: skip
        if turn is None:
            return None
        spans = np.flatnonzero(turn >= 0)
        return self._steps(turn, spans, kinds.TRAINING)

    def _steps(self, turn: np.ndarray, spans: np.ndarray, name: str) -> Candidate:
        steps = self._weighed(TRAINING, spans, self.device_ns(spans), [(name, int(turn.max()) + 1)])
        steps.turn = turn[spans]
        return steps

    def forward_passes(self, markers: Candidate | None) -> Candidate | None:
        """The marked forward passes, where all that is marked are such passes and training work."""
        if markers is None:
            return None
        ranges = self.ranges
        passes = markers.spans[~self.times.is_training[markers.spans]]
        is_forward = np.array([bool(_FORWARD.search(text)) for text, _ in self._names(passes, self.inside_ns[passes])])
        if not len(passes) or not is_forward.all():
            return None
        chosen = np.zeros(len(ranges.parent), bool)
        chosen[passes] = True
        return self.candidate(ROOTS, chosen)

    def counted(self) -> Candidate | None:
        """Ranges that count themselves: the innermost that hold the work of those around them, of like contents."""
        counts = self.counts()
        if not counts.any():
            return None
        current = self._innermost(self.ranges.outermost(counts), counts)
        return self.candidate(COUNTED, current)

    def cycle(self) -> Candidate | None:
        """Sibling ranges that follow one another in the same order, again and again."""
        ranges, times = self.ranges, self.times
        taken = ~self.library & ~self.is_operator & ~ranges.has_role("mark")
        if np.bincount(ranges.folded_id[taken]).max(initial=0) < FEWEST_TURNS:
            return None  # no text of them occurs often enough
        taken &= ~found_in(ranges.folded_texts, _PART_OF_LAYER)[ranges.folded_id]
        found: Cycle | None = find_cycle(
            ranges.parent,
            ranges.folded_id,
            times.thread_index,
            times.start_ns,
            times.end_ns,
            self.inside_ns,
            taken,
            self.work.total_ns,
        )
        if found is None:
            return None
        texts = ranges.folded_texts
        name = f"{texts[found.first_name]} … {texts[found.last_name]}"
        candidate = self._weighed(CYCLES, found.spans, self.device_ns(found.spans), [(name, found.count)])
        candidate.turn = found.turn
        return candidate

    def belongs_together(self, markers: Candidate, cycle: Candidate) -> bool:
        """Whether markers are parts of the turns of a cycle: they hold less than `HOLDS` of it, or they are the forward
        and backward phases of one training step."""
        ranges = self.ranges
        if markers.coverage_ratio >= LEAST_COVERAGE and ranges.has_role("iteration")[markers.spans].all():
            return False  # the program says what a step is
        in_cycle = np.zeros(len(ranges.parent), bool)
        in_cycle[cycle.spans] = True
        member = in_cycle[markers.spans]
        inside = ranges.inside(in_cycle)[markers.spans] | member
        if not inside.any() or cycle.coverage_ratio < max(LEAST_COVERAGE, markers.coverage_ratio):
            return False
        phases = member & ranges.has_role("phase")[markers.spans]
        if phases.any() and (self.training[markers.spans] & phases).any():
            return True
        return bool(self.inside_ns[markers.spans[inside]].sum() < HOLDS * cycle.device_ns)


def _numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    unique, codes = np.unique(values, return_inverse=True)
    return codes, unique
