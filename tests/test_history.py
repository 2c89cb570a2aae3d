"""`xsp-post history`, from exports to sentences: a step at the fourth capture, the order, the bars, baselines."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from builders import ExportBuilder
from generators.histories import history, under_load
from helpers import called

from xsp_post.arrays.changes import sizes
from xsp_post.base.errors import BarNotMetError, UndecidedError, UsageError
from xsp_post.compare.bars import check_since, parse_since
from xsp_post.reports.history import history_lines, next_capture, sparkline
from xsp_post.store.store import open_store
from xsp_post.tables.analyses.history import (
    _shared,
    changes_of,
    floors,
    history_table,
    history_values,
    slowness_of,
    table_of,
)

LAYERS = {"proj:Linear": ("ampere_sgemm_128x64_tn", 200_000), "act:ReLU": ("elementwise_kernel", 60_000),
          "out:Linear": ("ampere_sgemm_32x32_sliced1x4_tn", 140_000)}  # fmt: skip
DAY_NS = 86_400 * 10**9


def write_capture(path: Path, day: int, slow: float = 1.0, seed: int = 0) -> Path:
    """Eight executions of three layers; ``slow`` is what the kernel of `proj` takes longer."""
    noise = random.Random(seed)
    builder = ExportBuilder().process(100)
    at = 1_000_000
    for index in range(8):
        start = at
        for layer, (kernel, length) in LAYERS.items():
            length = round(length * (slow if layer == "proj:Linear" else 1.0) * noise.uniform(0.998, 1.002))
            builder.range(f"{layer}#0", at, at + length + 20_000, domain="xsp")
            builder.kernel(kernel, launch=(at + 1_000, at + 5_000), run=(at + 10_000, at + 10_000 + length))
            at += length + 30_000
        builder.range(f"model:forward#{index}", start, at, domain="xsp")
        at += 50_000
    builder._put("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000 * 10**9 + day * DAY_NS)
    path.parent.mkdir(parents=True, exist_ok=True)
    return builder.write(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Six captures whose names do not say their order; from the fourth on a kernel takes half as long again."""
    folder = tmp_path_factory.mktemp("history") / "captures"
    for day, name in enumerate(("f3ab9", "b2", "e1", "d9", "a7", "c4")):
        write_capture(folder / f"run-{name}.sqlite", day, 1.5 if day >= 3 else 1.0, seed=day)
    return folder


@pytest.fixture(scope="module")
def printed(folder):
    return called("history", folder, columns=200)


def test_six_captures_with_a_step_at_the_fourth(folder, printed):
    assert printed.returncode == 0, printed.stderr
    first, who, bars, *_ = printed.stdout.splitlines()
    said = r"Since run-d9 model latency is \d+\.\d µs longer: \+20\.\d % \(95 % interval .*\), in layer proj:Linear"
    assert re.match(said, first)
    assert "6 captures" in who and "first, " in bars
    store = open_store(folder.with_name("captures.history") / "history.xsp.sqlite")
    frame = store.frame("history")
    shown = frame[frame["is_shown"]].set_index(["level", "subject"])
    model, layer = shown.loc[("model", "model_latency")], shown.loc[("layer", "proj:Linear")]
    for row in (model, layer):
        assert (row["capture_name"], row["position_index"], row["kind"]) == ("run-d9", 3, "step")
        assert row["ci_low_difference_ns"] < 100_000 < row["ci_high_difference_ns"]
    assert ("kernel", "gemm") in shown.index and ("layer", "act:ReLU") not in shown.index
    for level in ("layer", "kernel", "cause"):
        parts = frame.loc[frame["level"] == level, "difference_ns"].sum()
        assert parts == pytest.approx(model["difference_ns"])


def test_a_folder_that_grows_is_read_where_it_grew(folder, printed):
    stores = folder.with_name("captures.history") / "stores"
    before = {one.name: one.stat().st_mtime_ns for one in stores.iterdir()}
    added = write_capture(folder / "run-g0.sqlite", 6, 1.5, seed=6)
    try:
        again = called("history", folder, "--json")
        data = json.loads(again.stdout)["data"]
    finally:
        added.unlink()
        (stores / "run-g0.xsp.sqlite").rename(folder / "left")
    assert len({row["capture_name"] for row in data["history_values"]}) == 7
    assert {one.name: one.stat().st_mtime_ns for one in stores.iterdir()} == before


