"""Capture → Trace: ``spans.json``, the clock readings that a measured child takes itself at levels M and M/L.

One process, one thread, one clock (``time.perf_counter_ns``), ranges of the domain ``xsp`` in the grammar of
`range_text`; no launches and no device work.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.errors import CaptureError
from xsp_post.ingest import interning
from xsp_post.ingest.json_text import Decoder
from xsp_post.ingest.recognition import CLOCK_FORMAT
from xsp_post.model.trace import Provenance, SpanKind, Trace
from xsp_post.names import range_text

_VERSION = 1  # the newest that is understood; history in workload.measure


def read_clock(path: Path) -> Trace:
    """Read one ``spans.json``. CaptureError (code `spans-damaged`) when it is not whole."""
    try:
        values = Decoder(path).decode(path.read_text(encoding="utf-8"))
        texts = [str(text) for text in values["texts"]]
        spans = _spans(values, len(texts))
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise CaptureError(f"{path}: holds no whole set of clock readings", code="spans-damaged") from error
    strings = np.empty(len(texts), dtype=object)
    strings[:] = texts
    return Trace(
        provenance=Provenance(source_name=path.name, collector="clock", schema_version=str(values["version"])),
        strings=strings, spans=spans, **interning.one_thread("python", "main"),
        domains=pd.DataFrame({"process_index": np.zeros(1, np.int32), "name": [range_text.DOMAIN]}, dtype=None),
        attributes=pd.DataFrame(index=spans.index),
    )  # fmt: skip


def _spans(values: dict[str, Any], text_count: int) -> pd.DataFrame:
    if values["format"] != CLOCK_FORMAT or not 1 <= int(values["version"]) <= _VERSION:
        raise ValueError(f"version {values['version']} is not known here")
    columns = {name: np.asarray(values[name], dtype=np.int64) for name in ("text_indexes", "start_ns", "end_ns")}
    index, start_ns, end_ns = columns.values()
    if not len(index) == len(start_ns) == len(end_ns):
        raise ValueError("its columns differ in length")
    if ((index < 0) | (index >= text_count)).any():
        raise ValueError("a text is missing")
    is_open = end_ns < start_ns  # −1: the child died inside
    last_ns = max(int(end_ns.max(initial=0)), int(start_ns.max(initial=0)))
    frame = pd.DataFrame({
        "kind": int(SpanKind.PUSH_POP), "name_id": index, "start_ns": start_ns,
        "end_ns": np.where(is_open, last_ns, end_ns), "source_row_id": np.arange(len(index)), "is_open": is_open,
    })  # fmt: skip
    return interning.conform(frame, interning.SPAN_DTYPES)
