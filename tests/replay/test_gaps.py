"""Gaps of several devices: those of each, whatever runs on the others."""

from __future__ import annotations

from builders import ExportBuilder

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.replay.gaps import find_gaps


def test_every_device_has_its_own_gaps(tmp_path):
    export = ExportBuilder().process(100)
    export.kernel("a", launch=(0, 5), run=(100, 200), device=0).kernel("a", launch=(6, 9), run=(300, 400), device=0)
    export.kernel("b", launch=(10, 15), run=(150, 250), device=1).kernel("b", launch=(16, 19), run=(900, 950), device=1)
    gaps = find_gaps(build_tree(load(export.write(tmp_path / "a.sqlite")).trace))
    found = list(zip(gaps.device.tolist(), gaps.start.tolist(), gaps.end.tolist()))
    assert [one for one in found if one in ((0, 200, 300), (1, 250, 900))] == [(0, 200, 300), (1, 250, 900)]
    assert gaps.devices["busy_ns"].tolist() == [200, 150]
