"""Damaged sources, two hundred a run: the fast form of scripts/fuzz (its nightly form: 2,000 with other seeds)."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("seed", [1, 101, 201, 301])
def test_damaged_sources_are_read_whole_or_refused(root, seed):
    command = [sys.executable, str(root / "scripts" / "fuzz"), "--cases", "50", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
