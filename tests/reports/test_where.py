"""Where most of what limits is: in ranges, between the executions, and in all other places."""

import json
from dataclasses import replace
from functools import partial
from random import Random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from generators import boarders, callers, machine, pilgrims, settlers
from told_score import program_of

from xsp_post.model.options import Options
from xsp_post.model.schemas.units import format_ns
from xsp_post.pipeline import analyze
from xsp_post.replay import recording
from xsp_post.replay.experiment import Gain
from xsp_post.reports.terminal import balance_short
from xsp_post.reports.terminal_tree import _line, _times, label
from xsp_post.reports.text import alike_kernels, fitted
from xsp_post.reports.tree_rows import tree_rows
from xsp_post.reports.verdict import main_limit, sentence_of, window_of
from xsp_post.reports.where import Place, _Tree, next_capture, place_text, places, what_text, where_text
from xsp_post.tables.analyses.advice import advise

US = 1_000
STEPS = Options(model_range="^step")


def loop(path, *, between_us=0, kernels=("gemm",), inside_us=0, run_us=10, queued_us=0, steps=20, pause_us=0):
    """Steps: in each a range per name, with host code and the launch of a kernel; then a wait for the device.
    ``run_us``: of each kernel, or by its name. ``between_us``: host code in no range between steps. ``queued_us``: what
    was launched before runs first, in kernels of which no launch is recorded. ``pause_us``: once, before step 5."""
    builder = ExportBuilder().process(100).thread(100).gpu()
    at = 0
    for number in range(4 if queued_us else 0):
        run = [(number + part) * queued_us * US // 4 for part in (0, 1)]
        builder.kernel("queued", launch=None, run=(run[0] + 1, run[1]))
    for step in range(steps):
        at += pause_us * (step == 5)
        begin = at
        free = max(at, queued_us)
        for number, name in enumerate(kernels):
            builder.range(f"part {chr(97 + number)}", at * US, (at + inside_us + 3) * US)
            at += inside_us
            free, length = max(free, at + 3), run_us[name] if isinstance(run_us, dict) else run_us
            builder.kernel(name, launch=(at * US, (at + 2) * US), run=(free * US, (free + length) * US),
                           grid=(1080, 1, 1))  # fmt: skip
            at, free = at + 3, free + length
        builder.sync("cudaStreamSynchronize_v3020", at * US, (free + 1) * US)
        at = free + 2
        builder.range("step", begin * US, at * US)
        at += between_us
    return builder.write(path / "report.sqlite")


def said(path, options=STEPS):
    results = analyze([path], options)
    limit = main_limit(results)
    return results, limit, places(results, limit)


def test_host_code_between_the_executions_is_a_place(tmp_path):
    """It is part of the time of the verdict: a place inside the executions that holds less must not stand first."""
    results, limit, found = said(loop(tmp_path, between_us=200, inside_us=40))
    assert limit.kind == "host" and found[0].is_unnamed
    assert found[0].time_ns == pytest.approx(19 * 200 * US, rel=0.05)
    assert "most of that time between executions of step: " in sentence_of(results, limit)
    assert place_text(found[0]) == "host code between executions of step"  # no pause is half of it


def test_a_pause_that_came_once_is_told_from_one_that_comes_again(tmp_path):
    results, limit, found = said(loop(tmp_path, between_us=10, inside_us=40, pause_us=5_000))
    assert place_text(found[0]) == "host code between executions of step, 5.01 ms in one wait"
    assert "between executions (5.01 ms in one wait)" in advise(results, limit)[0].what


def test_a_kernel_gives_way_before_its_place_does():
    """Forward and backward of the same blocks are told apart by the end of their names."""
    texts = [
        fitted(partial(place_text, Place("kernels", name, "", "nvjet_hsh_192x192_64x4_2x1_v_bz_coopA_NTT", 1, 2)), 90)
        for name in ("4 × transformer block in training step", "4 × transformer block (2), backward in training step")
    ]
    assert "block in training step: " in texts[0] and "block (2), backward in training step: " in texts[1]


@pytest.mark.parametrize(("share", "is_named"), [(0.6, False), (0.3, True)])
def test_host_code_without_a_name_is_to_be_named_where_kernels_hold_little_more(share, is_named, tmp_path):
    results, limit, found = said(loop(tmp_path, between_us=200, inside_us=40))
    kernels = Place("kernels", "part a", "", "gemm", 0, round(found[0].time_ns / share))
    assert ("Ranges" in next_capture(results, limit, [kernels, *found], [])) != is_named


def test_places_of_one_name_in_two_kinds_of_executions_are_told_apart(tmp_path):
    """Steps with a chunk of a prompt among steps that decode: both have the same inferred blocks."""
    _, limit, found = said(machine.write(callers.draw(97_826), tmp_path / "report.sqlite"), Options())
    assert (
        limit.kind == "kernel" and [one.name.partition(" in ")[0] for one in found[:2]] == ["8 × transformer block"] * 2
    )
    assert [one.name.rpartition(" (")[2] for one in found[:2]] == ["mixed)", "decode)"]


def test_an_inferred_place_says_which_recorded_range_it_is_in(tmp_path):
    """Prefill and decode repeat their blocks in passes that nobody recorded: "transformer block (2)" is in neither."""
    results = analyze([machine.write(settlers.draw(1007), tmp_path / "requests")])
    names = [one.name for one in places(results, main_limit(results)) if one.is_inferred]
    assert {name.rpartition(" in ")[2] for name in names} == {"prefill", "decode"}


def test_a_store_without_the_place_that_work_counts_for_has_that_of_its_launch(tmp_path):
    results, limit, found = said(loop(tmp_path, kernels=["kernel_a", "kernel_b"], run_us=100))
    older = results.frame("operations").assign(
        counted_path_id=pd.array([pd.NA] * len(results.frame("operations")), "Int64")
    )
    frames = {**results.frames, "operations": older}
    assert [one.name for one in places(replace(results, frames=frames), limit)] == [one.name for one in found]
    assert found[0].name == "part a"


def test_what_is_in_all_other_places_is_said(tmp_path):
    _, limit, found = said(loop(tmp_path, kernels=[f"kernel_{chr(97 + k)}" for k in range(12)], run_us=100))
    *named, rest = found
    assert limit.kind == "kernel" and len(named) == 3 and not rest.resource
    assert rest.time_ns == pytest.approx(3 * sum(one.time_ns for one in named), rel=0.02)
    assert place_text(rest) == "kernels in all other places"
    assert sum(one.ratio for one in found) <= 1


def test_of_a_capture_that_is_replayed_in_part_all_times_are_of_all_executions(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MOST_OPERATIONS", 30)
    monkeypatch.setattr(recording, "PART_OPERATIONS", 10)
    results, limit, found = said(loop(tmp_path, kernels=["kernel_a", "kernel_b"], run_us=100))
    assert results.frame("experiment")["is_part"].all() and results.frame("experiment")["execution_count"].max() < 20
    assert sum(one.time_ns for one in found) == pytest.approx(limit.window["kernel_busy_ns"], rel=0.001)
    assert 0.9 < sum(one.ratio for one in found) <= 1
    measured = int((~results.frame("iterations")["is_warmup"]).sum())
    assert window_of(results, limit) == f"{format_ns(limit.window_ns)} ({measured} executions)"


def test_what_was_launched_before_the_first_recorded_launch_is_in_no_place(tmp_path):
    kernels = [f"kernel_{number}" for number in range(24)]
    _, limit, found = said(loop(tmp_path, kernels=kernels, run_us=20, queued_us=200, steps=1))
    assert not found[-1].resource and limit.window["kernel_busy_ns"] == pytest.approx(480 * US, rel=0.001)
    assert sum(one.time_ns for one in found) == pytest.approx(limit.window["kernel_busy_ns"], rel=0.001)


@pytest.mark.parametrize("last_us, is_said", [(2, False), (12, True)])
def test_the_places_are_all_of_the_time_of_what_limits(last_us, is_said, tmp_path):
    """A rest of less than a hundredth of the time is not said; one below the last place is."""
    run_us = {f"kernel_{name}": 100 for name in "abc"} | {"kernel_d": last_us}
    _, limit, found = said(loop(tmp_path, kernels=run_us, run_us=run_us))
    assert limit.kind == "kernel" and (not found[-1].resource) == is_said and len(found) == 3 + is_said
    held = sum(one.time_ns for one in found)
    assert limit.window["kernel_busy_ns"] - held == pytest.approx(0 if is_said else 20 * 2 * US, abs=US)


@pytest.mark.parametrize("share", [0.9, 0.3])
def test_operators_say_what_a_range_does_not_where(share, tmp_path):
    """A range of the program stays a place, however much of it one operator takes."""
    events, at = [], 0
    for step in range(8):
        begin = at
        for _ in range(10):
            for name, length in (("aten::sqrt", 1_000 * share), ("aten::div", 1_000 * (1 - share))):
                events.append(("cpu_op", name, at, length))
                at += length
        events += [
            ("user_annotation", "Optimizer.step#Adam.step", begin, at - begin),
            ("cpu_op", "aten::mm", at, 4_000),
        ]
        events += [("user_annotation", f"xsp/model:forward#{step}", begin, at + 4_000 - begin)]
        at += 4_010
    rows = [{"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": length, "args": {}}
            for kind, name, begin, length in events]  # fmt: skip
    path = tmp_path / "cpu.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    _, _, (first, second) = said(path, Options())
    assert (first.name, second.name) == ("Optimizer.step#Adam.step", "aten::mm")
    assert first.what == ("aten::sqrt" if share > 0.5 else "aten::div")
    assert place_text(second) == "aten::mm" and place_text(first) == f"Optimizer.step#Adam.step: {what_text(first)}"


def test_a_range_inside_an_operator_is_a_place(tmp_path):
    """What the compiler made lies in operators of its own; blocks are found, or were marked, inside these."""
    rows, inner = [], (("cpu_op", "Outer: 0/0"), ("cpu_op", "Compiled"), ("user_annotation", "inner part"))
    for step in range(30):
        around = [("user_annotation", f"xsp/model:forward#{step}"), *inner, ("cpu_op", "aten::mm")]
        for number, (kind, name) in enumerate(around):
            rows.append({"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": step * 5_000,
                         "dur": 4_900 - number * 100, "args": {}})  # fmt: skip
    path = tmp_path / "cpu.pt.trace.json"
    for inside in (rows, [one for one in rows if one["name"] != "inner part"]):
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": inside}))
        _, _, (first,) = said(path, Options())
        assert first.name == ("inner part" if inside is rows else "Outer: 0/0")


def test_what_is_in_no_layer_of_its_model_is_not_said_to_be_in_a_layer(tmp_path):
    builder = ExportBuilder().process(100).thread(100).gpu()
    for step in range(4):
        at = step * 1_000 * US
        for name, length in (("layer", 300), ("", 100)):
            builder.kernel("gemm", launch=(at + US, at + 3 * US), run=(at + 4 * US, at + (4 + length) * US))
            if name:
                builder.range(name, at, at + 4 * US)
            at += (length + 10) * US
        builder.range("step", step * 1_000 * US, at)
    results = analyze([builder.write(tmp_path / "report.sqlite")], replace(STEPS, layer_range="^layer"))
    assert balance_short(results, 0).endswith("adds up: 100.0 % in ranges, 75.0 % in layers.")


def test_of_limits_that_overlap_both_have_a_place(tmp_path):
    """Halving launches saves most, but what overlaps are kernels and host code: the work is a place, too."""
    builder = ExportBuilder().process(100).thread(100).gpu()
    for step in range(4):
        at = free = step * 5_000
        for _ in range(40):  # 77 µs of host code, then a launch; the kernel of 80 µs runs meanwhile
            builder.range("load", at * US, (at + 77) * US)
            free = max(at + 80, free)
            builder.kernel("gemm", launch=((at + 77) * US, (at + 79) * US), run=(free * US, (free + 80) * US))
            at, free = at + 79, free + 80
        builder.sync("cudaStreamSynchronize_v3020", at * US, free * US)
        builder.range("step", step * 5_000 * US, free * US)
    results, limit, found = said(builder.write(tmp_path / "report.sqlite"))
    assert limit.kind == "balanced"
    assert {one.resource for one in found} >= set(limit.limits[-2:]) & {"kernels"}
    assert "overlap: halving one" in sentence_of(results, limit)


def test_kernels_that_are_printed_alike_are_one():
    names = pd.Series(["void f<A<1>>(int)", "void g(int)", "void f<A<2>>(int)", "void g(int)"])
    assert alike_kernels(names).tolist() == [names[0], names[1], names[0], names[1]]


def test_layers_of_one_name_in_unlike_modules_are_one_place_counted_in_an_execution(tmp_path):
    """Three projections in each of two modules are six, not three, and no place of either module."""
    builder = ExportBuilder().process(100).thread(100).gpu()
    for step in range(6):
        at = begin = step * 2_000
        for module in ("encoder", "decoder"):
            inner = at
            for number in range(3):
                builder.range(f"proj_{number}", at * US, (at + 4) * US)
                builder.kernel("gemm", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 203) * US),
                               grid=(1080, 1, 1))  # fmt: skip
                at += 210
            builder.range(module, inner * US, at * US)
        builder.sync("cudaStreamSynchronize_v3020", at * US, (at + 5) * US)
        builder.range("step", begin * US, (at + 6) * US)
    _, _, (first, *_) = said(builder.write(tmp_path / "report.sqlite"), replace(STEPS, layer_range="^proj"))
    assert first.name == "6 × proj_*" and first.is_most


