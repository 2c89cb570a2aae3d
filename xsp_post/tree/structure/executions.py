"""Loops of a launch sequence → its executions: which loops are passes through a model, steps of a training, layers.

Each kind of loop has one role, by what a typical turn holds: *step* (it updates weights, or runs forward and
backward), *pass* (it repeats layers), *layer*, or *other*. Of loops inside one another the innermost step is the
execution, else the innermost pass, else the outermost one. What lies between executions and holds as many layers in a
row is an execution of another kind (the prefill before the decoding). Where only layers repeat, all of it is one
execution.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import nest
from xsp_post.tree.structure.constants import Constants
from xsp_post.tree.structure.fold import Loops, agreement
from xsp_post.tree.structure.hashes import Hashed
from xsp_post.tree.structure.labels import (
    EMBEDDING,
    NORMALISATION,
    QUIET,
    Traits,
    are_products,
    attentions,
    does_layer_work,
    guess_type,
    has_gradients,
    has_products,
    is_all_gradients,
    is_network,
    is_one_layer,
    is_part_of_network,
    is_training_step,
)
from xsp_post.tree.structure.score import worth
from xsp_post.tree.structure.weighing import (
    BEGINNINGS,
    LAYERS,
    LOOPS,
    MARKS,
    OTHERS,
    SECOND_MARKS,
    Found,
    SequenceFacts,
    score,
    terms,
    update_ends,
)

STEP, PASS, LAYER, OTHER = "step", "pass", "layer", "other"
GRADIENTS = "gradients"  # the second half of an execution, or a part of it
REGULAR, ODD, TAIL = "regular", "odd", "tail"
_MOST_BEGINNINGS = 4  # ways to cut a sequence where it begins alike, of which each is scored


@dataclass
class Kind:
    """What turns of one kind of loop hold: role, a typical turn [start, end), and how many turns there are."""

    role: str
    start: int
    end: int
    turn_count: int
    holds_layers: bool = False
    has_products: bool = False
    has_gradients: bool = False
    around: bool = False  # a typical turn is one layer of another kind and little else; other turns may be several

    @property
    def period(self) -> int:
        return self.end - self.start


@dataclass
class Executions:
    """Executions of one sequence in order: [starts, ends), the series they belong to (one per kind), and whether each
    is regular, odd or a tail. ``typical``: an execution of each series; ``reason``: why there is none; ``chance`` (0…1)
    that these are the executions, as the score tells it."""

    starts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    ends: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    series: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    classes: np.ndarray = field(default_factory=lambda: np.zeros(0, object))
    typical: list[int] = field(default_factory=list)
    reason: str = ""
    chance: float = 1.0

    def __len__(self) -> int:
        return len(self.starts)

    def covered(self) -> int:
        """Launches in the executions."""
        return int((self.ends - self.starts).sum())


@dataclass
class Launches:
    """Launches that follow one another: one value of each array per launch; ``duration`` on the device and ``pause`` of
    the host before it, ns; ``marks``: before which the host copied or waited, bool (kinds, launches), None unknown."""

    symbols: np.ndarray
    thread: np.ndarray
    duration: np.ndarray
    pause: np.ndarray
    traits: Traits
    marks: np.ndarray | None
    constants: Constants

    def __len__(self) -> int:
        return len(self.symbols)


@dataclass
class Structure:
    """Loops of a sequence with the turn around each (row, −1 none) and what each kind is."""

    loops: Loops
    kinds: list[Kind]
    parent_turn: np.ndarray  # per loop
    turn_parent: np.ndarray  # per turn
    turn_kind: np.ndarray  # per turn


def structure_of(loops: Loops, launches: Launches) -> Structure:
    """The roles of loops."""
    traits, constants = launches.traits, launches.constants
    loops = _in_parts(loops, launches)
    turn_kind = np.repeat(loops.kind, loops.count)
    nesting = nest(np.zeros(len(turn_kind), np.int64), 2 * loops.turn_start, 2 * loops.turn_end - 1)
    parent = nesting.parent.astype(np.int64)
    result = Structure(loops, [], parent[loops.first] if len(loops) else parent, parent, turn_kind)
    length = loops.turn_end - loops.turn_start
    for kind in range(int(loops.kind.max(initial=-1)) + 1):
        turns = np.flatnonzero(turn_kind == kind)
        usual = np.sort(length[turns])[len(turns) // 2]
        typical = turns[length[turns] == usual]
        row = int(typical[len(typical) // 2])
        found = Kind(OTHER, int(loops.turn_start[row]), int(loops.turn_end[row]), len(turns))
        least = constants.most_ratio * found.period
        rows = np.arange(found.start, found.end)
        found.has_products = has_products(traits, rows)
        found.has_gradients = has_gradients(traits, rows)
        is_both = found.has_gradients and not is_all_gradients(traits, rows, constants)
        found.holds_layers = _in_layers(result, row, constants.fewest_parts) >= least
        found.holds_layers |= is_both and _in_loops(result, found) >= least
        is_weak = not found.holds_layers
        cores = len(attentions(traits, rows))  # a layer may have two, but not as two equal parts and nothing else
        is_pass = bool((traits.family[rows] == EMBEDDING).any())
        if cores == 2 and not is_pass and not _holds_blocks(result, row, launches):
            least = constants.holds_ratio * found.period
        found.holds_layers |= cores > 1 and _in_layers(result, row, 2) >= least
        found.role = _role(result, found, launches)
        if is_weak and found.role == PASS and not is_pass and not begins_at_pauses(result, found, launches):
            found.role = OTHER  # a few layers in each of many turns in a row: a group of them
        result.kinds.append(found)
        own = loops.kind[(loops.start >= found.start) & (loops.end <= found.end) & (loops.count == 1)]
        layers = [one for one in (result.kinds[k] for k in own.tolist() if k < kind) if one.role == LAYER]
        found.around = any(one.period >= constants.alike_ratio * found.period for one in layers)
        if found.role == LAYER:
            _begin_later(loops, turn_kind, kind, found, launches)
            _begin_alike(loops, turn_kind, kind, launches.symbols)
    # what occurs once per step bounds it: forward and backward of a part of the batch are passes inside a step
    updates = [bool(traits.is_optimiser[k.start : k.end].any()) for k in result.kinds]
    for found, has_update in zip(result.kinds, updates, strict=True):
        if found.role == STEP and any(updates) and not has_update:
            found.role = PASS if found.holds_layers else OTHER
    return result


def _begin_later(loops: Loops, turn_kind: np.ndarray, kind: int, found: Kind, launches: Launches) -> None:
    """A layer whose normalisation follows an addition, the residual one of the layer before (and the product that is
    added), begins behind that; where layers in a row begin with more equal launches than their first, what is more is
    of the layer before (it ends with a normalisation, too). ``loops`` and ``found`` are changed."""
    symbols, family, n = launches.symbols, launches.traits.family, len(launches)
    mine, turns = np.flatnonzero(loops.kind == kind), np.flatnonzero(turn_kind == kind)
    later = ~np.isin(turns, loops.first[mine])
    run = _equal_launches(symbols, loops.turn_start[turns])
    by = int(run[later].min() - run[~later].max()) if later.any() else 0
    moved = np.full(max(by, 0), symbols[found.start])
    if by <= 0:
        rows = np.arange(found.start, found.end)
        by = int(np.argmax(family[rows] == NORMALISATION))
        moved, is_quiet = symbols[rows[:by]], np.isin(family[rows[:by]], QUIET)
        is_added = by == 2 and bool(
            are_products(launches.traits, rows[:1]).all() and len(attentions(launches.traits, rows))
        )
        if not (by and is_quiet[-1] and (by == 1 or is_added)):
            return
        later = np.ones(len(turns), bool)
    end, last = loops.end[mine], loops.last[mine] - 1
    around = np.append(loops.start[loops.kind != kind], n)
    follows = np.append(symbols, np.full(by, -1))[end[:, None] + np.arange(by)]
    moves = ~np.isin(end, around) & (follows == moved).all(axis=1)
    if moves.mean() < launches.constants.alike_ratio:
        return
    if later.all():  # the loop before one ends with what it gives up, as its first turn does
        before = np.flatnonzero(np.isin(loops.end, loops.start[mine]) & (loops.count > 1))
        before = before[symbols[loops.end[before]] == symbols[loops.turn_end[loops.first[before]] - by]]
        loops.turn_end[loops.last[before] - 1] += by
        loops.end[before] += by
    for edges in (loops.start, loops.end, loops.turn_start, loops.turn_end):  # of turns that end with their layers
        edges[np.isin(edges, end[moves])] += by
    loops.turn_start[turns[later]] += by
    loops.turn_end[turns[~np.isin(turns, last)]] += by
    loops.start[mine], loops.end[mine] = loops.turn_start[loops.first[mine]], loops.turn_end[last]
    found.start, found.end = found.start + by, found.end + by


def _begin_alike(loops: Loops, turn_kind: np.ndarray, kind: int, symbols: np.ndarray) -> None:
    """Where first layers begin with more equal launches than all others, what is more stands before them (the norm of
    an embedding). ``loops`` is changed."""
    mine, turns = np.flatnonzero(loops.kind == kind), np.flatnonzero(turn_kind == kind)
    run, first = _equal_launches(symbols, loops.turn_start[turns]), loops.first[mine]
    is_first = np.isin(turns, first)
    if not is_first.all():
        loops.turn_start[first] += np.maximum(run[is_first] - run[~is_first].max(), 0)
        loops.start[mine] = loops.turn_start[first]


def _equal_launches(symbols: np.ndarray, start: np.ndarray) -> np.ndarray:
    """How many launches equal each one of ``start`` and follow it directly."""
    last = np.append(np.flatnonzero(np.diff(symbols)), len(symbols) - 1)
    return last[np.searchsorted(last, start)] - start


def _in_parts(loops: Loops, launches: Launches) -> Loops:
    """Loops with turns of several attentions cut where a turn is made of layers: of parts that do nearly the same
    (local and global attention in turn), or of parts that each attend and then have an MLP, begun as the turn is.
    An attention in a loop is of such a layer already; what is looked up outside of loops (of experts) begins a pass."""
    traits, constants = launches.traits, launches.constants
    cuts = [np.zeros(1, np.int64) for _ in range(int(loops.kind.max(initial=-1)) + 1)]  # in a turn of each kind
    usual = np.ones(len(cuts), np.int64)
    for kind in range(len(cuts)):
        mine = np.flatnonzero(loops.kind == kind)
        row = int(loops.first[mine[int(np.argmax(loops.count[mine]))]])
        rows = np.arange(loops.turn_start[row], loops.turn_end[row])
        cores = attentions(traits, rows)
        count = len(cores)
        step = usual[kind] = len(rows)
        step //= max(count, 1)
        inner = (loops.start >= rows[0]) & (loops.end <= rows[-1] + 1) & (loops.kind != kind)
        first, last = np.sort([loops.start[inner], loops.end[inner]])
        in_loop = np.searchsorted(first, rows, side="right") > np.searchsorted(last, rows, side="right")
        is_pass = in_loop[cores - rows[0]].any() or (traits.family[rows[~in_loop]] == EMBEDDING).any()
        if count < 2 or step < constants.fewest_parts or is_pass:
            continue
        family, slack = traits.family[rows], 1 + round(constants.drift_ratio * step)
        alike = [agreement(family[k * step : (k + 1) * step], family[:step], slack) for k in range(count)]
        if min(alike) >= constants.alike_ratio * step:
            cuts[kind] = len(rows) * np.arange(count) // count
            continue
        begins = rows[launches.symbols[rows] == launches.symbols[rows[0]]]
        at = begins[np.maximum(np.searchsorted(begins, cores) - 1, 0)]
        parts = np.split(rows, at[1:] - rows[0])
        if (np.diff(at) > 0).all() and all(
            guess_type(traits, part, launches.duration[part]) == "transformer block" for part in parts
        ):
            cuts[kind] = at - rows[0]
    times = np.array([len(cut) for cut in cuts] or [1])
    if (times == 1).all():
        return loops
    turn_kind, length = np.repeat(loops.kind, loops.count), loops.turn_end - loops.turn_start
    owner = np.repeat(np.arange(len(turn_kind)), times[turn_kind])
    number = np.arange(len(owner)) - np.repeat(np.cumsum(times[turn_kind]) - times[turn_kind], times[turn_kind])
    of_turn = turn_kind[owner]
    cut = np.concatenate(cuts)[(np.cumsum(times) - times)[of_turn] + number]
    start = loops.turn_start[owner] + length[owner] * cut // usual[of_turn]
    end = np.where(number + 1 < times[of_turn], np.r_[start[1:], 0], loops.turn_end[owner])
    last = np.cumsum(loops.count * times[loops.kind])
    return replace(loops, first=last - loops.count * times[loops.kind], last=last, turn_start=start, turn_end=end)


def _in_layers(structure: Structure, turn: int, fewest: int) -> int:
    """Launches of a turn that lie in loops of layers, so many or more in a row; a cell of two launches is none, nor is
    one without a product."""
    loops, layers = (
        structure.loops,
        [kind for kind, one in enumerate(structure.kinds) if one.role == LAYER and one.period > 2 and one.has_products],
    )
    start, end = loops.turn_start[turn], loops.turn_end[turn]
    inside = np.flatnonzero((loops.start >= start) & (loops.end <= end) & np.isin(loops.kind, layers))
    inside = inside[np.argsort(loops.start[inside], kind="stable")]
    row = np.cumsum(np.r_[True, loops.start[inside[1:]] != loops.end[inside[:-1]]])  # loops that touch are one row
    inside = inside[np.bincount(row[: len(inside)], weights=loops.count[inside])[row[: len(inside)]] >= fewest]
    return int((loops.end[inside] - loops.start[inside]).sum())


def _holds_blocks(structure: Structure, turn: int, launches: Launches) -> bool:
    """Whether what repeats in a turn are whole blocks, each with its MLP, rather than two attentions of one."""
    loops = structure.loops
    inside = (loops.start >= loops.turn_start[turn]) & (loops.end <= loops.turn_end[turn]) & (loops.count > 1)
    known = [structure.kinds[kind] for kind in np.unique(loops.kind[inside]).tolist() if kind < len(structure.kinds)]
    spans = [np.arange(one.start, one.end) for one in known if one.role == LAYER]
    guesses = [guess_type(launches.traits, rows, launches.duration[rows]) for rows in spans]
    return "transformer block" in guesses


def _role(structure: Structure, kind: Kind, launches: Launches) -> str:
    traits, constants, rows = launches.traits, launches.constants, np.arange(kind.start, kind.end)
    if is_training_step(launches.thread[rows], traits, rows):
        return STEP
    if not is_network(traits, rows):
        return OTHER
    if is_all_gradients(traits, rows, constants) and not is_all_gradients(traits, np.arange(len(launches)), constants):
        return GRADIENTS
    is_many = kind.turn_count >= constants.fewest_parts
    # a lookup begins a pass, but for that of the tokens of experts
    has_experts = _in_loops(structure, kind) > 0 and len(attentions(traits, rows)) == 1
    if is_many and is_one_layer(traits, rows, may_look_up=has_experts):
        return LAYER
    if kind.holds_layers:
        return PASS
    if begins_at_pauses(structure, kind, launches):
        return OTHER
    # two parts alike are no layers, but for two attentions
    inner = _in_loops(structure, kind, 2 if len(attentions(traits, rows)) > 1 else constants.fewest_turns)
    is_part = is_part_of_network(traits, rows) or is_one_layer(traits, rows, may_look_up=True)
    return LAYER if is_part and inner < constants.most_ratio * kind.period else OTHER


def _in_loops(structure: Structure, kind: Kind, fewest: int = 2) -> int:
    loops = structure.loops
    inside = (loops.start >= kind.start) & (loops.end <= kind.end) & (loops.count >= fewest)
    inside &= loops.end - loops.start < kind.period
    return int((loops.end - loops.start)[inside].sum())


def begins_at_pauses(structure: Structure, kind: Kind, launches: Launches) -> bool:
    """Whether the host pauses where turns begin: longer than before most of a turn's other launches, and twice as long
    as usual. Where there are none they say nothing: a turn begins there unless it lies in a row in another."""
    loops, pause, constants = structure.loops, launches.pause, launches.constants
    number = int(np.flatnonzero((loops.turn_start == kind.start) & (loops.turn_end == kind.end))[0])
    mine = structure.turn_kind == structure.turn_kind[number]
    starts = loops.turn_start[mine]
    starts = starts[starts > 0]
    at = np.median(pause[starts]) if len(starts) else 0.0
    if not at or float(np.ptp(pause[1:])) == 0:
        own = loops.kind == structure.turn_kind[number]
        is_inside = (structure.parent_turn[own] >= 0).mean() >= constants.most_ratio
        return not (is_inside and np.median(loops.count[own]) >= constants.fewest_parts)
    edges = np.zeros(len(pause) + 1, np.int64)
    np.add.at(edges, loops.turn_start[mine], 1)
    np.add.at(edges, loops.turn_end[mine], -1)
    inside = np.sort(pause[np.cumsum(edges[:-1]) > 0])
    rank = np.searchsorted(inside, at, side="right") / max(len(inside), 1)
    return bool(rank >= 1 - constants.large_ratio and at >= 2 * np.median(inside))


# ---------------------------------------------------------------- which loops are executions


def find_executions(structure: Structure, launches: Launches, owner: np.ndarray | None = None) -> Executions:
    """The executions of a sequence: of all ways to cut it the one that explains it best. ``owner``: the recorded range
    of each launch (−1 none): no execution reaches from one into the next."""
    if not len(structure.loops):
        return Executions(reason="no stretch of launches recurs often enough to be more than chance")
    found, reason = candidates(structure, launches)
    if owner is not None:
        found = [(source, _cut(*one, np.flatnonzero(np.diff(owner)) + 1)) for source, one in found]
    facts = facts_of(structure, launches)
    scores = np.array([*(score(*one, facts) for one in found), 0.0])  # the last: not to cut it
    best, chance = int(np.argmax(scores)), np.exp(scores - scores.max())
    if best == len(found):
        return Executions(reason=reason or "no way to cut the launches explains them")
    result, constants = _classified(*found[best][1], launches), launches.constants
    same = np.array([*(len(one[0]) == len(result) for _, one in found), False])  # as many: nearly the same ones
    result.chance, size = float(chance[same].sum() / chance.sum()), result.ends - result.starts
    is_longer = size > (1 + constants.uneven_ratio) * size[result.typical][result.series]
    known = terms("", found[best][1], facts)
    may_hold_more = is_longer.any() and known["pauses"] < constants.most_ratio
    if may_hold_more or known["alike_begin"] < constants.alike_ratio:
        result.chance *= constants.most_ratio
    return result


def facts_of(structure: Structure, launches: Launches) -> SequenceFacts:
    """What the score needs to know of a sequence."""
    steps = [k for k, kind in enumerate(structure.kinds) if kind.role == STEP][:1]  # inner kinds come first
    known = (launches.symbols, launches.duration, launches.pause, launches.traits, structure.loops)
    return SequenceFacts(*known, structure.loops.turn_end[np.isin(structure.turn_kind, steps)])


def candidates(structure: Structure, launches: Launches) -> tuple[list[tuple[str, Found]], str]:
    """Ways to cut a sequence into executions, each with its source (of `weighing`); why loops give none."""
    of_loops, reason = _of_kinds(structure, _chosen_kinds(structure, launches), launches)
    found = [(LOOPS, of_loops), *_turns_of_one(structure, launches)]
    layers = np.array([kind.period for kind in structure.kinds if kind.role == LAYER])
    for source, one in (*_between_marks(launches), *_between_beginnings(launches)):
        usual = np.median(one[1] - one[0])
        near = np.minimum(layers, usual) >= launches.constants.alike_ratio * np.maximum(layers, usual)
        found.append((LAYERS if near.any() else source, one))
    return [one for one in found if len(one[1][0])], reason


def _cut(starts: np.ndarray, ends: np.ndarray, series: np.ndarray, bounds: np.ndarray) -> Found:
    """Executions cut where bounds lie inside them."""
    owner = np.searchsorted(starts, bounds, side="right") - 1
    inside = (owner >= 0) & (bounds > starts[owner]) & (bounds < ends[owner])
    owner = np.append(np.arange(len(starts)), owner[inside])
    starts, ends, owner = _sorted(np.append(starts, bounds[inside]), ends[owner], owner)
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    return starts, ends, series[owner]


def _of_kinds(structure: Structure, kinds: list[int], launches: Launches) -> tuple[Found, str]:
    """Executions that are turns of these kinds of loops, with what lies between them and is one as well; why none."""
    loops = structure.loops
    is_turn = np.isin(structure.turn_kind, kinds)
    is_turn &= ~_inside(structure, is_turn)
    is_turn &= np.isin(structure.turn_kind, _main_kinds(structure, is_turn, launches))
    rows = np.flatnonzero(is_turn)
    rows = rows[np.argsort(loops.turn_start[rows], kind="stable")]
    layers = _layer_loops(structure, is_turn)
    starts, ends, series = loops.turn_start[rows], loops.turn_end[rows], structure.turn_kind[rows]
    if len(rows):
        starts, ends, series = _rotated(starts, ends, series, launches)
    starts, ends, series = _up_to_updates(loops, starts, ends, series, launches)
    if not len(starts):
        return _of_layers(structure, layers, launches)
    return _with_others(structure, starts, ends, series, layers, launches), ""


def _turns_of_one(structure: Structure, launches: Launches) -> Iterator[tuple[str, Found]]:
    """Turns of each kind of loop that holds most of the launches or of the time. A loop of next to nothing but steps
    is none."""
    share = _shares(structure, np.ones(len(structure.turn_kind), bool), launches.duration)
    for kind, one in enumerate(structure.kinds):
        if one.turn_count > 1 and one.period > 1 and share[kind] >= launches.constants.most_ratio:
            source = {LAYER: LAYERS, GRADIENTS: LAYERS, OTHER: OTHERS}.get(one.role, LOOPS)
            steps = [k for k, other in enumerate(structure.kinds[:kind]) if one.role == other.role == STEP]
            inner = _shares(structure, _inside(structure, structure.turn_kind == kind), launches.duration)[steps]
            source = OTHERS if inner.max(initial=0) >= (1 - launches.constants.near_ratio) * share[kind] else source
            yield source, _of_kinds(structure, [kind], launches)[0]


def _between_marks(launches: Launches) -> Iterator[tuple[str, Found]]:
    """Stretches from mark to mark of the host, of each kind of mark, and from every second one: with and without what
    stands before the first mark, and behind the last. Marks may stand in each layer, too."""
    constants, n = launches.constants, len(launches)
    for mark in {} if launches.marks is None else {mark.tobytes(): mark for mark in launches.marks}.values():
        at = np.flatnonzero(mark)
        ways = [(MARKS, at), (SECOND_MARKS, at[::2]), (SECOND_MARKS, at[1::2])]
        ways += [(source, np.r_[0, begin]) for source, begin in ways if len(begin) and begin[0]]
        for source, starts in ways if constants.fewest_turns * len(at) <= n else []:
            if len(starts) < 2:
                continue
            ends, series = np.append(starts[1:], n), np.zeros(len(starts), np.int64)
            yield source, (starts, ends, series)
            if len(starts) > 2 and ends[-1] - starts[-1] < constants.most_ratio * np.median(ends - starts):
                yield source, (starts[:-1], ends[:-1], series[:-1])


def _between_beginnings(launches: Launches) -> Iterator[tuple[str, Found]]:
    """Stretches that begin with the same three launches, by their symbols or families, the most even ones: with and
    without what stands before the first. Of beginnings that occur as often the first one."""
    n, ways = len(launches), dict[bytes, tuple[float, np.ndarray]]()
    for said in (launches.symbols, launches.traits.family):
        code = Hashed.of(said).grams(3)
        often = np.bincount(code)
        fewest = launches.constants.fewest_turns
        enough = np.flatnonzero((often >= fewest) & (often <= n / fewest))
        chosen = np.sort(enough[np.unique(often[enough], return_index=True)[1]])
        rows = np.flatnonzero(np.isin(code, chosen))
        rows = rows[np.argsort(code[rows], kind="stable")]
        for at in np.split(rows, np.cumsum(often[chosen])[:-1]) if len(rows) else []:
            for starts in (at, np.append(0, at)) if at[0] else (at,):
                ways[starts.tobytes()] = float(np.std(np.log(np.diff(starts, append=n)))), starts
    for _, starts in sorted(ways.values(), key=lambda way: way[0])[:_MOST_BEGINNINGS]:
        yield BEGINNINGS, (starts, np.append(starts[1:], n), np.zeros(len(starts), np.int64))


def _sorted(*columns: np.ndarray) -> Found:
    """Starts, ends and series in the order of the starts."""
    order = np.argsort(columns[0], kind="stable")
    starts, ends, series = (column[order] for column in columns)
    return starts, ends, series


def _chosen_kinds(structure: Structure, launches: Launches) -> list[int]:
    """Kinds whose turns are executions: of those inside one another the one with the best score."""
    kinds, constants = structure.kinds, launches.constants
    share = _shares(structure, np.ones(len(structure.turn_kind), bool), launches.duration)
    above: dict[int, set[int]] = {k: set() for k in range(len(kinds))}
    of_parent = np.where(structure.turn_parent >= 0, structure.turn_kind[structure.turn_parent], -1)
    for k in range(len(kinds) - 1, -1, -1):  # inner kinds come first
        direct = set(np.unique(of_parent[structure.turn_kind == k]).tolist()) - {-1, k}
        above[k] = direct.union(*(above[d] for d in direct)) if direct else set()
    fewest = constants.fewest_launches
    can = [
        k for k, kind in enumerate(kinds)
        if kind.role not in (LAYER, GRADIENTS)
        and (kind.period >= constants.fewest_parts or _are_where_turns_begin(
            launches.marks, np.sort(structure.loops.turn_start[structure.turn_kind == k])))
        and kind.turn_count >= (constants.fewest_turns if kind.role == OTHER and kind.period < fewest else 2)
        and not any(kinds[c].role == LAYER for c in above[k])
    ]  # fmt: skip
    score = {k: _score(structure, k, [c for c in can if k in above[c]], share, launches) for k in can}
    chosen: list[int] = []
    for k in sorted(can, key=lambda k: -score[k]):
        # a loop inside chosen ones may run outside of them, too
        inside = any(c in above[k] for c in chosen)
        is_free = not inside or (structure.parent_turn[structure.loops.kind == k] < 0).any()
        if is_free and not any(k in above[c] for c in chosen):
            chosen.append(k)
    return chosen


# How often what a role says is halved: a step of training says most, then a pass through layers, a loop around other
# loops, and any other loop.
_LESS = {STEP: 0, PASS: 1, OTHER: 3}
_AROUND_OTHERS = 2


def _score(structure: Structure, kind: int, inner: list[int], share: np.ndarray, launches: Launches) -> float:
    """How well a kind of loop explains the sequence: the share its turns hold, and what its role counts for. ``inner``:
    kinds inside it that could be executions as well."""
    constants, mine = launches.constants, structure.kinds[kind]
    least = constants.most_ratio * share[kind]
    is_part = [share[c] < least or structure.kinds[c].has_gradients < mine.has_gradients for c in inner]
    # a part of what is learned, or the update of one matrix of many
    inner = [c for c, part in zip(inner, is_part, strict=True) if not part or structure.kinds[c].role != STEP]
    role = mine.role if not any(structure.kinds[c].role == mine.role for c in inner) else OTHER
    is_around = role == OTHER and bool(inner)
    rest = mine.period - _in_loops(structure, mine)
    if is_around and not mine.has_products and rest < constants.fewest_parts:  # a check now and then, if it is short
        of_inner = _shares(structure, _inside(structure, structure.turn_kind == kind), launches.duration)[inner].max()
        is_around = of_inner < (1 - constants.near_ratio) * share[kind]
    less = _AROUND_OTHERS if is_around else _LESS[role]
    return float(worth(share[kind], 1.0, mine.turn_count, constants.prior_of_place**less))


def _shares(structure: Structure, is_turn: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """Share of the launches, or of the device time where that is more, in turns of each kind."""
    loops, n = structure.loops, len(duration)
    time = np.concatenate([[0], np.cumsum(duration)])
    rows = np.flatnonzero(is_turn)
    kind, count = structure.turn_kind[rows], len(structure.kinds)
    launches = np.bincount(kind, weights=(loops.turn_end - loops.turn_start)[rows], minlength=count) / n
    held = np.bincount(kind, weights=(time[loops.turn_end] - time[loops.turn_start])[rows], minlength=count)
    return np.maximum(launches, held / max(int(time[-1]), 1))


def _main_kinds(structure: Structure, is_turn: np.ndarray, launches: Launches) -> list[int]:
    """Of the kinds of the turns those that are steps or passes, if there are any; of others those with a part of the
    work, and beside steps of training what computes and begins where the host pauses (what they learn from is made, or
    they are tested), but beside passes (parts of the model) only what computes before the first of them, and nowhere
    else (another part of the program)."""
    loops, kinds, constants = structure.loops, structure.kinds, launches.constants
    share = _shares(structure, is_turn, launches.duration)
    used = np.unique(structure.turn_kind[is_turn]).tolist()
    named = [k for k in used if kinds[k].role in (STEP, PASS)]
    layers = _kinds_of_layers(structure, is_turn, launches) if named else set()
    used = [k for k in used if k not in layers]
    large = [k for k in used if share[k] >= constants.most_ratio**2]
    if large and share[named].sum() < constants.most_ratio / 2:
        return large
    first = loops.turn_start[is_turn & np.isin(structure.turn_kind, named)].min(initial=len(launches))
    last = [loops.turn_end[is_turn & (structure.turn_kind == k)].max() for k in used]
    before = [k for k, end in zip(used, last, strict=True) if end <= first and kinds[k].has_products]
    more = [*large, *(_kinds_of_passes(structure, launches) if named else [])]
    more = [] if any(kinds[k].role == PASS for k in named) else [k for k in used if k in more]
    return sorted({*named, *more, *(k for k in before if named and share[k] >= constants.near_ratio)})


def _inside(structure: Structure, mask: np.ndarray) -> np.ndarray:
    """Which turns lie in one of ``mask``."""
    return forest_of(structure.turn_parent).inside(mask)


def _layer_loops(structure: Structure, is_turn: np.ndarray) -> np.ndarray:
    """Loops of layers, enough in a row, outside the turns that are executions; outermost ones."""
    loops = structure.loops
    is_layer = np.array([k.role in (LAYER, GRADIENTS) for k in structure.kinds], bool)[loops.kind]
    is_layer &= ~(is_turn | _inside(structure, is_turn))[loops.first]
    of_layer = np.repeat(is_layer, loops.count)
    inner = _inside(structure, of_layer)[loops.first]
    rows = np.flatnonzero(is_layer & ~inner)
    return rows[np.argsort(loops.start[rows], kind="stable")]


def _of_layers(structure: Structure, layers: np.ndarray, launches: Launches) -> tuple[Found, str]:
    """All of the sequence as one execution, where layers are most of it. A model ends otherwise than its layers do:
    turns of a single loop up to the end of the recording are runs of a part, and the executions. A layer reads what the
    one before it wrote: a turn with a buffer that is filled at length is a run, too (the cache is flushed), and so are
    turns between which, and nowhere else, the host copies or waits."""
    loops, n, constants = structure.loops, len(launches), launches.constants
    held = int((loops.end - loops.start)[layers].sum())
    if not len(layers) or loops.count[layers].max() < 2 or held < constants.most_ratio * n:
        said = f"what repeats evenly covers {held / n:.0%} of the launches only" if held else "nothing repeats evenly"
        return (layers[:0], layers[:0], layers[:0]), said
    longest = max(structure.kinds[k].period for k in loops.kind[layers].tolist())
    start, end = int(loops.start[layers].min()), int(loops.end[layers].max())
    start = 0 if start <= longest else start
    end = n if n - end <= longest else end
    whole = np.array([start]), np.array([end]), np.array([0])
    turns = np.arange(loops.first[layers[0]], loops.last[layers[0]])
    starts, ends = loops.turn_start[turns], loops.turn_end[turns]
    rows = np.arange(starts[0], ends[0])
    filled = launches.duration[rows][launches.traits.is_fill[rows]].sum()
    is_layer = is_one_layer(launches.traits, rows) and filled < constants.near_ratio * launches.duration[rows].sum()
    is_layer &= not _are_where_turns_begin(launches.marks, starts)
    if ends[-1] < n or held < constants.holds_ratio * n or len(layers) > 1 or is_layer:
        return whole, ""
    return (starts, ends, np.zeros(len(turns), np.int64)), ""


def _are_where_turns_begin(marks: np.ndarray | None, starts: np.ndarray) -> bool:
    """Whether marks of one kind stand before every turn, the first of the recording aside, and nowhere else."""
    if marks is None or len(starts) < 2:
        return False
    begins = np.isin(np.arange(marks.shape[1]), starts[1:])
    return bool((marks[:, 1:] == begins[1:]).all(axis=1).any())


def _rotated(starts: np.ndarray, ends: np.ndarray, series: np.ndarray, launches: Launches) -> Found:
    """Executions moved within their loop to where they begin: where the host pauses, or after the weights' update.

    A recording that was cut out of a running program begins and ends anywhere in a turn, and so does a loop whose first
    turn is odd."""
    parts, symbols, constants = [], launches.symbols, launches.constants
    for kind in dict.fromkeys(series.tolist()):
        mine = np.flatnonzero(series == kind)
        own_start, own_end = starts[mine], ends[mine]
        size = int(np.median(own_end - own_start))
        exact = own_start[own_end - own_start == size]
        is_cut = bool((own_end - own_start)[[0, -1]].min() < size)
        if len(exact):  # what is left at an end of the recording is a part of a turn, or something else
            turn, slack = symbols[exact[0] : exact[0] + size], 2 + round(constants.drift_ratio * size)
            head, tail = symbols[: own_start[0]], symbols[own_end[-1] :]
            for rest, part in ((head, turn[-len(head) :]), (tail, turn[: len(tail)])):
                agrees = agreement(rest, part, slack) if len(rest) > 1 else (rest == part[:1]).sum()
                is_cut |= 0 < len(rest) < size and agrees >= constants.alike_ratio * len(rest)
            # executions of another kind that end as these do: what they end with was taken for a beginning
            is_cut |= len(tail) > 1 and bool((tail[:2] == turn[:2]).all())
        # the recording begins as the turns do, and each row of them behind something else begins there anew
        anew, last = own_start[1:][own_start[1:] != own_end[:-1]], symbols[own_end[0] - 1]
        is_anew = np.isin(anew, begins_alike(symbols, symbols[:3])) & (symbols[anew - 1] != last)
        is_known = own_start[0] == 0 and len(anew) > 0 and is_anew.all()
        offset = _beginning(exact, size, launches) if is_cut and not is_known else 0
        if offset:
            own_start, own_end = _moved(own_start, own_end, offset, size, launches)
        parts.append((own_start, own_end, np.full(len(own_start), kind)))
    starts, ends, series = _sorted(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    some = ends > starts
    return starts[some], ends[some], series[some]


def _beginning(exact: np.ndarray, size: int, launches: Launches) -> int:
    """At which launch of a turn an execution begins; ``exact``: where turns of the usual length start."""
    if len(exact) < 3:
        return 0
    usual = np.median(launches.pause[exact[1:65, None] + np.arange(size)], axis=0)
    place = int(usual.argmax())
    least = max(launches.constants.clear_pause * max(usual[0], 1.0), 10 * np.median(usual))
    return place if usual[place] >= least else 0


def _moved(
    starts: np.ndarray, ends: np.ndarray, offset: int, size: int, launches: Launches
) -> tuple[np.ndarray, np.ndarray]:
    """Turns that begin ``offset`` later; what is left before the first and after the last of each loop is cut off."""
    opens = np.r_[True, starts[1:] != ends[:-1]]
    some = opens | ~np.r_[opens[1:], True] | (ends - starts >= offset)  # in others cut off no execution begins
    starts, ends, opens = starts[some], ends[some], opens[some]
    begin, symbols = np.maximum(ends - (size - offset), starts), launches.symbols
    closes = np.r_[opens[1:], True]
    stop = np.r_[begin[1:], 0]
    body = symbols[starts[len(starts) // 2] : starts[len(starts) // 2] + offset]
    for row in np.flatnonzero(closes).tolist():
        after = symbols[ends[row] : ends[row] + offset]
        stop[row] = ends[row] + int(np.argmin(np.append(after == body[: len(after)], False)))
    starts, ends = np.concatenate([starts[opens], begin]), np.concatenate([begin[opens], stop])
    some = ends - starts >= launches.constants.uneven_ratio * size
    return starts[some], ends[some]


def _up_to_updates(loops: Loops, starts: np.ndarray, ends: np.ndarray, series: np.ndarray, launches: Launches) -> Found:
    """Steps of training end where their weights are updated, whatever was lost in them: where each update bounds as
    many launches as most others, and what they end with; what is more before a step is beside it (evaluation), but for
    more turns of a row that steps hold (tokens of a roll-out)."""
    traits, constants = launches.traits, launches.constants
    last = update_ends(traits) - 1
    if len(last) < 3:
        return starts, ends, series
    size = int(np.median(np.diff(last)))
    # what follows an update up to the end of a turn, or to where the next looks tokens up
    bounds = np.union1d(np.append(ends, len(launches)), np.flatnonzero(traits.family == EMBEDDING))
    after = int(np.median(bounds[np.searchsorted(bounds, last, side="right")] - last))
    works = does_layer_work(traits, np.arange(last[0], last[0] + after)).any()  # else weights are averaged, too
    cut = last + (1 if works and after > constants.uneven_ratio * size else after)
    bounds, slack = np.r_[0, cut], round(constants.uneven_ratio * size)
    is_even = np.abs(np.diff(cut) - size) <= slack
    if is_even.mean() <= constants.most_ratio:
        return starts, ends, series
    begin, usual = bounds[:-1].copy(), cut[int(np.argmax(is_even))] + np.arange(size)
    begins = begins_alike(traits.family, traits.family[usual])
    rows = (loops.start >= usual[0]) & (loops.end <= usual[-1] + 1) & (loops.count >= constants.fewest_turns)
    rows = np.isin(loops.kind, loops.kind[rows])
    for k in np.flatnonzero(np.r_[True, ~is_even]).tolist():  # what was prepared before the first is in none
        at = begins[(begins >= bounds[k]) & (np.abs(cut[k] - begins - size) <= slack)]
        at = at[np.argmin(np.abs(cut[k] - at - size))] if len(at) else cut[k]
        if agreement(traits.family[at : cut[k]], traits.family[usual], slack) >= constants.alike_ratio * size:
            begin[k] = bounds[k] if k and (rows & (loops.start < at) & (loops.end > at)).any() else at
        elif k:
            return starts, ends, series
    kind = int(series[np.argmax(ends - starts)]) if len(series) else 0
    rest = ends <= np.append(begin, len(launches))[np.searchsorted(cut, starts, side="right")]
    starts, ends = np.r_[begin, starts[rest]], np.r_[np.minimum(cut, len(launches)), ends[rest]]
    return _sorted(starts, ends, np.r_[np.full(len(cut), kind), series[rest]])


def begins_alike(piece: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Where in a stretch the three launches stand that a turn begins with."""
    pairs = zip((piece[:-2], piece[1:-1], piece[2:]), turn[:3].tolist(), strict=False)
    return np.flatnonzero(np.logical_and.reduce([part == symbol for part, symbol in pairs]))


