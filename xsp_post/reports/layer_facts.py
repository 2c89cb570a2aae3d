"""Layers → the facts shown at the bottom of the page for the selected layer."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from xsp_post.model.results import Results
from xsp_post.reports import cases, theme
from xsp_post.reports.text import short_kernels, visible, visible_series

LAYER_LIMIT = 3000
KERNELS_PER_LAYER = 5
# title, table, column
_FACTS = (
    ("latency", "a02", "latency_ns"),
    ("of the layers", "a02", "latency_ratio"),
    ("type", "a02", "layer_type"),
    ("shape", "a02", "shape_text"),
    ("allocated", "a02", "allocated_bytes"),
    ("kernels", "a11", "kernel_latency_ns"),
    ("launches", "a11", "kernel_count"),
    ("non-GPU", "a13", "non_gpu_by_sum_ns"),
    ("flop", "a11", "total_flop"),
    ("intensity", "a11", "arithmetic_intensity_flop_per_byte"),
    ("throughput", "a11", "arithmetic_throughput_flop_per_s"),
    ("bound", "a11", "bound"),
    ("n", "a02", "sample_count"),
    ("std dev", "a03", "std_latency_ns"),
)


@dataclass(frozen=True)
class LayerFacts:
    """One row per layer, by index: names, facts as text by title, the longest kernels (short, full, latency text)."""

    layer_index: list[int]
    name: list[str]
    full_name: list[str]
    facts: list[tuple[str, list[str]]]
    kernels: list[list[tuple[str, str, str]]]


def layer_facts(results: Results, case: cases.Case | None) -> LayerFacts | None:
    """Facts of the layers of a case, the heaviest LAYER_LIMIT of them; None where there are none."""
    layers = cases.rows(results, "a02", case)
    if layers.empty:
        return None
    layers = layers.nlargest(LAYER_LIMIT, "latency_ns").sort_values("layer_index", kind="stable").reset_index(drop=True)
    index = layers["layer_index"]
    tables = {table: cases.rows(results, table, case) for table in {table for _, table, _ in _FACTS}}
    by_layer = {
        table: frame.drop_duplicates("layer_index").set_index("layer_index")
        for table, frame in tables.items()
        if "layer_index" in frame
    }
    facts = []
    for title, table, column in _FACTS:
        if column not in tables[table].columns:
            continue
        value = by_layer[table][column].reindex(index)
        if pd.api.types.is_float_dtype(value.dtype) and value.isna().all():
            continue
        facts.append((title, theme.text_of(_as_counted(value, tables[table][column]), column)))
    return LayerFacts(
        index.tolist(),
        visible_series(layers["layer_name"]).tolist(),
        visible_series(layers["layer_path"]).tolist(),
        facts,
        _kernels(results, case, index),
    )


def _as_counted(value: pd.Series, original: pd.Series) -> pd.Series:
    """A whole-number column that `reindex` made float is whole again; absent rows are unknown."""
    if pd.api.types.is_integer_dtype(original.dtype) and pd.api.types.is_float_dtype(value.dtype):
        return value.astype("Int64")
    return value.astype(object).where(value.notna(), "") if not pd.api.types.is_numeric_dtype(value.dtype) else value


def _kernels(results: Results, case: cases.Case | None, index: pd.Series) -> list[list[tuple[str, str, str]]]:
    launches = cases.rows(results, "a08", case, ["layer_index", "name", "latency_ns"])
    launches = launches[launches["layer_index"].isin(set(index))]
    by_name = (
        launches.groupby(["layer_index", "name"], observed=True, sort=False)["latency_ns"]
        .agg(["sum", "size"])
        .reset_index()
    )
    longest = (
        by_name.sort_values("sum", ascending=False, kind="stable")
        .groupby("layer_index", sort=False)
        .head(KERNELS_PER_LAYER)
    )
    rows: dict[int, list[tuple[str, str, str]]] = {}
    for layer, short, full, text in zip(
        longest["layer_index"],
        short_kernels(longest["name"]),
        [visible(n) for n in longest["name"]],
        [
            f"{text} (×{n})" if n > 1 else text
            for text, n in zip(theme.text_of(longest["sum"], "latency_ns"), longest["size"])
        ],
    ):
        rows.setdefault(int(layer), []).append((short, full, text))
    return [rows.get(int(i), []) for i in index]
