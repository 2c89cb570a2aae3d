"""What several commands share: options as types, reading STORE|SOURCE, where data and messages go."""

import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from xsp_post.base.errors import ContradictionError, OutputError, UsageError
from xsp_post.base.progress import step
from xsp_post.base.text_safety import shell_command, shown_lines
from xsp_post.model.options import TREE, Options

command = shell_command  # as other commands print what to type next
_NARROWEST = 20  # below, a line would hold a letter
_WIDEST = 1_000  # a terminal; more is a mistake in COLUMNS

if TYPE_CHECKING:
    from rich.console import Console

    from xsp_post.ingest.sqlite_tables import SqliteTables
    from xsp_post.model.results import Results
    from xsp_post.tables.graph import Graph


def spare_sources(sources: list[Path], *outputs: Path | None) -> None:
    """Raise `OutputError` where an output is a source: even --force must not destroy a recording."""
    for output in filter(None, outputs):
        for source in sources:
            try:
                same = output.samefile(source)
            except OSError:  # one of them is not there
                continue
            if same:
                raise OutputError(f"{output} is the capture to be read. It was not changed.", code="output-is-source")


def close(paths: list[Path], options: Options | None = None) -> None:
    """Before foreign files are opened: what only programs of NVIDIA can read is exported, then this process sealed."""
    from xsp_post.base import output, sealed

    if output.parents:
        from xsp_post.ingest.sources import make_before

        sources = [*paths, *(options.layers_from if options else ())]
        make_before(sources)
        sealed.close(sources)


def begin_reading(paths: list[Path], options: Options) -> "SqliteTables | None":
    """Begin to read a single nsys export before anything heavy is imported; None for every other source, and for a
    large one of which only a time is wanted."""
    close(paths, options)
    from xsp_post.ingest.nsys_window import is_windowed
    from xsp_post.ingest.sources import begin

    if len(paths) != 1 or not os.path.isfile(paths[0]) or is_windowed(paths[0], options):
        return None
    return begin(paths[0])


_BASELINE = "baseline:"


def baseline_folder() -> Path:
    """Where results are kept that have a name."""
    return Path(os.environ.get("XSP_POST_BASELINES") or Path(".xsp-post", "baselines"))


def baseline_file(name: str) -> Path:
    return baseline_folder() / f"{name}.xsp.sqlite"


def baselines() -> list[str]:
    """Their names."""
    return sorted(one.name.removesuffix(".xsp.sqlite") for one in baseline_folder().glob("*.xsp.sqlite"))


def baseline(path: Path) -> Path:
    """The store that ``baseline:NAME`` names; any other path as it is. Raises `UsageError`."""
    text = str(path)
    if not text.startswith(_BASELINE) or os.path.lexists(path):
        return path
    name, known = text.removeprefix(_BASELINE), baselines()
    if name not in known:
        raise UsageError(
            f"There is no baseline {name!r}; there are: {', '.join(known) or 'none'}", code="baseline-name"
        )
    return baseline_file(name)


def results_of(paths: list[Path], options: Options, reading: "SqliteTables | None" = None) -> "Graph":
    """`pipeline.results_of`, with progress, and a note where options cannot change what a store holds."""
    paths = [baseline(path) for path in paths]
    close(paths, options)
    from xsp_post.pipeline import results_of

    with step("reading captures …"):
        results = results_of(paths, options, reading)
    if not options.is_default(TREE) and is_store(paths):
        say(f"Note: {paths[0].name} is a store: ranges got their levels when it was made. To assign them again, "
            "give the captures instead.")  # fmt: skip
    return results


def is_store(paths: list[Path]) -> bool:
    """Whether the paths name a store, or the folder of a batch."""
    from xsp_post.pipeline import store_of

    close(paths)
    return store_of(paths) is not None


def anonymised(results: "Results", is_wanted: bool) -> "Results":
    """The results, their names replaced where that is wanted."""
    if not is_wanted:
        return results
    from xsp_post.model.anonymous import anonymised as replaced

    return replaced(results)


def say_part(results: "Results") -> None:
    """On stderr, which part of the recording the data on stdout is of; nothing for all of it."""
    from xsp_post.model.results import part_sentence

    if sentence := part_sentence(results):
        say(sentence)


def what_to_record(results: "Results") -> str:
    """The last line for captures that hold neither device work nor a range, so that nothing can follow; else ""."""
    captures = results.frame("captures", ["kernel_count", "device_ns"])
    has_ranges = bool(results.frame("paths", ["depth"])["depth"].gt(0).any())
    if has_ranges or captures["kernel_count"].any() or captures["device_ns"].any():
        return ""
    return (
        "The source has no device work and no range.\n"
        "Next: record again, with: nsys profile -t cuda,nvtx -o report python program.py"
    )


def stdout() -> "Console":
    """The console for data: colour on a terminal only, full width when piped."""
    from rich.console import Console

    columns = shutil.get_terminal_size((160, 24)).columns if sys.stdout.isatty() else _columns()
    return Console(width=max(_NARROWEST, min(columns, _WIDEST)), soft_wrap=False, highlight=False)


def _columns() -> int:
    """What COLUMNS says; without it, or where it says no width, what a wide terminal has."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if re.fullmatch(r"0*[1-9][0-9]{0,8}", columns) else 160


def say(text: str) -> None:
    """A message for the person, on stderr. Names of files come from elsewhere: nothing hidden gets to a terminal."""
    typer.echo(shown_lines(text), err=True)


# Version of every JSON document that a command prints. Every number ever used:
# 1  first: the values stand beside format and version; `table` prints a list (xsp-post 0.1.0)
# 2  every document is an object of format, version and data
JSON_VERSION = 2


def json_text(name: str, data: Any) -> str:
    """The JSON document of a command: what it is, its version, its data. A number that is not finite becomes null."""
    document = {"format": f"xsp-post.{name}", "version": JSON_VERSION, "data": _finite(data)}
    return json.dumps(document, ensure_ascii=True, allow_nan=False, default=_plain) + "\n"


def _finite(value: Any) -> Any:
    """The value with null in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def print_json(name: str, data: Any) -> None:
    """The JSON document of a command on stdout."""
    typer.echo(json_text(name, data), nl=False)


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def records(results: "Results", name: str) -> list[dict[str, Any]]:
    """The rows of a table as JSON shows them."""
    from xsp_post.model import results as module

    return module.records(module.for_people(results, name))


def check_strict(results: "Results", limit: float) -> None:
    """--strict: raises `ContradictionError` when a balance does not close or the limit is exceeded."""
    from xsp_post.reports.trust import balances

    for capture_id in results.frame("captures", ["capture_id"])["capture_id"].tolist():
        for one in balances(results, capture_id):
            if not one.closes:
                raise ContradictionError(
                    f"capture {capture_id}: the balance by {one.question} does not add up", code="tree-lost-kernels"
                )
            if one.question == "launch" and one.lost_ratio > limit:
                raise ContradictionError(
                    f"capture {capture_id}: {one.lost_ratio:.1%} of the device time lies outside every range "
                    f"(limit {limit:.1%})",
                    code="unattributed-too-much",
                )
