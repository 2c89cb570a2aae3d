"""Kernels and operators → ``experts``: what mixtures of experts take on each process, how evenly, and what their
dispatch and combine hide behind other work."""

import pandas as pd

from xsp_post.arrays.intervals import grouped_union_length
from xsp_post.model.results import Results, empty_table, frame_or_empty, shaped
from xsp_post.names.families import families
from xsp_post.tables.analyses.frames import PATTERNS, divide, text_codes
from xsp_post.tables.analyses.roofline import least_times, roof_ratio

_EXPERTS, _ROUTING, _DISPATCH = "expert_gemm", "routing", "dispatch"
_LATE = 1.1  # an expert rank is late whose products take a tenth more than the mean of all


def experts(results: Results) -> pd.DataFrame:
    """One row a capture and process whose kernels are of experts by their names."""
    kernels = frame_or_empty(
        results, "kernels", ["capture_id", "process_id", "kernel_id", "name", "start_ns", "end_ns", "duration_ns"]
    )
    codes, texts = text_codes(kernels.pop("name"))
    kernels = kernels.assign(family=families(texts)[codes], process_id=kernels["process_id"].fillna(-1))
    key = ["capture_id", "process_id"]
    kernels = kernels[kernels.groupby(key)["family"].transform(lambda one: (one == _EXPERTS).any())]
    if not len(kernels):
        return empty_table("experts")
    length = (kernels["end_ns"] - kernels["start_ns"]).groupby([*(kernels[name] for name in (*key, "family"))]).sum()
    times = length.unstack(fill_value=0).reindex(columns=[*length.index.unique(2), _ROUTING, _DISPATCH], fill_value=0)
    times = times.loc[:, ~times.columns.duplicated()]
    group = kernels.groupby(key).ngroup().to_numpy()
    is_dispatch = kernels["family"].eq(_DISPATCH).to_numpy()
    start, end = kernels["start_ns"].to_numpy(), kernels["end_ns"].to_numpy()
    alone, others, both = (
        grouped_union_length(group[rows], start[rows], end[rows], len(times))
        for rows in (is_dispatch, ~is_dispatch, slice(None))
    )
    found = pd.DataFrame({"expert_ns": times[_EXPERTS], "routing_ns": times[_ROUTING], "dispatch_ns": times[_DISPATCH]})
    found["expert_ratio"] = found["expert_ns"] / times.sum(axis=1)
    found["dispatch_overlap_ratio"] = divide(alone + others - both, alone)
    products = kernels[kernels["family"] == _EXPERTS].join(least_times(results), on=["capture_id", "kernel_id"])
    found["roof_ratio"] = roof_ratio(products, key)
    processes = found.groupby("capture_id")["expert_ns"]
    found["imbalance_ratio"] = found["expert_ns"] / processes.transform("mean").where(processes.transform("size") > 1)
    found["is_late"] = found["imbalance_ratio"] > _LATE
    ranks = frame_or_empty(results, "devices", [*key, "rank"]).drop_duplicates(key).set_index(key)["rank"]
    operators = frame_or_empty(results, "operators", ["capture_id", "family", "sizes", "kernel_ns"])
    operators = operators[operators["family"].eq("experts")].sort_values("kernel_ns")
    operators = operators.drop_duplicates("capture_id", keep="last").set_index("capture_id")
    sizes = operators["sizes"].astype(str).str.extract(PATTERNS["sizes of experts"]).astype(float)
    found = found.join(ranks).join(sizes, on="capture_id").reset_index()
    found = found.fillna({"rank": -1, "experts": -1, "top_k": -1})
    found["tokens_per_expert"] = found["tokens"] * found["top_k"] / found["experts"]
    return shaped("experts", dict(found.rename(columns={"experts": "expert_count", "top_k": "chosen_count"})))
