"""Recordings of inference servers as their users make them, with the truth; of a seventh author.

Texts as engines and users' loops write them, with other ranges around and inside; kernels launched ahead, two processes
that hand prompts over, four ranks of experts of which one is late, adapters that some steps have, a drafting model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from generators.machine import Machine, Program, Thread

NAMES = (
    "vllm async", "vllm chunked", "sglang overlap", "sglang eagle", "trtllm", "llama.cpp", "tgi loop", "triton server",
    "ray serve", "disaggregated", "late expert", "adapters", "eviction", "plain names",
)  # fmt: skip
KERNELS = {
    "vllm": (
        "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, int)",
        "nvjet_tst_128x64_64x8_2x1_v_bz_TNT",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, int)",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 const*)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::C>>>(P)",
    ),
    "sglang": (
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel<true, 128u>(__nv_bfloat16*)",
        "void store_kvcache<128l, true, long>(StoreKVCacheParams)",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<flashinfer::PosEncodingMode, 128u>(Params)",
    ),
    "ggml": (
        "void rms_norm_f32<1024, true, false>(float const*, float*, int)",
        "void mul_mat_q<(ggml_type)12, 128, false>(char const*, int const*, int const*, float*)",
        "void rope_norm<true, false, float, float>(float const*, float*, int)",
        "void k_set_rows<float, long, __half>(float const*, long const*, __half*)",
        "void flash_attn_ext_f16<128, 128, 16, 1, 8, false, false>(char const*, char const*, char const*)",
    ),
    "trtllm": (
        "void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, true>(__nv_bfloat16 const*)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_cublas",
        "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16, 128>(Params)",
        "void tensorrt_llm::kernels::updateKVCacheForXQA<__nv_bfloat16>(Params)",
        "fmhaSm90_kernel_xqa_bf16_pagedKV",
    ),
}  # fmt: skip
LAYERS = 3
FIXED_US, TOKEN_US, KEY_US = 300.0, 1.5, 0.004


@dataclass(frozen=True)
class Step:
    """Requests as (tokens, keys); ``text``: what is written around it."""

    kind: str
    requests: tuple[tuple[int, int], ...]
    text: str = ""
    ids: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(q for q, _ in self.requests)

    @property
    def keys(self) -> int:
        return sum(k for _, k in self.requests)


@dataclass
class Recording:
    """A program and its truth. ``kinds``: of its steps by start, of each process; ``slow``: place of a step among all →
    words of its cause, one of which is said; ``tokens``: of each step; ``per_token_ns``, ``per_key_ns``: of decodes."""

    program: Program
    kinds: list[list[str]] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    slow: dict[int, tuple[str, ...]] = field(default_factory=dict)
    per_token_ns: float = 0.0
    per_key_ns: float = 0.0
    late_rank: int = -1
    requests: dict[str, tuple[float, int]] = field(default_factory=dict)  # id → ns to its first token, tokens


def recording(name: str, seed: int) -> Recording:
    """One recording of ``NAMES``."""
    rng = Random(f"dialect {name} {seed}")
    makers: dict[str, Callable[[Random, int], Recording]] = {
        "disaggregated": _disaggregated, "late expert": _late_expert, "triton server": _triton_server,
    }  # fmt: skip
    return makers.get(name, lambda rng, seed: _engine(name, rng, seed))(rng, seed)


def _machine(rng: Random, number: int = 0) -> Machine:
    machine = Machine(Random(rng.random()), pid=7_000 + 100 * number, device=number, jitter=0.004)
    machine.launch_us = 2.2
    return machine


# -- one engine -----------------------------------------------------------------------------------------------------


def _schedule(name: str, rng: Random, count: int) -> list[Step]:
    """What the engine computes, step by step."""
    running: list[list[int]] = []  # id, keys
    steps: list[Step] = []
    arrived, target = 0, 24
    while len(steps) < count:
        if len(steps) % 12 == 0:
            target = rng.randint(2, 40)
        running = [one for one in running if rng.random() > 0.04][: max(target, 1)]
        new = min(target - len(running), 3)
        if new > 0 and (not running or rng.random() < 0.5):
            prompts = [(arrived + i, rng.choice([96, 160, 384, 700, 1500, 3000])) for i in range(new)]
            arrived += new
            steps += _prefill(name, prompts, running)
            running += [[i, k] for i, k in prompts]
        if not running:
            continue
        for one in running:
            one[1] += 1
        many = tuple((1, k) for _, k in running)
        ids = tuple(i for i, _ in running)
        if name == "sglang eagle":
            steps.append(Step("draft", many, _text("sglang", "DRAFT_EXTEND", (), many), ids))
            several = tuple((4, k + 3) for _, k in many)
            steps.append(Step("verify", several, _text("sglang", "TARGET_VERIFY", (), several), ids))
        else:
            steps.append(Step("decode", many, _text(name, "decode", (), many, len(steps), ids), ids))
    return steps


def _prefill(name: str, prompts: list[tuple[int, int]], running: list[list[int]]) -> list[Step]:
    ids = tuple(i for i, _ in prompts)
    if name == "vllm chunked":
        chunks = []
        for i, length in prompts:
            for start in range(0, length, 512):
                part = ((min(512, length - start), min(start + 512, length)),)
                others = tuple((1, k) for _, k in running)
                kind = "mixed" if others else "prefill"
                chunks.append(Step(kind, part + others, _text(name, kind, part, others), (i,)))
        return chunks
    whole = tuple((k, k) for _, k in prompts)
    return [Step("prefill", whole, _text(name, "prefill", whole, (), 0, ids), ids)]


def _text(
    name: str, kind: str, context: tuple[tuple[int, int], ...], generation: tuple[tuple[int, int], ...],
    number: int = 0, ids: tuple[int, ...] = (),
) -> str:  # fmt: skip
    c, g, both = len(context), len(generation), context + generation
    cq, gq = sum(q for q, _ in context), sum(q for q, _ in generation)
    if name in ("vllm async", "eviction"):  # no keys
        return f"execute_context_{c}({cq})_generation_{g}({gq})"
    if name.startswith(("vllm", "adapters")):
        parts = [
            f"{len(p)}(sq{sum(q for q, _ in p)}sk{sum(k for _, k in p)}sqsq{sum(q * q for q, _ in p)}"
            f"sqsk{sum(q * k for q, k in p)})"
            for p in (context, generation)
        ]
        return f"execute_{cq + gq}_context_{parts[0]}_generation_{parts[1]}"
    if name.startswith("sglang"):
        mode = {"prefill": "EXTEND", "decode": "DECODE"}.get(kind, kind)
        if name == "sglang overlap":
            return f"step[{mode} bs={c + g} toks={cq}]" if c else f"step[{mode} bs={g}]"
        sums = [sum(q * x for q, x in zip(first, second)) for first, second in (
            ([1] * g, [q for q, _ in both]), ([1] * g, [k for _, k in both]),
            ([q for q, _ in both], [q for q, _ in both]), ([q for q, _ in both], [k for _, k in both]))]  # fmt: skip
        return f"step[{mode} bs={c + g} c=0 g={g} g_sq={sums[0]} g_sk={sums[1]} g_sqsq={sums[2]} g_sqsk={sums[3]}]"
    if name == "trtllm":
        return f"[Executor] _forward_step {number}: {c} ctx reqs, {cq} ctx tokens, {g} gen reqs"
    if name == "tgi loop":
        return f"{kind}{{batch_id={number} size={c + g}}}"
    if name == "ray serve":
        return f"{kind} requests={c + g} num_tokens={cq + gq} request_ids={','.join(f'r{i}' for i in ids)}"
    if name == "plain names":  # as users' own loops name them
        return f"prefill_b{c}" if c else f"decode_b{g}"
    return ""


_STYLE = {
    "sglang overlap": "sglang", "sglang eagle": "sglang", "trtllm": "trtllm", "llama.cpp": "ggml", "tgi loop": "vllm",
}  # fmt: skip
_CAUSES: dict[str, tuple[str, ...]] = {
    "vllm async": ("slower clock", "other kernels"), "vllm chunked": ("pause", "allocation"),
    "sglang overlap": ("slower clock",), "sglang eagle": ("pause", "code loading"), "trtllm": ("allocation", "pause"),
    "llama.cpp": ("pause",), "tgi loop": ("garbage", "allocation"), "ray serve": ("pause", "slower clock"),
    "adapters": ("pause",), "eviction": ("copies", "swap"), "plain names": ("compile", "pause"),
}  # fmt: skip
_SAID = {
    "slower clock": ("slower kernels",), "other kernels": ("other kernels",), "pause": ("host", "synchronization"),
    "allocation": ("allocation",), "code loading": ("module_load",), "garbage": ("host",), "copies": ("copies",),
    "swap": ("preemption",), "compile": ("compilation",),
}  # fmt: skip


def _engine(name: str, rng: Random, seed: int, count: int = 260) -> Recording:
    machine = _machine(rng)
    h = machine.thread(0, name="engine")
    steps = _schedule(name, rng, count)
    program = Program(name, [machine], ["step"], is_kineto=name in ("tgi loop", "plain names") or seed % 3 == 0)
    made = Recording(program, [[s.kind for s in steps]], [[s.tokens for s in steps]])
    able = [k for k, s in enumerate(steps) if k > 30 and s.kind in ("decode", "verify", "mixed")]
    planted = {k: rng.choice(_CAUSES[name]) for k in rng.sample(able, 3)}
    made.slow = {k: _SAID[cause] for k, cause in planted.items()}
    says_keys = name in ("vllm chunked", "adapters")
    made.per_token_ns, made.per_key_ns = (TOKEN_US * 1000, KEY_US * 1000) if says_keys else (0.0, 0.0)
    arrivals: dict[int, int] = {}
    with_adapters = {k for k in range(len(steps)) if name == "adapters" and rng.random() < 0.4}
    graphs = name in ("vllm async", "sglang overlap", "llama.cpp")
    for k, step in enumerate(steps):
        for i in step.ids:
            if name == "ray serve" and i not in arrivals:
                arrivals[i] = h.now
                machine.ranges.append({"text": f"request r{i}", "start": h.now, "end": None, "tid": 40 + i % 8,
                                       "kind": "nvtx", "args": {}})  # fmt: skip
                machine.thread(40 + i % 8, name="handler")
        with h.mark(step=k):
            _one(h, name, step, planted.get(k, ""), graphs and step.kind == "decode", k in with_adapters, k)
        for i in step.ids if name == "ray serve" else ():
            first, tokens = made.requests.get(f"r{i}", (0.0, 0))
            is_first = step.kind == "prefill"
            made.requests[f"r{i}"] = (h.now - arrivals[i] if is_first else first, tokens + 1)
        h.host(8 if name in ("vllm async", "sglang overlap") else 25)
    for row in machine.ranges:
        row["end"] = row["end"] or h.now
    return made


def _one(h: Thread, name: str, step: Step, cause: str, graph: bool, adapters: bool, number: int) -> None:
    """A step as the engine makes it: schedule, prepare, forward, sample."""
    with h.range("EngineCore.step" if name.startswith("vllm") else "loop") if name != "llama.cpp" else h.all():
        h.host(10)
        with h.range(step.text) if step.text else h.all():
            inner = name in ("vllm async", "vllm chunked", "trtllm", "tgi loop")
            with h.range("prepare_inputs") if inner else h.all():
                h.copy(8 * step.tokens, "HtoD", pageable=False)
            with h.range("model_forward") if inner else h.all():
                _forward(h, _STYLE.get(name, "vllm"), step, cause, graph, adapters)
            if name not in ("vllm async", "sglang overlap"):
                with h.range("sample") if inner else h.all():
                    h.launch("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps>>", 20)
                    h.copy(4 * len(step.requests), "DtoH", pageable=False)
                    h.sync(7)
    if name in ("vllm async", "sglang overlap") and number % 2:  # the host is a step ahead
        h.wait_until(h.m.free[7] - 300_000)


def _forward(h: Thread, style: str, step: Step, cause: str, graph: bool, adapters: bool) -> None:
    norm, gemm, rope, store, attention = KERNELS[style]
    whole = FIXED_US + TOKEN_US * step.tokens + KEY_US * step.keys
    lost = 0.9 * whole + 300
    if cause in ("pause", "allocation", "garbage", "compile", "code loading"):
        h.sync(7)
        if cause == "allocation":
            h.call("cudaMalloc_v3020", lost)
        elif cause == "compile":
            with h.range("torch._dynamo.convert_frame.compile_inner"):
                h.host(lost)
        elif cause == "code loading":
            h.call("cuModuleLoadData", lost)
        else:
            h.host(lost)
    if cause in ("copies", "swap"):
        with h.range("swap_out") if cause == "swap" else h.all():
            for _ in range(4):
                h.copy(int(lost * 24_000 / 4), "DtoH", pageable=False)
        h.sync(7)
    slow = 1.6 if cause == "slower clock" else 1.0
    scale = 0.2 if step.kind == "draft" else 1.0
    pairs = sum(q * k for q, k in step.requests) / max(step.tokens, 1)
    keys = step.keys if step.kind != "prefill" else pairs
    rows = []
    for _ in range(LAYERS):
        rows += [
            (norm, 4.0, step.tokens), (gemm, scale * (FIXED_US + TOKEN_US * step.tokens) * 0.4 / LAYERS, 132),
            (rope, 2.0, step.tokens), (store, 2.0, step.tokens),
            (attention, 3 + scale * KEY_US * keys / LAYERS, 4 * len(step.requests)), (norm, 4.0, step.tokens),
            (gemm, scale * (FIXED_US + TOKEN_US * step.tokens) * 0.6 / LAYERS, 132),
        ]  # fmt: skip
        if adapters:
            rows.append(("_lora_shrink_kernel", 10.0, 64))
            rows.append(("_lora_expand_kernel", 12.0, 64))
    if cause == "other kernels":
        rows.append(("cutlass_80_simt_sgemm_128x64_8x5_tn_align1", lost, 132))
    if graph:
        start = len(h.m.work)
        h.graph([(kernel, us * slow) for kernel, us, _ in rows], node_base=len(step.requests) << 32)
        for row, (_, _, grid) in zip(h.m.work[start:], rows, strict=True):
            row["grid"] = grid
        return
    for kernel, us, grid in rows:
        h.launch(kernel, us * slow, grid=grid)


# -- several processes ----------------------------------------------------------------------------------------------


def _disaggregated(rng: Random, seed: int) -> Recording:
    """One process computes prompts and sends their caches, the other generates."""
    machines = [_machine(rng, k) for k in range(2)]
    made = Recording(Program("disaggregated", machines, ["step"]), [[], []], [[], []])
    for machine, kind in zip(machines, ("prefill", "decode")):
        h = machine.thread(0, name=kind)
        keys = [rng.randint(100, 4000) for _ in range(40)]
        for number in range(160):
            if kind == "prefill":
                requests = tuple((n, n) for n in rng.choices([128, 512, 900, 2000], k=rng.randint(1, 3)))
            else:
                keys = [k + 1 if rng.random() > 0.05 else rng.randint(100, 4000) for k in keys]
                requests = tuple((1, k) for k in keys[: rng.randint(4, 40)])
            parts = (requests, ()) if kind == "prefill" else ((), requests)
            step = Step(kind, requests, _text("vllm chunked", kind, *parts))
            made.kinds[machine.device].append(kind)
            made.tokens[machine.device].append(step.tokens)
            with h.mark(step=number), h.range(step.text):
                _forward(h, "vllm", step, "", False, False)
                if kind == "prefill":
                    with h.range("nixl_send"):
                        h.copy(2_000 * step.tokens, "DtoD", pageable=False, stream=20, after=machine.free[7])
                h.sync()
            h.host(60)
    made.per_token_ns, made.per_key_ns = TOKEN_US * 1000, KEY_US * 1000
    return made


def _late_expert(rng: Random, seed: int) -> Recording:
    """Four ranks send tokens to each other's experts; those of one rank get more, and all wait for it."""
    machines = [_machine(rng, k) for k in range(4)]
    made = Recording(Program("late expert", machines, ["step"]), [[] for _ in machines], [[] for _ in machines])
    made.late_rank = rng.randrange(4) if seed % 4 else -1
    hosts = [machine.thread(0, name=f"rank {machine.device}") for machine in machines]
    norm, gemm, rope, store, attention = KERNELS["vllm"]
    more = rng.uniform(1.3, 2.0)
    for number in range(100):
        keys = [rng.randint(100, 4000) for _ in range(rng.randint(4, 40))]
        step = Step("decode", tuple((1, k) for k in keys))
        text = _text("vllm chunked", "decode", (), step.requests)
        for h in hosts:
            made.kinds[h.m.device].append("decode")
            made.tokens[h.m.device].append(step.tokens)
            h.m.ranges.append({"text": text, "start": h.now, "end": None, "tid": h.tid, "kind": "nvtx", "args": {}})
            h.m.labels = {"step": number}
            h.host(10)
        for _ in range(LAYERS):
            for h in hosts:
                h.launch(norm, 4, grid=step.tokens)
                h.launch(gemm, (FIXED_US + TOKEN_US * step.tokens) * 0.3 / LAYERS)
                h.launch(rope, 2, grid=step.tokens)
                h.launch(store, 2, grid=step.tokens)
                h.launch(attention, 3 + KEY_US * step.keys / LAYERS)
            _meet(hosts, "void deep_ep::internode_ll::dispatch<true, 3, 7168>(void*, float*, int*, long*)")
            for h in hosts:
                factor = more if h.m.device == made.late_rank else 1.0
                h.launch("void deep_gemm::sm90_fp8_gemm_1d2d_impl<(deep_gemm::GemmType)2>(float*, int*)",
                         factor * (60 + 0.8 * step.tokens))  # fmt: skip
            _meet(hosts, "void deep_ep::internode_ll::combine<7168, 9>(void*, void*, int*, void*)")
        for h in hosts:
            h.sync()
            h.m.ranges[-1]["end"] = h.now
            h.host(40)
        last = max(h.now for h in hosts)
        for h in hosts:
            h.wait_until(last)
    return made


