"""Trace → Tree, for launches without ranges: the repeated blocks inside one turn, nested, and where they lie
in every turn.

A block is one turn of a tandem repeat (the same symbols twice or more in a row, at least two kinds of launch).
The widest repeats are taken first; inside one block the same is asked again. A block whose beginning (or end)
comes back within it is cut there into parts: a transformer layer has a norm before its attention and one
before its MLP. What no repeat covers stays uncovered here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from xsp_post.inference.boundaries import WINDOW, boundary_scores
from xsp_post.inference.repetition import PARTIAL, find_repetition
from xsp_post.inference.sequence import Hashed, bits_per_symbol, gram_statistics, telling_length

BLOCK, PART = 0, 1  # kinds of rows of a Layout
_MOST_LAGS = 64
_DEEPEST = 3


@dataclass
class Layout:
    """Blocks of one stretch of symbols: one row per block or part, parents before children.

    start, end: positions in the stretch; parent: row or −1; depth: 0 outermost; kind: `BLOCK` or `PART`;
    content: hash of the symbols (equal blocks have equal content); period: launches of one turn of its repeat.
    """

    start: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    end: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    parent: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    depth: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    kind: np.ndarray = field(default_factory=lambda: np.empty(0, np.int8))
    content: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))

    def __len__(self) -> int:
        return len(self.start)

    def chosen(self, keep: np.ndarray) -> Layout:
        """Only the rows where keep (bool) is set; the parent of a kept row must be kept."""
        number = np.cumsum(keep) - 1
        parent = np.where(self.parent[keep] >= 0, number[self.parent[keep]], -1)
        return Layout(self.start[keep], self.end[keep], parent, self.depth[keep], self.kind[keep], self.content[keep])


_COLUMNS = ("start", "end", "parent", "depth", "kind", "content")


def join(layouts: list[Layout]) -> Layout:
    """Layouts one after another; parents of each are counted from its own first row."""
    moved = []
    first = 0
    for layout in layouts:
        moved.append(replace(layout, parent=np.where(layout.parent >= 0, layout.parent + first, -1)))
        first += len(layout)
    return stack(moved) if moved else Layout()


def stack(layouts: list[Layout]) -> Layout:
    """Layouts one after another, parents as they are."""
    return Layout(*(np.concatenate([getattr(layout, name) for layout in layouts]) for name in _COLUMNS))


# ---------------------------------------------------------------- tandem repeats


def tandem_repeats(symbols: np.ndarray) -> np.ndarray:
    """Tandem repeats that do not overlap, widest first chosen: int64 rows (start, period, count), by start.

    symbols int64 (m,). Repeats of one launch kind only are left out (nothing tells their turns apart), and
    such that could be chance: what agrees must carry more bits than its place among m² pairs.
    """
    m = len(symbols)
    length = telling_length(m, bits_per_symbol(symbols), 4.0)
    if m < 2 * length:
        return np.empty((0, 3), np.int64)
    runs = _runs(symbols, _lags(symbols, length), length)
    return _chosen(runs, symbols)


def _lags(symbols: np.ndarray, length: int) -> np.ndarray:
    """Distances at which many short stretches recur: the candidates for a period; ascending."""
    stats = gram_statistics(Hashed.of(symbols).grams(length))
    gap = np.diff(stats.position)[stats.gram[1:] == stats.gram[:-1]]
    counts = np.bincount(gap, minlength=2)
    counts[:2] = 0
    best = np.argsort(-counts, kind="stable")[:_MOST_LAGS]
    return np.sort(best[counts[best] > 0])


def _runs(symbols: np.ndarray, lags: np.ndarray, length: int) -> np.ndarray:
    """Maximal stretches that equal themselves one period on: rows (start, period, span), primitive ones."""
    found: list[np.ndarray] = []
    for lag in lags:  # at most _MOST_LAGS
        same = np.concatenate([[False], symbols[lag:] == symbols[:-lag], [False]])
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        begin, agreed = edges[::2], edges[1::2] - edges[::2]
        long_enough = agreed >= max(int(lag), length)
        if long_enough.any():
            begin, agreed = begin[long_enough], agreed[long_enough]
            found.append(np.stack([begin, np.full(len(begin), lag), agreed + lag], axis=1))
    if not found:
        return np.empty((0, 3), np.int64)
    return np.concatenate(found).astype(np.int64)


def _chosen(runs: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    """From overlapping runs those that save most, trimmed where they touch; rows (start, period, count)."""
    order = np.lexsort((runs[:, 1], -(runs[:, 2] - runs[:, 1])))
    changes = np.concatenate([[0], np.cumsum(symbols[1:] != symbols[:-1]), [0]])
    is_taken = np.zeros(len(symbols) + 1, dtype=bool)
    chosen: list[tuple[int, int, int]] = []
    for start, period, span in runs[order][:10_000]:
        end = start + span
        taken = np.flatnonzero(is_taken[start:end])
        if len(taken) >= span:
            continue
        if len(taken):  # keep the longest free piece
            edges = np.concatenate([[-1], taken, [span]])
            widest = int(np.argmax(np.diff(edges)))
            start, end = start + edges[widest] + 1, start + edges[widest + 1]
        count = (end - start) // period
        if count < 2 or changes[start + period - 1] == changes[start]:
            continue
        chosen.append((int(start), int(period), int(count)))
        is_taken[start : start + period * count] = True
    return np.array(sorted(chosen), dtype=np.int64).reshape(-1, 3)


# ---------------------------------------------------------------- nesting


def find_layout(symbols: np.ndarray, *, align_right: bool = False, deepest: int = _DEEPEST) -> Layout:
    """Nested blocks of one stretch of symbols (int64, (m,)).

    align_right: where a repeat is longer than whole blocks, the blocks end with it rather than begin with it
    (the backward pass runs through the layers from their end).
    """
    if deepest <= 0 or len(symbols) < 4:
        return Layout()
    hashed = Hashed.of(symbols)
    runs = _aligned(tandem_repeats(symbols), symbols, align_right)
    ends = runs[:, 0] + runs[:, 1] * runs[:, 2]
    free = np.stack([np.r_[0, ends[:-1]], np.r_[runs[1:, 0], len(symbols)]], axis=1) if len(runs) else runs[:, :2]
    return join([_blocks_of_run(hashed, run, room, align_right, deepest) for run, room in zip(runs, free, strict=True)])


def _aligned(runs: np.ndarray, symbols: np.ndarray, align_right: bool) -> np.ndarray:
    if not align_right or not len(runs):
        return runs
    limits = np.concatenate([runs[1:, 0], [len(symbols)]])
    for row, limit in zip(runs, limits, strict=True):
        start, period, count = (int(value) for value in row)
        slack = symbols[start + period * count : min(limit, start + period * (count + 1))]
        before = symbols[start + period * (count - 1) :][: len(slack)]
        row[0] += int(np.argmin(np.append(slack == before, False)))
    return runs


def _blocks_of_run(hashed: Hashed, run: np.ndarray, room: np.ndarray, align_right: bool, deepest: int) -> Layout:
    """Blocks of one tandem repeat; room: from where to where no other repeat lies."""
    start, period, count = (int(value) for value in run)
    body = hashed.symbols[start : start + period]
    cuts = _near_equal_parts(body)
    if len(cuts) <= 2:
        starts = start + period * np.arange(count)
        return _blocks(hashed, starts, period, align_right, deepest)
    # layers that alternate a little (sliding and full attention, say): each part is a block
    layouts = []
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        starts = start + first + period * np.arange(-1, count + 1)
        starts = starts[(starts >= room[0]) & (starts + last - first <= room[1])]
        content = hashed.stretches(starts, starts + last - first)
        own = hashed.stretches(np.array([start + first]), np.array([start + last]))[0]
        layouts.append(_blocks(hashed, starts[content == own], last - first, align_right, deepest))
    result = join(layouts)
    result.content[result.depth == 0] = layouts[0].content[0]
    return result


def _blocks(hashed: Hashed, starts: np.ndarray, period: int, align_right: bool, deepest: int) -> Layout:
    """Blocks of one content at ``starts``, with what lies inside them."""
    count = len(starts)
    first = int(starts[0])
    inside = _inside(hashed.symbols[first : first + period], align_right, deepest - 1)
    content = hashed.stretches(starts, starts + period)
    block = Layout(
        starts, starts + period, np.full(count, -1), np.zeros(count, np.int64), np.full(count, BLOCK, np.int8), content
    )
    if not len(inside):
        return block
    size = len(inside)
    shift = np.repeat(starts, size)
    base = np.repeat(np.arange(count), size)
    rows_before = count + base * size
    parent = np.tile(inside.parent, count)
    children = Layout(
        np.tile(inside.start, count) + shift,
        np.tile(inside.end, count) + shift,
        np.where(parent >= 0, parent + rows_before, base),
        np.tile(inside.depth, count) + 1,
        np.tile(inside.kind, count),
        np.tile(inside.content, count),
    )
    return stack([block, children])


def _near_equal_parts(body: np.ndarray) -> np.ndarray:
    """Where a turn falls into two to six parts that differ by a few launches only; includes 0 and its length."""
    cuts = _part_boundaries(body)
    first = body[: cuts[1]]
    parts = [body[a:b] for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)]
    alike = len(first) >= 8 and all(_is_nearly(part, first) for part in parts)
    return cuts if alike else np.array([0, len(body)])


def _inside(symbols: np.ndarray, align_right: bool, deepest: int) -> Layout:
    """What one block consists of: parts if its beginning or end comes back in it, else repeats within it."""
    cuts = _part_boundaries(symbols)
    if deepest <= 0:
        return Layout()
    if len(cuts) <= 2:
        return find_layout(symbols, align_right=align_right, deepest=deepest)
    hashed = Hashed.of(symbols)
    content = hashed.stretches(cuts[:-1], cuts[1:])
    layouts = []
    for start, end, own in zip(cuts[:-1].tolist(), cuts[1:].tolist(), content, strict=True):
        part = Layout(*(np.array([value]) for value in (start, end, -1, 0, PART, own)))
        inner = find_layout(symbols[start:end], align_right=align_right, deepest=deepest - 1)
        inner.parent = np.where(inner.parent >= 0, inner.parent + 1, 0)
        inner = Layout(inner.start + start, inner.end + start, inner.parent, inner.depth + 1, inner.kind, inner.content)
        layouts.append(stack([part, inner]))
    return join(layouts)


def _part_boundaries(symbols: np.ndarray) -> np.ndarray:
    """Where a block falls into two to six parts that begin alike, or end alike; includes 0 and its length."""
    m = len(symbols)
    whole = np.array([0, m])
    length = max(4, telling_length(m, bits_per_symbol(symbols), 2.0))
    if m < 2 * length + 4:
        return whole
    codes = Hashed.of(symbols).grams(length)
    begins = np.flatnonzero(codes == codes[0])
    ends = np.flatnonzero(codes == codes[-1]) + length
    for cuts in (np.append(begins, m), np.concatenate([[0], ends])):
        sizes = np.diff(cuts)
        # Parts of one size and content would be a repeat, found elsewhere.
        if 3 <= len(cuts) <= 7 and sizes.min() >= max(length, 4):
            return cuts
    return whole


# ---------------------------------------------------------------- without noise, and in every turn


def cleaned(symbols: np.ndarray) -> np.ndarray:
    """The stretch with each block that is almost like most others written like them.

    Odd launches (a missing, an additional one) break exact repeats; what most blocks of one repetition look
    like is what the block is. Positions change; `places` finds them in the original again.
    """
    found = find_repetition(symbols)
    if len(found) < 3:
        return symbols
    content = Hashed.of(symbols).stretches(found.starts, found.ends)
    _, first, counts = np.unique(content, return_index=True, return_counts=True)
    best = int(np.argmax(counts))
    if counts[best] < 2 or counts[best] == len(found):
        return symbols
    typical = symbols[found.starts[first[best]] : found.ends[first[best]]]
    pieces: list[np.ndarray] = []
    at = 0
    for start, end, kind in zip(found.starts.tolist(), found.ends.tolist(), found.kinds.tolist(), strict=True):
        pieces.append(symbols[at:start])
        is_like = kind != PARTIAL and _is_nearly(symbols[start:end], typical)
        pieces.append(typical if is_like else symbols[start:end])
        at = end
    pieces.append(symbols[at:])
    result = np.concatenate(pieces)
    return result if _covered(result) > 1.05 * _covered(symbols) else symbols


def _covered(symbols: np.ndarray) -> int:
    runs = tandem_repeats(symbols)
    return int((runs[:, 1] * runs[:, 2]).sum())


def _is_nearly(part: np.ndarray, typical: np.ndarray) -> bool:
    """Whether two short stretches differ by a few launches only: of one length give or take 15 %, and of the
    first one's threes in a row at least half occur in the other."""
    if abs(len(part) - len(typical)) > max(2, 0.15 * len(typical)) or min(len(part), len(typical)) < 3:
        return False
    codes = Hashed.of(np.concatenate([part, typical])).grams(3)
    return float(np.isin(codes[: len(part) - 2], codes[len(part) :]).mean()) >= 0.5


