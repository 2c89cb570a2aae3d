"""Forward, backward and optimizer of a training step apart, per layer and model."""

import numpy as np
import pandas as pd

from xsp_post.model.kinds import PHASES
from xsp_post.model.results import shaped
from xsp_post.tables.analyses.frames import IntArray, divide
from xsp_post.tables.analyses.inputs import Inputs
from xsp_post.tables.analyses.kernel_tables import coverage_columns, of_layer
from xsp_post.tables.analyses.roofline import FORWARD, Work, aggregate, intensity_columns, utilisation


def training_phases(inputs: Inputs) -> pd.DataFrame:
    """One row per case, layer (−1: the whole step) and phase: kernel latency and work of that part alone.

    The forward work of a layer without sizes of operators is what its mark says; no other phase has such a stand-in.
    """
    layers, count = inputs.layers.frame, len(inputs.cases)
    case, of_kernel = inputs.kernel_case, inputs.kernels.phase
    # a kernel counts for its case, and for its layer
    rows = [np.flatnonzero(of_kernel > 0), np.flatnonzero((of_kernel > 0) & (inputs.layer_of_kernel >= 0))]
    owner = np.concatenate([case[rows[0]], count + inputs.layer_of_kernel[rows[1]]])
    every = np.concatenate(rows)
    keys, group = np.unique(owner * len(PHASES) + of_kernel[every], return_inverse=True)
    owner, phase = keys // len(PHASES), keys % len(PHASES)
    layer = np.where(owner < count, -1, owner - count)
    case = np.where(layer < 0, owner, np.append(inputs.layer_case, -1)[layer])
    total, covered = aggregate(inputs.kernels.work.take(every), group, len(keys), case)
    covered = _with_marks(inputs, covered, total, layer, phase)
    columns = intensity_columns(covered, inputs.peaks, inputs.options)
    is_analytic = inputs.analytic_cases[case] | (total.coverage_ratio < covered.coverage_ratio)
    table = shaped("training_phases", {
        **inputs.case_columns(case),
        "layer_index": np.append(layers["layer_index"].to_numpy(np.int64), -1)[layer],
        **{name: of_layer(inputs, layer, name) for name in ("layer_name", "layer_type")},
        "training_phase": pd.Categorical.from_codes(phase, pd.Index(PHASES)),
        "kernel_latency_ns": total.latency_ns,
        "kernel_latency_ratio": divide(total.latency_ns, inputs.by_case[0].latency_ns[case]),
        "kernel_count": np.bincount(group, minlength=len(keys)),
        "total_flop": covered.flop,
        "least_bytes": covered.dram_bytes,
        **columns,
        "mfu_ratio": utilisation(covered, columns["pipe"], covered.latency_ns, inputs.peaks),
        **coverage_columns(covered.coverage_ratio, is_analytic),
    })  # fmt: skip
    return table.sort_values(["case_index", "layer_index"], kind="stable", ignore_index=True)


def _with_marks(inputs: Inputs, covered: Work, total: Work, layer: IntArray, phase: IntArray) -> Work:
    """Forward rows of layers without any known work get what the layer's own mark says of it."""
    marks = (inputs.layers.frame[name].to_numpy() for name in ("analytic_flop", "analytic_bytes"))
    flop, least = (np.append(values, np.nan)[layer] for values in marks)
    use = (phase == FORWARD) & (covered.coverage_ratio == 0) & ~np.isnan(flop) & ~np.isnan(least)
    return covered.where(
        use, {}, latency_ns=total.latency_ns, flop=flop, dram_read_bytes=np.nan, dram_write_bytes=np.nan,
        dram_bytes=least, coverage_ratio=1.0,
    )  # fmt: skip
