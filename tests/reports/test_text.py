"""Hostile text becomes visible and short."""

from __future__ import annotations

import unicodedata

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.reports.terminal import cut_alike
from xsp_post.reports.text import (
    StringTable,
    are_plain,
    distinct,
    inferred,
    make_distinct,
    short_kernel,
    short_kernels,
    shorten,
    visible,
    visible_series,
)


@pytest.mark.parametrize(
    "character", ["\u202e", "\u2066", "\u200b", "\u2028", "\x00", "\x1b", "\x7f", "\x85", "\ufeff"]
)
def test_invisible_characters_are_shown(character):
    shown = visible(f"a{character}b")
    assert character not in shown
    assert f"U+{ord(character):04X}" in shown


@pytest.mark.parametrize(("name", "said"), [
    ("transformer block (2) · aten::linear, aten::gelu", "transformer block (2)"),
    ("block · gemm, softmax", "block · gemm, softmax"), ("after the blocks · gemm", "after the blocks"),
    ("block (2) · aten::index, aten::addmm", "block (2) · index, addmm"), ("block · a::b::gemm", "block · gemm"),
    ("forward *", "forward"), ("iteration (* kernels)", "iteration"), ("block · gemm (*)", "block · gemm"),
])  # fmt: skip
def test_a_block_of_a_known_kind_needs_no_list_of_its_kernels(name, said):
    assert inferred(name) == said


def test_broken_surrogates_can_be_encoded():
    assert visible("a\ud83db").encode("utf-8") == "a\ufffdb".encode()


@given(st.text(alphabet=st.characters(), max_size=300))
def test_nothing_invisible_is_left(text):
    shown = visible(text)
    shown.encode("utf-8")
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs")]
    assert not [
        c
        for c in shown
        if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    ]


@given(st.text(alphabet="abc<>x::()", max_size=200), st.integers(8, 80))
def test_shorten_keeps_both_ends(text, length):
    short = shorten(text, length)
    assert len(short) <= length
    assert short == text if len(text) <= length else text.startswith(short.partition("…")[0])


def test_long_text_says_what_was_left_out():
    assert visible("x" * 20, 5) == "xxxxx… [15 more characters]"
    assert visible(None) == visible(float("nan")) == ""


def test_a_column_is_made_visible_once_per_value():
    names = pd.Series(pd.Categorical(["a\x00", "b", "a\x00"]))
    assert visible_series(names).tolist() == ["a⟨U+0000⟩", "b", "a⟨U+0000⟩"]


def test_one_text_that_cannot_be_shown_is_replaced_among_many_that_can():
    assert are_plain(["gemm", "x" * 20], 20)
    assert not any(are_plain(["gemm", odd], 20) for odd in ("\u202e", "\x1b", "é", "x" * 21, None, 3))
    assert visible_series(pd.Series(["gemm", "\u202egemm", None, "x" * 9]), 8).tolist() == [
        "gemm", "⟨U+202E⟩gemm", "", "x" * 8 + "… [1 more characters]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array"
            "<char*, 3>>(int)",
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_32x32_sliced1x4_tn"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_SendRecv"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 8>(float*)", "softmax_warp_forward<…>"),
        (
            "void clover::par_ranged2d_kernel<PdV_kernel(bool, int, clover::Buffer2D<double> &)::[lambda(int, int) "
            "(instance 1)]>(clover::Range2d, T1)",
            "par_ranged2d_kernel<PdV_kernel>",
        ),
        ("void run<decltype(f(0)), 8>(float*)", "run<…>"),
        ("triton_poi_fused_add_relu_3", "triton_poi_fused_add_relu_3"),
        ("", ""),
    ],
)
def test_kernel_names_are_shortened_to_what_tells_them_apart(name, short):
    assert short_kernel(name) == short


def test_equal_short_names_are_told_apart():
    assert distinct(["gemm<…>", "relu", "gemm<…>", "gemm<…>"]) == ["gemm<…>", "relu", "gemm<…> (2)", "gemm<…> (3)"]


def test_string_table_holds_each_text_once_and_keeps_its_budget():
    table = StringTable(budget=1000)
    assert table.numbers(["a", "b", "a"]) == [0, 1, 0]
    table.number("x" * 5000)
    assert len(table.texts[2]) <= 200
    assert table.cut_count == 1


