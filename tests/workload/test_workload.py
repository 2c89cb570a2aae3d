"""The measured child: models, ranges, what is written, and that measuring does not change what is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (extra run)")

from torch import nn  # noqa: E402

import xsp_post  # noqa: E402
from xsp_post.base.errors import ToolError, UsageError  # noqa: E402
from xsp_post.model.capture import Workload  # noqa: E402
from xsp_post.model.levels import RUN_KERNEL, RUN_LAYER, RUN_MODEL  # noqa: E402
from xsp_post.names import range_text  # noqa: E402
from xsp_post.workload import facts, models, ranges  # noqa: E402
from xsp_post.workload.__main__ import main  # noqa: E402
from xsp_post.workload.catalogue import check_name  # noqa: E402
from xsp_post.workload.measure import Request, measure  # noqa: E402
from xsp_post.workload.recorder import Recording  # noqa: E402


class Recorder:
    """A sink that writes down what it is given."""

    def __init__(self):
        self.events = []

    def prepare(self, text, category, payload):
        return text, category, payload

    def push(self, prepared):
        self.events.append(("push", *prepared))

    def pop(self, shape):
        self.events.append(("pop", shape))


class Shared(nn.Module):
    """One layer called twice, one inside a container, functional work between them."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x):
        return self.block(torch.sin(self.twice(self.twice(x))))


