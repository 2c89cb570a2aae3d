"""``run`` → capture: facts about the layers of the model: shapes, flops, least bytes, allocated bytes.

One un-timed pass, apart from every measurement. Flops are `torch.utils.flop_counter`'s (2 per multiply-add;
matrix products, convolutions and attention; elementwise work counts 0), inclusive, forward only. Least
bytes: see `layer_work`.
"""

import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from xsp_post.names import range_text
from xsp_post.workload.functional_work import Counting
from xsp_post.workload.layer_work import bytes_of, own_bytes, read_bytes
from xsp_post.workload.models import Built
from xsp_post.workload.ranges import hooked, output_shape, select_layers

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
    rows: Rows = []
    try:
        twin = copy.deepcopy(built.model).to(_META)
        for phase in built.phases:
            if phase.replay is None:
                return _columns([], FUNCTIONAL_COLUMNS)
            counter = FlopCounterMode(display=False)
            between = Counting(twin, select_layers(twin, depth, kinds), counter.get_total_flops)
            with torch.no_grad(), counter, between, hooked(between.hooks):
                phase.replay(twin, _META)
            rows += between.rows(phase.name)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        rows = []
    return _columns(rows, FUNCTIONAL_COLUMNS)


def layer_facts(built: Built, depth: int, kinds: tuple[str, ...], is_inference: bool) -> tuple[Columns, str, str]:
    """Facts of every layer call of one iteration, how they were counted, and what allocated_bytes means.

    Works on a copy of the model without data (meta device); a model that needs data is run once as it is.
    """
    rows: Rows = []
    way = "counted on a copy without data"
    try:
        twin = copy.deepcopy(built.model).to(_META)
        for phase in built.phases:
            if phase.replay is None:
                raise NotImplementedError("the user's own phase")
            rows += _counted(phase.name, twin, partial(phase.replay, twin, _META), depth, kinds)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        rows, way = [], "counted in a run of its own"
        for phase in built.phases:
            rows += _counted(phase.name, built.model, phase.run, depth, kinds)
    source = OUTPUTS
    if next(built.model.parameters(), torch.empty(0)).is_cuda:
        _measure_allocations(rows, built, depth, kinds, is_inference)
        source = ALLOCATOR
    return _columns(rows, LAYER_COLUMNS), way, source


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
