"""Histories as tables: many captures of one workload, their times without change or with planted ones.

A model of some layers, each with kernels of one family. What is common to a capture (the machine's clock) moves all of
them, what is a layer's own moves it alone; the sums hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LAYERS = 12


@dataclass
class History:
    """``values``: (captures, measures), ns: the model first, then layers, then kernel families."""

    values: np.ndarray
    names: list[str]
    layer: int = -1  # the one that changed
    first: int = -1  # first capture that shows it
    model_errors: float = 0.0  # size of the change in standard errors of one capture, of the model's latency


def history(
    seed: int, captures: int = 50, *, noise: float = 0.01, tails: bool = False, wander: float = 0.0, spikes: float = 0.0
) -> History:
    """A history without change. ``noise``: relative standard deviation of a capture; ``tails``: some captures are
    outliers; ``wander``: correlation of a capture with the one before; ``spikes``: share of the captures in which a
    layer takes up to three times as long."""
    random = np.random.default_rng(seed)
    means = random.uniform(0.2, 1.0, LAYERS)
    means *= 10e6 / means.sum()
    draw = (
        random.standard_t(3, (captures, LAYERS + 1)) / np.sqrt(3)
        if tails
        else random.normal(size=(captures, LAYERS + 1))
    )
    for k in range(1, captures):
        draw[k] = wander * draw[k - 1] + np.sqrt(1 - wander**2) * draw[k]
    layers = means * (1 + noise * 0.9 * draw[:, :1]) * (1 + noise * draw[:, 1:])
    layers *= np.where(random.random(layers.shape) < spikes, random.uniform(1.2, 3.0, layers.shape), 1.0)
    return _summed(layers)


def _summed(layers: np.ndarray) -> History:
    families = [layers[:, k::3].sum(axis=1) * 0.9 for k in range(3)]
    rest = 0.3e6
    values = np.column_stack([layers.sum(axis=1) + rest, layers, *families])
    names = ["model", *(f"layer {k}" for k in range(layers.shape[1])), *(f"family {k}" for k in range(3))]
    return History(values, names)


def with_step(seed: int, size: float = 0.03, captures: int = 50, **options: object) -> History:
    """One layer is slower from a capture on, by ``size`` of the model's latency and three standard errors or more."""
    plain = history(seed, captures, **options)
    random = np.random.default_rng(seed + 10_000)
    first, layer = int(random.integers(3, captures - 3)), int(random.integers(LAYERS))
    model = plain.values[:, 0]
    amount = max(size * model.mean(), 3 * model.std())
    layers = plain.values[:, 1 : LAYERS + 1].copy()
    layers[first:, layer] += amount
    return History(_summed(layers).values, plain.names, layer, first, amount / model.std())


def with_drift(seed: int, size: float = 0.1, captures: int = 50, **options: object) -> History:
    """One layer becomes slower with every capture, in all by ``size`` of the model's latency."""
    plain = history(seed, captures, **options)
    layer = int(np.random.default_rng(seed + 20_000).integers(LAYERS))
    layers = plain.values[:, 1 : LAYERS + 1].copy()
    layers[:, layer] += np.linspace(0, size * plain.values[:, 0].mean(), captures)
    return History(_summed(layers).values, plain.names, layer)


def under_load(seed: int, captures: int = 50, layers: int = 20) -> np.ndarray:
    """Times of layers without change, ns, shape (captures, layers): the machine's speed wanders, which each layer has a
    power of its own of; other programs run for a time, twice, and slow each layer by another power."""
    random = np.random.default_rng(seed)
    speed = np.zeros(captures)
    for k in range(1, captures):
        speed[k] = 0.9 * speed[k - 1] + random.normal(0, 0.05)
    logs = random.normal(size=(captures, layers)) * random.uniform(0.005, 0.03, layers)
    logs += speed[:, None] * random.uniform(0.6, 1.4, layers)
    for _ in range(2):
        begin = int(random.integers(captures - 4))
        logs[begin : begin + int(random.integers(4, 20))] += random.uniform(0.1, 0.5) * random.uniform(0.5, 1.5, layers)
    return random.uniform(0.2, 1.0, layers) * 1e6 * np.exp(logs)
