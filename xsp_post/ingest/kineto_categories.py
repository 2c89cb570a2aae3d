"""Helper of ``ingest.kineto``: category of an event in any PyTorch version → kind of row of a Trace.

PyTorch 1.8–1.12 (2021–22) wrote ``Operator``, ``Kernel``, ``Runtime``, ``Memcpy``, ``Memset``. Other accelerators
share the device categories ``kernel``, ``gpu_memcpy`` and ``gpu_memset`` and bring categories of their own for
calls (``xpu_runtime``, ``privateuse1_runtime``, …); a category that is not listed is recognised by its last word.
"""

from xsp_post.model.trace import ActivityKind, SpanKind

SPAN_KINDS = {"user_annotation": SpanKind.ANNOTATION, "python_function": SpanKind.MODULE, "cpu_op": SpanKind.OPERATOR}
LAUNCH_CLASSES = {"cuda_runtime": 0, "cuda_driver": 1}  # 0: runtime, 1: driver, of whatever vendor
ACTIVITY_KINDS = {"kernel": ActivityKind.KERNEL, "gpu_memcpy": ActivityKind.MEMCPY, "gpu_memset": ActivityKind.MEMSET}
# Understood, and not used or used elsewhere.
OTHERS = frozenset((
    "cpu_instant_event", "cuda_sync", "overhead", "gpu_user_annotation", "cuda_event", "cuda_profiler_range", "ac2g",
    "fwdbwd", "async", "async_gpu", "async_cpu_to_gpu", "trace", "external_correlation", "collective_comm",
    "mtia_insight", "mtia_counters", "xpu_sync", "xpu_scope_profiler", "memory", "instant", "graph_event_node",
    "graph_host_node",
))  # fmt: skip
_SAME_AS = {
    "operator": "cpu_op", "runtime": "cuda_runtime", "driver": "cuda_driver", "memcpy": "gpu_memcpy",
    "memset": "gpu_memset", "python": "python_function", "mtia_ccp_events": "kernel",
}  # fmt: skip
_LAST_WORDS = {
    "runtime": "cuda_runtime", "driver": "cuda_driver", "kernel": "kernel", "kernels": "kernel",
    "memcpy": "gpu_memcpy", "memset": "gpu_memset",
}  # fmt: skip
# What only ranges are called that PyTorch 1.8–1.12 wrote as operators.
ANNOTATION_PREFIXES = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)", "xsp/")


def canonical(category: str) -> str:
    """The category as PyTorch calls it today for CUDA, "" for one that is not understood.

    Phases of events without a category (one letter) are understood: they are labels, marks and arrows.
    """
    name = category.lower()
    name = _SAME_AS.get(name, name)
    known = name in SPAN_KINDS or name in LAUNCH_CLASSES or name in ACTIVITY_KINDS or name in OTHERS
    if known or len(name) <= 1:
        return name
    return _LAST_WORDS.get(name.rsplit("_", 1)[-1], "") if "_" in name else ""
