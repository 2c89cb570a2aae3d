"""Trace → Tree, step "which execution": warm-up iterations are separated from measured ones."""

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, finding
from xsp_post.tree.structure.constants import Constants


def mark_warmup(
    latency_ns: np.ndarray,
    phase: np.ndarray,
    said: np.ndarray,
    has_loading: np.ndarray,
    sizes: np.ndarray,
    constants: Constants,
) -> tuple[np.ndarray, list[Finding]]:
    """Which iterations are warm-up: by their text, or leading ones of a phase that are slow or load code.

    A phase that names its own warm-up means the rest to be measured: slowness alone takes none of it away, or
    the level that happened to start slowly would be summarised over fewer iterations than the others.
    ``sizes``: what texts say of the work of each, shape (iterations, any), −1 unknown: an iteration is slow only
    against later ones that have as much to do. At least one iteration of a phase always remains measured, unless all
    say themselves that they are warm-up.
    """
    warm = said.copy()
    detected = 0
    for name in pd.unique(phase):
        rows = np.flatnonzero((phase == name) & ~said)
        names_its_warmup = bool(said[phase == name].any())
        for position in range(len(rows) - 2):
            rest = rows[position + 1 :]
            alike = rest[(sizes[rest] >= sizes[rows[position]]).all(axis=1)]
            own, later = latency_ns[rows[position]], latency_ns[alike]
            is_longer = (
                len(later) > 0
                and own > constants.slow_start * np.median(later)
                and (later >= own * (1 - constants.near_ratio)).mean() < 1 / 3
            )
            slow = not names_its_warmup and is_longer
            if not (slow or (has_loading[rows[position]] and not has_loading[rest].all())):
                break
            warm[rows[position]] = True
            detected += 1
    findings = []
    if detected:
        findings.append(finding("warmup-detected", count=detected))
    measured = len(warm) - int(warm.sum())
    if measured == 1:
        findings.append(finding("one-iteration"))
    return warm, findings
