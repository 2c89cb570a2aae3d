"""Launch sequences with known structure, for the tests and the benchmark of inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

_FAMILY_NAMES = (
    "ampere_sgemm_128x64_tn", "softmax_warp_forward", "vectorized_layer_norm_kernel", "at::native::relu_kernel",
    "reduce_kernel", "at::native::gelu_kernel", "direct_copy_kernel",
)  # fmt: skip
NAMES = np.array([f"{_FAMILY_NAMES[i % 7]}_kind{i}_" for i in range(400)], dtype=object)


@dataclass
class Truth:
    """A sequence and where its turns and blocks really begin and end (positions after noise)."""

    symbols: np.ndarray
    iterations: np.ndarray  # (turns + 1,)
    blocks: np.ndarray  # (turns, blocks + 1)


def noisy_turns(
    seed: int,
    *,
    kinds: int = 30,
    head: int = 5,
    block: int = 57,
    blocks: int = 32,
    tail: int = 4,
    turns: int = 10,
    before: int = 13,
    after: int = 9,
    noise: float = 0.0,
) -> Truth:
    """(head, blocks × block, tail) × turns between other work, with missing, added and exchanged launches.

    The first launch of a block differs from the one after the last, so that blocks have one true beginning.
    """
    rng = np.random.default_rng(seed)
    body = rng.integers(0, kinds, block)
    first, last = rng.integers(0, kinds, head) + kinds, rng.integers(0, kinds, tail) + kinds
    turn = np.concatenate([first, np.tile(body, blocks), last])
    around = [rng.integers(0, kinds, size) + 2 * kinds for size in (before, after)]
    clean = np.concatenate([around[0], np.tile(turn, turns), around[1]])
    starts = before + len(turn) * np.arange(turns)
    draw = rng.random(len(clean))
    times = np.ones(len(clean), dtype=np.int64)
    times[draw < noise / 3] = 0
    added = (draw >= noise / 3) & (draw < 2 * noise / 3)
    times[added] = 2
    symbols = clean.copy()
    exchanged = (draw >= 2 * noise / 3) & (draw < noise)
    symbols[exchanged] = rng.integers(0, kinds, int(exchanged.sum()))
    moved = np.concatenate([[0], np.cumsum(times)])
    noisy = np.repeat(symbols, times)
    noisy[moved[:-1][added]] = rng.integers(0, kinds, int(added.sum()))
    block_starts = starts[:, None] + head + block * np.arange(blocks + 1)[None, :]
    return Truth(noisy.astype(np.int64), moved[np.append(starts, starts[-1] + len(turn))], moved[block_starts])


def launch_frame(symbols: np.ndarray, **columns: np.ndarray | int) -> pd.DataFrame:
    """A frame as `structure.infer` wants it: one launch each 10 µs, on one thread and stream unless said."""
    at = np.arange(len(symbols), dtype=np.int64) * 10_000
    values: dict[str, np.ndarray | int] = {
        "process_index": 0, "thread_index": 0, "name_id": symbols, "launch_start_ns": at, "launch_end_ns": at + 4_000,
        "start_ns": at + 5_000, "end_ns": at + 9_000, "device_id": 0, "context_id": 1, "stream_id": 7,
        "grid_x": 1, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1,
    }  # fmt: skip
    return pd.DataFrame({**values, **columns}, index=np.arange(len(symbols)))
