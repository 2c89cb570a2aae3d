"""Trace → Tree, step "which execution": what kind each execution is, and which kinds a warm-up belongs to.

A training step and a forward pass are two kinds, and so are prefill and decode: neither is the warm-up of the other.
"""

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, finding
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Tree
from xsp_post.names.step_texts import kind_of_word
from xsp_post.tree import layering
from xsp_post.tree.structure.constants import Constants

TRAINING, FORWARD, STEP, PASS = "training step", "forward", "step", "pass"
# Backward and optimiser work below this share of an execution makes no training step of it.
_LEAST_TRAINING = 0.01


def training_ratio(tree: Tree) -> np.ndarray:
    """Share of each iteration's device time that is backward or optimiser work by the ranges around it."""
    count = len(tree.iterations)
    nodes, activities = tree.nodes, tree.activities
    phase = tree.names.node_category("phase")
    words = np.isin(phase.categories.astype(str), ["backward", "optimizer"])
    trains = np.append(words, False)[phase.codes] | nodes["is_backward"].to_numpy()
    if not trains.any():
        return np.zeros(count)
    trains = layering.inherit(np.where(trains, 1, -1), nodes["parent_id"].to_numpy()) == 1
    index = activities["iteration_index"].to_numpy()
    length = (activities["end_ns"].to_numpy() - activities["start_ns"].to_numpy()).astype(float)
    inside = index >= 0
    total = np.bincount(index[inside], weights=length[inside], minlength=count)
    chosen = inside & trains[activities["node_id"].to_numpy()]
    part = np.bincount(index[chosen], weights=length[chosen], minlength=count)
    return np.divide(part, total, out=np.zeros(count), where=total > 0)


def kinds_of(tree: Tree) -> np.ndarray:
    """The kind of every iteration: prefill, decode … as its text says, training step, forward, step, pass (object)."""
    frame = tree.iterations
    model = frame["node_id"].to_numpy()
    phase = tree.names.node_text("phase", model).astype(str)
    role = tree.names.node_text("role", model).astype(str)
    kind = np.select([role == "iteration", role == "module"], [STEP, FORWARD], PASS).astype(object)
    named = np.isin(phase, ["forward", "backward", "optimizer"])
    kind[named] = phase[named]
    folded = tree.names.folded_names[tree.nodes["folded_id"].to_numpy()[model]].astype(str)
    trains = (training_ratio(tree) >= _LEAST_TRAINING) | np.char.startswith(folded, f"{TRAINING} of ")
    kind[(trains & ~np.isin(phase, ["backward", "optimizer"])) | (phase == "train_step")] = TRAINING
    serving = np.isin(phase, [*kind_of_word().values()])
    kind[serving] = phase[serving]
    return kind


def warmup_of_its_kind(
    tree: Tree, kind: np.ndarray, said: np.ndarray, constants: Constants
) -> tuple[np.ndarray, np.ndarray, list[Finding]]:
    """Phase of every iteration, and whether its text makes it warm-up of its kind.

    What calls itself warm-up and launches what a measured phase launches belongs to that phase. What calls itself
    warm-up but is the only training step (or the only forward pass) of the capture is not the warm-up of anything else.
    """
    phase = tree.iterations["phase"].astype(object).to_numpy().copy()
    said = said.copy()
    findings: list[Finding] = []
    measured = np.unique(phase[~said].astype(str)).tolist()
    for name in pd.unique(phase[said]).tolist():
        rows = np.flatnonzero((phase == name) & said)
        if (~said & (phase == name)).any() or not measured:
            continue
        # measured phases of the same kind that launch the same kernels
        alike = [m for m in measured if _overlap(tree, rows[-1], _last(phase, said, m)) >= constants.alike_ratio]
        if alike:
            phase[rows] = alike[0]
            kind[rows] = kind[_last(phase, said, alike[0])]
        elif not (kind[~said] == kind[rows[-1]]).any() and TRAINING in (kind[rows[-1]], *kind[~said]):
            said[rows] = False
            if not (phase == kind[rows[-1]]).any():  # its own name would call it warm-up
                phase[rows] = kind[rows[-1]]
            findings.append(finding("warmup-of-another-kind", count=len(rows), example=f"{name}: {kind[rows[-1]]}"))
    return phase, said, findings


def _last(phase: np.ndarray, said: np.ndarray, name: str) -> int:
    return int(np.flatnonzero((phase == name) & ~said)[-1])


def _overlap(tree: Tree, one: int, other: int) -> float:
    """How far two iterations launch the same kernels: 1 all, 0 none."""
    activities = tree.activities
    index, is_kernel = activities["iteration_index"].to_numpy(), activities["kind"].to_numpy() == ActivityKind.KERNEL
    names = activities["name_id"].to_numpy()
    width = int(names.max(initial=0)) + 1
    counts = [np.bincount(names[is_kernel & (index == i)].clip(0), minlength=width) for i in (one, other)]
    most = int(np.maximum(*counts).sum())
    return float(np.minimum(*counts).sum()) / most if most else 0.0
