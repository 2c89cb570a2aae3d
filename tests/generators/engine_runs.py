"""Recordings of inference engines whose cost per step is known (a + b·tokens + c·keys), with outliers and drift.

`run(seed)` makes one. Step texts of vLLM, SGLang, TensorRT-LLM or `xsp_post.step`; sizes that a text does not hold are
not known to its reader either. Written apart from `serving`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from generators.machine import Machine, Program, Thread
from generators.strangers import VLLM_BLOCK

GEMM, NORM, ATTENTION, GEMM2 = VLLM_BLOCK[7][0], VLLM_BLOCK[0][0], VLLM_BLOCK[4][0], VLLM_BLOCK[9][0]
LAYERS = 4
SHORT = ("vllm, no keys", "TensorRT-LLM")  # dialects whose texts do not hold the context


@dataclass
class Run:
    """A recording and its truth. ``per_token`` …: ns of a step, by kind; ``outliers``: step → accepted causes."""

    program: Program
    dialect: str
    per_token: dict[str, float]
    per_key: dict[str, float]
    outliers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    drift: float = 0.0
    context: int = 2_000  # of each request, where all are equal
    unknown: tuple[str, ...] = ()  # terms that nobody can tell from this recording: token, key


CAUSES: dict[str, tuple[str, ...]] = {
    "pause of the host": ("host",),
    "allocation": ("alloc",),
    "code loading": ("load", "launch"),
    "other kernels": ("other kernels", "slower kernels"),
    "slower clock": ("slower kernels",),
}


def _text(dialect: str, kind: str, number: int, batch: int, tokens: int, keys: int, pairs: int) -> str:
    prefill = kind == "prefill"
    first, second = (batch, 0) if prefill else (0, batch)
    if dialect == "vllm, no keys":  # texts of 2025: requests and tokens only
        return f"execute_context_{first}({tokens * prefill})_generation_{second}({second})"
    if dialect == "TensorRT-LLM":
        sizes = f"{first} ctx reqs, {tokens * prefill} ctx tokens, {second} gen reqs"
        return f"[Executor] _forward_step {number}: {sizes}"
    if dialect == "vllm":
        sizes = f"(sq{tokens}sk{keys}sqsq{tokens * tokens // batch}sqsk{pairs})"
        none = "0(sq0sk0sqsq0sqsk0)"
        context, generation = f"{batch}{sizes}" if prefill else none, none if prefill else f"{batch}{sizes}"
        return f"execute_{tokens}_context_{context}_generation_{generation}"
    if dialect == "sglang":
        parts = (batch, 0, tokens, keys, 0, 0, 0) if prefill else (0, batch, 0, 0, tokens, keys, pairs)
        c, g, csq, csk, gsq, gsk, gsqsk = parts
        mode = "EXTEND" if prefill else "DECODE"
        first = f"c_sq={csq} c_sk={csk} c_sqsq={csq * csq} c_sqsk={pairs * prefill}"
        return f"step[{mode} bs={batch} c={c} g={g} {first} g_sq={gsq} g_sk={gsk} g_sqsq={gsq} g_sqsk={gsqsk}]"
    return f"xsp/step:{kind} requests={batch} tokens={tokens} keys={keys} squares={tokens} products={pairs}"


def run(seed: int, steps: int = 240) -> Run:
    """One recording; every sixth seed has sizes that do not tell its terms apart, every fifth drifts."""
    rng = Random(f"engine {seed}")
    m = Machine(Random(f"machine {seed}"), jitter=rng.choice([0.005, 0.015]))
    m.launch_us = 2.5
    h = m.thread(0, name="python")
    dialect = ("vllm", "sglang", "xsp", "vllm, no keys", "TensorRT-LLM")[seed % 5]
    base, token, key = rng.uniform(30, 60), rng.uniform(1.0, 3.0), rng.uniform(0.004, 0.02)  # µs a layer
    wrong = ("", "", "", "", "", "same batch", "", "", "", "", "", "same everything")[seed % 12]
    drift = 0.2 if seed % 7 == 4 else 0.0
    short = dialect in SHORT
    prefills = rng.random() < 0.5
    made = Run(Program("engine", [m], ["step"], is_kineto=seed % 2 == 0), dialect, {}, {}, drift=drift)
    made.per_token, made.per_key = {"decode": token * LAYERS * 1000}, {"decode": key * LAYERS * 1000}
    made.unknown = {"same batch": ("token",), "same everything": ("token", "key")}.get(wrong, ())
    planted = {} if wrong or drift else {rng.randrange(20, steps - 5): rng.choice(list(CAUSES)) for _ in range(5)}
    for number in range(steps):
        prefill = prefills and number % 9 == 3 and number not in planted
        batch = 1 if prefill else 16 if wrong else rng.randint(1, 64)
        length = made.context if wrong == "same everything" or short else rng.randint(100, 6_000)
        tokens = rng.choice([128, 256, 512, 1024, 2048]) if prefill else batch
        keys = tokens if prefill else batch * length
        pairs = tokens * tokens if prefill else keys
        kind = "prefill" if prefill else "decode"
        factor = 1 + drift * number / steps
        cause = planted.get(number, "")
        with h.all(h.mark(step=number), h.range(_text(dialect, kind, number, batch, tokens, keys, pairs))):
            h.host(20)
            _step(
                h,
                factor,
                base,
                token * tokens * (0.1 if prefill else 1),
                key * (pairs / 400 if prefill else keys),
                cause,
            )
            h.copy(4 * batch, "DtoH")
            h.sync(7)
        h.host(30)
    made.outliers = {number: CAUSES[cause] for number, cause in planted.items()}
    return made


def _step(h: Thread, factor: float, base: float, tokens_us: float, keys_us: float, cause: str) -> None:
    """The kernels of a step, and what went wrong in it."""
    whole = LAYERS * (base * 1.1 + tokens_us + keys_us)  # µs
    if cause == "pause of the host":
        h.sync(7)
        h.host(0.8 * whole + 500)
    if cause == "allocation":
        h.sync(7)
        h.call("cudaMalloc_v3020", 0.8 * whole + 500)
    for layer in range(LAYERS):
        slow = 2.0 if cause == "slower clock" else 1.0
        h.launch(NORM, base * 0.1 * factor * slow)
        gemm = f"{GEMM}_splitK_other" if cause == "other kernels" else GEMM
        h.launch(gemm, (base * 0.6 + tokens_us * 0.6) * factor * slow * (3.0 if cause == "other kernels" else 1.0))
        h.launch(ATTENTION, (base * 0.1 + keys_us) * factor * slow)
        if cause == "code loading" and layer == 1:
            h.sync(7)
            h.launch(f"never_seen_before_{int(whole)}", 3, pause=0.8 * whole + 500)
        h.launch(GEMM2, (base * 0.3 + tokens_us * 0.4) * factor * slow)


__all__ = ["CAUSES", "Run", "run"]
