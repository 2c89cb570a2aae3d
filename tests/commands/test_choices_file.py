"""xsp-post.toml beside the captures: kept choices hold for every command, and the command line comes first."""

from __future__ import annotations

import json

import pytest
from builders import ExportBuilder
from helpers import called as xsp

from xsp_post.names import user_patterns


def capture(folder):
    builder = ExportBuilder().gpu()
    for k in range(3):
        builder.range("outer", 1000 * k, 1000 * k + 900).range("inner", 1000 * k + 10, 1000 * k + 800)
        builder.kernel("gemm", launch=(1000 * k + 20, 1000 * k + 30), run=(1000 * k + 100, 1000 * k + 300))
    return builder.write(folder / "c.sqlite")


def test_choices_are_kept_and_the_command_line_comes_first(tmp_path):
    source = capture(tmp_path)
    (tmp_path / "xsp-post.toml").write_text("layer-range = '^inner$'\nmodel-range = '^outer$'\n")
    kept = xsp("tree", source, "--json")
    assert kept.returncode == 0 and "layer-range = '^inner$'" in kept.stderr
    assert '"LAYER"' in kept.stdout and '"MODEL"' in kept.stdout
    given = xsp("tree", source, "--layer-range", "absent")
    assert given.returncode == 2 and "absent" in given.stderr


def test_a_key_that_nobody_knows_is_named(tmp_path):
    source = capture(tmp_path)
    (tmp_path / "xsp-post.toml").write_text("layer_rnage = 'x'\n")
    done = xsp("tree", source)
    assert done.returncode == 2 and "layer_rnage" in done.stderr and "[choices-file]" in done.stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [("a = " + "[" * 100_000, "nested too deeply"), ("# " + "x" * 1_000_000, "larger than 1 MB"),
     ("layer-depth = " + "9" * 5000, "is not TOML"), ("layer-depth = 0x" + "f" * 5000, "more than 31 bits"),
     ("layer-range = '" + "a" * 20_000 + "'", "longer than 10,000"), ("layer-range = '(?=i)(i*)*z$'", "an end"),
     (b"layer-range = '\xff'", "not UTF-8"), ("peaks = 'peaks.toml'", "is not a positive number"),
     ("peaks = 'deep.json'", "nested too deeply")],
)  # fmt: skip
def test_a_file_of_a_stranger_ends_in_a_sentence(tmp_path, content, why, monkeypatch):
    monkeypatch.setattr(user_patterns, "_LIMIT_S", 0.5)
    source = ExportBuilder().range("i" * 60, 0, 90).kernel("k", launch=(1, 2), run=(3, 4)).write(tmp_path / "c.sqlite")
    (tmp_path / "xsp-post.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "peaks.toml").write_text("fp32_flop_per_s = 0x" + "f" * 5000)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    done = xsp("table", "A8", source)
    assert done.returncode == 2 and why in done.stderr, done.stderr
    assert len(done.stderr) < 3000


def test_parts_of_the_tree(tmp_path):
    source = capture(tmp_path)
    done = xsp("tree", source, "--layer", "inner", "--depth", "1")
    lines = done.stdout.splitlines()
    assert lines[1].startswith("range") and lines[2].startswith("inner") and len(lines) == 3
    assert xsp("tree", source, "--layer", "absent").returncode == 2
    assert xsp("tree", source, "--rank", "7").returncode == 2


def test_tables_of_an_iteration_or_a_time(tmp_path):
    source = capture(tmp_path)
    named = ("--model-range", "^outer$")
    rows = [json.loads(xsp("table", "kernels", source, *named, *part, "--json").stdout)["data"] for part in (
        ("--iteration", "1"), ("--from", "1us", "--to", "2us"), ("--from", "2us"))]  # fmt: skip
    assert [len(one) for one in rows] == [1, 1, 1] and rows[0] == rows[1]
    assert rows[0][0]["iteration_index"] == 1 and rows[2][0]["iteration_index"] == 2
    assert xsp("table", "kernels", source, "--from", "soon").returncode == 2
    assert xsp("table", "kernels", source, "--from", "2us", "--to", "1us").returncode == 2
    gone = xsp("table", "kernels", source, *named, "--iteration", "7")
    assert gone.returncode == 2 and "the iterations are 0 … 2" in gone.stderr
