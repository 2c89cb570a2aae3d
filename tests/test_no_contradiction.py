"""Verdict, critical path, first advice and what-if speak of one program: none denies another.

Asked of every shared capture (the mark `sampled`), of the example, of programs of the simulator and of told ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest
from generators.machine import Machine, write
from generators.machine import Program as Told
from generators.simulator import Machine as Simulator
from generators.simulator import draw_program
from recorded import analyzed
from told_score import program_of

from xsp_post.arrays.intervals import union_length
from xsp_post.base.errors import XspPostError
from xsp_post.model.options import Options
from xsp_post.model.results import Results
from xsp_post.pipeline import analyze
from xsp_post.replay.experiment import DEVICE, LATENCY
from xsp_post.replay.what_if import what_if
from xsp_post.tables.analyses.advice import Advice, advise
from xsp_post.tables.analyses.limits import Limit, answers, find_limit, largest_causes

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT.parent / "shared/captures"
CAPTURES = [ROOT / "examples/resnet50_generated.sqlite", *sorted(FOLDER.glob("nsys/*.sqlite")),
            *sorted(FOLDER.glob("kineto/*.json.gz"))]  # fmt: skip
SEEDS = range(20)
# What a critical path's kinds of time are in the experiment.
RESOURCES = {
    "kernel": "kernels", "graph": "kernels", "memset": "kernels", "memcpy": "copies", "communication": "communication",
    "host": "host", "launch call": "launches", "launch latency": "launches", "gap between operations": "launches",
    "synchronisation": "synchronisation",
}  # fmt: skip
# Time of the host in several ways: a remedy for one of them often spares the others.
HOSTS = ("host", "launches", "loading", "synchronisation")
CHANGES = {"kernels": "kernel:.=0.5x", "host": "host=0.5x", "copies": "copy=0.5x", "launches": "launch=0.5x",
           "loading": "launch=0.5x", "communication": "comm=0.5x"}  # fmt: skip
# What else a change of that text is about.
ALIKE = {"kernels": ("kernels", "communication"), "copies": ("copies", "kernels"), "loading": ("loading", "launches"),
         "launches": ("launches", "loading")}  # fmt: skip


def contradictions(results: Results) -> list[str]:
    """What two of the answers say differently; [] where they agree."""
    limit = find_limit(results)
    found = _of_limit(limit) + _of_physics(results, limit)
    if limit.kind == "unknown":
        said = [one.code for one in advise(results, limit) if one.is_limit]
        return found + [f"nothing limits, and {code} spares what limits" for code in said]
    advice = advise(results, limit)
    found += _of_shares(results, limit, advice)
    return found + _of_path(results, limit) + _of_advice(advice, limit) + _of_what_if(results, limit)


def _of_physics(results: Results, limit: Limit) -> list[str]:
    """No time is shorter than what the busiest stream works in it, no gain more than the half that was taken away, and
    no share of a roof above one without a finding."""
    found = []
    rows = answers(results, limit)
    for capture, mine in rows.groupby("capture_id"):
        begin, end = _executions_of(results, int(capture))
        columns = ["capture_id", "process_id", "device_id", "stream_id", "start_ns", "end_ns", "attribution"]
        kernels = results.frame("kernels", columns)
        kernels = kernels[kernels["capture_id"].eq(capture) & kernels["start_ns"].between(begin, end)]
        if results.found()["code"].astype(str).eq("queued-kernels").any():  # left out of the window, and said so
            kernels = kernels[~kernels["attribution"].astype(str).eq("no_launch")]
        streams = kernels.groupby(["process_id", "device_id", "stream_id"])[["start_ns", "end_ns"]]
        worked = {of: union_length(one["start_ns"].to_numpy(), one["end_ns"].to_numpy()) for of, one in streams}
        busiest = pd.Series(worked, dtype=float).groupby(level=0).max() if worked else pd.Series([0.0])
        busy = busiest.mean()  # of the processes, as their time is
        if mine["elapsed_ns"].iloc[0] < busy - 1:
            found.append(f"{mine['elapsed_ns'].iloc[0]} ns are shorter than the {busy} of the busiest stream")
    found += [
        f"halving {one} saves {gain:.1%}" for one, gain in zip(rows["resource"], rows["gain_ratio"]) if gain > 0.5
    ]
    is_said = results.found()["code"].astype(str).eq("above-roof").any()
    for table in {"a09", "a10"} & set(results.tables()):
        most = results.frame(table, ["roof_ratio"])["roof_ratio"].max()
        found += [f"{table}: {most:.1%} of a roof"] if most > 1.05 and not is_said else []
    return found


def _executions_of(results: Results, capture: int) -> tuple[float, float]:
    """From the first measured execution of a capture to the end of the last one; all of it without any."""
    rows = results.frame("iterations", ["capture_id", "start_ns", "latency_ns", "is_warmup"])
    rows = rows[rows["capture_id"].eq(capture) & ~rows["is_warmup"].astype(bool) & rows["latency_ns"].notna()]
    if rows.empty:
        return -np.inf, np.inf
    return rows["start_ns"].min(), (rows["start_ns"] + rows["latency_ns"]).max()


def _of_shares(results: Results, limit: Limit, advice: list[Advice]) -> list[str]:
    """All shares of a screen are of the time that its first line names: gains, waits and advice."""
    whole = limit.of_device_ns
    said = [(row.cause, row.ratio, row.idle_ns) for row in largest_causes(results, limit)]
    said += [(one.code, one.bound_ratio, one.bound_ns) for one in advice if one.bound_of == "the time"]
    wrong = [one for one in said if abs(one[1] - one[2] / whole) > 0.001]
    found = [f"{name}: {time} ns are {ratio:.1%} of {whole}" for name, ratio, time in wrong]
    return found + [f"{name}: {ratio:.1%} of all" for name, ratio, _ in said if ratio > 1.001]


def _of_limit(limit: Limit) -> list[str]:
    gains = {one.resources[0]: one for one in limit.gains}
    found = [
        f"{name} saves {one.gain_ratio:.1%}, more than half" for name, one in gains.items() if one.gain_ratio > 0.5
    ]
    if limit.kind != "balanced":
        found += [f"{name} limits within its error" for name in limit.limits if not gains[name].is_shown]
    return found + [f"{limit.kind} without a limit"] * (limit.kind != "unknown" and not limit.limits)


def _named(results: Results, limit: Limit) -> set[str]:
    """What limits in either question."""
    rows = pd.concat([answers(results, limit, question) for question in (DEVICE, LATENCY)])
    return {*limit.limits, *rows.loc[rows["is_limit"].astype(bool), "resource"].astype(str)}


def _of_path(results: Results, limit: Limit) -> list[str]:
    """The critical path covers the time of the verdict (of one process), and its largest part is something that
    limits."""
    path = results.frame("critical_path")
    path = path[path["capture_id"].isin(limit.captures)]
    if path.empty:
        return []
    length = path["duration_ns"].groupby(path["capture_id"]).sum()
    whole = answers(results, limit).drop_duplicates("capture_id").set_index("capture_id")["elapsed_ns"]
    is_one = results.frame("kernels")["process_id"].nunique() == 1
    found = [
        f"critical path of {length[one]} ns, verdict of {whole[one]}"
        for one in length.index.intersection(whole.index)
        if is_one and abs(length[one] - whole[one]) > 1
    ]
    shares = path["duration_ns"].groupby(path["kind"].astype(str).map(RESOURCES)).sum() / path["duration_ns"].sum()
    first, named = str(shares.idxmax()), _named(results, limit)
    alike = {"launches", "loading"} if first == "launches" else {first}
    return found + [f"critical path: {shares.max():.0%} {first}; verdict: {sorted(named)}"] * (not alike & named)


def _of_advice(advice: list[Advice], limit: Limit) -> list[str]:
    """What spares the limit comes first, but behind what saves more; nothing promises more than its resource has, twice
    what half of it saves, but for remedies that remove an order of things."""
    mine = [one for one in advice if one.bound_of == "the time"]
    found = []
    best = min((one.place for one in mine if one.is_limit), default=None)
    if best and not mine[0].is_limit and best < mine[0].place:
        found.append(f"first advice {mine[0].code} spares {mine[0].resource}, not {limit.limits}")
    for one in mine[:1]:
        own = one.resource.split("+")
        like = {*own, *(HOSTS if set(own) & set(HOSTS) else own)}
        most = sum(2 * (gain.gain_ratio + gain.margin_ratio) for gain in limit.gains if gain.resources[0] in like)
        is_order = any(word in one.change for word in ("overlap", "none", "graph"))
        if one.resource and one.is_bound and not is_order and limit.kind != "balanced" and one.bound_ratio > most:
            found.append(f"{one.code} promises {one.bound_ratio:.1%}, all of {one.resource} saves {most:.1%}")
    return found


def _of_what_if(results: Results, limit: Limit) -> list[str]:
    """What half of a limit's time saves by `what-if`: the first figure that it shows."""
    found = []
    gains = {one.resources[0]: one for one in limit.gains}
    for resource in limit.limits:
        if resource not in CHANGES or limit.kind == "balanced" or len(limit.captures) != 1:
            continue
        try:
            said = what_if(results, [CHANGES[resource]], limit.captures[0]).frame().iloc[0]
        except XspPostError:
            continue
        part = 2 if resource in ("launches", "loading") else 1  # only the calls, not the way to the device
        alike = [gains[name] for name in ALIKE.get(resource, (resource,))]
        least = (gains[resource].gain_ratio - gains[resource].margin_ratio) / part
        most = sum(max(one.gain_ratio, 0.0) + one.margin_ratio for one in alike)
        has_graphs = bool(limit.window["graph_busy_ns"])  # opaque: no kernel that a pattern could name
        if not least <= -said["change_ratio"] <= most and not has_graphs:
            of = f"{said['quantity']} {said['change_ratio']:+.1%}"
            found.append(f"{resource}: what-if {of}, verdict {gains[resource]}")
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_a_capture(path):
    assert contradictions(analyzed(path)) == []


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
def test_a_generated_program(seed, tmp_path):
    written = Simulator(draw_program(seed)).run().write(tmp_path / "program.sqlite")
    assert contradictions(analyze([written], Options(model_range="^step"))) == []


