"""Every xsp-post command line of README and docs is run on a small capture, or is marked with what it needs."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from builders import ExportBuilder
from conftest import ROOT
from helpers import called
from test_docs import documented_commands

# What a line needs that a test has not: a part of the line → why it is not run here.
NEEDS = {
    "xsp-post run": "torch, and for levels below the layers a GPU: tests/commands/test_commands_run.py runs it",
    "$side": "a shell with nsys and its variables",
    ".ncu-rep": "a counter report: tests/counters reads real ones",
    "tcp://": "a cluster",
    "xsp-post record": "a program of the user: tests/workload/test_record.py",
    "xsp-post open": "a browser: tests/commands/test_explain_and_open.py",
    "xsp-post mcp": "a client on stdin: tests/agents runs it",
    "trace.json.gz": "a PyTorch trace with memory events: tests/test_memory.py reads real ones",
    "trace.xsp.sqlite": "the same",
    "gpu_samples": "GPU metrics of a capture: a GPU, sampled by nsys",
    "report.sqlite --report page.html": "the same",
    "fleet_": "the folder of batch: tests/batch",
    "batch ": "processes of its own: tests/batch",
    "history": "captures of several days: tests/test_history.py",
    "baseline:": "a baseline: tests/test_history.py",
    "[": "a synopsis with its options in brackets",
    "REPLAY": "a second capture of the program: tests/meaning/test_twin.py",
    "--layers-from": "the same",
    "--provenance": "files of a framework: tests/tree/test_provenance.py",
    "png|svg": "a synopsis",
    "overhead": "captures of several levels: tests/test_reconcile.py",
    "--model-range ^step": "a recording of the gallery: tests/test_gallery.py runs it",
    "rank0.pt.trace.json": "captures of a job: tests/test_ranks.py",
    "job.xsp.sqlite": "the same",
    "examples/resnet50_generated": "the example: its tree is checked by tests/test_docs.py",
}
PLACES = {
    "STORE": "run.xsp.sqlite",
    "STORE|SOURCE": "run.xsp.sqlite",
    "CAPTURE": "capture.sqlite",
    "FOLDER": "pictures",
}
_WRITES = {"ingest", "report", "export", "compare"}


def lines():
    """(page, words) of fenced and indented blocks, and of the tables of the README and the start page."""
    yield from documented_commands()
    for page in ("README.md", "docs/index.md"):
        for row in (ROOT / page).read_text(encoding="utf-8").splitlines():
            for command in re.findall(r"`(xsp-post [^`]+)`", row) if row.startswith("|") else []:
                yield Path(page).name, shlex.split(command)


def reason(words):
    text = " ".join(words)
    return next((why for part, why in NEEDS.items() if part in text), "")


def arguments(words):
    """What follows `xsp-post`, with names of files for the words that stand for one."""
    asked = [PLACES.get(word, word) for word in words[1:]]
    asked = asked[: asked.index(">")] if ">" in asked else asked
    return [*asked, *(["--force"] if asked[0] in _WRITES else [])]


def ends(words):
    """Exit codes that are answers: a bar that is not met, or cannot be decided, is one."""
    return {"compare": {0, 1, 7}}.get(words[1], {0})


def lay_out(home, source, command):
    """A capture and its store under the names that the pages use. ``command``: runs `xsp-post` with its arguments."""
    for name in ("capture.sqlite", "report.sqlite", "run.sqlite"):
        shutil.copy(source, home / name)
    assert command("ingest", home / "run.sqlite", "-o", home / "run.xsp.sqlite").returncode == 0
    for name in ("main", "change", "base", "other", "report"):
        shutil.copy(home / "run.xsp.sqlite", home / f"{name}.xsp.sqlite")


ALL = list(lines())
RUN = [(page, words) for page, words in ALL if not reason(words)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Captures and stores under the names that the pages use."""
    builder = ExportBuilder().gpu()
    for k in range(3):
        at = 100_000 * k
        builder.range(f"model#{k}:forward", at, at + 90_000, domain="xsp")
        builder.range("layer4.0.conv1:Conv2d", at + 1_000, at + 40_000, domain="xsp")
        builder.range("fc:Linear", at + 41_000, at + 80_000, domain="xsp")
        builder.kernel("sm80_xmma_conv", launch=(at + 2_000, at + 3_000), run=(at + 10_000, at + 30_000))
        builder.kernel("ampere_sgemm_128x64_tn", launch=(at + 42_000, at + 43_000), run=(at + 50_000, at + 70_000))
        builder.sync("cudaDeviceSynchronize_v3020", at + 71_000, at + 79_000)
    home = tmp_path_factory.mktemp("docs")
    lay_out(home, builder.write(tmp_path_factory.mktemp("capture") / "a.sqlite"), called)
    return home


@pytest.mark.parametrize(("page", "words"), RUN, ids=[f"{page}:{shlex.join(words)[9:70]}" for page, words in RUN])
def test_a_documented_command_does_what_the_page_says(folder, monkeypatch, page, words):
    monkeypatch.chdir(folder)
    done = called(*arguments(words))
    assert done.returncode in ends(words), done.stderr
    assert done.stdout or done.stderr


def test_every_line_is_run_or_says_what_it_needs():
    assert len(RUN) >= 20 and len(RUN) + sum(bool(reason(words)) for _, words in ALL) == len(ALL)
    texts = [" ".join(words) for _, words in ALL]
    assert not [part for part in NEEDS if not any(part in text for text in texts)], "a mark that no line needs"
