"""Kernel names in the order of their streams → which kernels a fused attention would take in."""

from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.names.families import families, matches

# What scales, masks, converts and copies scores; more kernels than so many between two products are something else.
_BETWEEN = ("elementwise", "memory", "softmax")
MOST_BETWEEN = 12
# A softmax of several kernels: maximum, exponential, sum, with elementwise kernels between.
_EXPONENTIAL = r"(?:\b|_)exp_kernel"


def unfused_attention(names: Any, stream: np.ndarray, start_ns: np.ndarray) -> tuple[np.ndarray, int]:
    """Of kernels (names: a column or a list) those between two matrix products of one stream that hold a softmax and
    otherwise only elementwise kernels and copies; bool, shape (n,). And how often that is so."""
    texts, stream = pd.Categorical(names), np.asarray(stream)
    order = np.lexsort((np.asarray(start_ns), stream))
    family, codes, stream = families(texts.categories, broad=True), texts.codes[order], stream[order]

    def are(*wanted: str) -> np.ndarray:
        return np.isin(family, wanted)[codes]

    between, product, softmax = are(*_BETWEEN), are("gemm"), are("softmax")
    # a bias is looked up and added to the scores; a router looks up what its softmax chose
    between[1:-1] |= are("embedding")[1:-1] & are("elementwise")[2:] & ~softmax[:-2]
    mask, count = _between_products(product, stream, softmax, between)
    written = matches(texts.categories, _EXPONENTIAL)[codes]
    reduction = are("reduction")
    others, more = _between_products(product, stream, written, between | reduction, needs=reduction)
    result = np.zeros(len(order), bool)
    result[order] = mask | others
    return result, count + more


def _between_products(
    product: np.ndarray, stream: np.ndarray, core: np.ndarray, between: np.ndarray, needs: np.ndarray | None = None
) -> tuple[np.ndarray, int]:
    """What lies with a ``core`` kernel between two products, only of kernels ``between``, two of which it ``needs``."""
    count, place = len(product), np.arange(len(product))
    if not core.any():
        return np.zeros(count, bool), 0
    before = np.maximum.accumulate(np.where(between, -1, place))[core]
    after = np.minimum.accumulate(np.where(between, count, place)[::-1])[::-1][core]
    inside = (before >= 0) & (after < count) & (after - before - 1 <= MOST_BETWEEN)
    before, after = before[inside], after[inside]
    found = product[before] & product[after] & (stream[before] == stream[after])
    if needs is not None:
        summed = np.cumsum(needs)
        found &= summed[after] - summed[before] >= 2
    before, after = distinct(before[found]), distinct(after[found])
    edges = np.zeros(count + 1, np.int64)
    edges[before + 1] += 1
    edges[after] -= 1
    return np.cumsum(edges[:count]) > 0, len(before)
