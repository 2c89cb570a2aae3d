"""Compiled programs, recorded: each kernel must lie in the module whose operations it computes.

`record` runs one program of `generators.compiled_models` on a CPU, eager and compiled, and keeps what is read: a trace
of two steps, the compiler's log, and the truth. The truth is what the compiler itself holds in memory, and writes to no
file: the modules (``nn_module_stack``) of the operations that went into each kernel. From the eager run it has the
modules whose code made products, in the order of the first product of each.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from xsp_post.names.compiled import symbol_of

DATA = Path(__file__).parent / "data" / "compiled"
NAMES = (
    "mlp",
    "cnn",
    "decoder",
    "gated",
    "experts",
    "lstm",
    "unet",
    "mlp_training",
    "cnn_training",
    "decoder_training",
)
TRACE, TRUTH = "run.pt.trace.json.gz", "truth.json"
_SETTINGS = {"INDUCTOR_PROVENANCE": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
             "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # fmt: skip
_KEPT = re.compile(r'"(?:dynamo_output_graph|dynamo_cpp_guards_str|inductor_output_code|inductor_provenance_\w+)"')
_VIEW = re.compile(r"getitem|aten\.(?:view|reshape|permute|expand|select|slice|transpose|t|unsqueeze|squeeze|split\w*|"
                   r"unbind|as_strided|alias)\.")  # fmt: skip
_LEFT_OUT = re.compile(r"\t[| ]*\+- (?:DICT_|KeyM|EQUALS|ID_|DIMENSION|NO_|TENSOR_AL|GuardM)|"
                       r"\t\s*(?:assert_size|del |#include|auto |for\()")  # fmt: skip
# Products of one module each; the last two are layers of torch whose products are one call in eager mode.
_FUSED_LAYERS = ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
_PRODUCTS = ("mm", "addmm", "convolution", "_convolution", *_FUSED_LAYERS)


# ---------------------------------------------------------------- recording


def record(name: str, folder: Path) -> None:
    """Run the program in a process of its own; about 25 s of processor time."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **_SETTINGS, "TORCH_TRACE": str(folder / "run_torch_trace")}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, __file__, name, str(folder)], env=environment, check=True, capture_output=True)
    for log in list((folder / "run_torch_trace").iterdir()):
        text = "".join(_kept(log.read_text(encoding="utf-8")))
        (folder / "run_torch_trace" / "dedicated_log_torch_trace_1.log.gz").write_bytes(
            gzip.compress(text.encode(), 9, mtime=0)
        )
        log.unlink()


def _kept(text: str):
    """The entries of a log that are read, without this machine's folders and what compiled code is made of."""
    wanted = False
    text = re.sub(r"[\w./-]*/(?:more_)?compiled_models\.py", "/home/someone/project/models.py", text)
    text = re.sub(r"/[\w./-]*(?=/site-packages/)|/tmp/[\w./-]*", "", text)
    for line in text.splitlines(keepends=True):
        if not line.startswith("\t"):
            wanted = _KEPT.search(line) is not None
            line = _short(line) if wanted else ""
        if wanted and not _LEFT_OUT.match(line):
            yield line


def _short(line: str) -> str:
    start, _, head = line.partition("{")
    values = {key: one for key, one in json.loads("{" + head).items() if key not in ("stack", "has_payload")}
    return (
        start
        + json.dumps({key: {} if isinstance(one, dict) and "name" not in one else one for key, one in values.items()})
        + "\n"
    )


