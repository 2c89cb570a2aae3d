"""A kind and a seed → one command in trouble: a limit of the system, or a signal at any moment.

What must hold: an exit code and a sentence, no traceback; an output is whole or not there; nothing half-written stays,
after a kill once the next command has written to the folder.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from fuzzing.sources import whole_export

_ROOT = str(Path(__file__).resolve().parents[2])
_OUTPUTS = ("o.xsp.sqlite", "o.html", "o_csv", "o.xlsx", "o.trace.json.gz", "b")
_LIMITS = {
    resource.RLIMIT_FSIZE: (0, 400_000),
    resource.RLIMIT_AS: (600 << 20, 1400 << 20),
    resource.RLIMIT_NOFILE: (8, 40),
}
_CAPABILITIES = (1, 2)  # of root: to write and to read what its mode forbids
_PR_CAPBSET_DROP = 24


def fault(kind: str, seed: int) -> str:
    """What is wrong with how one case was handled, "" for nothing."""
    source = random.Random(f"{kind}:{seed}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.sqlite").write_bytes(whole_export(source.randrange(4)))
        return _limited(source, folder) if kind == "fault" else _signalled(source, folder)


def _command(source: random.Random, folder: Path) -> list[str]:
    export = ["export", "a.sqlite", "--force", "--to"]
    words = source.choice((
        ["ingest", "a.sqlite", "--force", "-o", _OUTPUTS[0], "--report", _OUTPUTS[1]], ["tree", "a.sqlite"],
        ["ingest", "a.sqlite", "--force", "-o", _OUTPUTS[0]], ["table", "kernels", "a.sqlite", "-f", "csv"],
        [*export, "csv", "-o", _OUTPUTS[2]], [*export, "xlsx", "-o", _OUTPUTS[3]],
        [*export, "chrome", "-o", _OUTPUTS[4]],
        ["batch", "a.sqlite", "-o", _OUTPUTS[5], "--no-report"],
    ))  # fmt: skip
    return [sys.executable, "-c", f"import sys; sys.argv = ['xsp-post', *{words!r}]; sys.path.insert(0, {_ROOT!r}); "
            "from xsp_post.cli import main; main()"]  # fmt: skip


def _limited(source: random.Random, folder: Path) -> str:
    way = source.choice((*_LIMITS, "stdout", "folder", "unreadable"))
    begin, out = None, subprocess.DEVNULL
    if way in _LIMITS:
        most = source.randint(*_LIMITS[way])
        begin = partial(resource.setrlimit, way, (most, most))
    elif way == "stdout":
        out = os.open("/dev/full", os.O_WRONLY)
    else:
        (folder if way == "folder" else folder / "a.sqlite").chmod(0o500 if way == "folder" else 0)
        begin = _as_anybody
    done = subprocess.run(
        _command(source, folder), cwd=folder, stdout=out, stderr=subprocess.PIPE, text=True, preexec_fn=begin,
        check=False, timeout=250,
    )  # fmt: skip
    if way == "stdout":
        os.close(out)
    folder.chmod(0o700)
    if "Traceback" in done.stderr or not 0 <= done.returncode <= 6 or "defect" in done.stderr:
        return f"{way}: exit {done.returncode}: {done.stderr[-500:]}"
    if done.returncode and not any(line.startswith("xsp-post: ") for line in done.stderr.splitlines()):
        return f"{way}: exit {done.returncode} without a sentence: {done.stderr[-300:]}"
    return _left(folder) or _broken(folder)


def _as_anybody() -> None:
    import ctypes

    for one in _CAPABILITIES:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, one, 0, 0, 0)


def _signalled(source: random.Random, folder: Path) -> str:
    number = source.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL))
    process = subprocess.Popen(
        _command(source, folder), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    time.sleep(source.uniform(0.3, 3))
    if number == signal.SIGINT:  # as a terminal sends it: to the command and its children
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, stderr = process.communicate(timeout=200)
    if "Traceback" in stderr or process.returncode not in (0, -number, 128 + number):
        return f"{number.name}: exit {process.returncode}: {stderr[-500:]}"
    if number == signal.SIGKILL:
        from xsp_post.base import output

        for one in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            if not one.is_dir():  # what was left, cleared by the output beside it
                continue
            output._cleared.clear()
            with output.atomic_output(one / "next"):
                pass
    return _left(folder) or _broken(folder)


def _left(folder: Path) -> str:
    found = [path.name for path in folder.rglob(".*.xsp-*")]
    return f"left behind: {found}" if found else ""


def _broken(folder: Path) -> str:
    """Which output is there and not whole."""
    from xsp_post.store.store import open_store

    store = folder / _OUTPUTS[0]
    if store.exists() and not open_store(store).tables():
        return "half a store"
    page = folder / _OUTPUTS[1]
    if page.exists() and not page.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        return "half a page"
    return ""
