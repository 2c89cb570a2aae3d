"""Trace → Tree, for launches without ranges: all sequences of a capture become inferred nodes and findings."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.base.findings import Finding, finding
from xsp_post.inference.assemble import Sequence, nodes_of
from xsp_post.inference.blocks import tandem_repeats
from xsp_post.inference.labels import (
    Traits,
    is_group_of_layers,
    is_network,
    is_one_layer,
    is_part_of_network,
    is_training_step,
)
from xsp_post.inference.passes import (
    as_one_iteration,
    begin_at_pauses,
    layers_in,
    of_layers,
    passes_in_turns,
    turns_to_leave_out,
    with_other_passes,
)  # fmt: skip
from xsp_post.inference.sequence import random_words
from xsp_post.inference.turns import Iterations, find_iterations

# Fewer launches than this repeat by chance as easily as by structure.
FEWEST_LAUNCHES = 20
# Regular iterations that cover less of the launches than this do not describe a program.
_LEAST_COVERAGE = 0.4
_GOOD_SCORE = 0.9
# Fewer turns that look like layers than this may as well be passes of a model that has one.
_FEWEST_LAYERS = 4


@dataclass
class Inference:
    """Inferred nodes and the launches below them.

    nodes             one row per node, parents first: parent (row, −1 top), depth, level (``APPLICATION``, ``MODEL``,
                      ``MODULE``, ``LAYER``, ``OPERATION``), kind (``iteration``, ``around``, ``phase``, ``block``,
                      ``part``, ``stretch``), name, folded_name, iteration_index (−1 outside), iteration_class
                      (``regular``, ``warm-up``, ``odd``, ``tail``, ''), series_index, block_index, block_count (k of
                      n equal blocks, 1-based, 0 none), equal_class (equal number = equal launches, −1),
                      matched_block_index (of a backward block its forward block, 0 none), layer_type, confidence
                      (0…1), process_index, thread_index, launch_count, self_launch_count, start_ns, end_ns (host),
                      sequence_index, first_launch, end_launch (positions in the launch order of that sequence,
                      end exclusive, launches that ranges account for included)
    node_of_launch    row of `nodes` for each row of the launches given, −1 none; int64 (n,)
    findings          why, or why not, and how to record the real thing
    """

    nodes: pd.DataFrame
    node_of_launch: np.ndarray
    findings: list[Finding] = field(default_factory=list)

    @property
    def iterations(self) -> pd.DataFrame:
        """The nodes that are iterations, in order."""
        return self.nodes[self.nodes["kind"] == "iteration"]


def infer(launches: pd.DataFrame, names: Strings, *, hints: pd.DataFrame | None = None) -> Inference:
    """Iterations and blocks of a capture from its launch sequence alone; near-linear in the launches.

    launches  one row per kernel execution or opaque graph launch, any order: process_index, thread_index,
              name_id, launch_start_ns, launch_end_ns (−1: no launch row; such are left out), start_ns, end_ns
              (device), all integer; optional device_id, context_id, stream_id, grid_x … block_z, graph_id, and
              is_covered (bool: a recorded range accounts for it: it helps to find what repeats, but gets no
              inferred node)
    names     kernel names that name_id indexes
    hints     optional: process_index, start_ns of synchronisations and copies on the host
    """
    covered = launches["is_covered"].to_numpy() if "is_covered" in launches else np.zeros(len(launches), bool)
    open_count = int((~covered).sum())
    nothing = Inference(nodes_of([], launches, covered)[0], np.full(len(launches), -1, np.int64))
    if not open_count:
        return nothing
    if len(launches) < FEWEST_LAUNCHES or open_count < FEWEST_LAUNCHES:
        example = f"{open_count} kernels without a range; at least {FEWEST_LAUNCHES} are needed"
        nothing.findings.append(finding("too-few-kernels", count=open_count, example=example))
        return nothing
    traits = Traits.of_names(names, launches["name_id"].to_numpy())
    sequences: list[Sequence] = []
    reasons: list[str] = []
    for process in np.unique(launches["process_index"].to_numpy()).tolist():
        found, reason = _of_process(launches, process, traits, hints)
        sequences += found
        if reason:
            reasons.append(reason)
    nodes, node_of_launch = nodes_of(sequences, launches, covered)
    result = Inference(nodes, node_of_launch)
    result.findings += _findings(result, reasons, open_count)
    return result


def _findings(result: Inference, reasons: list[str], open_count: int) -> list[Finding]:
    found = []
    placed = int((result.node_of_launch >= 0).sum())
    if placed:
        found.append(finding("inferred-structure", count=placed, example=_summary(result.iterations, result.nodes)))
    if reasons:
        found.append(finding("nothing-repeats", count=open_count - placed, example=reasons[0]))
    return found


def _summary(iterations: pd.DataFrame, nodes: pd.DataFrame) -> str:
    """``4 iterations of 1,832 kernels, 32 blocks in each``, one clause per repetition."""
    clauses = []
    for (_, name), group in iterations.groupby(["series_index", "folded_name"], sort=False):
        clause = f"{len(group)} × {name} of {int(group['launch_count'].median()):,} kernels"
        inner = nodes[(nodes["level"] == "LAYER") & (nodes["kind"] == "block")]
        inner = inner[inner["iteration_index"].isin(group["iteration_index"])]
        blocks = inner.groupby("iteration_index").size().reindex(group["iteration_index"], fill_value=0).median()
        if blocks:
            clause += f", {int(blocks)} blocks in each"
        clauses.append(clause)
    return "; ".join(clauses)


# ---------------------------------------------------------------- one process


def _of_process(
    launches: pd.DataFrame, process: int, traits: Traits, hints: pd.DataFrame | None
) -> tuple[list[Sequence], str]:
    """The sequences of one process: all launches as one, or one per thread or stream where that repeats better."""
    mine = (launches["process_index"].to_numpy() == process) & (launches["launch_start_ns"].to_numpy() >= 0)
    rows = np.flatnonzero(mine)
    if len(rows) < FEWEST_LAUNCHES:
        return [], f"{len(rows)} launches in the process are too few" if len(rows) else ""
    rows = _in_launch_order(launches, rows)
    return _of_rows(launches, rows, _breaks(launches, rows, hints, process), traits)


def _of_rows(
    launches: pd.DataFrame, rows: np.ndarray, breaks: np.ndarray, traits: Traits, has_loops: bool = True
) -> tuple[list[Sequence], str]:
    best: list[tuple[np.ndarray, Iterations]] = []
    best_score, best_coverage, reason = -1.0, 0.0, ""
    for columns in _ways_to_split(launches, rows):
        for symbols in symbols_of(launches, rows):
            found = _split_and_find(launches, rows, symbols, columns, breaks)
            coverage = sum(i.coverage(len(r)) * len(r) for r, i in found) / len(rows)
            score = sum(i.agreement() for _, i in found) / len(rows)
            reason = reason or next((i.reason for _, i in found if i.reason), "")
            if score > best_score + 0.05:
                best, best_score, best_coverage, chosen_symbols = found, score, coverage, symbols
            if best_score >= _GOOD_SCORE:
                break
        if best_score >= _GOOD_SCORE:
            break
    if has_loops and len(best) == 1:
        part, turns = best[0]
        order = _position(launches, rows)[part]
        left_out = turns_to_leave_out(turns, chosen_symbols[order], _taken(traits, part))
        if left_out is not None:
            made, why = _of_rows(launches, part[~left_out], breaks[order][~left_out], traits, has_loops=False)
            return [made[0].with_left_out(part, left_out, launches)] if len(made) == 1 else made, why
    if best_coverage < _LEAST_COVERAGE:
        if best_coverage > 0:
            reason = f"what repeats evenly covers {best_coverage:.0%} of the launches only"
        return [], reason
    position = _position(launches, rows)
    best = [
        (part, _passes_of(part, found, launches, traits, chosen_symbols[position[part]], breaks[position[part]], rows))
        for part, found in best
    ]
    sequences = [
        Sequence.of(launches, part, chosen_symbols[position[part]], iterations, traits) for part, iterations in best
    ]
    return sorted(sequences, key=lambda s: -len(s.rows)), ""


def _position(launches: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    position = np.empty(len(launches), np.int64)
    position[rows] = np.arange(len(rows))
    return position


def _taken(traits: Traits, rows: np.ndarray) -> Traits:
    return Traits(*(getattr(traits, name)[rows] for name in Traits.__dataclass_fields__))


def _passes_of(
    part: np.ndarray, found: Iterations, launches: pd.DataFrame, traits: Traits, symbols: np.ndarray,
    breaks: np.ndarray, rows: np.ndarray,
) -> Iterations:  # fmt: skip
    """Passes through a whole model, from what repeats in a part of the launches."""
    taken = _taken(traits, part)
    found = with_other_passes(passes_in_turns(found, symbols, breaks, taken), symbols, taken, breaks)
    return _iterations_or_layers(part, found, launches, taken, symbols, breaks, rows)


def _iterations_or_layers(
    part: np.ndarray, found: Iterations, launches: pd.DataFrame, taken: Traits, symbols: np.ndarray,
    breaks: np.ndarray, rows: np.ndarray,
) -> Iterations:  # fmt: skip
    """Turns of a neural network that hold no blocks themselves and begin at no pause of the host, or that are what one
    transformer layer is, are taken for the layers of one iteration: 32 equal turns may be 32 forward passes or one
    pass through 32 layers. A pause alone does not tell: hosts also wait for a layer's parameters."""
    if not found.repetitions or len(part) != len(rows):
        return found
    if len(found.repetitions) > 1:
        return as_one_iteration(found, len(part)) if _are_stages(found, taken, symbols, breaks) else found
    first, last = found.repetitions[0].template
    turn = np.arange(first, last)
    if is_training_step(launches["thread_index"].to_numpy()[part][turn], taken, turn):
        return found
    is_layer = len(found) >= _FEWEST_LAYERS and is_one_layer(taken, turn)
    if not is_network(taken, turn) or (not is_layer and begin_at_pauses(found, breaks)):
        return found
    is_layer |= len(found) >= _FEWEST_LAYERS and is_group_of_layers(taken, turn, symbols[first:last])
    if not is_layer and not is_part_of_network(taken, turn) and not is_one_layer(taken, turn, may_look_up=True):
        return found
    inner = tandem_repeats(symbols_of(launches, part)[0][first:last])
    if not is_layer and len(inner) and int((inner[:, 1] * inner[:, 2])[inner[:, 2] >= 3].sum()) >= 0.5 * (last - first):
        return found
    return of_layers(found, symbols)


