"""Captures in: every source format, one row each: its suffixes, how a file of it is recognised, who reads it.

Plain data, imported before anything heavy. A new format is a module with a test and a reader, and one row here;
commands, batches and help texts look suffixes and titles up.
"""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from xsp_post.model.counters import CounterReport
    from xsp_post.model.trace import Trace

STORE, NSYS_SQLITE, NSYS_FOLDER, NSYS_REPORT = "store", "nsys-sqlite", "nsys-folder", "nsys-report"
NCU_REPORT, CLOCK, JAEGER, KINETO = "ncu-report", "clock", "jaeger", "kineto"


class SourceFormat(NamedTuple):
    """One row.

    ``recognise``: ``module:function`` of this package, path → bool; asked in the order of the rows. ``read``: the
    same for path → trace, counters, or (trace, counters or None). ``suffixes`` are what a file name ends with, and
    what is cut off for the stem; a file that is named by hand is recognised whatever it is called.
    """

    key: str
    tool: str  # files of one stem in several formats of nsys are one capture
    title: str  # in help texts and messages; "" where it is not named there
    suffixes: tuple[str, ...]
    recognise: str
    read: str
    is_folder: bool = False
    common_suffixes: tuple[str, ...] = ()  # the same, but most files of that name are something else: look inside

    def matches(self, path: Path) -> bool:
        """Whether the file (or folder) looks like one of this format."""
        if os.path.isdir(path) != self.is_folder:
            return False
        answer: bool = _function(self.recognise)(path)
        return answer

    def load(self, path: Path) -> "tuple[Trace | None, CounterReport | None]":
        """Read one source. Raises `CaptureError` and other errors of xsp-post."""
        from xsp_post.model.trace import Trace

        found = _function(self.read)(path)
        return found if isinstance(found, tuple) else (found, None) if isinstance(found, Trace) else (None, found)


# In this order they are recognised, and in this order one of several forms of a capture is chosen: reading an
# export needs no nsys.
FORMATS: tuple[SourceFormat, ...] = (
    SourceFormat(STORE, "xsp-post", "", (".xsp.sqlite",), "recognition:is_store", "recognition:refuse"),
    SourceFormat(NSYS_SQLITE, "nsys", "nsys export (.sqlite)", (".sqlite",), "files:is_sqlite", "nsys:read_sqlite"),
    SourceFormat(
        NSYS_FOLDER, "nsys", "nsys parquetdir or arrowdir", ("_pqtdir", "_arwdir"),
        "folder_tables:is_export", "nsys:read_folder", is_folder=True,
    ),
    SourceFormat(
        NSYS_REPORT, "nsys", ".nsys-rep", (".nsys-rep", ".qdrep"), "nsys_report:has_report_name", "nsys:read_report"
    ),
    SourceFormat(NCU_REPORT, "ncu", ".ncu-rep", (".ncu-rep",), "recognition:sniff_ncu", "ncu:read_ncu"),
    SourceFormat(CLOCK, "xsp-post", "", (), "recognition:sniff_clock", "clock:read_clock"),
    SourceFormat(
        JAEGER, "jaeger", "Jaeger trace", (".jaeger.json.gz", ".jaeger.json"),
        "recognition:sniff_jaeger", "jaeger:read_source",
    ),
    SourceFormat(
        KINETO, "torch", "PyTorch trace", (".pt.trace.json.gz", ".pt.trace.json"),
        "recognition:sniff_kineto", "kineto:read_kineto", common_suffixes=(".json.gz", ".json"),
    ),
)  # fmt: skip
BY_KEY = {one.key: one for one in FORMATS}


def _function(name: str) -> Callable[..., Any]:
    module, function = name.split(":")
    found: Callable[..., Any] = getattr(import_module(f"xsp_post.ingest.{module}"), function)
    return found


def of_name(name: str) -> SourceFormat | None:
    """The format with the longest suffix that a file name ends with; None where there is none."""
    ending = _ending(name)
    return next((one for one in FORMATS if ending in (*one.suffixes, *one.common_suffixes)), None)


def has_common_name(name: str) -> bool:
    """Whether most files that are called so are something else."""
    one = of_name(name)
    return one is not None and _ending(name) in one.common_suffixes


def stem_of(name: str) -> str:
    """A file's name without the suffix that says which format it is: ``run.pt.trace.json.gz`` → ``run``."""
    ending = _ending(name)
    return name[: -len(ending)] if ending and len(name) > len(ending) else name


def _ending(name: str) -> str:
    suffixes = (suffix for one in FORMATS for suffix in (*one.suffixes, *one.common_suffixes))
    return max((suffix for suffix in suffixes if name.lower().endswith(suffix)), key=len, default="")


def titles() -> str:
    """The formats in words, as help texts and messages list them."""
    named = [one.title for one in FORMATS if one.title]
    return ", ".join(named[:-1]) + f" or {named[-1]}"
