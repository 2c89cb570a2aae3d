"""``run`` → capture: one measured process: build the model, run the blocks of its levels, write what they recorded.

Every level runs the same seed, warm-up and iterations, so that only the profiling differs. Levels that share the
process run in turns (`blocks`); each writes into a folder of its own.
"""

import gc
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

from xsp_post.base.errors import UsageError
from xsp_post.model.capture import Workload
from xsp_post.model.levels import RUN_MODEL
from xsp_post.workload.facts import environment, functional_facts, layer_facts
from xsp_post.workload.models import Built, build
from xsp_post.workload.ranges import ClockSink, LayerRanges
from xsp_post.workload.recorder import Recorder, Recording, profile, synchronizer

ROUNDS = 5  # blocks of each level in a process; pairs of blocks are what an overhead is computed from
# at the beginning of a block do not count: one iteration, of a fast model so many that they take that long; after
# torch.profiler stopped, the first half millisecond or two were seen to be slower
SETTLING_S, MOST_SETTLING = 0.005, 10
MOST_TIMES, LEVEL_S = 5, 0.25
# a process that takes longer than this ends after the round that it is in, but not before the second one
PROCESS_S, LEAST_ROUNDS = 20.0, 2


@dataclass(frozen=True)
class Block:
    """Iterations of one level (its number in the process), one after another. The first ones settle: they are
    marked as warm-up, so that what the block before left behind is not measured."""

    level_index: int
    settling_count: int
    measured_count: int


def rounds_of(level_count: int, iteration_count: int, iteration_s: float, seed: str) -> list[list[Block]]:
    """The rounds of a process that ``level_count`` levels share; ``iteration_count`` of each level are measured, and
    one takes about ``iteration_s``."""
    settling = min(max(ceil(SETTLING_S / iteration_s), 1), MOST_SETTLING)
    shuffle = random.Random(seed).shuffle
    count = min(ROUNDS, iteration_count)
    planned = []
    for number in range(count):
        order = list(range(level_count))
        shuffle(order)
        measured = iteration_count // count + (number < iteration_count % count)
        planned.append([Block(level, settling, measured) for level in order])
    return planned


def fitted_count(iteration_count: int, iteration_s: float) -> int:
    """More iterations of a model that is fast: up to `MOST_TIMES` as many, as long as a level takes `LEVEL_S`."""
    return max(iteration_count, min(int(LEVEL_S / iteration_s), iteration_count * MOST_TIMES))


# -- ``run`` → capture: do layer ranges change what runs? One profiled iteration without them, and one with them -------

OPERATORS, KERNELS = "operators", "kernels"


def hook_effect(built: Built, workload: Workload) -> dict[str, Any]:
    """``kind`` (operators, or kernels of a GPU), ``without`` and ``with``: name → how often one iteration without,
    and with layer ranges, runs it; names that run equally often are left out."""
    synchronize = synchronizer(workload.device)

    def iteration() -> None:
        for phase in built.phases:
            phase.run()
        synchronize()

    without = _counted(iteration, workload.device)
    layers = LayerRanges(built.model, ClockSink(), depth=workload.layer_depth, kinds=workload.layer_kinds)
    try:
        hooked = _counted(iteration, workload.device)
    finally:
        layers.remove()
    different = [name for name in without | hooked if without[name] != hooked[name]]
    return {
        "kind": KERNELS if workload.device == "cuda" else OPERATORS,
        "without": {name: without[name] for name in different},
        "with": {name: hooked[name] for name in different},
    }


def _counted(iteration: Callable[[], None], device: str) -> Counter[str]:
    """How often each kernel ran on the GPU, or each operator of torch on the CPU, in an iteration after another."""
    iteration()
    with profile(device) as recorded:
        iteration()
    events = recorded.events() or []
    if device == "cuda":
        return Counter(event.name for event in events if event.device_type.name == "CUDA")
    return Counter(event.name for event in events if "::" in event.name)


FACTS_VERSION = 1  # of facts.json: 1 first version (xsp-post 0.1.0)


@dataclass(frozen=True)
class Request:
    """What the child is asked for: the levels of one process, outermost first."""

    workload: Workload
    batch_size: int
    recordings: tuple[Recording, ...]
    repeat: int = 0


