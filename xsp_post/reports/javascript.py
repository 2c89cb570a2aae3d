"""The scripts and styles that are written into the page, all of them offline."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import ClassVar

from xsp_post.base.children import end_with_parent
from xsp_post.reports import theme

_PARTS = ("core.js", "tables.js", "charts.js", "icicle.js", "timeline.js")


_MAKE_BUNDLE = "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())"


class VegaBundle:
    """Vega, Vega-Lite and Vega-Embed as one script, from vl-convert (0.9 MB; made without network).

    Bundling takes over a second and holds the interpreter, so another process does it while this one reads
    the store. Made once per version of vl-convert, and kept in the user's cache folder.
    """

    _text: ClassVar[str] = ""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not VegaBundle._text:
            VegaBundle._text = _embeddable(_kept_bundle())
        if not VegaBundle._text:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _MAKE_BUNDLE],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                preexec_fn=end_with_parent(),
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
            _keep_bundle(output)
        return VegaBundle._text

    def cancel(self) -> None:
        """Stop the other process; the page needs no charts, or failed."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _bundle_file() -> Path:
    """Where the bundle of the installed vl-convert is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "xsp-post" / f"vega-{metadata.version('vl-convert-python')}.js"


def _kept_bundle() -> str:
    """The bundle that an earlier run kept; "" where there is none, or where it is not whole.

    The first line is the hash of the rest. A file that another user could have written is not used.
    """
    try:
        with _bundle_file().open("rb") as file:
            about = os.fstat(file.fileno())
            if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
                return ""
            head, _, body = file.read().partition(b"\n")
        return body.decode() if head.decode() == hashlib.sha256(body).hexdigest() else ""
    except (OSError, RuntimeError, ValueError, metadata.PackageNotFoundError):
        return ""


def _keep_bundle(bundle: bytes) -> None:
    """Write the bundle for the next run; where that is not possible, the next run makes it again."""
    part = None
    try:
        target = _bundle_file()
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(bundle).hexdigest().encode() + b"\n" + bundle)
        os.replace(part, target)
    except (OSError, RuntimeError, metadata.PackageNotFoundError):
        if part is not None:
            part.unlink(missing_ok=True)


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
