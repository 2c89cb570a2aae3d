"""Recordings of engines with other mixes: kinds, coefficients, drift, slow steps with their cause; nothing invented."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from generators.machine import write
from generators.serving_mixes import NAMES, mix

import xsp_post


def mix_faults(name: str, seed: int, folder: Path, within: float = 0.02) -> list[str]:
    made = mix(name, seed)
    results = xsp_post.load(write(made.program, folder / f"{name.replace(' ', '_')}_{seed}.sqlite")).results
    iterations = results.frame("iterations").sort_values("start_ns")
    faults = []
    first = iterations[iterations["process_id"] == iterations["process_id"].iloc[0]]
    if first["kind"].tolist() != made.kinds:
        faults.append(f"kinds {first['kind'].value_counts().to_dict()}")
    costs = results.frame("step_costs")
    whole = costs[costs["family"] == "step"].drop_duplicates("kind").set_index("kind")
    for kind, terms in made.terms.items():
        for term, true in terms.items():
            found = float(whole[term].get(kind, np.nan))
            if not abs(found / true - 1) <= within:
                faults.append(f"{kind} {term}: {found:.4g}, true {true:.4g}, {whole['left_out'].get(kind)}")
    for kind, terms in made.untold.items():
        faults += [f"{kind} {term} told" for term in terms if not np.isnan(whole[term].get(kind, np.nan))]
    steps = results.frame("steps")
    if bool(steps["is_drifting"].any()) != made.drifts:
        faults.append(f"drift {steps[['kind', 'drift_ratio', 'is_drifting']].to_dict('records')}")
    outliers = results.frame("step_outliers")
    order = {index: place for place, index in enumerate(first["iteration_index"])}
    said = {order[i]: cause for i, cause in zip(outliers["iteration_index"], outliers["cause"]) if i in order}
    faults += [f"outlier {step} missed {words}" for step, words in made.outliers.items() if step not in said]
    faults += [f"outlier {step} invented: {cause}" for step, cause in said.items() if step not in made.outliers]
    faults += [
        f"outlier {step}: {said[step]!r}, true {words}" for step, words in made.outliers.items()
        if step in said and not any(word in said[step] for word in words)
    ]  # fmt: skip
    if any(made.buckets) and first["graph_bucket_count"].fillna(0).tolist() != made.buckets:
        faults.append("buckets")
    return faults


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_of_a_mix_is_true(tmp_path, name):
    assert mix_faults(name, NAMES.index(name) % 2, tmp_path) == []
