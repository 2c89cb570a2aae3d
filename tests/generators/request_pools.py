"""Serving recordings of a pool of requests: coefficients, outliers, drift and wrong mixes are known.

`pool(seed)` draws an engine (its texts, kernels, profiler) and simulates arrivals; `Pool.write` makes the recording.
What is true of it: `terms` by kind and family, and how well any fit can know them (`told`); slow steps with their
cause; `drift`; `wrong` mixes, whose sizes explain nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from builders import ExportBuilder

if TYPE_CHECKING:
    from pathlib import Path

BASE = 5_000_000_000  # ns, of the recording's first step
CAUSES = (
    "host_gap",
    "recompilation",
    "code_loading",
    "allocation",
    "preemption",
    "late_rank",
    "other_kernels",
    "clock",
)
DIALECTS = ("vllm", "vllm_short", "sglang", "sglang_short", "tensorrt_llm", "atom", "tgi", "xsp")
SAYS_KEYS = {"vllm", "sglang", "atom", "xsp"}

KERNELS = {  # three engines' worth of names: family -> (name in a decode, name in a prefill)
    "vllm": {
        "embedding": "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long)",
        "norm": "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, c10::BFloat16*, float)",
        "gemm": "nvjet_tst_128x64_64x8_2x1_v_bz_TNT",
        "rope": "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)",
        "cache": "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 const*)",
        "attention": "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::C>>>(P)",
        "act": "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(c10::BFloat16*)",
        "other": "cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align8",
        "sampling": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>",
        "communication": "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    },
    "sglang": {
        "embedding": "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(T*, long)",
        "norm": "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*)",
        "gemm": "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
        "rope": "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel<true, 128u>(__nv_bfloat16*)",
        "cache": "void sgl_hicache::store_kv_cache_kernel<128>(__nv_bfloat16*, long)",
        "attention": "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1, 128>>(Params)",
        "act": "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu>(__nv_bfloat16*, __nv_bfloat16*)",
        "other": "nvjet_hsh_64x8_64x16_4x1_v_bz_TNN",
        "sampling": "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, true, float, int>(float*, int*)",
        "communication": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    },
    "other": {
        "embedding": "void tensorrt_llm::kernels::lookup_kernel<__nv_bfloat16, int>(__nv_bfloat16*, int const*)",
        "norm": "void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, float>(__nv_bfloat16 const*, float)",
        "gemm": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "rope": "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16, 256, 128>(QKVParams)",
        "cache": "void tensorrt_llm::kernels::updateKvCacheAfterDecoding<__nv_bfloat16>(Params)",
        "attention": "fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_128_causal_sm86_kernel_nl",
        "act": "void tensorrt_llm::kernels::swiglu_kernel<__nv_bfloat16>(__nv_bfloat16*)",
        "other": "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(Params)",
        "sampling": "void tensorrt_llm::kernels::topKStage2Sampling<float, 256>(int const*, float*)",
        "communication": "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8, true>(AllReduceParams)",
    },
}


@dataclass
class Step:
    """One step as the simulation makes it: requests of its two parts, and their sums."""

    kind: str
    context: list[tuple[int, int]] = field(default_factory=list)  # (q, k) of prefills and chunks
    generation: list[tuple[int, int]] = field(default_factory=list)  # (q, k) of decodes, drafts, verifications
    bucket: int = 0
    cause: str = ""
    scale: float = 1.0

    @property
    def all(self) -> list[tuple[int, int]]:
        return self.context + self.generation

    def sums(self, part: list[tuple[int, int]] | None = None) -> tuple[int, int, int, int]:
        rows = self.all if part is None else part
        return (
            sum(q for q, _ in rows),
            sum(k for _, k in rows),
            sum(q * q for q, _ in rows),
            sum(q * k for q, k in rows),
        )


@dataclass
class Pool:
    """A recording and what is true of it."""

    seed: int
    dialect: str
    profiler: str
    steps: list[Step]
    terms: dict[tuple[str, str], np.ndarray]  # (kind, family) -> fixed, per token, per key, per pair (ns)
    noise: dict[str, float]  # kind -> deviation of a step of median size
    drift: float
    wrong: str
    collinear: bool
    eager_prefill: bool
    ahead: bool
    engine: str
    with_comm: bool

    def padded(self, step: Step) -> int:
        """Tokens that the step's kernels compute: those of the graph's bucket."""
        return max(step.bucket, step.sums()[0])

    def design(self, kind: str) -> np.ndarray:
        rows = [(1, self.padded(s), s.sums()[1], s.sums()[3]) for s in self.steps if s.kind == kind]
        return np.array(rows, dtype=float)

    def text(self, step: Step) -> str:
        q, k, qq, qk = step.sums()
        n = len(step.all)
        c, g = step.context, step.generation
        cq, ck, cqq, cqk = step.sums(c)
        gq, gk, gqq, gqk = step.sums(g)
        if self.dialect == "vllm":
            return (
                f"execute_{q}_context_{len(c)}(sq{cq}sk{ck}sqsq{cqq}sqsk{cqk})"
                f"_generation_{len(g)}(sq{gq}sk{gk}sqsq{gqq}sqsk{gqk})"
            )
        if self.dialect == "vllm_short":
            return f"execute_context_{len(c)}({cq})_generation_{len(g)}({gq})"
        if self.dialect == "sglang":
            mode = {"prefill": "EXTEND", "decode": "DECODE", "mixed": "MIXED", "verify": "TARGET_VERIFY",
                    "draft": "DRAFT_EXTEND"}[step.kind]  # fmt: skip
            parts = f"c={len(c)} g={len(g)} c_sq={cq} c_sk={ck} c_sqsq={cqq} c_sqsk={cqk}"
            return f"step[{mode} bs={n} toks={q} {parts} g_sq={gq} g_sk={gk} g_sqsq={gqq} g_sqsk={gqk}]"
        if self.dialect == "sglang_short":
            mode = {"prefill": "EXTEND", "decode": "DECODE"}[step.kind]
            return f"step[{mode} bs={n} toks={q}]" if step.kind == "prefill" else f"step[{mode} bs={n}]"
        if self.dialect == "tensorrt_llm":
            number = 1 + self.steps.index(step)
            return f"[Executor] _forward_step {number}: {len(c)} ctx reqs, {cq} ctx tokens, {len(g)} gen reqs"
        if self.dialect == "atom":
            word = "prefill" if c else "decode"
            drafted = max(gq // max(len(g), 1), 1) - 1
            return (
                f"{word}[bs={n}/{step.bucket or n} tok={q} p={len(c)} d={len(g)} spec={drafted}"
                f" sqsq={qq} sqsk={qk} sk={k} tbo=0]"
            )
        if self.dialect == "tgi":
            return f"{step.kind}{{id={self.steps.index(step)} size={n}}}"
        longest = max(k for _, k in step.all)
        return f"xsp/step:{step.kind} requests={n} tokens={q} keys={k} squares={qq} products={qk} longest={longest}"


def pool(seed: int, count: int = 500) -> Pool:
    """The recording of this number; its first numbers walk through dialects, causes and wrong mixes."""
    draw = np.random.default_rng(77_000 + seed)
    dialect = DIALECTS[seed % len(DIALECTS)]
    profiler = ("torch", "nsys")[(seed // len(DIALECTS) + seed) % 2]
    wrong = {10: "shuffled", 13: "few", 20: "two_models", 32: "shuffled"}.get(seed % 48, "")
    drift = float(draw.uniform(0.05, 0.15)) if seed % 5 == 3 else 0.0
    kinds = ["prefill", "decode"]
    if dialect in ("vllm", "sglang", "atom", "xsp") and seed % 3 == 0:
        kinds = ["mixed", "decode"]
    if dialect in ("sglang", "xsp") and seed % 3 == 1:
        kinds = ["prefill", "verify", "draft"]
    collinear = dialect in SAYS_KEYS and seed % 4 == 2 and not (drift or wrong)  # contexts that grow hide a drift
    engine = {"vllm": "vllm", "vllm_short": "vllm", "sglang": "sglang", "sglang_short": "sglang"}.get(dialect, "other")
    steps = _steps(draw, dialect, kinds, collinear, 10 if wrong == "few" else count)
    with_comm = bool(draw.random() < 0.6)
    terms = {}
    for kind in kinds:
        terms |= {(kind, f): v for f, v in _terms(draw, kind, with_comm).items()}
    made = Pool(
        seed, dialect, profiler, steps, terms, {k: float(draw.uniform(0.003, 0.015)) for k in kinds}, drift, wrong,
        collinear, bool(draw.random() < 0.5), bool(draw.random() < 0.25), engine, with_comm,
    )  # fmt: skip
    if not wrong:
        _plant(draw, made)
    return made


def _steps(draw: np.random.Generator, dialect: str, kinds: list[str], collinear: bool, count: int) -> list[Step]:
    """A pool of requests: prompts arrive, are computed in chunks or whole, and generate."""
    fixed_length = 0 if dialect in SAYS_KEYS else int(draw.choice([256, 512, 1024]))
    running: list[int] = []  # context of each running request
    steps: list[Step] = []
    chunked, speculative = "mixed" in kinds, "verify" in kinds
    waiting: list[list[int]] = []  # [computed, length]
    limit = int(draw.choice([24, 48, 96]))
    target = 16
    width = int(draw.integers(2, 6)) + 1
    if collinear:
        running = [1000] * 16
    while len(steps) < count:
        if len(steps) % 40 == 0:
            target = int(draw.integers(2, limit))
        if collinear:  # 16 requests that grow together: tokens are constant, nothing is known of their part
            running = [k + 1 for k in running] if running[0] < 4000 else [300] * 16
        else:
            running = [k for k in running if draw.random() > 0.03][:target]
        if not collinear and len(running) < target and not waiting:
            for _ in range(int(draw.integers(1, 4))):
                length = int(np.exp(draw.uniform(np.log(64), np.log(6000))))
                waiting += [[0, fixed_length or length]]
        if waiting and chunked:
            chunk = min(waiting[0][1] - waiting[0][0], int(draw.choice([512, 1024, 2048])))
            waiting[0][0] += chunk
            steps.append(Step("mixed", [(chunk, waiting[0][0])], [(1, k) for k in running]))
            if steps[-1].generation == []:
                steps[-1].kind = "prefill" if "prefill" in kinds else "skip"
            if waiting[0][0] >= waiting[0][1]:
                running.append(waiting.pop(0)[1])
        elif waiting:
            steps.append(Step("prefill", [(n, n) for _, n in waiting]))
            running += [n + (int(draw.integers(1, 8000)) if dialect in SAYS_KEYS else 0) for _, n in waiting]
            waiting = []
        if not running:
            continue
        if speculative:
            steps.append(Step("draft", [], [(1, k) for k in running]))
            steps.append(Step("verify", [], [(width, k + width) for k in running]))
        else:
            bucket = 0
            if dialect == "atom":
                bucket = next(b for b in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128) if b >= len(running))
            steps.append(Step("decode", [], [(1, k if fixed_length == 0 else fixed_length) for k in running], bucket))
        running = [k + (width - 1 if speculative else 1) for k in running]
        if collinear and len(steps) % 6 == 0 and "prefill" in kinds:
            steps.append(Step("prefill", [(int(n), int(n)) for n in draw.integers(64, 4000, int(draw.integers(1, 4)))]))
    return [s for s in steps if s.kind != "skip"]


def _terms(draw: np.random.Generator, kind: str, with_comm: bool) -> dict[str, np.ndarray]:
    """Coefficients of each family of kernels (ns): fixed, per token, per key, per pair."""
    us = 1000.0
    wide = kind in ("prefill", "mixed")
    small = 0.25 if kind == "draft" else 1.0
    made = {
        "gemm": [
            draw.uniform(150, 600) * us * small,
            draw.uniform(0.4, 1.6) * us if wide else draw.uniform(0.5, 4) * us,
            0,
            0,
        ],
        "attention": [draw.uniform(10, 40) * us, 0, draw.uniform(0.5, 4), 0],
        "norm": [draw.uniform(5, 15) * us, draw.uniform(20, 120), 0, 0],
        "elementwise": [draw.uniform(4, 12) * us, draw.uniform(10, 60), 0, 0],
        "sampling": [draw.uniform(20, 60) * us, 0, 0, 0],
    }
    if wide:
        made["attention"][2:] = [draw.uniform(0.5, 4) if kind == "mixed" else 0, draw.uniform(0.1, 0.4)]
    if with_comm:
        made["communication"] = [draw.uniform(20, 60) * us, draw.uniform(50, 300), 0, 0]
    return {k: np.array(v, dtype=float) for k, v in made.items()}


def _plant(draw: np.random.Generator, made: Pool) -> None:
    """Slow steps of two to four causes, one step in sixty; which they are follows from the number."""
    usable = [c for c in CAUSES if (c != "late_rank" or made.with_comm)]
    first = made.seed % len(usable)
    causes = [usable[(first + 3 * i) % len(usable)] for i in range(int(draw.integers(2, 5)))]
    counts = {k: sum(s.kind == k for s in made.steps) for k in made.noise}
    able = [i for i, s in enumerate(made.steps) if counts[s.kind] >= 60 and i > 30]
    for i in draw.choice(able, max(len(made.steps) // 60, 2), replace=False):
        step = made.steps[i]
        step.cause = str(draw.choice(causes))
        step.scale = float(
            max(draw.uniform(6, 12) * made.noise[step.kind], 0.03) if draw.random() < 0.4 else draw.uniform(0.15, 1.5)
        )
        if step.cause == "clock":
            step.scale = float(min(step.scale, 0.6))


# -- the recording ---------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """One thing of the recording, before a format writes it."""

    what: str  # range, op, call, kernel, copy
    name: str
    start: int
    end: int
    number: int = 0
    grid: int = 1
    size: int = 0


LAYERS = 3
TERMS = ("fixed", "per_token", "per_key", "per_pair")


def rows(made: Pool) -> tuple[list[Row], list[dict]]:
    """The recording's rows, and per step its true times by family."""
    draw = np.random.default_rng(88_000 + made.seed)
    names = KERNELS[made.engine]
    out: list[Row] = []
    truth: list[dict] = []
    host, free, number = BASE, BASE, 0
    texts = [made.text(s) for s in made.steps]
    if made.wrong == "shuffled":
        for kind in made.noise:
            at = [i for i, s in enumerate(made.steps) if s.kind == kind]
            mixed = list(draw.permutation(at))
            texts = [texts[mixed[at.index(i)]] if i in at else t for i, t in enumerate(texts)]
    medians = {k: np.median([_clean(made, s) for s in made.steps if s.kind == k] or [1.0]) for k in made.noise}
    for index, step in enumerate(made.steps):
        q, k, _, qk = step.sums()
        q = made.padded(step)
        size = np.array([1, q, k, qk], dtype=float)
        clean = _clean(made, step)
        deviation = made.noise[step.kind] * (0.6 + 0.4 * np.sqrt(medians[step.kind] / clean))
        shared = 1 + 0.5 * deviation * draw.standard_normal()
        factor = 1 + made.drift * index / len(made.steps)
        if made.wrong == "two_models" and draw.random() < 0.5:
            factor *= 3.0
        lost = int(step.scale * clean) if step.cause else 0
        if step.cause == "clock":
            factor *= 1 + step.scale
        family_ns = {
            f: float(made.terms[step.kind, f] @ size) * shared * factor
            * (1 + 0.85 * deviation * draw.standard_normal())
            for kind, f in made.terms
            if kind == step.kind
        }  # fmt: skip
        truth.append(
            {"kind": step.kind, "cause": step.cause, "lost": lost, "deviation": deviation, "clean": clean} | family_ns
        )
        plan = _plan(step, family_ns, names, q, len(step.all), made.with_comm, lost)
        begin = host
        at = begin + int(draw.uniform(35_000, 45_000))
        if step.cause in ("host_gap", "recompilation", "code_loading", "allocation", "preemption"):
            at, free, number = _stall(out, step, at, lost, free, number, made.profiler)
        graph = step.kind != "prefill" and step.kind != "mixed"
        graph = graph or not made.eager_prefill
        if graph:
            number += 1
            out.append(Row("call", "cudaGraphLaunch", at, at + 12_000, number))
            at += 12_000
        for name, duration, grid in plan:
            if not graph:
                number += 1
                out.append(Row("call", "cudaLaunchKernel", at, at + 2_500, number))
                at += 3_500
            start = max(free + 900, at + 1_500)
            free = start + max(int(duration), 800)
            out.append(Row("kernel", name, start, free, number, 132 if made.wrong else int(max(grid, 1))))
        number += 1
        out.append(Row("call", "cudaMemcpyAsync", at, at + 3_000, number))
        out.append(Row("copy", "DtoH", free + 900, free + 2_300, number, size=8 * len(step.all)))
        free += 2_300
        if made.ahead:  # the host only records an event and goes on with the next step
            out.append(Row("range", texts[index], begin, at + 6_000))
            truth[-1] |= {"start": begin}
            host = max(at + 60_000, free - int(0.5 * clean))
        else:
            number += 1
            out.append(Row("call", "cudaStreamSynchronize", at + 4_000, free + 5_000, number))
            out.append(Row("range", texts[index], begin, free + 9_000))
            truth[-1] |= {"start": begin}
            host = free + 9_000 + int(draw.gamma(9, 30_000))
    return out, truth


