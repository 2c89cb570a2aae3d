"""Cause of idle time → what to do about it; and the names that PyTorch and CUDA have for what is advised."""

from __future__ import annotations

# By whether PyTorch ran.
WHAT_RUNS = {True: "the model", False: "what repeats"}
GRAPHS = {True: "torch.compile(mode='reduce-overhead')", False: "cudaStreamBeginCapture, cudaGraphLaunch"}
PINNED = {True: "pin_memory=True, non_blocking=True", False: "cudaMallocHost, cudaMemcpyAsync"}

# cause -> code, what to do (with the owner), what it stands on, change of a replay
BY_OWNER = {
    "synchronization": (
        "remove-synchronization",
        "Do without {call} {place}{torch}.",
        "Its result is not needed at once.", "sync=none",
    ),
    "queued": ("streams", "Look at what orders the streams {place}: events and waits between them.",
               "The order is not needed.", ""),
    "allocation": (
        "allocate-once", "Allocate once, not {place}: {call} ran while the device waited.",
        "Sizes repeat, so that a cache of memory serves them (as PyTorch's; cudaMallocAsync).", "",
    ),
    "module_load": (
        "load-once", "Warm up before what counts: code was loaded or compiled {place}.",
        "The program goes on long enough for this to be paid once.", "",
    ),
    "os_call": ("host-blocked", "Move {call} {place} elsewhere, or to another thread: it blocked the launching thread.",
                "Another thread can do it meanwhile.", ""),
    "descheduled": ("processor",
                    "Give the launching thread a processor of its own (fewer workers, numactl, priorities).",
                    "The processors are overcommitted.", ""),
    "host_code": (
        "host-code", "Move the host code {place}{call} off the launching thread, or before the execution.",
        "It is loading of data or weights, or bookkeeping, that another thread can do ahead.", "",
    ),
}  # fmt: skip
