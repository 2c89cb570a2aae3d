"""The tree as an icicle. Nodes of equal folded path become one, with kernels below.

Siblings with equal insides are one box, as in the terminal's tree. Warm-up is left out where there are measured
executions; all other device work of the capture is counted: the widths add up to it.
What is too small to draw is folded into ``[n more]`` under its parent, never dropped.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import depths
from xsp_post.arrays.repeats import fold_with_targets
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas import units
from xsp_post.reports import pick
from xsp_post.reports.blocks import Block, Drawing, Note
from xsp_post.reports.facts import counted
from xsp_post.reports.layer_groups import starred
from xsp_post.reports.text import short_kernels, visible_series

NODE_LIMIT = 2400
_NODE_COLUMNS = [
    "node_id",
    "capture_id",
    "parent_id",
    "level",
    "folded_name",
    "path_id",
    "start_ns",
    "duration_ns",
    "device_ns",
    "busy_ns",
    "kernel_count",
    "is_inferred",
    "iteration_index",
]


def data(results: Results, capture_id: int | None = None, limit: int = NODE_LIMIT) -> pd.DataFrame:
    """The folded tree of one capture, at most about ``limit`` rows, parents before children.

    Columns: parent (row number, −1 root), name, full_name, level (KERNEL for leaves, FOLDED for ``[n more]``),
    call_count, host_ns (summed host length), device_ns, busy_ns (summed over calls), kernel_count,
    layer_index, is_inferred.
    """
    capture_id = pick.deepest_capture(results) if capture_id is None else capture_id
    nodes = frame_or_empty(results, "nodes", _NODE_COLUMNS)
    nodes = nodes[nodes["capture_id"].eq(capture_id)]
    if nodes.empty:
        return pd.DataFrame()
    nodes = _without_warmup(results, nodes, capture_id)
    target, names = _folded_siblings(results, capture_id)
    nodes = nodes.assign(path_id=nodes["path_id"].map(target).fillna(nodes["path_id"]).astype("int64"))
    paths = _fold_paths(nodes)
    paths["folded_name"] = paths["path_id"].map(names).astype(object).fillna(paths["folded_name"])
    leaves = _fold_kernels(results, nodes, capture_id)
    layer = _layer_of_path(results, nodes, capture_id)
    paths["layer_index"] = paths["path_id"].map(layer).fillna(-1).astype("int64")
    paths["full_name"] = visible_series(paths["folded_name"])
    paths["name"] = paths["full_name"]
    leaves["layer_index"] = leaves["parent_path"].map(layer).fillna(-1).astype("int64")
    tree = pd.concat([paths, leaves], ignore_index=True)
    row_of_path = pd.Series(np.arange(len(paths)), index=paths["path_id"])
    tree["is_inferred"] = tree["is_inferred"].eq(True)
    tree["parent"] = tree["parent_path"].map(row_of_path).fillna(-1).astype("int64")
    return _prune(tree, limit)


def warmup_of(results: Results, capture_id: int) -> pd.DataFrame:
    """The warm-up executions that the drawing leaves out; none where nothing else was executed."""
    iterations = frame_or_empty(results, "iterations", ["capture_id", "iteration_index", "device_ns", "is_warmup"])
    mine = iterations[iterations["capture_id"].eq(capture_id)]
    is_warmup = mine["is_warmup"].astype(bool)
    return mine[is_warmup] if not is_warmup.all() else mine.iloc[:0]


def _without_warmup(results: Results, nodes: pd.DataFrame, capture_id: int) -> pd.DataFrame:
    """The nodes that lie in no warm-up execution; what is around them without its share of the amounts."""
    warmup = warmup_of(results, capture_id)["iteration_index"]
    inside = nodes["iteration_index"].isin(warmup).to_numpy()
    if not inside.any():
        return nodes
    row_of_node = pd.Series(np.arange(len(nodes)), index=nodes["node_id"].to_numpy())
    parent = row_of_node.reindex(nodes["parent_id"].to_numpy()).fillna(-1).to_numpy(np.int64)
    columns = ["duration_ns", "device_ns", "kernel_count"]
    is_top = inside & ((parent < 0) | ~inside[np.maximum(parent, 0)])
    forest = forest_of(parent)
    changed = {name: nodes[name].to_numpy() for name in columns}
    changed = {name: np.maximum(one - forest.add_up(np.where(is_top, one, 0)), 0) for name, one in changed.items()}
    # a union cannot be had by subtraction
    return nodes.assign(**changed, busy_ns=nodes["busy_ns"].mask(forest.around(is_top), 0))[~inside]


def _folded_siblings(results: Results, capture_id: int) -> tuple[pd.Series, pd.Series]:
    """By path id: the path that it is drawn as, and the name of that row."""
    paths = frame_or_empty(results, "paths")
    paths = paths[paths["capture_id"].eq(capture_id)].drop(columns="capture_id")
    if paths.empty:
        return pd.Series(dtype="int64"), pd.Series(dtype=object)
    folded, target = fold_with_targets(paths)
    names, counts = np.array(folded["shown_name"], dtype=object), folded["repeat_count"].to_numpy()
    for row in np.flatnonzero(folded["is_folded"].to_numpy(bool)).tolist():
        first, _, last = str(names[row]).partition(" … ")
        names[row] = (f"{counts[row]} × " if counts[row] > 1 else "") + starred(first, last or first)
    return target, pd.Series(names, index=folded["path_id"].to_numpy())


def _fold_paths(nodes: pd.DataFrame) -> pd.DataFrame:
    """One row per folded path: sums over its nodes, and the path of its parent (−1 for roots)."""
    path_of_node = nodes.set_index("node_id")["path_id"]
    parent_path = nodes["parent_id"].map(path_of_node).fillna(-1).astype("int64")
    return (
        nodes.assign(parent_path=parent_path)
        .groupby("path_id", sort=False, observed=True)
        .agg(
            parent_path=("parent_path", "first"),
            folded_name=("folded_name", "first"),
            level=("level", "first"),
            call_count=("node_id", "size"),
            host_ns=("duration_ns", "sum"),
            device_ns=("device_ns", "sum"),
            busy_ns=("busy_ns", "sum"),
            kernel_count=("kernel_count", "sum"),
            first_ns=("start_ns", "min"),
            is_inferred=("is_inferred", "max"),
        )
        .reset_index()
        .astype({"level": object, "folded_name": object})
    )


def _fold_kernels(results: Results, nodes: pd.DataFrame, capture_id: int) -> pd.DataFrame:
    """One row per (folded path, kernel name): the leaves."""
    empty = pd.DataFrame(
        {
            "parent_path": np.array([], "int64"),
            "full_name": [],
            "name": [],
            "level": [],
            "call_count": [],
            "host_ns": [],
            "device_ns": [],
            "busy_ns": [],
            "kernel_count": [],
            "first_ns": [],
        }
    )
    kernels = _device_work(results, capture_id)
    kernels = kernels[kernels["node_id"].isin(nodes["node_id"]) | kernels["node_id"].lt(0)]
    if kernels.empty:
        return empty
    path_of_node = nodes.set_index("node_id")["path_id"]
    codes, names = pd.factorize(kernels["name"])
    keyed = pd.DataFrame(
        {
            "parent_path": kernels["node_id"].map(path_of_node).fillna(-1).astype("int64").to_numpy(),
            "code": codes,
            "device_ns": kernels["duration_ns"].to_numpy(),
            "first_ns": kernels["start_ns"].to_numpy(),
            "is_kernel": kernels["is_kernel"].to_numpy(),
        }
    )
    leaves = (
        keyed.groupby(["parent_path", "code"], sort=False)
        .agg(
            device_ns=("device_ns", "sum"),
            call_count=("device_ns", "size"),
            kernel_count=("is_kernel", "sum"),
            first_ns=("first_ns", "min"),
        )
        .reset_index()
    )
    code, full = leaves["code"].to_numpy(), pd.Series(np.asarray(names, dtype=object))
    return pd.DataFrame(
        {
            "parent_path": leaves["parent_path"],
            "full_name": visible_series(full).to_numpy()[code],
            "name": short_kernels(full).to_numpy()[code],
            "level": "KERNEL",
            "call_count": leaves["call_count"],
            "host_ns": 0,
            "device_ns": leaves["device_ns"],
            "busy_ns": leaves["device_ns"],
            "kernel_count": leaves["kernel_count"],
            "first_ns": leaves["first_ns"],
        }
    )


def _device_work(results: Results, capture_id: int) -> pd.DataFrame:
    """Kernels, copies and opaque graphs of the capture."""
    kernels = frame_or_empty(results, "kernels", ["capture_id", "node_id", "name", "duration_ns", "start_ns"])
    rest = frame_or_empty(results, "memory_operations", ["capture_id", "node_id", "name", "start_ns", "end_ns"])
    rest = rest.assign(duration_ns=rest["end_ns"] - rest["start_ns"]).drop(columns="end_ns")
    kernels, rest = (rows[rows["capture_id"].eq(capture_id)] for rows in (kernels, rest))
    parts = [
        rows.assign(is_kernel=flag, name=rows["name"].astype(object)) for rows, flag in ((kernels, True), (rest, False))
    ]
    filled = [rows for rows in parts if len(rows)] or parts[:1]
    return pd.concat(filled, ignore_index=True)


def _layer_of_path(results: Results, nodes: pd.DataFrame, capture_id: int) -> pd.Series:
    """path_id → layer_index of the layers, carried down to everything inside them."""
    layers = frame_or_empty(results, "layers", ["capture_id", "node_id", "layer_index"])
    layers = layers[layers["capture_id"].eq(capture_id)].drop_duplicates("node_id")
    if layers.empty:
        return pd.Series(dtype="float64")
    index_of_node = layers.set_index("node_id")["layer_index"]
    all_nodes = frame_or_empty(results, "nodes", ["node_id", "capture_id", "layer_node_id"])
    mine = all_nodes[all_nodes["capture_id"].eq(capture_id) & all_nodes["layer_node_id"].ge(0)]
    mine = mine.assign(path_id=mine["node_id"].map(nodes.set_index("node_id")["path_id"])).dropna(subset=["path_id"])
    found = mine.assign(layer=mine["layer_node_id"].map(index_of_node)).dropna(subset=["layer"])
    return found.drop_duplicates("path_id").set_index("path_id")["layer"]


def _prune(tree: pd.DataFrame, limit: int) -> pd.DataFrame:
    """The heaviest rows with all their ancestors; what is left out is summed per parent into ``[n more]``."""
    parent = tree["parent"].to_numpy()
    weight = np.maximum(_share(tree["device_ns"]), _share(tree["host_ns"]))
    keep = np.zeros(len(tree), dtype=bool)
    keep[np.argsort(-weight, kind="stable")[:limit]] = True
    keep |= (parent < 0) | forest_of(parent).around(keep)
    # a dropped row whose parent is dropped too is inside that parent's sums already
    dropped = tree[~keep & keep[np.maximum(parent, 0)]]
    rest = (
        dropped.groupby("parent")
        .agg(
            call_count=("call_count", "size"),
            host_ns=("host_ns", "sum"),
            device_ns=("device_ns", "sum"),
            busy_ns=("busy_ns", "sum"),
            kernel_count=("kernel_count", "sum"),
        )
        .reset_index()
    )
    rest["name"] = "[" + rest["call_count"].astype(str) + " more]"
    rest = rest.assign(
        full_name=rest["name"], level="FOLDED", layer_index=-1, is_inferred=False, first_ns=np.iinfo("int64").max
    )
    kept = tree[keep]
    new_row = pd.Series(np.arange(len(kept)), index=kept.index)
    result = pd.concat([kept.assign(row=new_row), rest], ignore_index=True)
    result["parent"] = result["parent"].map(new_row).fillna(-1).astype("int64")
    result["depth"] = depths(result["parent"].to_numpy())
    result = result.sort_values(["depth", "first_ns"], kind="stable")
    position = pd.Series(np.arange(len(result)), index=result.index)
    result["parent"] = result["parent"].map(position).fillna(-1).astype("int64")
    columns = [
        "parent",
        "name",
        "full_name",
        "level",
        "call_count",
        "host_ns",
        "device_ns",
        "busy_ns",
        "kernel_count",
        "layer_index",
        "is_inferred",
    ]
    numbers = {c: "int64" for c in columns if c not in ("name", "full_name", "level", "is_inferred")}
    return result[columns].reset_index(drop=True).astype(numbers)


def _share(values: pd.Series) -> np.ndarray:
    numbers = values.to_numpy(dtype="float64")
    return numbers / max(numbers.max(initial=0.0), 1.0)


def blocks(results: Results) -> list[Block]:
    """The drawing and what it leaves out; none where nothing has a width."""
    frame = data(results)
    if frame.empty or not frame[["host_ns", "device_ns"]].to_numpy().any():
        return []
    folded = int(frame.loc[frame["level"].eq("FOLDED"), "call_count"].sum())
    found: list[Block] = [
        Drawing(
            "tree",
            "icicle",
            {"tree": frame},
            (
                "Width is time: on the device (kernels, copies and graphs, summed) or on the host (length of "
                "the ranges). Repeated calls "
                "of one path are one box; the kernels and copies of a range are below it."
            ),
        )
    ]
    warmup = warmup_of(results, pick.deepest_capture(results))
    if len(warmup):
        found.append(
            Note(
                f"Warm-up is left out: {counted(len(warmup), 'execution', 'executions')} with "
                f"{units.format_ns(warmup['device_ns'].sum())} of device time.",
            )
        )
    if folded:
        found.append(
            Note(
                f"{units.format_count(folded)} paths too small to draw are folded into “[n more]” boxes under their "
                "parents; “xsp-post tree STORE” prints them all.",
                "folded",
            )
        )
    return found
