"""The table of MEANING.md as data: what the owner of each shared capture says that it holds.

``scripts/structure --captures`` scores the executions and layers; `meaning/test_table.py` asserts the cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

EXECUTIONS, LAYERS, DEVICE, LIMIT = "executions", "layers", "device time", "limit"
KERNELS = frozenset({"kernel", "compute", "memory", "shape"})
HOST = frozenset({"host"})
UNKNOWN = frozenset({"unknown"})


@dataclass(frozen=True)
class Row:
    """One capture. ``executions`` and ``layers``: None, not stated.

    ``executions``  how many; ``kernels``: in each of them (of some: the first ones)
    ``layers``      accepted answers: (pattern of the type or name, how many in each execution) …; (): there are none
    ``device_ms``   kernel, copy (with memsets), graph, busy: of all devices together; ``busy_ratio``: of the executions
    ``limits``      words of `analyses.limits` that say what limits it
    ``wrong``       cells that are not found today, each with what is found instead
    """

    name: str
    executions: int | None = None
    kernels: tuple[int, ...] = ()
    layers: tuple[tuple[str, int], ...] | None = None
    device_ms: dict[str, float] = field(default_factory=dict)
    busy_ratio: float | None = None
    limits: frozenset[str] = frozenset()
    twin: str = ""
    wrong: dict[str, str] = field(default_factory=dict)

    def states(self, cell: str) -> bool:
        """Whether the owner's table says anything there."""
        said = {EXECUTIONS: self.executions is not None, LAYERS: self.layers is not None,
                DEVICE: bool(self.device_ms) or self.busy_ratio is not None, LIMIT: bool(self.limits)}  # fmt: skip
        return said[cell]


def _row(name: str, **values: Any) -> Row:
    """A row; a name without a folder is that of a PyTorch trace."""
    name = name if "/" in name else f"kineto/{name}.pt.trace.json.gz"
    twin = values.get("twin", "")
    return Row(name, **values | ({"twin": f"kineto/{twin}.pt.trace.json.gz"} if twin else {}))


_BLOCK = "^block |transformer block"

