"""Trace → Tree, step "looked into": what repeats where ranges do not say what an execution or a layer is.

Three places are looked into, in this order: what lies outside every range, ranges that are executions by their place
alone and may hold several passes (`benchmark_loop`), and ranges that hold much device work but no layers (a phase, a
compiled region, a model). What is found becomes nodes below them (`insertion`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.statistics import medians
from xsp_post.model.kinds import PHASES
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind, SpanKind, Trace
from xsp_post.model.tree import Attribution, NodeKind
from xsp_post.tree import layering
from xsp_post.tree.draft import Draft, hints, launch_columns, without_launches
from xsp_post.tree.executions import OUTERMOST, TRAINING
from xsp_post.tree.insertion import inserted
from xsp_post.tree.node_names import NodeNames, without_numbers
from xsp_post.tree.operator_blocks import inside_of, name_by_operators, open_operators
from xsp_post.tree.other_threads import innermost_of_another
from xsp_post.tree.ranges import Periods
from xsp_post.tree.structure.constants import Constants
from xsp_post.tree.structure.labels import BACKWARD, FORWARD, OPTIMISER

if TYPE_CHECKING:
    from xsp_post.tree.structure.find import Inference

_MOST_DEPTH = 16


# ---------------------------------------------------------------- outside every range


def outside_ranges(draft: Draft) -> Draft:
    """Iterations and blocks for launches outside every range, below [unattributed] and marked inferred, and in ranges
    beside the executions that hold several passes.

    Launches outside keep their attribution ``none``: no range was recorded around them, whatever repeats.
    """
    nodes, activities, chosen = draft.nodes, draft.activities, draft.levels.chosen
    # between hooks, or in a turn of ranges: not inside a range, but their place is known
    has_place = np.isin(draft.column("kind"), (int(NodeKind.HOOK_PAIR), int(NodeKind.INFERRED)))
    outside = (activities["attribution"].to_numpy() == int(Attribution.NONE)) & ~has_place[draft.node]
    alone = without_launches(draft.trace, activities)
    # A call of cuDNN or cuBLAS does not show the structure of the program: what only such ranges hold is open as well.
    # Operators without modules fold into the blocks they repeat in.
    operators = open_operators(draft.names, nodes, draft.activities, draft.constants)
    is_top, is_library = draft.column("parent_id") == 0, draft.column("level") == int(Level.LIBRARY)
    ranges = is_top & ~is_library & (draft.column("kind") <= int(SpanKind.ANNOTATION))
    beside = np.zeros(len(nodes), bool)
    if chosen is not None and len(chosen.processes):  # the ranges are parts of what repeats
        ranges &= np.isin(draft.column("process_index"), chosen.processes)
        operators = ranges | (operators & inside_of(ranges, nodes))
    else:
        is_model = draft.column("level") == int(Level.MODEL)
        is_model[draft.turns] = True
        if is_model.any():  # plain ranges that hold no execution, and may hold several passes
            around_models = forest_of(draft.column("parent_id")).around(is_model)
            beside = ranges & draft.names.node_is("role", "") & ~is_model & ~around_models
        ranges = beside | (ranges & draft.names.node_is("role", "operator"))
        loose = np.flatnonzero(ranges)
        around = innermost_of_another(nodes, draft.column("process_index"), np.flatnonzero(is_model), loose)
        ranges[loose] = (len(draft.turns) > 0) | (around < 0)
        operators &= inside_of(ranges, nodes)
    uncovered = outside | alone | inside_of(ranges | (is_top & is_library), nodes)[draft.node]
    rows = np.flatnonzero(draft.works())
    if not uncovered[rows].any():
        return draft
    told = inside_of(operators, nodes)[draft.node[rows]]
    found = _inferred(draft, rows, is_covered=~uncovered[rows], has_operator=told)
    if not len(found.nodes):
        return draft.said("", found.findings)
    around = _around_passes(draft, found, rows)
    is_other = inside_of(beside, nodes)[draft.node[rows]] & (around < 0)
    if is_other[found.node_of_launch >= 0].any() or _homes(found, around, draft.constants) is None:
        # no pass crosses the end of one of them, and ranges without several passes are not looked into
        again = _inferred(draft, rows, is_covered=~uncovered[rows] | is_other, has_operator=told, home=around)
        found = again if is_other.any() or len(again.nodes) else found
        if not len(found.nodes):
            return draft.said("", found.findings)
    modules = draft.names.node_is("role", "module", "layer") | (ranges & ~operators)
    modules[around[around >= 0]] = False
    found = _without_recorded_modules(found, inside_of(modules, nodes)[draft.node[rows]])
    _named(draft, found, rows, operators)
    if chosen is not None:
        rest = _beside(draft, found, chosen.coverage_ratio)
        found.nodes.loc[rest, "level"] = "APPLICATION"
        found.nodes.loc[rest, ["name", "folded_name"]] = "beside the executions"
    home, inside = _outer_homes(draft, found), _homes(found, around, draft.constants)
    home = home if inside is None else np.where(inside >= 0, inside, home)
    draft = inserted(draft, found, rows, home, operators)
    return draft.said("; what no range covers is inferred from the launch sequence", found.findings)


def _inferred(draft: Draft, rows: np.ndarray, **said: np.ndarray) -> Inference:
    """What repeats in these launches, with what ranges say of each (`find.infer`): of all launches, where they say
    nothing, it is known."""
    if not any(values.any() for values in said.values()) and len(rows) == int(draft.works().sum()):
        known = draft.levels.periods().found
        return replace(known, nodes=known.nodes.copy())
    from xsp_post.tree.structure.find import infer  # no small thing to import, and most captures have ranges

    frame = launch_columns(draft.trace, draft.activities, rows).assign(**said)
    return infer(frame, draft.trace.strings, hints=hints(draft.trace), constants=draft.constants)


def _around_passes(draft: Draft, found: Inference, rows: np.ndarray) -> np.ndarray:
    """Of each launch the outermost recorded range around it where ranges of its text hold several whole passes each,
    and these most of its launches; −1 elsewhere."""
    turn = np.append(found.nodes["iteration_index"].to_numpy(), -1)[found.node_of_launch]
    recorded = (draft.column("kind") <= int(SpanKind.ANNOTATION)) & (draft.column("level") != int(Level.LIBRARY))
    around = forest_of(draft.column("parent_id")).outermost_around(recorded)[draft.node[rows]]
    share = pd.Series(turn >= 0).groupby(around).transform("mean")
    launched = pd.DataFrame({"turn": turn, "range": around})[(turn >= 0) & (share >= draft.constants.most_ratio)]
    whole = launched[launched.groupby("turn")["range"].transform("nunique") == 1]
    held = whole[whole["range"] >= 0].groupby("range")["turn"].nunique()
    often = held.groupby(draft.column("folded_id")[held.index]).transform("median")
    return np.where(np.isin(around, held.index[often > 1]), around, -1)


def _without_recorded_modules(found: Inference, is_in_module: np.ndarray) -> Inference:
    """Blocks give way to recorded modules that hold all their launches (``is_in_module``: of each launch)."""
    nodes, parent, own = found.nodes, found.nodes["parent"].to_numpy(), found.node_of_launch
    is_placed = own >= 0
    held, known = (
        rollup.add_up(np.bincount(own[which], minlength=len(nodes)).astype(np.int64), parent)
        for which in (is_placed, is_placed & is_in_module)
    )
    gone = nodes["kind"].isin(["block", "part", "stretch"]).to_numpy() & (held > 0) & (known == held)
    if not gone.any():
        return found
    above = np.arange(len(nodes))
    while gone[above].any():  # as often as blocks nest
        above = np.where(gone[above], parent[above], above)
    number = np.append((np.cumsum(~gone) - 1)[above], -1)
    kept = nodes[~gone].assign(parent=number[parent[~gone]]).reset_index(drop=True)
    return replace(found, nodes=kept, node_of_launch=number[own])


def _beside(draft: Draft, found: Inference, coverage_ratio: float) -> np.ndarray:
    """Found executions that are none beside those that ranges mark: one in a row, as many in each gap, or without
    layers; bool per node."""
    nodes, constants = found.nodes, draft.constants
    is_marked = draft.column("level") == int(Level.MODEL)
    is_marked[draft.turns] = True
    marked = draft.column("process_index")[is_marked]
    rest = (nodes["level"] == "MODEL").to_numpy() & nodes["process_index"].isin(marked).to_numpy()
    marked, start = np.sort(draft.column("start_ns")[is_marked]), nodes["start_ns"].to_numpy()
    between = np.searchsorted(marked, start)
    if len(marked):  # as long as those marked, before the first or behind the last one: its mark was not recorded
        own = np.bincount(draft.node[draft.works()], minlength=len(is_marked)).astype(np.int64)
        usual = np.median(rollup.add_up(own, draft.column("parent_id"))[is_marked])
        is_alone = (start > draft.column("end_ns")[is_marked].max()) | (nodes["end_ns"].to_numpy() < marked[0])
        is_as_long = np.abs(nodes["launch_count"].to_numpy() - usual) <= constants.uneven_ratio * usual
        rest = rest & ~(is_alone & is_as_long)
    turn = nodes["process_index"].to_numpy() * (len(marked) + 1) + between  # of each process: ranks have one each
    often = np.bincount(turn[rest], minlength=len(marked) + 1)
    is_part = (often[often > 0] == 1).mean() >= constants.alike_ratio if rest.any() else False
    if len(marked) > 1:  # nearly every gap between two holds as many, and some
        often = often[1 : len(marked)]
        is_part |= np.median(often) > 0 and (often == np.median(often)).mean() >= constants.alike_ratio
    if coverage_ratio < constants.most_ratio:
        gaps = np.bincount(between[rest], minlength=len(marked) + 1)
        return rest & is_part & bool(gaps.astype(bool).mean() >= constants.alike_ratio)
    layered = rollup.holds((nodes["level"] == "LAYER").to_numpy(), nodes["parent"].to_numpy())
    return rest & (is_part | ~layered)


def periods_of(trace: Trace, launch_id: np.ndarray, constants: Constants, is_asked: bool) -> Periods:
    """What the launch sequence alone says. launch_id: of each activity. Nothing where ``is_asked`` is false."""
    activities = trace.activities.assign(launch_id=launch_id)
    kind = activities["kind"].to_numpy()
    rows = np.flatnonzero(((kind == ActivityKind.KERNEL) | (kind == ActivityKind.GRAPH)) & is_asked)
    from xsp_post.tree.structure.find import infer

    frame = launch_columns(trace, activities, rows)
    found = infer(frame, trace.strings, hints=hints(trace), constants=constants)
    passes, placed = found.iterations, found.node_of_launch >= 0
    place = found.nodes["iteration_index"].to_numpy()[found.node_of_launch[placed]]
    length = (frame["end_ns"] - frame["start_ns"]).to_numpy()[placed][place >= 0]
    held = rollup.sums_per_node(place[place >= 0], length, int(place.max(initial=-1)) + 1)
    return Periods(passes.assign(device_ns=held[passes["iteration_index"]]), found)


def _outer_homes(draft: Draft, found: Inference) -> np.ndarray:
    """What each found node hangs below: [unattributed], or [no launch record] where the host has no rows."""
    kind, alone = draft.column("kind"), without_launches(draft.trace, draft.activities)
    homes = [np.flatnonzero(kind == int(k)).tolist() for k in (NodeKind.UNATTRIBUTED, NodeKind.NO_LAUNCH)]
    process = distinct(draft.activities["process_index"].to_numpy()[alone])
    has_none = np.isin(found.nodes["process_index"].to_numpy(), process)
    return np.where(has_none, *((home or [0])[0] for home in homes[::-1]))


def _named(draft: Draft, found: Inference, rows: np.ndarray, operators: np.ndarray) -> None:
    """Found blocks named by the operators in them, equal executions of several programs of a process by these (in
    place)."""
    process = draft.owner[found.nodes["process_index"]]
    nth = found.nodes.groupby([process, "level", "folded_name"])["process_index"].rank("dense").astype(int)
    nth = nth[(nth > 1) & (found.nodes["level"] == "MODEL")]
    for column in ("name", "folded_name"):
        found.nodes.loc[nth.index, column] += " of program " + nth.astype(str)
    node, length = draft.node[rows], draft.length()[rows]
    name_by_operators(found.nodes, found.node_of_launch, node, length, operators, draft.names, draft.nodes)


def graph_replays(draft: Draft) -> Draft:
    """The replays of one CUDA graph as executions: outside every range and every execution, three or more, and most of
    the device time."""
    if len(draft.turns) or "graph_id" not in draft.activities:
        return draft
    kind, node = draft.column("kind"), draft.node
    around = (NodeKind.ROOT, NodeKind.UNATTRIBUTED, NodeKind.NO_LAUNCH, NodeKind.GRAPH, NodeKind.INFERRED)
    placed = (draft.column("level") == int(Level.MODEL)) | ~np.isin(kind, around)
    is_loose = (kind == int(NodeKind.GRAPH)) & ~forest_of(draft.column("parent_id")).inside(placed)
    rows = np.flatnonzero(is_loose[node])
    if not len(rows):
        return draft
    length = draft.length()
    codes, _ = pd.factorize(draft.activities["graph_id"].to_numpy()[rows])
    held = np.bincount(codes, weights=length[rows])
    rows = rows[codes == np.argmax(held)]
    if len(rows) < draft.constants.fewest_turns or held.max() < draft.constants.most_ratio * max(int(length.sum()), 1):
        return draft
    level = draft.column("level").copy()
    level[node[rows]] = int(Level.MODEL)
    return draft.with_levels(level)


# ---------------------------------------------------------------- passes in a long range


def passes_inside(draft: Draft) -> Draft:
    """Passes inside ranges that are executions by their place alone, where what was launched in them repeats and every
    turn lies in one of them."""
    opened = _unmarked_models(draft)
    if not opened.any():
        return draft
    inner = _innermost_around(draft, opened)
    home = layering.inherit(np.where(inner, np.arange(len(inner)), -1), draft.column("parent_id"))
    in_steps = len(draft.turns) > 0  # what repeats in the steps says what repeats beside them
    rows = np.flatnonzero(draft.works() & (in_steps | (home[draft.node] >= 0)))
    of_launch = home[draft.node[rows]]
    is_open = of_launch >= 0
    if not is_open.any():
        return draft
    found = _inferred(draft, rows, is_covered=~is_open, **({"home": of_launch} if in_steps else {}))
    if (draft.node[rows] != of_launch)[is_open].mean() >= draft.constants.most_ratio and not (
        found.nodes["kind"] == "block"
    ).any():
        return draft  # turns of recorded ranges, each a few of them and nothing that repeats inside: layers
    home_of_found = _homes(found, of_launch, draft.constants)
    if home_of_found is None:
        return draft  # turns that begin in one range and end in another: the ranges are parts
    is_outscored = draft.levels.chosen is not None and draft.levels.chosen.is_outscored
    if not (is_outscored or _recur(found, home_of_found, draft.length()[rows] * is_open, draft.constants.most_ratio)):
        return draft  # one call of many passes: the range is the execution
    if not is_outscored and _are_surer(draft, found, int(is_open.sum())):
        return draft
    level = draft.column("level").copy()
    level[distinct(home_of_found)] = level[opened] = int(Level.APPLICATION)
    nothing = np.zeros(len(level), bool)
    draft = inserted(draft.with_levels(level), found, rows, home_of_found, nothing)
    return draft.said("; passes inside them are inferred from the launch sequence")


def _are_surer(draft: Draft, found: Inference, count: int) -> bool:
    """Whether ranges that are alike say more than what was found in them: of their launches (``count``) many are in odd
    turns, or in none."""
    passes, chosen, constants = found.iterations, draft.levels.chosen, draft.constants
    regular = passes["launch_count"][passes["iteration_class"] == "regular"].sum()
    is_alike = chosen is not None and len(chosen.spans) >= constants.fewest_turns
    is_alike = is_alike and chosen is not None and chosen.likeness_ratio >= constants.holds_ratio
    return bool(is_alike and regular < constants.holds_ratio * count)


def _recur(found: Inference, home: np.ndarray, length: np.ndarray, most: float) -> bool:
    """Whether executions of a kind that occurs several times in one range hold most of the device time. home: the
    range of each found node; length: device time of each launch, ns."""
    passes = found.iterations
    if len(passes) < 2:
        return False
    top = forest_of(found.nodes["parent"].to_numpy()).nearest((found.nodes["parent"] < 0).to_numpy())
    placed = found.node_of_launch >= 0
    held = rollup.sums_per_node(top[found.node_of_launch[placed]], length[placed], len(top))
    again = pd.DataFrame({"home": home[passes.index], "series": passes["series_index"]})
    again = again[again.duplicated(keep=False)]
    several = again.assign(run=(again != again.shift()).any(axis=1).cumsum()).groupby("home").transform("nunique")
    # in one row each: stages of the range
    again = again[(several["series"] == 1) | (several["run"] > several["series"])]
    return bool(held[again.index].sum() >= most * max(int(length.sum()), 1))


def _unmarked_models(draft: Draft) -> np.ndarray:
    """Which nodes may hold several passes: ranges that are executions by their place alone, and those beside training
    steps. bool per node."""
    chosen = draft.levels.chosen
    can = (draft.column("level") == int(Level.MODEL)) & (draft.column("kind") <= int(SpanKind.ANNOTATION))
    if chosen is not None and chosen.rule == TRAINING:
        return can
    if chosen is None or chosen.rule != OUTERMOST or (chosen.recurs and not chosen.is_outscored):
        return np.zeros(len(draft.nodes), bool)
    # what holds the backward work is a step, not several passes
    return can & ~forest_of(draft.column("parent_id")).around(draft.names.node_is("phase", "backward", "optimizer"))


def _innermost_around(draft: Draft, opened: np.ndarray) -> np.ndarray:
    """The opened nodes, or instead of one the single range in it that launched all but a few of its kernels, and so
    on inwards (`main` → `run`); bool per node."""
    parent = draft.column("parent_id")
    own = np.bincount(draft.node[draft.works()], minlength=len(parent)).astype(np.int64)
    inside = rollup.add_up(own, parent)
    recorded = np.flatnonzero(draft.column("kind") <= int(SpanKind.START_END))
    recorded = recorded[parent[recorded] >= 0]
    whole = recorded[inside[recorded] >= np.maximum(draft.constants.holds_ratio * inside[parent[recorded]], 1)]
    chosen = opened.copy()
    for _ in range(_MOST_DEPTH):
        inner = whole[chosen[parent[whole]]]
        if not len(inner):
            break
        chosen[parent[inner]] = False
        chosen[inner] = True
    return chosen


def _homes(found: Inference, of_launch: np.ndarray, constants: Constants) -> np.ndarray | None:
    """The opened node that holds nearly all of each top inferred node; None where a turn lies in several."""
    parent = found.nodes["parent"].to_numpy()
    top = forest_of(parent).nearest(parent < 0)
    placed = np.flatnonzero(found.node_of_launch >= 0)
    at = top[found.node_of_launch[placed]]
    home = pd.Series(of_launch[placed]).groupby(at)
    main = home.transform("quantile", 0.5, interpolation="nearest").to_numpy(np.int64)
    result = np.full(len(parent), int(of_launch.max()))
    result[at] = main
    often = np.maximum(np.bincount(at, minlength=len(parent)), 1)
    share = np.bincount(at, main == of_launch[placed], len(parent)) / often
    is_pass = (found.nodes["kind"] == "iteration").to_numpy() & (parent < 0)
    return None if (share[is_pass] < constants.holds_ratio).any() else result[top]


# ---------------------------------------------------------------- blocks in ranges without layers


def blocks_inside(draft: Draft) -> Draft:
    """Blocks inside the ranges, and the turns of ranges, that hold much device work and no layers; ranges recorded
    inside a block (attention) are parts of it."""
    if draft.levels.is_final:
        return draft
    names, nodes = draft.names, draft.nodes
    operators = open_operators(names, nodes, draft.activities, draft.constants)
    hides = _may_hide_layers(draft) & ~(operators & names.node_is("role", ""))
    operators &= ~hides
    home_of_node = _hollow(draft, operators, hides)
    has_launch = draft.activities["launch_id"].to_numpy() >= 0
    rows = np.flatnonzero(draft.works() & (home_of_node[draft.node] >= 0) & has_launch)
    if not len(rows):
        return draft
    from xsp_post.tree.structure.find import infer_inside

    told = inside_of(operators, nodes)[draft.node[rows]]
    frame = launch_columns(draft.trace, draft.activities, rows).assign(has_operator=told)
    homes, owner = np.unique(home_of_node[draft.node[rows]], return_inverse=True)
    series, phases = _kinds(names, nodes, homes)
    found, home_of_iteration = infer_inside(frame, draft.trace.strings, owner, series, phases, draft.constants)
    home, kind = homes[home_of_iteration], series[home_of_iteration]
    found, home = _worth_keeping(found, home, kind, draft.length()[rows], draft.constants)
    if not len(found.nodes):
        return draft
    _named(draft, found, rows, operators)
    _match_gradients(found.nodes, home, names, nodes)
    draft = inserted(draft, found, rows, home, operators)
    return draft.said("; blocks inside ranges without layers are inferred")


def _hollow(draft: Draft, operators: np.ndarray, hides: np.ndarray) -> np.ndarray:
    """For each node the recorded range to be looked into that it lies in (or is), −1 none; int64 (nodes,). Operators of
    another thread lie in that which covers them, as kernels without operators do."""
    level, kind, parent, thread = (draft.column(c) for c in ("level", "kind", "parent_id", "thread_index"))
    count = len(parent)
    node, works = draft.node, draft.works()
    own = rollup.sums_per_node(node[works], draft.length()[works], count)
    recorded = kind <= int(NodeKind.ANNOTATION)
    is_turn = np.zeros(count, bool)
    is_turn[draft.turns] = True
    is_model = (level == int(Level.MODEL)) & (recorded | is_turn)
    is_layer = (level == int(Level.LAYER)) & ~operators
    held = rollup.add_up(own, parent)
    inside_count = rollup.add_up(np.bincount(node[works], minlength=count), parent)
    open_layer = (is_layer | _without_layers(draft, is_layer)) & recorded & hides
    # ranges of one text are looked into together
    of_text = np.bincount(draft.column("folded_id"), weights=inside_count)[draft.column("folded_id")]
    open_layer &= of_text >= draft.constants.fewest_launches
    in_closed = layering.inherit(np.where(is_layer | open_layer, np.where(open_layer, 0, 1), -1), parent) == 1
    in_layers = rollup.add_up(np.where(in_closed, own, 0), parent)
    is_open = (is_model | open_layer) & (in_layers < draft.constants.most_ratio * np.maximum(held, 1))
    # what lies in no phase of a step is looked into by itself
    inner = forest_of(parent).outermost_around(is_open & ~is_model) == np.arange(count)
    rest = inside_count - rollup.add_up(np.where(inner, inside_count, 0), parent)
    is_open = inner | (is_open & is_model & (rest >= draft.constants.fewest_launches))
    part = np.flatnonzero(recorded & ~operators & (inside_count >= draft.constants.fewest_launches) & (parent >= 0))
    part = part[~in_closed[part] & (in_layers[part] < draft.constants.most_ratio * held[part])]
    _open_the_parts(draft.nodes, is_open, part, inside_count, draft.constants.most_ratio)
    home, around = forest_of(parent).nearest(is_open), np.full(count, -1)
    loose = np.flatnonzero(operators & ((home < 0) | (thread != thread[home])))
    around[loose] = innermost_of_another(draft.nodes, draft.column("process_index"), np.flatnonzero(is_open), loose)
    around = layering.inherit(around, parent)
    return np.where(around >= 0, around, home)


def _without_layers(draft: Draft, is_layer: np.ndarray) -> np.ndarray:
    """Ranges of an execution with no layer around them nor inside; bool. Gradients count for the forward layers."""
    forest = forest_of(draft.column("parent_id"))
    is_open = np.isin(draft.column("level"), (int(Level.MODULE), int(Level.OPERATION)))
    beside = is_open & ~forest.inside(is_layer) & ~forest.around(is_layer)
    beside[1 : len(draft.forward) + 1] &= draft.forward < 0
    return beside & ~draft.names.node_is("phase", "optimizer")


def _open_the_parts(nodes: pd.DataFrame, is_open: np.ndarray, part: np.ndarray, held: np.ndarray, most: float) -> None:
    """Where different ranges, one of each name, hold most of an open range, they are open instead of it
    (``is_open`` is changed in place): blocks do not reach from one of them into the next. part: nodes that can be."""
    parent, folded = nodes["parent_id"].to_numpy(), nodes["folded_id"].to_numpy().astype(np.int64)
    _, which, often = np.unique(
        parent[part].astype(np.int64) * (int(folded.max(initial=0)) + 1) + folded[part],
        return_inverse=True, return_counts=True,
    )  # fmt: skip
    part = part[often[which] == 1]
    for _ in range(_MOST_DEPTH):
        inner = part[is_open[parent[part]]]
        in_parts = rollup.sums_per_node(parent[inner], held[inner], len(parent))
        inner = inner[in_parts[parent[inner]] >= most * held[parent[inner]]]
        if not len(inner):
            return
        is_open[parent[inner]] = False
        is_open[inner] = True


def _may_hide_layers(draft: Draft) -> np.ndarray:
    """Layers by their place alone: phases, steps, compiled regions, what no text says more of, and of other ranges what
    holds much of all work by its name, in few calls in each execution or range around it; bool."""
    names, parent, works = draft.names, draft.column("parent_id"), draft.works()
    folded = without_numbers(names.folded_names)[draft.column("folded_id")]
    held = rollup.add_up(rollup.sums_per_node(draft.node[works], draft.length()[works], len(parent)), parent)
    is_layer = draft.column("level") == int(Level.LAYER)
    models = int((draft.column("level") == int(Level.MODEL)).sum())
    layers = pd.DataFrame({"parent": parent, "called": folded})[is_layer]
    beside, of_kind = (layers.groupby(by)["called"].transform("size") for by in (["parent", "called"], "called"))
    few = np.zeros(len(parent), bool)
    few[is_layer] = (beside < draft.constants.fewest_turns) | (of_kind <= models)  # also of another thread
    of_name = np.bincount(folded[few], weights=held[few], minlength=int(folded.max(initial=0)) + 1)
    few &= of_name[folded] >= draft.constants.large_ratio * max(int(held[0]), 1)
    plain = names.node_is("role", "") & names.node_is("dialect", "plain") | names.node_is("dialect", "torch_compile")
    launches = rollup.add_up(np.bincount(draft.node[works], minlength=len(parent)), parent)
    often = np.bincount(folded[plain], minlength=int(folded.max(initial=0)) + 1)  # a part of each layer
    of_name = np.bincount(folded[plain], weights=launches[plain], minlength=len(often))
    plain &= ((often < draft.constants.fewest_turns * models) | (of_name >= draft.constants.most_ratio * launches[0]))[
        folded
    ]
    may = few | plain | names.node_is("role", "phase", "iteration", "model")
    return may & (launches >= 2 * draft.constants.fewest_parts)


def _kinds(names: NodeNames, nodes: pd.DataFrame, homes: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Number of the kind of each range (folded path below its root), and the phase that each kind is."""
    paths, _ = layering.path_ids(
        nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy(), nodes["folded_id"].to_numpy(),
        np.zeros(len(nodes), bool),
    )  # fmt: skip
    series, first = pd.factorize(paths[homes])
    said = np.full(len(nodes), -1)
    for number, word in enumerate(PHASES[1:4]):
        said[names.node_is("phase", word)] = number + 1
    # what is called in a forward pass is of it
    phase = np.maximum(layering.inherit(said, nodes["parent_id"].to_numpy())[homes], 0)
    return series, [PHASES[phase[series == number][0]] for number in range(len(first))]


