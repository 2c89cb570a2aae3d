"""Captures in: JSON payloads of ranges, and our own marks → columns about layers (shape, type, work).

TensorRT describes each layer in a JSON payload of its range; other programs attach JSON of their own. Keys are
looked for by name, whatever stands around them; a payload that says nothing known stays a text.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.texts import Strings
from xsp_post.ingest.json_text import whole_characters
from xsp_post.names import range_text

COLUMNS = ("shape_text", "layer_type", "tactic_name")
_OF_MARKS = ("shape_text", "flop_count", "least_bytes")
_LONGEST = 200_000  # characters of one payload that are looked at


def span_attributes(spans: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """What the JSON payloads of ranges (`COLUMNS`, '' where one does not say) and our own marks (`_OF_MARKS`, numbers
    NaN unknown) say, by span id; the marks win."""
    payloads = _by_text(spans, strings, "payload_text_id", _read, COLUMNS)
    marks = _by_text(spans, strings, "shape_text_id", _of_mark, _OF_MARKS)
    return marks.combine_first(payloads) if len(marks) else payloads


def _by_text(
    spans: pd.DataFrame, strings: Strings, column: str, read: Callable[[str], tuple[Any, ...] | None],
    columns: tuple[str, ...],
) -> pd.DataFrame:  # fmt: skip
    """What the texts of a column say, by span id; each different one is read once, None says nothing."""
    if column not in spans or not (spans[column] >= 0).any():
        return pd.DataFrame(columns=list(columns))
    codes, used = pd.factorize(spans[column].to_numpy())
    said = [read(str(strings[number])) if number >= 0 else None for number in used.tolist()]
    is_known = np.array([one is not None for one in said])[codes]
    table = pd.DataFrame([one or (None,) * len(columns) for one in said], columns=list(columns))
    return table.iloc[codes[is_known]].set_axis(np.flatnonzero(is_known)).infer_objects()


def _of_mark(text: str) -> tuple[Any, ...] | None:
    said = range_text.parse(text)
    if said is None or said.kind != range_text.SHAPE:
        return None
    return (said.shape_text, *(np.nan if one == -1 else one for one in (said.flop_count, said.least_bytes)))


def json_of(text: str) -> Any:
    """What a payload says as JSON; None where it is none, or longer than is looked at."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > _LONGEST:
        return None
    try:
        return json.loads(whole_characters(text))
    except (ValueError, RecursionError):
        return None


def _read(text: str) -> tuple[str, str, str] | None:
    if (value := json_of(text)) is None:
        return None
    found = _flat(value)
    return (
        _shape(found.get("outputs"), found) or _shape(found.get("inputs"), {}),
        _words(found.get("layertype", found.get("type", found.get("operation")))),
        _words(found.get("tacticname", found.get("tactic", found.get("tacticvalue")))),
    )


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
