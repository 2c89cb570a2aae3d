"""Tree → core tables: ``memory_devices``, ``memory``, ``memory_timeline``: who allocated what, and what was live when.

A release counts for the range that made the allocation; what backward work allocates counts for its forward layer.
What was live before the first event, or is not explained by the recorded ones, is an owner of its own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from xsp_post.arrays.allocations import Held, Lives, pair, running
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.intervals import nest
from xsp_post.arrays.rollup import sums_per_node
from xsp_post.base.findings import Finding, if_any
from xsp_post.model.kinds import PHASES
from xsp_post.model.levels import Level
from xsp_post.model.results import empty_table
from xsp_post.model.schemas.units import format_bytes
from xsp_post.model.trace import MemoryKind
from xsp_post.model.tree import NodeKind, Tree
from xsp_post.tables.core.columns import Threads, layer_index
from xsp_post.tables.core.phases import NONE, node_phases, with_rest
from xsp_post.tree.layering import forward_of_backward

if TYPE_CHECKING:
    from xsp_post.tables.part import Part

_TABLES = ("memory_devices", "memory", "memory_timeline")
_KINDS = {
    MemoryKind.PAGEABLE: "host", MemoryKind.PINNED: "pinned", MemoryKind.MANAGED: "managed",
    MemoryKind.MANAGED_STATIC: "managed",
}  # fmt: skip
_KIND_NAMES = np.array([_KINDS.get(kind, "device") for kind in MemoryKind], object)
_EARLIER, _NO_RANGE = "[earlier]", "[no range]"
_PLACE = ["process_id", "device_id", "memory_kind"]


def memory_frames(tree: Tree, threads: Threads) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """The tables about memory, without rows where nothing was recorded; and what is not known."""
    events = tree.trace.allocations
    if events.empty:
        return {name: empty_table(name).drop(columns="capture_id") for name in _TABLES}, []
    memory = _Memory(tree, threads, events)
    devices, owners, memory_id = memory.places_and_owners()
    return dict(zip(_TABLES, (devices, owners, memory.timeline(memory_id)))), memory.findings()


@dataclass
class PlaceEvents:
    """Events of one memory in order of time, and what its owners hold; what no change explains was there earlier."""

    start_ns: np.ndarray
    size: np.ndarray  # bytes that each event changed
    total: np.ndarray  # what was live after each
    before: int  # and before the first
    held: Held
    is_earlier: np.ndarray  # bool per owner: what was there before the first event

    def amounts(self, first: int, last: int) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
        """Columns of ``memory_devices`` and, per owner, of ``memory`` for the events from ``first`` to ``last``; and
        the event after which most was live, which may be the one before ``first``."""
        total, held, size = self.total, self.held, self.size[first : last + 1]
        before = int(total[first - 1]) if first else self.before
        row = first + int(np.argmax(total[first : last + 1]))
        peak = max(int(total[row]), before)
        row = first - 1 if before > int(total[row]) else row
        at_ns, end = int(self.start_ns[max(row, first)]), int(total[last])
        memory = {"earlier_bytes": before, "peak_bytes": peak, "peak_ns": at_ns, "end_bytes": end}
        inside = (held.when >= first) & (held.when <= last)
        columns: dict[str, np.ndarray] = {}
        for name, bytes_name, sign in (
            ("allocation_count", "allocated_bytes", 1), ("release_count", "released_bytes", -1),
        ):  # fmt: skip
            memory |= {name: int((size * sign > 0).sum()), bytes_name: int(np.maximum(size * sign, 0).sum())}
            chosen = inside & (held.change * sign > 0)
            columns[name] = np.bincount(held.who[chosen], minlength=held.owner_count)
            columns[bytes_name] = np.abs(sums_per_node(held.who[chosen], held.change[chosen], held.owner_count))
        columns["allocated_bytes"][self.is_earlier] = -1
        at_peak = self._live(row, peak)
        columns |= {
            "most_live_bytes": self._most(first, last), "live_at_peak_bytes": at_peak,
            "live_at_end_bytes": self._live(last, end),
            "live_at_peak_ratio": at_peak / peak if peak > 0 else np.full(len(at_peak), np.nan),
        }  # fmt: skip
        return memory, columns, row

    def _live(self, event: int, total: int) -> np.ndarray:
        """What each owner holds after an event."""
        live = np.maximum(self.held.at(event), 0)
        live[self.is_earlier] = 0
        live[self.is_earlier] = total - live.sum()
        return live

    def _most(self, first: int, last: int) -> np.ndarray:
        most = self.held.most(first, last)
        known = ~self.is_earlier[self.held.who]
        changes = sums_per_node(self.held.when[known], self.held.change[known], len(self.total))
        # before the first event, and after each
        rest = np.append(self.before, self.total) - np.append(0, np.cumsum(changes))
        most[self.is_earlier] = rest[first : last + 2].max()
        return most


class _Memory:
    """Events, their lives and owners, by place."""

    def __init__(self, tree: Tree, threads: Threads, events: pd.DataFrame) -> None:
        self.tree, self.events = tree, events
        self.size = events["bytes"].to_numpy()
        self.place, self.places = _places(events, threads)
        self.count = len(self.places)
        self.lives: Lives = pair(self.place, events["address"].to_numpy(), self.size)
        self.origin = self.lives.origin
        self.total, self.is_told = self._totals()
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

    # -- tables -------------------------------------------------------------------------------------

    def places_and_owners(self) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
        """A row per place; a row per place and layer (or range outside of layers), and one per place for what was there
        earlier; and of each event the row whose memory it is about."""
        frame, of_place, of_event = self._owner_rows()
        made, ended_by, size = self.size > 0, self.lives.ended_by, self._size_told()
        ended, lost = np.flatnonzero(made & (ended_by >= 0)), np.flatnonzero((self.size < 0) & (self.origin < 0))
        when = np.concatenate([np.flatnonzero(made), ended_by[ended], lost])
        who = of_event[np.concatenate([np.flatnonzero(made), ended, lost])]
        change = np.concatenate([self.size[made], -self.size[ended], self.size[lost]])
        start = self.events["start_ns"].to_numpy()
        devices, owners = [], []
        for place in range(self.count):  # a handful
            rows, mine, changes = (np.flatnonzero(of == place) for of in (self.place, of_place, self.place[when]))
            held = Held(
                np.searchsorted(rows, when[changes]), np.searchsorted(mine, who[changes]), change[changes], len(mine)
            )
            before = int(self.total[rows[0]] - size[rows[0]])
            is_earlier = mine >= len(frame) - self.count
            events = PlaceEvents(start[rows], size[rows], self.total[rows], before, held, is_earlier)
            amounts, columns, peak = events.amounts(0, len(rows) - 1)
            devices.append({**amounts, "peak_range": self._range_around(rows[peak] if peak >= 0 else -1)})
            owners.append(frame.iloc[mine].assign(**columns, place=place))
        told = pd.concat(owners)
        amounts_told = ["release_count", "most_live_bytes", "live_at_peak_bytes", "live_at_end_bytes"]
        told = told[told["owner_kind"].ne("earlier") | told[amounts_told].ne(0).any(axis=1)]
        told = told.iloc[np.lexsort((-told["allocated_bytes"], -told["live_at_peak_bytes"], told["place"]))]
        number = np.full(len(frame), -1, np.int64)
        number[told.index] = np.arange(len(told))
        told = told.drop(columns=["process_index", "place"]).reset_index(drop=True)
        told.insert(0, "memory_id", np.arange(len(told)))
        return self._devices(pd.DataFrame(devices)), told, number[of_event]

    def _devices(self, amounts: pd.DataFrame) -> pd.DataFrame:
        reserved = np.full(self.count, -1, np.int64)
        np.maximum.at(reserved, self.place, self.events["reserved_bytes"].to_numpy())
        # offsets count from where ``--from`` does: nsys' clock as it is, others from the first event
        origin = 0 if self._is_of_driver() else int(self.tree.nodes["start_ns"].iloc[0])
        return self.places.drop(columns=["process_index"]).assign(
            recorded_by="driver" if self._is_of_driver() else "framework",
            **{str(name): amounts[name] for name in amounts}, peak_offset_ns=amounts["peak_ns"] - origin,
            reserved_bytes=np.where(reserved > 0, reserved, -1), memory_bytes=self._capacities(),
        )  # fmt: skip

    def _is_of_driver(self) -> bool:
        """nsys records what the driver gives; others what a framework's allocator does."""
        return self.tree.trace.provenance.collector == "nsys"

    def _range_around(self, row: int) -> str:
        """What needed the memory at an event."""
        names = np.asarray(self.tree.names.folded_names, object)
        nodes = self.tree.nodes[["parent_id", "kernel_count"]]
        nodes = nodes.assign(folded_name=names[self.tree.nodes["folded_id"].to_numpy()], node_id=np.arange(len(nodes)))
        return range_with_work(nodes, int(self.node[row]) if row >= 0 else -1)

    def _capacities(self) -> np.ndarray:
        listed = self.tree.trace.devices
        keys = ["process_index", "device_id"]
        if "memory_bytes" not in listed:
            return np.full(self.count, -1, np.int64)
        known = listed.drop_duplicates(keys).set_index(keys)["memory_bytes"]
        wanted = pd.MultiIndex.from_frame(self.places[keys].astype(np.int64))
        found = known.reindex(wanted).fillna(-1).to_numpy(np.int64)
        return np.where((self.places["memory_kind"] == "device") & (found > 0), found, -1)

    def _owner_rows(self) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """The owners, those of earlier memory last; the place of each; and of each event the row it is about."""
        names = _OwnerNames(self.tree, self.node, self.layer)
        made = self.size > 0
        width = names.count * len(PHASES)
        owner = self.place * width + names.number * len(PHASES) + self._phases()
        codes, groups = pd.factorize(owner[made])
        of_made = np.full(len(owner), -1, np.int64)
        of_made[made] = codes
        place = groups // width
        frame = self.places.iloc[place].assign(
            **names.columns(groups % width // len(PHASES)),
            training_phase=np.array(PHASES, object)[groups % len(PHASES)],
        )  # fmt: skip
        earlier = self.places.assign(
            owner_kind="earlier", owner=_EARLIER, layer_index=-1, layer_type="", training_phase=""
        )
        of_event = np.where(self.origin >= 0, of_made[np.maximum(self.origin, 0)], len(groups) + self.place)
        return pd.concat([frame, earlier], ignore_index=True), np.append(place, np.arange(self.count)), of_event

    def _phases(self) -> np.ndarray:
        """Code of `kinds.PHASES` of each allocation, as of kernels; all "" where no backward work allocates."""
        of_node = np.append(node_phases(self.tree), NONE)
        return with_rest(self.tree, of_node[self.node], self.node, self.layer >= 0)

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
            **{c: self.places[c].to_numpy()[self.place] for c in _PLACE},
            "memory_id": memory_id, "start_ns": start, "change_bytes": self._size_told(), "total_bytes": self.total,
            "reserved_bytes": events["reserved_bytes"].to_numpy(),
            "end_ns": np.where(ended >= 0, start[np.maximum(ended, 0)], -1),
            "node_id": node, "layer_index": of_origin(layer_index(self.tree, self.layer)),
            "iteration_index": np.where(node >= 0, iteration[np.maximum(node, 0)], -1),
        }  # fmt: skip
        columns["memory_kind"] = pd.Categorical(columns["memory_kind"])
        return pd.DataFrame(columns)

    # -- what is not known ------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        lost, nowhere = (self.size < 0) & (self.origin < 0), (self.size > 0) & (self.node < 0)
        released, made = (format_bytes(abs(int(self.size[which].sum()))) for which in (lost, nowhere))
        first = "first where {} are live"
        return [
            *if_any("memory-released-earlier", lost, released),
            *if_any("memory-owner-unknown", nowhere, made),
            *if_any("memory-release-missing", self.lives.is_reuse),
            *if_any("memory-events-missing", self._steps_that_differ(),
                    lambda row: first.format(format_bytes(int(self.total[row])))),
            *if_any("memory-of-driver", len(self.size) * self._is_of_driver()),
        ]  # fmt: skip

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


