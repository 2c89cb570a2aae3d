"""A11…A14: the tables that join layers and kernels (paper, Table I)."""

import numpy as np

from xsp_post.arrays.statistics import rest_of
from xsp_post.arrays.texts import of_each
from xsp_post.base.findings import if_any
from xsp_post.tables.analyses.frames import Columns, divide, picked
from xsp_post.tables.analyses.inputs import Inputs
from xsp_post.tables.analyses.kernel_tables import coverage_columns, say_above_roof
from xsp_post.tables.analyses.layer_rows import DEVICE_SOURCES
from xsp_post.tables.analyses.layer_tables import layer_columns
from xsp_post.tables.analyses.roofline import Work, intensity_columns, pipe_of_name, timed_where, utilisation


def _cases_with_kernels(inputs: Inputs) -> np.ndarray:
    """Rows of layers.frame in cases that have kernels at all."""
    return np.flatnonzero(inputs.has_kernels[inputs.layer_case])


def a11(inputs: Inputs) -> Columns:
    """A11: kernels summed per layer. A layer without kernels has kernel latency 0 and no intensity."""
    rows = _cases_with_kernels(inputs)
    total, covered = (work.take(rows) for work in inputs.by_layer)
    chosen = picked(inputs.layers.frame, rows)
    kernels = inputs.layer_of_kernel
    count = np.bincount(kernels[kernels >= 0], minlength=len(inputs.layers.frame))[rows]
    columns = intensity_columns(covered, inputs.peaks, inputs.options)
    whole = inputs.kernels.layer_total_ns[rows]  # kernel time of each layer trimmed as a total
    whole = np.where(np.isnan(whole), total.latency_ns, whole)
    return {
        **layer_columns(inputs, rows),
        "shape_text": chosen["shape_text"].array,
        "layer_latency_ns": chosen["latency_ns"].to_numpy(),
        "kernel_latency_ns": total.latency_ns,
        "kernel_total_ns": whole,
        "kernel_rest_ns": rest_of(whole, total.latency_ns),
        "kernel_count": count,
        **total.quantities(),
        **columns,
        "mfu_ratio": utilisation(covered, columns["pipe"], covered.latency_ns, inputs.peaks),
        **coverage_columns(total.coverage_ratio, _analytic_layers(inputs)[rows]),
    }


def a12(inputs: Inputs) -> Columns:
    """A12: the counters of each layer in execution order; no rows for cases without counters."""
    rows = _cases_with_kernels(inputs)
    rows = rows[inputs.by_case[0].coverage_ratio[inputs.layer_case[rows]] > 0]
    total = inputs.by_layer[0].take(rows)
    return {
        **layer_columns(inputs, rows),
        "kernel_latency_ns": total.latency_ns,
        **total.quantities(),
        **coverage_columns(total.coverage_ratio, _analytic_layers(inputs)[rows]),
    }


def _analytic_layers(inputs: Inputs) -> np.ndarray:
    """Which rows of layers.frame lie in a case whose work is from shapes."""
    return inputs.analytic_cases[inputs.layer_case]


def a13(inputs: Inputs) -> Columns:
    """A13: what of each layer's latency was not kernels, by sum (the paper's) and by union; may be negative."""
    rows = _cases_with_kernels(inputs)
    rows = rows[inputs.layers.frame["sample_count"].to_numpy()[rows] > 0]
    chosen = picked(inputs.layers.frame, rows)
    latency = chosen["latency_ns"].to_numpy()
    kernel, busy = inputs.by_layer[0].latency_ns[rows], chosen["busy_ns"].to_numpy()
    # a projection is device time already: none of it is known to be host time
    is_host = ~chosen["latency_source"].isin(DEVICE_SOURCES).to_numpy(bool)
    whole = np.where(is_host, latency, np.nan)
    is_negative = (whole < kernel) | (whole < busy)
    named = chosen["layer_path"].iloc
    inputs.findings += if_any("negative-non-gpu", is_negative, lambda _: named[int(np.nanargmin(whole - kernel))])
    return {
        **layer_columns(inputs, rows),
        **{name: chosen[name].array for name in ("latency_source", "busy_ns", "host_ns")},
        "layer_latency_ns": latency,
        "kernel_latency_ns": kernel,
        "non_gpu_by_sum_ns": whole - kernel,
        "non_gpu_by_union_ns": whole - busy,
        "gap_ns": np.where(is_host, np.nan, latency - busy),
        "gpu_by_sum_ratio": divide(kernel, whole),
        "gpu_by_union_ratio": divide(busy, whole),
        "is_negative": is_negative,
    }


