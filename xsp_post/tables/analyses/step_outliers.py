"""Steps, idle time and kernels → ``step_outliers``: steps that took longer than their size explains, and why.

Each is compared with an ordinary step of its kind that should take about as long: what idle time, which kernels does
it have more? A step beyond three deviations counts where something explains it that the ordinary one does not have at
all, or where kernels of a family, or the host, took longer than chance makes them; else only beyond what chance gives
the longest of so many steps.
"""

from collections.abc import Callable, Iterable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.cost_model import FEWEST_STEPS, CostModel, scatter_of, sigma_of
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.joins import row_with
from xsp_post.base.findings import Finding, finding
from xsp_post.model.results import Results, empty_table, frame_or_empty, shaped
from xsp_post.model.schemas.units import format_ns
from xsp_post.names.families import FAMILIES, family_index, joins_ranks, matches
from xsp_post.replay.calls import are_compilation
from xsp_post.tables.analyses.frames import PATTERNS, text_codes
from xsp_post.tables.analyses.steps import ATTENTION, HOST, Kind

_LEAST_DEVIATIONS, _ORDINARY, _LEAST_SIGMA = 3.0, 1.5, 0.003
_BY_CHANCE = 0.003  # probability that chance makes one of all steps such an outlier
_LIKE = 3  # steps of one expected time that show what it is; else so many on each side
_LOWER = 0.25
_MOST = 500
_EXPLAINS = 0.5  # of the time lost
_ALIKE = 0.15  # kernels that all got slower by the same factor, within this share of it
_NAMED_BY_RANGE = {"compilation": are_compilation, "preemption": lambda texts: matches(texts, PATTERNS["preemption"])}
_LAUNCHES = ("launch_call", "graph_launch", "launch_latency", "queued")  # after a wait they are waited for, too
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
    is_told = rows["is_event"].astype(bool) | (rows["is_sure_of_part"] & (rows["cause"] != ""))
    rows = rows[rows["is_sure"] | is_told].reset_index(drop=True)
    if not len(rows):
        return empty_table("step_outliers"), []
    first = rows.iloc[0]
    why = " ".join(text for text in (str(first["cause"]).replace("_", " "), str(first["detail"])) if text)
    example = (
        f"{first['kind']} {first['iteration_index']}: {format_ns(first['lost_ns'])} more, {why or 'no cause found'}"
    )
    return shaped("step_outliers", dict(rows)), [finding("slow-steps", count=len(rows), example=example)]


def _candidates(kind: Kind) -> pd.DataFrame:
    """Steps of one kind that took longer than the model says, or began later, each with an ordinary one to compare it
    with."""
    expected_ns = kind.expected_ns * kind.model.trend
    far, surely, is_ordinary, scatter = _deviations(kind, kind.step_ns, kind.model, expected_ns)
    # the first step fills the device's queue, where the others are launched ahead of it
    gap = kind.rows["host_gap_ns"].to_numpy(float)
    known_gap = gap[~np.isnan(gap)]
    is_filling = np.isnan(gap) & bool(len(known_gap) and not known_gap.any())
    of_parts, is_large = _of_parts(kind, _LEAST_DEVIATIONS * scatter * expected_ns)
    usual_gap_ns = np.median(kind.gap_ns)
    begun = _deviations(kind, expected_ns + kind.gap_ns, CostModel(), expected_ns + usual_gap_ns)
    is_late, is_ordinary = _beyond_chance(begun[1]), is_ordinary & begun[2]
    is_late &= is_late.sum() * FEWEST_STEPS < len(is_late)  # waits that many have are how the program runs
    is_slow = (surely > _LEAST_DEVIATIONS) | (is_large & (kind.step_ns > expected_ns)) | is_late
    slow, ordinary = np.flatnonzero(is_slow & ~is_filling), np.flatnonzero(is_ordinary)
    if not len(slow) or not len(ordinary):
        return pd.DataFrame()
    start_ns = kind.rows["start_ns"].to_numpy(np.int64)
    by_time = ordinary[np.argsort(expected_ns[ordinary], kind="stable")]
    place = np.searchsorted(expected_ns[by_time], expected_ns[slow]).clip(0, len(by_time) - 1)
    like, index = by_time[place], kind.rows["iteration_index"].to_numpy()
    return pd.DataFrame(
        {
            **kind.labels,
            "iteration_index": index[slow],
            "step_ns": (kind.step_ns + kind.gap_ns)[slow],
            "expected_ns": expected_ns[slow] + usual_gap_ns,
            "lost_ns": (kind.step_ns - expected_ns + kind.gap_ns - usual_gap_ns)[slow],
            "deviation_count": np.maximum(far, begun[0])[slow],
            "is_sure": (_beyond_chance(_told(kind, surely)) | is_late)[slow],
            "is_sure_of_part": of_parts[slow],
            "start_ns": start_ns[slow],
            "gap_ns": kind.gap_ns[slow],
            "like_index": index[like],
            "scale": list(_scales(kind, expected_ns, slow, like)),
        }
    )