def _places(events: pd.DataFrame, threads: Threads) -> tuple[np.ndarray, pd.DataFrame]:
    """The memory that each event is about, and the memories: process_id, device_id, memory_kind; one row each."""
    process = events["process_index"].to_numpy().astype(np.int64)
    device = events["device_id"].to_numpy().astype(np.int64)
    name_codes, names = pd.factorize(_KIND_NAMES[events["memory_kind"].to_numpy()])
    width = int(device.max(initial=0)) + 2
    number = np.where(device < 0, width - 1, device)  # the host comes after the devices
    codes, unique = pd.factorize((process * width + number) * len(names) + name_codes, sort=True)
    place, kind = unique // len(names), unique % len(names)
    number = place % width
    return codes, pd.DataFrame({
        "process_index": place // width, "process_id": threads.process_id(place // width),
        "device_id": np.where(number == width - 1, -1, number), "memory_kind": names[kind],
    })  # fmt: skip


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


class _OwnerNames:
    """A number for each owner: layers first, then ranges that are in none, then no range."""

    def __init__(self, tree: Tree, node: np.ndarray, layer: np.ndarray) -> None:
        self._tree = tree
        self._layers = len(tree.layer_keys)
        index = layer_index(tree, layer)
        outer = _outermost(tree)[np.maximum(node, 0)]
        folded = tree.nodes["folded_id"].to_numpy()[outer]
        self._none = self._layers + len(tree.names.folded_names)
        self.number = np.where(index > 0, index - 1, np.where(node >= 0, self._layers + folded, self._none))
        self.count = self._none + 1

    def columns(self, number: np.ndarray) -> dict[str, np.ndarray]:
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