def _run(name: str, folder: Path) -> None:
    import torch
    from generators import compiled_models, more_compiled_models

    made: list = []
    _watch_compiler(made)
    torch.manual_seed(0)
    make, inputs, is_trained = {**more_compiled_models.PROGRAMS, **compiled_models.PROGRAMS}[name]
    model, values = make(), inputs()
    model.train(is_trained)
    products = products_of(model, values)
    compiled = torch.compile(model)

    def step() -> None:
        if is_trained:
            compiled(values).square().mean().backward()
        else:
            with torch.no_grad():
                compiled(values)

    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        for number in range(2):
            with torch.profiler.record_function(f"step {number}"):
                step()
    recorded.export_chrome_trace(str(folder / "trace.json"))
    trace = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").unlink()
    events = [one for one in trace["traceEvents"] if one.get("cat") in ("cpu_op", "user_annotation", None)]
    text = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": trace["baseTimeNanoseconds"], "traceEvents": events})
    (folder / TRACE).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    (folder / TRUTH).write_text(json.dumps({"kernels": made, "products": products}))


def products_of(model, values) -> list[str]:
    """The modules whose own code makes products in an eager run, by the first of each: run as the compiled one is."""
    import torch
    from torch.nn.modules import module as hooks
    from torch.utils._python_dispatch import TorchDispatchMode

    paths = {module: path for path, module in model.named_modules()}
    open_modules, order = [""], []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket.__name__ in _PRODUCTS:
                order.append(open_modules[-1])
            return func(*args, **(kwargs or {}))

    def closed(*_):
        open_modules.pop()

    # hooks of single modules would turn torch's fused layers off
    handles = [hooks.register_module_forward_pre_hook(lambda one, _: open_modules.append(paths[one])),
               hooks.register_module_forward_hook(closed)]  # fmt: skip
    with Watch(), torch.set_grad_enabled(model.training):
        model(values)
    for handle in handles:
        handle.remove()
    return list(dict.fromkeys(order))


def _watch_compiler(made: list) -> None:
    """Note for each kernel call that the compiler numbers which operations it is made of, and their modules."""
    import torch._inductor.codegen.cpp
    import torch._inductor.codegen.simd
    import torch._inductor.codegen.wrapper  # noqa: F401
    from torch._inductor import debug
    from torch._inductor.codegen.simd_kernel_features import DisableReduction, EnableReduction

    original = debug.set_kernel_post_grad_provenance_tracing

    def watching(schedule, kernel_name, is_extern=False):
        number = original(schedule, kernel_name, is_extern)
        if is_extern:
            nodes = [schedule.origin_node] if schedule.origin_node else list(schedule.origins)
        else:
            parts = [one for one in schedule if one not in (EnableReduction, DisableReduction) and one.node is not None]
            nodes = list({node for one in parts for node in one.node.origins})
        work = [node for node in nodes if not _VIEW.search(str(node.target))] or nodes
        # a library's kernel is the operation of its name, where that has a module
        named = f".{symbol_of(kernel_name)}."
        work = [node for node in work if named in str(node.target) and _module(node.meta)] or work
        made.append([number, symbol_of(kernel_name), Counter(_module(node.meta) for node in work)])
        return number

    for module in list(sys.modules.values()):
        if getattr(module, "set_kernel_post_grad_provenance_tracing", None) is original:
            module.set_kernel_post_grad_provenance_tracing = watching


def _module(meta: dict) -> str:
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    path = list(stack.values())[-1][0] if stack else ""
    return re.sub(
        r"^L\['self'\]\.?|(?<=\.)_modules\.",
        "",
        re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", path.replace("L['self']", "")).lstrip("."),
    )


# ---------------------------------------------------------------- judging


@dataclass
class Score:
    """Of the kernels of one program, in ns: all, those in a module whose operations they compute, those in the module
    of most of them. How many lie in another block than any of these; whether the order of blocks is that of the eager
    run, and whether the tree holds the sum of the trace."""

    kernel_count: int
    kernel_ns: int
    right_ns: int
    most_ns: int
    wrong_block_count: int
    is_order_kept: bool
    is_sum_kept: bool

    @property
    def is_met(self) -> bool:
        """Whether all bars are met."""
        share = self.right_ns >= 0.99 * self.kernel_ns > 0
        return share and not self.wrong_block_count and self.is_order_kept and self.is_sum_kept


