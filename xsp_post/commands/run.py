"""`xsp-post run`: measure a workload at rising profiling levels, then analyse, store and show it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from xsp_post.base.errors import UsageError, XspPostError
from xsp_post.base.lazy import package_version
from xsp_post.base.messages import INFO, SEVERITIES
from xsp_post.base.progress import step
from xsp_post.base.text_safety import shown
from xsp_post.commands import shared
from xsp_post.commands.options import peaks_of
from xsp_post.model.capture import Capture, Workload, display_name
from xsp_post.model.options import Options

if TYPE_CHECKING:
    from xsp_post.hardware.gpus import Peaks
    from xsp_post.run import RunPlan, RunResult, Step


def run(
    model: str, batch_size: str = "1", levels: str = "M,ML,MLG", collector: str = "auto", device: str = "auto",
    warmup: int = 3, iterations: int | None = None, repeat: int | None = None, apart: bool = False,
    deep_at: str = "optimal", mode: str = "inference", dtype: str = "float32", input_shape: str = "",
    compiled: bool = False, layer_depth: int = -1, layer_kind: str = "", no_serialize: bool = False,
    launch_blocking: bool = False, threads: int = 0, seed: int = 0, timeout: float = 900.0, ncu: bool = False,
    peaks: Path | None = None, resume: bool = False, output: Path | None = None, force: bool = False,
    keep: bool = False, as_json: bool = False,
) -> None:  # fmt: skip
    """Measure a model at increasing profiling levels; state the accuracy of each latency and the cost of profiling."""
    from xsp_post import run as runs
    from xsp_post.workload.catalogue import check_name

    check_name(model)
    known_peaks = peaks_of(peaks)
    if mode not in ("inference", "train"):
        raise _wrong(f"--mode takes inference or train, not {mode!r}")
    workload = Workload(
        model=model, device=device_of(device), dtype=dtype, mode=mode, input_shape=_sizes(input_shape, "--input-shape"),
        is_compiled=compiled, seed=seed, warmup_count=warmup, layer_depth=layer_depth,
        iteration_count=ITERATIONS if iterations is None else iterations, is_fitted=iterations is None,
        layer_kinds=tuple(word.strip() for word in layer_kind.split(",") if word.strip()),
        is_serialized=not no_serialize, is_launch_blocking=launch_blocking, thread_count=threads,
    )  # fmt: skip
    chosen = runs.parse_levels(levels)
    plan = runs.RunPlan(
        workload=workload, batch_sizes=tuple(sorted(set(_sizes(batch_size, "--batch-size")))),
        levels=runs.with_counters(chosen) if ncu else chosen, collector=collector, repeat_count=repeat,
        deep_at=deep_at, is_apart=apart, timeout_s=timeout,
    )  # fmt: skip
    directory = output or Path(f"{_stem(model)}.xsp-run")
    lines = _StepLines()
    try:
        result = runs.execute(plan, directory, is_resumed=resume, is_forced=force, is_kept=keep, on_step=lines)
    except KeyboardInterrupt:
        shared.say(f"\nInterrupted. What was captured is in {directory}; continue with the same command and --resume.")
        raise
    except XspPostError:
        lines.fail()
        raise
    _conclude(plan, result, known_peaks, as_json)


def _conclude(plan: "RunPlan", result: "RunResult", peaks: "Mapping[str, Peaks]", as_json: bool) -> None:
    """Captures → store and report in the run directory, and the headline."""
    from xsp_post.pipeline import analyze
    from xsp_post.reports import headline
    from xsp_post.reports.html import write_report
    from xsp_post.store.store import write_store

    store = result.directory / f"{_stem(plan.workload.model)}.xsp.sqlite"
    report = result.directory / "report.html"
    with step("analysing the captures …"):
        analysis = analyze([result.directory], Options(peaks=peaks))
    with step("writing store and report …"):
        write_store(analysis, store, force=True)
        write_report(analysis, report, force=True)
    if as_json:
        from xsp_post.reports.verdict import verdict_data

        shared.print_json("run", {
            "directory": str(result.directory), "store": str(store),
            "report": str(report), "notes": result.notes, "verdict": verdict_data(analysis),
            **headline.data(analysis),
        })  # fmt: skip
        return
    from xsp_post.reports.terminal_text import say
    from xsp_post.reports.why import print_first, why

    console = shared.stdout()
    print_first(console, why(analysis, is_first=True))
    for line in headline.lines(analysis):
        typer.echo(line)
    has_threads = plan.workload.device == "cpu" and plan.workload.thread_count != 1
    if advice := headline.advice(analysis, has_threads=has_threads):
        say(console, advice)
    typer.echo("")
    for note in result.notes:
        typer.echo(f"Note: {note}.")
    for sentence in _findings(analysis, store):
        typer.echo(sentence)
    typer.echo(f"Store:  {store}")
    typer.echo(f"Report: {report}")
    shared.say("Next: open the report, or: " + shared.command("xsp-post", "tree", store))


ITERATIONS = 10  # of every level in a process, where their number is not asked for
NOTES = 2  # findings below a warning that are printed at the end of a run


def _findings(analysis: Any, store: Path) -> list[str]:
    """Every error and warning, one line each, worst first; of the rest the workload's own, and how many there are."""
    ordered = sorted(analysis.findings, key=lambda f: (SEVERITIES.index(f.severity), f.capture_id >= 0))
    found: dict[str, Any] = {}
    for one in ordered:
        found.setdefault(one.code, one)  # of one code the worst
    serious = [f for f in found.values() if f.severity != INFO]
    notes = [f for f in found.values() if f.severity == INFO]
    printed = [*serious, *[f for f in notes if f.capture_id < 0][:NOTES]]
    lines = [
        f"{f.severity.capitalize()}: {f.title} [{f.code}]" + (f": {shown(f.example, 240)}" if f.example else "")
        for f in printed
    ]
    rest = len(serious) + len(notes) - len(printed)
    if rest:
        command = shared.command("xsp-post", "table", "findings", store)
        lines.append(f"{rest} more {'note' if rest == 1 else 'notes'}: {command}")
    return lines


