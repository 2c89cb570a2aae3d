"""Steps of inference by kind, and what they cost: generated engines whose coefficients are known."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from generators import serving as engine
from generators.serving import serving
from helpers import frame_of
from typer.testing import CliRunner

import xsp_post
from xsp_post.base.errors import UsageError
from xsp_post.cli import app
from xsp_post.hardware.gpus import find_peaks
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis
from xsp_post.model.schemas.units import format_ns
from xsp_post.names.families import FAMILIES
from xsp_post.tables.analyses.step_outliers import step_outliers
from xsp_post.tables.analyses.steps import kinds_of_steps, steps

# What each kind tells apart: of decodes every pair is a key.
TRUE = {
    "decode": {"fixed_ns": 500_000, "per_token_ns": 4000.0, "per_key_ns": 5.4},
    "mixed": {"fixed_ns": 500_000, "per_token_ns": 4000.0, "per_key_ns": 5.0, "per_pair_ns": 0.4},
}
TERMS = ("fixed_ns", "per_token_ns", "per_key_ns", "per_pair_ns")


def loaded(tmp_path, made):
    return xsp_post.load(made.write(tmp_path / "engine.json"))


def row(table, kind, **more):
    found = table[(table["kind"] == kind).to_numpy() & np.all([table[k] == v for k, v in more.items()] or True, axis=0)]
    assert len(found) == 1
    return found.iloc[0]


@pytest.mark.parametrize(("seed", "dialect"), [*enumerate(("vllm", "sglang", "atom", "xsp"))])
def test_coefficients_are_found_within_two_percent(tmp_path, seed, dialect):
    made = serving(seed, 700, dialect=dialect, noise=0.004)
    profile = loaded(tmp_path, made)
    iterations, costs = profile["iterations"], profile["step_costs"]
    sizes = iterations[["token_count", "key_count", "query_key_count"]].to_numpy(np.int64)
    assert iterations["kind"].tolist() == made.kind
    assert sizes.tolist() == [list(one) for one in made.sizes]
    for kind, terms in TRUE.items():
        whole = row(costs, kind, family="step")
        assert whole[list(terms)].to_dict() == pytest.approx(terms, rel=0.02)
        assert whole["error_ratio"] < 0.004
        if kind == "decode":  # the families sum to the step, but for what is the host's
            requests = float(iterations.loc[(iterations["kind"] == kind).to_numpy(), "batch_size"].median())
            amounts = pd.Series({"fixed_ns": 1, "per_token_ns": requests, "per_key_ns": requests * 8192})
            parts = costs[(costs["kind"] == kind) & (costs["family"] != "step")][list(amounts.index)].fillna(0.0).sum()
            expected = 300_000 + requests * (4000 + 5.4 * 8192)
            assert (parts * amounts).sum() == pytest.approx(expected, rel=0.02)
        gemm = row(costs, kind, family="gemm")
        assert gemm[["fixed_ns", "per_token_ns"]].tolist() == pytest.approx([300_000, 4000.0], rel=0.02)
    assert costs[(costs["kind"] == "decode")]["per_pair_ns"].isna().all()
    assert "per_pair: follows" in row(costs, "decode", family="step")["left_out"]


def test_steps_that_were_not_recorded_are_predicted(tmp_path):
    path = serving(5, 700, noise=0.004).write(tmp_path / "engine.json")
    asked = xsp_post.load(path, options=Options(step="1x8192, 32x8192,32x32768"))["step_predictions"]
    decode, prefill = (asked[asked["kind"] == kind].reset_index(drop=True) for kind in ("decode", "prefill"))
    for k, (requests, keys) in enumerate([(1, 8192), (32, 8192 * 32), (32, 32768 * 32)]):
        attention, whole = 5.4 * keys, 500_000 + 4000 * requests + 5.4 * keys
        assert decode["step_ns"][k] == pytest.approx(whole, rel=0.02)
        assert decode["attention_ratio"][k] == pytest.approx(attention / whole, rel=0.03)
        assert decode["time_per_token_ns"][k] == pytest.approx(whole / requests, rel=0.02)
    assert decode["is_extrapolated"].tolist() == [False, False, True]
    assert prefill["step_ns"][0] == pytest.approx(500_000 + 8192 * 4005 + 0.4 * 8192**2, rel=0.03)
    assert not asked["kind"].eq("mixed").any()


def test_what_the_model_does_not_tell_is_not_predicted(tmp_path):
    profile = loaded(tmp_path, serving(2, 200, mix="unlike"))
    assert not len(profile["step_predictions"])
    with pytest.raises(UsageError, match="REQUESTSxCONTEXT"):
        xsp_post.load(tmp_path / "engine.json", options=Options(step="8k"))["step_predictions"]


def test_steps_of_a_kind_in_one_row(tmp_path):
    made = serving(7, 120, noise=0.0)
    profile = loaded(tmp_path, made)
    steps, iterations = profile["steps"], profile["iterations"]
    assert sorted(steps["kind"]) == sorted(set(made.kind))
    for kind in steps["kind"]:
        mine = iterations[(iterations["kind"] == kind) & ~iterations["is_warmup"]]
        found = row(steps, kind)
        assert found["step_count"] == len(mine)
        quantiles = np.quantile(mine["latency_ns"], [0.5, 0.9, 0.99])
        assert found[["median_step_ns", "p90_step_ns", "p99_step_ns"]].tolist() == pytest.approx(quantiles)
        assert found["token_count"] == mine["token_count"].sum()
        rate = mine["token_count"].sum() / mine["latency_ns"].sum() * 1e9
        assert found["throughput_tokens_per_s"] == pytest.approx(rate)
        assert found["time_per_token_ns"] == pytest.approx(1e9 / rate)
        assert found["families"].split(" ")[0] in ("attention", "gemm")


def test_kernels_count_for_the_step_of_their_own_capture_and_overlap_for_none():
    iterations = [
        {"capture_id": capture, "process_id": 7, "kind": "decode", "iteration_index": k, "start_ns": 100 * k,
         "latency_ns": 150 - 50 * capture}
        for capture in (0, 1) for k in range(3)
    ]  # fmt: skip
    kernels = [
        {"capture_id": capture, "iteration_index": k, "name": name, "duration_ns": 10 * capture + k + 1}
        for capture in (0, 1) for k in (-1, 0, 2) for name in ("sgemm", "sgemm", "flash_fwd_kernel")
    ]  # fmt: skip
    frames = {"iterations": frame_of("iterations", iterations), "kernels": frame_of("kernels", kernels)}
    frames["captures"] = frame_of("captures", [{"capture_id": 0}, {"capture_id": 1}])
    first, second = kinds_of_steps(Analysis(frames))
    gemm, attention = FAMILIES.index("gemm"), FAMILIES.index("attention")
    assert first.family_ns[:, [gemm, attention]].tolist() == [[2, 1], [0, 0], [6, 3]]
    assert second.family_ns[:, [gemm, attention]].tolist() == [[22, 11], [0, 0], [26, 13]]
    # each step of the first capture begins 50 ns before the one before it ends
    assert first.step_ns.tolist() == [150, 100, 100] and second.step_ns.tolist() == [100, 100, 100]


def test_attention_beside_the_roof_of_its_pairs():
    iterations = [
        {"capture_id": 0, "process_id": 7, "kind": "decode", "iteration_index": k, "start_ns": 100 * k,
         "latency_ns": 90, "token_count": 4, "batch_size": 4} for k in range(3)
    ]  # fmt: skip
    rows = [(k, name) for k in range(3) for name in ("flash_fwd_kernel", "sgemm")]
    kernels = [
        {"capture_id": 0, "kernel_id": number, "iteration_index": k, "name": name, "duration_ns": 40}
        for number, (k, name) in enumerate(rows)
    ]  # fmt: skip
    peak = find_peaks("NVIDIA B200").peak("bf16_tensor")
    work = [
        {"capture_id": 0, "kernel_id": number, "flop": 0.25 * peak * 40e-9, "read_bytes": 1.0, "written_bytes": 1.0,
         "pipe": "bf16_tensor"} for number, (_, name) in enumerate(rows) if name != "sgemm"
    ]  # fmt: skip
    frames = {"iterations": frame_of("iterations", iterations), "kernels": frame_of("kernels", kernels),
              "kernel_work": frame_of("kernel_work", work), "captures": frame_of("captures", [{"capture_id": 0}]),
              "devices": frame_of("devices", [{"capture_id": 0, "gpu_name": "NVIDIA B200"}])}  # fmt: skip
    costs = steps(kinds_of_steps(Analysis(frames)))[0]["step_costs"].set_index("family")["roof_ratio"]
    assert costs["attention"] == pytest.approx(0.25) and np.isnan(costs["gemm"]) and np.isnan(costs["step"])


@pytest.mark.parametrize("command", ["why", "tree"])
def test_first_screens_have_a_line_a_kind_with_percentiles_and_the_slowest_step(tmp_path, command):
    path = serving(1, 300, noise=0.01, outliers=8).write(tmp_path / "engine.json")
    screen = CliRunner().invoke(app, [command, str(path)]).output
    profile = xsp_post.load(path)
    for row in profile["steps"].to_dict("records"):
        low, high, highest = (format_ns(row[f"{name}_step_ns"]) for name in ("median", "p90", "p99"))
        assert f"  {row['kind']} ×{row['step_count']}: p50 {low}, p90 {high}, p99 {highest}; " in screen
    first = profile["step_outliers"].iloc[0]
    assert f"  8 slow, {format_ns(profile['step_outliers']['lost_ns'].sum())} lost; " in screen
    assert f"most by {first['kind']} {first['iteration_index']}: {format_ns(first['lost_ns'])}" in screen


def test_no_long_context_is_a_warm_up(tmp_path):
    seed = next(k for k in range(99) if serving(k, 30, mix="decode").sizes[0][1] > 100_000)
    profile = loaded(tmp_path, serving(seed, 30, mix="decode", noise=0.0))
    latency = profile["iterations"]["latency_ns"]
    assert latency[0] > 1.3 * latency[1:].median()
    assert not profile["iterations"]["is_warmup"].any()


def test_terms_that_the_mix_does_not_tell_apart_are_said(tmp_path):
    costs = loaded(tmp_path, serving(2, 200, mix="constant"))["step_costs"]
    whole = row(costs, "decode", family="step")
    assert "per_token: constant" in whole["left_out"]
    assert whole[["per_token_ns", "per_pair_ns"]].isna().all()


def test_times_that_follow_no_size_have_no_model(tmp_path):
    costs = loaded(tmp_path, serving(2, 200, mix="unlike"))["step_costs"]
    whole = costs[costs["family"] == "step"]
    assert whole[list(TERMS)].isna().to_numpy().all() and (whole["error_ratio"] > 0.3).all()


def test_a_drift_is_found_and_none_is_invented(tmp_path):
    steady, slower = (loaded(tmp_path, serving(5, 400, mix="decode", noise=0.01, drift=d)) for d in (0.0, 0.1))
    assert not steady["steps"]["is_drifting"].any() and "steps-drift" not in {*steady["findings"]["code"]}
    found = row(slower["steps"], "decode")
    assert found["is_drifting"] and found["drift_ratio"] == pytest.approx(0.075, abs=0.015)
    assert "steps-drift" in {*slower["findings"]["code"]}


def test_the_generator_states_its_own_times():
    made = serving(1, 50, mix="decode", noise=0.0)
    ranges = [event for event in made.events if event["cat"] == "user_annotation"]
    for (tokens, keys, pairs), event in zip(made.sizes, ranges):
        expected = engine.FIXED_NS + engine.GEMM_NS + engine.PER_TOKEN_NS * tokens
        expected += engine.PER_KEY_NS * keys + engine.PER_PAIR_NS * pairs
        assert event["dur"] * 1000 == pytest.approx(expected, abs=10)


CAUSE = {"allocation": "allocation", "host": "host_code", "kernels": "other kernels", "clock": "slower kernels"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_slow_steps_are_found_with_their_cause_and_none_is_invented(tmp_path, seed):
    made = serving(seed, 500, noise=0.02, outliers=16)
    profile = loaded(tmp_path, made)
    found = profile["step_outliers"]
    assert dict(zip(found["iteration_index"], found["cause"])) == {k: CAUSE[v] for k, v in made.causes.items()}
    assert (found["deviation_count"] > 3).all() and (found["explained_ratio"] > 0.5).all()
    assert found["lost_ns"].is_monotonic_decreasing
    details = dict(zip(found["cause"], found["detail"]))
    assert details["allocation"] == "cudaMalloc" and details["other kernels"] == "sm80_xmma_gemm_fallback"
    assert details["slower kernels"].startswith("all by ")
    assert "slow-steps" in {*profile["findings"]["code"]}


def test_a_step_that_compiles_is_told_from_one_that_waits_in_compiled_code(tmp_path):
    found = loaded(tmp_path, serving(8, 200, noise=0.01, outliers=6, causes=("compile", "compiled code")))
    made = serving(8, 200, noise=0.01, outliers=6, causes=("compile", "compiled code")).causes
    said = found["step_outliers"].set_index("iteration_index")
    assert {k: made[k] == "compile" for k in made} == (said["cause"] == "compilation").to_dict()
    assert set(said["detail"][said["cause"] == "compilation"]) == {"compile_inner (dynamo_timed)"}


@pytest.mark.parametrize(("batch_sizes", "slow"), [((8, 8), 1), ((1, 64), 0), ((-1, -1), 1)])
def test_steps_of_unlike_batches_are_no_measure_of_each_other(batch_sizes, slow):
    rows = [
        {"process_id": 7, "kind": "decode", "phase": "decode", "iteration_index": k, "start_ns": 1000 * k,
         "latency_ns": 900 if k == 17 else 100 + k % 3, "batch_size": batch_sizes[k % 2]}
        for k in range(40)
    ]  # fmt: skip
    frames = {"iterations": frame_of("iterations", rows), "captures": frame_of("captures", [{"capture_id": -1}])}
    results = Analysis(frames)
    found, _ = step_outliers(results, kinds_of_steps(results))
    assert found["iteration_index"].tolist() == [17] * slow


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_chance_is_no_slow_step(tmp_path, seed):
    profile = loaded(tmp_path, serving(seed, 500, noise=0.02))
    assert not len(profile["step_outliers"]) and "slow-steps" not in {*profile["findings"]["code"]}


def planted(tmp_path, slow):
    """Steps launched ahead of a queue that never empties, but for one: it does what ``slow`` says before its launch."""
    rows, free, host = [], 1000, 0

    def call(name, at, us, number):
        args = {"correlation": number}
        rows.append({"cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": us, "args": args})

    for step in range(60):
        at = max(host, free + 1) if step == 40 else host
        tokens = 4 + step % 9
        begin, at = at, at + 2
        for name, cat, us in slow if step == 40 else ():
            if cat == "range":
                rows.append({"cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": us})
                at += 1
            else:
                call(name, at, us, 9000 + len(rows))
                at += us
        call("cudaGraphLaunch", at, 10, step)
        for name, us in (("sgemm", 300.0 + 4 * tokens + step % 3), ("flash_fwd_kernel", 50.0)):
            free = max(free, at + 12)
            args = {"correlation": step, "device": 0, "stream": 7}
            rows.append({"cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": free, "dur": us, "args": args})
            free += us
        text = f"xsp/step:decode requests={tokens} tokens={tokens} keys={tokens * 100}"
        rows.append({"cat": "user_annotation", "name": text, "pid": 1, "tid": 1, "ts": begin, "dur": at + 15 - begin})
        host = max(at + 20, free - 200)
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Generated GPU", "numSms": 108}]}
    (tmp_path / "ahead.json").write_text(json.dumps({**head, "traceEvents": [{"ph": "X", **one} for one in rows]}))
    return xsp_post.load(tmp_path / "ahead.json")["step_outliers"]


@pytest.mark.parametrize(
    ("slow", "cause", "detail"),
    [
        ([("swap_out 3 blocks", "range", 40), ("aten::copy_", "range", 36), ("cudaMalloc", "call", 30)], "preemption",
         "swap_out 3 blocks"),
        ([("cuModuleLoadData", "call", 9)], "module_load", "cuModuleLoadData"),
    ],
)  # fmt: skip
def test_a_stall_counts_for_the_range_around_it_and_launches_behind_it_for_the_stall(tmp_path, slow, cause, detail):
    found = planted(tmp_path, slow)
    assert found[["iteration_index", "cause", "detail"]].to_numpy().tolist() == [[40, cause, detail]]
    assert found["explained_ratio"][0] > 0.8


def test_a_step_has_its_rate_and_the_shares_of_its_kernels_and_table_steps_shows_them(tmp_path):
    made = serving(7, 60, noise=0.0)
    path = made.write(tmp_path / "engine.json")
    rows = xsp_post.load(path)["iterations"]
    assert (rows["throughput_tokens_per_s"] * rows["time_per_token_ns"]).to_numpy() == pytest.approx(1e9)
    assert rows["time_per_token_ns"].to_numpy() == pytest.approx(rows["latency_ns"] / rows["token_count"], rel=1e-6)
    shares = rows[[name for name in rows if name.endswith("_ratio")]]
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1) and (rows["attention_ratio"] > 0).all()
    screen = CliRunner().invoke(app, ["table", "steps", str(path), "--top", "0"]).output
    kinds, steps = screen.split("Each step (table iterations):")
    assert "p99" in kinds and "attention" in steps and len(steps.strip().splitlines()) > 60
