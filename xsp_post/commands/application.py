"""Every command as one Typer application, and how it ends: parse, call one function, print (docs/cli.md).

Errors are caught only here. Commands live beside this module, one each, and import what is heavy inside their
functions.
"""

import ctypes
import gc
import importlib
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from xsp_post import __version__
from xsp_post.base import sealed, streams
from xsp_post.base.errors import EXIT_INTERRUPTED, CaptureError, XspPostError, in_words
from xsp_post.base.output import in_child, parents
from xsp_post.base.stops import Stops, remove_unfinished
from xsp_post.base.text_safety import shown
from xsp_post.commands.options import COMMANDS, with_texts
from xsp_post.commands.plain_values import PlainCommand, PlainGroup

app = typer.Typer(
    name="xsp-post",
    cls=PlainGroup,
    help="One model → layer → kernel tree from NVIDIA Nsight captures, with the evidence for every latency.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# module below `commands`, and its function, which is called as the command is (underscores become dashes)
_COMMANDS = (
    ("run", "run"), ("record", "record"), ("ingest", "ingest"), ("tree", "tree"), ("why", "why"), ("table", "table"),
    ("report", "report"), ("report", "open_"), ("compare", "compare"), ("what_if", "what_if"), ("batch", "batch"),
    ("history", "history"), ("baseline", "baseline"), ("export", "export"), ("explain", "explain"),
    ("doctor", "doctor"), ("mcp", "mcp"), ("recipe_path", "recipe_path"),
)  # fmt: skip


LEAST_FILES = 32  # 18 are enough for a store of one capture, 14 are not
LEAST_ADDRESSES = 512 << 20  # bytes: 410 to 480 MiB for three kernels; below, imports abort or lose their error


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"xsp-post {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def _name(function: str) -> str:
    return function.rstrip("_").replace("_", "-")


def _register() -> None:
    """All commands; from the command line only the one asked for, which saves importing the others."""
    is_ours = os.path.basename(sys.argv[0]) in ("xsp-post", "__main__.py")
    asked = [row for row in _COMMANDS if is_ours and sys.argv[1:2] == [_name(row[1])]]
    for module, function in asked or _COMMANDS:
        command = getattr(importlib.import_module(f"xsp_post.commands.{module}"), function)
        name = _name(function)
        sentence = " ".join((command.__doc__ or "").split())  # in the list of commands it must not be cut
        examples = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in COMMANDS[name].examples)
        app.command(name, cls=PlainCommand, short_help=sentence, epilog=examples)(with_texts(name, command))


_register()


def command_line() -> None:
    """Every failure a user can understand is one sentence and its exit code."""
    streams.prepare()
    if sys.argv[1:2] != ["run"]:  # what is measured keeps its own
        # Arrow's allocator reserves a gigabyte of addresses: under a limit of these too few are left for threads
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if sys.argv[1:2] in (*_ALONE, ["batch"]):
        _spare_start()
    stops = Stops()
    try:
        if sealed.is_possible() and sys.argv[1:2] in (*_ALONE, ["export"], ["baseline"]):
            parents.append(stops)
        code = _complained(_has_room) or _complained(_run)
        stops.finish()
    except KeyboardInterrupt:  # while an error was being said
        stops.finish()
        code = EXIT_INTERRUPTED
    if stops.received or code == EXIT_INTERRUPTED:
        typer.echo(stops.sentence(), err=True)
        code = 128 + stops.received if stops.received else code
    remove_unfinished()
    if in_child or (not code and sys.argv[1:2] in _ALONE):
        os._exit(code)  # the system takes back the memory of a million rows at once, Python row by row
    sys.exit(code)


def _has_room() -> int:
    """0; an error where the limit of open files (`ulimit -n`) or of addresses (`ulimit -v`) is below what importing the
    libraries takes. Python and they die there in ways that no program can catch."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < LEAST_FILES:  # the first import that fails says nothing
        raise CaptureError(
            "Too few files may be open at once.", code="out-of-files", hint=f"Allow at least {LEAST_FILES}: ulimit -n."
        )
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESSES:
        raise CaptureError(
            f"There is not enough memory for this: this process may use {limit >> 20} MiB of addresses (ulimit -v).",
            code="out-of-memory",
            hint=f"Allow at least {LEAST_ADDRESSES >> 20} MiB.",
        )
    return 0


def _run() -> int:
    """The command's exit code, once all it printed is written."""
    try:
        app()
        code: object = 0
    except SystemExit as end:  # typer's own end, also of an interrupt
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def _complained(command: Callable[[], int]) -> int:
    """The exit code of a command, its error said."""
    try:
        return command()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if os.environ.get("XSP_POST_DEBUG"):
            raise
        known = in_words(error)
        _complain(known)
        return known.exit_code


_OF_MALLOC = ((-8, 1), (-3, 32 << 20), (-1, 512 << 20))  # of glibc: most arenas, least of a mapping, most at the top
# one process, no workers: nothing waits for its end but the user
_ALONE = (["tree"], ["ingest"], ["table"], ["why"], ["what-if"], ["report"], ["compare"])


def _spare_start() -> None:
    """What costs CPU time and helps no command: half of the time of importing pandas, and of a million kernels a
    tenth."""
    gc.set_threshold(1_000_000, 20, 50)  # nothing imported is garbage, and charts import 200,000 objects
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its idle threads spin; no matrix is multiplied here
    # texts as Python has them, as in pandas 2: each look-up of a column among Arrow's costs more than the work on it
    os.environ.setdefault("PANDAS_FUTURE_INFER_STRING", "0")
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")  # arrays live shortly: whole huge pages are zeroed for each
    # freed memory is the next array, whichever thread freed it: the system clears each page that it gives anew
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, value in _OF_MALLOC:
            mallopt(option, value)


_CHILD_LINE = "\n  | "


def _complain(error: XspPostError) -> None:
    # the lines a child process left are lines of their own (collectors.base.last_lines); nothing else breaks one
    message, *lines = error.message.split(_CHILD_LINE)
    typer.echo(f"xsp-post: {shown(message, 2000)} [{error.code}]", err=True)
    for line in lines:
        typer.echo(f"{_CHILD_LINE[1:]}{shown(line, 2000)}", err=True)
    if error.hint:
        typer.echo(f"  {shown(error.hint, 2000)}", err=True)
