"""Files beside a trace from strangers: a sentence, nothing executed, nothing half-joined."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import struct
import tracemalloc
from collections import Counter, OrderedDict, defaultdict
from dataclasses import replace

import pytest
from generators.graph_traces import Recording

from xsp_post.ingest.side_files import NotPlain, read_plain, said_entries, said_text, with_side_files
from xsp_post.ingest.side_files.inductor import (
    MAPPED,
    _calls,
    _user,
    _users_of_weights,
    _weights_of_calls,
    innermost_place,
)
from xsp_post.ingest.side_files.modules import Operation, modules_of, operations_of, place_text
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
    for made in (value, defaultdict(list, value), OrderedDict(value)):
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
    b"cos\nsystem\n(S'true'\ntR.", pickle.dumps(Counter(a=1)), pickle.dumps({1: b"bytes"}), pickle.dumps({1: {2}}),
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


@pytest.mark.guard
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


def test_a_missing_file_ends_the_command_and_an_empty_folder_is_said(tmp_path, trace):
    with pytest.raises(FileNotFoundError, match=r"none\.pkl"):
        joined(trace, tmp_path / "none.pkl")
    (tmp_path / "empty").mkdir()
    assert joined(trace, tmp_path / "empty")[1]


def test_files_in_a_folder_are_known_by_how_they_begin(tmp_path, trace):
    """Whatever they are called, compressed or not; traces and notes beside them are passed over."""
    folder = tmp_path / "out" / "run_1"
    folder.mkdir(parents=True)
    keys = [(GRAPH << 32) | node for node in range(4)]
    said = pickle.dumps({key: [{"name": f"layer {key & 7}"}] for key in keys})
    (folder / "marks.gz").write_bytes(gzip.compress(said))  # not a name of such files
    (folder / "marks.pkl.gz").write_bytes(gzip.compress(said))
    (folder / "py.json").write_text(json.dumps({str(key): "/a/net.py:7:forward" for key in keys}, indent=1))
    (folder / "config.json").write_text('{"model": {"layers": 3}}')
    (folder / "trace.json").write_text('{"traceEvents": []}')
    (folder / "notes.txt").write_text("notes")
    after, refused = joined(trace, tmp_path / "out")
    assert not refused
    columns = ("said_text_id", "source_text_id")
    assert [[after.strings[one] for one in after.activities[name].tolist()] for name in columns] == [
        [f"layer {node}" for node in range(4)], ["net.py:7"] * 4,
    ]  # fmt: skip
    (folder / "py.json").unlink()
    (folder / "marks.pkl.gz").unlink()
    assert joined(trace, tmp_path / "out")[1] == ["out: holds no file that PyTorch writes beside a trace"]


def test_a_folder_may_state_the_rank_of_its_files(tmp_path, trace):
    """``side/rank_1/marks.pkl`` is of no other rank's recording, though the numbers of its nodes are the same."""
    mine = replace(trace, processes=trace.processes.assign(rank=0))
    for rank in (0, 1):
        folder = tmp_path / "side" / f"rank_{rank}"
        folder.mkdir(parents=True)
        said = {(GRAPH << 32) | node: [{"name": f"layer {node} of {rank}"}] for node in range(4)}
        (folder / "marks.pkl").write_bytes(pickle.dumps(said))
    after, refused = joined(mine, tmp_path / "side")
    assert not refused
    assert after.strings[after.activities["said_text_id"].iloc[3]] == "layer 3 of 0"


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
    path.write_text('{"triton_poi_fused_add_0:1": {"stack_traces": 5}}')
    assert "INDUCTOR_PROVENANCE" in joined(trace, path)[1][0]


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


def guard(path, rest, code, place, kind="", number=7):
    """A line of guards as torch writes it."""
    modules = "".join(f"._modules['{name}']" for name in path.split(".") if name)
    what = (
        f"___check_type_id(L['self']{modules}, {number}), type=<class '{kind}'>"
        if kind
        else f"L['self']{modules}{rest}"
    )
    return f"| +- TYPE_MATCH: {what}  # {code}  # {place} in forward"


def weight(path, kind="parameters", name="weight"):
    return "l_self_" + "".join(f"modules_{one}_" for one in path.split(".") if one) + f"{kind}_{name}_"


