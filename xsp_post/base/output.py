"""Writing of all output files: a file appears complete or not at all.

What is being written is locked under its temporary name. A command that was killed leaves such a file unlocked: the
next command that writes to its folder removes it.
"""

import errno
import json
import os
import re
import secrets
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from xsp_post.base import stops
from xsp_post.base.errors import OutputError
from xsp_post.base.text_safety import shell_word

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_Put = Callable[[Path, Path], None]


@contextmanager
def atomic_output(path: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; on leaving the block it becomes ``path`` in one step.

    The temporary file exists (empty) and has ``path``'s suffixes, so that writers which look at the
    suffix work; closing it before the block ends is the caller's duty. On any failure, also
    KeyboardInterrupt, the temporary file is removed and an existing ``path`` stays as it was.

    Raises OutputError (exit 6): ``path`` exists and ``force`` is false (`output-exists`), is a folder or
    its folder is missing (`output-folder`), cannot be written (`output-denied`), the disk is full
    (`output-full`), or any other failure of the system (`output-failed`).
    """
    target = _followed(Path(path))
    _check_target(target, force)
    temporary, put = _part(target, _suffix(target), partial(_put_file, force=force))
    with _unfinished(target, temporary, lambda: temporary.open("ab").close()):
        yield temporary
        _sync(temporary)
        put(temporary, target)
    _sync_folder(target.parent)


def write_text(path: str | os.PathLike[str], text: str, force: bool = False) -> None:
    """A text as a file in UTF-8. Raises OutputError as `atomic_output` does."""
    with atomic_output(path, force) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_note(path: Path) -> Any:
    """What a small JSON file of ours says; None where there is none, or it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def atomic_folder(path: str | os.PathLike[str], force: bool = False, owned: str = "*") -> Iterator[Path]:
    """A temporary folder beside ``path`` to fill; on leaving the block it becomes ``path``.

    With ``force`` an existing folder of files that match ``owned`` (a pattern such as ``*.csv``) is put aside
    first and removed after the new one is in place. Raises OutputError as `atomic_output` does, also for an
    existing folder that holds anything else.
    """
    target = Path(path)
    _check_folder(target, force, owned)
    temporary, put = _part(target, "", _put_folder)
    with _unfinished(target, temporary, partial(temporary.mkdir, exist_ok=True)):
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        put(temporary, target)
    _sync_folder(target.parent)


def _put_file(temporary: Path, target: Path, force: bool) -> None:
    if not force and os.path.lexists(target):  # somebody else wrote it meanwhile
        raise _exists(target)
    os.replace(temporary, target)


def _put_folder(temporary: Path, target: Path) -> None:
    """What is there is put aside first and removed after the new one is in place."""
    old, held, was_there = _free_name(target, ".old"), 0, target.exists()
    try:
        if was_there:
            held = _opened(target)
            _lock(held)
            os.replace(target, old)
        try:
            os.replace(temporary, target)
        except OSError:
            if was_there:
                os.replace(old, target)
            raise
    finally:
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        if held:
            os.close(held)


@contextmanager
def _unfinished(target: Path, temporary: Path, make: Callable[[], object]) -> Iterator[None]:
    """What is being written, made and locked; gone when the block ends. Failures of the system are `OutputError`s."""
    lock = 0
    stops.unfinished.add(temporary)  # listed before it exists: a signal may come at any moment
    try:
        try:
            lock = _made(make, temporary)
            yield
        except sqlite3.OperationalError as error:
            raise _database_failure(target, error) from error
        except OSError as error:
            # only what concerns this output is translated: a source that cannot be read is not ours
            if isinstance(error, BrokenPipeError) or not _concerns(error, temporary, target):
                raise
            raise failure(target, error) from error
    finally:
        stops.remove(temporary)
        if lock:
            os.close(lock)


def make_folder(path: Path) -> None:
    """A folder for outputs, made with those above it where it is missing. Raises OutputError, also where it cannot
    be listed or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        os.listdir(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "", str(path))
    except OSError as error:
        raise failure(path, error) from error


def private_folder(beside: Path | None = None) -> tuple[Path, int]:
    """A folder beside a path, else in the system's temporary folder, for this user only, and what keeps it locked; gone
    when the command ends."""
    folder = _free_name(beside or Path(tempfile.gettempdir(), "xsp-post"), ".part")
    stops.unfinished.add(folder)
    return folder, _made(partial(folder.mkdir, 0o700, exist_ok=True), folder)


def require_free(path: str | os.PathLike[str], force: bool = False) -> None:
    """Raise what `atomic_output` would raise before any work is done: the output exists, its folder does not."""
    target = _followed(Path(path))
    _check_target(target, force)
    if parents:
        for_child(target, partial(_put_file, force=force))


def require_free_folder(path: str | os.PathLike[str], force: bool = False, owned: str = "*") -> None:
    """`require_free` for `atomic_folder`. An existing folder is only ever replaced when ``force`` is set and it
    holds nothing but files that match ``owned``: ``-o ~ --force`` must not empty a home folder."""
    _check_folder(Path(path), force, owned)
    if parents:
        for_child(Path(path), _put_folder)


def _check_folder(target: Path, force: bool, owned: str) -> None:
    _status(target)
    if os.path.lexists(target) and not force:
        raise _exists(target)
    _check_parent(target)
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise OutputError(f"{target} is not a folder, but a folder must be written there.", code="output-folder")
    try:
        foreign = next((entry for entry in target.iterdir() if not (entry.is_file() and entry.match(owned))), None)
    except OSError as error:
        raise failure(target, error) from error
    if foreign is not None:
        raise OutputError(
            f"{target} holds {foreign.name}, which is not ours; the folder was left as it is.", code="output-folder"
        )


def _check_target(target: Path, force: bool) -> None:
    mode = _status(target)
    if mode is not None and stat.S_ISDIR(mode):
        raise OutputError(f"{target} is a folder, and a file is to be written there.", code="output-folder")
    if mode is not None and not stat.S_ISREG(mode):  # a link that is still one names no file (`_followed`)
        kind = "a link to nothing" if stat.S_ISLNK(mode) else "a device or a pipe"
        raise OutputError(f"{target} is {kind}. It is not replaced by a file.", code="output-no-file")
    if mode is not None and not force:
        raise _exists(target)
    _check_parent(target)


def _followed(path: Path) -> Path:
    """The file that a link names, to be replaced in its place; the link stays."""
    return Path(os.path.realpath(path)) if os.path.islink(path) and os.path.exists(path) else path


def _status(target: Path) -> int | None:
    """Mode of what is there, None for nothing. OutputError where the system does not say."""
    try:
        return os.lstat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise failure(target, error if isinstance(error, OSError) else OSError(errno.EINVAL, "")) from error


def _check_parent(target: Path) -> None:
    if not os.path.isdir(target.parent):
        raise OutputError(
            f"The folder of {target} does not exist.",
            code="output-folder",
            hint=f"Make it first: mkdir -p {shell_word(target.parent)}.",
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise failure(target, PermissionError(errno.EACCES, ""))


# -- outputs of a sealed child (`base.sealed`) ---------------------------------------------------------------


class Handed(NamedTuple):
    """Where the child writes an output, what puts it in place, and what keeps that folder locked until then."""

    part: Path
    put: _Put
    lock: int


parents: list[stops.Stops] = []  # of a command that will read in a sealed child: its outputs are made known before
handed: dict[Path, Handed] = {}
in_child: list[int] = []  # of the child: its id


def for_child(target: Path, put: _Put = os.replace) -> None:
    """A sealed child will write this output. Raises OutputError."""
    try:
        place, lock = private_folder(target)
    except OSError as error:
        raise failure(target, error) from error
    handed[target] = Handed(place / f"part{_suffix(target)}", put, lock)


def put_in_place(outputs: dict[Path, Handed]) -> None:
    """In the parent: what the child has finished. Raises OutputError."""
    try:
        for target, one in outputs.items():
            done = one.part.with_name("done")
            if done.exists():
                one.put(done, target)
                _sync_folder(target.parent)
    except OSError as error:
        raise failure(target, error) from error
    finally:
        for one in outputs.values():
            stops.remove(one.part.parent)
            os.close(one.lock)


def written(target: Path) -> Path:
    """Where a finished output lies now."""
    return handed[target].part.with_name("done") if target in handed else target


def _part(target: Path, suffix: str, put: _Put) -> tuple[Path, _Put]:
    """Where an output is written, and what puts it in place."""
    if in_child and target in handed:
        return handed[target].part, lambda part, target: os.replace(part, written(target))
    return _free_name(target, f".part{suffix}"), put


def _suffix(target: Path) -> str:
    """That of a file; a name full of dots has none worth keeping."""
    suffix = "".join(target.suffixes[-2:])
    return suffix if len(suffix) <= 40 and suffix.isascii() else ""


# -- temporary names ----------------------------------------------------------------------------------------

_LEFT_BEHIND = re.compile(
    r"\.(?P<name>.*)\.xsp-[a-z0-9_]{8}\.(?P<what>part|old)(\.[^/]{1,40})?(?<!-journal)(?<!-wal)(?<!-shm)"
)
_cleared: set[Path] = set()  # folders that this process has looked at


def _free_name(target: Path, suffix: str) -> Path:
    """A path in the target's folder that nobody else uses. What killed commands left there is cleared away first."""
    for folder in (target.parent, Path(tempfile.gettempdir())):
        _clear(folder)
    name = os.fsencode(target.name)[:100].decode("utf-8", "ignore")
    return target.with_name(f".{name}.xsp-{secrets.token_hex(4)}{suffix}")


def _made(make: Callable[[], object], path: Path) -> int:
    """The handle that keeps what ``make`` makes locked; made again where another command took it for left behind."""
    while True:
        make()
        with suppress(FileNotFoundError):  # taken away before it was opened
            handle = _opened(path)
            if _lock(handle) is not False and path.exists():
                return handle
            os.close(handle)


def _opened(path: Path) -> int:
    """A handle to lock; 0 on Windows, where what is open cannot be renamed."""
    return os.open(path, os.O_RDONLY) if fcntl is not None else 0


def _lock(handle: int) -> bool | None:
    """Whether this process has the lock now; None on a system or file system without locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _clear(folder: Path) -> None:
    """Remove what killed commands of this user left in a folder; an old folder whose new one is missing returns."""
    if fcntl is None or folder in _cleared:  # without locks nobody knows what is still being written
        return
    _cleared.add(folder)
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            found = _LEFT_BEHIND.fullmatch(entry.name)
            if found is None or entry.is_symlink() or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            with suppress(OSError):
                handle = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    if not _lock(handle):
                        continue
                    before = folder / found["name"]
                    if found["what"] == "old" and len(os.fsencode(found["name"])) < 100 and not before.exists():
                        os.replace(entry.path, before)
                    else:
                        stops.remove(Path(entry.path))
                finally:
                    os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY if fcntl is not None else os.O_RDWR)  # Windows syncs what it may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; some file systems cannot, and the content is safe already."""
    with suppress(OSError):
        _sync(folder)


def _concerns(error: OSError, temporary: Path, target: Path) -> bool:
    """Whether an error is about this output: it names it, or names no file at all (a failed write)."""
    if error.filename is None:
        return True
    names = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, (str, bytes))]
    return any(name.startswith((str(temporary), str(target))) for name in names)


def _exists(target: Path) -> OutputError:
    return OutputError(f"{target} exists already. It was not changed.", code="output-exists")


_OF_SQLITE = (
    ("full", errno.ENOSPC), ("readonly", errno.EACCES), ("unable to open", errno.EACCES), ("disk I/O", errno.EIO),
)  # fmt: skip


def _database_failure(target: Path, error: sqlite3.OperationalError) -> Exception:
    number = next((number for part, number in _OF_SQLITE if part in str(error)), 0)
    # a wrong statement is a defect of ours, not of the disk
    return failure(target, OSError(number, str(error))) if number else error


def failure(target: Path, error: OSError) -> OutputError:
    """What the system refuses to write, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(f"{target} was not written: the disk is full.", code="output-full")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OutputError(
            f"{target} was not written: it or its folder cannot be written to ({os.strerror(error.errno)}).",
            code="output-denied",
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(f"{target} was not written: {reason}.", code="output-failed")