def _clean(made: Pool, step: Step) -> float:
    _, k, _, qk = step.sums()
    size = np.array([1, made.padded(step), k, qk], dtype=float)
    return float(sum(made.terms[key] @ size for key in made.terms if key[0] == step.kind))


def _plan(
    step: Step, family_ns: dict, names: dict, tokens: int, requests: int, with_comm: bool, lost: int
) -> list[tuple[str, float, int]]:
    """Kernels in order with their times: a layer's parts share the family's time evenly."""
    gemm = names["other"] if step.cause == "other_kernels" else names["gemm"]
    extra = lost if step.cause == "other_kernels" else 0
    late = lost if step.cause == "late_rank" else 0
    products = family_ns["gemm"] + extra
    light = family_ns["elementwise"]
    plan = [(names["embedding"], light / 4, tokens)]
    for layer in range(LAYERS):
        plan += [
            (names["norm"], family_ns["norm"] / (2 * LAYERS), tokens),
            (gemm, products * 0.2 / LAYERS, 132),
            (names["rope"], light / 4 / LAYERS, tokens),
            (names["cache"], light / 4 / LAYERS, tokens),
            (names["attention"], family_ns["attention"] / LAYERS, 4 * requests),
            (gemm, products * 0.1 / LAYERS, 132),
        ]
        if with_comm:
            plan.append((names["communication"], family_ns["communication"] / LAYERS + (late if layer == 1 else 0), 24))
        plan += [
            (names["norm"], family_ns["norm"] / (2 * LAYERS), tokens),
            (gemm, products * 0.35 / LAYERS, 264),
            (names["act"], light / 4 / LAYERS, tokens),
            (gemm, products * 0.25 / LAYERS, 132),
        ]
    return [*plan, (gemm, products * 0.1, 396), (names["sampling"], family_ns["sampling"], requests)]


