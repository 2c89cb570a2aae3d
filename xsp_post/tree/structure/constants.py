"""The constants of the structure finder: what each means, its unit, and how far it can be moved.

They are passed explicitly. A range in brackets says between which values no shared capture changes its executions or
layers (`scripts/structure` scores the generated programs with other values).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Thresholds of the finder; ratios are 0…1, bits are of description length."""

    fewest_launches: int = 20  # launches: fewer repeat by chance as easily as by structure
    spare_bits: float = 10.0  # bits by which a loop must shorten the description: a chance of 2⁻¹⁰ per sequence
    alike_ratio: float = 0.75  # of the bits of two turns that agree, for them to be turns of one loop
    most_lags: int = 64  # distances looked at in one pass over a sequence, those at which most recurs
    drift_ratio: float = 0.02  # of a turn: how much longer or shorter one may be for launches missing or added
    shortest_turn: int = 4  # launches in an execution found from launches alone
    least_coverage: float = 0.5  # of the time: what holds less describes a part of the program
    holds_ratio: float = 0.9  # of a range's device time: what is inside and holds as much stands for it
    clear_pause: float = 3.0  # a pause marks a beginning where it is so many times the next longest one
    fewest_layers: int = 4  # equal blocks in a row: fewer do not show that what holds them is a pass
    least_in_layers: float = 0.5  # of a pass, in launches, that its layers hold
    prior_of_model: float = 0.8  # of 1, what a text that names a step counts: what one that names a model counts
    prior_of_place: float = 0.5  # of 1: what ranges count by their place alone, and periods of launches
    uneven_ratio: float = 0.1  # of its launches: how much more another execution of the same kind may have
    slow_start: float = 1.3  # times the later executions of its kind and size: a first one that slow is a warm-up


DEFAULTS = Constants()
