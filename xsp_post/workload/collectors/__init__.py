"""``run`` → **capture**: how captures are made, one collector each, looked up by name."""

import importlib

from xsp_post.base.errors import ToolError, UsageError
from xsp_post.hardware import tools
from xsp_post.model.levels import RUN_COUNTERS, RUN_KERNEL
from xsp_post.workload.collectors.base import Availability, Collector

# name -> module and class; imported when asked for, so that a missing package harms only its own collector
COLLECTORS: dict[str, str] = {
    "clock": "xsp_post.workload.collectors.in_process:ClockCollector",
    "torch": "xsp_post.workload.collectors.in_process:TorchCollector",
    "nsys": "xsp_post.workload.collectors.nsys:NsysCollector",
    "ncu": "xsp_post.workload.collectors.ncu:NcuCollector",
}
CHOICES = ("auto", "nsys", "torch")  # what --collector offers for level M/L/G

__all__ = ["CHOICES", "COLLECTORS", "Availability", "Collector", "choose", "get", "metric_sets"]


def get(name: str) -> Collector:
    """The collector of a name. UsageError for an unknown one."""
    if name not in COLLECTORS:
        raise UsageError(f"There is no collector {name!r}.", code="collector-unknown")
    module, _, cls = COLLECTORS[name].partition(":")
    collector: Collector = getattr(importlib.import_module(module), cls)()
    return collector


def metric_sets(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a collector records in captures of their own (``("",)``: all in one), and what it cannot record here."""
    ask = getattr(get(name), "metric_sets", None)
    due, left_out = ask() if ask is not None else (("",), ())
    return tuple(due), tuple(left_out)


def choose(level: str, wanted: str, device: str) -> Collector:
    """The collector for a level: the clock for M and M/L, ncu for counters; for M/L/G the one wanted, or by
    ``auto`` nsys where it is found and a GPU is measured, else torch. ToolError where it cannot be used.
    """
    if level == RUN_COUNTERS:
        name = "ncu"
    elif level != RUN_KERNEL:
        name = "clock"
    elif wanted == "auto":
        name = "nsys" if device == "cuda" and tools.find_nsys() is not None else "torch"
    else:
        name = wanted
    collector = get(name)
    availability = collector.check()
    if not availability.is_available:
        said = f"The collector {name} cannot be used: {availability.found}."
        raise ToolError(said, code="collector-missing", hint=f"{availability.remedy}.")
    return collector
