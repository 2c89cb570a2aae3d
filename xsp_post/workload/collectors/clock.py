"""``run`` → capture at levels M and M/L: no profiler at all, the child reads a clock itself."""

import importlib.util

from xsp_post.model.capture import Capture, CapturePlan
from xsp_post.model.levels import RUN_LAYER
from xsp_post.workload.collectors.base import Availability, begin
from xsp_post.workload.collectors.together import collect_together


class ClockCollector:
    """Two clock readings around each iteration (M) and around each layer (M/L), written as ``spans.json``."""

    name = "clock"

    def check(self) -> Availability:
        return torch_availability(self.name, "model and layer latency, without a profiler")

    profiler, files = "none", {"spans": "spans.json"}

    def shares_process(self, device: str) -> bool:
        return True

    def begin(self, plan: CapturePlan) -> Capture:
        is_serialized = plan.level == RUN_LAYER and plan.workload.is_serialized
        return begin(plan, self.name, profiler=self.profiler, is_serialized=is_serialized)

    def collect(self, plan: CapturePlan) -> Capture:
        return collect_together([(self, plan)])[0]


def torch_availability(name: str, gives: str) -> Availability:
    """Availability of a collector that needs nothing but torch. Torch itself is not imported."""
    is_here = importlib.util.find_spec("torch") is not None
    version = ""
    if is_here:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as version_of

        try:
            version = version_of("torch")
        except PackageNotFoundError:
            version = ""
    found = f"torch {version}" if is_here else "torch is not installed"
    return Availability(name, is_here, version, found, gives, "" if is_here else "pip install 'xsp-post[run]'")
