"""Analysis + counter reports → Analysis with counters: kernels of timing runs are matched with counter results.

A counter report names each kernel's ranges and keeps their order, but no correlation id (Jaeger's does). So a
kernel is looked for by (range path, launch order within it, name); what stays is looked for by ever less (`STEPS`),
each kernel at the first step that finds it. XSP's scripts pooled all equal names of a layer; here a mean is
taken only where several results stand for the same launch, and is named as such. Latencies never come from
counter runs: replay serialises and repeats every kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import runs
from xsp_post.arrays.repeats import dense
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.counters.keys import Side, sides
from xsp_post.counters.quantities import combined_flop, is_input, is_tensor_operand, quantities
from xsp_post.model.counters import PATH_SEPARATOR, CounterReport
from xsp_post.model.results import side_by_side
from xsp_post.model.schemas import column_names

CORRELATION, PATH_ORDER, PATH_NAME, NAME_ORDER, NAME_SHAPE, NAME_MEAN, UNMATCHED = STEPS = (
    "correlation",  # the same launch: the report knows its correlation id
    "path and order",  # range path, order within it, name
    "path and name",  # range path, k-th of that name within it
    "name and order",  # k-th of that name and launch dimensions within the iteration, equally many in both
    "name and launch dimensions",  # mean over results of that name and grid and block
    "name",  # mean over results of that name
    "none",
)
_NAME_HERE = "\0"  # where a finding's example names its report
MOST_EXTRA_METRICS = 40  # of the tool's own names, in addition to our quantities


def no_metrics() -> pd.DataFrame:
    return pd.DataFrame(columns=column_names("kernel_metrics"))


def tables(
    kernels: pd.DataFrame, nodes: pd.DataFrame, reports: Sequence[CounterReport], devices: pd.DataFrame,
    captures: pd.DataFrame,
) -> tuple[dict[str, pd.DataFrame], list[Finding]]:  # fmt: skip
    """The tables ``kernel_metrics`` and ``counter_join``, and what was found.

    `kernels` and `nodes` are tables of an Analysis. The GPU of each report is compared with `devices`; `captures`
    keeps reports to captures of their batch size (where both are known). The tool's own metrics are kept beside our
    quantities where a report has at most `MOST_EXTRA_METRICS` more than these need. kernel_metrics: at most one row per
    kernel and metric; where several reports give one, the better step, then the earlier report. counter_join: per
    report and capture the counts add up to its kernels.
    """
    parts, steps, findings = [], [], list[Finding]()
    reports_of_findings = list[str]()  # the report of each finding
    for report in reports:
        findings += report.findings
        found = _Report(report)
        for capture_id, of_capture in kernels.groupby("capture_id", sort=True):
            if not _is_of_batch(report, captures, int(str(capture_id))):
                continue
            matched, counted, raised = found.match(of_capture, nodes[nodes["capture_id"] == capture_id])
            parts.append(matched)
            steps.append(counted.assign(report_name=report.report_name, capture_id=capture_id))
            findings += raised
            findings += _unlike_gpus(report, devices, int(str(capture_id)))
        reports_of_findings += [report.report_name] * (len(findings) - len(reports_of_findings))
    metrics = _one_per_kernel(parts)
    if len(reports) > 1:
        metrics = _with_flop_over_reports(metrics)
    columns = ["report_name", "capture_id", "step", "kernel_count", "kernel_ns"]
    counted = pd.concat(steps, ignore_index=True)[columns] if steps else pd.DataFrame(columns=columns)
    return {"kernel_metrics": metrics, "counter_join": counted}, _merge_alike(findings, reports_of_findings)


def _merge_alike(findings: Sequence[Finding], reports_of_findings: Sequence[str]) -> list[Finding]:
    """Findings that several reports (metric sets of the same kernels) raise alike, once, with all their names."""
    names: dict[Finding, list[str]] = {}
    for one, name in zip(findings, reports_of_findings):
        example = one.example.replace(name, _NAME_HERE) if name else one.example
        names.setdefault(replace(one, example=example), []).append(name)
    return [
        replace(one, example=one.example.replace(_NAME_HERE, ", ".join(dict.fromkeys(names_of_reports))))
        for one, names_of_reports in names.items()
    ]


class _Report:
    """One report, ready to be matched with any number of captures."""

    def __init__(self, report: CounterReport) -> None:
        self.report = report
        self.actions = report.actions[report.actions["workload_type"] == "kernel"]
        self.values = _values(report)

    def match(self, kernels: pd.DataFrame, nodes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, list[Finding]]:
        """Counters of one capture's kernels, kernels per step, findings."""
        order = np.where(kernels["launch_start_ns"] >= 0, kernels["launch_start_ns"], kernels["start_ns"])
        kernels = kernels.iloc[np.argsort(order, kind="stable")]
        ours, theirs, paths = sides(kernels, nodes, self.actions)
        if len(ours) and len(theirs) and not np.isin(theirs.name, ours.name).any():
            example = f"{self.report.report_name}: {self.actions['short_name'].iloc[0]}"
            found = [finding("counters-of-another-program", count=len(theirs), example=example)]
            return _no_metrics(), _count_steps(kernels, np.full(len(ours), len(STEPS) - 1)), found
        matching = _Matching(ours, theirs)
        differing = _differing_paths(ours, theirs, paths)
        found = self._findings(kernels, matching, differing)
        return self._metrics(matching), _count_steps(kernels, matching.step), found

    def _metrics(self, matching: _Matching) -> pd.DataFrame:
        parts = []
        for step, (kernel_ids, kernel_key, action_ids, action_key) in matching.found.items():
            members = pd.DataFrame({"action_id": action_ids, "key": action_key})
            size = members.groupby("key").size().rename("member_count")
            values = self.values.merge(members, on="action_id")
            means = values.groupby(["key", "metric_name"], sort=True).agg(
                value=("value", "mean"), unit=("unit", "first"), source=("source", "first")
            )
            means = means.reset_index().merge(size, on="key")
            note = np.where(means["member_count"] > 1, " (mean of several results)", "")
            means["source"] = means["source"] + f"; matched by {STEPS[step]}" + note
            parts.append(_spread(means, kernel_ids, kernel_key, step))
        return side_by_side([_no_metrics(), *parts])

    def _findings(self, kernels: pd.DataFrame, matching: _Matching, differing: list[str]) -> list[Finding]:
        report, kernel = self.report.report_name, kernels["short_name"].iloc
        averaged = np.isin(matching.step, [STEPS.index(NAME_SHAPE), STEPS.index(NAME_MEAN)])
        missing = matching.step == STEPS.index(UNMATCHED)
        return [
            *if_any("counters-counts-differ", len(differing), "; ".join(differing[:5])),
            *if_any("counters-averaged", averaged, kernel.__getitem__),
            *if_any("counters-kernels-without", missing, lambda row: f"{report}: {kernel[row]}"),
            *if_any("counters-unused", matching.unused_count, report),
        ]


