"""Steps, idle time and kernels → ``step_outliers``: steps that took longer than their size explains, and why.

Each is compared with an ordinary step of its kind that should take about as long: what idle time, which kernels does
it have more? A step beyond three deviations counts where something explains it that the ordinary one does not have at
all; without that only beyond what chance gives the longest of so many steps.
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.cost_model import FEWEST_STEPS
from xsp_post.base.findings import Finding, finding
from xsp_post.model.results import Results, empty_table, frame_or_empty
from xsp_post.model.schemas.units import format_ns
from xsp_post.names.families import FAMILIES, families
from xsp_post.tables.analyses.frames import shaped
from xsp_post.tables.analyses.steps import Kind

_LEAST_DEVIATIONS, _ORDINARY, _LEAST_SIGMA = 3.0, 1.5, 0.003
_CORE, _VARIANCE_OF_CORE = 3.0, 0.9733  # deviations that the scatter is taken from; of a normal distribution
_BY_CHANCE = 0.003  # probability that chance makes one of all steps such an outlier
_LIKE = 3  # steps of one expected time that show what it is; else so many on each side
_LOWER = 0.25
_MOST = 500
_EXPLAINS = 0.5  # of the time lost
_ALIKE = 0.15  # kernels that all got slower by the same factor, within this share of it
# Ranges in which a program compiles; not those of what was compiled (`Torch-Compiled Region`, `CompiledFxGraph`).
_COMPILES = r"(?i)dynamo_timed|nvrtc|autotun|(?:\b|_)(?:re)?compil(?:e|er|ing|ation)(?:\b|_)"
_PREEMPTS = r"(?i)preempt|swap_?(?:out|in|blocks)|evict"
COMPILATION, PREEMPTION = "compilation", "preemption"
OTHER_KERNELS, COMMUNICATION, SLOWER, COPIES = "other kernels", "communication", "slower kernels", "copies"


class _Way(NamedTuple):
    """What made a step longer; ``is_event``: the step it is compared with has none of it."""

    cause: str
    detail: str
    explained_ns: float
    is_event: bool


def step_outliers(results: Results, kinds: list[Kind]) -> tuple[pd.DataFrame, list[Finding]]:
    """The table, most time lost first."""
    parts = [found for kind in kinds if len(found := _candidates(kind))]
    if not parts:
        return empty_table("step_outliers"), []
    rows = pd.concat(parts, ignore_index=True).nlargest(_MOST, "lost_ns").reset_index(drop=True)
    causes = pd.DataFrame(_causes(results, rows), columns=["cause", "detail", "explained_ns", "is_event"])
    rows = rows.join(causes)
    rows["explained_ratio"] = rows["explained_ns"] / rows["lost_ns"]
    rows = rows[rows["is_sure"] | rows["is_event"].astype(bool)].reset_index(drop=True)
    if not len(rows):
        return empty_table("step_outliers"), []
    first = rows.iloc[0]
    why = " ".join(text for text in (str(first["cause"]).replace("_", " "), str(first["detail"])) if text)
    example = (
        f"{first['kind']} {first['iteration_index']}: {format_ns(first['lost_ns'])} more, {why or 'no cause found'}"
    )
    return shaped("step_outliers", dict(rows)), [finding("slow-steps", count=len(rows), example=example)]


def _candidates(kind: Kind) -> pd.DataFrame:
    """Steps of one kind that took longer than the model says, each with an ordinary one to compare it with."""
    expected_ns = kind.expected_ns * kind.model.trend
    off = kind.step_ns / expected_ns - 1
    known = np.isfinite(off)
    if known.sum() < FEWEST_STEPS:
        return pd.DataFrame()
    terms = len(kind.model.terms)
    core = known & (np.abs(off) < _CORE * 1.4826 * float(np.median(np.abs(off[known]))))
    freedom = max(int(core.sum()) - terms, 1)
    sigma = max(float((off[core] ** 2).sum() / freedom / _VARIANCE_OF_CORE) ** 0.5, _LEAST_SIGMA)
    error = kind.model.error_of(kind.sizes) if terms else 0.0
    far = np.nan_to_num(off / np.hypot(sigma, error))
    ordinary = np.flatnonzero(known & (np.abs(far) < _ORDINARY))
    far = np.minimum(far, far - _of_like(expected_ns, far))
    if np.ndim(kind.model.trend):  # its shape is not known: a step is held against those beside it
        far = np.minimum(far, far - _of_like(np.arange(len(far)), far))
    # the first step fills the device's queue, where the others are launched ahead of it
    gap = kind.rows["host_gap_ns"].to_numpy(float)
    known_gap = gap[~np.isnan(gap)]
    is_filling = np.isnan(gap) & bool(len(known_gap) and not known_gap.any())
    # Student's t, as deviations of the normal distribution (Wallace 1959): few steps do not tell their scatter well
    surely = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(np.maximum(far, 0) ** 2 / freedom))
    slow = np.flatnonzero((surely > _LEAST_DEVIATIONS) & ~is_filling)
    if not len(slow) or not len(ordinary):
        return pd.DataFrame()
    by_time = ordinary[np.argsort(expected_ns[ordinary], kind="stable")]
    place = np.searchsorted(expected_ns[by_time], expected_ns[slow]).clip(0, len(by_time) - 1)
    like, index = by_time[place], kind.rows["iteration_index"].to_numpy()
    beyond_chance = NormalDist().inv_cdf(1 - _BY_CHANCE / len(kind.rows))
    return pd.DataFrame(
        {
            **kind.labels,
            "iteration_index": index[slow],
            "step_ns": kind.step_ns[slow],
            "expected_ns": expected_ns[slow],
            "lost_ns": (kind.step_ns - expected_ns)[slow],
            "deviation_count": far[slow],
            "is_sure": surely[slow] > beyond_chance,
            "like_index": index[like],
            "scale": list(_scales(kind, expected_ns, slow, like)),
        }
    )


def _scales(kind: Kind, expected_ns: np.ndarray, slow: np.ndarray, like: np.ndarray) -> np.ndarray:
    """How much longer the kernels of each family should take in a step than in the one it is compared with, by the
    family's model; of a family without one, by that of the step. Shape (slow steps, families)."""
    scales = np.repeat((expected_ns[slow] / expected_ns[like])[:, None], len(FAMILIES), axis=1)
    for name, model in kind.family_models.items() if kind.has_sizes else ():
        expected = model.predicted(kind.sizes) * model.trend
        known = (expected[slow] > 0) & (expected[like] > 0)
        scales[known, FAMILIES.index(name)] = (expected[slow] / expected[like])[known]
    return scales


