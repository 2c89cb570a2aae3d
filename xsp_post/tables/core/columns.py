"""Tree → core tables: columns that several of them share."""

from enum import IntEnum

import numpy as np
import pandas as pd

from xsp_post.model.tree import Tree


class Threads:
    """Operating-system ids of dense process and thread indexes (−1 → −1)."""

    def __init__(self, tree: Tree) -> None:
        self._process = np.append(tree.trace.processes["process_id"].to_numpy(np.int64), -1)
        self._thread = np.append(tree.trace.threads["thread_id"].to_numpy(np.int64), -1)

    def process_id(self, index: np.ndarray) -> np.ndarray:
        return self._process[index]

    def thread_id(self, index: np.ndarray) -> np.ndarray:
        return self._thread[index]


class Launches:
    """Columns of the launching calls of some activities, −1 where there is none."""

    def __init__(self, tree: Tree, launch_id: np.ndarray) -> None:
        self._launches = tree.trace.launches
        self.has = launch_id >= 0
        self._rows = np.maximum(launch_id, 0)

    def column(self, name: str) -> np.ndarray:
        if not self.has.any():
            return np.full(len(self.has), -1, np.int64)
        return np.where(self.has, self._launches[name].to_numpy()[self._rows], -1)


def named(codes: np.ndarray, members: type[IntEnum]) -> "pd.Categorical[str]":
    return pd.Categorical.from_codes(codes, pd.Index([m.name.lower() for m in members]))


def layer_index(tree: Tree, layer_node: np.ndarray) -> np.ndarray:
    """``layers.layer_index`` of the layers that these nodes are, −1 for none (node −1)."""
    if "layer_key" not in tree.nodes:
        return np.full(len(layer_node), -1, np.int64)
    keys = tree.nodes["layer_key"].to_numpy()
    key = np.append(keys, keys.dtype.type(-1))[layer_node]
    return key + (key >= 0)


def on_one_gpu(busy: np.ndarray, group: np.ndarray, gpu: np.ndarray) -> np.ndarray:
    """Busy times, NaN for the groups whose activities ran on several GPUs: their union is not the busy time of any GPU.

    ``group``: of each activity, −1 for none; ``gpu``: its physical GPU."""
    if not len(gpu) or gpu.min() == gpu.max():
        return busy
    inside = group >= 0
    low = np.full(len(busy), np.iinfo(np.int64).max)
    high = np.full(len(busy), -1, np.int64)
    np.minimum.at(low, group[inside], gpu[inside])
    np.maximum.at(high, group[inside], gpu[inside])
    several = high > low
    return np.where(several, np.nan, busy) if several.any() else busy
