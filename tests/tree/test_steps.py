"""Sizes of inference steps: by their own text, by that of the one step around or inside, else unknown; host gaps."""

from __future__ import annotations

from itertools import groupby, pairwise
from random import Random

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

import xsp_post
from xsp_post.model.options import Options
from xsp_post.names.step_texts import dialects, kind_of_word
from xsp_post.pipeline import analyze
from xsp_post.tree.steps import by_order

DETAIL = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk{0}sqsq32sqsk{0})"


def iterations(tmp_path, ranges, kernels):
    builder = ExportBuilder().process(100)
    for text, start, end in ranges:
        builder.range(text, start, end)
    for at, length in kernels:
        builder.kernel("gemm", launch=(at, at + 5), run=(at + 10, at + 10 + length))
    return xsp_post.load(builder.write(tmp_path / "report.sqlite"))["iterations"]


def test_sizes_come_from_the_one_step_around_or_inside(tmp_path):
    ranges = [
        (DETAIL.format(900), 1000, 9000), ("step[DECODE bs=32]", 2000, 8000),
        (DETAIL.format(932), 11000, 19000), ("step[DECODE bs=32]", 12000, 18000),
    ]  # fmt: skip
    found = iterations(tmp_path, ranges, [(3000, 2000), (13000, 2000)])
    assert found["batch_size"].tolist() == [32, 32]
    assert found["key_count"].tolist() == [900, 932]
    assert {*found["size_source"]} <= {"text, around", "text, inside", "text"}
    assert found["kind"].tolist() == ["decode", "decode"]


def test_sizes_come_from_the_one_step_inside(tmp_path):
    builder = ExportBuilder().process(100)
    for at, inside in ((1000, (32,)), (11_000, (5, 5)), (21_000, (3,)), (31_000, ())):
        builder.range("whole", at, at + 9000)
        for k, size in enumerate(inside):
            builder.range(f"step[DECODE bs={size}]", at + 1000 + 3000 * k, at + 3500 + 3000 * k)
        builder.kernel("gemm", launch=(at + 1500, at + 1505), run=(at + 1600, at + 3000))
    found = analyze([builder.write(tmp_path / "report.sqlite")], Options(model_range="^whole")).frame("iterations")
    assert found["batch_size"].fillna(-1).tolist() == [32, -1, 3, -1]
    assert found["size_source"].tolist() == ["inside", "", "inside", ""]


def test_a_step_of_one_request_says_its_size(tmp_path):
    ranges = [("step[DECODE bs=1]", 1000, 9000), ("step[DECODE bs=1]", 11000, 19000)]
    found = iterations(tmp_path, ranges, [(3000, 2000), (13000, 2000)])
    assert found["batch_size"].tolist() == [1, 1] and set(found["size_source"]) == {"text"}


def test_a_step_that_holds_two_executions_gives_its_sizes_to_neither(tmp_path):
    ranges = [("step[EXTEND bs=2 toks=10]", 1000, 30_000)]
    ranges += [(f"iteration {k}", 2000 + k * 10_000, 9000 + k * 10_000) for k in range(2)]
    found = iterations(tmp_path, ranges, [(3000, 2000), (13_000, 2000)])
    if len(found) == 2:
        assert found["token_count"].isna().all()
    else:
        assert found["token_count"].tolist() == [10]


@pytest.mark.parametrize("kind", sorted(set(kind_of_word().values())))
def test_every_kind_of_a_step_text_is_a_kind_of_execution(tmp_path, kind):
    found = iterations(tmp_path, [(f"xsp/step:{kind} tokens=8", 1000, 3000)], [(1500, 1000)])
    assert (found["kind"].tolist(), found["token_count"].tolist()) == ([kind], [8])


@pytest.mark.parametrize("dialect", [one for one in dialects().values() if one.text and one.name != "param"])
def test_steps_of_every_dialect_are_executions_with_sizes(tmp_path, dialect):
    ranges, kernels = [], []
    for k in range(6):
        ranges.append((dialect.like, 1000 + k * 10_000, 9000 + k * 10_000))
        kernels += [(2000 + k * 10_000, 2000), (5000 + k * 10_000, 2000)]
    found = iterations(tmp_path, ranges, kernels)
    assert len(found) == 6
    assert (found["batch_size"] > 0).all() and set(found["size_source"]) == {"text"}
    assert set(found["kind"]) <= set(kind_of_word().values())


def test_the_gap_before_a_step_ends_where_it_starts(tmp_path):
    steps = [("step[DECODE bs=1]", start, start + 2000) for start in (1000, 5000, 8000)]
    found = iterations(tmp_path, steps, [(1500, 2500), (5500, 2600), (8500, 100)])
    # the first step's kernel ends at 4010, the second's at 8110: after the third began
    assert found["host_gap_ns"].isna().tolist() == [True, False, False]
    assert found["host_gap_ns"].tolist()[1:] == [5000 - 4010, 0]


