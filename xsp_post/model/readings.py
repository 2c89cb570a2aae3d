"""``spans.json`` of a level-M capture → model latencies by iteration and block: what `run` decides by while it runs."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from xsp_post.arrays import statistics
from xsp_post.model.capture import DONE, Capture, read_json
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL
from xsp_post.names import range_text

LEAST_PROCESSES = 3
DISTURBED_RATIO = 1.03  # a block this much slower after one level than after another is disturbed by it


def block_latencies_ns(made: Capture) -> list[list[int]]:
    """Per block the latency of each measured iteration, the sum of its phases, in ns; empty without readings.

    A block begins where a measured iteration follows a warm-up.
    """
    path = made.path("spans")
    if path is None:
        return []
    values = read_json(path)
    parsed = [range_text.parse(text) for text in values["texts"]]
    blocks: list[dict[int, int]] = []
    is_settling = True
    for text_index, start_ns, end_ns in zip(values["text_indexes"], values["start_ns"], values["end_ns"]):
        said = parsed[text_index]
        if said is not None and said.kind == range_text.MODEL:
            if is_settling or not blocks:
                blocks.append({})
            blocks[-1][said.index] = blocks[-1].get(said.index, 0) + end_ns - start_ns
        if said is not None and said.kind in (range_text.MODEL, range_text.WARMUP):
            is_settling = said.kind == range_text.WARMUP
    return [list(block.values()) for block in blocks]


def model_latency_ns(made: Capture) -> float:
    """Trimmed mean over the measured iterations of a clock capture, in ns; 0 without any."""
    values = [value for block in block_latencies_ns(made) for value in block]
    return statistics.trimmed_mean(values) if values else 0.0


def disturbance(captures: Sequence[Capture]) -> float:
    """How many times slower level M is in blocks after M/L/G than in blocks after M/L, where that is shown by several
    processes and is above `DISTURBED_RATIO`; else 1."""
    ratios = []
    for made in captures:
        facts = made.path("facts")
        if made.level != RUN_MODEL or made.status != DONE or not made.process or facts is None:
            continue
        order = read_json(facts).get("block_levels", [])
        before = [above for above, level in pairwise(["", *order]) if level == RUN_MODEL]
        after = {level: [] for level in (RUN_LAYER, RUN_KERNEL)}  # type: dict[str, list[int]]
        for level, values in zip(before, block_latencies_ns(made)):
            after.get(level, []).extend(values)
        if all(after.values()):
            ratios.append(median(after[RUN_KERNEL]) / median(after[RUN_LAYER]))
    if len(ratios) < LEAST_PROCESSES:
        return 1.0
    summary = statistics.summarise_groups(np.log(ratios), np.zeros(len(ratios), np.int64), 1, trim_ratio=0.0).iloc[0]
    ratio = float(np.exp(summary["trimmed_mean"]))
    return ratio if summary["ci_low"] > 0 and ratio > DISTURBED_RATIO else 1.0