def _with_others(
    structure: Structure, starts: np.ndarray, ends: np.ndarray, series: np.ndarray, layers: np.ndarray,
    launches: Launches,
) -> Found:  # fmt: skip
    """With what lies before, between and after the executions and is one as well: a turn that is odd or was cut off,
    passes through layers of other kernels, and what computes and begins as an execution, or comes again."""
    loops, symbols, constants = structure.loops, launches.symbols, launches.constants
    # a first one with more in it (it tunes) is one
    whole = symbols[slice(*_usual_turn(starts, ends, series, int(series[0])))]
    is_part = ends[0] - starts[0] < constants.holds_ratio * len(whole) <= ends[0]
    is_part &= ends[0] < (1 + constants.holds_ratio) * len(whole) and symbols[0] == whole[0]
    starts, ends = np.r_[0 if is_part else starts[0], starts[1:]], ends.copy()
    begin, end = np.r_[0, ends], np.r_[starts, len(symbols)]
    traits, family, more = launches.traits, launches.traits.family, list[tuple[int, int, int]]()
    other = int(series.max()) + 1
    names: dict[int, int] = {}
    content = Hashed.of(symbols).stretches(begin, end)
    # no part of the executions, but for passes
    inner = np.append(ends, 0)[np.searchsorted(starts, loops.turn_start, side="right") - 1] >= loops.turn_end
    inner &= np.array([kind.role != PASS for kind in structure.kinds], bool)[structure.turn_kind]
    # nor those that do the same by other kernels (of another shape)
    work = [np.sort(family[kind.start : kind.end]).tobytes() for kind in structure.kinds]
    parts = {work[kind] for kind in np.unique(structure.turn_kind[inner]).tolist()}
    passes = np.isin(structure.turn_kind, [k for k in _kinds_of_passes(structure, launches) if work[k] not in parts])
    usual = {kind: _usual_turn(starts, ends, series, kind) for kind in np.unique(series).tolist()}
    sizes = {kind: turn[1] - turn[0] for kind, turn in usual.items()}
    for k in np.flatnonzero(end - begin >= constants.fewest_parts).tolist():
        a, b = int(begin[k]), int(end[k])
        near, before = (int(series[i]) for i in (min(k, len(starts) - 1), max(k - 1, 0)))
        inside = layers[(loops.start[layers] >= a) & (loops.end[layers] <= b)]
        inside = inside[loops.count[inside] >= constants.fewest_parts]
        held = loops.kind[(loops.start >= usual[near][0]) & (loops.end <= usual[near][1])]
        is_held = bool(np.isin(loops.kind[inside], held).all())
        if is_held and _is_cut(symbols, a, b, (usual[near], usual[before]), constants):
            more.append((a, b, near))
            continue
        rows = np.arange(a, b)
        works, found = np.flatnonzero(does_layer_work(traits, rows)), [np.zeros(0, np.int64)]
        for kind, turn in usual.items():  # as executions do, those of fewer samples by other kernels
            said = family if abs(b - a - sizes[kind]) <= constants.uneven_ratio * sizes[kind] else symbols
            known = said[slice(*turn)]
            alike = begins_alike(said[a:b], known)
            found.append(alike[:: max(1, len(begins_alike(known, known)))] if len(alike) else alike)
        is_again = len(rows) >= constants.fewest_launches and not len(inside)
        is_again &= 1 < (content == content[k]).sum() <= constants.most_ratio * len(starts)  # in some gaps, not in most
        begins = np.zeros(1, np.int64) if is_again else np.unique(np.concatenate(found))
        turns, kind_of = _turns_between(structure, passes, a, b), dict[int, int]()
        if (loops.turn_end - loops.turn_start)[turns].sum() >= constants.holds_ratio * (b - a):  # and what is left
            begins = _passes_of(loops.turn_start[turns], loops.turn_end[turns], b, launches) - a
            begins = np.r_[0, begins[begins <= works.max(initial=-1)]]
            kind_of = dict(zip((a + begins).tolist(), structure.turn_kind[turns].tolist(), strict=False))
        several = len(inside) > max(len(begins), 1) and not has_gradients(traits, rows)
        if len(works) and not several and len(begins) and begins[0] <= works[0]:
            stops = np.append(begins[1:], b - a)
            stops = np.minimum(stops, begins + int(np.median(stops - begins)))
            for at, stop in (a + np.stack([begins, stops], axis=1)).tolist():
                own = symbols[at:stop]
                like = [one for one, n in sizes.items() if abs(stop - at - n) <= constants.uneven_ratio * n
                        and np.isin(own, symbols[slice(*usual[one])]).mean() >= constants.holds_ratio]  # fmt: skip
                key = kind_of.get(at, int(loops.kind[inside[0]]) if len(inside) else ~at)
                number = like[0] if like else names.setdefault(key, other + len(names))
                size, _ = sizes.setdefault(number, stop - at), usual.setdefault(number, (at, stop))
                more.append((at, min(stop, at + size), number))
        elif len(inside):
            for row in inside.tolist():
                first, stop = int(loops.start[row]), int(loops.end[row])
                if len(inside) == 1:
                    size = structure.kinds[int(loops.kind[row])].period
                    first, stop = first if first - a > size else a, stop if b - stop > size else b
                number = names.setdefault(int(loops.kind[row]), other + len(names))
                more.append((first, stop, number))
                a = stop
        elif k and not len(works) and does_layer_work(traits, np.arange(*usual[before])).any():  # the rest of one
            is_rest = np.isin(family[a:b], family[slice(*usual[before])]).mean() >= constants.holds_ratio
            ends[k - 1] = b if is_rest else a
    if not more:
        return starts, ends, series
    extra = np.array(more, np.int64)
    return _sorted(*(np.concatenate([old, extra[:, c]]) for c, old in enumerate((starts, ends, series))))


