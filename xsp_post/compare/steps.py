"""Two results → ``compare_steps``: steps of inference of equal tokens and context, by their cost models, whole and by
role; whatever sizes either recording happened to hold. And a sentence a kind."""

import numpy as np
import pandas as pd

from xsp_post.arrays.cost_model import CostModel
from xsp_post.compare.differences import LESS, MORE, NOT_SHOWN
from xsp_post.compare.headline import LATENCY, Headline
from xsp_post.compare.statements import said
from xsp_post.compare.structure import Statement
from xsp_post.model.results import Results, empty_table, typed
from xsp_post.model.schemas.units import format_change
from xsp_post.names.families import FAMILIES, ROLES
from xsp_post.tables.analyses.steps import HOST, WHOLE, Kind, kinds_of_steps

_ERRORS = 3.0  # standard errors beyond which a difference is no chance
_ROLES = (WHOLE, *dict.fromkeys(ROLES.values()), HOST)


def compared_steps(base: Results, other: Results, spread: float) -> pd.DataFrame:
    """A row a kind and role, for sizes of the base's steps that lie in what both models were fitted to."""
    sides = [kinds_of_steps(side) for side in (base, other)]
    one, another = ({kind.labels["kind"]: kind for kind in reversed(side) if kind.has_sizes} for side in sides)
    rows = [row for kind in one if kind in another for row in _of_kind(one[kind], another[kind], spread)]
    return typed("compare_steps", pd.DataFrame(rows)) if rows else empty_table("compare_steps")


def _of_kind(base: Kind, other: Kind, spread: float) -> list[dict[str, object]]:
    models = [_models(one) for one in (base, other)]
    inside = np.ones(len(base.rows), bool)
    for model in (one[WHOLE] for one in models):
        inside &= np.all(
            [(base.sizes[s] >= model.low[s]) & (base.sizes[s] <= model.high[s]) for s in model.low], axis=0
        )
    if not (models[0][WHOLE].terms and models[1][WHOLE].terms and inside.any()):
        return []
    sizes = {name: values[inside] for name, values in base.sizes.items()}
    rows = []
    for role in (role for role in _ROLES if all(side[role].terms for side in models)):
        values = [float(side[role].predicted(sizes).mean()) for side in models]
        chance = [side[role].sigma_ratio / side[role].fitted_count ** 0.5 for side in models]
        ratio, error = values[1] / values[0] - 1, float(np.hypot(_ERRORS * np.hypot(*chance), spread))
        rows.append({
            "kind": base.labels["kind"], "role": role, "quantity": f"{base.labels['kind']}: {role}",
            "step_count": int(inside.sum()), "base_value": values[0], "other_value": values[1],
            "difference_ratio": ratio, "ci_low_value": (ratio - error) * values[0],
            "ci_high_value": (ratio + error) * values[0],
            "change": NOT_SHOWN if abs(ratio) <= error else MORE if ratio > 0 else LESS,
            "median_ratio": float(np.median(other.step_ns) / np.median(base.step_ns) - 1),
        })  # fmt: skip
    return rows


def _models(kind: Kind) -> dict[str, CostModel]:
    times = {role: kind.family_ns[:, [ROLES[one] == role for one in FAMILIES]].sum(axis=1) for role in _ROLES[1:-1]}
    return {WHOLE: kind.model, **{role: kind.fit(time) for role, time in times.items()}, HOST: kind.host_model}


def step_headlines(steps: pd.DataFrame) -> list[Headline]:
    """One a kind, for steps of equal size; which sizes a side happened to hold says nothing of the program."""
    return [
        Headline(
            LATENCY, said("equal-steps", kind=row["kind"]), row["base_value"], row["other_value"],
            row["ci_low_value"] / row["base_value"], row["ci_high_value"] / row["base_value"], "sizes",
        )
        for row in steps[steps["role"] == WHOLE].to_dict("records")
    ]  # fmt: skip


def step_statements(steps: pd.DataFrame) -> list[Statement]:
    """Of each kind: which role has most of the difference, and how far the recorded steps differ, of whatever size."""
    found: list[Statement] = []
    for kind, rows in steps[steps["role"] != WHOLE].groupby("kind", sort=False):
        order = (rows["other_value"] - rows["base_value"]).abs().to_numpy()
        most = rows.iloc[int(np.argmax(order))]
        change, median = (format_change(most[name]) for name in ("difference_ratio", "median_ratio"))
        text = said("most-by", kind=kind, role=most["role"], change=change, median=median)
        found.append(("steps", text, str(most["change"]) != NOT_SHOWN))
    return found