def _of_like(expected_ns: np.ndarray, far: np.ndarray) -> np.ndarray:
    """The deviation that three quarters of the steps of equal expected time reach, of few such the
    median of the nearest on both sides; where the model does not fit, they are off together. Shape (steps,)."""
    order = np.argsort(np.nan_to_num(expected_ns), kind="stable")
    sorted_far = pd.Series(far[order])
    equal = sorted_far.groupby(np.nan_to_num(expected_ns)[order])
    near = sorted_far.rolling(2 * _LIKE + 1, center=True, min_periods=1).median()
    found = np.empty(len(order))
    lower = equal.transform("quantile", _LOWER, interpolation="lower")
    found[order] = lower.where(equal.transform("size") >= _LIKE, near)
    return found


def _causes(results: Results, rows: pd.DataFrame) -> list[_Way]:
    """The cause of each outlier; '' where none explains enough of it."""
    long = _of_steps(results, "idle", ["cause", "call_name", "node_id", "start_ns", "end_ns"], rows)
    short = _of_steps(results, "short_waits", ["cause", "call_name", "node_id", "idle_ns"], rows)
    idle = pd.concat([long.assign(length=long["end_ns"] - long["start_ns"]), short.assign(length=short["idle_ns"])])
    called = idle["cause"].astype(str) + "\n" + idle["call_name"].astype(str)
    idle["name"] = _named_within(results, idle, _COMPILES, COMPILATION, called)
    copies = _of_steps(results, "memory_operations", ["name", "direction", "node_id", "start_ns", "end_ns"], rows)
    copies = copies.assign(length=copies["end_ns"] - copies["start_ns"])
    copied = COPIES + "\n" + copies["direction"].astype(str)
    copies["name"] = _named_within(results, copies, _PREEMPTS, PREEMPTION, copied)
    idle = pd.concat([idle, copies])
    kernels = _of_steps(results, "kernels", ["name", "duration_ns"], rows)
    kernels = kernels.assign(name=kernels["name"].astype(str), length=kernels["duration_ns"])
    names = kernels["name"].unique()
    family = pd.Series([FAMILIES.index(one) for one in families(names.tolist())], names)
    waits, work = _more_of(idle, rows, None), _more_of(kernels, rows, family)
    is_communication = family == FAMILIES.index("communication")
    found = []
    for number, lost in enumerate(rows["lost_ns"].tolist()):  # at most `_MOST`
        ways = [_wait(waits.get(number)), *_work(work.get(number), is_communication)]
        best = max(ways, key=lambda way: way.explained_ns)
        found.append(best if best.explained_ns >= _EXPLAINS * lost else _Way("", "", np.nan, False))
    return found


