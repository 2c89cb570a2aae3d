"""Results → files that other tools open. `FORMATS` (formats.txt) lists them; `export` writes one."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xsp_post.base.errors import UsageError
from xsp_post.base.text_safety import did_you_mean
from xsp_post.base.texts import TextTable, read_blocks

if TYPE_CHECKING:
    from xsp_post.exporters.base import Written
    from xsp_post.model.results import Results


class Format(NamedTuple):
    """A file format: who writes it, what its files are called, what they hold, what opens them."""

    writer: str  # module:function below this package, imported when used
    suffix: str
    holds: str  # for the help text
    opened_by: str


def _read() -> dict[str, Format]:
    blocks = read_blocks(Path(__file__).with_name("formats.txt"))
    return {one.name: Format(*one.title.split(), *one.texts().values()) for one in blocks}


FORMATS = TextTable(_read)


def titles() -> str:
    """The formats with what they hold, for help texts."""
    return ", ".join(f"{name} ({one.holds})" for name, one in FORMATS.items())


Writer = Callable[..., "Written"]


def export(
    results: "Results", to: str, path: Path, *, capture_id: int | None = None, limit: int | None = None,
    force: bool = False,
) -> "Written":  # fmt: skip
    """Write ``results`` as format ``to`` at ``path``.

    ``capture_id`` chooses the capture that a timeline shows (default: the one with most kernels); ``limit`` is
    the most kernels it may hold. Raises UsageError (format, capture), OutputError, ToolError (package missing).
    """
    return writer_of(to)(results, Path(path), capture_id=capture_id, limit=limit, force=force)


def writer_of(to: str) -> Writer:
    """The function that writes format ``to``."""
    if to not in FORMATS:
        raise UsageError(
            f"There is no export format {to!r}; there are {', '.join(FORMATS)}.",
            code="export-format",
            hint=did_you_mean(to, FORMATS, most=1).replace("mean ", "mean --to "),
        )
    module, function = FORMATS[to].writer.split(":")
    writer: Writer = getattr(import_module(f"xsp_post.exporters.{module}"), function)
    return writer


def require_free_path(to: str, path: Path, force: bool = False) -> None:
    """Raise before any work what the writer would raise after it: unknown format, output that exists."""
    from xsp_post.base.output import require_free, require_free_folder

    writer_of(to)
    if FORMATS[to].suffix.endswith("/"):
        require_free_folder(path, force, f"*.{to.partition('_')[0]}")
    else:
        require_free(path, force)


def default_path(stem: str, to: str) -> Path:
    """The stem and the format's suffix, in the current folder: folders of captures may be read-only."""
    return Path(stem + FORMATS[to].suffix.rstrip("/")) if to in FORMATS else Path(stem)
