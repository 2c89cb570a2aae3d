"""Results → the rows of the tree, in the order in which they are printed."""

from functools import cached_property
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.repeats import dense, fold_with_targets, summed, without_numbers
from xsp_post.base.errors import UsageError
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_bytes, format_bytes_per_s
from xsp_post.names.user_patterns import UserPattern
from xsp_post.reports.text import alike_kernels, make_distinct, short_kernel, visible

Row = dict[Any, Any]  # a row of the tree, by column
At = tuple[int, ...]  # of a printed row: its number among those beside it, behind those of the rows around it
Columns = dict[str, np.ndarray]

_AMOUNTS = ("call_count", "kernel_count", "device_ns", "kernel_ns", "copy_ns", "graph_ns")
_TIMES = ("busy_ns", "gap_ns", "duration_ns", "projection_ns", "idle_ns")
_SUMMED = (*_AMOUNTS, *_TIMES, "is_work", "span_kind")
_WORK = ["kind", "name", "direction", "memory_kind", "source_line"]  # what tells one kind of device work from another
_WORK_SUMS = ("operation_count", "device_ns", "bytes")
STRUCTURELESS = ("unattributed", "no_launch")  # kinds of nodes: not a range
_LEAF_SHARE, _LEAF_TOP = 0.1, 3  # of a range with nothing inside and this share of the capture: its kernels
_WORK_SHARE = 0.02  # copies of a range with less are in its sum only
_KERNEL_WIDTH = 52
_TOLD_APART = 1000  # heaviest kernels of a range whose short names are told apart
DEPTH = 6
_MANY_LINES = 80
_LIGHT_SHARE = 0.01  # less beside a heavy layer needs no line
_TINY_SHARE, _TINY_WAIT = 0.001, 0.01  # there, lines with less device time, and less of the waiting, are summed
_HEAVY_SHARE = 0.05  # a layer with more has a line, however deep it is; a range without device work by what it costs
MOSTLY_WAIT = 0.3  # where devices waited for more than this share, ranges are ordered by that, too
_REST = "rest"  # the last line of the kernels of a range


def tree_rows(
    results: Results,
    *,
    depth: int | None = None,
    top: int = 12,
    layer: str = "",
    rank: int | None = None,
    lines: int = _MANY_LINES,
) -> pd.DataFrame:
    """The rows of the tree in print order: heaviest first, repeats folded, the lightest summed as "other". Where
    devices mostly wait, the weight of a range is its device time and the time that they waited for it.

    ``depth``: None for six levels; where that is more than ``lines``, the heaviest rows of all
    that are inside a printed row, and sums of the others.
    ``layer``: only ranges whose name this regular expression matches, and what is in them; ``rank``: only of this
    rank. Raises `UsageError` where nothing is left.

    Columns: indent, level, name, call_count, kernel_count, device_ns and its parts, busy_ns, gap_ns, duration_ns,
    is_inferred, source_line (of its own kernels, where it is one). Copies, graphs, and kernels that no range holds are
    rows, too (``is_work``).
    """
    parts = []
    work = frame_or_empty(results, "operations")
    for capture, mine in results.frame("paths").groupby("capture_id"):
        own = work[work["capture_id"].to_numpy() == capture]
        tree = _Rows(mine.drop(columns="capture_id"), own, top, lines < _MANY_LINES)
        roots = tree.roots(layer, rank)
        listed = tree.listed(DEPTH if depth is None else depth, roots, has_layers=depth is None)
        if depth is None and len(listed) > lines:
            tree.sums_tiny = True
            listed = tree.listed(DEPTH, roots, lines, has_layers=True)
        parts.append(listed.assign(capture_id=capture))
    if (layer or rank is not None) and not sum(map(len, parts)):
        asked = f"--layer {layer!r}" if layer else f"--rank {rank}"
        raise UsageError(f"{asked} matches no range of the tree", code="range-pattern-matches-nothing")
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


