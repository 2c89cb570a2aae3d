"""`xsp-post mcp DIR`: answers for assistants, over the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def mcp(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The only folder that is read; nothing is written.")],
) -> None:
    """Serve summary, why, what_if, tree, table and compare of the captures in one folder to an assistant (stdio)."""
    from xsp_post.agents.server import serve

    serve(folder)
