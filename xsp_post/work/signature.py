"""Recorded texts of one operator call → `Signature`: its inputs with sizes, element types, strides and values.

Two texts exist. Kineto's record is JSON: ``[dims, types, strides, values]``, and for a collective a fifth element with
what torch.distributed says of the message. ``emit_nvtx`` writes sizes only: ``[[8, 3, 224, 224], [64, 3, 7, 7]]``.
Any text is accepted: captures are hostile, and what cannot be read is None.
"""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass, field
from typing import Any

LONGEST_TEXT = 20_000  # characters; a list of more tensors than that is not read
_MOST_ELEMENTS = 2**62


@dataclass(frozen=True)
class Input:
    """One input: a tensor (``sizes`` is not None), a list of tensors, or a value (``value``, '' unknown)."""

    sizes: tuple[int, ...] | None = None
    dtype: str = ""
    strides: tuple[int, ...] | None = None
    value: str = ""
    items: tuple[Input, ...] = ()

    @property
    def is_tensor(self) -> bool:
        return self.sizes is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of a tensor; () of what is none."""
        return self.sizes or ()

    @property
    def element_count(self) -> int:
        """Elements of the tensor, or of all tensors of the list."""
        if self.items:
            return sum(item.element_count for item in self.items)
        return math.prod(self.sizes) if self.sizes is not None else 0

    @property
    def touched_count(self) -> int:
        """Elements that lie in memory: an expanded dimension (stride 0) is there once."""
        if self.items:
            return sum(item.touched_count for item in self.items)
        if self.sizes is None or self.strides is None or len(self.strides) != len(self.sizes):
            return self.element_count
        return math.prod(size for size, stride in zip(self.sizes, self.strides) if stride != 0 or size == 0)


@dataclass(frozen=True)
class Signature:
    """An operator and what one call of it was given. ``message`` describes a collective."""

    operator: str
    inputs: tuple[Input, ...]
    message: dict[str, Any] = field(default_factory=dict, hash=False)

    def tensor(self, index: int) -> Input | None:
        """The index-th input where it is a tensor with sizes."""
        one = self.inputs[index] if 0 <= index < len(self.inputs) else None
        return one if one is not None and one.is_tensor and one.sizes != () else None

    def tensors(self) -> list[Input]:
        found: list[Input] = []
        for one in self.inputs:
            found += [item for item in (one.items or (one,)) if item.is_tensor]
        return found

    def value(self, index: int) -> str:
        return self.inputs[index].value if 0 <= index < len(self.inputs) else ""

    def integers(self, index: int) -> tuple[int, ...] | None:
        """A list of integers (``[2, 2]``) or one integer among the values."""
        read = _literal(self.value(index))
        if isinstance(read, bool):
            return None
        if isinstance(read, int):
            return (read,)
        return tuple(read) if isinstance(read, list) and all(type(one) is int for one in read) else None

    def flag(self, index: int) -> bool | None:
        return {"True": True, "False": False, "true": True, "false": False}.get(self.value(index).strip())


def read_signature(operator: str, text: str) -> Signature | None:
    """The signature in a record of Kineto (JSON) or in the sizes of ``emit_nvtx``; None where the text says none."""
    if not text.startswith("[") or len(text) > LONGEST_TEXT:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, list):
        return None
    is_kineto = len(record) in (4, 5) and isinstance(record[1], list) and any(type(one) is str for one in record[1])
    if not is_kineto and len(record) == 5 and isinstance(record[4], dict):
        is_kineto = True
    if not is_kineto:
        return Signature(operator, tuple(_tensor(sizes, "", None, "") for sizes in record))
    dims, types, strides, values = (one if isinstance(one, list) else [] for one in record[:4])
    count = max(len(dims), len(types), len(values))

    def at(listed: list[Any], index: int) -> Any:
        return listed[index] if index < len(listed) else None

    inputs = tuple(_tensor(at(dims, i), at(types, i), at(strides, i), at(values, i)) for i in range(count))
    message = record[4] if len(record) == 5 and isinstance(record[4], dict) else {}
    return Signature(operator, inputs, message)


def _tensor(sizes: Any, dtype: Any, strides: Any, value: Any) -> Input:
    dtype = dtype if isinstance(dtype, str) else ""
    value = value if isinstance(value, str) else ""
    if isinstance(sizes, list) and sizes and all(isinstance(one, list) for one in sizes):
        of_strides = strides if isinstance(strides, list) and len(strides) == len(sizes) else [None] * len(sizes)
        items = tuple(_tensor(one, "", step, "") for one, step in zip(sizes, of_strides))
        return Input(dtype=dtype, items=items)
    whole = _integers(sizes)
    if whole is None or dtype in ("Scalar", "ScalarList", "GenericList", "TensorList"):
        return Input(dtype=dtype, value=value)
    if not whole and not dtype and not value:
        return Input()  # None, or (without types) a number
    return Input(sizes=whole, dtype=dtype, strides=_integers(strides), value=value)


def _integers(listed: Any) -> tuple[int, ...] | None:
    if not isinstance(listed, list) or not all(type(one) is int for one in listed):
        return None
    sizes = tuple(listed)
    return sizes if all(0 <= one < _MOST_ELEMENTS for one in sizes) and math.prod(sizes) < _MOST_ELEMENTS else None


def _literal(text: str) -> Any:
    if not text or len(text) > 1000:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
