"""Trace → Tree, step "which rank": the processes of a job, the GPUs they worked on, and which paths are whose."""

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.model.trace import Trace
from xsp_post.model.tree import NodeKind
from xsp_post.tree import layering
from xsp_post.tree.node_names import NodeNames

_PER_RANK = (NodeKind.UNATTRIBUTED, NodeKind.NO_LAUNCH)  # one of each is made for the whole capture


def gpu_of_activities(trace: Trace) -> np.ndarray:
    """The physical GPU of every activity (`devices.gpu_index`); where the capture does not say which GPU a process
    means by a device number, the number. int32, shape (activities,); of one GPU, one number read as many times."""
    device = trace.activities["device_id"].to_numpy()
    process = trace.activities["process_index"].to_numpy()
    result = device.astype(np.int32)
    known = trace.devices
    for p, d, gpu in zip(*(known[c].tolist() for c in ("process_index", "device_id", "gpu_index"))):
        if d != gpu:  # a handful of devices, never rows
            result[(process == p) & (device == d)] = gpu
    return np.broadcast_to(result[0], result.shape) if len(result) and (result == result[0]).all() else result


def rank_frame(trace: Trace, gpu: np.ndarray) -> pd.DataFrame:
    """One row per process with device work: process_index, rank, gpu_index (its first), name.

    Ranks are numbered as the capture says, else in order of device number, GPU and process: where each process sees all
    GPUs its launcher gives the local rank as device number, which need not be the order of GPUs. Processes of unlike
    programs are no ranks of one job: they keep their process id as name and have rank −1. A single process is a rank
    only where the capture says so.
    """
    process = trace.activities["process_index"].to_numpy()
    working, first = np.unique(process, return_index=True)
    device, at = trace.activities["device_id"].to_numpy()[first], gpu[first]
    if len(working) > 1:
        lowest = np.full((2, len(trace.processes)), np.iinfo(np.int32).max)
        np.minimum.at(lowest[0], process, trace.activities["device_id"].to_numpy())
        np.minimum.at(lowest[1], process, gpu)
        device, at = lowest[:, working]
    stated = trace.processes["rank"].to_numpy()[working].astype(np.int64)
    identity = trace.processes["process_id"].to_numpy()[working]
    programs = {str(name) for name in trace.processes["name"].to_numpy()[working]} - {""}
    if len(working) > 1 and ((stated < 0).any() or len(np.unique(stated)) < len(stated)):
        order = np.lexsort((identity, at, device))
        stated = np.full(len(working), -1, np.int64)
        if len(programs) <= 1:
            stated[order] = np.arange(len(working))
    names = [f"rank {rank}" if rank >= 0 else f"process {pid}" for rank, pid in zip(stated, identity)]
    return pd.DataFrame(
        {"process_index": working, "rank": stated, "gpu_index": at, "name": np.array(names, object)}
    ).sort_values(["rank", "gpu_index", "process_index"], ignore_index=True)


def paths_per_rank(nodes: pd.DataFrame, ranks: pd.DataFrame) -> np.ndarray:
    """The folded path of every node, those of each rank apart. Numbers 1 … (ranks) are left free: they are the paths
    of the ranks themselves, which have no node (`folding.fold`)."""
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    folded = nodes["folded_id"].to_numpy()
    nothing = np.zeros(len(nodes), bool)
    if len(ranks) < 2:
        return layering.path_ids(parent, depth, folded, nothing)[0]
    rank = rank_of_node(nodes, ranks)
    top = (parent == 0) & (rank >= 0)
    apart = np.where(top, folded + (rank + 1) * (int(folded.max()) + 1), folded)
    path = layering.path_ids(parent, depth, apart, nothing)[0]
    return np.where(path > 0, path + len(ranks), path)


def rank_of_node(nodes: pd.DataFrame, ranks: pd.DataFrame) -> np.ndarray:
    """Row of ``ranks`` of each node's process; −1 for the root and for processes without device work."""
    return _rank_of_process(ranks, nodes)[nodes["process_index"].to_numpy()]


def remainders_per_rank(
    nodes: pd.DataFrame, activities: pd.DataFrame, names: NodeNames, ranks: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What lies outside every range, and what has no launch record, in a node for each rank that has such work
    instead of in one for all; the first keeps the node that was there."""
    if len(ranks) < 2:
        return nodes, activities
    rank_of_process = _rank_of_process(ranks, nodes)
    process = ranks["process_index"].to_numpy(np.int32)
    node = activities["node_id"].to_numpy().copy()
    launch_node = activities["launch_node_id"].to_numpy().copy()
    rank_of_activity = rank_of_process[activities["process_index"].to_numpy()]
    for kind in _PER_RANK:
        for one in np.flatnonzero(nodes["kind"].to_numpy() == int(kind)).tolist():  # one, or none
            parent = nodes["parent_id"].to_numpy().copy()
            below, mine = np.flatnonzero(parent == one), np.flatnonzero(node == one)
            launched = np.flatnonzero(launch_node == one)
            rank_below = rank_of_process[nodes["process_index"].to_numpy()[below]]
            present = distinct(np.concatenate([rank_below, rank_of_activity[mine]]))
            home = np.full(len(ranks), one, np.int64)
            home[present[1:]] = len(nodes) + np.arange(len(present) - 1)
            parent[below] = home[rank_below]
            node[mine], launch_node[launched] = home[rank_of_activity[mine]], home[rank_of_activity[launched]]
            own_process = nodes["process_index"].to_numpy().copy()
            own_process[one] = process[present[0]] if len(present) else own_process[one]
            nodes = nodes.assign(parent_id=parent, process_index=own_process)
            added = nodes.iloc[np.full(max(len(present) - 1, 0), one)].assign(process_index=process[present[1:]])
            names.with_synthetic(len(added))
            nodes = _appended(nodes, added)
    return nodes, activities.assign(node_id=node, launch_node_id=launch_node)


def _rank_of_process(ranks: pd.DataFrame, nodes: pd.DataFrame) -> np.ndarray:
    """Row of ``ranks`` by process index, −1 for processes without device work; the last element is for index −1."""
    most = max(int(nodes["process_index"].max()), int(ranks["process_index"].max()))
    result = np.full(most + 2, -1, np.int64)
    result[ranks["process_index"].to_numpy()] = np.arange(len(ranks))
    return result


def _appended(nodes: pd.DataFrame, added: pd.DataFrame) -> pd.DataFrame:
    """Rows at the end, with the types that the nodes have."""
    columns = {}
    for name in nodes:
        values = nodes[name].to_numpy()
        columns[name] = np.concatenate([values, added[name].to_numpy().astype(values.dtype)])
    return pd.DataFrame(columns, copy=False)
