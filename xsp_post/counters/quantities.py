"""Counters (a ``CounterReport``) → our quantities: flop, DRAM bytes, occupancy … of each kernel, and its roofs.

`quantities` takes the tool's metrics by preference lists: the first that the report holds is used and named in
``source``; what stands on an assumption is called an estimate there; what is not in the report is absent, never
zero. Formulas: NVIDIA's roofline charts of Nsight Compute (SpeedOfLight_HierarchicalRoofline sections), and XSP
§III-D for the nvprof names.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.hardware.gpus import peaks_of_ncu_attributes
from xsp_post.model.counters import DURATION, INTEGER_ONLY, QUANTITIES, CounterReport

ESTIMATE = "estimate"  # a word of `source`; nothing else there contains it
# flop of one warp-level tensor instruction where the report only counts those: m16n8k… shapes differ, 512 is
# what Nsight Compute's own chart assumes (derived__sm__inst_executed_pipe_tensor_x512).
TENSOR_INSTRUCTION_FLOP = 512

_SASS = "__sass_thread_inst_executed_op_{}_pred_on.sum"
_TENSOR_PIPE_INSTRUCTIONS = ("sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor_op_gmma.sum",
                             "sm__inst_executed_pipe_tensor_op_dmma.sum")  # fmt: skip
_LINES = TextTable(lambda: {
    block.name: [(quantity, source) for _, line in block.lines for quantity, _, source in [line.partition(": ")]]
    for block in read_blocks(Path(__file__).with_name("quantities.txt"))
})  # fmt: skip
_INPUTS = TextTable(lambda: {
    name: re.compile("|".join(text for of, text in _LINES["inputs"] if of == name)) for name, _ in _LINES["inputs"]
})  # fmt: skip


def is_input(metric_name: str) -> bool:
    """Whether `quantities` may look at a metric of the tool."""
    return any(pattern.fullmatch(metric_name) for pattern in _INPUTS.values())


def is_tensor_operand(metric_name: str) -> bool:
    """Whether a metric counts the tensor operations of one floating-point operand type."""
    match = _INPUTS["tensor path"].fullmatch(metric_name)
    return match is not None and not match["rate"] and not match["type"].startswith("int")


class _Wide:
    """The input metrics as columns over actions; and the answers collected so far."""

    def __init__(self, report: CounterReport) -> None:
        self.action_ids = report.actions.index.to_numpy()
        categories = report.metrics["metric_name"].cat.categories
        wanted = [name for name in categories if is_input(name)]
        rows = report.metrics[report.metrics["metric_name"].isin(wanted)]
        wide = rows.pivot_table(
            index="action_id", columns="metric_name", values="value", observed=True, aggfunc="first"
        )
        self.columns: pd.DataFrame = wide.reindex(self.action_ids)
        self.values: dict[str, np.ndarray] = {}
        self.sources: dict[str, np.ndarray] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.columns.columns

    def get(self, name: str) -> np.ndarray:
        """Values of a metric (NaN where not recorded), shape (actions,)."""
        if name in self:
            return self.columns[name].to_numpy(dtype=float)
        return np.full(len(self.action_ids), np.nan)

    def offer(self, quantity: str, values: np.ndarray, source: str | np.ndarray) -> None:
        """Use `values` for the rows of `quantity` that no earlier offer filled."""
        best = self.values.setdefault(quantity, np.full(len(self.action_ids), np.nan))
        sources = self.sources.setdefault(quantity, np.full(len(self.action_ids), "", dtype=object))
        rows = np.isnan(best) & np.isfinite(values)
        best[rows] = values[rows]
        sources[rows] = source[rows] if isinstance(source, np.ndarray) else source

    def known(self, quantity: str) -> np.ndarray:
        """What was offered so far."""
        return self.values.get(quantity, np.full(len(self.action_ids), np.nan))

    def long(self) -> pd.DataFrame:
        """All answers as rows action_id, metric_name, value, unit, source."""
        parts = []
        for quantity, unit in QUANTITIES.items():
            values = self.known(quantity)
            rows = np.isfinite(values)
            parts.append(pd.DataFrame({
                "action_id": self.action_ids[rows], "metric_name": quantity, "value": values[rows], "unit": unit,
                "source": self.sources[quantity][rows] if rows.any() else np.zeros(0, object),
            }))  # fmt: skip
        return pd.concat(parts, ignore_index=True)


def quantities(report: CounterReport) -> pd.DataFrame:
    """Our quantities of each action: action_id, metric_name (of `QUANTITIES`), value, unit, source.

    Rows exist only for what the report supports. Where it has only the tensor pipe's share of its peak, that peak
    (dense, of the GPU that it names) gives an estimate. Shape: at most actions × len(QUANTITIES).
    """
    wide = _Wide(report)
    seconds = wide.get(DURATION) * 1e-9
    wide.offer("counted_duration_ns", wide.get(DURATION), DURATION)
    _floating_point(wide, seconds)
    _tensor(wide, seconds, _tensor_peaks(report, wide))
    _total_flop(wide)
    _memory(wide, seconds)
    _offered(wide, seconds, "launch")
    _peaks(wide)
    return wide.long()


def _cycles(wide: _Wide, unit: str, seconds: np.ndarray) -> tuple[np.ndarray, str]:
    """Cycles that passed, by direct count or clock × duration."""
    counted = wide.get(f"{unit}__cycles_elapsed.avg")
    if np.isfinite(counted).any():
        return counted, f"{unit}__cycles_elapsed.avg"
    return wide.get(f"{unit}__cycles_elapsed.avg.per_second") * seconds, f"{unit} clock × duration"


def _floating_point(wide: _Wide, seconds: np.ndarray) -> None:
    """Flop of the plain pipes: add + mul + 2 fma, counted, or rate × cycles; predicated-off threads do not count."""
    half, half_note = _half_factors(wide)
    for quantity, letter, factors, note in (
        ("flop_fp64", "d", {"dadd": 1, "dmul": 1, "dfma": 2}, ""),
        ("flop_fp32", "f", {"fadd": 1, "fmul": 1, "ffma": 2}, ""),
        ("flop_fp16", "h", half, half_note),
    ):
        for unit in ("smsp", "sm"):
            metrics = {unit + _SASS.format(op): factor for op, factor in factors.items()}
            name = f"{unit}{_SASS.format(letter + '{add,mul,fma}')}"
            wide.offer(quantity, _weighted(wide, metrics), name + note)
            rates = _weighted(wide, {f"{metric}.per_cycle_elapsed": factor for metric, factor in metrics.items()})
            cycles, cycles_name = _cycles(wide, unit, seconds)
            wide.offer(quantity, rates * cycles, f"{name}.per_cycle_elapsed × {cycles_name}{note}")
        nvprof = f"flop_count_{letter if letter != 'f' else 's'}p"
        wide.offer(quantity, wide.get(nvprof), nvprof)


def _weighted(wide: _Wide, factors: Mapping[str, int]) -> np.ndarray:
    """Σ factor × metric, NaN where one of them was not recorded."""
    return np.sum([factor * wide.get(name) for name, factor in factors.items()], axis=0)


def _half_factors(wide: _Wide) -> tuple[dict[str, int], str]:
    """Flop per counted half-precision instruction: what the report's own derived metrics multiply by.

    Reports of compute capability 10.0 multiply hfma by 4 and hadd by 2 (two halves per instruction), those
    of 8.6 hfma by 2; without a derived metric the smaller factors are used and the result is an estimate.
    """
    derived = {m[1]: int(m[2]) for name in wide.columns.columns if (m := _INPUTS["half factor"].fullmatch(name))}
    factors = {"hadd": derived.get("hadd", 1), "hmul": derived.get("hmul", 1), "hfma": derived.get("hfma", 2)}
    if derived:
        return factors, f" (hfma × {factors['hfma']}, as the report derives it)"
    return factors, f" (hfma × 2: {ESTIMATE}, packed halves may count twice)"


def _tensor(wide: _Wide, seconds: np.ndarray, peak_flop_per_s: np.ndarray) -> None:
    """Flop of the tensor cores: counted operations, else instructions, else share of peak."""
    once = np.ones(len(seconds))
    for rate, scale in (("", once), (".per_second", seconds)):
        names = _tensor_path_names(wide, rate)
        if names:
            total = np.nansum([wide.get(name) for name in names], axis=0) * scale
            is_known = np.isfinite([wide.get(name) for name in names]).any(axis=0)
            note = " × duration" if rate else ""
            wide.offer("flop_tensor", np.where(is_known, total, np.nan),
                       f"sm__ops_path_tensor_src_*.sum{rate} (floating point){note}")  # fmt: skip
    active = _first(wide, [source for _, source in _LINES["tensor"]])
    _offered(wide, seconds, "tensor")
    _tensor_silent(wide, active)
    # NVIDIA's chart counts instructions × 512 where it does so at all; elsewhere the share of the pipe says more
    if any(_INPUTS["chart"].fullmatch(name) for name in wide.columns.columns):
        _tensor_instructions(wide, seconds)
    floating, integer = _shares(wide, _INPUTS["floating share"]), np.nan_to_num(_shares(wide, _INPUTS["integer share"]))
    part = np.where(floating > 0, floating / np.where(floating > 0, floating + integer, 1), 1.0)
    source = f"share of the tensor pipe × its fp16 peak × duration ({ESTIMATE}: half that with tf32 operands)"
    wide.offer("flop_tensor", active / 100 * part * peak_flop_per_s * seconds, source)
    _tensor_instructions(wide, seconds)


def _tensor_peaks(report: CounterReport, wide: _Wide) -> np.ndarray:
    """Dense fp16 peak of the tensor cores per action at the clock that was measured; NaN for an unknown GPU."""
    peaks = {}
    for device_id, attributes in report.device_attributes.items():
        known = peaks_of_ncu_attributes(attributes)
        clock_hz = float(attributes.get("clock_rate") or 0) * 1000
        tensor_peak = known.peak("fp16_tensor") if known else None
        peaks[device_id] = (tensor_peak or np.nan, clock_hz or np.nan)
    unknown = (np.nan, np.nan)
    pairs = np.array([peaks.get(device_id, unknown) for device_id in report.actions["device_id"].tolist()], dtype=float)
    peak, nominal_hz = pairs.reshape(-1, 2).T
    measured_hz = wide.get("sm__cycles_elapsed.avg.per_second")
    ratio = measured_hz / nominal_hz
    return peak * np.where(np.isfinite(ratio), ratio, 1.0)


def _tensor_path_names(wide: _Wide, rate: str) -> list[str]:
    """The aggregate operation counters: per operand type the total, else its dense and sparse parts.

    Names with ``_op_`` are parts of the same totals and integer types are not counted as flop.
    """
    found: dict[str, dict[str, str]] = {}
    for name in wide.columns.columns:
        match = _INPUTS["tensor path"].fullmatch(name)
        if match and (match["rate"] or "") == rate and not match["type"].startswith("int"):
            found.setdefault(match["type"], {})[match["sparsity"] or ""] = name
    return [
        name for variants in found.values() for name in ([variants[""]] if "" in variants else list(variants.values()))
    ]


def _shares(wide: _Wide, pattern: re.Pattern[str]) -> np.ndarray:
    """Highest recorded share (percent) among the metrics of a pattern, NaN where none."""
    columns = [wide.get(name) for name in wide.columns.columns if pattern.fullmatch(name)]
    if not columns:
        return np.full(len(wide.action_ids), np.nan)
    return np.fmax.reduce(columns)


def _tensor_silent(wide: _Wide, active: np.ndarray) -> None:
    """Zero flop where the report says that the tensor pipe did nothing, or integer work only."""
    floating, integer = _shares(wide, _INPUTS["floating share"]), _shares(wide, _INPUTS["integer share"])
    wide.offer("flop_tensor", np.where(active == 0, 0.0, np.nan), "tensor pipe idle")
    only_integer = ~(floating > 0) & (integer > 0)
    wide.offer("flop_tensor", np.where(only_integer, 0.0, np.nan), INTEGER_ONLY)


def _tensor_instructions(wide: _Wide, seconds: np.ndarray) -> None:
    """Warp-level tensor instructions × 512: an estimate, the flop of one depend on its shape."""
    note = f" × {TENSOR_INSTRUCTION_FLOP} ({ESTIMATE}: depends on the shape of the instruction)"
    parts = [name for name in _TENSOR_PIPE_INSTRUCTIONS if name in wide]
    if parts:
        total = np.nansum([wide.get(name) for name in parts], axis=0)
        wide.offer("flop_tensor", total * TENSOR_INSTRUCTION_FLOP, " + ".join(parts) + note)
    for unit in ("sm", "smsp"):
        name = f"{unit}__inst_executed_pipe_tensor.sum"
        wide.offer("flop_tensor", wide.get(name) * TENSOR_INSTRUCTION_FLOP, name + note)
        cycles, cycles_name = _cycles(wide, unit, seconds)
        wide.offer("flop_tensor", wide.get(f"{name}.per_cycle_elapsed") * cycles * TENSOR_INSTRUCTION_FLOP,
                   f"{name}.per_cycle_elapsed × {cycles_name}{note}")  # fmt: skip


def _total_flop(wide: _Wide) -> None:
    """flop = sum of the pipes that were recorded; the source lists them, and says what was not.

    No total where it would be a zero made of what was not recorded: fp32 must be there, or something counted.
    """
    names = ("flop_fp64", "flop_fp32", "flop_fp16", "flop_tensor")
    parts = np.array([wide.known(name) for name in names])
    known = np.isfinite(parts)
    total = np.nansum(parts, axis=0)
    total = np.where(known[names.index("flop_fp32")] | (total > 0), total, np.nan)
    none = np.full(len(wide.action_ids), "", object)
    sources = np.array([wide.sources.get(name, none) for name in names])
    # what integer work computed is not counted as flop, and not known
    total = np.where(sources[names.index("flop_tensor")] == INTEGER_ONLY, np.nan, total)
    # One text per combination of recorded and estimated parts: at most a few.
    estimated = np.array([[ESTIMATE in source for source in row] for row in sources], bool) & (parts > 0)
    key = (known * 1 + estimated * 2).T
    unique, inverse = np.unique(key, axis=0, return_inverse=True)
    texts = np.array([_flop_source(names, row) for row in unique], dtype=object)
    wide.offer("flop", total, texts[inverse.ravel()] if len(texts) else np.zeros(0, object))


def _flop_source(names: tuple[str, ...], key: np.ndarray) -> str:
    present = [name for name, state in zip(names, key) if state & 1]
    absent = [name for name, state in zip(names, key) if not state & 1]
    text = " + ".join(present)
    if absent:
        text += f"; not recorded: {', '.join(absent)}"
    return f"{text} ({ESTIMATE})" if (key & 2).any() else text


def _offered(wide: _Wide, seconds: np.ndarray, block: str) -> None:
    """What a block of quantities.txt says, the first line of a quantity first."""
    for quantity, source in _LINES[block]:
        name, *factors = source.split(" × ")
        values = wide.get(name) / (100 if "_pct" in name or ".pct_" in name else 1)
        for factor in factors:
            values = values * (seconds if factor == "duration" else float(factor.removesuffix(" B")))
        wide.offer(quantity, values, source)


def _memory(wide: _Wide, seconds: np.ndarray) -> None:
    """Bytes between DRAM and L2, and through L2."""
    _offered(wide, seconds, "directions")
    total = wide.known("dram_read_bytes") + wide.known("dram_write_bytes")
    wide.offer("dram_bytes", total, "dram_read_bytes + dram_write_bytes")
    _offered(wide, seconds, "totals")


def _peaks(wide: _Wide) -> None:
    """Roofs at the clocks that were measured: 2 flop × fma per cycle × clock; bytes per cycle × clock."""
    clock = wide.get("sm__cycles_elapsed.avg.per_second")
    half = _half_factors(wide)[0]["hfma"]
    for quantity, op, factor in (("peak_fp64_flop_per_s", "dfma", 2), ("peak_fp32_flop_per_s", "ffma", 2),
                                 ("peak_fp16_flop_per_s", "hfma", half)):  # fmt: skip
        name = f"sm{_SASS.format(op)}.peak_sustained"
        wide.offer(quantity, factor * wide.get(name) * clock, f"{factor} × {name} × sm clock")
    name = "dram__bytes.sum.peak_sustained"
    dram_clock = wide.get("dram__cycles_elapsed.avg.per_second")
    wide.offer("peak_dram_bytes_per_s", wide.get(name) * dram_clock, f"{name} × dram clock")


def _first(wide: _Wide, names: list[str]) -> np.ndarray:
    """Per action the first recorded metric of a list."""
    result = wide.get(names[0])
    for name in names[1:]:
        result = np.where(np.isnan(result), wide.get(name), result)
    return result


def combined_flop(metrics: pd.DataFrame) -> pd.DataFrame:
    """Total flop of kernels whose pipes were counted in several reports: rows of `kernel_metrics` named ``flop``.

    `metrics` has kernel_id, metric_name, value, unit, source; only kernels whose pipes give another total than
    their ``flop`` row says are returned.
    """
    names = ("flop_fp64", "flop_fp32", "flop_fp16", "flop_tensor")
    rows = metrics[metrics["metric_name"].isin([*names, "flop"])]
    wide = rows.pivot(index="kernel_id", columns="metric_name", values="value").reindex(columns=[*names, "flop"])
    total = wide[list(names)].sum(axis=1, min_count=1)
    is_same = np.isclose(total, wide["flop"], rtol=1e-12, atol=0)  # estimates are summed in another order there
    sources = rows["source"].astype(object).str
    integer = rows[(rows["metric_name"] == "flop_tensor") & sources.startswith(INTEGER_ONLY)]["kernel_id"]
    differs = total.notna() & (wide["flop_fp32"].notna() | (total > 0)) & ~is_same & ~wide.index.isin(integer)
    if not differs.any():
        return metrics.iloc[:0]
    estimated = rows[rows["source"].astype(object).str.contains(ESTIMATE) & (rows["value"] > 0)]["kernel_id"]
    ids = total.index[differs]
    notes = np.where(ids.isin(estimated), f" ({ESTIMATE})", "")
    source = np.array([f"sum of the pipes over several reports{note}" for note in notes], dtype=object)
    return pd.DataFrame(
        {"kernel_id": ids, "metric_name": "flop", "value": total[differs].to_numpy(), "unit": "flop", "source": source}
    )