def _values(report: CounterReport) -> pd.DataFrame:
    """Quantities of each result, and the tool's own metrics where they are few."""
    metrics, names = report.metrics, report.metrics["metric_name"].cat.categories
    extra = [name for name in names if not is_input(name)]
    # which operand types the tensor cores worked on decides their roof
    operands = [name for name in names if is_tensor_operand(name)]
    chosen = metrics["metric_name"].isin(extra if len(extra) <= MOST_EXTRA_METRICS else [])
    others = metrics[chosen | (metrics["metric_name"].isin(operands) & (metrics["value"] > 0))]
    others = others.astype({"metric_name": object, "unit": object}).assign(source=others["metric_name"].astype(object))
    values = pd.concat([quantities(report), others], ignore_index=True)
    return values.astype({"metric_name": object, "unit": object, "source": object})


# --- matching -------------------------------------------------------------------------------------------------


class _Matching:
    """Kernels given to results, step by step; a kernel is served at the first step that finds something."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.step = np.full(len(ours), len(STEPS) - 1)
        self.found: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = {}
        self._ours, self._theirs = ours, theirs
        self._is_used = np.zeros(len(theirs), dtype=bool)
        same_launch = (ours.correlation, theirs.correlation)
        self._take(CORRELATION, *_pairs(same_launch, (ours.name, theirs.name)))
        path_name = _pairs((ours.path, theirs.path), (ours.name, theirs.name))
        self._take(PATH_ORDER, *_pairs(self._slots((ours.path, theirs.path)), path_name))
        self._take(PATH_NAME, *self._slots(path_name, is_strict=False))
        self._take(NAME_ORDER, *self._slots((ours.shape, theirs.shape), may_repeat=False))
        self._take(NAME_SHAPE, ours.shape, theirs.shape)
        self._take(NAME_MEAN, ours.name, theirs.name)
        self.unused_count = int((~self._is_used).sum())

    def _slots(
        self, keys: tuple[np.ndarray, np.ndarray], *, is_strict: bool = True, may_repeat: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Number of (key, place) on both sides, −1 where the counts of a key forbid it.

        Places count within a key and iteration. Results over r iterations hold each place r times, and a capture
        whose iterations were not separated repeats them. Where counts do not fit, strict keys are given up; others
        still pair the k-th with the k-th.
        """
        mine, theirs = keys
        my_place, my_count, usual = _places(mine, self._ours.group)
        their_place, _, measured = _places(theirs, self._theirs.group)
        size = max(len(usual), len(measured))
        usual, measured = _padded(usual, size), _padded(measured, size)
        period, larger = np.minimum(usual, measured), np.maximum(usual, measured)
        fits = (period > 0) & _fit(usual, measured, may_repeat and self._ours.may_repeat)
        if not is_strict:
            period = np.where(fits, period, larger)
            fits = larger > 0
        width = int(period.max(initial=0)) + 1
        numbers = []
        for key, place in ((mine, my_place), (theirs, their_place)):
            at = np.maximum(key, 0)
            known = (key >= 0) & (fits[at] if size else False)
            numbers.append(np.where(known, key * width + place % np.maximum(period[at], 1) if size else -1, -1))
        if is_strict and size:
            numbers[0][my_count % np.maximum(period[np.maximum(mine, 0)], 1) != 0] = -1
        return numbers[0], numbers[1]

    def _take(self, step: str, mine: np.ndarray, theirs: np.ndarray) -> None:
        """Serve the kernels that are still without, and whose key some result has."""
        rank = STEPS.index(step)
        waiting = (self.step == len(STEPS) - 1) & (mine >= 0)
        waiting[waiting] = np.isin(mine[waiting], theirs[theirs >= 0])
        if not waiting.any():
            return
        serving = np.isin(theirs, np.unique(mine[waiting]))
        self._is_used |= serving
        self.step[waiting] = rank
        self.found[rank] = (self._ours.ids[waiting], mine[waiting], self._theirs.ids[serving], theirs[serving])


