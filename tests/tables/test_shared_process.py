"""A process of `xsp-post run` that measures every level in turn: between two executions of one capture it runs those of
the others, which is no time of the program."""

from __future__ import annotations

import json

import pytest
from builders import ExportBuilder

from xsp_post.compare.comparison import compare
from xsp_post.model.capture import Capture
from xsp_post.pipeline import analyze
from xsp_post.reports.verdict import coverage_note, main_limit

STEPS, KERNELS, LENGTH, BETWEEN = 6, 20, 100_000, 18_000_000  # ns; an execution has 2 ms of kernels


def made_run(folder, process, pause=BETWEEN):
    """Executions of busy kernels, ``pause`` after each."""
    builder, t = ExportBuilder(), 1_000_000
    for step in range(STEPS):
        begin, device = t, t + 10_000
        for _ in range(KERNELS):
            builder.kernel("ampere_sgemm", launch=(t + 1_000, t + 5_000), run=(device, device + LENGTH))
            t, device = t + 6_000, device + LENGTH + 500
        builder.sync("cudaDeviceSynchronize", t, device + 1_000)
        builder.range(f"model:forward#{step}", begin, device + 2_000, domain="xsp")
        t = device + 2_000 + pause
    capture = folder / "captures/01_MLG_b4_r0"
    capture.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"manifest_version": 1}))
    builder.write(capture / "report.sqlite")
    settings, facts = {"model": "net", "device": "cuda"}, {"framework": "torch 2.11", "device_name": "GPU"}
    Capture("M/L/G", 4, 0, "nsys", files={"export": "report.sqlite"}, settings=settings, environment=facts,
            directory=capture, process=process).save()  # fmt: skip
    return folder


@pytest.mark.parametrize("process", ["01_M_b4_r0", ""])
def test_what_other_captures_take_limits_nothing(process, tmp_path):
    results = analyze([made_run(tmp_path / "run", process)])
    limit, windows = main_limit(results), results.frame("device_windows")
    is_shared = bool(process)
    assert ("between" in windows["scope"].astype(str).tolist()) is not is_shared
    assert limit.limits[0] == ("kernels" if is_shared else "host")
    assert (limit.whole_ns < 2 * STEPS * KERNELS * LENGTH) is is_shared
    assert "from the first device work to the last" not in coverage_note(results, limit)


@pytest.mark.parametrize(("process", "word"), [("01_M_b4_r0", "The same"), ("", "Slower")])
def test_a_longer_pause_is_a_slower_program_alone(process, word, tmp_path):
    sides = [analyze([made_run(tmp_path / str(k), process, pause)]) for k, pause in enumerate((BETWEEN, 2 * BETWEEN))]
    said = compare(*sides).frame("compare_summary")["statement"].astype(str)
    assert said.iloc[0].startswith(word), said.tolist()
