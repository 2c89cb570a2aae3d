"""`xsp-post export` as a person types it: what is printed, what is refused, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from helpers import called as xsp_post
from helpers import small_analysis

from xsp_post.exporters import FORMATS
from xsp_post.store.store import write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "small.xsp.sqlite"
    write_store(small_analysis(), path)
    return path


def test_it_says_what_it_wrote_and_what_opens_it(store, tmp_path):
    done = xsp_post("export", store, "--to", "perfetto", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert (
        "Wrote small.perfetto-trace (" in done.stderr
        and " KiB; 12 ranges" in done.stderr
        and "ui.perfetto.dev" in done.stderr
    )
    assert "info: An export shows one capture of several" in done.stderr
    assert (tmp_path / "small.perfetto-trace").stat().st_size > 500
    again = xsp_post("export", store, "--to", "perfetto", cwd=tmp_path)
    assert again.returncode == 6 and "exists already" in again.stderr and "Traceback" not in again.stderr
    assert xsp_post("export", store, "--to", "perfetto", "--force", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("to", ["perfetto", "chrome", "jaeger", "otlp", "xlsx"])
def test_a_sealed_process_writes_what_is_looked_at_again_or_has_files_of_its_own(store, tmp_path, to):
    """Sizes are asked of files that the parent has not put in place yet; the workbook sets times of its own files."""
    command = [sys.executable, "-m", "xsp_post", "export", str(store), "--to", to, "-o", "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").stat().st_size > 500


def test_json_for_programs(store, tmp_path):
    done = xsp_post("export", store, "--to", "chrome", "--capture", 2, "--limit", 3, "--json", cwd=tmp_path)
    document = json.loads(done.stdout)["data"]
    assert done.returncode == 0
    assert document["path"] == "small.trace.json.gz" and document["counts"]["kernels"] == 3
    assert {f["code"] for f in document["findings"]} == {"export-limited"}


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("--to", "excel"), 2, "There is no export format 'excel'"),
        (("--from", "100ms", "--to", "300ms"), 2, "from `--from` until `--until`"),
        (("--to", "chrome", "--capture", 9), 2, "no capture number 9"),
        (("--to", "chrome", "--limit", 0), 2, "--limit 0 is below 1"),
        (("--to", "chrome", "-o", "no/folder/x"), 6, "The folder of no/folder/x does not exist"),
        (("--to", "csv", "-o", "full"), 6, "full exists already"),
        (("--to", "csv", "-o", "full", "--force"), 6, "holds thesis.tex"),
        ((), 2, "--to"),
    ],
)
def test_refusals(store, tmp_path, arguments, code, sentence):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    done = xsp_post("export", store, *arguments, cwd=tmp_path)
    assert done.returncode == code and sentence in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["full", "thesis.tex"]


def test_help_names_every_format(tmp_path):
    text = "".join(xsp_post("export", "--help", cwd=tmp_path).stdout.split())  # lines may end amid a name
    assert [name for name in FORMATS if name not in text] == []
