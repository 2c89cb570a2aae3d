"""Trace → Tree, for launches without ranges: iterations and blocks are inferred from what repeats.

`infer` is all that other rooms call; it takes arrays and gives nodes, an assignment of launches, and findings.
The modules, from the bottom: `sequence` (hashes), `repetition` (periods), `blocks` (nesting), `labels`
(names and guesses), `turns` (one sequence), `build` (all sequences of a capture).
"""

from xsp_post.inference.build import FEWEST_LAUNCHES, Inference, infer

__all__ = ["FEWEST_LAUNCHES", "Inference", "infer"]
