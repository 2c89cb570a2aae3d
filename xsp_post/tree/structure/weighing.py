"""Ways to cut a launch sequence into executions → the one that explains it best, by one score.

The score of a candidate is a weighted sum of what it explains. The weights are chosen, not thought out:
`scripts/structure --weigh` finds those with which the right candidate is taken most often in programs of many authors,
and says how often it is in programs of an author that was left out. A candidate that scores below 0 explains nothing.
They are the weights of a conditional logit: e to the score of a candidate, of the sum of all, is the chance that it is
the right one. That is how sure inferred executions are.
"""

import numpy as np

from xsp_post.tree.structure.fold import Loops
from xsp_post.tree.structure.hashes import Hashed
from xsp_post.tree.structure.labels import Traits, does_layer_work

LOOPS, LAYERS, OTHERS, MARKS, SECOND_MARKS = "loops", "layers", "other loops", "marks", "second marks"
BEGINNINGS = "beginnings"
Found = tuple[np.ndarray, np.ndarray, np.ndarray]  # starts, ends and series of executions

WEIGHTS = {
    "time": 4.1,  # of the device time: what the executions hold, 0…1
    "description": -2.28,  # of the launches: what describes them with these executions, 0…1
    "folded": -4.03,  # the same with one turn of each loop inside an execution
    "unevenness": -5.21,  # of the natural logarithm of their launches, of each kind: the standard deviation
    "alike_begin": 2.35,  # of the executions: those that begin with the family of the usual one of their kind, 0…1
    "alike_first": 2.55,  # families of the first one, if the recording begins with it: likeness to the usual one, 0…1
    "left_before": -4.11,  # families of what stands before the first one: likeness to the usual one, 0…1
    "left_behind": -6.49,  # families of what stands behind the last one, not between: likeness to the usual one, 0…1
    "pauses": 1.83,  # of as many of the longest pauses of the host: those before an execution, 0…1
    "no_update": -3.17,  # of the launches, where weights are updated: those of executions without an update, 0…1
    "more_updates": -1.0,  # of the launches, where weights are updated: those of executions with several updates, 0…1
    LAYERS: -4.02,  # turns of a loop that looks like a layer
    OTHERS: -3.6,  # turns of a loop of no known role
    SECOND_MARKS: -2.95,  # from every second mark of the host to the next
    BEGINNINGS: -2.0,  # from where the same launches begin to where they begin again
}


def score(source: str, found: Found, launches: "SequenceFacts") -> float:
    """How well a candidate explains a sequence: the weighted sum of its `terms`."""
    return sum(WEIGHTS[name] * value for name, value in terms(source, found, launches).items())


class SequenceFacts:
    """What the terms of all candidates of one sequence need, made once. Arrays have one value a launch."""

    def __init__(
        self, symbols: np.ndarray, duration: np.ndarray, pause: np.ndarray, traits: Traits, loops: Loops,
        step_ends: np.ndarray,
    ) -> None:  # fmt: skip
        self.family, self.pause, self.symbols = traits.family.astype(np.int64), pause, symbols
        self.hashed, self.loops = Hashed.of(symbols), loops
        self.families = int(self.family.max(initial=0)) + 1
        self.time = np.r_[0, np.cumsum(np.maximum(duration, 1))]
        self.sorted_pause, self.updates = np.sort(pause), update_ends(traits)
        if not len(self.updates):  # no weights are updated: where steps of forward and backward work end
            self.updates = np.sort(step_ends)

    def __len__(self) -> int:
        return len(self.family)


def update_ends(traits: Traits) -> np.ndarray:
    """Behind which launches the updates of the weights end: the last of each that no layer's work divides; what stands
    before all of a model's work ends no step."""
    update = np.flatnonzero(traits.is_optimiser)
    if not len(update):
        return update
    works = np.cumsum(does_layer_work(traits, np.arange(len(traits.family))))
    last = update[np.flatnonzero(np.diff(works[update], append=works[-1] + 1))]
    return last[works[last] > 0] + 1


