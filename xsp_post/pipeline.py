"""Trace → Tree → Analysis: the function that `ingest`, `tree`, `table`, `report`, `batch` and `run` call.

What only some of them need is imported where it is used: `tree` and `table` of a small capture are to answer at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from xsp_post.base import findings as findings_module
from xsp_post.base.errors import UsageError
from xsp_post.base.messages import ERRORS
from xsp_post.ingest.files import require_readable
from xsp_post.ingest.formats import STORE
from xsp_post.ingest.sources import Loaded, expand, load, sniff
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.model.capture import FLEET_STORE
from xsp_post.model.options import DEFAULTS, ROOFS, Options
from xsp_post.model.results import Analysis, OnDemand, Overlay, Results, with_findings
from xsp_post.model.trace import Trace
from xsp_post.schemas import column_names

if TYPE_CHECKING:
    from xsp_post.model.counters import CounterReport
    from xsp_post.tree_steps.twin import Twin


def results_of(
    paths: list[Path],
    options: Options | None = None,
    *,
    is_summary: bool = False,
    is_on_demand: bool = False,
    reading: SqliteTables | None = None,
) -> Results:
    """A store's results (its analyses made again for other roofs or peaks), or captures analysed now.

    ``is_summary``: of captures only what the printed tree shows: captures, paths, balance and findings.
    ``is_on_demand``: of captures, make the tables of analyses and replay when they are read, without their findings.
    ``reading``: the first source, which is being read already (`ingest.sources.begin`).
    """
    store = store_of(paths) if reading is None else None
    if options is not None and options.is_part:
        return part_of(results_of(paths, replace(options, **_WHOLE), reading=reading), options)
    if store is not None:
        from xsp_post.store.store import open_store

        opened = open_store(store)
        return opened if options is None or options.is_default(ROOFS) else reanalyze(opened, options)
    if is_on_demand:
        return analyze_on_demand(_loaded(paths, reading), options or DEFAULTS)
    return summarize(paths, options, reading) if is_summary else analyze(paths, options, reading)


_WHOLE: dict[str, Any] = {"iteration": None, "begin_ns": None, "end_ns": None}


def part_of(results: Results, options: Options) -> Analysis:
    """The same tables for one execution or a time of the recording alone. Raises `UsageError` where nothing is in it.

    Every sum, cause and analysis is made anew from the rows of the part; findings are those of the whole recording.
    """
    from xsp_post.replay.tables import replay_frames
    from xsp_post.tree_tables.part import part_frames

    frames = part_frames(results, options)
    frames |= replay_frames(Analysis(frames))
    analysis = with_analyses(Analysis(frames), options)
    return Analysis({**analysis.frames, "findings": frames["findings"]})


def store_of(paths: list[Path]) -> Path | None:
    """The store that the paths name: one store, or the folder of a batch; None for captures."""
    if len(paths) != 1:
        return None
    path = paths[0] / FLEET_STORE if os.path.isdir(paths[0]) else paths[0]
    if os.path.isdir(paths[0]) and not os.path.isfile(path):
        return None
    require_readable(path)
    return path if sniff(path) == STORE else None


def analyze(
    paths: list[Path],
    options: Options | None = None,
    reading: SqliteTables | None = None,
    on_rows: Callable[[dict[str, pd.DataFrame]], None] | None = None,
) -> Analysis:
    """All tables of the captures (and counter reports) of one workload. Raises `CaptureError` and other errors.

    ``on_rows`` is called with the tables of nodes and kernels as soon as they do not change any more.
    """
    return analyze_loaded(_loaded(paths, reading), options or DEFAULTS, on_rows)


def analyze_loaded(
    loaded: list[Loaded], options: Options, on_rows: Callable[[dict[str, pd.DataFrame]], None] | None = None
) -> Analysis:
    """The same, for sources that are read already."""
    from xsp_post.replay.collectives import across_ranks
    from xsp_post.replay.tables import replay_frames

    analysis = _core(loaded, options, on_rows)
    replayed = {**replay_frames(analysis), "collectives": across_ranks(analysis.frames["collectives"])}
    analysis = Analysis({**analysis.frames, **replayed}, analysis.findings)
    return with_analyses(analysis, options)


def analyze_on_demand(loaded: list[Loaded], options: Options) -> OnDemand:
    """The same tables, but those of analyses and replay are made when they are read, without their findings."""
    from xsp_post.analyses import makers
    from xsp_post.analyses.ranks import ranks_of
    from xsp_post.replay.collectives import across_ranks
    from xsp_post.replay.tables import replay_frames

    core = _core_on_demand(loaded, options)
    collectives = core.makers["collectives"]
    return OnDemand(core.frames, {
        **core.makers,
        **makers(options),
        **dict.fromkeys(("replays", "critical_path"), replay_frames),
        "collectives": lambda results: {"collectives": across_ranks(collectives(results)["collectives"])},
        "ranks": lambda results: {"ranks": ranks_of(results)},
    })  # fmt: skip


def _core_on_demand(loaded: list[Loaded], options: Options) -> OnDemand:
    """The core tables, of a single timeline only those that are read."""
    from xsp_post.hierarchy import build_tree
    from xsp_post.tree_tables import core_on_demand

    if len(loaded) == 1 and loaded[0].counters is None:
        made = core_on_demand(build_tree(_traces(loaded)[0], options, _twin(options)))
        return OnDemand(made.frames | {"overhead": pd.DataFrame(columns=column_names("overhead"))}, made.makers)
    frames = _core(loaded, options).frames
    rows = frames.pop("collectives")
    return OnDemand(frames, {"collectives": lambda _: {"collectives": rows}})


def _core(
    loaded: list[Loaded], options: Options, on_rows: Callable[[dict[str, pd.DataFrame]], None] | None = None
) -> Analysis:
    """The core tables, reconciled, with counters where there are any. ``loaded`` is emptied: what was read is let go of
    as soon as its tables are made."""
    from xsp_post.hierarchy import build_tree
    from xsp_post.reconcile import reconcile
    from xsp_post.tree_tables import core_frames

    traces = _traces(loaded)
    reports = [one.counters for one in loaded if one.counters is not None]
    loaded.clear()
    parts: list[Analysis] = []
    twin = _twin(options)
    alone = on_rows if len(traces) == 1 else None  # the ids of several are made unique when all are there
    while traces:
        parts.append(core_frames(build_tree(traces.pop(0), options, twin), len(parts), alone))
    analysis = reconcile(merge(parts))
    if on_rows is not None and alone is None:
        on_rows(analysis.frames)
    if reports:
        analysis = with_counters(analysis, reports)
    return analysis


def _twin(options: Options) -> Twin | None:
    """The ranges of the capture given with ``--layers-from``, None without one."""
    if options.layers_from is None:
        return None
    from xsp_post.hierarchy import build_tree
    from xsp_post.tree_steps.twin import twin_of

    loaded = load(options.layers_from)
    if loaded.trace is None:
        raise UsageError(
            f"{options.layers_from.name} holds no launches: ranges cannot be carried over from it",
            code="twin-without-launches",
            hint=ERRORS["twin-without-launches"].cure,
        )
    return twin_of(build_tree(loaded.trace, replace(options, layers_from=None)))


# A capture with more kernels than this keeps to its summary: what their work is bound by is `why`'s to say.
MOST_KERNELS_COUNTED = 5_000


def summarize(paths: list[Path], options: Options | None = None, reading: SqliteTables | None = None) -> Analysis:
    """What the printed tree shows of captures, without the rows behind it: everything, where there are counters; and
    what the work of the kernels is bound by, where their operators say sizes."""
    from xsp_post.analyses.limits import KERNEL, UNCOUNTED, find_limit
    from xsp_post.hierarchy import build_tree
    from xsp_post.tree_tables import summary_frames
    from xsp_post.tree_tables.operators import says_sizes

    options = options or DEFAULTS
    loaded = _loaded(paths, reading)
    if any(one.counters is not None for one in loaded):
        return analyze_loaded(loaded, options)
    twin = _twin(options)
    trees = [build_tree(trace, options, twin) for trace in _traces(loaded)]
    summary = _side_by_side([summary_frames(tree, capture_id) for capture_id, tree in enumerate(trees)])
    # `run` records the flop of layers beside its own ranges
    says_work = any(tree.level_rule.startswith("own ranges") or says_sizes(tree) for tree in trees)
    limit = find_limit(summary)
    if not says_work or limit.kind not in ("compute", "memory", KERNEL):
        return summary
    if summary.frames["captures"]["kernel_count"].sum() > MOST_KERNELS_COUNTED:
        frames = {UNCOUNTED: pd.DataFrame({"capture_id": list(limit.captures)})}
    else:
        del trees, loaded
        counted = analyze(paths, options).frames
        frames = {name: counted[name] for name in ("a15", "cases")}
    return Analysis({**summary.frames, **frames}, summary.findings)


def _side_by_side(parts: list[Analysis]) -> Analysis:
    names = parts[0].frames if parts else ()
    frames = {name: _concat([part.frames[name] for part in parts]) for name in names if name != "findings"}
    return with_findings(frames, [f for part in parts for f in part.findings])


def _loaded(paths: list[Path], reading: SqliteTables | None) -> list[Loaded]:
    """Every source, read."""
    if reading is not None:
        return [load(paths[0], reading=reading), *(load(path) for path in expand(paths[1:]))]
    return [load(path) for path in expand(paths)]


def _traces(loaded: list[Loaded]) -> list[Trace]:
    """The timelines of the sources; where there are none, those that the counter reports themselves give."""
    traces = [one.trace for one in loaded if one.trace is not None]
    reports = [one.counters for one in loaded if one.counters is not None]
    if traces or not reports:
        return traces
    from xsp_post.ingest.metric_sets import one_per_program
    from xsp_post.ingest.ncu_timeline import trace_of_report

    return [trace_of_report(report) for report in one_per_program(reports)]


def merge(parts: list[Analysis]) -> Analysis:
    """Frames of several captures side by side; node and kernel ids are made unique by an offset."""
    if len(parts) == 1:
        return parts[0]
    node_offset = kernel_offset = activity_offset = memory_offset = 0
    shifted: list[dict[str, pd.DataFrame]] = []
    for part in parts:
        frames = {name: frame.copy(deep=False) for name, frame in part.frames.items()}
        for table, columns in (
            ("nodes", ("node_id", "parent_id", "layer_node_id")),
            ("kernels", ("node_id", "layer_node_id")),
            ("memory_operations", ("node_id",)),
            ("layers", ("node_id",)),
            ("iterations", ("node_id",)),
            ("inferred", ("node_id",)),
            ("idle", ("node_id",)),
            ("memory_timeline", ("node_id",)),
        ):
            for column in columns if table in frames else ():  # made by hand, an analysis may lack one
                values = frames[table][column]
                frames[table][column] = values.where(values < 0, values + node_offset)
        frames["kernels"]["kernel_id"] += kernel_offset
        if "kernel_work" in frames:
            frames["kernel_work"]["kernel_id"] += kernel_offset
        frames["memory_operations"]["activity_id"] += activity_offset
        for table in ("memory", "memory_timeline") if "memory" in frames else ():
            frames[table]["memory_id"] += memory_offset
        memory_offset += len(frames.get("memory", ()))
        node_offset += len(frames["nodes"])
        kernel_offset += len(frames["kernels"])
        activity_offset += len(frames["memory_operations"])
        shifted.append(frames)
    names = list(dict.fromkeys(name for frames in shifted for name in frames))
    merged = {name: _concat([frames[name] for frames in shifted if name in frames]) for name in names}
    return Analysis(merged, [f for part in parts for f in part.findings])


def _concat(frames: list[pd.DataFrame]) -> pd.DataFrame:
    from pandas.api.types import union_categoricals

    filled = [f for f in frames if len(f)] or frames[:1]
    if len(filled) == 1:
        return filled[0].reset_index(drop=True)
    columns: dict[str, object] = {}
    for name in dict.fromkeys(column for f in filled for column in f.columns):
        parts = _of_one_kind([f.get(name) for f in filled], [len(f) for f in filled])
        if all(isinstance(p.dtype, pd.CategoricalDtype) for p in parts):
            # readers make texts of either dtype, object or str
            texts = [p.cat.rename_categories(p.cat.categories.astype(object).tolist()) for p in parts]
            columns[name] = union_categoricals(texts)
        else:
            columns[name] = pd.concat(parts, ignore_index=True)
    return pd.DataFrame(columns)


def _of_one_kind(parts: list[pd.Series | None], counts: list[int]) -> list[pd.Series]:
    """A column of several frames; where a frame does not have it, its values are unknown."""
    has_texts = any(part is not None and isinstance(part.dtype, pd.CategoricalDtype) for part in parts)
    unknown = pd.CategoricalDtype([""]) if has_texts else float
    value = "" if has_texts else float("nan")
    return [pd.Series([value] * n, dtype=unknown) if part is None else part for part, n in zip(parts, counts)]


def with_counters(analysis: Analysis, reports: list[CounterReport]) -> Analysis:
    """Join counter reports to the kernels."""
    from xsp_post.counters.join import join

    frames = analysis.frames
    metrics, found, steps = join(
        frames["kernels"], frames["nodes"], reports, devices=frames.get("devices"), captures=frames.get("captures")
    )
    frames = dict(analysis.frames, kernel_metrics=metrics, counter_join=steps)
    return with_findings(frames, analysis.findings + list(found))


def with_analyses(analysis: Analysis, options: Options) -> Analysis:
    """Add the tables A1…A15, the evaluation tables, and the ranks of a job."""
    from xsp_post.analyses import compute_all
    from xsp_post.analyses.ranks import ranks_of

    tables, found = compute_all(analysis, options)
    tables["ranks"] = ranks_of(analysis)
    return with_findings({**analysis.frames, **tables}, analysis.findings + list(found))


def reanalyze(results: Results, options: Options) -> Results:
    """A store's results with its analyses made anew for another roof or other peaks; its core tables stay."""
    from xsp_post.analyses import compute_all

    tables, found = compute_all(results, options)
    old = results.frame("findings")
    fresh = findings_module.to_frame(f for f in found if f.code == _PEAKS_UNKNOWN)
    kept = old[old["code"].astype(str) != _PEAKS_UNKNOWN].astype({c: fresh[c].dtype for c in fresh if len(fresh)})
    return Overlay(results, {**tables, "findings": pd.concat([kept, fresh], ignore_index=True) if len(fresh) else kept})


# the one finding of the analyses that hangs on their options
_PEAKS_UNKNOWN = "peaks-unknown"