class _Rows:
    """The folded tree of one capture and the device work in it. ``is_screen``: what the verdict is of comes first, and
    kernels that are printed alike are one row, as among its places."""

    def __init__(self, paths: pd.DataFrame, work: pd.DataFrame, top: int, is_screen: bool) -> None:
        folded, target = fold_with_targets(paths)
        if "idle_ns" not in folded:
            folded = folded.assign(idle_ns=np.nan, idle_cause="")
        self.top, self.sums_tiny = top, False
        self.weight = "device_ns" if int(folded["device_ns"].max()) else "duration_ns"
        self.total = int(folded[self.weight].iloc[0])
        self.waited = folded["idle_ns"].iloc[0]
        waits = folded["idle_ns"].fillna(0) * (self.waited >= MOSTLY_WAIT * folded["duration_ns"].iloc[0])
        folded = folded.assign(cost_ns=folded[self.weight] + waits)
        self.cost = float(folded["cost_ns"].iloc[0])
        is_rank = (folded["span_kind"].astype(str) == "rank").to_numpy()
        # ranks stand in their order, everything else by weight
        order = np.where(is_rank, -folded["path_id"], folded["cost_ns"])
        self.forest = forest_of(pd.Index(folded["path_id"]).get_indexer(pd.Index(folded["parent_path_id"])))
        is_model = folded["level"].astype(str).eq("MODEL").to_numpy()
        holds_model = (is_model | self.forest.around(is_model)) & is_screen
        folded = folded.assign(is_work=False, is_rank=is_rank, holds_model=holds_model)
        parents = folded["parent_path_id"].to_numpy()
        self.order = np.lexsort((-folded["duration_ns"], -order, ~holds_model, ~is_rank, parents))
        self.parents = parents[self.order]
        self.columns: Columns = {str(column): _held(folded[column]) for column in folded}
        self.columns["alike_count"] = _alike_counts(folded)
        if is_screen:
            work = work.assign(name=alike_kernels(work["name"]))
        self.work = _work_columns(_summed_work(work, target))

    def roots(self, layer: str, rank: int | None) -> list[Row]:
        """The rows that a listing begins with: the capture, or the outermost ranges that are asked for."""
        if not layer and rank is None:
            return _records(self.columns, self.order[:1])
        name = self.columns["name"].astype(str)
        chosen = np.ones(len(name), bool)
        if rank is not None:
            is_rank = name == f"rank {rank}"
            chosen &= is_rank | self.forest.inside(is_rank)
        if layer:
            wanted = UserPattern(layer, "--layer")
            shown = pd.Series(self.columns["shown_name"]).fillna("").astype(str)
            is_named = wanted.found_in(name.tolist()) | wanted.found_in(shown.tolist())
            is_named &= ~self.columns["is_rank"] & (self.columns["parent_path_id"] >= 0)
            chosen &= is_named | self.forest.inside(is_named)
        rows = self.order[(chosen & ~self.forest.inside(chosen))[self.order]]
        return _records(self.columns, rows[np.argsort(-self.columns[self.weight][rows], kind="stable")])

    def listed(self, depth: int, roots: list[Row], lines: int = 0, has_layers: bool = False) -> pd.DataFrame:
        """The rows to print. ``lines``: at most so many, the heaviest of all that are inside a printed row; 0: any.
        ``has_layers``: layers with much of the time have a line, however deep they are."""
        counts = self._heaviest(depth, roots, lines, has_layers) if lines else {}
        top = self.top
        rows: list[Row] = []
        stack = _numbered((), roots)[::-1]
        while stack:
            place, row = stack.pop()
            rows.append({"source_line": "", **row, "indent": len(place) - 1})
            self.top = counts.get(place, 0) if lines else top
            if row["path_id"] < 0 or not self.top:
                continue
            inside = self._opened(row, len(place) - 1, depth, has_layers)
            rows[-1]["source_line"] = "" if any(one["is_work"] for one in inside) else self._line(row)
            stack += _numbered(place, [_repeated(one, row) for one in inside])[::-1]
        self.top = top
        frame = pd.DataFrame(rows, columns=None if rows else [*self.columns, "indent", "source_line"])
        frame["name"] = np.where(frame["shown_name"].notna(), frame["shown_name"], frame["name"])
        return frame

    def _heaviest(self, depth: int, roots: list[Row], lines: int, has_layers: bool) -> dict[At, int]:
        """How many rows inside each printed row have a line of their own, by its place. What has none needs one
        line more, for its sum."""
        inside: dict[At, list[Row]] = {}
        counts: dict[At, int] = {}
        closed: list[tuple[float, At]] = []
        left = lines - len(roots)
        opened = _numbered((), roots)
        while left > 0:
            for place, row in opened:
                inside[place] = [] if row["path_id"] < 0 else self._opened(row, len(place) - 1, depth, has_layers)
                if inside[place]:
                    heappush(closed, (-_cost(inside[place][0]), place))
            if not closed:
                break
            place = heappop(closed)[1]
            number, opened = counts.get(place, 0) + 1, []
            needed = 1 + (number == 1 < len(inside[place])) - (number == len(inside[place]) > 1)
            if needed > left:
                continue
            counts[place], left = number, left - needed
            opened = [((*place, number - 1), inside[place][number - 1])]
            if number < len(inside[place]):
                heappush(closed, (-_cost(inside[place][number]), place))
        return counts

    def _opened(self, row: Row, indent: int, depth: int, has_layers: bool) -> list[Row]:
        """What is printed inside a range: of a chain of ranges around the same work what is inside the last."""
        same: Row | None = row
        while same is not None:  # the same once more tells nothing
            row = same
            inside = self._inside(row) if indent < depth else self._heavy_layers(row) if has_layers else []
            same = _same_inside(row, inside) if self.sums_tiny else None
        return inside

    def _line(self, row: Row) -> str:
        """The one source line of all kernels in a range and in none inside it; '' where there are several, or none."""
        low, high = np.searchsorted(self.work["path_id"], [row["path_id"], row["path_id"] + 1])
        lines = pd.unique(self.work["source_line"][low:high])
        is_leaf = len(lines) == 1 and (self.work["span_kind"][low:high] == "kernel").all()
        return str(lines[0] or "") if is_leaf and not self.columns["device_ns"][self._ranges(row)].any() else ""

    def _ranges(self, row: Row) -> np.ndarray:
        """The rows of the ranges directly in a range, heaviest first."""
        return self.order[slice(*np.searchsorted(self.parents, [row["path_id"], row["path_id"] + 1]))]

    @cached_property
    def leads_to_layer(self) -> np.ndarray:
        """Whether a row is a layer with much of the time, or any range with most of it, or around one. Shape (rows,),
        in the order of `columns`."""
        cost = self.columns["cost_ns"]
        is_heavy, holds_most = cost >= _HEAVY_SHARE * self.cost, cost > self.cost / 2
        is_layer = (np.asarray(self.columns["level"] == "LAYER") & is_heavy) | holds_most
        return (is_layer | self.forest.around(is_layer)) & is_heavy

    def _heavy_layers(self, row: Row) -> list[Row]:
        """Below the depth that is listed: layers with much of the time, what is around them, and the rest as a sum."""
        ranges = self._ranges(row)
        shown = ranges[self.leads_to_layer[ranges]][: self.top] if row["level"] != "LAYER" else ranges[:0]
        rest = ranges[~np.isin(ranges, shown) & (self.columns[self.weight][ranges] > 0)]
        if not len(shown) or self.columns[self.weight][rest].sum() < _LIGHT_SHARE * self.total:
            return _records(self.columns, shown)
        return [*_records(self.columns, shown), *([_other([_taken(self.columns, rest)])] if len(rest) > 1 else
                                                  _records(self.columns, rest))]  # fmt: skip

    def _inside(self, row: Row) -> list[Row]:
        """Ranges inside a range, and the work that was launched in it and in none of them, so that the lines add
        up; heaviest first, and those that are too many as one line."""
        ranges = self._ranges(row)
        device = self.columns["device_ns"][ranges]
        lines: list[Row] = []
        own, is_own = ranges[:0], False
        if self.weight == "device_ns":
            own, lines = self._own_work(row, bool(device.any()))
            is_own = bool(len(own) or lines)
            idle = (device == 0) & (self.columns["cost_ns"][ranges] < _HEAVY_SHARE * self.cost)
            if idle.any() and len(ranges) > 1:
                lines.insert(0, self._host_only(ranges[idle]))
                ranges = ranges[~idle]
        # where devices mostly wait, what holds most of the device time is no less worth a line than what costs most
        holds_most = 2 * self.columns["device_ns"][ranges] > row["device_ns"]
        cost = self.columns["cost_ns"][ranges]
        cost = np.where(holds_most, cost.max(initial=0), cost)
        if is_own or (holds_most.any() and not self.columns["is_rank"][ranges].any()):
            ranges, cost = (one[np.lexsort((-cost, ~self.columns["holds_model"][ranges]))] for one in (ranges, cost))
        # the rows of frames become records only where they can be printed
        most = self.top + 1  # one row takes as many lines as its sum
        listed = [
            *(
                ("range", {**line, "cost_ns": own_cost})
                for line, own_cost in zip(_records(self.columns, ranges[:most]), cost)
            ),
            *(("line", line) for line in lines[:1] if not line["is_work"]),
            *(("work", line) for line in _work_records(self.work, own[: max(most, _TOLD_APART)])[:most]),
            *(("line", line) for line in lines if line["is_work"]),
        ]
        if is_own:
            listed.sort(key=lambda one: (one[1]["span_kind"] == _REST, not one[1].get("holds_model"), -_cost(one[1])))
        shown = min(self.top, max(self._worth(listed), 1)) if self.sums_tiny else self.top
        shown += shown + 1 == len(listed) == len(own) + len(ranges) + len(lines)
        kept, left = listed[:shown], listed[shown:]
        count = {kind: sum(1 for one, _ in kept if one == kind) for kind in ("range", "work")}
        left_out = [
            _taken(self.columns, ranges[count["range"] :]),
            _taken(self.work, own[count["work"] :]),
            *({name: np.array([line[name]]) for name in _SUMMED} for kind, line in left if kind == "line"),
        ]
        rest = [_other(left_out)] if any(map(_length, left_out)) else []
        if self.sums_tiny and not self._worth([("", one) for one in rest]):
            rest = [one for one in rest if one[self.weight]]
        return [line for _, line in kept] + rest

    def _worth(self, listed: list[tuple[str, Row]]) -> int:
        """How many lines there are up to the last one with much device time, or in which a device waited long."""
        least, wait = _TINY_SHARE * self.total, _TINY_WAIT * self.waited
        return max((k for k, (_, one) in enumerate(listed, 1) if one[self.weight] >= least or one["idle_ns"] > wait),
                   default=0)  # fmt: skip

    def _own_work(self, row: Row, has_inside: bool) -> tuple[np.ndarray, list[Row]]:
        """Which rows of ``work`` are lines inside a range, and the sums beside them."""
        work = np.arange(*np.searchsorted(self.work["path_id"], [row["path_id"], row["path_id"] + 1]))
        is_open = str(row["span_kind"]) in STRUCTURELESS
        share = row["device_ns"] / self.total
        if not len(work) or not (is_open or has_inside or (share >= _WORK_SHARE and str(row["span_kind"]) != "graph")):
            return work[:0], []
        if is_open:
            return work, []
        is_kernel = self.work["span_kind"][work] == "kernel"
        kernels, others = work[is_kernel], work[~is_kernel]
        if has_inside:
            return others, [self._self(row, kernels)] if len(kernels) else []
        if share < _LEAF_SHARE or len(kernels) < 2:
            return others, []
        top = _LEAF_TOP + (len(kernels) == _LEAF_TOP + 1)  # one row takes as many lines as its sum
        listed, rest = np.append(others, kernels[:top]), kernels[top:]
        lines = [{**_other([_taken(self.work, rest)]), "span_kind": _REST}] if len(rest) else []
        return listed[np.argsort(-self.work["device_ns"][listed], kind="stable")], lines

    def _self(self, row: Row, kernels: np.ndarray) -> Row:
        """The node's own kernels as one line beside its children."""
        time, count = (int(self.work[column][kernels].sum()) for column in ("device_ns", "call_count"))
        return {**_other([], "[self]"), "call_count": row["call_count"], "kernel_count": count, "device_ns": time,
                "kernel_ns": time, "is_work": True}  # fmt: skip

    def _host_only(self, ranges: np.ndarray) -> Row:
        """Ranges without any device work beside ranges that have some, as one line."""
        label = f"{len(ranges)} more without device work"
        label = label if len(ranges) > 1 else str(self.columns["shown_name"][ranges[0]])
        return _other([_taken(self.columns, ranges)], label)


