"""Arithmetic on allocations and releases: which release ends which allocation, what was live when. NumPy only.

Events are rows in order of time. ``place`` numbers the memories (a GPU as one process uses it, the host's);
``size`` is positive for allocations, negative for releases, never 0.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xsp_post.arrays.rollup import sums_per_node

Int = NDArray[np.int64]


class Lives(NamedTuple):
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


class Held(NamedTuple):
    """What owners hold of one memory: each change (bytes, negative where memory comes back) with its event and owner;
    all of shape (changes,)."""

    when: Int
    who: Int
    change: Int
    owner_count: int

    def at(self, event: int) -> Int:
        """What each owner holds after an event (−1: before all). Shape (owners,)."""
        now = self.when <= event
        return sums_per_node(self.who[now], self.change[now], self.owner_count)

    def most(self, first: int, last: int) -> Int:
        """The most that each owner holds before the event ``first``, or after one from there to ``last``."""
        order = np.lexsort(
            (self.change, self.when, self.who)
        )  # of one event the end comes first: the address is used again
        who, when = self.who[order], self.when[order]
        held = running(who, self.change[order], self.owner_count)
        inside = (when >= first) & (when <= last)
        most = self.at(first - 1)
        np.maximum.at(most, who[inside], held[inside])
        return most