def _kinds_of_passes(structure: Structure, launches: Launches) -> list[int]:
    """Kinds whose turns are passes, and others that compute and begin where the host pauses."""
    return [
        k for k, one in enumerate(structure.kinds)
        if one.role == PASS or (one.role == OTHER and one.has_products and begins_at_pauses(structure, one, launches))
    ]  # fmt: skip


def _turns_between(structure: Structure, mask: np.ndarray, a: int, b: int) -> np.ndarray:
    """The turns of ``mask`` in [a, b) that lie in no other one there, in order."""
    start, end = structure.loops.turn_start, structure.loops.turn_end
    rows = np.flatnonzero(mask & (start >= a) & (end <= b))
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    return rows[start[rows] >= np.r_[a, np.maximum.accumulate(end[rows])[:-1]]] if len(rows) else rows


def _passes_of(start: np.ndarray, end: np.ndarray, stop: int, launches: Launches) -> np.ndarray:
    """Where executions made of these turns begin, the first one aside, and what is left up to ``stop``: a turn each, or
    all up to a last layer, behind which the next one begins where the host pauses longest."""
    ends, after = _are_last_layers(start, end, stop, launches), np.r_[start[1:], stop]
    if not ends[-1]:
        return np.r_[start[1:], end[-1:]]
    pieces = zip(end[ends].tolist()[:-1], after[ends].tolist(), strict=False)
    return np.array([first + int(np.argmax(launches.pause[first : last + 1])) for first, last in pieces], np.int64)