def _are_stages(found: Iterations, taken: Traits, symbols: np.ndarray, breaks: np.ndarray) -> bool:
    """Whether turns of several kinds, those of a kind one after another, are blocks of the stages of one pass (of a
    convolutional network, say): too small for whole networks, and the host does not pause before them."""
    runs = int((found.series[1:] != found.series[:-1]).sum()) + 1
    turns = [np.arange(*one.template) for one in found.repetitions]
    if runs > len(turns) or not all(is_part_of_network(taken, turn) for turn in turns):
        return False
    if any(layers_in(symbols, taken, *one.template)[2] for one in found.repetitions):
        return False
    has_pauses = float(np.ptp(breaks[1:])) > 0
    return not (has_pauses and any(begin_at_pauses(Iterations.of([one]), breaks) for one in found.repetitions))


def _in_launch_order(launches: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
    at = launches["launch_start_ns"].to_numpy()[rows]
    started = launches["start_ns"].to_numpy()[rows]
    # Kernels of one graph launch share it: they follow one another as they ran.
    return rows[np.lexsort((started, at))]


def _ways_to_split(launches: pd.DataFrame, rows: np.ndarray) -> list[list[str]]:
    """Columns to split a process by, simplest first; a way that splits nothing more is left out."""
    ways: list[list[str]] = [[]]
    for columns in (["thread_index"], ["thread_index", "device_id", "context_id", "stream_id"]):
        columns = [c for c in columns if c in launches]
        more = [c for c in columns if len(np.unique(launches[c].to_numpy()[rows])) > 1]
        if more and more != ways[-1]:
            ways.append(more)
    return ways


def symbols_of(launches: pd.DataFrame, rows: np.ndarray) -> list[np.ndarray]:
    """Symbols of the rows, finest first: name, grid, block and graph; then the name alone (shapes may grow with
    each step of a decoder, a graph may be made anew). Work of a CUDA graph is distinguished from the same launched
    singly."""
    name = random_words(launches["name_id"].to_numpy()[rows])
    with np.errstate(over="ignore"):
        if "graph_id" in launches:
            name = name + random_words((launches["graph_id"].to_numpy()[rows] > 0) + np.int64(1 << 40))
        fine = name.copy()
        if "graph_id" in launches:
            fine += random_words(launches["graph_id"].to_numpy()[rows].astype(np.int64) + np.int64(1 << 42))
        for number, column in enumerate(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")):
            if column in launches:
                shape = launches[column].to_numpy()[rows].astype(np.int64)
                fine += random_words(shape + np.int64((number + 1) << 33))
    both = [pd.factorize(fine)[0].astype(np.int64), pd.factorize(name)[0].astype(np.int64)]
    return both if both[0].max() != both[1].max() else both[:1]


def _split_and_find(
    launches: pd.DataFrame, rows: np.ndarray, symbols: np.ndarray, columns: list[str], breaks: np.ndarray
) -> list[tuple[np.ndarray, Iterations]]:
    if not columns:
        return [(rows, find_iterations(symbols, breaks))]
    group = launches.iloc[rows].groupby(columns, sort=False).ngroup().to_numpy()
    found = []
    for number in range(int(group.max()) + 1):
        chosen = np.flatnonzero(group == number)
        found.append((rows[chosen], find_iterations(symbols[chosen], breaks[chosen])))
    return found


def _breaks(launches: pd.DataFrame, rows: np.ndarray, hints: pd.DataFrame | None, process: int) -> np.ndarray:
    """How long the host paused before each launch, ns; four times that where it synchronised or copied."""
    start = launches["launch_start_ns"].to_numpy()[rows]
    end = launches["launch_end_ns"].to_numpy()[rows]
    pause = np.concatenate([[0], np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)]).astype(np.float64)
    if hints is not None and len(hints):
        at = np.sort(hints["start_ns"].to_numpy()[hints["process_index"].to_numpy() == process])
        after = np.searchsorted(at, start, side="left")
        pause[1:][after[1:] > after[:-1]] *= 4
    return pause
