"""`xsp-post recipe-path`: the folder to give nsys as NSYS_RECIPE_PATH."""

import sys
from pathlib import Path

import typer

from xsp_post.commands import shared


def recipe_path(output: Path | None = None, as_json: bool = False) -> None:
    """Print a folder with the recipe xsp_tree: NSYS_RECIPE_PATH=$(xsp-post recipe-path) nsys recipe xsp_tree ..."""
    from xsp_post.recipes import RECIPES, install

    folder = install(output)
    if as_json:
        shared.print_json("recipe-path", {"folder": str(folder), "recipes": list(RECIPES)})
        return
    typer.echo(folder)
    if sys.stdout.isatty():
        shared.say("Use: NSYS_RECIPE_PATH=$(xsp-post recipe-path) nsys recipe xsp_tree --input REPORT...")
