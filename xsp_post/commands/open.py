"""`xsp-post open STORE|CAPTURE`: the page in the browser."""

import tempfile
import webbrowser
from pathlib import Path

import typer

from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.commands.report import write_page
from xsp_post.ingest.formats import stem_of
from xsp_post.model.options import DEFAULTS, PART, ROOFS, TREE, Options


@with_options(TREE, ROOFS, PART)
def open_page(sources: list[Path], options: Options = DEFAULTS) -> None:
    """Show the page of a store or capture in the browser; nothing is written beside the capture."""
    results = shared.results_of(sources, options)
    page = Path(tempfile.mkdtemp(prefix="xsp-post-")) / f"{stem_of(sources[0].name)}.html"
    write_page(results, page)
    if not webbrowser.open(page.as_uri()):
        shared.say("No browser could be started: open the file yourself.")
    typer.echo(page)
