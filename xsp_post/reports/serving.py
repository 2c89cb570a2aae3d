"""Steps of inference → the frames of their charts and tables: their times, and what the cost model expects of them."""

from collections.abc import Callable

import pandas as pd

from xsp_post.arrays.processes import without_overlap
from xsp_post.base.texts import SENTENCES, sentence
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.model.schemas.units import format_ns
from xsp_post.reports.cases import Case
from xsp_post.tables.analyses.cases import deepest_capture

KINDS = ("prefill", "decode", "mixed", "verify", "draft", "encoder", "step")
POINT_LIMIT = 1500
_MOST_LINES = 4
_KEYS = ["process_id", "kind"]


def _mine(results: Results, table: str) -> pd.DataFrame:
    """The rows of a table about steps of inference of the capture that is shown."""
    frame = of_captures(results, table, deepest_capture(results))
    return frame[frame["kind"].astype(str).isin(KINDS)].reset_index(drop=True).astype({"kind": object})


def of_steps(table: str) -> Callable[[Results, Case | None], pd.DataFrame]:
    """The rows of a table by kind of step."""
    return lambda results, case: _mine(results, table)


def serving_steps(results: Results, case: Case | None) -> pd.DataFrame:
    """Measured steps in order, at most 1,500: order, latency_ns (without what
    overlaps the step before), shown_ns (cut at the upper edge), expected_ns by the
    cost model (NaN where it has no term)."""
    from xsp_post.tables.analyses.steps import EXTRA, TERMS, extra_kernels

    steps = _mine(results, "iterations")
    steps = steps.assign(latency_ns=without_overlap(steps.assign(process_id=steps["process_id"].fillna(-1))))
    steps = steps[~steps["is_warmup"].astype(bool)].sort_values("start_ns", kind="stable", ignore_index=True)
    costs = _mine(results, "step_costs")
    costs = costs[costs["family"].astype(str).eq("step")][[*_KEYS, *TERMS.values()]]
    steps = steps.assign(order=range(len(steps))).merge(costs, on=_KEYS, how="left", validate="m:1")
    count = steps.groupby(_KEYS, dropna=False)["kernel_count"]
    steps[EXTRA] = count.transform(lambda one: extra_kernels(one.to_numpy()))
    sizes = {term: steps[column].where(steps[column] >= 0, 0) if column else 1 for column, term in TERMS.items()}
    expected = pd.DataFrame({term: steps[term].fillna(0) * size for term, size in sizes.items()}).sum(axis=1)
    known = steps[list(TERMS.values())].notna().any(axis=1)
    steps = steps.assign(expected_ns=expected.where(known), shown_ns=steps["latency_ns"])
    if len(steps):
        steps["shown_ns"] = steps["latency_ns"].clip(upper=2 * float(steps["latency_ns"].quantile(0.99)))
    return steps.iloc[:: max(-(-len(steps) // POINT_LIMIT), 1)].reset_index(drop=True)


def slow_steps(results: Results, case: Case | None) -> pd.DataFrame:
    """The outliers, most time lost first, with where they are in the recording: from_ns, to_ns."""
    keys = ["capture_id", "iteration_index"]
    times = frame_or_empty(results, "iterations", [*keys, "start_ns", "end_ns", "latency_ns"])
    slow = _mine(results, "step_outliers").merge(times, on=keys, how="left", validate="m:1")
    slow["cause"] = [SENTENCES.get(f"cause.{cause}", cause) for cause in slow["cause"].astype(str)]
    ends = slow[["end_ns"]].max(axis=1).clip(lower=slow["start_ns"] + slow["latency_ns"])
    return slow.assign(from_ns=slow["start_ns"], to_ns=ends).sort_values("lost_ns", ascending=False, kind="stable")


def step_lines(results: Results) -> tuple[str, ...]:
    """For first screens: each kind of step with its percentiles, most time first, and which steps were slow."""
    executions = frame_or_empty(results, "iterations", ["kind", "batch_size"])
    if not (executions["kind"].isin(KINDS) & executions["batch_size"].gt(0)).any():
        return ()
    steps = frame_or_empty(results, "steps")
    steps = steps[steps["kind"].astype(str).isin(KINDS) & (steps["step_count"] > 1) & (steps["median_batch_size"] > 0)]
    if not len(steps):
        return ()
    steps = steps.assign(whole=steps["step_count"] * steps["median_step_ns"]).nlargest(_MOST_LINES, "whole")
    lines = []
    for row in steps.to_dict("records"):
        low, high, highest = (format_ns(row[f"{name}_step_ns"]) for name in ("median", "p90", "p99"))
        rate = row["throughput_tokens_per_s"]
        said = sentence("steps.rate", rate=f"{rate:,.0f}") if rate > 0 else ""
        count = f"{row['step_count']:,}"
        lines.append(
            sentence("steps.kind", kind=row["kind"], count=count, low=low, high=high, highest=highest, rate=said)
        )
    slow = slow_steps(results, None)
    if len(slow):
        first, lost = slow.iloc[0], format_ns(slow["lost_ns"].sum())
        cause = f", {first['cause']}" if first["cause"] else ""
        slots = {"kind": first["kind"], "step": first["iteration_index"], "time": format_ns(first["lost_ns"])}
        lines.append(sentence("steps.slow", count=len(slow), lost=lost, cause=cause, **slots))
    return (sentence("steps.title"), *(f"  {line}" for line in lines))
