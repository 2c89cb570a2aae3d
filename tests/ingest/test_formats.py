"""One row a source format: stems, recognition, and what looks them up."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from builders import ExportBuilder

from xsp_post.base.errors import CaptureError
from xsp_post.batch.jobs import discover
from xsp_post.commands.ingest import default_store
from xsp_post.ingest import formats
from xsp_post.ingest.sources import expand, sniff


@pytest.mark.parametrize(
    "name",
    ["run.sqlite", "run.xsp.sqlite", "run.nsys-rep", "run.qdrep", "run_pqtdir", "run_arwdir", "run.ncu-rep",
     "run.pt.trace.json", "run.pt.trace.json.gz", "run.json", "run.json.gz", "run.jaeger.json", "run.jaeger.json.gz",
     "run.PT.TRACE.JSON"],
)  # fmt: skip
def test_every_suffix_leaves_the_stem(name):
    assert formats.stem_of(name) == "run"
    assert default_store(Path("folder") / name) == Path("run.xsp.sqlite")


@pytest.mark.parametrize("name", ["run", "run.csv", ".json", ".sqlite", "a.b.c"])
def test_other_names_are_their_own_stem(name):
    assert formats.stem_of(name) == name


def test_an_export_is_named_by_the_stem():
    from xsp_post.exporters import default_path

    assert default_path(formats.stem_of("run.ncu-rep"), "perfetto") == Path("run.perfetto-trace")


def test_every_row_names_functions_that_exist():
    for one in formats.FORMATS:
        for name in (one.recognise, one.read):
            module, function = name.split(":")
            assert callable(getattr(import_module(f"xsp_post.ingest.{module}"), function))
    suffixes = [suffix for one in formats.FORMATS for suffix in (*one.suffixes, *one.common_suffixes)]
    assert len(suffixes) == len(set(suffixes))


def test_every_real_capture_is_of_its_format(captures):
    folders = {"nsys": formats.NSYS_SQLITE, "ncu": formats.NCU_REPORT, "kineto": formats.KINETO}
    for folder, key in folders.items():
        files = [file for file in (captures / folder).iterdir() if file.is_file() and file.suffix != ".csv"]
        assert files and {sniff(file) for file in files} == {key}


def test_what_is_no_capture_is_told_which_formats_there_are(tmp_path):
    (tmp_path / "a.txt").write_text("secret words")
    with pytest.raises(CaptureError) as caught:
        sniff(tmp_path / "a.txt")
    assert caught.value.code == "capture-unknown-format" and "secret" not in caught.value.message
    for title in ("nsys export", ".ncu-rep", "PyTorch trace"):
        assert title in caught.value.hint


def test_sources_of_one_stem_get_distinct_stores(tmp_path):
    export = ExportBuilder().kernel("k", launch=(1, 2), run=(3, 4)).write(tmp_path / "run.sqlite")
    (tmp_path / "run.pt.trace.json").write_text('{"traceEvents": []}')
    (tmp_path / "run.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    (tmp_path / "other.json").write_text('{"settings": 1}')
    (tmp_path / "run.qdrep").write_bytes(export.read_bytes())  # the same capture as run.sqlite
    (tmp_path / "run.ncu-rep").write_bytes(b"NVR\x00")  # counters of which of the three is not known
    (tmp_path / "run.xsp.sqlite").write_bytes(b"")
    jobs, skipped = discover([tmp_path])
    assert sorted(job.name for job in jobs) == ["run", "run~2", "run~3", "run~4"]
    assert sorted(Path(source).name for job in jobs for source in job.sources) == [
        "run.json", "run.ncu-rep", "run.pt.trace.json", "run.sqlite",
    ]  # fmt: skip
    assert [Path(path).name for path in skipped] == ["other.json", "run.xsp.sqlite"]


@pytest.mark.parametrize("names", [["a_rank0", "a_rank1"], ["a_rank0", "b_rank0"], ["a_rank0"], ["a_rank0", "other"]])
def test_a_folder_of_captures_that_state_a_rank_each_is_one_job(names, tmp_path):
    """Every command that reads captures takes it, as all commands expand what they are given."""
    made = [ExportBuilder().gpu().kernel("k", launch=(0, 1), run=(2, 9)).write(tmp_path / f"{name}.sqlite")
            for name in names]  # fmt: skip
    assert expand([tmp_path]) == (made if names[-1] == "a_rank1" else [tmp_path])
