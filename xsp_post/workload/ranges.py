"""``run`` → capture: ranges on the model and its layers, by forward hooks, in the grammar of `range_text`.

`ranges` is the public way for a user's own program, under nsys, ncu or torch.profiler::

    with xsp_post.ranges(model):
        for batch in loader:
            model(batch)

What is written, in the NVTX domain ``xsp`` (in a PyTorch trace: annotations ``xsp/<text>``):

* ``model:<phase>#<iteration>`` around one execution, category ``model``, payload the batch size;
* ``<module path>:<Class>#<call>`` around one call of a layer, category ``layer``, payload the call index;
* the mark ``shape:[8,64,112,112] flop:… bytes:…``, category ``shape``, just before the end of that layer; flop and
  least bytes for layers of torch.nn (`models.sized_work`).

Of a leveled run a layer is a leaf module, or what ``depth`` and ``kinds`` select. Modules that hold layers get a range
in the same form (the tree calls them MODULE), so that the work a module does between its layers shows as the
``[self]`` of that module; the model itself is its model range. Of other programs all modules have ranges, and the
layers are the blocks that repeat, as in a trace of PyTorch's profiler (`tree.layer_rules`).
"""

import difflib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from xsp_post.base.errors import ToolError, UsageError
from xsp_post.names import range_text
from xsp_post.names.step_texts import kind_of_word
from xsp_post.workload.models import sized_work

# Modules that call their children's parameters, not the children: their insides have no call to hook.
_OPAQUE = (nn.MultiheadAttention,)


class Sink(Protocol):
    """Where ranges go. ``prepare`` is called once per distinct text, ``push`` and ``pop`` per range."""

    def prepare(self, text: str, category: str, payload: int) -> Any: ...

    def push(self, prepared: Any) -> None: ...

    def pop(self, shape: tuple[int, ...] | None) -> None: ...


class NvtxSink:
    """Ranges of the NVTX domain ``xsp``, with registered strings; free of charge while no tool listens."""

    takes_work = True

    def __init__(self) -> None:
        try:
            import nvtx
        except ImportError:
            said = "The package nvtx, which writes the ranges, is not installed."
            raise ToolError(said, code="nvtx-missing") from None
        self._domain = nvtx.get_domain(range_text.DOMAIN)
        self.is_deaf = type(self._domain).__name__ == "DummyDomain"  # what nvtx gives where no tool is attached
        self._shapes: dict[tuple[tuple[int, ...], tuple[int, int] | None], Any] = {}

    def prepare(self, text: str, category: str, payload: int) -> Any:
        return self._domain.get_event_attributes(message=text, category=category, payload=payload)

    def push(self, prepared: Any) -> None:
        self._domain.push_range(prepared)

    def pop(self, shape: tuple[int, ...] | None, work: tuple[int, int] | None = None) -> None:
        if shape is not None:
            mark = self._shapes.get((shape, work))
            if mark is None:
                mark = self.prepare(range_text.format_shape(shape, work), range_text.SHAPE, 0)
                self._shapes[shape, work] = mark
            self._domain.mark(mark)
        self._domain.pop_range()


# What record_function calls; it takes half of its time to look for subclasses of tensors among a text's arguments.
_BEGIN, _END = torch.ops.profiler._record_function_enter_new, torch.ops.profiler._record_function_exit._RecordFunction
_PLAIN = torch._C.DisableTorchFunctionSubclass
# torch has no public questions for this; a version without these is taken as not recording
_is_profiling = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)
_profiler_kind = getattr(torch._C._autograd, "_profiler_type", lambda: None)
_is_compiling = torch.compiler.is_compiling


class AnnotationSink:
    """Ranges as annotations ``xsp/<text>`` of a running torch.profiler."""

    def __init__(self) -> None:
        self._open = _Open()

    def prepare(self, text: str, category: str, payload: int) -> str:
        return range_text.PREFIX + text

    def push(self, prepared: str) -> None:
        with _PLAIN():
            self._open.ranges.append(_BEGIN(prepared, None))

    def pop(self, shape: tuple[int, ...] | None) -> None:
        with _PLAIN():
            _END(self._open.ranges.pop())


