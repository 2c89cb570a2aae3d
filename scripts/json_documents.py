"""The JSON documents of the commands → one JSON Schema (draft 2020-12), which docs/json-schema.json holds.

Rows of tables follow from their columns; what is not a table is declared here.
"""

from typing import Any

from xsp_post.commands.shared import JSON_VERSION
from xsp_post.model.schemas import TABLES, Column, unit_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_TYPES: dict[str, list[str]] = {
    "int64": ["integer", "null"], "int32": ["integer", "null"], "int8": ["integer", "null"],
    "float64": ["number", "null"], "bool": ["boolean", "integer", "null"], "str": ["string", "null"],
}  # fmt: skip
TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": ["number", "null"]}
OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}


def document_schema() -> Schema:
    """The schema of every document that ``--json`` prints: its ``format`` says which one it is."""
    tables = {f"table_{name}": _row(table.columns, table.title) for name, table in TABLES.items()}
    commands = {f"command_{name}": _document(name, data) for name, data in _commands().items()}
    return {
        "$schema": DIALECT,
        "$comment": "Written by scripts/gen_docs; edit xsp_post/model/schemas, not this file.",
        "title": "What xsp-post prints with --json",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in commands],
        "$defs": {**commands, "quantity": _quantity(), "verdict": _verdict(), "finding": _finding(), **tables},
    }


def _commands() -> dict[str, Schema]:
    """The ``data`` of every command."""
    verdict, quantities = {"$ref": "#/$defs/verdict"}, {"type": "array", "items": {"$ref": "#/$defs/quantity"}}
    tree = ("captures", "devices", "execution_candidates", "paths", "operations", "balance", "findings")
    compared = ("summary", "totals", "causes", "names", "cases", "models", "layers", "kernels")
    return {
        "ingest": _object({"store": TEXT, "report": TEXT_OR_NULL, "verdict": verdict, "quantities": quantities,
                           "captures": _rows("captures"), "findings": _rows("findings")}),
        "tree": _object({"part": TEXT_OR_NULL, "verdict": verdict, "quantities": quantities,
                         **{name: _rows(name) for name in tree}}),
        "why": _object({"part": TEXT_OR_NULL, "verdict": verdict, "quantities": quantities,
                        "critical_path": TEXT_OR_NULL, "replay_note": TEXT_OR_NULL, "lead_in": TEXT_OR_NULL,
                        "coverage_note": TEXT_OR_NULL, "ranks": TEXT_OR_NULL, "capture": TEXT_OR_NULL,
                        "no_advice": TEXT_OR_NULL, "next_capture": TEXT_OR_NULL, "where": OBJECTS,
                        "causes": OBJECTS, "advice": OBJECTS}),
        "table": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/table_{name}"} for name in TABLES]}},
        "report": _object({"generator": TEXT, "part": TEXT_OR_NULL, "title": TEXT, "machine": TEXT, "facts": OBJECTS,
                           "balance": OBJECTS, "findings": OBJECTS, "sections": OBJECTS, "missing": OBJECTS}),
        "compare": _object({"base": TEXT, "other": TEXT, "base_part": TEXT_OR_NULL, "other_part": TEXT_OR_NULL,
                            "quantities": quantities,
                            **{name: _rows(f"compare_{name}") for name in compared}}),
        "what-if": _object({"part": TEXT_OR_NULL, "capture_id": COUNT, "source_name": TEXT, "execution": TEXT,
                            "execution_count": COUNT,
                            "error_ratio": NUMBER, "spread_ratio": NUMBER, "changes": OBJECTS, "predictions": OBJECTS,
                            "limit": TEXT, "limit_ratio": NUMBER, "limit_before": TEXT, "critical_path": OBJECTS}),
        "export": _object({"path": TEXT, "part": TEXT_OR_NULL, "to": TEXT,
                           "counts": {"type": "object", "additionalProperties": COUNT},
                           "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}}}),
        "run": _object({"directory": TEXT, "store": TEXT, "report": TEXT, "notes": {"type": "array", "items": TEXT},
                        "verdict": verdict, "models": OBJECTS, "layers": OBJECTS, "overheads": OBJECTS}),
        "batch": _object({"folder": TEXT, "analysed_count": COUNT, "unchanged_count": COUNT, "fleet": OBJECTS,
                          "skipped": {"type": "array"}}),
        "history": _object({"store": TEXT, "failed": {"type": "array", "items": TEXT}, "history": _rows("history"),
                            "history_values": _rows("history_values")}),
        "baseline": _object({"folder": TEXT, "names": {"type": "array", "items": TEXT}}),
        "doctor": _object({"checks": OBJECTS, "peaks": {"type": ["object", "null"]}}),
        "record": _object({"store": TEXT, "since": TEXT_OR_NULL, "change": TEXT_OR_NULL, "why": {"type": "object"}}),
        "explain": _object(dict.fromkeys(("code", "severity", "title", "cause", "cure"), TEXT)),
        "recipe-path": _object({"folder": TEXT, "recipes": {"type": "array", "items": TEXT}}),
    }  # fmt: skip


def _document(name: str, data: Schema) -> Schema:
    head: dict[str, Schema] = {"format": {"const": f"xsp-post.{name}"}, "version": {"const": JSON_VERSION}}
    return {**_object({**head, "data": data}), "additionalProperties": False}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _rows(table: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/$defs/table_{table}"}}


def _row(columns: tuple[Column, ...], title: str) -> Schema:
    properties = {}
    for column in columns:
        unit = unit_of(column.name)
        meaning = column.meaning + (f" [{unit}]" if unit else "")
        properties[column.name] = {"type": _TYPES[column.dtype], "description": meaning}
    return {"title": title, "type": "object", "properties": properties, "additionalProperties": False}


def _quantity() -> Schema:
    properties = {
        "name": TEXT, "of": TEXT, "value": NUMBER, "unit": TEXT, "sample_count": {"type": ["integer", "null"]},
        "ci_low": NUMBER, "ci_high": NUMBER,
        "interval_over": {**TEXT, "description": "captures (a process each), or one process, of which alone it speaks"},
        "reason": {**TEXT, "description": "why value or interval is absent"},
    }  # fmt: skip
    is_absent = {"anyOf": [{"properties": {key: {"type": "null"}}} for key in ("value", "ci_low", "ci_high")]}
    said = {"properties": {"reason": {"type": "string", "minLength": 1}}}
    return {**_object(properties), "additionalProperties": False, "if": is_absent, "then": said}


def _verdict() -> Schema:
    group = _object({"group": TEXT, "time_ns": COUNT, "ratio": NUMBER})
    return _object({
        "kind": TEXT, "word": TEXT, "sentence": TEXT, "reason": TEXT, "scope": TEXT, "device_count": COUNT,
        "window_ns": COUNT, "busy_ns": COUNT, "idle_ns": COUNT, "unknown_ns": COUNT,
        "groups": {"type": "array", "items": group},
    })  # fmt: skip


def _finding() -> Schema:
    return _object({"code": TEXT, "severity": TEXT, "count": COUNT, "example": TEXT, "hint": TEXT})
