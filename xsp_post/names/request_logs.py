"""An engine's log of its requests → one row a request; what its values are called stands in request_logs.txt."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.base.errors import UsageError
from xsp_post.base.texts import read_blocks
from xsp_post.names.patterns import groups

# `name: value` of JSON or as Python prints it; of spans `key: name, type: …, value: value`.
_VALUE = (
    r"""["'](?P<name>%s)["']\s*[:,]\s*(?:["']type["']\s*:\s*["']\w+["']\s*,\s*)?(?:["']value["']\s*:\s*)?"""
    r"""(?:\{\s*["']\w+["']\s*:\s*)?["']?(?P<value>%s)"""
)
_NUMBER, _WORD = r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", r"[\w.:-]+"
_SPAN = re.compile(r'\n|(?=\{\s*"trace_?id")', re.IGNORECASE)


def read_requests(path: Path) -> pd.DataFrame:
    """The requests of a log, columns as in ``requests``, NaN unknown; arrival_ns counts from the first one. Raises
    UsageError where it names no time of a request."""
    known = read_blocks(Path(__file__).with_suffix(".txt"))[0].texts()
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path.name}: cannot be read", code="request-log") from error
    lines = [one for line in _SPAN.split(_on_one_line(text)) for one in _of_benchmark(line)]
    array = pa.array([line.rpartition("out=")[2] for line in lines if "obj=" not in line or "out=" in line])
    found = pd.DataFrame(index=range(len(array)))
    for column, names in known.items():
        is_id = column == "request_id"
        said = groups(array, _VALUE % (names, _WORD if is_id else _NUMBER))
        value, name = (pd.Series(said[part].to_pylist(), found.index, object) for part in ("value", "name"))
        scale = np.where(name.str.endswith("_ms"), 1e6, 1e9) if column.endswith("_ns") else 1.0
        found[column] = value if is_id else pd.to_numeric(value, errors="coerce") * scale
    found = found[found[["first_token_ns", "latency_ns", "queue_ns", "time_per_token_ns"]].notna().any(axis=1)]
    if not len(found):
        raise UsageError(f"{path.name}: it names no time of a request", code="request-log")
    rest = (found["latency_ns"] - found["first_token_ns"]) / (found["token_count"] - 1).where(found["token_count"] > 1)
    began = found["arrival_ns"] - found["arrival_ns"].min()
    return found.fillna({"time_per_token_ns": rest}).assign(arrival_ns=began, source=path.name).reset_index(drop=True)


def _on_one_line(text: str) -> str:
    """A file that is one JSON value without its line breaks; others as they are."""
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _of_benchmark(line: str) -> list[str]:
    """The result of a benchmark holds a list a quantity: a line a request; another line as it is."""
    if '"ttfts": [' not in line:
        return [line]
    try:
        values = json.loads(line)
        rows = zip(*(values[name] for name in ("input_lens", "output_lens", "ttfts", "itls")), strict=True)
        return [
            json.dumps({"input_len": prompt, "output_len": tokens, "ttft": first, "e2e": first + sum(rest)})
            for prompt, tokens, first, rest in rows
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return [line]
