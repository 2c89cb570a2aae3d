"""Serving programs: prefills and decodes, replayed graphs."""

from __future__ import annotations

import numpy as np

from generators.draft import Draft, Program
from generators.recorder import Graph


def serving(seed: int) -> Program:
    """Prefills and decodes of varying size: kinds of one thing."""
    draft = Draft(
        seed,
        "serving",
        ("vllm", "sglang", "sglang", "none", "counters", "hooks", "iteration"),
        nets=("llama",),
        blocks=(4, 12),
        stacks=("hopper",),
    )
    rng, recorder, model = draft.rng, draft.recorder, draft.model
    draft.synchronous, draft.pause = True, rng.choice((20_000, 150_000))
    turn = 0
    for _ in range(rng.randint(1, 3)):
        count = max(3, draft.turns(4, 10) // 2)
        for place in range(count + 1):
            is_prefill, batch = place == 0, rng.choice((1, 4, 8, 16))
            size = rng.choice((256, 1024, 4096)) if is_prefill else batch
            fields = {
                "mode": "EXTEND" if is_prefill else "DECODE",
                "batch": 0 if is_prefill else batch,
                "tokens": size,
                "context": int(is_prefill),
            }
            fields["batch"] = batch if draft.dialect == "sglang" else fields["batch"]
            with draft.writer.step(turn, **fields), recorder.execution("prefill" if is_prefill else "decode"):
                if is_prefill:
                    model.load_batch()
                model.forward(scale=16.0 if is_prefill else 1.0)
                model.sample()
            draft.between()
            turn += 1
    return draft.done()


def replays(seed: int) -> Program:
    """A CUDA graph is captured, then replayed: its nodes are visible, or one row stands for all."""
    draft = Draft(
        seed,
        "replays of a graph",
        ("none", "none", "iteration", "sglang", "hooks", "kineto_operators"),
        nets=("llama", "gpt"),
        blocks=(4, 12),
        stacks=("hopper", "triton"),
        faults=False,
    )
    rng, recorder, model = draft.rng, draft.recorder, draft.model
    draft.synchronous, draft.pause = True, rng.choice((20_000, 200_000))
    opaque = rng.random() < 0.4
    draft.writer.shown -= {"module", "part", "root", "operator"}
    nodes = []
    net = model.network
    parts = [
        (net.before, "before", -1),
        *((group.steps, group.path, k) for group in net.groups for k in range(group.count)),
        (net.after, "after", -1),
    ]
    for steps, place, layer in parts:
        for spot, (_, _, _, what) in enumerate(steps):
            nodes += [(k.name, k.ns, k.grid, k.block, layer) for k in draft.stack.forward(what, f"{place}/{spot}")]
    graph = Graph(rng.randint(1, 40), 4_000, nodes)
    if rng.random() < 0.4:
        model.prepare()
        recorder.synchronize()
    is_capture_marked = not opaque and rng.random() < 0.4
    if is_capture_marked:
        group = net.groups[0]
        with recorder.span("capture graph"):
            for layer in range(-1, group.count):
                text = f"{group.path}.{layer}" if layer >= 0 else ""
                with recorder.span(text):
                    for place in [k for k, node in enumerate(nodes) if node[4] == layer and (layer >= 0 or k < 9)]:
                        recorder.capture(graph, place)
        recorder.wait(2_000_000)
    warm = rng.choice((0, 0, 1, 3))
    for turn in range(warm + draft.turns(4, 14)):
        fields = {"mode": "DECODE", "batch": 8, "tokens": 8, "context": 0}
        with draft.writer.step(turn, **fields), recorder.execution("decode", is_warmup=turn < warm):
            model.load_batch()
            if turn < warm:
                model.forward()
            else:
                recorder.graph_launch(graph, opaque=opaque)
            if not draft.seed % 3:
                model.sample()
        draft.between()
    program = draft.done(layers=not opaque)
    if is_capture_marked:  # the ranges of the capture hold all replays
        count = net.groups[0].count
        program.truth.layers += [np.where(one >= 0, one % count, one) for one in program.truth.layers if not warm]
    return program


def piecewise(seed: int) -> Program:
    """Each layer is the replay of a graph of its own and an attention that is launched singly, as vLLM does."""
    draft = Draft(seed, "pieces of graphs", ("none", "vllm", "sglang", "iteration"), nets=("llama",), blocks=(6, 16),
                  stacks=("hopper",), faults=False)  # fmt: skip
    rng, recorder, model = draft.rng, draft.recorder, draft.model
    draft.synchronous, draft.pause = True, rng.choice((20_000, 200_000))
    draft.writer.shown -= {"module", "part", "operator"}
    group = model.network.groups[0]
    place = next(k for k, step in enumerate(group.steps) if step[3] == "attention")

    def nodes(begin: int, end: int, layer: int) -> list[tuple[str, int, int, int, int]]:
        return [
            (kernel.name, kernel.ns, kernel.grid, kernel.block, layer)
            for spot, (_, _, _, what) in enumerate(group.steps[begin:end], begin)
            for kernel in draft.stack.forward(what, f"{group.path}/{spot}")
        ]

    before = Graph(90, 9_000, nodes(0, place, 0))
    after = [Graph(91 + k, 10_000 + 100 * k, nodes(place + 1, None, 0)) for k in range(group.count)]
    for turn in range(draft.turns(4, 10)):
        fields = {"mode": "DECODE", "batch": 8, "tokens": 8, "context": 0}
        with draft.writer.step(turn, **fields), recorder.execution("decode"), draft.writer.root(model.network.name):
            model.load_batch()
            for layer in range(group.count):
                number, recorder.layer_count = recorder.layer_count, recorder.layer_count + 1
                for part in (before, None, after[layer]):
                    if part is None:
                        with recorder.layer(number):
                            for kernel in draft.stack.forward("attention", "attention"):
                                recorder.kernel(kernel.name, kernel.ns, grid=kernel.grid, block=kernel.block)
                    else:
                        recorder.graph_launch(part, opaque=False, first_layer=number)
            model.sample()
        draft.between()
    return draft.done()