@pytest.mark.parametrize("texts", [("warm-up", "test"), ("test", "test")])
def test_blocks_of_one_name_in_executions_of_two_kinds_are_as_many_as_in_each(texts, tmp_path):
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for number, text in enumerate(4 * texts[:1] + 4 * texts[1:]):
        begin = at
        for _ in range(12):
            builder.range("block", at * US, (at + 4) * US)
            builder.kernel("gemm", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 203) * US),
                           grid=(1080, 1, 1))  # fmt: skip
            at += 210
        builder.range(text, begin * US, at * US)
        builder.range(f"step {number}", (begin - 1) * US, (at + 1) * US)
        at += 20
    options = Options(model_range="^step", layer_range="^block")
    _, _, (first, *_) = said(builder.write(tmp_path / "report.sqlite"), options)
    assert first.name == "12 × block"


@pytest.mark.parametrize("name", ["{}:BertLayer", "nn.Module: BertLayer_{}"])
@pytest.mark.parametrize(("count", "times"), [(3, "3 × "), (1, "")])
def test_modules_are_counted_not_their_calls_for_the_parts_of_a_batch(name, count, times, tmp_path):
    """Gradients of four parts of a batch add up: each step calls each module four times."""
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for _ in range(5):
        begin = at
        for _ in range(4):
            for number in range(count):
                builder.range(name.format(number), at * US, (at + 4) * US)
                builder.kernel("gemm", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 203) * US),
                               grid=(1080, 1, 1))  # fmt: skip
                at += 210
        builder.kernel("adam", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 203) * US), grid=(1080, 1, 1))
        builder.range("step", begin * US, (at + 206) * US)
        at += 210
    _, _, (first, *_) = said(builder.write(tmp_path / "report.sqlite"), replace(STEPS, layer_range="BertLayer"))
    assert first.name.startswith(f"{times}BertLayer" if times and "nn" in name else times) and "4" not in first.name


