"""Nothing that a user can name gets lost: commands, options, tables, columns, exports, charts, choices.

`tests/inventory.json` lists what there was. Something that is taken away on purpose is taken out of that file in the
same commit; what is new is added by `python tests/test_inventory.py`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

INVENTORY = Path(__file__).with_name("inventory.json")


def inventory() -> dict[str, str]:
    """What a user can name: per kind its names, between spaces."""
    from typer.main import get_command

    from xsp_post.cli import app
    from xsp_post.compare import CompareOptions
    from xsp_post.exporters import FORMATS as EXPORTS
    from xsp_post.ingest.formats import FORMATS
    from xsp_post.model.options import Options
    from xsp_post.model.schemas import TABLES
    from xsp_post.reports.document import chosen

    listed = {
        "tables of a capture": tables_of_the_example(),
        "exports": EXPORTS,
        "sources": [one.key for one in FORMATS],
        "exhibits": [section.id for section in chosen(())],
        "analyses": {name for section in chosen(()) for name in section.analyses},
        "choices": [one.name for one in fields(Options) if one.metadata.get("group")],
        "choices of compare": [one.name for one in fields(CompareOptions)],
        **{f"command {name}": options for name, options in _commands(get_command(app))},
        **{f"table {name}": [column.name for column in TABLES[name].columns] for name in sorted(TABLES)},
    }
    return {kind: " ".join(sorted(names)) for kind, names in listed.items()}


def _commands(command: Any, above: str = "") -> list[tuple[str, list[str]]]:
    """Every command with its options."""
    found: list[tuple[str, list[str]]] = []
    for name, one in sorted(getattr(command, "commands", {}).items()):
        found += _commands(one, f"{above}{name} ")
    if not found:
        options = [one for one in command.params if one.param_type_name == "option"]
        words = {word for one in options for word in one.opts}
        found.append((above.rstrip(), sorted(words)))
    return found


def tables_of_the_example() -> list[str]:
    """What an analysis of one capture holds."""
    import xsp_post

    return list(xsp_post.load(INVENTORY.parents[1] / "examples/resnet50_generated.sqlite"))


@pytest.fixture(scope="module")
def now() -> dict[str, str]:
    return inventory()


def test_nothing_is_lost(now):
    before = json.loads(INVENTORY.read_text(encoding="utf-8"))
    lost = {kind: set(names.split()) - set(now[kind].split()) for kind, names in before.items()}
    assert not {kind: sorted(names) for kind, names in lost.items() if names}


if __name__ == "__main__":
    INVENTORY.write_text(json.dumps(inventory(), indent=1) + "\n", encoding="utf-8")
