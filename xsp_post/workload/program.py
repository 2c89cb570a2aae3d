"""`record` → trace: a program of the user, run with a profiler that listens to a few calls of its models.

A process of its own: ``python -m xsp_post.workload.program SETTINGS SCRIPT|-m MODULE [ARGUMENT …]``. A *model* is a
module that is called by no other and holds parameters: a loss, a metric or a transform of the input is none. A *step*
begins with a call of the model that is called first, and ends where it is called again: behind another model, or at
once where it is the only one, and behind an update of an optimizer where gradients were made since the call. From the
last step before the recording on, models and their layers have ranges; after ``warmup_count`` steps the profiler
begins, ``step_count`` steps later it ends, and the program too unless it is to go on. A program that has an optimizer
is recorded until it has updated twice, too: what it calls many times before an update is not all that it does.
"""

import gc
import json
import os
import re
import runpy
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

try:
    import torch
    from torch.nn.utils.parametrize import ParametrizationList
    from torch.optim.optimizer import register_optimizer_step_post_hook
except ModuleNotFoundError:
    sys.exit(f"{sys.executable} has no torch: activate the environment that the program runs in.")

from xsp_post.base.errors import UsageError
from xsp_post.model.capture import SUMMARY
from xsp_post.names.range_text import FORWARD
from xsp_post.workload.ranges import is_compiled, ranges
from xsp_post.workload.recorder import profile, write_annotations, write_recording
from xsp_post.workload.recording import watched

MOST_TIMES = 20  # as many steps as are wanted, where a program with an optimizer does not update
UPDATES = 2  # between them lies all that leads to one
_task_of_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # −1 outside of a backward pass
TRACE, REPORT = "trace.json.gz", "report.nsys-rep"


