"""Values of a command line → those of a command's parameters, without pydantic where there is nothing to check.

Typer 0.29 checks each value with pydantic, also one that was not given; to import it and to build the checks takes a
tenth of the time of `tree`. Texts, numbers that are defaults and paths of which nothing is asked need no check. Where
Typer keeps its converters elsewhere, or a value needs one, Typer converts as always.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

_CONVERTER = "_runtime_param"  # where Typer keeps it; None until a first value comes
_NEEDED = ("type_descriptor", "get_runtime_param", "multiple", "nargs")
_ASKED_OF_PATHS = ("exists", "resolve_path", "writable", "parser", "path_type")


class PlainCommand(TyperCommand):
    """A command that converts plain values itself."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As of every command, with --help."""
        return _with_plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same of the command that has the others."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As of every group."""
        return _with_plain(super().get_params(ctx))


def _with_plain(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, _CONVERTER, 0) is None and all(hasattr(parameter, name) for name in _NEEDED):
            setattr(parameter, _CONVERTER, _Plain())
    return parameters


class _Plain:
    """What stands in place of Typer's converter until a value needs that."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command wants it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        annotation, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        if get_origin(annotation) is list and not isinstance(value, str):
            kind, values = get_args(annotation)[0], list(value)
            if all(_is_plain(one, kind, info) for one in values):
                return [kind(one) for one in values]
        elif _is_plain(value, annotation, info):
            return annotation(value)
        setattr(param, _CONVERTER, None)
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _is_plain(value: Any, kind: Any, info: Any) -> bool:
    """Whether a value is what is wanted, or becomes it by naming the kind."""
    if kind in (str, int, float, bool):
        return type(value) is kind and not getattr(info, "parser", None)
    is_unchecked = not any(getattr(info, name, True) for name in _ASKED_OF_PATHS)
    if kind is not Path or not is_unchecked or not isinstance(value, (str, Path)):
        return False
    return bool(info.file_okay and info.dir_okay and (not info.readable or _is_absent_or_readable(value)))


def _is_absent_or_readable(path: str | Path) -> bool:
    """What Typer asks of a path by default."""
    return os.access(path, os.R_OK) or not os.path.lexists(path)