class ListeningSink:
    """Ranges to whatever listens at that moment: always to NVTX, which is free of charge while no tool listens, and
    to torch.profiler while it records, wherever it begins and ends. ``was_heard``: something did listen."""

    def __init__(self) -> None:
        self.was_called = False
        # whether a tool that reads NVTX seems to be attached to this process
        has_tool = any(os.environ.get(name) for name in _INJECTIONS)
        self.was_heard = has_tool or "ToolsInjection" in os.environ.get("LD_PRELOAD", "")
        self.is_installed = True
        self._nvtx: NvtxSink | None = None
        try:
            sink = NvtxSink()
            self._nvtx = None if sink.is_deaf else sink
        except ToolError:  # without the package only torch.profiler can listen
            self.was_heard = self.is_installed = False
        self.takes_work = self._nvtx is not None
        self._is_kineto: bool | None = None  # the recording that goes on: to ask of which kind it is takes 5 µs
        self._open = _Open()

    def prepare(self, text: str, category: str, payload: int) -> tuple[str, Any]:
        self.was_called = True
        own = None if self._nvtx is None else self._nvtx.prepare(text, category, payload)
        return range_text.PREFIX + text, own

    def push(self, prepared: tuple[str, Any]) -> None:
        annotation = None
        if not _is_profiling():
            self._is_kineto = None
        elif self._is_kineto or self._begins():
            with _PLAIN():
                annotation = _BEGIN(prepared[0], None)
        self._open.ranges.append(annotation)
        if self._nvtx is not None:
            self._nvtx.push(prepared[1])

    def pop(self, shape: tuple[int, ...] | None, work: tuple[int, int] | None = None) -> None:
        if not self._open.ranges:  # the call began before its hooks were there
            return
        if self._nvtx is not None:
            self._nvtx.pop(shape, work)
        if (annotation := self._open.ranges.pop()) is not None:
            with _PLAIN():
                _END(annotation)

    def _begins(self) -> bool:
        """Whether torch.profiler records; ``emit_nvtx`` does not count, its annotations leave our domain."""
        if self._is_kineto is None:
            self._is_kineto = getattr(_profiler_kind(), "name", "") == "KINETO"
            self.was_heard |= self._is_kineto
        return self._is_kineto

    def complaint(self) -> str:
        """What to say at the end where nothing was recorded; "" where something was, or where that is unknown."""
        if not self.was_called:
            return "xsp_post.ranges: the model was not called in the block, so no range was written."
        if self.was_heard:
            return ""
        hint = "Run under torch.profiler.profile() or: nsys profile -t cuda,nvtx python program.py"
        missing = "" if self.is_installed else " (nsys needs the package nvtx, which is not installed)"
        return f"xsp_post.ranges: nothing listened, so no range was recorded. {hint}{missing}"


# What nsys and ncu set in the programs that they start, so that NVTX and CUDA find them.
_INJECTIONS = ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")


class ClockSink:
    """Ranges as two readings of ``time.perf_counter_ns`` each, kept in memory.

    ``texts`` holds each distinct text once; ``text_indexes``, ``start_ns``, ``end_ns`` one entry per range
    in the order of their starts.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.text_indexes: list[int] = []
        self.start_ns: list[int] = []
        self.end_ns: list[int] = []
        self._open = _Open()

    def prepare(self, text: str, category: str, payload: int) -> int:
        self.texts.append(text)
        return len(self.texts) - 1

    def push(self, prepared: int) -> None:
        self._open.ranges.append(len(self.start_ns))
        self.text_indexes.append(prepared)
        self.end_ns.append(-1)
        self.start_ns.append(time.perf_counter_ns())

    def pop(self, shape: tuple[int, ...] | None) -> None:
        now = time.perf_counter_ns()
        self.end_ns[self._open.ranges.pop()] = now


class _Open(threading.local):
    """The ranges that each thread has open, innermost last."""

    def __init__(self) -> None:
        self.ranges: list[Any] = []


def select_layers(model: nn.Module, depth: int = -1, kinds: Sequence[str] = ()) -> list[tuple[str, nn.Module]]:
    """The modules that count as layers, as (path, module) in the order of ``named_modules``.

    ``kinds``: modules of these class names (or subclasses), nested ones too. ``depth`` ≥ 0: modules that
    many names below the model, and leaf modules above. Else leaf modules. A module that the model holds
    under several names has the first. UsageError for a kind that no module of the model is of.
    """
    if kinds:
        return _of_kinds(model, kinds)
    selected: list[tuple[str, nn.Module]] = []
    inside: list[str] = []  # prefixes of layers: what lies below is part of them
    for path, module in model.named_modules():
        level = path.count(".") + 1 if path else 0
        if any(path.startswith(prefix) for prefix in inside):
            continue
        is_leaf = next(module.children(), None) is None or isinstance(module, _OPAQUE)
        if is_leaf or level == depth:
            selected.append((path, module))
            inside.append(f"{path}." if path else "")
    return selected


def select_containers(model: nn.Module, layers: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """The modules that hold layers, without the model itself, as (path, module)."""
    own = {path for path, _ in layers}
    above = {path[:end] for path in own for end in range(len(path)) if path[end] == "."}
    return [(path, module) for path, module in model.named_modules() if path in above - own]


def _of_kinds(model: nn.Module, kinds: Sequence[str]) -> list[tuple[str, nn.Module]]:
    wanted = set(kinds)
    selected, seen = [], set()
    for path, module in model.named_modules():
        names = {base.__name__ for base in type(module).__mro__}
        seen.add(type(module).__name__)
        if names & wanted:
            selected.append((path, module))
            seen |= names & wanted
    missing = [kind for kind in kinds if kind not in seen]
    if missing:
        close = difflib.get_close_matches(missing[0], sorted(seen), n=3) or sorted(seen)[:8]
        hint = f"Its modules are {', '.join(close)} …."
        raise UsageError(f"No module of the model is a {missing[0]}.", code="layer-kind", hint=hint)
    return selected


@contextmanager
def hooked(hooks: Iterable[tuple[nn.Module, Callable[..., None], Callable[..., None]]]) -> Iterator[None]:
    """Each module's calls with a hook before and one after, while the block runs."""
    handles: list[Any] = []
    try:
        for module, before, after in hooks:
            handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
        yield
    finally:
        for handle in handles:
            handle.remove()


