"""`xsp-post export STORE --to perfetto`: results as files that other tools open."""

from pathlib import Path

from xsp_post.base.errors import UsageError
from xsp_post.base.output import require_free, written
from xsp_post.base.progress import step
from xsp_post.base.text_safety import path_text
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.ingest.formats import stem_of
from xsp_post.model.options import DEFAULTS, PART, TREE, Options
from xsp_post.model.schemas.units import format_bytes


@with_options(TREE, PART)
def export(
    sources: list[Path], to: str | None = None, output: Path | None = None, capture: int | None = None,
    limit: int | None = None, options: Options = DEFAULTS, anonymous: bool = False, force: bool = False,
    as_json: bool = False,
) -> None:  # fmt: skip
    """Write a timeline, flame graph, NVIDIA's own report or all tables for another tool."""
    if to is None:
        return _write_store(sources, output, options, anonymous, force, as_json)
    from xsp_post import exporters
    from xsp_post.model.results import part_text

    if limit is not None and limit < 1:
        raise UsageError(f"--limit {limit} is below 1.", code="bad-limit")
    path = output or exporters.default_path(stem_of(sources[0].name), to)
    shared.spare_sources(sources, path)
    exporters.require_free_path(to, path, force)
    results = shared.anonymised(shared.results_of(sources, options), anonymous)
    with step(f"writing {path} …"):
        written = exporters.export(results, to, path, capture_id=capture, limit=limit, force=force)
    if as_json:
        shared.print_json(
            "export",
            {
                "path": str(written.path),
                "part": part_text(results) or None,
                "to": to,
                "counts": written.counts,
                "findings": [
                    {"code": f.code, "severity": f.severity, "count": f.count, "example": f.example, "hint": f.hint}
                    for f in written.findings
                ],
            },
        )
        return
    shared.say_part(results)

    size = format_bytes(_size(written.path))
    opened_by = exporters.FORMATS[to].opened_by
    shared.say(f"Wrote {path_text(written.path)} ({size}; {_numbers(written.counts)}); opened by: {opened_by}")
    for finding in written.findings:
        example = f" ({finding.example})" if finding.example else ""
        shared.say(f"{finding.severity}: {finding.title}{example}. {finding.hint}")


def _write_store(
    sources: list[Path], output: Path | None, options: Options, anonymous: bool, force: bool, as_json: bool
) -> None:
    """A store of a part, or with other names: what is sent with a report of a defect."""
    from xsp_post.store.store import write_store

    if not (anonymous or options.is_part):
        raise UsageError("--to is missing: in which format to export", code="export-format")
    path = output or Path(f"{stem_of(sources[0].name)}.extract.xsp.sqlite")
    shared.spare_sources(sources, path)
    require_free(path, force)
    results = shared.anonymised(shared.results_of(sources, options), anonymous)
    with step(f"writing {path} …"):
        write_store(results, path, force=force)
    if as_json:
        return shared.print_json("export", {"path": str(path), "to": "store"})
    shared.say(f"Wrote {path_text(path)} ({format_bytes(_size(path))}); opened by: xsp-post")


def _size(path: Path) -> int:
    path = written(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(one.stat().st_size for one in files if one.is_file())


def _numbers(counts: dict[str, int]) -> str:
    if len(counts) > 6:  # every table
        return f"{len(counts)} tables, {sum(counts.values()):,} rows"
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
