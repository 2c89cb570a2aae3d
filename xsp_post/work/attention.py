"""Attention: dense, causal, grouped heads, packed lengths, paged inference; and its backward pass.

Forward: two products, queries × keys and weights × values: 2·(d_qk + d_v) flop per head and pair of a query and a key
it may see. A causal mask leaves n·(n + 1) / 2 of n² pairs. Backward: five products, one of which computes the weights
again. Bytes: queries, keys, values and output, each once: the matrix of weights need not leave the chip.
"""

from __future__ import annotations

from dataclasses import dataclass

from xsp_post.work.amounts import ATTENTION, Amounts, bytes_of, operand_of, times, total
from xsp_post.work.dtypes import element_bytes
from xsp_post.work.signature import Input, Signature
from xsp_post.work.steps import Step


@dataclass(frozen=True)
class _Shape:
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int


def pairs(queries: int, keys: int, *, is_causal: bool, is_aligned_at_end: bool = False) -> float:
    """Pairs of a query and a key it may see. Causal: query i sees keys 0…i, counted from the first key, or, where the
    ends are aligned (flash-attention ≥ 2.1, every decode step), from the end."""
    if not is_causal:
        return float(queries * keys)
    if is_aligned_at_end:
        seen = min(queries, keys)
        return seen * keys - seen * (seen - 1) / 2
    full = min(queries, keys)
    return full * (full + 1) / 2 + (queries - full) * keys


def _heads_first(query: Input, key: Input, value: Input) -> _Shape | None:
    """(batch, heads, length, width), as torch's own operators take it."""
    q, k, v = query.sizes, key.sizes, value.sizes
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 4:
        return None
    return _Shape(q[0], q[1], q[2], k[2], q[3], v[3])


def _length_first(query: Input, key: Input, value: Input) -> _Shape | None:
    """(batch, length, heads, width), as the flash-attention library takes it."""
    q, k, v = query.sizes, key.sizes, value.sizes
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 4:
        return None
    return _Shape(q[0], q[2], q[1], k[1], q[3], v[3])


def _amounts(
    shape: _Shape | None,
    query: Input,
    key: Input,
    value: Input,
    is_causal: bool,
    *,
    is_aligned_at_end: bool = False,
    is_backward: bool = False,
    mask: Input | None = None,
) -> Amounts | None:
    if shape is None:
        return None
    seen = pairs(shape.queries, shape.keys, is_causal=is_causal, is_aligned_at_end=is_aligned_at_end)
    per_pair = 2.0 * (shape.width + shape.value_width)
    if is_backward:
        per_pair = 2.0 * (3 * shape.width + 2 * shape.value_width)
    out = times(shape.batch * shape.heads * shape.queries * shape.value_width, element_bytes(query.dtype))
    read = total(bytes_of(query), bytes_of(key), bytes_of(value), bytes_of(mask))
    written = out
    if is_backward:  # the output and its gradient are read too; the gradients of q, k and v are written
        read, written = total(read, out, out), total(bytes_of(query), bytes_of(key), bytes_of(value))
    flop = per_pair * shape.batch * shape.heads * seen
    return Amounts(ATTENTION, flop, read, written, operand_of(query, key))


def _torch_call(
    call: Signature, first: int, causal: int, *, is_backward: bool = False, mask: int | None = None
) -> Amounts | None:
    query, key, value = (call.tensor(first + i) for i in range(3))
    if query is None or key is None or value is None:
        return None
    is_causal = call.flag(causal)
    bias = call.tensor(mask) if mask is not None else None
    shape = _heads_first(query, key, value)
    return _amounts(shape, query, key, value, bool(is_causal), is_backward=is_backward, mask=bias)


def sdpa(call: Signature) -> Amounts | None:
    """aten::scaled_dot_product_attention: q, k, v, mask, dropout, causal."""
    return _torch_call(call, 0, 5, mask=3)


def sdpa_flash(call: Signature) -> Amounts | None:
    """…_flash_attention (also …_for_cpu): q, k, v, dropout, causal."""
    return _torch_call(call, 0, 4)


def sdpa_masked(call: Signature) -> Amounts | None:
    """…_efficient_attention, …_cudnn_attention: q, k, v, bias, compute log-sum-exp, dropout, causal."""
    return _torch_call(call, 0, 6, mask=3)


def sdpa_flash_backward(call: Signature) -> Amounts | None:
    """grad, q, k, v, out, log-sum-exp, cumulative lengths (2), longest (2), dropout, causal."""
    return _torch_call(call, 1, 11, is_backward=True)


def sdpa_cpu_backward(call: Signature) -> Amounts | None:
    """grad, q, k, v, out, log-sum-exp, dropout, causal."""
    return _torch_call(call, 1, 7, is_backward=True)


def sdpa_masked_backward(call: Signature) -> Amounts | None:
    """…_efficient_attention_backward: grad, q, k, v, bias, out, log-sum-exp, seed, offset, dropout, mask, causal."""
    return _torch_call(call, 1, 11, is_backward=True, mask=4)


