"""Title, top, sections → one self-contained HTML page. No request to any server, ever.

Text of a capture reaches the page in two ways: escaped by the templates, or as JSON that the page's script shows with
``textContent``. The Content-Security-Policy allows the inline scripts by their hashes and nothing else: no
connection, no font, no frame, no evaluation of text as code.
"""

import base64
import gzip
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from xsp_post import __version__
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.reports import theme
from xsp_post.reports.blocks import Chart, Section
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


def _asset(name: str) -> bytes:
    return resources.files("xsp_post.reports").joinpath("assets", name).read_bytes()


def _embeddable(script: str) -> str:
    """A script that can stand inside a script element (HTML standard, "Restrictions for contents of script")."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


_VIEWS = ("Why", "Layers", "Kernels", "Timeline", "Compare", "Trust")  # of a report, one a question, as in its menu
_LONGEST = 600  # characters of a text that stands in the page itself
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


class Part(NamedTuple):
    """What stands on the screen at one time: HTML, or a section. Those of a view are beside each other in the menu."""

    view: str
    id: str
    title: str
    html: str = ""
    section: Section | None = None


def parts_of(sections: Sequence[Section]) -> list[Part]:
    """A part for each section; one without a view is a view of its own."""
    return [Part(s.view or s.title, s.id, s.title, section=s) for s in sections]


def page(brand: str, title: str, machine: str, parts: Sequence[Part], sources: Sequence[str] | None = None) -> str:
    """The page as text. ``sources``: what a report was made from, whose layers can be followed; None for other pages.
    The ``html`` of parts is HTML, all else text."""
    data = PageData()
    contents: dict[str, list[Part]] = {}
    for part in parts:
        data.add(part.section.blocks if part.section is not None else ())
    if sources is not None:
        parts = sorted(parts, key=lambda part: _VIEWS.index(part.view))
    for part in parts:
        contents.setdefault(part.view, []).append(part)
    scripts = [*([chart_script()] if data.charts else []), page_script()]
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    policy = _POLICY.format(scripts=" ".join(f"'sha256-{one}'" for one in hashes))  # exactly these inline scripts
    style = _asset("page.css").decode().replace("/*THEME*/", theme.css_variables())
    return (
        _environment()
        .get_template("page.html")
        .render(
            policy=Markup(policy),
            style=Markup(style),
            brand=brand,
            title=visible(title, _LONGEST),
            machine=visible(machine, _LONGEST),
            has_layers=sources is not None,
            contents=contents,
            parts=parts,
            version=__version__,
            sources=sources,
            cut_count=data.strings.cut_count,
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
        "kind": lambda block: type(block).__name__, "visible": visible, "forms": _forms,
    }  # fmt: skip
    return environment


def _forms(chart: Chart) -> list[str]:
    """The labels of a chart's forms, of which it has several, the one shown first being first."""
    labels = [label for label, _ in chart.alternatives]
    return [{"Linear": "Log", "Log": "Linear"}.get(labels[0], "Chart"), *labels]


Fact = tuple[str, str, str]  # one number at the top of the page: its label, its text, a note


def render_page(
    title: str,
    machine: str,
    brand: str,
    facts: Sequence[Fact],
    statements: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    first_chart: str = "",
) -> str:
    """The page as text; the chart of the id ``first_chart``, else the first one, stands on its first screen.
    ``statements``: (kind, sentence), the first being the verdict; all texts may be hostile."""
    charts = [block for section in sections for block in section.blocks if isinstance(block, Chart)]
    first = next((one for one in charts if one.id == first_chart), charts[0] if charts else None)
    shown = Section("summary", "Summary", "", (first,) if first is not None else ())
    top = macro("small_screen")(facts, statements, shown.blocks)
    left = [one._replace(blocks=tuple(block for block in one.blocks if block is not first)) for one in sections]
    parts = [Part("Summary", "summary", "Summary", top, shown), *parts_of(left)]
    return page(brand, title, machine, parts)
