"""One folder → the captures and stores in it that may be read; nothing outside it, whatever a link says."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

from xsp_post.base.errors import CaptureError, UsageError
from xsp_post.base.text_safety import file_name_text, shown
from xsp_post.ingest.formats import NSYS_REPORT
from xsp_post.ingest.sources import expand, sniff
from xsp_post.model.capture import FLEET_STORE, is_run_directory
from xsp_post.model.options import DEFAULTS, Options
from xsp_post.model.results import Results

_MOST_LISTED = 100
_MOST_LOOKED_AT = 2000
_MOST_FILES = 20_000
_KEPT = 4  # results kept in memory
_BESIDE = ("", "-wal", "-shm", "-journal")  # what SQLite reads beside a database


class Folder:
    """The sources of one folder, by their path in it."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"{root} is not a folder", code="agent-folder")
        self.root = root.resolve()
        self._kept: OrderedDict[tuple[Any, ...], Results] = OrderedDict()

    def path(self, name: str) -> Path:
        """The file or folder of that name. Raises `UsageError` where it lies outside, also through a link, or is
        not there."""
        try:
            path = (self.root / name).resolve()
            is_there = path.exists()
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
            raise self._outside(name) from None
        self._require_inside(path, name)
        if not is_there:
            raise UsageError(f"{_said(name)} is not in the folder", code="agent-missing")
        if path.is_dir():
            self._require_all_inside(path, name)
        else:
            for ending in _BESIDE:
                self._require_inside(Path(f"{path}{ending}").resolve(), name)
        return path

    def results(self, name: str, options: Options = DEFAULTS) -> Results:
        """The results of one source, or of the part of it that the options say; the last few are kept. Raises
        `XspPostError`."""
        from xsp_post.pipeline import part_of, results_of

        path = self.path(name)
        state = path.stat()
        key = (path, state.st_mtime_ns, state.st_size)
        self._require_readable(path, name)
        if key not in self._kept:
            self._kept[key] = results_of([path])
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return part_of(self._kept[key], options) if options.is_part else self._kept[key]

    def sources(self) -> dict[str, Any]:
        """What can be asked about: path in the folder, kind, size; at most a hundred."""
        found: list[dict[str, Any]] = []
        looked = 0
        for path in sorted(self.root.rglob("*")):
            looked += 1
            if looked > _MOST_LOOKED_AT or len(found) >= _MOST_LISTED:
                break
            kind = self._kind(path)
            if kind:
                size = path.stat().st_size if path.is_file() else None
                found.append({"source": file_name_text(str(path.relative_to(self.root))), "kind": kind, "bytes": size})
        is_all = looked <= _MOST_LOOKED_AT and len(found) < _MOST_LISTED
        return {"sources": found, "is_complete": is_all}

    def _kind(self, path: Path) -> str:
        try:
            inside = path.resolve().is_relative_to(self.root)
            if not inside:
                return ""
            if path.is_dir():
                return "run directory" if is_run_directory(path) else ""
            kind = sniff(path)
        except (CaptureError, OSError, RuntimeError):
            return ""
        return "" if kind == NSYS_REPORT else kind

    def _require_readable(self, path: Path, name: str) -> None:
        """Only what can be read without another program: a report that nsys must convert first is refused."""
        if path.is_dir() and (path / FLEET_STORE).is_file():
            return
        for one in expand([path]):
            self._require_inside(one.resolve(), name)
            if sniff(one) == NSYS_REPORT:
                raise UsageError(
                    f"{_said(name)} must be exported by nsys first, and nothing is written here",
                    code="agent-needs-export",
                )

    def _require_all_inside(self, folder: Path, name: str) -> None:
        for count, path in enumerate(folder.rglob("*")):
            if count >= _MOST_FILES:
                raise UsageError(f"{_said(name)} holds too many files", code="agent-missing", hint="name one file")
            self._require_inside(path.resolve(), name)

    def _require_inside(self, path: Path, name: str) -> None:
        if not path.is_relative_to(self.root):
            raise self._outside(name)

    @staticmethod
    def _outside(name: str) -> UsageError:
        return UsageError(f"{_said(name)} lies outside the folder that is served", code="agent-outside")


def part_options(iteration: int = -1, from_ns: int = -1, until_ns: int = -1) -> Options:
    """The options of a part; a number below 0 is not said."""
    chosen = (number if number >= 0 else None for number in (iteration, from_ns, until_ns))
    return Options(**dict(zip(("iteration", "begin_ns", "end_ns"), chosen)))  # type: ignore[arg-type]


def _said(name: str) -> str:
    return shown(name, 120)
