"""Child processes end with the command that started them, also where that is killed (Linux)."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> Callable[[], object] | None:
    """For ``preexec_fn``: asks the system to kill the child when the thread that started it ends."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec nothing may be imported
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def end_with(process_id: int) -> None:
    """This process is killed when its parent ends, or that other process: a profiler stands between the two, and may
    live on. A thread waits for it in the system, which takes no time."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if not Path(f"/proc/{process_id}").exists() and Path("/proc/self").exists():
        os.kill(os.getpid(), signal.SIGKILL)  # it was killed before this line
    with suppress(OSError):  # before Linux 5.3
        threading.Thread(target=_end_after, args=(os.pidfd_open(process_id),), daemon=True).start()


def _end_after(handle: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)
