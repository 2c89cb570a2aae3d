"""`xsp-post recipe-path`: the folder to give nsys as NSYS_RECIPE_PATH."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from xsp_post.commands import shared


def recipe_path(
    output: Annotated[
        Optional[Path],  # noqa: UP045  (typer reads this at run time, also on Python 3.10)
        typer.Option("--output", "-o", help="Folder for the recipes, instead of the default one."),
    ] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Print a folder with the recipe xsp_tree: NSYS_RECIPE_PATH=$(xsp-post recipe-path) nsys recipe xsp_tree ..."""
    import sys

    from xsp_post.recipes import RECIPES, install

    folder = install(output)
    if as_json:
        shared.print_json("recipe-path", {"folder": str(folder), "recipes": list(RECIPES)})
        return
    typer.echo(folder)
    if sys.stdout.isatty():
        shared.say("Use: NSYS_RECIPE_PATH=$(xsp-post recipe-path) nsys recipe xsp_tree --input REPORT...")
