"""Many results → fleet tables: the paper's Tables VIII–X and Figures 10–12 for any set of captures (paper, §IV).

`contribution` makes small frames of one capture's results, in whatever process analysed it; `fleet_tables`
puts the contributions of all captures side by side. Both are pure functions of frames, so that a cluster
sends tables of a few hundred rows about, never traces.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.batch_sizes import BATCH_POLICIES, optimal_position
from xsp_post.base.messages import INFO
from xsp_post.model.results import Results, frame_or_empty, of_captures, typed
from xsp_post.model.schemas import TABLES
from xsp_post.names.families import families, normalise_kernel_name
from xsp_post.tables.analyses.cases import deepest
from xsp_post.tables.analyses.frames import together
from xsp_post.tables.analyses.limits import UNKNOWN, find_limit
from xsp_post.tables.analyses.memory_peaks import main_device

CONTRIBUTED = ("fleet_cases", "fleet_families", "fleet_kernels")
_WHO = ["workload_name", "system_name", "framework", "phase"]
_STAGES = {"latency_stage": "latency", "allocated_stage": "allocated", "flop_stage": "flop", "dram_stage": "dram"}
_COUNTER_COLUMNS = (
    "total_flop", "dram_read_bytes", "dram_write_bytes", "occupancy_ratio", "arithmetic_intensity_flop_per_byte",
    "arithmetic_throughput_flop_per_s", "roof_flop_per_s", "bound",
)  # fmt: skip
_AMOUNTS = (
    "kernel_count", "device_ns", "kernel_ns", "copy_ns", "graph_ns", "gpu_count", "duration_ns", "process_count",
)  # fmt: skip
_MEMORY = ("memory_peak_bytes", "memory_reserved_bytes")
_SUMMED = ["kernel_count", "latency_ns"]
_OF_BATCH = ("batch_size", "gpu_latency_ratio", *_COUNTER_COLUMNS, "convolution_latency_ratio", *_STAGES)


# -- one capture --------------------------------------------------------------------------------------------


def summary_row(results: Results) -> dict[str, Any]:
    """What the table `fleet` says of one capture's results, beside names and files."""
    findings = frame_or_empty(results, "findings")
    metrics = frame_or_empty(results, "kernel_metrics", ["kernel_id"])
    layers = frame_or_empty(results, "workload_summary")["layer_count"]
    return {
        **capture_row(results),
        "limit": find_limit(results).kind,
        "layer_count": int(layers.max()) if len(layers) else -1,
        **_memory(results),
        "counter_count": int(metrics["kernel_id"].nunique()),
        "finding_count": int((findings["severity"].astype(object) != INFO).sum()),
    }


def capture_row(results: Results) -> dict[str, Any]:
    """The part of it that needs the core tables only; the rest unknown."""
    row = of_captures(results, "captures", deepest(results)[:1]).iloc[0]
    return {
        "limit": UNKNOWN,
        "layer_count": -1,
        "system_name": str(row["gpu_name"] or ""),
        **{name: str(row[name] or "") for name in ("collector", "level", "framework", "tool_version")},
        **{name: int(row[name]) for name in _AMOUNTS},
        "busy_ns": _busy_per_gpu(results, row),
        "iteration_count": len(results.frame("iterations", ["capture_id"])),
        "attributed_ratio": _attributed(of_captures(results, "balance", int(row["capture_id"]))),
    }


def _memory(results: Results) -> dict[str, float]:
    """The highest peak of a device, and what was reserved there; NaN: not recorded."""
    device = main_device(results)
    if device is None:
        return dict.fromkeys(_MEMORY, np.nan)
    values = (device["peak_bytes"], device["reserved_bytes"])
    return {name: int(value) if value >= 0 else np.nan for name, value in zip(_MEMORY, values)}


def workload_name(results: Results) -> str:
    """What the captures themselves call their workload, '' nothing."""
    names = [str(name) for name in frame_or_empty(results, "captures")["workload_name"].tolist() if name]
    return names[0] if names else ""


def _busy_per_gpu(results: Results, capture: pd.Series) -> int:
    """Busy time of the capture's GPU; of several GPUs the mean over them."""
    if capture["gpu_count"] < 2:
        return int(capture["busy_ns"])
    mine = of_captures(results, "devices", int(capture["capture_id"])).loc[lambda rows: rows["device_ns"] > 0]
    return round(mine.drop_duplicates("gpu_index")["busy_ns"].mean())


