"""Trace → Tree, step "which range is a model, which a layer": one rule per capture, and the rule is named.

What a model execution is, `executions` finds by evidence. Order (the first that finds layers or models wins): our
own ranges (domain ``xsp``); levels that the trace itself records (Jaeger); the user's ``--model-range``,
``--layer-range`` and ``--layer-depth``; conventions read from the texts; else depth. With ``--executions`` the first
two are left out.
Library calls are LIBRARY under every rule. Only `APPLICATION … LIBRARY` are assigned here; the levels
below a layer and between model and layer follow from where the layers are (`_fill_between`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.base.errors import UsageError
from xsp_post.model.levels import Level
from xsp_post.model.options import Options
from xsp_post.model.trace import SpanKind
from xsp_post.model.tree import NodeKind
from xsp_post.names.range_text import DOMAIN
from xsp_post.names.user_patterns import UserPattern
from xsp_post.tree import layer_rules
from xsp_post.tree.executions import MARKERS, OUTERMOST, SEQUENCE, Candidate, Executions, described, find_executions
from xsp_post.tree.ranges import Periods, Ranges

LIBRARY_DOMAINS = frozenset({
    "cublas", "cublaslt", "cudnn", "nccl", "cusparse", "cusparselt", "cusolver", "cufft", "curand", "cutensor",
    "nvshmem",
})  # fmt: skip


@dataclass
class Levels:
    """``level`` of every span (int8 of `levels.Level`), the sentence that names the rule, and what is known of the
    executions: the candidate that was taken (None: none), the others, and per span the number of the execution that it
    is one of several siblings of (−1 none); the process of each execution. ``is_final``: layers were said, by the
    program or the user. ``periods``: what the launches alone say."""

    level: np.ndarray
    rule: str
    chosen: Candidate | None
    others: list[Candidate]
    turn: np.ndarray
    processes: np.ndarray
    periods: Callable[[], Periods]
    is_final: bool = False


def assign_levels(ranges: Ranges, options: Options) -> Levels:
    """Which span is a model execution, which a layer.

    Raises `UsageError` when a pattern is invalid or matches nothing.
    """
    library = (ranges.kind == SpanKind.LIBRARY) | ranges.in_domains(LIBRARY_DOMAINS) | ranges.has_role("library")
    executions = find_executions(ranges, library, options.executions)
    said = (_user_options,) if options.names_levels or options.executions else (_own_ranges, _recorded, _user_options)
    for rule in (*said, _conventions, _by_depth):
        found = rule(ranges, options, library, executions)
        if found is not None:
            break
    else:
        level = np.full(len(ranges.parent), int(Level.APPLICATION), np.int8)
        return Levels(level, "no ranges", None, [], executions.turn, executions.processes, ranges.periods)
    model = found.model
    turn = found.turn if found.turn is not None else np.broadcast_to(np.int64(-1), (len(model),))
    chosen = described(ranges, model, found.evidence) if found.evidence else executions.chosen
    others = [c for c in (executions.chosen, *executions.others) if c is not None and not _is_same(c, chosen)]
    level = _fill_between(ranges, model, turn >= 0, found.layer, library)
    is_final = rule is _own_ranges or bool(options.layer_range or options.layer_depth)
    return Levels(level, found.sentence, chosen, others, turn, executions.processes, ranges.periods, is_final)


def _is_same(one: Candidate, other: Candidate | None) -> bool:
    return other is not None and (one.turn is None) == (other.turn is None) and np.array_equal(one.spans, other.spans)


class _Found(NamedTuple):
    """What a rule found: models, layers, its sentence; the siblings that are executions together; and how the models
    were found, in words, where it was not by the evidence of `find_executions`."""

    model: np.ndarray
    layer: np.ndarray
    sentence: str
    turn: np.ndarray | None = None
    evidence: str = ""


def _own_ranges(ranges: Ranges, _: Options, __: np.ndarray, executions: Executions) -> _Found | None:
    is_own = ranges.in_domains(frozenset({DOMAIN}))
    if not (is_own & ranges.has_dialect("xsp")).any():  # a range of xsp_post.step is a marker as those of others
        return None
    model = is_own & ranges.has_role("iteration")
    layer, layers_are = is_own & ranges.has_role("layer"), ""
    if not (model.any() or layer.any()):
        return None
    if ranges.is_planned:
        layer = ranges.innermost(layer)
    else:  # all modules have ranges: the layers are those that they would be under PyTorch's profiler
        layer, said = layer_rules.module_layers(ranges, layer)
        layers_are = f", layers are {said}"
    sentence = f"own ranges (NVTX domain {DOMAIN}){layers_are}"
    if _are_parts(ranges, model, executions):
        said = f"{sentence} in {executions.chosen.rule if executions.chosen else ''}"
        return _Found(executions.model, layer, said, executions.turn)
    return _Found(ranges.outermost(model), layer, sentence, evidence=f"ranges of {DOMAIN}")


def _are_parts(ranges: Ranges, own: np.ndarray, executions: Executions) -> bool:
    """Whether our model ranges are parts of what was found by evidence: each lies in a step of the program with more
    work than theirs (backward, optimiser), or is one of several siblings that are a step, or the launches repeat
    around each of them with more work than theirs."""
    if executions.chosen is None or not own.any():
        return False
    if executions.chosen.rule == SEQUENCE:
        return executions.chosen.names[0][1] == int(ranges.outermost(own).sum())
    if executions.chosen.turn is not None:
        turn = executions.turn[ranges.outermost(own)]
        is_one_each = executions.is_training or len(np.unique(turn[turn >= 0])) == (turn >= 0).sum()
        return bool(is_one_each and ((turn >= 0) | executions.model[ranges.outermost(own)]).all())
    return executions.chosen.rule == MARKERS and bool((ranges.around(own) & executions.model).any())


def _recorded(ranges: Ranges, _: Options, __: np.ndarray, ___: Executions) -> _Found | None:
    """Traces in XSP's own span model (Jaeger) say what each span is."""
    if ranges.recorded is None:
        return None
    model, layer = ranges.recorded == Level.MODEL.name, ranges.recorded == Level.LAYER.name
    if not (model.any() or layer.any()):
        return None
    sentence = "trace_level, as the spans record it"
    return _Found(ranges.outermost(model), layer, sentence, evidence="levels that the capture records")


