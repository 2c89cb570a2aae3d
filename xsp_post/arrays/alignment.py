"""Two sequences of numbers → for each element of the second the element of the first that it repeats.

The second sequence is cut into pieces, each an equal piece of the first: long pieces first, and a piece that goes on
where the one before it ended is preferred. Pieces may repeat (a program that ran once recorded, ten times replayed)
and may come in another order; what occurs in no equal piece of some length stays unaligned.
"""

import numpy as np
import pandas as pd

# A piece this long is taken wherever it is found; a shorter one only where it goes on from the piece before it.
SEED_LENGTH = 8


def align(known: np.ndarray, other: np.ndarray, seed_length: int = SEED_LENGTH) -> np.ndarray:
    """Position in ``known`` for each element of ``other``, −1 where nothing is aligned; int64, shape (len(other),).

    known, other: integer symbols; equal symbols are equal launches. Near-linear: prefix doubling ranks windows of
    2^k symbols, then one step per piece (not per element) walks over ``other``.
    """
    result = np.full(len(other), -1, np.int64)
    if not len(known) or not len(other):
        return result
    ranks = _window_ranks(np.asarray(known, np.int64), np.asarray(other, np.int64))
    seed = _Seeds(ranks, len(known), min(seed_length, len(known), len(other)))
    at, go_on = 0, 0  # position in other; where the piece before it ended in known
    missed = 0  # elements since then: the more, the longer a piece must be that goes on there
    while at < len(other):
        start, length = seed.best(at, go_on)
        if length > min(missed, seed.length - 1):
            result[at : at + length] = start + np.arange(length)
            at, go_on, missed = at + length, start + length, 0
        else:
            after = at + 1 if missed < seed.length else int(seed.next[at])
            go_on, missed, at = go_on + after - at, missed + after - at, after
    return result


def _window_ranks(known: np.ndarray, other: np.ndarray) -> list[np.ndarray]:
    """For k = 0, 1, …: a number for each window of 2^k symbols in known, a separator, other. Equal windows have equal
    numbers; windows over an end differ from all others. The last entry has no equal windows of known and other."""
    separator = np.int64(-1)
    joined = np.concatenate([known, [separator], other])
    codes, _ = pd.factorize(joined)
    ranks = [codes.astype(np.int64)]
    size, count = 1, len(joined)
    while 2 * size <= min(len(known), len(other)):
        last = ranks[-1]
        width = int(last.max()) + 2
        key = last * width
        key[: count - size] += last[size:] + 1
        key[count - size :] = width * width + np.arange(size)  # a window over the end is like no other
        codes, _ = pd.factorize(key)
        ranks.append(codes.astype(np.int64))
        size *= 2
        if not np.isin(codes[len(known) + 1 :], codes[: len(known)]).any():
            break
    return ranks


class _Seeds:
    """Where pieces of ``other`` begin in ``known``, looked up by the number of a window of seed length."""

    def __init__(self, ranks: list[np.ndarray], known_count: int, seed_length: int) -> None:
        self.ranks = ranks
        self.length = seed_length
        self.known_count = known_count
        self.offset = known_count + 1  # of other in the joined sequence
        self.other_count = len(ranks[0]) - self.offset
        level = min(max(int(np.log2(max(seed_length, 1))), 0), len(ranks) - 1)
        window = ranks[level]
        self.order = np.argsort(window[:known_count], kind="stable")
        self.sorted = window[:known_count][self.order]
        wanted = window[self.offset :]
        self.first = np.searchsorted(self.sorted, wanted, side="left")
        self.last = np.searchsorted(self.sorted, wanted, side="right")
        begins = np.append(np.flatnonzero(self.last > self.first), self.other_count)
        # by position of ``other``: the next one after it at which a window of seed length is one of ``known``
        self.next = begins[np.searchsorted(begins, np.arange(1, self.other_count + 1))]

    def best(self, at: int, go_on: int) -> tuple[int, int]:
        """Start in known and length of the best piece from ``at``: the one that goes on unless another is longer than
        it by a seed; (0, 0) where there is none."""
        going = self._common(go_on, at) if go_on < self.known_count else 0
        candidates = self.order[self.first[at] : self.last[at]]
        if not len(candidates) or (going and at + going >= self.other_count):
            return (go_on, going) if going else (0, 0)
        lengths = self._common_many(candidates, at)
        longest = int(lengths.max())
        if going and going >= longest:
            return go_on, going
        # of equally long pieces the first one at or after the place where the piece before it ended
        equal = np.sort(candidates[lengths == longest])
        after = equal[equal >= go_on]
        return int(after[0] if len(after) else equal[0]), longest

    def _common(self, start: int, at: int) -> int:
        return int(self._common_many(np.array([start], np.int64), at)[0])

    def _common_many(self, starts: np.ndarray, at: int) -> np.ndarray:
        """Lengths of the common beginnings of known[start:] and other[at:], by windows of falling size."""
        length = np.zeros(len(starts), np.int64)
        for level in range(len(self.ranks) - 1, -1, -1):
            size, window = 1 << level, self.ranks[level]
            active = np.ones(len(starts), bool)
            while active.any():
                left, right = starts + length, at + length
                fits = active & (left + size <= self.known_count) & (right + size <= self.other_count)
                equal = np.zeros(len(starts), bool)
                equal[fits] = window[left[fits]] == window[self.offset + right[fits]]
                length[equal] += size
                active = equal
        return length
