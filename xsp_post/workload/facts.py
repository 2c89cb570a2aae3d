"""``run`` → capture: facts about the layers of the model: shapes, flops, least bytes, allocated bytes.

One un-timed pass, apart from every measurement. Flops are `torch.utils.flop_counter`'s (2 per multiply-add;
matrix products, convolutions and attention; elementwise work counts 0), inclusive, forward only. Least
bytes: see `layer_work`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from xsp_post.names import range_text
from xsp_post.workload.functional_work import Counting, FunctionalWork
from xsp_post.workload.layer_work import bytes_of, own_bytes, read_bytes
from xsp_post.workload.models import Built, Phase
from xsp_post.workload.ranges import output_shape, select_layers

_META = torch.device("meta")

ALLOCATOR = "torch CUDA allocator"
OUTPUTS = "output tensors"  # the CPU allocator of torch keeps no statistics


@dataclass
class LayerFacts:
    """One entry per layer call, in execution order; columns as written to ``facts.json``."""

    phase: list[str] = field(default_factory=list)
    layer_path: list[str] = field(default_factory=list)
    layer_type: list[str] = field(default_factory=list)
    call_index: list[int] = field(default_factory=list)
    shape_text: list[str] = field(default_factory=list)
    flop_count: list[int] = field(default_factory=list)
    least_bytes: list[int] = field(default_factory=list)
    allocated_bytes: list[int] = field(default_factory=list)


def functional_facts(built: Built, depth: int, kinds: tuple[str, ...]) -> FunctionalWork:
    """What the modules around the layers, and the model, compute between them in one iteration.

    Empty for a model that does not run on a copy without data: counting is not worth a run of its own.
    """
    work = FunctionalWork()
    try:
        twin = copy.deepcopy(built.model).to(_META)
        for phase in built.phases:
            if phase.replay is None:
                return FunctionalWork()
            counter = FlopCounterMode(display=False)
            between = Counting(twin, select_layers(twin, depth, kinds), counter.get_total_flops)
            try:
                with torch.no_grad(), counter, between:
                    phase.replay(twin, _META)
            finally:
                between.remove()
            between.rows(work, phase.name)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return FunctionalWork()
    return work


def layer_facts(built: Built, depth: int, kinds: tuple[str, ...], is_inference: bool) -> tuple[LayerFacts, str, str]:
    """Facts of every layer call of one iteration, how they were counted, and what allocated_bytes means.

    Works on a copy of the model without data (meta device); a model that needs data is run once as it is.
    """
    facts = LayerFacts()
    way = "counted on a copy without data"
    try:
        twin = copy.deepcopy(built.model).to(_META)
        for phase in built.phases:
            if phase.replay is None:
                raise NotImplementedError("the user's own phase")
            _count(facts, phase, twin, partial(phase.replay, twin, _META), depth, kinds)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        facts, way = LayerFacts(), "counted in a run of its own"
        for phase in built.phases:
            _count(facts, phase, built.model, phase.run, depth, kinds)
    if next(built.model.parameters(), torch.empty(0)).is_cuda:
        _measure_allocations(facts, built, depth, kinds, is_inference)
        return facts, way, ALLOCATOR
    return facts, way, OUTPUTS


def _count(
    facts: LayerFacts,
    phase: Phase,
    model: nn.Module,
    run: Callable[[], Any],
    depth: int,
    kinds: tuple[str, ...],
) -> None:
    counter = FlopCounterMode(display=False)
    calls: dict[str, int] = {}
    rows: list[tuple[int, int]] = []  # (row, flops before) of the layers that are open

    def before(path: str, module: nn.Module, inputs: Any) -> None:
        call = calls.get(path, 0)
        calls[path] = call + 1
        parsed = range_text.parse(range_text.format_layer(path, type(module).__name__, call))
        assert parsed is not None
        rows.append((len(facts.phase), counter.get_total_flops()))
        facts.phase.append(phase.name)
        facts.layer_path.append(parsed.name)
        facts.layer_type.append(parsed.layer_type)
        facts.call_index.append(call)
        facts.shape_text.append("")
        facts.flop_count.append(0)
        facts.least_bytes.append(read_bytes(module, inputs) + own_bytes(module, inputs))
        facts.allocated_bytes.append(0)

    def after(output: Any) -> None:
        row, flops = rows.pop()
        shape = output_shape(output)
        facts.shape_text[row] = "" if shape is None else f"[{','.join(map(str, shape))}]"
        facts.flop_count[row] = counter.get_total_flops() - flops
        facts.least_bytes[row] += bytes_of(output)
        facts.allocated_bytes[row] = bytes_of(output)

    handles = []
    for path, module in select_layers(model, depth, kinds):
        handles.append(module.register_forward_pre_hook(lambda m, args, path=path: before(path, m, args)))
        handles.append(module.register_forward_hook(lambda m, args, output: after(output)))
    try:
        with torch.no_grad(), counter:
            run()
    finally:
        for handle in handles:
            handle.remove()


def _measure_allocations(
    facts: LayerFacts, built: Built, depth: int, kinds: tuple[str, ...], is_inference: bool
) -> None:
    """Replace allocated_bytes by what the CUDA allocator handed out during each layer (cumulative counter)."""
    allocated: list[int] = []
    rows: list[tuple[int, int]] = []

    def total() -> int:
        return int(torch.cuda.memory_stats().get("allocated_bytes.all.allocated", 0))

    def before(module: nn.Module, inputs: Any) -> None:
        rows.append((len(allocated), total()))
        allocated.append(0)

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        row, start = rows.pop()
        allocated[row] = total() - start

    handles = []
    for _, module in select_layers(built.model, depth, kinds):
        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after))
    try:
        with torch.inference_mode(is_inference):
            for phase in built.phases:
                phase.run()
    finally:
        for handle in handles:
            handle.remove()
    if len(allocated) == len(facts.allocated_bytes):
        facts.allocated_bytes = allocated
