"""docs/gallery.md holds what `why` prints today of its programs, and each verdict names what was planted."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_LOADER = SourceFileLoader("gallery", str(ROOT / "scripts/gallery"))
gallery = module_from_spec(spec_from_loader(_LOADER.name, _LOADER))


@pytest.fixture(scope="module", autouse=True)
def loaded():
    import sys

    sys.modules["gallery"] = gallery  # its dataclass looks its module up
    _LOADER.exec_module(gallery)


@pytest.mark.parametrize("number", range(5))
def test_the_page_holds_what_is_printed(number, tmp_path):
    story = gallery.STORIES[number]
    lines = gallery.answer(gallery.record(story, tmp_path))
    assert "\n".join(lines) in gallery.PAGE.read_text(encoding="utf-8"), "run scripts/gallery"
    assert any(word in " ".join(lines[:3]).lower() for word in story.planted)
