"""Recordings of an inference engine whose steps cost known amounts: mixes, outliers with their causes, drift.

A step takes  fixed + per token · Σq + per key · Σk + per pair · Σq·k , times what chance makes of it: the host's part
and products are the fixed part and that of the tokens, attention that of keys and pairs. Times are whole nanoseconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

FIXED_NS, GEMM_NS, PER_TOKEN_NS, PER_KEY_NS, PER_PAIR_NS = 200_000, 300_000, 4000.0, 5.0, 0.4
CAUSES = ("allocation", "host", "kernels", "clock")
_VLLM = "(sq{?_q}sk{?_k}sqsq{?_qq}sqsk{?_qk})"
_SGLANG = "?_sq={?_q} ?_sk={?_k} ?_sqsq={?_qq} ?_sqsk={?_qk}"
_TEXT = {
    "vllm": "execute_{tokens}_context_{c}" + _VLLM.replace("?", "c") + "_generation_{g}" + _VLLM.replace("?", "g"),
    "sglang": "step[{mode} bs={requests} c={c} g={g} " + " ".join(_SGLANG.replace("?", one) for one in "cg") + "]",
    "atom": "{atom}[bs={requests} tok={tokens} p={c} d={g} sqsq={qq} sqsk={qk} sk={k}]",
    "xsp": "xsp/step:{kind} requests={requests} tokens={tokens} keys={k} squares={qq} products={qk}",
}
_MODE = {"prefill": "EXTEND", "decode": "DECODE", "mixed": "MIXED"}


@dataclass
class Serving:
    """What was recorded: per step kind, sizes and time; where outliers are, and why."""

    events: list[dict] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    sizes: list[tuple[int, int, int]] = field(default_factory=list)
    causes: dict[int, str] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Generated GPU", "numSms": 108}]}
        path.write_text(json.dumps({**head, "traceEvents": self.events}))
        return path


def serving(
    seed: int, count: int, *, mix: str = "all", dialect: str = "", noise: float = 0.02, outliers: int = 0,
    drift: float = 0.0, causes: tuple[str, ...] = CAUSES,
) -> Serving:  # fmt: skip
    """``mix``: all kinds; ``decode``: only that; ``constant``: decodes of one batch whose contexts grow alike;
    ``unlike``: times that follow no size. ``drift``: how much longer the last step takes than the first."""
    rng = np.random.default_rng(seed)
    made = Serving()
    dialect = dialect or str(rng.choice([*_TEXT]))
    planted = rng.choice(np.arange(10, count - 10), outliers, replace=False)
    made.causes = {int(step): causes[k % len(causes)] for k, step in enumerate(planted)}
    at, number = 1_000_000_000, 1
    for step in range(count):
        kind = (
            "decode"
            if mix in ("decode", "constant")
            else str(rng.choice(["decode", "prefill", "mixed"], p=[0.6, 0.2, 0.2]))
        )
        context, generation = _requests(rng, kind, mix, step)
        words = _words(kind, context, generation)
        tokens, keys, pairs = words["tokens"], words["k"], words["qk"]
        chance = (1 + noise * float(np.clip(rng.standard_normal(), -2.9, 2.9))) * (1 + drift * step / count)
        if mix == "unlike":
            chance *= float(np.exp(1.5 * rng.standard_normal()))
        gemm, attention = GEMM_NS + PER_TOKEN_NS * tokens, PER_KEY_NS * keys + PER_PAIR_NS * pairs
        whole = (FIXED_NS + gemm + attention) * chance
        extra, cause = 0.0, made.causes.get(step, "")
        if cause:
            extra = whole * (max(6 * noise, 0.1) + float(rng.random()))
        number = _step(made, at, number, _TEXT[dialect].format(**words), chance, gemm, attention, cause, extra)
        made.kind.append(kind)
        made.sizes.append((tokens, keys, pairs))
        at += int(whole + extra) + int(rng.integers(5_000, 60_000))
    return made


def _requests(rng: np.random.Generator, kind: str, mix: str, step: int) -> tuple[list, list]:
    """(q, k) of the requests in prefill and of those in decode."""
    if mix == "constant":
        return [], [(1, 500 + step)] * 16
    prefills = [(int(q), int(q + rng.choice([0, 512, 3000]))) for q in rng.integers(64, 2048, rng.integers(1, 5))]
    scale = 4 ** rng.integers(0, 5)  # contexts of one step are alike: keys do not follow tokens
    decodes = [(1, int(k * scale)) for k in rng.integers(16, 33, rng.integers(1, 65))]
    return ([] if kind == "decode" else prefills), ([] if kind == "prefill" else decodes)


def _words(kind: str, context: list, generation: list) -> dict:
    def sums(pairs: list) -> tuple[int, int, int, int, int]:
        return len(pairs), sum(q for q, _ in pairs), sum(k for _, k in pairs), sum(q * q for q, _ in pairs), sum(
            q * k for q, k in pairs)  # fmt: skip

    names = ("", "_q", "_k", "_qq", "_qk")
    parts = {f"{part}{name}": value for part, of in (("c", context), ("g", generation))
             for name, value in zip(names, sums(of))}  # fmt: skip
    requests, tokens, k, qq, qk = sums([*context, *generation])
    return {**parts, "requests": requests, "tokens": tokens, "k": k, "qq": qq, "qk": qk, "kind": kind,
            "mode": _MODE[kind], "atom": "prefill" if kind == "prefill" else "decode"}  # fmt: skip


def _step(
    made: Serving, at: int, number: int, text: str, chance: float, gemm: float, attention: float, cause: str,
    extra: float,
) -> int:  # fmt: skip
    """One step that begins ``at``: its range, and launches and executions of its kernels. Returns the next number."""
    slower = chance + extra / (gemm + attention) if cause == "clock" else chance
    kernels = [("sm90_xmma_gemm_bf16", gemm * slower), ("flash_fwd_splitkv_kernel", attention * slower)]
    if cause == "kernels":
        kernels.append(("sm80_xmma_gemm_fallback", extra))
    begin, clock = at, at + int(FIXED_NS * chance / 2)
    launch = at + 10_000
    for place, (name, length) in enumerate(kernels):
        if place == 1 and cause in ("allocation", "host", "compile", "compiled code"):
            clock += int(extra)
            if cause.startswith("compile"):
                inner = "compile_inner (dynamo_timed)" if cause == "compile" else "Torch-Compiled Region: 0/0"
                _event(made, "user_annotation", inner, launch + 1_000, clock - 20_000 - launch)
            if cause == "allocation":
                _event(made, "cuda_runtime", "cudaMalloc", launch, clock - 20_000 - launch, correlation=number, cbid=20)
                number += 1
            launch = clock - 15_000
        _event(made, "cuda_runtime", "cudaLaunchKernel", launch, 4_000, correlation=number, cbid=211)
        _event(made, "kernel", name, clock, int(length), pid=0, tid=7, correlation=number, device=0, stream=7)
        clock, number, launch = clock + int(length), number + 1, launch + 6_000
    end = clock + int(FIXED_NS * chance / 2)
    _event(made, "cuda_runtime", "cudaStreamSynchronize", launch, clock - launch, correlation=number, cbid=131)
    _event(made, "user_annotation", text, begin, end - begin)
    return number + 1


def _event(
    made: Serving, category: str, name: str, at: int, length: int, *, pid: int = 4242, tid: int = 4242, **args: int
) -> None:  # fmt: skip
    made.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": at / 1000,
                        "dur": length / 1000, "args": args})  # fmt: skip