def _attributed(balance: pd.DataFrame) -> float:
    rows = balance[balance["question"].astype(object) == "launch"]
    by_way = rows.groupby(rows["attribution"].astype(object))["device_ns"].sum()
    total = float(by_way.get("total", 0.0))
    lost = float(by_way.reindex(["none", "no_launch"]).fillna(0).sum())
    return (total - lost) / total if total else float("nan")


def contribution(
    results: Results, capture_index: int = 0, capture_name: str = "", workload: str = "", batch_size: int = -1
) -> dict[str, pd.DataFrame]:
    """The rows that one capture adds to the tables of `CONTRIBUTED`. Reads A-tables only: a few hundred rows.

    ``workload`` and ``batch_size`` stand in where the captures themselves say neither.
    """
    cases = _cases(results, workload, batch_size)
    cases.insert(0, "capture_name", capture_name)
    cases.insert(0, "capture_index", np.int64(capture_index))
    columns = ["capture_index", "capture_name", "case_index", *_WHO, "batch_size"]
    named = cases.set_index("case_index", drop=False)[columns]
    kernels = _kernels(results, named)
    by_family = kernels.groupby(["case_index", "family"], sort=True, as_index=False)[_SUMMED].sum()
    total = by_family.groupby("case_index")["latency_ns"].transform("sum")
    by_family["latency_ratio"] = by_family["latency_ns"] / total.where(total > 0)
    by_family = by_family.sort_values(["case_index", "latency_ns"], ascending=[True, False], kind="stable")
    families_frame = named.reset_index(drop=True).merge(by_family, on="case_index", validate="one_to_many")
    return {name: typed(name, frame) for name, frame in zip(CONTRIBUTED, (cases, families_frame, kernels))}


def _cases(results: Results, workload: str, batch_size: int) -> pd.DataFrame:
    """One row per case: model, kernels, layers and stages side by side."""
    columns = ["case_index", "batch_size", "phase", "workload_name", "framework", "gpu_name"]
    frame = frame_or_empty(results, "cases", columns).rename(columns={"gpu_name": "system_name"})
    for column in ("workload_name", "framework", "system_name", "phase"):
        frame[column] = frame[column].astype(object).fillna("")
    frame["workload_name"] = frame["workload_name"].where(frame["workload_name"] != "", workload)
    frame["batch_size"] = frame["batch_size"].where(frame["batch_size"] > 0, batch_size).astype(np.int64)
    model = frame_or_empty(results, "a01")[
        ["case_index", "latency_ns", "ci_low_latency_ns", "ci_high_latency_ns", "interval_over", "sample_count"]
    ]
    kernel = frame_or_empty(results, "a15")[["case_index", "kernel_latency_ns", "busy_ns", *_COUNTER_COLUMNS]]
    summary = frame_or_empty(results, "workload_summary")[
        ["case_index", "layer_count", "gpu_latency_ratio", "convolution_latency_ratio"]
        + ["kernel_count", "unique_kernel_count"]
    ]
    for part in (model, kernel, summary, _dominant_stages(results)):
        frame = frame.merge(part, on="case_index", how="left", validate="one_to_one")
    counts = ["sample_count", "kernel_count", "unique_kernel_count", "layer_count"]
    frame[counts] = frame[counts].fillna({**dict.fromkeys(counts, -1), "sample_count": 0}).astype(np.int64)
    busy = frame["busy_ns"].where(frame["busy_ns"] > 0)  # in which kernels beside each other count once
    most = (busy / frame["latency_ns"]).fillna(1.0).clip(upper=1.0)  # the runs of kernels and of latency differ
    frame["gpu_latency_ratio"] = frame["gpu_latency_ratio"].clip(upper=most)
    known = frame["batch_size"] > 0
    frame["throughput_inputs_per_s"] = (frame["batch_size"] / (frame["latency_ns"] * 1e-9)).where(known)
    frame["is_optimal"] = False  # decided over all captures: `with_optimal_batch`
    return frame


def _dominant_stages(results: Results) -> pd.DataFrame:
    """case_index and, per quantity, the third of the layers that dominates it ('' unknown)."""
    stages = frame_or_empty(results, "stages")
    frame = pd.DataFrame({"case_index": stages["case_index"].drop_duplicates()})
    for column, quantity in _STAGES.items():
        chosen = stages[stages[f"is_dominant_{quantity}"].astype(bool)]
        found = chosen.drop_duplicates("case_index").set_index("case_index")["stage"].astype(object)
        frame[column] = frame["case_index"].map(found).astype(object).fillna("")
    return frame


