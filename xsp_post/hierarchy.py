"""Trace → Tree: nest ranges, join launches to executions, assign levels, iterations and layers, roll up.

`build_tree` is a list of steps, each a function from one value to the next: the trace with its options, the draft of a
tree (`tree.draft`), the tree. The steps lie in `tree`; the last is `model.checks.check_tree`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.forest import forget_forests
from xsp_post.arrays.intervals import Nesting, nest
from xsp_post.base import on_disk
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.model.checks import check_trace, check_tree
from xsp_post.model.levels import RUN_LAYER, RUN_MODEL
from xsp_post.model.options import Options
from xsp_post.model.trace import ActivityKind, Trace
from xsp_post.model.tree import Attribution, Tree
from xsp_post.tree import attribution, hook_pairs, layering, level_rules, programs
from xsp_post.tree.amounts import distinct_operations, project_overlapping, roll_up
from xsp_post.tree.draft import Draft
from xsp_post.tree.execution_evidence import candidates_frame, coverage_findings
from xsp_post.tree.execution_evidence import sentence as execution_sentence
from xsp_post.tree.execution_work import times_of
from xsp_post.tree.frames import make_frames, with_columns
from xsp_post.tree.hook_pairs import with_hook_pairs
from xsp_post.tree.insertion import with_turns
from xsp_post.tree.iterations import measure_iterations, number_iterations
from xsp_post.tree.layer_evidence import layer_evidence
from xsp_post.tree.layer_keys import number_layers
from xsp_post.tree.looking import blocks_inside, graph_replays, outside_ranges, passes_inside, periods_of
from xsp_post.tree.node_names import NodeNames, without_numbers
from xsp_post.tree.other_threads import under_their_step
from xsp_post.tree.pieces import in_pieces, with_layers
from xsp_post.tree.provenance import unnamed_modules, with_provenance
from xsp_post.tree.ranges import Ranges, until_the_next
from xsp_post.tree.ranks import gpu_of_activities, paths_per_rank, rank_frame, remainders_per_rank
from xsp_post.tree.structure.constants import DEFAULTS, Constants

if TYPE_CHECKING:
    from xsp_post.tree.twin import Twin

__all__ = ["build_tree", "tree_and_findings"]

Step = Callable[[Draft], Draft]


def tree_and_findings(trace: Trace, options: Options, twin: Twin | None) -> tuple[Tree, list[Finding]]:
    """The tree, and what was found in the capture and in making it."""
    tree = build_tree(trace, options, twin)
    return tree, tree.findings


def build_tree(
    trace: Trace, options: Options | None = None, twin: Twin | None = None, constants: Constants = DEFAULTS
) -> Tree:
    """Nest a capture. Every kernel of the trace is in the result once; raises `ContradictionError` otherwise,
    `UsageError` for patterns of the options that are invalid or match nothing. ``twin``: another capture of the same
    program, whose ranges the kernels without a layer get instead of inferred ones. ``constants``: what
    structure is decided by."""
    check_trace(trace)
    draft = _draft_of(*_wanted(trace, options or Options()), constants)
    for step in _steps(draft.options, twin):
        draft = step(draft)
    said = [one for one in draft.findings if twin is not None and one.code.startswith("twin-")]
    if any(one.code == "twin-nothing-carried" for one in said):  # then what is found without it
        trace, options = replace(trace, findings=[*trace.findings, *said]), replace(draft.options, layers_from=())
        return build_tree(trace, options, None, constants)
    return _with_executions(_summed_up(programs.together(draft)), draft)


def _steps(options: Options, twin: Twin | None) -> list[Step]:
    """What makes executions and layers of ranges and of what repeats, in this order."""
    inferring: list[Step] = [outside_ranges, graph_replays, passes_inside, blocks_inside]
    if twin is not None:
        inferring = [passes_inside] if options.infer else []
        return [with_turns, with_provenance, lambda draft: _carried_over(draft, twin), *inferring]
    return [with_turns, with_provenance, *(inferring if options.infer else [])]


def _wanted(trace: Trace, options: Options) -> tuple[Trace, Options]:
    """What is read of the trace: without ranges where the launches alone shall say what an execution is."""
    if options.executions != "launches":
        return trace, options
    return replace(trace, spans=trace.spans.iloc[:0], attributes=pd.DataFrame()), replace(options, executions="")


def _draft_of(trace: Trace, options: Options, constants: Constants) -> Draft:
    """Ranges nested, launches joined to what they launched, and levels by what the ranges say."""
    names = NodeNames(trace)
    trace = until_the_next(trace, names, constants)
    paired = with_hook_pairs(trace, names) if options.infer else trace
    if paired is not trace:
        return _nested(paired, options, NodeNames(paired), constants)
    return _nested(trace, options, names, constants)


def _nested(trace: Trace, options: Options, names: NodeNames, constants: Constants) -> Draft:
    with ThreadPoolExecutor(1, initializer=on_disk.use) as pool:  # two joins that know nothing of one another
        joined = pool.submit(attribution.join_launches, trace)
        nesting, usable = _nest_spans(trace)
        launch_id = joined.result()
    text = without_numbers(names.folded_names)[names.folded] if len(trace.spans) else names.folded
    beside = attribution.beside_the_work(trace, launch_id, text, constants)
    owners = attribution.attribute(trace, nesting, usable, launch_id, beside)
    span_parent, span_depth = _span_forest(trace, nesting, usable)
    names.count_what_grows(trace.spans, span_depth, constants.fewest_turns)
    forward = layering.forward_of_backward(trace.spans, names.sequence(trace), names.span("is_backward"), span_parent)
    if (forward < 0).all():
        forward = layering.forward_by_order(trace.spans, names.folded, names.folded_names, span_parent, constants)
    owners["attribution"] = hook_pairs.recorded_attribution(trace, owners, span_parent)
    is_asked = options.infer and not (options.executions or options.layers_from)
    begins = programs.begins_of(trace, launch_id, constants) if is_asked else []
    while True:
        parted, owner = programs.apart(trace, launch_id, begins)
        levels = _levels(parted, names, span_parent, span_depth, forward, owners, launch_id, beside, options, constants)
        known, begins = begins, programs.that_stand_alone(begins, parted, owner, levels.processes, constants)
        if begins == known:
            break
    forget_forests()  # that of the spans
    nodes, activities = make_frames(parted, names, span_parent, levels.level, owners, launch_id)
    return Draft(
        parted, options, names, nodes, activities, trace.strings, levels, levels.rule, forward,
        usable[nesting.overlapping()], nesting.crossing_count, trace, owner, tuple(trace.findings),
        constants=constants,
    )  # fmt: skip


def _carried_over(draft: Draft, twin: Twin) -> Draft:
    from xsp_post.tree.twin import carry_over

    return carry_over(draft, twin)


def _summed_up(draft: Draft) -> Tree:
    """Iterations, layers and ranks of the nodes, and the amounts of all of them."""
    trace, names = draft.trace, draft.names
    numbered, iterations = number_iterations(trace, draft.nodes, draft.activities, names)
    launch_id = draft.activities["launch_id"].to_numpy()
    numbered["layer_node_id"] = layering.layer_of_nodes(numbered["parent_id"].to_numpy(), numbered["level"].to_numpy())
    home, way = layering.assign_layers(trace, numbered, draft.activities, launch_id, draft.forward)
    gpu = gpu_of_activities(trace)
    placed = with_columns(draft.activities, {"layer_node_id": home, "layer_attribution": way, "gpu_index": gpu})
    layers_found, raised = layer_evidence(numbered, placed, names)
    ranks = rank_frame(trace, gpu)
    moved = under_their_step(numbered, names) if draft.options.infer else numbered
    nodes, activities = remainders_per_rank(moved, placed, names, ranks)
    nodes["path_id"] = paths_per_rank(nodes, ranks)
    keys = number_layers(nodes, activities, names)
    on_disk.release()  # the pieces between what stays: the roll-up makes whole columns
    pieces = with_layers(draft.pieces, nodes, activities) if len(draft.pieces) else draft.pieces
    amounts = roll_up(nodes, in_pieces(activities, pieces))
    amounts["device_operation_count"] = distinct_operations(amounts, activities)
    if len(draft.overlapping):
        amounts = amounts.assign(**project_overlapping(trace, amounts, activities, draft.overlapping))
    tree = Tree(
        trace, amounts, activities, draft.strings, iterations, keys, draft.rule, names, [*draft.findings, *raised],
        draft.inferred,
    )  # fmt: skip
    tree.layer_evidence, tree.ranks, tree.pieces = layers_found, ranks, pieces
    tree.findings += _findings(tree, draft.crossing_count, launch_id)
    tree.findings += check_tree(tree)
    return tree


def _with_executions(tree: Tree, draft: Draft) -> Tree:
    """The tree with its executions measured, and with what else could be one."""
    tree.iterations, warm = measure_iterations(tree, draft.constants)
    tree.execution_candidates = candidates_frame(tree, draft.levels.chosen, draft.levels.others)
    tree.execution_evidence = execution_sentence(tree, tree.execution_candidates)
    tree.findings += warm + coverage_findings(tree, tree.execution_candidates)
    return tree


def _nest_spans(trace: Trace) -> tuple[Nesting, np.ndarray]:
    """Nest what can nest: spans of one thread (cross-thread ranges belong to none)."""
    spans = trace.spans
    crossing = spans["is_cross_thread"].to_numpy()
    usable = np.flatnonzero(~crossing) if crossing.any() else np.arange(len(spans))
    chosen = slice(None) if len(usable) == len(spans) else usable
    nesting = nest(
        spans["thread_index"].to_numpy()[chosen],
        spans["start_ns"].to_numpy()[chosen],
        spans["end_ns"].to_numpy()[chosen],
    )
    return nesting, usable


def _span_forest(trace: Trace, nesting: Nesting, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = len(trace.spans)
    if len(usable) == count:
        return nesting.parent, nesting.depth
    parent, depth = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    has = nesting.parent >= 0
    parent[usable[has]] = usable[nesting.parent[has]]
    depth[usable] = nesting.depth
    return parent, depth


def _levels(
    trace: Trace, names: NodeNames, parent: np.ndarray, depth: np.ndarray, forward: np.ndarray, owners: pd.DataFrame,
    launch_id: np.ndarray, beside: np.ndarray, options: Options, constants: Constants,
) -> level_rules.Levels:  # fmt: skip
    spans = trace.spans
    owner = owners["span"].to_numpy()
    launched = np.bincount(owner[owner >= 0], minlength=len(spans)) > 0
    domain_names = np.array([str(name).lower() for name in trace.domains["name"]], object)
    ranges = Ranges(
        parent=parent, depth=depth, forward=forward, kind=spans["kind"].to_numpy(), name_id=names.row,
        folded_id=names.folded, domain_index=spans["domain_index"].to_numpy(), domain_names=domain_names,
        has_device_work=rollup.holds(launched, parent), parsed=names.parsed, text=names.text,
        duration_ns=(spans["end_ns"] - spans["start_ns"]).to_numpy(),
        work=lambda: _work_inside(trace, owner, forward, parent), folded_texts=names.folded_names,
        times=times_of(trace, names, parent, owners, launch_id),
        periods=cache(lambda: periods_of(trace, launch_id, constants, options.infer and not options.layers_from)),
        recorded=trace.attributes["level"].astype(object).to_numpy() if "level" in trace.attributes else None,
        beside=beside, constants=constants, is_planned=bool(trace.provenance.level),
    )  # fmt: skip
    return level_rules.assign_levels(ranges, options)


def _work_inside(trace: Trace, owner: np.ndarray, forward: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Device time launched in each span; a gradient counts for its forward range."""
    rows = np.flatnonzero(owner >= 0)
    span = owner[rows]
    span = np.where(forward[span] >= 0, forward[span], span)
    activities = trace.activities
    duration = (activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy())[rows]
    return rollup.add_up(rollup.sums_per_node(span, np.maximum(duration, 0), len(parent)), parent)


