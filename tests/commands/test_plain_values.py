"""Values that need no check are converted without pydantic, and as Typer converts them."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Optional

import pytest
import typer
from typer.testing import CliRunner

from xsp_post.commands.plain_values import PlainCommand

_PARSE = """
import sys
sys.argv[0] = "xsp-post"
from xsp_post import cli
try:
    cli.app()
except Exception as error:
    print(error.code, "pydantic" in sys.modules)
"""


@pytest.mark.parametrize("arguments", [
    ["tree", "--layer-range", "a", "no.sqlite"], ["ingest", "-o", "new.xsp.sqlite", "--report", __file__, "no.sqlite"],
])  # fmt: skip
def test_a_command_line_is_read_without_pydantic(arguments: list[str]) -> None:
    said = subprocess.run([sys.executable, "-c", _PARSE, *arguments], capture_output=True, text=True, check=True)
    assert said.stdout in ("capture-not-found False\n", "output-exists False\n")


@pytest.mark.parametrize("arguments", [
    ["a", "b/c"], ["a", "--name", "x", "--count", "7", "--one", "1", "--one", "2"], ["a", "--ratio", "0.25", "--flag"],
    ["a", "--out", "/"], ["a", "--count", "seven"], ["a", "--ratio", "x"], ["--name", "x"], ["a", "--most", "3"],
    ["a", "--there", "/no/such/file"], ["a", "--out", "/no/such/file"], ["a", "--out", __file__],
])  # fmt: skip
def test_values_are_those_of_typer(arguments: list[str]) -> None:
    got = []
    for kind in (None, PlainCommand):
        app = typer.Typer(pretty_exceptions_enable=False)

        @app.command(cls=kind)
        def command(
            paths: Annotated[list[Path], typer.Argument(readable=False)],
            one: Annotated[list[str], typer.Option()] = [],  # noqa: B006
            name: str = "n",
            count: int = 3,
            ratio: float = 0.5,
            flag: bool = False,
            most: Annotated[Optional[int], typer.Option()] = None,  # noqa: UP045
            out: Annotated[Optional[Path], typer.Option()] = None,  # noqa: UP045
            there: Annotated[Optional[Path], typer.Option(exists=True)] = None,  # noqa: UP045
        ) -> None:
            print(repr((paths, one, name, count, ratio, flag, most, out, there)))

        result = CliRunner().invoke(app, arguments)
        got.append((result.exit_code, result.output))
    assert got[0] == got[1]
