"""The notebook of docs/ runs from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_notebook_runs(monkeypatch, capsys):
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    monkeypatch.chdir(DOCS)
    names: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    shown = capsys.readouterr().out
    recorded = "".join(
        "".join(output["text"])
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
    )
    assert shown == recorded
