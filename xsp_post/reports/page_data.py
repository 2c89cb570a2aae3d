"""Blocks → the JSON that the page's script reads. Columns, not rows; each text once."""

import json
from collections.abc import Iterable
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from xsp_post.model.results import with_unknown
from xsp_post.model.schemas.views import titles_of
from xsp_post.reports import theme
from xsp_post.reports.blocks import Block, Chart, Drawing, Table
from xsp_post.reports.text import StringTable, plain, shorten, visible

# Name columns of tables: shown short in a fixed-width face, in full on demand.
_CANVAS_FROM = 1500  # more marks than this are drawn on a canvas instead of as SVG elements
_OF_TREE = (
    "parent", "level", "call_count", "host_ns", "device_ns", "busy_ns", "kernel_count", "layer_index", "is_inferred",
)  # fmt: skip


def escape_json(value: Any) -> str:
    """JSON that may stand inside a script element: no `<`, `>`, `&`, and only ASCII."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class PageData:
    """Collects what the sections need: strings, tables, charts with their data sets, drawings."""

    def __init__(self) -> None:
        self.strings = StringTable()
        self.tables: dict[str, Any] = {}
        self.charts: dict[str, Any] = {}
        self.datasets: dict[str, Any] = {}
        self.drawings: dict[str, Any] = {}

    def to_json(self) -> str:
        """The whole, escaped for a script element."""
        return escape_json(
            {
                "strings": self.strings.texts,
                **{name: getattr(self, name) for name in ("tables", "charts", "datasets", "drawings")},
                "dark": theme.dark_colors(),
                "config": {"light": theme.config(), "dark": theme.config(dark=True)},
            }
        )

    def add(self, blocks: Iterable[Block]) -> None:
        """What the page's script shows of blocks."""
        for block in blocks:
            if isinstance(block, Table):
                self.add_table(block)
            elif isinstance(block, Drawing):
                make = {"icicle": self._icicle, "timeline": self._timeline}[block.kind]
                self.drawings[block.id] = make(block.data)
            elif isinstance(block, Chart):
                self.add_chart(block)

    def add_table(self, table: Table) -> None:
        """A table's columns with text, sort values and full names."""
        frame = table.frame.reset_index(drop=True)
        titles = titles_of(table.table, table.columns)
        numbers = with_unknown(table.table, frame)
        columns = [self._table_column(table, frame[name], numbers[name], titles[name]) for name in table.columns]
        shown = len(frame)
        note = ""
        if shown < table.row_count:
            note = f"{shown:,} of {table.row_count:,} rows are on this page"
            note += f"; all of them: {table.command}" if table.command else ""
        self.tables[table.id] = {
            "id": table.id,
            "caption": table.caption,
            "columns": columns,
            "count": shown,
            "visible": table.visible_rows,
            "note": note,
            "span": frame[["from_ns", "to_ns"]].to_numpy().tolist() if "from_ns" in frame else None,
            "layer": frame["layer_index"].astype("int64").tolist() if "layer_index" in frame else None,
        }

    def _table_column(self, table: Table, values: pd.Series, numbers: pd.Series, title: str) -> dict[str, Any]:
        name = str(values.name)
        column: dict[str, Any] = {
            "key": name,
            "title": title,
            "help": theme.meaning_of(table.table, name),
            "align": "text",
        }
        if theme.is_number(values):
            column |= {"align": "num", "text": theme.text_of(values, name), "raw": [plain(v) for v in numbers.tolist()]}
            if name in table.bars:
                top = float(np.nanmax(values.to_numpy("float64"))) if len(values) else 0.0
                share = values.to_numpy("float64") / top if top > 0 else np.zeros(len(values))
                column["bar"] = [round(float(max(s, 0.0)), 4) if s == s else 0 for s in share]
        elif name in table.short or name.endswith(("name", "_path")):
            full = [visible(v) for v in values.tolist()]
            shortener = table.short.get(name)
            short = shortener(values).tolist() if shortener else [shorten(v) for v in full]
            column |= {
                "align": "name",
                "name": True,
                "short": self.strings.numbers(short),
                "full": self.strings.numbers(full),
            }
        else:
            column["text"] = theme.text_of(values, name)
            column["tag"] = name == "bound"
        return column

    def add_chart(self, chart: Chart) -> None:
        """A chart and its alternatives; equal data sets are stored once."""
        forms = [("", chart.chart), *chart.alternatives]
        specs = []
        marks = 0
        for _, form in forms:
            with alt.data_transformers.disable_max_rows(), alt.data_transformers.enable("default"):
                spec = form.to_dict(validate=False)
            names = list(spec.get("datasets", {}))
            for name, rows in spec.pop("datasets", {}).items():
                marks = max(marks, len(rows))
                self.datasets.setdefault(name, self._dataset(rows))
            spec.pop("config", None)
            specs.append({"spec": spec, "datasets": names})
        first = specs[0]["spec"]
        self.charts[chart.id] = {
            "specs": specs,
            "fluid": isinstance(first.get("width"), (int, float)),
            "file": f"xsp-{chart.id}",
            "canvas": marks > _CANVAS_FROM,
        }

    def _dataset(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            texts = [value for value in values if isinstance(value, str)]
            if texts and len(texts) == len(values):
                columns[str(name)] = {"s": self.strings.numbers(texts)}
            else:
                columns[str(name)] = {"v": values}
        return columns

    def _icicle(self, data: dict[str, Any]) -> dict[str, Any]:
        frame = data["tree"]
        return {
            **{c: frame[c].tolist() for c in _OF_TREE},
            "name": self.strings.numbers(shorten(n, 90) for n in frame["name"]),
            "full_name": self.strings.numbers(frame["full_name"]),
        }

    def _timeline(self, data: dict[str, Any]) -> dict[str, Any]:
        events = data["events"]
        groups = ["layers", "path", "streams", "idle", "ranges", "launches"]
        lanes = events.groupby(["group", "lane"], sort=False, observed=True)
        lanes = lanes.agg(rows=("sub", "max"), first=("start_ns", "min")).reset_index()
        place = lanes["group"].map(groups.index)
        lanes = lanes.loc[lanes.assign(place=place).sort_values(["place", "first"], kind="stable").index]
        number = {key: i for i, key in enumerate(zip(lanes["group"], lanes["lane"]))}
        columns = ["start_ns", "end_ns", "busy_ns", "sub", "layer_index", "queue_delay_ns", "launch_start_ns",
                   "event_count"]  # fmt: skip
        return {
            "length_ns": int(data["length_ns"]),
            "begins_ns": data["start_ns"],
            "windows": data["windows"],
            "lanes": [{"group": group, "label": lane, "rows": int(rows) + 1}
                      for group, lane, rows in zip(lanes["group"], lanes["lane"], lanes["rows"])],
            "lane": [number[key] for key in zip(events["group"], events["lane"])],
            "launch_lane": [number.get(("launches", lane), -1) for lane in events["launch_lane"]],
            **{column: events[column].astype("int64").tolist() for column in columns},
            "kind": events["kind"].astype(str).tolist(),
            "is_inferred": events["is_inferred"].astype(bool).tolist(),
            "name": self.strings.numbers(shorten(n, 90) for n in events["name"]),
            "full_name": self.strings.numbers(events["full_name"]),
        }  # fmt: skip
