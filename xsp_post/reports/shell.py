"""Title, top, sections → one self-contained HTML page. No request to any server, ever.

Text of a capture reaches the page in two ways: escaped by the templates, or as JSON that the page's script shows with
``textContent``. The Content-Security-Policy allows the inline scripts by their hashes and nothing else: no
connection, no font, no frame, no evaluation of text as code.
"""

import base64
import gzip
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.reports import theme
from xsp_post.reports.blocks import Block, Chart, Drawing, Note, Section, Table
from xsp_post.reports.page_data import PageData
from xsp_post.reports.text import visible
from xsp_post.reports.where import place_text

_PARTS = ("core.js", "tables.js", "views.js", "charts.js", "icicle.js", "timeline.js")


@cache
def chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script of 0.9 MB (`scripts/vega` makes the file)."""
    return _embeddable(gzip.decompress(_asset("vega.js.gz")).decode())


@cache
def page_script() -> str:
    """The page's own script."""
    body = "\n".join(_asset(part).decode() for part in _PARTS)
    return _embeddable(f"(() => {{\n{body}\n}})();")  # its names must not meet those of the Vega bundle


@cache
def page_style() -> str:
    """The page's style sheet with the colours of `theme`."""
    return _asset("page.css").decode().replace("/*THEME*/", theme.css_variables())


def source_hash(script: str) -> str:
    """The Content-Security-Policy source that allows exactly this inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> bytes:
    return resources.files("xsp_post.reports").joinpath("assets", name).read_bytes()


def _embeddable(script: str) -> str:
    """A script that can stand inside a script element (HTML standard, "Restrictions for contents of script")."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


_LONGEST = 600  # characters of a text that stands in the page itself
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Part:
    """What stands on the screen at one time: HTML, or a section. Those of a view are beside each other in the menu."""

    view: str
    id: str
    title: str
    html: str = ""
    section: Section | None = None


@dataclass(frozen=True)
class Shell:
    """What one page has of its own. ``footer`` and the parts' ``html`` are HTML, everything else is text."""

    brand: str
    title: str
    machine: str
    parts: Sequence[Part]
    footer: str
    has_layers: bool = False


def parts_of(sections: Sequence[Section]) -> list[Part]:
    """A part for each section; one without a view is a view of its own."""
    return [Part(s.view or s.title, s.id, s.title, section=s) for s in sections]


def add_blocks(sections: Sequence[Section], data: PageData) -> None:
    """The data of all blocks, for the page's script."""
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Table):
                data.add_table(block)
            elif isinstance(block, Drawing):
                data.add_drawing(block)
            elif isinstance(block, Chart):
                data.add_chart(block)


def page(shell: Shell, data: PageData) -> str:
    """The page as text. ``data`` holds the blocks already (`add_blocks`)."""
    contents: dict[str, list[Part]] = {}
    for part in shell.parts:
        contents.setdefault(part.view, []).append(part)
    scripts = [*([chart_script()] if data.charts else []), page_script()]
    policy = _POLICY.format(scripts=" ".join(source_hash(script) for script in scripts))
    return (
        _environment()
        .get_template("page.html")
        .render(
            policy=Markup(policy),
            style=Markup(page_style()),
            brand=shell.brand,
            title=visible(shell.title, _LONGEST),
            machine=visible(shell.machine, _LONGEST),
            has_layers=shell.has_layers,
            contents=contents,
            parts=[Markup(part.html) if part.section is None else _section(part.section) for part in shell.parts],
            footer=Markup(shell.footer),
            data=Markup(data.to_json()),
            scripts=[Markup(script) for script in scripts],
        )
    )


def macro(name: str) -> Callable[..., str]:
    """A macro of `top.html`: values → HTML, texts escaped."""
    found = getattr(_environment().get_template("top.html").module, name)
    return lambda *values: str(found(*values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("xsp_post.reports"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    capital = {"capital": lambda text: text[:1].upper() + text[1:]}
    environment.filters |= {
        "ns": format_ns, "percent": format_ratio_percent, "count": format_count, "place": place_text, **capital,
    }  # fmt: skip
    return environment


def _section(section: Section) -> dict[str, Any]:
    blocks = [_block(block) for block in section.blocks]
    return {"id": section.id, "title": section.title, "question": section.question, "blocks": blocks}


def _block(block: Block) -> dict[str, Any]:
    """What the template says of a block; its numbers are in the data."""
    kind = {
        f"is_{name}": isinstance(block, of) for name, of in (("note", Note), ("table", Table), ("drawing", Drawing))
    }
    if isinstance(block, Note):
        css = block.kind if block.kind in ("lead", "note") else f"note {block.kind}"
        return {**kind, "css": css, "text": visible(block.text, 2000)}
    if isinstance(block, Table):
        return {**kind, "id": block.id}
    if isinstance(block, Drawing):
        return {**kind, "id": block.id, "kind": block.kind, "caption": block.caption}
    return {**kind, "id": block.id, "label": block.label, "caption": block.caption, "forms": _forms(block)}


def _forms(chart: Chart) -> list[str]:
    """The labels of a chart's forms, the one shown first being first; none where it has one form."""
    labels = [label for label, _ in chart.alternatives]
    if not labels:
        return []
    return [{"Linear": "Log", "Log": "Linear"}.get(labels[0], "Chart"), *labels]