def _numbered(place: At, rows: list[Row]) -> list[tuple[At, Row]]:
    """Rows inside that of a place, with their own places."""
    return [((*place, number), row) for number, row in enumerate(rows)]


def _cost(row: Row) -> float:
    """What a row is ordered by: of device work its time."""
    return float(row["cost_ns"] if "cost_ns" in row else row["device_ns"])


def _same_inside(row: Row, inside: list[Row]) -> Row | None:
    """The one range inside a range that holds all of its cost in as many calls, neither a model nor a layer."""
    heavy = [one for one in inside if _cost(one)]
    if len(heavy) != 1 or heavy[0]["path_id"] < 0 or heavy[0]["level"] in ("MODEL", "MODULE", "LAYER"):
        return None
    is_same = all(heavy[0][name] == row[name] for name in ("device_ns", "call_count"))
    return heavy[0] if is_same else None


def _repeated(row: Row, parent: Row) -> Row:
    """A layer or pass with how often a call of its parent holds it, where all hold as many: ``32 ×`` equal blocks."""
    calls, parents = int(row["call_count"]), max(int(parent["call_count"]), 1)
    if str(row["level"]) not in ("MODULE", "LAYER") or row["repeat_count"] > 1 or calls <= parents or calls % parents:
        return row
    return {**row, "repeat_count": calls // parents}


def _taken(columns: Columns, rows: np.ndarray) -> Columns:
    """What `_other` sums, of some rows."""
    return {name: columns[name][rows] for name in _SUMMED}


def _alike_counts(folded: pd.DataFrame) -> np.ndarray:
    """By row how many siblings have its name but for the numbers: those in the row, and others with other insides."""
    siblings = dense(folded["parent_path_id"].to_numpy(), without_numbers(folded["name"])[0])[0]
    return np.bincount(siblings, folded["repeat_count"])[siblings].astype(np.int64)


def _held(series: pd.Series) -> np.ndarray:
    """The values; of texts the objects, of which some are taken again and again."""
    return series.to_numpy(object if isinstance(series.dtype, pd.CategoricalDtype) else None)


def _length(columns: Columns) -> int:
    return len(columns["is_work"])


def _records(columns: Columns, rows: np.ndarray) -> list[Row]:
    values = [column[rows].tolist() for column in columns.values()]
    return [dict(zip(columns, row)) for row in zip(*values)]


def _summed_work(work: pd.DataFrame, target: pd.Series) -> pd.DataFrame:
    """Device work by the row of the tree that it is in, each kind in one row, heaviest first."""
    work = work.assign(path_id=work["path_id"].map(target))
    work = work[work["path_id"].notna()] if work["path_id"].hasnans else work
    found = summed(work.astype({"path_id": np.int64}), ["path_id", *_WORK], dict.fromkeys(_WORK_SUMS, "sum"))
    return found.iloc[np.lexsort((-found["device_ns"], found["path_id"]))]


def _work_columns(work: pd.DataFrame) -> Columns:
    """Device work as rows of the tree; their names are made where they are printed (`_work_records`)."""
    kind, count, time = (_held(work[name]) for name in ("kind", "operation_count", "device_ns"))
    is_kernel, is_copy = (work["kind"].isin(kinds).to_numpy() for kinds in (["kernel"], ["memcpy", "memset"]))
    constant = {"repeat_count": 1, "alike_count": 1, "is_folded": False, "is_inferred": False, "is_work": True,
                **dict.fromkeys(_TIMES, np.nan)}  # fmt: skip
    return {
        **{column: _held(work[column]) for column in ("path_id", *_WORK, "bytes")},
        "level": np.where(is_kernel, "KERNEL", ""), "span_kind": kind,
        "call_count": count, "kernel_count": np.where(is_kernel, count, 0), "device_ns": time,
        "kernel_ns": np.where(is_kernel, time, 0), "copy_ns": np.where(is_copy, time, 0),
        "graph_ns": np.where(is_kernel | is_copy, 0, time),
        **{name: np.full(len(work), value) for name, value in constant.items()},
    }  # fmt: skip


def _work_records(work: Columns, rows: np.ndarray) -> list[Row]:
    records = _records(work, rows)
    names = [_work_name(row) for row in records]
    kernels = [k for k, row in enumerate(records) if row["kind"] == "kernel"]
    full = [visible(names[k], 2000) for k in kernels]
    short = make_distinct([short_kernel(name, _KERNEL_WIDTH) for name in full], full)
    for k, name in zip(kernels, short):
        names[k] = name
    return [{**row, "path_id": -2, "name": name, "shown_name": name} for row, name in zip(records, names)]


def _work_name(row: Row) -> str:
    """``host→device, pageable · 531 MB at 4.62 GB/s``."""
    if row["kind"] == "kernel":
        return str(row["name"])
    size, time = int(row["bytes"]), int(row["device_ns"])
    if row["kind"] == "memset":
        return "memset" + (f" · {format_bytes(size)}" if size > 0 else "")
    if row["kind"] == "graph":
        return f"graph execution: {row['name']}"
    memory = str(row["memory_kind"] or "")
    text = str(row["direction"] or row["name"]).replace(" to ", "→")
    text += f", {memory}" if memory and memory != "device" else ""
    if size <= 0 or time <= 0:
        return text
    return f"{text} · {format_bytes(size)} at {format_bytes_per_s(size / time * 1e9)}"


def _other(parts: list[Columns], label: str = "") -> Row:
    """Several rows as one; times are those of the ranges among them, and unknown where one range's is."""
    parts = [part for part in parts if _length(part)]
    count = sum(map(_length, parts))
    summed: Row = {name: sum(int(part[name].sum()) for part in parts) for name in _AMOUNTS}
    is_range = [~part["is_work"].astype(bool) for part in parts]
    is_work = bool(parts) and not any(one.any() for one in is_range)
    for name in _TIMES:
        times = [float(part[name][one].sum()) for part, one in zip(parts, is_range) if one.any()]
        summed[name] = sum(times) if times else np.nan
    what = " kernels" if is_work and all((part["span_kind"] == "kernel").all() for part in parts) else ""
    name = label or f"{count} more{what}"
    return {**summed, "path_id": -2, "level": "", "span_kind": "", "name": name, "shown_name": name, "repeat_count": 1,
            "alike_count": 1, "is_folded": False, "is_inferred": False, "is_work": is_work}  # fmt: skip
