"""``run`` → capture: facts about the layers of the model: shapes, flops, least bytes, allocated bytes.

One un-timed pass, apart from every measurement. Flops are `torch.utils.flop_counter`'s (2 per multiply-add;
matrix products, convolutions and attention; elementwise work counts 0), inclusive, forward only. Least
bytes: see `models`.
"""

import copy
import platform
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from xsp_post.hardware import machine
from xsp_post.names import range_text
from xsp_post.workload.models import Built, bytes_of, own_bytes, read_bytes, tensors
from xsp_post.workload.ranges import hooked, output_shape, select_containers, select_layers

_META = torch.device("meta")

ALLOCATOR = "torch CUDA allocator"
OUTPUTS = "output tensors"  # the CPU allocator of torch keeps no statistics


# one entry per layer call, in execution order; columns of ``facts.json``
LAYER_COLUMNS = (
    "phase", "layer_path", "layer_type", "call_index", "shape_text", "flop_count", "least_bytes", "allocated_bytes",
)  # fmt: skip
# one per call of a module that computes something between its layers; the model itself is '' and call −1
FUNCTIONAL_COLUMNS = ("phase", "layer_path", "call_index", "flop_count", "least_bytes")
Rows = list[dict[str, Any]]
Columns = dict[str, list[Any]]


def functional_facts(built: Built, depth: int, kinds: tuple[str, ...]) -> Columns:
    """What the modules around the layers, and the model, compute between them in one iteration.

    Empty for a model that does not run on a copy without data: counting is not worth a run of its own.
    """

    def counted(phase: str, twin: nn.Module, run: Callable[[], Any]) -> Rows:
        counter = FlopCounterMode(display=False)
        between = Counting(twin, select_layers(twin, depth, kinds), counter.get_total_flops)
        with torch.no_grad(), counter, between, hooked(between.hooks):
            run()
        return between.rows(phase)

    return _columns(_without_data(built, counted) or [], FUNCTIONAL_COLUMNS)


def layer_facts(built: Built, depth: int, kinds: tuple[str, ...], is_inference: bool) -> tuple[Columns, str, str]:
    """Facts of every layer call of one iteration, how they were counted, and what allocated_bytes means.

    Works on a copy of the model without data (meta device); a model that needs data is run once as it is.
    """
    counted = partial(_counted, depth=depth, kinds=kinds)
    rows, way, source = _without_data(built, counted), "counted on a copy without data", OUTPUTS
    if rows is None:
        rows, way = [], "counted in a run of its own"
        for phase in built.phases:
            rows += counted(phase.name, built.model, phase.run)
    if next(built.model.parameters(), torch.empty(0)).is_cuda:
        _measure_allocations(rows, built, depth, kinds, is_inference)
        source = ALLOCATOR
    return _columns(rows, LAYER_COLUMNS), way, source


def _without_data(built: Built, count: Callable[[str, nn.Module, Callable[[], Any]], Rows]) -> Rows | None:
    """What is counted in each phase on a copy of the model without data; None where one of them does not run so."""
    rows: Rows = []
    try:
        twin = copy.deepcopy(built.model).to(_META)
        for phase in built.phases:
            if phase.replay is None:  # the user's own phase
                return None
            rows += count(phase.name, twin, partial(phase.replay, twin, _META))
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return None
    return rows


def _columns(rows: Rows, names: tuple[str, ...]) -> Columns:
    return {name: [row[name] for row in rows] for name in names}


def _counted(phase: str, model: nn.Module, run: Callable[[], Any], depth: int, kinds: tuple[str, ...]) -> Rows:
    counter = FlopCounterMode(display=False)
    calls: Counter[str] = Counter()
    rows: Rows = []
    open_layers: list[tuple[dict[str, Any], int]] = []  # their rows, and the flops before them

    def before(path: str, module: nn.Module, inputs: Any) -> None:
        layer_path, layer_type = range_text.layer_names(path, type(module).__name__)
        rows.append({
            "phase": phase, "layer_path": layer_path, "layer_type": layer_type, "call_index": calls[path],
            "shape_text": "", "flop_count": 0, "least_bytes": read_bytes(module, inputs) + own_bytes(module, inputs),
            "allocated_bytes": 0,
        })  # fmt: skip
        open_layers.append((rows[-1], counter.get_total_flops()))
        calls[path] += 1

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        (row, flops), shape = open_layers.pop(), output_shape(output)
        row["shape_text"] = "" if shape is None else f"[{','.join(map(str, shape))}]"
        row["flop_count"] = counter.get_total_flops() - flops
        row["least_bytes"] += bytes_of(output)
        row["allocated_bytes"] = bytes_of(output)

    layers = select_layers(model, depth, kinds)
    with hooked((module, partial(before, path), after) for path, module in layers), torch.no_grad(), counter:
        run()
    return rows


def _measure_allocations(rows: Rows, built: Built, depth: int, kinds: tuple[str, ...], is_inference: bool) -> None:
    """Replace allocated_bytes by what the CUDA allocator handed out during each layer (cumulative counter)."""
    allocated: list[int] = []
    open_calls: list[int] = []

    def total() -> int:
        return int(torch.cuda.memory_stats().get("allocated_bytes.all.allocated", 0))

    def before(module: nn.Module, inputs: Any) -> None:
        open_calls.append(len(allocated))
        allocated.append(-total())

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        allocated[open_calls.pop()] += total()

    layers = select_layers(built.model, depth, kinds)
    with hooked((module, before, after) for _, module in layers), torch.inference_mode(is_inference):
        for phase in built.phases:
            phase.run()
    if len(allocated) == len(rows):
        for row, size in zip(rows, allocated):
            row["allocated_bytes"] = size


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
            (model, partial(self._run, True), partial(self._run, False)),
            *((module, partial(self._deeper, 1), partial(self._deeper, -1)) for _, module in layers),
            *((module, partial(self._enter, path), self._leave) for path, module in select_containers(model, layers)),
        ]

    def rows(self, phase: str) -> list[dict[str, Any]]:
        """What was counted, in order of the first operation."""
        return [
            {"phase": phase, "layer_path": path, "call_index": call, "flop_count": flop, "least_bytes": moved}
            for (path, call), (flop, moved) in self._work.items()
        ]

    def _run(self, is_running: bool, *_: Any) -> None:
        self._is_running = is_running

    def _deeper(self, by: int, *_: Any) -> None:
        self._layer_depth += by

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


def environment(device: str) -> dict[str, Any]:
    """Versions, device and driver of this process. No host name, no user, no environment variable."""
    facts: dict[str, Any] = {
        "framework": f"torch {torch.__version__}",
        "torch_version": str(torch.__version__),
        "python_version": platform.python_version(),
        "cuda_version": torch.version.cuda or "",
        "thread_count": torch.get_num_threads(),
        "cpu_name": machine.cpu_name(),
        "cpu_count": machine.usable_cpu_count(),
        "device_name": machine.cpu_name(),
        "gpu_name": "",
        "driver_version": "",
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        gpus = machine.gpus()
        facts.update(
            device_name=properties.name,
            gpu_name=properties.name,
            driver_version=gpus[0].driver_version if gpus else "",
            gpu_memory_bytes=properties.total_memory,
            compute_capability=f"{properties.major}.{properties.minor}",
            sm_count=properties.multi_processor_count,
            cudnn_version=torch.backends.cudnn.version() or -1,
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            allow_tf32_matmul=torch.backends.cuda.matmul.allow_tf32,
            allow_tf32_cudnn=torch.backends.cudnn.allow_tf32,
        )
    return facts