def _stall(
    out: list[Row], step: Step, at: int, lost: int, free: int, number: int, profiler: str
) -> tuple[int, int, int]:
    """Something on the host before the step's first launch that takes `lost`; the GPU waits for it."""
    at = max(at, free)  # what was queued is done: the GPU idles for all of it
    end = at + lost
    number += 1
    if step.cause == "recompilation":
        out.append(Row("op", "_compile.compile_inner (dynamo_timed)", at, end))
    elif step.cause == "code_loading":
        out.append(Row("call", "cuModuleLoadData" if profiler == "torch" else "cuLibraryLoadData", at, end, number))
    elif step.cause == "allocation":
        out.append(Row("call", "cudaMalloc", at, end, number))
    elif step.cause == "preemption":
        out.append(Row("op", f"swap_out {len(step.all)} blocks", at, end))
        out.append(Row("call", "cudaMemcpyAsync", at + 2_000, at + 6_000, number))
        out.append(Row("copy", "DtoH", at + 8_000, max(end - 4_000, at + 9_000), number, size=lost * 20))
        number += 1
        out.append(Row("call", "cudaStreamSynchronize", at + 7_000, max(end - 1_000, at + 10_000), number))
        free = max(end - 4_000, at + 9_000)
    return end + 2_000, free, number


