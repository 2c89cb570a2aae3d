"""Two recordings of an engine that held other requests: compared for steps of equal tokens and context, by role."""

from __future__ import annotations

import pytest
from generators import serving as engine

import xsp_post
from xsp_post.compare import compare


def compared(tmp_path, monkeypatch, *, factor, mixes=("all", "all"), noise=0.01):
    sides = []
    for number, (seed, dialect, mix) in enumerate(((3, "vllm", mixes[0]), (9, "sglang", mixes[1]))):
        made = engine.serving(seed, 250, dialect=dialect, noise=noise, mix=mix)
        sides.append(xsp_post.load(made.write(tmp_path / f"{number}.json")).results)
        monkeypatch.setattr(engine, "PER_KEY_NS", engine.PER_KEY_NS * factor)
    found = compare(*sides)
    return found, found.frame("compare_steps").set_index(["kind", "role"])


def test_another_cost_is_found_with_its_role_whatever_the_mix(tmp_path, monkeypatch):
    found, steps = compared(tmp_path, monkeypatch, factor=1.2)
    assert steps.loc[("decode", "attention"), "difference_ratio"] == pytest.approx(6.4 / 5.4 - 1, abs=0.01)
    assert steps.loc[[("decode", "step"), ("decode", "attention")], "change"].tolist() == ["more", "more"]
    unlike = steps[steps["change"] != "no difference shown"].index
    assert {role for _, role in unlike} <= {"attention", "step"}
    said = found.frame("compare_summary")["statement"]
    assert "decode, equal tokens and context: Slower" in said[0]
    assert said.str.startswith("Most of the difference between decode steps of equal size: attention (+1").any()
    assert not len(found.frame("compare_kernels")) and not len(found.frame("compare_layers"))


def test_the_mix_alone_is_no_difference(tmp_path, monkeypatch):
    found, steps = compared(tmp_path, monkeypatch, factor=1.0, mixes=("all", "decode"))
    assert set(steps.index.get_level_values("kind")) == {"decode"}
    assert (steps["change"] == "no difference shown").all()
    assert found.frame("compare_summary")["statement"][0].startswith("The same")


def test_steps_without_a_model_are_compared_as_before(tmp_path, monkeypatch):
    found, steps = compared(tmp_path, monkeypatch, factor=1.0, mixes=("unlike", "unlike"))
    assert not len(steps) and len(found.frame("compare_models"))
