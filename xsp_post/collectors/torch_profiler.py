"""``run`` → capture at level M/L/G without nsys: torch.profiler (Kineto) inside the child.

On a GPU it records the GPU's kernels through CUPTI, as nsys does. On the CPU there are no kernels: the
leaf operators of torch take their place, and the capture's settings say so (``kernel_meaning``).
"""

from __future__ import annotations

from xsp_post.collectors.base import Availability, begin, child_command, conclude, run_child
from xsp_post.collectors.clock import torch_availability
from xsp_post.model.capture import Capture, CapturePlan

CPU_KERNELS = "leaf operators of torch on the CPU (there are no GPU kernels)"
GPU_KERNELS = "GPU kernels"


class TorchCollector:
    """The embedded collector; its trace is ``trace.json.gz`` in PyTorch's own format."""

    name = "torch"

    def check(self) -> Availability:
        return torch_availability(self.name, "kernels on a GPU, leaf operators on the CPU, below each layer")

    def collect(self, plan: CapturePlan) -> Capture:
        meaning = GPU_KERNELS if plan.workload.device == "cuda" else CPU_KERNELS
        capture = begin(plan, self.name, profiler="torch", kernel_meaning=meaning, is_serialized=False)
        ended = run_child(child_command(plan, "torch"), plan)
        return conclude(capture, ended, {"trace": "trace.json.gz"})