class Watch:
    """Counts the steps on the thread that made the first call of a module, and records some of them."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings, self._output = settings, Path(settings["output"])
        self._process, self._thread = os.getpid(), -1  # not those of workers, which fork has given this watch, too
        self._depth = 0
        self._begun_ns: list[int] = []  # of each step
        self._awake_ns: list[int] = []  # likewise, by a clock that stops where another program has the processor
        self._starting: dict[str, int] = {}  # what the profiler took to begin, behind the last step before it
        self._models: dict[int, torch.nn.Module] = {}  # by identity, in the order of their first calls
        self._is_model: dict[int, bool] = {}
        self._with_ranges: set[int] = set()
        # as many as steps are wanted: one that is not among them (an encoder of one long generation) begins none
        self._recent: deque[int] = deque(maxlen=max(settings["warmup_count"] + settings["step_count"], 2))
        self._first = 0  # the model whose calls begin steps
        self._since_begin = 0  # calls of models
        self._is_updated, self._has_updates = True, False  # since the step began, ever
        self._awaited_count = 0  # updates that the recording still goes on for
        self._gradient: tuple[int, int] | None = None  # of a parameter, at the last call
        self._ranges = ExitStack()
        self._profiler: Any = None
        self._is_over = False
        hooks = torch.nn.modules.module
        self._hooks = [
            hooks.register_module_forward_pre_hook(self._before),
            hooks.register_module_forward_hook(self._after, always_call=True),
            register_optimizer_step_post_hook(self._updated),
        ]

    def close(self) -> None:
        """The end of the program, or of the recording: the trace is written, no hook is left."""
        self._finish()
        for hook in self._hooks:
            hook.remove()
        self._ranges.close()

    def _finish(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._output.mkdir(parents=True, exist_ok=True)
        ended_ns, awake_ns = time.perf_counter_ns(), _awake_ns()
        if self._profiler is not None:
            self._stop()
        summary = {"begun_ns": [*self._begun_ns, ended_ns], "awake_ns": [*self._awake_ns, awake_ns],
                   "warmup_count": self._settings["warmup_count"], **self._starting}  # fmt: skip
        (self._output / SUMMARY).write_text(json.dumps(summary), encoding="utf-8")

    def _before(self, module: torch.nn.Module, inputs: Any) -> None:
        if torch.compiler.is_compiling():  # a call that is traced, not made: what follows would break its graph
            return
        if self._thread < 0 and os.getpid() == self._process:
            self._thread = threading.get_ident()
        if not self._is_watched():
            return
        self._depth += 1
        if self._depth == 1 and self._holds_parameters(module) and self._begins_step(module):
            self._step()

    def _after(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if not self._is_watched() or not self._depth:
            return
        self._depth -= 1
        if self._depth:
            return
        if self._is_over:
            self.close()  # not before: torch is calling the hooks of this module
            return
        if self._is_model.get(id(module)):
            self._models.setdefault(id(module), module)
        if len(self._begun_ns) >= self._settings["warmup_count"]:
            self._add_ranges()

    def _is_watched(self) -> bool:
        if _task_of_backward() >= 0:  # a checkpoint computes a model's inside again: its layers are called by none
            return False
        return threading.get_ident() == self._thread and os.getpid() == self._process

    def _holds_parameters(self, module: torch.nn.Module) -> bool:
        """Whether it is a model, and does not compute a parameter of one. Weights that are no parameters (of quantised
        layers) are buffers of its modules."""
        if isinstance(module, ParametrizationList):
            return False
        if id(module) not in self._is_model:
            inside = (buffer for child in module.children() for buffer in child.buffers())
            self._is_model[id(module)] = next(module.parameters(), None) is not None or next(inside, None) is not None
        return self._is_model[id(module)]

    def _begins_step(self, module: torch.nn.Module) -> bool:
        """Whether this call of a model begins a step: calls in a row are one where there are other models, and calls
        whose gradients add up are one."""
        model = id(module)
        if self._first not in self._recent:
            self._first = model
        is_repeated = bool(self._recent) and self._recent[-1] == model and len({*self._recent}) > 1
        last, self._gradient = self._gradient, _gradient_of(module)
        adds_up = not self._is_updated and self._gradient not in (None, last)
        adds_up &= self._has_updates or self._since_begin < (self._recent.maxlen or 0)  # else nobody updates
        self._recent.append(model)
        self._since_begin += 1
        if model != self._first or adds_up or (is_repeated and not self._is_updated):
            return False
        self._since_begin, self._is_updated = 1, False
        return True

    def _updated(self, *_: Any) -> None:
        self._is_updated = self._has_updates = True
        self._awaited_count -= self._profiler is not None

    def _add_ranges(self) -> None:
        """Ranges on the models that have none: of one model ``forward``, of several each by its class."""
        words = [_word(model) for model in self._models.values()]
        for number, (key, model) in enumerate(self._models.items(), 1):
            if key not in self._with_ranges and not is_compiled(model):
                self._with_ranges.add(key)
                word = words[number - 1]
                phase = (f"{word}_{number}" if words.count(word) > 1 else word) if len(words) > 1 else FORWARD
                self._ranges.enter_context(ranges(model, phase=phase, to=self._settings["ranges"]))

    def _step(self) -> None:
        first, count = self._settings["warmup_count"], self._settings["step_count"]
        recorded = len(self._begun_ns) - first
        if recorded >= count and (self._awaited_count <= 0 or recorded >= MOST_TIMES * count):
            self._finish()
            if not self._settings["to_the_end"]:
                raise SystemExit(0)
        if self._is_over:
            return
        if recorded == 0:
            ended_ns, awake_ns = time.perf_counter_ns(), _awake_ns()
            if any(issubclass(type(one), torch.optim.Optimizer) for one in gc.get_objects()):
                self._awaited_count = min(UPDATES, count)
            self._start()
            self._starting = {"starting_ns": time.perf_counter_ns() - ended_ns,
                              "starting_awake_ns": _awake_ns() - awake_ns}  # fmt: skip
        self._begun_ns.append(time.perf_counter_ns())
        self._awake_ns.append(_awake_ns())

    def _start(self) -> None:
        if self._settings["profiler"] == "cuda":
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            self._profiler = torch.cuda.profiler
        else:
            self._profiler = profile("cuda" if torch.cuda.is_available() else "cpu")
            self._profiler.start()

    def _stop(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profiler.stop()
        if self._settings["profiler"] == "torch":
            write_recording(self._profiler, self._output / TRACE)
        else:
            write_annotations(self._output / REPORT)


def _awake_ns() -> int:
    """The clock of this thread, without its waits for a processor where the system counts them (Linux)."""
    try:
        waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except (OSError, LookupError):
        waited_ns = 0
    return time.perf_counter_ns() - waited_ns


def _gradient_of(model: torch.nn.Module) -> tuple[int, int] | None:
    """What is another one after backward work: the gradient of the first parameter that has one, and its version."""
    gradient = next((one.grad for one in model.parameters() if one.grad is not None), None)
    return None if gradient is None else (id(gradient), gradient._version)


def _word(model: torch.nn.Module) -> str:
    """``PatchDiscriminator`` → ``patch_discriminator``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", type(model).__name__).strip("_").lower()
    return words if words[:1].isalpha() else FORWARD


def _watch_programs(settings: dict[str, Any]) -> None:
    """Programs that this one starts with its own Python are watched, too, each with a folder: ranks of a launcher."""
    begin, numbers = subprocess.Popen.__init__, count(1)

    @wraps(begin)
    def begin_watched(self: Any, args: Any, *more: Any, **named: Any) -> None:
        if isinstance(args, list | tuple) and args[0] == sys.executable:
            with suppress(UsageError):  # python -c: there is no file to watch
                args = watched([*args], {**settings, "output": os.path.join(settings["output"], str(next(numbers)))})
        begin(self, args, *more, **named)

    subprocess.Popen.__init__ = begin_watched  # type: ignore[method-assign]


def main() -> None:
    """Run the program as Python would, watched."""
    settings = json.loads(sys.argv[1])
    words = sys.argv[2:]
    _watch_programs(settings)
    watch = Watch(settings)
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
            runpy.run_path(words[0], run_name="__main__")
    finally:
        watch.close()


if __name__ == "__main__":
    main()
