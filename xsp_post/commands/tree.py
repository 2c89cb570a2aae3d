"""`xsp-post tree`: a capture or store as a tree a person can read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_post.commands import shared

if TYPE_CHECKING:
    from xsp_post.ingest.tables import SqliteTables
    from xsp_post.model.results import Results
    from xsp_post.pipeline import Options

JSON_VERSION = 1  # 1: first


def tree(
    sources: shared.StoreOrSource,
    depth: shared.Depth = 6,
    top: shared.Top = 12,
    model_range: shared.ModelRange = "",
    layer_range: shared.LayerRange = "",
    layer_depth: shared.LayerDepth = 0,
    no_infer: shared.NoInfer = False,
    strict: shared.Strict = False,
    unattributed_limit: shared.UnattributedLimit = 0.05,
    as_json: shared.AsJson = False,
) -> None:
    """Print the model → layer → kernel tree with calls, kernel time, busy time and gaps, heaviest first."""
    begun = shared.begin_reading(sources, detail=False)
    options = shared.options_of(model_range, layer_range, layer_depth, no_infer)
    results = summary_of(sources, options, begun)
    if as_json:
        names = ("captures", "paths", "balance", "findings")
        document = {name: shared.records(results.frame(name)) for name in names}
        shared.print_json({"format": "xsp-post.tree", "version": JSON_VERSION, **document})
    else:
        from xsp_post.reports.terminal import print_tree

        print_tree(shared.stdout(), results, depth=depth, top=top)
        shared.say(shared.what_to_record(results) or _next(sources))
    if strict:
        shared.check_strict(results, unattributed_limit)


def summary_of(sources: list[Path], options: Options, begun: SqliteTables | None = None) -> Results:
    """The folded tree of captures without the rows behind it, or of a store."""
    from xsp_post.base.progress import step
    from xsp_post.ingest import sources as ingest_sources
    from xsp_post.pipeline import grow, merge_summaries
    from xsp_post.tree_tables import summary_frames

    options = replace(options, tree=replace(options.tree, with_layers=False))
    sources = ingest_sources.expand(sources)
    if begun is None and len(sources) == 1 and ingest_sources.sniff(sources[0]) == ingest_sources.STORE:
        return shared.results_of(sources, options)
    parts: list[Any] = []
    with step("reading captures …"):
        for path in sources:
            loaded = ingest_sources.load(path, detail=False, begun=begun)
            trace = loaded.trace
            if trace is None and loaded.counters is not None:
                from xsp_post.ingest.ncu_timeline import trace_of_report

                trace = trace_of_report(loaded.counters)
            if trace is not None:
                parts.append(summary_frames(grow(trace, options), len(parts)))
    return merge_summaries(parts)


def _next(sources: list[Path]) -> str:
    if str(sources[-1]).endswith(".xsp.sqlite"):
        return "Next: " + shared.command("xsp-post", "report", *sources, "-o", "report.html")
    rest = ("-o", "out.xsp.sqlite", "--report", "report.html")
    return "Next: " + shared.command("xsp-post", "ingest", *sources, *rest)
