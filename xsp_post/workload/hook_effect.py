"""``run`` → capture: do layer ranges change what runs? One profiled iteration without them, and one with them.

A module may choose another way when hooks are on it (PyTorch's TransformerEncoderLayer leaves its fused path). Then
the levels measure different programs, and the difference in time is not the cost of profiling.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from xsp_post.model.capture import Workload
from xsp_post.workload.models import Built
from xsp_post.workload.ranges import LayerRanges
from xsp_post.workload.recorder import profile, synchronizer

OPERATORS, KERNELS = "operators", "kernels"


class _Nowhere:
    """A sink that writes nothing: the hooks alone."""

    def prepare(self, text: str, category: str, payload: int) -> None: ...

    def push(self, prepared: None) -> None: ...

    def pop(self, shape: tuple[int, ...] | None) -> None: ...


def hook_effect(built: Built, workload: Workload) -> dict[str, Any]:
    """``kind`` (operators, or kernels of a GPU), ``without`` and ``with``: name → how often one iteration without,
    and with layer ranges, runs it; names that run equally often are left out."""
    synchronize = synchronizer(workload.device)

    def iteration() -> None:
        for phase in built.phases:
            phase.run()
        synchronize()

    without = _counted(iteration, workload.device)
    layers = LayerRanges(built.model, _Nowhere(), depth=workload.layer_depth, kinds=workload.layer_kinds)
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
