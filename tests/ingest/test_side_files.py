"""Files beside a trace from strangers: a sentence, nothing executed, nothing half-joined."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import struct
import tracemalloc
from collections import OrderedDict, defaultdict

import pytest
from generators.graph_traces import Recording

from xsp_post.ingest.side_files import said_entries, said_text, with_side_files
from xsp_post.ingest.side_files.inductor import innermost_place
from xsp_post.ingest.side_files.modules import modules_of, operations_of, place_text
from xsp_post.ingest.side_files.plain_pickle import NotPlain, read_plain
from xsp_post.ingest.sources import load

GRAPH = 3


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def trace(tmp_path):
    made = Recording()
    correlation = made.call("cudaGraphLaunch")
    for node in range(4):
        made.kernel(f"k{node}", correlation, **{"graph id": GRAPH, "graph node id": (GRAPH << 32) | node})
    return load(made.write(tmp_path / "a.pt.trace.json.gz")).trace


def joined(trace, path):
    after = with_side_files(trace, (path,), path.parent / "nothing.json")
    refused = [one.example for one in after.findings if one.code == "side-file-refused"]
    return after, refused


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_python_reads_them(protocol):
    value = {
        (GRAPH << 32) | 1: [{"str": "a", "stream": 60, "x": 1.5, "none": None, "yes": True}],
        -7: [],
        8: ["é", [1]],
    }
    for made in (value, defaultdict(list, value)):
        assert read_plain(pickle.dumps(made, protocol)) == value


def test_no_code_of_a_pickle_runs(tmp_path, trace):
    marker = tmp_path / "executed"
    evil = tmp_path / "evil.pkl"
    for value in ({GRAPH << 32: Evil(marker)}, [Evil(marker)], Evil(marker)):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            evil.write_bytes(pickle.dumps(value, protocol))
            after, refused = joined(trace, evil)
            assert len(refused) == 1
            assert "it was not executed" in refused[0]
            assert (after.activities["said_text_id"] == -1).all()
    assert not marker.exists()


@pytest.mark.parametrize("data", [
    b"", b"\x80", b"\x80\x04.", b"\x80\x04]\x94(K\x01", b"\x80\x04h\x05.", b"\x80\x04a.", b"\x80\x04}K\x01s.",
    b"\x80\x05\x96" + struct.pack("<Q", 1 << 62) + b"x.", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60),
    b"cos\nsystem\n(S'true'\ntR.", pickle.dumps(OrderedDict(a=1)), pickle.dumps({1: b"bytes"}), pickle.dumps({1: {2}}),
])  # fmt: skip
def test_what_is_no_plain_pickle_is_refused(data):
    with pytest.raises(NotPlain):
        read_plain(data)


def test_cut_off_files_are_refused_and_nothing_is_joined(tmp_path, trace):
    whole = pickle.dumps({(GRAPH << 32) | node: [{"name": f"layer {node}"}] for node in range(4)})
    path = tmp_path / "marks.pkl"
    for end in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:end])
        after, refused = joined(trace, path)
        assert len(refused) == 1
        assert (after.activities["said_text_id"] == -1).all()
    path.write_bytes(whole)
    after, refused = joined(trace, path)
    assert not refused
    texts = [after.strings[one] for one in after.activities["said_text_id"].tolist()]
    assert texts == [f"layer {node}" for node in range(4)]


def test_stacks_give_the_innermost_line_without_folders(tmp_path, trace):
    path = tmp_path / "a.stacks.json.gz"
    stacks = {str((GRAPH << 32) | k): f"/home/someone/net.py:{k + 10}:forward\n/x/run.py:3:main" for k in range(4)}
    path.write_bytes(gzip.compress(json.dumps(stacks).encode()))
    after, refused = joined(trace, path)
    assert not refused
    assert [after.strings[k] for k in after.activities["source_text_id"].tolist()] == [
        f"net.py:{k + 10}" for k in range(4)
    ]


def test_bombs_and_strange_texts_are_refused(tmp_path, trace):
    path = tmp_path / "a.stacks.json.gz"
    texts = [b"[" * 1_000_000, b"{}", b'{"a": 1}', b'{"1": 2}', b"not json", b"\x1f\x8b\x08broken", b"[1, 2]"]
    for text in [*texts, *map(gzip.compress, texts)]:
        path.write_bytes(text)
        after, refused = joined(trace, path)
        assert len(refused) == 1, text[:20]
        assert (after.activities["source_text_id"] == -1).all()
    with gzip.open(path, "wb") as stream:
        for _ in range(300):
            stream.write(b" " * (1 << 20))
    assert "holds more than it seems" in joined(trace, path)[1][0]


def test_a_missing_file_and_an_empty_folder_are_said(tmp_path, trace):
    assert joined(trace, tmp_path / "none.pkl")[1]
    (tmp_path / "empty").mkdir()
    assert joined(trace, tmp_path / "empty")[1]


def test_a_log_without_compiled_graphs_is_said(tmp_path, trace):
    path = tmp_path / "dedicated_log_torch_trace_1.log"
    path.write_text('V0101 00:00:00.000000 1 torch/x.py:1] {"artifact": {"name": "torch_version"}}\n\t{"a": 1}\n')
    assert "INDUCTOR_PROVENANCE" in joined(trace, path)[1][0]


@pytest.mark.parametrize("mappings", ["5", "[]", '{"cppCodeToPost": {"a:1": 5, "b:2": [1]}, "postToPre": 3}'])
@pytest.mark.parametrize("stacks", ["{}", '{"a:1": 7, "b:2": [{"x": 1}, null]}', "not json", "[" * 5000])
def test_a_log_with_values_of_other_types_ends_in_no_traceback(tmp_path, trace, mappings, stacks):
    path = tmp_path / "dedicated_log_torch_trace_1.log"
    head = 'V0101 00:00:00.000000 1 torch/x.py:1] {"artifact": {"name": "inductor_provenance_tracking_'
    path.write_text(f'{head}node_mappings"}}}}\n\t{mappings}\n{head}kernel_stack_traces"}}}}\n\t{stacks}\n')
    after, refused = joined(trace, path)
    assert len(refused) == 1 or set(after.compiled_calls["module"]) == {""}


def test_kernel_information_gives_source_lines(tmp_path, trace):
    path = tmp_path / "kernel_information.json"
    stack = '  File "/home/someone/net.py", line 4, in forward\n    x\n'
    path.write_text(json.dumps({"triton_poi_fused_add_0:1": {"stack_traces": [stack], "pre_grad_nodes": ["add"]}}))
    after, refused = joined(trace, path)
    assert not refused
    assert after.compiled_calls[["symbol", "source"]].to_numpy().tolist() == [["triton_poi_fused_add_0", "net.py:4"]]


def test_annotations_are_regions_below_their_phase():
    def text(said):
        return said_text(said_entries(said))

    assert text([{"name": "decoder"}, {"str": "attention"}]) == "decoder\nattention"
    assert text({"annotation": '[{"name": "decoder"}, 7, {"str": "attention"}]'}) == "decoder\nattention"
    assert text([{"name": "mlp", "autograd_phase": "backward", "stream": 3}]) == "backward\nmlp"
    assert text("plain") == "plain"
    assert text([{"Collective name": "allreduce"}, 7, None]) == ""


def test_places_name_no_folder_of_a_user():
    assert place_text("/home/someone/net.py", "3") == "net.py:3"
    assert place_text("C:\\Users\\someone\\net.py", "3") == "net.py:3"
    assert place_text("/x/site-packages/torch/nn/functional.py", "3") == "torch/nn/functional.py:3"
    assert innermost_place('  File "/a/run.py", line 1, in f\n  File "/a/net.py", line 2, in g\n') == "net.py:2"
    assert innermost_place(["/a/net.py:5:forward", "/a/run.py:1:main"]) == "net.py:5"
    assert innermost_place("nothing") == ""


UP = "self_modules_layers_modules_0_modules_up_parameters_weight_"
GRAPH_TEXT = f"""
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4]", L_{UP}: "f32[4]"):
        l_x_ = L_x_
        l_{UP} = L_{UP}
        # File: /home/someone/net.py:9 in forward, code: x = self.mlp(x) + x
        a: "f32[4]" = torch._C._nn.linear(l_x_, l_{UP})
        # File: /home/someone/net.py:5 in forward, code: x = gelu(x)
        b: "f32[4]" = torch.nn.functional.gelu(a)
        # File: /home/someone/net.py:6 in forward, code: return self.down(x)
        c: "f32[4]" = torch.conv2d(b, l_self_modules_layers_modules_0_modules_down_parameters_weight_)
        # File: /home/someone/net.py:9 in forward, code: x = self.mlp(x) + x
        d: "f32[4]" = c + l_x_
