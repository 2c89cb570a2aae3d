"""An operator's name → its formula (`operators.txt`). What is not listed is unknown, never zero.

``is_wrapper``: an operator that passes on to others; its formula counts only where none of those is known.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from xsp_post.base.texts import Block, TextTable, read_blocks
from xsp_post.work import attention, convolutions, memory_bound, products
from xsp_post.work.amounts import Amounts
from xsp_post.work.signature import Input, Signature, read_signature
from xsp_post.work.steps import Step

_MODULES = {"attention": attention, "convolutions": convolutions, "memory_bound": memory_bound, "products": products}
_SEVERAL = ("lengths", "masks")  # arguments of several numbers
_TEXTS = ("family", "read", "written", "operations")


@dataclass(frozen=True)
class Operator:
    formula: Callable[..., Amounts | None]
    is_wrapper: bool = False
    takes_step: bool = False


def _operators() -> dict[str, Operator]:
    blocks = read_blocks(Path(__file__).with_name("operators.txt"))
    return {
        name: one for block in blocks for one in [_operator(block)] for _, line in block.lines for name in line.split()
    }


def _operator(block: Block) -> Operator:
    function, *words = block.name.split()
    module, _, name = function.partition(".")
    formula = getattr(_MODULES[module], name)
    arguments = dict(word.split("=") for word in words if "=" in word)
    if arguments:
        formula = formula(**{key: _argument(key, text) for key, text in arguments.items()})
    return Operator(formula, "wrapper" in words, "step" in words)


def _argument(name: str, text: str) -> int | bool | str | tuple[int, ...]:
    if name in _TEXTS:
        return text
    if text == "yes":
        return True
    numbers = tuple(map(int, text.split(",")))
    return numbers if name in _SEVERAL else numbers[0]


OPERATORS = TextTable(_operators)
_TRITON = ("triton_poi_fused", "triton_red_fused", "triton_per_fused", "triton_poi_", "triton_red_", "triton_per_")


def is_known(operator: str) -> bool:
    """Whether there is a formula for an operator of that name."""
    return operator in OPERATORS or operator.startswith(_TRITON)


def is_wrapper(operator: str) -> bool:
    """Whether the operator passes its work on to others, which count where they are known."""
    found = OPERATORS.get(operator)
    return found is not None and found.is_wrapper


def takes_step(operator: str) -> bool:
    """Whether the work hangs on the serving step around the call."""
    found = OPERATORS.get(operator)
    return found is not None and found.takes_step


def work_of(operator: str, text: str, *, step: Step | None = None, assumed_type: str = "") -> Amounts | None:
    """The least work of one call of ``operator`` whose inputs ``text`` describes (`signature.read_signature`).

    ``step`` is the serving step around the call; ``assumed_type`` stands in for element types that the capture does
    not say, which the result's note tells. None where there is no formula, or the text says too little for it.
    """
    if not is_known(operator):
        return None
    call = read_signature(operator, text)
    if call is None:
        return None
    completed = _with_types(call, assumed_type)
    try:
        found = _evaluate(completed, step)
    except (ValueError, IndexError, OverflowError):
        return None  # sizes of another form than the operator takes
    if found is None or completed is call:
        return found
    note = f"element type taken as {assumed_type}"
    return replace(found, note=f"{found.note}; {note}" if found.note else note)


def _evaluate(call: Signature, step: Step | None) -> Amounts | None:
    found = OPERATORS.get(call.operator)
    if found is None:
        return memory_bound.fused_triton(call)
    return found.formula(call, step) if found.takes_step else found.formula(call)


def _with_types(call: Signature, assumed_type: str) -> Signature:
    """The same with ``assumed_type`` where a tensor has none; the very same where nothing was missing."""
    if not assumed_type:
        return call

    def completed(one: Input) -> Input:
        if one.items:
            return replace(one, items=tuple(completed(item) for item in one.items))
        return replace(one, dtype=assumed_type) if one.is_tensor and one.sizes and not one.dtype else one

    inputs = tuple(completed(one) for one in call.inputs)
    return call if inputs == call.inputs else replace(call, inputs=inputs)
