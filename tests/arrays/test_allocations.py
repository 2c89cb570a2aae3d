"""Allocations and releases: paired by address; what is live when is what a book-keeper would write down."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.arrays.allocations import Held, pair, running


def arrays(*columns):
    return tuple(np.array(column, np.int64) for column in columns)


def held_by(lives, size, owner, count):
    """What owners hold of one memory, from paired allocations."""
    made = np.flatnonzero(size > 0)
    ended = made[lives.ended_by[made] >= 0]
    when, who = np.append(made, lives.ended_by[ended]), np.append(owner[made], owner[ended])
    return Held(when, who, np.append(size[made], -size[ended]), count)


def test_a_release_ends_the_allocation_of_its_address_and_the_address_lives_again():
    #                              a+   b+  a-   a+   b-   c-
    place, address, size = arrays([0] * 6, [1, 2, 1, 1, 2, 3], [10, 20, -10, 5, -20, -7])
    lives = pair(place, address, size)
    assert lives.origin.tolist() == [0, 1, 0, 3, 1, -1]  # the last was made before the first event
    assert lives.ended_by.tolist() == [2, 4, -1, -1, -1, -1]
    assert lives.change.tolist() == [10, 20, -10, 5, -20, 0]
    assert not lives.is_reuse.any()
    mine = held_by(lives, size, np.arange(6), 6)
    assert mine.at(1).tolist() == [10, 20, 0, 0, 0, 0]
    assert mine.at(3).tolist() == [0, 20, 0, 5, 0, 0]
    assert mine.at(-1).sum() == 0
    assert mine.most(0, 5).tolist() == [10, 20, 0, 5, 0, 0]
    assert mine.most(3, 5).tolist() == [0, 20, 0, 5, 0, 0]  # the first came back before


def test_the_same_address_in_two_places_is_two_memories():
    lives = pair(*arrays([0, 1, 0], [9, 9, 9], [4, 8, -4]))
    assert lives.ended_by.tolist() == [2, -1, -1]
    assert running(np.array([0, 1, 0]), lives.change, 2).tolist() == [4, 8, 0]
    assert running(np.array([0, 1, 0]), lives.change, 2, np.array([100, 200])).tolist() == [104, 208, 100]


def test_an_address_allocated_again_without_a_release_ends_the_first_life_there():
    lives = pair(*arrays([0] * 3, [9, 9, 9], [4, 6, -6]))
    assert lives.is_reuse.tolist() == [False, True, False]
    assert lives.ended_by.tolist() == [1, 2, -1] and lives.change.tolist() == [4, 2, -6]
    assert held_by(lives, np.array([4, 6, -6]), np.zeros(3, np.int64), 1).most(0, 2).tolist() == [6]


EVENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5), st.integers(-9, 9).filter(bool)), max_size=40)


@examples(200)
@given(EVENTS)
def test_live_bytes_are_those_of_a_book_keeper(events):
    place, address, size = arrays(*(zip(*events) if events else ([], [], [])))
    lives = pair(place, address, size)
    total = running(place, lives.change, 2)
    book, held = {}, [0, 0]
    for row, (where, at, change) in enumerate(events):
        key = (where, at)
        before = book.pop(key, 0)
        if change > 0:
            book[key] = change
        held[where] += (change if change > 0 else 0) - before
        assert total[row] == held[where] == sum(b for (w, _), b in book.items() if w == where) >= 0
        assert held_by(lives, size, place, 2).at(row)[where] == total[row]
    owner = place * 3 + address % 3
    mine = held_by(lives, size, owner, 6)
    for first in range(len(events)):
        most = mine.most(first, len(events) - 1)
        assert (most == np.max([mine.at(row) for row in range(first - 1, len(events))], axis=0)).all()


def test_sums_of_bytes_are_whole_numbers():
    place, change = arrays([0, 1, 0], [1 << 55, 3, 1])
    assert running(place, change, 2).tolist() == [1 << 55, 3, (1 << 55) + 1]
    assert running(place, change, 2).dtype == np.int64
