"""The project's own environment for Python scripts, as scripts/environment.sh makes it for shell scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"


def use_project_environment(purpose: str = "all") -> None:
    """Go on in .venv, which is made where it is missing. ``purpose``: see scripts/environment.sh.

    A virtual environment that is active and has the package in it is used as it is.
    """
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    if not (VENV / "bin/python").exists():
        if sys.prefix != sys.base_prefix and find_spec("xsp_post") is not None:
            return
        print("making .venv …", file=sys.stderr, flush=True)
        make = f"source scripts/environment.sh && ensure_environment {purpose}"
        made = subprocess.run(["bash", "-c", make], cwd=ROOT, check=False)
        if made.returncode:
            sys.exit("The environment could not be made.")
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])
