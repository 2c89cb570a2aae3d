"""`names`: each naming convention seen in captures becomes name, index, shape; nothing makes it fail."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.names import COLUMNS, parse_names, patterns, range_text
from xsp_post.names.step_texts import step_sizes

CAPTURES = Path(os.environ.get("XSP_POST_CAPTURES", Path(__file__).parents[2] / ".." / "shared" / "captures"))


def array(*texts: str) -> np.ndarray:
    return np.array(texts, dtype=object)


def parse(text: str) -> pd.Series:
    return parse_names(array(text)).iloc[0]


# text | dialect | role | folded name | layer type | module path
TABLE = """\
aten::addmm, seq = 12|pytorch|operator|aten::addmm|aten::addmm|
aten::view, op_id = 314290|pytorch|operator|aten::view|aten::view|
aten::add, seq = 1, op_id = 2, sizes = [[1, 2], []], input_op_ids = [(1,0)]|pytorch|operator|aten::add|aten::add|
FlashAttnFunc, seq = 45368, op_id = 990440|pytorch|operator|FlashAttnFunc|FlashAttnFunc|
AddmmBackward0, seq = 12|autograd|operator|AddmmBackward0|AddmmBackward0|
FSDP::pre_forward (blocks.10._checkpoint_wrapped_module), op_id = 9|fsdp|module|FSDP::pre_forward (blocks.10)|FSDP::pre_forward|blocks.10
model:forward#3|xsp|iteration|model:forward||
warmup:forward#1|xsp|iteration|warmup:forward||
layer1.0.conv1:Conv2d#0|xsp|layer|layer1.0.conv1:Conv2d|Conv2d|layer1.0.conv1
layers.17.mlp:MLP#2|xsp|layer|layers.17.mlp:MLP|MLP|layers.17.mlp
shape:[8,64]|xsp|mark|shape||
xsp/model:train_step#3|xsp|iteration|model:train_step||
xsp/layer1.0.conv1:Conv2d#0|xsp|layer|layer1.0.conv1:Conv2d|Conv2d|layer1.0.conv1
(root):ResNet#0|xsp|layer|(root):ResNet|ResNet|(root)
m.[self]:my<T>#1|xsp|layer|m.[self]:my<T>|my<T>|m.[self]
Step 5|step|iteration|Step|Step|
iteration 12/100|step|iteration|iteration|iteration|
Warm-up Step 1|step|iteration|Warm-up Step|Warm-up Step|
ProfilerStep#6|step|iteration|ProfilerStep|ProfilerStep|
train_step_12|step|iteration|train_step|train_step|
Epoch 3 Step 5|step|iteration|Epoch Step|Epoch Step|
layers.17.mlp|plain|module|layers.17.mlp|mlp|layers.17.mlp
layer1.0.conv1|plain|module|layer1.0.conv1|conv1|layer1.0.conv1
block_3|plain|module|block_3|block|
3D_backbone|plain||3D_backbone|3D_backbone|
Forward|plain|phase|Forward|Forward|
Backward|plain|phase|Backward|Backward|
optimizer.step|plain|phase|optimizer.step|optimizer.step|
Optimizer.step#AdamW.step|pytorch|phase|Optimizer.step#AdamW.step|Optimizer.step#AdamW.step|
benchmark_loop|plain||benchmark_loop|benchmark_loop|
ExecutionContext::execute|tensorrt|model|ExecutionContext::execute|ExecutionContext::execute|
/blocks.0/c/Conv + /blocks.0/r/Relu|tensorrt|layer|/blocks.0/c/Conv + /blocks.0/r/Relu|Conv+Relu|/blocks.0
PWN(PWN(/a/s/Sigmoid), /a/Mul)|tensorrt|layer|PWN(PWN(/a/s/Sigmoid), /a/Mul)|Sigmoid+Mul|/a
/org.Predict/Open|plain||/org.Predict/Open|/org.Predict/Open|
/Reshape_10|tensorrt|layer|/Reshape_10|Reshape|
{ForeignNode[out_masks.../ScatterND_21]}|tensorrt|layer|{ForeignNode[out_masks.../ScatterND_21]}|ForeignNode|
{'Module': 'model.layers.0.self_attn', 'Inputs': [[1, 4096]]}|dict|module|model.layers.0.self_attn|self_attn|model.layers.0.self_attn
{'Module': 'model.layers.1.mlp', 'Inputs': [[1, 40|dict|module|model.layers.1.mlp|mlp|model.layers.1.mlp
{'mod': 'torch', 'op': 'conv2d', 'args': [{'type': 'tensor', 'shape': (6, 3)}]}|dict|operator|torch.conv2d|conv2d|
transformer_blocks.0.attn in=[[1, 4096]]|in_shapes|module|transformer_blocks.0.attn|attn|transformer_blocks.0.attn
Thunk:#name=jit(f)/mul[a=(1, 2)],hlo_op=fusion.3#|xla|layer|Thunk:#name=jit(f)/mul[a=(1, 2)],hlo_op=fusion.3#|fusion|jit(f)/mul[a=(1, 2)]
XlaModule:#hlo_module=jit_f,program_id=3#|xla|model|XlaModule:#hlo_module=jit_f,program_id=3#|jit_f|jit_f
train#step_num=5,_r=1#|xla|iteration|train||
transformer_engine._Linear.forward.gemm|megatron|module|transformer_engine._Linear.forward.gemm|Linear|
Torch-Compiled Region: 0/0|torch_compile|module|Torch-Compiled Region: 0/0|Torch-Compiled Region|
nn.Module: Conv2d_0|pytorch|module|nn.Module: Conv2d_0|Conv2d|Conv2d_0
execute_32_context_0(sq0)_generation_32(sq32)|step|iteration|execute_context_generation (decode)||
cublasCreate_v2|plain|library|cublasCreate_v2|cublasCreate_v2|
foo_rank0|plain||foo|foo|
foo dp_rank=2|plain||foo|foo|
object at 0x7f3ab849d0f0|plain||object at 0x|object at 0x|
batch_size=8|plain||batch_size=8|batch_size=8|
12345678|plain||12345678|12345678|
"""  # noqa: E501


def test_the_table_of_texts():
    rows = [line.split("|") for line in TABLE.splitlines()]
    got = parse_names(array(*(row[0] for row in rows)))
    columns = ["dialect", "role", "folded_name", "layer_type", "module_path"]
    expected = pd.DataFrame([row[1:] for row in rows], columns=columns)
    pd.testing.assert_frame_equal(got[columns].astype(object), expected.astype(object))


def test_steps_of_serving_and_benchmark_programs():
    frame = parse_names(
        array(
            "step[EXTEND bs=15 toks=15360]",
            "step[DECODE bs=32]",
            "[param|pytorch.model.alex_net|0|0|0|warmup|forward]",
            "[param|pytorch.model.alex_net|0|0|0|measure|forward]",
            "token_12_processing",
            "[param|cuda]",
        )
    )
    assert frame["folded_name"].tolist() == [
        "step[EXTEND]",
        "step[DECODE]",
        "[param|pytorch.model.alex_net|0|0|0|forward]",
        "[param|pytorch.model.alex_net|0|0|0|forward]",
        "token_*_processing",
        "[param|cuda]",
    ]
    assert frame["role"].tolist() == ["iteration"] * 4 + ["", ""]
    assert frame["phase"].tolist() == ["prefill", "decode", "forward", "forward", "", ""]
    assert frame["is_warmup"].tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("text", "batch", "tokens"),
    [
        ("step[EXTEND bs=15 toks=15360]", 15, 15360),
        ("step[DECODE bs=32]", 32, 32),
        ("execute_15360_context_15(sq1)_generation_0(sq0)", 15, 15360),
        ("execute_32_context_0(sq0)_generation_32(sq32)", 32, 32),
        ("execute_context_1(9)_generation_4(4)", 5, 13),
        ("decode step 7 batch_size=4, num_tokens: 12", 4, 12),
        ("step bs=0", -1, -1),
        ("jobs=3 tokens", -1, -1),
        ("ProfilerStep#3", -1, -1),
    ],
)
def test_sizes_of_steps(text, batch, tokens):
    found = step_sizes(array(text))
    assert [int(found[column][0]) for column in ("batch_size", "token_count")] == [batch, tokens]


def test_numbers_and_shapes():
    frame = parse_names(
        array(
            "aten::add, seq = 1, op_id = 2, sizes = [[1, 2], []], input_op_ids = [(1,0)]",
            "aten::add, op_id = 3, seq = 9",
            "aten::add",
            "model:decode#7",
            "a.b:Conv2d#4",
            "shape:[8,64]",
            "{'Module': 'm.0', 'Inputs': [[1, 4096]], 'seq': 5}",
            "x.0 in=[[3]]",
            "{'mod': 'torch', 'op': 'c', 'args': [{'shape': (6, 3)}, {'shape': []}]}",
            "iteration 12",
            "x, seq = 99999999999999999999",
        )
    )
    assert frame["sequence"].tolist() == [1, 9, -1, -1, -1, -1, 5, -1, -1, -1, -1]
    assert frame["op_id"].tolist() == [2, 3, *[-1] * 9]
    assert frame["step_index"].tolist() == [-1, -1, -1, 7, -1, -1, -1, -1, -1, 12, -1]
    assert frame["call_index"].tolist() == [-1, -1, -1, -1, 4, *[-1] * 6]
    assert frame["shape_text"].tolist() == [
        "[[1, 2], []]",
        "",
        "",
        "",
        "",
        "[8,64]",
        "[[1, 4096]]",
        "[[3]]",
        "[[6, 3], []]",
        "",
        "",
    ]
    for name in ("call_index", "step_index", "sequence", "op_id"):
        assert frame[name].dtype == np.int64
    assert list(frame.columns) == list(COLUMNS)


@pytest.mark.parametrize(
    ("text", "phase", "is_backward", "is_warmup"),
    [
        ("Forward", "forward", False, False),
        ("backward pass", "backward", True, False),
        ("autograd::engine::evaluate_function: MulBackward0, seq = 3", "backward", True, False),
        ("torch::autograd::AccumulateGrad", "backward", True, False),
        ("optimizer.step", "optimizer", False, False),
        ("Optimizer.zero_grad#SGD.zero_grad", "optimizer", False, False),
        ("train_step", "train_step", False, False),
        ("prefill", "prefill", False, False),
        ("model:decode#1", "decode", False, False),
        ("Warm-up Step 1", "warmup", False, True),
        ("warmup:forward#0", "forward", False, True),
        ("XlaCompile:#module=f,program_id=1#", "", False, True),
        ("KernelExecutor::compileFusion", "", False, True),
        ("Torch-Compiled Region: 0/0", "", False, False),
        ("autotune gemm", "", False, True),
        ("execute_1_context_1(9)_generation_0(0)", "prefill", False, False),
        ("execute_context_1(9)_generation_4(4)", "mixed", False, False),
        ("aten::add", "", False, False),
        ("FSDP::post_backward (l.1)", "backward", True, False),
        ("decoder", "", False, False),
    ],
)
def test_phases(text, phase, is_backward, is_warmup):
    row = parse(text)
    assert (row["phase"], row["is_backward"], row["is_warmup"]) == (phase, is_backward, is_warmup)


@given(st.text(max_size=30), st.text(max_size=20), st.integers(0, 10**6))
def test_our_own_grammar_is_read_back(path, layer_type, call):
    text = range_text.format_layer(path, layer_type, call)
    ours, row = range_text.parse(text), parse(text)
    assert ours is not None and ours.kind == "layer"
    got = (row["dialect"], row["module_path"], row["layer_type"], row["call_index"])
    assert got == ("xsp", ours.name, ours.layer_type, ours.index)
    model = parse(range_text.PREFIX + range_text.format_model("decode", call, is_warmup=True))
    assert (model["phase"], model["step_index"], model["is_warmup"]) == ("decode", call, True)


def test_recognisers():
    texts = array("Step 5", "ExecutionContext::execute", "Forward", "layers.17", "aten::mm", "benchmark_loop")
    role = parse_names(texts)["role"]
    assert role.isin(["iteration", "model"]).tolist() == [True, True, False, False, False, False]
    assert role.isin(["phase"]).tolist() == [False, False, True, False, False, False]
    assert role.isin(["module", "layer"]).tolist() == [False, False, False, True, False, False]
    assert role.isin(["operator"]).tolist() == [False, False, False, False, True, False]


@examples(60)
@given(
    st.lists(
        st.one_of(
            st.text(),
            st.text(alphabet="aB:#=,{}[]()'\"0123456789 ._/+|", max_size=60),
            st.sampled_from(["aten::x", "Step", "{'a': ", "#a=", "PWN("]).flatmap(
                lambda p: st.text().map(lambda t: p + t)
            ),
        ),
        max_size=20,
        unique=True,
    )
)
def test_any_text_gives_a_row(texts):
    frame = parse_names(np.array(texts, dtype=object))
    assert len(frame) == len(texts)
    assert not frame.isna().any().any()
    # one text alone reads as it does among others, unless another row lends it the operator mark
    for text in texts[:3]:
        if ", seq = " not in "".join(texts) and ", op_id = " not in "".join(texts):
            one = parse_names(array(text)).iloc[0].tolist()
            assert one == frame.iloc[texts.index(text)].tolist()


COUNTING = ["Step {}", "iter_{}", "aten::mm, seq = {}, op_id = 4"]


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from(COUNTING))
def test_folding_does_not_depend_on_the_number(one, other, text):
    a, b = parse_names(array(text.format(one), text.format(other)))["folded_name"]
    assert a == b


@pytest.mark.parametrize(
    "text", ["layers.17.mlp", "layer1.0.conv1", "block_3", "blocks.3:Block#0", "layer 3", "h.3/Conv"]
)
def test_layer_numbers_stay(text):
    assert parse(text)["folded_name"].startswith(text.split("#")[0])
    assert parse(text)["folded_name"] != parse(text.replace("3", "4").replace("1", "2"))["folded_name"]


def test_hostile_texts():
    texts = array(
        "",
        "\x00",
        "a" * 10_000,
        "bad\ud800",
        "{'a':" + "[" * 9999,
        "{" * 5000,
        "#",
        "</script>",
        "x\ny, seq = 1",
        "PWN(" * 2000,
        "a/" * 4000 + "Conv + b",
        "{'a': " + "-" * 5000 + "1}",
        "{'seq': 1e400, 'op': 'x'}",
    )
    frame = parse_names(texts)
    assert len(frame) == len(texts) and not frame.isna().any().any()
    assert frame["sequence"].iloc[8] == 1 and frame["folded_name"].iloc[8] == "x\ny"


def test_many_texts_are_searched_for_all_patterns_together(monkeypatch):
    texts = array(*(line.split("|")[0] for line in TABLE.splitlines()), "Encoder", "loss", "forward_backward", "rank 3")
    one_by_one = parse_names(texts)
    monkeypatch.setattr(patterns, "_FEW", 0)
    pd.testing.assert_frame_equal(parse_names(texts), one_by_one)
    assert parse_names(array("a range", "b range"))["folded_name"].tolist() == ["a range", "b range"]


def test_a_lone_surrogate_that_a_dict_spells():
    assert parse("{'Module': 'a\\ud800b'}")["folded_name"] == "a?b"


def test_no_texts():
    assert len(parse_names(np.array([], dtype=object))) == 0


def test_half_a_million_texts():
    n = 500_000
    ops = ["aten::add", "aten::mm", "aten::view", "autograd::engine::evaluate_function: MulBackward0"]
    texts = np.array(
        [f"{ops[i % 4]}, seq = {i}, op_id = {i + 7}, sizes = [[{i % 50}, 2], []]" for i in range(n)], dtype=object
    )
    start = time.process_time()
    frame = parse_names(texts)
    elapsed = time.process_time() - start
    assert frame["folded_name"].nunique() == 4 and frame["sequence"].tolist() == list(range(n))
    assert elapsed < 6, elapsed  # 1.2 s where this was written; room for a busy machine


def capture_texts(name: str) -> np.ndarray:
    path = CAPTURES / "nsys" / name
    if not path.exists():
        pytest.skip(f"the capture {name} is not here (XSP_POST_CAPTURES)")
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        rows = connection.execute(
            "SELECT DISTINCT coalesce(n.text, s.value) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
            " WHERE n.eventType IN (59, 60, 70, 71)"
        ).fetchall()
    return np.array([row[0] for row in rows], dtype=object)


def test_fsdp_training_capture():
    texts = capture_texts("fsdp_2gpu_h100.sqlite")
    frame = parse_names(texts)
    assert len(texts) > 18_000
    assert frame["folded_name"].nunique() < 200  # per-call numbers are gone …
    fsdp = frame[frame["dialect"] == "fsdp"]
    assert fsdp["module_path"].nunique() > 10  # … and block numbers are not
    assert (frame["sequence"] >= 0).sum() > 9_000


def test_tensorrt_capture():
    frame = parse_names(capture_texts("tensorrt_nvtx_only_titanrtx.sqlite"))
    types = set(frame.loc[frame["dialect"] == "tensorrt", "layer_type"])
    assert {"Conv+Relu", "Pad+Conv+Relu", "ArgMax", "Reformat", "ConvTranspose+BatchNormalization+Relu"} <= types


def test_xla_names_of_the_official_report():
    path = CAPTURES / "official" / "jax_fsdp4_nvtx_pushpop_trace.csv.xz"
    if not path.exists():
        pytest.skip("the official JAX report is not here (XSP_POST_CAPTURES)")
    names = pd.read_csv(path, usecols=["Name"])["Name"].unique().astype(object)
    frame = parse_names(names)
    xla = frame[frame["dialect"] == "xla"]
    assert len(xla) > 0.9 * len(frame)
    thunks = xla[xla["role"] == "layer"]
    assert len(thunks) > 500 and {"wrapped_copy", "all-reduce-start"} <= set(thunks["layer_type"])
    assert frame.loc[frame["base_name"].astype(str).str.endswith("XlaPass"), "is_warmup"].all()


def test_a_number_inside_a_name_leaves_a_star_and_a_numbered_layer_is_a_layer():
    texts = ["token_5_processing", "step_3_forward", "Step 5", "layer_0_forward", "Layer 3 forward"]
    parsed = parse_names(np.array([*texts, "/layer1/conv/Conv", "encoder.block.14.layer.0"], object))
    folded = parsed["folded_name"].astype(str).tolist()
    assert folded[:4] == ["token_*_processing", "step_*_forward", "Step", "layer_0_forward"]
    assert parsed["role"].astype(str).tolist()[3:] == ["module", "module", "layer", "module"]
    assert parsed["layer_type"].astype(str).tolist()[3:5] == ["layer_*_forward", "Layer * forward"]


def test_texts_of_many_sizes_stand_beside_those_whose_name_says_a_shape():
    sizes = [f"aten::mm, seq = {k}, op_id = {k}, sizes = [[{k}, 2]]" for k in range(300)]
    found = parse_names(array(*sizes, "xsp/shape:[8,3]"))
    assert found["shape_text"].astype(str).tolist() == [*(f"[[{k}, 2]]" for k in range(300)), "[8,3]"]
