"""Results → the tables of replays that a store keeps: the identity replay's error, and one critical path a capture."""

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import categorical
from xsp_post.base.findings import Finding
from xsp_post.hardware.gpus import peaks_of_device
from xsp_post.model.results import Results, of_captures
from xsp_post.model.schemas import column_names
from xsp_post.replay.critical_path import measured_path
from xsp_post.replay.executions import measure, recorded_clock
from xsp_post.replay.experiment import run_experiment
from xsp_post.replay.fidelity import Identity, identity_of

_OF_IDENTITY = ("measured_ns", "replayed_ns", "error_ratio", "orphan_ratio", "refusal")
LEAST_ROOF_RATIO = 0.5  # of its roof, from which on work is limited by that: of a kernel's time, what its bytes need


def replay_frames(results: Results) -> dict[str, pd.DataFrame]:
    """The tables ``replays`` and ``critical_path``, for captures with device work."""
    rows, paths = [], []
    for capture_id in results.frame("captures", ["capture_id"])["capture_id"]:
        identity = identity_of(results, int(capture_id))
        if not len(identity.graph.recording.operations):
            continue
        rows.append({
            "capture_id": int(capture_id), "execution": identity.executions.label,
            "execution_count": len(identity.executions.index),
            **{name: vars(identity)[name] for name in _OF_IDENTITY},
        })  # fmt: skip
        paths.append(path_rows(int(capture_id), identity))
    paths = paths or [pd.DataFrame(columns=column_names("critical_path"))]
    path = pd.concat(paths, ignore_index=True) if len(paths) > 1 else paths[0]
    return {"replays": pd.DataFrame(rows, columns=column_names("replays")), "critical_path": path}


def experiment_frame(results: Results) -> tuple[pd.DataFrame, list[Finding]]:
    """The table ``experiment``: what each resource at half its time saves, for captures that can be replayed."""
    rows, findings = [], []
    for capture_id in results.frame("captures", ["capture_id"])["capture_id"]:
        identity = identity_of(results, int(capture_id))
        found, raised = run_experiment(identity, _is_bandwidth(results, int(capture_id), identity))
        rows += [{"capture_id": capture_id, "is_part": identity.graph.recording.is_part, **row} for row in found]
        findings += raised
    return pd.DataFrame(rows, columns=column_names("experiment")), findings


def _is_bandwidth(results: Results, capture_id: int, identity: Identity) -> np.ndarray | None:
    """Operations whose least bytes take `LEAST_ROOF_RATIO` of their time at the peak of their GPU; None where
    no bytes, or no peak, are known."""
    work = of_captures(results, "kernel_work", capture_id, ["kernel_id", "read_bytes", "written_bytes"])
    bytes_ = (work["read_bytes"] + work["written_bytes"]).dropna()
    if bytes_.empty:
        return None
    devices = of_captures(results, "devices", capture_id).drop_duplicates("gpu_name", keep="last").to_dict("records")
    peak = peaks_of_device({str(k): v for k, v in devices[0].items()}) if len(devices) == 1 else None
    if peak is None or not peak.memory_bandwidth_bytes_per_s:
        return None
    moved = bytes_.groupby(work["kernel_id"]).sum()
    operations = identity.graph.recording.operations
    least_ns = moved.reindex(operations.kernel).to_numpy(float) / peak.memory_bandwidth_bytes_per_s * 1e9
    return least_ns >= LEAST_ROOF_RATIO * operations.duration_ns


def path_rows(capture_id: int, identity: Identity) -> pd.DataFrame:
    """The recorded critical path of the measured executions; neighbours that are alike are one row."""
    graph, executions = identity.graph, identity.every_execution
    clock = recorded_clock(graph)
    path, process = measured_path(graph, executions, clock, identity.replayed.steps)
    if path.empty:  # executions without any host call or device work
        return pd.DataFrame(columns=column_names("critical_path"))
    operation, layer = path["operation_index"].to_numpy(), path["layer_index"].to_numpy()
    names, kind = graph.recording.operations.name, path["kind"].array
    name = np.where(operation >= 0, names.codes[operation], -1)
    mine = np.flatnonzero(executions.process == process)
    begun = np.searchsorted(measure(executions, clock)["begin_ns"].to_numpy()[mine], path["start_ns"], side="right")
    index = executions.index[mine[np.maximum(begun - 1, 0)]]
    is_new = np.append(True, np.zeros(len(path) - 1, bool))
    for of in (kind.codes, name, layer, index):
        is_new[1:] |= of[1:] != of[:-1]
    group, first = np.cumsum(is_new) - 1, np.flatnonzero(is_new)
    last = np.append(first[1:], len(path)) - 1
    start = path["start_ns"].to_numpy()[first] + graph.begin_ns
    end = path["end_ns"].to_numpy()[last] + graph.begin_ns
    columns = {
        "capture_id": np.full(len(first), capture_id, np.int64),
        "iteration_index": np.where(index[first] < 0, np.nan, index[first]),
        "step_index": np.arange(len(first), dtype=np.int64),
        "kind": kind[first],
        "name": categorical(name[first], names.categories.to_numpy(object)),
        "layer_index": np.where(layer[first] < 0, np.nan, layer[first]),
        "operation_count": np.bincount(group[operation >= 0], minlength=len(first)),
        "start_ns": start,
        "end_ns": end,
        "duration_ns": end - start,
    }
    return pd.DataFrame({column: columns[column] for column in column_names("critical_path")}, copy=False)
