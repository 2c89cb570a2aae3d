"""What limits a program → where: the ranges, layers or calls that hold most of that time, in the user's own names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.joins import join_ids, lookup
from xsp_post.base.text_safety import shown
from xsp_post.base.texts import SENTENCES, sentence
from xsp_post.model.results import Results, frame_or_empty, of_captures
from xsp_post.model.schemas.units import format_ns
from xsp_post.names.families import is_of_family
from xsp_post.replay.recording import name_of_executions
from xsp_post.reports.pick import starred
from xsp_post.reports.text import alike_kernels, called, inferred, short_kernel, shorten, visible
from xsp_post.reports.tree_rows import STRUCTURELESS
from xsp_post.tables.analyses.limits import (
    BALANCED,
    BETWEEN,
    FIRST_LAUNCH,
    KERNEL,
    KIND_OF,
    LEAST_RATIO,
    Limit,
    counted_work_of,
    groups_of,
    in_scope,
)
from xsp_post.tables.analyses.places import followed, inside, line_of, of_any_kind

if TYPE_CHECKING:
    from xsp_post.tables.analyses.advice import Advice

_DIGITS = re.compile(r"\d+")
_NUMBERS = re.compile(r"(?<!\()\b\d+")  # of an inferred name: not its kind, ``(2)``, nor what a kernel is called
_ONE_MODULE = re.compile(r"(?:nn\.Module: \w+_\d+|[\w.]+:[A-Z]\w*)$")  # texts that no other module has
_LITTLE = 0.1  # of a time: a part with less does not explain it, and what did all but this did all
_MORE = 24  # letters of a place than of what it did
_KEPT = 0.8  # of the time shown: what opening ranges leaves, the rest would be in "all other places"
_WORK = {"copies": ("memcpy", "memset"), "kernels": ("kernel",), "communication": ("kernel",)}


@dataclass(frozen=True)
class Place:
    """``resource``: '' for what is in no other place, of the resources that ``what`` names. ``name``: '' for code in no
    range; ``around``: of an inferred range, the recorded one around it. ``what`` it did most, for ``what_ns``: '' where
    no single thing holds much of it. ``time_ns`` in all; times are of one device. ``ratio`` of the time of the verdict;
    ``is_most`` of its resource's time; ``is_whole``: all of an execution, or of what was recorded, which is no place.
    ``same_ns``: for ``what``, in all places. ``all_ns``: of the resource."""

    resource: str
    name: str
    around: str
    what: str
    what_ns: int
    time_ns: int
    ratio: float = 0.0
    is_most: bool = False
    is_whole: bool = False
    same_ns: int = 0
    all_ns: int = 0
    line: str = ""  # ``net.py:66``, of a module whose source line is known
    between: str = ""  # ``between executions of {name}``: most of the time directly in the place lies there
    beside: str = ""  # that name
    longest_ns: int = 0  # of its pieces, of one device; 0 of several, and of work
    is_inferred: bool = False  # nobody gave it its name

    @property
    def is_unnamed(self) -> bool:
        """Host code that neither a range inside its execution nor a frame names."""
        return self.is_whole and self.what == "host_code\n"


def places(results: Results, limit: Limit, most: int = 3) -> list[Place]:
    """The places of what limits, largest first: of two limits at least one each. At the end what lies elsewhere, so
    that they are all of its time. The last are kept: sentence, screen and page show the same."""
    last: list[tuple[Limit, int, list[Place]]] = results.kept("where", list)
    if not last or last[0][:2] != (limit, most):
        last[:] = [(limit, most, _found(results, limit, most))]
    return last[0][2]


def _found(results: Results, limit: Limit, most: int) -> list[Place]:
    limiting = limit.limits[-2:] if limit.kind == BALANCED else limit.limits[:2]  # those that hide one another
    found = [_of_resource(results, limit, resource, most) for resource in limiting]
    if len(several := list(filter(None, found))) > 1:  # they share the lines
        found = [_of_resource(results, limit, one[0].resource, most - len(several) + 1) for one in several]
    if not any(found):
        return []
    first, *others = sorted(found, key=lambda one: -one[0].time_ns if one else 0)
    rest = [place for other in others for place in other[:1]]
    kept = sorted([*first[: most - len(rest)], *rest], key=lambda one: -one.time_ns)
    names, unlike = [one.name for one in kept], len({one.around for one in kept if one.is_inferred}) > 1
    named = [
        replace(one, name=f"{one.name} in {one.around}", around="")
        if one.around and (names.count(one.name) > 1 or (one.is_inferred and unlike))
        else one
        for one in kept
    ]
    left_ns = sum(one[0].all_ns for one in found if one) - sum(one.time_ns for one in kept)
    ratio = left_ns * limit.device_count / max(limit.whole_ns, 1)
    held = dict.fromkeys(place.resource for place in (*kept, *rest))
    words = " and ".join(resource_word(limit, one) for one in held)
    return [*named, Place("", "", "", words, 0, left_ns, ratio)] if ratio >= LEAST_RATIO else named


class _Amounts(NamedTuple):
    """Time by row of `paths` and by what it was, ns."""

    row: np.ndarray
    what: np.ndarray
    time_ns: np.ndarray
    is_gradient: np.ndarray | None = None  # it ran elsewhere, as the gradient of an operator of this row
    between_ns: np.ndarray | None = None  # of waits: between executions
    longest_ns: np.ndarray | None = None  # of waits: of their pieces


def _of_resource(results: Results, limit: Limit, resource: str, most: int) -> list[Place]:
    columns = ["path_id", "parent_path_id", "level", "span_kind", "name", "call_count", "is_inferred"]
    paths = of_captures(results, "paths", limit.captures, columns).reset_index(drop=True)
    if paths.empty:
        return []
    amounts, scope_ns = (_work if resource in _WORK else _waits)(results, limit, resource, paths)
    # streams that wait for the host in turn hide its time: places with less than would be saved are not where it is
    if not amounts.time_ns.sum() or scope_ns < limit.gain(resource) * limit.whole_ns:
        return []
    tree = _Tree(results, limit, paths, amounts, resource)
    heaviest = tree.heaviest(most)
    same_ns = dict(_largest(amounts.what, amounts.time_ns, len(amounts.what)))
    # what runs at once counts once; of one device
    unit = min(scope_ns / max(tree.total, 1), 1.0) / max(limit.device_count, 1)
    return [
        replace(place, what_ns=round(place.what_ns * unit), time_ns=round(place.time_ns * unit), ratio=ratio,
                same_ns=round(same_ns.get(place.what, 0) * unit), all_ns=round(scope_ns / max(limit.device_count, 1)),
                is_most=place.time_ns > max(tree.total, scope_ns) / 2)
        for place in heaviest
        if (ratio := place.time_ns * unit * limit.device_count / max(limit.whole_ns, 1)) >= LEAST_RATIO
    ]  # fmt: skip


def _between(results: Results, limit: Limit) -> tuple[str, str]:
    """``between executions of {name}`` and the name; without one where they have several."""
    name = name_of_executions(results, limit.captures)
    return (SENTENCES["bar.between-of"], _short(name)) if name else (SENTENCES["bar.between"], "")


def _rows_of(paths: pd.DataFrame, of: pd.DataFrame) -> np.ndarray:
    """The row of `paths` of each row with capture_id and path_id; of no path the root of its capture."""
    capture, asked = paths["capture_id"].to_numpy(np.int64), of["capture_id"].to_numpy(np.int64)
    wanted = of["path_id"].fillna(-1).astype(np.int64).to_numpy()
    found = join_ids(capture, paths["path_id"].to_numpy(np.int64), asked, wanted)
    roots = np.flatnonzero(paths["parent_path_id"].fillna(-1).lt(0))
    return np.where(found >= 0, found, lookup(capture[roots], roots, asked))


def _work(results: Results, limit: Limit, resource: str, paths: pd.DataFrame) -> tuple[_Amounts, float]:
    """Kernels, copies or collectives by path; and how long the devices ran them in the time of the verdict."""
    work = of_captures(results, "operations", limit.captures)
    work = work[work["kind"].isin(_WORK[resource])]
    if resource != "copies":
        work = work[is_of_family(work["name"], "communication") == (resource == "communication")]
    names = alike_kernels(work["name"]) if resource != "copies" else _copied(work)
    busy = {"kernels": "kernel_busy_ns", "communication": "communication_ns", "copies": "copy_busy_ns"}[resource]
    time = work["device_ns"]
    if limit.scope == "execution":  # a store may be older than the column
        time = work["measured_ns"].fillna(time)
    counted = work.get("counted_path_id", work["path_id"]).fillna(work["path_id"])  # an older store has it empty
    rows = _rows_of(paths, work.assign(path_id=counted))
    is_gradient = counted.ne(work["path_id"]).to_numpy(bool)
    found = _Amounts(rows, names.to_numpy(object), time.to_numpy(np.int64), is_gradient)
    return found, float(limit.window.get(busy, 0))


def _copied(work: pd.DataFrame) -> pd.Series:
    """``host→device, pageable``; the operation where no direction is known."""
    direction, memory = (work[name].astype(object).fillna("").astype(str) for name in ("direction", "memory_kind"))
    text = direction.str.replace(" to ", "→") + memory.map({"pageable": ", pageable", "pinned": ", pinned"}).fillna("")
    return text.where(direction.ne(""), work["name"].astype(object))


def _waits(results: Results, limit: Limit, resource: str, paths: pd.DataFrame) -> tuple[_Amounts, float]:
    """Idle time of the causes that a resource stands for, by the range that owns it."""
    causes = in_scope(results, limit)
    loads = causes["cause"].astype(str).eq(FIRST_LAUNCH)
    mine = causes[groups_of(causes).eq(KIND_OF[resource]) & (loads | causes["cause"].astype(str).eq("module_load")
                                                             if resource == "loading" else ~loads)]  # fmt: skip
    what = mine["cause"].astype(object) + "\n" + mine["call_name"].astype(object).fillna("")
    time = mine["idle_ns"].to_numpy(np.int64)
    is_between, rows = mine["scope"].eq(BETWEEN).to_numpy(), _rows_of(paths, mine)
    # what was inferred around the work between executions is no range
    in_range = ~(is_between & paths["is_inferred"].to_numpy(bool)[rows])
    rows = _rows_of(paths, mine.assign(path_id=mine["path_id"].where(in_range)))
    longest = mine["longest_ns"].to_numpy(np.int64) * (limit.device_count == 1)
    found = _Amounts(rows, what.to_numpy(object), time, None, time * is_between, longest)
    return found, float(time.sum())


class _Tree:
    """The paths of a limit's captures, with the time in each and below it."""

    def __init__(self, results: Results, limit: Limit, paths: pd.DataFrame, amounts: _Amounts, resource: str) -> None:
        keys = pd.MultiIndex.from_frame(paths[["capture_id", "path_id"]])
        above = pd.MultiIndex.from_arrays([paths["capture_id"], paths["parent_path_id"].fillna(-1).astype(np.int64)])
        self.parent = keys.get_indexer(above)
        self.forest = forest_of(self.parent)
        self.amounts, self.resource, self.paths = amounts, resource, paths
        self.results, self.limit, self.between = results, limit, _between(results, limit)
        self.own = np.bincount(amounts.row, amounts.time_ns, len(paths)).astype(np.int64)
        self.time = self.forest.add_up(self.own)
        self.total = float(amounts.time_ns.sum())
        self.name = paths["name"].astype(str).to_numpy(object)
        self.level = paths["level"].astype(str).to_numpy(object)
        kind = paths["span_kind"].astype(str)
        self.is_rank = kind.eq("rank").to_numpy()
        self.is_whole = (self.parent < 0) | self.is_rank | kind.isin(STRUCTURELESS).to_numpy()  # no place
        self.is_inferred = paths["is_inferred"].to_numpy(bool)
        self.is_recorded = ~(self.is_inferred | self.is_whole)
        self.is_phase = kind.eq("inferred").to_numpy() & (self.level == "MODULE")
        is_range = kind.ne("operator").to_numpy()
        self.is_operator = ~is_range & ~self.forest.around(is_range)  # nothing but operators
        ranges = ~self.is_operator[self.is_recorded]
        self.outside = "bar.nowhere" if ranges.any() else "bar.operators" if len(ranges) else "bar.launches"
        self.calls = paths["call_count"].to_numpy(np.int64)
        self.is_layer = self.level == "LAYER"
        self.execution = self.forest.nearest(self.level == "MODEL")  # at or above, −1 none
        self.kind = self._kinds()
        self.in_layer = self.is_layer | self.forest.inside(self.is_layer)
        self.counted = self.forest.nearest((self.level == "MODEL") | (self.is_phase & ~self.in_layer))
        layers = self.forest.add_up(self.is_layer)  # a range around all of several is no place of work
        self.has_all = (layers == max(self.is_layer.sum(), 2)) & (resource in _WORK)

    def heaviest(self, most: int) -> list[Place]:
        """The heaviest ranges, none within another, with their time of all devices. A range in which one group of
        ranges holds half of its time gives way to what is inside it, unless that hides much of the time; what is around
        executions does always; a range of the program does not to operators, which say what it did, not where."""
        candidates = [(np.flatnonzero(self.parent < 0), False)]
        found: list[Place] = []
        largest_shown = 0  # time of as many places, at any stage
        while candidates:
            rows, is_own = max(candidates, key=lambda one: self._time(*one))
            if sum(one.time_ns >= self._time(rows, is_own) for one in found) >= most:
                break
            candidates = [one for one in candidates if one[0] is not rows or one[1] != is_own]
            groups = [] if is_own else self._inside(rows)
            is_guess = self.is_inferred[rows[0]]
            ranges = [group for group in groups if is_guess or not self.is_operator[group].all()]
            times = sorted(self._time(group, False) for group in ranges)
            is_all = self._time(rows, is_own) > (1 - _LITTLE) * self.total  # no place
            opens = self.is_whole[rows[0]] or self.level[rows[0]] == "MODEL"
            alike = {self._alike(int(some[0])): some for some, is_own in candidates if not is_own}
            for group in groups:
                key = self._alike(int(group[0]))
                alike[key] = np.concatenate([alike.get(key, group[:0]), group])
            opened = [(some, True) for some, is_own in candidates if is_own] + [(rows, True)]
            opened += [(some, False) for some in self._together(alike)]
            if not is_all:
                largest_shown = max(largest_shown, self._shown([*candidates, (rows, is_own)], found, most))
            largest = sum(times[-most:] if is_all else times[-1:] if not self.is_layer[rows].all() else [])
            others = max((self._time(*one) for one in candidates), default=0)  # else one of them would be the largest
            is_most = largest >= max(self._time(rows, False) / 2, others) or self.has_all[rows].all()
            is_most &= self._shown(opened, found, most) >= _KEPT * largest_shown
            if groups and (opens or is_most):
                candidates = opened
            elif self._time(rows, is_own):
                found += self._found(rows, is_own, opens, most)
        return sorted(found, key=lambda one: -one.time_ns)[:most]

    def _found(self, rows: np.ndarray, is_own: bool, is_whole: bool, most: int) -> list[Place]:
        """The place that some ranges are; of work in all of an execution the kernels or copies, which say more."""
        mask = np.zeros(len(self.parent), bool)
        mask[rows] = True
        inside = (mask if is_own else mask | self.forest.inside(mask))[self.amounts.row]
        whats, time_ns = self.amounts.what[inside], self.amounts.time_ns[inside]
        if is_whole and self.resource in _WORK:
            return [Place(self.resource, "", "", what, time, time, is_whole=True)
                    for what, time in _largest(whats, time_ns, most)]  # fmt: skip
        time = self._time(rows, is_own)
        what, part = _largest(whats, time_ns)[0]
        if "\n" in what and 2 * part < time:  # of no single call
            what, part = _largest(np.array([one.partition("\n")[0] + "\n" for one in whats], object), time_ns)[0]
        what, part = (what, part) if part >= _LITTLE * time else ("", 0)
        line = "" if is_whole else shown(line_of(self.results, self.name[rows[0]]), 60)
        name, around = self._label(rows)
        if self.amounts.is_gradient is not None and self.amounts.is_gradient[inside].any():
            name = sentence("bar.gradients", place=shorten(name, 40))
        found = Place(
            self.resource, name, around, what, part, time, is_whole=is_whole, line=line,
            is_inferred=bool(self.is_inferred[rows[0]]),
        )  # fmt: skip
        between, beside = sentence("bar.own") if is_own and name else "", ""
        if self.amounts.between_ns is not None and self.amounts.longest_ns is not None:
            found = replace(found, longest_ns=int(self.amounts.longest_ns[inside].max()))
            if not name and 2 * int(self.amounts.between_ns[inside].sum()) > time:
                between, beside = self.between
            else:
                between = between or sentence(self.outside) * (not name)
                if (is_own or is_whole) and what == "host_code\n":
                    between, beside = self._before(mask, between, bool(name))
        return [replace(found, between=between, beside=beside)]

    def _before(self, mask: np.ndarray, between: str, is_named: bool) -> tuple[str, str]:
        """``between`` which parts the host code directly in some ranges is, or what devices ran after all or most of
        it: ``before {name}``, a range inside these, a copy or a kernel, and its name."""
        waits = followed(self.results, self.limit.captures)
        waits = waits[mask[_rows_of(self.paths, waits)] & waits["name"].notna()]
        next_rows = _rows_of(self.paths, waits.assign(path_id=waits["path_id_next"]))
        inner, texts = self.is_recorded & self.forest.inside(mask), waits["name"].to_numpy(object, copy=True)
        is_kernel = ~waits["name"].str.contains("→").to_numpy()
        for row in np.unique(next_rows).tolist():  # ranges, not events
            if name := self._around(row, inner) or self.name[row] * int(inner[row]):
                texts[is_kernel & (next_rows == row)] = _short(name)
        (work, time), *_ = _largest(texts, waits["time_ns"].to_numpy(np.int64)) or [("", 0)]
        work, share = short_kernel(visible(work)), time / max(waits["time_ns"].sum(), 1)
        if 2 * share <= 1:
            return between, ""
        mostly = "" if share > 1 - _LITTLE else f"{'' if is_named else between}, mostly "
        return mostly + SENTENCES["bar.before"], work

    def _shown(self, candidates: list[tuple[np.ndarray, bool]], found: list[Place], most: int) -> int:
        """The time of the heaviest places, if ranges were opened no further."""
        return sum(sorted([*(one.time_ns for one in found), *(self._time(*one) for one in candidates)])[-most:])

    def _time(self, rows: np.ndarray, is_own: bool) -> int:
        return int((self.own if is_own else self.time)[rows].sum())

    def _inside(self, rows: np.ndarray) -> list[np.ndarray]:
        """The ranges directly in some ranges that have any of the time: those that are printed alike together."""
        children = np.flatnonzero(np.isin(self.parent, rows) & (self.time > 0))
        ranks = children[self.is_rank[children]]
        if len(ranks):  # ranks do the same
            return [ranks]
        groups: dict[tuple[str, str], list[int]] = {}
        for row in children.tolist():
            groups.setdefault(self._alike(row), []).append(row)
        return [np.array(group) for group in groups.values()]

    def _alike(self, row: int) -> tuple[str, str]:
        """Ranges that are printed alike are one place, whatever they lie in; of inferred ones those in one range, and
        of one kind: ``block (2)`` is another one than ``block``."""
        if self.is_inferred[row]:
            return inferred(_NUMBERS.sub("*", self.name[row])), self._outer(row)
        return _DIGITS.sub("*", self.name[row]), ""

    def _together(self, alike: dict[tuple[str, str], np.ndarray]) -> list[np.ndarray]:
        """Places by their names; kinds of inferred ones, ``block`` and ``block (2)``, are one where none has most
        of their time: nobody knows which is which."""
        kinds: dict[tuple[str, str], list[np.ndarray]] = {}
        for (name, around), rows in alike.items():
            kinds.setdefault((of_any_kind(name) if self.is_inferred[rows[0]] else name, around), []).append(rows)
        found: list[np.ndarray] = []
        for some in kinds.values():
            times = [self._time(rows, False) for rows in some]
            found += [np.concatenate(some)] if 2 * max(times) < sum(times) else some
        return found

    def _label(self, rows: np.ndarray) -> tuple[str, str]:
        """``24 × layers.*``, '' for all of a capture; and what is around it."""
        if self.is_whole[rows[0]]:
            return "", ""
        name = starred(self.name[rows])
        calls, each, different = int(self.calls[rows].sum()), self._calls_around(rows), len(rows)
        is_module = len(set(self.name[rows])) > 1 or (different == 1 and bool(_ONE_MODULE.match(self.name[rows[0]])))
        if is_module and calls % (different * each) == 0:  # called again, as for the next part of a batch
            each = calls // different
        is_counted = calls > each and calls % each == 0 and (is_module or self.in_layer[rows].all())
        times = f"{calls // each} × " if is_counted else ""
        kinds = {self._outer(row) for row in rows.tolist()}
        around = kinds.pop() if len(kinds) == 1 else ""
        name = inferred(name) if self.is_inferred[rows[0]] else name
        count = len({self._alike(row) for row in rows.tolist()})
        if self.is_inferred[rows[0]] and count > 1:
            times, name = "", sentence("bar.kinds", place=of_any_kind(name), count=count)
        return times + _short(name), _short(around) if around not in name else ""

    def _outer(self, row: int) -> str:
        """What is around a range: of an inferred one the recorded range, else its pass (forward, backward), else, where
        there are several kinds of executions (decode, prefill), its own; '' none."""
        around = self._around(row, self.is_recorded) if self.is_inferred[row] else ""
        around = around or self._around(row, self.is_phase)
        return around or "".join(self.kind[self._all_around(np.array([row]), self.execution)])

    def _kinds(self) -> np.ndarray:
        """By row of an execution its kind, '' where there is one: of inferred ones the range of the program around
        them, where that tells them apart as their names do."""
        rows, kinds = np.flatnonzero(self.level == "MODEL"), np.full(len(self.name), "", object)
        outer, names = self.forest.nearest(self.is_recorded)[rows], self.name[rows]
        known = np.where(self.is_inferred[rows] & (outer >= 0), self.name[outer], names)
        if len(set(names)) > 1:
            kinds[rows] = known if len(set(known)) == len(set(zip(known, names))) else names
        return kinds

    def _calls_around(self, rows: np.ndarray) -> int:
        """Calls of the passes, else the executions, that rows lie in, which are counted in each of them, wherever they
        lie in it; outside of executions those of the ranges around them. Of an execution cut short passes may lack."""
        around = self._all_around(rows, self.counted)
        return max(int(self.calls[around if len(around) else np.unique(np.maximum(self.parent[rows], 0))].sum()), 1)

    def _all_around(self, rows: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """The executions, or passes, that rows lie in; none where one of them lies in none."""
        around = np.unique(nearest[np.maximum(self.parent[rows], 0)])
        return around if (around >= 0).all() else around[:0]

    def _around(self, row: int, of: np.ndarray) -> str:
        """The outermost of some ranges (a mask) around a row and inside an execution; '' none."""
        found = ""
        while (row := int(self.parent[row])) >= 0 and self.level[row] != "MODEL":
            found = self.name[row] if of[row] else found
        return found


def resource_word(limit: Limit, resource: str) -> str:
    """A resource of the experiment in words: what a CPU runs are operators."""
    return sentence(f"resource.{'operators' if resource == 'kernels' and not limit.is_gpu else resource}")


def _short(name: str) -> str:
    """``BertLayer_0`` of ``nn.Module: BertLayer_0``: what stands behind the last colon."""
    last = name.rpartition(": ")[2]
    return shown(visible(name if last[:1].isdigit() else last), 200)  # not 0/0 of ``Torch-Compiled Region: 0/0``


def _largest(texts: np.ndarray, time_ns: np.ndarray, most: int = 1) -> list[tuple[str, int]]:
    """The texts with the longest times, and these."""
    codes, known = pd.factorize(texts)
    sums = np.bincount(codes, time_ns, len(known)).astype(np.int64)
    return [(str(known[k]), int(sums[k])) for k in np.argsort(-sums, kind="stable")[:most].tolist()]


def what_text(place: Place, most: int = 40) -> str:
    """What a place did, in words, with its time where that is a part of the place's."""
    if not place.resource:
        return sentence("bar.elsewhere", resource=place.what)
    between = place.between.replace("{name}", shorten(place.beside, most // 2 + _MORE // 3))
    if not place.what:
        return between
    between = f" {between}".replace(" ,", ",") if between else ""
    time = f"{format_ns(place.what_ns)} " if place.name and place.what_ns < (1 - _LITTLE) * place.time_ns else ""
    if place.resource in ("kernels", "communication"):
        return time + short_kernel(visible(place.what), most) + between
    if place.resource == "copies":
        return time + shown(place.what) + between
    cause, _, call = place.what.partition("\n")
    by = f" ({called(call)})" if 0 < len(called(call)) <= most else ""
    return time + sentence(f"cause.{cause}") + by + between + _at_once(place)


def _at_once(place: Place) -> str:
    """``, 8.02 ms in one wait``: a single pause is half of a wait."""
    is_one = 2 * place.longest_ns >= place.time_ns > 0
    longest, whole = format_ns(place.longest_ns), format_ns(place.time_ns)
    return sentence("bar.at-once", time=f"{longest} " * (longest != whole)) * is_one


def place_text(place: Place, most: int = 60) -> str:
    """``12 × BertLayer: host code``; a kernel of at most so many letters, which gives way before the place does."""
    same = place.name.rpartition("::")[2] == place.what.rpartition("::")[2]  # an operator of a CPU is both
    what = "" if same and place.name else what_text(place, most)
    line = f" ({place.line})" if place.line else ""
    return ": ".join(filter(None, (_cut(place.name, most + _MORE) + line, what)))


def _cut(name: str, most: int) -> str:
    """A place of so many letters: what is around it gives way before the place does."""
    name, within, around = name.partition(" in ")
    return shorten(name, most) + within + shorten(around, max(most - len(name + within), _MORE // 3))


def where_text(found: Sequence[Place], gain_ratio: float, of: str = "") -> str:
    """``most of it in 4 × transformer block: 63.1 ms``: in the sentence of the verdict; '' where that is little of what
    would be saved. ``of``: the resource in words, where the sentence names several."""
    if not found or found[0].ratio < _LITTLE * gain_ratio:
        return ""
    first = found[0]
    name = _cut(first.name, 60) or what_text(first)
    is_work = first.resource in _WORK and not first.name  # what limits, not where
    within = name if is_work else inside(name)
    if between := first.between.replace("{name}", first.beside):
        within = f"{within} {between}".replace(" ,", ",") if first.name else between
    if first.resource == "copies" and first.what:
        if of:
            return sentence("limit.where", place=f"is {of} {first.what}", time=format_ns(first.same_ns))
        in_place = f" in {name}" if first.is_most and first.name else ""
        return sentence("limit.where-copy", what=first.what, time=format_ns(first.same_ns), place=in_place)
    alike = [one for one in found if one.name and not one.between and one.time_ns > (1 - _LITTLE) * first.time_ns]
    if len(alike) > 1 and alike[0] is first and not first.is_most and not of:
        parts = (f"{inside(_cut(one.name, 60))}: {format_ns(one.time_ns)}" for one in alike)
        return sentence("limit.where-several", places=", ".join(parts))
    time = format_ns(first.time_ns) + _at_once(first)
    place = f"is {within}" if is_work else f"is {of} {within}" if of else within
    return sentence("limit.where-most" if first.is_most and not of else "limit.where", time=time, place=place)


def spares_little(limit: Limit, advice: Sequence["Advice"]) -> bool:
    """Whether any advice leaves more of what halving the limit would spare than it spares: `next_capture` is first."""
    gain, spared = max(map(limit.gain, limit.limits), default=0.0), [one.bound_ratio for one in advice]
    return bool(spared) and max(spared) < gain - max(spared)


def next_capture(results: Results, limit: Limit, where: Sequence[Place], advice: Sequence["Advice"]) -> str:
    """What to record next, where no advice may spare as much of what limits as halving it would, or the host code has
    no name; "" where nothing more would show."""
    gain = max(map(limit.gain, limit.limits), default=0.0)
    is_advised = any(one.is_limit and one.bound_ratio >= gain for one in advice)
    is_unnamed = any(one.is_unnamed and 2 * one.time_ns >= where[0].time_ns for one in where)
    is_unnamed &= all(one.code != "find-host-code" for one in advice)  # which asks for stacks or ranges
    if not limit.window_ns or (is_advised and not is_unnamed):
        return ""
    if f"next.{limit.reason}" in SENTENCES:
        return sentence(f"next.{limit.reason}")
    if is_unnamed:
        recorded = frame_or_empty(results, "captures", ["collector"])["collector"].astype(str)
        return sentence("next.stacks" if recorded.eq("torch").all() else "next.ranges")
    if limit.limits and KIND_OF[limit.limits[0]] == KERNEL:
        if int(limit.window["graph_busy_ns"]) > int(limit.window["kernel_ns"]):
            return sentence("kernels.graphs")
        platforms = set(frame_or_empty(results, "platforms", ["platform"])["platform"].astype(str))
        if limit.is_gpu and "HIP" not in platforms and counted_work_of(results, limit.captures) is None:
            return sentence("next.counters")
        of_limit = [one for one in advice if one.is_limit]
        is_named = where and where[0].name and (not of_limit or spares_little(limit, of_limit))
        return sentence("next.kernels", work=resource_word(limit, "kernels"), place=where[0].name) if is_named else ""
    advised = sum(one.bound_ratio for one in advice if one.is_limit)
    best = next((one for one in where if one.name and limit.gain(one.resource) == gain), None)
    if not where and spares_little(limit, advice):
        return sentence("next.time-unknown")
    if not limit.is_gpu or advised >= gain or best is None or best.ratio < _LITTLE * gain:
        return ""
    return sentence("next.place", resource=resource_word(limit, best.resource), place=inside(_cut(best.name, 48)))
