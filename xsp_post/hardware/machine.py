"""Processor, GPU and driver of this machine, and its current clocks.

Nothing private: no host name, no user, no serial number, no UUID.
"""

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xsp_post.hardware.tools import output_text

_FIELDS = (  # of nvidia-smi, in the order of `Gpu`, and the factor to its unit; 0: a text
    ("index", 1), ("name", 0), ("driver_version", 0), ("memory.total", 1 << 20), ("clocks.sm", 1_000_000),
    ("clocks.mem", 1_000_000), ("clocks.max.sm", 1_000_000), ("temperature.gpu", 1.0), ("power.draw", 1.0),
    ("persistence_mode", 0), ("mig.mode.current", 0),
)  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """State of one GPU as the driver's ``nvidia-smi`` (NVML) tells it; −1 or '' where it does not."""

    index: int
    name: str
    driver_version: str
    memory_bytes: int
    sm_clock_hz: int
    memory_clock_hz: int
    max_sm_clock_hz: int
    temperature_celsius: float
    power_watts: float
    persistence_mode: str
    mig_mode: str


def gpus() -> list[Gpu]:
    """The GPUs of this machine, [] without a driver. Asks nvidia-smi; at most ten seconds."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    asked = [f"--query-gpu={','.join(name for name, _ in _FIELDS)}", "--format=csv,noheader,nounits"]
    rows = [[field.strip() for field in line.split(",")] for line in output_text(Path(program), asked, 10).splitlines()]
    return [
        Gpu(*(_value(text, factor) for text, (_, factor) in zip(row, _FIELDS)))
        for row in rows if len(row) == len(_FIELDS)
    ]  # fmt: skip


def _value(text: str, factor: float) -> Any:
    """In the unit of the factor, whole where that is; −1 for "[N/A]" and the like."""
    if not factor:
        return text
    try:
        return type(factor)(float(text) * factor)
    except ValueError:
        return type(factor)(-1)


def cpu_name() -> str:
    """The processor's name, e.g. ``AMD EPYC 7B13``."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def usable_cpu_count() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def out_of_memory_kills() -> int:
    """How many processes of this control group the kernel has killed for memory; 0 where it does not say."""
    try:
        lines = Path("/sys/fs/cgroup/memory.events").read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split() for line in lines if len(line.split()) == 2)
    return int(counts.get("oom_kill", 0))
