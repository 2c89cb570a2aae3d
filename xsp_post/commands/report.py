"""`xsp-post report STORE`: one self-contained HTML page, its charts as pictures, or its numbers as JSON."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from xsp_post.base.errors import UsageError
from xsp_post.base.output import atomic_output, make_folder, parents, require_free, write_text, written
from xsp_post.base.progress import step
from xsp_post.base.text_safety import path_text
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.ingest.formats import STORE, of_name, stem_of
from xsp_post.model.options import DEFAULTS, PART, ROOFS, TREE, Options

if TYPE_CHECKING:
    from xsp_post.model.results import Results

FORMATS = ("html", "json", "png", "svg")


@with_options(TREE, ROOFS, PART)
def report(
    sources: list[Path], output: Path | None = None, only: list[str] | None = None, format: str = "html",
    case: int = -1, open_page: bool = False, options: Options = DEFAULTS, anonymous: bool = False, force: bool = False,
    as_json: bool = False,
) -> None:  # fmt: skip
    """Write the report of a store or capture: one HTML file that loads nothing from the network."""
    shared.spare_sources(sources, output)
    chosen = "json" if as_json else format
    if chosen not in FORMATS:
        raise UsageError(f"--format {chosen!r} is not one of {', '.join(FORMATS)}", code="report-format")
    parts = [name for entry in only or () for name in entry.split(",") if name]
    page = output or _path_for(sources[0], ".html")
    if chosen == "html" or (chosen == "json" and output):
        require_free(page, force)
    if open_page or chosen in ("png", "svg"):  # it starts a browser, or the capture says which files there will be
        parents.clear()
    results = shared.anonymised(shared.results_of(sources, options), anonymous)
    wanted = None if case < 0 else case
    if chosen == "json":
        _json(results, output, parts, wanted, force)
    elif chosen == "html":
        write_page(results, page, parts, wanted, force)
        if open_page:
            import webbrowser

            webbrowser.open(page.resolve().as_uri())
    else:
        _pictures(results, output, sources[0], chosen, parts, wanted, force)


@with_options(TREE, ROOFS, PART)
def open_(sources: list[Path], options: Options = DEFAULTS) -> None:
    """Show the page of a store or capture in the browser; nothing is written beside the capture."""
    import webbrowser

    results = shared.results_of(sources, options)
    page = Path(tempfile.mkdtemp(prefix="xsp-post-")) / f"{stem_of(sources[0].name)}.html"
    write_page(results, page)
    if not webbrowser.open(page.as_uri()):
        shared.say("No browser could be started: open the file yourself.")
    typer.echo(page)


def _folder_of(source: Path) -> Path:
    """A store's own folder; the current one for a capture: folders of captures may be read-only."""
    one = of_name(source.name)
    return source.parent if one is not None and one.key == STORE else Path()


def _path_for(source: Path, suffix: str) -> Path:
    """``run.xsp.sqlite`` → ``run.html`` in the same folder; a capture's in the current one."""
    return _folder_of(source) / (stem_of(source.name) + suffix)


def write_page(
    results: "Results", path: Path, only: list[str] | None = None, case: int | None = None, force: bool = False
) -> None:
    """The page as a file, and a line that says so."""
    from xsp_post.reports.html import write_report

    with step("writing the report …"):
        write_report(results, path, force=force, case=case, only=only or ())
    shared.say(f"Wrote {path_text(path)} ({written(path).stat().st_size / 1e6:.1f} MB)")


def _json(results: "Results", output: Path | None, only: list[str], case: int | None, force: bool) -> None:
    from xsp_post.reports.json_form import report_dict

    content = report_dict(results, case=case, only=only)
    if output is None:
        shared.print_json("report", content)
        return
    write_text(output, shared.json_text("report", content), force)
    shared.say(f"Wrote {path_text(output)}")


def _picture_paths(names: list[str], output: Path | None, source: Path, kind: str) -> list[Path]:
    """Where each chart goes: the file asked for and, where there are more, files beside it; else into a folder."""
    is_file = output is not None and not os.path.isdir(output) and (len(names) == 1 or output.suffix == f".{kind}")
    if output is not None and is_file:
        return [output, *(output.with_name(f"{output.stem}.{name}{output.suffix}") for name in names[1:])]
    folder = output if output is not None else _folder_of(source)
    make_folder(folder)
    stem = _path_for(source, "").name
    return [folder / f"{stem}.{name}.{kind}" for name in names]


def _pictures(
    results: "Results", output: Path | None, source: Path, kind: str, only: list[str], case: int | None, force: bool
) -> None:
    from xsp_post.reports.images import charts, to_png, to_svg

    found = charts(results, case=case, only=only)
    if not found:
        from xsp_post.tables.catalogue import why_empty

        reasons = " ".join(filter(None, (why_empty(name, results) for name in only)))
        raise UsageError(
            f"No chart of {', '.join(only) or 'this store'} can be drawn from {source}. {reasons}".rstrip(),
            code="report-no-chart",
        )
    for path, chart in zip(_picture_paths(list(found), output, source, kind), found.values()):
        with atomic_output(path, force) as temporary:
            temporary.write_bytes(to_png(chart) if kind == "png" else to_svg(chart))
        typer.echo(path_text(path))