class _StepLines:
    """One line on stderr per process: what is measured, how long it took, and the time left."""

    def __init__(self) -> None:
        self._is_line_open = False
        self._done_count, self._done_ns = 0, 0

    def _left(self, count: int) -> str:
        """The time that the processes still to come may take, from the mean of those made: "about 40 s left"."""
        if not self._done_count or count < 1:
            return ""
        seconds = self._done_ns / self._done_count * count / 1e9
        return f" (about {seconds:.0f} s left)" if seconds < 120 else f" (about {seconds / 60:.0f} min left)"

    def __call__(self, number: int, least_count: int, step: "Step", made: "Sequence[Capture] | None") -> None:
        self._is_line_open = made is None
        if made is None:
            left = self._left(max(number, least_count) - number + 1)
            typer.echo(f"[{number}/{max(number, least_count)}] {step.name}{left} … ", err=True, nl=False)
        elif made[0].status == "done":
            wall_ns = sum(one.wall_ns for one in made)
            self._done_count += 1
            self._done_ns += wall_ns
            names = ", ".join(dict.fromkeys(one.collector for one in made))
            typer.echo(f"{wall_ns / 1e9:.1f} s ({names})", err=True)
        elif made[0].metric_set and made[0].status == "failed":
            typer.echo("failed: these counters are left out", err=True)
        else:
            typer.echo("out of memory: this batch size is left out", err=True)

    def fail(self) -> None:
        """End the line of a capture that did not come about, so that the message stands on its own."""
        if self._is_line_open:
            typer.echo("failed", err=True)


def device_of(name: str) -> str:
    """``auto``: the GPU where the driver shows one and torch is not a CPU build."""
    from xsp_post.hardware import machine

    if name in ("cpu", "cuda"):
        return name
    if name != "auto":
        raise _wrong(f"--device takes auto, cuda or cpu, not {name!r}")
    return "cuda" if machine.gpus() and "+cpu" not in package_version("torch") else "cpu"


def _sizes(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise _wrong(f"{option} takes whole numbers separated by commas, not {text!r}") from None


def _wrong(sentence: str) -> Exception:
    return UsageError(f"{sentence}.", code="run-plan")


def _stem(model: str) -> str:
    """A file name out of a model's name: ``path/net.py:build`` → ``net-build``."""
    name = display_name(model).replace(".py:", "-").replace(":", "-")
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
