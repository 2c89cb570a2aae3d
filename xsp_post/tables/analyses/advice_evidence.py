"""Results and limit → what advice stands on: platforms, kernels, copies, causes and the ranges around them."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.joins import lookup
from xsp_post.arrays.repeats import dense, numbered
from xsp_post.arrays.rollup import holds, sums_per_node
from xsp_post.hardware.gpus import relative_rates
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.names.attention import unfused_attention
from xsp_post.names.families import FAMILIES, family_index
from xsp_post.names.patterns import found_in, found_in_column
from xsp_post.names.platforms import COMPILED, PYTHON, PYTORCH
from xsp_post.replay.calls import LUMP_NS
from xsp_post.replay.edges import SYNCHRONISATIONS
from xsp_post.replay.fidelity import Identity, identity_of
from xsp_post.replay.recording import MOST_OPERATIONS, are_few
from xsp_post.replay.resources import MADE_OF, Altered
from xsp_post.tables.analyses.frames import PATTERNS
from xsp_post.tables.analyses.limits import OUTSIDE, UNKNOWN, Limit, groups_of, in_scope
from xsp_post.tables.analyses.remedies import REMEDIES, words_for

MUCH_RATIO = 0.1  # of the time, of an execution: what somebody would look for
_FEW_EXECUTIONS = 3
LEAST_ATTENTIONS = 4  # as in a model of several layers
SHORT_KERNEL_NS = 20_000  # of a GPU; what a CPU runs is an operator, and short where host code is
NOTHING: Mapping[str, Any] = {}
_MOST_ORPHANS = 0.2  # with more work without a launch row nobody knows when it could have started
SHAPE_OF_LAUNCH = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
_STREAM = ["capture_id", "process_id", "device_id", "stream_id"]


@dataclass(frozen=True)
class Found:
    """A remedy whose needs a recording shows. ``words`` are those of its texts."""

    code: str
    spent_ns: float  # the time that it concerns
    evidence: str
    words: dict[str, str]
    factors: pd.Series | None = None  # start of a kernel → the part of its time that stays, in the ideal
    likely: pd.Series | None = None  # and the part that is likely to stay
    whole_ns: int = 0  # what its share is of, where that is not the limit's time,
    whole: str = ""  # in words
    ideal: str = ""  # the replay that no promise exceeds, where it is not that of the remedy,
    surely: str = ""  # and the replay of what is sure to go
    is_open: bool = False  # other work, too, moves up: the time that it concerns is no bound
    is_bound: bool = True  # false: the ideal of its replay is none either
    has_estimate: bool = True  # false: the change saves what a replay of it does not know
    is_sure: bool = True  # false: what is seen does not say what it is (the text ``unsure`` of the remedy)


def _pattern(names: set[str]) -> str:
    return f"^(?:{'|'.join(map(re.escape, sorted(names)))})$"


def replayable(results: Results, limit: Limit) -> Identity | None:
    """The replay of the one capture that a limit speaks of; None where there is none that could be asked."""
    has_tables = {"kernels", "dependencies", "memory_operations"} <= set(results.tables())
    if not has_tables or limit.scope == "warm-up" or len(limit.captures) != 1:
        return None
    identity = identity_of(results, limit.captures[0])
    return None if identity.refusal or identity.orphan_ratio > _MOST_ORPHANS else identity


class Situation:
    """What a limit speaks of, in tables; each is read when a rule asks for it."""

    def __init__(self, results: Results, limit: Limit) -> None:
        self.results, self.limit = results, limit
        shown = of_captures(results, "platforms", limit.captures, ["platform"])
        self.platforms = frozenset(shown["platform"].astype(str))
        self.words = {**words_for(self.platforms), "work": "kernels" if limit.is_gpu else "operators"}
        self.is_torch = {PYTORCH, PYTHON} <= self.platforms
        collectors = of_captures(results, "captures", limit.captures, ["collector"])["collector"]
        self.is_nsys = bool(collectors.eq("nsys").all())

    def found(
        self, code: str, spent_ns: float, facts: Mapping[str, Any] = NOTHING, seen: str = "", *, more: str = "",
        words: Mapping[str, str] = NOTHING, **others: Any,
    ) -> list[Found]:  # fmt: skip
        """The remedy, where it concerns any time: with its evidence (`Remedy.evidence`, and ``more``) and its words."""
        if not spent_ns > 0:
            return []
        evidence = REMEDIES[code].evidence(seen, {"spent_ns": int(spent_ns), **facts})
        others = {"is_bound": not REMEDIES[code].acts, **others}
        return [Found(code, spent_ns, evidence + more, {**self.words, **words}, **others)]

    def window(self, column: str) -> int:
        """A sum of `device_windows`."""
        return int(self.limit.window.get(column, 0))

    @cached_property
    def is_compiled(self) -> bool:
        """Whether a compiler fuses already; JAX that runs operator by operator does not."""
        is_eager = np.mean(self.is_called("^wrapped_") if len(self.kernels) else 0) > 0.5
        return bool(self.platforms & {COMPILED, "TensorRT"}) or ("JAX" in self.platforms and not is_eager)

    @cached_property
    def causes(self) -> pd.DataFrame:
        """The idle time of the limit's scope whose cause is known."""
        causes = in_scope(self.results, self.limit)
        return causes[groups_of(causes).ne(UNKNOWN)].astype(
            {"cause": str, "call_name": str, "detail": str, "owner": str}
        )

    def waited(self, *names: str) -> pd.DataFrame:
        """Rows of these causes."""
        return self.causes[self.causes["cause"].isin(names)]

    def lost(self, rows: pd.DataFrame) -> int:
        """The idle time of these causes, of all devices as if each had as much as the one with most: others wait."""
        device, first = numbered(rows, ["capture_id", "device_id"])
        idle = sums_per_node(device, rows["idle_ns"].to_numpy(), len(first))
        return int(idle.max(initial=0)) * self.limit.device_count

    @cached_property
    def _paths(self) -> tuple[np.ndarray, list[str], np.ndarray]:
        columns = ["path_id", "parent_path_id", "name"]
        paths = of_captures(self.results, "paths", self.limit.captures[:1], columns).sort_values("path_id")
        numbers = paths["path_id"].to_numpy(np.int64)
        asked = paths["parent_path_id"].fillna(-1).to_numpy(np.int64)
        parent = lookup(numbers, np.arange(len(numbers)), asked)
        return numbers, paths["name"].astype(str).tolist(), parent

    def names_around(self, pattern: str) -> set[str]:
        """Names of the ranges that hold one of this name, it among them."""
        _, names, parent = self._paths
        return set(compress(names, holds(found_in(names, pattern), parent)))

    def inside(self, pattern: str) -> pd.DataFrame:
        """Rows of `causes` that lie in a range of this name, or in a range inside it."""
        numbers, names, parent = self._paths
        if len(self.limit.captures) != 1 or not names:
            return self.causes.iloc[:0]
        hit = found_in(names, pattern)
        return self.causes[self.causes["path_id"].isin(numbers[hit | forest_of(parent).inside(hit)]).to_numpy(bool)]

    @cached_property
    def _owners(self) -> pd.DataFrame:
        """By name of a range: whether it computes, and whether it does more than make and read values; bool. Both are
        so of what is inferred, and of what is nothing but the execution."""
        columns = ["name", "level", "is_inferred", "kernel_ns", "copy_ns", "kernel_count", "copy_count", "graph_count"]
        paths = frame_or_empty(self.results, "paths", columns)
        is_other = paths["is_inferred"].fillna(False).astype(bool) | paths["level"].eq("MODEL")
        does_more = paths["kernel_count"].gt(MADE_OF * paths["copy_count"]) | paths["graph_count"].gt(0)
        said = {"computes": paths["kernel_ns"].gt(paths["copy_ns"]) | is_other, "does_more": does_more | is_other}
        return pd.DataFrame(said).groupby(paths["name"].astype(str)).any()

    def is_framework(self, rows: pd.DataFrame) -> np.ndarray:
        """Which rows of `causes` lie in ranges of a framework, or in short pieces in ranges that launch kernels or that
        nobody recorded: there is no place whose code could move. Nor where a piece came once and is little: what such
        a range does it does each time, and a scheduler stops anything."""
        owned = self._owners.index[self._owners["computes"]]
        is_short = ~self.is_lump(rows)
        is_once = (rows["longest_ns"] >= rows["idle_ns"] / 2) & (self.execution_count >= _FEW_EXECUTIONS)
        is_short |= is_once & (rows["idle_ns"] < MUCH_RATIO * self.limit.window_ns)
        return (rows["owner"].str.contains(PATTERNS["framework"]) | (rows["owner"].isin(owned) & is_short)).to_numpy()

    def place(self, rows: pd.DataFrame) -> str:
        """A pattern of the ranges that own these rows, where all are the program's and none computes: all that is
        inside them can go elsewhere; else ''."""
        owners = set(rows["owner"])
        return _pattern(owners) if owners <= self._own("computes") else ""

    def place_of_reads(self, rows: pd.DataFrame) -> str:
        """A pattern of the program's ranges around these rows that only make values and read them."""
        return _pattern(self.names_around(_pattern(set(rows["owner"]))) & self._own("does_more"))

    def _own(self, what: str) -> set[str]:
        """Names of the program's ranges that are not ``what`` (`_owners`)."""
        names = self._owners.index[~self._owners[what]]
        return set(names[~names.str.contains(PATTERNS["framework"])])

    def is_lump(self, rows: pd.DataFrame) -> pd.Series:
        """Which rows of `causes` are host code, or rest, in one long piece in each execution, or in long ones."""
        each = self.limit.window_ns / max(self.limit.device_count, 1) / self.execution_count
        times = rows["piece_count"].clip(upper=self.execution_count * max(self.limit.device_count, 1))
        is_long = rows["longest_ns"] >= max(MUCH_RATIO * each, LUMP_NS)
        is_one = is_long & (rows["longest_ns"] * times >= rows["idle_ns"] / 2)
        is_lump = is_one | (rows["idle_ns"] >= LUMP_NS * rows["piece_count"])
        return rows["cause"].isin(["host_code", "sleep"]) & is_lump

    @cached_property
    def execution_count(self) -> int:
        """Executions of the scope; 1 where none is known."""
        return max(self.kernels["iteration_index"].nunique(), 1) if self.limit.scope != OUTSIDE else 1

    def is_repeated(self, *columns: str) -> bool:
        """Whether most executions run kernels in the same order as another one, alike in these columns; fewer than
        three say nothing against it."""
        rows = self.kernels[self.kernels["iteration_index"].notna()]
        run, first = numbered(rows, ["capture_id", "iteration_index"])
        by_run, size = np.argsort(run, kind="stable"), np.bincount(run)
        place = np.arange(len(run)) - np.repeat(np.cumsum(size) - size, size) + 1
        total = sums_per_node(run[by_run], place * (numbered(rows, [*columns])[0][by_run] + 1), len(first))
        order, _ = dense(size, total)
        return len(first) < _FEW_EXECUTIONS or bool((np.bincount(order)[order] > 1).mean() > 0.5)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """The kernels of the scope by stream and start, their families, which are nodes of graphs, and how many have
        their launch; none of a large recording."""
        columns = [*_STREAM, "iteration_index", "name", "start_ns", "end_ns", "graph_node_id", "correlation_id",
                   "source_line"]  # fmt: skip
        columns += ["launch_start_ns", *SHAPE_OF_LAUNCH]
        if self.window("kernel_count") > MOST_OPERATIONS or "kernels" not in self.results.tables():
            return pd.DataFrame(
                columns=[*columns, "duration_ns", "family", "stream", "is_node", "node_count"], dtype=float
            )
        rows = self.results.frame("kernels", columns)
        rows = rows[self._in_scope(rows)].sort_values([*_STREAM, "start_ns"], kind="stable", ignore_index=True)
        codes, names = pd.factorize(rows["name"])
        family = pd.Categorical.from_codes(np.append(family_index(names.astype(str)), -1)[codes], pd.Index(FAMILIES))
        stream = rows.groupby(_STREAM, sort=False, dropna=False).ngroup()
        # nodes of a graph have a number, or one launch for several kernels
        launch = [rows[name] for name in ("capture_id", "process_id", "correlation_id")]
        count = rows.groupby(launch, sort=False)["start_ns"].transform("size").fillna(1)
        is_node = rows["graph_node_id"].fillna(0).gt(0) | (count.gt(1) & rows["correlation_id"].notna())
        duration = rows["end_ns"] - rows["start_ns"]
        return rows.assign(duration_ns=duration, family=family, stream=stream, is_node=is_node, node_count=count)

    @cached_property
    def in_attention(self) -> tuple[np.ndarray, np.ndarray, int]:
        """What runs between the two products of attention, that with the products (bool per kernel), and how often;
        none where attention is one kernel somewhere, or comes too seldom to say."""
        rows, count = self.kernels, 0
        if len(rows) and not rows["family"].eq("attention").any():
            between, count = unfused_attention(rows["name"], rows["stream"].to_numpy(), rows["start_ns"].to_numpy())
        if count < LEAST_ATTENTIONS:
            return np.zeros(len(rows), bool), np.zeros(len(rows), bool), 0
        # of the backward pass two products are on each side
        one, two = (np.convolve(between, np.ones(size), "same") > 0 for size in (3, 5))
        return between, one | (two & rows["family"].eq("gemm").to_numpy()), count

    @cached_property
    def _names(self) -> tuple[np.ndarray, list[str]]:
        codes, names = pd.factorize(self.kernels["name"])
        return codes, names.astype(str).tolist()

    def by_name(self, of: Callable[[list[str]], Iterable[Any]], unknown: Any) -> np.ndarray:
        """What is known of each kernel by its name: ``of`` looks at each text once."""
        codes, names = self._names
        return np.array([*of(names), unknown])[codes]

    def is_called(self, pattern: str) -> np.ndarray:
        """In which kernels' names the pattern is found; bool."""
        return self.by_name(lambda names: found_in(names, pattern), False)

    @cached_property
    def trains(self) -> bool:
        """Whether kernels of backward passes or optimisers ran."""
        return bool(self.is_called(PATTERNS["training"]).any())

    def _in_scope(self, rows: pd.DataFrame) -> np.ndarray:
        """Which operations belong to what the limit speaks of; bool."""
        columns = ["capture_id", "iteration_index", "is_warmup", "start_ns"]
        iterations = frame_or_empty(self.results, "iterations", columns)
        index = rows["iteration_index"].fillna(-1).to_numpy(np.int64)
        mine = rows["capture_id"].isin(self.limit.captures).to_numpy()
        if self.limit.scope == OUTSIDE:  # no device worked in an execution, or the executions are a guess
            return mine
        chosen = iterations[iterations["is_warmup"].astype(bool).eq(self.limit.scope == "warm-up")]
        wanted = pd.MultiIndex.from_frame(chosen[["capture_id", "iteration_index"]])
        chosen = chosen[chosen["capture_id"].isin(self.limit.captures)]
        inside = pd.MultiIndex.from_arrays([rows["capture_id"], index]).isin(wanted)
        # the device may be behind the host, and does first what was queued before
        own = rows.loc[inside, "start_ns"]
        first, last = max(chosen["start_ns"].min(), own.min()), max(chosen["start_ns"].max(), own.max())
        between = rows["start_ns"].between(first, last).to_numpy(bool)
        return mine & np.where(index >= 0, inside, between & (self.limit.scope == "execution"))

    @cached_property
    def copies(self) -> pd.DataFrame:
        """The copies of the scope."""
        return self.every_copy[self._in_scope(self.every_copy)]

    @cached_property
    def every_copy(self) -> pd.DataFrame:
        """All copies, no memsets; ``is_migration``: pages of unified memory; ``is_small``: a few values."""
        columns = ["iteration_index", "kind", "direction", "memory_kind", "start_ns", "end_ns", "bytes"]
        rows = of_captures(self.results, "memory_operations", self.limit.captures, columns)
        rows = rows[rows["kind"].eq("memcpy")]
        return rows.assign(
            duration_ns=rows["end_ns"] - rows["start_ns"],
            is_migration=found_in_column(rows["direction"], "unified"),
            is_small=are_few(rows) & rows["direction"].isin(["device to host", "host to device"]),
        )

    @cached_property
    def waits(self) -> pd.DataFrame:
        """Host calls that waited for the device between two launches of the scope, by start."""
        waits = of_captures(self.results, "dependencies", self.limit.captures, ["kind", "start_ns"])
        launched = self.kernels["launch_start_ns"]
        is_inside = waits["start_ns"].between(launched.min(), launched.max())
        return waits[waits["kind"].isin(SYNCHRONISATIONS) & is_inside].sort_values("start_ns")

    @cached_property
    def is_in_pieces(self) -> bool:
        """Whether the host waits for the device between two launches of one execution, in most of them."""
        of = ["capture_id", "iteration_index"]
        launches = self.kernels[[*of, "launch_start_ns"]].dropna().astype("int64").sort_values("launch_start_ns")
        waits = self.waits[["capture_id", "start_ns"]].astype("int64")  # of an old store they are of no type
        beside = partial(
            pd.merge_asof, waits, launches, left_on="start_ns", right_on="launch_start_ns", by="capture_id"
        )
        before = beside(direction="backward")
        inside = before[before["iteration_index"].eq(beside(direction="forward")["iteration_index"])]
        return 2 * len(inside[of].drop_duplicates()) > len(launches[of].drop_duplicates())

    @cached_property
    def blocking_count(self) -> int:
        """Launches that return when their kernel has ended."""
        identity = replayable(self.results, self.limit)
        return 0 if identity is None else int(Altered(identity.graph, identity.executions).blocking_launches().sum())

    @cached_property
    def device(self) -> dict[str, object]:
        """The row of `devices` that did most work."""
        rows = of_captures(self.results, "devices", self.limit.captures).sort_values("device_ns", ascending=False)
        return {str(k): v for k, v in rows.iloc[0].to_dict().items()} if len(rows) else {}

    @cached_property
    def rates(self) -> dict[str, float]:
        """The peaks of that device against one another; none of several products, or of an unknown one."""
        name = self.limit.gpu_name
        known = self.device if self.device.get("gpu_name") == name else {"gpu_name": name}
        return {} if " + " in name else relative_rates(known)
