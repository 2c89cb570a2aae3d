"""A capture that takes time or memory without end ends its worker only."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOP = """
import resource
from xsp_post.base import limits
from xsp_post.base.sealed import limit

limit(0)
assert resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY
limits.CPU_S = 1
limit(0)
while True:
    pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_a_worker_without_end_is_ended():
    import signal

    ended = subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGXCPU, ended.stderr
