"""`model.options.Options` → command-line options of a command, and their values → one `Options`."""

from __future__ import annotations

import functools
import inspect
import keyword
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from xsp_post.base.errors import UsageError
from xsp_post.model.options import Options, Paths, choices


def with_options(*groups: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter ``options`` is replaced by the options of these groups.

    The function itself gets one `Options` value.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters
        taken = {flag for parameter in own.values() for flag in _flags_of(parameter)}
        generated = {name: parameter for one in choices(*groups) for name, parameter in [_parameter(one, taken)]}
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
        used_text = ", ".join(f"{name.replace('_', '-')} = {str(value)!r:.200}" for name, value in used.items())
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
        elif issubclass(one.metadata["type"], tuple):
            value = one.metadata["type"](value)
        elif one.name == "peaks":
            value = peaks_of(value)
        elif one.name in ("begin_ns", "end_ns"):
            value = time_ns(value, str(one.metadata["flag"])) if value else None
        values[one.name] = value
    return Options(**values)


def peaks_of(path: Path | None) -> dict[str, Any]:
    """The user's peaks by GPU name. Raises `UsageError` naming the file and the key."""
    if path is None:
        return {}
    from xsp_post.hardware.gpus import load_overrides

    return dict(load_overrides(path))


def _flags_of(parameter: inspect.Parameter) -> tuple[str, ...]:
    """The option names that a parameter of a command says itself."""
    about = getattr(parameter.annotation, "__metadata__", ())
    # the first name stands where an option outside Annotated has its default
    named = [(getattr(one, "default", None), *(getattr(one, "param_decls", None) or ())) for one in about]
    return tuple(flag for one in named for flag in one if isinstance(flag, str))


_TIME = re.compile(r"^\s*(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s)\s*$")
_TIME_SCALE = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def time_ns(text: str, option: str) -> int:
    """``350ms`` → ns. Raises `UsageError` for a text that is no time with its unit."""
    found = _TIME.match(text)
    if found is None:
        raise UsageError(f"{option} {text!r} is not a time with its unit, e.g. 1.2s, 350ms, 40us", code="bad-time")
    return round(float(found[1]) * _TIME_SCALE[found[2]])


def _is_negative(one: Any) -> bool:
    return str(one.metadata["flag"]).startswith("--no-")


def _parameter_name(one: Any) -> str:
    flag = str(one.metadata["flag"]) or "--" + one.name
    name = flag.removeprefix("--").replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


# Further names of an option, for commands that have no other option of that name.
_ALSO = {"until": "--to"}


def _parameter(one: Any, taken: set[str]) -> tuple[str, inspect.Parameter]:
    name, about = _parameter_name(one), one.metadata
    flags = ["--" + name.rstrip("_").replace("_", "-"), _ALSO.get(name, "")]
    option = typer.Option(
        *(flag for flag in flags if flag and flag not in taken), help=about["help"], metavar=about["metavar"]
    )
    kind: Any = about["type"]
    default: Any = False if _is_negative(one) else one.default
    if issubclass(kind, tuple):
        kind, default = list[Path] if kind is Paths else list[str], []
    if kind is Path or default is None:
        kind, default = Optional[kind], None  # noqa: UP045  (typer reads this at run time, also on Python 3.10)
    made = Annotated[kind, option]
    return name, inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=made)
