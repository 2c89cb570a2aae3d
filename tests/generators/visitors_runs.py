"""Servers whose batch changes while contexts grow, with planted slow steps; jobs of many ranks of which one is late.

On the event simulation of `visitors_planted`. The truth: what a decode step costs per request and per key, the slow
steps with the words that may name their cause, the late rank with its cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from generators.machine import Program
from generators.visitors_planted import ALLREDUCE, FLASH, FUSED_ADAM, GELU, GEMM, LN, Host, Rank, World

SLOW: dict[str, tuple[str, ...]] = {
    "collection of garbage": ("host",),
    "blocks swapped in": ("cop",),
    "lower clock": ("slower kernels",),
    "one kernel slower": ("slower kernels",),
    "another rank late": ("communication", "rank"),
    "allocation": ("alloc",),
    "trials of kernels": ("other kernels", "load"),
}
LATE: dict[str, str] = {
    "longer sequences": "more work",
    "one layer more": "more work",
    "lower clock": "slower work",
    "loader": "input",
    "garbage": "host",
    "": "",
}
LAYERS = 5


@dataclass
class Server:
    """``per_request_us``, ``per_key_us``: of a decode step; ``slow``: step → words of its cause."""

    program: Program
    per_request_us: float
    per_key_us: float
    slow: dict[int, tuple[str, ...]] = field(default_factory=dict)
    dialect: str = ""


def _text(dialect: str, fresh: list[int], running: list[int]) -> str:
    """The step's text; ``fresh``: tokens of prompts; ``running``: keys of the requests that decode."""
    csq, csqsq = sum(fresh), sum(one * one for one in fresh)
    g, gsk = len(running), sum(running)
    if dialect == "vllm":
        context = f"{len(fresh)}(sq{csq}sk{csq}sqsq{csqsq}sqsk{csqsq})"
        return f"execute_{csq + g}_context_{context}_generation_{g}(sq{g}sk{gsk}sqsq{g}sqsk{gsk})"
    if dialect == "sglang":
        mode = "MIXED" if fresh and running else "EXTEND" if fresh else "DECODE"
        parts = f"c_sq={csq} c_sk={csq} c_sqsq={csqsq} c_sqsk={csqsq} g_sq={g} g_sk={gsk} g_sqsq={g} g_sqsk={gsk}"
        return f"step[{mode} bs={len(fresh) + g} c={len(fresh)} g={g} {parts}]"
    kind = "mixed" if fresh and running else "prefill" if fresh else "decode"
    sizes = f"tokens={csq + g} keys={csq + gsk} squares={csqsq + g} products={csqsq + gsk}"
    return f"xsp/step:{kind} requests={len(fresh) + g} {sizes}"


def serve(seed: int, steps: int = 260) -> Server:
    """Continuous batching: prompts come in, requests grow by one key a step and leave when they are done."""
    rng = Random(f"server {seed}")
    world = World(seed, spread=rng.choice((0.004, 0.01)), launch_us=2.0)
    h = world.rank().main
    dialect = ("vllm", "sglang", "xsp")[seed % 3]
    base, token, key = rng.uniform(50, 90), rng.uniform(0.6, 2.0), rng.uniform(0.002, 0.008)
    made = Server(world.program(seed % 2 == 1), token * LAYERS, key * LAYERS, dialect=dialect)
    places = rng.sample(range(30, steps - 10), 6)
    planted = {place: rng.choice(list(SLOW)) for place in places}
    running = [rng.randrange(200, 3_000) for _ in range(12)]
    for number in range(steps):
        plant = planted.get(number, "")
        fresh = [rng.randrange(100, 900)] if rng.random() < 0.12 and len(running) < 60 and not plant else []
        with h.step(_text(dialect, fresh, running), "user_annotation"):
            h.python(35, "schedule")
            tokens = (sum(fresh) * 0.3 + len(running)) * token
            keys = (sum(one * one for one in fresh) / 300 + sum(running)) * key
            _forward(h, base, tokens, keys, plant)
            h.copy(4 * (len(running) + len(fresh)), "DtoH")
            h.sync(7)
        h.python(60, "answer")
        running = [one + 1 for one in running if rng.random() > 0.02 or len(running) < 4]
        running += [one + 1 for one in fresh]
    made.slow = {place: SLOW[plant] for place, plant in planted.items()}
    return made


