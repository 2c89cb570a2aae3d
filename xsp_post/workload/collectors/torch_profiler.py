"""``run`` → capture at level M/L/G without nsys: torch.profiler (Kineto) inside the child.

On a GPU it records the GPU's kernels through CUPTI, as nsys does. On the CPU there are no kernels: the
leaf operators of torch take their place, and the capture's settings say so (``kernel_meaning``).
"""

from xsp_post.model.capture import Capture, CapturePlan
from xsp_post.workload.collectors.base import Availability, begin
from xsp_post.workload.collectors.clock import torch_availability
from xsp_post.workload.collectors.together import collect_together

CPU_KERNELS = "leaf operators of torch on the CPU (there are no GPU kernels)"
GPU_KERNELS = "GPU kernels"


class TorchCollector:
    """The embedded collector; its trace is ``trace.json.gz`` in PyTorch's own format."""

    name = "torch"

    def check(self) -> Availability:
        return torch_availability(self.name, "kernels on a GPU, leaf operators on the CPU, below each layer")

    profiler, files = "torch", {"trace": "trace.json.gz"}

    def shares_process(self, device: str) -> bool:
        # on a GPU, CUPTI stays attached when torch.profiler stops, and slows the launches of what follows
        return device == "cpu"

    def begin(self, plan: CapturePlan) -> Capture:
        meaning = GPU_KERNELS if plan.workload.device == "cuda" else CPU_KERNELS
        return begin(plan, self.name, profiler=self.profiler, kernel_meaning=meaning, is_serialized=False)

    def collect(self, plan: CapturePlan) -> Capture:
        return collect_together([(self, plan)])[0]
