"""The scripts and styles that are written into the page, all of them offline."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from functools import cache
from importlib import resources
from typing import ClassVar

from xsp_post.reports import theme

_PARTS = ("core.js", "tables.js", "charts.js", "icicle.js", "timeline.js")


_MAKE_BUNDLE = "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())"


class VegaBundle:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert (0.9 MB; made without network).

    Bundling takes over a second and holds the interpreter, so another process does it while this one reads
    the store. Made once per process.
    """

    _text: ClassVar[str] = ""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not VegaBundle._text:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _MAKE_BUNDLE],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )

    def text(self) -> str:
        """The script; waits for it."""
        if self._process is not None:
            output, _ = self._process.communicate()
            if self._process.returncode:  # e.g. no second process is allowed here: then in this one
                import vl_convert

                output = vl_convert.javascript_bundle().encode()  # type: ignore[call-arg]
            VegaBundle._text = _embeddable(output.decode())
            self._process = None
        return VegaBundle._text

    def cancel(self) -> None:
        """Stop the other process; the page needs no charts, or failed."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@cache
def page_script() -> str:
    """The page's own script."""
    body = "\n".join(_asset(part) for part in _PARTS)
    return _embeddable(f"(() => {{\n{body}\n}})();")  # its names must not meet those of the Vega bundle


@cache
def page_style() -> str:
    """The page's style sheet with the colours of `theme`."""
    return _asset("page.css").replace("/*THEME*/", theme.css_variables())


def source_hash(script: str) -> str:
    """The Content-Security-Policy source that allows exactly this inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return resources.files("xsp_post.reports").joinpath("assets", name).read_text(encoding="utf-8")


def _embeddable(script: str) -> str:
    """A script that can stand inside a script element (HTML standard, "Restrictions for contents of script")."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
