"""``run`` → capture: which level is measured when, in a process that several levels share.

The measured iterations of a process are cut into rounds; a round holds one block of each level, in random order.
So the levels' iterations lie close together, and load from outside meets all of them alike.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

ROUNDS = 5  # blocks of each level in a process; pairs of blocks are what an overhead is computed from


@dataclass(frozen=True)
class Block:
    """Iterations of one level (its number in the process), one after another. The first ones settle: they are
    marked as warm-up, so that what the block before left behind is not measured."""

    level_index: int
    settling_count: int
    measured_count: int


def blocks(level_count: int, iteration_count: int, warmup_count: int, seed: str) -> list[Block]:
    """The blocks of a process, in the order they run. A level alone has one block, with the warm-up asked for."""
    if level_count == 1:
        return [Block(0, warmup_count, iteration_count)]
    shuffle = random.Random(seed).shuffle
    rounds = min(ROUNDS, iteration_count)
    planned = []
    for number in range(rounds):
        order = list(range(level_count))
        shuffle(order)
        measured = iteration_count // rounds + (number < iteration_count % rounds)
        settling = max(1, warmup_count if number == 0 else 1)
        planned += [Block(level, settling, measured) for level in order]
    return planned
