"""Child processes end with the command that started them, also where that is killed (Linux)."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> Callable[[], object] | None:
    """For ``preexec_fn``: asks the system to kill the child when the thread that started it ends."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec nothing may be imported
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