def terms(source: str, found: Found, facts: SequenceFacts) -> dict[str, float]:
    """The terms of the score of a candidate, by the names of `WEIGHTS`."""
    starts, ends, series = found
    size, n = ends - starts, len(facts)
    main = series == np.argmax(np.bincount(series, weights=size))
    usual = _usual(np.flatnonzero(main), size)
    number, often = np.unique(series, return_inverse=True, return_counts=True)[1:]
    likes = np.array([_usual(np.flatnonzero(number == one), size) for one in range(len(often))])[number]
    likes[often[number] == 1] = usual
    held = _families(starts, ends, facts)
    outside = _families(np.array([0, ends[-1]]), np.array([starts[0], n]), facts)
    between = _families(ends[:-1], starts[1:], facts)
    begin, end, hashed = _folded(starts, ends, facts)
    inner = starts[starts > 0]
    at = facts.pause[inner]
    is_known = len(inner) > 0 and np.ptp(facts.pause[1:]) > 0
    updates = np.diff(np.searchsorted(facts.updates, np.stack([starts, ends]), side="right"), axis=0)[0]
    result = {
        "time": float((facts.time[ends] - facts.time[starts]).sum() / facts.time[-1]),
        "description": _description(starts, ends, facts.hashed, n - size.sum()) / n,
        "folded": _description(begin, end, hashed, n - size.sum()) / n,
        "unevenness": float(np.std(np.log(size) - (np.bincount(number, np.log(size)) / often)[number])),
        "alike_begin": float((facts.family[starts] == facts.family[starts[likes]]).mean()),
        "alike_first": float(_likeness(held[0], held[likes[0]])) if starts[0] == 0 else 1.0,
        "left_before": float(_likeness(outside[0], held[usual])),
        "left_behind": _likeness(outside[1], held[usual]) * (1 - _likeness(outside[1], between).max(initial=0) ** 2),
        "pauses": float((at >= facts.sorted_pause[-len(inner)]).mean()) if is_known else 0.0,
        "no_update": float(size[updates == 0].sum() / size.sum()) if len(facts.updates) else 0.0,
        "more_updates": float(size[updates > 1].sum() / size.sum()),
    }
    return {**result, source: 1.0} if source in WEIGHTS else result


def _description(starts: np.ndarray, ends: np.ndarray, hashed: Hashed, rest: int) -> float:
    """Launches that describe a sequence: those outside of its executions (``rest``), one of all alike, and one each."""
    _, once = np.unique(hashed.stretches(starts, ends), return_index=True)
    return float(rest + (ends - starts)[once].sum() + len(starts))


def _folded(starts: np.ndarray, ends: np.ndarray, facts: SequenceFacts) -> tuple[np.ndarray, np.ndarray, Hashed]:
    """Executions and launches without those of all but the first turn of each loop that lies in an execution."""
    loops = facts.loops
    home = np.searchsorted(starts, loops.start, side="right") - 1
    stays = np.repeat((home < 0) | (loops.end > ends[home]), loops.count)
    stays[loops.first] = True
    edges = np.zeros(len(facts) + 1, np.int64)
    np.add.at(edges, loops.turn_start[~stays], 1)
    np.add.at(edges, loops.turn_end[~stays], -1)
    keep = np.cumsum(edges[:-1]) == 0
    at = np.r_[0, np.cumsum(keep)]
    return at[starts], at[ends], Hashed.of(facts.symbols[keep])


def _usual(rows: np.ndarray, size: np.ndarray) -> int:
    """Of these executions the one of median size."""
    return int(rows[np.argsort(size[rows], kind="stable")[len(rows) // 2]])


def _families(starts: np.ndarray, ends: np.ndarray, facts: SequenceFacts) -> np.ndarray:
    """How often each family occurs in each stretch; shape (stretches, families)."""
    size = ends - starts
    owner = np.repeat(np.arange(len(size)), size)
    at = np.arange(len(owner)) + np.repeat(starts - np.cumsum(size) + size, size)
    often = np.bincount(owner * facts.families + facts.family[at], minlength=len(size) * facts.families)
    return often.reshape(len(size), facts.families)


def _likeness(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of what either holds, what both do, 0…1; of each row of ``other``."""
    return np.minimum(one, other).sum(axis=-1) / np.maximum(np.maximum(one, other).sum(axis=-1), 1)
