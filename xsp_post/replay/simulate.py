"""A program of max-plus steps → the time of every step, without a Python loop over the steps.

A recording is replayed on *registers*: the clock of each host thread, the time each stream is free, the time of
each event. One step writes one register: ``x[target] = max(x[first] + first_ns, x[second] + second_ns)``. Such steps
are linear in the (max, +) algebra, so a run of them is one matrix, and runs can be composed. The program is cut into
about √n equal chunks; all chunks are turned into their matrices side by side, the states between chunks follow from
these, and a second pass side by side gives the time of each step. The loops run over the length of a chunk.
"""

from dataclasses import dataclass

import numpy as np

ZERO = 0  # the register that holds 0 always: a bound is a step from it
NEVER = -(1 << 60)  # before every time; the sum of two is still an int64
_STATE_BYTES = 64 << 20


@dataclass
class Program:
    """Steps in an order in which every step stands behind what it depends on; arrays of one length, times in ns.

    ``second_ns`` is `NEVER` where a step has one source only. ``first`` wins where both are equal.
    """

    target: np.ndarray
    first: np.ndarray
    first_ns: np.ndarray
    second: np.ndarray
    second_ns: np.ndarray
    register_count: int  # with ZERO

    def __len__(self) -> int:
        return len(self.target)


def lanes_of(target: np.ndarray, first: np.ndarray, second: np.ndarray, register_count: int) -> tuple[np.ndarray, ...]:
    """The registers of steps, whatever their times, as (step of the chunk, chunk). They are numbered chunk after chunk;
    what fills the last chunk writes what `ZERO` holds."""
    most = max(1, _STATE_BYTES // (8 * register_count**2))
    chunks = int(min(max(1, round((2 * len(target)) ** 0.5)), most))
    shape, begins = (-(-len(target) // chunks), chunks), np.arange(chunks) * register_count
    return tuple(_side_by_side(values, ZERO, shape) + begins for values in (target, first, second))


def _side_by_side(values: np.ndarray, fill: int, shape: tuple[int, ...]) -> np.ndarray:
    full = np.full(shape[::-1], fill, np.int64)
    full.ravel()[: len(values)] = values
    return np.ascontiguousarray(full.T)


def run(program: Program, lanes: tuple[np.ndarray, ...] = ()) -> np.ndarray:
    """Simulate: when every step is done, ns; all registers are 0 at the beginning. Shape (steps,)."""
    if not len(program):
        return np.zeros(0, np.int64)
    target, first, second = lanes or lanes_of(program.target, program.first, program.second, program.register_count)
    times = (_side_by_side(program.first_ns, 0, target.shape), _side_by_side(program.second_ns, NEVER, target.shape))
    columns, at = (target, first, times[0], second, times[1]), np.empty_like(target)
    states = _states_between(columns, target.shape[1], program.register_count)
    for k, (target, first, first_ns, second, second_ns) in enumerate(zip(*columns)):
        one, other = states.take(first) + first_ns, states.take(second) + second_ns
        states[target] = np.maximum(one, other, out=at[k])
    return at.T.ravel()[: len(program)]


def _states_between(columns: tuple[np.ndarray, ...], chunks: int, width: int) -> np.ndarray:
    """Registers before each chunk, chunk after chunk."""
    states = np.zeros((chunks, width), np.int64)
    if chunks == 1:
        return states.ravel()
    matrices = np.full((chunks, width, width), NEVER, np.int64)
    matrices[:, np.arange(width), np.arange(width)] = 0
    rows = matrices.reshape(chunks * width, width)
    row = np.dtype((np.void, 8 * width))  # as one value: NumPy puts it in its place in a tenth of the time
    for target, first, first_ns, second, second_ns in zip(*columns):
        one, other = rows.take(first, axis=0), rows.take(second, axis=0)
        one += first_ns[:, None]
        other += second_ns[:, None]
        np.maximum(one, other, out=one)  # a row has a real way: what is `NEVER` does not sum up
        np.put(rows.view(row), target, one.view(row))
    for matrix, state, following in zip(matrices, states, states[1:]):
        np.maximum.reduce(np.add(matrix, state, out=matrix), axis=1, out=following)
    return states.ravel()
