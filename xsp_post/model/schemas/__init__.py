"""Every column of every table, as text: `columns.txt` (tables), `frames.txt` (frames in memory), `views.txt` (labels).

Units live in the column's suffix (`_ns _bytes _flop _flop_per_s _bytes_per_s _ratio _count _index _id
_name`; bool `is_…`); the statistic comes first (`median_duration_ns`). docs/columns.md is made from `columns.txt`.
"""

from xsp_post.model.schemas.base import TABLES, Column, Table, column_names, optional_columns, unit_of

__all__ = ["TABLES", "Column", "Table", "column_names", "optional_columns", "unit_of"]