def _pairs(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """A dense number for each pair of keys, the same on both sides; −1 where either has none."""
    mine, theirs = np.concatenate(one), np.concatenate(other)
    number = np.where((mine >= 0) & (theirs >= 0), dense(mine, theirs)[0], -1)
    return number[: len(one[0])], number[len(one[0]) :]


def _places(key: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Place of each row within its (key, group), that group's size, and per key its usual size over the groups.

    The usual size is the lower median: robust, and one that occurs. Keys −1 count as a key of their own that has
    no usual size.
    """
    groups = int(group.max(initial=-1)) + 1
    pair, inverse, count = np.unique(key * groups + group, return_inverse=True, return_counts=True)
    place = pd.Series(inverse).groupby(inverse).cumcount().to_numpy()
    of_key = pair // groups
    known = of_key >= 0
    of_key, sizes = of_key[known], count[known]
    order = np.lexsort((sizes, of_key))
    keys, first, how_many = np.unique(of_key[order], return_index=True, return_counts=True)
    usual = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    usual[keys] = sizes[order][first + (how_many - 1) // 2]
    return place, count[inverse], usual


def _fit(usual: np.ndarray, measured: np.ndarray, may_repeat: bool) -> np.ndarray:
    """Which counts per iteration and counts of results are of the same launches, once or several times."""
    several = (measured > 0) & (measured % np.maximum(usual, 1) == 0)
    repeated = (measured > 0) & (usual % np.maximum(measured, 1) == 0) & may_repeat
    return several | repeated


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([values, np.zeros(size - len(values), np.int64)])


def _differing_paths(ours: Side, theirs: Side, paths: np.ndarray) -> list[str]:
    """Ranges whose kernel counts do not fit each other, as text."""
    expected = _padded(_places(ours.path, ours.group)[2], len(paths))
    measured = _padded(_places(theirs.path, theirs.group)[2], len(paths))
    if not measured.any():
        return []  # a report without ranges says so itself
    differs = (expected > 0) & (paths != "") & ~_fit(expected, measured, ours.may_repeat)
    return [
        f"{str(paths[row]).rsplit(PATH_SEPARATOR, 1)[-1]}: {expected[row]} kernels, {measured[row]} results"
        for row in np.flatnonzero(differs)
    ]


# --- results --------------------------------------------------------------------------------------------------


def _count_steps(kernels: pd.DataFrame, step: np.ndarray) -> pd.DataFrame:
    """Kernels and their time by the step that found them; all steps, so that the counts add up in sight."""
    duration_ns = kernels["duration_ns"].to_numpy()
    return pd.DataFrame({
        "step": list(STEPS),
        "kernel_count": np.bincount(step, minlength=len(STEPS)),
        "kernel_ns": [int(duration_ns[step == rank].sum()) for rank in range(len(STEPS))],
    })  # fmt: skip


def _is_of_batch(report: CounterReport, captures: pd.DataFrame, capture_id: int) -> bool:
    sizes = captures.loc[captures["capture_id"] == capture_id, "batch_size"]
    return report.batch_size < 0 or bool(sizes.isin([-1, report.batch_size]).all())


def _unlike_gpus(report: CounterReport, devices: pd.DataFrame, capture_id: int) -> list[Finding]:
    ours = {str(name) for name in devices.loc[devices["capture_id"] == capture_id, "gpu_name"] if name}
    theirs = {str(name) for name in report.actions["gpu_name"] if name}
    if not ours or not theirs or ours & theirs:
        return []
    example = f"{report.report_name}: {', '.join(sorted(theirs))}; timing run: {', '.join(sorted(ours))}"
    return [finding("counters-of-another-gpu", count=len(report.actions), example=example)]


_COLUMNS = ("kernel_id", "metric_name", "value", "unit", "source")
_TEXTS = ("metric_name", "unit", "source")


def _spread(means: pd.DataFrame, kernel_ids: np.ndarray, kernel_key: np.ndarray, step: int) -> pd.DataFrame:
    """The rows of each kernel's key, kernel after kernel; texts as categoricals, made once per different text."""
    key = means["key"].to_numpy()
    kernel, rows = runs(np.searchsorted(key, kernel_key, "left"), np.searchsorted(key, kernel_key, "right"))
    data: dict[str, object] = {"kernel_id": kernel_ids[kernel], "value": means["value"].to_numpy()[rows]}
    data |= {name: pd.Categorical(means[name])[rows] for name in _TEXTS}
    return pd.DataFrame({**data, "rank": np.int8(step)})[[*_COLUMNS, "rank"]]


def _no_metrics() -> pd.DataFrame:
    columns = {"kernel_id": "int64", "metric_name": "category", "value": "float64", "unit": "category",
               "source": "category", "rank": "int8"}  # fmt: skip
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in columns.items()})


