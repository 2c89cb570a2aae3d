"""Pairs of recordings before and after a change that was made: was the change among the advice and at which place, did
its bound hold, was the first sentence of `compare` right, was the verdict."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from generators.simulator import MAIN, Act, Machine, Program, World, edited

from xsp_post.compare.headline import Headline, headlines
from xsp_post.compare.impact import impact
from xsp_post.compare.matching import match_cases
from xsp_post.model.options import Options
from xsp_post.model.results import Results
from xsp_post.pipeline import analyze
from xsp_post.reports.verdict import main_limit
from xsp_post.tables.analyses.advice import advise

FIRST = 3  # pieces of advice among which the change must be
_SLACK = 0.02  # a gain and a bound are both measured: so much of the time lies between them


@dataclass(frozen=True)
class Pair:
    """``remedies``: codes that name the change that was made; ``limits``: resources that limited before; ``word``:
    of the comparison; empty ones are not judged. ``gain``: share of the time that was really saved."""

    name: str
    base: Path
    other: Path
    remedies: frozenset[str]
    limits: frozenset[str]
    word: str
    gain: float
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Outcome:
    """``place``: of the change among the advice, from 1; 0: not there. None: not judged."""

    pair: Pair
    advised: tuple[str, ...]
    place: int | None
    bound_holds: bool | None
    said: str
    is_word_right: bool | None
    limits: tuple[str, ...]
    is_limit_right: bool | None


def judge(pair: Pair) -> Outcome:
    """Read both recordings of a pair and hold what is said against what happened."""
    base, other = (analyze([path], pair.options) for path in (pair.base, pair.other))
    limit = main_limit(base)
    advice = advise(base, limit)
    codes = tuple(one.code for one in advice)
    found = [place for place, code in enumerate(codes, 1) if code in pair.remedies]
    bound = None
    if found and advice[found[0] - 1].is_bound:
        bound = advice[found[0] - 1].bound_ratio >= pair.gain - _SLACK
    said = _headline(base, other)
    return Outcome(
        pair, codes, (found or [0])[0] if pair.remedies else None, bound, said.word if said else "",
        (said is not None and said.word == pair.word) if pair.word else None, limit.limits,
        bool(set(limit.limits[:1]) & pair.limits) if pair.limits else None,
    )  # fmt: skip


def _headline(base: Results, other: Results) -> Headline | None:
    _, sides = match_cases(base, other)
    has_executions = all(side.cases.iterations["latency_ns"].notna().any() for side in sides)
    heads = headlines(sides, impact(sides, has_executions=has_executions), 0.02)
    return heads[0] if len(heads) == 1 else None


# -- pairs among the shared captures -----------------------------------------------------------------

_KINETO = "kineto/{}.pt.trace.json.gz"
# name, before, after, remedies, limits, word, gain: from MEANING.md of the captures
_CAPTURES: tuple[tuple[str, str, str, set[str], set[str], str, float], ...] = (
    ("loader with workers", _KINETO.format("dataloader_0_workers"), _KINETO.format("dataloader_4_workers"),
     {"num-workers"}, {"host", "kernels"}, "faster", 0.18),
    ("host loop in one batch", _KINETO.format("sam_host_loop"), _KINETO.format("sam_vectorised"),
     {"batch-host-loop"}, {"kernels", "host"}, "faster", 0.459),
    ("CUDA graphs", _KINETO.format("compiled_rtx3060"), _KINETO.format("compiled_graphs_rtx3060"),
     set(), {"kernels"}, "same", 0.0),
    ("ranks that wait more", "nsys/fsdp_2gpu_h100.sqlite", "nsys/fsdp_2gpu_h100_after.sqlite",
     set(), {"kernels"}, "slower", -0.12),
    ("compiled", "nsys/transformer_2.7b_a100_nvtx.sqlite", "nsys/transformer_2.7b_a100_compiled.sqlite",
     set(), {"kernels"}, "faster", 0.072),
    ("without ranges", "nsys/transformer_2.7b_a100_nvtx.sqlite", "nsys/transformer_2.7b_a100_no_nvtx.sqlite",
     set(), {"kernels"}, "same", 0.0),
)  # fmt: skip


def capture_pairs(folder: Path) -> Iterator[Pair]:
    """The pairs of the shared captures that are in a folder."""
    for name, before, after, remedies, limits, word, gain in _CAPTURES:
        base, other = folder / before, folder / after
        if base.exists() and other.exists():
            yield Pair(name, base, other, frozenset(remedies), frozenset(limits), word, gain)


# -- pairs that were recorded on this machine --------------------------------------------------------

CHANGES = Path(__file__).with_name("changes")  # programs with a function before and one after the change


def recordings(folder: Path) -> Iterator[tuple[Path, str, Path]]:
    """Program, function (before or after) and the folder that `xsp-post run` is to write, of each recording."""
    for program in sorted(CHANGES.glob("*.py")):
        for side in ("before", "after"):
            yield program, side, folder / f"{program.stem}.{side}"


def recorded_pairs(folder: Path) -> Iterator[Pair]:
    """The pairs of programs that a folder holds recordings of. What they gained is what their clocks say."""
    for program in sorted(CHANGES.glob("*.py")):
        base, other = folder / f"{program.stem}.before", folder / f"{program.stem}.after"
        if base.is_dir() and other.is_dir():
            said = runpy.run_path(str(program))
            times = [float(analyze([one]).frame("iterations")["latency_ns"].median()) for one in (base, other)]
            name = f"recorded: {said['__doc__'].rstrip('.')}"
            yield Pair(name, base, other, frozenset(said["REMEDIES"]), frozenset(), said["WORD"],
                       1 - times[1] / times[0])  # fmt: skip


# -- pairs that the simulator runs -------------------------------------------------------------------

_Made = tuple[Program, Program, set[str], set[str]]


def _program(rng: Random, *threads: list[Act], **world: int) -> Program:
    step = tuple((tuple(acts),) for acts in threads)
    return Program(rng.randrange(10**6), (), World(spread=0.01, **world), step, steps=10)


def _waits(rng: Random) -> _Made:
    """A wait for the device after each kernel goes."""
    kernels = rng.randint(10, 30)
    acts = [one for _ in range(kernels) for one in (
        Act("host", 12_000), Act("kernel", 25_000, "scale"), Act("sync", mode="device"))]  # fmt: skip
    base = _program(rng, [*acts, Act("sync", mode="device")], return_ns=12_000)
    other = _program(rng, [act for act in acts if act.what != "sync"] + [Act("sync", mode="device")], return_ns=12_000)
    return (
        base,
        other,
        {"remove-synchronization", "item-in-step", "cuda-graphs"},
        {"kernels", "host", "synchronisation"},
    )


def _small_kernels(rng: Random) -> _Made:
    """Many small kernels become a graph."""
    acts = [Act("kernel", rng.randint(1_500, 3_000), "scale") for _ in range(rng.randint(60, 150))]
    acts = [one for act in acts for one in (Act("host", 3_000), act)]
    base = _program(rng, [*acts, Act("sync", mode="device")], launch_ns=6_000)
    changed = edited(base, "graph")
    assert changed is not None
    return base, changed[1], {"cuda-graphs"}, {"launches", "host"}


def _uploads(rng: Random) -> _Made:
    """Inputs from pageable memory are copied ahead, beside the kernels."""
    copy = Act("copy", rng.randint(600_000, 900_000), "input", mode="pageable")
    kernels = [Act("kernel", 60_000, "gemm") for _ in range(rng.randint(4, 8))]
    base = _program(rng, [copy, *kernels, Act("sync", mode="stream")])
    ahead = replace(copy, mode="async", stream=15)
    other = _program(rng, [ahead, *kernels, Act("sync", mode="stream", stream=MAIN)])
    return base, other, {"overlap-copies", "prefetch"}, {"copies"}


def _late_rank(rng: Random) -> _Made:
    """One rank of two has more to do in every step; then both have the same."""

    def rank(factor: float) -> list[Act]:
        gemms = [Act("kernel", round(80_000 * factor), "gemm") for _ in range(10)]
        return [*gemms, Act("collective", 60_000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
                Act("sync", mode="device")]  # fmt: skip

    more = 1 + rng.uniform(0.4, 1.0)
    mean = (1 + more) / 2
    return (_program(rng, rank(1.0), rank(more)), _program(rng, rank(mean), rank(mean)),
            {"late-rank"}, {"kernels", "communication"})  # fmt: skip


def _larger_kernels(rng: Random) -> _Made:
    """Products of the GPU's ordinary units use its tensor cores."""
    name = "ampere_sgemm_128x64_tn"
    acts = [Act("kernel", rng.randint(200_000, 400_000), name) for _ in range(20)]
    base = _program(rng, [*acts, Act("sync", mode="device")])
    faster = [replace(act, ns=round(act.ns * 0.3), name="ampere_s16816gemm_128x64_tn") for act in acts]
    return base, _program(rng, [*faster, Act("sync", mode="device")]), {"tensor-cores"}, {"kernels"}


FAMILIES: tuple[Callable[[Random], _Made], ...] = (_waits, _small_kernels, _uploads, _late_rank, _larger_kernels)


def simulated_pairs(seeds: range, folder: Path) -> Iterator[Pair]:
    """Pairs whose change is known, each family in turn; the gain is that of the simulated periods."""
    options = Options(model_range="^step")
    for seed in seeds:
        family = FAMILIES[seed % len(FAMILIES)]
        base, other, remedies, limits = family(Random(seed))
        machines = [Machine(base).run(), Machine(other, 1).run()]
        gain = 1 - machines[1].period_ns() / machines[0].period_ns()
        paths = [one.write(folder / f"pair{seed}{side}.sqlite") for side, one in zip("ab", machines, strict=True)]
        word = "faster" if gain > 0.08 else ""
        name = f"simulated: {(family.__doc__ or '').rstrip('.')}"
        yield Pair(name, paths[0], paths[1], frozenset(remedies), frozenset(limits), word, gain, options)