# What a reader found that says more than `no-kernels`, and would contradict it.
_WHY_NO_KERNELS = {"launches-without-kernel", "kineto-kernels-not-recorded", "kineto-categories-unknown"}


def _findings(tree: Tree, crossing_count: int, launch_id: np.ndarray) -> list[Finding]:
    trace, activities = tree.trace, tree.activities
    kinds = activities["kind"].to_numpy()
    is_kernel = kinds == ActivityKind.KERNEL
    how, name = activities["attribution"].to_numpy(), activities["name_id"].to_numpy()
    found: list[Finding] = []
    is_explained = bool(_WHY_NO_KERNELS & {one.code for one in trace.findings})
    if not is_kernel.any() and not is_explained and trace.provenance.level not in (RUN_MODEL, RUN_LAYER):
        found.append(finding("no-kernels"))  # at those levels none were wanted
    if not len(trace.spans):
        found.append(finding("no-ranges"))
    for code, members in (
        ("queued-kernels", tree.queued),
        ("orphan-kernels", (how == Attribution.NO_LAUNCH) & ~tree.queued),
        ("outside-ranges", how == Attribution.NONE),
        ("other-thread", how == Attribution.THREAD_TIME),
    ):
        if code != "outside-ranges" or len(trace.spans):
            found += if_any(code, is_kernel & members, lambda row: trace.strings[name[row]] if name[row] >= 0 else "")
    found += if_any("graph-launches", kinds == ActivityKind.GRAPH)
    found += if_any("child-outside-parent", crossing_count)
    found += if_any("duplicate-correlation", attribution.shared_correlations(trace, launch_id))
    backwards = int((activities["end_ns"].to_numpy() < activities["start_ns"].to_numpy()).sum())
    backwards += int((trace.spans["end_ns"].to_numpy() < trace.spans["start_ns"].to_numpy()).sum())
    return [*found, *if_any("negative-duration", backwards), *unnamed_modules(tree)]
