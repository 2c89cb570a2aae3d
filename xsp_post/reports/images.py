"""Single charts, as Altair objects, PNG or SVG; no browser and no network is needed."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from xsp_post.base.lazy import optional
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports import theme
from xsp_post.reports.blocks import Chart
from xsp_post.reports.document import build

PNG_SCALE = 2.0
_OF_ONE_CASE = set(range(2, 15))  # analyses whose charts show one case; A1 and A15 lay cases side by side


def charts(results: Results, *, case: int | None = None, only: Sequence[str] = ()) -> dict[str, alt.TopLevelMixin]:
    """Every chart of the report by its id (a03, a09, a09-linear …), titled and themed for use on its own."""
    document = build(results, case=case, only=only)
    blocks = [b for s in document.sections for b in s.blocks if isinstance(b, Chart)]
    wanted = {int(name[1:]) for name in only if name[:1] in "aA" and name[1:].isdigit()}
    # --only A3 asks for A3's charts; its section's are the answer only where A3 has rows and no chart of its own
    if any(_analyses_of(b.id) & wanted for b in blocks) or (wanted and not _has_rows(results, wanted)):
        blocks = [b for b in blocks if _analyses_of(b.id) & wanted]
    found: dict[str, alt.TopLevelMixin] = {}
    shown = document.summary.case
    for block in blocks:
        # a figure leaves the page, which says of which case it is: a rank, a batch size
        of_one = shown.label if shown is not None and _analyses_of(block.id) & _OF_ONE_CASE else ""
        title = f"{block.label}, {of_one}" if of_one else block.label
        title += f" · {document.summary.title}"
        found[block.id] = theme.styled(block.chart, title)
        for label, form in block.alternatives:
            found[f"{block.id}-{label.lower()}"] = theme.styled(form, title)
    return found


def _has_rows(results: Results, analyses: set[int]) -> bool:
    return any(len(frame_or_empty(results, f"a{number:02}")) for number in analyses)


def _analyses_of(chart_id: str) -> set[int]:
    """Numbers of the analyses a chart shows: ``a03-box`` → {3}, ``a05-a07`` → {5, 6, 7}."""
    numbers = [int(part[1:]) for part in chart_id.split("-") if part[:1] == "a" and part[1:].isdigit()]
    return set(range(min(numbers), max(numbers) + 1)) if numbers else set()


def to_png(chart: alt.TopLevelMixin) -> bytes:
    """A chart as PNG on white. Raises ToolError where vl-convert is not installed."""
    return bytes(_converter().vegalite_to_png(_spec(chart), scale=PNG_SCALE))


def to_svg(chart: alt.TopLevelMixin) -> bytes:
    """A chart as SVG on white. Raises ToolError where vl-convert is not installed."""
    return str(_converter().vegalite_to_svg(_spec(chart))).encode("utf-8")


def _converter() -> Any:
    missing = "The package vl-convert-python, which draws pictures, is not installed."
    return optional("vl_convert", "pictures-missing", missing)


def _spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    with alt.data_transformers.enable("default"), alt.data_transformers.disable_max_rows():
        spec = chart.to_dict(validate=False)
    spec["background"] = "#ffffff"
    return spec
