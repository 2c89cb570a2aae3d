"""A generated GPU trace of compiled code, and what its compiler writes: three equal blocks, Triton kernels between
products. Built after logs of torch 2.13 on a CPU and PyTorch's public source: no such recording was at hand."""

from __future__ import annotations

import json
from pathlib import Path

from generators.graph_traces import Recording

BLOCKS = 3
# Of each block: the call, the operation before compilation, and its line.
CALLS = (("extern_kernels.mm", "up", 10), ("triton_poi_fused_gelu_0", "gelu", 11), ("extern_kernels.mm", "down", 12),
         ("triton_poi_fused_add_1", "add", 20))  # fmt: skip


def written(folder: Path) -> tuple[Path, Path, Path]:
    """The trace, the TORCH_TRACE folder (not named after it), and a ``kernel_information.json``."""
    graph, nodes, before, stacks = [], {}, {}, {}
    for number in range(BLOCKS):
        for symbol, name, line in CALLS:
            key, node = f"{symbol}:{len(nodes) + 1}", f"{name}_{number}"
            weight = f"l_self_modules_layers_modules_{number}_modules_{name}_parameters_weight_"
            graph += [f"# File: /home/someone/net.py:{line} in forward, code: x",
                      f'{node}: "f32[4]" = f(x, {weight if symbol.startswith("extern") else "y"})']  # fmt: skip
            nodes[key], before[f"{node}_after"] = [f"{node}_after"], [node]
            stacks[key] = [f'  File "/home/someone/net.py", line {line}, in forward\n    x\n']
    artifacts = {
        "dynamo_output_graph": "class GraphModule:\n    def forward(self):\n        " + "\n        ".join(graph),
        "inductor_provenance_tracking_node_mappings": json.dumps({"cppCodeToPost": nodes, "postToPre": before}),
        "inductor_provenance_tracking_kernel_stack_traces": json.dumps(stacks),
    }
    log = ""
    for name, text in artifacts.items():
        log += f'V0101 00:00:00.000000 1 torch/x.py:1] {{"artifact": {{"name": "{name}"}}, "frame_id": 0}}\n'
        log += "".join(f"\t{line}\n" for line in text.split("\n"))
    (folder / "log").mkdir()
    (folder / "log" / "dedicated_log_torch_trace_rank_0_a.log").write_text(log)
    known = {key: {"stack_traces": one, "post_grad_nodes": nodes[key]} for key, one in stacks.items()}
    (folder / "kernel_information.json").write_text(json.dumps(known))
    return _trace(folder / "run.pt.trace.json.gz"), folder / "log", folder / "kernel_information.json"


def _trace(path: Path) -> Path:
    made = Recording()
    for step in range(4):
        since = made.at
        for symbol, _, _ in CALLS * BLOCKS:
            start, is_product = made.at, symbol.startswith("extern")
            launch = made.call("cudaLaunchKernel" if is_product else "cuLaunchKernel")
            made.kernel("sgemm_128x64" if is_product else symbol, launch, 30 if is_product else 8)
            made.around("cpu_op", "aten::mm" if is_product else symbol, start)
        made.around("cpu_op", "## Call CompiledFxGraph fabc ##", since)
        made.at = max(made.at, made.device_at)
        made.around("user_annotation", f"ProfilerStep#{step}", since - 1)
        made.at += 5
    return made.write(path)
