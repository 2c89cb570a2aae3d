"""Ten recordings of inference engines with mixes that the other two generators do not make, each with its truth.

Chunked prefills beside decodes, drafts that are verified, engines that only prefill or only decode, two ranks of which
one is late, steps padded to the buckets of their graphs, drift, preemption, loops without any text, and steps that are
launched ahead of the device. Attention and products cost known amounts a token, key and pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from generators.machine import Machine, Program, Thread
from generators.strangers import NCCL

NORM, ROPE, GEMM, ATTENTION, STORE = (
    "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, int)",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, int)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(Flash_fwd_params)",
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(long const*, int)",
)
FIXED_US, TOKEN_US, KEY_US, PAIR_US = 900.0, 3.0, 0.006, 0.0004  # of a step; its host adds to the fixed part
Requests = list[tuple[int, int]]  # tokens and keys of each


@dataclass
class Mix:
    """A recording and its truth: the kinds of its steps in order; ``terms``: kind → accepted ns per token and key;
    ``untold``: kind → terms that nobody can tell; ``outliers``: step → words of its cause; one must be said."""

    program: Program
    kinds: list[str] = field(default_factory=list)
    terms: dict[str, dict[str, float]] = field(default_factory=dict)
    untold: dict[str, tuple[str, ...]] = field(default_factory=dict)
    outliers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    drifts: bool = False
    buckets: list[int] = field(default_factory=list)


NAMES = (
    "chunked prefill", "speculation", "prefill only", "decode only", "two ranks", "graph buckets", "drift",
    "preemption", "no text", "launched ahead",
)  # fmt: skip


def mix(name: str, seed: int = 0, steps: int = 220) -> Mix:
    """One recording of ``NAMES``."""
    rng = Random(f"{name} {seed}")
    ranks = 2 if name == "two ranks" else 1
    machines = [Machine(Random(f"{seed} {k}"), pid=5_000 + 50 * k, device=k, jitter=0.002) for k in range(ranks)]
    made = Mix(Program(name, machines, ["step"], is_kineto=bool(seed % 2) and ranks == 1))
    hosts = [machine.thread(0, name="engine") for machine in machines]
    planted = _planted(name, rng, steps)
    for number, (kind, text, requests, bucket) in enumerate(_steps(name, rng, steps)):
        made.kinds.append(kind)
        made.buckets.append(bucket)
        factor = 1 + 0.25 * number / steps if name == "drift" else 1.0
        cause = planted.get(number, "")
        late = [rng.randrange(ranks)] if cause == "late rank" else []
        planted[number] = "late here" if late == [0] else cause
        rows = []
        for rank, h in enumerate(hosts):
            with h.all(h.mark(step=number), h.range(text or "forward")):
                h.host(30)
                _work(h, requests, bucket, factor, "slow" if rank in late else cause)
                if ranks > 1:
                    rows.append(h.launch(NCCL, 1, stream=20, after=h.m.free[7]))
        for row in rows:  # a collective lasts until the last rank has come
            row["end"] = max(one["start"] for one in rows) + 20_000
        for h, row in zip(hosts, rows or [{}], strict=False):
            h.m.free[20] = h.m.free[7] = row.get("end", h.m.free[7])
            if name != "launched ahead":
                h.sync()
            h.host(40)
    made.outliers = {number: WORDS[cause] for number, cause in planted.items() if cause}
    made.drifts = name == "drift"
    _truth(name, made)
    return made


WORDS = {
    "host": ("host_code", "synchronization"), "allocation": ("allocation",), "other kernels": ("other kernels",),
    "late rank": ("communication",), "late here": ("slower kernels",), "preemption": ("preemption",),
    "clock": ("slower kernels",),
}  # fmt: skip


def _planted(name: str, rng: Random, steps: int) -> dict[int, str]:
    causes = {
        "chunked prefill": ["host", "allocation"], "decode only": ["clock", "other kernels", "host"],
        "speculation": ["other kernels"], "two ranks": ["late rank"], "preemption": ["preemption"],
        "graph buckets": ["host"],
    }  # fmt: skip
    return {at: rng.choice(causes[name]) for at in rng.sample(range(20, steps - 5), 4)} if name in causes else {}


def _steps(name: str, rng: Random, steps: int) -> Iterator[tuple[str, str, Requests, int]]:
    """Kind, text, requests and bucket of each step."""
    for number in range(steps):
        decodes = [(1, rng.choice([500, 2_000, 8_000])) for _ in range(rng.choice([2, 8, 20, 60]))]
        chunk = rng.choice([256, 512, 1024, 2048])
        before = rng.choice([0, chunk, 3 * chunk])
        if name == "chunked prefill":  # vLLM: part of a prompt beside decodes in most steps
            prompts = [(chunk, chunk + before)] if rng.random() < 0.6 else []
            yield ("mixed" if prompts else "decode"), _vllm(prompts, decodes), prompts + decodes, 0
        elif name == "speculation":  # SGLang: three drafted tokens of each request are verified
            several = [(4, keys) for _, keys in decodes]
            sums = _sums(several)
            sizes = f"g_sq={sums[1]} g_sk={sums[2]} g_sqsq={sums[3]} g_sqsk={sums[4]}"
            text = f"step[TARGET_VERIFY bs={sums[0]} c=0 g={sums[0]} c_sq=0 c_sk=0 c_sqsq=0 c_sqsk=0 {sizes}]"
            yield "verify", text, several, 0
        elif name == "prefill only":
            prompts = [(q, q) for q in (rng.choice([128, 512, 1024, 4096]) for _ in range(rng.randint(1, 6)))]
            yield "prefill", _vllm(prompts, []), prompts, 0
        elif name == "graph buckets":  # ATOM: batches are padded to powers of two
            bucket = 1 << (len(decodes) - 1).bit_length()
            sums = _sums(decodes)
            sizes = f"sqsq={sums[3]} sqsk={sums[4]} sk={sums[2]}"
            yield "decode", f"decode[bs={sums[0]}/{bucket} tok={sums[1]} p=0 d={sums[0]} {sizes}]", decodes, bucket
        elif name == "no text":  # one prompt, then its answer, of four requests
            place = number % 40
            yield ("prefill", "", [(300, 300)] * 4, 0) if place == 0 else ("decode", "", [(1, 300 + place)] * 4, 0)
        else:
            yield "decode", _vllm([], decodes), decodes, 0


def _sums(requests: Requests) -> tuple[int, int, int, int, int]:
    return (len(requests), sum(q for q, _ in requests), sum(k for _, k in requests), sum(q * q for q, _ in requests),
            sum(q * k for q, k in requests))  # fmt: skip


def _vllm(prompts: Requests, decodes: Requests) -> str:
    parts = [f"{n}(sq{q}sk{k}sqsq{qq}sqsk{qk})" for n, q, k, qq, qk in (_sums(prompts), _sums(decodes))]
    return f"execute_{_sums(prompts + decodes)[1]}_context_{parts[0]}_generation_{parts[1]}"


def _work(h: Thread, requests: Requests, bucket: int, factor: float, cause: str) -> None:
    """The kernels of a step of four layers, and what went wrong in it."""
    _, tokens, keys, _, pairs = _sums(requests)
    padded = max(bucket, tokens)
    whole = FIXED_US + TOKEN_US * padded + KEY_US * keys + PAIR_US * pairs
    if cause in ("host", "allocation"):
        h.sync(7)
        h.host(whole * 0.7 if cause == "host" else 1)
        if cause == "allocation":
            h.call("cudaMalloc_v3020", whole * 0.7)
    if cause == "preemption":
        with h.range("swap_out"):
            h.copy(int(whole * 0.8 * 24_000), "DtoH", pageable=False)
        h.sync(7)
    slow = factor * (1.7 if cause in ("clock", "slow") else 1.0)
    for _ in range(4):
        h.launch(NORM, FIXED_US / 40 * slow, grid=padded)
        h.launch(GEMM, (FIXED_US * 9 / 40 + TOKEN_US * padded / 4) * slow, grid=132)
        h.launch(ROPE, 2 * slow, grid=padded)
        h.launch(STORE, 2 * slow, grid=padded)
        h.launch(ATTENTION, (2 + KEY_US * keys / 4 + PAIR_US * pairs / 4) * slow, grid=4 * len(requests))
    if cause == "other kernels":
        h.launch("void at::native::some_fallback_kernel<c10::BFloat16>(int)", whole * 0.7)


def _truth(name: str, made: Mix) -> None:
    """What can be told: every pair of a decode is a key; of verified drafts the pairs are four keys each."""
    token, key, pair = TOKEN_US * 1000, KEY_US * 1000, PAIR_US * 1000
    made.terms = {
        "chunked prefill": {"decode": {"per_token_ns": token, "per_key_ns": key + pair},
                            "mixed": {"per_token_ns": token, "per_key_ns": key, "per_pair_ns": pair}},
        "speculation": {"verify": {"per_token_ns": token, "per_key_ns": key + 4 * pair}},
        "prefill only": {"prefill": {"per_pair_ns": pair}},
        "drift": {}, "graph buckets": {"decode": {"per_key_ns": key + pair}},
        "no text": {},
    }.get(name, {"decode": {"per_token_ns": token, "per_key_ns": key + pair}})  # fmt: skip
    made.untold = {"prefill only": {"prefill": ("per_key_ns",)}, "speculation": {"verify": ("per_pair_ns",)}}.get(
        name, {}
    )


__all__ = ["NAMES", "WORDS", "Mix", "mix"]
