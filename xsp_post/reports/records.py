"""A frame → rows of JSON-ready values: unknown is None."""

from typing import Any

import pandas as pd


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-ready dicts: missing values are None."""
    frame = frame.astype(object)
    rows: list[dict[Any, Any]] = frame.where(frame.notna(), None).to_dict("records")
    return rows