def hook_count(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_every_call_of_every_layer_is_a_range_in_order():
    model, sink = Shared(), Recorder()
    layers = ranges.LayerRanges(model, sink)
    for _ in range(2):
        layers.begin_iteration()
        model(torch.zeros(3, 4))
    once = [
        ("push", "twice:Linear#0", "layer", 0), ("pop", (3, 4)),
        ("push", "twice:Linear#1", "layer", 1), ("pop", (3, 4)),
        ("push", "block:Sequential#0", "layer", 0),
        ("push", "block.0:ReLU#0", "layer", 0), ("pop", (3, 4)),
        ("push", "block.1:Linear#0", "layer", 0), ("pop", (3, 2)),
        ("pop", (3, 2)),
    ]  # fmt: skip
    assert sink.events == once * 2
    layers.remove()
    assert hook_count(model) == 0


def test_a_layer_that_raises_still_ends_its_range():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    model, sink = nn.Sequential(nn.Sequential(nn.ReLU(), Broken())), Recorder()
    ranges.LayerRanges(model, sink)
    with pytest.raises(ValueError):
        model(torch.zeros(1))
    kinds = [event[0] for event in sink.events]
    assert kinds.count("push") == kinds.count("pop") == 3


def test_what_is_a_layer_can_be_chosen():
    model = nn.Sequential(Shared(), nn.Sequential(nn.Linear(2, 2), Shared()))
    paths = [path for path, _ in ranges.select_layers(model)]
    assert paths == ["0.twice", "0.block.0", "0.block.1", "1.0", "1.1.twice", "1.1.block.0", "1.1.block.1"]
    assert [path for path, _ in ranges.select_layers(model, depth=1)] == ["0", "1"]
    assert [path for path, _ in ranges.select_layers(model, depth=2)] == ["0.twice", "0.block", "1.0", "1.1"]
    assert [path for path, _ in ranges.select_layers(model, depth=0)] == [""]
    assert [path for path, _ in ranges.select_layers(model, kinds=["Shared"])] == ["0", "1.1"]
    containers = ranges.select_containers(model, ranges.select_layers(model))
    assert [path for path, _ in containers] == ["0", "0.block", "1", "1.1", "1.1.block"]
    with pytest.raises(UsageError) as caught:
        ranges.select_layers(model, kinds=["Linea"])
    assert caught.value.code == "layer-kind" and "Linear" in caught.value.hint


def test_attention_that_calls_no_children_is_one_layer():
    model = nn.Sequential(nn.MultiheadAttention(8, 2))
    assert [path for path, _ in ranges.select_layers(model)] == ["0"]


@pytest.mark.parametrize("to", ["torch", "auto"])
def test_ranges_in_a_users_program_reach_torchs_profiler_and_go_afterwards(to):
    model = Shared()
    with torch.profiler.profile() as profile, xsp_post.ranges(model, to=to):
        for _ in range(2):
            model(torch.zeros(3, 4))
    names = [event.name for event in profile.events() if event.name.startswith(range_text.PREFIX)]
    parsed = [range_text.parse(name) for name in names]
    assert None not in parsed
    assert [p.index for p in parsed if p.kind == "model"] == [0, 1]
    assert [(p.name, p.index) for p in parsed if p.kind == "layer"] == [
        ("twice", 0), ("twice", 1), ("block", 0), ("block.0", 0), ("block.1", 0)] * 2  # fmt: skip
    assert hook_count(model) == 0


def test_ranges_go_to_the_domain_xsp_of_nvtx(monkeypatch):
    nvtx = pytest.importorskip("nvtx", reason="nvtx is not installed (extra run)")
    seen = []

    class Domain:
        def get_event_attributes(self, message, category, payload):
            return (category, message, payload)

        def push_range(self, attributes):
            seen.append(("push", *attributes))

        def mark(self, attributes):
            seen.append(("mark", *attributes))

        def pop_range(self):
            seen.append(("pop",))

    domains = []
    monkeypatch.setattr(nvtx, "get_domain", lambda name: domains.append(name) or Domain())
    model = nn.Sequential(nn.Linear(4, 2))
    with xsp_post.ranges(model):
        model(torch.zeros(8, 4))
    assert domains == ["xsp"]
    assert seen == [
        ("push", "model", "model:forward#0", 8),
        ("push", "layer", "0:Linear#0", 0),
        ("mark", "shape", "shape:[8,2] flop:128 bytes:232", 0),  # 2 · 8 · 4 · 2; 4 · (32 + 16 + 10)
        ("pop",),
        ("pop",),
    ]


class Own(nn.Module):
    def forward(self, x):
        return x @ x.mT


@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2), (2, 6, 9, 9)), (nn.Conv1d(4, 4, 3, bias=False), (1, 4, 10)),
        (nn.ConvTranspose2d(4, 6, 2, stride=2), (2, 4, 5, 5)), (nn.Linear(7, 3), (2, 5, 7)),
        (nn.BatchNorm2d(4), (2, 4, 3, 3)), (nn.ReLU(), (2, 9)), (nn.LayerNorm(8), (3, 8)),
    ],
)  # fmt: skip
def test_work_said_from_sizes_is_what_torch_counts(layer, sizes):
    from torch.utils.flop_counter import FlopCounterMode

    from xsp_post.workload.models import sized_work

    x = torch.rand(sizes)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        y = layer.eval()(x)
    held = sum(t.numel() * t.element_size() for t in (x, y, *layer.parameters(), *layer.buffers()))
    assert sized_work(layer, (x,), y) == (counter.get_total_flops(), held)


def test_nothing_is_said_of_the_work_of_modules_that_may_do_anything():
    from xsp_post.workload.models import sized_work

    x = torch.rand(2, 3, 8)
    assert sized_work(Own(), (x,), Own()(x)) is None
    assert sized_work(nn.Sequential(nn.Linear(8, 8)), (x,), x) is None
    attention = nn.MultiheadAttention(8, 2)
    assert sized_work(attention, (x, x, x), attention(x, x, x)) is None


def test_ranges_work_with_the_real_nvtx_and_no_tool():
    pytest.importorskip("nvtx", reason="nvtx is not installed (extra run)")
    model = Shared()
    with xsp_post.ranges(model):
        model(torch.zeros(3, 4))
    assert hook_count(model) == 0


def test_hooks_go_also_when_the_program_raises():
    model = Shared()
    with pytest.raises(RuntimeError), xsp_post.ranges(model, to="torch"):
        model(torch.zeros(3, 5))
    assert hook_count(model) == 0


def test_a_compiled_model_and_an_unknown_sink_are_refused_with_the_reason():
    model = Shared()
    model._orig_mod = model  # what torch.compile's wrapper has
    with pytest.raises(UsageError) as caught, xsp_post.ranges(model):
        pass
    assert caught.value.code == "layers-compiled"
    with pytest.raises(UsageError), xsp_post.ranges(Shared(), to="nsys"):
        pass


