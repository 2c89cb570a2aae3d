"""Tree → core tables: ``idle``, ``short_waits``, ``idle_causes``, ``device_windows``, and the waits of ``paths``.

Of a recording with very many gaps the short pieces are kept as sums.
"""

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.repeats import dense
from xsp_post.arrays.rollup import add_up, sums_per_node
from xsp_post.arrays.texts import Strings, categorical
from xsp_post.model.schemas import column_names
from xsp_post.model.tree import Tree
from xsp_post.replay.host_state import Cause
from xsp_post.replay.idle import Idle, IdleBlocks
from xsp_post.replay.windows import SCOPES, device_windows, scope_of_pieces
from xsp_post.tables.core.columns import layer_index
from xsp_post.tree.folding import fold

_Columns = dict[str, np.ndarray]

CAUSES = pd.Index([cause.name.lower() for cause in Cause])
_OF_PIECES = ("device", "start_ns", "end_ns", "cause", "call_id", "detail_id", "node_id", "layer_index",
              "iteration_index")  # fmt: skip
_PIECES = ("idle", "short_waits")
# Of so many gaps pieces below this length are summed: by execution, or where there is none, by so many gaps.
MANY_GAPS, SHORT_NS, _GAPS_TOGETHER = 100_000, 20_000, 1024
_BLOCKS_TOGETHER = 8
_CAUSE_COLUMNS = [name for name in column_names("idle_causes") if name != "capture_id"]


def idle_tables(tree: Tree, wanted: frozenset[str]) -> dict[str, pd.DataFrame]:
    """``paths`` and the tables of idle time, without their capture; those of pieces only where they are ``wanted``."""
    paths, with_pieces = fold(tree), bool(wanted.intersection(_PIECES))
    blocks: IdleBlocks | Idle = tree.idle or IdleBlocks(tree)
    sums, kept, short = _Blocks(), _Blocks(), _Blocks()
    for pieces in blocks.blocks():
        pieces["layer_index"] = layer_index(tree, pieces["layer_node_id"].to_numpy())
        sums.add(_summed(tree, pieces))
        if with_pieces:
            is_short = (pieces["end_ns"] - pieces["start_ns"]).to_numpy() < SHORT_NS * (blocks.gap_count > MANY_GAPS)
            short.add(_by_execution(tree, pieces[is_short]))
            kept.add({name: pieces[name].to_numpy()[~is_short] for name in _OF_PIECES})
    strings = blocks.strings
    causes = _named(tree, sums, blocks.devices, strings)
    give_paths_their_waits(paths, causes, tree.ranks)
    windows = device_windows(tree, blocks.devices, causes)
    columns = [name for name in column_names("device_windows") if name != "capture_id"]
    frames = {"paths": paths, "idle_causes": causes, "device_windows": windows.reindex(columns=columns)}
    if with_pieces:
        frames["idle"] = _idle_frame(kept.joined(), blocks.devices, strings)
        frames["short_waits"] = _idle_frame(short.joined(), blocks.devices, strings)
    return frames


