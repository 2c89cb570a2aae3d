"""Texts of serving steps → the sums over their requests that attention needs.

vLLM and SGLang name a step ``execute_<tokens>_context_<n>(sq…sk…sqsq…sqsk…)_generation_<n>(sq…sk…sqsq…sqsk…)``: over
the requests in prefill and in decode the sums of query lengths, key lengths, query lengths squared and products.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SUMS = r"(?:\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,18})sqsk(\d{1,18})\))?"
_STEP = re.compile(rf"execute_(\d{{1,12}})_context_(\d{{1,9}}){_SUMS}_generation_(\d{{1,9}}){_SUMS}")


@dataclass(frozen=True)
class Sums:
    """Of the requests of one kind: how many, Σ q, Σ k, Σ q², Σ q·k (q: new tokens, k: tokens attended to)."""

    request_count: int = 0
    query_count: int = 0
    key_count: int = 0
    query_squared: int = 0
    query_times_key: int = 0

    @property
    def pair_count(self) -> float:
        """Pairs of a query and a key it may see: the i-th of q new tokens sees k − q + i of k."""
        return self.query_times_key - (self.query_squared - self.query_count) / 2


@dataclass(frozen=True)
class Step:
    token_count: int
    context: Sums
    generation: Sums

    @property
    def pair_count(self) -> float:
        return self.context.pair_count + self.generation.pair_count

    @property
    def key_count(self) -> int:
        return self.context.key_count + self.generation.key_count

    @property
    def has_lengths(self) -> bool:
        return self.key_count > 0


def read_step(text: str) -> Step | None:
    """The step that a range's text describes; None for every other text."""
    match = _STEP.search(text) if len(text) < 1000 else None
    if match is None:
        return None
    tokens, contexts, c_sq, c_sk, c_sqsq, c_sqsk, generations, g_sq, g_sk, g_sqsq, g_sqsk = (
        int(one or 0) for one in match.groups()
    )
    return Step(
        tokens,
        Sums(contexts, c_sq, c_sk, c_sqsq, c_sqsk),
        Sums(generations, g_sq, g_sk, g_sqsq, g_sqsk),
    )
