"""Values of a command line → those of a command's parameters, without pydantic where there is nothing to check.

Typer 0.29 and later check each value with pydantic, also one that was not given; to import it and to build the checks
takes a tenth of the time of `tree`. Texts, numbers that are defaults and paths of which nothing is asked need no check.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

_ASKED_OF_PATHS = ("exists", "resolve_path", "writable", "parser", "path_type")


class _Plain:
    """Parameters that convert plain values themselves, and leave all others to Typer."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As of every command, with --help."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if hasattr(parameter, "type_descriptor"):  # Typer before 0.29 has no pydantic
                parameter.process_value = partial(_process_value, parameter)
        return parameters


class PlainCommand(_Plain, TyperCommand):
    """A command of plain values."""


class PlainGroup(_Plain, TyperGroup):
    """The command that has the others."""


def _process_value(parameter: Any, ctx: Any, value: Any) -> Any:
    kind, info = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info
    is_several = get_origin(kind) is list
    values = value if is_several and value is not None else () if value is None else (value,)
    kind = get_args(kind)[0] if is_several else kind
    is_missing = parameter.required and not values
    if is_missing or isinstance(values, str) or not all(_is_plain(one, kind, info) for one in values):
        return type(parameter).process_value(parameter, ctx, value)
    converted = [kind(one) for one in values]
    result = converted if is_several else None if value is None else converted[0]
    return parameter.callback(ctx, parameter, result) if parameter.callback else result


def _is_plain(value: Any, kind: Any, info: Any) -> bool:
    """Whether a value is what is wanted, or becomes it by naming the kind."""
    if kind in (str, int, float, bool):
        return type(value) is kind and not getattr(info, "parser", None)
    is_unchecked = not any(getattr(info, name, True) for name in _ASKED_OF_PATHS)
    if kind is not Path or not is_unchecked or not isinstance(value, (str, Path)):
        return False
    is_readable = not info.readable or os.access(value, os.R_OK) or not os.path.lexists(value)  # as Typer asks
    return bool(info.file_okay and info.dir_okay and is_readable)