def graph_of(*lines):
    """Places (``file.py:3``) and operations, as text of a graph."""
    is_place = re.compile(r"\w+\.py:\d+")
    rows = [f"# File: /a/{one} in forward, code: x" if is_place.fullmatch(one) else one for one in lines]
    return "\n".join(f"    {row}" for row in rows)


def found_in(graph, *guards):
    return {name: one.module for name, one in operations_of(graph, modules_of("\n".join(guards))).items()}


def test_equal_modules_in_a_row_begin_and_end_alike():
    """Each block: ``return x + self.scale * self.up(x)``, or ``return self.scale * self.up(x * 2)``, in one line."""
    guards = [guard(f"body.{k}", "._parameters", "return x", "a/net.py:14") for k in range(2)]
    guards += [guard(f"body.{k}.up", "", "return x", "a/net.py:14", "torch.nn.modules.linear.Linear") for k in range(2)]

    def rows(begin, end):
        for k in range(2):
            yield from [f'b{k}: "f32[4]" = x * 2'] * begin
            yield f'u{k}: "f32[4]" = linear(x, {weight(f"body.{k}.up")})'
            yield f'm{k}: "f32[4]" = {weight(f"body.{k}", name="scale")} * u{k}'
            yield from [f'e{k}: "f32[4]" = x + m{k}'] * end

    for begin, end in ((0, 1), (1, 0), (1, 1)):
        found = found_in(graph_of("net.py:14", *rows(begin, end)), *guards)
        assert {name: module for name, module in found.items() if name[0] != "u"} == {
            f"{name}{k}": f"body.{k}" for k in range(2) for name in "b" * begin + "m" + "e" * end
        }


def test_a_module_of_torch_is_known_by_the_function_that_its_code_calls():
    guards = (
        guard("", "._modules", "return self.act(self.up(x))", "a/net.py:3"),
        guard("act", "", "return self.act(self.up(x))", "a/net.py:3", "torch.nn.modules.activation.ReLU6"),
        guard("act", ".inplace == False", "return F.hardtanh(input, self.min_val)", "nn/modules/activation.py:294"),
    )
    graph = graph_of(
        "net.py:3", f'a: "f32[4]" = linear(x, {weight("up")})', 'b: "f32[4]" = functional.hardtanh(a, 0.0)'
    )
    assert found_in(graph, *guards) == {"a": "up", "b": "act"}


def test_torchs_own_code_calls_the_modules_of_a_class_above_a_list():
    """``class Block(nn.Sequential)`` without code of its own: what it holds is called where it is called."""
    guards = (
        guard("block", "", "x = self.block(x)", "a/net.py:3", "net.Block"),
        guard("block.0", "", "input = module(input)", "nn/modules/container.py:253", "torch.nn.modules.linear.Linear"),
        guard(
            "block.1", "", "input = module(input)", "nn/modules/container.py:253", "torch.nn.modules.activation.SiLU"
        ),
    )
    graph = graph_of("net.py:3", f'a: "f32[4]" = linear(x, {weight("block.0")})', 'b: "f32[4]" = functional.silu(a)')
    assert found_in(graph, *guards) == {"a": "block.0", "b": "block.1"}


def test_an_operation_with_weights_of_several_modules_is_of_the_one_around_them():
    graph = graph_of("net.py:3", f'a: "f32[4]" = torch._layer(x, {weight("layers.1.attn")}, {weight("layers.1.norm")})')
    assert found_in(graph) == {"a": "layers.1"}


def test_weights_that_are_handed_down_or_shared_do_not_say_whose_code_it_is():
    linear, call = "torch.nn.modules.linear.Linear", "x = self.layer(x, self.cos)"
    guards = (
        guard("", "._buffers", call, "a/net.py:50"),
        guard("embed", "", "self.embed(x)", "a/net.py:49", "torch.nn.modules.sparse.Embedding"),
        guard("attn", "", call, "a/net.py:50", "net.Attention"),
        guard("attn.q", "", "q = self.q(x)", "a/net.py:20", linear),
        guard("attn.o", "", "return self.o(q)", "a/net.py:23", linear),
        guard("head", "", "return self.head(x)", "a/net.py:51", linear),
    )
    graph = graph_of(
        "net.py:49", f'a: "f32[4]" = functional.embedding(x, {weight("embed")})',
        "net.py:20", f'q: "f32[4]" = linear(a, {weight("attn.q")})',
        "net.py:21", f'c: "f32[4]" = q * {weight("", "buffers", "cos")}',
        "net.py:23", f'o: "f32[4]" = linear(c, {weight("attn.o")})',
        "net.py:51", f'h: "f32[4]" = linear(o, {weight("embed")})',
    )  # fmt: skip
    assert found_in(graph, *guards) == {"a": "embed", "q": "attn.q", "c": "attn", "o": "attn.o", "h": "head"}