def _one_per_kernel(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """One row per kernel and metric: of the best step, then of the first report; kernel after kernel."""
    metrics = side_by_side([_no_metrics(), *parts])
    kernel_ids = metrics["kernel_id"].to_numpy()
    # within one report each kernel has one step, so only rows of several reports can meet
    if len(parts) > 1:
        order = np.lexsort((metrics["rank"].to_numpy(), metrics["metric_name"].cat.codes.to_numpy(), kernel_ids))
        metrics = metrics.iloc[order].drop_duplicates(["kernel_id", "metric_name"])
    elif (kernel_ids[1:] < kernel_ids[:-1]).any():
        metrics = metrics.iloc[np.argsort(kernel_ids, kind="stable")]
    return metrics[list(_COLUMNS)].reset_index(drop=True)


def _with_flop_over_reports(metrics: pd.DataFrame) -> pd.DataFrame:
    """Each report totals its own pipes; with one report per metric set the total is over all of them."""
    total = combined_flop(metrics)
    if total.empty:
        return metrics
    replaced = (metrics["metric_name"] == "flop") & metrics["kernel_id"].isin(total["kernel_id"])
    total = total.astype({name: "category" for name in _TEXTS})[list(_COLUMNS)]
    merged = side_by_side([metrics[~replaced], total])
    return merged.iloc[np.argsort(merged["kernel_id"].to_numpy(), kind="stable")].reset_index(drop=True)
