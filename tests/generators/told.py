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
from pathlib import Path
from random import Random
from typing import Any

from generators.machine import NONE, Edit, Machine, Program

# operators of memory and of views: no kernel
NOTHING = re.compile(
    r"aten::(empty|as_strided|view|_unsafe_view|reshape|t|transpose|permute|expand|expand_as|select|slice|unsqueeze|squeeze|narrow"
    r"|split|split_with_sizes|chunk|unbind|detach|detach_|resize_|resize_as_|resolve_conj|resolve_neg|alias|flatten|unflatten"
    r"|empty_like|empty_strided|new_empty|lift_fresh|is_nonzero|result_type|set_|diagonal|movedim|swapaxes|real|imag"
    r"|_nnpack_available|numpy_T|view_as|pin_memory|is_pinned|size|stride|_reshape_alias|new_empty_strided|broadcast_tensors"
    r"|requires_grad_|to|_has_compatible_shallow_copy_type|unfold|atleast_\dd|item|view_as_real|view_as_complex"
    r"|data|native_dropout_dummy|retains_grad|output_nr|_version|is_leaf|matrix_H|mT|adjoint|hsplit|tensor_split|meshgrid)(_copy)?$|detach"
)
# operators whose inner operators are how a CPU does it
WHOLE = re.compile(
    r"aten::(sum|mean|prod|amax|amin|max|min|argmax|argmin|any|all|norm|linalg_vector_norm|var|std|var_mean|addmm|mm|bmm|baddbmm|addmv|mv|dot"
    r"|native_layer_norm|native_group_norm|cudnn_batch_norm|native_batch_norm|_native_batch_norm_legit|\w*_backward|_scaled_dot_product\w*|_softmax|_log_softmax"
    r"|cudnn_convolution|_slow_conv2d_forward|thnn_conv2d|slow_conv_transpose2d|convolution_overrideable|_cudnn_rnn|\w*lstm_cell|gru_cell"
    r"|embedding_dense_backward|_embedding_bag\w*|index_put_|_index_put_impl_|index|index_select|index_add_?|scatter\w*|gather|topk|sort|cumsum|multinomial"
    r"|cat|stack|nonzero|masked_select|copy_|fill_|zero_|upsample\w*|_fused_\w+|max_pool2d_with_indices|avg_pool2d|_adaptive_avg_pool2d"
    r"|uniform_|normal_|bernoulli_|random_|randperm|arange|linspace|where|tril|triu|roll|flip|_foreach\w+|_cdist_forward|_fft\w+|linalg_\w+|rms_norm|_fused_rms_norm|gelu|silu)$"
)
PRODUCTS = re.compile(
    r"aten::(addmm|mm|bmm|baddbmm|cudnn_convolution|convolution_backward|slow_conv\w+|thnn_conv2d|_slow_conv\w+|_cudnn_rnn|mv|addmv|dot)"
)
_TABLE = re.findall(
    r"^\[(\w+)\]\n((?:[^\[].*\n)+)", Path(__file__).with_name("told_kernels.txt").read_text("utf-8"), re.M
)
KERNELS = {key: tuple(names.splitlines()) for key, names in _TABLE}
GEMMS, CONVS = KERNELS.pop("gemm"), KERNELS.pop("convolution")
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
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "mkldnn_convolution": "cudnn_convolution", "mkldnn_rnn_layer": "_cudnn_rnn", "native_batch_norm": "cudnn_batch_norm",
    "MkldnnRnnLayer": "CudnnRnn", "NativeBatchNorm": "CudnnBatchNorm", "ForCpu": "",
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
    if "convolution" in short or "conv2d" in short or "conv_trans" in short:
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
        if short == "_cudnn_rnn":
            steps = dims[0][0] if dims and dims[0] else 1
            found = [*found, *[(found[0][0], 2.0, 8), (KERNELS[short][0], 2.2, 8)] * min(int(steps), 40)]
        return found
    for key, (kernel,) in KERNELS.items():
        if (
            short == key
            or (key.startswith(("_", "nat", "cudnn")) and short.startswith(key) and "backward" not in short)
            or (key == "sort" and short == "argsort")
        ):
            count = 3 if key == "sort" else 2 if key == "native_group_norm" else 1
            return [(kernel, 1.8 + largest * scale / 4e5, grid)] * count
    if re.match(r"(sum|mean|prod|amax|amin|max|min|argm|any|all|norm|linalg_vector|var|std)", short):
        return [
            (
                f"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::{short}_functor>, unsigned int, float, 4> >(at::native::ReduceOp<float>)",
                2.0 + largest * scale / 5e5,
                max(1, grid // 4),
            )
        ]
    if short.endswith("_backward") and "norm" in short:
        return [
            (
                f"void at::native::(anonymous namespace)::{short}_{half}_kernel<float, float>(float const*, float const*, float*)",
                2.2 + largest * scale / 3e5,
                grid,
            )
            for half in ("gamma_beta", "grad_input")
        ]
    form = "vectorized_elementwise_kernel<4" if largest % 4 == 0 else "unrolled_elementwise_kernel<1"
    functor = short.rstrip("_")
    return [
        (
            f"void at::native::{form}, at::native::{functor}_kernel_cuda(at::TensorIteratorBase&)::{{lambda(float)#1}}, std::array<char*, 2ul> >(int, at::native::{functor})",
            1.5 + largest * scale / 6e5,
            grid,
        )
    ]


def _size(dims: Any) -> int:
    n = 1
    for d in dims if isinstance(dims, list) else []:
        n *= d if isinstance(d, int) else 1
    return max(n, 1)


def pack(trace: Path, packed: Path) -> None:
    """Keep what `told` reads of a trace: operators and people's ranges of the main thread."""
    document = json.loads(gzip.open(trace).read())
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
    texts: dict[str, int] = {}
    number = lambda value: texts.setdefault(json.dumps(value), len(texts))  # noqa: E731
    rows, before = [], events[0]["ts"]
    for e in events:
        args = e.get("args", {})
        inputs = [[d for d in args.get("Input Dims", [])][:4], args.get("Input type", [])[:4]]
        rows.append(
            [
                round((e["ts"] - before) * 10),
                round(e["dur"] * 10),
                number(e["name"]),
                number(inputs),
                args.get("Sequence number", -1),
                int(e["cat"] == "cpu_op"),
            ]
        )
        before = e["ts"]
    base = next((r[4] for r in rows if r[4] >= 0), 0)
    columns = [[r[k] - (base if k == 4 and r[k] >= 0 else 0) for r in rows] for k in range(6)]
    with lzma.open(packed, "wt", preset=9) as stream:
        json.dump({"texts": [json.loads(text) for text in texts], "columns": columns}, stream, separators=(",", ":"))


def _events(packed: Path) -> list[dict[str, Any]]:
    document = json.loads(lzma.open(packed).read())
    texts, at, events = document["texts"], 0.0, []
    for step, dur, name, inputs, sequence, is_op in zip(*document["columns"], strict=True):
        at += step / 10
        dims, types = texts[inputs]
        args = {"Input Dims": dims, "Input type": types} | ({"Sequence number": sequence} if sequence >= 0 else {})
        events.append(
            {
                "ts": at,
                "dur": dur / 10,
                "name": texts[name],
                "cat": "cpu_op" if is_op else "user_annotation",
                "args": args,
            }
        )
    return events


def told(path: Path, seed: int, scale: float = 16.0, ranges: str = "all", edit: Edit | None = None) -> Program:
    """``scale``: how much larger the tensors are on the GPU; ``ranges``: all (a PyTorch trace), marks (the people's own
    ranges only), none."""
    rng = Random(seed)
    events = _events(path)
    m = Machine(rng, jitter=0.06, edit=edit or Edit())
    forward, backward = m.thread(0), m.thread(1, name="pt_autograd_0")
    parents, stack = [-1] * len(events), []
    for i, e in enumerate(events):
        while stack and events[stack[-1]]["ts"] + events[stack[-1]]["dur"] < e["ts"] + e["dur"]:
            stack.pop()
        parents[i] = stack[-1] if stack else -1
        stack.append(i)
    inside = [False] * len(events)  # of a whole operator, or of an optimiser
    emits = [False] * len(events)
    for i in range(len(events)):
        p = parents[i]
        name = events[i]["name"]
        if p >= 0 and (inside[p] or emits[p]):
            inside[i] = True
        elif (
            WHOLE.match(name)
            or OPTIMISER.match(name)
            or (name.startswith("##") and name[2] != "@")
            or name == "aten::_local_scalar_dense"
        ):
            emits[i] = True
    below = [False] * len(events)
    for i in range(len(events) - 1, -1, -1):
        if (
            not inside[i]
            and not emits[i]
            and not below[i]
            and events[i]["name"].startswith("aten::")
            and not NOTHING.match(events[i]["name"])
        ):
            emits[i] = True
        if (emits[i] or below[i]) and parents[i] >= 0:
            below[parents[i]] = True
    params = [0] * len(events)
    for i, e in enumerate(events):
        if e["name"] in ("aten::addcdiv_", "aten::add_") and inside[i]:
            top = i
            while parents[top] >= 0 and not emits[top]:
                top = parents[top]
            params[top] += 1
    clock, open_rows = events[0]["ts"], []

    def close(until: float) -> None:
        nonlocal clock
        while open_rows and open_rows[-1][0] <= until:
            end, row, i, was_emitted = open_rows.pop()
            thread = row["thread"]
            if not was_emitted:
                thread.host(
                    min(max(end - clock, 0), 2.5) if events[i]["cat"] == "cpu_op" else python(max(end - clock, 0))
                )
            clock = max(clock, end)
            row["row"]["end"] = thread.now
            m.labels = row["labels"]
            thread.now += 40
            if row["turn"]:
                forward.now = max(forward.now, backward.now + 2_000)

    def python(us: float) -> float:
        return us if us > 300 else min(us, 60.0) * 0.7 + 0.5

    labels: dict[str, int] = {}  # what the truth has said so far: label and how many
    for i, e in enumerate(events):
        if inside[i]:
            continue
        close(e["ts"])
        is_turn = e["name"].startswith("autograd::engine::evaluate_function") and not any(
            r["turn"] for _, r, _, _ in open_rows
        )
        thread = backward if is_turn or any(r["turn"] for _, r, _, _ in open_rows) else forward
        gap = max(e["ts"] - clock, 0)
        if is_turn:
            backward.now = max(backward.now, forward.now)
        inner = open_rows and events[open_rows[-1][2]]["cat"] == "cpu_op"
        thread.host(min(gap, 1.5) if inner or is_turn else python(gap))
        clock = e["ts"]
        row = {"text": e["name"], "start": thread.now, "end": None, "tid": thread.tid, "kind": e["cat"], "args": {}}
        args = e.get("args", {})
        if e["cat"] == "cpu_op":
            row["args"] = {
                k: args[k] for k in ("Sequence number", "Fwd thread id", "Input Dims", "Input type") if k in args
            }
            if is_turn or thread is backward:
                row["args"] |= {"Fwd thread id": 1} if "Sequence number" in args else {}
        is_hidden = e["name"].startswith("##")
        is_own = e["cat"] == "user_annotation" and not e["name"].startswith(
            ("Optimizer.", "enumerate(DataLoader)", "ProfilerStep#")
        )
        if not is_hidden and (ranges == "all" or (ranges == "marks" and is_own)):
            m.ranges.append(row)
        before = dict(m.labels)
        if (
            is_hidden and e["name"][2] == "@" and not (e["name"][3] == "b" and thread is backward)
        ):  # recomputed: not judged
            label = e["name"][3:]
            m.labels[label] = labels[label] = labels.get(label, NONE) + 1
        thread.host(0.3)
        if emits[i]:
            name, dims, types = e["name"], args.get("Input Dims", []), args.get("Input type", [])
            if is_hidden:
                word, size, waits = name[2:].split()
                thread.copy(int(int(size) * scale), word, pageable=waits == "1")
                if word == "DtoH":
                    thread.sync(7)
            elif OPTIMISER.match(name):
                words = ADAM if "Adam" in name else ("_foreach_mul", "_foreach_add") if "SGD" in name else ADAM[:4]
                for word in words:
                    thread.host(12.0 + 0.3 * params[i] / max(len(words), 1))
                    for _ in range(max(1, -(-params[i] // (len(words) * 8)))):
                        thread.launch(
                            f"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::{word}Functor<float> >(at::native::(anonymous namespace)::TensorListMetadata<2>)",
                            3.0 + 2.0 * scale,
                            grid=320,
                            block=512,
                        )
                        thread.host(2.0)
            elif name == "aten::_local_scalar_dense":
                thread.item()
            else:
                thread.host(3.0)
                for kernel, us, grid in _kernels(name, dims, types, scale):
                    thread.launch(kernel, min(us, 3000.0), grid=grid, block=128)
                    thread.host(0.8)
                if name in ("aten::nonzero", "aten::masked_select") or (name == "aten::index" and "bool" in types):
                    thread.item()
            clock = e["ts"] + e["dur"]
        open_rows.append(
            (e["ts"] + e["dur"], {"row": row, "thread": thread, "turn": is_turn, "labels": before}, i, emits[i])
        )
    close(float("inf"))
    kinds = [[label for label in labels if label.startswith(start)] for start in ("e:", "b:")]
    return Program("told", [m], *kinds, is_kineto=ranges == "all", about=path.name)


if __name__ == "__main__":  # FOLDER of traces → folder of packed ones
    for trace in sorted(Path(sys.argv[1]).glob("*.json.gz")):
        out = Path(sys.argv[2]) / (trace.name.split(".")[0] + ".json.xz")
        pack(trace, out)
        print(out.name, out.stat().st_size // 1024, "kB")
