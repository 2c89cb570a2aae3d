"""`xsp-post run` and `doctor` as a user calls them: what is printed, what is left, how failures end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import Called, called

from xsp_post.model.capture import load_captures

pytest.importorskip("torch", reason="torch is not installed (extra run)")

NET = """
import torch
def net(batch_size):
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)]
    return torch.nn.Sequential(*layers), torch.ones(batch_size, 64)
def broken():
    raise ValueError("no such weights")
def greedy(batch_size):
    if batch_size > 2:
        torch.ones(2**46)
    return net(batch_size)
def slow():
    import time
    time.sleep(600)
"""


def call(*arguments: str, cwd: Path) -> Called:
    return called(*arguments, cwd=cwd, columns=80)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("commands")
    (path / "net.py").write_text(NET)
    return path


@pytest.fixture(scope="module")
def done(folder) -> subprocess.CompletedProcess[str]:
    model = f"{folder / 'net.py'}:net"
    command = [sys.executable, "-m", "xsp_post.cli", "run", "--model", model, "--batch-size", "2,1",
               "--iterations", "4", "--warmup", "1", "--repeat", "1", "--deep-at", "2", "--threads", "1", "-o",
               "out"]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180, check=False)


def test_a_run_ends_with_the_headline_and_the_reports_path(done, folder):
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert re.search(r"batch    2 .* inputs/s", text) and re.search(r"batch    1 .* inputs/s", text)
    assert "0:Linear" in text and "M/L/G" in text and "Profilers ran at batch 2 only" in text
    assert str(folder / "out/report.html") in text and (folder / "out/report.html").stat().st_size > 10_000
    assert (folder / "out/net-net.xsp.sqlite").is_file()
    assert "Next: " in done.stderr and "[1/2] M, batch 1" in done.stderr and "M + M/L + M/L/G, batch 2" in done.stderr
    # verdict, shares and what to do first, then the numbers, then what to know; the tree is a command of its own
    first = call("tree", "out/net-net.xsp.sqlite", cwd=folder).stdout.splitlines()
    assert text.splitlines()[:3] == first[:3] and first[1].strip()
    order = ["Verdict", "Model latency", "What profiling cost", "--resume --repeat 5",
             "nothing can be concluded about levels", "Store:"]  # fmt: skip
    assert [word for word in order if word not in text] == []
    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)
    assert not re.search(r"^ +warmup:forward", text, re.M)


def test_the_store_of_a_run_holds_the_overhead_table(done, folder):
    table = call("table", "overhead", "out/net-net.xsp.sqlite", "--format", "json", cwd=folder)
    assert table.returncode == 0, table.stderr
    rows = json.loads(table.stdout)["data"]
    rows = rows if isinstance(rows, list) else rows["rows"]
    levels = [row["level"] for row in rows if row["event_kind"] == "model"]
    assert levels == ["M", "M/L", "M/L/G"]


def test_the_captures_of_a_run_name_their_process_and_nothing_private(done, folder):
    captures = [made for made in load_captures(folder / "out") if made.batch_size == 2]
    assert [made.files.get("spans") or made.files["trace"] for made in captures] == [
        "spans.json", "spans.json", "trace.json.gz"]  # fmt: skip
    assert all(made.environment["torch_version"] and made.process == "02_M_b2_r0" for made in captures)
    text = "".join(path.read_text() for path in (folder / "out").rglob("*.json"))
    private = [str(folder), os.environ.get("USER", "no-user-name"), os.environ.get("HOSTNAME", "no-host-name")]
    assert not any(value in text for value in private if len(value) > 4)


def test_a_run_directory_is_a_source(done, folder):
    tree = call("tree", "out", cwd=folder)
    assert tree.returncode == 0, tree.stderr
    assert "Linear" in tree.stdout


def test_an_existing_run_is_refused_resumed_or_replaced(done, folder):
    model = f"{folder / 'net.py'}:net"
    arguments = ("run", "--model", model, "--batch-size", "1,2", "--iterations", "4", "--warmup", "1",
                 "--repeat", "1", "--deep-at", "2", "--threads", "1", "-o", "out")  # fmt: skip
    refused = call(*arguments, cwd=folder)
    assert refused.returncode == 6 and "--resume" in refused.stderr
    resumed = call(*arguments, "--resume", "--json", cwd=folder)
    assert resumed.returncode == 0 and "[1/" not in resumed.stderr, resumed.stderr
    document = json.loads(resumed.stdout)
    assert document["format"] == "xsp-post.run" and {row["batch_size"] for row in document["data"]["models"]} == {1, 2}
    other = call(*arguments, "--resume", "--seed", "9", cwd=folder)
    assert other.returncode == 2 and "seed is 0 there and 9 here" in other.stderr


@pytest.mark.parametrize(("arguments", "code", "says"), [
    (("--model", "resnet"), 2, "resnet50"),
    (("--model", "net.py:nett"), 2, "Did you mean net"),
    (("--model", "none.py:net"), 2, "does not exist"),
    (("--model", "gpt", "--batch-size", "0"), 2, "at least 1"),
    (("--model", "gpt", "--batch-size", "x"), 2, "whole numbers"),
    (("--model", "gpt", "--levels", "K"), 2, "--levels takes"),
    (("--model", "gpt", "--mode", "play"), 2, "--mode takes"),
    (("--model", "gpt", "--device", "tpu"), 2, "--device takes"),
    (("--model", "gpt", "--collector", "nsys"), 3, "nsys"),
    (("--model", "net.py:broken"), 3, "ValueError: no such weights"),
    (("--model", "net.py:slow", "--timeout", "3"), 3, "did not end within"),
])  # fmt: skip
def test_bad_input_ends_in_one_sentence(folder, tmp_path, arguments, code, says, monkeypatch):
    monkeypatch.delenv("XSP_NSYS", raising=False)
    ended = call("run", *arguments, "--device" if "--device" not in arguments else "--seed",
                 "cpu" if "--device" not in arguments else "0", "-o", str(tmp_path / "out"), cwd=folder)  # fmt: skip
    assert ended.returncode == code, ended.stderr
    assert "\\u000a" not in ended.stderr
    assert says in ended.stderr and "Traceback" not in ended.stderr.split("ValueError")[0].split("  |")[0]


def test_out_of_memory_at_one_size_is_said_and_the_rest_goes_on(folder, tmp_path):
    ended = call("run", "--model", "net.py:greedy", "--batch-size", "2,4", "--iterations", "2", "--warmup", "0",
                 "--levels", "M", "--repeat", "1", "-o", str(tmp_path / "out"), cwd=folder)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "batch size 4 ran out of memory" in ended.stdout
    assert re.search(r"batch    2 ", ended.stdout) and not re.search(r"batch    4 ", ended.stdout)


def test_ctrl_c_ends_with_130_and_leaves_a_directory_to_resume(folder, tmp_path):
    command = [sys.executable, "-m", "xsp_post.cli", "run", "--model", "net.py:slow", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("out/captures/01*/stderr.log")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 130 and "--resume" in stderr
    assert json.loads((tmp_path / "out/manifest.json").read_text())["status"] == "interrupted"


def test_doctor_says_what_is_here_and_what_each_missing_piece_would_give(tmp_path):
    answer = call("doctor", cwd=tmp_path)
    assert answer.returncode == 0
    for name in ("GPU", "torch", "provenance", "nvtx", "nsys", "ncu", "GPU counters"):
        assert re.search(rf"^[✓✗!] {name} ", answer.stdout, re.M), name
    assert answer.stdout.count("gives: ") == answer.stdout.count("✓") + answer.stdout.count("✗") + (
        len(re.findall("^!", answer.stdout, re.M))
    )
    checks = json.loads(call("doctor", "--json", cwd=tmp_path).stdout)["data"]["checks"]
    assert {check["status"] for check in checks} <= {"ok", "missing", "warning"}
    assert all(check["remedy"] for check in checks if check["name"] in ("nsys", "ncu") and check["status"] == "missing")


def test_a_factory_that_was_mended_is_run_again_without_more_ado(tmp_path):
    (tmp_path / "net.py").write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 2)\n")
    asked = ("run", "--model", "net.py:net", "--levels", "M", "--iterations", "3", "--repeat", "1", "-o", "out")
    failed = call(*asked, cwd=tmp_path)
    assert failed.returncode != 0 and "… failed\nxsp-post: net.py:net returned Linear" in failed.stderr
    (tmp_path / "net.py").write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 2), torch.ones(3, 2)\n")
    assert call(*asked, cwd=tmp_path).returncode == 0
    again = call(*asked, cwd=tmp_path)
    assert "run-exists" in again.stderr and "failed" not in again.stderr
