"""Arithmetic on allocations and releases: which release ends which allocation, what was live when. NumPy only.

Events are rows in order of time. ``place`` numbers the memories (a GPU as one process uses it, the host's);
``size`` is positive for allocations, negative for releases, never 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]


@dataclass
class Lives:
    """Every event with the allocation it is about; all of shape (events,)."""

    origin: Int  # row of the allocation: its own, or the one that is released; −1: made before the first event
    ended_by: Int  # of an allocation: row of its release, or of the next allocation of its address; −1 none
    is_reuse: NDArray[np.bool_]  # allocation of an address whose release is missing
    change: Int  # bytes that known allocations grow or shrink by


def pair(place: Int, address: Int, size: Int) -> Lives:
    """Pair releases with allocations by place and address. An allocated address that is allocated again begins a
    new life and ends the old one."""
    count = len(size)
    rows = np.arange(count)
    is_allocation = size > 0
    order = np.lexsort((rows, address, place))
    same = (place[order][1:] == place[order][:-1]) & (address[order][1:] == address[order][:-1])
    before = np.full(count, -1, np.int64)
    before[order[1:]] = np.where(same, order[:-1], -1)
    ends = (before >= 0) & is_allocation[before]
    ended_by = np.full(count, -1, np.int64)
    ended_by[before[ends]] = rows[ends]
    change = np.where(is_allocation, size, 0)
    change[ends] -= size[before[ends]]
    return Lives(
        origin=np.where(is_allocation, rows, np.where(ends, before, -1)),
        ended_by=ended_by,
        is_reuse=ends & is_allocation,
        change=change,
    )


def running(place: Int, change: Int, place_count: int, first: Int | None = None) -> Int:
    """Sum of the changes of each place up to and with every event, begun at ``first`` (per place, default 0)."""
    order = np.argsort(place, kind="stable")
    summed = np.concatenate([[0], np.cumsum(change[order])])
    before = summed[np.searchsorted(place[order], np.arange(place_count))]  # the sum of all earlier places
    result = np.empty(len(change), np.int64)
    result[order] = summed[1:] - before[place[order]]
    return result if first is None else result + first[place]


def live_at(lives: Lives, row: Int) -> NDArray[np.bool_]:
    """Whether each event is an allocation that is live after the event ``row`` of its place (−1: before all)."""
    rows = np.arange(len(lives.origin))
    lasts = (lives.ended_by < 0) | (lives.ended_by > row)
    return (lives.origin == rows) & (rows <= row) & lasts


def most_live(lives: Lives, size: Int, owner: Int, owner_count: int) -> Int:
    """The most that the allocations of each owner (−1 none) held at once; shape (owner_count,)."""
    made = np.flatnonzero((size > 0) & (owner >= 0))
    ended = made[lives.ended_by[made] >= 0]
    who = np.concatenate([owner[ended], owner[made]])
    when = np.concatenate([lives.ended_by[ended], made])
    by = np.concatenate([-size[ended], size[made]])
    order = np.lexsort((by, when, who))  # of one event the end comes first: the address is used again
    result = np.zeros(owner_count, np.int64)
    if len(order):
        who = who[order]
        held = running(who, by[order], owner_count)
        np.maximum.at(result, who, held)
    return result
