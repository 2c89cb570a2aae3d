"""``xsp-post doctor --measure-peaks``: measured peaks of this device, as a file that `hardware` reads.

Copy bandwidth: one buffer far larger than any cache copied to another, read and written bytes counted.
Matrix product: square, 2·n³ flops, per number format. Best of many: a ceiling is what was reached once.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from xsp_post.workload.facts import environment
from xsp_post.workload.recorder import synchronizer

_COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}
_MATRIX_SIZE = {"cuda": 8192, "cpu": 1024}
_LEAST_RUNS, _LEAST_S = 5, 0.5


def measure_peaks(device: str) -> dict[str, Any]:
    """One table in the form `hardware.load_overrides` reads: gpu_name, source, memory_bandwidth_bytes_per_s and
    ``<pipe>_flop_per_s``. On the CPU the pipes are named alike (fp32, fp64, bf16). Takes some seconds.
    """
    facts = environment(device)
    table: dict[str, Any] = {
        "gpu_name": facts["device_name"],
        "source": f"measured with {facts['framework']}: copy and square matrix products, best of many",
        "memory_bandwidth_bytes_per_s": _copy_bandwidth(device),
    }
    for pipe, dtype, is_tf32 in _pipes(device):
        try:
            table[f"{pipe}_flop_per_s"] = _matrix_product(device, dtype, is_tf32)
        except RuntimeError:  # a format this device or this torch has no product for: it has no ceiling either
            continue
    return table


def _pipes(device: str) -> list[tuple[str, torch.dtype, bool]]:
    if device == "cpu":
        return [("fp64", torch.float64, False), ("fp32", torch.float32, False), ("bf16", torch.bfloat16, False)]
    pipes = [("fp64", torch.float64, False), ("fp32", torch.float32, False)]
    capability = torch.cuda.get_device_capability()
    if capability >= (7, 0):
        pipes.append(("fp16_tensor", torch.float16, False))
    if capability >= (8, 0):
        pipes += [("tf32_tensor", torch.float32, True), ("bf16_tensor", torch.bfloat16, False)]
    return pipes


def _copy_bandwidth(device: str) -> float:
    size = _COPY_BYTES[device]
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _best_s(lambda: target.copy_(source), device)


def _matrix_product(device: str, dtype: torch.dtype, is_tf32: bool) -> float:
    size = _MATRIX_SIZE[device]
    one = torch.rand(size, size, device=device).to(dtype)
    settings = torch.backends.cuda.matmul
    before, settings.allow_tf32 = settings.allow_tf32, is_tf32
    try:
        return 2 * size**3 / _best_s(lambda: torch.mm(one, one), device)
    finally:
        settings.allow_tf32 = before


def _best_s(work: Callable[[], Any], device: str) -> float:
    """Shortest of at least five runs and half a second, each synchronised; one run warms up."""
    synchronize = synchronizer(device)
    work()
    synchronize()
    best, runs, began = float("inf"), 0, time.perf_counter()
    while runs < _LEAST_RUNS or time.perf_counter() - began < _LEAST_S:
        start = time.perf_counter()
        work()
        synchronize()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best
