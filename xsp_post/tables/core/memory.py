"""Tree → core tables: ``memory_devices``, ``memory``, ``memory_timeline``: who allocated what, and what was live when.

A release counts for the range that made the allocation; what backward work allocates counts for its forward layer.
What was live before the first event, or is not explained by the recorded ones, is an owner of its own.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.arrays.allocations import Lives, live_at, most_live, pair, running
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import nest
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.base.findings import Finding, finding
from xsp_post.model.levels import Level
from xsp_post.model.schemas.units import format_bytes
from xsp_post.model.trace import MemoryKind
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.tables.core.columns import Threads, empty_table
from xsp_post.tables.core.phases import BACKWARD, FORWARD, NONE, OTHER, PHASES, node_phases
from xsp_post.tree.layering import forward_of_backward

_TABLES = ("memory_devices", "memory", "memory_timeline")
_KINDS = {
    MemoryKind.PAGEABLE: "host", MemoryKind.PINNED: "pinned", MemoryKind.MANAGED: "managed",
    MemoryKind.MANAGED_STATIC: "managed",
}  # fmt: skip
_KIND_NAMES = np.array([_KINDS.get(kind, "device") for kind in MemoryKind], object)
_EARLIER, _NO_RANGE = "[earlier]", "[no range]"
_FRAMEWORK, _DRIVER = "framework", "driver"


def memory_frames(tree: Tree, threads: Threads) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """The tables about memory, without rows where nothing was recorded; and what is not known."""
    events = tree.trace.allocations
    if events.empty:
        return {name: empty_table(name) for name in _TABLES}, []
    memory = _Memory(tree, threads, events)
    owners, memory_id = memory.owners()
    frames = {"memory_devices": memory.devices(), "memory": owners, "memory_timeline": memory.timeline(memory_id)}
    return frames, memory.findings()


@dataclass
class _Places:
    """The memories that events are about."""

    of_event: np.ndarray
    frame: pd.DataFrame  # process_id, device_id, memory_kind; one row each


class _Memory:
    """Events, their lives and owners, by place."""

    def __init__(self, tree: Tree, threads: Threads, events: pd.DataFrame) -> None:
        self.tree, self.events = tree, events
        self.size = events["bytes"].to_numpy()
        self.places = _places(events, threads)
        self.place = self.places.of_event
        self.count = len(self.places.frame)
        self.lives: Lives = pair(self.place, events["address"].to_numpy(), self.size)
        self.origin = self.lives.origin
        self.total, self.is_told = self._totals()
        self.known = running(self.place, self.lives.change, self.count)
        self.rest = self.total - self.known
        self.first, self.last = _ends(self.place, self.count)
        self.earlier = self.total[self.first] - self._size_told()[self.first]
        self.peak_row, self.peak = self._peaks()
        self.node, self.layer = _owners(tree, events)

    def _size_told(self) -> np.ndarray:
        """What each event changed by, as far as it is known: of releases that name no size, that of the allocation."""
        paired = (self.size < 0) & (self.origin >= 0)
        return np.where(paired, -self.size[np.maximum(self.origin, 0)], self.size)

    def _totals(self) -> tuple[np.ndarray, np.ndarray]:
        """What was live after each event, and whether the capture itself says so (per place)."""
        told = self.events["total_bytes"].to_numpy()
        is_told = np.ones(self.count, bool)
        is_told[self.place[told < 0]] = False
        lost = (self.size < 0) & (self.origin < 0)
        least = sums_per_node(self.place[lost], -self.size[lost], self.count)  # was there before: it was released
        change = np.where(lost, self.size, self.lives.change)
        return np.where(is_told[self.place], told, running(self.place, change, self.count, least)), is_told

    def _peaks(self) -> tuple[np.ndarray, np.ndarray]:
        """Per place the row after which most was live, and how much; −1 where that was before the first event."""
        order = np.lexsort((np.arange(len(self.total)), -self.total, self.place))
        row = order[np.searchsorted(self.place[order], np.arange(self.count))]
        before = self.earlier > self.total[row]
        return np.where(before, -1, row), np.where(before, self.earlier, self.total[row])

    # -- tables -------------------------------------------------------------------------------------

    def devices(self) -> pd.DataFrame:
        size, place, count = self._size_told(), self.place, self.count
        start = self.events["start_ns"].to_numpy()
        made = size > 0
        peak_ns = start[np.where(self.peak_row >= 0, self.peak_row, self.first)]
        reserved = np.full(count, -1, np.int64)
        np.maximum.at(reserved, place, self.events["reserved_bytes"].to_numpy())
        frame = self.places.frame.assign(
            recorded_by=_FRAMEWORK if self.tree.trace.provenance.collector != "nsys" else _DRIVER,
            allocation_count=np.bincount(place[made], minlength=count),
            release_count=np.bincount(place[~made], minlength=count),
            allocated_bytes=sums_per_node(place[made], size[made], count),
            released_bytes=sums_per_node(place[~made], -size[~made], count), earlier_bytes=self.earlier,
            peak_bytes=self.peak, peak_ns=peak_ns, peak_offset_ns=peak_ns - self._origin(),
            peak_range=self._peak_ranges(), end_bytes=self.total[self.last],
            reserved_bytes=np.where(reserved > 0, reserved, -1), memory_bytes=self._capacities(),
        )  # fmt: skip
        return frame.drop(columns=["process_index"])

    def _origin(self) -> int:
        """What offsets count from, as ``--from`` does: nsys' clock as it is, others from the first event."""
        return 0 if self.tree.trace.provenance.collector == "nsys" else int(self.tree.nodes["start_ns"].iloc[0])

    def _peak_ranges(self) -> list[str]:
        """Per place what needed the memory at the peak."""
        names = np.asarray(self.tree.names.folded_names, object)
        columns = ["parent_id", "kernel_count"]
        nodes = self.tree.nodes[columns].assign(folded_name=names[self.tree.nodes["folded_id"].to_numpy()])
        nodes = nodes.assign(node_id=np.arange(len(nodes)))
        return [range_with_work(nodes, int(self.node[row]) if row >= 0 else -1) for row in self.peak_row.tolist()]

    def _capacities(self) -> np.ndarray:
        listed = self.tree.trace.devices
        keys = ["process_index", "device_id"]
        if "memory_bytes" not in listed:
            return np.full(self.count, -1, np.int64)
        known = listed.drop_duplicates(keys).set_index(keys)["memory_bytes"]
        wanted = pd.MultiIndex.from_frame(self.places.frame[keys].astype(np.int64))
        found = known.reindex(wanted).fillna(-1).to_numpy(np.int64)
        return np.where((self.places.frame["memory_kind"] == "device") & (found > 0), found, -1)

    def owners(self) -> tuple[pd.DataFrame, np.ndarray]:
        """One row per place and layer (or range outside of layers), and one per place for what was there earlier; and
        of each event the row whose memory it is about."""
        names = _OwnerNames(self.tree, self.node, self.layer)
        made = self.size > 0
        width = names.count * len(PHASES)
        owner = np.where(made, self.place * width + names.number * len(PHASES) + self._phases(), -1)
        codes, groups = pd.factorize(np.where(owner >= 0, owner, -1)[made])
        of_event = np.full(len(owner), -1, np.int64)
        of_event[made] = codes
        count = len(groups)
        at_peak = live_at(self.lives, self.peak_row[self.place])
        at_end = made & (self.lives.ended_by < 0)
        ended = made & ~at_end

        def summed(chosen: np.ndarray) -> np.ndarray:
            return sums_per_node(of_event[chosen], self.size[chosen], count)

        place = groups // width
        frame = self.places.frame.iloc[place].reset_index(drop=True).assign(
            place=place, **names.columns(groups % width // len(PHASES)),
            training_phase=np.array(PHASES, object)[groups % len(PHASES)],
            allocation_count=np.bincount(codes, minlength=count), allocated_bytes=summed(made),
            release_count=np.bincount(of_event[ended], minlength=count), released_bytes=summed(ended),
            most_live_bytes=most_live(self.lives, self.size, of_event, count),
            live_at_peak_bytes=summed(at_peak), live_at_end_bytes=summed(at_end),
        )  # fmt: skip
        earlier = self._earlier_rows()
        of_lost = np.full(self.count, -1, np.int64)
        of_lost[earlier["place"].to_numpy()] = count + np.arange(len(earlier))
        row = np.where(self.origin >= 0, of_event[np.maximum(self.origin, 0)], of_lost[self.place])
        frame = pd.concat([frame, earlier], ignore_index=True)
        of_place = frame.pop("place").to_numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = frame["live_at_peak_bytes"].to_numpy() / self.peak[of_place]
        frame["live_at_peak_ratio"] = np.where(self.peak[of_place] > 0, ratio, np.nan)
        by = np.lexsort((-frame["allocated_bytes"], -frame["live_at_peak_bytes"], of_place))
        number = np.empty(len(by), np.int64)
        number[by] = np.arange(len(by))
        frame = frame.iloc[by].drop(columns=["process_index"]).reset_index(drop=True)
        frame.insert(0, "memory_id", np.arange(len(by)))
        return frame, number[row]

    def _phases(self) -> np.ndarray:
        """Code of `phases.PHASES` of each allocation, as of kernels; all "" where no backward work allocates."""
        of_node = np.append(node_phases(self.tree), NONE)
        phase = of_node[self.node]
        if not (phase == BACKWARD).any():
            return np.zeros(len(phase), np.int64)
        numbered = np.append(self.tree.nodes["sequence"].to_numpy(), -1)[self.node] >= 0
        rest = np.where(numbered | (self.layer >= 0), FORWARD, OTHER)
        return np.where(phase == NONE, rest, phase).astype(np.int64)

    def _earlier_rows(self) -> pd.DataFrame:
        lost = (self.size < 0) & (self.origin < 0)
        most = self.earlier.copy()
        np.maximum.at(most, self.place, self.rest)
        at_peak = np.where(self.peak_row >= 0, self.rest[self.peak_row], self.earlier)
        frame = self.places.frame.assign(
            place=np.arange(self.count), owner_kind="earlier", owner=_EARLIER, layer_index=-1, layer_type="",
            training_phase="",
            allocation_count=0, allocated_bytes=-1, release_count=np.bincount(self.place[lost], minlength=self.count),
            released_bytes=sums_per_node(self.place[lost], -self.size[lost], self.count), most_live_bytes=most,
            live_at_peak_bytes=at_peak, live_at_end_bytes=self.rest[self.last],
        )  # fmt: skip
        says = (at_peak != 0) | (most != 0) | (self.rest[self.last] != 0)
        return frame[says | (frame["release_count"] > 0)]

    def timeline(self, memory_id: np.ndarray) -> pd.DataFrame:
        events, made = self.events, self.size > 0
        start = events["start_ns"].to_numpy()
        ended = np.where(made, self.lives.ended_by, -1)
        origin = np.maximum(self.origin, 0)

        def of_origin(values: np.ndarray) -> np.ndarray:
            return np.where(self.origin >= 0, values[origin], -1)

        node = of_origin(self.node)
        iteration = self.tree.nodes["iteration_index"].to_numpy(np.int64)
        columns = {
            **{c: self.places.frame[c].to_numpy()[self.place] for c in ("process_id", "device_id", "memory_kind")},
            "memory_id": memory_id, "start_ns": start, "change_bytes": self._size_told(), "total_bytes": self.total,
            "reserved_bytes": events["reserved_bytes"].to_numpy(),
            "end_ns": np.where(ended >= 0, start[np.maximum(ended, 0)], -1),
            "node_id": node, "layer_index": of_origin(_layer_index(self.tree, self.layer)),
            "iteration_index": np.where(node >= 0, iteration[np.maximum(node, 0)], -1),
        }  # fmt: skip
        columns["memory_kind"] = pd.Categorical(columns["memory_kind"])
        return pd.DataFrame(columns)

    # -- what is not known ------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        found = []
        lost = (self.size < 0) & (self.origin < 0)
        if lost.any():
            amount = format_bytes(int(-self.size[lost].sum()))
            found.append(finding("memory-released-earlier", count=int(lost.sum()), example=amount))
        nowhere = (self.size > 0) & (self.node < 0)
        if nowhere.any():
            amount = format_bytes(int(self.size[nowhere].sum()))
            found.append(finding("memory-owner-unknown", count=int(nowhere.sum()), example=amount))
        if self.lives.is_reuse.any():
            found.append(finding("memory-release-missing", count=int(self.lives.is_reuse.sum())))
        differs = self._steps_that_differ()
        if differs.any():
            row = int(np.flatnonzero(differs)[0])
            said = f"first where {format_bytes(int(self.total[row]))} are live"
            found.append(finding("memory-events-missing", count=int(differs.sum()), example=said))
        if self.tree.trace.provenance.collector == "nsys":
            found.append(finding("memory-of-driver", count=len(self.size)))
        return found

    def _steps_that_differ(self) -> np.ndarray:
        """Events after which the capture's own total is not the one before plus the event. bool per event."""
        order = np.argsort(self.place, kind="stable")
        step = np.diff(self.total[order]) != self._size_told()[order][1:]
        step &= self.place[order][1:] == self.place[order][:-1]
        result = np.zeros(len(order), bool)
        result[order[1:]] = step
        return result & self.is_told[self.place]


def range_with_work(nodes: pd.DataFrame, node_id: int) -> str:
    """The folded name of the innermost range at or around a node that launched kernels, "" for none. ``nodes``:
    node_id, parent_id, kernel_count, folded_name."""
    at = pd.Index(nodes["node_id"])
    parent, works = nodes["parent_id"].to_numpy(), nodes["kernel_count"].to_numpy() > 0
    while node_id >= 0 and (row := int(at.get_indexer([node_id])[0])) >= 0:
        if works[row]:
            return str(nodes["folded_name"].iloc[row]) if parent[row] >= 0 else ""
        node_id = int(parent[row])
    return ""


def _places(events: pd.DataFrame, threads: Threads) -> _Places:
    process = events["process_index"].to_numpy().astype(np.int64)
    device = events["device_id"].to_numpy().astype(np.int64)
    name_codes, names = pd.factorize(_KIND_NAMES[events["memory_kind"].to_numpy()])
    width = int(device.max(initial=0)) + 2
    number = np.where(device < 0, width - 1, device)  # the host comes after the devices
    codes, unique = pd.factorize((process * width + number) * len(names) + name_codes, sort=True)
    place, kind = unique // len(names), unique % len(names)
    number = place % width
    frame = pd.DataFrame({
        "process_index": place // width, "process_id": threads.process_id(place // width),
        "device_id": np.where(number == width - 1, -1, number), "memory_kind": names[kind],
    })  # fmt: skip
    return _Places(codes, frame)


def _ends(place: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last row of each place."""
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rows = np.arange(len(place))
    last[place] = rows
    first[place[::-1]] = rows[::-1]  # written backwards, the first stays
    return first, last


def _owners(tree: Tree, events: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The innermost node around each event on its thread, and the node of its layer (or model's own part); −1 none."""
    nodes = tree.nodes
    thread = nodes["thread_index"].to_numpy().astype(np.int64)
    usable = np.flatnonzero((thread >= 0) & (nodes["kind"].to_numpy() != int(NodeKind.CROSS_THREAD)))
    start, end = nodes["start_ns"].to_numpy()[usable], nodes["end_ns"].to_numpy()[usable]
    asked = np.flatnonzero(events["thread_index"].to_numpy() >= 0)
    node = np.full(len(events), -1, np.int64)
    if not len(usable) or not len(asked):
        return node, node.copy()
    at = events["start_ns"].to_numpy()[asked]
    on = events["thread_index"].to_numpy()[asked].astype(np.int64)
    found = nest(thread[usable], start, end).innermost(on, at, at)
    hit = found >= 0
    node[asked[hit]] = usable[found[hit]]
    layer_of = nodes["layer_node_id"].to_numpy()
    layer = np.where(node >= 0, layer_of[np.maximum(node, 0)], -1)
    forward = forward_of_backward(
        nodes[["process_index", "start_ns"]], nodes["sequence"].to_numpy(), nodes["is_backward"].to_numpy(),
        nodes["parent_id"].to_numpy(),
    )  # fmt: skip
    home = np.where(node >= 0, forward[np.maximum(node, 0)], -1)
    by_sequence = (home >= 0) & (layer_of[np.maximum(home, 0)] >= 0)
    layer[by_sequence] = layer_of[home[by_sequence]]
    return node, layer


def _layer_key(tree: Tree, layer: np.ndarray) -> np.ndarray:
    keys = tree.nodes["layer_key"].to_numpy() if "layer_key" in tree.nodes else np.full(len(tree.nodes), -1)
    return np.where(layer >= 0, keys[np.maximum(layer, 0)], -1)


def _layer_index(tree: Tree, layer: np.ndarray) -> np.ndarray:
    key = _layer_key(tree, layer)
    return key + (key >= 0)


class _OwnerNames:
    """A number for each owner: layers first, then ranges that are in none, then no range."""

    def __init__(self, tree: Tree, node: np.ndarray, layer: np.ndarray) -> None:
        self._tree = tree
        self._layers = len(tree.layer_keys)
        key = _layer_key(tree, layer)
        outer = _outermost(tree)[np.maximum(node, 0)]
        folded = tree.nodes["folded_id"].to_numpy()[outer]
        self._none = self._layers + len(tree.names.folded_names)
        self.number = np.where(key >= 0, key, np.where(node >= 0, self._layers + folded, self._none))
        self.count = self._none + 1

    def columns(self, number: np.ndarray) -> dict[str, np.ndarray]:
        """What the table says of each owner."""
        is_layer, is_none = number < self._layers, number == self._none
        texts = np.append(np.asarray(self._tree.names.folded_names, object), _NO_RANGE)
        kind = np.where(is_layer, "layer", np.where(is_none, "none", "range")).astype(object)
        owner = texts[np.clip(number - self._layers, 0, len(texts) - 1)]
        layer_type = np.full(len(number), "", object)
        if is_layer.any():
            keys = self._tree.layer_keys
            owner[is_layer] = keys["layer_path"].to_numpy(object)[number[is_layer]]
            layer_type[is_layer] = keys["layer_type"].to_numpy(object)[number[is_layer]]
        index = np.where(is_layer, number + 1, -1)
        return {"owner_kind": kind, "owner": owner, "layer_index": index, "layer_type": layer_type}


def _outermost(tree: Tree) -> np.ndarray:
    """Of each node the outermost range around it that is no model; of a model's own, the model."""
    nodes = tree.nodes
    level, parent = nodes["level"].to_numpy(), nodes["parent_id"].to_numpy()
    wide = np.isin(level, [int(Level.CAPTURE), int(Level.APPLICATION), int(Level.MODEL)])
    return forest_of(parent).nearest(wide | (parent < 0) | wide[parent])
