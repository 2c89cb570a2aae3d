"""What is wrong in what is said of engines that serve a pool of requests; nothing where all is right."""

from __future__ import annotations

from pathlib import Path

from generators.request_pools import TERMS, pool, told, write

import xsp_post

WITHIN, ERRORS = 0.02, 4.0  # of the true coefficient; standard errors that are said, of some 20 a recording
FAMILY = {"gemm": "gemm", "attention": "attention", "norm": "normalisation", "communication": "communication"}
CAUSE = {
    "host_gap": "host_code", "recompilation": "compilation", "code_loading": "module_load", "allocation": "allocation",
    "preemption": "preemption", "late_rank": "communication", "other_kernels": "other kernels",
    "clock": "slower kernels",
}  # fmt: skip
FEWEST = 40


def pool_faults(seed: int, folder: Path) -> list[str]:
    """Coefficients of families: within 2 % wherever three of the least possible standard errors are, and all within the
    errors that are said; slow steps with their causes, none invented; drift; no slope of sizes that explain nothing."""
    made = pool(seed)
    path, truth = write(made, folder)
    profile = xsp_post.load(path)
    kinds, costs, steps = profile["iterations"]["kind"].tolist(), profile["step_costs"], profile["steps"]
    if kinds != [one["kind"] for one in truth]:
        return ["kinds"]
    if made.wrong:
        slopes = [f"{name}_ns" for name in TERMS[1:]]
        whole = costs[costs["family"] == "step"]
        return [f"{made.wrong}: {one}" for one in whole[whole[slopes].notna().any(axis=1)]["kind"]]
    faults = []
    for (kind, family, term), (true, least) in told(made, truth).items():
        found = costs[(costs["kind"] == kind) & (costs["family"] == FAMILY.get(family, ""))]
        if not len(found) or kinds.count(kind) < FEWEST:
            continue
        value, error = found.iloc[0][f"{term}_ns"], found.iloc[0][f"{term}_error_ns"]
        limit = WITHIN * true if 3 * least <= WITHIN * true else ERRORS * error
        if not abs(value - true) <= limit:
            faults.append(f"{kind} {family} {term}: {value:.5g} ± {error:.2g}, true {true:.5g} ± {least:.2g}")
    said = dict(zip(profile["step_outliers"]["iteration_index"], profile["step_outliers"]["cause"]))
    slow = {k: CAUSE[one["cause"]] for k, one in enumerate(truth) if one["cause"]}
    faults += [f"outlier {k}: {said.get(k)!r}, true {cause}" for k, cause in slow.items() if said.get(k) != cause]
    faults += [f"outlier {k} invented: {cause}" for k, cause in said.items() if k not in slow]
    drifting = steps[steps["step_count"] >= FEWEST]["is_drifting"].astype(bool)
    return faults + ([] if (drifting == bool(made.drift)).all() else [f"drift {drifting.tolist()}"])
