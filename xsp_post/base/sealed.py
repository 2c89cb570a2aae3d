"""A process that reads foreign files: a child without network, which writes only to private folders
that its parent made, and whose end ends one capture with one sentence.

Linux: a fork before the first foreign file is opened. Landlock (Linux 5.13) forbids to write elsewhere and to run
programs but Python itself, seccomp to open a socket; limits of processor time and memory hold everywhere. What the
child has written, the parent puts in place. Elsewhere the process itself reads.
"""

import ctypes
import json
import os
import platform
import signal
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from xsp_post.base import children, limits, output, stops
from xsp_post.base.errors import CaptureError

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]


_ANSWER = "answer.json"  # in the child's temporary folder


class Child(NamedTuple):
    """A sealed process, seen from its parent. ``ending`` is a pipe that can be read from when it has ended."""

    process_id: int
    ending: int
    outputs: dict[Path, output.Handed]
    sources: Sequence[Path]

    def answer(self) -> Any:
        """What its work gave, as it comes back from JSON. Raises as `end` does."""
        answer, _ = self.end()
        return json.loads(answer) if answer else self._fail("it gave no answer")

    def end(self) -> tuple[bytes, int]:
        """Its answer and exit code, once it has ended and its outputs are in place. Raises `CaptureError` where it was
        ended, `OutputError`."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])
        os.close(self.ending)
        answer = b""
        with suppress(OSError):
            answer = next(reversed(self.outputs.values())).part.read_bytes()
        output.put_in_place(self.outputs)
        if code in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP):
            return answer, 128 - code
        if code < 0:
            how = signal.Signals(-code).name
            self._fail("it took far more processor time than any capture" if how == "SIGXCPU" else how)
        return answer, code

    def kill(self) -> None:
        """End it, and take nothing from it."""
        os.kill(self.process_id, signal.SIGKILL)
        with suppress(CaptureError):
            self.end()

    def _fail(self, reason: str) -> NoReturn:
        raise CaptureError(f"{self.sources[0]}: the process that read it was ended ({reason})", code="reader-died")


def is_possible() -> bool:
    return sys.platform == "linux"


def close(sources: Sequence[Path]) -> None:
    """Call before a foreign file is opened. A command whose reading is sealed goes on in a child; its parent waits for
    it here and ends as it ends. Nothing happens elsewhere, and in the child.

    Raises `CaptureError` in the parent where the child was ended.
    """
    if not output.parents:
        return
    own = output.parents.pop()
    child = _fork(sources)
    if child is None:
        own.watch()
        return
    own.hand_over(child.process_id)
    _, code = child.end()
    stops.remove_unfinished()
    os._exit(code)


def begin(work: Callable[[], object], sources: Sequence[Path]) -> Child:
    """A sealed child that does the work, whose result can be written as JSON."""
    child = _fork(sources)
    if child is not None:
        return child
    try:
        if not os.environ.get("XSP_POST_DEBUG"):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        Path(tempfile.gettempdir(), _ANSWER).write_text(json.dumps(work()), encoding="ascii")
    finally:
        os._exit(0)


def _fork(sources: Sequence[Path]) -> Child | None:
    """None in the child, which is sealed."""
    private, lock = output.private_folder()
    output.handed[private] = output.Handed(private / _ANSWER, lambda part, target: None, lock)
    parent, (ending, own_end) = os.getpid(), os.pipe()
    sys.stdout.flush()
    process_id = os.fork()
    if process_id:
        os.close(own_end)
        child = Child(process_id, ending, dict(output.handed), sources)
        output.handed.clear()
        return child
    try:
        if (ask := children.end_with_parent()) is not None:
            ask()
        if os.getppid() != parent:
            os._exit(1)
        output.in_child[:] = [os.getpid()]
        stops.unfinished.clear()  # they are the parent's
        tempfile.tempdir = os.environ["TMPDIR"] = os.environ["SQLITE_TMPDIR"] = str(private)
        # SQLite asked for a folder when it was imported; it takes none whose name is no text (3.10: sqlite3.Warning)
        with suppress(sqlite3.Error, sqlite3.Warning, UnicodeError), closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("PRAGMA temp_store_directory = '{}'".format(str(private).replace("'", "''")))
        limit(sum(os.path.getsize(source) for source in sources if os.path.isfile(source)))
        if memory_bytes := limits.memory_bytes(sources):
            from xsp_post.base import on_disk  # with NumPy, which small sources may do without for a while

            on_disk.begin(memory_bytes)
        seal([one.part.parent for one in output.handed.values()])
        os.utime = lambda *_, **__: None  # type: ignore[assignment]  # refused: libraries set times of their own files
    except BaseException:  # it must never go on with its parent's work
        os._exit(1)
    return None


def limit(source_bytes: int) -> None:
    """The system ends this process where it takes far too much time, and denies too much memory."""
    if resource is None or limits.are_lifted():
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime + limits.CPU_S + source_bytes * limits.CPU_S_PER_BYTE
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for kind, most in ((resource.RLIMIT_CPU, int(cpu_s)), (resource.RLIMIT_DATA, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


# -- the seal -------------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on every processor
_EXECUTE, _WRITE, _READ, _TRUNCATE = 1, 1 << 1, 1 << 2 | 1 << 3, 1 << 14  # linux/landlock.h
_OF_VERSION = {1: 13, 2: 14}  # how many rights a version of Landlock knows; later ones also _TRUNCATE
_IN_FOLDER = _WRITE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | _TRUNCATE  # to remove, to make folders and files
_NETWORK, _SCOPES = 1 | 2, 1 | 2  # TCP; abstract sockets and signals
_MACHINES = {"x86_64": (1, 0xC000003E), "aarch64": (2, 0xC00000B7)}  # column of the table, number for audit
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IS, _IS_FROM, _RETURN, _ALLOW, _REFUSE = 0x20, 0x15, 0x35, 0x06, 0x7FFF0000, 0x00050001  # with EPERM
_FOREIGN_CALLS = 0x40000000  # of x32


def seal(writable: Sequence[Path]) -> tuple[bool, bool]:
    """This process writes to these folders only, runs no program but Python, opens no socket: for good.

    Whether Landlock and seccomp are there.
    """
    kernel = ctypes.CDLL(None, use_errno=True)
    kernel.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return _landlock(kernel.syscall, writable), _seccomp(kernel.prctl)


def _landlock(call: Callable[..., int], writable: Sequence[Path]) -> bool:
    version = call(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    handled = (1 << _OF_VERSION.get(version, 15)) - 1 & ~_READ
    rules = struct.pack("QQQ", handled, _NETWORK if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    ruleset = call(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").split()
    loaders = {word for word in maps if "/ld-" in word and os.path.isfile(word)}  # with which the system starts Python
    allowed = [(str(folder), handled & _IN_FOLDER) for folder in writable]
    allowed += [(program, _EXECUTE) for program in (sys.executable, *loaders)]  # such children are sealed as this one
    for path, rights in (*allowed, (os.devnull, handled & (_WRITE | _TRUNCATE))):
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, handle), 0)
        os.close(handle)
    return ruleset >= 0 and call(_RESTRICT_SELF, ruleset, 0) == 0


def _seccomp(prctl: Callable[..., int]) -> bool:
    column, machine = _MACHINES.get(platform.machine(), (0, 0))
    if not column:
        return False
    lines = Path(__file__).with_name("sealed_calls.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if not line.startswith("#")]
    numbers = [int(word[column]) for word in words if word[column] != "-"]
    refuse = (_RETURN, 0, 0, _REFUSE)
    steps = [(_LOAD, 0, 0, 4), (_IS, 1, 0, machine), refuse, (_LOAD, 0, 0, 0), (_IS_FROM, 0, 1, _FOREIGN_CALLS), refuse]
    for number in numbers:
        steps += [(_IS, 0, 1, number), refuse]
    steps.append((_RETURN, 0, 0, _ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    whole = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    return prctl(_SET_SECCOMP, _FILTER, ctypes.c_char_p(whole), 0, 0) == 0
