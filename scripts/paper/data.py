"""The paper's raw columns → core frames, so that the product itself is what is checked.

The data (tables as printed, figures read back from their vector drawings) is third-party material and not
part of this repository: it is found through ``XSP_POST_PAPER`` or beside the checkout.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding
from xsp_post.model import options as user
from xsp_post.model.levels import RUN_KERNEL
from xsp_post.model.results import Analysis, Results
from xsp_post.model.schemas import TABLES
from xsp_post.tables.analyses.options import Options
from xsp_post.tables.catalogue import ANALYSES, OF_WORKLOAD
from xsp_post.tables.graph import Graph

MIB = 2**20
_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2].parent / "shared" / "paper"


def compute_all(
    results: Results, options: user.Options = user.DEFAULTS, **choices: Any
) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """All tables of the analyses by name (without data: zero rows, all columns), and what was odd.

    ``choices`` are fields of `Options`, e.g. ``roof="fp32"``. Raises UsageError for an unknown choice.
    """
    chosen = replace(Options.of(options), **choices)
    names = [name for step in ANALYSES for name in step.names]
    graph = Graph(results, OF_WORKLOAD, {"options": chosen}, remade=names)
    return {name: graph.frame(name) for name in names}, graph.raised()


def folder() -> Path | None:
    """The folder with paper_tables/ and paper_figures_digitised/; None where it is not at hand."""
    path = Path(os.environ.get("XSP_POST_PAPER") or _BESIDE_THE_CHECKOUT)
    return path if (path / "paper_tables").is_dir() else None


def printed(name: str) -> pd.DataFrame:
    """One CSV as text, exactly as printed: trailing zeros say how precise a number is. FileNotFoundError."""
    base = folder()
    if base is None:
        raise FileNotFoundError("The paper's data is not at hand: set XSP_POST_PAPER to its folder.")
    for part in ("paper_tables", "paper_figures_digitised"):
        if (base / part / name).is_file():
            return pd.read_csv(base / part / name, dtype=str, keep_default_na=False)
    raise FileNotFoundError(name)


@dataclass(frozen=True)
class KernelRow:
    """One kernel launch as a table prints it; NaN where it prints nothing."""

    name: str
    latency_ns: float
    layer_index: int = -1
    flop: float = np.nan
    dram_read_bytes: float = np.nan
    dram_write_bytes: float = np.nan
    occupancy_ratio: float = np.nan


@dataclass(frozen=True)
class LayerRow:
    """One layer as a table prints it."""

    layer_index: int
    name: str
    layer_type: str
    latency_ns: float
    allocated_bytes: float = -1


@dataclass
class Builder:
    """Collects workloads and gives the core tables of an `Analysis`: one capture and one iteration each."""

    rows: dict[str, list[dict[str, object]]] = field(
        default_factory=lambda: {
            name: [] for name in ("captures", "iterations", "nodes", "layers", "kernels", "kernel_metrics")
        }
    )

    def add(
        self,
        workload: str,
        batch_size: int,
        model_latency_ns: float,
        kernels: Sequence[KernelRow] = (),
        layers: Sequence[LayerRow] = (),
        gpu_name: str = "",
        level: str = RUN_KERNEL,
    ) -> Builder:
        """One execution of ``workload`` at one batch size, with the profilers of ``level`` on."""
        capture_id = len(self.rows["captures"])
        self.rows["captures"].append(
            {
                "capture_id": capture_id,
                "workload_name": workload,
                "batch_size": batch_size,
                "gpu_name": gpu_name,
                "level": level,
            }
        )
        self.rows["iterations"].append(
            {
                "capture_id": capture_id,
                "iteration_index": 0,
                "batch_size": batch_size,
                "latency_ns": round(model_latency_ns),
            }
        )
        self.rows["layers"] += [
            {
                "capture_id": capture_id,
                "iteration_index": 0,
                "layer_index": layer.layer_index,
                "layer_path": f"{layer.layer_index} {layer.name}",
                "layer_name": layer.name,
                "layer_type": layer.layer_type,
                "call_index": 0,
                "call_count": 1,
                "latency_ns": round(layer.latency_ns),
                "latency_source": "host",
                "duration_ns": round(layer.latency_ns),
                "allocated_bytes": round(layer.allocated_bytes),
            }
            for layer in layers
        ]
        for kernel in kernels:
            self._add_kernel(capture_id, kernel)
        return self

    def _add_kernel(self, capture_id: int, kernel: KernelRow) -> None:
        kernel_id = len(self.rows["kernels"])
        self.rows["kernels"].append(
            {
                "capture_id": capture_id,
                "kernel_id": kernel_id,
                "iteration_index": 0,
                "name": kernel.name,
                "short_name": kernel.name,
                "layer_index": kernel.layer_index,
                "duration_ns": round(kernel.latency_ns),
                "start_ns": kernel_id,
                "launch_start_ns": kernel_id,
            }
        )
        self.rows["kernel_metrics"] += [
            {"kernel_id": kernel_id, "metric_name": name, "value": value, "source": source}
            for name, value, source in (
                ("flop", kernel.flop, "flop_count_sp"),
                ("dram_read_bytes", kernel.dram_read_bytes, "dram_read_bytes"),
                ("dram_write_bytes", kernel.dram_write_bytes, "dram_write_bytes"),
                ("dram_bytes", kernel.dram_read_bytes + kernel.dram_write_bytes, "dram_read_bytes + dram_write_bytes"),
                ("occupancy_ratio", kernel.occupancy_ratio, "achieved_occupancy"),
            )
            if not np.isnan(value)
        ]

    def analysis(self) -> Analysis:
        """The core tables with all their columns and dtypes."""
        return Analysis({name: _frame(name, rows) for name, rows in self.rows.items()})


def _frame(table: str, rows: list[dict[str, object]]) -> pd.DataFrame:
    blank = {"int64": -1, "float64": np.nan, "bool": False, "str": ""}
    return pd.DataFrame(
        {
            column.name: pd.Series(
                [row.get(column.name, blank[column.dtype]) for row in rows],
                dtype="object" if column.dtype == "str" else column.dtype,
            )
            for column in TABLES[table].columns
        }
    )


# What a re-implementation trips over; the numbers are referred to as E1 … E11 in code and tables.
PAPER_ERRORS = (
    "Table IV's counts are one too few: the authors' code starts a new name at 0. 53 Mul layers ran, 52 are printed.",
    "The optimal batch size of ResNet50 is printed as 256; by the rule as worded (a doubling gains 5 %) it is 64. "
    "Five policies are offered (`analyses.options`); the default (the size that the last doubling with 5 % gain "
    "reaches) also gives 64.",
    "Table IX's stage columns for model 7 contradict Figure 5; ours follow the figure's own values.",
    "Units differ by table: MiB in III–VI and Figure 5b, 10^6 bytes in II and Figure 1, 10^9 in IX, 1000 · 2^20 in X.",
    "Table IX, model 7: reads of 24.40 GB are a misprint of 24.31 (Table VI, and its own intensity).",
    "Table IX's latencies and Table VIII's throughputs come from different runs, up to 10 % apart.",
    '"GPU latency percentage varies 53.68–95.61 %": the table\'s own maximum is 96.32.',
    "The first arXiv version compares throughput with the ideal intensity; the final one, and xsp-post, intensity.",
    "The authors' code takes kernels without counters as memory-bound (intensity 0); here their bound is unknown.",
    "XSP's spans contain its own conversion work; its overheads are therefore upper bounds of the profilers'.",
    "XSP pools counters of equal kernel names in a layer; its trimmed mean of four values drops only the maximum.",
)
