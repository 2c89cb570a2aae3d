"""Trace → Tree, for ranges that hold many launches and no layers: the blocks that repeat inside each of them.

Where the executions begin and end is known (the ranges); what they consist of is inferred as it is for executions
that were inferred themselves: the outline of a typical one, found again in the others.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.inference.assemble import Sequence, nodes_of
from xsp_post.inference.blocks import class_numbers
from xsp_post.inference.build import Inference, symbols_of
from xsp_post.inference.labels import Traits
from xsp_post.inference.repetition import REGULAR, Repetition
from xsp_post.inference.turns import Iterations, same_content


def infer_inside(
    launches: pd.DataFrame, names: Strings, owner: np.ndarray, series: np.ndarray, phases: list[str]
) -> tuple[Inference, np.ndarray]:
    """Blocks inside ranges that were recorded.

    launches, names: as for `infer`; owner int64 (launches,): the range that each launch lies in, all ≥ 0; series int64
    (ranges,): which ranges are alike (0…k−1); phases (k): ``forward``, ``backward`` … of each kind, '' unknown.
    Returns the inference, whose iterations stand for the ranges, and the range of each iteration (by iteration_index).
    """
    traits = Traits.of_names(names, launches["name_id"].to_numpy())
    covered = np.zeros(len(launches), bool)
    process = launches["process_index"].to_numpy()
    sequences, ranges = [], []
    for number in np.unique(process).tolist():
        rows = np.flatnonzero(process == number)
        at, started = launches["launch_start_ns"].to_numpy()[rows], launches["start_ns"].to_numpy()[rows]
        # ranges one after another, launches of each in their order; kernels of one graph launch as they ran
        first = pd.Series(at).groupby(owner[rows]).transform("min").to_numpy()
        rows = rows[np.lexsort((started, at, owner[rows], first))]
        own = owner[rows]
        edges = np.flatnonzero(np.r_[True, own[1:] != own[:-1], True])
        which = own[edges[:-1]]
        symbols = _best_symbols(launches, rows, edges)
        found = _iterations(symbols, edges, series[which])
        kinds = pd.unique(series[which])
        sequence = Sequence.of(launches, rows, symbols, found, traits)
        sequence.phase_of_series = tuple(phases[kind] for kind in kinds.tolist())
        sequences.append(sequence)
        ranges.append(which)
    nodes, node_of_launch = nodes_of(sequences, launches, covered)
    return Inference(nodes, node_of_launch), np.concatenate(ranges) if ranges else np.zeros(0, np.int64)


def _best_symbols(launches: pd.DataFrame, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Name and shape, unless ranges that are alike by name differ in their shapes."""
    fine, *coarse = symbols_of(launches, rows)
    if not coarse or len(edges) <= 2:
        return fine
    different = [len(np.unique(same_content(s, edges[:-1], edges[1:]))) for s in (fine, coarse[0])]
    return coarse[0] if different[1] <= 0.5 * different[0] and different[0] > 3 else fine


def _iterations(symbols: np.ndarray, edges: np.ndarray, series: np.ndarray) -> Iterations:
    """The ranges as iterations; of each kind the most common content is typical, of equals the last."""
    starts, ends = edges[:-1], edges[1:]
    number, kinds = pd.factorize(series)
    content = class_numbers(same_content(symbols, starts, ends))
    repetitions = []
    for kind in range(len(kinds)):
        mine = np.flatnonzero(number == kind)
        common = np.bincount(content[mine])
        typical = mine[np.flatnonzero(common[content[mine]] == common.max())[-1]]
        template = (int(starts[typical]), int(ends[typical]))
        repetitions.append(Repetition(starts[mine], ends[mine], np.full(len(mine), REGULAR, np.int8), template))
    return Iterations(starts, ends, np.full(len(starts), REGULAR, np.int8), number.astype(np.int64), repetitions)
