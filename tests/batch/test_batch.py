"""`xsp-post batch`: which files are captures, one row each, resuming, workers that die, and a Dask cluster."""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from builders import ExportBuilder
from conftest import CANARY, SEED
from helpers import called

from xsp_post.base.errors import CaptureError, OutputError, ToolError, UsageError
from xsp_post.batch import discover, engines, run_batch, work
from xsp_post.batch.jobs import Job
from xsp_post.model.options import Options
from xsp_post.model.results import for_people
from xsp_post.store.store import open_store

CLI = [sys.executable, "-m", "xsp_post.cli"]


def write_capture(path: Path, kernels: int = 3, *, name: str = "gemm", pid: int = 100) -> Path:
    builder = ExportBuilder().process(pid).range("model:forward#0", 0, 1_000_000, domain="xsp")
    builder.range("fc:Linear#0", 1_000, 900_000, domain="xsp")
    for k in range(kernels):
        at = 2_000 + 10_000 * k
        builder.kernel(name, launch=(at, at + 1_000), run=(at + 2_000, at + 5_000))
    path.parent.mkdir(parents=True, exist_ok=True)
    builder.write(path)
    return path


def names(jobs):
    return [job.name for job in jobs]


def batch(folder, out, **options):
    jobs, _ = discover([folder], leave_out=out)
    return run_batch(jobs, out, page=False, **options)


def fleet_of(out: Path) -> pd.DataFrame:
    return open_store(out / "fleet.xsp.sqlite").frame("fleet")


# -- discovery ----------------------------------------------------------------------------------------------


def test_folders_globs_lists_and_files_name_the_same_captures(tmp_path):
    for name in ("a/one.sqlite", "a/b/two.sqlite", "three.sqlite"):
        write_capture(tmp_path / "in" / name)
    (tmp_path / "in" / "notes.txt").write_text("no capture")
    (tmp_path / "in" / "settings.json").write_text("{}\n")
    jobs, skipped = discover([tmp_path / "in"])
    assert names(jobs) == ["three", "a/one", "a/b/two"]
    assert sorted(Path(p).name for p in skipped) == ["notes.txt", "settings.json"]
    sources = sorted(job.sources for job in jobs)
    globbed, _ = discover([f"{tmp_path}/in/**/*.sqlite"])
    assert sorted(job.sources for job in globbed) == sources
    (tmp_path / "list").write_text(
        "# captures\n" + "\n".join(str(tmp_path / "in" / n) for n in ("three.sqlite", "a/one.sqlite", "a/b/two.sqlite"))
    )
    listed, _ = discover([f"@{tmp_path}/list"])
    assert sorted(job.sources for job in listed) == sources


def test_what_is_one_capture_is_one_job(tmp_path):
    for name in (
        "run.sqlite",
        "run.nsys-rep",
        "run_ncu.ncu-rep",
        "other.ncu-rep",
        "sweep_bs16_rank1.sqlite",
        "sweep_bs16_rank0.sqlite",
        "gb200_h100.sqlite",
    ):
        (tmp_path / name).write_bytes(b"x")
    jobs = {job.name: job for job in discover([tmp_path])[0]}
    assert [Path(s).name for s in jobs["run"].sources] == ["run.sqlite", "run_ncu.ncu-rep"]
    assert [Path(s).name for s in jobs["other"].sources] == ["other.ncu-rep"]
    first = jobs["sweep_bs16_rank1"]
    assert (first.workload, first.rank, first.batch_size) == ("sweep", 1, 16)
    assert first.job_name == jobs["sweep_bs16_rank0"].job_name == "sweep_bs16"
    assert (jobs["gb200_h100"].batch_size, jobs["gb200_h100"].rank) == (-1, -1)  # a GPU's name is not a batch size
    assert len(jobs) == 5


