"""Child processes forked from this one, which has imported everything: a case costs what the child does, no start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from xsp_post.ingest import ncu, ncu_actions

assert ncu_actions.read_report  # imported here, once, instead of in each child


@contextmanager
def reader_of_reports() -> Iterator[None]:
    """NVIDIA's reader in a forked child instead of a new process."""
    ncu.subprocess = SimpleNamespace(run=_run, DEVNULL=None, PIPE=None)  # type: ignore[assignment]
    try:
        yield
    finally:
        ncu.subprocess = subprocess


def _run(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(writes, 1)
            sys.argv = ["ncu", command[-1]]
            ncu.main()
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as stream:
        answer = stream.read()
    return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), answer)
