"""Sources → the graph of their tables, which every command asks for what it shows.

What only some commands need is imported where it is used: `tree` and `table` of a small capture are to answer at once.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_post.base.errors import UsageError
from xsp_post.ingest.files import require_readable
from xsp_post.ingest.formats import NSYS_SQLITE, STORE
from xsp_post.ingest.side_files import with_side_files
from xsp_post.ingest.sources import Loaded, captures_in, expand, load, sniff
from xsp_post.ingest.sqlite_tables import SqliteTables
from xsp_post.model.capture import FLEET_STORE
from xsp_post.model.options import DEFAULTS, PART, ROOFS, Options, choices
from xsp_post.model.results import Analysis, Results
from xsp_post.model.trace import Trace
from xsp_post.tables.captures import Captures
from xsp_post.tables.catalogue import ANALYSES, EXPERIMENT, OF_CAPTURE, OF_PART, OF_WORKLOAD
from xsp_post.tables.graph import Graph

if TYPE_CHECKING:
    from xsp_post.tree.twin import Twin


def results_of(paths: list[Path], options: Options = DEFAULTS, reading: SqliteTables | None = None) -> Graph:
    """The tables of a store (its analyses made anew for other roofs or peaks), or of captures.

    ``reading``: the first source, which is being read already (`ingest.sources.begin`).
    """
    if options.is_part:
        whole = replace(options, **{one.name: getattr(DEFAULTS, one.name) for one in choices(PART)})
        window = window_of(paths, options)
        try:
            return part_of(results_of(paths, whole, window or reading), options)
        except UsageError:
            if window is None:
                raise
            return part_of(results_of(paths, whole), options)  # nothing is there: all of it says where something is
    store = store_of(paths) if reading is None else None
    if store is None:
        return captures_of(paths, options, reading)
    from xsp_post.store.store import open_store

    remade = [] if options.is_default(ROOFS) else [name for step in ANALYSES for name in step.names]
    return Graph(open_store(store), OF_WORKLOAD if remade else (EXPERIMENT,), {"options": options}, remade)


def part_of(results: Results, options: Options) -> Graph:
    """The same tables for one execution or a time of the recording alone. Raises `UsageError` where nothing is in it.

    Every sum, cause and analysis is made anew from the rows of the part.
    """
    from xsp_post.tables.part import parts_of

    values = {"options": options}
    parts = parts_of(results, options)
    cut = {part.capture_id: Graph(part, OF_PART, {**values, "cut": part}) for part in parts}
    return Graph(Captures(list(cut.values()), list(cut)), OF_WORKLOAD, values)


def window_of(paths: list[Path], options: Options) -> SqliteTables | None:
    """The one source, where it is a large export of which only a time is to be read."""
    if len(paths) != 1 or not os.path.isfile(paths[0]) or sniff(paths[0]) != NSYS_SQLITE:
        return None
    from xsp_post.ingest.nsys_window import WindowTables, is_windowed

    return WindowTables(paths[0], options) if is_windowed(paths[0], options) else None


def store_of(paths: list[Path]) -> Path | None:
    """The store that the paths name: one store, or the folder of a batch; None for captures."""
    if len(paths) != 1:
        return None
    path = paths[0] / FLEET_STORE if os.path.isdir(paths[0]) else paths[0]
    if os.path.isdir(paths[0]) and not os.path.isfile(path):
        return None
    require_readable(path)
    return path if sniff(path) == STORE else None


def captures_of(paths: list[Path], options: Options = DEFAULTS, reading: SqliteTables | None = None) -> Graph:
    """The tables of captures (and counter reports) of one workload. Raises `CaptureError` and other errors."""
    return graph_of(loaded(paths, reading), options)


def analyze(paths: list[Path], options: Options = DEFAULTS) -> Analysis:
    """All of them in memory."""
    return captures_of(paths, options).complete()


def graph_of(sources: list[Loaded], options: Options = DEFAULTS) -> Graph:
    """The tables of sources that are read already."""
    values: dict[str, Any] = {"options": options, "twin": _twin(options, sources)}
    captures = [Graph(Analysis({}), OF_CAPTURE, {**values, "trace": trace}) for trace in _traces(sources, options)]
    reports = [one.counters for one in sources if one.counters is not None]
    return Graph(Captures(captures), OF_WORKLOAD, {**values, "counters": reports} if reports else values)


def _twin(options: Options, sources: list[Loaded]) -> "Twin | None":
    """The ranges of the captures given with ``--layers-from``, None without one."""
    if not options.layers_from:
        return None
    from xsp_post.hierarchy import build_tree
    from xsp_post.tree.twin import as_run, merged, twin_of

    processes = [one.trace.processes for one in sources if one.trace is not None]
    ranks = {rank for frame in processes for rank in frame["rank"].tolist() if rank >= 0}
    twins = []
    for path in captures_in(options.layers_from, ranks):
        trace = load(path).trace
        if trace is None:
            raise UsageError(
                f"{path.name} holds no launches: ranges cannot be carried over from it", code="twin-without-launches"
            )
        whole = as_run(trace)  # where the times of its kernels are made up, nothing is inferred from them
        own = replace(options, layers_from=(), infer=options.infer and whole is trace)
        twins.append(twin_of(build_tree(whole, own), path.name))
    return merged(twins, options.layers_from[0].name)


def loaded(paths: list[Path], reading: SqliteTables | None = None) -> list[Loaded]:
    """Every source, read."""
    if reading is not None:
        return [load(paths[0], reading=reading), *(load(path) for path in expand(paths[1:]))]
    return [load(path) for path in expand(paths)]


def _traces(sources: list[Loaded], options: Options) -> list[Trace]:
    """The timelines of the sources, with what files beside them say; where there are none, those that the counter
    reports themselves give."""
    traces = [with_side_files(one.trace, options.provenance, one.path) for one in sources if one.trace is not None]
    reports = [one.counters for one in sources if one.counters is not None]
    if traces or not reports:
        return traces
    from xsp_post.ingest.ncu_timeline import trace_of_report
    from xsp_post.ingest.run_facts import one_per_program

    return [trace_of_report(report) for report in one_per_program(reports)]