def test_kernels_of_one_template_are_named_by_their_functor():
    wrapped = "void at::native::elementwise_kernel<128, 2, void at::native::gpu_kernel_impl_nocast<{}>>(int, T3)"
    operation = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::{}<float>>"
    names = [wrapped.format(operation.format(name)) for name in ("MulFunctor", "DivFunctor")]
    copy = wrapped.format("at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]")
    expected = ["elementwise_kernel<MulFunctor>", "elementwise_kernel<DivFunctor>"]
    assert list(short_kernels(pd.Series([*names, copy]))) == [*expected, "elementwise_kernel<direct_copy_kernel_cuda>"]


def test_long_names_that_differ_in_the_middle_stay_different():
    gemm = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{}_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel"
    short = list(short_kernels(pd.Series([gemm.format("64x256x8"), gemm.format("128x128x8")]), 40))
    assert short[0].endswith("· tilesize64x256x8") and short[1].endswith("· tilesize128x128x8")
    assert make_distinct(["a", "a", "b"], ["x<1>", "x<1>", "y"]) == ["a", "a", "b"]
    assert len(set(make_distinct(["a", "a"], ["x+", "x-"]))) == 2


@pytest.mark.parametrize(
    ("room", "shown"),
    [(60, "autograd::engine::evaluate_function: ConvolutionBackward0"), (30, "… ConvolutionBackward0"),
     (16, "autograd:…ward0")],
)  # fmt: skip
def test_a_name_of_the_tree_keeps_what_tells_it_from_its_neighbours(room, shown):
    from xsp_post.reports.terminal_tree import _fitting

    fitted = _fitting("autograd::engine::evaluate_function: ConvolutionBackward0", room)
    assert fitted.startswith(shown[:6]) and fitted.endswith(shown[-5:]) and len(fitted) <= room


def test_equal_blocks_in_every_call_are_counted_in_front():
    from xsp_post.reports.tree_rows import _repeated

    block = {"level": "LAYER", "call_count": 96, "repeat_count": 1}
    assert _repeated(block, {"call_count": 3})["repeat_count"] == 32
    assert _repeated(block, {"call_count": 5})["repeat_count"] == 1  # not as many in every call
    assert _repeated({**block, "level": "MODEL"}, {"call_count": 3})["repeat_count"] == 1


def test_a_narrow_table_shows_what_is_asked_of_it():
    import io

    import pandas as pd
    from rich.console import Console

    from xsp_post.reports.terminal import print_frame

    frame = pd.DataFrame({
        "process_id": [144, 145], "capture_name": "a_capture_with_a_long_name.sqlite", "rank": [0, 1],
        "duration_ns": 300_000_000, "busy_ns": [274_000_000, 267_000_000], "idle_ns": 26_000_000,
        "is_straggler": [False, True], "compute_ns": 254_000_000, "communication_ns": 10_000_000,
        "exposed_ns": 9_000_000, "communication_count": 33, "last_count": [3, 30], "matched_count": 33,
        "compute_excess_ratio": 0.01, "job_name": "",
    })  # fmt: skip
    for width in (60, 80, 120, 200):
        printed = io.StringIO()
        print_frame(Console(file=printed, width=width), frame, 0, "ranks")
        lead, *rest = printed.getvalue().splitlines()
        head = next(line for line in rest if line.startswith("rank "))
        assert lead.startswith("2 ranks, busy 267 ms … 274 ms")
        assert all(title in head for title in ("rank", "waited for", "busy", "compute", "exposed")), width
        assert max(map(len, printed.getvalue().splitlines())) <= width


@pytest.mark.parametrize("width", [24, 30, 40, 60])
@pytest.mark.parametrize("sort", ["", "launch_start_ns"])
def test_what_rows_are_sorted_by_is_shown_first_of_all(width, sort):
    import io

    import pandas as pd
    from rich.console import Console

    from xsp_post.reports.terminal import print_frame

    frame = pd.DataFrame({
        "iteration_index": [0, 1], "layer_index": [3, 4], "name": ["n" * 200, "m" * 200], "duration_ns": [5_000, 4_000],
        "launch_start_ns": [1_000, 2_000], "grid_x": [1, 2],
    }).assign(start_ns=[0, 10_000], end_ns=[5_000, 14_000])  # fmt: skip
    printed = io.StringIO()
    print_frame(Console(file=printed, width=width), frame, 0, "kernels", sort)
    lines = printed.getvalue().splitlines()
    assert ("launch start" if sort else "duration") in lines[0] and max(map(len, lines)) <= width
    assert "kernel" in lines[0] or width == 24


