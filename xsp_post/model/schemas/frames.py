"""The columns of the frames in memory, between a capture and its tables: those of a `Trace` and those of a `Tree`.

`frames.txt` has them, with the dtype in memory. SQLite has one integer type of 64 bits: what is int8 or int32 there is
int64 in every table of the store and after reading one.
"""

from pathlib import Path

from xsp_post.model.schemas.base import Table, read_tables

ANY_INTEGER = "int"  # of frames with a handful of rows, and of ids that are as small as their values allow

_FRAMES = read_tables(Path(__file__).with_name("frames.txt"))
TRACE_FRAMES = {name.removeprefix("trace."): frame for name, frame in _FRAMES.items() if name.startswith("trace.")}
TREE_FRAMES = {name.removeprefix("tree."): frame for name, frame in _FRAMES.items() if name.startswith("tree.")}
METRIC_COLUMNS = tuple(c.name for c in TRACE_FRAMES["gpu_samples"].columns if c.dtype == "float64")


def dtypes(frame: Table, *, with_optional: bool = False) -> dict[str, str]:
    """Column name → dtype of the columns that a frame always has, and of those that it may lack where asked."""
    columns = (*frame.columns, *frame.may_lack) if with_optional else frame.columns
    return {column.name: column.dtype for column in columns}
