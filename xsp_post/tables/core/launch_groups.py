"""Tree → core tables: ``launch_groups``, kernels by green context and cluster of thread blocks, and how early they let
dependent launches begin. Only of captures whose nsys knows that."""

import numpy as np
import pandas as pd

from xsp_post.model.results import empty_table
from xsp_post.model.schemas import column_names
from xsp_post.model.tree import Tree
from xsp_post.tables.core.columns import Threads

_KEYS = ["process_index", "device_id", "green_context_id", "cluster_x", "cluster_y", "cluster_z"]


def launch_groups_frame(tree: Tree, threads: Threads) -> pd.DataFrame:
    """One row a process, device, green context and cluster; no rows where no kernel has one or lets others begin."""
    kernels = tree.kernels
    if not {"green_context_id", "cluster_x", "preexit_ns"} & set(kernels):
        return empty_table("launch_groups").drop(columns="capture_id")
    zeros = np.zeros(len(kernels), np.int64)
    frame = pd.DataFrame({name: kernels.get(name, zeros) for name in _KEYS}, copy=False)
    early = kernels["end_ns"].to_numpy() - np.asarray(kernels.get("preexit_ns", zeros))
    length = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    has_let = (early >= 0) & (early <= length)  # a time outside of the kernel is none
    frame = frame.assign(kernel_count=1, kernel_ns=length, early_count=has_let, early_ns=np.where(has_let, early, 0))
    found = frame.groupby(_KEYS, sort=True).sum().reset_index()
    found["process_id"] = threads.process_id(found["process_index"].to_numpy())
    return found[column_names("launch_groups")[1:]].astype(np.int64)