def test_our_own_range_is_written_and_read_back(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    layer = torch.nn.Linear(4, 4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for k in range(3):
            with xsp_post.step("decode", context=[100 + k, 300 + k], bucket=4):
                layer(torch.zeros(2, 4))
    path = tmp_path / "decode.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    found = xsp_post.load(path)["iterations"]
    assert found["kind"].tolist() == ["decode"] * 3
    assert found["key_count"].tolist() == [400, 402, 404]
    sums = found[["batch_size", "token_count", "query_square_count", "longest_key_count", "graph_bucket_count"]]
    assert sums.iloc[2].tolist() == [2, 2, 2, 302, 4]


def generated(tmp_path, prompts, decodes, *, norm_grid=None):
    """Loops of one prompt and its decodes without any text: two requests, kernels with a block a token."""
    builder, at = ExportBuilder().process(100), 1000
    for prompt in prompts:
        for number in range(decodes + 1):
            tokens = 2 * prompt if number == 0 else 2
            builder.range("forward", at, at + 8000)
            for k, (name, grid) in enumerate(
                [("rms_norm_kernel", norm_grid or tokens), ("rotary_embedding_kernel", tokens), ("flash_fwd_kernel", 7)]
            ):
                begin = at + 1000 + k * 2000
                builder.kernel(name, launch=(begin, begin + 5), run=(begin + 10, begin + 1500), grid=(grid, 1, 1))
            at += 10_000
    return xsp_post.load(builder.write(tmp_path / "report.sqlite"))["iterations"]


def test_without_texts_grids_say_tokens_and_the_order_says_prefill_decode_and_context(tmp_path):
    found = generated(tmp_path, (100, 30), 6)
    assert found["kind"].tolist() == (["prefill"] + ["decode"] * 6) * 2
    assert found["token_count"].tolist() == [200, *[2] * 6, 60, *[2] * 6]
    assert found["batch_size"].tolist() == [2] * 14
    assert found["key_count"].tolist() == [200, *range(202, 214, 2), 60, *range(62, 74, 2)]
    assert set(found["size_source"]) == {"grids, order"} and not found["is_warmup"].any()


@pytest.mark.parametrize(("prompts", "decodes", "norm_grid"), [((3,), 6, None), ((100,), 2, None), ((100,), 6, 31)])
def test_what_grids_and_order_do_not_say_surely_is_unknown(tmp_path, prompts, decodes, norm_grid):
    found = generated(tmp_path, prompts, decodes, norm_grid=norm_grid)
    assert not found["kind"].isin(["prefill", "decode"]).any() and found["key_count"].isna().all()
    assert found["token_count"].isna().all() == bool(norm_grid)


def test_the_grids_of_a_replayed_graph_say_its_bucket(tmp_path):
    builder = ExportBuilder().process(100)
    for k in range(3):
        at = 1000 + 10_000 * k
        builder.range("step[DECODE bs=5]", at, at + 8000)
        names = ("rms_norm_kernel", "rotary_embedding_kernel", "paged_attention_kernel")
        builder.graph_launch(launch=(at + 100, at + 200), run=None)
        for i, name in enumerate(names):
            run = (at + 1000 + 500 * i, at + 1400 + 500 * i)
            builder.kernel(name, run=run, correlation=builder.last_correlation, grid=(8, 1, 1), graph_node=i + 1)
    found = xsp_post.load(builder.write(tmp_path / "report.sqlite"))["iterations"]
    assert found["graph_bucket_count"].tolist() == [8] * 3 and found["token_count"].tolist() == [5] * 3


def test_a_step_of_no_known_kind_is_refused():
    pytest.importorskip("torch")
    from xsp_post.base.errors import UsageError

    for arguments in (("sing", 1, [5]), ("decode", [1, 1], [5, 5, 5])):
        with pytest.raises(UsageError, match="no kind of step"), xsp_post.step(*arguments):
            pass


RUNS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([-1, 1, 2, 8, 15, 16]), st.integers(1, 5),
                          st.sampled_from([True, True, True, False])), max_size=9)  # fmt: skip


@examples(100)
@given(RUNS, st.randoms(use_true_random=False))
@example([(0, 16, 1, True), (0, 2, 4, True), (0, 16, 2, True), (0, 1, 5, True)], Random(0))  # then two prompts
@example([(0, 16, 1, True), (0, 2, 3, True), (0, 16, 1, True), (0, -1, 5, True)], Random(0))
def test_a_prefill_is_the_one_long_step_before_four_short_ones(runs, random):
    each = [(process, tokens, is_open) for process, tokens, length, is_open in runs for _ in range(length)]
    steps = [(process, number, tokens, is_open) for number, (process, tokens, is_open) in enumerate(each)]
    random.shuffle(steps)
    wanted = {}
    stretches = [list(some) for _, some in groupby(sorted(steps), key=lambda one: (one[0], *one[2:]))]
    for before, after in pairwise(stretches):
        (process, prompt, whole, is_open), (its_process, _, short, is_its) = before[0], after[0]
        fits = process == its_process and is_open and is_its and short > 0 and whole >= 8 * short and not whole % short
        if fits and len(before) == 1 and len(after) >= 4:
            wanted[prompt] = ("prefill", short, whole)
            wanted |= {one[1]: ("decode", short, whole + short * k) for k, one in enumerate(after, 1)}
    columns = [np.array(one, np.int64) for one in zip(*steps)] or [np.zeros(0, np.int64)] * 4
    frame = pd.DataFrame({"process_index": columns[0], "start_ns": columns[1]})
    kind, sizes = by_order(frame, columns[2], columns[3].astype(bool))
    found = zip(kind.tolist(), sizes["batch_size"].tolist(), sizes["key_count"].tolist())
    assert list(found) == [wanted.get(number, ("", -1, -1)) for _, number, _, _ in steps]
