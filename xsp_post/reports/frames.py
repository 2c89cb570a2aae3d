"""Results and a case → the frames behind tables and charts of the report that are more than the rows of one table.

Sorted, joined, summed; never a number that the tables do not hold. ``rows`` of `page.txt` names one of `FRAMES`.
"""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.repeats import summed
from xsp_post.base.texts import sentence
from xsp_post.model.levels import RUN_LEVELS
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.model.schemas.units import format_change, format_count, format_difference, format_ns
from xsp_post.reports import cases, page_rows, verdict
from xsp_post.reports.cases import Case
from xsp_post.reports.live_memory import live_memory, memory_owners
from xsp_post.reports.serving import of_steps, serving_steps, slow_steps
from xsp_post.reports.text import short_kernels, shorten, visible
from xsp_post.tables.analyses.cases import deepest_capture
from xsp_post.tables.analyses.limits import in_scope
from xsp_post.tables.analyses.places import with_line

TOP_KERNELS = 10
SPREADS = 60
SAMPLE_BINS = 300
TYPES = 8  # colours that can be distinguished; the rest is "other"
Frame = Callable[[Results, Case | None], pd.DataFrame]


def largest(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Sorted by columns, the largest first; rows of equal values stay in their order."""
    return frame.sort_values(list(columns), ascending=False, kind="stable", ignore_index=True)


def overhead_events(results: Results, case: Case | None) -> pd.DataFrame:
    """The overhead table of one case: the model first, then the slowest layers; ``event`` names the row."""
    frame = frame_or_empty(results, "overhead")
    named = cases.rows(results, "cases", case)
    if len(named) and len(frame):
        mine = frame["batch_size"].eq(named["batch_size"].iloc[0])
        frame = frame[mine & frame["phase"].astype(str).eq(str(named["phase"].iloc[0]))]
    kind, path = frame["event_kind"].astype(str), frame["layer_path"].astype(str)
    weight = frame["latency_ns"].where(frame["is_accurate"].astype(bool))
    keys = [kind, frame["layer_index"], path, frame["call_index"]]
    name = "layer " + frame["layer_index"].astype(str) + " · " + path.map(visible)
    level = frame["level"].astype(str).map({level: i for i, level in enumerate(RUN_LEVELS)})
    frame = frame.assign(event=name.where(kind.ne("model"), "model"), is_layer=kind.ne("model"), at=level,
                         weight=-weight.groupby(keys).transform("max").fillna(0))  # fmt: skip
    order = ["is_layer", "weight", "layer_index", "call_index", "at"]
    return frame.sort_values(order, kind="stable", ignore_index=True).drop(columns=["is_layer", "weight", "at"])


def _levels(events: pd.DataFrame) -> pd.DataFrame:
    """Of one event what its bars consist of: the accurate latency, and what each further level added."""
    rows = events.drop_duplicates("level").astype({"level": str, "compared_level": str})
    latency, below = (rows.set_index("level")[column] for column in ("latency_ns", "compared_level"))
    parts = []
    for row in rows.to_dict("records"):
        chain = [row["level"]]
        while below[chain[-1]] in latency.index:
            chain.append(below[chain[-1]])
        ends = latency[chain[::-1]].to_numpy()
        starts = np.concatenate([[0.0], ends[:-1]])
        words = ["accurate", *(f"added by {level}" for level in chain[-2::-1])]
        parts.append(pd.DataFrame({
            "event": row["event"], "level": row["level"], "from_ns": np.minimum(starts, ends),
            "to_ns": np.maximum(starts, ends), "time_ns": ends - starts,
            "part": ["faster than without" if end < start else word for word, start, end in zip(words, starts, ends)],
            "label": [""] * (len(chain) - 1) + [_added(row)],
        }))  # fmt: skip
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _added(row: dict[Hashable, Any]) -> str:
    if row["is_accurate"] or row["overhead_ns"] != row["overhead_ns"]:
        return format_ns(row["latency_ns"])
    added, share = format_difference(row["overhead_ns"]), format_change(row["overhead_ratio"])
    return f"{format_ns(row['latency_ns'])} ({added}, {share})"


def overhead_model(results: Results, case: Case | None) -> pd.DataFrame:
    """The model's levels in parts: level, part, from_ns, to_ns, time_ns, label."""
    events = overhead_events(results, case)
    return _levels(events[events["event"].eq("model")])


def overhead_layer(results: Results, case: Case | None) -> pd.DataFrame:
    """The same of the slowest layer."""
    events = overhead_events(results, case)
    layers = events[events["event"].ne("model")]
    return _levels(layers[layers["event"].eq(layers["event"].iloc[0])]) if len(layers) else layers


def batches(results: Results, case: Case | None) -> pd.DataFrame:
    """A1, by phase and batch size; ``batch`` names the case."""
    frame = frame_or_empty(results, "a01")
    frame = frame.sort_values(["phase", "batch_size"], kind="stable", ignore_index=True)
    if (frame["batch_size"] == -1).all():
        frame = frame.drop(columns=["is_optimal"]).assign(is_optimal=False)
    names = [label or "all" for label in cases.labels(frame)] if len(frame) else []
    return frame.assign(batch=names, optimal=frame["is_optimal"].astype(bool).map({True: "optimal", False: "other"}))


def phases(results: Results, case: Case | None) -> pd.DataFrame:
    """The phases of the whole training step of one case; none where there is a single phase."""
    frame = cases.rows(results, "training_phases", case)
    whole = frame[frame["layer_index"].fillna(-1).lt(0)].drop(columns="layer_name")
    return whole.reset_index(drop=True) if len(whole) > 1 else whole.iloc[:0]


def spreads(results: Results, case: Case | None) -> pd.DataFrame:
    """A3 of the slowest layers in their order; none where no layer was sampled twice."""
    frame = cases.rows(results, "a03", case)
    slowest = frame.nlargest(SPREADS, "latency_ns").sort_values("layer_index")
    shown = slowest if slowest["sample_count"].gt(1).any() else slowest.iloc[:0]
    return shown.assign(layer=shown["layer_index"].astype(str))


def types(results: Results, case: Case | None) -> pd.DataFrame:
    """A5–A7 of one case side by side, by type of layer."""
    counted, timed, allocated = (cases.rows(results, table, case) for table in ("a05", "a06", "a07"))
    merged = counted[["layer_type", "layer_count", "count_ratio"]]
    for frame, columns in (
        (timed, ["latency_ns", "latency_ratio", "forward_kernel_ns", "backward_kernel_ns", "optimizer_kernel_ns"]),
        (allocated, ["allocated_bytes", "allocated_ratio"]),
    ):
        known = [column for column in columns if column in frame]
        merged = merged.merge(frame[["layer_type", *known]], on="layer_type", how="left", validate="1:1")
    return largest(merged, "latency_ns" if merged["latency_ns"].notna().any() else "layer_count")


_SHARES = {"count_ratio": "layers", "latency_ratio": "latency", "allocated_ratio": "memory"}


def type_shares(results: Results, case: Case | None) -> pd.DataFrame:
    """Shares of the types that take most, and of all others together: of (layers, latency, memory), layer_type,
    share_ratio; those of one ``of`` sum to 1."""
    frame = types(results, case)
    kinds = frame["layer_type"].astype(str).replace("", "(no type)")
    kinds = kinds.where(kinds.isin(kinds.head(TYPES)), "other")
    parts = [
        frame[column].fillna(0.0).groupby(kinds.to_numpy(), sort=False).sum().rename("share_ratio").reset_index()
        .rename(columns={"index": "layer_type"}).assign(of=word)
        for column, word in _SHARES.items() if frame[column].notna().any()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True) if parts else frame.iloc[:0]


def path(results: Results, case: Case | None) -> pd.DataFrame:
    """The critical path of the deepest capture by kind and name, longest first."""
    columns = ["kind", "name", "operation_count", "duration_ns"]
    mine = of_captures(results, "critical_path", deepest_capture(results), columns)
    return largest(summed(mine, ["kind", "name"], {"operation_count": "sum", "duration_ns": "sum"}), "duration_ns")


def rank_parts(results: Results, case: Case | None) -> pd.DataFrame:
    """What the time of each rank went to: label, part, part_ns."""
    frame = page_rows.sorted_by(frame_or_empty(results, "ranks"), page_rows.costs_of("ranks")).head(40)
    slow = frame["is_straggler"].astype(bool).map({True: " (straggler)", False: ""})
    label = (frame["job_name"].astype(str) + " rank " + frame["rank"].astype(str) + slow).str.strip()
    times = {"compute": frame["compute_ns"], "exposed communication": frame["exposed_ns"]}
    times["other"] = (frame["duration_ns"] - frame["compute_ns"] - frame["exposed_ns"]).clip(lower=0)
    return pd.concat(
        [pd.DataFrame({"label": label, "part": part, "part_ns": time}) for part, time in times.items()],
        ignore_index=True,
    )


def collective_sums(results: Results, case: Case | None) -> pd.DataFrame:
    """Collectives summed by device, kind and name, longest first."""
    keys = ["device_id", "kind", "name"]
    times = ["duration_ns", "transfer_ns", "waiting_ns", "launch_skew_ns", "overlapped_ns"]
    frame = frame_or_empty(results, "collectives", [*keys, *times]).astype({"kind": object, "name": object})
    grouped = frame.groupby(keys, sort=False)
    return largest(grouped[times].sum(min_count=1).assign(collective_count=grouped.size()).reset_index(), "duration_ns")


def causes(results: Results, case: Case | None) -> pd.DataFrame:
    """The causes of idle time in what the verdict speaks of, summed over devices, largest first."""
    limit = verdict.main_limit(results)
    if not limit.scope:
        return pd.DataFrame()
    keys = ["cause", "call_name", "detail", "owner", "layer_path"]
    frame = summed(in_scope(results, limit), keys, {"idle_ns": "sum", "piece_count": "sum", "longest_ns": "max"})
    owners = {one: with_line(results, str(one)) for one in frame["owner"].unique()}
    return largest(frame, "idle_ns").assign(
        cause=lambda rows: rows["cause"].astype(object).map(lambda cause: sentence(f"cause.{cause}")),
        owner=lambda rows: rows["owner"].astype(object).map(owners),
    )


def cause_sums(results: Results, case: Case | None) -> pd.DataFrame:
    """Idle time by cause alone, largest first, those below 1 % of it together; none where less than 1 % of the time of
    the devices was idle: microseconds of noise are no picture."""
    frame = causes(results, case)
    if frame.empty or frame["idle_ns"].sum() < 0.01 * verdict.main_limit(results).window_ns:
        return frame.iloc[:0]
    whole = frame.groupby("cause")["idle_ns"].transform("sum")
    cause = frame["cause"].where(whole >= 0.01 * frame["idle_ns"].sum(), "other causes")
    return largest(frame.groupby(cause, sort=False)[["idle_ns", "piece_count"]].sum().reset_index(), "idle_ns")


def top_kernels(results: Results, case: Case | None) -> pd.DataFrame:
    """The kernel names that take most time, with "other" for the rest."""
    frame = largest(cases.rows(results, "a10", case), "latency_ns")
    top, rest = frame.head(TOP_KERNELS), frame.iloc[TOP_KERNELS:]
    amounts = ["latency_ns", "kernel_latency_ratio", "kernel_count"]
    top = top[["name", *amounts]].astype({"name": object}).assign(part="kernel", label=short_kernels(top["name"], 46))
    if rest.empty:
        return top
    name = f"{format_count(len(rest))} other names"
    other = pd.DataFrame([{"name": "all others", "part": "other", "label": name, **rest[amounts].sum().to_dict()}])
    return pd.concat([top, other.astype({"kernel_count": "int64"})], ignore_index=True)


def layer_kernels(results: Results, case: Case | None) -> pd.DataFrame:
    """A11 of one case with each layer's dominant kernel (``name``, ``source_line``), slowest layer first."""
    columns = ["layer_index", "name", "source_line"]
    frame = cases.rows(results, "a11", case)
    dominant = cases.rows(results, "dominant_kernels", case, [*columns])[columns]
    if len(dominant):
        frame = frame.merge(dominant, on="layer_index", how="left", validate="m:1")
    weight = frame["layer_latency_ns"].fillna(frame["kernel_latency_ns"])
    return frame.loc[weight.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


def gpu_course(results: Results, case: Case | None) -> pd.DataFrame:
    """Means of one GPU's samples over equal parts of the recording: offset_ns and shares of the peak. A part without
    samples has none: the line is broken there."""
    frame = frame_or_empty(results, "gpu_timeline")
    if frame.empty:
        return frame
    keys = ["capture_id", "gpu_index"]
    frame = frame[frame[keys].eq(frame[keys].iloc[0]).all(axis=1)]
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    length = max(int(end[-1] - start[0]), 1)
    count = int(np.clip(length // max(float(np.median(end - start)), 1), 1, SAMPLE_BINS))
    columns = ["sm_active_ratio", "tensor_active_ratio", "dram_ratio", "gpc_clock_hz"]
    part = (end - start[0] - 1) * count // length
    means = frame[columns].groupby(part).mean().reindex(range(count))
    return means.assign(offset_ns=(means.index.to_numpy() + 0.5) * length / count).reset_index(drop=True)


def gpu_sample_means(results: Results, case: Case | None) -> pd.DataFrame:
    """Samples by capture, then by layer, then by execution; the busiest of each first."""
    rows = frame_or_empty(results, "gpu_samples")
    rows = rows.assign(order=rows["scope"].astype(str).map({"capture": 0, "execution": 2}).fillna(1))
    rows = rows.sort_values(["order", "busy_ns"], ascending=[True, False], kind="stable", ignore_index=True)
    return rows.drop(columns="order")


def iteration_course(results: Results, case: Case | None) -> pd.DataFrame:
    """Iterations of every capture in order, at most 1,500: order, shown_ns (a warm-up of ten times the latency would
    flatten everything else: it stands at the upper edge), series."""
    frame = frame_or_empty(results, "iterations").sort_values(["capture_id", "start_ns"], kind="stable")
    if frame.empty:
        return frame
    frame = frame.iloc[:: -(-len(frame) // 1500)].reset_index(drop=True)
    is_warmup = frame["is_warmup"].astype(bool)
    measured = frame.loc[~is_warmup, "latency_ns"]
    top = (measured if len(measured) else frame["latency_ns"]).max() * 1.25
    levels = frame_or_empty(results, "captures", ["capture_id", "level"]).set_index("capture_id")["level"].astype(str)
    level = frame["capture_id"].map(levels).astype(object).replace({"": "level not known", np.nan: "level not known"})
    word = is_warmup.map({True: "warm-up", False: "measured"})
    return frame.assign(
        order=frame.groupby("capture_id").cumcount(), shown_ns=frame["latency_ns"].clip(upper=top),
        capture="capture " + frame["capture_id"].astype(str),
        series=word + ", " + level if frame["capture_id"].nunique() > 1 else word,
    )  # fmt: skip


def _roofline(table: str) -> Frame:
    """The points of a roofline, longest first, with their names."""

    def rows(results: Results, case: Case | None) -> pd.DataFrame:
        frame = cases.rows(results, table, case)
        frame = largest(frame.dropna(subset=list(ROOFLINE_AXES)), "latency_ns")
        layer = " · layer " + frame["layer_index"].astype(str) + " " + frame["layer_name"].astype(str).map(shorten)
        layer = layer.where(frame["layer_index"].gt(0), "")
        if "name" in frame:
            return frame.assign(label=short_kernels(frame["name"], 60) + layer)
        return frame.assign(label=layer.str.removeprefix(" · "))

    return rows


ROOFLINE_AXES = ("arithmetic_intensity_flop_per_byte", "arithmetic_throughput_flop_per_s")


def roofline_models(results: Results, case: Case | None) -> pd.DataFrame:
    """The model roofline: one row per case, by batch size."""
    frame = frame_or_empty(results, "model_roofline").dropna(subset=list(ROOFLINE_AXES))
    frame = frame.sort_values(["workload_name", "phase", "batch_size"], kind="stable", ignore_index=True)
    names = zip(cases.labels(frame), frame["workload_name"]) if len(frame) else ()
    return frame.assign(label=[label or visible(name, 40) for label, name in names])


def rank_lateness(results: Results, case: Case | None) -> pd.DataFrame:
    """`rank_steps` of the first 40 steps, of the 40 ranks that are late most: label, step, late_ns."""
    frame = frame_or_empty(results, "rank_steps")
    label = (frame["job_name"].astype(str) + " rank " + frame["rank"].astype(str)).str.strip()
    frame = frame.assign(label=label, step=frame["step_index"].astype(str))
    most = frame.groupby("label")["late_ns"].sum().nlargest(40).index
    return frame[frame["label"].isin(most) & (frame["step_index"] < 40)]


_BY_NAME: tuple[Callable[[Results, Case | None], pd.DataFrame], ...] = (
    overhead_events, overhead_model, overhead_layer, batches, phases, spreads, types, type_shares, live_memory,
    memory_owners, path, rank_parts, collective_sums, causes, cause_sums, top_kernels, layer_kernels, gpu_course,
    gpu_sample_means, iteration_course, roofline_models, rank_lateness, serving_steps, slow_steps,
)  # fmt: skip
FRAMES: dict[str, Frame] = {
    **{one.__name__: one for one in _BY_NAME},
    "all_a15": lambda results, case: frame_or_empty(results, "a15"),
    "roofline_kernels": _roofline("a09"),
    "roofline_layers": _roofline("a14"),
    "serving_kinds": of_steps("steps"),
    "serving_costs": of_steps("step_costs"),
    "serving_predictions": of_steps("step_predictions"),
}
