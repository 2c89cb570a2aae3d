"""Helper of ``ingest.kineto`` (a PyTorch trace → ``Trace``): which operators of a CPU run do the work."""

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import nest
from xsp_post.arrays.rollup import rows_by_depth
from xsp_post.arrays.statistics import medians
from xsp_post.tree.structure.hashes import random_words

_WRAPPERS = ("autograd::engine::evaluate_function", "torch::autograd::")  # the engine around the operator
# operators that make or re-shape tensors and compute nothing
_BOOKKEEPING = frozenset(f"aten::{name}" for name in (
    "alias", "as_strided", "as_strided_", "chunk", "detach", "empty", "empty_like", "empty_strided", "expand",
    "flatten", "narrow", "permute", "reshape", "resize_", "resolve_conj", "resolve_neg", "select", "slice", "split",
    "squeeze", "t", "transpose", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
))  # fmt: skip
_CALLED = ("c10d::",)
_CARRIED_OUT = ("gloo:", "mpi:", "ucc:")  # ranges on threads of libraries of collectives
_WORKING_SHARE = 0.75  # far from both kinds: who works has above 0.85 of its time in itself, who passes on below 0.55
_LONG_NS, _LONG_SHARE = 100_000, 0.25  # but nobody passes on for as long, for each call that it makes
_NATIVE = "aten::"  # runs no Python


def is_lowest(operators: pd.DataFrame, texts_by_id: np.ndarray) -> np.ndarray:
    """Operators that do the work: leaves, operators that call nothing but bookkeeping, and operators that
    over the whole trace spend most of their time in themselves (``aten::addmm`` calls ``aten::copy_``, but
    multiplies itself), or more than passing on takes.

    Decided per operator name and what it calls (``aten::_convolution`` passes one kind on and computes another itself),
    and by times only where names do not tell, so that noise cannot make two runs of one program differ in their
    kernels; none lies within another, so their times add up.
    """
    start_ns, end_ns = operators["start_ns"].to_numpy(), operators["end_ns"].to_numpy()
    nesting = nest(
        operators["thread_index"].to_numpy().astype(np.int64), start_ns, end_ns,
        operators["source_row_id"].to_numpy(),
    )  # fmt: skip
    parent, has_parent = nesting.parent, nesting.parent >= 0
    duration_ns = end_ns - start_ns
    self_ns = duration_ns.copy()
    np.subtract.at(self_ns, parent[has_parent], duration_ns[has_parent])
    names, name = np.unique(operators["name_id"].to_numpy(), return_inverse=True)
    texts = [str(text) for text in texts_by_id[names]]
    is_wrapper = np.array([text.startswith(_WRAPPERS) for text in texts], dtype=bool)
    is_work = np.array([text not in _BOOKKEEPING for text in texts], dtype=bool)
    kind, count = _kinds(name, parent, is_work)
    calls_work = np.zeros(count, dtype=bool)
    calls_work[kind[parent[has_parent]][is_work[name[has_parent]]]] = True
    # the typical call's share: one call that the machine interrupted must not make a worker of who passes on
    share = self_ns / np.maximum(duration_ns, 1)
    of_kind, of_name = medians(share, kind, count)[kind], medians(share, name, len(names))[name]
    works = ~calls_work[kind] | (np.maximum(of_kind, of_name) >= _WORKING_SHARE)
    each_ns = self_ns / (1 + np.bincount(parent[has_parent], minlength=len(parent)))
    is_native = np.array([text.startswith(_NATIVE) for text in texts], dtype=bool)
    # inputs of one size are computed or passed on alike: who converts many small ones may compute a few large ones
    of_size = pd.Series(each_ns).groupby([kind, operators.get("shape_id", operators["name_id"]).to_numpy()])
    least_ns = np.where(of_size.transform("size") > 1, of_size.transform("min"), 0)
    typical_ns = np.maximum(medians(each_ns, kind, count)[kind], least_ns)
    works |= is_native[name] & (typical_ns >= _LONG_NS) & (of_kind >= _LONG_SHARE)
    works &= ~is_wrapper[name]
    is_leaf = np.ones(len(operators), dtype=bool)
    is_leaf[parent[has_parent]] = False
    works |= is_leaf
    is_covered = np.zeros(len(operators), dtype=bool)
    for rows in rows_by_depth(nesting.depth)[1:]:
        is_covered[rows] = is_covered[parent[rows]] | works[parent[rows]]
    return works & ~is_covered


def _kinds(name: np.ndarray, parent: np.ndarray, is_work: np.ndarray) -> tuple[np.ndarray, int]:
    """Number of the kind of each operator, and how many there are: those of one name that call work of the same names.
    ``name`` and ``parent`` (−1 none) of each operator, ``is_work`` of each name."""
    called = np.flatnonzero((parent >= 0) & is_work[name])
    pairs = np.unique(np.stack([parent[called], name[called]], axis=1), axis=0)
    inside = np.zeros(len(name), np.uint64)
    np.add.at(inside, pairs[:, 0], random_words(pairs[:, 1]))
    kinds, kind = np.unique(inside + random_words(name + np.int64(1 << 40)), return_inverse=True)
    return kind, len(kinds)


def collectives_of(operators: pd.DataFrame, ranges: pd.DataFrame, texts: np.ndarray) -> tuple[pd.Index, pd.DataFrame]:
    """Collectives of a CPU run: the operators that call them (labels, shape (n,)), and the ranges in which another
    thread carries them out (n rows). The k-th call of a kind is the k-th range of it; kinds with unlike numbers are
    left out.
    """
    sides = []
    for frame, prefixes in ((operators, _CALLED), (ranges, _CARRIED_OUT)):
        name = pd.Series(texts[frame["name_id"].to_numpy(np.int64)].astype(str), index=frame.index)
        chosen = frame[name.str.startswith(prefixes)].sort_values("start_ns", kind="stable")
        kind = name[chosen.index].str.replace(r"^\w+:|[^a-z]", "", regex=True)
        who = chosen["process_index"].astype(str).str.cat(kind, " ")
        sides.append(
            pd.DataFrame({"who": who, "order": who.groupby(who).cumcount(), "count": who.map(who.value_counts())})
        )
    calls, found = (side.reset_index(names="label") for side in sides)
    both = calls.merge(found, on=["who", "order", "count"], validate="one_to_one")
    return pd.Index(both["label_x"]), ranges.loc[both["label_y"]]
