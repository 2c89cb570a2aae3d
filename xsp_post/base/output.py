"""Writing of all output files: a file appears complete or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from xsp_post.base import stops
from xsp_post.base.errors import OutputError


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
    target = Path(path)
    _check_target(target, force)
    suffix = "".join(target.suffixes[-2:])
    # a name full of dots has no suffix worth keeping
    temporary = _free_name(target, f".part{suffix if len(suffix) <= 40 else ''}")
    # listed before it exists: a signal may come at any moment
    stops.unfinished.add(temporary)
    try:
        try:
            temporary.open("xb").close()
            yield temporary
            _sync(temporary)
            if not force and os.path.lexists(target):  # somebody else wrote it meanwhile
                raise _exists(target)
            os.replace(temporary, target)
        except sqlite3.OperationalError as error:
            raise _database_failure(target, error) from error
        except OSError as error:
            # only what concerns this output is translated: a source that cannot be read is not ours
            if isinstance(error, BrokenPipeError) or not _concerns(error, temporary, target):
                raise
            raise _failure(target, error) from error
    finally:
        stops.remove(temporary)
    _sync_folder(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], force: bool = False, owned: str = "*") -> Iterator[Path]:
    """A temporary folder beside ``path`` to fill; on leaving the block it becomes ``path``.

    With ``force`` an existing folder of files that match ``owned`` (a pattern such as ``*.csv``) is put aside
    first and removed after the new one is in place. Raises OutputError as `atomic_output` does, also for an
    existing folder that holds anything else.
    """
    target = Path(path)
    require_free_folder(target, force, owned)
    temporary = _free_name(target, ".part")
    old = temporary.with_suffix(".old")
    stops.unfinished.add(temporary)
    try:
        try:
            temporary.mkdir()
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            if target.exists():
                os.replace(target, old)
                try:
                    os.replace(temporary, target)
                except OSError:
                    os.replace(old, target)
                    raise
            else:
                os.replace(temporary, target)
        except OSError as error:
            if isinstance(error, BrokenPipeError) or not _concerns(error, temporary, target):
                raise
            raise _failure(target, error) from error
    finally:
        stops.remove(temporary)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
    _sync_folder(target.parent)


def require_free(path: str | os.PathLike[str], force: bool = False) -> None:
    """Raise what `atomic_output` would raise before any work is done: the output exists, its folder does not."""
    _check_target(Path(path), force)


def require_free_folder(path: str | os.PathLike[str], force: bool = False, owned: str = "*") -> None:
    """`require_free` for `atomic_folder`. An existing folder is only ever replaced when ``force`` is set and it
    holds nothing but files that match ``owned``: ``-o ~ --force`` must not empty a home folder."""
    target = Path(path)
    if os.path.lexists(target) and not force:
        raise _exists(target)
    _check_parent(target)
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise OutputError(
            f"{target} is not a folder, but a folder must be written there.",
            code="output-folder",
            hint="Name another folder with -o.",
        )
    foreign = next((entry for entry in target.iterdir() if not (entry.is_file() and entry.match(owned))), None)
    if foreign is not None:
        raise OutputError(
            f"{target} holds {foreign.name}, which is not ours; the folder was left as it is.",
            code="output-folder",
            hint="Name another folder with -o.",
        )


def _check_target(target: Path, force: bool) -> None:
    if target.is_dir():
        raise OutputError(
            f"{target} is a folder, and a file is to be written there.",
            code="output-folder",
            hint="Name a file with -o.",
        )
    if os.path.lexists(target) and not force:
        raise _exists(target)
    _check_parent(target)


def _check_parent(target: Path) -> None:
    if not target.parent.is_dir():
        raise OutputError(
            f"The folder of {target} does not exist.",
            code="output-folder",
            hint=f"Make it first: mkdir -p '{target.parent}'.",
        )


def _free_name(target: Path, suffix: str) -> Path:
    """A path in the target's folder that nobody else uses."""
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}{suffix}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
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
    return OutputError(
        f"{target} exists already. It was not changed.",
        code="output-exists",
        hint="Use --force to replace it, or name another output with -o.",
    )


def _database_failure(target: Path, error: sqlite3.OperationalError) -> Exception:
    text = str(error)
    if "full" in text:
        return _failure(target, OSError(errno.ENOSPC, text))
    if "readonly" in text or "unable to open" in text:
        return _failure(target, OSError(errno.EACCES, text))
    if "disk I/O" in text:
        return _failure(target, OSError(errno.EIO, text))
    return error  # a wrong statement is a defect of ours, not of the disk


def _failure(target: Path, error: OSError) -> OutputError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutputError(
            f"{target} was not written: the disk is full.",
            code="output-full",
            hint="Make room, or write to another disk with -o.",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return OutputError(
            f"{target} was not written: its folder cannot be written to ({os.strerror(error.errno)}).",
            code="output-denied",
            hint="Name another output with -o.",
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(
        f"{target} was not written: {reason}.",
        code="output-failed",
        hint="Name another output with -o.",
    )
