"""Rows that one number of one process joins: calls and what they started, by correlation id."""

import numpy as np


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
        keys, asked = ids[mine], of_ids[wanted]
        if len(keys) and len(asked):
            rows = _positions(keys, np.zeros(len(keys), bool) if is_later is None else is_later[mine], asked)
            found[wanted] = rows if isinstance(mine, slice) else np.where(rows >= 0, mine[rows], -1)
    return found


def rows_of(mask: np.ndarray) -> np.ndarray | slice:
    """The rows of a mask; a slice where it holds all."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


def _positions(keys: np.ndarray, is_later: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Position in ``keys`` of every wanted key, −1 none. Of several equal keys those that are not
    ``is_later`` come first."""
    low, high = np.int64(keys.min()), np.int64(keys.max())  # either side may be int32
    inside = (wanted >= low) & (wanted <= high)
    if int(high) - int(low) < 8 * len(keys) + 1024:
        # written backwards, the first of equals is the last to be written and stays
        table = np.full(high - low + 1, -1, np.int32)
        if is_later.any():
            later, sooner = np.flatnonzero(is_later)[::-1], np.flatnonzero(~is_later)[::-1]
            table[keys[later] - low] = later
            table[keys[sooner] - low] = sooner
        else:
            table[keys[::-1] - low] = np.arange(len(keys) - 1, -1, -1, dtype=np.int32)
        if inside.all():
            return table[wanted - low]
        found = np.full(len(wanted), -1, np.int32)
        found[inside] = table[wanted[inside] - low]
        return found
    order = np.lexsort((np.arange(len(keys)), is_later, keys))
    ordered = keys[order]
    position = np.searchsorted(ordered, wanted)
    position[position == len(keys)] = 0
    return np.where(ordered[position] == wanted, order[position], -1)