"""


def test_operations_without_weights_belong_to_the_module_that_calls_them():
    found = operations_of(GRAPH_TEXT)
    assert {name: one.module for name, one in found.items()} == {
        "a": "layers.0.up", "b": "layers.0", "c": "layers.0.down", "d": "layers.0",
    }  # fmt: skip
    assert found["b"].place == "net.py:5"


def test_operations_without_a_line_of_the_program_have_modules_all_the_same():
    """A model of torch's own modules only: torch writes no line of the user's."""
    text = re.sub(r" *# File: .*\n", "", GRAPH_TEXT)
    found = operations_of(text)
    assert {name: one.place for name, one in found.items()} == dict.fromkeys("abcd", "")
    assert [found[name].module for name in "abc"] == ["layers.0.up", "layers.0", "layers.0.down"]


GUARDS = """
| +- TYPE_MATCH: ___check_type_id(L['self']._modules['blocks']._modules['0'], 1), type=<class 'net.Block'>  # x = one(x)  # a/net.py:30 in forward
| | +- TYPE_MATCH: ___check_type_id(L['self']._modules['blocks']._modules['0']._modules['norm'], 2), type=<class 'net.Norm'>  # x = self.norm(x)  # a/net.py:9 in forward
| | +- DICT_CONTAINS: not ___dict_contains('forward', L['self']._modules['blocks']._modules['0']._modules['norm'].__dict__)  # x = self.norm(x)  # a/net.py:9 in forward
| | +- TYPE_MATCH: ___check_type_id(L['self']._modules['blocks']._modules['0']._modules['norm']._parameters, 3), type=<class 'dict'>  # return x * self.weight  # a/net.py:4 in forward
| | +- TYPE_MATCH: ___check_type_id(L['self']._modules['blocks']._modules['0']._modules['act'], 4), type=<class 'torch.nn.modules.activation.ReLU'>  # return self.act(x)  # a/net.py:10 in forward (HINT: type ReLU)
| | +- ID_MATCH: ___check_obj_id(G['torch'].relu, 5), type=<class 'x'>  # return self.act(x)  # a/net.py:10 in forward
"""  # noqa: E501
NORM = "l_self_modules_blocks_modules_0_modules_norm_parameters_weight_"
GUARDED = f"""
    def forward(self, L_x_: "f32[4]"):
        # File: /a/net.py:4 in forward, code: return x * self.weight
        square: "f32[4]" = l_x_.pow(2)
        scaled: "f32[4]" = square * {NORM}
        # File: /a/net.py:10 in forward, code: return self.act(x)
        relu: "f32[4]" = torch.nn.functional.relu(scaled, inplace = False)
        # File: /a/net.py:31 in forward, code: return torch.relu(x)
        last: "f32[4]" = torch.relu(relu)
"""


def test_guards_say_whose_code_a_line_is_and_which_modules_have_no_weights():
    said = modules_of(GUARDS)
    assert said.lines == {"": {"net.py:30"}, "blocks.0": {"net.py:9", "net.py:10"}, "blocks.0.norm": {"net.py:4"}}
    assert said.classes["blocks.0.act"] == "torch.nn.modules.activation.ReLU"
    found = {name: one.module for name, one in operations_of(GUARDED, said).items()}
    assert found == {"square": "blocks.0.norm", "scaled": "blocks.0.norm", "relu": "blocks.0.act", "last": ""}


def test_much_text_is_refused_without_being_held(tmp_path, trace, monkeypatch):
    monkeypatch.setattr("xsp_post.ingest.side_files._MOST_TEXT", 1 << 20)
    path = tmp_path / "a.stacks.json"
    path.write_text('{"1": "' + "x" * (4 << 20) + '"}')
    tracemalloc.start()
    after, refused = joined(trace, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused == ["a.stacks.json: holds more than 1 MiB of text"]
    assert peak < 4 << 20
    assert (after.activities["source_text_id"] == -1).all()
