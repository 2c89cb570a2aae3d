"""What is wrong in what is said of recordings of engines and jobs whose truth is known; nothing where all is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from generators import cluster_jobs, mesh_jobs, rank_files, site_jobs
from generators.engine_runs import SHORT, Run, run
from generators.job_runs import WORDS, job
from generators.machine import write
from generators.visitors_runs import serve

import xsp_post

WITHIN = 0.02  # of the true coefficient


def engine_faults(seed: int, folder: Path) -> list[str]:
    """Coefficients of decode steps, outliers with their causes, drift."""
    made = run(seed)
    results = xsp_post.load(write(made.program, folder / f"engine_{seed}")).results
    costs, steps = results.frame("step_costs"), results.frame("steps")
    decode = costs[costs["family"].eq("step") & costs["kind"].eq("decode")]
    faults = [] if len(decode) else ["no model"]
    if len(decode) and not made.drift:
        faults += _coefficients(made, decode.iloc[0])
    outliers = results.frame("step_outliers").set_index("iteration_index")["cause"].to_dict()
    faults += [f"outlier {step} missed: {words}" for step, words in made.outliers.items() if step not in outliers]
    both = {step: words for step, words in made.outliers.items() if step in outliers}
    faults += [f"outlier {s}: {outliers[s]}" for s, words in both.items() if not any(w in outliers[s] for w in words)]
    faults += [f"outlier {step} invented: {cause}" for step, cause in outliers.items() if step not in made.outliers]
    drifting = steps[steps["kind"].eq("decode")]["is_drifting"].astype(bool).tolist()
    return faults + ([] if drifting == [bool(made.drift)] else [f"drift: {drifting}"])


def server_faults(seed: int, folder: Path) -> list[str]:
    """Coefficients of decode steps of a server whose batch changes while contexts grow: within 2 %, or where the steps
    do not tell them so well, within three of the standard errors that are said; slow steps with their causes."""
    made = serve(seed)
    results = xsp_post.load(write(made.program, folder / f"server_{seed}")).results
    costs, iterations = results.frame("step_costs"), results.frame("iterations").sort_values("start_ns")
    decode = costs[costs["family"].eq("step") & costs["kind"].eq("decode")].iloc[0]
    faults = []
    for term, true in (("per_token", made.per_request_us * 1000), ("per_key", made.per_key_us * 1000)):
        found, error = decode[f"{term}_ns"], decode[f"{term}_error_ns"]
        if not abs(found - true) <= max(WITHIN * true, 3 * error):
            faults.append(f"{term}: {found:.1f} ± {error:.1f}, true {true:.1f}")
    place = {index: number for number, index in enumerate(iterations["iteration_index"])}
    outliers = results.frame("step_outliers")
    said = {place[index]: cause for index, cause in zip(outliers["iteration_index"], outliers["cause"])}
    faults += [f"{step} missed: {words}" for step, words in made.slow.items() if step not in said]
    faults += [f"{step} invented: {cause}" for step, cause in said.items() if step not in made.slow]
    wrong = [step for step, words in made.slow.items() if not any(word in said.get(step, words[0]) for word in words)]
    return faults + [f"{step}: {said[step]}, true {made.slow[step]}" for step in wrong]


def _coefficients(made: Run, found: pd.Series) -> list[str]:
    token, key = made.per_token["decode"], made.per_key["decode"]
    if made.dialect in SHORT:  # its context is constant and not said: a part of each request
        token, key = token + key * made.context, 0.0
    said = {"token": found["per_token_ns"], "key": np.nansum([found["per_key_ns"], found["per_pair_ns"]])}
    said["key"] = said["key"] or float("nan")
    faults = []
    for term, true in (("token", token), ("key", key)):
        if term in made.unknown or not true:
            faults += [] if np.isnan(said[term]) else [f"per {term}: {said[term]:.1f}, cannot be told"]
        elif not abs(said[term] / true - 1) <= WITHIN:
            faults.append(f"per {term}: {said[term]:.1f}, true {true:.1f}")
    return faults


def job_faults(seed: int, folder: Path) -> list[str]:
    """The late rank and its cause."""
    made = job(seed)
    ranks = xsp_post.load(write(made.program, folder / f"job_{seed}")).results.frame("ranks")
    late = ranks[ranks["is_straggler"].astype(bool)]
    found = [(int(one["rank"]), str(one["late_cause"])) for _, one in late.iterrows()]
    true = [(made.late_rank, WORDS[made.cause])] if made.cause else []
    return [] if found == true else [f"{found}, true {true} ({made.cause or 'none is late'})"]


def rank_files_faults(seed: int, folder: Path) -> list[str]:
    """The late rank and its cause, of a file a rank whose clocks differ."""
    made = rank_files.rank_files(seed)
    ranks = xsp_post.load(*rank_files.write(made, folder, seed)).results.frame("ranks").set_index("rank")
    found = ranks.loc[ranks["is_straggler"].astype(bool), "late_cause"].astype(str).to_dict()
    return [] if found == made.late else [f"{found}, true {made.late} ({made.cause})"]


def mesh_job_faults(seed: int, folder: Path) -> list[str]:
    """The late ranks and their causes, and the place of each rank in the mesh."""
    return _late_faults(made := mesh_jobs.mesh_job(seed), mesh_jobs.write(made, folder / f"mesh_{seed}"))


def cluster_job_faults(seed: int, folder: Path) -> list[str]:
    """The same of jobs with the faults of a cluster in use; each fourth one has 64 ranks."""
    made = cluster_jobs.cluster_job(seed, large=seed % 4 == 3)
    return _late_faults(made, cluster_jobs.write(made, folder / f"cluster_{seed}"))


def site_job_faults(seed: int, folder: Path) -> list[str]:
    """The late ranks and one of the causes that they may be given; each fourth job has 64 ranks."""
    made = site_jobs.site_job(seed, 64 if seed % 4 == 3 else 8)
    files = site_jobs.write(made, folder / f"site_{seed}")
    ranks = xsp_post.load(*files).results.frame("ranks").set_index("rank")
    found = ranks.loc[ranks["is_straggler"].astype(bool), "late_cause"].astype(str).to_dict()
    named = set(found) - made.spared == set(made.late) and all(found[one] in made.late[one] for one in made.late)
    return [] if named else [f"{found}, true {made.late} ({made.mesh} {made.form} {made.faults})"]


def _late_faults(made: mesh_jobs.MeshJob, files: list[Path]) -> list[str]:
    ranks = xsp_post.load(*files).results.frame("ranks").set_index("rank")
    found = ranks.loc[ranks["is_straggler"].astype(bool), "late_cause"].astype(str).to_dict()
    about = f"{made.mesh} {made.case} {[fault.cause for fault in made.faults]}"
    faults = [] if found == made.late else [f"{found}, true {made.late} ({about})"]
    places = {rank: place for rank, place in ranks["mesh"].items() if place != mesh_jobs.mesh_place(made, rank)}
    return faults + ([f"places {places}"] if places else [])
