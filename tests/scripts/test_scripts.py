"""The scripts use the project's own environment; the package runs as a module."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import ROOT


def ran(*command, **environment):
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env={**kept, **environment}
    )


def test_python_m_xsp_post():
    done = ran(sys.executable, "-m", "xsp_post", "--version", PYTHONPATH=str(ROOT))
    assert done.returncode == 0 and done.stdout.startswith("xsp-post ")


@pytest.mark.parametrize("name", ["bench", "gen_docs", "golden", "make_export"])
def test_a_script_continues_in_the_project_environment(tmp_path, name):
    """With a stand-in for .venv that prints how it was called."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text('#!/bin/sh\necho "ours: $@"\n')
    python.chmod(0o755)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.argv = sys.argv[2:]; import environment; from pathlib import "
        "Path; environment.VENV = Path(sys.argv.pop(0)); environment.use_project_environment()"
    )
    done = ran(sys.executable, "-c", code, ROOT / "scripts", tmp_path / ".venv", name, "--x")
    assert done.stdout == f"ours: {name} --x\n", done.stderr
    text = (ROOT / "scripts" / name).read_text()
    assert "use_project_environment(" in text
