"""`xsp-post ingest`: recorded captures → store and report."""

from pathlib import Path

from xsp_post.base.errors import UsageError
from xsp_post.base.output import require_free
from xsp_post.base.progress import step
from xsp_post.base.text_safety import path_text
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.ingest.formats import stem_of
from xsp_post.model.options import DEFAULTS, MEMORY, PART, ROOFS, TREE, Options


@with_options(TREE, ROOFS, PART, MEMORY)
def ingest(
    sources: list[Path], output: Path | None = None, report: Path | None = None, options: Options = DEFAULTS,
    strict: bool = False, unattributed_limit: float = 0.05, force: bool = False,
    depth: int | None = None, verbose: bool = False, top: int = 12, quiet: bool = False, as_json: bool = False,
) -> None:  # fmt: skip
    """Read captures, account for every kernel, print the tree and write one store (and one HTML page)."""
    store_path = output or default_store(sources[0])
    shared.spare_sources(sources, store_path, report)
    for target in filter(None, (store_path, report)):
        require_free(target, force)
    if report is not None and report.resolve() == store_path.resolve():
        raise UsageError(f"{report} is given twice: for the store and for the report", code="outputs-same")
    reading = shared.begin_reading(sources, options)
    from xsp_post.pipeline import captures_of
    from xsp_post.store.store import StoreWriter

    with step("reading captures and writing the store …"), StoreWriter(store_path, force=force) as writer:
        read = shared.results_of if options.is_part else captures_of
        results = read(sources, options, reading)
        if sources[0].is_file() and len(sources) == 1 and not options.is_part:
            writer.begin({name: results.frame(name) for name in ("nodes", "kernels")})
        analysis = results.complete()
        if strict:
            shared.check_strict(analysis, unattributed_limit)
        writer.finish(analysis)
    if report is not None:
        from xsp_post.reports.html import write_report

        with step("writing the report …"):
            write_report(analysis, report, force=force)
    if as_json:
        from xsp_post.reports.quantities import quantities
        from xsp_post.reports.verdict import verdict_data

        captures = shared.records(analysis, "captures")
        findings = shared.records(analysis, "findings")
        shared.print_json("ingest", {"store": str(store_path),
                           "report": str(report) if report else None, "verdict": verdict_data(analysis),
                           "quantities": quantities(analysis), "captures": captures,
                           "findings": findings})  # fmt: skip
        return
    if not quiet:
        from xsp_post.reports.terminal import print_tree

        print_tree(shared.stdout(), analysis, depth=depth, top=top, verbose=verbose)
    shared.say(f"Wrote {path_text(store_path)}" + (f" and {path_text(report)}" if report else ""))
    if missing := shared.what_to_record(analysis):
        shared.say(missing)
    elif report:
        shared.say(f"Next: open {path_text(report)}, or: " + shared.command("xsp-post", "table", "A10", store_path))
    else:
        page = Path(f"{store_path.name.removesuffix('.xsp.sqlite')}.html")
        shared.say("Next: " + shared.command("xsp-post", "report", store_path, "-o", page))


def default_store(source: Path) -> Path:
    """``run.qdrep`` → ``run.xsp.sqlite`` in the current folder: folders of captures may be read-only."""
    return Path(f"{stem_of(source.name)}.xsp.sqlite")