def test_a_folder_in_use_has_links_and_damaged_results(tmp_path):
    """A link to the newest capture is none of its own: two of one time would not be in the order of time. What cannot
    be read is a line."""
    for day, name in enumerate("gfedcb"):
        write_capture(tmp_path / "in" / f"{name}.sqlite", day, 1.5 if day >= 3 else 1.0, seed=day)
    (tmp_path / "in" / "again").mkdir()
    for link, file in (("a-latest.sqlite", "b.sqlite"), ("again/all", ".."), ("z-gone.sqlite", "x.sqlite")):
        (tmp_path / "in" / link).symlink_to(file)
    (tmp_path / "in" / "begun.xsp.sqlite").write_bytes(b"")
    with sqlite3.connect(tmp_path / "in" / "photos.xsp.sqlite") as other:
        other.execute("CREATE TABLE photos (name)")
    done = called("history", tmp_path / "in", "-o", tmp_path / "out")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert done.stdout.startswith("Since d model latency is") and "6 captures" in done.stdout
    failed = [line.rpartition(" ")[2] for line in done.stderr.splitlines() if line.startswith("failed")]
    assert failed == ["[capture-empty]", "[capture-no-export]", "[capture-not-found]"]


def test_a_history_of_nothing_that_can_be_read_ends_4(tmp_path):
    (tmp_path / "run.sqlite").write_bytes(b"")
    assert called("history", tmp_path / "run.sqlite", "-o", tmp_path / "out").returncode == 4


def test_three_results_are_a_history(tmp_path):
    done = called("compare", "a.sqlite", "b.sqlite", "c.sqlite")
    assert done.returncode == 2 and "xsp-post history a.sqlite b.sqlite c.sqlite" in done.stderr


def test_stores_beside_their_captures_are_not_made_again(tmp_path):
    """Four runs with a store beside their capture, which is damaged meanwhile, and a fifth run without a store."""
    runs = tmp_path / "runs"
    first = write_capture(runs / "run1" / "model.1.recording" / "step.sqlite", 0)
    store = first.with_suffix(".xsp.sqlite")
    assert called("ingest", first, "-o", store).returncode == 0
    for k in range(2, 6):
        shutil.copytree(runs / "run1", runs / f"run{k}")
    (runs / "run5" / "model.1.recording" / store.name).unlink()
    for k in range(1, 5):
        (runs / f"run{k}" / "model.1.recording" / "step.sqlite").write_bytes(b"SQLite format 3\0" + bytes(90))
    for made in runs.rglob("*.xsp.sqlite"):
        os.utime(made, ns=(time.time_ns() + 10**10,) * 2)
    done = called("history", runs, columns=200)
    assert "5 captures · run1 … run5" in done.stdout, done.stderr
    (runs / "run2" / "model.1.recording" / store.name).unlink()
    shutil.rmtree(tmp_path / "runs.history")
    (runs / "run6" / "model.1.recording").mkdir(parents=True)  # `record` still writes it
    (runs / "run6" / "model.1.recording" / ".trace.json").write_bytes(b'{"traceEvents": [')
    said = called("history", runs, columns=200).stderr
    assert "failed  run2" in said and "failed  run6" not in said
    assert "still being recorded: " in said and "run6/model.1.recording" in said


def test_bars_end_with_their_exit_code(folder, printed):
    stores = sorted((folder.with_name("captures.history") / "stores").glob("*"))
    out = folder.with_name("again")
    slower = called("history", *stores, "-o", out, "--fail-if", "model_latency>3% since first", columns=200)
    assert slower.returncode == 1 and "run-c4" in slower.stderr and "(+20." in slower.stderr
    same = called("history", *stores, "-o", out, "--fail-if", "model_latency>3% since last", columns=200)
    assert same.returncode == 0, same.stderr
    few = called("history", stores[0], "-o", out, "--fail-if", "model_latency>3% since last", columns=200)
    assert few.returncode == 7