@pytest.mark.parametrize("table", ["a02", "a10", "a11", "kernels", "operators", "layers", "idle", "nodes"])
@pytest.mark.parametrize("name", ["time", "latency_ns", "duration_ns"])
def test_the_time_of_a_row_has_the_same_names_in_every_table(table, name):
    import pandas as pd

    from xsp_post.model.schemas import TABLES
    from xsp_post.reports.page_rows import by_column

    columns = [one.name for one in TABLES[table].columns if one.name.endswith("_ns")]
    frame = pd.DataFrame({column: [1, 3, 2] for column in columns}).assign(row=[0, 1, 2])
    if "start_ns" in columns:
        frame["start_ns"] = 0
    assert by_column(frame, table, name)["row"].tolist() == [1, 2, 0]
    assert by_column(frame, table, f"-{name}")["row"].tolist() == [0, 2, 1]


def test_a_long_name_leaves_room_for_its_time():
    import io

    import pandas as pd
    from rich.console import Console

    from xsp_post.reports.terminal import print_frame

    frame = pd.DataFrame({"name": ["n" * 200], "kernel_id": [1], "duration_ns": [5_000]})
    printed = io.StringIO()
    print_frame(Console(file=printed, width=60), frame, 0, "kernels")
    assert "5.00 µs" in printed.getvalue() and "…" in printed.getvalue()


@pytest.mark.parametrize(("room", "expected"), [
    (60, "host→device, pageable · 12.7 GiB at 4.32 GB/s"),
    (40, "host→device, pageable · 12.7 GiB"),
    (24, "host→device · 12.7 GiB"),
    (16, "hos…e · 12.7 GiB"),
])  # fmt: skip
def test_the_amount_of_a_copy_is_cut_last(room, expected):
    from xsp_post.reports.terminal_tree import _fitting_copy

    assert _fitting_copy("host→device, pageable · 12.7 GiB at 4.32 GB/s", room) == expected


@pytest.mark.parametrize("length", [14, 24])
def test_texts_are_cut_in_what_they_have_in_common(length):
    names = [f"model.layers.attention.copy host to device, {kind}" for kind in ("pageable", "pinned", "managed")]
    cut = cut_alike(names, length)
    assert len(set(cut)) == 3 and all(len(text) <= length for text in cut)
    assert cut_alike(["short", "names"], length) == ["short", "names"]
    assert len(cut_alike(["x" * 90] * 2, length)[0]) <= length


def test_a_narrow_table_keeps_what_it_is_sorted_by():
    import io

    import pandas as pd
    from rich.console import Console

    from xsp_post.reports.page_rows import by_cost
    from xsp_post.reports.terminal import print_frame

    frame = pd.DataFrame({
        "operator_index": [1, 2], "operator": ["aten::" + "a" * 60, "aten::mm"], "phase": ["forward" * 4, "backward"],
        "call_count": [10, 20], "kernel_ns": [1_000_000, 29_000_000],
    })  # fmt: skip
    printed = io.StringIO()
    print_frame(Console(file=printed, width=60), by_cost(frame, "operators"), 0, "operators")
    text = printed.getvalue()
    assert "kernel time" in text and text.index("29.0 ms") < text.index("1.00 ms")


@pytest.mark.parametrize(("room", "expected"), [
    (40, "block, backward · gemm, normalisation"), (30, "block, backward · gemm, norma…"),
    (24, "block, backward · gemm,…"), (17, "block, backward …"), (10, "block,…ion"),
])  # fmt: skip
def test_a_list_of_kernels_is_cut_before_the_name_of_what_runs_them(room, expected):
    from xsp_post.reports.terminal_tree import _fitting

    assert _fitting("block, backward · gemm, normalisation", room) == expected


@pytest.mark.parametrize(("length", "expected"), [
    (40, "26 × block · arange, embedding_bag, add"), (24, "26 × block · arange, em…"), (13, "26 × block ·…"),
    (8, "26 × …dd"),
])  # fmt: skip
def test_what_stands_behind_a_dot_is_cut_at_its_end(length, expected):
    """``block · nor…ution`` named neither of two kernels."""
    assert shorten("26 × block · arange, embedding_bag, add", length) == expected
