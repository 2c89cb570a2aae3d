"""`model.options.Options` → command-line options of a command, and their values → one `Options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from xsp_post.model.options import Options, choices


def with_options(*groups: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter ``options`` is replaced by the options of these groups.

    The function itself gets one `Options` value.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters
        generated = {name: parameter for one in choices(*groups) for name, parameter in [_parameter(one)]}
        parameters: list[inspect.Parameter] = []
        for name, parameter in own.items():
            parameters += generated.values() if name == "options" else [parameter]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            given = {name: values.pop(name) for name in generated}
            given = _with_kept(given, generated, values, groups)
            function(**values, options=options_of(given, *groups))

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _with_kept(
    given: dict[str, Any], generated: dict[str, inspect.Parameter], values: dict[str, Any], groups: tuple[str, ...]
) -> dict[str, Any]:
    """The given values; where the command line says nothing, those that a file beside the captures keeps."""
    from xsp_post.commands.choices_file import FILE_NAME, kept_choices

    paths = [path for key in ("sources", "base", "paths", "source") for path in _listed(values.get(key))]
    kept = kept_choices(paths[0] if paths else None, groups)
    used = {name: value for name, value in kept.items() if given[name] == generated[name].default}
    if used:
        used_text = ", ".join(f"{name.replace('_', '-')} = {str(value)!r}" for name, value in used.items())
        typer.echo(f"{FILE_NAME}: {used_text}", err=True)
    return {**given, **used}


def _listed(value: Any) -> list[Path]:
    found = value if isinstance(value, (list, tuple)) else [value]
    return [one for one in found if isinstance(one, Path)]


def options_of(given: dict[str, Any], *groups: str) -> Options:
    """Options from the values of a command's parameters. Raises `UsageError` for impossible ones."""
    values: dict[str, Any] = {}
    for one in choices(*groups):
        value = given[_parameter_name(one)]
        if _is_negative(one):
            value = not value
        elif one.metadata["type"] is tuple:
            value = tuple(value)
        elif one.name == "peaks":
            value = peaks_of(value)
        values[one.name] = value
    return Options(**values)


def peaks_of(path: Path | None) -> dict[str, Any]:
    """The user's peaks by GPU name. Raises `UsageError` naming the file and the key."""
    if path is None:
        return {}
    from xsp_post.hardware.gpus import load_overrides

    return dict(load_overrides(path))


def _is_negative(one: Any) -> bool:
    return str(one.metadata["flag"]).startswith("--no-")


def _parameter_name(one: Any) -> str:
    flag = str(one.metadata["flag"]) or "--" + one.name
    return flag.removeprefix("--").replace("-", "_")


def _parameter(one: Any) -> tuple[str, inspect.Parameter]:
    name, about = _parameter_name(one), one.metadata
    option = typer.Option("--" + name.replace("_", "-"), help=about["help"], metavar=about["metavar"])
    kind: Any = about["type"]
    default: Any = False if _is_negative(one) else one.default
    if kind is tuple:
        kind, default = list[str], []
    if kind is Path:
        kind, default = Optional[Path], None  # noqa: UP045  (typer reads this at run time, also on Python 3.10)
    made = Annotated[kind, option]
    return name, inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=made)
