"""The skill file that is shipped names commands, options and tables that there are."""

from __future__ import annotations

import re

import typer
from helpers import called as xsp

from xsp_post.cli import app


def test_the_skill_names_what_there_is():
    text = xsp("mcp", "--skill").stdout
    assert text.startswith("---\nname: xsp-post\n")
    commands = typer.main.get_command(app).commands
    named = re.findall(r"xsp-post ([a-z-]+)((?: [^`]*)?)`", text)
    assert len(named) >= 8
    for name, rest in named:
        options = {option for one in commands[name].params for option in one.opts}
        own = rest.split(" -- ")[0]
        assert {word for word in own.split() if word.startswith("--")} <= options, (name, rest)
