"""Executions and loops of one sequence → rows of a tree: executions, their phases, blocks, parts and what is between.

The rows hold positions in the sequence; `nodes` adds times, counts and names of other sequences.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.intervals import nest
from xsp_post.tree.structure.executions import LAYER as IS_LAYER
from xsp_post.tree.structure.executions import Executions, Kind, Launches, Structure, begins_alike
from xsp_post.tree.structure.hashes import Hashed
from xsp_post.tree.structure.labels import (
    BACKWARD,
    FORWARD,
    are_convolutions,
    are_products,
    block_word,
    does_layer_work,
    family_label,
    guess_type,
    has_gradients,
    is_network,
    is_one_layer,
    is_part_of_network,
    parts_of_block,
    phases,
    with_softmax,
)

_MOST_CARRIED = 256  # executions of a series
_MOST_ALIGNED = 1 << 25  # launches of one, times the shifts by which it is aligned
_AROUND = 8  # launches on either side of one by which it is aligned

ITERATION, PHASE, BLOCK, PART, STRETCH, AROUND = 0, 1, 2, 3, 4, 5
KIND_NAMES = np.array(["iteration", "phase", "block", "part", "stretch", "around"], dtype=object)
COLUMNS = {
    "start": np.int64, "end": np.int64, "kind": np.int8, "iteration_index": np.int64, "series_index": np.int64,
    "loop_kind": np.int64, "level": object, "name": object, "folded_name": object, "layer_type": object,
    "iteration_class": object, "block_index": np.int64, "block_count": np.int64, "matched_block_index": np.int64,
    "content": np.uint64, "confidence": np.float64,
}  # fmt: skip


@dataclass
class Sequence(Launches):
    """Launches that follow one another: rows of the launch frame in order, and what was found in them."""

    rows: np.ndarray
    launch_start: np.ndarray
    launch_end: np.ndarray
    structure: Structure
    executions: Executions
    process_index: int
    has_operator: np.ndarray  # whether an operator that may be a layer was recorded around each launch
    phase_of_series: tuple[str, ...] = ()  # where known: what the executions of each series are
    homes: np.ndarray | None = None  # number of the recorded range that each execution stands for; none: inferred

    def label(self, start: int, end: int) -> str:
        """Families of the launches [start, end) in words."""
        return family_label(with_softmax(self.traits, np.arange(start, end)), self.duration[start:end])


def _frame(count: int, **columns: object) -> pd.DataFrame:
    given = {"loop_kind": -1, **columns}
    made = {name: np.full(count, given.get(name, "" if kind is object else 0), kind) for name, kind in COLUMNS.items()}
    # a Series of a stated dtype: pandas looks into no text
    return pd.DataFrame({name: pd.Series(made[name], dtype=kind, copy=False) for name, kind in COLUMNS.items()})


def outline_of(sequence: Sequence) -> pd.DataFrame:
    """All rows of a sequence, parents before children: `COLUMNS` and parent (row, −1 top), depth."""
    found = sequence.executions
    if not len(found):
        return _nested(_frame(0))
    tops = _iterations(sequence)
    phase_rows = _phases(sequence)
    homes = pd.concat([tops, phase_rows], ignore_index=True)
    blocks = _blocks(sequence, homes)
    starts, ends = (np.append(np.sort(phase_rows[c].to_numpy()), len(sequence) + 1) for c in ("start", "end"))
    blocks = blocks[ends[np.searchsorted(starts, blocks["start"])] > blocks["end"]]  # a phase lies in no block
    sequence, blocks = _with_products(sequence, homes, blocks)
    sequence, blocks = _with_odd_layers(sequence, homes, blocks)
    blocks = _carried_over(sequence, blocks)
    is_group = np.array([kind.holds_layers or kind.around for kind in sequence.structure.kinds] + [False], bool)
    is_group = is_group[blocks["loop_kind"].to_numpy()]
    between = [_stretches(sequence, homes, blocks), _stretches(sequence, blocks[is_group], blocks[~is_group])]
    frames = [tops, phase_rows, blocks, *between, _parts(sequence, blocks)]
    return _described(sequence, _nested(pd.concat([f for f in frames if len(f)], ignore_index=True)))


# ---------------------------------------------------------------- rows


def _iterations(sequence: Sequence) -> pd.DataFrame:
    found = sequence.executions
    names = np.array(series_names(sequence), object)[found.series]
    number = pd.Series(found.series).groupby(found.series).cumcount().to_numpy()
    return _frame(
        len(found), start=found.starts, end=found.ends, kind=ITERATION, iteration_index=np.arange(len(found)),
        series_index=found.series, level="MODEL", folded_name=names, iteration_class=found.classes,
        name=np.array([f"{n} {k}" for n, k in zip(names.tolist(), number.tolist(), strict=True)], object),
        content=Hashed.of(sequence.symbols).stretches(found.starts, found.ends),
        confidence=round(found.chance * (1 - 0.5 ** len(found)), 2),
    )  # fmt: skip


def series_names(sequence: Sequence) -> list[str]:
    """One name per series: ``training step`` with a backward pass, else ``iteration``; told apart by size or number."""
    found, names = sequence.executions, []
    sizes = [int(found.ends[row] - found.starts[row]) for row in found.typical]
    for row in found.typical:
        rows = np.arange(found.starts[row], found.ends[row])
        trains = sequence.traits.is_optimiser[rows].any() and sequence.traits.is_backward[rows].any()
        names.append("training step" if trains else "iteration")
    kinds = pd.Series(sizes).groupby(np.array(names, object)).nunique()
    named = [f"{n} ({s:,} kernels)" if kinds[n] > 1 else n for n, s in zip(names, sizes, strict=True)]
    nth = [named[:number].count(name) + 1 for number, name in enumerate(named)]
    return [f"{name} ({k})" if k > 1 else name for name, k in zip(named, nth, strict=True)]


def _phases(sequence: Sequence) -> pd.DataFrame:
    """Forward, backward and optimiser of each execution that has them."""
    found = sequence.executions
    rows: list[tuple[int, int, int, str]] = []
    for series, typical in enumerate(found.typical):
        if sequence.phase_of_series and sequence.phase_of_series[series]:
            continue
        start, end = int(found.starts[typical]), int(found.ends[typical])
        usual = _phases_of(sequence, start, end)
        if not usual:
            continue
        for row in np.flatnonzero(found.series == series).tolist():
            first, last = int(found.starts[row]), int(found.ends[row])
            own = usual if last - first == end - start else _phases_of(sequence, first, last)
            rows += [(row, first + a, first + b, label) for a, b, label in own]
    if not rows:
        return _frame(0)
    index, starts, ends, labels = (np.array(c) for c in zip(*rows, strict=True))
    return _frame(
        len(rows), start=starts, end=ends, kind=PHASE, iteration_index=index, series_index=found.series[index],
        level="MODULE", name=labels.astype(object), folded_name=np.char.partition(labels, " ")[:, 0].astype(object),
        confidence=0.8,
    )  # fmt: skip


def _phases_of(sequence: Sequence, start: int, end: int) -> list[tuple[int, int, str]]:
    rows = np.arange(start, end)
    return phases(sequence.thread[rows], sequence.traits, rows) if is_network(sequence.traits, rows) else []


def _blocks(sequence: Sequence, homes: pd.DataFrame) -> pd.DataFrame:
    """Turns of the loops inside executions and their phases, those that do a layer's work or hold much of them."""
    loops, structure = sequence.structure.loops, sequence.structure
    if not len(loops):
        return _frame(0)
    start, end = homes["start"].to_numpy(), homes["end"].to_numpy()
    around = nest(np.zeros(len(homes), np.int64), 2 * start, 2 * end - 1)
    turn_loop = np.repeat(np.arange(len(loops)), loops.count)
    home = around.innermost(np.zeros(len(loops), np.int64), 2 * loops.start, 2 * loops.end - 1)
    # a loop may begin before its execution, or hold several: there its turns are looked at one by one
    own = around.innermost(np.zeros(len(turn_loop), np.int64), 2 * loops.turn_start, 2 * loops.turn_end - 1)
    home_of_turn = np.where(home[turn_loop] >= 0, home[turn_loop], own).astype(np.int64)
    is_whole = loops.turn_end - loops.turn_start >= sequence.constants.holds_ratio * (end - start)[home_of_turn]
    in_home = (home_of_turn >= 0) & ~is_whole
    # outermost turns first: those not inside another turn of the same home
    parent = structure.turn_parent
    same_home = (parent >= 0) & in_home[parent] & (home_of_turn[parent] == home_of_turn)
    works = np.concatenate([[0], np.cumsum(does_layer_work(sequence.traits, np.arange(len(sequence.symbols))))])
    time = np.concatenate([[0], np.cumsum(np.maximum(sequence.duration, 1))])
    kind = structure.turn_kind
    size = time[loops.turn_end] - time[loops.turn_start]
    room = time[end[home_of_turn]] - time[start[home_of_turn]]
    keep = np.zeros(len(kind), bool)
    top = in_home & ~same_home
    is_layer = np.array([k.role == IS_LAYER for k in structure.kinds], bool)[kind]
    is_around, holds = np.array([(k.around, k.holds_layers) for k in structure.kinds], bool).T
    loop_size = np.bincount(turn_loop, weights=np.where(in_home, size, 0), minlength=len(loops))
    large = loop_size[turn_loop] >= sequence.constants.large_ratio * room
    worth = (works[loops.turn_end] > works[loops.turn_start]) | large
    several = (loops.count[turn_loop] >= 2) | is_layer
    keep[top] = (worth & several)[top]
    for _ in range(3):
        shown = (loops.count[turn_loop] >= 2) | holds[kind] | (is_around[kind[parent]] | is_layer & holds[kind[parent]])
        inner = same_home & keep[parent] & shown
        keep |= inner & (loop_size[turn_loop] >= sequence.constants.large_ratio * size[parent])
        # what lies in a turn that is left out takes its place
        left = same_home & ~keep & ~keep[parent] & top[parent] & worth & several
        top |= left
        keep |= left
    rows = np.flatnonzero(keep)
    budget = max(50_000, len(sequence.symbols) // 2)
    if len(rows) > budget:
        rows = np.flatnonzero(keep & ~same_home)
        rows = rows if len(rows) <= budget else rows[:0]
    rows = rows[np.argsort(loops.turn_start[rows], kind="stable")]
    owner = homes["iteration_index"].to_numpy()[home_of_turn[rows]]
    return _frame(
        len(rows), start=loops.turn_start[rows], end=loops.turn_end[rows], kind=BLOCK, iteration_index=owner,
        series_index=sequence.executions.series[owner], loop_kind=kind[rows],
        content=(kind[rows] + 1).astype(np.uint64),
    )  # fmt: skip


def _with_products(sequence: Sequence, homes: pd.DataFrame, blocks: pd.DataFrame) -> tuple[Sequence, pd.DataFrame]:
    """Where convolutions lead a forward pass, and no kind of block holds most of its products (several each, no more
    than it has turns: such a turn is a pass, unless it is one attention's; or one in a row), the products are the
    layers: their operators, where recorded, else with a kind for each family. Products that follow one another
    directly are one: a convolution with what transforms its input."""
    traits, constants, kinds = sequence.traits, sequence.constants, sequence.structure.kinds
    products = np.flatnonzero(are_products(traits, np.arange(len(sequence))))
    apart = products[np.diff(products, prepend=-2) > 1]
    groups = np.array([kind.holds_layers for kind in kinds] + [False], bool)
    attends = np.array([is_one_layer(traits, np.arange(k.start, k.end), may_look_up=True) for k in kinds], bool)
    has_phase = homes["iteration_index"].isin(homes["iteration_index"][homes["kind"] == PHASE])
    found = []
    for _, alike in homes[(homes["kind"] == PHASE) | ~has_phase].groupby(["series_index", "folded_name"], sort=False):
        first, last = alike["start"].to_numpy(), alike["end"].to_numpy()
        rows = np.arange(first[len(alike) // 2], last[len(alike) // 2])
        own, length = np.intersect1d(apart, rows), sequence.duration[np.intersect1d(products, rows)]
        is_led = sequence.duration[rows[are_convolutions(traits, rows)]].sum() >= constants.most_ratio * length.sum()
        if has_gradients(traits, rows) or not is_led or len(own) < constants.fewest_turns:
            continue
        inside = blocks[(blocks["start"] >= rows[0]) & (blocks["end"] <= rows[-1] + 1)]
        inside = inside[~groups[inside["loop_kind"]]]
        at, stop = (np.searchsorted(own, inside[column]) for column in ("start", "end"))
        held = pd.DataFrame({"kind": inside["loop_kind"], "at": at, "count": stop - at})
        place = held.groupby("kind")["at"]
        often = place.transform("size")
        is_row = (place.transform("max") - place.transform("min") < often) | attends[inside["loop_kind"]]
        most = held[is_row | held["count"].between(2, often)].groupby("kind")["count"].sum().max()
        if most >= constants.most_ratio * len(own):
            continue
        around = np.searchsorted(first, blocks["start"], side="right") - 1
        blocks = blocks[(around < 0) | (blocks["end"] > last[around])]
        found.append(_of_products(sequence, apart, alike))
    if found:
        blocks = pd.concat([blocks, *found]).sort_values("start", kind="stable")
        families = [Kind(IS_LAYER, 0, 0, 0, has_products=True) for _ in range(int(traits.family.max()) + 1)]
        sequence = replace(sequence, structure=replace(sequence.structure, kinds=[*kinds, *families]))
    return sequence, blocks


def _of_products(sequence: Sequence, products: np.ndarray, homes: pd.DataFrame) -> pd.DataFrame:
    """A layer for each product in the homes, up to the next one, but for those whose operators were recorded. All begin
    as the home does, and a last one is as long as usual."""
    first, last, owner = (homes[column].to_numpy() for column in ("start", "end", "iteration_index"))
    home = np.searchsorted(first, products, side="right") - 1
    inside = (home >= 0) & (products < last[home])
    begin, home = products[inside], home[inside]
    family, is_told = sequence.traits.family[begin], sequence.has_operator[begin]
    own, sooner = begin[home == len(homes) // 2], 0
    while own[0] - sooner > first[len(homes) // 2] and len(np.unique(sequence.traits.plain[own - sooner - 1])) == 1:
        sooner += 1
    begin = np.maximum(begin - sooner, first[home])
    is_last, end = np.r_[home[1:] != home[:-1], True], np.r_[begin[1:], 0]
    usual = int(np.median((end - begin)[~is_last]))
    end[is_last] = np.minimum(last[home], begin + usual)[is_last]
    kind = len(sequence.structure.kinds) + family.astype(np.int64)
    return _frame(
        len(begin), start=begin, end=end, kind=BLOCK, iteration_index=owner[home], loop_kind=kind,
        series_index=homes["series_index"].to_numpy()[home], content=(kind + 1).astype(np.uint64),
    )[~is_told]  # fmt: skip


def _with_odd_layers(sequence: Sequence, homes: pd.DataFrame, blocks: pd.DataFrame) -> tuple[Sequence, pd.DataFrame]:
    """What stands between two layers of one kind, does such a layer's work and is about as long, is a layer, too: a
    dense one among those with experts, one with another number of products. So is what stands before a first one and
    begins as it does, or behind a last one and ends as it does."""
    kinds, traits, most = sequence.structure.kinds, sequence.traits, sequence.constants.most_ratio
    groups = np.array([kind.holds_layers or kind.around for kind in kinds] + [False], bool)
    layers = blocks[~groups[blocks["loop_kind"]]].sort_values(["start", "end"], ascending=[True, False], kind="stable")
    layers = layers[layers["start"] >= layers["end"].cummax().shift(fill_value=0)]  # none lies in another one
    usual = (layers["end"] - layers["start"]).groupby(layers["loop_kind"]).median()
    rest, symbols, n = _stretches(sequence, homes, layers), sequence.symbols, len(sequence)
    kind, after = (
        rest[edge].map(layers.set_index(side)["loop_kind"]) for edge, side in (("start", "end"), ("end", "start"))
    )
    is_near = (kind == after) & (((rest["end"] - rest["start"]) / kind.map(usual) - 1).abs() <= most)
    first, last = (rest.assign(loop_kind=known)[~is_near & known.notna()] for known in (after, kind))
    first["start"] = first["end"] - _before(symbols, first["start"], first["end"], first["loop_kind"].map(usual))
    back = (symbols[::-1], n - last["end"], n - last["start"])
    last["end"] = last["start"] + _before(*back, last["loop_kind"].map(usual))
    odd = pd.concat([rest.assign(loop_kind=kind)[is_near], first, last]).drop_duplicates("start")
    odd = odd[((odd["end"] - odd["start"]) / odd["loop_kind"].map(usual) - 1).abs() <= most]
    content = Hashed.of(symbols).stretches(odd["start"].to_numpy(), odd["end"].to_numpy())
    is_layer = np.zeros(len(odd), bool)
    for row in np.unique(content, return_index=True)[1].tolist():
        like, rows = kinds[int(odd["loop_kind"].iloc[row])], np.arange(*odd[["start", "end"]].iloc[row])
        attends = like.period and is_one_layer(traits, np.arange(like.start, like.end), may_look_up=True)
        works = is_one_layer(traits, rows) if attends else are_products(traits, rows).any()
        is_layer[content == content[row]] = works and is_part_of_network(traits, rows)
    if is_layer.any():
        odd = odd[is_layer].assign(kind=BLOCK, loop_kind=len(kinds), content=np.uint64(len(kinds) + 1))
        blocks = pd.concat([blocks, odd]).sort_values("start", kind="stable")
        kinds = [*kinds, Kind(IS_LAYER, 0, 0, 0, has_products=True)]
        sequence = replace(sequence, structure=replace(sequence.structure, kinds=kinds))
    return sequence, blocks


def _before(symbols: np.ndarray, *columns: pd.Series) -> np.ndarray:
    """How many launches before the end of a stretch (start, end, size of a layer) it begins as what follows it does:
    of such places the one that is about one layer before, else 0."""
    start, end, size = (column.to_numpy() for column in columns)
    content = Hashed.of(symbols).stretches(start, np.minimum(end + 3, len(symbols)))
    _, rows, number = np.unique(content, return_index=True, return_inverse=True)
    found = np.zeros(len(rows), np.int64)
    for k, row in enumerate(rows.tolist()):
        far = end[row] - start[row] - begins_alike(symbols[start[row] : end[row]], symbols[end[row] : end[row] + 3])
        found[k] = far[np.argmin(np.abs(far - size[row]))] if len(far) else 0
    return found[number]


def _carried_over(sequence: Sequence, blocks: pd.DataFrame) -> pd.DataFrame:
    """Executions of one series hold the same blocks: where rows were lost or added, and fewer are found, those of the
    execution in which they cover most stand, aligned by their launches."""
    found, owner = sequence.executions, blocks["iteration_index"].to_numpy()
    count, size = np.bincount(owner, minlength=len(found)), found.ends - found.starts
    groups = np.array([kind.holds_layers for kind in sequence.structure.kinds] + [False], bool)
    length = np.where(groups[blocks["loop_kind"].to_numpy()], 0, (blocks["end"] - blocks["start"]).to_numpy())
    covered = np.bincount(owner, weights=length, minlength=len(found)) / size
    frames, is_old = [], np.zeros(len(found), bool)
    for series in range(len(found.typical)):
        mine = np.flatnonzero(found.series == series)
        like = int(mine[int(np.argmax(covered[mine]))])
        few = mine[count[mine] < count[like]]
        few = few[np.abs(size[few] - size[like]) <= sequence.constants.uneven_ratio * size[like]]
        own = blocks[owner == like]
        start, end = (own[column].to_numpy() - found.starts[like] for column in ("start", "end"))
        known = sequence.symbols[found.starts[like] : found.ends[like]]
        for row in few[:_MOST_CARRIED].tolist():
            slack = 2 + max(round(sequence.constants.drift_ratio * size[like]), int(abs(size[row] - size[like])))
            if slack * size[row] > _MOST_ALIGNED:
                continue
            met = _met(known, sequence.symbols[found.starts[row] : found.ends[row]], slack)
            place = np.flatnonzero(met >= 0)
            first, last = np.searchsorted(met[place], start), np.searchsorted(met[place], end)
            keep = last - first >= sequence.constants.alike_ratio * (end - start)
            place = np.append(place, size[row]) + found.starts[row]
            stop = np.where(np.isin(end, start), place[last], place[last - 1] + 1)
            moved = own.assign(start=place[first], end=stop, iteration_index=row)[keep]
            if len(moved) > count[row]:
                frames.append(moved)
                is_old[row] = True
    return pd.concat([blocks[~is_old[owner]], *frames], ignore_index=True) if frames else blocks


def _met(known: np.ndarray, other: np.ndarray, slack: int) -> np.ndarray:
    """Position in ``known`` of each symbol of ``other``, ascending, −1 none: how far it is moved, at most ``slack``, is
    what agrees best with the symbols around it."""
    at, shifts = np.arange(len(other)), np.array(sorted(range(-slack, slack + 1), key=abs))[:, None]
    place = np.clip(at + shifts, 0, len(known) - 1)
    agrees = np.pad(np.cumsum((known[place] == other) & (place == at + shifts), axis=1), ((0, 0), (1, 0)))
    first, last = np.maximum(at - _AROUND, 0), np.minimum(at + _AROUND + 1, len(other))
    met = at + shifts[np.argmax(agrees[:, last] - agrees[:, first], axis=0), 0]
    is_met = (met >= 0) & (met < len(known)) & (met == np.maximum.accumulate(met))
    return np.where(is_met & (known[np.clip(met, 0, len(known) - 1)] == other), met, -1)


def _stretches(sequence: Sequence, homes: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """What lies before, between and after the outermost blocks of executions and phases, or of groups of blocks."""
    if not len(blocks) or not len(homes):
        return _frame(0)
    has_phase = np.isin(homes["iteration_index"], homes["iteration_index"][homes["kind"] == PHASE])
    homes = homes[(homes["kind"] == PHASE) | ~has_phase]
    start, end = homes["start"].to_numpy(), homes["end"].to_numpy()
    order = np.argsort(start, kind="stable")
    start, end, index = start[order], end[order], homes["iteration_index"].to_numpy()[order]
    first, last = blocks["start"].to_numpy(), blocks["end"].to_numpy()
    order = np.lexsort((-last, first))
    first, last = first[order], np.maximum.accumulate(last[order])
    at = np.searchsorted(start, first, side="right") - 1
    used = distinct(at[at >= 0])
    # edges: the home's own ends and every block's
    begin = np.r_[start[used], last]
    order = np.argsort(begin, kind="stable")
    begin = distinct(begin[order])
    following = np.searchsorted(first, begin)
    stop = np.append(first, np.iinfo(np.int64).max)[following]
    home = np.searchsorted(start, begin, side="right") - 1
    stop = np.minimum(stop, end[np.maximum(home, 0)])
    some = (home >= 0) & (stop > begin) & np.isin(home, used)
    begin, stop, home = begin[some], stop[some], home[some]
    is_first = begin == start[home]
    is_last = stop == end[home]
    where = np.select([is_first, is_last], ["before the blocks", "after the blocks"], "between the blocks")
    owner = index[home]
    number = pd.DataFrame({"h": home, "w": where}).groupby(["h", "w"]).cumcount().to_numpy()
    folded = np.array([w if not k or w != "between the blocks" else f"{w} ({k + 1})"
                       for w, k in zip(where.tolist(), number.tolist(), strict=True)], object)  # fmt: skip
    return _frame(
        len(begin), start=begin, end=stop, kind=STRETCH, iteration_index=owner,
        series_index=sequence.executions.series[owner], name=folded, folded_name=folded,
        block_index=number, confidence=0.9,
    )  # fmt: skip


def _parts(sequence: Sequence, blocks: pd.DataFrame) -> pd.DataFrame:
    """Attention and MLP inside the blocks: of a typical block of each kind and length, in all like it."""
    frames = []
    kinds, start, end = (blocks[c].to_numpy() for c in ("loop_kind", "start", "end"))
    sizes, of_size = np.unique(np.stack([kinds, end - start]), axis=1, return_inverse=True)
    for number, (kind, usual) in enumerate(sizes.T.tolist()):
        mine = np.flatnonzero(of_size == number)
        known = sequence.structure.kinds[kind]
        if known.holds_layers or known.around or len(mine) < 2:
            continue
        typical = int(start[mine[len(mine) // 2]])
        rows = np.arange(typical, typical + usual)
        cuts = parts_of_block(sequence.traits, rows, sequence.duration[rows], sequence.symbols[rows])
        for first, last, word in cuts:
            owner = blocks["iteration_index"].to_numpy()[mine]
            frames.append(_frame(
                len(mine), start=start[mine] + first, end=start[mine] + last, kind=PART, iteration_index=owner,
                series_index=sequence.executions.series[owner], name=word, folded_name=word, layer_type=word,
                loop_kind=kind, confidence=0.9,
            ))  # fmt: skip
    return pd.concat(frames, ignore_index=True) if frames else _frame(0)


# ---------------------------------------------------------------- nesting, names


def _nested(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``parent`` and ``depth``, parents first; rows that cross another one are left out."""
    rank = np.array([0, 1, 3, 4, 2, 5])[rows["kind"].to_numpy()]
    order = np.lexsort((rank, -rows["end"].to_numpy(), rows["start"].to_numpy()))
    rows = rows.iloc[order].reset_index(drop=True)
    start, end = rows["start"].to_numpy(), rows["end"].to_numpy()
    nesting = nest(np.zeros(len(rows), np.int64), 2 * start, 2 * end - 1)
    return rows.assign(parent=nesting.parent.astype(np.int64), depth=nesting.depth.astype(np.int64))


def _described(sequence: Sequence, rows: pd.DataFrame) -> pd.DataFrame:
    """Levels, names, numbers and confidence of blocks and stretches."""
    found, structure = sequence.executions, sequence.structure
    kind, parent, series = (rows[c].to_numpy() for c in ("kind", "parent", "series_index"))
    start, end, loop_kind = (rows[c].to_numpy() for c in ("start", "end", "loop_kind"))
    is_block = kind == BLOCK
    network = np.array([is_network(sequence.traits, np.arange(found.starts[t], found.ends[t])) for t in found.typical])
    network = network[series] if len(network) else np.zeros(len(rows), bool)
    # levels: the outermost blocks are layers, unless they hold blocks that are, or phases
    groups = np.array([k.holds_layers or k.around for k in structure.kinds] + [False], bool)
    groups[:-1] |= _hold_more_layers(sequence, rows, is_block)
    groups = groups[loop_kind] & is_block
    closed = np.zeros(len(rows), bool)  # lies in a layer
    level = rows["level"].to_numpy().copy()
    for depth in range(1, int(rows["depth"].to_numpy().max(initial=0)) + 1):
        mine = np.flatnonzero(rows["depth"].to_numpy() == depth)
        up = parent[mine]
        closed[mine] = closed[up] | (level[up] == "LAYER")
        shown = np.where(network[mine] & ~groups[mine], "LAYER", "MODULE")
        shown = np.where(closed[mine] | (kind[mine] == PART), "OPERATION", shown)
        level[mine] = np.where(kind[mine] == PHASE, "MODULE", shown)
    rows["level"] = level
    if is_block.any():
        _number_blocks(rows, is_block, parent, loop_kind, start)
        _name_blocks(sequence, rows, is_block, network, loop_kind, start, end)
    stretch = np.flatnonzero(kind == STRETCH)
    if len(stretch):
        spans = [np.arange(a, b) for a, b in zip(start[stretch].tolist(), end[stretch].tolist(), strict=True)]
        guesses = [guess_type(sequence.traits, span, sequence.duration[span]) for span in spans]
        rows.loc[stretch, "layer_type"] = np.where(network[stretch], guesses, "")
    return rows


def _hold_more_layers(sequence: Sequence, rows: pd.DataFrame, is_block: np.ndarray) -> np.ndarray:
    """Kinds of blocks that hold blocks of several products of another kind which repeat more often and cover more: of
    the time covered what one of them in each execution does not describe; those with the role of a layer hold experts,
    but for layers. bool per kind."""
    kinds, parent, start, end = (rows[c].to_numpy() for c in ("loop_kind", "parent", "start", "end"))
    count = len(sequence.structure.kinds)
    mine, time = np.flatnonzero(is_block), np.r_[0, np.cumsum(sequence.duration)]
    held = np.bincount(kinds[mine], weights=(time[end] - time[start])[mine], minlength=count)
    saved = held * (1 - len(sequence.executions) / np.maximum(np.bincount(kinds[mine], minlength=count), 1))
    spans = [np.arange(kind.start, kind.end) for kind in sequence.structure.kinds]
    has_products = np.array([are_products(sequence.traits, span).sum() > 1 for span in spans], bool)
    is_layer = np.array([kind.role == IS_LAYER for kind in sequence.structure.kinds], bool)
    inner = mine[is_block[np.maximum(parent[mine], 0)] & (parent[mine] >= 0) & has_products[kinds[mine]]]
    inner = inner[is_layer[kinds[inner]] | ~is_layer[kinds[parent[inner]]]]
    most = np.zeros(count)
    np.maximum.at(most, kinds[parent[inner]], saved[kinds[inner]])
    return most > np.maximum(saved, 0)


def _number_blocks(
    rows: pd.DataFrame, is_block: np.ndarray, parent: np.ndarray, loop_kind: np.ndarray, start: np.ndarray
) -> None:
    at = np.flatnonzero(is_block)
    group = pd.DataFrame({"p": parent[at], "k": loop_kind[at]}).groupby(["p", "k"], sort=False)
    index = group.cumcount().to_numpy() + 1
    count = group["p"].transform("size").to_numpy()
    block_index, block_count = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    block_index[at], block_count[at] = index, count
    rows["block_index"], rows["block_count"] = block_index, block_count
    covered = pd.Series((rows["end"] - rows["start"]).to_numpy()[at]).groupby(parent[at]).transform("sum").to_numpy()
    holder = np.maximum(parent[at], 0)
    is_most = covered >= 0.5 * (rows["end"] - rows["start"]).to_numpy()[holder]
    confidence = rows["confidence"].to_numpy().copy()
    confidence[at] = np.round((1 - 0.5 ** (count / 2)) * np.where(is_most, 1.0, 0.8), 2)
    rows["confidence"] = confidence
    up = parent[at]
    name = np.char.partition(np.append(rows["name"].to_numpy(), "").astype(str), " ")[:, 0]
    phase = np.where((rows["kind"].to_numpy()[up] == PHASE) & (up >= 0), name[up], "")
    matched = np.zeros(len(rows), np.int64)
    matched[at] = matched_blocks(rows["iteration_index"].to_numpy()[at], phase, count, index)
    rows["matched_block_index"] = matched


def matched_blocks(step: np.ndarray, phase: np.ndarray, count: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Of each block (k of n, its ``index`` of ``count``) of a backward pass the forward block that it belongs to: block
    n + 1 − k, where the forward pass of the step has n; 0 none."""
    frame = pd.DataFrame({"step": step, "count": np.where(phase == FORWARD, count, 0)})
    forward = frame.groupby("step")["count"].transform("max").to_numpy()
    return np.where((phase == BACKWARD) & (count == forward), count + 1 - index, 0)


def _name_blocks(
    sequence: Sequence, rows: pd.DataFrame, is_block: np.ndarray, network: np.ndarray, loop_kind: np.ndarray,
    start: np.ndarray, end: np.ndarray,
) -> None:  # fmt: skip
    """Each kind of block is called by what holds its time, and whether it is of a backward pass; further kinds of one
    name get a number."""
    names, types, level = (rows[column].to_numpy().copy() for column in ("name", "layer_type", "level"))
    folded = rows["folded_name"].to_numpy().copy()
    used: dict[str, int] = {}
    for kind in dict.fromkeys(loop_kind[is_block].tolist()):
        mine = np.flatnonzero(is_block & (loop_kind == kind))
        size = end[mine] - start[mine]
        row = mine[np.argsort(np.abs(size - np.median(size)), kind="stable")[0]]
        at = np.arange(start[row], end[row])
        is_turn = bool(rows["block_count"].to_numpy()[row] > 2)
        guess = guess_type(sequence.traits, at, sequence.duration[at], is_turn=is_turn) if network[row] else ""
        word = block_word(guess, sequence.label(int(start[row]), int(end[row])), bool(network[row]))
        back = ", backward" * has_gradients(sequence.traits, at)
        if network[row] and level[row] == "MODULE":
            word, back = "backward pass" if back else "pass", ""
        used[word + back] = nth = used.get(word + back, 0) + 1
        noun, dot, kernels = word.partition(" · ")
        shown = f"{noun}{f' ({nth})' * (nth > 1)}{back}{dot}{kernels}"
        names[mine] = [f"{shown} {k}/{n}" for k, n in
                       zip(rows["block_index"].to_numpy()[mine].tolist(), rows["block_count"].to_numpy()[mine].tolist(),
                           strict=True)]  # fmt: skip
        folded[mine], types[mine] = shown, guess
    rows["name"], rows["folded_name"], rows["layer_type"] = names, folded, types
