"""Rows that one number of one process joins: calls and what they started, by correlation id; what no call started."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.repeats import dense

_NEVER = np.iinfo(np.int64).max


def join_ids(
    process: np.ndarray, ids: np.ndarray, of_process: np.ndarray, of_ids: np.ndarray, is_later: np.ndarray | None = None
) -> np.ndarray:
    """The row of ``ids`` with each wanted process and id, −1 for none and for the id −1; int32, shape of ``of_ids``.

    Of several the first of those that are not ``is_later``, else the first.
    """
    found = np.full(len(of_ids), -1, np.int32)
    for number in range(int(process.max(initial=-1)) + 1):
        mine = rows_of(process == number)
        wanted = rows_of((of_process == number) & (of_ids != -1))
        rows = np.arange(len(ids), dtype=np.int32)[mine]
        if is_later is not None and (later := is_later[mine]).any():
            rows = np.concatenate([rows[~later], rows[later]])
        found[wanted] = lookup(ids[rows], rows, of_ids[wanted])
    return found


def rows_of(mask: np.ndarray) -> np.ndarray | slice:
    """The rows of a mask; a slice where it holds all."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """``values`` at the place where ``keys`` equals ``wanted``, of several the first; −1 where none does. All are whole
    numbers; shape of ``wanted``."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    wanted = wanted.astype(np.int64, copy=False)  # either side may be int32
    low, high = int(keys.min()), int(keys.max())
    if high - low < 8 * len(keys) + 4 * len(wanted) + 1024:  # a table is faster than a search
        table = np.full(high - low + 1, -1, values.dtype)
        table[keys[::-1] - np.int64(low)] = values[::-1]  # written backwards, the first of equals stays
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, table[np.clip(wanted, low, high) - np.int64(low)], -1)
    order = np.argsort(keys, kind="stable")
    position = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    found = order[position]
    return np.where(keys[found] == wanted, values[found], -1)


def row_with(known: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> np.ndarray:
    """The row of some columns in which each holds what is wanted of it, of several the first; −1 where none does. All
    are whole numbers; shape of those that are wanted."""
    number, _ = dense(*map(np.concatenate, zip(known, wanted)))
    count = len(known[0])
    return lookup(number[:count], np.arange(count), number[count:])


def queued_before(
    process: np.ndarray, streams: list[np.ndarray], start_ns: np.ndarray, end_ns: np.ndarray, launched: np.ndarray
) -> np.ndarray:
    """Which operations were in a queue that held up what was recorded: those without a launch that ran before the
    first of their stream with one, in a stream without any before the first of their process; none of a process that
    rested longer afterwards, which took nothing from what the host began meanwhile. bool, shape of ``start_ns``.

    ``streams``: columns that tell the streams of a process apart.
    """
    if launched.all() or not launched.any():
        return np.zeros(len(start_ns), bool)
    at = pd.Series(np.where(launched, start_ns, _NEVER))
    of_stream, of_process = (at.groupby(one).transform("min").to_numpy() for one in ([process, *streams], process))
    first = np.where(of_stream < _NEVER, of_stream, of_process)
    queued = ~launched & (start_ns < first) & (first < _NEVER)
    for one in distinct(process[queued]).tolist():
        mine = np.flatnonzero(process == one)
        mine = mine[np.argsort(start_ns[mine], kind="stable")]
        ahead = mine[queued[mine]]
        since = end_ns[ahead].max()
        until = np.maximum(np.maximum.accumulate(end_ns[mine]), since)
        rested = np.maximum(start_ns[mine][1:] - until[:-1], 0).sum()
        queued[ahead] = rested < since - start_ns[ahead[0]]
    return queued
