"""Convolutions and their two gradients, with groups, stride, dilation and transposition.

Forward: 2 flop per output element, kernel position and input channel of the group. A gradient by the input, and one by
the weights, is as much again. Bytes: what is read of the input, the weights, what is written; a 1×1 kernel with
stride 2 reads a quarter of its input, not all of it.
"""

import math
from dataclasses import dataclass
from typing import Any

from xsp_post.work.amounts import CONVOLUTION, Amounts, Formula, bytes_of, operand_of, times, total
from xsp_post.work.dtypes import element_bytes
from xsp_post.work.signature import Input, Signature


def output_size(size: int, width: int, step: int, pad: int, hole: int) -> int:
    """Size of one dimension after a plain convolution: of input size, kernel width, stride, padding, dilation."""
    return max((size + 2 * pad - hole * (width - 1) - 1) // step + 1, 0)


def read_positions(size: int, width: int, step: int, pad: int, hole: int) -> int:
    """Positions of one dimension that some output looks at: with a stride above the kernel's width not all.

    For a dilated kernel, whose taps may interleave, all positions in reach are taken.
    """
    outputs = output_size(size, width, step, pad, hole)
    if not outputs:
        return 0
    if hole != 1 or step <= width:
        low, high = -pad, -pad + (outputs - 1) * step + hole * (width - 1)
        return max(min(high, size - 1) - max(low, 0) + 1, 0)
    count = outputs * width
    # taps in the padding are not reads: only the first and the last outputs have such
    before = max(min(pad, width), 0)
    last = -pad + (outputs - 1) * step
    after = max(last + width - size, 0)
    return max(count - before - after, 0)


def wide(values: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...]:
    """One number of each dimension: the given ones, one for all, or the usual one."""
    if not values:
        return (default,) * rank
    return values * rank if len(values) == 1 else values


@dataclass(frozen=True)
class Places:
    """Where the inputs of an operator stand, None: it has none of that kind. ``transposed`` may be whether it always
    is; ``masks``: where it may stand which gradients are wanted (by input, by weight, by bias)."""

    stride: int
    padding: int
    dilation: int | None = None
    transposed: int | bool | None = None
    extra: int | None = None  # output padding
    groups: int | None = None
    bias: int | None = None
    addend: int | None = None
    source: int = 0
    weight: int = 1
    gradient: int = 0
    masks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Geometry:
    """One convolution: the sizes of its result, its flop, and how many elements of its input some output needs."""

    source: Input
    weight: Input
    out: tuple[int, ...]
    flop: float
    read_count: float


def _geometry(call: Signature, places: Places) -> Geometry | None:
    source, weight, stride = call.tensor(places.source), call.tensor(places.weight), call.integers(places.stride)
    if source is None or weight is None or stride is None:
        return None  # emit_nvtx says sizes only: without the stride nothing is said of the output
    sizes, kernel = source.shape, weight.shape
    rank = len(kernel) - 2
    dilation, padding = wide(_integers(call, places.dilation), rank, 1), call.integers(places.padding)
    if padding is None and call.value(places.padding).strip("'\"") == "same":
        padding = tuple(hole * (width - 1) // 2 for hole, width in zip(dilation, kernel[2:]))
    stride, padding = wide(stride, rank, 1), wide(padding, rank, 0)
    is_fitting = len(sizes) == len(kernel) >= 3 and {len(stride), len(padding), len(dilation)} == {rank}
    if not is_fitting or 0 in stride or 0 in dilation:
        return None
    is_transposed = places.transposed
    if is_transposed is not None and not isinstance(is_transposed, bool):
        is_transposed = call.flag(is_transposed)
    axes = list(zip(sizes[2:], kernel[2:], stride, padding, dilation))
    per_position = math.prod(kernel[1:])  # the weight knows its groups: (out, in / groups, …)
    if is_transposed:
        # a transposed weight is (in, out / groups, …); the multiply-adds are those of each input element
        groups = (_integers(call, places.groups) or (1,))[0]
        written = [
            max((size - 1) * step - 2 * pad + hole * (width - 1) + more + 1, 0)
            for (size, width, step, pad, hole), more in zip(axes, wide(_integers(call, places.extra), rank, 0))
        ]
        count = math.prod(sizes)
        return Geometry(source, weight, (sizes[0], kernel[1] * groups, *written), 2.0 * count * per_position, count)
    out = (sizes[0], kernel[0], *(output_size(*axis) for axis in axes))
    read_count = sizes[0] * sizes[1] * math.prod(read_positions(*axis) for axis in axes)
    return Geometry(source, weight, out, 2.0 * math.prod(out) * per_position, read_count)


def _integers(call: Signature, place: int | None) -> tuple[int, ...] | None:
    return None if place is None else call.integers(place)


def placed(**places: Any) -> Formula:
    """A formula for an operator whose inputs stand at these `Places`."""
    where = Places(**places)

    def formula(call: Signature) -> Amounts | None:
        geometry = _geometry(call, where)
        if geometry is None:
            return None
        bias = None if where.bias is None else call.tensor(where.bias)
        addend = None if where.addend is None else call.tensor(where.addend)
        count = math.prod(geometry.out)
        size = element_bytes(geometry.source.dtype)
        read = total(times(geometry.read_count, size), *map(bytes_of, (geometry.weight, bias, addend)))
        operations = float(count) if bias is not None else 0.0
        operations = operations if addend is None else 2.0 * addend.element_count
        operand = operand_of(geometry.source, geometry.weight)
        return Amounts(CONVOLUTION, geometry.flop, read, times(count, size), operand, operations)

    return formula


def gradients(**places: Any) -> Formula:
    """The same for an operator that computes gradients."""
    where = Places(**places)

    def formula(call: Signature) -> Amounts | None:
        gradient, geometry = call.tensor(where.gradient), _geometry(call, where)
        mask = next(filter(None, (_mask(call.value(place)) for place in where.masks)), None)
        return None if geometry is None or gradient is None or mask is None else _gradients(geometry, gradient, *mask)

    return formula


def _gradients(geometry: Geometry, gradient: Input, by_input: bool, by_weight: bool, by_bias: bool) -> Amounts:
    """What the gradients that are asked for need; each product reads the gradient of the output."""
    size, weight_bytes = element_bytes(geometry.source.dtype), bytes_of(geometry.weight)
    read: float | None = 0.0
    written: float | None = 0.0
    flop = 0.0
    if by_input:
        flop += geometry.flop
        read = total(read, weight_bytes)
        written = total(written, bytes_of(Input(geometry.source.sizes, geometry.source.dtype)))
    if by_weight:
        flop += geometry.flop
        read = total(read, times(geometry.read_count, size))
        written = total(written, weight_bytes)
    channels = geometry.out[1]
    added = float(gradient.element_count) if by_bias else 0.0
    read = total(read, bytes_of(gradient))
    written = total(written, times(channels, size) if by_bias else 0.0)
    return Amounts(CONVOLUTION, flop, read, written, operand_of(gradient, geometry.weight), added)


def _mask(text: str) -> tuple[bool, bool, bool] | None:
    """``[True, True, False]``, as Kineto and newer ones write it."""
    words = [word.strip().lower() for word in text.strip("[]() ").split(",")] if text else []
    if not words or not all(word in ("true", "false", "1", "0") for word in words):
        return None
    flags = [word in ("true", "1") for word in words]
    flags += [False] * (3 - len(flags))
    return flags[0], flags[1], flags[2]