@pytest.mark.parametrize(("name", "parameter_count", "layer_count", "giga_flops"), [
    # parameters and multiply-adds as the papers and torchvision give them
    ("resnet50", 25_557_032, 175, 2 * 4.089),
    ("mobilenet_v1", 4_231_976, 84, 2 * 0.5687),
    ("vgg16", 138_357_544, 39, 2 * 15.47),
])  # fmt: skip
def test_built_in_models_are_the_published_ones(name, parameter_count, layer_count, giga_flops):
    built = models.build(Workload(name), 2)
    assert sum(parameter.numel() for parameter in built.model.parameters()) == parameter_count
    counted, way, allocated = facts.layer_facts(built, -1, (), True)
    assert len(counted["layer_path"]) == layer_count and way == "counted on a copy without data"
    assert sum(counted["flop_count"]) / 2e9 == pytest.approx(giga_flops, rel=2e-3)
    assert allocated == facts.OUTPUTS


def test_resnet50_is_v1_5_the_stride_is_in_the_3x3_convolution():
    block = models.build(Workload("resnet50"), 1).model.get_submodule("layer2.0")
    assert block.conv1.stride == (1, 1) and block.conv2.stride == (2, 2)


def test_facts_of_one_layer_by_hand():
    built = models.build(Workload("resnet50"), 8)
    counted, _, _ = facts.layer_facts(built, -1, (), True)
    assert (counted["layer_path"][0], counted["layer_type"][0], counted["call_index"][0]) == ("conv1", "Conv2d", 0)
    assert counted["shape_text"][0] == "[8,64,112,112]"
    assert counted["flop_count"][0] == 2 * 8 * 64 * 112 * 112 * 3 * 7 * 7
    inputs, weights, outputs = 8 * 3 * 224 * 224 * 4, 64 * 3 * 7 * 7 * 4, 8 * 64 * 112 * 112 * 4
    assert counted["least_bytes"][0] == inputs + weights + outputs
    assert counted["allocated_bytes"][0] == outputs


def test_an_embedding_reads_the_rows_it_looks_up_and_not_its_table():
    built = models.build(Workload("gpt", input_shape=(16,)), 2)
    counted, _, _ = facts.layer_facts(built, -1, (), True)
    at = counted["layer_path"].index("tokens")
    width = built.model.get_submodule("tokens").embedding_dim
    assert counted["least_bytes"][at] == 2 * 16 * (8 + 2 * 4 * width)  # indices, rows in, rows out


def test_equal_seeds_build_equal_models_and_hooks_do_not_change_the_result():
    one, other = (models.build(Workload("mobilenet_v1", seed=3), 1) for _ in range(2))
    with torch.inference_mode():
        expected = one.phases[0].run()
        layers = ranges.LayerRanges(other.model, Recorder())
        assert torch.equal(expected, other.phases[0].run())
        layers.remove()
        assert not torch.equal(expected, models.build(Workload("mobilenet_v1", seed=4), 1).phases[0].run())


def test_gpt_decodes_with_its_cache_what_a_whole_prefill_would_say():
    built = models.build(Workload("gpt", input_shape=(9,)), 2)
    tokens = torch.randint(100, (2, 9))
    with torch.inference_mode():
        whole = built.model(tokens, 0)
        built.model(tokens[:, :8], 0)
        assert torch.allclose(built.model(tokens[:, 8:], 8), whole, atol=1e-5)
    assert [phase.name for phase in built.phases] == ["prefill", "decode"]


def run_child(tmp_path, *arguments: str) -> int:
    given = {name.removeprefix("--").replace("-", "_"): text for name, text in zip(arguments[::2], arguments[1::2])}
    levels = [(given.pop("level"), given.pop("profiler", "none"), str(tmp_path))]
    request = {"levels": levels, "command_id": 0, "batch_size": int(given.pop("batch_size")), "repeat": 0}
    return main([json.dumps({**request, "workload": {"warmup_count": 1, "iteration_count": 2, **given}})])


