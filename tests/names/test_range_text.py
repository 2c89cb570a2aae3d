"""The grammar of our ranges: what is formatted is what is parsed, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.names import range_text
from xsp_post.names.range_text import RangeText, format_layer, format_model, format_shape, parse

_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


def test_the_five_texts_read_as_documented():
    assert parse("model:forward#3") == RangeText("model", "forward", "", 3)
    assert parse("warmup:train_step#0") == RangeText("warmup", "train_step", "", 0)
    assert parse("layer1.0.conv1:Conv2d#2") == RangeText("layer", "layer1.0.conv1", "Conv2d", 2)
    assert parse("shape:[8,64,112,112]") == RangeText("shape", shape=(8, 64, 112, 112))
    assert parse("shape:[]") == RangeText("shape")
    assert [parse(text) for text in ("forward", "backward", "optimizer")] == [
        RangeText("part", "forward"), RangeText("part", "backward"), RangeText("part", "optimizer")
    ]  # fmt: skip
    text = format_shape((8, 2), (1024, 96))
    assert text == "shape:[8,2] flop:1024 bytes:96"
    assert parse(text) == RangeText("shape", shape=(8, 2), flop_count=1024, least_bytes=96)
    assert parse("shape:[8,2] flop:0 bytes:96").flop_count == 0
    assert parse("shape:[8,2] flop:1024") is None
    assert parse(range_text.PREFIX + "model:decode#1") == RangeText("model", "decode", "", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "forwards",
        "forward#0",
        "model:forward",
        "model:forward#x",
        "aten::conv2d",
        "a:b:c#1",
        "shape:[1,]",
        "conv1:Conv2d#0\n",
        "layer1/conv:Conv2d#0",
        "#1",
        ":#1",
    ],
)
def test_other_texts_are_not_ours(text):
    assert parse(text) is None


@given(_names, st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True), st.integers(0, 10**6))
def test_any_module_path_survives_as_a_layer(path, layer_type, call):
    parsed = parse(format_layer(path, layer_type, call))
    assert parsed is not None and parsed.kind == "layer" and parsed.index == call
    assert not set("/@#: ") & set(parsed.name)
    assert parsed.layer_type.lower() == layer_type.lower()


def test_a_submodule_named_model_stays_a_layer():
    assert parse(format_layer("model", "forward", 0)).kind == "layer"
    assert parse(format_layer("model", "LlamaModel", 0)).layer_type == "LlamaModel"
    assert parse(format_layer("", "Linear", 0)).name == range_text.ROOT_PATH


@given(st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True), st.integers(0, 10**9), st.booleans())
def test_model_ranges_round_trip(phase, iteration, is_warmup):
    kind = "warmup" if is_warmup else "model"
    assert parse(format_model(phase, iteration, is_warmup=is_warmup)) == RangeText(kind, phase, "", iteration)


@given(st.lists(st.integers(0, 10**6), max_size=6))
def test_shapes_round_trip(shape):
    assert parse(format_shape(shape)).shape == tuple(shape)


@given(st.text())
def test_no_text_raises(text):
    parse(text)
