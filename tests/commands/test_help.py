"""Help: examples that can be parsed, whole sentences in the list of commands."""

from __future__ import annotations

import shlex

import pytest
import typer
from typer.testing import CliRunner

from xsp_post.cli import app
from xsp_post.commands.options import COMMANDS

GROUP = typer.main.get_command(app)


def test_every_command_has_examples():
    assert set(COMMANDS) - {"*"} == set(GROUP.commands) and all(COMMANDS[name].examples for name in GROUP.commands)


@pytest.mark.parametrize("name", GROUP.commands)
def test_examples_are_in_the_help_and_can_be_parsed(name):
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
    for line in COMMANDS[name].examples:
        assert f"  {line}\n" in shown
        words = shlex.split(line)
        assert words[:2] == ["xsp-post", name]
        if "--list" not in words:
            GROUP.commands[name].make_context(name, words[2:])


def test_the_list_of_commands_holds_whole_sentences():
    shown = "".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output.split())
    for command in GROUP.commands.values():
        assert "".join(command.callback.__doc__.split()) in shown


def test_a_mistyped_command_gets_a_suggestion():
    done = CliRunner().invoke(app, ["tre"])
    assert done.exit_code == 2 and "tree" in done.output
