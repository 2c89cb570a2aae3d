"""`xsp-post why`: what limits the program, why the device waited, and what to do next."""

from pathlib import Path

from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.options import DEFAULTS, MEMORY, PART, TREE, Options


@with_options(TREE, PART, MEMORY)
def why(
    sources: list[Path], layer: str = "", verbose: bool = False, options: Options = DEFAULTS, as_json: bool = False
) -> None:
    """Report what limits the program, with numbers, the largest causes of idle time, and what to do next."""
    results = shared.results_of(sources, options, shared.begin_reading(sources, options))
    from xsp_post.reports import why as report

    results.frame("captures", ["capture_id"])  # the store of a batch has none, and says what to use instead
    said = report.why(results, layer=layer, is_brief=not (verbose or as_json))
    if as_json:
        from xsp_post.reports.quantities import quantities

        shared.print_json("why", {**report.json_of(said), "quantities": quantities(results)})
        return
    report.print_why(shared.stdout(), said, verbose=verbose)