def spans_of(folder: Path) -> tuple[list[str], dict]:
    values = json.loads((folder / "spans.json").read_text())
    return [values["texts"][i] for i in values["text_indexes"]], values


def test_level_m_reads_the_clock_twice_an_iteration_and_nothing_else(tmp_path):
    assert run_child(tmp_path, "--model", "mobilenet_v1", "--level", RUN_MODEL, "--batch-size", "1") == 0
    texts, values = spans_of(tmp_path)
    assert texts == ["warmup:forward#0", "model:forward#0", "model:forward#1"]
    assert all(end > start for start, end in zip(values["start_ns"], values["end_ns"]))
    assert "layers" not in json.loads((tmp_path / "facts.json").read_text())


def test_level_ml_nests_layers_in_modules_in_the_model(tmp_path):
    assert run_child(tmp_path, "--model", "gpt", "--level", RUN_LAYER, "--batch-size", "2") == 0
    texts, values = spans_of(tmp_path)
    assert texts[:3] == ["warmup:prefill#0", "tokens:Embedding#0", "positions:Embedding#0"]
    assert texts.count("blocks.0.attention.qkv:Linear#0") == 2 * 3  # prefill and decode, 1 + 2 iterations
    assert not any(text.endswith(":Linear#1") for text in texts), "calls count from 0 in every phase"
    block, qkv = texts.index("blocks.0:Block#0"), texts.index("blocks.0.attention.qkv:Linear#0")
    assert values["start_ns"][block] <= values["start_ns"][qkv] < values["end_ns"][qkv] <= values["end_ns"][block]
    layers = json.loads((tmp_path / "facts.json").read_text())["layers"]
    assert set(layers["phase"]) == {"prefill", "decode"}


def test_level_mlg_exports_a_trace_without_the_hosts_name(tmp_path):
    import gzip
    import socket

    assert run_child(tmp_path, "--model", "gpt", "--level", RUN_KERNEL, "--batch-size", "1", "--profiler", "torch") == 0
    text = gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()
    trace = json.loads(text)
    assert trace.get("host_name", "") == "" != socket.gethostname()
    own = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
    assert own.count("xsp/model:decode#1") == 1 and own.count("xsp/warmup:prefill#0") == 1
    assert not (tmp_path / "trace.json").exists()


def test_training_steps_are_one_phase_and_train(tmp_path):
    factory = tmp_path / "net.py"
    factory.write_text("import torch\ndef net(batch_size):\n"
                       "    return torch.nn.Linear(4, 2), torch.ones(batch_size, 4)\n")  # fmt: skip
    built = models.build(Workload(f"{factory}:net", mode="train"), 3)
    before = built.model.weight.detach().clone()
    built.phases[0].run()
    assert [phase.name for phase in built.phases] == ["train_step"]
    assert not torch.equal(before, built.model.weight)


def test_forward_backward_and_optimizer_of_a_training_step_are_apart(tmp_path):
    factory = tmp_path / "net.py"
    factory.write_text("import torch\ndef net():\n    return torch.nn.Linear(4, 2), torch.ones(1, 4)\n")
    arguments = ["--model", f"{factory}:net", "--mode", "train", "--batch-size", "1"]
    assert run_child(tmp_path, *arguments, "--level", RUN_LAYER) == 0
    texts, values = spans_of(tmp_path)
    step = ["model:train_step#1", "forward", "(root):Linear#0", "backward", "optimizer"]
    assert texts[-5:] == step
    start, end = values["start_ns"][-5:], values["end_ns"][-5:]
    assert start == sorted(start) and end[1] <= start[3] and end[3] <= start[4] and end[4] <= end[0]
    assert run_child(tmp_path, *arguments, "--level", RUN_MODEL) == 0
    assert set(spans_of(tmp_path)[0]) == {"warmup:train_step#0", "model:train_step#0", "model:train_step#1"}