def _deviations(
    kind: Kind, time_ns: np.ndarray, model: CostModel, expected_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """How many deviations each step is beyond its model and the steps like it; the same in deviations of the normal
    distribution; which steps are near the model; and a deviation, over the time. Shape (steps,) each."""
    off = np.divide(time_ns, expected_ns, out=np.full(len(time_ns), np.nan), where=expected_ns > 0) - 1
    known = np.isfinite(off)
    if known.sum() < FEWEST_STEPS:
        return np.zeros(len(off)), np.zeros(len(off)), np.zeros(len(off), bool), np.full(len(off), np.inf)
    scatter, terms = scatter_of(expected_ns, model.scatter_power), len(model.terms)
    sigma, freedom = max(sigma_of((off / scatter)[known], terms), _LEAST_SIGMA), max(int(known.sum()) - terms, 1)
    error = model.error_of(kind.sizes) if terms else 0.0
    scatter = np.hypot(sigma * np.maximum(scatter, 1), error)  # long ones may scatter as others do
    far = np.nan_to_num(off / scatter)
    is_ordinary = known & (np.abs(far) < _ORDINARY)
    far = np.minimum(far, far - _of_like(expected_ns, far))
    if np.ndim(model.trend):  # its shape is not known: a step is held against those beside it
        far = np.minimum(far, far - _of_like(np.arange(len(far)), far))
    # Student's t, as deviations of the normal distribution (Wallace 1959): few steps do not tell their scatter well
    surely = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(np.maximum(far, 0) ** 2 / freedom))
    return far, surely, is_ordinary, scatter


def _told(kind: Kind, surely: np.ndarray) -> np.ndarray:
    """How far each step is off, where no context is said without its attention: that follows the context."""
    if not kind.lacks_context:
        return surely
    time_ns = kind.step_ns - kind.family_ns[:, FAMILIES.index(ATTENTION)]
    model = kind.fit(time_ns)
    return _deviations(kind, time_ns, model, model.predicted(kind.sizes) * model.trend)[1]


def _of_parts(kind: Kind, least_ns: np.ndarray) -> np.ndarray:
    """In which steps the kernels of a family, or the rest, took longer than chance makes them, and in which of these by
    at least so much; bool, shape (2, steps)."""
    found = np.zeros((2, len(kind.rows)), bool)
    for name, model in [*kind.family_models.items(), (HOST, kind.host_model)] if kind.has_sizes else ():
        if name == ATTENTION and kind.lacks_context:
            continue
        time_ns = kind.host_ns if name == HOST else kind.family_ns[:, FAMILIES.index(name)]
        expected_ns = model.predicted(kind.sizes) * model.trend
        is_sure = _beyond_chance(_deviations(kind, time_ns, model, expected_ns)[1])
        found |= is_sure & np.stack([is_sure, time_ns - expected_ns > least_ns])
    return found


