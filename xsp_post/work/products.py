"""Matrix products: mm, addmm, bmm, linear, matmul …, the libraries' own, grouped products of experts.

A product of (m × k) and (k × n) is 2·m·n·k flop and reads m·k + k·n, writes m·n elements. What is added to it (a bias,
``beta·C``) is m·n element operations and the bytes of the addend; a zero dimension needs nothing.
"""

import math

from xsp_post.work.amounts import EXPERTS, PRODUCT, Amounts, bytes_of, operand_of, takes, times, total
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


@takes(0, 1)
def linear(call: Signature, left: Input, weight: Input) -> Amounts | None:
    """input (…, k), weight (n, k), bias."""
    return product(_flat(left), weight, call.tensor(2), is_right_transposed=True) if len(weight.shape) == 2 else None


def _flat(rows: Input) -> Input:
    """All rows as one batch."""
    return Input((math.prod(rows.shape[:-1]), rows.shape[-1]), rows.dtype)


@takes(0, 1)
def gemm_transposed(call: Signature, left: Input, right: Input) -> Amounts | None:
    """Libraries' products of (m, k) with (n, k)ᵀ: aiter, vLLM; a third tensor of n elements is a bias."""
    is_transposed = len(right.shape) >= 2 and right.shape[-1] == left.shape[-1]
    bias = call.tensor(2)
    bias = bias if bias is not None and len(bias.shape) == 1 else None
    left = _flat(left) if len(left.shape) > 2 and len(right.shape) == 2 else left
    return product(left, right, bias, is_right_transposed=is_transposed)


def scaled_mm(call: Signature) -> Amounts | None:
    """_scaled_mm of fp8: left, right, scales, bias, …, out dtype: 16 bits unless another output tensor is named."""
    left, right = call.tensor(0), call.tensor(1)
    out = next((one.dtype for one in call.inputs[2:] if one.dtype in ("c10::BFloat16", "c10::Half")), "c10::BFloat16")
    return product(left, right, out_dtype=out)


@takes(0, 1)
def grouped_mm(call: Signature, left: Input, right: Input) -> Amounts | None:
    """_grouped_mm: rows (t, k) sorted by expert × weights (experts, k, n): each row meets one expert."""
    if len(left.shape) == 2 and len(right.shape) == 3:
        (rows, k), (_, k_right, n) = left.shape, right.shape
        if k != k_right:
            k_right, n = n, k_right
        return _routed(rows, k, n, left, right) if k == k_right else None
    if len(left.shape) == 2 and len(right.shape) == 2:  # the gradient of the weights: rows are what is summed over
        (m, rows), (rows_right, n) = left.shape, right.shape
        if rows != rows_right:
            return None
        offsets = next((one for one in call.tensors()[2:] if len(one.shape) == 1), None)
        groups = offsets.element_count if offsets is not None else 1
        size = element_bytes(left.dtype)
        return Amounts(
            EXPERTS, 2.0 * m * rows * n, total(bytes_of(left), bytes_of(right)), times(groups * m * n, size),
            operand_of(left, right),
        )  # fmt: skip
    return product(left, right, family=EXPERTS)


def _routed(rows: int, k: int, n: int, left: Input, weights: Input) -> Amounts:
    """Rows that each meet one expert's (k × n) weights; of the experts at most one per row is read."""
    read = times(min(weights.shape[0], rows) * k * n, element_bytes(weights.dtype))
    return Amounts(
        EXPERTS, 2.0 * rows * k * n, total(bytes_of(left), read), times(rows * n, element_bytes(left.dtype)),
        operand_of(left, weights),
    )  # fmt: skip


def chosen_experts(experts: int, tokens: int, top_k: int) -> float:
    """How many experts some token chooses, on average, where all are chosen alike often."""
    return experts * (1 - (1 - min(top_k / experts, 1)) ** tokens) if experts else 0.0


@takes(0, 1, 2)
def expert_product(call: Signature, rows: Input, weights: Input, choices: Input) -> Amounts | None:
    """One product of a mixture of experts: rows (tokens · top_k, k), weights (experts, k, n), choices (tokens, top_k).

    Two 4-bit weights share a byte. With ``swiglu`` the kernel multiplies the halves of its result, and reads each
    token once (rows are gathered); without, it reads the rows of the product before it.
    """
    if len(weights.shape) != 3:
        return None
    (count, k), (experts, inner, n), (tokens, top_k) = rows.shape, weights.shape, choices.shape
    is_gated = call.value(2) == "swiglu"
    size = element_bytes(rows.dtype)
    weight_size = 1.0 if weights.dtype == "fp4" else element_bytes(weights.dtype)
    read_rows = times((tokens if is_gated else count) * k, size)
    read = total(read_rows, times(chosen_experts(experts, tokens, top_k) * inner * n, weight_size))
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
    three = [one for one in call.tensors() if len(one.shape) == 3]
    two = [one for one in call.tensors() if len(one.shape) == 2]
    if len(three) < 2 or not two:
        return None
    hidden, (up, down) = two[0], three[:2]
    tokens, width = hidden.shape
    integer = ("int", "long int", "short int", "unsigned int")
    choices = next((one for one in two[1:] if one.shape[0] == tokens and one.dtype in integer), None)
    if choices is None:
        return None
    experts, top_k = up.shape[0], choices.shape[1]
    pack = 2 if up.shape[2] * 2 == width else 1
    if up.shape[2] * pack != width or down.shape[1] != width or down.shape[0] != experts:
        return None
    inner = down.shape[2] * pack
    rows = tokens * top_k
    used = chosen_experts(experts, tokens, top_k) / experts if experts else 0.0
    flop = 2.0 * rows * width * up.shape[1] + 2.0 * rows * inner * width
    weights = total(bytes_of(up), bytes_of(down))
    operand = operand_of(hidden) if pack == 2 else operand_of(hidden, up)
    read = total(bytes_of(hidden), None if weights is None else weights * used)
    return Amounts(
        EXPERTS, flop, read, bytes_of(hidden), operand, float(rows * inner), note="experts chosen alike often"
    )