def test_a_baseline_stands_in_for_a_store(folder, printed, tmp_path):
    stores = {one.name.split(".")[0]: one for one in (folder.with_name("captures.history") / "stores").glob("*")}
    env = {"XSP_POST_BASELINES": str(tmp_path / "kept")}
    nothing = called("baseline", "list", env=env)
    assert nothing.returncode == 0 and not nothing.stdout and "No baseline is kept in" in nothing.stderr
    assert called("baseline", "save", "release", stores["run-b2"], env=env).returncode == 0
    assert called("baseline", "list", env=env).stdout == "release\n"
    compared = called("compare", "baseline:release", stores["run-c4"], env=env, columns=200)
    assert compared.returncode == 0 and "proj" in compared.stdout
    assert called("baseline", "save", "release", stores["run-c4"], env=env).returncode == 6
    assert called("tree", "baseline:other", env=env).returncode == 2
    bar = ("-o", tmp_path / "out", "--fail-if", "model_latency>3% since baseline:release")
    since = called("history", *stores.values(), *bar, env=env, columns=200)
    assert since.returncode == 1 and "since baseline:release: model_latency" in since.stderr
    assert called("history", *stores.values(), *bar, env={"XSP_POST_BASELINES": "/nonexistent"}).returncode == 2
    assert called("baseline", "save", "../up", stores["run-c4"], env=env).returncode == 2


# -- tables ---------------------------------------------------------------------------------------------------


def part(name: str, latency: float, layers: dict[str, float], gpu: str = "A100") -> pd.DataFrame:
    rows = [("model", "model_latency", latency), *(("layer", layer, value) for layer, value in layers.items())]
    frame = pd.DataFrame(rows, columns=["level", "subject", "value_ns"])
    return frame.assign(capture_name=name, gpu_name=gpu, batch_size=8, phase="forward", rank_name="", case_index=0,
                        recorded_utc_ns=-1, workload_index=0, position_index=0)  # fmt: skip


def course(latencies: list[float]) -> pd.DataFrame:
    return history_values([part(f"c{k}", x, {"fc": x / 2, "act": x / 4}) for k, x in enumerate(latencies)])


def test_a_workload_is_known_by_what_it_is():
    """A layer more is the same workload, another GPU or other layers are not."""
    parts = [part("a", 9.0, {"block.0.fc": 4.0, "head": 2.0}), part("b", 9.0, {"block.1.fc": 4.0, "head": 2.0}),
             part("c", 9.0, {"block.0.fc": 4.0, "block.1.fc": 1.0, "head": 2.0, "norm": 1.0}),
             part("d", 9.0, {"block.0.fc": 4.0, "head": 2.0}, gpu="H100"), part("e", 9.0, {"conv": 4.0, "pool": 2.0}),
             part("f", 9.0, {"block.0.fc": 4.0, "head": 2.0})]  # fmt: skip
    values = history_values(parts)
    assert values.index.tolist() == list(range(len(values)))
    frame = values.drop_duplicates("capture_name")
    assert frame["workload_index"].tolist() == [0, 0, 0, 1, 2, 0]
    assert frame["position_index"].tolist() == [0, 1, 2, 0, 0, 3]


def test_a_layer_that_appears_is_a_change_of_its_own_size():
    layers = {"fc": 4e6, "head": 3e6, "act": 1e6}
    before = [part(f"c{k}", 8.1e6 + 1e3 * (k % 3), layers) for k in range(5)]
    after = [part(f"c{k}", 10.1e6 + 1e3 * (k % 3), {**layers, "norm": 2e6}) for k in range(5, 10)]
    frame = history_table(history_values([*before, *after]))
    row = frame[frame["subject"] == "norm"].iloc[0]
    assert (row["position_index"], row["before_ns"], row["difference_ns"], row["is_shown"]) == (5, 0, 2e6, True)
    assert np.isnan(row["difference_ratio"])


