"""``xsp_post.record``: what a block of a program runs → a trace and, beside it, what torch writes of graphs and of code
that it compiles, under names by which they find one another."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from xsp_post.base.errors import OutputError, UsageError
from xsp_post.workload.ranges import is_compiled, ranges
from xsp_post.workload.recorder import profile, synchronizer, write_recording

_COMPILER = {"trace.provenance_tracking_level": 1, "force_disable_caches": True, "cpp.enable_kernel_profile": True}


@contextmanager
def record(
    path: str | os.PathLike[str] = "recording", *, warmup: int = 0, model: torch.nn.Module | None = None
) -> Iterator[Callable[[], None]]:
    """Record what is run inside: ``PATH.pt.trace.json.gz`` with shapes, ``PATH_torch_trace/`` with what the compiler
    made of code that is compiled inside, ``PATH.annotations.pkl`` with names of the nodes of graphs captured inside
    (torch 2.12 and newer). `xsp-post ingest` of the trace finds the others.

        with xsp_post.record("run", warmup=3) as step:
            for batch in batches:
                step()
                model(batch)

    The value, called at the begin of each step, marks the steps; the profiler begins behind ``warmup`` of them.
    ``model``: its layers have ranges (`ranges`), unless it is compiled: then the compiler says what they are.

    Raises:
        OutputError: there is a trace of that name.
        UsageError: the name has a dot, or the block ended within the warm-up.
    """
    trace = Path(f"{os.fspath(path)}.pt.trace.json.gz")
    if "." in Path(path).name:
        raise UsageError(f"{path}: the name of a recording has no dot", code="record-program")
    if trace.exists():
        raise OutputError(f"{trace} exists already. It was not changed.", code="output-exists")
    trace.parent.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    profiler, begun, is_on = profile(device), 0, False
    marked = ExitStack()  # the range of a step, named as torch names it

    def step() -> None:
        nonlocal begun, is_on
        marked.close()
        begun += 1
        if begun > warmup and not is_on:
            profiler.start()
            is_on = True
        if is_on:
            marked.enter_context(torch.profiler.record_function(f"ProfilerStep#{begun}"))

    with ExitStack() as stack:
        if model is not None and not is_compiled(model):
            stack.enter_context(ranges(model, to="torch"))
        _listen(stack, trace.with_name(f"{Path(path).name}_torch_trace"))
        if not warmup:
            profiler.start()
            is_on = True
        try:
            yield step
        finally:
            marked.close()
            if is_on:
                synchronizer(device)()
                profiler.stop()
                write_recording(profiler, trace)
    if not is_on:
        raise UsageError("The block ended within the warm-up: nothing was recorded.", code="record-nothing")


def _listen(stack: ExitStack, folder: Path) -> None:
    """Until the stack ends, torch writes there what it compiles (unless TORCH_TRACE says where), and notes what the
    nodes of graphs are named."""
    import torch._inductor.config as inductor
    import torch._logging._internal as logs

    for name, value in _COMPILER.items():
        with suppress(AttributeError):  # a version of torch without it
            stack.enter_context(inductor.patch({name: value}))
    if "TORCH_TRACE" not in os.environ:
        handler = logs.LazyTraceHandler(str(folder))
        handler.setFormatter(logs.TorchLogsFormatter(trace=True))
        logs.trace_log.addHandler(handler)
        stack.callback(handler.close)
        stack.callback(logs.trace_log.removeHandler, handler)
    modules: list[Any] = [getattr(torch.cuda, name, None) for name in ("graph_annotations", "_graph_annotations")]
    for module in [one for one in modules if hasattr(one, "enable_annotations")][:1]:
        module.enable_annotations()
        stack.callback(module.disable_annotations)
