"""Recordings of real programs on a CPU, told as a GPU would run them.

The trace of torch.profiler on a CPU has the operators in their order, with shapes, ranges and the Python time between.
Every operator that computes becomes its launches on a `Machine` (launch, stream, waits as in the other generators);
the host's own time is the recorded one where Python runs and a few µs in an operator; backward runs on its own thread.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import sys
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from random import Random
from typing import Any

from generators.machine import NONE, Edit, Machine, Program, Thread

# operators of memory and of views: no kernel
NOTHING = re.compile(
    r"aten::(empty|as_strided|view|_unsafe_view|reshape|t|transpose|permute|expand|expand_as|select|slice|unsqueeze|squeeze|narrow"
    r"|split|split_with_sizes|chunk|unbind|detach|detach_|resize_|resize_as_|resolve_conj|resolve_neg|alias|flatten|unflatten"
    r"|empty_like|empty_strided|new_empty|lift_fresh|is_nonzero|result_type|set_|diagonal|movedim|swapaxes|real|imag"
    r"|_nnpack_available|numpy_T|view_as|pin_memory|is_pinned|size|stride|_reshape_alias|new_empty_strided|broadcast_tensors"
    r"|requires_grad_|to|_has_compatible_shallow_copy_type|unfold|atleast_\dd|item|view_as_real|view_as_complex"
    r"|data|native_dropout_dummy|retains_grad|output_nr|_version|is_leaf|matrix_H|mT|adjoint|hsplit|tensor_split|meshgrid"
    r"|as_strided_|unsafe_split|unsafe_chunk|broadcast_to|cudnn_is_acceptable|contiguous|type_as|dropout)(_copy)?$|detach"
)
# operators whose inner operators are how a CPU does it
WHOLE = re.compile(
    r"aten::(sum|mean|prod|amax|amin|max|min|argmax|argmin|any|all|norm|linalg_vector_norm|var|std|var_mean|addmm|mm|bmm|baddbmm|addmv|mv|dot"
    r"|native_layer_norm|native_group_norm|cudnn_batch_norm|native_batch_norm|_native_batch_norm_legit|\w*_backward|_scaled_dot_product\w*|_softmax|_log_softmax"
    r"|cudnn_convolution|_slow_conv2d_forward|thnn_conv2d|slow_conv_transpose2d|slow_conv_dilated2d|convolution_overrideable|_cudnn_rnn|lstm|gru|\w*lstm_cell|gru_cell"
    r"|embedding_dense_backward|_embedding_bag\w*|index_put_|_index_put_impl_|index|index_select|index_add_?|scatter\w*|gather|topk|sort|cumsum|multinomial"
    r"|cat|stack|_local_scalar_dense|nonzero|masked_select|copy_|_local_scalar_dense|fill_|zero_|upsample\w*|_fused_\w+|max_pool2d_with_indices|avg_pool2d|_adaptive_avg_pool2d"
    r"|uniform_|normal_|bernoulli_|random_|randperm|arange|linspace|where|tril|triu|roll|flip|_foreach\w+|_cdist_forward|_fft\w+|linalg_\w+|rms_norm|_fused_rms_norm|gelu|silu)$"
)
PRODUCTS = re.compile(
    r"aten::(addmm|mm|bmm|baddbmm|cudnn_convolution|convolution_backward|slow_conv\w+|thnn_conv2d|_slow_conv\w+|_cudnn_rnn|lstm|gru|mv|addmv|dot)"
)
_TEXT = Path(__file__).with_name("told_kernels.txt").read_text("utf-8")
_TABLE = re.findall(r"^\[(\w+)\]\n((?:[^\[].*\n)+)", _TEXT, re.M)
KERNELS = {key: tuple(names.splitlines()) for key, names in _TABLE}
GEMMS, CONVS = KERNELS["gemm"], KERNELS["convolution"]
MADE = ("gemm", "convolution", "reduce", "norm_backward", "elementwise", "multi_tensor")
BY_OPERATOR = {key: names for key, names in KERNELS.items() if key not in MADE}
REDUCTION = re.compile(r"(sum|mean|prod|amax|amin|max|min|argm|any|all|norm|linalg_vector|var|std)")
OPTIMISER = re.compile(r"Optimizer\.step#(Adam|AdamW|NAdam|RAdam|Adamax|Adagrad|RMSprop|SGD)\.step$")
ADAM = (
    "_foreach_add",
    "_foreach_lerp",
    "_foreach_mul",
    "_foreach_addcmul",
    "_foreach_sqrt",
    "_foreach_div",
    "_foreach_add",
    "_foreach_addcdiv",
)


_ON_GPU = {  # operators of a CPU, and what a GPU has for them
    "_flash_attention_for_cpu": "_flash_attention", "mkldnn_convolution": "cudnn_convolution", "ForCpu": "",
    "mkldnn_rnn_layer": "_cudnn_rnn", "native_batch_norm": "cudnn_batch_norm", "MkldnnRnnLayer": "CudnnRnn",
    "NativeBatchNorm": "CudnnBatchNorm",
}  # fmt: skip


def _pick(names: tuple[str, ...], key: str) -> str:
    at = zlib.crc32(key.encode())
    side = (64, 128, 256)
    name = names[at % len(names)]
    return name.replace("{}", str(side[at // 7 % 3]), 1).replace("{}", str(side[at // 31 % 3]))


def _kernels(name: str, dims: list[Any], types: list[str], scale: float) -> list[tuple[str, float, int]]:
    """The kernels of one operator: name, µs, grid."""
    short = name.removeprefix("aten::")
    sizes = [_size(d) for d in dims]
    largest = max(sizes, default=1)
    grid = max(1, int(largest * scale) // 1024)
    if "convolution" in short or "conv2d" in short or "conv_trans" in short or "conv_dilated" in short:
        flops = largest * (sizes[1] if len(sizes) > 1 else 1) ** 0.5 * 8 * scale**1.5
        found = [(_pick(CONVS, f"{short}{dims[:2]}"), 2.5 + flops / 2e8, grid)]
        if "backward" in short:
            found = [
                (_pick(CONVS, f"d{dims[:3]}").replace("fprop", "dgrad"), 3 + flops / 2e8, grid),
                (_pick(CONVS, f"w{dims[:3]}").replace("fprop", "wgrad"), 3 + flops / 2e8, grid),
            ]
        return found
    if PRODUCTS.match(name):
        flops = (sizes[0] if sizes else 1) * (sizes[1] if len(sizes) > 1 else 1) ** 0.5 * 2 * scale**1.5
        found = [(_pick(GEMMS, f"{dims[:3]}{types[:1]}"), 2.2 + flops / 4e8, grid)]
        if short in ("_cudnn_rnn", "lstm", "gru"):
            steps = dims[0][0] if dims and dims[0] else 1
            found = [*found, *[(found[0][0], 2.0, 8), (KERNELS["_cudnn_rnn"][0], 2.2, 8)] * min(int(steps), 40)]
        return found
    for key, (kernel,) in BY_OPERATOR.items():
        is_kind = key.startswith(("_", "nat", "cudnn")) and short.startswith(key) and "backward" not in short
        if short == key or is_kind or (key == "sort" and short == "argsort"):
            count = {"sort": 3, "native_group_norm": 2}.get(key, 1)
            return [(kernel, 1.8 + largest * scale / 4e5, grid)] * count
    functor = short.rstrip("_")
    if REDUCTION.match(short):
        kernels, us, grid = KERNELS["reduce"], 2.0 + largest * scale / 5e5, max(1, grid // 4)
    elif short.endswith("_backward") and "norm" in short:
        kernels, us = KERNELS["norm_backward"], 2.2 + largest * scale / 3e5
    else:
        kernels, us = KERNELS["elementwise"][largest % 4 > 0 :][:1], 1.5 + largest * scale / 6e5
    return [(kernel.replace("@", functor), us, grid) for kernel in kernels]


def _size(dims: Any) -> int:
    n = 1
    for d in dims if isinstance(dims, list) else []:
        n *= d if isinstance(d, int) else 1
    return max(n, 1)


def pack(trace: Path, packed: Path) -> None:
    """Keep what `told` reads of a trace: operators and people's ranges of the main thread."""
    with gzip.open(trace) as stream:
        document = json.load(stream)
    events = [
        e for e in document["traceEvents"] if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation")
    ]
    by_thread = Counter(e["tid"] for e in events)
    events = sorted(
        (e for e in events if e["tid"] == by_thread.most_common(1)[0][0]), key=lambda e: (e["ts"], -e["dur"])
    )
    for e in events:
        for word, said in _ON_GPU.items():
            e["name"] = e["name"].replace(word, said)
        e["name"] = "aten::_cudnn_rnn" if e["name"] == "aten::gru" else e["name"]
    texts: dict[str, int] = {}
    number = lambda value: texts.setdefault(json.dumps(value), len(texts))  # noqa: E731
    rows, before = [], events[0]["ts"]
    for e in events:
        args = e.get("args", {})
        inputs = [[d for d in args.get("Input Dims", [])][:4], args.get("Input type", [])[:4]]
        rows.append(
            [
                round(e["ts"] * 10) - round(before * 10),
                round((e["ts"] + e["dur"]) * 10) - round(e["ts"] * 10),
                number(e["name"]),
                number(inputs),
                args.get("Sequence number", -1),
                int(e["cat"] == "cpu_op"),
            ]
        )
        before = e["ts"]
    base = next((r[4] for r in rows if r[4] >= 0), 0)
    columns = [[r[k] - (base if k == 4 and r[k] >= 0 else 0) for r in rows] for k in range(6)]
    with lzma.open(packed, "wt", preset=9) as file:
        json.dump({"texts": [json.loads(text) for text in texts], "columns": columns}, file, separators=(",", ":"))


