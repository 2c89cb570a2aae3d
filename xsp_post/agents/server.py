"""One folder → a server of the Model Context Protocol over stdin and stdout; reads only (docs/programs.md)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from xsp_post import __version__
from xsp_post.agents import answers
from xsp_post.agents.folder import Folder, part_options
from xsp_post.base.errors import ToolError
from xsp_post.model.results import Results


def make_server(root: Path) -> Any:
    """The server of one folder. Raises `ToolError` where the package mcp is not installed."""
    try:
        try:
            from mcp.server import MCPServer as Server
        except ImportError:  # before version 2
            from mcp.server.fastmcp import FastMCP as Server  # type: ignore
        from mcp.types import ToolAnnotations
    except ImportError:
        raise ToolError("The package mcp is not installed.", code="mcp-missing") from None
    folder = Folder(root)
    said = " ".join(Path(__file__).with_name("instructions.md").read_text(encoding="utf-8").split())
    server = Server("xsp-post", instructions=f"{said} xsp-post {__version__}.")
    reads_only = ToolAnnotations.model_validate(
        {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
    )

    def tool(function: Any) -> Any:
        return server.tool(annotations=reads_only, structured_output=False)(function)

    @tool
    def sources() -> str:
        """List the captures and stores that can be asked about, by their path in the folder."""
        return answers.answer("sources", "", lambda: (None, folder.sources()), folder.root)

    def ask(name: str, source: str, make: Callable[[Results], answers.Answer], *part: int) -> str:
        """``part``: execution, begin and end of what is asked about; each below 0 where it is not said."""

        def made() -> tuple[Results, answers.Answer]:
            results = folder.results(source, part_options(*part))
            return results, make(results)

        return answers.answer(name, source, made, folder.root)

    @tool
    def summary(source: str, iteration: int = -1, from_ns: int = -1, until_ns: int = -1) -> str:
        """What was recorded, what limits it, its numbers with count and interval, its heaviest layers and kernels."""
        return ask("summary", source, answers.summary, iteration, from_ns, until_ns)

    @tool
    def why(source: str, layer: str = "", iteration: int = -1, from_ns: int = -1, until_ns: int = -1) -> str:
        """Why the device waited: the limit, the causes of idle time, what to do next. layer: regular expression."""
        return ask("why", source, partial(answers.why, layer=layer), iteration, from_ns, until_ns)

    @tool
    def what_if(
        source: str, changes: list[str], capture_id: int = -1, iteration: int = -1, from_ns: int = -1,
        until_ns: int = -1,
    ) -> str:  # fmt: skip
        """Predict an execution under changes, e.g. ["kernel:.*sgemm.*=0.5x", "launch=graph"]; or say why not."""
        predict = partial(answers.what_if, changes=changes, capture_id=None if capture_id < 0 else capture_id)
        return ask("what_if", source, predict, iteration, from_ns, until_ns)

    @tool
    def tree(
        source: str, depth: int = 0, top: int = 30, iteration: int = -1, from_ns: int = -1, until_ns: int = -1
    ) -> str:
        """The model → layer → kernel tree, heaviest `top` rows of all; with a depth so many in each range."""
        return ask("tree", source, partial(answers.tree, depth=depth, top=top), iteration, from_ns, until_ns)

    @tool
    def table(
        source: str, name: str, columns: list[str] | None = None, top: int = 20, sort: str = "", iteration: int = -1,
        from_ns: int = -1, until_ns: int = -1,
    ) -> str:  # fmt: skip
        """Rows of one table (A1 … A15, kernels, layers, idle_causes, findings …). sort: column, largest first."""
        rows = partial(answers.table, name=name, columns=columns or (), top=top, sort=sort)
        return ask("table", source, rows, iteration, from_ns, until_ns)

    @tool
    def compare(base: str, other: str, top: int = 6) -> str:
        """What differs in the source `other` as against `base`: sentences, then models, layers and kernels."""

        def make() -> tuple[Any, Any]:
            ours, theirs = folder.results(base), folder.results(other)
            return theirs, answers.compare(ours, theirs, max(1, min(top, 100)))

        return answers.answer("compare", f"{base} → {other}", make, folder.root)

    return server


def serve(root: Path) -> None:
    """Serve until stdin ends."""
    make_server(root).run("stdio")
