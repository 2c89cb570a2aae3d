"""`xsp-post mcp DIR`: answers for assistants, over the Model Context Protocol on stdin and stdout."""

from pathlib import Path
from typing import Annotated

import typer


def _skill(wanted: bool) -> None:
    if wanted:
        path = Path(__file__).parents[1] / "agents" / "SKILL.md"
        typer.echo(path.read_text(encoding="utf-8"), nl=False)
        raise typer.Exit


def mcp(
    folder: Path,
    skill: Annotated[
        bool,
        typer.Option(
            "--skill", callback=_skill, is_eager=True, help="Print a skill file for an assistant that has a shell."
        ),
    ] = False,
) -> None:
    """Serve summary, why, what_if, tree, table and compare of the captures in one folder to an assistant (stdio)."""
    from xsp_post.agents.server import serve

    serve(folder)