@dataclass
class _Op:
    """An operator or range of the recording; times in µs."""

    name: str
    start: float
    end: float
    is_op: bool
    sequence: int
    dims: list[Any]
    types: list[str]
    parent: int = -1
    is_hidden: bool = False  # inside an operator that is told as a whole
    emits: bool = False  # it launches
    updates: int = 0  # parameters that an optimiser updates
    is_fused: bool = False  # an optimiser's one operator for all of them
    is_masked: bool = False  # the host waits for how many values a mask picks


def _ops(packed: Path) -> list[_Op]:
    with lzma.open(packed) as stream:
        document = json.load(stream)
    texts, at, ops = document["texts"], 0, []
    for step, dur, name, inputs, sequence, is_op in zip(*document["columns"], strict=True):
        at += step
        ops.append(_Op(texts[name], at / 10, (at + dur) / 10, bool(is_op), sequence, *texts[inputs]))
    stack: list[int] = []
    for i, op in enumerate(ops):
        while stack and ops[stack[-1]].end <= (op.start + op.end) / 2:  # times are rounded
            stack.pop()
        op.parent = stack[-1] if stack else -1
        op.end = min(op.end, ops[op.parent].end) if stack else op.end
        stack.append(i)
    for number, op in enumerate(ops):
        above = ops[op.parent] if op.parent >= 0 else None
        is_inside = above is not None and (above.is_hidden or above.emits)
        if above is not None and (is_inside or _is_of_host(op, above)):
            op.is_hidden = True
            while above.parent >= 0 and not above.emits:
                above = ops[above.parent]
            above.updates += op.name in ("aten::addcdiv_", "aten::add_")
            above.is_fused |= op.name.startswith("aten::_fused_")
            above.is_masked |= op.name == "aten::nonzero"
        else:
            is_whole = WHOLE.match(op.name) or OPTIMISER.match(op.name) or re.match("##[^@]", op.name)
            op.emits = bool(is_whole) or _is_transposed(ops, number)
    holds = [False] * len(ops)
    for i in range(len(ops) - 1, -1, -1):
        op = ops[i]
        is_leaf = not op.is_hidden and not holds[i] and op.name.startswith("aten::") and not NOTHING.match(op.name)
        op.emits = op.emits or is_leaf
        if (op.emits or holds[i]) and op.parent >= 0:
            holds[op.parent] = True
    return ops


