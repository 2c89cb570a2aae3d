"""Kernels and counter results → common integer keys (path, name, dimensions), for `counters.join`."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays.rollup import rows_by_depth
from xsp_post.arrays.texts import of_each
from xsp_post.model.counters import PATH_SEPARATOR
from xsp_post.model.kinds import GEOMETRY
from xsp_post.names import parse_names

_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|bool|char|short|long|long long|unsigned)\)(?=[-\d])")
_SUFFIX = re.compile(r"(?<=\d)(?:ull|ul|ll|u|l)\b", re.IGNORECASE)
_WARMUP = re.compile(r"^warmup:")


@dataclass
class Side:
    """Kernels or results, in launch order, with the integer keys they are compared by (−1: has none)."""

    ids: np.ndarray  # kernel_id or action_id
    group: np.ndarray  # iteration of a kernel; 0 for results
    path: np.ndarray
    name: np.ndarray
    shape: np.ndarray  # name and launch dimensions
    correlation: np.ndarray
    may_repeat: bool = False  # the iterations of the capture were not separated

    def __len__(self) -> int:
        return len(self.ids)


def sides(kernels: pd.DataFrame, nodes: pd.DataFrame, actions: pd.DataFrame) -> tuple[Side, Side, np.ndarray]:
    """Both sides with common integer keys; `paths` are the texts of the path keys."""
    domain = next((d for d in actions["domain"] if d), "")
    path_texts, path_of_node = _paths_of_nodes(nodes, domain)
    known = pd.Series(path_of_node, index=nodes["node_id"].to_numpy())
    path_of_kernel = known.reindex(kernels["node_id"].to_numpy()).fillna(-1).to_numpy().astype(np.int64)
    number_of = {text: number for number, text in enumerate(path_texts)}
    folded = _folded_paths(actions["range_path"].to_numpy(dtype=object))
    path_of_action = np.array([number_of.get(text, -1) if text else -1 for text in folded], dtype=np.int64)
    kernel_names, action_names = _names(kernels, actions)
    codes = _common(kernel_names, action_names)
    shapes = codes
    if (kernels["grid_x"] > 0).any() and (actions["grid_x"] > 0).any():
        keys = [
            pd.MultiIndex.from_arrays([code, *(frame[key].to_numpy().astype(np.int64) for key in GEOMETRY)])
            for code, frame in zip(codes, (kernels, actions))
        ]
        shapes = _common(*(key.to_flat_index().to_numpy() for key in keys))
    # kernels outside all iterations are one group
    group = pd.factorize(kernels["iteration_index"].to_numpy())[0].astype(np.int64)
    ours = Side(kernels["kernel_id"].to_numpy(), group, path_of_kernel, codes[0], shapes[0],
                 kernels["correlation_id"].to_numpy(), not (kernels["iteration_index"] >= 0).any())  # fmt: skip
    theirs = Side(actions.index.to_numpy(), np.zeros(len(actions), np.int64), path_of_action, codes[1], shapes[1],
                   actions["correlation_id"].to_numpy())  # fmt: skip
    return ours, theirs, path_texts


def _common(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same number for the same value on both sides."""
    codes = pd.factorize(np.concatenate([ours, theirs]).astype(object))[0].astype(np.int64)
    return codes[: len(ours)], codes[len(ours) :]


def _names(kernels: pd.DataFrame, actions: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Names to compare: demangled ones where most of the report's occur in the capture, else function names.

    Demanglers write template arguments differently (``(int)4``, ``4``, ``4u``); what differs is taken out.
    """
    ours, theirs = _normalised(kernels["name"]), _normalised(actions["name"])
    if len(actions) and pd.Series(theirs).isin(ours).mean() >= 0.5:
        return ours, theirs
    return kernels["short_name"].astype(object).to_numpy(), actions["short_name"].astype(object).to_numpy()


def _normalised(names: pd.Series) -> np.ndarray:
    return of_each(names.astype(object).fillna("").to_numpy(), _plain, object)


def _plain(name: str) -> str:
    name = _SUFFIX.sub("", _CAST.sub("", name))
    name = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", name))
    return name.replace(" ", "").removeprefix("void")


def _fold(texts: np.ndarray) -> np.ndarray:
    """Range texts without what changes between iterations; warm-up and measured iterations alike."""
    folded = parse_names(texts)["folded_name"].astype(object).to_numpy()
    return np.array([_WARMUP.sub("model:", text) for text in folded], dtype=object)


def _paths_of_nodes(nodes: pd.DataFrame, domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Folded path of every node through the ranges of one domain: (texts, number per node); 0 is the empty path.

    Ranges of other domains between them are skipped, as Nsight Compute keeps one stack per domain.
    """
    is_range = (nodes["domain"].astype(object) == domain) & (nodes["level"].astype(object) != "CAPTURE")
    counts = (is_range & ~nodes["is_inferred"].astype(bool)).to_numpy()
    codes, names = pd.factorize(nodes["folded_name"].astype(object))
    alike = np.array([_WARMUP.sub("model:", str(name)) for name in names], dtype=object)
    unique, inverse = np.unique(alike, return_inverse=True)
    code = inverse[codes]
    row_of = pd.Series(np.arange(len(nodes)), index=nodes["node_id"].to_numpy())
    parent = row_of.reindex(nodes["parent_id"].to_numpy()).fillna(-1).to_numpy().astype(np.int64)
    if "thread_id" in nodes:  # a stack is one thread's: backward work of another thread hangs below its step
        thread = nodes["thread_id"].to_numpy()
        parent = np.where((parent >= 0) & (thread != thread[np.maximum(parent, 0)]) & (thread >= 0), -1, parent)
    path = np.zeros(len(nodes), np.int64)
    texts = [""]
    for rows in rows_by_depth(nodes["depth"].to_numpy()):
        above = path[rows] = np.where(parent[rows] >= 0, path[parent[rows]], 0)
        mine = counts[rows]
        keys = above[mine] * (len(unique) + 1) + code[rows[mine]]
        new, inverse = np.unique(keys, return_inverse=True)
        path[rows[mine]] = len(texts) + inverse
        for key in new.tolist():
            prefix, name = texts[key // (len(unique) + 1)], unique[key % (len(unique) + 1)]
            texts.append(f"{prefix}{PATH_SEPARATOR}{name}" if prefix else str(name))
    # two parents at different depths may give equal texts
    merged, number = np.unique(np.array(texts, dtype=object), return_inverse=True)
    return merged, number[path]


def _folded_paths(paths: np.ndarray) -> np.ndarray:
    codes, unique = pd.factorize(paths)
    parts = [str(path).split(PATH_SEPARATOR) if path else [] for path in unique]
    flat = np.array([text for path in parts for text in path] or [""], dtype=object)
    folded = iter(_fold(flat).tolist())
    joined = [PATH_SEPARATOR.join(next(folded) for _ in path) for path in parts]
    return np.array(joined, dtype=object)[codes] if len(paths) else np.zeros(0, object)
