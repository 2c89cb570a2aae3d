"""Each constant of the finder decides something: a program that is read otherwise with another value, on both sides."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from builders import ExportBuilder
from generators.programs import draw
from structure_score import score

from xsp_post.hierarchy import build_tree
from xsp_post.ingest.sources import load
from xsp_post.model.levels import Level
from xsp_post.tree.structure.constants import DEFAULTS
from xsp_post.tree.structure.fold import find_loops

BELOW = {
    "fewest_parts": (2, 28), "alike_ratio": (0.45, 3157), "near_ratio": (0.0, 21),
    "most_ratio": (0.25, 3105), "holds_ratio": (0.675, 3115), "large_ratio": (0.01, 7),
    "convolution_ratio": (0.0, 3191), "slow_start": (0.2, 6), "fewest_turns": (1, 3101),
}  # fmt: skip
ABOVE = {
    "fewest_launches": (400, 6), "fewest_parts": (16, 3014), "spare_bits": (400.0, 0), "alike_ratio": (0.9975, 3157),
    "near_ratio": (0.6, 9), "most_ratio": (0.665, 3153), "holds_ratio": (1.0, 3148), "large_ratio": (0.95, 6),
    "slow_start": (50.0, 13),
}  # fmt: skip
SIDES = [(name, *side) for sides in (BELOW, ABOVE) for name, side in sides.items()]


@cache
def reading(seed, constants):
    program = draw(seed)
    tree = build_tree(program.trace, constants=constants)
    found = score(tree, program.truth)
    return [(one.verdict, one.found) for one in (found.executions, found.layers, found.warmup)]


@pytest.mark.parametrize(("name", "value", "seed"), SIDES)
def test_another_value_reads_a_program_otherwise(name, value, seed):
    assert reading(seed, replace(DEFAULTS, **{name: value})) != reading(seed, DEFAULTS)


def test_loops_of_which_none_can_be_an_execution_are_no_error():
    assert not len(build_tree(draw(3157).trace, constants=replace(DEFAULTS, most_ratio=0.665)).iterations)


def test_there_are_fifteen_at_most():
    assert len(fields(DEFAULTS)) <= 15
    assert set(BELOW) | set(ABOVE) <= {one.name for one in fields(DEFAULTS)}
    assert DEFAULTS.uneven_ratio == 0.1


# ---------------------------------------------------------------- programs stated by hand

CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage3"
KERNELS = {
    "aten::conv2d": CONVOLUTION,
    "aten::batch_norm": "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float>(float)",
}


def ranges(rows):
    """An export of ranges one after another: text, kernels in it, pause of the host before it (µs), ranges in it."""
    builder, at = ExportBuilder(), 1_000_000

    def put(rows):
        nonlocal at
        for text, kernels, pause, inner in rows:
            at += pause * 1_000
            builder.range(text, at, at)
            row = builder.rows["NVTX_EVENTS"][-1]
            put(inner)
            for number in range(kernels):
                name = KERNELS.get(text, f"k{number}")
                builder.kernel(name, launch=(at + 100, at + 2_100), run=(at + 3_000, at + 12_000))
                at += 15_000
            row["end"] = at
            at += 100

    put(rows)
    return builder


def stages(pause):
    return [
        (text, 8, pause if text == "backbone" else 10, []) for _ in range(6) for text in ("reader", "backbone", "head")
    ]


TOKENS = [("run", 1, 50, [(f"token_{4 * r + k}_processing", 8, 2, []) for k in range(4)]) for r in range(3)]
CALLS = [("step", 2, 50, [("model", 14, 2, [])] * 2) for _ in range(8)]


def residual(k):
    parts = [(f"nn.Module: Conv2d_{k}", 2), (f"nn.Module: BatchNorm2d_{k}", 1), (f"nn.Module: ReLU_{k}", 1)]
    return f"nn.Module: BasicBlock_{k}", 0, 1, [(text, kernels, 1, []) for text, kernels in parts]


STEPS = [(f"step {k}", 0, 50, [("nn.Module: Net_0", 0, 1, [residual(j) for j in range(6)])]) for k in range(4)]


def test_a_stage_of_a_turn_gives_way_to_the_range_around_it(tmp_path):
    """Twelve scans of two kernels and a range of fourteen: the range holds less than the scan, which is recorded."""
    rows = [("scan", 2, 50, [(f"token_{k}_processing", 14, 2, [])]) for k in range(12)]
    tree = build_tree(load(ranges(rows).write(tmp_path / "a.sqlite")).trace)
    assert "`scan` ×12" in tree.execution_evidence.split(";")[0]


@pytest.mark.parametrize(
    ("rows", "change", "usual", "other"),
    [
        (TOKENS, {"prior_of_model": 0.3}, "`token_*_processing` ×12", "`run` ×3"),
        (CALLS, {"prior_of_model": 1.1}, "`step` ×8", "`model` ×16"),
        (TOKENS, {"prior_of_place": 1.0}, "`token_*_processing` ×12", "`run` ×3"),
        (stages(40), {"clear_pause": 5.0}, "`backbone … reader` ×6", "`reader … head` ×6"),
        (stages(25), {"clear_pause": 2.0}, "`reader … head` ×6", "`backbone … reader` ×6"),
        (stages(40), {"fewest_turns": 8}, "`backbone … reader` ×6", "(period of the launch sequence)"),
    ],
)  # fmt: skip
def test_another_value_takes_other_ranges(tmp_path, rows, change, usual, other):
    trace = load(ranges(rows).write(tmp_path / "a.sqlite")).trace
    said = [build_tree(trace, constants=one).execution_evidence for one in (DEFAULTS, replace(DEFAULTS, **change))]
    assert usual in said[0].split(";")[0] and other in said[1].split(";")[0]


def test_fewer_launches_repeat_by_chance(tmp_path):
    builder = ExportBuilder()
    for k in range(18):
        at = 1_000_000 + 15_000 * k + 900_000 * (k // 6)
        builder.kernel(f"k{k % 6}", launch=(at, at + 2_000), run=(at + 3_000, at + 12_000))
    trace = load(builder.write(tmp_path / "a.sqlite")).trace
    counts = [len(build_tree(trace, constants=replace(DEFAULTS, fewest_launches=n)).iterations) for n in (20, 3)]
    assert counts == [0, 3]


def test_where_convolutions_hold_more_of_the_time_they_are_the_layers(tmp_path):
    trace = load(ranges(STEPS).write(tmp_path / "a.sqlite")).trace
    usual, other = (
        build_tree(trace, constants=one) for one in (DEFAULTS, replace(DEFAULTS, convolution_ratio=0.95))
    )  # fmt: skip
    names = [
        tree.names.folded_names[tree.nodes["folded_id"][tree.nodes["level"] == int(Level.LAYER)]].tolist()
        for tree in (usual, other)
    ]
    assert "nn.Module: Conv2d_0" in names[0] and set(names[1]) == {f"nn.Module: BasicBlock_{k}" for k in range(6)}


def test_a_repetition_that_tells_few_bits_is_chance():
    thrown = np.array([5, 3, 4, 4, 1, 2, 4, 1, 1, 1, 2, 4, 1, 0, 5, 1])  # a die; 4 1 2 … 1 2 4 1 by chance
    assert not len(find_loops(thrown, DEFAULTS)) and len(find_loops(thrown, replace(DEFAULTS, spare_bits=2.0)))


def test_a_turn_that_lost_launches_is_of_its_loop():
    turn = np.arange(100)
    symbols = np.concatenate([turn, turn, turn, np.delete(turn, [20, 31, 42]), turn, turn])
    assert find_loops(symbols, DEFAULTS).count.tolist() == [6]
    assert find_loops(symbols, replace(DEFAULTS, drift_ratio=0.0)).count.tolist() == [3, 2]
    more = np.concatenate([turn, turn, turn, np.delete(turn, [20, 24, 28, 31, 36, 42, 47, 53]), turn, turn])
    assert find_loops(more, DEFAULTS).count.tolist() == [3, 2]
    assert find_loops(more, replace(DEFAULTS, drift_ratio=0.1)).count.tolist() == [6]