def test_factories_may_name_their_own_phases(tmp_path):
    factory = tmp_path / "net.py"
    factory.write_text("import torch\ndef net():\n    m = torch.nn.Linear(4, 2)\n    x = torch.ones(1, 4)\n"
                       "    return m, x, {'encode': lambda: m(x), 'decode': lambda: m(x)}\n")  # fmt: skip
    assert run_child(tmp_path, "--model", f"{factory}:net", "--level", RUN_LAYER, "--batch-size", "1") == 0
    texts, _ = spans_of(tmp_path)
    assert "model:encode#0" in texts and "model:decode#1" in texts and "(root):Linear#0" in texts
    written = json.loads((tmp_path / "facts.json").read_text())
    assert written["layers"]["phase"] == ["encode", "decode"] and written["layers"]["flop_count"] == [16, 16]


@pytest.mark.parametrize(("name", "offer"), [("resnet", "resnet50"), ("vgg", "vgg16"), ("ResNet50", "resnet50")])
def test_an_unknown_model_offers_names_close_to_it(name, offer):
    with pytest.raises(UsageError) as caught:
        check_name(name)
    assert caught.value.code == "model-unknown" and offer in caught.value.message


def test_names_of_files_and_packages(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        check_name(str(tmp_path / "none.py:build"))
    (tmp_path / "net.py").write_text("def other(): pass\nclass Wrong: pass\n")
    with pytest.raises(UsageError, match="Did you mean other"):
        models.build(Workload(f"{tmp_path}/net.py:othr"), 1)
    with pytest.raises(UsageError, match="not \\(module, inputs\\)"):
        models.build(Workload(f"{tmp_path}/net.py:other"), 1)
    if subprocess.run([sys.executable, "-c", "import timm"], capture_output=True, check=False).returncode:
        with pytest.raises(ToolError) as caught:
            models.build(Workload("timm:resnet18"), 1)
        assert caught.value.code == "model-package"


def test_out_of_memory_is_told_apart_from_a_defect(tmp_path):
    factory = tmp_path / "net.py"
    factory.write_text("import torch\ndef big(batch_size):\n"
                       "    return torch.nn.Linear(4, 2), torch.ones(batch_size * 2**46, 4)\n"
                       "def wrong():\n    raise RuntimeError('a defect')\n")  # fmt: skip
    assert run_child(tmp_path, "--model", f"{factory}:big", "--level", RUN_MODEL, "--batch-size", "1") == 12
    assert json.loads((tmp_path / "failure.json").read_text())["kind"] == "out_of_memory"
    with pytest.raises(RuntimeError, match="a defect"):
        run_child(tmp_path, "--model", f"{factory}:wrong", "--level", RUN_MODEL, "--batch-size", "1")


def test_usage_errors_leave_their_sentence(tmp_path):
    code = run_child(tmp_path, "--model", "gpt", "--mode", "train", "--level", RUN_MODEL, "--batch-size", "1")
    failure = json.loads((tmp_path / "failure.json").read_text())
    assert code == 2 and failure["code"] == "model-input"
    assert run_child(tmp_path, "--model", "vgg16", "--dtype", "int8", "--level", RUN_MODEL, "--batch-size", "1") == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_device_that_is_not_there_is_said(tmp_path):
    arguments = ["--model", "gpt", "--device", "cuda", "--level", RUN_MODEL, "--batch-size", "1"]
    assert run_child(tmp_path, *arguments) == 2
    assert json.loads((tmp_path / "failure.json").read_text())["code"] == "device-missing"


def test_model_latency_agrees_with_a_plain_timing_loop(tmp_path, monkeypatch):
    """Level M is a loop around the same model; the thread's CPU time, interleaved, best of many, over as many turns as
    this shared machine needs."""
    monkeypatch.setattr(ranges, "time", types.SimpleNamespace(perf_counter_ns=time.thread_time_ns))
    factory = tmp_path / "net.py"
    factory.write_text("import torch\ndef net():\n"
                       "    m = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])\n"
                       "    return m, torch.ones(64, 512)\n")  # fmt: skip
    workload = Workload(f"{factory}:net", warmup_count=5, iteration_count=60, thread_count=1)
    built = models.build(workload, 1)
    measured_ns, plain_ns = [], []
    for turn in range(1, 22):
        measure(Request(workload, 1, (Recording(RUN_MODEL, "none", tmp_path),)))
        texts, values = spans_of(tmp_path)
        measured_ns += [end - start for text, start, end in zip(texts, values["start_ns"], values["end_ns"])
                        if text.startswith("model:")]  # fmt: skip
        with torch.inference_mode():
            for _ in range(65):
                start = time.thread_time_ns()
                built.phases[0].run()
                plain_ns.append(time.thread_time_ns() - start)
        ratio = min(measured_ns) / min(plain_ns)
        if turn >= 3 and abs(ratio - 1) <= 0.05:
            return
    pytest.fail(f"the ratio of the best is {ratio:.3f}")


def test_models_of_other_packages_are_built_without_weights(monkeypatch):
    """Stand-ins for the packages: names are checked, nothing is downloaded, inputs have the model's shape."""
    asked = []

    class Config:
        vocab_size = 11

    class TinyModel(nn.Module):
        config_class = Config

        def __init__(self, config):
            super().__init__()
            self.config, self.embedding = config, nn.Embedding(11, 2)

        def forward(self, tokens):
            return self.embedding(tokens)

    def named(name, weights="none asked"):
        asked.append(weights)
        return nn.Sequential(nn.Conv2d(3, 1, 3))

    def created(name, pretrained):
        asked.append(pretrained)
        model = nn.Sequential(nn.Conv2d(1, 1, 3))
        model.default_cfg = {"input_size": (1, 8, 8)}
        return model

    vision = types.SimpleNamespace(list_models=lambda: ["resnet18"], get_model=named)
    packages = {
        "torchvision": types.SimpleNamespace(models=vision),
        "timm": types.SimpleNamespace(list_models=lambda: ["tiny"], create_model=created),
        "transformers": types.SimpleNamespace(TinyModel=TinyModel),
    }
    monkeypatch.setattr(models.importlib, "import_module", packages.__getitem__)
    with torch.inference_mode():
        for name, shape in (("torchvision:resnet18", (2, 1, 222, 222)), ("timm:tiny", (2, 1, 6, 6)),
                            ("transformers:TinyModel", (2, 64, 2))):  # fmt: skip
            assert models.build(Workload(name), 2).phases[0].run().shape == shape
    assert asked == [None, False]
    with pytest.raises(UsageError, match="Did you mean resnet18"):
        models.build(Workload("torchvision:resnet81"), 1)


def test_functional_work_between_layers_counts_for_the_module_around_it():
    """Residual additions, functional products and attention; a view moves nothing."""

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x):
            return x + self.one(x).view(-1).view(4, 8)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = Inner(), nn.Linear(8, 2)

        def forward(self, x):
            y = self.inner(self.inner(x))
            y = torch.flatten(torch.matmul(y, y.transpose(0, 1)) @ y, 1)
            return self.last(y)

    model = Outer()
    step = models.Phase("forward", lambda: None, lambda module, device: module(torch.zeros(4, 8, device=device)))
    counted = facts.functional_facts(models.Built(model, (step,)), -1, ())
    rows = dict(
        zip(zip(counted["layer_path"], counted["call_index"]), zip(counted["flop_count"], counted["least_bytes"]))
    )
    addition = 4 * 3 * 32
    products = 4 * (32 + 32 + 16) + 4 * (16 + 32 + 32)
    assert rows == {
        ("inner", 0): (0, addition),
        ("inner", 1): (0, addition),
        ("", -1): (2 * 4 * 4 * 8 + 2 * 4 * 8 * 4, products),
    }


def test_a_strided_convolution_reads_what_it_reads():
    from xsp_post.workload.models import sized_work

    layer, x = nn.Conv2d(16, 32, 1, stride=2, bias=False), torch.rand(2, 16, 8, 8)
    y = layer(x)
    assert sized_work(layer, (x,), y)[1] == 4 * (2 * 16 * 4 * 4 + 16 * 32 + y.numel())
