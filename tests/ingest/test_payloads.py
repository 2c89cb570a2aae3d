"""Payloads of ranges: what TensorRT says of a layer becomes columns; anything else stays harmless."""

from __future__ import annotations

import json

from builders import ExportBuilder
from hypothesis import given
from hypothesis import strategies as st

from xsp_post import pipeline
from xsp_post.ingest.payloads import _read

LAYER = json.dumps({
    "Name": "/conv/Conv", "LayerType": "CaskConvolution",
    "Inputs": [{"Name": "x", "Dimensions": [1, 3, 8, 8]}], "Outputs": [{"Name": "y", "Dimensions": [1, 16, 8, 8]}],
    "TacticName": "sm80_xmma_fprop",
})  # fmt: skip


def test_a_tensorrt_layer(tmp_path):
    builder = ExportBuilder().range("ExecutionContext::execute", 0, 100, domain="TensorRT")
    builder.range("/conv/Conv", 10, 50, domain="TensorRT", jsonText=LAYER)
    builder.range("/relu/Relu", 60, 80, domain="TensorRT", jsonText="not json")
    frames = pipeline.analyze([builder.write(tmp_path / "trt.sqlite")]).frames
    nodes = frames["nodes"].set_index("name")
    row = nodes.loc["/conv/Conv"]
    found = (row["shape_text"], row["layer_type"], row["tactic_name"])
    assert found == ("[1,16,8,8]", "CaskConvolution", "sm80_xmma_fprop")
    assert nodes.loc["/relu/Relu", "tactic_name"] == ""
    layers = frames["layers"].set_index("layer_name")
    assert layers.loc["/conv/Conv", "shape_text"] == "[1,16,8,8]"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["Outputs", "Dimensions", "tactic", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_left(value):
    read = _read(json.dumps(value))
    assert read is None or all(isinstance(text, str) for text in read)
