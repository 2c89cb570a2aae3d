"""A capture that takes time or memory without end ends its worker only."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOP = """
import resource
from xsp_post.base import limits
from xsp_post.batch.engines import _within_limits

class Job:
    sources = ()

def endless(job):
    while True:
        pass

def endless_memory(job):
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY

_within_limits(endless_memory, Job())
limits.CPU_S = 1
_within_limits(endless, Job())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_a_worker_without_end_is_ended():
    import signal

    ended = subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGXCPU, ended.stderr
