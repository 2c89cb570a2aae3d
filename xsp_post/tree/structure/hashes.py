"""Trace → Tree, for launches without ranges: what can be asked of a sequence of symbols in near-linear time.

A symbol is a small integer that stands for one kind of launch (kernel name, grid, block). Two stretches are
compared by a 64-bit polynomial hash of their symbols: equal stretches have equal hashes, unlike ones differ
but for a chance of about n²/2⁶⁴.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

_BASE = 0x9E3779B97F4A7C15 | 1
_INVERSE_BASE = pow(_BASE, -1, 1 << 64)
LONGEST_GRAM = 64


def random_words(codes: np.ndarray) -> np.ndarray:
    """Each code as a fixed, random-looking 64-bit word (splitmix64); uint64, shape (n,)."""
    with np.errstate(over="ignore"):
        z = codes.astype(np.uint64) + np.uint64(1)
        z *= np.uint64(_BASE)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z


def _powers(base: int, count: int) -> np.ndarray:
    powers = np.full(count, base & ((1 << 64) - 1), dtype=np.uint64)
    if count:
        powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)  # wraps modulo 2**64, as meant


@dataclass
class Hashed:
    """A sequence of symbols whose stretches can be compared in constant time each.

    symbols int64, shape (n,); prefix and inverse are internal.
    """

    symbols: np.ndarray
    prefix: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, symbols: np.ndarray) -> Hashed:
        n = len(symbols)
        with np.errstate(over="ignore"):
            terms = random_words(symbols) * _powers(_BASE, n)
            prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return cls(symbols, prefix, _powers(_INVERSE_BASE, n + 1))

    def stretches(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Hash of each stretch [start, end); uint64. Equal content and length give equal hashes."""
        with np.errstate(over="ignore"):
            content = (self.prefix[ends] - self.prefix[starts]) * self.inverse[starts]
            return content ^ random_words(ends - starts)

    def grams(self, length: int) -> np.ndarray:
        """Dense code of the `length` symbols from each position; int64, shape (max(n - length + 1, 0),)."""
        count = len(self.symbols) - length + 1
        if count <= 0:
            return np.empty(0, np.int64)
        with np.errstate(over="ignore"):
            content = (self.prefix[length:] - self.prefix[:count]) * self.inverse[:count]
        return pd.factorize(content)[0].astype(np.int64)


def bits_per_symbol(symbols: np.ndarray) -> float:
    """Collision entropy of the symbols in bits: −log2 of the chance that two random ones are equal."""
    if not len(symbols):
        return 0.0
    shares = np.bincount(symbols - symbols.min()) / len(symbols)
    return float(-np.log2(np.square(shares).sum()))


def telling_length(count: int, bits: float, spare_bits: float = 8.0, least: int = 3) -> int:
    """How many symbols must agree before agreement somewhere in `count` symbols is unlikely to be chance."""
    if bits <= 0:
        return LONGEST_GRAM + 1
    return max(least, math.ceil((math.log2(max(count, 2)) + spare_bits) / bits))
