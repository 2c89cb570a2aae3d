"""`xsp-post tree`: a capture or store as a tree a person can read."""

from pathlib import Path
from typing import TYPE_CHECKING

from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.options import DEFAULTS, MEMORY, PART, TREE, Options

if TYPE_CHECKING:
    from xsp_post.model.results import Results

# What is printed of captures, and the findings of nothing else: a store shows what it holds of all of it, too.
SHOWN = (
    "captures", "devices", "execution_candidates", "paths", "operations", "balance", "findings", "part",
    "idle_causes", "device_windows", "experiment", "replays", "a15", "cases", "kernel_metrics", "kernel_work", "layers",
    "ranks", "memory_operations",
)  # fmt: skip


@with_options(TREE, PART, MEMORY)
def tree(
    sources: list[Path],
    depth: int | None = None,
    top: int = 12,
    layer: str = "",
    rank: int | None = None,
    verbose: bool = False,
    options: Options = DEFAULTS,
    strict: bool = False,
    unattributed_limit: float = 0.05,
    as_json: bool = False,
) -> None:
    """Print the model → layer → kernel tree with calls, kernel time, busy time and gaps, heaviest first."""
    reading = shared.begin_reading(sources, options)
    graph = shared.results_of(sources, options, reading)
    results = graph if not options.is_part and shared.is_store(sources) else graph.only(SHOWN)
    if as_json:
        from xsp_post.model.results import part_text
        from xsp_post.reports.quantities import quantities
        from xsp_post.reports.verdict import verdict_data

        names = ("captures", "devices", "execution_candidates", "paths", "operations", "balance", "findings")
        tables = {name: shared.records(results, name) for name in names}
        document = {
            "part": part_text(results) or None,
            "verdict": verdict_data(graph),
            "quantities": quantities(results),
            **tables,
        }
        shared.print_json("tree", document)
    else:
        from xsp_post.reports.terminal import print_tree

        print_tree(shared.stdout(), results, graph, depth=depth, top=top, layer=layer, rank=rank, verbose=verbose)
        shared.say(shared.what_to_record(results) or _next(sources, results))
    if strict:
        shared.check_strict(results, unattributed_limit)


def _next(sources: list[Path], results: "Results") -> str:
    from xsp_post.reports.verdict import main_limit
    from xsp_post.tables.analyses.limits import GRAPH_RECORDED

    if main_limit(results).reason == GRAPH_RECORDED:  # its kernels ran in another trace
        return "Next: " + shared.command("xsp-post", "tree", "TRACE-OF-REPLAYS", "--layers-from", *sources)
    if str(sources[-1]).endswith(".xsp.sqlite"):
        return "Next: " + shared.command("xsp-post", "report", *sources, "-o", "report.html")
    rest = ("-o", "out.xsp.sqlite", "--report", "report.html")
    return "Next: " + shared.command("xsp-post", "ingest", *sources, *rest)
