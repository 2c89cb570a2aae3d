"""Tree → core tables: ``captures``, ``iterations`` and ``devices``."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import union_length
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL, Level
from xsp_post.model.tree import Tree
from xsp_post.schemas import TABLES, column_names


def captures_frame(tree: Tree, batches: np.ndarray | None = None) -> pd.DataFrame:
    provenance, activities = tree.trace.provenance, tree.activities
    start, end = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    device = activities["device_id"].to_numpy().astype(np.int64)
    process = activities["process_index"].to_numpy().astype(np.int64)
    root = tree.nodes.iloc[0]
    places = pd.unique(process * 4096 + device)
    busy = int(root["busy_ns"])
    if len(places) > 1:  # the union is per device; the root's is over all of them
        busy = 0
        for one in places.tolist():
            mine = (process * 4096 + device) == one
            busy += union_length(start[mine], end[mine])
    known = batches is not None and len(batches) and (batches == batches[0]).all()
    batch = int(batches[0]) if known and batches is not None else provenance.batch_size
    return pd.DataFrame(
        [
            {
                "level": provenance.level or _level_of(tree),
                "collector": provenance.collector,
                "source_name": provenance.source_name,
                "tool_version": provenance.tool_version,
                "schema_version": provenance.schema_version,
                "workload_name": provenance.workload_name,
                "framework": provenance.framework,
                "gpu_name": provenance.gpu_name,
                "batch_size": batch,
                "kernel_count": int(root["kernel_count"]),
                "copy_count": int(root["copy_count"]),
                "graph_count": int(root["graph_count"]),
                **{column: int(root[column]) for column in ("device_ns", "kernel_ns", "copy_ns", "graph_ns")},
                "busy_ns": busy,
                "duration_ns": int(root["end_ns"] - root["start_ns"]),
                "level_rule": tree.level_rule,
                "execution_evidence": tree.execution_evidence,
                "layer_evidence": tree.layer_evidence,
                "clock_offset_ns": provenance.clock_offset_ns,
                "process_count": len(tree.trace.processes),
                "is_partial": provenance.is_partial,
            }
        ]
    )


def _level_of(tree: Tree) -> str:
    """The deepest profiler that was on, judged by what is in the capture."""
    if len(tree.activities):
        return RUN_KERNEL
    return RUN_LAYER if (tree.nodes["level"].to_numpy() == int(Level.LAYER)).any() else RUN_MODEL


def iterations_frame(tree: Tree) -> pd.DataFrame:
    frame = tree.iterations.copy()
    frame["iteration_index"] = np.arange(len(frame), dtype=np.int64)
    of_text = frame["batch_size"].to_numpy()
    frame["batch_size"] = np.where(of_text > 0, of_text, _batch_sizes(tree, frame))
    frame["phase"] = frame["phase"].astype(object)
    return frame[[c for c in column_names("iterations") if c in frame]]


def _batch_sizes(tree: Tree, frame: pd.DataFrame) -> np.ndarray:
    """Inputs per iteration: the payload of our own model ranges, else what the capture's manifest said."""
    default = tree.trace.provenance.batch_size
    result = np.full(len(frame), default, np.int64)
    attributes = tree.trace.attributes
    span = frame["node_id"].to_numpy() - 1
    inside = span < len(tree.trace.spans)
    if "batch_size" in attributes:
        values = attributes["batch_size"].reindex(span[inside]).to_numpy(float)
        result[inside] = np.where(np.isnan(values) | (values <= 0), result[inside], values)
    if "payload_text_id" in tree.trace.spans:
        payload = tree.trace.spans["payload_text_id"].to_numpy()[span[inside]]
        own = tree.level_rule.startswith("own ranges")
        for row, text_id in zip(np.flatnonzero(inside).tolist(), payload.tolist()):
            text = str(tree.strings[text_id]) if text_id >= 0 else ""
            if own and text.isdigit() and int(text) > 0:
                result[row] = int(text)
    return result


def devices_frame(tree: Tree) -> pd.DataFrame:
    """The devices table; what a capture does not say of its GPU is −1, NaN or ''."""
    devices = tree.trace.devices
    unknown: dict[str, int | float | str] = {"int64": -1, "float64": np.nan, "str": ""}
    frame = pd.DataFrame(index=pd.RangeIndex(len(devices)))
    process = tree.trace.processes["process_id"].to_numpy()
    for column in TABLES["devices"].columns[1:]:
        if column.name == "process_id":
            index = devices["process_index"].to_numpy(int) if len(devices) else np.zeros(0, int)
            frame[column.name] = process[index] if len(index) else np.zeros(0, np.int64)
        elif column.name in devices:
            frame[column.name] = devices[column.name].to_numpy()
        else:
            frame[column.name] = unknown[column.dtype]
    return frame