def _idle_frame(pieces: _Columns, devices: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """One row per piece, in order of device and time; or per sum of short ones."""
    number = np.append(devices["device_id"].to_numpy(), -1)
    return pd.DataFrame(
        {
            "device_id": number[pieces["device"]],
            **{name: pieces[name] for name in ("start_ns", "end_ns")},
            "cause": pd.Categorical.from_codes(pieces["cause"], CAUSES),
            "call_name": categorical(pieces["call_id"], strings),
            "detail": categorical(pieces["detail_id"], strings),
            **{name: pieces[name] for name in ("node_id", "layer_index", "iteration_index")},
            **{name: pieces[name] for name in _AMOUNTS if name in pieces},
        },
        copy=False,
    )


def _by_execution(tree: Tree, pieces: pd.DataFrame) -> _Columns:
    """Sums of pieces of one execution; outside of executions, of neighbouring gaps."""
    iteration = pieces["iteration_index"].to_numpy()
    gap = pieces["gap"].to_numpy() if "gap" in pieces else np.zeros(len(pieces), np.int64)
    together = np.where(iteration >= 0, -1 - iteration.astype(np.int64), gap // _GAPS_TOGETHER)
    rows = _rows(tree, pieces) | {name: pieces[name].to_numpy() for name in ("start_ns", "end_ns")}
    rows = _combined(rows | {"iteration_index": iteration, "together": together}, (*_KEYS, "together"))
    return {name: rows[name] for name in (*_OF_PIECES, *_AMOUNTS)}


def _summed(tree: Tree, pieces: pd.DataFrame) -> _Columns:
    """One row per combination of `_KEYS` in order of first appearance, with the node of its first piece."""
    return _combined(_rows(tree, pieces), _KEYS)


def _rows(tree: Tree, pieces: pd.DataFrame) -> _Columns:
    """What is summed up of every piece, or sum of short ones."""
    node = pieces["node_id"].to_numpy()
    length = (pieces["end_ns"] - pieces["start_ns"]).to_numpy()
    amounts = {"idle_ns": length, "piece_count": np.ones(len(node), np.int64), "longest_ns": length}
    columns = {name: pieces[name].to_numpy() for name in ("device", "cause", "call_id", "detail_id", "layer_index")}
    return {
        **columns,
        "scope": scope_of_pieces(tree, pieces),
        "path_id": np.where(node >= 0, tree.nodes["path_id"].to_numpy()[np.maximum(node, 0)], -1),
        "node_id": node,
        **{name: pieces[name].to_numpy() if name in pieces else amounts[name] for name in _AMOUNTS},
    }


class _Blocks:
    """Columns that come in blocks, put together as they come: many small arrays would stay in memory
    (`base.on_disk`)."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, _Columns]] = []  # with how often each was put together

    def add(self, part: _Columns) -> None:
        self._parts.append((0, part))
        while [often for often, _ in self._parts[-_BLOCKS_TOGETHER:]] == [self._parts[-1][0]] * _BLOCKS_TOGETHER:
            often, whole = self._parts[-1][0] + 1, self.joined(_BLOCKS_TOGETHER)
            self._parts[-_BLOCKS_TOGETHER:] = [(often, whole)]

    def joined(self, last: int = 0) -> _Columns:
        parts = [part for _, part in self._parts[-last:]]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


_KEYS = ("device", "scope", "cause", "call_id", "detail_id", "path_id", "layer_index")
_AMOUNTS = ("idle_ns", "piece_count", "longest_ns")
_SUMS = dict(zip((*_AMOUNTS, "start_ns", "end_ns"), (np.add, np.add, np.maximum, np.minimum, np.maximum)))


def _combined(rows: _Columns, keys: tuple[str, ...]) -> _Columns:
    group, first = dense(*(rows[key] for key in keys))
    if len(first) == len(group):  # nothing to sum
        return rows
    found = {name: values[first] for name, values in rows.items()}
    for name, put in _SUMS.items():
        if name in rows:
            put.at(found[name], group, rows[name])
            if put is np.add:
                found[name] -= rows[name][first]
    return found


def _named(tree: Tree, sums: _Blocks, devices: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    summed = _combined(sums.joined(), _KEYS)
    number = np.append(devices["device_id"].to_numpy(), -1)
    node, path = summed["node_id"], summed["path_id"]
    owner = tree.nodes["folded_id"].to_numpy()[np.maximum(node, 0)]
    is_owned = (node > 0) & (path >= 0)
    order = np.argsort(-summed["idle_ns"], kind="stable")
    texts = {
        "call_name": categorical(summed["call_id"], strings),
        "detail": categorical(summed["detail_id"], strings),
        "owner": categorical(np.where(is_owned, owner, -1), np.asarray(tree.names.folded_names, object)),
        "layer_path": categorical(summed["layer_index"] - 1, _layer_paths(tree)),
    }
    columns: dict[str, Any] = {
        "device_id": number[summed["device"]],
        "scope": pd.Categorical.from_codes(summed["scope"], pd.Index(SCOPES)),
        "cause": pd.Categorical.from_codes(summed["cause"], CAUSES),
        **texts,
        **{name: summed[name] for name in ("path_id", "layer_index", "idle_ns", "piece_count", "longest_ns")},
    }
    return pd.DataFrame({name: columns[name][order] for name in _CAUSE_COLUMNS}, copy=False)


def _layer_paths(tree: Tree) -> np.ndarray:
    keys = tree.layer_keys
    return keys["layer_path"].to_numpy(object) if "layer_path" in keys else np.zeros(0, object)


def give_paths_their_waits(paths: pd.DataFrame, causes: pd.DataFrame, ranks: pd.DataFrame) -> None:
    """idle_ns (inclusive: the device waited while the launching thread was in the range, or for work launched there)
    and idle_cause (the largest cause of it) of every path."""
    count = len(paths)
    parent = paths["parent_path_id"].to_numpy()
    path, idle = causes["path_id"].to_numpy(), causes["idle_ns"].to_numpy()
    cause = causes["cause"].cat.codes.to_numpy()
    total, most = np.zeros(count, np.int64), np.zeros(count, np.int64)
    which = np.full(count, -1, np.int64)
    # what lies in no range is its rank's, where one rank of several has the GPU, else the capture's own
    rank = pd.Series(np.arange(1, len(ranks) + 1) * (len(ranks) > 1), index=ranks["gpu_index"].to_numpy())
    rank = rank[~rank.index.duplicated(keep=False)].reindex(causes["device_id"].to_numpy(), fill_value=0)
    at = np.where(path > 0, path, rank.to_numpy(np.int64))
    for number in distinct(cause).tolist():
        mine = cause == number
        own = sums_per_node(at[mine], idle[mine], count)
        summed = add_up(own, parent) if count else own
        total += summed
        more = summed > most
        most[more], which[more] = summed[more], number
    paths["idle_ns"] = total
    paths["idle_cause"] = pd.Categorical.from_codes(which, CAUSES)