def _user_options(ranges: Ranges, options: Options, library: np.ndarray, executions: Executions) -> _Found | None:
    if not options.names_levels:
        return None
    said, turn, evidence = [], None, ""
    if options.model_range:
        model = ranges.outermost(_matching(ranges, options.model_range, "--model-range"))
        said.append(f"--model-range {options.model_range}")
        evidence = said[0]
    else:
        model, turn = executions.model, executions.turn
    if options.layer_range:
        layer = ranges.outermost(_matching(ranges, options.layer_range, "--layer-range") & ~model)
        said.append(f"--layer-range {options.layer_range}")
    elif options.layer_depth:
        layer = _at_depth_below(ranges, model, options.layer_depth) & ~library
        said.append(f"--layer-depth {options.layer_depth}")
    else:
        layer = _convention_layers(ranges, model, library)[0]
        if not layer.any():
            layer = _at_depth_below(ranges, model, 1) & ~library
    return _Found(model, layer, " ".join(said), turn, evidence)


def _matching(ranges: Ranges, pattern: str, option: str) -> np.ndarray:
    """Spans whose text or ``domain:text`` the pattern is found in; each different pair is looked at once."""
    key = ranges.name_id.astype(np.int64) * (len(ranges.domain_names) + 2) + ranges.domain_index + 1
    codes, unique = pd.factorize(key)
    first = np.zeros(len(unique), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    texts = [ranges.text(ranges.name_id[row]) for row in first.tolist()]
    domains = [ranges.domain_names[k] if k >= 0 else "" for k in ranges.domain_index[first].tolist()]
    wanted = UserPattern(pattern, option)
    hits = wanted.found_in(texts) | wanted.found_in([f"{domain}:{text}" for domain, text in zip(domains, texts)])
    mask = hits[codes]
    if not mask.any():
        raise UsageError(
            f"{option} {pattern!r} matches none of the {len(mask)} ranges", code="range-pattern-matches-nothing"
        )
    return mask


def _conventions(ranges: Ranges, _: Options, library: np.ndarray, executions: Executions) -> _Found | None:
    model, turn = executions.model, executions.turn
    # a call of the whole model in a training step is the model, not a layer of it
    called = ranges.around(ranges.has_role("module")) if executions.is_training else np.zeros(len(model), bool)
    layer, layers_are = _convention_layers(ranges, model | (called & (turn >= 0)), library)
    # the gradient of a layer is not a layer of its own: its kernels count for the forward one
    layer &= ~(layer | ranges.inside(layer))[ranges.forward] | (ranges.forward < 0)
    member = turn >= 0
    if not model.any() and not layer.any() and not member.any():
        return None
    if member.any() and not layer.any():
        layer, layers_are = member & ~library, "the ranges of a turn"
    elif model.any() and not layer.any():
        layer = _at_depth_below(ranges, model, 1) & ~library
        layers_are = "depth 1 below the model"
    models_are = executions.chosen.rule if executions.chosen is not None else "no model range"
    return _Found(model, layer, f"convention: {models_are}, layers are {layers_are}", turn)


def _convention_layers(ranges: Ranges, model: np.ndarray, library: np.ndarray) -> tuple[np.ndarray, str]:
    named = ranges.has_role("module", "layer") | (ranges.kind == int(NodeKind.HOOK_PAIR))
    module = named & ~library & ~model
    plain = ranges.has_role("") & ~library & ~model & (ranges.kind != SpanKind.OPERATOR)
    counted = layer_rules.siblings_that_count(ranges, plain & ranges.inside(model))
    module |= plain & np.isin(ranges.folded_id, ranges.folded_id[counted])  # also of an execution that was cut off
    operator = ranges.has_role("operator") & ~library & ~model
    if module.any():
        chosen, called = layer_rules.module_layers(ranges, module)
        # module markers may stand beside the work they name (FSDP hooks): operators outside them count too
        uncovered = ranges.outermost(operator & ~ranges.inside(module) & ~ranges.around(module))
        return chosen | uncovered, called + (" and operators beside them" if uncovered.any() else "")
    if operator.any():
        return ranges.outermost(operator), "framework operators"
    phase = ranges.outermost(ranges.has_role("phase") & ~model & ranges.inside(model))
    if phase.any():
        beside = ranges.has_role("") & ~library & _beside(ranges, phase) & ~ranges.around(phase) & ~model
        said = "phases of a step"
        # ranges that hold the work of a phase are the layers rather than the phase
        inner = _at_depth_below(ranges, phase, 1) & ~library & ~model
        held = rollup.sums_per_node(ranges.parent[inner], ranges.time_inside()[inner], len(model))
        opened = phase & (held >= ranges.constants.most_ratio * np.maximum(ranges.time_inside(), 1))
        phase = (phase & ~opened) | (inner & opened[ranges.parent])
        return phase | beside, said + (" and the ranges beside them" if beside.any() else "")
    return np.zeros(len(model), bool), ""


def _beside(ranges: Ranges, mask: np.ndarray) -> np.ndarray:
    """Which spans have a parent in common with one of ``mask``."""
    is_home = np.zeros(len(mask) + 1, bool)
    is_home[ranges.parent[mask]] = True
    return is_home[ranges.parent]


def _by_depth(ranges: Ranges, _: Options, library: np.ndarray, executions: Executions) -> _Found | None:
    if not len(ranges.parent):
        return None
    model, outer = np.zeros(len(library), bool), ~library & ~ranges.beside & (ranges.depth == 0)
    has_work = ranges.times.work.total_ns > 0  # ranges of other threads than those that launched it are no executions
    for candidate in executions.others:
        if candidate.rule == OUTERMOST and executions.chosen is None and (candidate.is_again or not has_work):
            model[candidate.spans] = True
            layer = ~library & (ranges.depth == 1) & ranges.inside(model)
            return _Found(model, layer, "depth: outermost ranges, layers are the ranges in them", evidence=OUTERMOST)
    return _Found(model, outer, "depth: outermost ranges are layers, no model range")


def _at_depth_below(ranges: Ranges, model: np.ndarray, depth: int) -> np.ndarray:
    if not model.any():
        return ranges.depth == depth - 1
    nearest = ranges.forest.nearest(model)
    return (nearest >= 0) & (ranges.depth - ranges.depth[nearest] == depth)


def _fill_between(
    ranges: Ranges, model: np.ndarray, member: np.ndarray, layer: np.ndarray, library: np.ndarray
) -> np.ndarray:
    """Levels of all spans from where models, siblings that are one execution, and layers are."""
    layer = ranges.outermost(layer & ~library & ~model)
    in_model, in_layer = ranges.inside(model | member) | member, ranges.inside(layer)
    around_layer = ranges.around(layer)
    is_module_text = ranges.has_role("module", "layer")
    level = np.full(len(model), int(Level.APPLICATION), np.int8)
    level[in_model & ~in_layer & around_layer] = int(Level.MODULE)
    level[~in_model & around_layer & is_module_text] = int(Level.MODULE)
    level[in_layer | (in_model & ~around_layer)] = int(Level.OPERATION)
    level[layer] = int(Level.LAYER)
    level[model] = int(Level.MODEL)
    level[library] = int(Level.LIBRARY)
    return level
