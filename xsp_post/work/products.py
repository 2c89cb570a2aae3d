"""Matrix products: mm, addmm, bmm, linear, matmul …, the libraries' own, grouped products of experts.

A product of (m × k) and (k × n) is 2·m·n·k flop and reads m·k + k·n, writes m·n elements. What is added to it (a bias,
``beta·C``) is m·n element operations and the bytes of the addend; a zero dimension needs nothing.
"""

import math

from xsp_post.work.amounts import EXPERTS, PRODUCT, Amounts, bytes_of, operand_of, times, total
from xsp_post.work.dtypes import element_bytes
from xsp_post.work.signature import Input, Signature


def product(
    left: Input | None, right: Input | None, addend: Input | None = None, *, is_right_transposed: bool = False,
    out_dtype: str = "", family: str = PRODUCT,
) -> Amounts | None:  # fmt: skip
    """One (batched) product. ``right`` is (…, k, n), or (…, n, k) where it is stored transposed."""
    if left is None or right is None or not left.sizes or not right.sizes:
        return None
    a, b = left.sizes, right.sizes
    if is_right_transposed and len(b) >= 2:
        b = (*b[:-2], b[-1], b[-2])
    if len(a) == 1:
        a = (1, *a)
    if len(b) == 1:
        b = (*b, 1)
    m, k, n = a[-2], a[-1], b[-1]
    if b[-2] != k:
        return None
    batch = _broadcast(a[:-2], b[:-2])
    if batch is None:
        return None
    written = batch * m * n
    out = element_bytes(out_dtype or left.dtype)
    added = float(written) if addend is not None else 0.0
    return Amounts(
        family,
        2.0 * written * k,
        total(bytes_of(left), bytes_of(right), bytes_of(addend)),
        times(written, out),
        operand_of(left, right),
        added,
    )


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> int | None:
    """Number of products of two batches; None where they do not fit."""
    width = max(len(a), len(b))
    a, b = (1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b)):
        return None
    return math.prod(max(x, y) if 0 not in (x, y) else 0 for x, y in zip(a, b))


def mm(call: Signature) -> Amounts | None:
    """mm, bmm, matmul …: left, right."""
    return product(call.tensor(0), call.tensor(1))


def addmm(call: Signature) -> Amounts | None:
    """addmm, addmv, baddbmm: addend, left, right, beta, alpha. With ``beta`` 0 the addend is not read."""
    is_read = call.value(3) not in ("0", "0.", "0.0")
    return product(call.tensor(1), call.tensor(2), call.tensor(0) if is_read else None)


def linear(call: Signature) -> Amounts | None:
    """input (…, k), weight (n, k), bias."""
    left, weight = call.tensor(0), call.tensor(1)
    if left is None or weight is None or left.sizes is None or len(weight.sizes or ()) != 2:
        return None
    rows = math.prod(left.sizes[:-1])
    flat = Input((rows, left.sizes[-1]), left.dtype)
    return product(flat, weight, call.tensor(2), is_right_transposed=True)


def gemm_transposed(call: Signature) -> Amounts | None:
    """Libraries' products of (m, k) with (n, k)ᵀ: aiter, vLLM; a third tensor of n elements is a bias."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or left.sizes is None or right.sizes is None:
        return None
    is_transposed = len(right.sizes) >= 2 and right.sizes[-1] == left.sizes[-1]
    bias = call.tensor(2)
    is_bias = bias is not None and bias.sizes is not None and len(bias.sizes) == 1
    if len(left.sizes) > 2 and len(right.sizes) == 2:
        left = Input((math.prod(left.sizes[:-1]), left.sizes[-1]), left.dtype)
    return product(left, right, bias if is_bias else None, is_right_transposed=is_transposed)


def scaled_mm(call: Signature) -> Amounts | None:
    """_scaled_mm of fp8: left, right, scales, bias, …, out dtype: 16 bits unless another output tensor is named."""
    left, right = call.tensor(0), call.tensor(1)
    out = next((one.dtype for one in call.inputs[2:] if one.dtype in ("c10::BFloat16", "c10::Half")), "c10::BFloat16")
    return product(left, right, out_dtype=out)


def grouped_mm(call: Signature) -> Amounts | None:
    """_grouped_mm: rows (t, k) sorted by expert × weights (experts, k, n): each row meets one expert."""
    left, right = call.tensor(0), call.tensor(1)
    if left is None or right is None or left.sizes is None or right.sizes is None:
        return None
    if len(left.sizes) == 2 and len(right.sizes) == 3:
        (rows, k), (_, k_right, n) = left.sizes, right.sizes
        if k != k_right:
            k_right, n = n, k_right
        if k != k_right:
            return None
        return _routed(rows, k, n, left, right)
    if len(left.sizes) == 2 and len(right.sizes) == 2:  # the gradient of the weights: rows are what is summed over
        (m, rows), (rows_right, n) = left.sizes, right.sizes
        if rows != rows_right:
            return None
        offsets = next((one for one in call.tensors()[2:] if len(one.sizes or ()) == 1), None)
        groups = offsets.element_count if offsets is not None else 1
        size = element_bytes(left.dtype)
        return Amounts(
            EXPERTS, 2.0 * m * rows * n, total(bytes_of(left), bytes_of(right)), times(groups * m * n, size),
            operand_of(left, right),
        )  # fmt: skip
    return product(left, right, family=EXPERTS)


def _routed(rows: int, k: int, n: int, left: Input, weights: Input) -> Amounts:
    """Rows that each meet one expert's (k × n) weights; of the experts at most one per row is read."""
    experts = (weights.sizes or (1,))[0]
    size = element_bytes(weights.dtype)
    read = times(min(experts, rows) * k * n, size)
    return Amounts(
        EXPERTS, 2.0 * rows * k * n, total(bytes_of(left), read), times(rows * n, element_bytes(left.dtype)),
        operand_of(left, weights),
    )  # fmt: skip


