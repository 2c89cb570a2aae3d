"""`xsp-post batch`: folders of captures → one store each, and one fleet store and page over all of them."""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_post.base.errors import CaptureError, UsageError
from xsp_post.base.text_safety import path_text, shown
from xsp_post.base.texts import SENTENCES
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.capture import FLEET_STORE
from xsp_post.model.options import DEFAULTS, MEMORY, ROOFS, TREE, Options
from xsp_post.model.schemas import optional_columns
from xsp_post.model.schemas.units import counted, format_bytes, format_count, format_ns, format_ratio_percent

if TYPE_CHECKING:
    from xsp_post.batch import BatchResult, Job
    from xsp_post.batch.work import Outcome

_SHOWN = 40


@with_options(TREE, ROOFS, MEMORY)
def batch(
    paths: list[str],
    output: Path,
    workers: int = 0,
    scheduler: str = "",
    options: Options = DEFAULTS,
    all_stores: bool = False,
    no_report: bool = False,
    strict: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Analyse many captures; those that are finished and unchanged are skipped, an interrupted batch continues."""
    from xsp_post.batch import discover, run_batch

    if workers < 0 or (workers and scheduler):
        raise UsageError(
            "--workers and --scheduler cannot be given together" if workers > 0 else f"--workers {workers} is below 1",
            code="batch-workers",
        )
    jobs, skipped = discover(paths, leave_out=output)
    if all_stores:
        jobs = [job._replace(is_of_many=False) for job in jobs]
    with _progress() as (before, progress):
        result = run_batch(
            jobs,
            output,
            options,
            workers=workers or os.cpu_count() or 1,
            scheduler=scheduler,
            force=force,
            page=not no_report,
            before=before,
            progress=progress,
        )
    if as_json:
        shared.print_json(
            "batch",
            {
                "folder": str(output),
                "analysed_count": result.done_count,
                "unchanged_count": result.current_count,
                "skipped": skipped,
                "fleet": [_public(row) for row in result.rows],
            },
        )
    else:
        _print(result, output, len(skipped), no_report)
    _judge(result, strict, output)


def _public(row: dict[str, Any]) -> dict[str, Any]:
    unknown = dict.fromkeys(optional_columns("fleet"), -1)
    return {
        name: None if value != value or value == unknown.get(name, math.nan) else value
        for name, value in row.items()
        if name != "exit_code"
    }


_TEXTS = ("capture", "GPU", "limited by")
_DISPENSABLE = ("iterations", "in ranges", "GPU", "kernel time")  # on a narrow terminal, first to last


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """What one line says of a capture."""
    ratio, peak = row["attributed_ratio"], row.get("memory_peak_bytes")
    return {
        "capture": shown(row["capture_name"], 60),
        "GPU": shown(row["system_name"], 30),
        "kernels": format_count(row["kernel_count"]),
        "kernel time": format_ns(row["kernel_ns"]),
        "iterations": format_count(row["iteration_count"]),
        "layers": format_count(row["layer_count"]) if row["layer_count"] >= 0 else "–",
        "in ranges": format_ratio_percent(ratio) if ratio == ratio else "–",
        "peak memory": format_bytes(peak) if peak is not None and peak > 0 else "–",  # NaN: not recorded
        "limited by": SENTENCES.get(f"word.{row.get('limit')}", SENTENCES["word.unknown"]),
    }


def _print(result: "BatchResult", output: Path, skipped_count: int, no_report: bool) -> None:
    """One line per capture, failures with their sentence, then what was done. No pandas: a second call is quick."""
    from rich.text import Text

    from xsp_post.batch.assembly import jobs_of
    from xsp_post.reports.terminal_text import cell_table, fitting

    console = shared.stdout()
    done = [row for row in result.rows if row["status"] == "done"]
    jobs = [group for group in jobs_of(result.rows).values() if len(group) > 1]
    ranks = {k for group in jobs for k in group}  # a sentence says what is to be known of them
    listed = [row for k, row in enumerate(result.rows) if row["status"] == "done" and k not in ranks]
    rows = [_cells(row) for row in listed[:_SHOWN]]
    names = list(rows[0]) if rows else []
    widths = {name: 2 + max(len(name), *(len(row[name]) for row in rows)) for name in names}
    if all(row.get("peak memory") == "–" for row in rows):
        widths.pop("peak memory", None)
    if rows:
        kept = fitting(widths, console.width + 2, _DISPENSABLE)
        console.print(cell_table([(name, name in _TEXTS) for name in kept], ([row[n] for n in kept] for row in rows)))
    if len(listed) > _SHOWN:
        console.print(f"… {len(listed) - _SHOWN:,} more (xsp-post table fleet has all)", style="dim")
    for sentence in result.said:
        console.print(Text(shown(sentence, 600)))
    for row in result.failed[:_SHOWN]:
        said = f"failed  {shown(row['capture_name'], 60)}: {shown(row['message'], 300)} [{row['code']}]"
        console.print(Text(said, style="yellow"))
    if len(result.failed) > _SHOWN:
        console.print(f"… {len(result.failed) - _SHOWN:,} more failed", style="dim")
    with_kernels = sum(row["kernel_count"] > 0 for row in done)
    said = f"{with_kernels} with kernels, {len(done) - with_kernels} without, {len(result.failed)} failed"
    console.print(Text(f"{counted(len(result.rows), 'capture', 'captures')}: {said}", style="bold"))
    shared.say(
        f"{result.done_count} analysed now, {result.current_count} unchanged"
        + (f", {skipped_count} files ignored: not captures" if skipped_count else "")
    )
    store = output / FLEET_STORE
    if result.is_fleet_current:
        shared.say(f"Nothing to do: {path_text(store)} is current")
    else:
        page = "" if no_report else f" and {path_text(output / 'fleet.html')}"
        shared.say(f"Wrote {path_text(store)}{page}")
    if without := sum(not row["store_name"] for row in done):
        of_ranks = f"No store is kept of {counted(without, 'rank', 'ranks')} of a large job"
        shared.say(f"{of_ranks}: xsp-post ingest FILE makes one, --all-stores all")
    table_name = "ranks" if jobs else "fleet_models" if done else "fleet"
    shared.say("Next: " + shared.command("xsp-post", "table", table_name, store))


def _judge(result: "BatchResult", strict: bool, output: Path) -> None:
    failed = len(result.failed)
    table = shared.command("xsp-post", "table", "fleet", output / FLEET_STORE)
    hint = f"The table fleet gives the reason for each capture: {table}"
    if failed and failed == len(result.rows):
        raise CaptureError(f"None of the {failed} captures could be analysed.", code="batch-all-failed", hint=hint)
    if failed and strict:
        raise CaptureError(
            f"{failed} of {len(result.rows)} captures could not be analysed.", code="batch-some-failed", hint=hint
        )


@contextmanager
def _progress() -> "Iterator[tuple[Callable[[list[Job]], None], Callable[[Job, Outcome], None]]]":
    """(before, progress) of `run_batch`: a bar with an estimate on a terminal."""
    if not sys.stderr.isatty():
        yield (lambda jobs: None), (lambda job, outcome: None)
        return
    from rich import progress as rich
    from rich.console import Console

    times = rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn()
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn(), *times)
    bar = rich.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("captures", visible=False)

    def before(jobs: "list[Job]") -> None:
        bar.update(task, total=len(jobs), visible=bool(jobs))

    def progress(job: "Job", outcome: "Outcome") -> None:
        bar.update(task, advance=1, description=shown(job.name, 40))

    with bar:
        yield before, progress