def test_modules_around_layers_are_counted(tmp_path):
    """Three containers, each of five layers that share its time: as many as the layers of others are counted."""
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for _ in range(5):
        begin = at
        for module in range(3):
            outer = at
            for layer in ("0:Conv2d", "1:GroupNorm", "2:SiLU", "3:Pool", "4:Dropout"):
                builder.range(f"d.{module}.c.{layer}", at * US, (at + 4) * US)
                builder.kernel(layer[2:], launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 203) * US),
                               grid=(1080, 1, 1))  # fmt: skip
                at += 210
            builder.range(f"d.{module}.c:Sequential", outer * US, at * US)
        builder.range("head", at * US, (at + 4) * US)
        builder.kernel("gemm", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 703) * US), grid=(1080, 1, 1))
        builder.range("step", begin * US, (at + 706) * US)
        at += 710
    options = replace(STEPS, layer_range="Conv2d|GroupNorm|SiLU|Pool|Dropout")
    _, _, (first, *_) = said(builder.write(tmp_path / "report.sqlite"), options)
    assert first.name == "3 × d.*.c:Sequential"


def test_what_no_advice_spares_is_named_with_its_place(tmp_path):
    """Host code in a range of the user: nothing that is known to help, so the screen says where to look."""
    results, limit, found = said(loop(tmp_path, inside_us=300))
    assert limit.kind == "host" and found[0].name == "part a"
    assert next_capture(results, limit, found, []) == "The largest gain is in host code in part a."
    little = [replace(found[0], ratio=limit.gain("host") * share) for share in (0.09, 0.11)]
    assert [bool(next_capture(results, limit, [one], [])) for one in little] == [False, True]
    # streams that wait in turn hide the place: what little is advised is not all that can be done
    for bound_ratio, start in ((0.01, "Record what the host did"), (limit.gain("host"), "")):
        advice = SimpleNamespace(code="sleeps", is_limit=True, bound_ratio=bound_ratio)
        assert next_capture(results, limit, [], [advice])[: len(start) or None] == start


