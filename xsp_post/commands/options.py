"""`model.options.Options` and options.txt → command-line options of a command, and their values → one `Options`."""

import functools
import inspect
import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_origin

import typer

from xsp_post.base import limits
from xsp_post.base.errors import UsageError
from xsp_post.base.texts import TextTable, read_blocks
from xsp_post.model.options import ROOFS, TREE, Options, Paths, choices, option_name
from xsp_post.model.schemas.units import TIME_UNITS


def with_options(*groups: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter ``options`` is replaced by the options of these groups.

    The function itself gets one `Options` value.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        generated = {one.name: one for one in map(_parameter, choices(*groups))}
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            parameters += generated.values() if name == "options" else [parameter]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            given = {name: values.pop(name) for name in generated}
            given = _with_kept(given, generated, values, groups)
            function(**values, options=options_of(given, *groups))

        return _signed(command, parameters)

    return decorate


def _with_kept(
    given: dict[str, Any], generated: dict[str, inspect.Parameter], values: dict[str, Any], groups: tuple[str, ...]
) -> dict[str, Any]:
    """The given values; where the command line says nothing, those that a file beside the captures keeps."""

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
        value = given[option_name(one)]
        if _is_negative(one):
            value = not value
        elif issubclass(one.metadata["type"], tuple):
            value = one.metadata["type"](value)
        elif one.name == "peaks":
            value = peaks_of(value)
        elif one.name == "memory":
            limits.want_memory(value)
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


_TIME = re.compile(r"^\s*(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s)\s*$")


def time_ns(text: str, option: str) -> int:
    """``350ms`` → ns. Raises `UsageError` for a text that is no time with its unit."""
    found = _TIME.match(text)
    if found is None:
        raise UsageError(f"{option} {text!r} is not a time with its unit, e.g. 1.2s, 350ms, 40us", code="bad-time")
    return round(float(found[1]) * TIME_UNITS[found[2]])


def _is_negative(one: Any) -> bool:
    return str(one.metadata["flag"]).startswith("--no-")


def _parameter(one: Any) -> inspect.Parameter:
    kind: Any = one.metadata["type"]
    default: Any = False if _is_negative(one) else one.default
    if issubclass(kind, tuple):
        kind, default = list[Path] if kind is Paths else list[str], []
    if kind is Path or default is None:
        kind, default = kind | None, None
    return inspect.Parameter(
        option_name(one), inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


# -- what `options.txt` says of parameters ---------------------------------------------------------------------------

_SHARED = "*"
_LINE = re.compile(r"(\w+)((?: -\S+)*)(?: (=?)<(.*)>)?")
_LISTS = {"sources": "ingest.formats:titles", "exports": "exporters:titles", "rules": "model.options:rules_text"}


class _Said(NamedTuple):
    """One line: further flags of a parameter, what help calls it or its value, and its help."""

    flags: tuple[str, ...]
    is_argument: bool
    metavar: str | None
    help: str


class CommandTexts(NamedTuple):
    """One block: what is said of the parameters of a command, by name, and examples of the command."""

    parameters: dict[str, _Said]
    examples: list[str]


def _read() -> dict[str, CommandTexts]:
    found = {}
    for block in read_blocks(Path(__file__).with_name("options.txt")):
        examples = [line.removeprefix("$ ") for _, line in block.lines if line.startswith("$ ")]
        block.lines[:] = [(number, line) for number, line in block.lines if not line.startswith("$ ")]
        parameters = {}
        for words, text in block.texts().items():
            line = _LINE.fullmatch(words) or block.refuse(f"{words!r} is no parameter")
            is_argument = line[4] is not None and not line[3]
            parameters[line[1]] = _Said(tuple(line[2].split()), is_argument, line[4], text)
        found[block.name] = CommandTexts(parameters, examples)
    return found


COMMANDS = TextTable(_read)


def with_texts(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """The function of a command, signed as Typer takes it: each parameter with its flags and its help."""
    said = COMMANDS[_SHARED].parameters | COMMANDS[name].parameters
    given = inspect.signature(function, eval_str=True).parameters.values()
    names = {one.name for one in given}
    parameters = [
        one if get_origin(one.annotation) is Annotated
        else one.replace(annotation=Annotated[one.annotation, _info(one.name, said[one.name], names)])
        for one in given
    ]  # fmt: skip

    return _signed(function, parameters)


def _signed(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _info(name: str, said: _Said, names: set[str]) -> Any:
    text = said.help.format_map({word: _listed_by(word) for word in _LISTS if f"{{{word}}}" in said.help})
    if said.is_argument:
        return typer.Argument(readable=False, metavar=said.metavar, help=text)
    # export has a --to of its own
    flags = [flag for flag in said.flags if flag.removeprefix("--") not in names - {name}]
    if not any(flag.startswith("--") for flag in flags):
        flags.insert(0, f"--{name.rstrip('_').replace('_', '-')}")
    return typer.Option(*flags, metavar=said.metavar, help=text)


def _listed_by(word: str) -> str:
    module, _, function = _LISTS[word].partition(":")
    return str(getattr(import_module(f"xsp_post.{module}"), function)())


# -- `xsp-post.toml` beside the captures → choices that hold for every command that reads them -------------------------

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
