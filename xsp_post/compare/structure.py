"""Two results → their differences other than time: kernels and their order, ranges, copies, system."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.base.texts import sentence
from xsp_post.model.kinds import GEOMETRY
from xsp_post.model.results import Results, of_captures
from xsp_post.model.schemas.units import format_count
from xsp_post.tables.analyses.cases import deepest_capture

Statement = tuple[str, str, bool]
_OF_KERNEL = ["iteration_index", "layer_index", "name", "duration_ns", "start_ns", "launch_start_ns"]
_OPERATORS = "cpu-operators-as-kernels"
# Node kinds that somebody recorded; the others are the tree's own.
_SYNTHETIC = frozenset({"root", "unattributed", "no_launch", "graph", "inferred"})


@dataclass
class Structure:
    """What the captures that stand for the two results have in common.

    ``order``: kernels of each side in launch order (capture_id, iteration_index, layer_index, name, duration_ns,
    start_ns, launch_start_ns). ``statements``: subject, text, whether it states a difference.
    """

    order: list[pd.DataFrame]
    is_same_sequence: bool
    is_ranges_only: bool
    statements: list[Statement]


def structure(base: Results, other: Results) -> Structure:
    """Compare the deepest capture of each side, kernel by kernel in launch order."""
    ids = [deepest_capture(results) for results in (base, other)]
    order = [_in_launch_order(results, capture) for results, capture in zip((base, other), ids)]
    each = list(zip((base, other), ids))
    said = {
        "kernels": _kernels(order), "ranges": _ranges(*(_range_counts(*one) for one in each)),
        "copies": _copies(*(_copy_rows(*one) for one in each)), "system": _system(*(_devices(*one) for one in each)),
    }  # fmt: skip
    same = {about: is_same for about, (is_same, _) in said.items()}
    ranges_only = len(order[0]) > 0 and [about for about, is_same in same.items() if not is_same] == ["ranges"]
    if not same["kernels"] and (has_operators(base) or has_operators(other)):  # their sets say nothing of the program
        said["kernels"] = True, sentence("compare.operators", said=said["kernels"][1])
    statements = [(about, text, not is_same) for about, (is_same, text) in said.items()]
    return Structure(order, same["kernels"], ranges_only, statements)


def has_operators(results: Results) -> bool:
    """Whether operators of a CPU stand for kernels. Which of nested operators does the work is decided by its time
    in each capture, so that their sets say nothing about the program."""
    return bool((results.found()["code"].astype(object) == _OPERATORS).any())


def _in_launch_order(results: Results, capture_id: int) -> pd.DataFrame:
    kernels = of_captures(results, "kernels", capture_id, ["process_id", *_OF_KERNEL, *GEOMETRY])
    launch = kernels["launch_start_ns"].where(kernels["launch_start_ns"] >= 0, kernels["start_ns"])
    # processes have other numbers in every run: their order of appearance is what can be compared
    first = launch.groupby(kernels["process_id"]).transform("min")
    positions = np.lexsort((kernels["start_ns"], launch, kernels["process_id"], first))
    return kernels.iloc[positions].reset_index(drop=True)


def _kernels(order: list[pd.DataFrame]) -> tuple[bool, str]:
    base, other = order
    count = format_count(len(base))
    names = [frame["name"].astype(object) for frame in order]
    if not len(base) and not len(other):
        return True, sentence("compare.no-kernels")
    if names[0].equals(names[1]):
        shapes = [frame[[*GEOMETRY]].to_numpy() for frame in order]
        unlike = int((shapes[0] != shapes[1]).any(axis=1).sum())
        if unlike:
            return False, sentence("compare.other-dimensions", count=count, unlike=format_count(unlike))
        known = sentence("compare.same-dimensions") if bool((shapes[0] > 0).any()) else ""
        return True, sentence("compare.same-kernels", count=count, known=known)
    tally = [texts.value_counts().sort_index() for texts in names]
    if tally[0].equals(tally[1]):
        return False, sentence("compare.other-order", count=count)
    common = tally[0].index.intersection(tally[1].index)
    return False, sentence(
        "compare.other-kernels", base=count, base_names=format_count(len(tally[0])), other=format_count(len(other)),
        other_names=format_count(len(tally[1])), common=format_count(len(common)),
    )  # fmt: skip


def _range_counts(results: Results, capture_id: int) -> pd.Series:
    nodes = of_captures(results, "nodes", capture_id, ["folded_name", "span_kind", "is_inferred"])
    recorded = ~nodes["span_kind"].astype(object).isin(_SYNTHETIC) & ~nodes["is_inferred"].astype(bool)
    return nodes.loc[recorded, "folded_name"].astype(object).value_counts()


def _ranges(base: pd.Series, other: pd.Series) -> tuple[bool, str]:
    if base.empty and other.empty:
        return True, sentence("compare.no-ranges")
    names = [format_count(len(side)) for side in (base, other)]
    counts = [format_count(int(side.sum())) for side in (base, other)]
    if base.sort_index().equals(other.sort_index()):
        return True, sentence("compare.same-ranges", count=counts[0], names=names[0])
    sides = [sentence("compare.ranges" if len(side) else "compare.ranges-none", count=count, names=name)
             for side, count, name in zip((base, other), counts, names)]  # fmt: skip
    common = format_count(len(base.index.intersection(other.index)))
    return False, sentence("compare.other-ranges", base=sides[0], other=sides[1], common=common)


def _copy_rows(results: Results, capture_id: int) -> pd.DataFrame:
    mine = of_captures(results, "memory_operations", capture_id, ["kind", "name", "bytes"]).astype(
        {"kind": object, "name": object}
    )
    return mine.groupby(["kind", "name"])["bytes"].agg(["size", "sum"])


def _copies(base: pd.DataFrame, other: pd.DataFrame) -> tuple[bool, str]:
    if base.empty and other.empty:
        return True, sentence("compare.no-copies")
    counts = [format_count(int(side["size"].sum())) for side in (base, other)]
    if base.equals(other):
        return True, sentence("compare.same-copies", count=counts[0])
    sides = [sentence("compare.bytes", count=count, bytes=format_count(int(side["sum"].sum())))
             for count, side in zip(counts, (base, other))]  # fmt: skip
    return False, sentence("compare.other-copies", base=sides[0], other=sides[1])


def _devices(results: Results, capture_id: int) -> tuple[str, ...]:
    names = ["gpu_name", "framework", "tool_version"]
    rows = of_captures(results, "captures", capture_id, names)[names].astype(object).fillna("")
    return tuple(map(str, next(rows.itertuples(index=False, name=None), [""] * 3)))


def _system(base: tuple[str, ...], other: tuple[str, ...]) -> tuple[bool, str]:
    sides = zip(("device", "framework", "profiler"), base, other)
    unlike = [
        sentence("compare.unlike", name=name, base=mine or "unknown", other=theirs or "unknown")
        for name, mine, theirs in sides
        if mine != theirs
    ]
    if unlike:
        return False, sentence("compare.other-system", unlike="; ".join(unlike))
    return True, sentence("compare.same-system", name=f" ({base[0]})" if base[0] else "")
