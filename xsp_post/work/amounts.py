"""What one call of an operator needs at the least: flop, element operations, bytes read and written, and the pipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from xsp_post.work.dtypes import element_bytes, kind_of
from xsp_post.work.signature import Input, Signature

PRODUCT, CONVOLUTION, ATTENTION, EXPERTS = "product", "convolution", "attention", "experts"
NORMALISATION, ELEMENTWISE, REDUCTION, LOOKUP, COPY, OPTIMIZER, COLLECTIVE, ROUTING = (
    "normalisation", "elementwise", "reduction", "lookup", "copy", "optimizer", "collective", "routing",
)  # fmt: skip
FAMILIES = (
    PRODUCT, CONVOLUTION, ATTENTION, EXPERTS, NORMALISATION, ELEMENTWISE, REDUCTION, LOOKUP, COPY, OPTIMIZER,
    COLLECTIVE, ROUTING,
)  # fmt: skip


@dataclass(frozen=True)
class Amounts:
    """The least work of one call.

    ``flop``: 2 per multiply-add of matrix products, convolutions and attention, as `torch.utils.flop_counter` counts;
    ``element_operations``: one per output element of everything else, which that convention leaves out (a bias
    addition, an activation). Bytes count each tensor once; None where an element type is unknown.
    ``operand``: element type of the multiplied operands (fp32, bf16 …; '' unknown or none).
    """

    family: str
    flop: float
    read_bytes: float | None
    written_bytes: float | None
    operand: str = ""
    element_operations: float = 0.0
    note: str = ""

    @property
    def least_bytes(self) -> float | None:
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes


Formula = Callable[[Signature], Amounts | None]


def takes(*indexes: int) -> Callable[[Callable[..., Amounts | None]], Formula]:
    """A formula of a call and of these inputs → a formula of a call: None where one of the inputs is not a tensor."""

    def of_call(formula: Callable[..., Amounts | None]) -> Formula:
        @wraps(formula)
        def evaluated(call: Signature) -> Amounts | None:
            tensors = [call.tensor(index) for index in indexes]
            return None if any(one is None for one in tensors) else formula(call, *tensors)

        return evaluated

    return of_call


def bytes_of(one: Input | None, count: float | None = None) -> float | None:
    """Bytes of a tensor's elements (or of ``count`` of them), each once; 0 for what is not there, None unknown type."""
    if one is None:
        return 0.0
    if one.items:
        return total(*(bytes_of(item) for item in one.items))
    if not one.is_tensor:
        return 0.0
    size = element_bytes(one.dtype)
    return None if size is None else size * (one.touched_count if count is None else count)


def total(*parts: float | None) -> float | None:
    """The sum, None as soon as one part is unknown."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def times(count: float, size: float | None) -> float | None:
    return None if size is None else count * size


def operand_of(*tensors: Input | None) -> str:
    """The widest floating or int8 type among the multiplied tensors; '' unknown.

    Tensor cores multiply equal types: weights that are stored narrower (fp4, int8) are widened to the other operand.
    """
    kinds = [(element_bytes(one.dtype) or 0.0, kind_of(one.dtype)) for one in tensors if one is not None]
    named = [kind for kind in sorted(kinds) if kind[1]]
    return named[-1][1] if named and len(named) == len(kinds) else ""