class LayerRanges:
    """Hooks on the layers of one model; `remove` takes them off again, `attach` puts them back.

    ``synchronize`` is called before every start and end of a layer (XSP's serialised M/L run).
    """

    def __init__(
        self, model: nn.Module, sink: Sink, *, depth: int = -1, kinds: Sequence[str] = (),
        has_containers: bool = True, synchronize: Callable[[], None] | None = None, is_attached: bool = True,
    ) -> None:  # fmt: skip
        self._calls: dict[str, int] = {}
        self._handles: list[Any] = []
        self._sink = sink
        layers = select_layers(model, depth, kinds)
        self._hooked = [
            (module, *self._hooks(path, type(module).__name__, synchronize))
            for path, module in layers + (select_containers(model, layers) if has_containers else [])
        ]
        if is_attached:
            self.attach()

    def attach(self) -> None:
        """Put every hook on the model."""
        for module, before, after in self._hooked:
            self._handles.append(module.register_forward_pre_hook(before))
            # always_call: the range also ends when the layer raises
            self._handles.append(module.register_forward_hook(after, always_call=True))

    def begin_iteration(self) -> None:
        """Count the calls of every layer from 0 again."""
        self._calls.clear()

    def remove(self) -> None:
        """Take every hook off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hooks(
        self, path: str, layer_type: str, synchronize: Callable[[], None] | None
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        calls, sink = self._calls, self._sink
        push, pop = sink.push, sink.pop
        takes_work, takes_shapes = getattr(sink, "takes_work", False), not isinstance(sink, ListeningSink)
        prepared: list[Any] = []
        works: dict[Any, tuple[int, int] | None] = {}  # by the sizes of the first input and output

        def before(module: nn.Module, inputs: Any) -> None:
            if _is_compiling():  # what is compiled has no calls of modules, and must stay one graph
                return
            call = calls.get(path, 0)
            calls[path] = call + 1
            while len(prepared) <= call:
                text = range_text.format_layer(path, layer_type, len(prepared))
                prepared.append(sink.prepare(text, range_text.LAYER, len(prepared)))
            if synchronize is not None:
                synchronize()
            push(prepared[call])

        def after(module: nn.Module, inputs: Any, output: Any) -> None:
            if _is_compiling():
                return
            if synchronize is not None:
                synchronize()
            if not takes_work:
                pop(output_shape(output) if takes_shapes else None)
                return
            shape = output_shape(output)
            sizes = output_shape(inputs), shape
            if sizes not in works:
                works[sizes] = sized_work(module, inputs, output)
            pop(shape, works[sizes])  # type: ignore[call-arg]

        return before, after


def output_shape(output: Any) -> tuple[int, ...] | None:
    """Shape of a layer's (first) output tensor, None where it has none."""
    while isinstance(output, (tuple, list)) and output:
        output = output[0]
    return tuple(output.shape) if isinstance(output, Tensor) else None


