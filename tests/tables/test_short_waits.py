"""Of a recording with very many gaps short pieces of idle time are sums: nothing is lost, an execution stays exact."""

from __future__ import annotations

from random import Random

import pytest
from builders import ExportBuilder

from xsp_post.model.options import Options
from xsp_post.pipeline import analyze, captures_of, part_of
from xsp_post.store.store import open_store, write_store
from xsp_post.tables.core import idle

LIMIT = 1_000
RULES = {"model_range": "^step$", "layer_range": "^(one|two)$"}


@pytest.fixture
def path(tmp_path):
    """Twelve executions, a gap after every kernel, some of them long."""
    random, builder = Random(5), ExportBuilder().gpu()
    for k in range(12):
        at = 100_000 * k
        builder.range("step", at, at + 90_000).range("one", at + 10, at + 40_000).range("two", at + 40_100, at + 80_000)
        for j in range(20):
            launch = at + 4_000 * j + 20
            builder.kernel(
                "gemm", launch=(launch, launch + 10), run=(launch + 300, launch + random.randrange(2_000, 3_990))
            )
    return builder.write(tmp_path / "a.sqlite")


def summed(monkeypatch):
    monkeypatch.setattr(idle, "MANY_GAPS", 0)
    monkeypatch.setattr(idle, "SHORT_NS", LIMIT)


def by_cause(frame, column):
    return frame.astype({"cause": str}).groupby("cause")[column].sum().to_dict()


def test_long_pieces_and_sums_are_all_of_the_idle_time(path, monkeypatch):
    single = analyze([path], Options(**RULES))
    assert single.frame("short_waits").empty
    summed(monkeypatch)
    whole = analyze([path], Options(**RULES))
    pieces, sums, causes = (whole.frame(name) for name in ("idle", "short_waits", "idle_causes"))
    assert (pieces["end_ns"] - pieces["start_ns"]).min() >= LIMIT > sums["longest_ns"].max()
    assert causes.equals(single.frame("idle_causes"))
    assert int((pieces["end_ns"] - pieces["start_ns"]).sum() + sums["idle_ns"].sum()) == int(causes["idle_ns"].sum())
    assert len(pieces) + sums["piece_count"].sum() == causes["piece_count"].sum() and (sums["piece_count"] > 1).any()
    assert 4 * len(sums) < sums["piece_count"].sum()


def test_an_execution_of_sums_is_exact_and_a_time_shares_them_out(path, monkeypatch, tmp_path):
    execution, time = Options(iteration=5, **RULES), Options(begin_ns=250_000, end_ns=640_000, **RULES)
    whole = captures_of([path], Options(**RULES))
    exact, wanted = (part_of(whole, one).frame("idle_causes") for one in (execution, time))
    wanted = by_cause(wanted, "idle_ns")
    summed(monkeypatch)
    write_store(analyze([path], Options(**RULES)), tmp_path / "a.xsp.sqlite")
    for results in (captures_of([path], Options(**RULES)), open_store(tmp_path / "a.xsp.sqlite")):
        part = part_of(results, execution).frame("idle_causes")
        assert part.astype(str).to_numpy().tolist() == exact.astype(str).to_numpy().tolist()
        shared = by_cause(part_of(results, time).frame("idle_causes"), "idle_ns")
        assert shared.keys() == wanted.keys()
        assert all(shared[cause] == pytest.approx(wanted[cause], rel=0.1) for cause in wanted)


def test_without_executions_neighbouring_gaps_are_summed(path, monkeypatch):
    summed(monkeypatch)
    monkeypatch.setattr(idle, "_GAPS_TOGETHER", 16)
    whole = analyze([path], Options(executions="launches", infer=False))
    sums = whole.frame("short_waits")
    assert (sums["iteration_index"] == -1).all() and len(sums) >= 12 * 20 // 16
    assert (sums["end_ns"] - sums["start_ns"]).max() < 2 * 100_000