def _is_transposed(ops: list[_Op], number: int) -> bool:
    """A transposed convolution: a CPU computes it in no operator of its own, a copy of the weights may be in it."""
    if ops[number].name != "aten::_convolution":
        return False
    inner = takewhile(lambda one: one.start < ops[number].end, islice(ops, number + 1, None))
    return not any(PRODUCTS.match(one.name) for one in inner)


def _is_of_host(op: _Op, above: _Op) -> bool:
    """What a loader does, and a number that an operator takes, is of the host."""
    is_number = op.name == "aten::to" and op.dims[:1] == [[]] and op.types[:1] in (["long int"], ["double"])
    return above.name.startswith("enumerate(DataLoader)") or (is_number and above.name.startswith("aten::"))


def _python(us: float) -> float:
    """Time between operators: Python's own; long pieces are the program's."""
    return us if us > 300 else min(us, 60.0) * 0.7 + 0.5


def told(path: Path, seed: int, scale: float = 16.0, ranges: str = "all", edit: Edit | None = None) -> Program:
    """``scale``: how much larger the tensors are on the GPU; ``ranges``: all (a PyTorch trace), marks (the people's own
    ranges only), none."""
    ops = _ops(path)
    m = Machine(Random(seed), jitter=0.06, edit=edit or Edit())
    forward, backward = m.thread(0), m.thread(1, name="pt_autograd_0")
    labels: dict[str, int] = {}  # what the truth has said so far: label and how many
    clock, graph = ops[0].start, _Captured()
    open_ops: list[tuple[_Op, Thread, dict[str, Any], dict[str, int], bool]] = []

    def close(until: float) -> None:
        nonlocal clock
        while open_ops and open_ops[-1][0].end <= until:
            op, thread, row, before, is_turn = open_ops.pop()
            rest = max(op.end - clock, 0)
            if not op.emits:
                thread.host(min(rest, 2.5) if op.is_op else _python(rest))
            clock = max(clock, op.end)
            if op.name == "##@graph":
                thread.graph(graph.nodes, node_base=1 << 32)
                graph.nodes = []
            row["end"] = thread.now
            thread.now += 40
            m.labels = before
            if is_turn:
                forward.now = max(forward.now, backward.now + 2_000)

    for op in ops:
        if op.is_hidden:
            continue
        close(op.start)
        if any(one.name == "##@graph" for one, *_ in open_ops):
            _tell(op, graph, scale) if op.emits else None
            continue
        is_inside = any(is_turn for *_, is_turn in open_ops)
        is_turn = not is_inside and op.name.startswith("autograd::engine::evaluate_function")
        thread = backward if is_turn or is_inside else forward
        if is_turn:
            backward.now = max(backward.now, forward.now)
        gap = max(op.start - clock, 0)
        is_within = open_ops and open_ops[-1][0].is_op
        thread.host(min(gap, 1.5) if is_within or is_turn else _python(gap))
        clock = op.start
        args: dict[str, Any] = {}
        if op.is_op:
            args = {"Input Dims": op.dims, "Input type": op.types}
            if op.sequence >= 0:
                args |= {"Sequence number": op.sequence, "Fwd thread id": int(thread is backward)}
        kind = "cpu_op" if op.is_op else "user_annotation"
        row = {"text": op.name, "start": thread.now, "end": None, "tid": thread.tid, "kind": kind, "args": args}
        is_own = not op.is_op and not op.name.startswith(("Optimizer.", "enumerate(DataLoader)", "ProfilerStep#"))
        if not op.name.startswith("##") and (ranges == "all" or (ranges == "marks" and is_own)):
            m.ranges.append(row)
        before = dict(m.labels)
        if op.name.startswith("##@e") or (op.name.startswith("##@b") and thread is forward):  # recomputed: not judged
            label = op.name[3:]
            m.labels[label] = labels[label] = labels.get(label, NONE) + 1
        thread.host(0.3)
        if op.emits:
            _tell(op, thread, scale)
        clock = op.end if op.emits or op.name == "##@graph" else clock
        open_ops.append((op, thread, row, before, is_turn))
    close(float("inf"))
    kinds = [[label for label in labels if label.startswith(start)] for start in ("e:", "b:")]
    return Program("told", [m], *kinds, is_kineto=ranges == "all", about=path.name)


