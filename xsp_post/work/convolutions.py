"""Convolutions and their two gradients, with groups, stride, dilation and transposition.

Forward: 2 flop per output element, kernel position and input channel of the group. A gradient by the input, and one by
the weights, is as much again. Bytes: what is read of the input, the weights, what is written; a 1×1 kernel with
stride 2 reads a quarter of its input, not all of it.
"""

from __future__ import annotations

import math

from xsp_post.work.amounts import CONVOLUTION, Amounts, Formula, bytes_of, operand_of, times, total
from xsp_post.work.dtypes import element_bytes
from xsp_post.work.signature import Input, Signature


def output_sizes(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    """Spatial sizes after a plain convolution."""
    return tuple(
        max((size + 2 * pad - hole * (width - 1) - 1) // step + 1, 0)
        for size, width, step, pad, hole in zip(sizes, kernel, stride, padding, dilation)
    )


def transposed_sizes(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[int, ...]:
    """Spatial sizes after a transposed convolution."""
    return tuple(
        max((size - 1) * step - 2 * pad + hole * (width - 1) + more + 1, 0)
        for size, width, step, pad, hole, more in zip(sizes, kernel, stride, padding, dilation, extra)
    )


def read_positions(size: int, width: int, step: int, pad: int, hole: int) -> int:
    """Positions of one dimension that some output looks at: with a stride above the kernel's width not all.

    For a dilated kernel, whose taps may interleave, all positions in reach are taken.
    """
    outputs = max((size + 2 * pad - hole * (width - 1) - 1) // step + 1, 0)
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


def _wide(values: tuple[int, ...] | None, rank: int, default: int) -> tuple[int, ...]:
    if not values:
        return (default,) * rank
    return values * rank if len(values) == 1 else values


class Geometry:
    """One convolution's sizes, from input, weight, stride, padding, dilation, transposed, output padding, groups."""

    def __init__(
        self,
        source: Input,
        weight: Input,
        *,
        stride: tuple[int, ...] | None,
        padding: tuple[int, ...] | None,
        dilation: tuple[int, ...] | None,
        is_transposed: bool,
        extra: tuple[int, ...] | None,
        groups: int,
    ) -> None:
        self.source, self.weight, self.is_transposed = source, weight, is_transposed
        sizes, kernel = source.sizes or (), weight.sizes or ()
        self.is_usable = len(sizes) == len(kernel) >= 3
        if not self.is_usable:
            return
        rank = len(kernel) - 2
        self.kernel = kernel[2:]
        self.stride, self.padding = _wide(stride, rank, 1), _wide(padding, rank, 0)
        self.dilation = _wide(dilation, rank, 1)
        lengths = {len(self.stride), len(self.padding), len(self.dilation), rank}
        if len(lengths) != 1 or 0 in self.stride or 0 in self.dilation:
            self.is_usable = False
            return
        batch, spatial = sizes[0], sizes[2:]
        arguments = (spatial, self.kernel, self.stride, self.padding, self.dilation)
        per_position = math.prod(kernel[1:])  # the weight knows its groups: (out, in / groups, …)
        if is_transposed:
            written = transposed_sizes(*arguments, _wide(extra, rank, 0))
            # a transposed weight is (in, out / groups, …); the multiply-adds are those of each input element
            self.out = (batch, kernel[1] * groups, *written)
            self.flop = 2.0 * batch * math.prod(spatial) * sizes[1] * per_position
        else:
            written = output_sizes(*arguments)
            self.out = (batch, kernel[0], *written)
            self.flop = 2.0 * math.prod(self.out) * per_position
        self.read_count = self._read_count(sizes)

    def _read_count(self, sizes: tuple[int, ...]) -> float:
        """Elements of the input that some output needs."""
        if self.is_transposed:
            return float(math.prod(sizes))
        spatial = (
            read_positions(*one) for one in zip(sizes[2:], self.kernel, self.stride, self.padding, self.dilation)
        )
        return float(sizes[0] * sizes[1] * math.prod(spatial))


def cudnn_convolution_add_relu(call: Signature) -> Amounts | None:
    """aten::cudnn_convolution_add_relu: input, weight, addend, alpha, bias, stride, padding, dilation, groups."""
    found = _forward(call, 4, 5, 6, 7, None, None, 8)
    addend = call.tensor(2)
    if found is None or addend is None:
        return found
    read = total(found.read_bytes, bytes_of(addend))
    return Amounts(CONVOLUTION, found.flop, read, found.written_bytes, found.operand, 2.0 * addend.element_count)


def placed(*positions: int | bool | None) -> Formula:
    """A formula for an operator whose inputs after input and weight stand at ``positions``: bias, stride, padding,
    dilation, transposed (or whether it always is), output padding, groups; None for one that it does not have."""
    return lambda call: _forward(call, *positions)  # type: ignore[arg-type]


def _forward(
    call: Signature,
    bias: int | None,
    stride: int,
    padding: int,
    dilation: int | None,
    transposed: int | bool | None,
    extra: int | None,
    groups: int | None,
) -> Amounts | None:
    geometry = _geometry(call, 0, 1, stride, padding, dilation, transposed, extra, groups)
    if geometry is None:
        return None
    added = call.tensor(bias) if bias is not None else None
    count = math.prod(geometry.out)
    size = element_bytes(geometry.source.dtype)
    read = total(times(geometry.read_count, size), bytes_of(geometry.weight), bytes_of(added))
    return Amounts(
        CONVOLUTION, geometry.flop, read, times(count, size), operand_of(geometry.source, geometry.weight),
        float(count) if added is not None else 0.0,
    )  # fmt: skip


def _geometry(
    call: Signature,
    source: int,
    weight: int,
    stride: int,
    padding: int,
    dilation: int | None,
    transposed: int | bool | None,
    extra: int | None,
    groups: int | None,
) -> Geometry | None:
    held, kernel = call.tensor(source), call.tensor(weight)
    steps = call.integers(stride)
    if held is None or kernel is None or steps is None:
        return None  # emit_nvtx says sizes only: without the stride nothing is said of the output
    padded = call.integers(padding)
    if padded is None:
        if call.value(padding).strip("'\"") != "same":
            padded = (0,)
        else:
            holes = _wide(call.integers(dilation) if dilation is not None else None, len(kernel.sizes or ()) - 2, 1)
            padded = tuple(hole * (width - 1) // 2 for hole, width in zip(holes, (kernel.sizes or ())[2:]))
    is_transposed = transposed if isinstance(transposed, bool) else bool(transposed and call.flag(transposed))
    geometry = Geometry(
        held,
        kernel,
        stride=steps,
        padding=padded,
        dilation=call.integers(dilation) if dilation is not None else None,
        is_transposed=bool(is_transposed),
        extra=call.integers(extra) if extra is not None else None,
        groups=(call.integers(groups) or (1,))[0] if groups is not None else 1,
    )
    return geometry if geometry.is_usable else None


def convolution_backward(call: Signature) -> Amounts | None:
    """aten::convolution_backward: grad output, input, weight, bias sizes, stride, padding, dilation, transposed,
    output padding, groups, mask (gradient by input, by weight, by bias)."""
    gradient, mask = call.tensor(0), _mask(call.value(10))
    geometry = _geometry(call, 1, 2, 4, 5, 6, 7, 8, 9)
    if geometry is None or gradient is None or mask is None:
        return None
    return _gradients(geometry, gradient, *mask)


def cudnn_convolution_backward(call: Signature) -> Amounts | None:
    """aten::cudnn_convolution_backward (before 1.11): input, grad output, weight, padding, stride, dilation, groups,
    benchmark, deterministic, tf32, mask (by input, by weight)."""
    gradient, mask = call.tensor(1), _mask(call.value(10)) or _mask(call.value(9))
    geometry = _geometry(call, 0, 2, 4, 3, 5, None, None, 6)
    if geometry is None or gradient is None or mask is None:
        return None
    return _gradients(geometry, gradient, mask[0], mask[1], False)


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
