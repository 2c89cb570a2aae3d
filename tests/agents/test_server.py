"""The server over stdio, asked by the protocol's own client."""

from __future__ import annotations

import json
import sys

import pytest
from builders import ExportBuilder
from helpers import by_row

pytest.importorskip("mcp")


def test_tools_over_stdio(tmp_path):
    import anyio
    from mcp import ClientSession, StdioServerParameters, stdio_client

    made = ExportBuilder().gpu().range("forward", 0, 5_000)
    made.kernel("gemm", run=(1_000, 2_000), launch=(100, 200)).write(tmp_path / "one.sqlite")
    before = sorted(path.name for path in tmp_path.iterdir())
    asked = StdioServerParameters(command=sys.executable, args=["-m", "xsp_post", "mcp", str(tmp_path)])

    async def ask():
        async with stdio_client(asked) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = await session.list_tools()
            said = {}
            for name, arguments in (
                ("sources", {}),
                ("summary", {"source": "one.sqlite"}),
                ("summary", {"source": "../one.sqlite"}),
            ):
                called = await session.call_tool(name, arguments)
                said[name, arguments.get("source")] = by_row(json.loads(called.content[0].text))
            return {tool.name for tool in tools.tools}, said

    names, said = anyio.run(ask)
    assert names == {"sources", "summary", "why", "what_if", "tree", "table", "compare"}
    assert [row["source"] for row in said["sources", None]["answer"]["sources"]] == ["one.sqlite"]
    assert said["summary", "one.sqlite"]["balance"][0]["device_ns"] == 1000
    assert said["summary", "../one.sqlite"]["abstains"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