def score(analysis, folder: Path) -> Score:
    """Hold the tree of a recorded program against its truth."""
    truth = json.loads((folder / TRUTH).read_text())
    calls = list(_calls_of_trace(folder / TRACE, _graphs(truth["kernels"])))
    starts = [start for start, _, _, _ in calls]
    nodes = analysis.frame("nodes").set_index("node_id")
    names, parent = nodes["name"].astype(str).to_dict(), nodes["parent_id"].to_dict()
    kernels = analysis.frame("kernels").sort_values("start_ns")
    result = Score(
        0, 0, 0, 0, 0, False, int(kernels["duration_ns"].sum()) == int(analysis.frame("captures")["kernel_ns"].sum())
    )
    products = []
    for node, start, end in kernels[["node_id", "start_ns", "end_ns"]].itertuples(index=False):
        at = bisect_right(starts, start + 2) - 1
        if at < 0 or end > calls[at][1] + 2:
            continue
        found, (_, _, symbol, modules) = _owner(node, names, parent), calls[at]
        result.kernel_count += 1
        result.kernel_ns += end - start
        result.right_ns += (end - start) * (found in modules)
        result.most_ns += (end - start) * (modules.get(found, 0) == max(modules.values()))
        result.wrong_block_count += _block(found) is not None and _block(found) not in {_block(one) for one in modules}
        if symbol in _PRODUCTS:
            products.append(found)
    # '' is the model's own code, and what adds the gradients of a weight that modules share
    mine, theirs = ([one for one in dict.fromkeys(of) if one] for of in (products, truth["products"]))
    blocks = [list(dict.fromkeys(filter(None, map(_block, one)))) for one in (mine, theirs)]
    result.is_order_kept = set(mine) == set(theirs) and blocks[0] == blocks[1]
    return result


def _graphs(kernels: list) -> list[list[tuple[str, dict[str, int]]]]:
    graphs: list[list[tuple[str, dict[str, int]]]] = []
    for number, symbol, modules in kernels:
        if number == 1:
            graphs.append([])
        graphs[-1].append((symbol, modules))
    return graphs


def _calls_of_trace(path: Path, graphs: list):
    """Start, end, symbol and modules of each call in the trace: what stands directly in a region of compiled code."""
    events = [
        one for one in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if one.get("cat") == "cpu_op"
    ]
    events.sort(key=lambda one: (one["ts"], -one["dur"]))
    for region in [one for one in events if "CompiledFxGraph" in one["name"]]:
        children, end = [], 0.0
        for one in events:
            inside = one["tid"] == region["tid"] and region["ts"] <= one["ts"] and one is not region
            if inside and one["ts"] + one["dur"] <= region["ts"] + region["dur"] and one["ts"] >= end:
                children.append(one)
                end = one["ts"] + one["dur"]
        for graph in graphs:
            known = {symbol for symbol, _ in graph}
            mine = [one for one in children if symbol_of(one["name"]) in known]
            if [symbol_of(one["name"]) for one in mine] == [symbol for symbol, _ in graph]:
                for one, (symbol, modules) in zip(mine, graph):
                    yield round(one["ts"] * 1000), round((one["ts"] + one["dur"]) * 1000), symbol, modules
                break
        else:
            raise AssertionError("a region makes the calls of no compiled graph")


def _owner(node: int, names: dict, parent: dict) -> str:
    """The innermost module below the compiled region around a kernel; '' the model itself."""
    while node in names and "Compiled" not in names[node]:
        if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", names[node]) and not names[node].startswith("graph_"):
            return names[node]
        node = parent[node]
    return ""


def _block(module: str) -> str | None:
    found = re.match(r"(?:.*?\.)?[a-z]+\.\d+", module)
    return found[0] if found else None


if __name__ == "__main__":
    _run(sys.argv[1], Path(sys.argv[2]))
