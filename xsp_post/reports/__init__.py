"""Results → charts, one self-contained HTML page, and the same numbers as JSON.

`page.txt` lists sections, tables and charts; `frames` has what they show, `draw` draws a row of it as an Altair chart;
`charts` gives all of a report's charts by id. They see `analysis.Results` only.
"""

from typing import Any

_PUBLIC = {
    "charts": "images", "to_png": "images", "to_svg": "images", "write_report": "html", "render": "html",
    "report_dict": "json_form", "build": "document",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: Altair takes a third of a second."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
