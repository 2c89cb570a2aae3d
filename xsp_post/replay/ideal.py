"""Identity replay + an ideal → the share of the device's time that it saves: what no promise may exceed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xsp_post.base.errors import UsageError
from xsp_post.model.results import Results
from xsp_post.replay.changes import apply_change, parse_change
from xsp_post.replay.executions import simulated_clock
from xsp_post.replay.experiment import device_span
from xsp_post.replay.fidelity import Identity
from xsp_post.replay.graph import replay


def ideal_gain(
    results: Results, identity: Identity, capture_id: int, changes: Sequence[str], factors: np.ndarray | None = None
) -> float | None:
    """The share of the executions' time, from their first device work to the last, that changes save, and operations
    that take ``factors`` times what they did (one per operation). None where nothing matches."""
    graph, executions = identity.graph, identity.executions
    amounts, hits = graph.amounts.copy(), factors is not None
    for text in changes:
        try:
            apply_change(parse_change(text), graph, amounts, executions, results, capture_id)
            hits = True
        except UsageError:
            continue  # a recording without synchronisations, copies …
    if not hits:
        return None
    if factors is not None:
        amounts.duration_ns = np.rint(amounts.duration_ns * factors).astype(amounts.duration_ns.dtype)
    clocks = (simulated_clock(one) for one in (identity.replayed, replay(graph, amounts)))
    before, after = (device_span(executions, clock) for clock in clocks)
    return 1 - after / before if before > 0 else None
