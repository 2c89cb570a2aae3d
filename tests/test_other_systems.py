"""Reading takes nothing that only Linux has: commands with the modules and functions hidden that other systems lack."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from builders import ExportBuilder

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
# The libraries are there as on Linux: what they take is not ours. Then ours is imported on the other system, by a fork
# for each command.
START = """
import json, os, signal, sys
from os import fork, waitpid
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
for words in json.loads(sys.argv[1]):
    child = fork()
    if not child:
        from xsp_post.cli import main
        sys.argv = ["xsp-post", *words]
        main()
        sys.exit()
    if waitpid(child, 0)[1]:
        sys.exit(1)
    print("\\f", flush=True)
"""


@pytest.fixture
def capture(tmp_path):
    """Two executions of two layers."""
    builder = ExportBuilder()
    for at in (0, 100_000):
        builder.range("model:forward#0", at, at + 90_000, domain="xsp")
        for k, layer in enumerate(("fc1:Linear#0", "fc2:Linear#0")):
            begin = at + 1_000 + 40_000 * k
            builder.range(layer, begin, begin + 30_000, domain="xsp")
            builder.kernel("gemm", launch=(begin + 10, begin + 500), run=(begin + 900, begin + 20_000))
    return builder.write(tmp_path.parent / f"{tmp_path.name}_of_it.sqlite")


@pytest.fixture(params=SYSTEMS)
def commands(request, tmp_path):
    """Runs commands as on that system; what each printed."""
    code = START.replace("{hidden}", repr(SYSTEMS[request.param])).replace("{system!r}", repr(request.param))

    def run(*commands):
        texts = json.dumps([[str(word) for word in words] for words in commands])
        done = subprocess.run([sys.executable, "-c", code, texts], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\f")

    return run


def test_a_capture_is_read_kept_shown_and_compared(commands, capture, tmp_path):
    store = tmp_path / "run.xsp.sqlite"
    _, _, tree, why, table, *_ = commands(
        ("ingest", capture, "-o", store, "--report", tmp_path / "page.html"),
        ("ingest", capture, "-o", store, "--force"),
        ("tree", capture),
        ("why", store),
        ("table", "A10", store, "--json"),
        ("compare", store, store),
        ("export", store, "--to", "csv", "-o", tmp_path / "tables"),
    )
    assert "Verdict" in tree and "Verdict" in why and json.loads(table)
    assert {path.name for path in tmp_path.iterdir()} == {"run.xsp.sqlite", "page.html", "tables"}


# of Windows this cannot be shown here: how Python itself starts processes there cannot be put on
@pytest.mark.parametrize("commands", ["darwin"], indirect=True)
def test_a_folder_of_captures_is_read(commands, capture, tmp_path):
    commands(("batch", capture, "-o", tmp_path / "fleet", "--workers", "1", "--no-report"))
    assert (tmp_path / "fleet" / "fleet.xsp.sqlite").is_file()
