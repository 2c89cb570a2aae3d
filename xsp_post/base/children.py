"""Child processes: they import nothing from the current folder or from a capture's, and end with the command that
started them, also where that is killed (Linux)."""

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from xsp_post.base.module_path import trusted

# Python puts '' on the module path of a program given by -c: the current folder. `sys` is part of the interpreter.
# Python 3.13 imports `linecache` before it runs the program; -P, which 3.10 lacks, keeps '' away from the start.
_SAFE = ["-P"] if hasattr(sys.flags, "safe_path") else []
START = (
    "import sys; sys.path = [folder for folder in sys.path if folder]; "
    "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
_WITHOUT_MODULES = Path(__file__).parents[1] / "reports" / "assets"  # a folder of this package with no Python in it


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as a program; with `environment`."""
    return [sys.executable, *_SAFE, "-c", START, module, *arguments]


QUIET = {"KINETO_LOG_LEVEL": "99"}  # above every level that PyTorch's profiler prints at: its start and stop, too


def environment(*folders: str) -> dict[str, str]:
    """This process's environment, with its module path but for the current folder and these folders.

    Python's own library is left out: each Python knows where its own is, and a tool may start another one.
    """
    own = (os.path.dirname(os.__file__), os.path.dirname(os.__file__) + os.sep + "lib-dynload")
    path = [folder for folder in trusted(*folders) if folder not in own and not folder.endswith(".zip")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


@contextmanager
def apart(*folders: str) -> Iterator[None]:
    """While `multiprocessing` starts processes: this process stands in a folder without modules, and its module path is
    without the folder that was current and without these folders."""
    kept_path, kept_variable = list(sys.path), os.environ.get("PYTHONPATH")
    here = os.open(".", os.O_RDONLY) if os.chdir in os.supports_fd else os.getcwd()  # it may have lost its name
    sys.path[:] = trusted(*folders)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        os.chdir(_WITHOUT_MODULES)
        yield
    finally:
        os.chdir(here)
        if isinstance(here, int):
            os.close(here)
        sys.path[:] = kept_path
        if kept_variable is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = kept_variable


def end_with_parent() -> Callable[[], object] | None:
    """For ``preexec_fn``: asks the system to kill the child when the thread that started it ends."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec nothing may be imported
    return lambda: prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG of linux/prctl.h


def end_with(process_id: int) -> None:
    """This process is killed when its parent ends, or that other process: a profiler stands between the two, and may
    live on. A thread waits for it in the system, which takes no time."""
    if (ask := end_with_parent()) is None:
        return
    ask()
    if not Path(f"/proc/{process_id}").exists() and Path("/proc/self").exists():
        os.kill(os.getpid(), signal.SIGKILL)  # it was killed before this line
    with suppress(OSError):  # before Linux 5.3
        threading.Thread(target=_end_after, args=(os.pidfd_open(process_id),), daemon=True).start()


def _end_after(handle: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)