def test_names_that_are_hard_to_write(tmp_path):
    """Bytes that are not UTF-8, line breaks, markup, the longest of names, a pipe, a dangling link, a loop of links."""
    capture = write_capture(tmp_path / "good.sqlite")
    folder = os.fsencode(tmp_path / "in")
    os.makedirs(os.path.join(folder, b"loop"))
    for name in (b"bad\xff.sqlite", b"new\nline[red].sqlite", b"-o.sqlite", b"l" * 240 + b".sqlite"):
        shutil.copy(capture, os.path.join(folder, name))
    os.symlink("..", os.path.join(folder, b"loop", b"up"))
    os.symlink("/nonexistent", os.path.join(folder, b"dangling.sqlite"))
    os.mkfifo(os.path.join(folder, b"pipe.sqlite"))
    result = batch(tmp_path / "in", tmp_path / "out")
    codes = {row["capture_name"]: row["code"] for row in result.rows}
    assert codes == {
        "bad%FF": "",
        "new\nline[red]": "",
        "-o": "",
        "l" * 120: "",
        "dangling": "capture-not-found",
        "pipe": "capture-no-file",
    }
    assert sorted(fleet_of(tmp_path / "out")["capture_name"]) == sorted(codes)
    assert batch(tmp_path / "in", tmp_path / "out").done_count == 0
    done = called("batch", tmp_path / "in", "-o", tmp_path / "out", "--no-report", columns=200)
    printed = done.stdout
    assert "new\\u000aline[red]" in printed


def test_same_names_from_different_folders_stay_apart(tmp_path):
    paths = [write_capture(tmp_path / folder / "x.sqlite") for folder in ("a", "b")]
    jobs, _ = discover(paths)
    assert names(jobs) == ["x", "x~2"]
    assert all(".." not in job.name for job in discover([f"{tmp_path}/a/../b/x.sqlite"])[0])


def test_output_folder_and_stores_are_no_input(tmp_path):
    write_capture(tmp_path / "one.sqlite")
    batch(tmp_path, tmp_path / "out")
    assert names(discover([tmp_path], leave_out=tmp_path / "out")[0]) == ["one"]


def test_nothing_to_find_is_said(tmp_path):
    with pytest.raises(UsageError) as failed:
        discover([tmp_path])
    assert failed.value.code == "batch-nothing"
    with pytest.raises(UsageError) as failed:
        discover([f"@{tmp_path}/missing"])
    assert failed.value.code == "batch-list"


# -- running ------------------------------------------------------------------------------------------------


def test_one_row_each_with_failures_as_rows(tmp_path):
    for k in range(3):
        write_capture(tmp_path / "in" / f"c{k}.sqlite", kernels=k)
    (tmp_path / "in" / "empty.sqlite").write_bytes(b"")
    (tmp_path / "in" / "junk.sqlite").write_bytes(b"junk" * 100)
    result = batch(tmp_path / "in", tmp_path / "out", workers=2)
    fleet = fleet_of(tmp_path / "out").set_index("capture_name")
    assert fleet["kernel_count"].to_dict() == {"c0": 0, "c1": 1, "c2": 2, "empty": -1, "junk": -1}
    assert fleet["code"].to_dict() == {
        "c0": "",
        "c1": "",
        "c2": "",
        "empty": "capture-empty",
        "junk": "capture-unknown-format",
    }
    assert "empty.sqlite" in fleet["message"]["empty"] and str(tmp_path) not in fleet["message"]["empty"]
    assert [row["capture_name"] for row in result.failed] == ["empty", "junk"]
    assert open_store(tmp_path / "out" / fleet["store_name"]["c2"]).frame("kernels").shape[0] == 2
    assert (fleet["attributed_ratio"].loc[["c1", "c2"]] == 1).all()


def test_second_call_does_nothing_and_a_change_redoes_one(tmp_path):
    paths = [write_capture(tmp_path / "in" / f"c{k}.sqlite", kernels=k + 1) for k in range(2)]
    out = tmp_path / "out"
    assert batch(tmp_path / "in", out).done_count == 2
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    again = batch(tmp_path / "in", out)
    assert (again.done_count, again.current_count, again.is_fleet_current) == (0, 2, True)
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before
    os.utime(paths[0])  # touched, the same content: read again, not done again
    assert batch(tmp_path / "in", out).done_count == 0
    paths[1].unlink()
    write_capture(paths[1], kernels=9)
    assert batch(tmp_path / "in", out).done_count == 1
    assert fleet_of(out)["kernel_count"].tolist() == [1, 9]
    assert batch(tmp_path / "in", out, options=Options(infer=False)).done_count == 2  # other options
    paths[1].unlink()
    result = batch(tmp_path / "in", out, options=Options(infer=False))
    assert (result.done_count, result.is_fleet_current) == (0, False)
    assert fleet_of(out)["capture_name"].tolist() == ["c0"]