def _forward(h: Host, base: float, tokens: float, keys: float, plant: str) -> None:
    whole = LAYERS * (base + tokens + keys)
    slower = 1.8 if plant == "lower clock" else 1.0
    if plant == "collection of garbage":
        h.python(whole + 400, "garbage")
    if plant == "blocks swapped in":
        h.copy(int((whole + 400) * 20_000), pinned=True)
    if plant == "allocation":
        h.call("cudaMalloc_v3020", whole + 400)
    for _ in range(LAYERS):
        for name, us, key in (
            (LN, 0.1 * base, "ln"),
            (GEMM, 0.4 * base + 0.5 * tokens, "qkv"),
            (FLASH, 0.1 * base + keys * (5 if plant == "one kernel slower" else 1), "attention"),
            (GEMM, 0.4 * base + 0.5 * tokens, "mlp"),
        ):
            h.python(0.6, "launching")
            if plant == "trials of kernels" and key == "mlp":
                for trial in range(4):
                    h.kernel(f"void cutlass::Kernel2<cutlass_80_trial_{trial}>(p)", whole / LAYERS / 3, key="t")
            h.kernel(name, us * slower, key=key)
        late = (whole + 400) / LAYERS if plant == "another rank late" else 0
        h.kernel(ALLREDUCE, 12 + late, key="reduce", grid=24, block=512)


@dataclass
class Job:
    """A recording of several ranks; ``late``: the late one (-1: none), ``cause``: what is planted."""

    program: Program
    late: int
    cause: str

    @property
    def word(self) -> str:
        return LATE[self.cause]


def job(seed: int) -> Job:
    """Data parallel training: buckets are reduced during backward, the last one after it."""
    rng = Random(f"job {seed}")
    world = World(seed, spread=0.01, launch_us=3)
    ranks = [world.rank() for _ in range(rng.choice((2, 4, 8)))]
    cause = list(LATE)[seed % len(LATE)]
    late = rng.randrange(len(ranks)) if cause else -1
    depth, scale = rng.randrange(4, 8), rng.uniform(0.7, 1.5)
    for step in range(10):
        for rank in ranks:
            is_late = rank is ranks[late] and late >= 0
            rank.steps.append(rank.main.now)
            rank.main.open(f"ProfilerStep#{step}", "user_annotation")
            with rank.main.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation"):
                rank.main.python(4_000 if is_late and cause == "loader" else 60, "loader")
            rank.main.copy(200_000, pinned=True)
            if is_late and cause == "garbage":
                with rank.main.range("forward", "user_annotation"):
                    rank.main.python(4_000, "collect")
            for _ in range(depth + (2 if is_late and cause == "one layer more" else 0)):
                _layer(rank, scale * _factor(is_late, cause), cause if is_late else "")
        for bucket in range(3):
            for rank in ranks:
                is_late = rank is ranks[late] and late >= 0
                for _ in range(depth // 2):
                    _layer(rank, 1.6 * scale * _factor(is_late, cause), cause if is_late else "")
                rank.free[60] = max(rank.free[60], rank.free[7])
                rank.main.call("cudaLaunchKernelExC_v11060", 6)
            world.together(120, f"bucket {bucket}")
            for rank in ranks:
                rank.work[-1].update(grid=24, block=640)
        for rank in ranks:
            rank.free[7] = max(rank.free[7], rank.free[60])
            rank.main.kernel(FUSED_ADAM, 60)
            rank.main.sync(7)
            rank.main.close()
    return Job(world.program(seed % 2 == 0), late, cause)


def _factor(is_late: bool, cause: str) -> float:
    return 1.4 if is_late and cause in ("longer sequences", "lower clock") else 1.0


def _layer(rank: Rank, scale: float, cause: str) -> None:
    grid = 605 if cause == "longer sequences" else 432
    for name, us in ((LN, 8), (GEMM, 60), (FLASH, 45), (GEMM, 70), (GELU, 9)):
        rank.main.python(3)
        rank.main.kernel(name, us * scale, grid=grid)
