"""Inside Nsight: a recipe folder for ``NSYS_RECIPE_PATH``, so that ``nsys recipe xsp_tree --input …`` works.

A recipe runs in the Python that comes with Nsight Systems, whose packages are not ours. So the recipe itself
needs only what every recipe has (pandas), and asks *our* interpreter for the tables (`tables_of`). Which interpreter
that is, and how it is started, `install` writes beside the recipe.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from xsp_post.base import children
from xsp_post.base.errors import OutputError
from xsp_post.base.output import write_text
from xsp_post.base.text_safety import write_csv

RECIPES = ("xsp_tree",)
INTERPRETER = "interpreter.json"
_HERE = Path(__file__).parent


def install(folder: Path | None = None) -> Path:
    """Put the recipes and the path of this interpreter into a folder and return it; what is current is left alone.

    Raises `OutputError`.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = folder or cache / "xsp-post" / "recipes"
    known = {"python": sys.executable, "path": _import_path(), "start": children.START}
    for name in RECIPES:
        place = target / name
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"{place} cannot be made: {os.strerror(error.errno or 0)}.", code="recipe-folder"
            ) from error
        for source in sorted((_HERE / name).iterdir()):
            if source.suffix in (".py", ".json", ".ipynb"):
                _put(place / source.name, source.read_text(encoding="utf-8"))
        _put(place / INTERPRETER, json.dumps(known) + "\n")
    return target.resolve()


def _import_path() -> str:
    """What must be on the interpreter's path to import xsp_post: '' when it is installed there."""
    package = Path(__file__).resolve().parents[2]
    return "" if package.name in ("site-packages", "dist-packages") else str(package)


def _put(path: Path, text: str) -> None:
    if not (path.is_file() and path.read_text(encoding="utf-8") == text):
        write_text(path, text, force=True)


def tables_of(report: Path, folder: Path, names: Sequence[str]) -> None:
    """Write tables of a report (anything `pipeline.analyze` reads) as ``<name>.csv`` into a folder.

    CSV, because every version of pandas in the recipe's Python can read it. Raises `CaptureError` and other errors of
    xsp-post; a table that is not there is an empty file with no columns.
    """
    from xsp_post.pipeline import analyze

    analysis = analyze([report])
    for name in names:
        frame = analysis.frame(name) if name in analysis.tables() else None
        with (folder / f"{name}.csv").open("w", encoding="utf-8", errors="replace", newline="") as stream:
            if frame is not None:
                write_csv(frame, stream)