def places(
    symbols: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    template: np.ndarray,
    offsets: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Where the offsets of a template lie in each turn [starts, ends) that is like it.

    offsets int64 (k,), ascending, within 0…len(template). Returns positions int64 (turns, k), never descending
    along a turn and within it, and the mean fit of each turn (0…1; 1 for turns equal to the template).
    """
    turns, k = len(starts), len(offsets)
    found = starts[:, None] + offsets[None, :]
    fit = np.ones(turns)
    if not turns or not k:
        return found, fit
    hashed = Hashed.of(np.concatenate([symbols, template]))
    own = hashed.stretches(np.array([len(symbols)]), np.array([len(symbols) + len(template)]))[0]
    unlike = np.flatnonzero(hashed.stretches(starts, ends) != own)
    if len(unlike):
        total = np.zeros(len(unlike))
        at, before = starts[unlike].copy(), 0
        drift = 3
        for column, offset in enumerate(offsets.tolist()):
            left, right = template[max(0, offset - WINDOW) : offset], template[offset : offset + WINDOW]
            at, score = boundary_scores(symbols, at + (offset - before), left, right, drift)
            at = np.clip(at, starts[unlike], ends[unlike])
            found[unlike, column] = at
            total += score
            before = offset
        fit[unlike] = total / k
        # The turn's own ends are known better.
        found[unlike] = np.where(offsets == 0, starts[unlike, None], found[unlike])
        found[unlike] = np.where(offsets == len(template), ends[unlike, None], found[unlike])
        found[unlike] = np.maximum.accumulate(found[unlike], axis=1)
    return found, fit


def class_numbers(content: np.ndarray) -> np.ndarray:
    """Dense numbers of equal contents, in order of first occurrence; int64."""
    return pd.factorize(content)[0].astype(np.int64)
