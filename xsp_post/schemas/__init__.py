"""Every column of every table: dtype, unit, meaning. docs/columns.md is generated from here and a
column without a meaning fails the build.

Units live in the column's suffix (`_ns _bytes _flop _flop_per_s _bytes_per_s _ratio _count _index _id
_name`; bool `is_…`); the statistic comes first (`median_duration_ns`).
"""

from xsp_post.schemas.base import TABLES, Column, Table, column_names, optional_columns, unit_of

__all__ = ["TABLES", "Column", "Table", "column_names", "optional_columns", "unit_of"]

from xsp_post.schemas import analyses as _analyses  # noqa: F401  (registers its tables)
from xsp_post.schemas import fleet as _fleet  # noqa: F401
from xsp_post.schemas import gpu_samples as _gpu_samples  # noqa: F401
from xsp_post.schemas import memory as _memory  # noqa: F401
from xsp_post.schemas import replay as _replay  # noqa: F401
from xsp_post.schemas import results as _results  # noqa: F401
from xsp_post.schemas import waits as _waits  # noqa: F401
from xsp_post.schemas import work as _work  # noqa: F401
