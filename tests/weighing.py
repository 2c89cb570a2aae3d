"""The weights of `tree.structure.weighing`: those with which the right candidate is taken most often.

Each launch sequence of a program of known structure is one choice between candidates (and none of them, which scores
0). The weights are those of a conditional logit: the logarithm of the chance that a right candidate is taken, summed
over choices, less a penalty on their squares. What that is worth is said by programs of an author who was left out.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
from generators.machine import NONE, Program, write
from stranger_score import truth_of
from structure_score import best

from xsp_post.model.options import Options
from xsp_post.pipeline import captures_of
from xsp_post.tree.structure import find
from xsp_post.tree.structure.executions import candidates, facts_of
from xsp_post.tree.structure.outline import Sequence
from xsp_post.tree.structure.weighing import WEIGHTS, terms

PENALTY = 0.03  # per squared weight, of terms scaled to a standard deviation of 1
POINTS = {"right": 1.0, "abstained": 0.5}


@dataclass
class Choice:
    """Terms of the candidates of one sequence (candidates, weights), the last is none of them, and their verdicts."""

    author: str
    values: np.ndarray
    verdicts: list[str]

    @property
    def is_right(self) -> np.ndarray:
        return np.array([verdict == "right" for verdict in self.verdicts])

    def points(self, weights: np.ndarray) -> float:
        """What the candidate is worth that these weights take."""
        return POINTS.get(self.verdicts[int(np.argmax(self.values @ weights))], 0.0)


def choices(author: str, seeds: range) -> list[Choice]:
    """The choices in an author's programs, read from their launches alone."""
    draw, result = import_module(f"generators.{author}").draw, []
    for seed in seeds:
        program = draw(seed)
        for start, sequence in _sequences(program):
            choice = _choice(author, program, start, sequence)
            result += [choice] if choice is not None else []
    return result


def _sequences(program: Program) -> list[tuple[np.ndarray, Sequence]]:
    """The launch sequences of a program, each once, with the device start of each launch, ns."""
    found: list[tuple[np.ndarray, Sequence]] = []
    made = find._sequence

    def seen(launches: pd.DataFrame, rows: np.ndarray, *rest: object) -> Sequence:
        found.append((launches["start_ns"].to_numpy()[rows], one := made(launches, rows, *rest)))
        return one

    find._sequence = seen
    try:
        with tempfile.TemporaryDirectory() as folder:
            captures_of([write(program, Path(folder) / "program")], Options(executions="launches")).frame("iterations")
    finally:
        find._sequence = made
    return list({start.tobytes(): (start, one) for start, one in found}.values())


def _choice(author: str, program: Program, start: np.ndarray, sequence: Sequence) -> Choice | None:
    truth = truth_of(program)
    known = truth["start_ns"].to_numpy()
    shift = 0 if np.isin(start, known).mean() > 0.9 else start.min() - known.min()  # a reader may start at another zero
    at = np.minimum(np.searchsorted(known, start - shift), len(known) - 1)
    is_known = known[at] == start - shift
    accepted = [truth[one].to_numpy()[at][is_known] for one in program.executions if truth[one].max() >= 0]
    if program.is_noise:
        accepted = [np.full(int(is_known.sum()), NONE)]
    if is_known.mean() <= 0.9 or not accepted or not len(sequence.structure.loops):
        return None
    facts = facts_of(sequence.structure, sequence)
    values, verdicts = [], []
    for source, found in candidates(sequence.structure, sequence)[0]:
        owner = np.full(len(start), NONE)
        for number, (first, end) in enumerate(zip(*found[:2], strict=True)):
            owner[first:end] = number
        verdicts.append(best(owner[is_known], accepted, is_counted=True).verdict)
        values.append([terms(source, found, facts).get(name, 0.0) for name in WEIGHTS])
    none = "right" if program.is_noise else "abstained"
    return Choice(author, np.array([*values, [0.0] * len(WEIGHTS)]), [*verdicts, none])


def fitted(known: list[Choice]) -> np.ndarray:
    """The weights that suit these choices best, in the order of `WEIGHTS`."""
    import torch

    known = [one for one in known if one.is_right.any() and not one.is_right.all()]
    values, is_right = (np.concatenate([getattr(one, name) for one in known]) for name in ("values", "is_right"))
    scale = values.std(axis=0) + 1e-3
    number = torch.tensor(np.repeat(np.arange(len(known)), [len(one.verdicts) for one in known]))
    scaled, right = torch.tensor(values / scale), torch.tensor(is_right).double()
    weights = torch.zeros(len(WEIGHTS), dtype=torch.float64, requires_grad=True)
    steps = torch.optim.LBFGS([weights], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        steps.zero_grad()
        score = scaled @ weights
        nothing = torch.zeros(len(known), dtype=torch.float64)
        chance = torch.exp(score - nothing.scatter_reduce(0, number, score.detach(), "amax")[number])
        taken = nothing.index_add(0, number, chance * right) / nothing.index_add(0, number, chance)
        value = -torch.log(taken + 1e-12).mean() + PENALTY * weights.square().mean()
        value.backward()
        return value

    steps.step(loss)
    return weights.detach().numpy() / scale


def mean_points(known: list[Choice], weights: np.ndarray) -> float:
    """Mean points of the candidates that these weights take."""
    return float(np.mean([one.points(weights) for one in known]))