def test_lost_store_and_damaged_record_are_made_again(tmp_path):
    for k in range(2):
        write_capture(tmp_path / "in" / f"c{k}.sqlite")
    out = tmp_path / "out"
    batch(tmp_path / "in", out)
    (out / "stores" / "c0.xsp.sqlite").unlink()
    (out / "records" / "c1.json").write_text("{")
    assert batch(tmp_path / "in", out).done_count == 2


def test_capture_mended_after_failing_is_done(tmp_path):
    path = tmp_path / "in" / "c.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"")
    out = tmp_path / "out"
    assert batch(tmp_path / "in", out).failed
    write_capture(path)
    result = batch(tmp_path / "in", out)
    assert (result.done_count, result.failed) == (1, [])


def test_report_without_nsys_is_tried_again_when_nsys_comes(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "r.nsys-rep").write_bytes(b"\x01report")
    out = tmp_path / "out"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert batch(tmp_path / "in", out).rows[0]["code"] == "nsys-missing"
    assert batch(tmp_path / "in", out).done_count == 0
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    assert batch(tmp_path / "in", out).done_count == 1


def test_counter_report_alone_is_a_capture_that_says_what_it_is(tmp_path, captures):
    """As `tree` and `ingest` read it: counters in a tree, and a finding that its durations are not latencies."""
    report = captures / "ncu" / "cutlass_int8_nvtx_a100_2024.1.ncu-rep"
    pytest.importorskip("ncu_report")
    jobs, _ = discover([report])
    row = run_batch(jobs, tmp_path / "out", page=True).rows[0]
    assert row["status"] == "done" and row["code"] == ""
    assert row["kernel_count"] == row["counter_count"] > 0
    store = open_store(tmp_path / "out" / row["store_name"])
    assert "durations-under-counters" in store.frame("findings")["code"].tolist()


def test_folder_of_something_else_is_left_alone(tmp_path):
    write_capture(tmp_path / "in" / "c.sqlite")
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError) as failed:
        batch(tmp_path / "in", out)
    assert failed.value.code == "batch-folder"
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_rows_are_the_same_with_any_number_of_workers(tmp_path):
    for k in range(3):
        write_capture(tmp_path / "in" / f"c{k}.sqlite", kernels=k + 1, name=f"kernel_{k}")
    tables = []
    for workers in (1, 2):
        batch(tmp_path / "in", tmp_path / f"out{workers}", workers=workers)
        store = open_store(tmp_path / f"out{workers}" / "fleet.xsp.sqlite")
        tables.append({name: store.frame(name) for name in store.tables()})
    assert tables[0].keys() == tables[1].keys()
    for name, frame in tables[0].items():
        pd.testing.assert_frame_equal(frame, tables[1][name])


def test_frames_from_a_record_are_those_from_the_worker(tmp_path):
    write_capture(tmp_path / "in" / "c.sqlite", kernels=4)
    jobs, _ = discover([tmp_path / "in"])
    out = tmp_path / "out"
    out.mkdir()
    made = work.process(jobs[0], str(out), Options())
    read = work.read_outcome(work.record_path(out, jobs[0]))
    assert read.row == json.loads(json.dumps(made.row))
    for name, frame in made.frames.items():
        pd.testing.assert_frame_equal(frame.reset_index(drop=True), read.frames[name], check_dtype=False)


# -- accidents ----------------------------------------------------------------------------------------------


_DEATHS = mmap.mmap(-1, 1)  # memory that forked processes share


def _dies_once(job, folder, options):
    """Stands for `work.process`: kills its own process the first time it is asked for one of the jobs."""
    if job.name == "c1" and not _DEATHS[0]:
        _DEATHS[0] = 1
        os.kill(os.getpid(), signal.SIGKILL)
    return work.Outcome({"status": "done", "capture_name": job.name, "code": ""})