def write(made: Pool, folder: Path) -> tuple[Path, list[dict]]:
    """The recording's file, and what is true of each of its steps."""
    what, truth = rows(made)
    path = _kineto(made, what, folder) if made.profiler == "torch" else _nsys(made, what, folder)
    return path, truth


def _kineto(made: Pool, what: list[Row], folder: Path) -> Path:
    events = []
    for row in what:
        times = {"ph": "X", "name": row.name, "ts": row.start / 1000, "dur": (row.end - row.start) / 1000}
        host = {"pid": 4242, "tid": 4242}
        device = {"pid": 0, "tid": 7}
        link = {"correlation": row.number}
        if row.what == "range":
            events.append(times | host | {"cat": "user_annotation", "args": {}})
        elif row.what == "op":
            events.append(times | host | {"cat": "cpu_op", "args": {}})
        elif row.what == "call":
            driver = row.name.startswith("cu") and not row.name.startswith("cuda")
            events.append(times | host | {"cat": "cuda_driver" if driver else "cuda_runtime", "args": link})
        elif row.what == "kernel":
            shape = {"grid": [row.grid, 1, 1], "block": [256, 1, 1], "registers per thread": 64}
            place = {"device": 0, "context": 1, "stream": 7, "shared memory": 0}
            events.append(times | device | {"cat": "kernel", "args": link | place | shape})
        else:
            args = link | {"device": 0, "context": 1, "stream": 7, "bytes": row.size}
            events.append(
                times | device | {"cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "args": args}
            )
    gpu = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "computeMajor": 9}
    gpu |= {"computeMinor": 0, "numSms": 132, "maxThreadsPerBlock": 1024, "warpSize": 32}
    path = folder / f"pool_{made.seed}.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": events}, default=int))
    return path