def a14(inputs: Inputs) -> Columns:
    """A14: each layer's point under the roof, from counters, else from flop and least bytes of the model."""
    work, is_analytic = analytic_where_unmeasured(inputs)
    rows = np.flatnonzero(~(np.isnan(work.flop) | np.isnan(work.dram_bytes)))
    chosen = work.take(rows)
    coverage = coverage_columns(chosen.coverage_ratio, (is_analytic | _analytic_layers(inputs))[rows])
    chosen = timed_where(inputs.by_layer[0].latency_ns[rows] > 0, chosen)
    columns = intensity_columns(chosen, inputs.peaks, inputs.options)
    # layers counted by their kernels: A9 says it of the kernels
    marked = np.where(is_analytic[rows], np.asarray(columns["roof_ratio"]), np.nan)
    say_above_roof(inputs, marked, inputs.layers.frame["layer_path"].iloc[rows], np.zeros(len(rows), bool))
    return {
        **layer_columns(inputs, rows),
        "latency_ns": chosen.latency_ns,
        **columns,
        "mfu_ratio": utilisation(chosen, columns["pipe"], chosen.latency_ns, inputs.peaks),
        "work_coverage_ratio": chosen.coverage_ratio,
        **coverage,
    }


def analytic_where_unmeasured(inputs: Inputs) -> tuple[Work, np.ndarray]:
    """Work per row of layers.frame, of counters where there are any, else analytic; and which is which.

    Analytic bytes are the least possible ones and stand in ``dram_bytes``; the pipe is guessed from the
    longest kernel's name. The time is the layer's kernel latency, or its own where it has no kernels.
    """
    layers, covered = inputs.layers.frame, inputs.by_layer[1]
    flop, least = layers["analytic_flop"].to_numpy(), layers["analytic_bytes"].to_numpy()
    is_analytic = (inputs.by_layer[0].coverage_ratio == 0) & ~np.isnan(flop) & ~np.isnan(least)
    # the marks of a training step's layers say the forward work only; their time is that of all phases
    is_forward_only = is_analytic & inputs.training_cases[inputs.layer_case]
    is_analytic &= ~is_forward_only
    empty = is_forward_only & ~_analytic_layers(inputs)  # a view has no kernels
    if not any(one.code == _FORWARD_ONLY for one in inputs.findings):  # once per analysis
        inputs.findings += if_any(_FORWARD_ONLY, empty, lambda row: layers["layer_path"].iloc[row])
    if not is_analytic.any():
        return covered, is_analytic
    kernel = inputs.by_layer[0].latency_ns
    latency = np.where(kernel > 0, kernel, layers["latency_ns"].to_numpy())

    guessed, unknown = _guessed_pipes(inputs), np.nan
    # what no pipe is named for counts as fp32
    by_pipe = {pipe: np.where(guessed == pipe, flop, 0.0) for pipe in {*guessed[is_analytic]} - {"fp32"}}
    work = covered.where(
        is_analytic, by_pipe, latency_ns=latency, flop=flop, dram_read_bytes=unknown, dram_write_bytes=unknown,
        dram_bytes=least, l2_bytes=unknown, occupancy_ratio=unknown, coverage_ratio=1.0,
    )  # fmt: skip
    return work, is_analytic


_FORWARD_ONLY = "work-forward-only"


def _guessed_pipes(inputs: Inputs) -> np.ndarray:
    """Pipe of each row of layers.frame by the name of its longest kernel, for flop that no counter saw."""
    rows, kernels = inputs.longest_kernels
    pipes = np.full(len(inputs.layers.frame), "fp32", dtype=object)
    pipes[rows] = of_each(
        inputs.kernels.frame["name"].iloc[kernels].to_numpy(), lambda name: pipe_of_name(str(name)), object
    )
    return pipes


def dominant_kernels(inputs: Inputs) -> Columns:
    """The longest single launch of each layer that has kernels (MLModelScope paper, Table 3)."""
    rows, chosen = inputs.longest_kernels
    frame = inputs.kernels.frame
    latency = frame["latency_ns"].to_numpy()[chosen]
    return {
        **layer_columns(inputs, rows),
        **{name: frame[name].array[chosen] for name in ("name", "short_name", "source_line")},
        "latency_ns": latency,
        "latency_ratio": divide(latency, inputs.by_layer[0].latency_ns[rows]),
    }
