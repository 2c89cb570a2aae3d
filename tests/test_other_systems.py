"""Reading takes nothing that only Linux has: commands with the modules and functions hidden that other systems lack."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLE = ROOT / "examples/resnet50_generated.sqlite"
# What is absent: modules, names in `os`, names in `signal`
_NO_LINUX = ("pipe2", "sched_getaffinity", "pidfd_open", "memfd_create", "posix_fadvise", "sendfile", "getresuid")
SYSTEMS = {
    "darwin": ((), _NO_LINUX, ("sigtimedwait", "sigwaitinfo")),
    "win32": (
        ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"),
        (*_NO_LINUX, "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "getgroups", "killpg", "setsid",
         "getpgid", "fchdir", "fchmod", "fchown", "chown", "mkfifo", "uname", "sysconf", "statvfs", "getloadavg",
         "register_at_fork", "O_NONBLOCK", "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "nice", "wait3", "wait4"),
        ("SIGALRM", "SIGHUP", "SIGPIPE", "SIGKILL", "SIGCHLD", "SIGUSR1", "SIGUSR2", "setitimer", "alarm",
         "pthread_sigmask", "pthread_kill", "sigwait", "siginterrupt", "ITIMER_REAL", "SIG_BLOCK", "SIG_SETMASK"),
    ),
}  # fmt: skip
# The libraries are there as on Linux: what they take is not ours. Then ours is imported on the other system.
START = """
import os, signal, sys
import adbc_driver_manager.dbapi, adbc_driver_sqlite, altair, jinja2, msgspec, numpy, pandas, pyarrow.parquet
import rich.console
import concurrent.futures.process, multiprocessing.context, secrets, shutil, sqlite_utils, subprocess, tempfile, typer

modules, of_os, of_signal = {hidden}
for name in modules:
    sys.modules[name] = None
for module, names in ((os, of_os), (signal, of_signal)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
os.supports_fd.discard(os.chdir) if "fchdir" in of_os else None
sys.platform = {system!r}
from xsp_post.cli import main
sys.argv = ["xsp-post", *sys.argv[1:]]
main()
"""


@pytest.fixture(params=SYSTEMS)
def command(request, tmp_path):
    """Runs a command as on that system; its standard output."""
    code = START.replace("{hidden}", repr(SYSTEMS[request.param])).replace("{system!r}", repr(request.param))

    def run(*arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_capture_is_read_kept_shown_and_compared(command, tmp_path):
    store = tmp_path / "run.xsp.sqlite"
    command("ingest", EXAMPLE, "-o", store, "--report", tmp_path / "page.html")
    command("ingest", EXAMPLE, "-o", store, "--force")
    assert "Verdict" in command("tree", EXAMPLE)
    assert "Verdict" in command("why", store)
    assert json.loads(command("table", "A10", store, "--json"))
    command("compare", store, store)
    command("export", store, "--to", "csv", "-o", tmp_path / "tables")
    assert {path.name for path in tmp_path.iterdir()} == {"run.xsp.sqlite", "page.html", "tables"}


# of Windows this cannot be shown here: how Python itself starts processes there cannot be put on
@pytest.mark.parametrize("command", ["darwin"], indirect=True)
def test_a_folder_of_captures_is_read(command, tmp_path):
    command("batch", EXAMPLE, "-o", tmp_path / "fleet", "--workers", "1", "--no-report")
    assert (tmp_path / "fleet" / "fleet.xsp.sqlite").is_file()
