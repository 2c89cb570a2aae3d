"""Results → Datasette's metadata beside a store: what tables and columns mean, and their units."""

import json
from pathlib import Path
from typing import Any

from xsp_post.base.output import atomic_output
from xsp_post.exporters.base import Written
from xsp_post.model.results import Results
from xsp_post.model.schemas import TABLES, unit_of


def write(
    results: Results, path: Path, *, capture_id: int | None = None, limit: int | None = None, force: bool = False
) -> Written:
    """``metadata.json`` for ``datasette STORE --metadata FILE``. Raises OutputError."""
    store = getattr(results, "path", None)
    database = Path(store).stem if store is not None else Path(path).name.split("_datasette")[0] + ".xsp"
    tables = {name: _table(name, results) for name in results.tables() if name in TABLES}
    document = {"title": "xsp-post", "databases": {database: {"tables": tables}}}
    with atomic_output(path, force) as temporary:
        temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return Written(Path(path), {"tables": len(tables)})


def _table(name: str, results: Results) -> dict[str, Any]:
    table = TABLES[name]
    units = {column.name: unit_of(column.name) for column in table.columns if unit_of(column.name) not in ("", "1")}
    meanings = {c.name: c.meaning + (f" [{units[c.name]}]" if c.name in units else "") for c in table.columns}
    return {
        "title": table.title,
        "description": f"One row per {table.one_row_per}.",
        "columns": meanings,
        "units": units,
    }