def _kernels(results: Results, named: pd.DataFrame) -> pd.DataFrame:
    """Kernels by normalised name and case, with their family."""
    rows = frame_or_empty(results, "a10")[["case_index", "name", "kernel_count", "latency_ns"]]
    names = rows["name"].astype(object).to_numpy()
    # the family looks at the whole name: template arguments tell a reduction from a copy
    rows = rows.assign(name=normalise_kernel_name(names), family=families(names))
    grouped = rows.groupby(["case_index", "name", "family"], sort=False, as_index=False)[_SUMMED].sum()
    return named.reset_index(drop=True).merge(grouped, on="case_index", validate="one_to_many")


# -- all captures -------------------------------------------------------------------------------------------


def fleet_tables(contributions: Sequence[Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """All fleet tables from the contributions of the captures.

    Ratios are to the framework, and to the system, with most models, of equals the first. A framework is recognised by
    its first word: "torch 2.8.0" and "torch 2.9.0" are two versions of one.
    """
    parts = {name: together(name, [c[name] for c in contributions]) for name in CONTRIBUTED}
    cases = with_optimal_batch(parts["fleet_cases"])
    models = model_table(cases)
    return {
        **parts,
        "fleet_cases": cases,
        "fleet_models": models,
        "fleet_scalability": scalability_table(cases),
        "fleet_frameworks": framework_table(models),
        "fleet_systems": system_table(cases, parts["fleet_kernels"]),
        "fleet_kernel_sets": kernel_set_table(parts["fleet_kernels"]),
    }


def with_optimal_batch(cases: pd.DataFrame) -> pd.DataFrame:
    """``is_optimal`` decided over every sweep of the fleet: one workload, system, framework and phase."""
    cases = cases.copy()
    is_optimal = np.zeros(len(cases), dtype=bool)
    for _, rows in _sweeps(cases):
        best = _best_rows(rows)
        size, throughput = (best[c].to_numpy(np.float64) for c in ("batch_size", "throughput_inputs_per_s"))
        chosen = optimal_position(size.astype(np.int64), throughput, BATCH_POLICIES[0])
        if chosen >= 0:
            is_optimal[best.index[chosen]] = True
    cases["is_optimal"] = is_optimal
    return cases


def _sweeps(cases: pd.DataFrame) -> Any:
    """(who, its rows) for every workload, system, framework and phase; row labels are positions."""
    return cases.reset_index(drop=True).groupby(_WHO, sort=False, observed=True)


def _best_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with a known throughput, ascending batch size; of several captures of one size the one measured most."""
    known = rows[rows["throughput_inputs_per_s"].notna() & (rows["batch_size"] > 0)]
    ordered = known.sort_values(["batch_size", "sample_count"], ascending=[True, False], kind="stable")
    return ordered.drop_duplicates("batch_size")


def model_table(cases: pd.DataFrame) -> pd.DataFrame:
    """Tables VIII and IX: online latency, most throughput, and everything else at the optimal batch size, or without
    one at the size with the most throughput."""
    rows: list[dict[str, Any]] = []
    for who, group in _sweeps(cases):
        best = _best_rows(group)
        chosen = _representative(group, best)
        smallest = best.iloc[0] if len(best) else chosen
        rows.append(
            {
                **dict(zip(_WHO, who)),
                **{name: chosen[name] for name in _OF_BATCH},
                "online_latency_ns": smallest["latency_ns"],
                "online_batch_size": smallest["batch_size"],
                "max_throughput_inputs_per_s": best["throughput_inputs_per_s"].max() if len(best) else np.nan,
                "optimal_batch_size": chosen["batch_size"] if chosen["is_optimal"] else -1,
                "batch_latency_ns": chosen["latency_ns"],
                "batch_count": len(best),
            }
        )
    return typed("fleet_models", pd.DataFrame(rows, columns=[c.name for c in TABLES["fleet_models"].columns]))


def _representative(group: pd.DataFrame, best: pd.DataFrame) -> pd.Series:
    """The row of a sweep that stands for it: at the optimal batch size, else the size with the most throughput, else
    (no batch size is known) the capture with most measured iterations."""
    if group["is_optimal"].any():
        return group[group["is_optimal"]].iloc[0]
    if len(best):
        return best.iloc[int(best["throughput_inputs_per_s"].to_numpy().argmax())]
    return group.iloc[int(group["sample_count"].to_numpy().argmax())]


def scalability_table(cases: pd.DataFrame) -> pd.DataFrame:
    """Throughput at each batch size over that at the smallest (arXiv Figure 12); sweeps of one size say nothing."""
    parts = []
    for _, group in _sweeps(cases):
        best = _best_rows(group)
        if len(best) > 1:
            base = float(best["throughput_inputs_per_s"].iloc[0])
            parts.append(best.assign(speedup_ratio=best["throughput_inputs_per_s"] / base))
    return together("fleet_scalability", parts)


def framework_table(models: pd.DataFrame) -> pd.DataFrame:
    """Table X: online latency and most throughput of each framework over those of the base framework."""
    models = models.assign(kind=models["framework"].astype(object).map(lambda text: (str(text).split() or [""])[0]))
    keys = ["workload_name", "system_name", "phase"]
    several = models[(models.groupby(keys)["kind"].transform("nunique") > 1) & (models["kind"] != "")]
    if several.empty:
        return together("fleet_frameworks", [])
    base = several[several["kind"] == _most_common(several["kind"])].drop_duplicates(keys)[
        [*keys, "framework", "online_latency_ns", "max_throughput_inputs_per_s"]
    ]
    joined = several.merge(base, on=keys, suffixes=("", "_of_base"), validate="many_to_one")
    return typed(
        "fleet_frameworks",
        joined.assign(
            base_framework=joined["framework_of_base"],
            normalized_online_latency_ratio=joined["online_latency_ns"] / joined["online_latency_ns_of_base"],
            normalized_max_throughput_ratio=joined["max_throughput_inputs_per_s"]
            / joined["max_throughput_inputs_per_s_of_base"],
            non_gpu_latency_ratio=1 - joined["gpu_latency_ratio"],
        ),
    )


def system_table(cases: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Figure 11: throughput and kernel latency of each workload and batch size on each system."""
    keys = ["workload_name", "framework", "phase", "batch_size"]
    ordered = cases.sort_values("sample_count", ascending=False, kind="stable").drop_duplicates([*keys, "system_name"])
    ordered = ordered.loc[ordered.index.sort_values()]
    several = ordered[(ordered.groupby(keys)["system_name"].transform("nunique") > 1) & (ordered["system_name"] != "")]
    if several.empty:
        return together("fleet_systems", [])
    base_name = _most_common(several["system_name"])
    base = several[several["system_name"] == base_name][[*keys, "throughput_inputs_per_s", "kernel_latency_ns"]]
    joined = several.drop(columns="unique_kernel_count").merge(
        base, on=keys, how="left", suffixes=("", "_of_base"), validate="many_to_one"
    )
    sets = kernel_set_table(kernels)
    sets["is_own"] = sets["system_count"].eq(1)
    per_system = sets.groupby([*keys, "system_name"], sort=False, as_index=False).agg(
        unique_kernel_count=("name", "size"), own_kernel_count=("is_own", "sum")
    )
    joined = joined.merge(per_system, on=[*keys, "system_name"], how="left", validate="one_to_one")
    counts = ["unique_kernel_count", "own_kernel_count"]
    joined[counts] = joined[counts].fillna(0).astype(np.int64)
    return typed(
        "fleet_systems",
        joined.assign(
            base_system=base_name,
            normalized_throughput_ratio=joined["throughput_inputs_per_s"] / joined["throughput_inputs_per_s_of_base"],
            normalized_kernel_latency_ratio=joined["kernel_latency_ns"] / joined["kernel_latency_ns_of_base"],
        ),
    )


def kernel_set_table(kernels: pd.DataFrame) -> pd.DataFrame:
    """Which kernel names each system launches for a workload, how often; only workloads on several systems."""
    keys = ["workload_name", "framework", "phase", "batch_size"]
    known = kernels[kernels["system_name"] != ""]
    known = known[known.groupby(keys)["system_name"].transform("nunique") > 1]
    # several captures of one workload on one system: the first speaks for the system
    known = known[known["capture_index"] == known.groupby([*keys, "system_name"])["capture_index"].transform("min")]
    first = known.groupby([*keys, "system_name", "name"], sort=False, as_index=False)[_SUMMED].sum()
    systems = first.groupby(keys)["system_name"].transform("nunique")
    having = first.groupby([*keys, "name"])["system_name"].transform("nunique")
    frame = first.assign(system_count=having, is_everywhere=having.eq(systems))
    order = [*keys, "system_count", "name", "system_name"]
    return typed("fleet_kernel_sets", frame.sort_values(order, kind="stable"))


# -- frames -------------------------------------------------------------------------------------------------


def _most_common(values: pd.Series) -> str:
    counts = values.value_counts(sort=False)
    return str(counts.index[int(np.argmax(counts.to_numpy()))])


def fleet_rows(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The table `fleet` from the rows of all captures, failed ones too; ``capture_index`` is their order."""
    frame = pd.DataFrame(list(rows))
    frame["capture_index"] = np.arange(len(frame), dtype=np.int64)
    return typed("fleet", frame)
