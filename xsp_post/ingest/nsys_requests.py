"""Captures in: which tables and columns of an Nsight Systems export are read (`nsys_requests.txt`). No pandas here:
reading begins before the rest of the program is imported (`sqlite_tables.SqliteTables.read_ahead`)."""

from functools import lru_cache
from pathlib import Path

from xsp_post.base.texts import Block, read_blocks
from xsp_post.ingest.tables import NULL, Request, TableSource, WantedColumn, resolve

DEVICE_TABLES = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL", "memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memset": "CUPTI_ACTIVITY_KIND_MEMSET", "graph": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
}  # fmt: skip
MARK = 34  # event type of NVTX
PROCESS_BITS = -(1 << 24)  # of a global thread or process id; the others are those of the thread
NO_MEMORY_KIND = 7  # of srcKind and dstKind: 0 pageable, 1 pinned, 2 device …
_DEFAULTS: dict[str, int | bytes] = {"null": NULL, "-1": -1, "7": NO_MEMORY_KIND, "text": b""}


def requests(source: TableSource) -> dict[str, Request]:
    """One request per table of an export, by our name for it."""
    tables = source.tables()
    found = {}
    for name, (names, key, one_of, wants) in _read().items():
        if not names:  # columns of several tables
            continue
        known = [resolve(tables, table) for table in names]  # with a version suffix, it may be
        table = next((one for one in known if key in source.columns(one)), known[0])
        found[name] = Request(table, wants, one_of)
    return found


def launch_detail(block: str = "detail") -> list[str]:
    """Our names of the columns that say how a kernel was launched; ``group``: those that only new exports have."""
    return [want.alias for want in _read()[f"*{block}"][3]]


@lru_cache
def _read() -> dict[str, tuple[list[str], str, tuple[str, ...], tuple[WantedColumn, ...]]]:
    """Names of the table, the column that decides between them, columns of which one must be there, and those wanted;
    by our name."""
    found: dict[str, tuple[list[str], str, tuple[str, ...], tuple[WantedColumn, ...]]] = {}
    for block in read_blocks(Path(__file__).with_suffix(".txt")):
        wants = [
            want for _, line in block.lines for want in (found[line][3] if line in found else _column(block, line))
        ]
        title, _, one_of = block.title.partition(" one of ")
        names, _, key = title.partition(" with ")
        found[block.name] = names.split(), key, tuple(one_of.split()), tuple(wants)
    return found


def _column(block: Block, line: str) -> list[WantedColumn]:
    said, _, when_missing = line.partition("; ")
    raw, colon, rest = said.partition(": ")
    if not colon:
        block.refuse(f"{line!r} is no column")
    column, *others = raw.split("|")
    alias, *words = rest.split()
    default = next((_DEFAULTS[word] for word in words if word in _DEFAULTS), 0)
    return [WantedColumn(column, alias, default, "narrow" in words, "required" in words, tuple(others), when_missing)]