def _beyond_chance(deviations: np.ndarray) -> np.ndarray:
    """Which are more than chance gives the largest of so many; bool."""
    return deviations > NormalDist().inv_cdf(1 - _BY_CHANCE / len(deviations))


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
    long = _idle(results, rows)
    short = _of_steps(results, "short_waits", ["cause", "call_name", "node_id", "idle_ns"], rows)
    copies = _of_steps(results, "memory_operations", ["direction", "node_id", "start_ns", "end_ns"], rows)
    parts = [long, short.assign(start_ns=0, end_ns=short["idle_ns"])]
    parts.append(copies.assign(cause=COPIES, call_name=copies["direction"].astype(str)))
    waits = pd.concat([one.astype({"cause": object, "call_name": object}) for one in parts], ignore_index=True)
    waits["length"] = waits["end_ns"] - waits["start_ns"]
    waits["name"] = waits["cause"].astype(str) + "\n" + waits["call_name"].astype(str)
    for cause, are_such in _NAMED_BY_RANGE.items():
        within = _range_around(results, waits, are_such)
        waits["name"] = waits["name"].where(within == "", cause + "\n" + within)
    kernels = _of_steps(results, "kernels", ["name", "duration_ns"], rows)
    kernels = kernels.assign(name=kernels["name"].astype(str), length=kernels["duration_ns"])
    names = pd.Index(kernels["name"].unique())
    family = pd.Series(family_index(names), names)
    waiting, work = _more_of(waits, rows, None), _more_of(kernels, rows, family)
    is_communication = pd.Series(joins_ranks(names.to_series()), names)
    found = []
    for number, lost in enumerate(rows["lost_ns"].tolist()):  # at most `_MOST`
        ways = [_wait(waiting.get(number)), *_work(work.get(number), is_communication)]
        best = max(ways, key=lambda way: way.explained_ns)
        found.append(best if best.explained_ns >= _EXPLAINS * lost else _Way("", "", np.nan, False))
    return found


def _range_around(results: Results, rows: pd.DataFrame, are_such: Callable[[Iterable[str]], np.ndarray]) -> np.ndarray:
    """The innermost range around each row, inside its execution, whose name is such a one, '' for none; object."""
    nodes = frame_or_empty(results, "nodes", ["capture_id", "node_id", "parent_id", "iteration_index", "name"])
    codes, texts = text_codes(nodes["name"])
    said = are_such(texts.astype(str))[codes] & (nodes["iteration_index"].fillna(-1) >= 0).to_numpy()
    if not said.any():
        return np.full(len(rows), "", object)
    capture, known, parent = (nodes[name].to_numpy(np.int64) for name in ("capture_id", "node_id", "parent_id"))
    at = [rows[name].fillna(-1).to_numpy(np.int64) for name in ("capture_id", "node_id")]
    above, node = (row_with((capture, known), asked) for asked in ((capture, parent), at))
    named = np.append(forest_of(above).nearest(said), -1)[node]
    return np.append(texts, "").astype(object)[np.append(codes, len(texts))[named]]


def _idle(results: Results, rows: pd.DataFrame) -> pd.DataFrame:
    """Pieces of idle time in an outlier, in the gap that counts for it, or in the step that it is compared with."""
    columns = ["cause", "call_name", "node_id", "start_ns", "end_ns", "device_id"]
    inside = _of_steps(results, "idle", columns, rows)
    late = rows[rows["gap_ns"] > 0].sort_values("start_ns")
    if not len(late):
        return inside
    step = ["capture_id", "iteration_index"]
    devices = inside[[*step, "device_id"]].drop_duplicates().merge(rows[[*step, "process_id"]], on=step)
    outside = frame_or_empty(results, "idle", [*step, *columns])
    outside = outside[outside["iteration_index"].fillna(-1).to_numpy(np.int64) < 0].drop(columns="iteration_index")
    of_process = outside.merge(devices[["capture_id", "process_id", "device_id"]].drop_duplicates())
    asked = late[[*step, "process_id", "gap_ns"]].assign(end_ns=late["start_ns"], begin_ns=late["start_ns"])
    before = pd.merge_asof(
        of_process.sort_values("end_ns"), asked, on="end_ns", by=["capture_id", "process_id"], direction="forward"
    )
    is_before = before["start_ns"] >= before["begin_ns"] - before["gap_ns"]
    before = before[is_before].astype({"iteration_index": np.int64})
    return pd.concat([inside, before[inside.columns]], ignore_index=True)


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
    """The cause of idle time of which the outlier has most more. Launches that wait behind a stall count for it, unless
    they take much more themselves."""
    if sums is None:
        return _Way("", "", 0.0, False)
    more = (sums["here"] - sums["like"]).to_numpy()
    causes, calls = zip(*(str(name).split("\n", 1) for name in sums["name"]))
    is_launch = np.isin(causes, _LAUNCHES)
    behind = max(float(more[is_launch].sum()), 0.0)
    most = int(np.argmax(np.where(is_launch, 0.0, more)))
    if is_launch[most] or more[most] < _EXPLAINS * behind:
        most, behind = int(np.argmax(more)), 0.0
    return _Way(causes[most], calls[most], float(more[most]) + behind, not sums["like"].iloc[most])


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
