"""Captures in: JSON payloads of ranges, and our own marks → columns about layers (shape, type, work).

TensorRT describes each layer in a JSON payload of its range; other programs attach JSON of their own. Keys are
looked for by name, whatever stands around them; a payload that says nothing known stays a text.
"""

import json
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.ingest.json_text import whole_characters
from xsp_post.names import range_text

COLUMNS = ("shape_text", "layer_type", "tactic_name")
_LONGEST = 200_000  # characters of one payload that are looked at


def span_attributes(spans: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """`payload_attributes` and `mark_attributes` in one frame, indexed by span id; the marks win."""
    payloads, marks = payload_attributes(spans, strings), mark_attributes(spans, strings)
    return marks.combine_first(payloads) if len(marks) else payloads


def mark_attributes(spans: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """shape_text, flop_count and least_bytes (NaN unknown) of the spans with a mark of ours, by span id.

    Each different text is parsed once; ``spans.shape_text_id`` is the text of the mark, −1 none.
    """
    columns = ["shape_text", "flop_count", "least_bytes"]
    if "shape_text_id" not in spans:
        return pd.DataFrame(columns=columns)
    codes, used = pd.factorize(spans["shape_text_id"].to_numpy())
    said = [range_text.parse(str(strings[number])) if number >= 0 else None for number in used.tolist()]
    has = np.array([one is not None and one.kind == range_text.SHAPE for one in said] + [False])
    rows = np.flatnonzero(has[codes])
    table = pd.DataFrame(
        [(one.shape_text, one.flop_count, one.least_bytes) if one is not None else ("", -1, -1) for one in said],
        columns=columns,
    )
    return table.iloc[codes[rows]].set_axis(rows).replace({"flop_count": {-1: np.nan}, "least_bytes": {-1: np.nan}})


def payload_attributes(spans: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """Columns `COLUMNS` for the spans with a JSON payload, indexed by span id ('' where it does not say).

    Each different payload is parsed once.
    """
    if "payload_text_id" not in spans or not (spans["payload_text_id"] >= 0).any():
        return pd.DataFrame(columns=list(COLUMNS))
    codes, used = pd.factorize(spans["payload_text_id"].to_numpy())
    said = [_read(str(strings[number])) if number >= 0 else None for number in used.tolist()]
    has = np.array([one is not None for one in said] + [False])
    rows = np.flatnonzero(has[codes])
    if not len(rows):
        return pd.DataFrame(columns=list(COLUMNS))
    table = pd.DataFrame([one or dict.fromkeys(COLUMNS, "") for one in said], columns=list(COLUMNS))
    return table.iloc[codes[rows]].set_axis(rows)


def _read(text: str) -> dict[str, str] | None:
    if not text.lstrip().startswith(("{", "[")) or len(text) > _LONGEST:
        return None
    try:
        value = json.loads(whole_characters(text))
    except (ValueError, RecursionError):
        return None
    found = _flat(value)
    return {
        "shape_text": _shape(found.get("outputs"), found) or _shape(found.get("inputs"), {}),
        "layer_type": _words(found.get("layertype", found.get("type", found.get("operation")))),
        "tactic_name": _words(found.get("tacticname", found.get("tactic", found.get("tacticvalue")))),
    }


def _flat(value: Any) -> dict[str, Any]:
    """Keys of nested objects in lower case without spaces and underscores; outer keys win."""
    found: dict[str, Any] = {}
    level = [value]
    for _ in range(8):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                for key, item in one.items():
                    found.setdefault(str(key).lower().replace(" ", "").replace("_", ""), item)
                inner += list(one.values())
            elif isinstance(one, list):
                inner += one[:64]
        level = [one for one in inner if isinstance(one, (dict, list))]
    return found


def _shape(tensors: Any, found: dict[str, Any]) -> str:
    """Dimensions of the first tensor of a list, or the object's own."""
    if isinstance(tensors, list) and tensors:
        first = tensors[0]
        if isinstance(first, dict):
            return _shape(None, _flat(first))
        return json.dumps(tensors, separators=(",", ":")) if _is_numbers(tensors) else _words(first)
    for key in ("dimensions", "dims", "shape", "outputshape"):
        if key in found:
            value = found[key]
            return json.dumps(value, separators=(",", ":")) if _is_numbers(value) else _words(value)
    return ""


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, int) for one in value)


def _words(value: Any) -> str:
    return "" if value is None or isinstance(value, (dict, list)) else str(value)
