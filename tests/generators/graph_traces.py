"""Generated PyTorch traces of CUDA graphs: a capture of each graph, and a run that replays them.

The format of both follows the traces of vLLM and SGLang on ROCm: launch calls name their kernel (``args.kernel``),
those between begin and end of a capture never run, and a replay is one `hipGraphLaunch` whose kernels share its
correlation.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PID, DEVICE = 100, 2


class Recording:
    """Events of one trace, one after another on one thread; times in µs."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.at, self.device_at, self.correlation = 1_000.0, 1_000.0, 0

    def add(self, category: str, name: str, start: float, end: float, *, pid: int = PID, **args: Any) -> dict[str, Any]:
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": PID if pid == PID else 7, "ts": start,
                 "dur": round(end - start, 3), "args": args}  # fmt: skip
        self.events.append(event)
        return event

    def call(self, name: str, **args: Any) -> int:
        """An API call of 2 µs; its correlation."""
        self.correlation += 1
        self.add("cuda_runtime", name, self.at, self.at + 2, correlation=self.correlation, **args)
        self.at += 3
        return self.correlation

    def around(self, category: str, name: str, since: float) -> None:
        """A range from ``since`` to now."""
        self.add(category, name, since - 0.5, self.at - 0.5)

    def kernel(self, kernel_name: str, correlation: int, duration: float = 10, **args: Any) -> dict[str, Any]:
        start = max(self.device_at, self.at)
        self.device_at = start + duration + 1
        usual = {"device": DEVICE, "stream": 7, "grid": [1, 1, 1], "block": [64, 1, 1], "correlation": correlation}
        event = self.add("kernel", kernel_name, start, start + duration, pid=DEVICE)
        event["args"] = usual | args
        return event

    def replay(self, kernels: Iterable[str], **args: Any) -> list[dict[str, Any]]:
        correlation = self.call("hipGraphLaunch")
        return [self.kernel(name, correlation, **args) for name in kernels]

    def write(self, path: Path) -> Path:
        with gzip.open(path, "wt") as stream:
            json.dump({"schemaVersion": 1, "traceEvents": self.events}, stream)
        return path


def block(number: int) -> dict[str, list[str]]:
    """Kernels of the modules of one block; equal in all blocks."""
    return {f"Attention_{number}": ["qkv", "flash", "out"], f"MLP_{number}": ["up", "act", "down"]}


def captured(
    path: Path, sizes: Iterable[int], *, blocks: int = 4, pieces: bool = False, text: bool = True, named: bool = True,
    order: tuple[int, ...] = (0, 1, 2),
) -> Path:  # fmt: skip
    """A capture of the graph of each size: one graph, or one a block (``pieces``). Its calls name kernels, or they do
    not, as in CUDA: then operators are around them. order: of the kernels in each module."""
    made = Recording()
    for size in sizes:
        since = made.at
        if not pieces:
            made.call("hipStreamBeginCapture")
        model = made.at
        for number in range(blocks):
            if pieces:
                made.call("hipStreamBeginCapture")
            layer = made.at
            for module, kernels in block(number).items():
                start = made.at
                for name in [kernels[one] for one in order]:
                    said = {"kernel": f"{name}_{'tiny' if size < 8 else 'wide'}"} if named else {}
                    since_call = made.at
                    made.call("hipModuleLaunchKernel" if named else "cudaLaunchKernel", **said)
                    if not named:
                        made.around("cpu_op", "aten::mm" if name in ("qkv", "out", "up", "down") else f"x::{name}",
                                    since_call)  # fmt: skip
                made.around("python_function", f"nn.Module: {module}", start)
            made.around("python_function", f"nn.Module: Block_{number}", layer)
            if pieces:
                made.call("hipStreamEndCapture")
        made.around("python_function", "nn.Module: Net_0", model)
        if not pieces:
            made.call("hipStreamEndCapture")
        if text:
            made.around("user_annotation", f"capture_{size}_{'PIECEWISE' if pieces else 'FULL'}", since)
    return made.write(path)


def replayed(path: Path, sizes: Iterable[int], *, blocks: int = 4, pieces: bool = False, extra: str = "") -> Path:
    """A run of decode steps of these sizes, each of which replays the graph of the next larger capture."""
    made = Recording()
    for size in sizes:
        since, names = made.at, [f"{k}_{'tiny' if size < 8 else 'wide'}" for one in block(0).values() for k in one]
        model = made.at
        for _ in range(blocks if pieces else 1):
            made.replay([*names * (1 if pieces else blocks), *([extra] if extra else [])])
        if pieces:
            made.around("python_function", "nn.Module: Net_0", model)
        made.at = max(made.at, made.device_at)
        made.around("user_annotation", f"execute_{size}_context_0(sq0sk0)_generation_{size}(sq{size}sk9)", since)
    return made.write(path)
