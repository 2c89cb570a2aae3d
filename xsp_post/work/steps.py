"""Texts of serving steps → the sums over their requests that attention needs (`names.step_texts`)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xsp_post.names.step_texts import step_sizes


@dataclass(frozen=True)
class Step:
    """Over the requests: Σ q, Σ k, Σ q², Σ q·k (q: new tokens, k: tokens attended to)."""

    token_count: int
    key_count: int
    query_square_count: int
    query_key_count: int

    @property
    def pair_count(self) -> float:
        """Pairs of a query and a key it may see: the i-th of q new tokens sees k − q + i of k."""
        return self.query_key_count - (self.query_square_count - self.token_count) / 2


def read_steps(texts: Sequence[str]) -> list[Step | None]:
    """The step that each range's text describes; None where it does not say all four sums."""
    if not len(texts):
        return []
    found = step_sizes(np.array(texts, object), of_engines=True)
    rows = zip(*(found[name].tolist() for name in Step.__dataclass_fields__))
    return [Step(*row) if min(row) > 0 else None for row in rows]
