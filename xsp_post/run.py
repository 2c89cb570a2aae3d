"""``cli`` → **run** → captures: executes the plan of leveled runs in child processes; can be resumed.

Levels that can share a process do, in blocks by turns (`workload.blocks`); the others have a process each, their
order rotating from repeat to repeat, so that drift of clocks and temperature hits all alike. Processes are repeated
for the spread between them: as often as asked for, or as often as fits two minutes. Counters are read in the first
repeat only, one capture per metric set. With ``deep_at='optimal'`` the first repeat measures all batch sizes at level
M first, and the deeper levels follow at the optimal batch size (`arrays.batch_sizes`; recorded, kept on resume).
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np

from xsp_post import __version__
from xsp_post.arrays.batch_sizes import optimal_position
from xsp_post.base import stops
from xsp_post.base.errors import ToolError, UsageError, XspPostError
from xsp_post.hardware import machine
from xsp_post.model import capture, run_folder
from xsp_post.model.capture import DONE, FAILED, OUT_OF_MEMORY, Capture, CapturePlan, Workload
from xsp_post.model.levels import RUN_COUNTERS, RUN_KERNEL, RUN_LAYER, RUN_LEVEL_OPTIONS, RUN_LEVELS, RUN_MODEL
from xsp_post.workload import collectors
from xsp_post.workload.catalogue import check_name
from xsp_post.workload.collectors.in_process import InProcess, collect_together

OPTIMAL, ALL = "optimal", "all"
# processes of every level, where their number is not asked for: as many as fit the time, between these
LEAST_REPEATS, MOST_REPEATS, BUDGET_S = 3, 10, 105.0

CompiledNote = (
    "level M/L was left out: torch.compile fuses the modules, so there are no layer calls to measure; "
    "hooks would break the graph and change the program"
)


@dataclass(frozen=True)
class RunPlan:
    """What ``xsp-post run`` was asked for."""

    workload: Workload
    batch_sizes: tuple[int, ...] = (1,)
    levels: tuple[str, ...] = (RUN_MODEL, RUN_LAYER, RUN_KERNEL)
    collector: str = "auto"
    repeat_count: int | None = None  # None: as many as fit `BUDGET_S`
    deep_at: str = OPTIMAL  # optimal, all, or a batch size
    is_apart: bool = False  # every level in processes of its own
    timeout_s: float = 900.0


@dataclass(frozen=True)
class Step:
    """One process that is due, and the levels it measures: a capture each."""

    levels: tuple[str, ...]
    batch_size: int
    repeat: int
    metric_set: str = ""  # of level M/L/G+counters

    @property
    def name(self) -> str:
        """What the progress calls it."""
        return capture.step_name(" + ".join(self.levels), self.batch_size, self.repeat, self.metric_set)


@dataclass
class RunResult:
    """What a run left: its folder, its captures in the order they were made, what was left out and why."""

    directory: Path
    captures: list[Capture]
    deep_batch_sizes: tuple[int, ...]
    notes: list[str] = field(default_factory=list)


# what happened to a step: (number, how many at least, step, its captures or None at its beginning)
OnStep = Callable[[int, int, Step, Sequence[Capture] | None], None]


def check_plan(plan: RunPlan) -> None:
    """UsageError naming the option that cannot be followed; starts nothing."""
    workload = plan.workload
    check_name(workload.model)
    problems = [
        (not plan.batch_sizes, "--batch-size names no batch size"),
        (any(size < 1 for size in plan.batch_sizes), "--batch-size must be at least 1"),
        (workload.iteration_count < 1, "--iterations must be at least 1"),
        (workload.warmup_count < 0, "--warmup must be at least 0"),
        (plan.repeat_count is not None and plan.repeat_count < 1, "--repeat must be at least 1"),
        (plan.timeout_s <= 0, "--timeout must be above 0"),
        (not plan.levels or any(level not in RUN_LEVELS for level in plan.levels), "--levels takes M, ML and MLG"),
        (
            RUN_COUNTERS in plan.levels and workload.device == "cpu",
            "--ncu reads the counters of a GPU, but this run measures the CPU",
        ),
        (any(size < 1 for size in workload.input_shape), "--input-shape must hold sizes of at least 1"),
        (
            plan.deep_at not in (OPTIMAL, ALL) and _number(plan.deep_at) not in plan.batch_sizes,
            "--deep-at takes optimal, all or one of the batch sizes",
        ),
    ]
    for is_wrong, sentence in problems:
        if is_wrong:
            raise UsageError(f"{sentence}.", code="run-plan")


def execute(
    plan: RunPlan, directory: Path, *, is_resumed: bool = False, is_forced: bool = False, is_kept: bool = False,
    on_step: OnStep = lambda *_: None,
) -> RunResult:  # fmt: skip
    """Carry out a plan into ``directory`` and return what is there afterwards.

    Captures that are done already are kept when resuming. A batch size that runs out of memory is recorded
    and left out, the rest goes on; so does a run whose first metric set was recorded when another set fails.
    Any other failure ends the run with its own error, whose hint says what is left: the finished captures, to be
    resumed, and with ``is_kept`` the failed one with its logs. Ctrl-C leaves the folder usable and resumable
    (KeyboardInterrupt passes through).
    """
    check_plan(plan)
    run = _Run(plan, run_folder.prepare(plan.workload, directory, is_resumed, is_forced), on_step)
    try:
        run.go()
    except KeyboardInterrupt:
        stops.give_time()  # a child that was only being started has given none
        run.write_manifest("interrupted")
        raise
    except XspPostError as error:
        run.write_manifest("failed")
        error.own_hint = f"{error.hint} {run_folder.clear_failed(run.directory, is_kept)}".lstrip()
        raise
    run.write_manifest("done")
    done = [made for made in run.captures if made.status == DONE]
    if not done:
        raise ToolError(
            f"Every batch size ran out of memory ({', '.join(map(str, plan.batch_sizes))}).",
            code="run-all-out-of-memory",
        )
    return RunResult(run.directory, run.captures, run.deep, run.notes)


class _Run:
    """The state of one run; `go` carries out the steps, `write_manifest` says how far it came."""

    def __init__(self, plan: RunPlan, directory: Path, on_step: OnStep) -> None:
        self.plan = plan
        self.directory = directory
        self.on_step = on_step
        self.notes: list[str] = []
        self.deep: tuple[int, ...] = self._remembered_deep()
        self.captures = run_folder.load_all(directory)
        self.too_large = {made.batch_size for made in self.captures if made.status == OUT_OF_MEMORY}
        self.gpu_states: dict[str, Any] = {}
        self.levels = plan.levels
        if plan.workload.is_compiled and RUN_LAYER in plan.levels:
            self.levels = tuple(level for level in plan.levels if level != RUN_LAYER)
            self.notes.append(CompiledNote)
        self.collector_names = self._choose_collectors()
        self._metric_sets: tuple[str, ...] | None = None  # asked for when the first counters are due

    def _choose_collectors(self) -> dict[str, str]:
        device, wanted = self.plan.workload.device, self.plan.collector
        chosen = {level: collectors.choose(level, wanted, device).name for level in self.levels}
        for made in self.captures:  # a resumed run goes on with the collector it began with
            if wanted == "auto" and made.status == DONE and made.level in chosen:
                chosen[made.level] = made.collector
        return chosen

    def _remembered_deep(self) -> tuple[int, ...]:
        path = self.directory / capture.MANIFEST_NAME
        if not path.is_file():
            return ()
        return tuple(int(size) for size in capture.read_json(path).get("deep_batch_sizes", []))

    def go(self) -> None:
        self.write_manifest("running")
        number = 0
        for repeat in count():
            if not self._goes_on(repeat):
                break
            for step in self._steps(repeat):
                missing = tuple(level for level in step.levels if self._is_missing(level, step))
                number += 1
                if step.batch_size not in self.too_large and missing:
                    self._make(number, replace(step, levels=missing))
        slower = run_folder.disturbance(self.captures)
        if slower > 1:
            self.notes.append(f"level M was {slower - 1:.0%} slower after a block of level M/L/G than after one of "
                              "level M/L: measure the levels in processes of their own (--apart)")  # fmt: skip

    def _goes_on(self, repeat: int) -> bool:
        if self.plan.repeat_count is not None:
            return repeat < self.plan.repeat_count
        return repeat < LEAST_REPEATS or repeat < self._affordable_repeats()

    def _affordable_repeats(self) -> int:
        """How many repeats fit the time, by what those made took."""
        done = [made for made in self.captures if made.status == DONE and made.level != RUN_COUNTERS]
        repeats = len({made.repeat for made in done})
        spent_s = sum(made.wall_ns for made in done) / 1e9
        return min(int(BUDGET_S * repeats / spent_s), MOST_REPEATS) if spent_s > 0 else MOST_REPEATS

    def _steps(self, repeat: int) -> Iterator[Step]:
        """The steps of one repeat. A generator, since the optimal batch size is known only after level M."""
        plan, deep_levels = self.plan, [level for level in self.levels if level != RUN_MODEL]
        if repeat > 0:  # counters are counts, not times: once is enough, and replay is slow
            deep_levels = [level for level in deep_levels if level != RUN_COUNTERS]
        has_model = RUN_MODEL in self.levels
        if repeat == 0 and not self.deep and deep_levels:
            if plan.deep_at == OPTIMAL and has_model and len(plan.batch_sizes) > 1:
                for size in plan.batch_sizes:
                    yield Step((RUN_MODEL,), size, repeat)
                has_model = False
            self.deep = self._choose_deep()
        for size in plan.batch_sizes:
            due = self._processes(([RUN_MODEL] if has_model else []) + (deep_levels if size in self.deep else []))
            turn = repeat % len(due) if due else 0
            for levels in due[turn:] + due[:turn]:
                for metric_set in self._sets() if levels == (RUN_COUNTERS,) else ("",):
                    yield Step(levels, size, repeat, metric_set)

    def _processes(self, levels: Sequence[str]) -> list[tuple[str, ...]]:
        """The levels of each process: those that can share one, and the others by themselves."""
        workload = self.plan.workload
        # the environment variable of blocking launches holds for a whole process, and level M is without it
        is_apart = self.plan.is_apart or workload.is_launch_blocking
        together = tuple(
            level for level in levels
            if not is_apart and collectors.get(self.collector_names[level]).shares_process(workload.device)
        )  # fmt: skip
        if len(together) < 2:
            return [(level,) for level in levels]
        return [together, *[(level,) for level in levels if level not in together]]

    def _sets(self) -> tuple[str, ...]:
        """The metric sets of a counter run, a capture each; those that this GPU has no metric of are noted."""
        if self._metric_sets is None:
            self._metric_sets, left_out = collectors.metric_sets(self.collector_names[RUN_COUNTERS])
            self.notes += [f"the counters of {name} were left out: this GPU has none of their metrics"
                           for name in left_out]  # fmt: skip
        return self._metric_sets

    def _choose_deep(self) -> tuple[int, ...]:
        sizes = self.plan.batch_sizes
        if self.plan.deep_at == ALL:
            return sizes
        if self.plan.deep_at != OPTIMAL:
            return (int(self.plan.deep_at),)
        if RUN_MODEL not in self.levels or len(sizes) == 1:
            return (max(sizes),)
        throughput = {
            made.batch_size: made.batch_size / latency
            for made in self.captures
            if made.level == RUN_MODEL and made.status == DONE and (latency := run_folder.model_latency_ns(made)) > 0
        }
        return (deep_batch_size(throughput),) if throughput else ()

    def _is_missing(self, level: str, step: Step) -> bool:
        return not any(
            made.status == DONE
            and (made.level, made.batch_size, made.repeat) == (level, step.batch_size, step.repeat)
            and made.metric_set in ("", step.metric_set)  # '' of a run of old: all counters in one capture
            for made in self.captures
        )

    def _make(self, number: int, step: Step) -> None:
        plans = [self._capture_plan(step, level) for level in step.levels]
        self.on_step(number, self._least_count(), step, None)
        try:
            with run_folder.as_output_error(plans[0].directory):
                if len(plans) == 1:
                    made = [collectors.get(plans[0].collector).collect(plans[0])]
                else:
                    made = collect_together([(cast(InProcess, collectors.get(one.collector)), one) for one in plans])
        except ToolError as error:
            if not self._may_go_on(step, error):
                raise
            made = [self._left_out(step, plans[0].directory, error)]
        else:
            self.captures += made
            if made[0].status == OUT_OF_MEMORY:
                self.too_large.add(step.batch_size)
                self.notes.append(f"batch size {step.batch_size} ran out of memory at level {' + '.join(step.levels)}")
            else:
                capture.check_alike([other for other in self.captures if other.status == DONE])
        self.write_manifest("running")
        self.on_step(number, self._least_count(), step, made)

    def _capture_plan(self, step: Step, level: str) -> CapturePlan:
        folder = self._fresh_folder(step, level)
        self.gpu_states[folder.name] = [asdict(gpu) for gpu in machine.gpus()]
        return CapturePlan(self.plan.workload, level, step.batch_size, step.repeat, self.collector_names[level],
                           folder, self.plan.timeout_s, step.metric_set)  # fmt: skip

    def _may_go_on(self, step: Step, error: ToolError) -> bool:
        """Whether only this metric set is lost: counters can be read here, since another set's were."""
        has_counters = any(made.level == RUN_COUNTERS and made.status == DONE for made in self.captures)
        return bool(step.metric_set) and has_counters and error.code != "ncu-permission"

    def _left_out(self, step: Step, folder: Path, error: ToolError) -> Capture:
        """A metric set that the run goes on without: its folder stays for the reader, which makes a finding of it."""
        level = step.levels[0]
        made = Capture(level, step.batch_size, step.repeat, self.collector_names[level], FAILED, error.message,
                       metric_set=step.metric_set, directory=folder)  # fmt: skip
        if not (folder / capture.CAPTURE_NAME).is_file():
            with run_folder.as_output_error(folder):
                made.save()
        self.notes.append(f"no counters of {step.metric_set} at batch size {step.batch_size}: {made.reason}; "
                          "the same command with --resume tries them again")  # fmt: skip
        return made

    def _fresh_folder(self, step: Step, level: str) -> Path:
        """A new, empty folder with the next number; what a killed attempt left of the same step goes."""
        above = self.directory / capture.CAPTURES_FOLDER
        name = (level, step.batch_size, step.repeat, step.metric_set)
        suffix = capture.folder_name(0, *name)[2:]
        kept = {made.directory.name for made in self.captures}
        numbers = [0]
        with run_folder.as_output_error(above):
            for existing in above.iterdir():
                if existing.name not in kept and existing.name.endswith(suffix):
                    shutil.rmtree(existing, ignore_errors=True)
                elif existing.name.split("_")[0].isdigit():
                    numbers.append(int(existing.name.split("_")[0]))
            folder = above / capture.folder_name(max(numbers) + 1, *name)
            folder.mkdir()
        return folder

    def _least_count(self) -> int:
        """How many processes the whole run starts, as far as is known."""
        sizes = [size for size in self.plan.batch_sizes if size not in self.too_large]
        deep = [size for size in self.deep if size not in self.too_large] or sizes[:1]
        timed = [level for level in self.levels if level != RUN_COUNTERS]
        sets = len(self._sets()) if RUN_COUNTERS in self.levels else 0
        alone = len(sizes) - len(deep) if RUN_MODEL in timed else 0
        each = alone + len(deep) * len(self._processes(timed))
        repeats = self.plan.repeat_count or max(LEAST_REPEATS, self._affordable_repeats())
        below = [level for level in timed if level != RUN_MODEL]
        if below and alone + len(deep) > 1 and self.plan.deep_at == OPTIMAL:  # level M comes first, by itself
            sets += 1 + len(self._processes(below)) - len(self._processes(timed))
        return repeats * each + len(deep) * sets

    def write_manifest(self, status: str) -> None:
        plan = self.plan
        capture.write_json(self.directory / capture.MANIFEST_NAME, {
            "manifest_version": capture.MANIFEST_VERSION,
            "xsp_post_version": __version__,
            "status": status,
            "workload": plan.workload.recorded(),
            "batch_sizes": list(plan.batch_sizes),
            "levels": list(self.levels),
            "collectors": self.collector_names,
            "repeat_count": plan.repeat_count or 1 + max((made.repeat for made in self.captures), default=-1),
            "deep_at": plan.deep_at,
            "deep_batch_sizes": list(self.deep),
            "out_of_memory_batch_sizes": sorted(self.too_large),
            "notes": self.notes,
            "captures": [
                {
                    "folder": made.directory.name, "level": made.level, "batch_size": made.batch_size,
                    "repeat": made.repeat, "metric_set": made.metric_set, "collector": made.collector,
                    "process": made.process, "status": made.status,
                    "gpus_before": self.gpu_states.get(made.directory.name, []),
                }
                for made in self.captures
            ],
        })  # fmt: skip


