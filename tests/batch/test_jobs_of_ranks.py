"""`xsp-post batch` on the files of one job: found by what the traces say, and what is left out of many ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from generators.job_runs_files import WORDS, simulate, write
from typer.testing import CliRunner

from xsp_post.batch import discover, jobs, run_batch
from xsp_post.batch.assembly import jobs_of
from xsp_post.cli import app
from xsp_post.pipeline import captures_of
from xsp_post.store.store import open_store
from xsp_post.tables.analyses.rank_causes import held_up_ns
from xsp_post.tables.analyses.ranks import _stragglers, nodes_of, rank_contribution, rank_tables


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Four traces whose names hold host, process and time, but no rank; and the job."""
    folder = tmp_path_factory.mktemp("job") / "traces"
    folder.mkdir()
    made = simulate(5, 4, cause="input")
    for rank in range(4):
        write(made, folder, rank)
    return folder, made


@pytest.mark.parametrize("many", [64, 4])
def test_ranks_without_a_rank_in_their_names_are_one_job(job, many, tmp_path, monkeypatch):
    folder, made = job
    monkeypatch.setattr(jobs, "MANY", many)
    result = run_batch(discover([folder])[0], tmp_path / "out", workers=2, page=False)
    ranks = open_store(tmp_path / "out" / "fleet.xsp.sqlite").frame("ranks")
    assert ranks["rank"].tolist() == list(range(4)) and set(ranks["job_name"]) == {"job"}
    late = ranks[ranks["is_straggler"].astype(bool)]
    assert list(zip(late["rank"], late["late_cause"])) == [(made.late_rank, WORDS["input"])]
    assert late["lateness_ns"].iloc[0] == pytest.approx(made.late_ns * 5 / 6, rel=0.05)  # the first step's is not seen
    assert [bool(row["store_name"]) for row in result.rows] == [many > 4] * 4
    assert f"Others wait for rank {made.late_rank}" in result.said[0]
    again = run_batch(discover([folder])[0], tmp_path / "out", workers=2, page=False)
    assert (again.done_count, again.said) == (0, result.said)


def test_a_store_of_each_rank_is_kept_when_asked_for(job, tmp_path, monkeypatch):
    """Of a job of many no rank has a store, and the command says so; with ``--all-stores`` each has one."""
    monkeypatch.setattr(jobs, "MANY", 4)
    out, said = tmp_path / "out", "No store is kept of 4 ranks of a large job"
    for all_stores, count in ((False, 0), (True, 4), (False, 0), (False, 0)):
        words = ["batch", str(job[0]), "-o", str(out), "--workers", "1", "--no-report", *["--all-stores"][:all_stores]]
        captured = CliRunner().invoke(app, words)
        assert captured.exit_code == 0, captured.output
        assert len(list(out.rglob("stores/**/*.xsp.sqlite"))) == count
        assert (said in captured.stderr) == (not all_stores), captured.stderr
    assert "0 analysed now, 4 unchanged" in captured.stderr


@pytest.mark.parametrize(("names", "is_many"), [
    (("rank0", "rank1", "rank2"), True), (("m_rank0", "m_rank1", "m_rank2"), True), (("a", "b", "c"), False),
    (("rank0", "rank1", "other/rank2"), False), (("m_rank0", "m_rank1", "n_rank0"), False),
])  # fmt: skip
def test_files_that_differ_by_their_rank_only_are_a_job(names, is_many, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "MANY", 3)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.sqlite").write_bytes(b"x")
    assert {job.is_of_many for job in discover([tmp_path])[0]} == {is_many}


def test_several_recordings_of_a_folder_are_several_jobs():
    def row(name, rank, job_name="", status="done"):
        return {"capture_name": name, "job_name": job_name or name, "rank": rank, "status": status}

    rows = [row("a/h1.1", 0), row("a/h2.1", 1), row("a/h1.2", 0), row("a/h2.2", 1), row("b/x", -1), row("b/y", 0)]
    named = [row("c/m_rank0", 0, "c/m"), row("c/m_rank1", 1, "c/m"), row("c/n_rank0", 0, "c/n", "failed")]
    assert jobs_of([*rows, *named]) == {
        "a/job": [0, 1], "a/job~2": [2, 3], "b/x": [4], "job": [5], "c/m": [6, 7],
    }  # fmt: skip
    alone = [row(f"runs/{k}/rank{k % 2}.recording/trace", k % 2) for k in range(4)]  # each rank in a folder of its own
    assert jobs_of([*rows[:2], *alone]) == {"a/job": [0, 1], "runs/job": [2, 3], "runs/job~2": [4, 5]}


