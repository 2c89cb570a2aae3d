"""Kernel names in the order of their streams → which kernels a fused attention would take in."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from xsp_post.names.families import families

# What scales, masks, converts and copies scores; more than so many kernels between two products are something else.
_BETWEEN = ("elementwise", "memory", "softmax")
MOST_BETWEEN = 8


def unfused_attention(names: Iterable[str], stream: np.ndarray, start_ns: np.ndarray) -> tuple[np.ndarray, int]:
    """Of kernels, those between two matrix products of one stream that hold a softmax and otherwise only elementwise
    kernels and copies; bool, shape (n,). And how often that is so."""
    stream = np.asarray(stream)
    order = np.lexsort((np.asarray(start_ns), stream))
    family, stream = families(names)[order], stream[order]
    count, place = len(order), np.arange(len(order))
    mask = np.zeros(count, bool)
    softmax = family == "softmax"
    if not softmax.any():
        return mask, 0
    others = ~np.isin(family, _BETWEEN)
    before = np.maximum.accumulate(np.where(others, place, -1))[softmax]
    after = np.minimum.accumulate(np.where(others, place, count)[::-1])[::-1][softmax]
    inside = (before >= 0) & (after < count) & (after - before - 1 <= MOST_BETWEEN)
    before, after = before[inside], after[inside]
    product = family == "gemm"
    found = product[before] & product[after] & (stream[before] == stream[after])
    before, after = np.unique(before[found]), np.unique(after[found])
    edges = np.zeros(count + 1, np.int64)
    edges[before + 1] += 1
    edges[after] -= 1
    mask[order] = np.cumsum(edges[:count]) > 0
    return mask, len(before)
