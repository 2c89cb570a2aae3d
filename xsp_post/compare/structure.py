"""Two results → their differences other than time: kernels and their order, ranges, copies, system."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.model.levels import RUN_COUNTERS, RUN_LEVELS
from xsp_post.model.results import Results, core_frame
from xsp_post.model.schemas.units import format_count

_SHAPE = ["grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_OPERATORS = "cpu-operators-as-kernels"
# Node kinds that somebody recorded; the others are the tree's own.
_SYNTHETIC = frozenset({"root", "unattributed", "no_launch", "graph", "inferred"})


@dataclass
class Structure:
    """What the captures that stand for the two results have in common.

    ``order``: kernels of each side in launch order (capture_id, iteration_index, layer_index, name, duration_ns,
    start_ns, launch_start_ns). ``statements``: (subject, sentence, whether it states a difference).
    """

    order: list[pd.DataFrame]
    is_same_sequence: bool
    is_ranges_only: bool
    statements: list[tuple[str, str, bool]]


def structure(base: Results, other: Results) -> Structure:
    """Compare the deepest capture of each side, kernel by kernel in launch order."""
    ids = [_deepest(results) for results in (base, other)]
    order = [_in_launch_order(results, capture) for results, capture in zip((base, other), ids)]
    same_sequence, kernels = _kernels(order)
    are_operators = has_operators(base) or has_operators(other)
    if are_operators and not same_sequence:
        kernels += " On a CPU, operators are shown in place of kernels; of nested ones, their times decide."
    same_ranges, ranges = _ranges([_range_counts(r, c) for r, c in zip((base, other), ids)])
    same_copies, copies = _copies([_copy_rows(r, c) for r, c in zip((base, other), ids)])
    same_system, system = _system([_devices(r, c) for r, c in zip((base, other), ids)])
    ranges_only = same_sequence and same_copies and same_system and not same_ranges and len(order[0]) > 0
    statements = [
        ("kernels", kernels, not same_sequence and not are_operators),
        ("ranges", ranges, not same_ranges),
        ("copies", copies, not same_copies),
        ("system", system, not same_system),
    ]
    return Structure(order, same_sequence, ranges_only, statements)


def has_operators(results: Results) -> bool:
    """Whether operators of a CPU stand for kernels. Which of nested operators does the work is decided by its time
    in each capture, so that their sets say nothing about the program."""
    return bool((results.found()["code"].astype(object) == _OPERATORS).any())


def _deepest(results: Results) -> int:
    captures = core_frame(results, "captures", ["capture_id", "level", "kernel_count"])
    depth = (
        captures["level"]
        .astype(object)
        .map({level: number for number, level in enumerate(RUN_LEVELS)} | {RUN_COUNTERS: -1})
        .fillna(0)
    )
    ranked = captures.assign(depth=depth).sort_values(["depth", "kernel_count"], ascending=False, kind="stable")
    return int(ranked["capture_id"].iloc[0]) if len(ranked) else -1


def _in_launch_order(results: Results, capture_id: int) -> pd.DataFrame:
    kernels = core_frame(
        results,
        "kernels",
        [
            "capture_id",
            "process_id",
            "iteration_index",
            "layer_index",
            "name",
            "duration_ns",
            "start_ns",
            "launch_start_ns",
            *_SHAPE,
        ],
    )
    kernels = kernels[kernels["capture_id"] == capture_id]
    launch = kernels["launch_start_ns"].where(kernels["launch_start_ns"] >= 0, kernels["start_ns"])
    # processes have other numbers in every run: their order of appearance is what can be compared
    first = launch.groupby(kernels["process_id"]).transform("min")
    positions = np.lexsort((kernels["start_ns"], launch, kernels["process_id"], first))
    return kernels.iloc[positions].reset_index(drop=True)


def _kernels(order: list[pd.DataFrame]) -> tuple[bool, str]:
    base, other = order
    counts = [format_count(len(frame)) for frame in order]
    names = [frame["name"].astype(object).to_numpy() for frame in order]
    if not len(base) and not len(other):
        return True, "Neither capture has kernels."
    if len(base) == len(other) and bool((names[0] == names[1]).all()):
        shapes = [frame[_SHAPE].to_numpy() for frame in order]
        if bool((shapes[0] == shapes[1]).all()):
            known = ", with the same launch dimensions" if bool((shapes[0] > 0).any()) else ""
            return True, f"The same {counts[0]} kernels in the same order{known}."
        unlike = int((shapes[0] != shapes[1]).any(axis=1).sum())
        return False, (
            f"The same {counts[0]} kernels in the same order; {format_count(unlike)} of them with "
            "other launch dimensions."
        )
    tally = [pd.Series(texts).value_counts() for texts in names]
    common = tally[0].index.intersection(tally[1].index)
    if (
        len(base) == len(other)
        and len(common) == len(tally[0]) == len(tally[1])
        and bool(tally[0].loc[common].eq(tally[1].loc[common]).all())
    ):
        return False, f"The same {counts[0]} kernels, in another order."
    return False, (
        f"{counts[0]} kernels of {format_count(len(tally[0]))} names in the base, {counts[1]} of "
        f"{format_count(len(tally[1]))} in the other; {format_count(len(common))} names in both."
    )


def _range_counts(results: Results, capture_id: int) -> pd.Series:
    nodes = core_frame(results, "nodes", ["capture_id", "folded_name", "span_kind", "is_inferred"])
    recorded = ~nodes["span_kind"].astype(object).isin(_SYNTHETIC) & ~nodes["is_inferred"].astype(bool)
    mine = nodes[(nodes["capture_id"] == capture_id) & recorded]
    return mine["folded_name"].astype(object).value_counts()


def _ranges(counts: list[pd.Series]) -> tuple[bool, str]:
    base, other = counts
    if base.empty and other.empty:
        return True, "Neither capture has ranges."
    same = len(base) == len(other) and bool(base.sort_index().equals(other.sort_index()))
    if same:
        return True, f"The same {format_count(int(base.sum()))} ranges of {format_count(len(base))} names."
    common = base.index.intersection(other.index)
    sides = [
        f"{format_count(int(c.sum()))} ranges of {format_count(len(c))} names" if len(c) else "no ranges"
        for c in counts
    ]
    return False, f"The base has {sides[0]}, the other {sides[1]}; {format_count(len(common))} names are in both."


def _copy_rows(results: Results, capture_id: int) -> pd.DataFrame:
    rows = core_frame(results, "memory_operations", ["capture_id", "kind", "name", "bytes"])
    mine = rows[rows["capture_id"] == capture_id].astype({"kind": object, "name": object})
    return mine.groupby(["kind", "name"])["bytes"].agg(["size", "sum"])


def _copies(rows: list[pd.DataFrame]) -> tuple[bool, str]:
    if rows[0].empty and rows[1].empty:
        return True, "Neither capture has copies or sets of memory."
    if rows[0].equals(rows[1]):
        return True, f"The same {format_count(int(rows[0]['size'].sum()))} copies and sets, of the same bytes."
    sides = [f"{format_count(int(r['size'].sum()))} ({format_count(int(r['sum'].sum()))} bytes)" for r in rows]
    return False, f"Copies and sets: {sides[0]} in the base, {sides[1]} in the other."


def _devices(results: Results, capture_id: int) -> tuple[str, str, str]:
    captures = core_frame(results, "captures", ["capture_id", "gpu_name", "framework", "tool_version"])
    row = captures[captures["capture_id"] == capture_id].astype(object).fillna("")
    if row.empty:
        return "", "", ""
    return str(row["gpu_name"].iloc[0]), str(row["framework"].iloc[0]), str(row["tool_version"].iloc[0])


def _system(devices: list[tuple[str, str, str]]) -> tuple[bool, str]:
    names = ("device", "framework", "profiler")
    unlike = [
        f"{name} {mine or 'unknown'} against {theirs or 'unknown'}"
        for name, mine, theirs in zip(names, *devices)
        if mine != theirs
    ]
    if unlike:
        return False, "Not the same system: " + "; ".join(unlike) + "."
    return True, f"The same device{f' ({devices[0][0]})' if devices[0][0] else ''}, framework and profiler."