def _meet(hosts: list[Thread], name: str) -> None:
    """A kernel that lasts until the last rank has come."""
    rows = [h.launch(name, 8, stream=7) for h in hosts]
    end = max(row["start"] for row in rows) + 9_000
    for h, row in zip(hosts, rows):
        row["end"] = end + h.m.rng.randrange(400)
        h.m.free[7] = row["end"]


def _triton_server(rng: Random, seed: int) -> Recording:
    """Two instances of a classifier on threads of one process; the batcher forms batches."""
    machine = _machine(rng)
    made = Recording(Program("triton server", [machine], ["step"]), [[]], [[]])
    for instance in range(2):
        h = machine.thread(10 + instance, name="TRITONBACKEND", now=1_000_000 + 333_000 * instance)
        for number in range(120):
            batch = rng.choice([1, 2, 4, 8])
            with h.mark(step=instance * 1000 + number), h.range(f"Run classifier_0_{instance}"):
                h.copy(600_000 * batch, "HtoD", pageable=False, stream=7 + instance)
                with h.range("ExecutionContext::enqueue"):
                    for layer in range(8):
                        with h.range(f"layer{layer // 2}.conv{layer % 2}"):
                            h.launch(f"sm80_xmma_fprop_implicit_gemm_{layer}", 10 + 12 * batch, grid=16 * batch,
                                     stream=7 + instance)  # fmt: skip
                h.copy(4_000 * batch, "DtoH", pageable=False, stream=7 + instance)
                h.sync(7 + instance)
            h.host(rng.uniform(50, 300))
            made.kinds[0].append("pass")
    return made