def deep_batch_size(throughput: dict[int, float]) -> int:
    """The optimal batch size of a sweep, by the rule of every table (`batch_sizes.optimal_position`); where it has none
    (one size, or a sweep whose last doubling still gains) the size with the most throughput.

    ``throughput``: batch size -> inputs per time.
    """
    sizes = sorted(throughput)
    rates = np.array([throughput[size] for size in sizes], np.float64)
    position = optimal_position(np.array(sizes, np.int64), rates)
    return sizes[position if position >= 0 else int(rates.argmax())]


def _number(text: str) -> int:
    return int(text) if text.isdigit() else -1


def parse_levels(text: str) -> tuple[str, ...]:
    """``M,ML,MLG`` as levels, in rising order. UsageError for others."""
    words = [word.strip().upper().replace("/", "") for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in RUN_LEVEL_OPTIONS]
    if unknown or not words:
        raise UsageError(
            f"--levels takes {', '.join(RUN_LEVEL_OPTIONS)}, not {unknown[0] if unknown else 'nothing'}.",
            code="run-plan",
        )
    chosen = {RUN_LEVEL_OPTIONS[word] for word in words}
    return tuple(level for level in RUN_LEVELS if level in chosen)


def with_counters(levels: Sequence[str]) -> tuple[str, ...]:
    """The levels and, below them, the counter run (``--ncu``)."""
    return (*levels, RUN_COUNTERS) if RUN_COUNTERS not in levels else tuple(levels)
