"""Captures in: NVTX payloads of NCCL calls → bytes of each message, size and name of its group, per range; ranks.

A payload is JSON, or binary (exported with ``--include-blobs=true``): a header of 32 bytes that names its schema; its
fields stand where the schema's entries say.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.arrays.texts import Strings
from xsp_post.ingest.nsys_strings import numbers
from xsp_post.ingest.payloads import json_of
from xsp_post.ingest.tables import Request, TableSource, WantedColumn, resolve, whole

COLUMNS = ("message_bytes", "group_size", "group_name")
_SIZE, _COMMUNICATOR = "Message size [bytes]", "NCCL communicator ID"
_FIELDS = {"bytes": _SIZE, "ranks": "No. of ranks", "rank": "Rank", "communicator": _COMMUNICATOR}
_UNKNOWN = {"bytes": (np.nan, float), "ranks": (np.nan, float), "rank": (np.nan, float), "communicator": (0, np.uint64)}
_HEADER = np.dtype([("domain", "<u4"), ("_", "<u4"), ("schema", "<u4"), ("__", "<u4"), ("size", "<u8"), ("all", "<u8")])
_WIDTHS = {5: 4, 18: 8, 22: 8}  # NVTX_PAYLOAD_ENTRY_TYPE: int, uint64, size_t
# NCCL says what one rank gives or gets; the message of these is that of all ranks together.
_OF_EACH_RANK = ("ncclAllGather", "ncclReduceScatter", "ncclAlltoAll", "ncclAllToAll")
_START, _END, _PAIRS = "ncclGroupStart", "ncclGroupEnd", ("ncclSend", "ncclRecv")


def nccl_calls(source: TableSource, spans: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """bytes, ranks, rank (NaN unknown) and communicator (0 unknown) of the ranges with such a payload, by span id."""
    fields, events = _fields(source), resolve(source.tables(), "NVTX_EVENTS")
    calls = _written_out(spans, strings)
    if any(fields.values()) and "binaryData" in source.columns(events):
        rows = _calls(source, events, fields)
        span = pd.Series(np.arange(len(spans)), spans["source_row_id"].to_numpy()).reindex(rows.index)
        calls = pd.concat([calls, rows[span.notna().to_numpy()].set_axis(span.dropna().astype(np.int64))])
    return calls[~calls.index.duplicated()].sort_index()


def stated_ranks(calls: pd.DataFrame, spans: pd.DataFrame, process_count: int) -> np.ndarray:
    """The rank of each process in the largest of its groups, as NCCL was told; −1 unknown, or several. int32."""
    told = calls.dropna(subset=["rank", "ranks"])
    process = spans["process_index"].to_numpy()[told.index]
    largest = told["ranks"].groupby(process).transform("max") if len(told) else told["ranks"]
    rank = told["rank"][told["ranks"] == largest].groupby(process[told["ranks"] == largest]).agg(["min", "max"])
    result = np.full(process_count, -1, np.int32)
    rank = rank[rank["min"] == rank["max"]]
    result[rank.index.to_numpy(np.int64)] = rank["min"]
    return result


def nccl_attributes(calls: pd.DataFrame, spans: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """`COLUMNS` of the ranges that a message size is known of, by span id; calls between a group's start and end count
    for the end, which launches them. calls: of `nccl_calls`."""
    if calls["bytes"].isna().all():
        return pd.DataFrame(columns=list(COLUMNS), dtype=float)
    known = calls.dropna(subset=["ranks"]).drop_duplicates("communicator").set_index("communicator")["ranks"]
    calls = calls.assign(
        group_size=calls["communicator"].map(known).to_numpy(float),
        group_name=calls["communicator"].map(lambda one: f"communicator #{one:x}" if one else ""),
        name=strings[spans["name_id"].to_numpy()[calls.index]].astype(str),
    )
    factor = np.where(calls["name"].isin(_OF_EACH_RANK), calls["group_size"], 1.0)
    calls["message_bytes"] = calls["bytes"] * factor
    calls = calls[calls["message_bytes"].notna()]
    return pd.concat([calls[list(COLUMNS)], _groups(spans, strings, calls)])


def _fields(source: TableSource) -> dict[int, dict[str, tuple[int, int]]]:
    """Of each schema: where each field stands, and how wide it is."""
    found: dict[int, dict[str, tuple[int, int]]] = {}
    wanted = ("schemaId", "type", "name", "offset")
    for schema, kind, name, offset in source.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", wanted):
        if whole(kind) in _WIDTHS and name in _FIELDS.values():
            found.setdefault(whole(schema), {})[str(name)] = (whole(offset, 0), _WIDTHS[whole(kind)])
    return found


def _frame(count: int, index: np.ndarray) -> pd.DataFrame:
    """Calls of which nothing is known yet."""
    unknown = {name: np.full(count, *value) for name, value in _UNKNOWN.items()}
    return pd.DataFrame(unknown, index=index)


def _written_out(spans: pd.DataFrame, strings: Strings) -> pd.DataFrame:
    """The payloads that the export holds as JSON, each different one read once."""
    codes, used = pd.factorize(spans["payload_text_id"].to_numpy())
    texts = [str(strings[one]) if one >= 0 else "" for one in used.tolist()]
    said = {code: json_of(text) for code, text in enumerate(texts) if f'"{_COMMUNICATOR}"' in text}
    read = {code: one for code, one in said.items() if isinstance(one, dict)}
    rows = np.flatnonzero(np.isin(codes, list(read)))
    found = _frame(len(rows), rows)
    for name, field in _FIELDS.items():
        values = [read[code].get(field) for code in codes[rows].tolist()]
        unknown, kind = _UNKNOWN[name]
        found[name] = np.array(
            [one if isinstance(one, int) and 0 <= one < 1 << 64 else unknown for one in values], kind
        )
    return found


def _calls(source: TableSource, table: str, fields: dict[int, dict[str, tuple[int, int]]]) -> pd.DataFrame:
    """As `nccl_calls`, of each row with a binary payload, by row id."""
    wants = (WantedColumn("ROWID", "source_row_id"), WantedColumn("binaryData", "payload", b""))
    (rows,) = source.read([Request(table, wants, keep=_has_payload)])
    payload = rows.column("payload").combine_chunks().cast(pa.binary())
    length = pc.binary_length(payload).to_numpy(zero_copy_only=False).astype(np.int64)
    found = {name: column.to_numpy().copy() for name, column in _frame(len(length), np.arange(len(length))).items()}
    for size in np.unique(length[length >= _HEADER.itemsize]).tolist():
        mine = np.flatnonzero(length == size)
        raw = np.frombuffer(b"".join(payload.take(pa.array(mine)).to_pylist()), np.uint8).reshape(len(mine), size)
        schema = raw[:, : _HEADER.itemsize].copy().view(_HEADER)[:, 0]["schema"]
        for one, places in fields.items():
            chosen = np.flatnonzero(schema == one)
            for column, name in _FIELDS.items():
                offset, width = places.get(name, (size, 0))
                first = _HEADER.itemsize + offset
                if len(chosen) and width and offset >= 0 and first + width <= size:
                    values = raw[chosen, first : first + width].copy().view(f"<u{width}")[:, 0]
                    found[column][mine[chosen]] = values
    return pd.DataFrame(found, index=numbers(rows, "source_row_id"))


def _has_payload(batch: pa.RecordBatch) -> np.ndarray:
    lengths = pc.binary_length(pc.cast(batch.column("payload"), pa.binary()))
    return pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False) > 0


def _groups(spans: pd.DataFrame, strings: Strings, calls: pd.DataFrame) -> pd.DataFrame:
    """`COLUMNS` of the ranges that end a group: of sends and receives the larger side, of calls of one name the sum."""
    ids = {str(strings[one]): one for one in pd.unique(spans["name_id"]).tolist() if one >= 0}
    ends = np.flatnonzero(spans["name_id"].to_numpy() == ids.get(_END, -2))
    starts = np.flatnonzero(spans["name_id"].to_numpy() == ids.get(_START, -2))
    if not len(ends) or not len(starts):
        return pd.DataFrame(columns=list(COLUMNS), dtype=float)
    at = spans["start_ns"].to_numpy()
    thread = spans["thread_index"].to_numpy()
    rows = np.concatenate([starts, ends])
    order = rows[np.lexsort((at[rows], thread[rows]))]
    is_end = np.isin(order, ends)
    # the bracket before each call, on its thread; inside a group that is its start, and the bracket after it the end
    merged = np.concatenate([order, calls.index.to_numpy()])
    sorted_ = merged[np.lexsort((at[merged], thread[merged]))]
    is_bracket = np.isin(sorted_, order)
    before = np.cumsum(is_bracket) - 1
    of_call = pd.Series(before[~is_bracket], sorted_[~is_bracket]).reindex(calls.index).to_numpy()
    inside = (of_call >= 0) & (of_call + 1 < len(order))
    first, last = np.maximum(of_call, 0), np.minimum(of_call + 1, len(order) - 1)
    inside &= ~is_end[first] & is_end[last] & (thread[order[first]] == thread[order[last]])
    members = calls[inside].assign(end=order[last[inside]])
    of_group = members.groupby("end")
    by_name = members.groupby(["end", "name"])["message_bytes"].sum().unstack(fill_value=0)
    pairs = by_name.columns.isin(_PAIRS)
    larger = by_name.loc[:, pairs].max(axis=1).where((by_name.loc[:, ~pairs] == 0).all(axis=1))
    alike = of_group["message_bytes"].sum().where(of_group["name"].nunique() == 1)
    is_one = of_group["communicator"].nunique() == 1
    found = pd.DataFrame({
        "message_bytes": larger.fillna(alike), "group_size": of_group["group_size"].max().where(is_one),
        "group_name": of_group["group_name"].first().where(is_one, ""),
    })  # fmt: skip
    return found[found["message_bytes"].gt(0)]
