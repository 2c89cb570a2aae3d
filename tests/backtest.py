"""Pairs of recordings before and after a change that was made: was the change among the advice and at which place, did
its bound hold, was the first sentence of `compare` right, was the verdict."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import generators.planted as planted
import generators.visitors_planted as visitors
from generators.amended_programs import AMENDED
from generators.edited_programs import EDITS, Edited, draw
from generators.machine import NONE, write
from generators.machine import Program as Told
from generators.overhauled_programs import OVERHAULED
from generators.refitted_programs import REFITTED
from generators.relieved_programs import RELIEVED
from generators.retuned_programs import RETUNED
from generators.revised_programs import REVISED
from generators.reworked_programs import REWORKED
from generators.simulator import MAIN, Act, Machine, Program, World, edited
from generators.told import told
from helpers import lever
from told_score import FOLDER, HALF, SCALES, end_of

from xsp_post.compare.headline import Headline, headlines, of_recordings
from xsp_post.compare.impact import are_unlike, impact
from xsp_post.compare.matching import match_cases
from xsp_post.model.options import Options
from xsp_post.model.results import Results
from xsp_post.pipeline import analyze
from xsp_post.replay.recording import guessed_captures
from xsp_post.reports.verdict import main_limit
from xsp_post.tables.analyses.advice import advise

CLEAR = 0.1  # a change of two runs in a row that is smaller may be chance
FIRST = 3  # pieces of advice among which the change must be
_SLACK = 0.02  # a gain and a bound are both measured: so much of the time lies between them


@dataclass(frozen=True)
class Pair:
    """``remedies``: codes that name the change that was made; ``limits``: resources that limited before; ``word``:
    of the comparison, or several that are right; empty ones are not judged. ``gain``: share of the time that was
    really saved, ``most`` by another measure of it; ``is_elsewhere``: measured in other runs than those recorded;
    ``does_more``: the change than any one remedy; ``near``: codes that help as well, whose bounds are not judged."""

    name: str
    base: Path
    other: Path
    remedies: frozenset[str]
    limits: frozenset[str]
    word: str
    gain: float
    options: Options = field(default_factory=Options)
    is_elsewhere: bool = False
    does_more: bool = False
    near: frozenset[str] = frozenset()
    most: float | None = None


@dataclass(frozen=True)
class Outcome:
    """``place``: of the change among the advice, from 1; 0: not there. None: not judged, or not decided."""

    pair: Pair
    advised: tuple[str, ...]
    place: int | None
    bound_holds: bool | None
    said: str
    is_word_right: bool | None
    limits: tuple[str, ...]
    is_limit_right: bool | None
    is_size_right: bool | None = None


def judge(pair: Pair) -> Outcome:
    """Read both recordings of a pair and hold what is said against what happened."""
    base, other = (analyze([path], pair.options) for path in (pair.base, pair.other))
    limit = main_limit(base)
    advice = advise(base, limit)
    codes = tuple(lever(one.code) for one in advice)
    found = [place for place, code in enumerate(codes, 1) if code in pair.remedies]
    place = next((place for place, code in enumerate(codes, 1) if code in pair.remedies | pair.near), 0)
    said = _headline(base, other)
    bound = None
    if found and advice[found[0] - 1].is_bound and not pair.does_more:
        gains = (pair.gain, 1 - said.ratio if pair.is_elsewhere and said is not None else pair.gain)
        bound = holds(advice[found[0] - 1].bound_ratio, min(gains), max(gains))
    return Outcome(
        pair, codes, place if pair.remedies | pair.near else None, bound, said.word if said else "",
        (said is not None and said.word in pair.word.split()) if pair.word else None, limit.limits,
        bool({limit.kind, *limit.limits[:1]} & pair.limits) if pair.limits else None,
        None if said is None or pair.most is None
        else said.low - _SLACK <= -pair.gain and -pair.most <= said.high + _SLACK,
    )  # fmt: skip


def holds(bound: float, least: float, most: float) -> bool | None:
    """Whether a bound is kept by a gain of which two measurements are known; None where it lies between them."""
    return True if bound >= most - _SLACK else None if bound >= least - _SLACK else False


def _headline(base: Results, other: Results) -> Headline | None:
    _, sides = match_cases(base, other)
    is_one_unit = not any(map(guessed_captures, (base, other))) and not are_unlike(sides)
    has_executions = is_one_unit and all(side.cases.iterations["latency_ns"].notna().any() for side in sides)
    heads = headlines(sides, 0.02) if is_one_unit else []
    heads = heads or of_recordings(sides, impact(sides, has_executions=has_executions), 0.02)
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
    ("a larger batch", _KINETO.format("part_batch16"), _KINETO.format("part_batch256"), set(), {"host"}, "faster", 0.6),
    ("without ranges", "nsys/transformer_2.7b_a100_nvtx.sqlite", "nsys/transformer_2.7b_a100_no_nvtx.sqlite",
     set(), {"kernels"}, "same", 0.0),
)  # fmt: skip


def capture_pairs(folder: Path) -> Iterator[Pair]:
    """The pairs of the shared captures that are in a folder."""
    for name, before, after, remedies, limits, word, gain in _CAPTURES:
        base, other = folder / before, folder / after
        if base.exists() and other.exists():
            yield Pair(name, base, other, frozenset(remedies), frozenset(limits), word, gain)


# -- pairs that were recorded on a GPU ---------------------------------------------------------------

H200 = Path(__file__).with_name("data") / "h200"


def gpu_pairs(folder: Path = H200) -> Iterator[Pair]:
    """Pairs of one NVIDIA H200, recorded by torch.profiler; ``programs.py`` beside them made them. What was gained is
    that of ten runs a side without a profiler, in turn (``truth.json``: each run's time of a step)."""
    for said in json.loads((folder / "truth.json").read_text(encoding="utf-8")):
        base, other = (folder / f"{said['name']}_{side}.json.gz" for side in ("before", "after"))
        gain = 1 - median(said["after_ms"]) / median(said["before_ms"])
        yield Pair(f"H200: {said['name']}", base, other, frozenset(said["remedies"]), frozenset(said["limits"]),
                   "faster", gain, is_elsewhere=True)  # fmt: skip


# -- pairs that were recorded on this machine --------------------------------------------------------

CHANGES = Path(__file__).with_name("changes")  # programs with a function before and one after the change


def recordings(folder: Path) -> Iterator[tuple[Path, str, Path]]:
    """Program, function (before or after) and the folder that `xsp-post run` is to write, of each recording."""
    for program in sorted(CHANGES.glob("*.py")):
        for side in ("before", "after"):
            yield program, side, folder / f"{program.stem}.{side}"


def recorded_pairs(folder: Path) -> Iterator[Pair]:
    """The pairs of programs that a folder holds recordings of. Their gain is that of runs without a profiler; the word
    of a comparison is judged where they differ by more than chance does."""
    for program in sorted(CHANGES.glob("*.py")):
        base, other, times = (folder / f"{program.stem}.{end}" for end in ("before", "after", "json"))
        if base.is_dir() and other.is_dir() and times.exists():
            said = runpy.run_path(str(program))
            seconds = json.loads(times.read_text())
            gain = 1 - seconds["after"] / seconds["before"]
            is_clear = abs(gain) > CLEAR or said["WORD"] == "same"
            yield Pair(f"recorded: {said['__doc__'].rstrip('.')}", base, other, frozenset(said["REMEDIES"]),
                       frozenset(said.get("LIMITS", ())), said["WORD"] if is_clear else "", gain,
                       is_elsewhere=True)  # fmt: skip


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


# -- pairs of programs with a planted fault ----------------------------------------------------------


def planted_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Programs of two other authors with a planted fault, and mended: one of each for a seed."""
    for seed in seeds:
        one, base = planted.plant(seed)
        mended = planted.plant(seed, planted.CURED)[1]
        gain = min(1 - measure(mended) / measure(base) for measure in (planted.period, planted.window))
        paths = [
            write(program, folder / f"planted{seed}{side}") for side, program in zip("ab", (base, mended), strict=True)
        ]
        yield Pair(f"planted: {one.name}", *paths, frozenset(one.advice) - {""}, frozenset(one.limits),
                   "faster" if gain > CLEAR else "", gain)  # fmt: skip
        other, world = visitors.run(seed)
        cured = visitors.run(seed, visitors.Change(is_cured=True))[1]
        gain = min(1 - measure(cured) / measure(world) for measure in (visitors.period_ns, visitors.span_ns))
        paths = [write(made.program(other.is_kineto), folder / f"fault{seed}{side}")
                 for side, made in zip("ab", (world, cured), strict=True)]  # fmt: skip
        yield Pair(f"planted: {other.name}", *paths, frozenset(other.advice) - {""}, frozenset(other.limits),
                   "faster" if gain > CLEAR else "", gain)  # fmt: skip


# -- pairs of programs that people edited ------------------------------------------------------------


def edited_pairs(seeds: Iterable[int], folder: Path, rows: Sequence[Edited] = EDITS) -> Iterator[Pair]:
    """Programs of a fourth author before and after an edit that people make, each edit in turn."""
    lists = {"edited": EDITS, "reworked": REWORKED, "retuned": RETUNED, "relieved": RELIEVED, "overhauled": OVERHAULED,
             "amended": AMENDED, "refitted": REFITTED, "revised": REVISED}  # fmt: skip
    kind = next(name for name, one in lists.items() if one is rows)
    for seed in seeds:
        row, base, is_kineto = draw(seed, False, rows)
        other = draw(seed, True, rows)[1]
        gains = [
            1 - after / before / row.samples for before, after in zip(base.times_ns(), other.times_ns(), strict=True)
        ]
        gain = min(gains)
        word = row.word or ("faster" if gain > CLEAR else "slower" if max(gains) < -CLEAR else "")
        paths = [
            world.write(folder / f"{kind}{seed}{side}", is_kineto)
            for side, world in zip("ab", (base, other), strict=True)
        ]
        yield Pair(f"{kind}: {row.name}", *paths, frozenset(row.remedies.split()), frozenset(row.limits.split()),
                   word if is_kineto or row.samples == 1 else "", gain, does_more=row.does_more)  # fmt: skip


def reworked_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """More edits, chosen without a look at the advice."""
    return edited_pairs(seeds, folder, REWORKED)


def retuned_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Edits of a further author: inference servers, diffusion, sharded training, compilation, C++."""
    return edited_pairs(seeds, folder, RETUNED)


def relieved_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Edits of one more author: switches left on, buckets, launch shapes, libraries, other languages."""
    return edited_pairs(seeds, folder, RELIEVED)


def overhauled_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Edits of a fifth author: optimisers, fused losses, servers, C++; edits that make slower, and none at all."""
    return edited_pairs(seeds, folder, OVERHAULED)


def amended_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Edits of a sixth author: host functions, turns of ranks, few executions; regressions and none at all."""
    return edited_pairs(seeds, folder, AMENDED)


def refitted_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Edits of a seventh author: the modules, kernels, servers and switches of 2025; regressions and none at all."""
    return edited_pairs(seeds, folder, REFITTED)


def revised_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Edits of an eighth author: servers, experts, JAX, simulators, CUDA C++, ranks and CPUs alone."""
    return edited_pairs(seeds, folder, REVISED)


# -- pairs of programs that people wrote, recorded on a CPU, told as on a GPU ----------------------------

TOLD = FOLDER / "pairs"


def told_rows() -> list[dict[str, Any]]:
    """What is known of each (``programs/more_pairs.py`` beside them made them), whatever it is told as."""
    return json.loads((TOLD / "truth.json").read_text(encoding="utf-8"))


def told_pairs(seeds: Iterable[int], folder: Path) -> Iterator[Pair]:
    """Each pair in turn, at three scales, as a trace and as an nsys export. Remedies are judged where the change gains;
    what limits is what saves half as much as the best when it takes half its time."""
    rows = told_rows()
    for seed in seeds:
        row, turn = rows[seed % len(rows)], seed // len(rows)
        scale = SCALES[turn % 3]
        ranges = "all" if turn % 6 < 3 else "marks" if row["style"] == "ranges" else "none"

        said = {side: partial(told, TOLD / f"{row['name']}_{side}.json.xz", seed, scale, ranges)
                for side in ("before", "after")}  # fmt: skip
        sides = {side: tell() for side, tell in said.items()}
        gains = [1 - b / a for a, b in zip(*map(_times_of, sides.values()), strict=True)]
        saved = {key: 1 - _times_of(said["before"](edit))[0] / _times_of(sides["before"])[0]
                 for key, edit in HALF.items()}  # fmt: skip
        limits = {key for key, gain in saved.items() if gain >= max(saved.values()) / 2}
        worth = min(gains) > CLEAR
        word = "faster" if worth else "slower" if max(gains) < -CLEAR else ""
        paths = [write(program, folder / f"told{seed}{side}") for side, program in sides.items()]
        yield Pair(f"told: {row['name']}", *paths, frozenset(row["remedies"] * worth), frozenset(limits), word,
                   min(gains), does_more=row.get("does_more", False), near=frozenset(row["near"] * worth),
                   most=max(gains))  # fmt: skip


def _times_of(program: Told) -> tuple[float, float]:
    """How long all of it takes, and from an execution to the next."""
    [machine], [label, *_] = program.machines, program.executions
    starts: dict[int, int] = {}
    for row in machine.work:
        starts.setdefault(row["labels"].get(label, NONE), row["start"])
    starts.pop(NONE, None)
    return end_of(machine), (max(starts.values()) - min(starts.values())) / (len(starts) - 1)


# -- the record --------------------------------------------------------------------------------------

RECORDED = Path(__file__).with_name("data") / "recorded_pairs.json"  # what was said of recordings that are not kept
RECORD = Path(__file__).with_name("data") / "advice_record.md"  # the part of docs/advice.md


def keep(outcomes: Iterable[Outcome]) -> None:
    """Write what was said of recorded pairs, without their files."""
    rows = [{**asdict(one), "pair": {"name": one.pair.name, "remedies": sorted(one.pair.remedies),
                                     "word": one.pair.word, "gain": round(one.pair.gain, 4)}}
            for one in outcomes]  # fmt: skip
    RECORDED.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def kept() -> list[Outcome]:
    """What was said of recorded pairs when they were recorded."""
    rows = json.loads(RECORDED.read_text(encoding="utf-8"))
    made = []
    for row in rows:
        pair = row.pop("pair")
        row["advised"], row["limits"] = tuple(row["advised"]), tuple(row["limits"])
        made.append(Outcome(Pair(pair["name"], Path(), Path(), frozenset(pair["remedies"]), frozenset(),
                                 pair["word"], pair["gain"]), **row))  # fmt: skip
    return made


def share(values: Iterable[bool | None]) -> str:
    """How many of the judged are right; a dash where none is judged."""
    known = [bool(value) for value in values if value is not None]
    return f"{sum(known)} of {len(known)}" if known else "–"


def by_source(outcomes: list[Outcome]) -> list[tuple[str, ...]]:
    """A row a kind of pair: how often the change was named, the bound held, `compare` and the verdict were right."""
    sources = [one.pair.name.split(":")[0] if ":" in one.pair.name else "captures" for one in outcomes]
    rows = []
    for source in [*dict.fromkeys(sources), ""]:
        mine = [one for one, its in zip(outcomes, sources, strict=True) if source in ("", its)]
        judged = [one for one in mine if one.place is not None]
        rows.append((
            source or "all", str(len(mine)), share(0 < (one.place or 0) <= FIRST for one in judged),
            share(one.place == 1 for one in judged), share(one.bound_holds for one in mine),
            share(one.is_word_right for one in mine), share(one.is_limit_right for one in mine),
        ))  # fmt: skip
    return rows


def by_rule(outcomes: list[Outcome]) -> list[tuple[str, ...]]:
    """A row a remedy: pairs whose change it names, its places, its bound; how often it came first where it was not
    the change that was made."""
    rows = []
    for code in sorted({code for one in outcomes for code in (*one.pair.remedies, *one.advised[:1])}):
        judged = [one for one in outcomes if one.place is not None]
        named = [one for one in judged if one.place and one.advised[one.place - 1] == code]
        missed = [one for one in judged if not one.place and code in one.pair.remedies]
        false = [one for one in judged if one.advised[:1] == (code,) and code not in one.pair.remedies]
        count = len(named) + len(missed)
        if count or false:
            among, first = (sum((one.place or 0) <= most for one in named) for most in (FIRST, 1))
            places = (str(among), str(first)) if count else ("–", "–")
            rows.append((f"`{code}`", str(count), *places, share(one.bound_holds for one in named), str(len(false))))
    return rows