def test_waits_that_are_less_than_would_be_saved_are_no_places(tmp_path):
    """Where streams wait for the host in turn the device hardly rests: its waits are not where the host is."""
    results, limit, (first, *_) = said(loop(tmp_path, inside_us=300))
    share = first.all_ns / limit.whole_ns
    found = [
        places(results, replace(limit, gains=(Gain(("host",), share * part, 0.0),), limits=("host",)))
        for part in (0.99, 1.01)
    ]
    assert limit.kind == "host" and [bool(one) for one in found] == [True, False]


@pytest.mark.parametrize("has_modules", [True, False])
def test_the_gradients_of_a_module_count_for_it(has_modules, tmp_path):
    """Where only operators are layers, a range of the program (``backward``) says more than they do."""
    events, where = [], [{"pid": 7, "tid": 8}, {"pid": 7, "tid": 9}]

    def event(cat, name, at, dur, thread=0, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "ts": at, "dur": dur, **where[thread], "args": args})

    def kernel(name, at, run, dur, thread, number):
        event("cuda_runtime", "cudaLaunchKernel", at, 1, thread, correlation=number)
        events.append({"ph": "X", "cat": "kernel", "name": name, "ts": run, "dur": dur, "pid": 0, "tid": 7,
                       "args": {"correlation": number, "device": 0, "stream": 7}})  # fmt: skip

    for step in range(8):
        at = 1000 * step
        event("user_annotation", f"ProfilerStep#{step}", at, 990)
        for k in range(2):
            number, begin, back = 10 * step + k + 1, at + 10 + 30 * k, at + 160 - 60 * k
            if has_modules:
                event("python_function", f"nn.Module: Block_{k}", begin, 20)
            event("cpu_op", "aten::addmm", begin + 1, 10, **{"Sequence number": number, "Fwd thread id": 0})
            kernel("forward", begin + 2, at + 20 + 60 * k, 60, 0, 2 * number)
            if not has_modules and not k:
                event("user_annotation", "backward", at + 90, 140, 1)
            event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", back, 20, 1,
                  **{"Sequence number": number, "Fwd thread id": 1})  # fmt: skip
            kernel("backward", back + 2, at + 640 - 400 * k, 300, 1, 2 * number + 1)
    (tmp_path / "a.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = [place_text(one) for one in said(tmp_path / "a.json", Options())[2]]
    if has_modules:
        assert found[0].startswith("2 × Block_* and its backward") and not any("AddmmBackward" in one for one in found)
    else:
        assert found[0].startswith("backward") and "its backward" not in "".join(found)


@pytest.mark.parametrize(
    ("parts", "beside", "layer", "is_opened"),
    [((60, 30, 10), 0, "part", True), ((60, 5, 5, 5, 5, 5, 5, 5, 5), 99, "part", False),
     ((60, 5, 5, 5, 5, 5, 5, 5, 5), 0, "block", True), ((11,) * 9, 0, "block", False),
     ((60, 30, 10), 99, "block", False)],
)  # fmt: skip
def test_a_range_is_opened_where_what_is_inside_shows_most_of_it(parts, beside, layer, is_opened, tmp_path):
    """Three places are shown: ranges inside that would leave more than a fifth to all other places stay closed. Layers
    that do nearly all are no place: they are opened where the three hold half of it."""
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for _ in range(12):
        begin = at
        for k in range(4):
            inside = at + US
            for part, each in enumerate(parts):
                builder.kernel(
                    f"kernel_{part}", launch=(inside + US // 2, inside + US), run=(inside + US, inside + US + each * US)
                )
                builder.range(f"part {'abcdefghi'[part]}", inside, inside + (each + 2) * US)
                inside += (each + 3) * US
            builder.range(f"block {k}", at, inside + US)
            at = inside + 2 * US
            if beside:
                builder.kernel("tail", launch=(at, at + US), run=(at + US, at + (1 + beside // 3) * US))
                builder.range("tail", at, at := at + (2 + beside // 3) * US)
        builder.range("step", begin, at)
        at += US
    options = Options(model_range="^step", layer_range=f"^{layer}")
    found = [place_text(one) for one in said(builder.write(tmp_path / "report.sqlite"), options)[2]]
    assert ("part a" if is_opened else "block *") in found[0], found


@pytest.mark.parametrize(("inside", "first"), [(60, "up"), (95, "conv")])
def test_no_smaller_range_becomes_the_largest_place_because_one_was_opened(inside, first, tmp_path):
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0

    def kernel(each):
        builder.kernel("gemm", launch=(at, at + US), run=(at + US, at + each * US), grid=(1080, 1, 1))

    for _ in range(12):
        begin = at
        kernel(inside)
        builder.range("conv", at, at := at + (inside + 1) * US)
        kernel(120 - inside)
        builder.range("up", begin, at := at + (121 - inside) * US)
        kernel(80)
        builder.range("down", at, at := at + 81 * US)
        builder.range("step", begin, at := at + US)
    options = Options(model_range="^step", layer_range="^conv|^down")
    found = said(builder.write(tmp_path / "report.sqlite"), options)[2]
    assert place_text(found[0]).startswith(first), found


@pytest.mark.parametrize("is_layered", [True, False])
def test_the_range_around_all_layers_is_no_place_of_work(is_layered, tmp_path):
    """A step is its model and its optimiser: "in the model" says nothing, its layers and the optimiser do."""
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for _ in range(12):
        begin = at
        for layer, each in (("embedding", 550), ("head", 350), ("loss", 100)):
            builder.kernel("gemm", launch=(at, at + US), run=(at + US, at + each * US), grid=(1080, 1, 1))
            builder.range(layer, at, at := at + (each + 1) * US)
        builder.range("model", begin, at)
        builder.kernel("adam", launch=(at, at + US), run=(at + US, at + 800 * US), grid=(1080, 1, 1))
        builder.range("optimiser", at, at := at + 801 * US)
        builder.range("step", begin, at := at + US)
    options = Options(model_range="^step", layer_range="^embedding|^head|^loss" if is_layered else "^model")
    found = said(builder.write(tmp_path / "report.sqlite"), options)[2]
    names = [one.name.partition(" in ")[0].rpartition("× ")[2] for one in found[:2]]
    assert names == (["optimiser", "embedding"] if is_layered else ["model", "optimiser"])


@pytest.mark.parametrize(("name", "said"), [
    ("forward", "in forward"), ("between the blocks", "between the blocks"), ("after the blocks", "after the blocks"),
])  # fmt: skip
def test_a_place_around_others_is_not_in_itself(name, said):
    place = Place("host", name, "", "host_code\n", 0, 60)
    assert where_text([replace(place, ratio=0.5, is_most=True)], 0.4) == f"most of that time {said}: 60 ns"


@pytest.mark.parametrize(("second_us", "said_of"), [
    (95, "the largest parts in encode: 100 µs, in search: 95.0 µs"), (80, "the largest part in encode: 100 µs"),
])  # fmt: skip
def test_of_equal_places_none_is_said_alone(second_us, said_of):
    """The search took 86 ms, the encoding 91: the verdict sent its reader to the encoding alone."""
    found = [Place("host", name, "", "host_code\n", 0, time * US, ratio=0.4)
             for name, time in (("encode", 100), ("search", second_us), ("load", 10))]  # fmt: skip
    assert where_text(found, 0.4) == said_of
    assert where_text([replace(found[0], is_most=True), *found[1:]], 0.4) == "most of that time in encode: 100 µs"


def test_a_kernel_of_no_range_is_what_limits_not_where(tmp_path):
    builder = ExportBuilder().process(100).thread(100).gpu()
    for k in range(30):
        run = (10 + 300 * k) * US, (309 + 300 * k) * US
        builder.kernel("probe", launch=(3 * k * US, (3 * k + 2) * US), run=run, grid=(1080, 1, 1))
    results, limit, found = said(builder.write(tmp_path / "report.sqlite"), Options(infer=False))
    assert "most of that time is probe: " in sentence_of(results, limit)
    assert where_text(found, 0.1, "kernels").startswith("the largest part is probe: ")
    assert window_of(results, limit) == f"{format_ns(limit.window_ns)} (first to last device work)"


def test_inferred_layers_say_their_pass_where_both_are_shown(tmp_path):
    """A gradient's layer has no name of its own: that it is of the backward pass says what it is."""
    program = settlers.ring_of_contexts(Random(71_272))
    results = analyze([machine.write(program, tmp_path / "ring")])
    names = [one.name for one in places(results, main_limit(results)) if one.name]
    assert [name.rpartition(" in ")[2] for name in names] == ["backward", "forward"], names


def test_executions_that_are_left_out_as_warm_up_are_said(tmp_path):
    """The tree counts them: "23 executions" beside "×24" contradicts."""
    results, limit, _ = said(loop(tmp_path, between_us=10, inside_us=40))
    frames = {**results.frames}
    iterations = results.frame("iterations")
    for count, after in ((0, ""), (1, " after 1 warm-up"), (2, " after 2 warm-ups")):
        frames["iterations"] = iterations.assign(is_warmup=iterations["iteration_index"] < count)
        assert window_of(replace(results, frames=frames), limit).endswith(f"(20 executions{after})")


def test_places_that_are_printed_alike_are_one(tmp_path):
    """An encoder's blocks and a decoder's are two kinds of "transformer block": two lines of one name contradict."""
    path = machine.write(program_of("whisper_chunks", "marks"), tmp_path / "report.sqlite")
    names = [place_text(one) for one in said(path, Options())[2]]
    assert names and len(names) == len(set(names))


def test_blocks_of_two_kinds_are_two_places_each_with_its_own_number(tmp_path):
    """Blocks of a second kind were summed with those of the first, and the sum had the second's name."""
    results = analyze([machine.write(pilgrims.draw(98_902), tmp_path / "tune")])
    calls = results.frame("paths").groupby("name", observed=True)["call_count"].sum()
    found = {one.name: one for one in places(results, main_limit(results)) if "transformer block" in one.name}
    assert {"3 × transformer block (2) in backward", "3 × transformer block in backward"} == set(found)
    assert calls["transformer block (2)"] == 12 * 5  # three of them in another pass
    of_kind = results.frame("paths").groupby("name", observed=True)["device_ns"].sum()
    assert found["3 × transformer block (2) in backward"].time_ns < of_kind["transformer block (2)"]


def test_blocks_are_counted_in_their_pass_as_in_the_tree(tmp_path):
    """The window cut an execution: 24 blocks of 3 backward passes in 4 executions were "6 ×", beside "8 ×"."""
    results, _, found = said(machine.write(boarders.draw(98_963), tmp_path / "window"), Options())
    printed = {_times(row) + label(row) + _line(row) for row in tree_rows(results).to_dict("records")}
    counted = [one.name.partition(" in ")[0] for one in found if " × " in one.name]
    assert counted and printed >= set(counted), (counted, printed)


@pytest.mark.parametrize("most", [64, 24, 8])
def test_of_host_code_before_something_its_name_is_cut_not_the_words(most):
    place = Place(
        "host", "train", "", "host_code\n", 10, 10, between=", mostly before {name}", beside="ncclCommInit" * 5
    )
    assert what_text(place, most).startswith("host code, mostly before nccl")
    assert len(what_text(place, most)) < 40 + most


@pytest.mark.parametrize(("pause_us", "where"), [
    (9_000, "before pool"), (900, "between launches, mostly before pool"), (90, "between launches"),
])  # fmt: skip
def test_what_most_host_code_came_before_is_not_said_of_all(pause_us, where, tmp_path):
    builder, at = ExportBuilder().process(100).thread(100).gpu(), 0
    for number in range(30):
        at += pause_us * US if number == 20 else 20 * US
        name = "pool" if number == 20 else f"kernel_{number}"
        builder.kernel(name, launch=(at, at + US), run=(at + 2 * US, at := at + 7 * US))
    results, limit, found = said(builder.write(tmp_path / "report.sqlite"), Options(infer=False))
    assert what_text(found[0]).partition(", 9")[0] == f"host code {where}"
    assert f"ost of that time {where}" in sentence_of(results, limit)


@pytest.mark.parametrize(
    ("kind", "where"), [("cpu_op", "between operators"), ("user_annotation", "outside your ranges")]
)
def test_where_only_operators_were_recorded_host_code_is_between_them(kind, where, tmp_path):
    of_gpu = machine.Machine(Random(7))
    thread = of_gpu.thread()
    for number in range(80):
        with thread.range(f"aten::{'abcdefgh'[number % 8]}", kind=kind):
            thread.launch("gemm", 5)
        thread.host(100)
    program = machine.Program("", [of_gpu], [], is_kineto=True)
    _, _, found = said(machine.write(program, tmp_path / "operators"), Options(infer=False))
    assert what_text(found[0]) == f"host code {where}"


@pytest.mark.parametrize(("has_part", "next_work"), [(True, "part"), (False, "copies host→device")])
def test_host_code_between_ranges_is_named_by_what_comes_next(has_part, next_work, tmp_path):
    builder = ExportBuilder().process(100).thread(100).gpu()
    for at in range(0, 20_000 * US, 1_000 * US):
        builder.range("step", at, at + 990 * US).range("first", at + 1, at + 20 * US)
        builder.kernel("gemm", launch=(at + US, at + 3 * US), run=(at + 4 * US, at + 20 * US))
        late = at + 900 * US
        if has_part:
            builder.range("part", late, late + 20 * US)
            builder.kernel("gemm2", launch=(late + US, late + 3 * US), run=(late + 4 * US, late + 20 * US))
        else:
            builder.memcpy(1 << 20, launch=(late + US, late + 3 * US), run=(late + 4 * US, late + 20 * US))
    results = analyze([builder.write(tmp_path / "report.sqlite")], STEPS)
    assert place_text(places(results, main_limit(results))[0]) == f"step: host code before {next_work}"


def test_kinds_of_executions_are_told_apart_by_ranges_of_the_program(tmp_path):
    """Its owner has ranges "train" and "render", and read "in iteration", a name that was inferred inside of them."""
    _, _, found = said(machine.write(program_of("nerf_rays", "marks"), tmp_path / "report.sqlite"), Options())
    assert [one.name.rpartition(" in ")[2] for one in found[:2]] == ["train", "render"]


@pytest.mark.parametrize(("name", "ranges"), [("nbeats_ensemble", "all"), ("multi_lora_server", "marks")])
def test_host_code_to_be_found_out_has_the_place_that_the_tree_names(name, ranges, tmp_path):
    """No range of the program is around it, but the screen has a name for it: "Find out all that the host does:"."""
    results, limit, found = said(machine.write(program_of(name, ranges), tmp_path / "report.sqlite"), Options())
    (advice,) = (one for one in advise(results, limit) if one.code == "find-host-code")
    assert advice.what.startswith("Find out all that the host does in ")
    owner = advice.what.split(" does in ")[1].partition(":")[0].partition(" (")[0]
    assert owner in " ".join(results.frame("paths")["name"].astype(str)), (owner, found)
    assert ("nsys" in advice.what, "with_stack" in advice.what) == (ranges == "marks", ranges == "all")


def test_advice_names_a_block_of_no_known_kind_by_its_kernels(tmp_path):
    """ "Find out all that the host does in block:" named no place."""
    report = machine.write(program_of("dqn_vector_env", "none"), tmp_path / "report.sqlite")
    results, limit, _ = said(report, Options())
    (advice,) = (one for one in advise(results, limit) if one.code == "find-host-code")
    assert "does in block · gemm" in advice.what


@pytest.mark.parametrize(
    ("times", "is_inferred", "names"),
    [
        ([40, 35, 25], True, ["3 kinds of block · gemm"]),
        ([60, 20, 20], True, ["block · gemm", "block (2) · gemm", "block (3) · gemm"]),  # one of them has most
        ([40, 35, 25], False, ["block · gemm", "block (2) · gemm", "block (3) · gemm"]),  # of the program
    ],
)
def test_kinds_of_blocks_of_which_none_has_most_are_one_place(times, is_inferred, names, monkeypatch):
    """Nobody knows which is "block (11)" of tiles of other sizes; "the largest part" was a quarter of the time."""
    tree = object.__new__(_Tree)
    tree.name = np.array(["block · gemm", "block (2) · gemm", "block (3) · gemm"], object)
    tree.time, tree.calls, tree.is_inferred = np.array(times), np.full(3, 8), np.full(3, is_inferred)
    tree.is_whole, tree.in_layer = np.zeros(3, bool), np.ones(3, bool)
    monkeypatch.setattr(_Tree, "_calls_around", lambda self, rows: 8)
    monkeypatch.setattr(_Tree, "_outer", lambda self, row: "")
    places_of = tree._together({tree._alike(row): np.array([row]) for row in range(3)} if is_inferred else
                               {(tree.name[row], ""): np.array([row]) for row in range(3)})  # fmt: skip
    assert [tree._label(rows)[0] for rows in places_of] == names
