"""Captures in: NVTX rows and library calls of an Nsight Systems export → the spans of the trace, and their domains."""

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.arrays.texts import of_each
from xsp_post.base.findings import Finding, if_any
from xsp_post.ingest.nsys_strings import Interner, numbers, without_abi_suffix
from xsp_post.ingest.nsys_threads import Numbering
from xsp_post.ingest.tables import MARK, NULL, PROCESS_BITS
from xsp_post.model.trace import SpanKind

_PUSH_POP, _START_END = (59, 70), (60, 71)
_DOMAIN_CREATE = 75


def none(count: int) -> np.ndarray:
    """−1 for so many rows; one number that is read as many times."""
    return np.broadcast_to(np.int32(-1), (count,))


def _is_one_of(values: np.ndarray, few: tuple[int, ...]) -> np.ndarray:
    """As `numpy.isin`, which is slower for a handful."""
    return np.logical_or.reduce([values == one for one in few])


class RangeReader:
    """Shapes the ranges of one export. ``last_ns``: the last time in its NVTX rows."""

    def __init__(self, strings: Interner, numbering: Numbering) -> None:
        self.strings, self.numbering = strings, numbering
        self.findings: list[Finding] = []
        self.last_ns = 0

    def spans(self, nvtx: pa.Table, cudnn: pa.Table, cublas: pa.Table) -> tuple[pd.DataFrame, pd.DataFrame]:
        domains = self._domains(nvtx)
        self.last_ns = last_time(numbers(nvtx, "start_ns"), numbers(nvtx, "end_ns"))
        event_type = numbers(nvtx, "event_type", np.int32)
        push_pop = _is_one_of(event_type, _PUSH_POP)
        ranges = push_pop | _is_one_of(event_type, _START_END)
        marks = nvtx.filter(pa.array(event_type == MARK)) if (event_type == MARK).any() else None
        if not ranges.all():
            nvtx, push_pop = nvtx.filter(pa.array(ranges)), push_pop[ranges]
        spans = self._range_rows(nvtx, push_pop)
        spans["domain_index"] = self._domain_index(nvtx, spans["process_index"].to_numpy())
        self.findings += if_any("cross-thread-ranges", spans["is_cross_thread"])
        libraries = [self._library_rows(calls) for calls in (cudnn, cublas) if calls.num_rows]
        if libraries:
            spans = pd.concat([spans, *libraries], ignore_index=True)
        if marks is not None:
            spans = self._shapes_from_marks(spans, marks)
        return spans, domains

    def _range_rows(self, nvtx: pa.Table, push_pop: np.ndarray) -> pd.DataFrame:
        name = _texts(self.strings, nvtx, "text", "text_number")
        closer = numbers(nvtx, "end_global_tid")
        kind = np.where(push_pop, int(SpanKind.PUSH_POP), int(SpanKind.START_END)).astype(np.int8)
        is_cross_thread = (closer != NULL) & (closer != 0) & (closer != numbers(nvtx, "global_tid"))
        return self._rows(
            nvtx, kind=kind, name_id=name, source_row_id=numbers(nvtx, "source_row_id"),
            is_cross_thread=is_cross_thread, payload_text_id=self._payload(nvtx),
        )  # fmt: skip

    def _rows(self, table: pa.Table, **columns: np.ndarray) -> pd.DataFrame:
        """These columns with threads and times, as every table of ranges or calls has them."""
        thread, end = self.numbering.thread_index(numbers(table, "global_tid")), numbers(table, "end_ns")
        columns |= {"thread_index": thread, "process_index": self.numbering.process_of_thread[thread]}
        columns |= {"start_ns": numbers(table, "start_ns"), "end_ns": end, "is_open": end == NULL}
        return pd.DataFrame(columns, copy=False)

    def _payload(self, nvtx: pa.Table) -> np.ndarray:
        payload = _texts(self.strings, nvtx, "json_text", "json_number")
        for column in ("int64_value", "uint64_value"):
            values = numbers(nvtx, column)
            has = (values != NULL) & (payload < 0)
            if has.any():
                payload[has] = of_each(values[has], lambda one: self.strings.text(str(one)), np.int32)
        return payload

    def _shapes_from_marks(self, spans: pd.DataFrame, marks: pa.Table) -> pd.DataFrame:
        """Our own ``shape:[…]`` marks belong to the innermost range around them (workload.ranges)."""
        from xsp_post.arrays.intervals import nest

        texts = _texts(self.strings, marks, "text", "text_number")
        known = self.strings.texts
        is_shape = of_each(texts, lambda one: one >= 0 and known[one].startswith("shape:"), bool)
        if not is_shape.any():
            return spans
        thread = self.numbering.thread_index(numbers(marks, "global_tid"))[is_shape].astype(np.int64)
        at = numbers(marks, "start_ns")[is_shape]
        usable = np.flatnonzero((~spans["is_cross_thread"] & ~spans["is_open"]).to_numpy())
        nested = nest(
            spans["thread_index"].to_numpy()[usable].astype(np.int64),
            spans["start_ns"].to_numpy()[usable],
            spans["end_ns"].to_numpy()[usable],
        )
        owner = nested.innermost(thread, at, at)
        shape = np.full(len(spans), -1, np.int32)
        hit = owner >= 0
        shape[usable[owner[hit]]] = texts[is_shape][hit]
        return spans.assign(shape_text_id=shape)

    def _library_rows(self, table: pa.Table) -> pd.DataFrame:
        count = table.num_rows
        return self._rows(
            table, kind=np.full(count, int(SpanKind.LIBRARY), np.int8),
            name_id=self.strings.by_number(numbers(table, "name"), without_abi_suffix),
            source_row_id=np.full(count, -1, np.int64), is_cross_thread=np.zeros(count, bool),
            payload_text_id=np.full(count, -1, np.int32), domain_index=np.full(count, -1, np.int32),
        )  # fmt: skip

    def _domains(self, nvtx: pa.Table) -> pd.DataFrame:
        """Every (process, domain number) that has a range, with its name or ``domain-N``."""
        domain, event_type = (numbers(nvtx, column, np.int32) for column in ("domain", "event_type"))
        is_alone = not domain.any() and not (event_type == _DOMAIN_CREATE).any()
        if is_alone:  # the usual case: nothing to look up in a million rows
            self._domain_keys: dict[tuple[int, int], int] = {}
            return pd.DataFrame({"process_index": np.zeros(0, np.int32), "name": np.zeros(0, object)})
        gpid = numbers(nvtx, "global_tid") & PROCESS_BITS
        named: dict[tuple[int, int], str] = {}
        created = np.flatnonzero(event_type == _DOMAIN_CREATE)
        if len(created):
            rows = nvtx.take(pa.array(created))
            aside = Interner(self.strings.ids, self.strings.values)
            text = _texts(aside, rows, "text", "text_number")
            known = aside.texts
            for g, d, c in zip(gpid[created].tolist(), domain[created].tolist(), text.tolist()):
                if c >= 0:
                    named[g, d] = known[c]
        used = (domain != 0) & _is_one_of(event_type, (*_PUSH_POP, *_START_END))
        keys = sorted(set(zip(gpid[used].tolist(), domain[used].tolist())))
        names = [named.get(key, f"domain-{key[1]}") for key in keys]
        unnamed = [n for key, n in zip(keys, names) if key not in named]
        self.findings += if_any("domain-without-name", len(unnamed), ", ".join(unnamed[:3]))
        self._domain_keys = {key: index for index, key in enumerate(keys)}
        return pd.DataFrame(
            {
                "process_index": self.numbering.process_index(np.array([k[0] for k in keys], np.int64)),
                "name": np.array(names, object),
            }
        )

    def _domain_index(self, nvtx: pa.Table, process: np.ndarray) -> np.ndarray:
        if not self._domain_keys:
            return none(nvtx.num_rows)
        result = np.full(nvtx.num_rows, -1, np.int32)
        domain = numbers(nvtx, "domain")
        gpid = self.numbering.gpids[process]
        for (g, d), index in self._domain_keys.items():
            result[(domain == d) & (gpid == g)] = index
        return result


