"""The scripts and styles that are written into the page, all of them offline."""

import base64
import gzip
import hashlib
from functools import cache
from importlib import resources

from xsp_post.reports import theme

_PARTS = ("core.js", "views.js", "tables.js", "charts.js", "icicle.js", "timeline.js")


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