@pytest.mark.parametrize(
    ("latencies", "text", "error"),
    [
        ([10e6, 10.02e6, 9.99e6, 10.01e6, 11e6], "model_latency>3% since last", BarNotMetError),
        ([10e6, 10.02e6, 9.99e6, 10.01e6, 10e6], "model_latency>3% since last", None),
        ([10e6, 11e6, 9e6, 10.4e6, 10.5e6], "model_latency>3% since last", UndecidedError),
        ([10e6, 11e6, 9e6, 10.4e6, 4e6], "model_latency>3% since last", None),  # no worse at either end of its interval
        ([10e6, 10.02e6, 9.99e6, 10.01e6, 11e6], "throughput<-3%", BarNotMetError),
        ([10e6, 10.02e6, 9.99e6, 10.01e6, 11e6], "layer_latency(fc)>200us since c1", BarNotMetError),
        ([10e6], "model_latency>3% since last", UndecidedError),
        ([10e6, 10e6], "model_latency>3% since nobody", UsageError),
        ([10e6, 10e6], "layer_latency(nothing)>3%", UsageError),
    ],
)
def test_the_newest_capture_against_those_before(latencies, text, error):
    values = course(latencies)
    bars = [parse_since(text)]
    if error is None:
        assert len(check_since(values, history_table(values), bars, {})) == 1
        return
    with pytest.raises(error) as raised:
        check_since(values, history_table(values), bars, {})
    assert raised.type is error  # undecided is a bar that is not met, too


def generated(values: np.ndarray) -> pd.DataFrame:
    """`history_values` of a generated history: the model and its layers, ns, shape (captures, 1 + layers)."""
    names = [("model", "model_latency"), *(("layer", f"layer {k}") for k in range(values.shape[1] - 1))]
    table = pd.DataFrame(values, columns=pd.MultiIndex.from_tuples(names, names=["level", "subject"]))
    rows = table.stack(["level", "subject"]).rename("value_ns").reset_index()
    rows = rows.rename(columns={"level_0": "position_index"}).assign(workload_index=0, phase="", rank_name="")
    return rows.assign(capture_name="c" + rows["position_index"].astype(str), gpu_name="CPU", batch_size=1)


@pytest.mark.parametrize("seed", [71, 72])
@pytest.mark.parametrize(
    ("slower", "kind", "error"),
    [
        ("everything", "machine", UndecidedError),
        ("all but unlike", "machine", UndecidedError),
        ("one layer", "step", BarNotMetError),
        ("host", "step", BarNotMetError),
    ],
)
def test_what_all_layers_share_is_the_machine_s_and_breaks_no_bar(seed, slower, kind, error):
    """From capture 22 of 30 on everything takes 1.2 times as long, or about twice, or only the layer that has most of
    the time, or the host between layers."""
    layers = history(seed, 30).values[:, 1:13]
    layers[:, 3] *= 20
    host = np.full(30, 2e6)
    if slower == "everything":
        layers[22:] *= 1.2
        host[22:] *= 1.2
    elif slower == "all but unlike":  # load slows some layers more than others
        layers[22:] *= np.where(np.arange(12) == 0, 1.7, 1.95)
        host[22:] *= 1.95
    elif slower == "one layer":
        layers[22:, 3] *= 1.2
    else:
        host[22:] += 0.2 * layers.sum(axis=1).mean()
    values = generated(np.column_stack([layers.sum(axis=1) + host, layers]))
    changes = history_table(values)
    assert changes[["kind", "position_index"]].drop_duplicates().to_numpy().tolist() == [[kind, 22]]
    lines = "\n".join(history_lines(values, changes))
    assert ("the machine is slower" in lines) == (kind == "machine")
    with pytest.raises(error) as raised:
        check_since(values, changes, [parse_since("model_latency>3% since first")], {})
    assert raised.type is error


def of_layers(layers: np.ndarray) -> list[tuple[str, int]]:
    table = table_of(generated(np.column_stack([layers.sum(axis=1) + 2e6, layers])))
    return [(one.kind, one.first) for one in changes_of(table)[0]]


