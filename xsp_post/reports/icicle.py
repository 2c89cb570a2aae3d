"""The folded tree of the terminal as an icicle: equal siblings are one box, the work launched in a range is below it.

Widths add up to the device work of the capture. What is too small to draw is folded into ``[n more]`` under its parent,
never dropped.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths
from xsp_post.arrays.repeats import fold_with_targets, summed
from xsp_post.model.results import Results, of_captures
from xsp_post.model.schemas import units
from xsp_post.reports.blocks import Block, Drawing, Note
from xsp_post.reports.pick import layer_of_node, starred
from xsp_post.reports.text import short_kernels, visible_series
from xsp_post.tables.analyses.cases import deepest_capture

NODE_LIMIT = 2400
_AMOUNTS = ["call_count", "host_ns", "device_ns", "busy_ns", "kernel_count"]


def data(results: Results, capture_id: int | None = None, limit: int = NODE_LIMIT) -> pd.DataFrame:
    """The folded tree of one capture, at most about ``limit`` rows, parents before children.

    Columns: parent (row number, −1 root), name, full_name, level (KERNEL for leaves, FOLDED for ``[n more]``),
    call_count, host_ns (summed host length), device_ns, busy_ns (summed over calls), kernel_count,
    layer_index, is_inferred.
    """
    capture_id = deepest_capture(results) if capture_id is None else capture_id
    paths = of_captures(results, "paths", capture_id).drop(columns="capture_id")
    if paths.empty:
        return pd.DataFrame()
    folded, target = fold_with_targets(paths)
    names = np.array(folded["shown_name"], dtype=object)
    counts = folded["repeat_count"].to_numpy()
    for row in np.flatnonzero(folded["is_folded"].to_numpy(bool)).tolist():
        first, _, last = str(names[row]).partition(" … ")
        names[row] = (f"{counts[row]} × " if counts[row] > 1 else "") + starred((first, last or first))
    layer = _layer_of_path(results, capture_id, target)
    ranges = pd.DataFrame({
        "parent_path": folded["parent_path_id"], "path_id": folded["path_id"], "first_ns": folded["first_start_ns"],
        "name": visible_series(pd.Series(names, folded.index)), "level": folded["level"].astype(object),
        "call_count": folded["call_count"], "host_ns": folded["duration_ns"], "device_ns": folded["device_ns"],
        "busy_ns": folded["busy_ns"].fillna(0), "kernel_count": folded["kernel_count"],
        "is_inferred": folded["is_inferred"].astype(bool), "layer_index": folded["path_id"].map(layer),
    })  # fmt: skip
    leaves = _leaves(results, capture_id, target)
    leaves["layer_index"] = leaves["parent_path"].map(layer)
    tree = pd.concat([ranges.assign(full_name=ranges["name"]), leaves], ignore_index=True)
    row_of_path = pd.Series(np.arange(len(ranges)), index=ranges["path_id"])
    tree["parent"] = tree["parent_path"].map(row_of_path).fillna(-1).astype("int64")
    return _prune(tree.fillna({"layer_index": -1}), limit)


def _leaves(results: Results, capture_id: int, target: pd.Series) -> pd.DataFrame:
    """The device work of each row by name."""
    work = of_captures(results, "operations", capture_id)
    work = work.assign(path_id=work["path_id"].map(target), kernel_count=work["operation_count"].where(
        work["kind"].astype(object).eq("kernel"), 0))  # fmt: skip
    sums = summed(work, ["path_id", "name"], dict.fromkeys(("operation_count", "device_ns", "kernel_count"), "sum"))
    return pd.DataFrame({
        "parent_path": sums["path_id"], "name": short_kernels(sums["name"]), "full_name": visible_series(sums["name"]),
        "level": "KERNEL", "call_count": sums["operation_count"], "host_ns": 0, "device_ns": sums["device_ns"],
        "busy_ns": sums["device_ns"], "kernel_count": sums["kernel_count"], "is_inferred": False,
        "first_ns": np.iinfo("int64").max,
    })  # fmt: skip


def _layer_of_path(results: Results, capture_id: int, target: pd.Series) -> pd.Series:
    """layer_index by row of the folded tree, of layers and of everything inside them."""
    index = layer_of_node(results, capture_id)
    nodes = of_captures(results, "nodes", capture_id, ["path_id", "layer_node_id"])
    found = pd.DataFrame({"path": nodes["path_id"].map(target), "layer": nodes["layer_node_id"].map(index)}).dropna()
    return found.drop_duplicates("path").set_index("path")["layer"]


def _prune(tree: pd.DataFrame, limit: int) -> pd.DataFrame:
    """The heaviest rows with all their ancestors; what is left out is summed per parent into ``[n more]``."""
    parent = tree["parent"].to_numpy()
    weight = np.maximum(*(tree[c].to_numpy("float64") / max(tree[c].max(), 1) for c in ("device_ns", "host_ns")))
    keep = np.zeros(len(tree), dtype=bool)
    keep[np.argsort(-weight, kind="stable")[:limit]] = True
    keep |= (parent < 0) | forest_of(parent).around(keep)
    # a dropped row whose parent is dropped too is inside that parent's sums already
    dropped = tree[~keep & keep[np.maximum(parent, 0)]]
    rest = dropped.assign(call_count=1).groupby("parent")[_AMOUNTS].sum().reset_index()
    rest["name"] = "[" + rest["call_count"].astype(str) + " more]"
    rest = rest.assign(full_name=rest["name"], level="FOLDED", layer_index=-1, is_inferred=False,
                       first_ns=np.iinfo("int64").max)  # fmt: skip
    kept = tree[keep]
    row_of = pd.Series(np.arange(len(kept)), index=kept.index)
    result = pd.concat([kept, rest], ignore_index=True)
    result["parent"] = result["parent"].map(row_of).fillna(-1).astype("int64")
    result = result.assign(depth=depths(result["parent"].to_numpy())).sort_values(["depth", "first_ns"], kind="stable")
    position = pd.Series(np.arange(len(result)), index=result.index)
    result["parent"] = result["parent"].map(position).fillna(-1).astype("int64")
    columns = ["parent", "name", "full_name", "level", *_AMOUNTS, "layer_index", "is_inferred"]
    return result[columns].reset_index(drop=True).astype(dict.fromkeys([*_AMOUNTS, "layer_index"], "int64"))


def blocks(results: Results) -> list[Block]:
    """The drawing and what it leaves out; none where nothing has a width."""
    frame = data(results)
    if frame.empty or not frame[["host_ns", "device_ns"]].to_numpy().any():
        return []
    caption = (
        "Width is time: on the device (kernels, copies and graphs, summed) or on the host (length of the ranges). "
    )
    caption += "Repeated calls of one path are one box; the kernels and copies of a range are below it."
    folded = int(frame.loc[frame["level"].eq("FOLDED"), "call_count"].sum())
    found: list[Block] = [Drawing("tree", "icicle", {"tree": frame}, caption)]
    if folded:
        said = f"{units.format_count(folded)} paths too small to draw are folded into “[n more]” boxes under their "
        found.append(Note(said + "parents; “xsp-post tree STORE” prints them all.", "folded"))
    return found
