"""``run`` → capture: which level is measured when, in a process that several levels share.

The measured iterations of a process are cut into rounds; a round holds one block of each level, in random order.
So the levels' iterations lie close together, and load from outside meets all of them alike.
"""

import random
from dataclasses import dataclass
from math import ceil

ROUNDS = 5  # blocks of each level in a process; pairs of blocks are what an overhead is computed from
# at the beginning of a block do not count: one iteration, of a fast model so many that they take that long; after
# torch.profiler stopped, the first half millisecond or two were seen to be slower
SETTLING_S, MOST_SETTLING = 0.005, 10
MOST_TIMES, LEVEL_S = 5, 0.25
# a process that takes longer than this ends after the round that it is in, but not before the second one
PROCESS_S, LEAST_ROUNDS = 20.0, 2


@dataclass(frozen=True)
class Block:
    """Iterations of one level (its number in the process), one after another. The first ones settle: they are
    marked as warm-up, so that what the block before left behind is not measured."""

    level_index: int
    settling_count: int
    measured_count: int


def rounds_of(level_count: int, iteration_count: int, iteration_s: float, seed: str) -> list[list[Block]]:
    """The rounds of a process that ``level_count`` levels share; ``iteration_count`` of each level are measured, and
    one takes about ``iteration_s``."""
    settling = min(max(ceil(SETTLING_S / iteration_s), 1), MOST_SETTLING)
    shuffle = random.Random(seed).shuffle
    count = min(ROUNDS, iteration_count)
    planned = []
    for number in range(count):
        order = list(range(level_count))
        shuffle(order)
        measured = iteration_count // count + (number < iteration_count % count)
        planned.append([Block(level, settling, measured) for level in order])
    return planned


def fitted_count(iteration_count: int, iteration_s: float) -> int:
    """More iterations of a model that is fast: up to `MOST_TIMES` as many, as long as a level takes `LEVEL_S`."""
    return max(iteration_count, min(int(LEVEL_S / iteration_s), iteration_count * MOST_TIMES))
