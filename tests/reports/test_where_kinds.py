"""Executions of two kinds, and a warm-up: each place has the time that the measured executions spent there."""

from __future__ import annotations

import pytest
from builders import ExportBuilder

from xsp_post.pipeline import analyze
from xsp_post.reports.why import why

US = 1_000


def recording(path, order):
    """Steps of an encoder and a decoder; ``order``: µs of both layers in each step."""
    builder, at = ExportBuilder().gpu(name="NVIDIA A100"), 1_000 * US
    for number, (encoder, decoder) in enumerate(order):
        begin = at
        for name, length in (("encoder", encoder), ("decoder", decoder)):
            builder.range(name, at, at + length * US + 20 * US)
            for k in range(4):
                part = length * US // 4
                builder.kernel(f"{name}_kernel_{k}", launch=(at, at + 2 * US), run=(at + 4 * US, at + 4 * US + part))
                at += part + 4 * US
            at += 10 * US
        builder.range(f"step {number}", begin - US, at)
        at += 30 * US
    return builder.write(path)


@pytest.mark.parametrize("steps", [
    [(4000, 8000), *[(400, 4000)] * 6],  # a first one of other proportions
    [(4000, 400), (400, 4000), (4000, 400), (400, 4000), (4000, 400), (400, 4000)],  # two kinds
])  # fmt: skip
def test_places_have_the_time_of_the_measured_executions(steps, tmp_path):
    results = analyze([recording(tmp_path / "a.sqlite", steps)])
    warm = results.frame("iterations")["is_warmup"].astype(bool).tolist()
    measured = [one for one, is_warm in zip(steps, warm, strict=True) if not is_warm]
    wanted = {"encoder": sum(one[0] for one in measured) * US, "decoder": sum(one[1] for one in measured) * US}
    said = {one.name.split()[-1]: one.time_ns for one in why(results).where}
    assert said == {name: pytest.approx(time, rel=0.01) for name, time in wanted.items() if name in said}
    assert set(said) == {"encoder", "decoder"}
    operations = results.frame("operations")
    assert operations["measured_ns"].sum() == sum(wanted.values())
