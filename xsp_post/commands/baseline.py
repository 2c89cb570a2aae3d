"""`xsp-post baseline save NAME STORE`: a result kept under a name, which every command takes as ``baseline:NAME``."""

import re
import shutil
from pathlib import Path

import typer

from xsp_post.base.errors import UsageError
from xsp_post.base.output import atomic_output, make_folder, require_free
from xsp_post.base.text_safety import path_text
from xsp_post.commands import shared

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SAVE, LIST = "save", "list"


def baseline(
    action: str, name: str = "", source: Path | None = None, force: bool = False, as_json: bool = False
) -> None:
    """Keep a result under a name: `compare baseline:NAME OTHER`. The folder is $XSP_POST_BASELINES or .xsp-post."""
    if action == LIST and not name:
        names = shared.baselines()
        if as_json:
            shared.print_json("baseline", {"folder": str(shared.baseline_folder()), "names": names})
        else:
            for one in names:
                typer.echo(one)
            if not names:
                shared.say(f"No baseline is kept in {path_text(shared.baseline_folder())}.")
        return
    if action != SAVE or source is None or not _NAME.fullmatch(name):
        raise UsageError("Write `baseline save NAME STORE` or `baseline list`.", code="baseline-name")
    make_folder(shared.baseline_folder())
    target = shared.baseline_file(name)
    shared.spare_sources([source], target)
    require_free(target, force)
    if shared.is_store([source]) and source.is_file():
        with atomic_output(target, force) as temporary:
            shutil.copyfile(source, temporary)
    else:
        from xsp_post.pipeline import analyze
        from xsp_post.store.store import write_store

        write_store(analyze([source]), target, force=force)
    if as_json:
        shared.print_json("baseline", {"folder": str(shared.baseline_folder()), "names": shared.baselines()})
    shared.say(f"Wrote {path_text(target)}")
    shared.say("Next: " + shared.command("xsp-post", "compare", f"baseline:{name}", "OTHER"))