def _nsys(made: Pool, what: list[Row], folder: Path) -> Path:
    builder = ExportBuilder().process(4242).gpu()
    for row in what:
        if row.what in ("range", "op"):
            builder.range(row.name, row.start, row.end)
        elif row.what == "call":
            builder.api(row.name, row.start, row.end, correlation=row.number)
        elif row.what == "kernel":
            builder.kernel(row.name, run=(row.start, row.end), correlation=row.number, grid=(row.grid, 1, 1))
        else:
            builder.memcpy(max(row.size, 1), run=(row.start, row.end), kind="DtoH", correlation=row.number)
    return builder.write(folder / f"pool_{made.seed}.sqlite")


def told(made: Pool, truth: list[dict]) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(kind, family, term) → its true value as the texts let it be seen, and the least standard error that any unbiased
    fit of the ordinary steps can have (Cramér-Rao); nothing where sizes hide it."""
    found = {}
    fixed_length = 0 if made.dialect in SAYS_KEYS else max(k for one in made.steps for _, k in one.all)
    for kind, family in made.terms:
        value = made.terms[kind, family] * (1 + made.drift / 2)
        if fixed_length:  # keys are not said: they are a part of each token
            value = np.array([value[0], value[1] + fixed_length * (value[2] + value[3]), 0, 0])
        rows = [one for one in truth if one["kind"] == kind]
        if not rows:
            continue
        whole, ordinary = made.design(kind), np.array([not one["cause"] for one in rows])
        use = [k for k in range(4) if not k or (value[k] and np.ptp(whole[:, k]))]
        scatter = np.array([one["deviation"] for one in rows]) * np.sqrt(0.25 + 0.85**2)
        weighed = (whole[:, use] / (scatter * (whole @ value))[:, None])[ordinary]
        if np.linalg.matrix_rank(weighed) < len(use):
            continue
        error = np.sqrt(np.diag(np.linalg.pinv(weighed.T @ weighed)))
        is_hidden = bool(value[1]) and 1 not in use  # one batch: its tokens are a part of the fixed term
        for k, one in zip(use, error):
            if k or not is_hidden:
                found[kind, family, TERMS[k]] = (float(value[k]), float(one))
    return found