def sdpa_cudnn_backward(call: Signature) -> Amounts | None:
    """grad, q, k, v, out, log-sum-exp, seed, offset, bias, cumulative lengths (2), longest (2), dropout, causal."""
    return _torch_call(call, 1, 14, is_backward=True, mask=8)


def _library_call(
    call: Signature,
    first: int,
    causal: int,
    lengths: tuple[int, int, int, int] | None,
    *,
    is_backward: bool = False,
    is_causal_number: bool = False,
) -> Amounts | None:
    """Length-first tensors; where they are packed (tokens, heads, width) ``lengths`` are the inputs with cumulative
    query and key lengths and the longest of each. Packed requests of unequal length have no known pairs."""
    query, key, value = (call.tensor(first + i) for i in range(3))
    if query is None or key is None or value is None or query.sizes is None or key.sizes is None:
        return None
    causal_number = (call.integers(causal) or (0,))[0] if is_causal_number else 0
    is_causal = causal_number > 0 if is_causal_number else bool(call.flag(causal))
    if len(query.sizes) == 4:
        shape = _length_first(query, key, value)
    else:
        shape = _packed(call, query, key, value, lengths)
    is_end = not is_causal_number or causal_number == 2
    return _amounts(
        shape, query, key, value, is_causal, is_aligned_at_end=is_end, is_backward=is_backward
    )  # fmt: skip


def _packed(
    call: Signature, query: Input, key: Input, value: Input, lengths: tuple[int, int, int, int] | None
) -> _Shape | None:
    q, k, v = query.sizes, key.sizes, value.sizes
    if lengths is None or q is None or k is None or v is None or not len(q) == len(k) == len(v) == 3:
        return None
    starts = call.tensor(lengths[0])
    longest = [(call.integers(index) or (0,))[0] for index in lengths[2:]]
    batch = starts.element_count - 1 if starts is not None else 0
    if batch < 1 or longest[0] * batch != q[0] or longest[1] * batch != k[0]:
        return None
    return _Shape(batch, q[1], longest[0], longest[1], q[2], v[2])


def flash_forward(call: Signature) -> Amounts | None:
    """aten::_flash_attention_forward: q, k, v, cumulative lengths (2), longest (2), dropout, causal."""
    return _library_call(call, 0, 8, (3, 4, 5, 6))


def flash_backward(call: Signature) -> Amounts | None:
    """aten::_flash_attention_backward: grad, q, k, v, out, log-sum-exp, cumulative (2), longest (2), dropout,
    causal."""
    return _library_call(call, 1, 11, (6, 7, 8, 9), is_backward=True)


def efficient_forward(call: Signature) -> Amounts | None:
    """aten::_efficient_attention_forward: q, k, v, bias, cumulative (2), longest (2), dropout, mask type (0 none, 1
    causal from the start, 2 from the end)."""
    return _library_call(call, 0, 9, (4, 5, 6, 7), is_causal_number=True)


def efficient_backward(call: Signature) -> Amounts | None:
    """aten::_efficient_attention_backward: grad, q, k, v, bias, out, cumulative (2), longest (2), log-sum-exp, dropout,
    seed, offset, mask type."""
    return _library_call(call, 1, 12, (6, 7, 8, 9), is_backward=True, is_causal_number=True)


def flash_library_forward(call: Signature) -> Amounts | None:
    """flash_attn::_flash_attn_forward: q, k, v, dropout, scale, causal."""
    return _library_call(call, 0, 5, None)


def flash_library_packed(call: Signature) -> Amounts | None:
    """flash_attn::_flash_attn_varlen_forward: q, k, v, cumulative (2), longest (2), dropout, scale, causal."""
    return _library_call(call, 0, 9, (3, 4, 5, 6))


def flash_library_backward(call: Signature) -> Amounts | None:
    """flash_attn::_flash_attn_backward: grad, q, k, v, out, log-sum-exp, dq, dk, dv, dropout, scale, causal."""
    return _library_call(call, 1, 11, None, is_backward=True)


def paged(call: Signature, step: Step | None) -> Amounts | None:
    """Attention of a serving step over a paged cache: q (tokens, heads, width), k and v (…, key heads, width).

    How long each request's past is stands in no tensor's size: the sums of the step's text say it, without them
    nothing is known. Windowed layers attend to less than that: their numbers are an upper bound.
    """
    query, key, value = (call.tensor(i) for i in range(3))
    if step is None or not step.has_lengths or query is None or key is None or value is None:
        return None
    q, k, v = query.sizes or (), key.sizes or (), value.sizes or ()
    if len(q) != 3 or len(k) < 2 or len(v) < 2:
        return None
    tokens, heads, width = q
    key_heads, value_width = k[-2], v[-1]
    size, cached = element_bytes(query.dtype), element_bytes(key.dtype)
    flop = 2.0 * heads * (width + value_width) * step.pair_count
    past = times(step.key_count * key_heads * (k[-1] + value_width), cached)
    read = total(times(tokens * heads * width, size), past)
    written = times(tokens * heads * value_width, size)
    return Amounts(ATTENTION, flop, read, written, operand_of(query, key), note="whole past of each request")
