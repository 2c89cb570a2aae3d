"""Forward, backward and optimizer of a training step apart, per layer and model."""

import numpy as np
import pandas as pd

from xsp_post.model.kinds import PHASES
from xsp_post.model.results import shaped
from xsp_post.tables.analyses.frames import IntArray, divide, text_codes, texts_of
from xsp_post.tables.analyses.inputs import Inputs
from xsp_post.tables.analyses.kernel_tables import coverage_columns
from xsp_post.tables.analyses.roofline import Work, aggregate, intensity_columns, utilisation
from xsp_post.tables.analyses.shape_work import FORWARD


def training_phases(inputs: Inputs) -> pd.DataFrame:
    """One row per case, layer (−1: the whole step) and phase: kernel latency and work of that part alone.

    The forward work of a layer without sizes of operators is what its mark says; no other phase has such a stand-in.
    """
    frame, layers = inputs.kernels.frame, inputs.layers.frame
    case = frame["case_index"].to_numpy(np.int64)
    phase = inputs.kernels.phase
    layer_case = layers["case_index"].to_numpy(np.int64)
    of_case, cases = _groups(case, phase, phase > 0)
    of_layer, rows = _groups(inputs.layer_of_kernel, phase, (phase > 0) & (inputs.layer_of_kernel >= 0))
    total_case, covered_case = aggregate(inputs.kernels.work, of_case, len(cases), cases // len(PHASES))
    owner = rows // len(PHASES)
    total, covered = aggregate(inputs.kernels.work, of_layer, len(rows), layer_case[owner])
    covered = _with_marks(inputs, covered, total, owner, rows % len(PHASES))
    parts = [
        _columns(inputs, total_case, covered_case, np.full(len(cases), -1), cases % len(PHASES), of_case),
        _columns(inputs, total, covered, owner, rows % len(PHASES), of_layer),
    ]
    joined = {name: _joined([part[name] for part in parts]) for name in parts[0]}
    table = shaped("training_phases", joined)
    return table.sort_values(["case_index", "layer_index"], kind="stable", ignore_index=True)


def _groups(owner: IntArray, phase: IntArray, chosen: np.ndarray) -> tuple[IntArray, IntArray]:
    """Dense number of (owner, phase) per kernel row (−1 not chosen), and owner × phases + phase of each number."""
    key = owner * len(PHASES) + phase
    keys = np.unique(key[chosen])
    group = np.where(chosen, np.searchsorted(keys, np.where(chosen, key, 0)), -1) if len(keys) else key * 0 - 1
    return group.astype(np.int64), keys.astype(np.int64)


def _with_marks(inputs: Inputs, covered: Work, total: Work, owner: IntArray, phase: IntArray) -> Work:
    """Forward rows without any known work get what the layer's own mark says of it."""
    layers = inputs.layers.frame
    flop, least = (layers[name].to_numpy()[owner] for name in ("analytic_flop", "analytic_bytes"))
    use = (phase == FORWARD) & (covered.coverage_ratio == 0) & ~np.isnan(flop) & ~np.isnan(least)

    return covered.where(
        use, {}, latency_ns=total.latency_ns, flop=flop, dram_read_bytes=np.nan, dram_write_bytes=np.nan,
        dram_bytes=least, coverage_ratio=1.0,
    )  # fmt: skip


def _columns(
    inputs: Inputs, total: Work, covered: Work, layer: IntArray, phase: IntArray, group: IntArray
) -> dict[str, object]:
    columns = intensity_columns(covered, inputs.peaks, inputs.options)
    texts = {}
    for name in ("layer_name", "layer_type"):
        codes, known = text_codes(inputs.layers.frame[name])
        code = np.where(layer >= 0, codes[layer], -1) if len(codes) else np.full(len(layer), -1)
        texts[name] = texts_of(code, known)
    index = inputs.layers.frame["layer_index"].to_numpy(np.int64)
    step = np.bincount(covered.case, minlength=len(inputs.cases)) * 0.0 + inputs.by_case[0].latency_ns
    is_analytic = inputs.analytic_cases[covered.case] | (total.coverage_ratio < covered.coverage_ratio)
    return {
        **inputs.case_columns(covered.case),
        "layer_index": np.where(layer >= 0, index[layer], -1) if len(index) else layer,
        **texts,
        "training_phase": pd.Categorical.from_codes(phase, pd.Index(PHASES)),
        "kernel_latency_ns": total.latency_ns,
        "kernel_latency_ratio": divide(total.latency_ns, step[covered.case]),
        "kernel_count": np.bincount(group[group >= 0], minlength=len(phase)),
        "total_flop": covered.flop,
        "least_bytes": covered.dram_bytes,
        **columns,
        "mfu_ratio": utilisation(covered, columns["pipe"], covered.latency_ns, inputs.peaks),
        **coverage_columns(covered.coverage_ratio, is_analytic),
    }


def _joined(values: list[object]) -> object:
    if isinstance(values[0], pd.Categorical):
        return pd.Categorical(np.concatenate([np.asarray(one, object) for one in values]))
    return np.concatenate([np.asarray(one) for one in values])