class _Captured:
    """What a CUDA graph holds: its host code and its waits are gone."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, float]] = []

    def launch(self, name: str, us: float, **_: int) -> None:
        self.nodes.append((name, us))

    def host(self, *_: Any, **__: Any) -> None:
        """Not launched again."""

    copy = sync = item = host


def _tell(op: _Op, thread: Thread | _Captured, scale: float) -> None:
    """What one operator does on the machine."""
    if op.name == "##sync":
        thread.sync()
    elif op.name == "##host":
        thread.host(op.end - op.start)
    elif op.name.startswith("##"):
        word, size, waits = op.name[2:].split()
        thread.copy(int(int(size) * scale), word, pageable=waits == "1")
        if word == "DtoH":
            thread.sync(7)
    elif op.is_fused and OPTIMISER.match(op.name):
        kernel = KERNELS["multi_tensor"][0].replace("@", "FusedAdamMath")
        thread.host(14.0)
        thread.launch(kernel, 3.0 + 5.0 * scale, grid=320, block=512)
    elif OPTIMISER.match(op.name):
        words = ADAM if "Adam" in op.name else ("_foreach_mul", "_foreach_add") if "SGD" in op.name else ADAM[:4]
        for word in words:
            thread.host(12.0 + 0.3 * op.updates / len(words))
            for _ in range(max(1, -(-op.updates // (len(words) * 8)))):
                kernel = KERNELS["multi_tensor"][0].replace("@", word)
                thread.launch(kernel, 3.0 + 2.0 * scale, grid=320, block=512)
                thread.host(2.0)
    elif op.name == "aten::_local_scalar_dense":
        thread.item()
    else:
        thread.host(3.0)
        for kernel, us, grid in _kernels(op.name, op.dims, op.types, scale):
            thread.launch(kernel, min(us, 3000.0), grid=grid, block=128)
            thread.host(0.8)
        if op.name in ("aten::nonzero", "aten::masked_select") or op.is_masked:
            thread.item()


if __name__ == "__main__":  # FOLDER of traces → folder of packed ones
    for trace in sorted(Path(sys.argv[1]).glob("*.json.gz")):
        out = Path(sys.argv[2]) / (trace.name.split(".")[0] + ".json.xz")
        pack(trace, out)
        print(out.name, out.stat().st_size // 1024, "kB")
