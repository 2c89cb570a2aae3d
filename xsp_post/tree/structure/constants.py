"""The constants of the structure finder: what each means and its unit. All that decides by a number decides by these.

`build_tree` takes them as one value and passes it through. docs/structure.md says how far each can be moved before a
shared capture is read otherwise. Limits of effort (passes, samples, depths) stand beside the loops that they end.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Thresholds of the finder; ratios are 0…1, bits are of description length."""

    fewest_launches: int = 20  # launches: fewer repeat by chance as easily as by structure
    fewest_turns: int = 3  # turns, marks, replays, siblings: twice may be chance
    fewest_parts: int = 4  # launches of a turn, layers in a row: fewer do not show that what holds them is a pass
    spare_bits: float = 10.0  # bits by which a loop must shorten the description: a chance of 2⁻¹⁰ per sequence
    alike_ratio: float = 0.75  # of the bits of two turns that agree, for them to be turns of one loop
    drift_ratio: float = 0.02  # of a turn: how much longer or shorter one may be for launches missing or added
    near_ratio: float = 0.05  # of a number: what differs by less is as much; what holds less is next to nothing
    most_ratio: float = 0.5  # of the time or launches: what holds less describes a part of what is around it
    holds_ratio: float = 0.9  # of what is around it: what holds as much stands for it
    large_ratio: float = 0.2  # of the time: what holds as much by its name is looked into
    convolution_ratio: float = 0.3  # of the time of blocks in convolutions: there these are the layers
    clear_pause: float = 3.0  # a pause marks a beginning where it is so many times the next longest one
    prior_of_model: float = 0.8  # of 1, what a text that names a step counts: what one that names a model counts
    prior_of_place: float = 0.5  # of 1: what ranges count by their place alone, and periods of launches
    slow_start: float = 1.3  # times the later executions of its kind and size: a first one that slow is a warm-up

    @property
    def uneven_ratio(self) -> float:
        """Of its launches: how much more another execution of the same kind may have."""
        return round(1 - self.holds_ratio, 9)


DEFAULTS = Constants()
