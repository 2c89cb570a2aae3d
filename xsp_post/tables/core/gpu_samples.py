"""Tree → core tables: ``gpu_samples``, metrics of the GPU weighted onto executions and layers by the time that their
device work shares with each sample; and ``gpu_timeline``, the samples."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import means, shares
from xsp_post.arrays.intervals import grouped_union, union
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.base.findings import Finding, finding, if_any
from xsp_post.model.results import empty_table
from xsp_post.model.schemas import column_names
from xsp_post.model.schemas.frames import METRIC_COLUMNS
from xsp_post.model.schemas.units import format_hz, format_ratio_percent
from xsp_post.model.tree import Tree

LEAST_SAMPLES = 5
# A clock fell: so far below the highest one, for such a share of the busy time, in samples that are so full of work.
_FALLEN_RATIO, _FALLEN_SHARE, _FULL_RATIO = 0.9, 0.05, 0.5
_REACHED_RATIO = 0.98
_SCOPES = ("capture", "execution", "layer")


def gpu_sample_frames(tree: Tree) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """Both tables, without rows where nothing was sampled; and where a clock fell, or samples were too few."""
    samples = tree.trace.gpu_samples()
    if samples.empty:
        return {name: empty_table(name).drop(columns="capture_id") for name in ("gpu_samples", "gpu_timeline")}, []
    found: list[Finding] = []
    parts = []
    for gpu in np.unique(samples["gpu_index"].to_numpy()).tolist():
        of_gpu = samples[samples["gpu_index"] == gpu].reset_index(drop=True)
        work = tree.activities[tree.activities["gpu_index"].to_numpy() == gpu]
        parts += [_scope(tree, of_gpu, work, scope, gpu) for scope in _SCOPES]
        found += _fallen_clock(of_gpu, work, gpu)
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    few = (table["sample_count"] < LEAST_SAMPLES) & (table["scope"] == "layer")
    found += if_any("gpu-samples-few", few.to_numpy(), lambda row: table["layer_path"].iloc[row])
    return {"gpu_samples": table, "gpu_timeline": samples.copy()}, found


def _owners(tree: Tree, work: pd.DataFrame, scope: str) -> np.ndarray:
    """The execution or layer of each device activity, −1 none."""
    if scope == "capture":
        return np.zeros(len(work), np.int64)
    iteration = work["iteration_index"].to_numpy().astype(np.int64)
    if scope == "execution":
        return iteration
    is_warmup = tree.iterations["is_warmup"].to_numpy(bool)
    key = np.append(tree.nodes["layer_key"].to_numpy(), -1)[work["layer_node_id"].to_numpy()]
    return key if is_warmup.all() else np.where(np.append(is_warmup, False)[iteration], -1, key)


def _scope(tree: Tree, samples: pd.DataFrame, work: pd.DataFrame, scope: str, gpu: int) -> pd.DataFrame:
    """Rows of one scope and GPU: one per owner with device work."""
    owner = _owners(tree, work, scope)
    chosen = owner >= 0
    start, end = work["start_ns"].to_numpy()[chosen], work["end_ns"].to_numpy()[chosen]
    held, start, end = grouped_union(owner[chosen], start, end)
    found = shares(held, start, end, samples["start_ns"].to_numpy(), samples["end_ns"].to_numpy())
    owners, code = np.unique(held, return_inverse=True)
    found.owner = np.searchsorted(owners, found.owner)
    count = len(owners)
    busy, covered = sums_per_node(code, end - start, count), sums_per_node(found.owner, found.length, count)
    sample_count = np.bincount(found.owner, minlength=count)
    is_layer = scope == "layer"
    paths = tree.layer_keys["layer_path"].to_numpy(object)[owners] if is_layer and count else np.full(count, "", object)
    frame = pd.DataFrame({
        "gpu_index": np.full(count, gpu, np.int64), "scope": np.full(count, scope, object),
        "iteration_index": tree.iteration_numbers[owners] if scope == "execution" else np.full(count, -1, np.int64),
        "layer_index": owners + 1 if is_layer else np.full(count, -1, np.int64), "layer_path": paths,
        "sample_count": sample_count, "covered_ns": covered, "busy_ns": busy,
    })  # fmt: skip
    values = {name: means(found, samples[name].to_numpy(float)[found.sample], count) for name in METRIC_COLUMNS}
    values["purity_ratio"] = means(found, found.ratio, count)
    values["dram_bytes_per_s"] = values["dram_ratio"] * _bandwidth(tree, gpu)
    for name, value in values.items():
        frame[name] = np.where(sample_count >= LEAST_SAMPLES, value, np.nan)
    return frame[[name for name in column_names("gpu_samples") if name in frame]]


def _bandwidth(tree: Tree, gpu: int) -> float:
    devices = tree.trace.devices
    if "memory_bandwidth_bytes_per_s" not in devices:
        return float("nan")
    known = devices.loc[devices["gpu_index"] == gpu, "memory_bandwidth_bytes_per_s"].dropna()
    return float(known.iloc[0]) if len(known) else float("nan")


def _fallen_clock(samples: pd.DataFrame, work: pd.DataFrame, gpu: int) -> Iterator[Finding]:
    """A finding where the clock was clearly lower than it had been, while the GPU was busy."""
    start, end = union(work["start_ns"].to_numpy(), work["end_ns"].to_numpy())
    found = shares(np.zeros(len(start), np.int64), start, end, samples["start_ns"].to_numpy(),
                   samples["end_ns"].to_numpy())  # fmt: skip
    clock = samples["gpc_clock_hz"].to_numpy(float)[found.sample]
    full = (found.ratio >= _FULL_RATIO) & (clock > 0)
    clock, length = clock[full], found.length[full].astype(float)
    if len(clock) < LEAST_SAMPLES:
        return
    highest = float(clock.max())
    after = int(np.argmax(clock >= _REACHED_RATIO * highest))
    clock, length = clock[after:], length[after:]
    slow = clock <= _FALLEN_RATIO * highest
    share = float(length[slow].sum() / length.sum())
    if int(slow.sum()) >= LEAST_SAMPLES and share >= _FALLEN_SHARE:
        mean = float(np.average(clock[slow], weights=length[slow]))
        said = f"GPU {gpu}: {format_hz(mean)} in {format_ratio_percent(share)} of its busy time"
        yield finding("gpu-clock-fell", count=int(slow.sum()), example=f"{said}, after {format_hz(highest)}")
