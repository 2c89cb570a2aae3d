"""Captures in: what may be wrong or odd with an Nsight Systems export (docs/messages.md)."""

from __future__ import annotations

from xsp_post.base.errors import MESSAGES
from xsp_post.base.findings import CATALOGUE, INFO, WARNING, Entry

MESSAGES.update(
    {
        "capture-no-export": (
            "The file is a database or folder, but none of the tables that every Nsight Systems export has are in it.",
            "Give the output of `nsys export -t sqlite`; DLProf and nvprof databases are not exports.",
        ),
    }
)

CATALOGUE.update(
    {
        "diagnostic-event": Entry(
            WARNING,
            "nsys reported a problem while recording",
            "The capture's DIAGNOSTIC_EVENT table holds warnings or errors of the recording itself.",
            "Read the example; record again when it says that events were lost or a feature was not available.",
        ),
        "partial-export": Entry(
            WARNING,
            "The export covers part of the recording only",
            "nsys export ran with --tables, --times or a time shift, so rows outside are missing.",
            "Export without those options: nsys export -t sqlite REPORT.nsys-rep",
        ),
        "domain-without-name": Entry(
            INFO,
            "NVTX domains without a name",
            "The rows that name a domain are missing, as they are in captures cut to a window.",
            "Harmless: ranges are shown under domain-N; record the whole run to get names.",
        ),
        "cross-thread-ranges": Entry(
            INFO,
            "Start/end ranges closed by another thread",
            "Such a range belongs to no one thread, so it cannot nest.",
            "Shown beside the tree, without kernels; use push/pop, or close a range where it was opened.",
        ),
        "non-utf8-text": Entry(
            INFO,
            "Text that is not UTF-8",
            "The profiled machine wrote texts in another code page.",
            "Unreadable bytes are shown as \ufffd; set a UTF-8 locale when recording.",
        ),
        "module-loading": Entry(
            WARNING,
            "Modules were loaded or compiled while recording",
            "CUDA loads a kernel's code at its first launch; that time sits in the iterations where it happened.",
            "Run more warm-up iterations before the capture range opens, or set CUDA_MODULE_LOADING=EAGER.",
        ),
        "unknown-schema": Entry(
            WARNING,
            "Export schema newer than any we have seen",
            "The major schema version is above 3; columns may have changed meaning.",
            "Compare totals with nsys stats, and tell us the version.",
        ),
    }
)
