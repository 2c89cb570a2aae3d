"""`xsp-post table A8`: one table of a store or capture, in any format."""

import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp_post.base.errors import UsageError
from xsp_post.base.output import atomic_output, require_free
from xsp_post.base.text_safety import path_text, shown_lines, write_csv
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.options import DEFAULTS, PART, ROOFS, TREE, Options
from xsp_post.model.schemas import TABLES

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("table", "csv", "csv_spreadsheet", "json", "md", "parquet")


def _list(wanted: bool) -> None:
    if not wanted:
        return

    for name, one in sorted(TABLES.items()):
        paper_id = re.match(r"A\d+ ", one.title)
        title = one.title.removeprefix(paper_id[0]) if paper_id else one.title
        typer.echo(f"{name:<24} {paper_id[0] if paper_id else '':<4} {title}: one row per {one.one_row_per}")
    raise typer.Exit


@with_options(TREE, ROOFS, PART)
def table(
    name: str,
    sources: list[Path],
    format: str = "table",
    output: Path | None = None,
    top: int = 40,
    sort: str = "",
    list_tables: Annotated[
        bool, typer.Option("--list", callback=_list, is_eager=True, help="List every table with what it holds.")
    ] = False,
    options: Options = DEFAULTS,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Print one table; columns and units are listed in docs/columns.md.

    A terminal shows labels; `--format csv`, `json` and `md` keep the names of the columns.
    """
    name, sources = _table_first(name, sources)
    shared.spare_sources(sources, output)
    chosen = "json" if as_json else format
    if chosen not in FORMATS:
        raise UsageError(f"--format {chosen!r} is not one of {', '.join(FORMATS)}", code="unknown-format")
    if chosen == "parquet" and output is None and sys.stdout.isatty():
        raise UsageError("parquet is binary: give a file with -o", code="parquet-needs-file")
    from xsp_post.reports.page_rows import by_column
    from xsp_post.tables.catalogue import table_name

    if output is not None:
        require_free(output, force)
    results = shared.results_of(sources, options)
    from xsp_post.model.results import for_people

    found = table_name(name, results.tables())
    frame = by_column(for_people(results, found), found, sort)
    shared.say_part(results)
    if not len(frame):
        from xsp_post.tables.catalogue import why_empty

        shared.say(why_empty(name, results) or f"Table {name} has no rows.")
        if chosen == "table" and output is None:
            return
    if output is None:
        _to_stdout(frame, chosen, top, found, sort)
        if found == "steps" and chosen == "table":
            typer.echo("Each step (table iterations):")
            _to_stdout(for_people(results, "iterations"), chosen, top, "iterations")
        return
    with atomic_output(output, force) as temporary:
        temporary.write_bytes(_encoded(frame, chosen, top))
    shared.say(f"Wrote {path_text(output)} ({len(frame):,} rows)")


def _table_first(name: str, sources: list[Path]) -> tuple[str, list[Path]]:
    """`table FILE A10` means `table A10 FILE`: the other commands begin with the file."""
    from xsp_post.tables.catalogue import find

    last = str(sources[-1])
    is_table = last.lower() in TABLES or bool(find(last))
    if not is_table or Path(last).exists() or not Path(name).exists():
        return name, sources
    return last, [Path(name), *sources[:-1]]


def _to_stdout(frame: "pd.DataFrame", chosen: str, top: int, table_name: str, sort: str = "") -> None:
    if chosen == "table":
        from xsp_post.reports.page_rows import by_cost
        from xsp_post.reports.terminal import print_frame

        print_frame(shared.stdout(), frame if sort else by_cost(frame, table_name), top, table_name, sort)
        return
    data = _encoded(frame, chosen, top)
    if chosen in ("csv", "csv_spreadsheet", "md") and sys.stdout.isatty():
        data = shown_lines(data.decode("utf-8", "replace")).encode("utf-8", "replace")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _encoded(frame: "pd.DataFrame", chosen: str, top: int) -> bytes:
    if chosen == "csv_spreadsheet":
        from xsp_post.exporters.tables import without_formulas

        frame = without_formulas(frame)
    if chosen.startswith("csv"):
        text = io.StringIO()
        write_csv(frame, text)
        return text.getvalue().encode("utf-8", "replace")
    if chosen == "json":
        from xsp_post.model.results import records

        return shared.json_text("table", records(frame)).encode("ascii")
    if chosen == "parquet":
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()
    from xsp_post.reports.terminal import markdown

    return markdown(frame if top == 0 else frame.head(top)).encode("utf-8", "replace")
