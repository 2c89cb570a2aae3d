"""``run`` → capture: the work of functional operations between layers: residual additions, functional attention …

A layer's own work is counted at its hooks. What the modules around the layers compute themselves, or the model, is
counted here, by Python-level calls of torch functions while no layer runs: flop as `torch.utils.flop_counter` counts
them; bytes of each call's tensors once, none for a view.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from xsp_post.names import range_text
from xsp_post.workload.layer_work import bytes_of
from xsp_post.workload.models import tensors
from xsp_post.workload.ranges import select_containers

_NO_WORK = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}


class Counting(TorchFunctionMode):
    """Counts while it is entered, its `hooks` are on the modules and `model` runs."""

    def __init__(self, model: nn.Module, layers: list[tuple[str, nn.Module]], total_flop: Callable[[], int]) -> None:
        super().__init__()
        self._total_flop = total_flop
        self._open: list[tuple[str, int]] = [("", -1)]
        self._layer_depth = 0
        self._is_running = False  # making and moving the inputs is not work of the model
        self._work: dict[tuple[str, int], tuple[int, int]] = {}
        self._calls: Counter[str] = Counter()
        self.hooks: list[tuple[nn.Module, Callable[..., None], Callable[..., None]]] = [
            (model, lambda module, inputs: self._run(True), lambda module, inputs, output: self._run(False)),
            *((module, self._enter_layer, self._leave_layer) for _, module in layers),
            *((module, partial(self._enter, path), self._leave) for path, module in select_containers(model, layers)),
        ]

    def rows(self, phase: str) -> list[dict[str, Any]]:
        """What was counted, in order of the first operation."""
        return [
            {"phase": phase, "layer_path": path, "call_index": call, "flop_count": flop, "least_bytes": moved}
            for (path, call), (flop, moved) in self._work.items()
        ]

    def _run(self, is_running: bool) -> None:
        self._is_running = is_running

    def _enter_layer(self, module: nn.Module, inputs: Any) -> None:
        self._layer_depth += 1

    def _leave_layer(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._layer_depth -= 1

    def _enter(self, path: str, module: nn.Module, inputs: Any) -> None:
        layer_path, _ = range_text.layer_names(path, type(module).__name__)
        self._open.append((layer_path, self._calls[path]))
        self._calls[path] += 1

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._open.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self._total_flop()
        output = func(*args, **(kwargs or {}))
        if self._layer_depth == 0 and self._is_running:
            moved = _moved_bytes(func, [*args, *(kwargs or {}).values()], output)
            flop = self._total_flop() - before
            if moved or flop:
                known = self._work.get(self._open[-1], (0, 0))
                self._work[self._open[-1]] = (known[0] + flop, known[1] + moved)
        return output


def _moved_bytes(func: Any, inputs: list[Any], output: Any) -> int:
    """Bytes of the tensors of one call, each once; 0 for a view, for what makes no tensor and for what fills none."""
    if func is Tensor.__setitem__:
        return 2 * bytes_of(inputs[2]) if len(inputs) > 2 and isinstance(inputs[2], Tensor) else 0
    written = tensors(output)
    name = str(getattr(func, "__name__", ""))
    if not written or name in _NO_WORK:
        return 0
    is_in_place = name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
    held = {_storage(one) for one in tensors(inputs)}
    if not is_in_place and all(_storage(one) in held for one in written):
        return 0
    return bytes_of(inputs) + bytes_of(output)


def _storage(tensor: Tensor) -> int:
    """What tells whether two tensors are views of the same memory, also where there is none (meta)."""
    return int(tensor.untyped_storage()._cdata)
