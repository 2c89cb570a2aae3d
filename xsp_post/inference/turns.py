"""Trace → Tree, for launches without ranges: the iterations of one sequence, and what each one consists of.

`find_iterations` gives all iterations of all repetitions of a sequence; `outline` gives, for one typical
iteration, its phases, blocks, parts and the stretches between them; `blocks.places` finds them in the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xsp_post.inference.blocks import PART, Layout, class_numbers, cleaned, find_layout, join
from xsp_post.inference.boundaries import WINDOW, boundary_scores
from xsp_post.inference.labels import BACKWARD, Traits, does_layer_work, phases
from xsp_post.inference.repetition import (
    DIFFERENT,
    PARTIAL,
    REGULAR,
    Repetition,
    find_repetition,
    find_series,
)
from xsp_post.inference.sequence import Hashed

# Rows of an Outline.
PHASE, BLOCK_ROW, PART_ROW, STRETCH = 0, 1, 2, 3


@dataclass
class Iterations:
    """Iterations of one sequence in order: [starts, ends), kind (`repetition.REGULAR` …), number of the
    repetition they belong to, and that repetition. ``reason`` says why there is none."""

    starts: np.ndarray
    ends: np.ndarray
    kinds: np.ndarray
    series: np.ndarray
    repetitions: list[Repetition]
    reason: str = ""

    @classmethod
    def of(cls, repetitions: list[Repetition]) -> Iterations:
        """All turns of repetitions, in order."""
        starts = np.concatenate([r.starts for r in repetitions])
        order = np.argsort(starts, kind="stable")
        return cls(
            starts[order],
            np.concatenate([r.ends for r in repetitions])[order],
            np.concatenate([r.kinds for r in repetitions])[order],
            np.repeat(np.arange(len(repetitions)), [len(r) for r in repetitions])[order],
            repetitions,
        )

    def __len__(self) -> int:
        return len(self.starts)

    def coverage(self, count: int) -> float:
        """Share of `count` launches in regular iterations."""
        return float((self.ends - self.starts)[self.kinds == REGULAR].sum()) / max(count, 1)

    def agreement(self) -> float:
        """Launches in iterations, weighted by how far they agree with a typical one; at most the launches."""
        agreed = np.array([r.agreement for r in self.repetitions])
        return float(((self.ends - self.starts) * agreed[self.series]).sum()) if len(self) else 0.0


def find_iterations(
    symbols: np.ndarray, break_strength: np.ndarray | None = None, longest: int | None = None
) -> Iterations:
    """Iterations of a sequence of launches.

    symbols int64 (n,); break_strength float (n,): how strongly the host paused before each launch (idle
    nanoseconds, more at a synchronisation), used where the sequence alone leaves open what comes first; longest: the
    most launches of one.
    """
    repetitions = find_series(symbols, longest=longest)
    if break_strength is not None:
        repetitions = [turned_to_breaks(r, symbols, break_strength, longest is not None) for r in repetitions]
    if not repetitions:
        empty = np.empty(0, np.int64)
        reason = find_repetition(symbols).reason or "what repeats covers a small part only"
        return Iterations(empty, empty, np.empty(0, np.int8), empty, [], reason)
    return Iterations.of(repetitions)


def turned_to_breaks(found: Repetition, symbols: np.ndarray, strength: np.ndarray, always: bool = False) -> Repetition:
    """Let the turns begin where the host pauses, if the recording shows no beginning of its own, or ``always``.

    A recording that was cut out of a running program begins and ends anywhere in a turn. Then the longest
    pause of the host, the same in most turns, is where an iteration begins.
    """
    size = found.period
    exact = np.flatnonzero((found.kinds == REGULAR) & (found.ends - found.starts == size))
    if len(exact) < 3 or not (always or (found.kinds == PARTIAL).any()):
        return found
    usual = np.median(strength[found.starts[exact[:64], None] + np.arange(size)], axis=0)
    offset = int(usual.argmax())
    if offset == 0 or usual[offset] < 3 * max(usual[0], 1.0) or usual[offset] < 10 * max(np.median(usual), 1.0):
        return found
    first = found.template[0]
    body = np.roll(symbols[first : first + size], -offset)
    inside = found.starts + offset < found.ends
    predicted = found.starts[inside] + offset
    bounds, _ = boundary_scores(symbols, predicted, body[-WINDOW:], body[:WINDOW], min(4, size // 2 - 1))
    bounds = np.unique(np.clip(bounds, found.starts[0], found.ends[-1]))
    edges = np.unique(np.concatenate([found.starts[:1], bounds, found.ends[-1:]]))
    starts, ends = edges[:-1], edges[1:]
    missing = size - int(ends[-1] - starts[-1])  # what was taken for the head of a turn that was cut off
    if 0 < missing < size and np.array_equal(symbols[ends[-1] : ends[-1] + missing], body[size - missing :]):
        ends[-1] += missing
    near = np.abs(ends - starts - size) <= np.maximum(4, 0.1 * size)
    kinds = np.where(near, REGULAR, DIFFERENT).astype(np.int8)
    kinds[[0, -1]] = np.where(near[[0, -1]], REGULAR, PARTIAL)
    regular = np.flatnonzero((kinds == REGULAR) & (ends - starts == size))
    if len(regular) < 2:
        return found
    typical = int(starts[regular[len(regular) // 2]])
    whole = kinds != PARTIAL if always else np.ones(len(kinds), bool)
    return Repetition(starts[whole], ends[whole], kinds[whole], (typical, typical + size), agreement=found.agreement)


# ---------------------------------------------------------------- inside one iteration


@dataclass
class Outline:
    """What one typical iteration consists of, parents before children.

    symbols: the iteration without odd launches (positions refer to it); start, end, parent (row, −1 the
    iteration itself), kind (`PHASE` …), depth (0 directly below the iteration), index and count (k of n among
    equal blocks of one parent, 1-based; 0 for stretches), content (hash), label (phases only),
    mirrored: of backward blocks, the forward block they belong to (1-based, 0 unknown).
    """

    symbols: np.ndarray
    start: np.ndarray
    end: np.ndarray
    parent: np.ndarray
    kind: np.ndarray
    depth: np.ndarray
    index: np.ndarray
    count: np.ndarray
    content: np.ndarray
    label: list[str]
    mirrored: np.ndarray

    def __len__(self) -> int:
        return len(self.start)


def outline(
    symbols: np.ndarray,
    thread: np.ndarray,
    traits: Traits,
    rows: np.ndarray,
    *,
    deepest: int = 3,
    with_phases: bool,
    phase: str = "",
) -> Outline:
    """Phases, blocks, parts and stretches of one iteration: symbols, thread and rows (positions in the sequence
    that traits refer to), each shape (m,). ``phase``: what the whole is, where that is known."""
    found = phases(thread, traits, rows) if with_phases and not phase else []
    spans = found or [(0, len(symbols), phase)]
    pieces, layouts, phase_rows = [], [], []
    offset = 0
    for start, end, label in spans:
        piece = cleaned(symbols[start:end])
        layout = find_layout(piece, align_right=label.startswith(BACKWARD), deepest=deepest)
        layout = _worth_showing(layout, piece, symbols, traits, rows)
        pieces.append(piece)
        layouts.append(layout)
        phase_rows.append((offset, offset + len(piece), label))
        offset += len(piece)
    whole = np.concatenate(pieces)
    return _outline_of(whole, layouts, phase_rows if found else [], bool(found), with_phases)


def _worth_showing(layout: Layout, piece: np.ndarray, symbols: np.ndarray, traits: Traits, rows: np.ndarray) -> Layout:
    """Without outermost blocks that are not part of a model's structure: a few fills or copies in a row.

    A kind of block stays when it does a layer's work (products, norms …) or covers a fifth of the piece.
    """
    if not len(layout):
        return layout
    working = np.unique(symbols[does_layer_work(traits, rows)])
    counted = np.concatenate([[0], np.cumsum(np.isin(piece, working))])
    top = layout.depth == 0
    kinds = class_numbers(layout.content)
    size = np.bincount(kinds[top], weights=(layout.end - layout.start)[top], minlength=kinds.max() + 1)
    works = np.zeros(len(size), dtype=bool)
    works[kinds[top]] = (counted[layout.end] - counted[layout.start])[top] > 0
    stays = works | (size >= 0.2 * len(piece))
    keep = top & stays[kinds]
    for depth in range(1, int(layout.depth.max()) + 1):
        below = layout.depth == depth
        keep[below] = keep[layout.parent[below]]
    return layout.chosen(keep)


def _outline_of(
    symbols: np.ndarray,
    layouts: list[Layout],
    phase_rows: list[tuple[int, int, str]],
    has_phases: bool,
    with_stretches: bool,
) -> Outline:
    offsets = [first for first, _, _ in phase_rows] or [0]
    ends = [last for _, last, _ in phase_rows] or [len(symbols)]
    head = len(phase_rows)
    shifted = []
    for number, (layout, offset) in enumerate(zip(layouts, offsets, strict=True)):
        shifted.append(
            Layout(layout.start + offset, layout.end + offset, layout.parent, layout.depth + has_phases,
                   layout.kind, layout.content)
        )  # fmt: skip
        if with_stretches:
            stretch = _stretches(layout, offset, ends[number], int(has_phases))
            shifted.append(stretch)
    all_rows = join(shifted)
    owner = np.repeat(np.arange(len(shifted)), [len(layout) for layout in shifted])
    phase_of = owner // 2 if with_stretches else owner
    parent = np.where(all_rows.parent >= 0, all_rows.parent + head, phase_of if has_phases else -1)
    kind = np.where(all_rows.kind == PART, PART_ROW, np.where(all_rows.kind == STRETCH, STRETCH, BLOCK_ROW))
    columns = {
        "start": np.concatenate([np.array(offsets[:head], np.int64), all_rows.start]),
        "end": np.concatenate([np.array(ends[:head], np.int64), all_rows.end]),
        "parent": np.concatenate([np.full(head, -1), parent]).astype(np.int64),
        "kind": np.concatenate([np.full(head, PHASE), kind]).astype(np.int8),
        "depth": np.concatenate([np.zeros(head, np.int64), all_rows.depth]),
        "content": np.concatenate([np.zeros(head, np.uint64), all_rows.content]),
    }
    index, count = _numbering(columns["parent"], columns["kind"], columns["content"], columns["start"])
    labels = [label for _, _, label in phase_rows] + [""] * len(all_rows)
    result = Outline(symbols, index=index, count=count, label=labels,
                     mirrored=np.zeros(len(index), np.int64), **columns)  # fmt: skip
    _mirror(result)
    return result


def _stretches(layout: Layout, begin: int, end: int, depth: int) -> Layout:
    """What lies between the outermost blocks of a phase; none where it has no block."""
    top = layout.depth == 0
    if not top.any():
        return Layout()
    starts, ends = np.sort(layout.start[top]) + begin, np.sort(layout.end[top]) + begin
    first = np.concatenate([[begin], ends])
    last = np.concatenate([starts, [end]])
    some = last > first
    count = int(some.sum())
    return Layout(
        first[some], last[some], np.full(count, -1), np.full(count, depth), np.full(count, STRETCH, np.int8),
        np.zeros(count, np.uint64),
    )  # fmt: skip


def _numbering(
    parent: np.ndarray, kind: np.ndarray, content: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """k and n of each row: blocks count equal ones of their parent; parts and stretches all of their parent."""
    alike = np.where(kind == BLOCK_ROW, content, np.uint64(0))
    order = np.lexsort((start, alike, kind, parent))
    key = np.stack([parent[order].astype(np.uint64), kind[order].astype(np.uint64), alike[order]])
    is_new = np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)]) if len(order) else np.empty(0, bool)
    group = np.cumsum(is_new) - 1
    firsts = np.flatnonzero(is_new)
    index, count = np.zeros(len(parent), np.int64), np.zeros(len(parent), np.int64)
    index[order] = np.arange(len(order)) - firsts[group] + 1 if len(order) else index[order]
    count[order] = np.bincount(group)[group] if len(order) else count[order]
    return index, count


def _mirror(result: Outline) -> None:
    """Backward block k belongs to forward block n + 1 − k where both passes have n outermost blocks."""
    phase_rows = [row for row, kind in enumerate(result.kind.tolist()) if kind == PHASE]
    forward = 0
    for row in phase_rows:
        blocks = np.flatnonzero((result.parent == row) & (result.kind == BLOCK_ROW))
        if not len(blocks):
            continue
        sizes = result.count[blocks]
        most = int(sizes.max())
        if result.label[row].startswith("forward"):
            forward = most
        elif result.label[row].startswith(BACKWARD) and most == forward:
            chosen = blocks[sizes == most]
            result.mirrored[chosen] = most + 1 - result.index[chosen]


def same_content(symbols: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Hash of each iteration's symbols; equal iterations have equal hashes. uint64."""
    return Hashed.of(symbols).stretches(starts, ends)
