"""What is wrong in what is said of recordings of `engine_dialects`; nothing where all is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from generators.engine_dialects import Recording, recording
from generators.machine import write

import xsp_post

WITHIN, ERRORS = 0.02, 4.0


def dialect_faults(name: str, seed: int, folder: Path) -> list[str]:
    """Steps, kinds, tokens, costs of decodes, slow steps with their cause, the late rank, requests."""
    made = recording(name, seed)
    results = xsp_post.load(write(made.program, folder / f"{name.replace(' ', '_')}_{seed}")).results
    steps = results.frame("iterations").sort_values("start_ns", kind="stable")
    faults = []
    if name == "triton server":
        return [] if len(steps) == len(made.kinds[0]) else [f"{len(steps)} steps, true {len(made.kinds[0])}"]
    process = list(dict.fromkeys(steps["process_id"].sort_values()))
    if len(process) != len(made.kinds):
        return [f"{len(process)} processes"]
    for one, kinds, tokens in zip(process, made.kinds, made.tokens):
        mine = steps[steps["process_id"] == one]
        # without a text a step that nothing tells is no wrong one
        wrong = sum(a not in (b, "pass" if name == "llama.cpp" else b) for a, b in zip(mine["kind"], kinds))
        if wrong or len(mine) != len(kinds):
            found = sorted(set(mine["kind"]))
            return [*faults, f"kinds: {len(mine)} steps, true {len(kinds)}, {wrong} other kinds, found {found}"]
        off = (mine["token_count"].to_numpy(float) != np.array(tokens)).sum()
        says = name not in ("tgi loop", "plain names")
        if off and says:
            faults.append(f"tokens of {off} of {len(tokens)} steps")
    faults += _costs(made, results) + _slow(made, results, steps)
    return faults + _late(made, results) + _requests(made, results)


def _costs(made: Recording, results) -> list[str]:
    costs, faults = results.frame("step_costs"), []
    decode = costs[costs["family"].eq("step") & costs["kind"].eq("decode")]
    for column, true in (("per_token_ns", made.per_token_ns), ("per_key_ns", made.per_key_ns)):
        if not true:
            continue
        if not len(decode) or not np.isfinite(found := decode.iloc[0][column]):
            faults.append(f"{column} not there")
        elif abs(found - true) > max(WITHIN * true, ERRORS * decode.iloc[0][f"{column[:-3]}_error_ns"]):
            faults.append(f"{column} {found:.4g}, true {true:.4g}")
    return faults


def _slow(made: Recording, results, steps) -> list[str]:
    outliers = results.frame("step_outliers")
    place = {index: k for k, index in enumerate(steps["iteration_index"])}
    said = {place[i]: f"{c} {d}" for i, c, d in zip(*(outliers[x] for x in ("iteration_index", "cause", "detail")))}
    faults = [f"slow {k} missed: {words}" for k, words in made.slow.items() if k not in said]
    faults += [f"slow {k} invented: {why}" for k, why in said.items() if k not in made.slow]
    both = {k: words for k, words in made.slow.items() if k in said}
    return faults + [f"slow {k}: {said[k]}, true {w}" for k, w in both.items() if not any(x in said[k] for x in w)]


def _late(made: Recording, results) -> list[str]:
    if len(made.kinds) < 4:
        return []
    ranks, experts = results.frame("ranks"), results.frame("experts")
    true = [made.late_rank] if made.late_rank >= 0 else []
    late = ranks[ranks["is_straggler"].astype(bool)]
    found = [(int(r), str(c)) for r, c in zip(late["rank"], late["late_cause"])]
    faults = [] if [r for r, _ in found] == true else [f"late ranks {found}, true {true}"]
    own = experts.loc[experts["is_late"].astype(bool), "process_id"].tolist()
    device = {m.pid: m.device for m in made.program.machines}
    said = [device.get(p) for p in own]
    return faults + ([] if said == true else [f"experts late {said}, true {true}"])


def _requests(made: Recording, results) -> list[str]:
    table = results.frame("requests")
    faults = [] if len(table) == len(made.requests) else [f"{len(table)} requests, true {len(made.requests)}"]
    for _, one in table.iterrows() if made.requests else ():
        first, tokens = made.requests.get(str(one["request_id"]), (np.nan, 0))
        found = (one["first_token_ns"], one["token_count"])
        if not (abs(found[0] - first) <= 0.05 * first + 50_000 and found[1] == tokens):
            faults.append(f"request {one['request_id']}: {found}, true {first:.3g} {tokens}")
    return faults[:4]