def memory_of_part(cut: "Part", inside: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """``memory`` and ``memory_devices`` of the events ``inside``, rows of ``memory_timeline``; what was allocated
    before the part is still its owner's."""
    owners, devices = cut.whole("memory").reset_index(drop=True), cut.whole("memory_devices")
    if inside.empty:
        return {"memory": owners.iloc[:0], "memory_devices": devices.iloc[:0]}
    timeline, nodes = cut.whole("memory_timeline").reset_index(drop=True), cut.whole("nodes")
    in_part = timeline["start_ns"].between(inside["start_ns"].min(), inside["start_ns"].max()).to_numpy()
    keys = [frame[_PLACE].astype({"memory_kind": str}) for frame in (timeline, owners, devices)]
    place, of_owner, of_device = (pd.MultiIndex.from_frame(one) for one in keys)
    number = of_device.get_indexer(place)
    places = []
    for row in np.unique(number[in_part]).tolist():  # a handful of places
        mine = number == row
        own = owners[of_device.get_indexer(of_owner) == row]
        places.append(_of_place(timeline[mine], np.flatnonzero(in_part[mine]), own, devices.iloc[row], nodes))
    return {
        "memory": pd.concat([part for _, part in places], ignore_index=True),
        "memory_devices": pd.DataFrame([row for row, _ in places], columns=devices.columns),
    }


def _of_place(
    timeline: pd.DataFrame, inside: np.ndarray, owners: pd.DataFrame, device: pd.Series, nodes: pd.DataFrame
) -> tuple[dict[Any, Any], pd.DataFrame]:
    """One row of ``memory_devices``, and the owners in it; ``timeline``: its events, those ``inside`` in the part."""
    start, size, total = (timeline[c].to_numpy() for c in ("start_ns", "change_bytes", "total_bytes"))
    owner = pd.Index(owners["memory_id"]).get_indexer(pd.Index(timeline["memory_id"]))
    is_earlier = owners["owner_kind"].astype(str).eq("earlier").to_numpy()
    held = Held(np.arange(len(size)), owner, size, len(owners))
    events = PlaceEvents(start, size, total, int(device["earlier_bytes"]), held, is_earlier)
    amounts, columns, peak = events.amounts(int(inside[0]), int(inside[-1]))
    row: dict[Any, Any] = {
        **device.to_dict(), **amounts,
        "peak_offset_ns": int(device["peak_offset_ns"]) + amounts["peak_ns"] - int(device["peak_ns"]),
        "peak_range": range_with_work(nodes, int(timeline["node_id"].iloc[peak])) if peak >= 0 else "",
    }  # fmt: skip
    frame = owners.assign(**columns)
    told = frame[["allocation_count", "release_count", "most_live_bytes", "live_at_peak_bytes"]].ne(0).any(axis=1)
    return row, frame[told].sort_values(["live_at_peak_bytes", "allocated_bytes"], ascending=False, kind="stable")
