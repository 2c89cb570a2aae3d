"""Tree → core tables: ``captures`` and ``iterations``."""

import numpy as np
import pandas as pd

from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL, Level
from xsp_post.model.schemas import column_names
from xsp_post.model.trace import Provenance
from xsp_post.model.tree import Tree
from xsp_post.names import range_text
from xsp_post.tables.core.columns import on_one_gpu
from xsp_post.tables.core.devices import busy_per_gpu


def captures_frame(tree: Tree, iterations: pd.DataFrame) -> pd.DataFrame:
    batches = iterations["batch_size"].to_numpy()
    provenance = tree.trace.provenance
    batch = int(batches[0]) if len(batches) and (batches == batches[0]).all() else provenance.batch_size
    row = {name: getattr(provenance, name) for name in _OF_PROVENANCE} | amounts_of_capture(tree) | {
        "level": provenance.level or _level_of(tree), "batch_size": batch, "level_rule": tree.level_rule,
        "execution_evidence": tree.execution_evidence, "layer_evidence": tree.layer_evidence,
        "clock_utc_ns": _clock_utc(provenance, int(tree.nodes["start_ns"].iloc[0])),
        "process_count": len(tree.trace.processes),
    }  # fmt: skip
    return pd.DataFrame([{name: row[name] for name in column_names("captures") if name in row}])


_OF_PROVENANCE = (
    "collector", "source_name", "tool_version", "schema_version", "workload_name", "framework", "gpu_name",
    "file_operation_count", "clock_offset_ns", "run_process", "is_partial",
)  # fmt: skip


def amounts_of_capture(tree: Tree) -> dict[str, int | float]:
    """How much the capture holds, by column of ``captures``."""
    root, busy = tree.nodes.iloc[0], busy_per_gpu(tree)
    return {
        **{column: int(root[column]) for column in _OF_ROOT},
        "gpu_count": len(busy),
        # one GPU's union; several have a row each in `devices`
        "busy_ns": float(busy.sum()) if len(busy) < 2 else np.nan,
        "duration_ns": int(root["end_ns"] - root["start_ns"]),
    }


_OF_ROOT = ("kernel_count", "copy_count", "graph_count", "device_ns", "kernel_ns", "copy_ns", "graph_ns")
_SINCE_1970_NS = 10**18  # times of this size count from 1970 already


def _clock_utc(provenance: Provenance, first_ns: int) -> int:
    """What makes times of a trace into ns since 1970; −1 where the file does not say when it was recorded."""
    if first_ns >= _SINCE_1970_NS:
        return 0
    if provenance.session_start_utc_ns < _SINCE_1970_NS:
        return -1
    # nsys states when its clock was 0; the other readers when the first event was
    return provenance.session_start_utc_ns - (0 if provenance.collector == "nsys" else first_ns)


def _level_of(tree: Tree) -> str:
    """The deepest profiler that was on, judged by what is in the capture."""
    if len(tree.activities):
        return RUN_KERNEL
    return RUN_LAYER if (tree.nodes["level"].to_numpy() == int(Level.LAYER)).any() else RUN_MODEL


def iterations_frame(tree: Tree) -> pd.DataFrame:
    frame = tree.iterations.copy()
    frame["iteration_index"] = np.arange(len(frame), dtype=np.int64)
    activities = tree.activities
    where = (activities[c].to_numpy(np.int64) for c in ("iteration_index", "gpu_index"))
    frame["busy_ns"] = on_one_gpu(frame["busy_ns"].to_numpy(), *where)
    of_text = frame["batch_size"].to_numpy()
    frame["batch_size"] = np.where(of_text > 0, of_text, _batch_sizes(tree, frame))
    frame["phase"] = frame["phase"].astype(object)
    process = tree.trace.processes["process_id"].to_numpy(np.int64)
    frame["process_id"] = process[frame["process_index"].to_numpy()] if len(frame) else np.zeros(0, np.int64)
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
        domains = np.append(tree.trace.domains["name"].to_numpy(object), "")
        is_own = domains[tree.trace.spans["domain_index"].to_numpy()[span[inside]]] == range_text.DOMAIN
        for row, text_id in zip(np.flatnonzero(inside)[is_own].tolist(), payload[is_own].tolist()):
            text = str(tree.strings[text_id]) if text_id >= 0 else ""
            if text.isdigit() and int(text) > 0:
                result[row] = int(text)
    return result