def test_load_that_slows_each_layer_by_another_power_is_no_change_of_the_program():
    assert not any("step" in dict(of_layers(under_load(seed))) for seed in (*range(8), 11, 14, 19))


def test_powers_that_never_change_hide_no_step():
    """Load slows each layer by a power of its own, always the same one; a layer is slower by three standard
    deviations of what this leaves of its captures."""
    for seed in range(4):
        random = np.random.default_rng(seed)
        logs = random.normal(0, 0.03, (50, 12)) + random.normal(0, 0.4, (50, 1)) * random.uniform(0.4, 1.6, 12)
        logs[12:, seed] += 0.09
        assert of_layers(1e6 * np.exp(logs)) == [("step", 12)]


def test_few_layers_that_scatter_apart_share_nothing_but_the_speed():
    """Five layers, each with noise of its own: where the speed is known, no more than one in four histories follows a
    course by chance, which may be the step of one layer."""
    courses = []
    for seed in range(20):
        random = np.random.default_rng([seed, 5])
        logs = random.normal(0, 0.4, (30, 5)) + random.normal(0, 0.15, (30, 1))
        speed = np.median(logs, axis=1, keepdims=True)
        courses.append(_shared(logs, np.full(5, 0.005), speed).shape[1] - 1)
    assert sum(courses) <= 5


def test_a_change_of_one_of_few_layers_is_not_the_machine_s():
    """It moves the median of four by less than their noise, and the latency with it."""
    for seed in (1, 2):
        random = np.random.default_rng([seed, 60, 4, 7])
        logs, first = random.normal(0, 0.003, (60, 4)), int(random.integers(15, 45))
        logs[first:, 0] += 0.1
        assert of_layers(1e6 * np.exp(logs)) == [("step", first)]


def test_a_layer_that_drifts_under_such_load_is_told_as_a_drift():
    """Six times as long at the end, in a straight line; what the speed of the machine explains of it bends the rest."""
    for seed in (100, 101, 103):
        layers = under_load(seed)
        layers[:, 3] *= np.linspace(1, 6, 50)
        assert [one for one in of_layers(layers) if one[0] != "machine"] == [("drift", 0)]


def test_a_change_under_such_load_is_found_of_one_layer_and_of_all():
    one, third, driver = (under_load(1) for _ in range(3))
    one[22:, 3] *= 1.4
    third = history(1, 50).values[:, 1:13]
    third[22:, :4] *= 1.15
    driver = history(2, 50).values[:, 1:13]
    driver[22:] *= np.random.default_rng(2).uniform(0.7, 1.2, 12)
    for layers in (one, third, driver):
        assert 22 in [first for _, first in of_layers(layers)]


def test_host_code_of_noisy_captures_is_not_the_machine():
    """From capture 25 of 50 on the host between layers takes an eighth longer; captures scatter by half of that."""
    rng = np.random.default_rng(3)
    layers = 1e6 * np.exp(0.01 * rng.standard_normal((50, 12)))
    host = 4e6 * np.exp(0.06 * rng.standard_normal(50)) * np.where(np.arange(50) < 25, 1.0, 1.125)
    changes = history_table(generated(np.column_stack([layers.sum(axis=1) + host, layers])))
    assert changes["kind"].unique().tolist() == ["step"]


def test_a_newest_capture_in_which_everything_is_slower_is_not_decided():
    layers = history(73, 12).values[:, 1:13]
    layers[-1] *= 1.2
    values = generated(np.column_stack([layers.sum(axis=1), layers]))
    with pytest.raises(UndecidedError):
        check_since(values, history_table(values), [parse_since("model_latency>3% since last")], {})
    values.loc[values["subject"].eq("layer 4") & values["capture_name"].eq("c11"), "value_ns"] *= 1.5
    with pytest.raises(BarNotMetError):
        check_since(values, history_table(values), [parse_since("layer_latency(layer 4)>3% since last")], {})


