"""Trace → Tree, step "which execution": what kind each execution is, and which kinds a warm-up belongs to.

A training step and a forward pass are two kinds, and so are prefill and decode: neither is the warm-up of the other.
"""

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, finding
from xsp_post.model.tree import Tree
from xsp_post.names.step_texts import kind_of_word
from xsp_post.tree import layering

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


def warmup_of_its_kind(tree: Tree, kind: np.ndarray, said: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[Finding]]:
    """Phase of every iteration, and whether its text makes it warm-up of its kind: what calls itself warm-up but is the
    only training step (or the only forward pass) of the capture is not the warm-up of anything else."""
    phase = tree.iterations["phase"].astype(object).to_numpy().copy()
    said = said.copy()
    findings: list[Finding] = []
    for name in pd.unique(phase[said]).tolist():
        rows = np.flatnonzero((phase == name) & said)
        own, measured = kind[rows[-1]], kind[~said]
        is_alone = len(measured) > 0 and not (measured == own).any() and TRAINING in (own, *measured)
        if not is_alone or (~said & (phase == name)).any():
            continue
        said[rows] = False
        if not (phase == own).any():  # its own name would call it warm-up
            phase[rows] = own
        findings.append(finding("warmup-of-another-kind", count=len(rows), example=f"{name}: {own}"))
    return phase, said, findings