def test_the_chain_through_the_ranks_lasts_as_long_as_the_job(tmp_path):
    """Own time and transfers of the chain add up to the job, and the late rank has most of it; two machines."""
    made = simulate(3, 16, tensor=4, cause="slower clock", share=0.5, steps=4)
    parts = [rank_contribution(captures_of([write(made, tmp_path, rank)]), str(rank)) for rank in range(16)]
    tables = rank_tables(parts)
    chain, ranks = tables["rank_chain"], tables["ranks"]
    collectives = [(start, end) for *_, group, _, _, start, end in made.operations if group]
    lasted = max(end.max() for _, end in collectives) - collectives[0][0][chain["rank"].iloc[0]]
    assert chain[["own_ns", "transfer_ns"]].sum().sum() == pytest.approx(lasted, rel=0.01)
    own = ranks.set_index("rank")["chain_ns"]
    assert own.idxmax() == made.late_rank and own.sum() == pytest.approx(chain["own_ns"].sum())
    assert own[made.late_rank] > 0.9 * own.sum()
    assert ranks["node_index"].tolist() == [0] * 8 + [1] * 8
    groups = tables["rank_groups"].set_index("group_name")["node_count"]
    assert groups["mesh_tp 0-3 #1"] == 1 and groups["mesh_dp 0-12:4 #2"] == 2
    late = tables["rank_steps"].groupby("rank")["late_ns"].sum()
    assert set(late.nlargest(4).index) == {12, 13, 14, 15}  # what it held up arrives late in the other groups
    assert nodes_of(np.zeros(4, int)).tolist() == [-1] * 4
    assert nodes_of(np.array([1, 0])).tolist() == [0, 0]  # ranks of one machine, in another order than its devices
    assert nodes_of(np.array([0, 1, 2, 0, 1, 0, 1, 2])).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("late_ms", "steps", "is_named"),
    [((900,), 6, True), ((700, 2100), 6, True), ((700, 2100), 4, False), ((60,), 6, False)],
)
def test_a_rank_that_is_late_before_the_first_collective_of_each_step_is_named(late_ms, steps, is_named):
    """Steps of 16 collectives on busy processors: what came before the very first one was not recorded, so that the
    first step tells nothing of a rank whose lateness is all there. Five whole ones in which it is always the last are
    enough, however they scatter; three are not."""
    random = np.random.default_rng(0)
    met = pd.DataFrame([(rank, step, k) for step in range(steps) for k in range(16) for rank in range(4)],
                       columns=["position", "step_index", "call"])  # fmt: skip
    is_first = met["call"] == 0
    noise = random.normal(0, np.where(is_first, 120e6, 5e6))
    amount = 1e6 * np.array(late_ms)[met["step_index"] % len(late_ms)]
    met["group_name"] = ""
    met["late_ns"] = noise + np.where(is_first & (met["position"] == 2), amount, 0.0)
    own = met["late_ns"].groupby(met["position"]).sum() + [-5.5e8, 4.7e8, 0, -4.7e8]  # of a busy machine
    frame = pd.DataFrame({"duration_ns": 8e9, "compute_excess_ratio": 0.0}, index=own.index)
    assert _stragglers(frame, met, own.to_numpy()[None]).tolist() == [False, False, is_named, False]


@pytest.mark.parametrize("cause", ["input", "slower clock"])
def test_a_wait_that_kernels_hide_holds_nobody_up(cause, tmp_path):
    """Ranks of another tensor group wait beside their own kernels for most of the time: that costs the job nothing."""
    made, usual = (simulate(11, 8, tensor=4, layers=16, kernels=16, cause=one, share=0.5) for one in (cause, ""))
    lost_ns = np.subtract(*(max(end.max() for *_, end in one.operations) for one in (made, usual)))
    parts = [rank_contribution(captures_of([write(made, tmp_path, rank)]), str(rank)) for rank in range(8)]
    ranks = rank_tables(parts)["ranks"]
    assert ranks["waiting_ns"].max() > 1.8 * lost_ns
    assert 0.8 * lost_ns < held_up_ns(ranks) < 1.5 * lost_ns
