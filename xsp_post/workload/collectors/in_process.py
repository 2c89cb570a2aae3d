"""``run`` → captures of levels that may share one measured process, each with a folder and a recording of its own: by
a clock alone (levels M and M/L), and by torch.profiler (Kineto, level M/L/G without nsys).

On a GPU torch.profiler records the GPU's kernels through CUPTI, as nsys does. On the CPU there are no kernels: the leaf
operators of torch take their place, and the capture's settings say so (``kernel_meaning``).
"""

import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import replace

from xsp_post.base.lazy import package_version
from xsp_post.model.capture import DONE, Capture, CapturePlan
from xsp_post.model.levels import RUN_LAYER
from xsp_post.workload.collectors.base import Availability, Collector, begin, child_command, conclude, run_child

CPU_KERNELS = "leaf operators of torch on the CPU (there are no GPU kernels)"
GPU_KERNELS = "GPU kernels"


class InProcess(Collector):
    """A collector whose profiler, if it has one, is started and stopped by the measured process itself."""

    profiler: str  # as in workload.recorder.Recording
    files: dict[str, str]  # role -> file that the child writes

    def check(self) -> Availability:
        """Nothing but torch is needed. Torch itself is not imported."""
        if importlib.util.find_spec("torch") is None:
            missing = "torch is not installed"
            return Availability(self.name, False, "", missing, self.gives, "pip install 'xsp-post[run]'")
        found = package_version("torch")
        return Availability(self.name, True, found, f"torch {found}", self.gives, "")

    def begin(self, plan: CapturePlan) -> Capture:
        """The capture that is about to be made, with its settings."""
        raise NotImplementedError

    def collect(self, plan: CapturePlan) -> Capture:
        return collect_together([(self, plan)])[0]


class ClockCollector(InProcess):
    """Two clock readings around each iteration (M) and around each layer (M/L), written as ``spans.json``."""

    name, gives = "clock", "model and layer latency, without a profiler"
    profiler, files = "none", {"spans": "spans.json"}

    def shares_process(self, device: str) -> bool:
        return True

    def begin(self, plan: CapturePlan) -> Capture:
        is_serialized = plan.level == RUN_LAYER and plan.workload.is_serialized
        return begin(plan, self.name, profiler=self.profiler, is_serialized=is_serialized)


class TorchCollector(InProcess):
    """The embedded collector; its trace is ``trace.json.gz`` in PyTorch's own format."""

    name, gives = "torch", "kernels on a GPU, leaf operators on the CPU, below each layer"
    profiler, files = "torch", {"trace": "trace.json.gz"}

    def shares_process(self, device: str) -> bool:
        # on a GPU, CUPTI stays attached when torch.profiler stops, and slows the launches of what follows
        return device == "cpu"

    def begin(self, plan: CapturePlan) -> Capture:
        meaning = GPU_KERNELS if plan.workload.device == "cuda" else CPU_KERNELS
        return begin(plan, self.name, profiler=self.profiler, kernel_meaning=meaning, is_serialized=False)


def collect_together(levels: Sequence[tuple[InProcess, CapturePlan]]) -> list[Capture]:
    """The captures of one process, in the order given; the logs are in the first one's folder.

    Where memory runs out, the first capture alone says so. Raises as `Collector.collect` does.
    """
    captures = [collector.begin(plan) for collector, plan in levels]
    plans = [(plan, collector.profiler) for collector, plan in levels]
    first = levels[0][1]
    ended = run_child(child_command(first, plans[0][1], *plans[1:]), first)
    made: list[Capture] = []
    for (collector, plan), capture in zip(levels, captures):
        if len(levels) > 1:
            capture.process = first.directory.name
        if made and made[0].status != DONE:
            shutil.rmtree(plan.directory, ignore_errors=True)
            continue
        if made:
            capture.files = {}
        share = replace(ended, wall_ns=ended.wall_ns // len(levels))
        made.append(conclude(capture, share, collector.files))
    return made