def _dies_always(job, folder, options):
    if job.name == "c1":
        os.kill(os.getpid(), signal.SIGKILL)
    return work.Outcome({"status": "done", "capture_name": job.name, "code": ""})


def _defect(job, folder, options):
    raise RuntimeError(f"defect in {job.name}")


def _jobs(count):
    return [Job(f"c{k}", (f"/c{k}.sqlite",), f"c{k}.sqlite", f"c{k}", f"c{k}") for k in range(count)]


def _outcomes(monkeypatch, function, tmp_path, workers=2, count=5):
    monkeypatch.setattr(engines, "process", function)
    found = list(engines.outcomes(_jobs(count), str(tmp_path), Options(), workers=workers))
    assert sorted(job.name for job, _ in found) == [f"c{k}" for k in range(count)]  # each exactly once
    return {job.name: outcome.row for job, outcome in found}


def test_killed_worker_loses_nothing(monkeypatch, tmp_path):
    rows = _outcomes(monkeypatch, _dies_once, tmp_path)
    assert {row["status"] for row in rows.values()} == {"done"}


def test_capture_that_kills_every_worker_is_a_row(monkeypatch, tmp_path):
    rows = _outcomes(monkeypatch, _dies_always, tmp_path)
    assert rows["c1"]["code"] == "reader-died"
    assert {row["status"] for name, row in rows.items() if name != "c1"} == {"done"}


def test_defect_is_a_row_and_the_rest_goes_on(monkeypatch, tmp_path):
    rows = _outcomes(monkeypatch, _defect, tmp_path, count=2)
    assert {row["code"] for row in rows.values()} == {"batch-defect"}
    assert "xsp-post failed (RuntimeError in " in rows["c0"]["message"]  # its text may quote the capture


def _says_where(job, folder, options):
    return work.Outcome({"status": "done", "capture_name": job.name, "process": os.getpid()})


def _needs_much(job, folder, options):
    raise MemoryError


def test_where_no_process_can_be_forked_a_pool_does_the_jobs(monkeypatch, tmp_path):
    monkeypatch.setattr(engines.sealed, "is_possible", lambda: False)
    monkeypatch.setattr(engines, "get_context", lambda kind: multiprocessing.get_context("fork"))
    rows = _outcomes(monkeypatch, _says_where, tmp_path, count=3)
    assert {row["status"] for row in rows.values()} == {"done"} and os.getpid() not in {
        row["process"] for row in rows.values()
    }
    rows = _outcomes(monkeypatch, _dies_always, tmp_path, workers=1, count=5)
    codes = [row["code"] for row in rows.values()]
    assert rows["c1"]["code"] == "batch-worker-died" and codes.count("batch-worker-died") < 4


def test_where_there_is_no_room_for_a_process_the_jobs_are_done_here(monkeypatch, tmp_path):
    def fork():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", fork)
    rows = _outcomes(monkeypatch, _says_where, tmp_path)
    assert {row["process"] for row in rows.values()} == {os.getpid()}
    rows = _outcomes(monkeypatch, _needs_much, tmp_path, count=2)
    assert {row["code"] for row in rows.values()} == {"out-of-memory"}


@pytest.mark.parametrize("mebibytes", [200, 320, 511])
def test_a_limit_of_addresses_below_what_libraries_take_is_one_sentence(tmp_path, mebibytes):
    write_capture(tmp_path / "c0.sqlite")
    command = [*CLI, "batch", str(tmp_path / "c0.sqlite"), "-o", str(tmp_path / "out"), "--no-report"]

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=120, check=False)
    assert done.returncode == 4 and "[out-of-memory]" in done.stderr and "Traceback" not in done.stderr
    assert f"{mebibytes} MiB of addresses" in done.stderr


