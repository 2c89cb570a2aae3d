"""Results of one job → ``rank_layers``, each layer over the ranks of a job: median, slowest rank, spread."""

import numpy as np
import pandas as pd

from xsp_post.model.results import empty_table, typed
from xsp_post.tables.analyses.inputs import Inputs
from xsp_post.tables.analyses.layer_tables import measured_layers

_SAME = ["batch_size", "phase", "layer_path", "call_index"]  # what makes a layer of two ranks the same one


def rank_layers(inputs: Inputs) -> pd.DataFrame:
    """One row per layer of a job with several ranks, in execution order; no rows for a single rank."""
    cases = inputs.cases.frame
    if not (cases["rank_name"] != "").any():
        return empty_table("rank_layers")
    rows = inputs.layers.frame.iloc[measured_layers(inputs)]
    case = rows["case_index"].to_numpy(np.int64)
    rows = rows.assign(
        rank_name=cases["rank_name"].to_numpy(object)[case], batch_size=cases["batch_size"].to_numpy()[case],
        phase=cases["phase"].to_numpy(object)[case], layer_path=rows["layer_path"].astype(object),
        call_index=rows.groupby(["case_index", "layer_path"], observed=True).cumcount(),
    )  # fmt: skip
    rows = rows[(rows["rank_name"] != "") & rows["latency_ns"].notna()]  # unknown latencies have no slowest rank
    if not len(rows):
        return empty_table("rank_layers")
    groups = rows.groupby(_SAME, sort=False, observed=True, dropna=False)
    latency = groups["latency_ns"]
    table = latency.agg(rank_count="count", median_latency_ns="median", min_latency_ns="min", max_latency_ns="max")
    slowest = rows.loc[rows.groupby(_SAME, sort=False, observed=True)["latency_ns"].idxmax()].set_index(_SAME)
    first = groups[["layer_index", "layer_name", "layer_type"]].first()
    table = table.join(first).join(slowest["rank_name"]).reset_index().sort_values("layer_index", kind="stable")
    spread = (table["max_latency_ns"] - table["min_latency_ns"]) / table["median_latency_ns"].where(lambda v: v > 0)
    named = {"max_latency_ns": "slowest_latency_ns", "rank_name": "slowest_rank_name"}
    return typed("rank_layers", table.assign(spread_ratio=spread).rename(columns=named))
