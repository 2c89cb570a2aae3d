"""The README's commands and a third of the drawn tests at both ends of what pyproject.toml promises.

The oldest Python has the built wheel and the lowest version of every dependency, the newest Python the source
distribution and the newest versions. Called by `scripts/test --platforms`; a Python that is not here is skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

EXAMPLE = ROOT / "examples/resnet50_generated.sqlite"
# torch is not needed to read; what checks text and types runs once, in .venv
EXTRAS = ("ncu", "cluster", "perfetto", "mcp", "xlsx", "pictures", "test")
LIMIT_S = 120  # of one command of the README
PAGES = ("README.md", "index.md")


@dataclass(frozen=True)
class Platform:
    """One end of the promise."""

    name: str
    python: str  # 3.10
    has_lowest: bool  # of every dependency; else the newest
    package: str  # what is installed: the name's end of a built distribution

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-{self.python}"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    project = read_project()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder))
        for platform in platforms(project):
            began = time.monotonic()
            print(f"\n== {platform.name}", flush=True)
            python = interpreter(platform.python)
            if python is None:
                print(f"== {platform.name}: skipped, there is no Python {platform.python} here", flush=True)
                continue
            is_ok = is_usable(platform, python, project, built)
            failed += [] if is_ok else [platform.name]
            print(f"== {platform.name}: {'ok' if is_ok else 'FAILED'} ({time.monotonic() - began:.0f} s)", flush=True)
    if failed:
        print(f"\nFailed: {', '.join(failed)}")
    return 1 if failed else 0


def read_project() -> dict[str, Any]:
    """The table ``project`` of pyproject.toml."""
    from xsp_post.base import settings_files

    return settings_files.read(ROOT / "pyproject.toml")["project"]


def platforms(project: dict[str, Any]) -> list[Platform]:
    """The oldest and the newest Python that are promised."""
    oldest = project["requires-python"].removeprefix(">=")
    listed = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one) for one in project["classifiers"]]
    newest = max((one[1] for one in listed if one), key=lambda version: int(version.partition(".")[2]))
    return [
        Platform(f"Python {oldest}, lowest versions, wheel", oldest, True, ".whl"),
        Platform(f"Python {newest}, newest versions, source distribution", newest, False, ".tar.gz"),
    ]


def lowest_versions(project: dict[str, Any]) -> list[str]:
    """Constraints: the lower bound of every dependency that a user may install as its only version."""
    extras = [row for name, rows in project["optional-dependencies"].items() if name not in ("dev", "test")
              for row in rows]  # fmt: skip
    return [row.replace(">=", "==") for row in [*project["dependencies"], *extras]]


def interpreter(version: str) -> str | None:
    """A Python of this version that starts: on the path, or one that pyenv installed (its shims need not start)."""
    found = [f"python{version}"]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False).stdout.strip()
        found += sorted(map(str, Path(root).glob(f"versions/{version}.*/bin/python{version}")), reverse=True)
    say = "import sys; print('%d.%d' % sys.version_info[:2])"
    for python in found:
        try:
            said = subprocess.run([python, "-c", say], capture_output=True, text=True, check=False).stdout
        except OSError:
            continue
        if said.strip() == version:
            return python
    return None


def build(folder: Path) -> list[Path]:
    """The source distribution, and the wheel that is built from it."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.iterdir())


def is_usable(platform: Platform, python: str, project: dict[str, Any], built: list[Path]) -> bool:
    """Install it, in a new environment where pyproject.toml changed; README's commands; tests."""
    package = next(path for path in built if path.name.endswith(platform.package))
    stamp, want = platform.folder / ".installed", (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    is_made = stamp.is_file() and stamp.read_text(encoding="utf-8") == want
    if not is_made:
        shutil.rmtree(platform.folder, ignore_errors=True)
        subprocess.run([python, "-m", "venv", platform.folder], check=True)
    limits = platform.folder / "constraints.txt"
    limits.write_text("\n".join(lowest_versions(project) if platform.has_lowest else []), encoding="utf-8")
    again = ["--force-reinstall", "--no-deps"] if is_made else []
    if not install(platform, limits, *again, str(package)) or not readme_is_true(platform):
        return False
    if not is_made and not install(platform, limits, f"{package}[{','.join(EXTRAS)}]"):
        return False
    stamp.write_text(want, encoding="utf-8")
    # not `python -m pytest`, which would put the checkout before what is installed
    tests = [platform.bin / "pytest", "-n", "2", "--dist", "worksteal", "--third", "--ignore=tests/scripts",
             # how --help looks is up to the version of typer; `scripts/test` holds the page
             "--deselect=tests/test_docs.py::test_generated_pages_are_up_to_date[cli.md]"]  # fmt: skip
    # texts as pandas holds them for whoever calls the package; `tests/conftest.py` takes what the commands set
    environment = {**os.environ, "PANDAS_FUTURE_INFER_STRING": "1"}
    return subprocess.run(tests, cwd=ROOT, check=False, env=environment).returncode == 0


def install(platform: Platform, constraints: Path, *what: str) -> bool:
    """Whether pip did it."""
    pip = [platform.bin / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", constraints]
    return subprocess.run([*pip, *what], cwd=platform.folder, check=False).returncode == 0


def readme_is_true(platform: Platform) -> bool:
    """Every command of the README that needs no GPU, run by the installed console script on the shipped example."""
    import test_doc_commands as documented

    commands = [words for page, words in documented.lines() if page in PAGES and not documented.reason(words)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as threads:
        files = Path(folder) / "files"
        files.mkdir()
        documented.lay_out(files, EXAMPLE, lambda *words: run(platform, files, [str(word) for word in words]))

        def outcome(number: int) -> str:
            own = Path(folder) / str(number)
            shutil.copytree(files, own)
            words = commands[number]
            done = run(platform, own, documented.arguments(words))
            is_extra = done.returncode == 3 and "pip install 'xsp-post[" in done.stderr
            if is_extra or done.returncode in documented.ends(words):
                return ""
            return f"  {' '.join(words)}: exit code {done.returncode}\n{done.stderr}"

        wrong = [text for text in threads.map(outcome, range(len(commands))) if text]
    print("\n".join([*wrong, f"README: {len(commands)} commands, {len(wrong)} failed"]), flush=True)
    return bool(commands) and not wrong


def run(platform: Platform, folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The console script in a folder."""
    command = [platform.bin / "xsp-post", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)


if __name__ == "__main__":
    sys.exit(main())