def is_compiled(model: nn.Module) -> bool:
    return any(hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None) for one in model.modules())


@contextmanager
def ranges(
    model: nn.Module, *, depth: int = -1, kinds: Sequence[str] = (), phase: str = "forward", to: str = "auto"
) -> Iterator[None]:
    """Ranges around every call of ``model`` and of its layers while the block runs; hooks go afterwards.

    ``to``: ``nvtx`` (for nsys and ncu), ``torch`` (annotations for torch.profiler), or ``auto``: whatever listens at
    each call, so that torch.profiler may begin before, within or around the block, also with a ``schedule``; a
    warning at the end says so when nothing listened. ``depth`` and ``kinds`` choose what is a layer (`select_layers`),
    else all modules have a range; ``phase`` names the model range. A model that ``torch.compile`` has compiled has no
    module calls left to see: pass the model before compiling, and expect graph breaks, or measure it without ranges.

    Raises UsageError for a compiled model, an unknown ``to`` or kind, ToolError without the nvtx package.
    """
    if hasattr(model, "_orig_mod"):
        said = "Layer ranges cannot be put on a compiled model: its modules are fused."
        raise UsageError(said, code="layers-compiled")
    if to not in ("auto", "nvtx", "torch"):
        raise UsageError(f"Ranges go to 'auto', 'nvtx' or 'torch', not {to!r}.", code="ranges-sink")
    sink: Any = {"auto": ListeningSink, "torch": AnnotationSink, "nvtx": NvtxSink}[to]()
    # a model without children is its own only layer; its hooks come after those of the model range
    iteration = 0

    def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal iteration
        if _is_compiling():
            return
        layers.begin_iteration()
        text = range_text.format_model(phase, iteration)
        inputs = (one for one in (*args, *kwargs.values()) if isinstance(one, Tensor) and one.dim())
        sink.push(sink.prepare(text, range_text.MODEL, next((int(one.shape[0]) for one in inputs), -1)))
        iteration += 1

    def end(module: nn.Module, args: Any, output: Any) -> None:
        if not _is_compiling():
            sink.pop(None)

    handle = model.register_forward_pre_hook(begin, with_kwargs=True)
    # whoever chooses layers has no ranges around them, among which others could be taken for the layers
    layers = LayerRanges(model, sink, depth=depth, kinds=kinds, has_containers=depth < 0 and not kinds)
    last = model.register_forward_hook(end, always_call=True)
    try:
        yield
    finally:
        last.remove()
        layers.remove()
        handle.remove()
        if to == "auto" and (complaint := sink.complaint()):
            warnings.warn(complaint, UserWarning, stacklevel=3)


heard_by: list[Sink] = []  # the recorder that runs the program, while it does
_listening = cache(ListeningSink)


@contextmanager
def step(
    kind: str, tokens: int | Sequence[int] = 1, context: int | Sequence[int] = 0, *, requests: int = 0,
    bucket: int = 0, ids: Sequence[object] = (),
) -> Iterator[None]:  # fmt: skip
    """A range around one step of an inference loop, to whatever listens: nsys, ncu or torch.profiler.

    ``kind``: prefill, decode, mixed, verify, draft or encoder. ``tokens``: how many tokens each request computes;
    ``context``: how many keys they attend to, those of the step included. Each is one number for all requests, or one
    number a request. ``requests``: how many there are, where no sequence says it. ``bucket``: requests that the CUDA
    graph was made for. ``ids``: names of the requests, for the table requests.

    Raises UsageError for an unknown kind, or sequences of unlike length.
    """
    lengths = {len(one) for one in (tokens, context) if not isinstance(one, int)} | ({requests} if requests else set())
    if kind not in kind_of_word() or len(lengths) > 1:
        raise UsageError(
            f"xsp_post.step: {kind!r} is no kind of step, or tokens and context are of unlike length.",
            code="step-range",
            hint=f"Kinds are {', '.join(dict.fromkeys(kind_of_word().values()))}.",
        )
    count = lengths.pop() if lengths else 1
    each = [[one] * count if isinstance(one, int) else one for one in (tokens, context)]
    text = range_text.format_step(kind_of_word()[kind], each[0], each[1], bucket, ids)
    sink: Any = heard_by[-1] if heard_by else _listening()
    sink.push(sink.prepare(text, range_text.STEP, count))
    try:
        yield
    finally:
        sink.pop(None)
