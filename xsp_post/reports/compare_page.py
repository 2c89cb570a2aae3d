"""On the arrow ``reports``: the tables of a comparison → one self-contained page (placeholder)."""

from __future__ import annotations

from pathlib import Path

from xsp_post.analysis import Results
from xsp_post.output import atomic_output


def write_compare_page(results: Results, path: Path, *, names: tuple[str, str], force: bool = False) -> None:
    with atomic_output(path, force) as temporary:
        temporary.write_text("<!doctype html>", encoding="utf-8")