def _named_within(
    results: Results, rows: pd.DataFrame, pattern: str, cause: str, otherwise: pd.Series
) -> pd.Series:  # fmt: skip
    """The cause, and the range that a row lies in where its name says so."""
    nodes = frame_or_empty(results, "nodes", ["capture_id", "node_id", "name"])
    nodes = nodes[nodes["node_id"].isin(rows["node_id"].dropna())].astype({"name": str})
    found = nodes[nodes["name"].str.contains(pattern)].set_index(["capture_id", "node_id"])["name"]
    said = rows.join(found.rename("within"), on=["capture_id", "node_id"])["within"]
    return (cause + "\n" + said).where(said.notna(), otherwise)


def _of_steps(results: Results, table: str, columns: list[str], rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a table that lie in an outlier or in the step that it is compared with."""
    frame = frame_or_empty(results, table, ["capture_id", "iteration_index", *columns])
    index = frame["iteration_index"].fillna(-1).to_numpy(np.int64)
    asked = np.concatenate([rows["iteration_index"], rows["like_index"]])
    return frame.assign(iteration_index=index)[np.isin(index, asked)]


def _more_of(frame: pd.DataFrame, rows: pd.DataFrame, family: pd.Series | None) -> dict[int, pd.DataFrame]:
    """Per outlier and name: its time (``here``), and that of the ordinary step (``like``), of kernels scaled to its
    size; ``family``: that of each kernel name."""
    sums = frame.groupby(["capture_id", "iteration_index", "name"], observed=True)["length"].sum().reset_index()
    parts = {}
    for side, column in (("here", "iteration_index"), ("like", "like_index")):
        asked = rows[["capture_id"]].assign(iteration_index=rows[column], number=np.arange(len(rows)))
        parts[side] = asked.merge(sums, on=["capture_id", "iteration_index"]).rename(columns={"length": side})
    like = parts["like"]
    if family is not None and len(like):
        scale = np.stack(rows["scale"].to_list())[like["number"], family[like["name"]]]
        like = like.assign(like=like["like"] * scale)
    keys = ["number", "name"]
    both = parts["here"][[*keys, "here"]].merge(like[[*keys, "like"]], on=keys, how="outer")
    return dict(iter(both.fillna({"here": 0.0, "like": 0.0}).groupby("number")))  # type: ignore[arg-type]


def _wait(sums: pd.DataFrame | None) -> _Way:
    """The cause of idle time of which the outlier has most more."""
    if sums is None:
        return _Way("", "", 0.0, False)
    more = (sums["here"] - sums["like"]).to_numpy()
    most = int(np.argmax(more))
    cause, _, call = str(sums["name"].iloc[most]).partition("\n")
    return _Way(cause, call, float(more[most]), not sums["like"].iloc[most])


def _work(sums: pd.DataFrame | None, is_communication: pd.Series) -> list[_Way]:
    """Kernels that the other step does not have; collectives that took longer; the same kernels, but slower."""
    if sums is None:
        return []
    here, like, names = sums["here"].to_numpy(), sums["like"].to_numpy(), sums["name"].to_numpy(object)
    of_ranks = is_communication[sums["name"]].to_numpy(bool)
    new, both = (like == 0) & ~of_ranks, (like > 0) & (here > 0) & ~of_ranks
    ways = []
    if new.any():
        longest = str(names[np.argmax(np.where(new, here, 0))])
        more = float(here[new].sum() - like[(here == 0) & ~of_ranks].sum())
        ways.append(_Way(OTHER_KERNELS, longest, more, True))
    if of_ranks.any():
        ways.append(_Way(COMMUNICATION, "a late rank", float((here - like)[of_ranks].sum()), False))
    if both.any():
        whole = here[both].sum() / like[both].sum()
        weight = here[both] / here[both].sum()
        is_alike = both.sum() > 1 and weight[np.abs(here[both] / like[both] / whole - 1) < _ALIKE].sum() > 0.9
        slowest = str(names[np.argmax(np.where(both, here - like, 0))])
        detail = f"all by {whole:.2f}x, as at a lower clock" if is_alike else slowest
        ways.append(_Way(SLOWER, detail, float((here - like)[both].sum()), False))
    return ways
