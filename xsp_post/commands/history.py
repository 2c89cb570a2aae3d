"""`xsp-post history`: many captures of one workload → since which capture it is slower, by how much, and in what."""

from pathlib import Path

from xsp_post.base.errors import CaptureError, UsageError
from xsp_post.base.output import make_folder, write_text
from xsp_post.base.text_safety import path_text, shown
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.options import DEFAULTS, ROOFS, TREE, Options


@with_options(TREE, ROOFS)
def history(
    paths: list[str],
    by: str = "",
    output: Path | None = None,
    fail_if: list[str] | None = None,
    options: Options = DEFAULTS,
    as_json: bool = False,
) -> None:
    """Find since which capture a workload is slower or faster, by how much, and in which layers and kernels."""
    from xsp_post.batch.history import HISTORY_PAGE, HISTORY_STORE, ORDERS, values_of_store
    from xsp_post.batch.history import history as read
    from xsp_post.compare.bars import check_since, parse_since
    from xsp_post.reports.history_page import render
    from xsp_post.store.store import write_store

    if by and by not in ORDERS:
        raise UsageError(f"--by {by!r} is not one of {', '.join(ORDERS)}", code="history-order")
    bars = [parse_since(text) for text in fail_if or ()]
    stores = {since: shared.baseline(Path(since)) for _, since in bars}
    kept = {since: values_of_store(store) for since, store in stores.items() if str(store) != since}
    folder = output or _beside(Path(paths[0]))
    found, failed, unfinished = read([str(shared.baseline(Path(path))) for path in paths], folder, options, by)
    make_folder(folder)
    store = folder / HISTORY_STORE
    write_store(found, store, force=True)
    page = folder / HISTORY_PAGE
    write_text(page, render(found), force=True)
    values, changes = found.frame("history_values"), found.frame("history")
    if as_json:
        tables = {name: shared.records(found, name) for name in ("history", "history_values")}
        shared.print_json("history", {"store": str(store), "failed": [row["capture_name"] for row in failed], **tables})
    else:
        from xsp_post.reports.history import history_lines
        from xsp_post.reports.terminal_text import say

        for line in history_lines(values, changes):
            say(shared.stdout(), line)
    for row in failed:
        shared.say(f"failed  {shown(row['capture_name'], 60)}: {shown(row['message'], 300)} [{row['code']}]")
    if unfinished:
        shared.say(f"Left out, still being recorded: {', '.join(shown(name, 300) for name in unfinished)}")
    said = {*values["capture_name"], *(one["capture_name"] for one in failed)}
    if left := {*found.frame("fleet")["capture_name"]} - said:
        shared.say(f"Left out, without a model execution: {', '.join(shown(name, 60) for name in sorted(left))}")
    shared.say(f"Wrote {path_text(store)} and {path_text(page)}")
    if not as_json:
        shared.say("All numbers: " + shared.command("xsp-post", "table", "history", store))
    if failed and values.empty:
        raise CaptureError("None of the captures could be analysed.", code="batch-all-failed")
    for sentence in check_since(values, changes, bars, kept):
        shared.say(f"--fail-if {sentence}")


def _beside(path: Path) -> Path:
    """``captures/`` → ``captures.history``; of files, ``xsp.history`` in the current folder."""
    if not path.is_dir():
        return Path("xsp.history")
    named = path if path.name else path.resolve()  # "." has no name of its own
    return named.with_name(f"{path.resolve().name}.history")
