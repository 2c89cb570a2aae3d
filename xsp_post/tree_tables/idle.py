"""Tree → core tables: ``idle``, ``idle_causes``, ``device_windows``, and the owner of the gaps in ``paths``."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xsp_post.arrays.rollup import add_up
from xsp_post.model.tree import Tree
from xsp_post.replay.host_state import Cause
from xsp_post.replay.idle import Idle, IdleBlocks
from xsp_post.replay.windows import SCOPES, device_windows, scope_of_pieces
from xsp_post.schemas import column_names
from xsp_post.tree_tables.columns import categorical

CAUSES = pd.Index([cause.name.lower() for cause in Cause])
_MOST_CODES = 1 << 62


def idle_frames(tree: Tree, paths: pd.DataFrame, *, with_pieces: bool = True) -> dict[str, pd.DataFrame]:
    """The tables of idle time without their capture. ``paths`` gets its columns about waiting in place. Without
    ``with_pieces`` there is no table of them."""
    blocks = IdleBlocks(tree)
    sums: list[pd.DataFrame] = []
    kept: list[pd.DataFrame] = []
    for pieces in blocks.pieces():
        sums.append(_summed(tree, pieces))
        if with_pieces:
            kept.append(pieces)
    causes = _named(tree, sums, blocks.devices, blocks.strings())
    give_paths_their_waits(paths, causes)
    windows = device_windows(tree, blocks.devices, causes)
    wanted = [name for name in column_names("device_windows") if name != "capture_id"]
    frames = {"idle_causes": causes, "device_windows": windows.reindex(columns=wanted)}
    if with_pieces:
        frames["idle"] = idle_frame(tree, Idle(pd.concat(kept, ignore_index=True), blocks.devices, blocks.strings()))
    return frames


def idle_frame(tree: Tree, idle: Idle) -> pd.DataFrame:
    """One row per piece, in order of device and time."""
    pieces = idle.pieces
    number = np.append(idle.devices["device_id"].to_numpy(), -1)
    return pd.DataFrame(
        {
            "device_id": number[pieces["device"].to_numpy()],
            "start_ns": pieces["start_ns"].to_numpy(),
            "end_ns": pieces["end_ns"].to_numpy(),
            "cause": pd.Categorical.from_codes(pieces["cause"].to_numpy(), CAUSES),
            "call_name": categorical(pieces["call_id"].to_numpy(), idle.strings),
            "detail": categorical(pieces["detail_id"].to_numpy(), idle.strings),
            "node_id": pieces["node_id"].to_numpy(),
            "layer_index": _layer_index(tree, pieces),
            "iteration_index": pieces["iteration_index"].to_numpy(),
        },
        copy=False,
    )


def _layer_index(tree: Tree, pieces: pd.DataFrame) -> np.ndarray:
    node = pieces["layer_node_id"].to_numpy()
    if "layer_key" not in tree.nodes:
        return np.full(len(node), -1, np.int64)
    key = np.where(node >= 0, tree.nodes["layer_key"].to_numpy()[np.maximum(node, 0)], -1)
    return key + (key >= 0)


def idle_causes_frame(tree: Tree, idle: Idle) -> pd.DataFrame:
    """The pieces summed by device, scope, cause, call, detail, range and layer; longest sums first."""
    return _named(tree, [_summed(tree, idle.pieces)], idle.devices, idle.strings)


def _summed(tree: Tree, pieces: pd.DataFrame) -> pd.DataFrame:
    """One row per combination of `_KEYS` in order of first appearance, with the node of its first piece."""
    node = pieces["node_id"].to_numpy()
    rows = {
        "device": pieces["device"].to_numpy(),
        "scope": scope_of_pieces(tree, pieces),
        "cause": pieces["cause"].to_numpy(),
        "call_id": pieces["call_id"].to_numpy(),
        "detail_id": pieces["detail_id"].to_numpy(),
        "path_id": np.where(node >= 0, tree.nodes["path_id"].to_numpy()[np.maximum(node, 0)], -1),
        "layer_index": _layer_index(tree, pieces),
        "node_id": node,
    }
    length = (pieces["end_ns"] - pieces["start_ns"]).to_numpy()
    return _combined(rows, length, np.ones(len(node), np.int64), length)


_KEYS = ("device", "scope", "cause", "call_id", "detail_id", "path_id", "layer_index")


def _combined(rows: dict[str, np.ndarray], idle: np.ndarray, pieces: np.ndarray, longest: np.ndarray) -> pd.DataFrame:
    group, first = _groups([rows[key] for key in _KEYS], len(idle))
    sums = {name: np.zeros(len(first), np.int64) for name in ("idle_ns", "piece_count", "longest_ns")}
    np.add.at(sums["idle_ns"], group, idle)
    np.add.at(sums["piece_count"], group, pieces)
    np.maximum.at(sums["longest_ns"], group, longest)
    return pd.DataFrame({name: values[first] for name, values in rows.items()} | sums)


def _named(tree: Tree, sums: list[pd.DataFrame], devices: pd.DataFrame, strings: np.ndarray) -> pd.DataFrame:
    """``idle_causes`` of the sums of all blocks."""
    summed = sums[0]
    if len(sums) > 1:
        every = pd.concat(sums, ignore_index=True)
        amounts = (every.pop(name).to_numpy() for name in ("idle_ns", "piece_count", "longest_ns"))
        summed = _combined({str(name): values.to_numpy() for name, values in every.items()}, *amounts)
    number = np.append(devices["device_id"].to_numpy(), -1)
    node, path, layer = (summed[name].to_numpy() for name in ("node_id", "path_id", "layer_index"))
    owner = tree.nodes["folded_id"].to_numpy()[np.maximum(node, 0)]
    is_owned = (node > 0) & (path >= 0)
    frame = pd.DataFrame(
        {
            "device_id": number[summed["device"].to_numpy()],
            "scope": pd.Categorical.from_codes(summed["scope"].to_numpy(), pd.Index(SCOPES)),
            "cause": pd.Categorical.from_codes(summed["cause"].to_numpy(), CAUSES),
            "call_name": categorical(summed["call_id"].to_numpy(), strings),
            "detail": categorical(summed["detail_id"].to_numpy(), strings),
            "path_id": path,
            "owner": categorical(np.where(is_owned, owner, -1), np.asarray(tree.names.folded_names, object)),
            "layer_index": layer,
            "layer_path": categorical(layer - 1, _layer_paths(tree)),
            **{name: summed[name].to_numpy() for name in ("idle_ns", "piece_count", "longest_ns")},
        }
    )
    return frame.sort_values("idle_ns", ascending=False, kind="stable", ignore_index=True)


def _layer_paths(tree: Tree) -> np.ndarray:
    keys = tree.layer_keys
    return keys["layer_path"].to_numpy(object) if "layer_path" in keys else np.zeros(0, object)


def _groups(keys: list[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the different combinations: group of every row, and the first row of every group."""
    code, size = np.zeros(count, np.int64), 1
    for values in keys if count else ():
        low = int(values.min())
        spread = int(values.max()) - low + 1
        if size * spread > _MOST_CODES:
            code, used = pd.factorize(code)
            size = len(used)
        code = code * spread + (values - low)
        size *= spread
    code, _ = pd.factorize(code)
    first = np.zeros(int(code.max(initial=-1)) + 1, np.int64)
    first[code[::-1]] = np.arange(count)[::-1]
    return code, first


def give_paths_their_waits(paths: pd.DataFrame, causes: pd.DataFrame) -> None:
    """idle_ns (inclusive: the device waited while the launching thread was in the range, or for work launched there)
    and idle_cause (the largest cause of it) of every path."""
    count = len(paths)
    parent = paths["parent_path_id"].to_numpy()
    path, idle = causes["path_id"].to_numpy(), causes["idle_ns"].to_numpy()
    cause = causes["cause"].cat.codes.to_numpy()
    total, most = np.zeros(count, np.int64), np.zeros(count, np.int64)
    which = np.full(count, -1, np.int64)
    # what lies in no range is the capture's own
    at = np.maximum(path, 0)
    for number in np.unique(cause).tolist():
        own = np.zeros(count, np.int64)
        mine = cause == number
        np.add.at(own, at[mine], idle[mine])
        summed = add_up(own, parent) if count else own
        total += summed
        more = summed > most
        most[more], which[more] = summed[more], number
    paths["idle_ns"] = total
    paths["idle_cause"] = pd.Categorical.from_codes(which, CAUSES)