def _are_last_layers(start: np.ndarray, end: np.ndarray, stop: int, launches: Launches) -> np.ndarray:
    """Layers end before a pass does: behind which turns something computes that is shorter than half of one."""
    after, works = np.r_[start[1:], stop], does_layer_work(launches.traits, np.arange(len(launches)))
    works = np.r_[0, np.cumsum(works)]
    return (works[after] > works[end]) & (after - end < launches.constants.most_ratio * (end - start))


def _kinds_of_layers(structure: Structure, is_turn: np.ndarray, launches: Launches) -> set[int]:
    """Kinds of turns in rows that all end with a last layer, those that are made of loops aside."""
    loops, turns = structure.loops, np.flatnonzero(is_turn)
    turns = turns[np.argsort(loops.turn_start[turns], kind="stable")]
    start, end, kind = loops.turn_start[turns], loops.turn_end[turns], structure.turn_kind[turns]
    in_row = end == np.r_[start[1:], -1]
    others = kind[~in_row & ~_are_last_layers(start, end, len(launches), launches)]
    least, kinds = launches.constants.most_ratio, structure.kinds
    return {k for k in set(kind[in_row]) - set(others) if _in_loops(structure, kinds[k]) < least * kinds[k].period}


def _usual_turn(starts: np.ndarray, ends: np.ndarray, series: np.ndarray, kind: int) -> tuple[int, int]:
    """An execution of a series of the usual length."""
    mine = np.flatnonzero(series == kind)
    length = ends[mine] - starts[mine]
    row = mine[np.flatnonzero(length == np.sort(length)[len(length) // 2])[0]]
    return int(starts[row]), int(ends[row])


def _is_cut(symbols: np.ndarray, a: int, b: int, turns: Iterable[tuple[int, int]], constants: Constants) -> bool:
    """Whether [a, b) is what was recorded of an execution that was cut off at an end of the recording."""
    piece = symbols[a:b]
    for turn in [symbols[slice(*turn)] for turn in turns]:
        slack, least = 2 + round(constants.drift_ratio * len(turn)), max(len(turn) // 10, 3)
        parts = [turn[-len(piece) :]] * (a == 0) + [turn[: len(piece)]] * (b == len(symbols))
        if least <= len(piece) < len(turn) >= 2 * constants.fewest_parts and any(
            agreement(piece, part, slack) >= constants.alike_ratio * len(piece) for part in parts
        ):
            return True
    return False


def _classified(starts: np.ndarray, ends: np.ndarray, series: np.ndarray, launches: Launches) -> Executions:
    """Executions with their class: the first or the last one that was cut off is a tail, others that differ are odd."""
    content, n = Hashed.of(launches.symbols).stretches(starts, ends), len(launches)
    classes = np.full(len(starts), REGULAR, object)
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(series.tolist()))}
    typical = []
    for kind in numbers:
        mine = np.flatnonzero(series == kind)
        values, first, often = np.unique(content[mine], return_index=True, return_counts=True)
        best = int(np.argmax(often))
        length = ends[mine] - starts[mine]
        usual = int(length[first[best]]) if often[best] > 1 else int(np.median(length))
        pick = mine[content[mine] == values[best]]
        pick = pick if often[best] > 1 else mine[np.argsort(np.abs(length - usual), kind="stable")[:1]]
        typical.append(int(pick[len(pick) // 2]))
        differs = np.abs(length - usual) > np.maximum(4, launches.constants.uneven_ratio * usual)
        classes[mine[differs]] = ODD
        if differs[0] and starts[mine[0]] == 0 and length[0] < launches.constants.holds_ratio * usual:
            classes[mine[0]] = TAIL
        if differs[-1] and n - ends[mine[-1]] <= launches.constants.uneven_ratio * usual and length[-1] < usual:
            classes[mine[-1]] = TAIL
    return Executions(starts, ends, np.array([numbers[k] for k in series.tolist()], np.int64), classes, typical)
