"""What `doctor` says of the installed torch: by its files, and whether annotations would do nothing."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest

from xsp_post.commands import doctor
from xsp_post.hardware import machine

FILES = {"_inductor/debug.py": "inductor_provenance_tracking", "cuda/_graph_annotations.py": "def mark_kernels",
         "profiler/_cuspy/trace.py": "Counters"}  # fmt: skip


@pytest.mark.parametrize(("files", "has_bindings", "driver", "status", "said"), [
    ([], True, "595.1", "WARN", "nothing of them"),
    (list(FILES)[:1], True, "595.1", "WARN", "torch writes sources of compiled kernels"),
    (list(FILES)[:2], False, "595.1", "WARN", "without cuda-bindings annotations do nothing"),
    (list(FILES), True, "580.65", "WARN", "with this driver annotations do nothing"),
    (list(FILES), True, "595.1", "OK", "names of graph nodes, edges of graphs and counters"),
])  # fmt: skip
def test_what_torch_can_write(tmp_path, monkeypatch, files, has_bindings, driver, status, said):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(FILES[name])
    found = {"torch": SimpleNamespace(origin=str(tmp_path / "__init__.py")), "cuda": object() if has_bindings else None}
    monkeypatch.setattr(importlib.util, "find_spec", found.get)
    monkeypatch.setattr(machine, "gpus", lambda: [SimpleNamespace(driver_version=driver)])
    check = doctor._provenance()
    assert check.status == getattr(doctor, status)
    assert said in check.found
