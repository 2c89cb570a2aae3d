"""Trace → Tree, step "what is one model execution": sibling ranges that repeat in the same order.

``reader, backbone, head, reader, backbone, head …`` is one execution per turn. The names that belong to a turn occur
equally often, and most turns have the same order of them. A turn begins where the host pauses longest, else at the
range that comes first. A recording may begin inside a turn: that counts where it has the work of one.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.tree.structure.constants import Constants
from xsp_post.tree.structure.hashes import Hashed

_MOST_PARENTS = 16


@dataclass(frozen=True)
class Cycle:
    """``spans`` in the turns, ``turn`` of each (0…count − 1), the names a turn begins and ends with, and spans behind
    turns that are ``alone``."""

    spans: np.ndarray
    turn: np.ndarray
    count: int
    first_name: int
    last_name: int
    alone: np.ndarray


def find_cycle(
    parent: np.ndarray, name: np.ndarray, thread: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, inside_ns:
    np.ndarray, launches: np.ndarray, taken: np.ndarray, total_ns: int, constants: Constants,
) -> Cycle | None:  # fmt: skip
    """The cycle of siblings that covers most device time, None where no turn repeats. All arrays are per span but
    for the total; ``taken`` says which spans may belong to a turn, ``launches`` how many lie in each."""
    # siblings: the outermost ranges of each thread, and the children of each range with much of the work
    home = np.where(parent >= 0, parent, -2 - thread)
    large = np.append(inside_ns >= constants.most_ratio * max(total_ns, 1), True)
    rows = np.flatnonzero(taken & large[np.maximum(parent, -1)])
    rows = rows[np.lexsort((start_ns[rows], home[rows]))]
    sets = np.split(rows, np.flatnonzero(np.diff(home[rows])) + 1)
    outer = rows[parent[rows] < 0]  # also of several threads that take turns
    sets += [outer[np.argsort(start_ns[outer], kind="stable")]] * (len(np.unique(thread[outer])) > 1)
    sets = [one for one in sets if len(one) >= 2 * constants.fewest_turns]
    sets.sort(key=lambda one: -inside_ns[one].sum())
    found = [
        _cycle_of(one, name[one], inside_ns[one], launches[one], _pauses(start_ns[one], end_ns[one]), constants)
        for one in sets[:_MOST_PARENTS]
    ]
    held = [(int(inside_ns[one.spans].sum()), -k) for k, one in enumerate(found) if one is not None]
    most, k = max(held, default=(0, 0))
    return found[-k] if most else None


def _cycle_of(
    rows: np.ndarray, name: np.ndarray, weight: np.ndarray, launches: np.ndarray, pause: np.ndarray,
    constants: Constants,
) -> Cycle | None:  # fmt: skip
    """The turns of one series of siblings in the order of their start; ``pause`` of the host before each."""
    symbol, names = pd.factorize(name)
    often = np.bincount(symbol)
    of_name = np.bincount(symbol, weights=weight.astype(float))
    count = _turn_count(often, of_name, constants)
    if not count:
        return None
    belongs = np.abs(often - count) <= max(1, int(constants.near_ratio * count))
    for anchor in _anchors(symbol, belongs, pause, constants):
        found = _turns_from(anchor, rows, symbol, names, weight, launches, belongs, constants)
        if found is not None:
            return found
    return None


def _turns_from(
    anchor: int, rows: np.ndarray, symbol: np.ndarray, names: np.ndarray, weight: np.ndarray, launches: np.ndarray,
    belongs: np.ndarray, constants: Constants,
) -> Cycle | None:  # fmt: skip
    """The turns that begin with one name; None where too few are alike."""
    turn = np.cumsum(symbol == anchor) - 1
    held = np.bincount(turn[belongs[symbol]] + 1, weights=weight[belongs[symbol]])
    turn += held[0] >= constants.alike_ratio * np.median(held[1:]) > 0
    member = np.flatnonzero(belongs[symbol] & (turn >= 0))
    turns = int(turn[-1]) + 1
    first = np.searchsorted(turn[member], np.arange(turns))
    content = Hashed.of(symbol[member].astype(np.int64)).stretches(first, np.append(first[1:], len(member)))
    kinds, alike = np.unique(content, return_counts=True)
    usual = np.flatnonzero(content == kinds[np.argmax(alike)])
    if turns < constants.fewest_turns or len(usual) < max(constants.fewest_turns, constants.alike_ratio * turns):
        return None
    typical = member[turn[member] == usual[0]]
    if len(np.unique(symbol[typical])) < 2:
        return None
    # what follows the last range of the last turn is not part of it
    inside = (turn >= 0) & (np.arange(len(turn)) <= member[-1])
    if weight[inside & belongs[symbol]].sum() < constants.most_ratio * weight[inside].sum():
        return None  # most of a turn is in none of the others
    # what stands behind a turn and launches as much as a good part of it is one by itself: an evaluation
    last = np.zeros(turns, np.int64)
    np.maximum.at(last, turn[member], member)
    large = launches[typical][launches[typical] >= constants.large_ratio * launches[typical].sum()]
    near = np.abs(launches[:, None] - large) <= constants.uneven_ratio * large
    alone = ~belongs[symbol] & (turn >= 0) & (np.arange(len(turn)) > last[turn]) & (weight > 0) & near.any(axis=1)
    inside &= ~alone
    last_name = int(names[symbol[typical[-1]]])
    return Cycle(rows[inside], turn[inside], turns, int(names[anchor]), last_name, rows[alone])


def _pauses(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Time between each range and the one before it, ns."""
    return np.r_[0, np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)]


def _anchors(symbol: np.ndarray, belongs: np.ndarray, pause: np.ndarray, constants: Constants) -> list[int]:
    """The names a turn may begin with: the one after clearly the longest typical pause, else the first that occurs. A
    recording may begin anywhere in a turn."""
    typical = pd.Series(pause).groupby(symbol).median().to_numpy(float, copy=True)
    typical[~belongs] = -1
    first, longest = int(symbol[belongs[symbol]][0]), int(np.argmax(typical))
    others = float(np.delete(typical, longest).max(initial=0))
    return [longest, first] if typical[longest] > constants.clear_pause * others else [first]


def _turn_count(often: np.ndarray, weight: np.ndarray, constants: Constants) -> int:
    """How often the turn repeats: the count that the names with most of the weight share; 0 for none."""
    best, best_weight = 0, 0.0
    for count in np.unique(often[often >= constants.fewest_turns]).tolist():
        near = np.abs(often - count) <= max(1, int(constants.near_ratio * count))
        total = float(weight[near].sum())
        if int(near.sum()) >= 2 and total > best_weight:
            best, best_weight = int(count), total
    return best
