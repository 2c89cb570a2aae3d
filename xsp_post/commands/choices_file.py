"""`xsp-post.toml` beside the captures → choices that hold for every command that reads them.

Keys are the options without their dashes: ``model-range``, ``layer-range``, ``layer-depth``, ``no-infer``,
``layers-from``, ``roof``, ``peaks``. What the command line says comes first.
"""

import os
from pathlib import Path
from typing import Any

from xsp_post.base.errors import UsageError
from xsp_post.model.options import ROOFS, TREE, Paths, choices, option_name

FILE_NAME = "xsp-post.toml"


def kept_choices(source: Path | None, groups: tuple[str, ...]) -> dict[str, Any]:
    """Values by option name (``layer_range``) that the file beside a source keeps for these groups of options; none
    where there is no file. A store has its tree already. Raises `UsageError` naming file and key."""
    path = file_beside(source)
    if source is None or path is None:
        return {}
    from xsp_post.base import settings_files

    try:
        kept = settings_files.read(path)
    except settings_files.BadSettings as error:
        raise _wrong(path, str(error)) from error
    known = {option_name(one): one for one in choices(TREE, ROOFS)}
    wanted = {option_name(one) for one in choices(*groups)} & known.keys()
    if source.name.endswith(".xsp.sqlite"):
        wanted -= {option_name(one) for one in choices(TREE)}
    values = {}
    for key, value in kept.items():
        name = str(key).replace("-", "_")
        if name not in known:
            listed = ", ".join(one.replace("_", "-") for one in known)
            raise _wrong(path, f"has the key {key!r}; those that can be kept are {listed}")
        if name in wanted:
            values[name] = _typed(path, key, value, known[name].metadata)
    return values


def file_beside(source: Path | None) -> Path | None:
    """The file in the folder of a source, or in the source itself where that is a folder."""
    if source is None:
        return None
    folders = [source, source.parent] if os.path.isdir(source) else [source.parent]
    return next((path for folder in folders if os.path.isfile(path := folder / FILE_NAME)), None)


def _typed(path: Path, key: str, value: Any, about: Any) -> Any:
    kind = about["type"]
    expected = str if kind in (Path, Paths) else list if kind is tuple else kind
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise _wrong(path, f"key {key!r}: {value!r} is not of the type {expected.__name__}")
    if isinstance(value, int) and abs(value) >= 1 << 31:
        raise _wrong(path, f"key {key!r} has a number of more than 31 bits")
    if kind is Paths:
        return [path.parent / str(value)]
    return path.parent / str(value) if kind is Path else value


def _wrong(path: Path, what: str) -> UsageError:
    return UsageError(f"{path}: {what}", code="choices-file")
