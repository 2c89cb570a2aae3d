"""`xsp-post record -- PROGRAM`: a short recording of a program, its store, and what limits it."""

import math
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from xsp_post.base.errors import UsageError
from xsp_post.base.output import make_folder
from xsp_post.base.progress import step
from xsp_post.base.text_safety import path_text, shown
from xsp_post.commands import shared
from xsp_post.model.options import DEFAULTS
from xsp_post.model.schemas.units import format_ns


def record(
    program: list[str],
    steps: Annotated[int, typer.Option(min=1, help="Calls of the model to record, with what follows each.")] = 5,
    warmup: Annotated[int, typer.Option(min=0, help="Calls of the model before the recording begins.")] = 3,
    collector: str = "auto",
    to_the_end: bool = False,
    label: str = "",
    output: Path = Path("xsp-recordings"),
    as_json: bool = False,
) -> None:
    """Record a few steps of a program, say what limits them, and what changed since its last recording."""
    from xsp_post.workload.collectors import CHOICES
    from xsp_post.workload.recording import Recording, next_name, split_command
    from xsp_post.workload.recording import record as recorded

    if collector not in CHOICES:
        raise UsageError(f"--collector {collector!r} is not one of {', '.join(CHOICES)}", code="collector-unknown")
    words = split_command(program)[1]
    name, last = next_name(output, words[1] if words[0] == "-m" else words[0], label)
    folder, store = output / f"{name}.recording", output / f"{name}.xsp.sqlite"
    make_folder(folder)
    try:
        made = recorded(program, Recording(warmup, steps, collector, to_the_end), folder)
        _write_store(made.captures, store, name.partition(".")[0])
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # where it was made for this recording it is empty
            output.rmdir()
        raise
    if not to_the_end:
        shared.say("A program is ended after the recorded steps (--to-the-end lets it run on).")
    if made.exit_code:
        shared.say(f"The program ended with {made.exit_code} behind the recording.")
    _show(store, output / last if last else None, as_json)


def step_times(before_ns: float, within_ns: float) -> str:
    """How long a step took before the recording and within it, and a warning where these are not alike; '' unknown."""
    from xsp_post.reports.verdict import PROFILED_RATIO

    if math.isnan(before_ns + within_ns):
        return ""
    said = f"A step took {format_ns(before_ns)} before the recording (median) and {format_ns(within_ns)} while "
    said += "it was recorded."
    ratio = within_ns / before_ns
    if 1 / PROFILED_RATIO < ratio < PROFILED_RATIO:
        return said
    why = "Other steps were recorded (--warmup, --steps)" + ", or the profiler slows them down" * (ratio > 1)
    return f"{said} Warning: {ratio:.2g} times as long. {why}: what limits them may not limit the others."


def _write_store(captures: list[Path], store: Path, program: str) -> None:
    """The captures' tables under the program's name: that of their files is the same for all programs."""
    from xsp_post.pipeline import graph_of, loaded
    from xsp_post.store.store import StoreWriter

    with step("reading the recording …"), StoreWriter(store, force=False) as writer:
        name, named = store.name.removesuffix(".xsp.sqlite"), []
        for source in loaded(captures):
            assert source.trace is not None  # what a profiler wrote
            own = f"{name}/{source.path.parent.name}" if len(captures) > 1 else name
            provenance = replace(source.trace.provenance, workload_name=program, source_name=own)
            named.append(replace(source, trace=replace(source.trace, provenance=provenance)))
        writer.finish(graph_of(named).complete())


def _show(store: Path, last: Path | None, as_json: bool) -> None:
    from xsp_post.reports import why as report
    from xsp_post.reports.terminal_text import say

    results = shared.results_of([store], DEFAULTS)
    steps = results.frame("captures", ["step_before_ns", "step_recorded_ns"]).iloc[0]
    if told := step_times(*steps):
        shared.say(told)
    said = report.why(results, is_brief=not as_json)
    change = _change(last, store) if last is not None else ""
    if as_json:
        shared.print_json("record", {"store": str(store), "since": str(last) if last else None,
                                     "change": change or None, "why": report.json_of(said)})  # fmt: skip
    else:
        report.print_why(shared.stdout(), said)
        if last is not None:
            say(shared.stdout(), f"\nSince {path_text(last)}\n  {change}")
    shared.say(f"Wrote {path_text(store)}")
    shared.say("Next: " + shared.command("xsp-post", "open", store))


def _change(base: Path, other: Path) -> str:
    """The first sentence of comparing two recordings; '' where nothing can be said."""
    from xsp_post.compare import compare

    sides = [shared.results_of([path], DEFAULTS) for path in (base, other)]
    statements = compare(*sides).frame("compare_summary")["statement"]
    return shown(str(statements.iloc[0]), 600) if len(statements) else ""