def measure(request: Request) -> None:
    """Run the process's levels; each leaves ``spans.json`` or ``trace.json.gz``, and ``facts.json``, in its output."""
    workload = request.workload
    if workload.thread_count:
        torch.set_num_threads(workload.thread_count)
    if workload.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no CUDA device here.", code="device-missing")
    torch.backends.cudnn.benchmark = False  # heuristic choice, as XSP's runs: no timing race picks kernels
    built = build(workload, request.batch_size)
    recorders = [Recorder(one, workload, built, request.batch_size) for one in request.recordings]
    gc.collect()
    with torch.inference_mode(workload.mode == "inference"):
        done = _in_turns(request, built, recorders) if len(recorders) > 1 else _alone(workload, recorders[0])
        effect = hook_effect(built, workload) if _is_effect_asked(request) else {}
    for recorder in recorders:
        recorder.write()
    _write_facts(request, built, done, effect)


def _alone(workload: Workload, recorder: Recorder) -> list[Block]:
    """One level: the warm-up asked for, which is recorded, and all iterations in one block."""
    recorder.run(workload.warmup_count, workload.iteration_count)
    return [Block(0, workload.warmup_count, workload.iteration_count)]


def _in_turns(request: Request, built: Built, recorders: list[Recorder]) -> list[Block]:
    """Several levels: warm-up without any of them, then their blocks; those that were run."""
    workload, started = request.workload, time.monotonic()
    iteration_s = _warmed_up(workload, built)
    count = workload.iteration_count
    planned = rounds_of(
        len(recorders), fitted_count(count, iteration_s) if workload.is_fitted else count, iteration_s,
        f"{workload.seed}-{request.repeat}",
    )  # fmt: skip
    done: list[Block] = []
    for number, blocks in enumerate(planned):
        if workload.is_fitted and number >= LEAST_ROUNDS and time.monotonic() - started > PROCESS_S:
            break
        for block in blocks:
            recorders[block.level_index].run(block.settling_count, block.measured_count)
        done += blocks
    return done


def _warmed_up(workload: Workload, built: Built) -> float:
    """Run the warm-up iterations, at least one; the least time of one, in seconds."""
    synchronize, least_s = synchronizer(workload.device), float("inf")
    for _ in range(max(workload.warmup_count, 1)):
        started = time.perf_counter()
        for phase in built.phases:
            phase.run()
        synchronize()
        least_s = min(least_s, time.perf_counter() - started)
    return least_s


def _is_effect_asked(request: Request) -> bool:
    """Once a run, where hooks were on the model and no profiler outside holds what torch.profiler needs."""
    hooked = [one for one in request.recordings if one.level != RUN_MODEL]
    outside = any(one.profiler in ("cuda", "nvtx") for one in hooked)
    return bool(hooked) and request.repeat == 0 and not outside and not request.workload.is_compiled


def _write_facts(request: Request, built: Built, done: list[Block], effect: dict[str, Any]) -> None:
    """``facts.json``: environment, phases, the order of the blocks and, below level M, the layers' facts; at the
    deepest level what the hooks changed."""
    workload = request.workload
    values: dict[str, Any] = {
        "format": "xsp-facts", "version": FACTS_VERSION, "environment": environment(workload.device),
        "phases": [phase.name for phase in built.phases],
        "parameter_count": sum(parameter.numel() for parameter in built.model.parameters()),
        "block_levels": [request.recordings[block.level_index].level for block in done],
    }  # fmt: skip
    layers: dict[str, Any] = {}
    if any(one.level != RUN_MODEL for one in request.recordings) and not workload.is_compiled:
        facts, flop_source, allocated_source = layer_facts(
            built, workload.layer_depth, workload.layer_kinds, workload.mode == "inference"
        )
        layers["layers"] = facts
        layers["functional"] = functional_facts(built, workload.layer_depth, workload.layer_kinds)
        layers["flop_source"], layers["allocated_source"] = flop_source, allocated_source
    for one in request.recordings:
        mine = {**values, **(layers if one.level != RUN_MODEL else {})}
        if effect and one is request.recordings[-1]:
            mine["hook_effect"] = effect
        (one.output / "facts.json").write_text(json.dumps(mine), encoding="utf-8")