@pytest.mark.parametrize("name", [
    # pauses between executions, in few of them, and in those of another kind than most
    "train_validate_checkpoint_train", "gpt_sampling_requests", "continuous_batching",
])  # fmt: skip
def test_a_told_program(name, tmp_path):
    results = analyze([write(program_of(name, "all"), tmp_path / name)])
    assert contradictions(results) == []


def test_a_remedy_that_removes_kernels_spares_their_launches(tmp_path):
    """Attention of three short kernels: the host limits, and has less to launch where that is one kernel."""
    thread = Machine(Random(1)).thread()
    for step in range(8):
        with thread.range(f"step {step}"):
            for _ in range(12):
                for name in ("ampere_bf16_s16816gemm_bf16_128x64", "void softmax_warp_forward", "ampere_s16816gemm"):
                    thread.host(4)
                    thread.launch(name, 9)
                thread.host(30)
            thread.sync()
    results = analyze([write(Told("attention", [thread.m], []), tmp_path / "program")])
    assert "fuse-attention" in [one.code for one in advise(results, find_limit(results))]
    assert contradictions(results) == []


def test_the_first_figure_of_a_what_if_is_that_of_the_verdict(tmp_path):
    """Most executions are short and wait for the host; a few long ones hold nearly all of the time."""
    thread = Machine(Random(1)).thread()
    for step in range(20):
        with thread.range(f"step {step}"):
            for _ in range(8):
                thread.host(20)
                thread.launch("ampere_sgemm_128x64_tn", 1_000 if step % 5 == 4 else 4)
            thread.sync()
    results = analyze([write(Told("unlike executions", [thread.m], []), tmp_path / "program")])
    limit, said = find_limit(results), what_if(results, ["kernel:.=0.5x"])
    assert limit.limits == ("kernels",) and limit.gain("kernels") > 0.4 > -said.latency.change_ratio + 0.3
    first = said.frame().iloc[0]
    assert (first["quantity"], first["measured_ns"]) == ("elapsed", limit.of_device_ns)
    assert -first["change_ratio"] == pytest.approx(limit.gain("kernels"))
    assert contradictions(results) == []


def test_a_contradiction_is_found():
    """Each of them, by hand."""
    path = CAPTURES[0]
    results = analyzed(path)
    limit = find_limit(results)
    advice = Advice("overlap-copies", "", "", "", 900, 0.9, resource="copies")
    assert "overlap-copies promises 90.0%, all of copies saves 4." in _of_advice([advice], _as(limit, ("kernels",)))[0]
    first = Advice("fuse-elementwise", "", "", "", 1000, 1.0, resource="kernels", is_limit=True)
    assert "first advice overlap-copies" in _of_advice([advice, first], limit)[0]
    assert "within its error" in _of_limit(_as(limit, ("kernels",)))[0]
    assert "what-if" in _of_what_if(results, _as(limit, ("kernels",), 0.4))[0]


def _as(limit: Limit, limits: tuple[str, ...], gain: float | None = None) -> Limit:
    """The same limit with another answer."""
    gains = [one if gain is None or one.resources != limits else one._replace(gain_ratio=gain) for one in limit.gains]
    return replace(limit, kind="kernel", limits=limits, gains=tuple(gains))