def _texts(strings: Interner, rows: pa.Table, inline: str, number: str) -> np.ndarray:
    """String ids of texts that stand in a column of the rows, or of whose StringIds row another one has the number; −1
    none."""
    found, of_row = strings.inline(rows.column(inline)), numbers(rows, number)
    has_number = (found < 0) & (of_row != NULL)
    if has_number.any():
        found[has_number] = strings.by_number(of_row[has_number])
    return found


# Sums and differences of such times stay inside int64. Exports with --ts-normalize=true hold times since 1970.
_FARTHEST_NS = 2**61


def last_time(start: np.ndarray, end: np.ndarray) -> int:
    """The largest plausible time among starts and ends, 0 where there is none."""
    last = NULL
    for times in (start, end):
        if _has_implausible(times):
            times = times[~_implausible(times)]
        last = max(last, int(times.max(initial=NULL)))
    return last if last != NULL else 0


def close_and_repair(
    spans: pd.DataFrame, launches: pd.DataFrame, activities: pd.DataFrame, last_nvtx_ns: int
) -> tuple[pd.DataFrame, list[Finding]]:
    """Give every row a plausible start and end (in place); returns the launches that are left, and findings.

    NULL ends: ranges end with the last NVTX time of the file, calls and activities with their start.
    """
    is_open = spans["is_open"].to_numpy()
    if is_open.any():
        closed = np.maximum(last_nvtx_ns, spans["start_ns"].to_numpy())
        spans["end_ns"] = np.where(is_open, closed, spans["end_ns"].to_numpy())
    for frame in (launches, activities):
        end = frame["end_ns"].to_numpy()
        if (end == NULL).any():
            frame["end_ns"] = np.where(end == NULL, frame["start_ns"].to_numpy(), end)
    lost = _implausible(launches["start_ns"].to_numpy())
    if lost.any():
        launches = launches[~lost].reset_index(drop=True)
    count = int(lost.sum()) + sum(_repair(frame) for frame in (spans, launches, activities))
    return launches, if_any("open-ranges", is_open) + if_any("implausible-times", count)


def _implausible(times: np.ndarray) -> np.ndarray:
    return (times > _FARTHEST_NS) | (times < -_FARTHEST_NS)


def _has_implausible(times: np.ndarray) -> bool:
    return bool(len(times)) and bool(_implausible(np.array([times.min(), times.max()])).any())


def _repair(frame: pd.DataFrame) -> int:
    """Rows with an implausible time get no duration, at the time that is left; returns how many there were."""
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    if not (_has_implausible(start) or _has_implausible(end)):
        return 0
    bad_start, bad_end = _implausible(start), _implausible(end)
    bad = bad_start | bad_end
    frame["start_ns"] = np.where(bad_start, np.where(bad_end, 0, end), start)
    frame["end_ns"] = np.where(bad, np.where(bad_start, frame["start_ns"].to_numpy(), start), end)
    return int(bad.sum())
