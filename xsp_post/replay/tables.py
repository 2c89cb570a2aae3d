"""Results → the tables of replays that a store keeps: the identity replay's error, and one critical path a capture."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.model.results import Results
from xsp_post.replay.executions import recorded_clock
from xsp_post.replay.fidelity import Identity, identity_of
from xsp_post.replay.what_if import middle_execution, path_of_execution
from xsp_post.schemas import column_names

MOST_OPERATIONS = 200_000  # of a capture whose replay is made at once; of larger ones when it is asked for


def replay_frames(results: Results) -> dict[str, pd.DataFrame]:
    """The tables ``replays`` and ``critical_path``, for captures with device work of up to `MOST_OPERATIONS`."""
    captures = results.frame("captures", ["capture_id", "kernel_count"])
    rows, paths = [], []
    for capture_id, kernel_count in captures.itertuples(index=False):
        if kernel_count > MOST_OPERATIONS:
            continue
        identity = identity_of(results, int(capture_id))
        if not len(identity.graph.recording.operations):
            continue
        rows.append(replay_row(int(capture_id), identity))
        paths.append(path_rows(int(capture_id), identity))
    path = pd.concat(paths, ignore_index=True) if paths else pd.DataFrame(columns=column_names("critical_path"))
    return {"replays": pd.DataFrame(rows, columns=column_names("replays")), "critical_path": path}


def replay_row(capture_id: int, identity: Identity) -> dict[str, object]:
    """What the identity replay of a capture gave."""
    return {
        "capture_id": capture_id,
        "execution": identity.executions.label,
        "execution_count": len(identity.executions.index),
        "measured_ns": identity.measured_ns,
        "replayed_ns": identity.replayed_ns,
        "error_ratio": identity.error_ratio,
        "orphan_ratio": identity.orphan_ratio,
        "refusal": identity.refusal,
    }


def path_rows(capture_id: int, identity: Identity) -> pd.DataFrame:
    """The recorded critical path of the middle execution; neighbours that are alike are one row."""
    graph, executions = identity.graph, identity.executions
    which = middle_execution(identity.recorded)
    path = path_of_execution(
        graph, executions, recorded_clock(graph), identity.recorded, which, identity.replayed.steps
    )
    if path.empty:  # an execution without any host call or device work
        return pd.DataFrame(columns=column_names("critical_path"))
    alike = np.zeros(len(path), bool)
    for name in ("kind", "name", "layer_index"):
        values = path[name].to_numpy()
        same = values[1:] == values[:-1]
        alike[1:] = same if name == "kind" else alike[1:] & same
    group = np.cumsum(~alike) - 1
    first = np.flatnonzero(~alike)
    last = np.append(first[1:], len(path)) - 1
    counts = np.bincount(group, weights=path["operation_index"].to_numpy() >= 0, minlength=len(first))
    zero = graph.begin_ns
    rows = path.iloc[first]
    layer = rows["layer_index"].to_numpy(float)
    start, end = rows["start_ns"].to_numpy() + zero, path["end_ns"].to_numpy()[last] + zero
    index = int(executions.index[which])
    frame = pd.DataFrame(
        {
            "capture_id": np.full(len(first), capture_id, np.int64),
            "iteration_index": np.full(len(first), np.nan if index < 0 else index, float),
            "step_index": np.arange(len(first), dtype=np.int64),
            "kind": rows["kind"].to_numpy(object),
            "name": rows["name"].to_numpy(object),
            "layer_index": np.where(layer < 0, np.nan, layer),
            "operation_count": counts.astype(np.int64),
            "start_ns": start.astype(np.int64),
            "end_ns": end.astype(np.int64),
            "duration_ns": (end - start).astype(np.int64),
        }
    )
    return frame[column_names("critical_path")]