def test_gradients_of_a_shared_weight_belong_to_the_module_at_their_line():
    """The weight of an embedding is that of the head, too: its name says one of them."""
    linear = "torch.nn.modules.linear.Linear"
    guards = (
        guard("embed", "", "self.embed(x)", "a/net.py:4", "torch.nn.modules.sparse.Embedding"),
        guard("head", "", "return self.head(x)", "a/net.py:5", linear),
    )
    graph = graph_of(
        "net.py:4", f'a: "f32[4]" = functional.embedding(x, {weight("embed")})',
        "net.py:5", f'h: "f32[4]" = linear(a, {weight("embed")})',
    )  # fmt: skip
    users = _users_of_weights(operations_of(graph, modules_of("\n".join(guards))))
    assert users == {"embed": {"net.py:4": "embed", "net.py:5": "head"}}
    stack = '  File "/a/net.py", line {}, in forward\n'
    assert [_user(users["embed"], [stack.format(line)]) for line in (4, 5)] == ["embed", "head"]
    added = stack.format(4) + "Gradient addition node due to multiple use of tensor around:"
    assert [_user(users["embed"], stacks) for stacks in ([added], [stack.format(9)], [])] == ["", "", ""]
    assert _user({"a.py:1": "net.embed", "a.py:2": "net.head"}, []) == "net"


def test_a_table_that_is_handed_down_says_nothing_of_a_call_in_a_graph_of_gradients():
    code = "".join(f"# [Provenance debug handles] k:{n}\n  k(primals_{n}, buf{n})\n" for n in (1, 2, 3))
    inputs = ["L_self_buffers_cos_", "L_self_modules_layers_modules_0_modules_q_parameters_weight_",
              "L_self_modules_norm_buffers_mean_"]  # fmt: skip
    assert _weights_of_calls(code, inputs) == {"k:1": [], "k:2": ["layers.0.q"], "k:3": ["norm"]}


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


def test_what_a_library_computes_is_no_work_of_fused_kernels_and_lines_are_of_the_module():
    """A kernel of pooling after a convolution, which a library runs; a norm with a sum of four lines before it."""
    frame = 'File "/a/net.py", line {}, in forward'.format
    operations = {
        "conv": Operation("net.py:10", "body.conv", True), "relu": Operation("net.py:18", "stem", False),
        "pool": Operation("net.py:18", "pool", False), "norm": Operation("net.py:21", "n1", True),
        "norm_1": Operation("net.py:21", "n1", True), "add": Operation("net.py:29", "", False),
    }  # fmt: skip
    mappings = {
        MAPPED: {"cpp_fused_convolution_relu:1": ["convolution", "relu_1", "pool_1"],
                 "extern_kernels.convolution:2": ["convolution"], "cpp_fused_norm:3": ["norm_1", "add_1", "norm_2"]},
        "postToPre": {"convolution": ["conv"], "relu_1": ["relu"], "pool_1": ["pool"], "norm_1": ["norm"],
                      "norm_2": ["norm_1"], "add_1": ["add"]},
    }  # fmt: skip
    stacks = {
        "cpp_fused_convolution_relu:1": [frame(10), frame(18), frame(18)], "extern_kernels.convolution:2": [frame(10)],
        "cpp_fused_norm:3": [frame(29), frame(29), frame(29), frame(21)],
    }  # fmt: skip
    pooled, convolved, normed = _calls("", mappings, stacks, operations, [])
    assert set(pooled.modules) == {"stem", "pool"} and convolved.module == "body.conv"
    assert (normed.module, normed.source) == ("n1", "net.py:21")
