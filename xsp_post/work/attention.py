"""Attention: dense, causal, grouped heads, packed lengths, paged inference; and its backward pass.

Forward: two products, queries × keys and weights × values: 2·(d_qk + d_v) flop per head and pair of a query and a key
it may see. A causal mask leaves n·(n + 1) / 2 of n² pairs. Backward: five products, one of which computes the weights
again. Bytes: queries, keys, values and output, each once: the matrix of weights need not leave the chip.
"""

from dataclasses import dataclass

from xsp_post.work.amounts import ATTENTION, Amounts, Formula, bytes_of, operand_of, takes, times, total
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


def _shape(query: Input, key: Input, value: Input, heads: int) -> _Shape | None:
    """Of tensors of four dimensions, of which ``heads`` is 1, as torch's own operators take them (batch, heads, length,
    width), or 2, as the flash-attention library does (batch, length, heads, width)."""
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) == 4:
        return None
    return _Shape(q[0], q[heads], q[3 - heads], k[3 - heads], q[3], v[3])


def _amounts(
    shape: _Shape | None, query: Input, key: Input, value: Input, is_causal: bool, *, is_aligned_at_end: bool = False,
    is_backward: bool = False, mask: Input | None = None,
) -> Amounts | None:  # fmt: skip
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


def placed(
    first: int, causal: int, heads: int = 1, lengths: tuple[int, int, int, int] | None = None, *,
    mask: int | None = None, is_backward: bool = False, is_causal_number: bool = False,
) -> Formula:  # fmt: skip
    """``first``: the position of the queries, which keys and values follow; ``causal``, ``mask``: of those inputs;
    ``heads``: of tensors of four dimensions (`_shape`). Where those of a library are packed (tokens, heads, width)
    ``lengths`` are the inputs with cumulative query and key lengths and the longest of each. Packed requests of unequal
    length have no known pairs. ``is_causal_number``: the mask is a number: 0 none, 1 causal from the start, 2 from the
    end; where it is a flag, torch's own count from the start, and a library from the end."""

    @takes(first, first + 1, first + 2)
    def formula(call: Signature, query: Input, key: Input, value: Input) -> Amounts | None:
        bias = call.tensor(mask) if mask is not None else None
        is_packed = lengths is not None and len(query.shape) == 3
        shape = _packed(call, query, key, value, lengths) if is_packed else _shape(query, key, value, heads)
        number = (call.integers(causal) or (0,))[0] if is_causal_number else heads * bool(call.flag(causal))
        return _amounts(
            shape, query, key, value, number > 0, is_aligned_at_end=number == 2, is_backward=is_backward, mask=bias
        )

    return formula


def _packed(
    call: Signature, query: Input, key: Input, value: Input, lengths: tuple[int, int, int, int] | None
) -> _Shape | None:
    q, k, v = query.shape, key.shape, value.shape
    if lengths is None or not len(q) == len(k) == len(v) == 3:
        return None
    starts = call.tensor(lengths[0])
    longest = [(call.integers(index) or (0,))[0] for index in lengths[2:]]
    batch = starts.element_count - 1 if starts is not None else 0
    if batch < 1 or longest[0] * batch != q[0] or longest[1] * batch != k[0]:
        return None
    return _Shape(batch, q[1], longest[0], longest[1], q[2], v[2])


def paged(call: Signature, step: Step | None) -> Amounts | None:
    """Attention of a serving step over a paged cache: q (tokens, heads, width), k and v (…, key heads, width).

    How long each request's past is stands in no tensor's size: the sums of the step's text say it, without them
    nothing is known. Windowed layers attend to less than that: their numbers are an upper bound.
    """
    query, key, value = (call.tensor(i) for i in range(3))
    if step is None or query is None or key is None or value is None:
        return None
    q, k, v = query.shape, key.shape, value.shape
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