@pytest.mark.guard
def test_interrupted_batch_goes_on_where_it_was(tmp_path):
    for k in range(30):  # many, so that it is not done before this process sees the second
        write_capture(tmp_path / "in" / f"c{k}.sqlite", kernels=20 + k)
    out = tmp_path / "out"
    command = [*CLI, "batch", str(tmp_path / "in"), "-o", str(out), "--workers", "1", "--no-report"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 200
    while len(list((out / "records").glob("[!.]*.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    finished = len(list((out / "records").glob("[!.]*.json")))
    assert 2 <= finished < 30 and not (out / "fleet.xsp.sqlite").exists()
    recorded = "".join(path.read_text() for path in (out / "records").glob("[!.]*.json"))
    for path in sorted(path for path in (tmp_path / "in").iterdir() if path.name not in recorded)[1:]:
        path.unlink()
    left = len(list((tmp_path / "in").iterdir()))
    (out / "stores" / ".c0.xsp.sqlite.xsp-1.part" / "in").mkdir(parents=True)  # the folder of a child that was killed
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    printed = json.loads(done.stdout)["data"]
    assert not list(out.rglob("*.part*"))
    assert printed["unchanged_count"] >= finished and len(printed["fleet"]) == left
    assert not list(out.rglob("*.part*"))


# -- a Dask cluster -----------------------------------------------------------------------------------------


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, protocol="tcp://", dashboard_address=None
    ) as made:
        yield made


def test_cluster_gives_the_same_rows_and_survives_a_killed_worker(tmp_path, cluster):
    """The worker that is killed has captures in hand, and what it had done lies only in its records."""
    for k in range(6):
        write_capture(tmp_path / "in" / f"job_rank{k}.sqlite", kernels=20 + k)
    batch(tmp_path / "in", tmp_path / "here")
    killed = []

    def kill_one(job, outcome):
        if not killed:
            with cluster.get_client() as client:
                in_hand = {address for address, keys in client.processing().items() if keys}
            worker = next(one for one in cluster.workers.values() if one.worker_address in in_hand)
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    result = batch(tmp_path / "in", tmp_path / "there", scheduler=cluster.scheduler_address, progress=kill_one)
    assert killed and result.done_count == 6 and not result.failed
    here, there = (fleet_of(tmp_path / name) for name in ("here", "there"))
    pd.testing.assert_frame_equal(here, there)
    assert sorted(there["rank"]) == list(range(6))
    ranks = [open_store(tmp_path / name / "fleet.xsp.sqlite").frame("ranks") for name in ("here", "there")]
    pd.testing.assert_frame_equal(*ranks)
    assert ranks[1]["rank"].tolist() == list(range(6))


def test_no_scheduler_is_one_sentence(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "_CONNECT_TIMEOUT_S", 1)
    write_capture(tmp_path / "in" / "c.sqlite")
    with pytest.raises(ToolError) as failed:
        batch(tmp_path / "in", tmp_path / "out", scheduler="tcp://127.0.0.1:9")
    assert failed.value.code == "cluster-unreachable"


# -- the command --------------------------------------------------------------------------------------------


def test_command_ends_4_only_when_nothing_could_be_read(tmp_path):
    write_capture(tmp_path / "in" / "good.sqlite")
    (tmp_path / "in" / "bad.sqlite").write_bytes(b"")
    command = ["batch", tmp_path / "in", "--workers", "1", "-o"]
    done = called(*command, tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "2 captures: 1 with kernels, 0 without, 1 failed" in done.stdout
    head = done.stdout.splitlines()[0]
    assert head.split("  ")[0] == "capture" and "limited by" in head and "peak memory" not in head  # none recorded
    assert (tmp_path / "a" / "fleet.html").read_text().startswith("<!doctype html>")
    fleet = tmp_path / "a" / "fleet.xsp.sqlite"
    for words in (["tree"], ["why"], ["compare", fleet], ["what-if", "--change", "layer:x=0.5x"],
                  ["export", "--to", "chrome", "-o", tmp_path / "x"]):  # fmt: skip
        refused = called(*words, fleet)
        assert refused.returncode == 4 and "store-of-batch" in refused.stderr, refused.stderr
        assert "xsp-post table fleet_models" in refused.stderr
    strict = called(*command, tmp_path / "a", "--strict")
    assert strict.returncode == 4
    assert "Nothing to do" in strict.stderr
    (tmp_path / "in" / "good.sqlite").unlink()
    none = called(*command, tmp_path / "b")
    assert none.returncode == 4
    assert "batch-all-failed" in none.stderr and "Next: xsp-post table fleet " in none.stderr
    fleet = tmp_path / "b" / "fleet.xsp.sqlite"
    assert f"each capture: xsp-post table fleet {fleet}" in none.stderr
    row = for_people(open_store(fleet), "fleet").iloc[0]
    unknown = row[["layer_count", "kernel_count", "device_ns", "busy_ns", "gpu_count", "iteration_count",
                   "counter_count", "finding_count"]]  # fmt: skip
    assert unknown.isna().all() and row["source_count"] == 1, "unknown, not none"


def drawn(captures, folder, config):
    """A ninth of the real captures, drawn by the seed of the run (`--all`: each of them), and all other files."""
    is_recording = {".sqlite", ".gz", ".ncu-rep", ".nsys-rep"}
    files = [file for file in sorted(captures.rglob("*")) if file.is_file()]
    large = [file for file in files if is_recording & set(file.suffixes) and file.parent.name != "other"]
    left_out = set() if config.option.all else set(large) - set(large[int(os.environ[SEED]) % 9 :: 9])
    for file in files:
        if file not in left_out:
            to = folder / file.relative_to(captures)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
    return folder


def test_real_captures_one_row_each(tmp_path, captures, pytestconfig):
    """Issue 6: nsys exports with and without kernels, and the others, no crash; a second call is quick.

    Without pages: `scripts/golden` makes the page of each of them."""
    out, read = tmp_path / "out", drawn(captures, tmp_path / "in", pytestconfig)
    command = [*CLI, "batch", str(read), "-o", str(out), "--workers", "2", "--no-report"]
    first = subprocess.run(command, capture_output=True, text=True, check=False)
    assert first.returncode == 0, first.stderr
    fleet = fleet_of(out)
    nsys = fleet[fleet["source_name"].str.startswith("nsys/")]
    expected = {p.stem: json.loads(p.read_text()) for p in (captures / "expected").glob("*.json")}
    assert len(nsys) == len(list((read / "nsys").glob("*.sqlite"))) >= 2 and (nsys["status"] == "done").all()
    for row in nsys.itertuples():
        assert row.kernel_count == expected[Path(row.source_name).stem]["kernels"], row.source_name
    other = fleet[fleet["source_name"].str.startswith("other/")].set_index("source_name")["code"]
    assert other.to_dict() == {
        "other/empty.sqlite": "capture-empty",
        "other/git_lfs_pointer.sqlite": "capture-lfs-pointer",
        "other/not_an_nsys_export.sqlite": "capture-no-export",
        "other/unexported_2025.5.nsys-rep": "nsys-missing",
    }
    assert not fleet["capture_name"].duplicated().any()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 5  # processor time; scripts/bench batch measures the wall time
    assert "0 analysed now" in second.stderr and "Nothing to do" in second.stderr
    for path in out.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


def test_capture_error_survives_the_way_back():
    import pickle

    error = pickle.loads(pickle.dumps(CaptureError("sentence", code="capture-empty", hint="do this")))
    assert (error.message, error.code, error.hint, error.exit_code) == ("sentence", "capture-empty", "do this", 4)


def test_copied_folder_of_results_is_still_current(tmp_path):
    """Only what the captures hold decides, not where the output lies."""
    write_capture(tmp_path / "in" / "c.sqlite")
    batch(tmp_path / "in", tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "moved")
    assert batch(tmp_path / "in", tmp_path / "moved").done_count == 0


def test_a_forked_reader_imports_nothing(tmp_path):
    """What every capture would import anew is imported once, before the first fork."""
    write_capture(tmp_path / "c.sqlite")
    args = {"device": 0, "stream": 7, "correlation": 3, "grid": [1, 1, 1], "block": [1, 1, 1]}
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 1, "tid": 7, "ts": 5.0, "dur": 2.0, "args": args}
    (tmp_path / "t.pt.trace.json").write_text(json.dumps({"traceEvents": [event]}))
    said = (
        "import sys\nimport xsp_post.batch.warm\nfrom xsp_post.batch import jobs, work\n"
        "from xsp_post.model.options import Options\nbefore = set(sys.modules)\n"
        f"for job in jobs.discover({[str(tmp_path)]!r})[0]:\n"
        f"    assert work.process(job, {str(tmp_path / 'made')!r}, Options()).row['status'] == 'done'\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('xsp_post')))"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