def chosen_experts(experts: int, tokens: int, top_k: int) -> float:
    """How many experts some token chooses, on average, where all are chosen alike often."""
    return experts * (1 - (1 - min(top_k / experts, 1)) ** tokens) if experts else 0.0


def expert_product(call: Signature) -> Amounts | None:
    """One product of a mixture of experts: rows (tokens · top_k, k), weights (experts, k, n), choices (tokens, top_k).

    Two 4-bit weights share a byte. With ``swiglu`` the kernel multiplies the halves of its result, and reads each
    token once (rows are gathered); without, it reads the rows of the product before it.
    """
    rows, weights, choices = (call.tensor(i) for i in range(3))
    if rows is None or weights is None or choices is None:
        return None
    if rows.sizes is None or weights.sizes is None or choices.sizes is None or len(weights.sizes) != 3:
        return None
    (count, k), (experts, _, n), (tokens, top_k) = rows.sizes, weights.sizes, choices.sizes
    is_gated = call.value(2) == "swiglu"
    size = element_bytes(rows.dtype)
    weight_size = 1.0 if weights.dtype == "fp4" else element_bytes(weights.dtype)
    read_rows = times((tokens if is_gated else count) * k, size)
    read = total(read_rows, times(chosen_experts(experts, tokens, top_k) * weights.sizes[1] * n, weight_size))
    width = n // 2 if is_gated else n
    operand = operand_of(rows, weights)
    operations = float(count * n) if is_gated else 0.0
    return Amounts(
        EXPERTS, 2.0 * count * k * n, read, times(count * width, size), operand, operations,
        note="experts chosen alike often",
    )  # fmt: skip


def fused_experts(call: Signature) -> Amounts | None:
    """A whole mixture-of-experts layer: hidden (t, h), w1 (e, 2i or i, h), w2 (e, h, i), and (t, top_k) choices.

    Recognised by sizes, whatever order the library gives its inputs: the two tensors of three dimensions are the
    weights, the first of two dimensions the hidden states, the choices have the hidden states' rows and an
    integer type. Packed weights (two 4-bit values in one byte) are recognised by half their width.
    """
    three = [one for one in call.tensors() if len(one.sizes or ()) == 3]
    two = [one for one in call.tensors() if len(one.sizes or ()) == 2]
    if len(three) < 2 or not two or two[0].sizes is None:
        return None
    hidden, (up, down) = two[0], three[:2]
    tokens, width = two[0].sizes
    integer = ("int", "long int", "short int", "unsigned int")
    choices = next(
        (one for one in two[1:] if one.sizes is not None and one.sizes[0] == tokens and one.dtype in integer), None
    )
    if choices is None or choices.sizes is None or up.sizes is None or down.sizes is None:
        return None
    experts, top_k = up.sizes[0], choices.sizes[1]
    pack = 2 if up.sizes[2] * 2 == width else 1
    if up.sizes[2] * pack != width or down.sizes[1] != width or down.sizes[0] != experts:
        return None
    inner = down.sizes[2] * pack
    rows = tokens * top_k
    used = chosen_experts(experts, tokens, top_k) / experts if experts else 0.0
    flop = 2.0 * rows * width * up.sizes[1] + 2.0 * rows * inner * width
    weights = total(bytes_of(up), bytes_of(down))
    operand = operand_of(hidden) if pack == 2 else operand_of(hidden, up)
    read = total(bytes_of(hidden), None if weights is None else weights * used)
    return Amounts(
        EXPERTS, flop, read, bytes_of(hidden), operand, float(rows * inner), note="experts chosen alike often"
    )