# ---------------------------------------------------------------- what is kept


def _worth_keeping(
    found: Inference, home: np.ndarray, series: np.ndarray, length: np.ndarray, constants: Constants
) -> tuple[Inference, np.ndarray]:
    """The inference without its iterations (the ranges stand for them) and without what does not cover enough of the
    usual range of its kind, or of its forward passes, but for updates; and the range that each remaining outermost node
    hangs below. home, series: the range that holds each iteration, and its kind; length: device time of each launch."""
    nodes = found.nodes
    if not len(nodes):
        return found, np.zeros(0, np.int64)
    iteration = nodes["iteration_index"].to_numpy()
    is_top = (nodes["kind"] == "iteration").to_numpy()
    at, parent = found.node_of_launch, nodes["parent"].to_numpy()
    named = nodes["folded_name"].where(nodes["kind"] == "phase").map({FORWARD: 0, BACKWARD: 1, OPTIMISER: 2})
    phase = np.where(named.notna(), named, np.where(is_top, 0, -1)).astype(np.int64)
    phase = layering.inherit(phase, parent)
    in_block = np.where((nodes["kind"] == "block") & (nodes["level"] == "LAYER"), 1, np.where(is_top, 0, -1))
    in_block = layering.inherit(in_block, parent) == 1
    keeps = np.zeros(len(home), bool)
    for last in (0, 1):  # of forward passes, or of gradients too
        placed = (at >= 0) & (iteration[at] >= 0) & (phase[at] <= last)
        mine, of_launch = at[placed], iteration[at[placed]]
        shares = ((length[placed], constants.most_ratio), (np.ones(len(mine)), constants.holds_ratio))
        for weights, least in shares:  # most of the time, or nearly all launches
            total, covered = (np.bincount(of_launch, weights * part, len(home)) for part in (1, in_block[mine]))
            keeps |= medians(covered / np.maximum(total, 1), series, int(series.max()) + 1)[series] >= least
    keep = keeps[np.maximum(iteration, 0)] & (iteration >= 0) & ~is_top
    number = np.full(len(nodes) + 1, -1, np.int64)
    number[:-1][keep] = np.arange(int(keep.sum()))
    kept = nodes[keep].reset_index(drop=True)
    kept["parent"] = number[parent[keep]]
    return replace(found, nodes=kept, node_of_launch=number[at], findings=[]), home[iteration[keep]]


def _match_gradients(found: pd.DataFrame, home: np.ndarray, names: NodeNames, nodes: pd.DataFrame) -> None:
    """Outermost blocks in backward ranges belong to those in the forward range of the same step (in place)."""
    from xsp_post.tree.structure.outline import matched_blocks

    top = np.flatnonzero((found["parent"] < 0) & (found["kind"] == "block"))
    step, phase = nodes["parent_id"].to_numpy()[home[top]], names.node_text("phase", home[top])
    matched = found["matched_block_index"].to_numpy().copy()
    count, index = (found[column].to_numpy()[top] for column in ("block_count", "block_index"))
    own = matched_blocks(step, phase, count, index)
    matched[top] = np.where(own > 0, own, matched[top])
    found["matched_block_index"] = matched
