"""Predictions of `what-if` against the simulator's truth: one row per program, kind of change and quantity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from generators.simulator import KINDS, Machine, draw_program, edited

from xsp_post.base.errors import ContradictionError
from xsp_post.model.options import Options
from xsp_post.pipeline import analyze
from xsp_post.replay.what_if import what_if

# At least so many of the predictions of a kind lie in their interval; the mean error and the share refused are at most
# that.
LEAST_COVERED, MOST_ERROR, MOST_REFUSED = 0.93, 0.02, 0.10


@dataclass(frozen=True)
class Row:
    """One prediction. ``error``: signed, relative to the truth; NaN where it was refused."""

    seed: int
    features: str
    kind: str
    quantity: str
    before_ns: float
    truth_ns: float
    predicted_ns: float
    low_ns: float
    high_ns: float
    refusal: str = ""
    least_ns: float = 0.0  # no period is shorter: what the busiest stream has to do in one

    @property
    def error(self) -> float:
        return self.predicted_ns / self.truth_ns - 1

    @property
    def is_covered(self) -> bool:
        return self.low_ns <= self.truth_ns <= self.high_ns


def predictions(seed: int, folder: Path, kinds: tuple[str, ...] = KINDS) -> list[Row]:
    """All changes of one drawn program, each predicted from its recording and held against the edited program."""
    program = draw_program(seed)
    machine = Machine(program).run()
    results = analyze([machine.write(folder / f"program{seed}.sqlite")], Options(model_range="^step"))
    rows = []
    for number, kind in enumerate(kinds):
        changed = edited(program, kind)
        if changed is None:
            continue
        text, other = changed
        after = Machine(other, number + 1).run()
        # an execution that nothing ends keeps running: only its pace is a time of its own
        is_ended = "ends in a wait" in program.features and kind not in ("sync removed", "copies overlapped")
        truths = {"period": (machine.period_ns(), after.period_ns())}
        truths |= {"latency": (machine.latency_ns(), after.latency_ns())} if is_ended else {}
        features = ", ".join(program.features)
        try:
            said = what_if(results, [text])
        except ContradictionError as refused:
            rows += [
                Row(seed, features, kind, name, *truth, *[np.nan] * 3, str(refused)) for name, truth in truths.items()
            ]
            continue
        for name, truth in truths.items():
            amount = said.period if name == "period" else said.latency
            if amount is not None:
                rows.append(Row(seed, features, kind, name, *truth, amount.predicted_ns, amount.low_ns, amount.high_ns,
                                least_ns=after.busiest_ns() if name == "period" else 0.0))  # fmt: skip
    return rows


def scores(rows: list[Row]) -> pd.DataFrame:
    """By kind of change: predictions, the share refused, that within the interval, mean error, mean half width."""
    frame = pd.DataFrame([
        {"kind": row.kind, "is_refused": bool(row.refusal), "is_covered": row.is_covered, "error": abs(row.error),
         "width": (row.high_ns - row.low_ns) / 2 / row.predicted_ns, "bias": row.error}
        for row in rows
    ])  # fmt: skip
    made = frame[~frame["is_refused"]].groupby("kind")
    table = pd.DataFrame({
        "predictions": frame.groupby("kind").size(), "refused": frame.groupby("kind")["is_refused"].mean(),
        "covered": made["is_covered"].mean(), "error": made["error"].mean(), "bias": made["bias"].mean(),
        "width": made["width"].mean(),
    })  # fmt: skip
    return table.reindex([kind for kind in KINDS if kind in table.index])
