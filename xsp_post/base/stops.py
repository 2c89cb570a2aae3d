"""Ctrl-C, kill and a closed terminal end a command cleanly within two seconds, even inside a library call."""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_GRACE_S = 1.5
_AGAIN_S = 0.02
_TO_CONCLUDE_S = 2.0  # for what is written when child processes have ended: on a busy disk, too
_LOOK_S = 0.05
_held = [0, 0]  # how deep in `held`, and whether a signal came meanwhile
_until_s = [0.0]  # the clean-up that is known to go on may take so long (`give_time`)
unfinished: set[Path] = set()  # outputs that are being written, under their temporary names (`base.output`)


class Stops:
    """Turns the first such signal into a KeyboardInterrupt, so that what is half-written is cleared away.

    The next one is ignored, because the clean-up takes a moment; one more ends the process as the system does. A
    thread of its own ends the process when the main thread does not get there: inside a library (SQLite, a
    decompression) Python handles no signal, and a library may drop the exception. Where child processes are ended,
    which takes its time, `give_time` says so.
    """

    def __init__(self) -> None:
        self.received = 0
        self.is_finished = False
        self.numbers = []
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._stop)
                self.numbers.append(int(number))
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, lambda number, frame: self._interrupt(frame))
            sys.unraisablehook = self._unraisable
        if not os.environ.get("XSP_POST_DEBUG"):
            threading.excepthook = lambda failed: None  # who waits for a thread sees that it ended, and says so
        if hasattr(os, "pipe2"):
            self.watch()

    def hand_over(self, child: int) -> None:
        """From here on a signal is the child's, whose end is that of this process."""
        signal.set_wakeup_fd(-1)
        for number in self.numbers:
            signal.signal(number, lambda number, frame: os.kill(child, number))

    def finish(self) -> None:
        """The command has ended: from here on a signal is noted, and interrupts nothing."""
        self.is_finished = True

    def sentence(self, number: int = 0) -> str:
        """What is said at the end."""
        return "xsp-post: " + ("terminated" if (number or self.received) == signal.SIGTERM else "interrupted")

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            signal.signal(number, signal.SIG_DFL)
            return
        self.received = number
        self._interrupt(frame)

    def _interrupt(self, frame: FrameType | None) -> None:
        if _held[0]:
            _held[1] = 1
        elif not self.is_finished and _is_called_by_numpy(frame):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)  # which would take it for a lack of memory
        elif not self.is_finished:
            raise KeyboardInterrupt

    def _unraisable(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """An interrupt inside a destructor or a callback around a fork is dropped by Python: repeat it after that."""
        if unraisable.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            sys.__unraisablehook__(unraisable)

    def watch(self) -> None:
        """The system writes each signal's number into a pipe at once, whatever the main thread does."""
        reads, writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writes, False)
        signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        # a child that is forked would write its own signals into our pipe
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=self._end_late, args=(reads,), daemon=True).start()

    def _end_late(self, reads: int) -> None:
        while (said := os.read(reads, 1)) and said[0] not in self.numbers:
            pass
        if not said:
            return
        began_s = time.monotonic()
        while time.monotonic() < max(began_s + _GRACE_S, _until_s[0]):
            time.sleep(_LOOK_S)
        remove_unfinished()
        with suppress(OSError):
            os.write(2, b"" if self.is_finished else f"{self.sentence(said[0])}\n".encode())
        os._exit(128 + said[0])


def _is_called_by_numpy(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") != "xsp_post.base.on_disk":
        frame = frame.f_back
    return frame is not None


@contextmanager
def held() -> Iterator[None]:
    """A step that must not be cut in two: a signal interrupts at its end."""
    _held[0] += 1
    try:
        yield
    finally:
        _held[0] -= 1
        if _held[1] and not _held[0]:
            _held[1] = 0
            raise KeyboardInterrupt


def give_time(seconds: float = 0) -> None:
    """Child processes are ended now: a signal leaves so long for it, and time for what is then written."""
    _until_s[0] = max(_until_s[0], time.monotonic() + seconds + _TO_CONCLUDE_S)


def remove_unfinished() -> None:
    """Remove what is half-written, and folders for the time of the command; called when a command ends."""
    for path in list(unfinished):
        remove(path)


def remove(path: Path) -> None:
    """Remove an unfinished file or folder, with what SQLite leaves in the folder of a database."""
    shutil.rmtree(path, ignore_errors=True)
    for suffix in ("", "-journal", "-wal", "-shm"):
        with suppress(OSError):
            os.unlink(f"{path}{suffix}")
    unfinished.discard(path)
