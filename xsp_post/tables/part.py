"""Tables of one capture + the part that is wanted (one execution, or a time) → their rows that lie in it.

`catalogue.CUTS` says how each table is cut; what is summed up of the rows, the same steps make as of the whole.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.base.errors import UsageError
from xsp_post.model.options import Options
from xsp_post.model.results import Results, frame_or_empty, side_by_side
from xsp_post.tables.catalogue import CUTS

_NEEDED = ("captures", "nodes", "kernels", "memory_operations", "iterations")
_WORK = ("kernels", "memory_operations")
_HOW = {name: how for how, names in CUTS.items() for name in names.split()}
_UNITS = ((1_000_000, 1_000, "µs"), (10_000_000_000, 1_000_000, "ms"))


def parts_of(results: Results, options: Options) -> "list[Part]":
    """The part of every capture that has one. Raises `UsageError` where the results hold no recording, or nothing lies
    in the part."""
    if not set(_NEEDED) <= set(results.tables()):
        raise UsageError("--iteration, --from and --until need the recording of one workload: a capture or its store",
                         code="nothing-in-part")  # fmt: skip
    numbers = results.frame("captures", ["capture_id"])["capture_id"].tolist()
    found = [part for number in numbers if (part := Part(results, int(number), options)).holds_anything()]
    if not found:
        raise UsageError(f"Nothing lies in {_asked(results, options)}", code="nothing-in-part")
    return found


def _asked(results: Results, options: Options) -> str:
    if options.iteration is None:
        nodes = results.frame("nodes", ["start_ns", "end_ns"])
        low, high = (int(nodes["start_ns"].min()), int(nodes["end_ns"].max())) if len(nodes) else (0, 0)
        zero = _origin(str(results.frame("captures", ["collector"])["collector"].iloc[0]), low)
        return f"that time; the recording is {_stretch(low - zero, high - zero)}"
    count = len(results.frame("iterations", ["iteration_index"]))
    known = f"; the iterations are 0 … {count - 1}".removesuffix(" … 0") if count else "; no model execution was found"
    return f"iteration {options.iteration}{known}"


def _origin(collector: str, first_ns: int) -> int:
    """What times on the command line count from: the clock of nsys, which begins with its session, as it is; of other
    traces, whose clocks count from anywhere, the first event."""
    return 0 if collector == "nsys" else first_ns


def _stretch(low: int, high: int) -> str:
    """``1,251.62–1,256.16 ms``: both ends in the unit that suits the length."""
    scale, unit = next(((s, u) for most, s, u in _UNITS if high - low < most), (1_000_000_000, "s"))
    return f"{low / scale:,.2f}–{high / scale:,.2f} {unit}"


class Part(Results):
    """The rows of one capture that lie in the part, by table; ``nodes`` go by the name ``node_rows``: what they hold
    in the part is another table.

    low, high   ns: an execution with its device work; a time as far as it was recorded
    """

    def __init__(self, results: Results, capture_id: int, options: Options) -> None:
        self._results, self.capture_id, self.iteration = results, capture_id, options.iteration
        self._only = None if self.iteration is None else (self.iteration, self.iteration)
        self._frames: dict[str, pd.DataFrame] = {}
        if "idle" in results.tables():
            results.near("idle", 0, 0)  # of a capture the pieces are made with the sums below, else both twice
        capture, (begin_ns, end_ns) = self.whole("captures").iloc[0], self._recorded()
        self._origin = _origin(str(capture["collector"]), begin_ns)
        least, most = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
        self.low = least if options.begin_ns is None else options.begin_ns + self._origin
        self._until = most if options.end_ns is None else options.end_ns + self._origin
        self._iterations = self.whole("iterations")
        mine = self._iterations[self._iterations["iteration_index"] == self.iteration]
        self._process = int(mine["process_id"].iloc[0]) if len(mine) else -2
        if self.iteration is None:
            self.low, self.high = max(self.low, begin_ns), min(self._until, end_ns)
            return
        held = [frame for name in ("iterations", *_WORK) if len(frame := self.frame(name))]
        self.low = min((int(frame["start_ns"].min()) for frame in held), default=self.low)
        self.high = max((int(frame["end_ns"].max()) for frame in held), default=self._until)
        self._until = self.high + 1

    def whole(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All of the capture's rows of a table; none where it is not there."""
        wanted = None if columns is None else ["capture_id", *columns]
        return self._mine(frame_or_empty(self._results, name, wanted))

    def _recorded(self) -> tuple[int, int]:
        """Begin and end of the recording."""
        paths = self.whole("paths", ["depth", "first_start_ns", "duration_ns"])
        root = paths[paths["depth"].to_numpy() == 0].iloc[0]
        return int(root["first_start_ns"]), int(root["first_start_ns"] + root["duration_ns"])

    def _near(self, name: str, iterations: tuple[int, int] | None) -> pd.DataFrame:
        """The capture's rows among which those of the part are."""
        if name not in self._results.tables():
            return self.whole(name)
        return self._mine(self._results.near(name, self.low, self._until, iterations))

    def _mine(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["capture_id"].to_numpy() == self.capture_id]

    def found(self, code: str = "") -> pd.DataFrame:
        return self._mine(self._results.found(code))

    def holds_anything(self) -> bool:
        """Whether a range or device work lies in the part."""
        return len(self.frame("node_rows")) > 1 or any(len(self.frame(name)) for name in _WORK)

    def tables(self) -> list[str]:
        there = {*self._results.tables(), "node_rows", "part", "idle", "short_waits", "kernel_shares"}
        return sorted(there & _HOW.keys())

    def frame(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        if name not in self._frames:
            rows = getattr(self, f"_{_HOW[name]}")(name)
            self._frames[name] = rows.reset_index(drop=True)
        return self._frames[name] if columns is None else self._frames[name][list(columns)]

    # -- the ways to cut (keys of `CUTS`) ------------------------------------------------------------------------

    def _starts(self, name: str) -> pd.DataFrame:
        """Rows that start in the part, and are the execution's."""
        rows = self._near(name, self._only)
        return rows[self._begins(rows) & self._belongs(rows)]

    def _happens(self, name: str) -> pd.DataFrame:
        rows = self._near(name, None)
        return rows[self._begins(rows)]

    def _begins(self, rows: pd.DataFrame) -> np.ndarray:
        start = rows["start_ns"].to_numpy()
        return (start >= self.low) & (start < self._until)

    def _belongs(self, rows: pd.DataFrame) -> np.ndarray:
        """Rows of the execution; of a table that does not say so, those of its process."""
        if self.iteration is not None and "iteration_index" in rows:
            return rows["iteration_index"].to_numpy() == self.iteration
        if self.iteration is not None and "process_id" in rows:
            return rows["process_id"].to_numpy() == self._process
        return np.ones(len(rows), bool)

    def _within(self, name: str) -> pd.DataFrame:
        """Rows that start and end in the part."""
        rows = self._starts(name)
        return rows[rows["end_ns"].to_numpy() <= self._until]

    def _shares(self, name: str) -> pd.DataFrame:
        """Rows that share time with the part, and are the execution's."""
        rows = self._near(name, self._only)
        shares = (rows["end_ns"].to_numpy() > self.low) & (rows["start_ns"].to_numpy() < self.high)
        return rows[shares & self._belongs(rows)]

    def _is_cut(self, name: str) -> pd.DataFrame:
        """What of such rows is in the part."""
        rows = self._shares(name)
        start, end = rows["start_ns"].clip(lower=self.low), rows["end_ns"].clip(upper=self.high)
        return rows.assign(start_ns=start, end_ns=end)

    def _holds(self, _: str) -> pd.DataFrame:
        """Nodes that start in the part or hold device work of it, and all above them; the root is always there."""
        nodes = self._near("nodes", self._only)
        nodes = nodes[self._begins(nodes) & self._belongs(nodes)]
        above = nodes["parent_id"].to_numpy()
        wanted = np.concatenate([above, *(self.frame(name)["node_id"].to_numpy() for name in _WORK)])
        while len(wanted := distinct(wanted[(wanted >= 0) & ~np.isin(wanted, nodes["node_id"])])):
            more = self._results.numbered("nodes", "node_id", wanted)
            nodes, wanted = side_by_side([nodes, more]), more["parent_id"].to_numpy()
        return nodes.sort_values("node_id", kind="stable")

    def _of_nodes(self, name: str) -> pd.DataFrame:
        nodes = self.frame("node_rows")
        number = nodes["iteration_index"].to_numpy()
        known = number[number >= 0]
        between = (int(known.min()), int(known.max())) if len(known) else None
        rows = self._near(name, self._only or between)
        rows = rows[rows["node_id"].isin(nodes["node_id"]).to_numpy()]
        return rows[self._belongs(rows)] if "iteration_index" in rows else rows

    def _of_kernels(self, name: str) -> pd.DataFrame:
        if name not in self._results.tables():
            return self.whole(name)
        return self._results.numbered(name, "kernel_id", self.frame("kernels")["kernel_id"].to_numpy())

    def _stays(self, name: str) -> pd.DataFrame:
        """What is said of the whole recording."""
        return self.whole(name)

    def _is_left_out(self, name: str) -> pd.DataFrame:
        """Nothing: these compare captures, or hold other tables' sums."""
        return self._results.frame(name).iloc[:0]

    def _is_said(self, _: str) -> pd.DataFrame:
        """The row of the table ``part``."""
        said = f"{_stretch(self.low - self._origin, self.high - self._origin)} of the recording"
        if self.iteration is not None:
            warm = " (warm-up)" if bool(self.frame("iterations")["is_warmup"].any()) else ""
            count = len(self._iterations)
            said = f"iteration {self.iteration} of {count} (0 … {count - 1}){warm}, {said}"
        return pd.DataFrame([{
            "capture_id": self.capture_id, "statement": said,
            "iteration_index": -1 if self.iteration is None else self.iteration,
            "start_ns": self.low, "end_ns": self.high,
        }])  # fmt: skip