ROWS: tuple[Row, ...] = (
    _row(
        "nsys/transformer_2.7b_a100_nvtx.sqlite",
        executions=4,
        kernels=(1832,) * 4,
        layers=((_BLOCK, 32),),
        device_ms={"kernel": 3408.4, "copy": 3156.5},
        limits=KERNELS,
    ),
    _row(
        "nsys/transformer_2.7b_a100_no_nvtx.sqlite",
        executions=4,
        kernels=(1832,) * 4,
        layers=((_BLOCK, 32),),
        device_ms={"kernel": 3389.1, "copy": 4460.4},
        limits=KERNELS,
    ),
    _row(
        "nsys/transformer_backward_rtx3070ti.sqlite",
        executions=15,
        device_ms={"kernel": 1733.8, "copy": 65.4, "busy": 1799.2},
    ),
    _row("nsys/fsdp_2gpu_h100.sqlite", executions=0, device_ms={"kernel": 535.2, "busy": 541.1}, limits=KERNELS),
    _row("nsys/fsdp_2gpu_h100_after.sqlite", executions=0, device_ms={"kernel": 488.9, "busy": 494.1}, limits=KERNELS),
    _row(
        "nsys/t5_offload_2gpu_h100.sqlite",
        executions=0,
        device_ms={"kernel": 44.8, "copy": 1880.0, "busy": 1925.8},
        limits=frozenset({"copy"}),
    ),
    _row(
        "nsys/many_copies_a100.sqlite",
        executions=0,
        layers=(),
        device_ms={"kernel": 9.0, "copy": 125.0},
        limits=frozenset({"mixed", "copy", "host"}),
    ),
    _row(
        "nsys/cloverleaf_a100.sqlite",
        executions=10,
        kernels=(125,) * 10,
        layers=(),
        device_ms={"kernel": 294.4, "copy": 9.4, "busy": 303.8},
        limits=KERNELS,
    ),
    _row("nsys/nvtx_only_titanrtx.sqlite", executions=304, limits=UNKNOWN),
    _row("nsys/tensorrt_nvtx_only_titanrtx.sqlite", executions=134, limits=UNKNOWN),
    _row("nsys/no_kernels_2023.4.sqlite", executions=0, layers=(), limits=UNKNOWN),
    _row("nsys/no_cuda_2021.3.sqlite", executions=0, layers=(), limits=UNKNOWN),
    _row(
        "resnet50_ddp_a100",
        executions=5,
        layers=((r"^aten::conv2d$", 53),),
        device_ms={"busy": 472.5},
        busy_ratio=0.984,
        limits=KERNELS,
    ),
    _row(
        "timesformer_h100",
        executions=1,
        kernels=(446,),
        layers=(("TimesformerLayer", 12),),
        device_ms={"busy": 158.4},
        limits=KERNELS,
    ),
    _row(
        "bert_small_h100",
        executions=1,
        kernels=(60,),
        layers=(("BertLayer", 4),),
        device_ms={"busy": 0.31},
        limits=HOST,
    ),
    # the host launches in 47 of 49 ms what the GPU does in 46: in a replay shorter kernels alone save 7 %
    _row(
        "qwen_h100",
        executions=1,
        layers=(("Qwen2DecoderLayer", 24),),
        device_ms={"busy": 45.6},
        limits=KERNELS | {"balanced"},
    ),
    _row(
        "switch_transformer",
        executions=1,
        kernels=(494,),
        layers=(("SwitchTransformerBlock", 10),),
        device_ms={"busy": 62.9},
        limits=HOST,
    ),
    _row(
        "sglang_prefill_decode",
        executions=1,
        kernels=(521,),
        layers=(("Qwen3DecoderLayer", 36),),
        device_ms={"busy": 492.8},
        limits=KERNELS,
    ),
    _row(
        "vllm_decode_cuda_graph",
        executions=1,
        kernels=(425,),
        layers=((_BLOCK, 24),),
        device_ms={"busy": 10.72},
        limits=KERNELS,
    ),
    _row(
        "vllm_decode_cuda_graph",
        twin="vllm_decode_cuda_graph.capture",
        executions=1,
        kernels=(425,),
        layers=(("CompiledFxGraph", 25),),
        device_ms={"busy": 10.72},
        limits=KERNELS,
    ),
    # the rows of the second half of the table
    _row(
        "nsys/transformer_2.7b_a100_compiled.sqlite",
        executions=10,
        layers=(),
        device_ms={"kernel": 0.078, "graph": 7811.1},
        limits=frozenset({"kernel"}),  # and no word of arithmetic or memory
    ),
    _row("nsys/nvfuser_compile_h200.sqlite", executions=2, device_ms={"kernel": 10.2, "copy": 21.4}, limits=HOST),
    _row(
        "nsys/ddp_2gpu_rtx3090_2026.3.sqlite",
        executions=2,
        layers=(("attention sublayer|feed-forward sublayer", 24), ("transformer block forward", 12)),
        limits=HOST,
    ),
    _row("vllm_eager_b200", executions=1, layers=(("TransformerBlock", 36),), limits=HOST),
    _row(
        "sglang_decode", twin="sglang_decode.capture", executions=1, layers=(("Qwen3DecoderLayer", 36),), limits=UNKNOWN
    ),
    _row(
        "vllm_piecewise", twin="vllm_piecewise.capture", executions=1, layers=(("CompiledFxGraph", 25),), limits=KERNELS
    ),
    _row("gpu_only_mi210", executions=1, device_ms={"busy": 5.343}, busy_ratio=0.894),
    _row("mtia_inference", limits=HOST),
    _row("nccl_training", executions=3, layers=((r"^aten::conv2d$", 53),), busy_ratio=0.238, limits=HOST),
    _row("qwen3moe_decode_b300", executions=1, layers=((_BLOCK, 48),), limits=KERNELS),
    _row(
        "compiled_rtx3060",
        executions=5,
        layers=((_BLOCK, 8),),
        busy_ratio=0.989,
        limits=KERNELS,
        wrong={LAYERS: "seven blocks of eight: the first one of the forward pass is none"},
    ),
    _row(
        "compiled_graphs_rtx3060",
        executions=5,
        layers=((_BLOCK, 8),),
        busy_ratio=0.992,
        limits=KERNELS,
        wrong={LAYERS: "seven blocks of eight: the first one of the forward pass is none"},
    ),
    _row("dataloader_0_workers", executions=6, layers=((r"^aten::conv2d$", 53),), busy_ratio=0.50),
    _row("dataloader_4_workers", executions=6, layers=((r"^aten::conv2d$", 53),), busy_ratio=0.62),
    _row(
        "sam_host_loop",
        executions=1,
        busy_ratio=0.477,
        limits=HOST,
        wrong={EXECUTIONS: "none is found", LIMIT: "not said to be the host"},
    ),
    _row("sam_vectorised", executions=1, busy_ratio=0.91),
    _row("part_batch16", executions=1, layers=((_BLOCK, 10),), device_ms={"busy": 7.5}, limits=HOST),
    _row("part_batch256", executions=1, layers=((_BLOCK, 10),), device_ms={"busy": 47.7}, limits=HOST),
)