@pytest.mark.parametrize(
    "text", ["kernel_count>0 since last", "layer_latency>3% since last", "nonsense since last", "latency\n>3%x"]
)
def test_bars_that_a_history_cannot_answer(text):
    with pytest.raises(UsageError):
        parse_since(text)


def test_the_next_capture():
    def said(latencies):
        values = course(latencies)
        return next_capture(values, history_table(values))

    assert said([10e6]).startswith("3 more captures")
    assert said([10e6 + k % 3 * 1e4 for k in range(9)]) == "the next version."
    assert said([*(10e6 + k % 3 * 1e4 for k in range(9)), 12e6]).startswith("repeat c9")
    assert said([*(10e6 + k % 3 * 1e4 for k in range(6)), *(12e6 + k % 3 * 1e4 for k in range(6))]).startswith(
        "a version between c5 and c6"
    )


def test_a_change_that_only_a_layer_shows_is_told_of_the_layer():
    noise = [0.0, 4e5, -3e5, 2e5, -4e5, 3e5, -2e5, 1e5]
    layers = [{"fc": 2e6 if k < 4 else 2.3e6, "act": 1e6} for k in range(8)]
    values = history_values([part(f"c{k}", 10e6 + noise[k], one) for k, one in enumerate(layers)])
    lines = history_lines(values, history_table(values))
    assert lines[0].startswith("Since c4 layer fc is 300 µs longer: +15.0 % (95 % interval ")


def test_the_largest_of_several_changes_is_told_first():
    layers = history(3).values[:, 1:13]
    layers[10:, 2] *= 1.1
    layers[30:, 5] *= 0.5
    values = generated(np.column_stack([layers.sum(axis=1), layers]))
    lines = history_lines(values, history_table(values))
    assert re.match(r"2 changes; the largest: Since c30 .* shorter: −", lines[0])
    assert [line for line in lines[1:] if line.startswith("Since c10 ")]


def test_a_history_without_change_says_within_what():
    values = course([10e6 + k % 3 * 1e4 for k in range(9)])
    first = history_lines(values, history_table(values))[0]
    assert first.startswith("Nothing changed in 9 captures: first and second half differ by −") and " … +" in first
    few = course([10e6, 10e6])
    assert history_lines(few, history_table(few))[0].startswith("A history needs at least 4 captures")


def test_halves_that_surely_differ_are_not_said_to_be_the_same():
    """Two captures on each side are too few for a change at the rate of false alarms that is said."""
    layers = history(3, 4).values[:, 1:4]
    layers[2:, 0] *= 1.5
    values = generated(np.column_stack([layers.sum(axis=1), layers]))
    assert history_lines(values, history_table(values))[0].startswith("No change is sure in 4 captures, though first")


def test_names_of_a_history_are_shown_as_text():
    values = history_values([part("evil\x1b[31m", 10e6, {"fc\n": 5e6, "act": 1e6}) for _ in range(5)])
    assert not any("\x1b" in line or "\n" in line for line in history_lines(values, history_table(values)))


def test_sparkline():
    assert sparkline(np.array([1.0, 1.0, 2.0])) == "▁▁█"
    assert sparkline(np.full(500, 3.0)) == "▃" * 60


# -- recorded: a model of four blocks on a CPU that many other processes used ---------------------------------------


def recorded(name: str) -> pd.DataFrame:
    """A row per capture, in ns, as `table_of` has them; the file has µs."""
    table = pd.read_csv(Path(__file__).parent / "data" / f"history_{name}.csv") * 1e3
    named = [tuple(one.split("|")) for one in table]
    return table.set_axis(pd.MultiIndex.from_tuples(named, names=["level", "subject"]), axis="columns")


def test_recorded_noise_is_no_change():
    """Layers take up to eight times as long while others run; the next capture is like the one before (0.4)."""
    noise = recorded("noise")
    starts = (*((start, 1) for start in range(0, 71, 14)), (0, 2), (18, 2))
    assert not any(changes_of(noise.iloc[start : start + 50 * apart : apart])[0] for start, apart in starts)


