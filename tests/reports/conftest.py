"""What the report's tests share: results by hand, and a page in a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from reports.samples import HOSTILE, sample


@pytest.fixture(scope="session")
def results():
    """A ResNet-like workload with every table."""
    return sample()


@pytest.fixture(scope="session")
def hostile_results():
    """The same with names that want to be code."""
    return sample(names=HOSTILE)


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium; the test is skipped, with the reason, where there is none."""
    executable = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra dev)")
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


class Page:
    """A page opened from a file, with everything it complained about and everything it asked for."""

    def __init__(self, browser, path: Path, width: int = 1280, dark: bool = False) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        self.context.set_default_timeout(120_000)  # for a busy machine
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(path.as_uri())
        self.wait_for_function("window.xspReport !== undefined && document.readyState === 'complete'")
        self.page.evaluate("xspReport.renderAll()")
        self.complaints += self.page.evaluate("xspReport.errors")

    def wait_for_function(self, expression: str, seconds: float = 250.0) -> None:
        """Wait until an expression is true. Playwright's own polls with eval, which the page's policy forbids."""
        last = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < last, f"still not so after {seconds} s: {expression}"
            self.page.wait_for_timeout(50)

    def __getattr__(self, name: str):
        return getattr(self.page, name)

    def show(self, part: str) -> None:
        """Go to a part of the page by its address; a block of it behind ``&show=``."""
        self.page.evaluate("address => xspReport.go('#' + address)", part)

    def foreign_requests(self) -> list[str]:
        """Requests to anything but the file itself and data inside it."""
        own = ("data:", "blob:")
        return [url for url in self.requests[1:] if not url.startswith(own)]


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """The page of results as a file, written once for all tests that look at the same results."""
    from xsp_post.reports.html import write_report

    folder = tmp_path_factory.mktemp("pages")
    known: dict[int, tuple[object, Path]] = {}  # results are kept, so that no other gets their id

    def write(results) -> Path:
        if id(results) not in known:
            known[id(results)] = (results, write_report(results, folder / f"page{len(known)}.html"))
        return known[id(results)][1]

    return write


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what people with a screen reader or a keyboard cannot use.

    From XSP_POST_AXE (a file), else fetched once with npm; the test is skipped, with the reason, where neither works.
    """
    if named := os.environ.get("XSP_POST_AXE"):
        return Path(named).read_text(encoding="utf-8")
    folder = Path(__file__).parents[2] / ".cache" / "axe"
    source = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("axe-core is not here: no npm to fetch it (set XSP_POST_AXE to axe.min.js)")
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            done = False
        if not done or not source.exists():
            pytest.skip("axe-core is not here: npm could not fetch it (set XSP_POST_AXE to axe.min.js)")
    return source.read_text(encoding="utf-8")


@pytest.fixture
def open_page(chromium, written):
    """Open the page of results in the browser."""
    opened: list[Page] = []

    def opener(results, width: int = 1280, dark: bool = False) -> Page:
        opened.append(Page(chromium, written(results), width, dark))
        return opened[-1]

    yield opener
    for page in opened:
        page.context.close()


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory) -> Path:
    """Where screenshots go: XSP_POST_ARTEFACTS, else a temporary folder."""
    folder = os.environ.get("XSP_POST_ARTEFACTS")
    path = Path(folder) if folder else tmp_path_factory.mktemp("screenshots")
    path.mkdir(parents=True, exist_ok=True)
    return path
