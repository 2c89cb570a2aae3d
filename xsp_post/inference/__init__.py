"""Trace → Tree, for launches without ranges: iterations and blocks are inferred from what repeats.

`infer` and `infer_inside` are all that other rooms call; they take arrays and give nodes, an assignment of launches,
and findings.
The modules, from the bottom: `sequence` (hashes), `repetition` (periods), `blocks` (nesting), `labels`
(names and guesses), `turns` (one sequence), `passes` (whole models), `build` (all sequences of a capture).
"""

from xsp_post.inference.build import FEWEST_LAUNCHES, Inference, infer
from xsp_post.inference.inside import infer_inside

__all__ = ["FEWEST_LAUNCHES", "Inference", "infer", "infer_inside"]