@pytest.mark.parametrize(("start", "first"), [(0, 20), (35, 40), (70, 8)])
def test_a_slower_machine_within_recorded_noise_is_found(start, first):
    """From a capture on all takes longer by 3 standard errors of the model's latency."""
    table = recorded("noise").iloc[start : start + 50].sample(frac=1, random_state=start).reset_index(drop=True)
    model = table["model", "model_latency"]
    table.loc[first:] *= 1 + 3 * model.std() / model.mean()
    assert [(one.kind, one.first) for one in changes_of(table)[0]] == [("machine", first)]


def test_a_change_within_recorded_noise_is_found():
    """A layer takes 3 % of the model's latency and 3 standard errors of it longer."""
    for start, first, layer in ((0, 20, "1.down:Linear"), (35, 44, "3.act:GELU"), (70, 5, "2.norm:LayerNorm")):
        table = recorded("noise").iloc[start : start + 50].reset_index(drop=True)
        model = table["model", "model_latency"]
        amount = max(0.03 * model.mean(), 3 * model.std())
        for column in (("model", "model_latency"), ("layer", layer)):
            table.loc[first:, column] += amount
        found = changes_of(table)[0]
        assert [(one.kind, one.first) for one in found] == [("step", first)]
        assert ("layer", layer) in table.columns[list(found[0].members)]


def test_intervals_hold_in_recorded_noise():
    """What did not change is within the 95 % interval of its difference: of layers at the usual speed."""
    noise = recorded("noise")
    held = []
    for start in range(0, 71, 10):
        table = noise.iloc[start : start + 50]
        values = (table / slowness_of(table))["layer"].to_numpy(float)
        for place in (12, 25, 45):
            low, high = sizes(values, floors(values), 0, place, 50)[2:]
            held.append(((low <= 0) & (high >= 0)).mean())
    assert np.mean(held) >= 0.92


@pytest.mark.filterwarnings("error")
def test_one_capture_says_nothing_of_the_machine():
    table = recorded("noise").iloc[:1]
    assert slowness_of(table).tolist() == [[1.0]] and changes_of(table)[0] == []


def test_a_slow_block_of_thirty_real_runs_is_named():
    """`xsp-post record` thirty times; from run 17 on block 2 computes its layers twice. Others took the processors:
    the model's latency went from 9 to 69 ms meanwhile, so that only what layers have beyond the others shows it."""
    runs = recorded("runs").stack(["level", "subject"]).rename("value_ns").reset_index()
    runs = runs.rename(columns={"level_0": "position_index"}).assign(workload_index=0)
    table = history_table(runs.assign(capture_name="run" + runs["position_index"].astype(str)))
    shown = table[table["is_shown"]].set_index("subject")
    assert set(shown["position_index"]) == {17} and table["change_index"].nunique() == 1
    assert {one.split(".")[0].split(":")[0] for one in shown.index[shown["level"] == "layer"]} == {"2"}
    norm = shown.loc["2.norm:LayerNorm"]
    assert norm["ci_low_difference_ns"] > 0.5 * norm["before_ns"]  # twice the work
    assert norm["ci_high_difference_ns"] - norm["ci_low_difference_ns"] < 0.3 * norm["difference_ns"]


def test_a_slow_layer_of_thirty_real_runs_on_a_loaded_machine_is_named_and_sized():
    """torch.profiler thirty times, ten executions each, under a load of 15; from run 17 on a layer computes its product
    three times. Single runs of every layer take up to twenty times as long. The program itself measured what it added:
    12.84 ms an execution."""
    runs = recorded("loaded").stack(["level", "subject"]).rename("value_ns").reset_index()
    runs = runs.rename(columns={"level_0": "position_index"}).assign(workload_index=0)
    table = history_table(runs.assign(capture_name="run" + runs["position_index"].astype(str)))
    shown = table[table["is_shown"]]
    assert shown[["subject", "position_index"]].to_numpy().tolist() == [["2.down:Slow", 17]]
    assert shown["ci_low_difference_ns"].iloc[0] < 12.84e6 < shown["ci_high_difference_ns"].iloc[0]
