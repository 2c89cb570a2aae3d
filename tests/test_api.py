"""`xsp_post.load`: one object with the tables as DataFrames and the charts, from whatever there is."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import altair as alt
import pandas as pd
import pytest
from builders import ExportBuilder

import xsp_post
from xsp_post.base.errors import CaptureError, OutputError, UsageError
from xsp_post.pipeline import analyze
from xsp_post.store.store import write_store


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "run.sqlite"
    builder = ExportBuilder()
    for k in range(4):
        at = 1_000_000 * k
        builder.range(f"model:forward#{k}", at, at + 900_000, domain="xsp")
        for layer in range(3):
            start = at + 10_000 + layer * 200_000
            builder.range(f"layers.{layer}:Linear#0", start, start + 150_000, domain="xsp")
            end = start + 50_000 + layer * 1_000
            builder.kernel("gemm", launch=(start + 10, start + 900), run=(start + 1_000, end))
    builder.write(path)
    return path


@pytest.fixture(scope="module")
def store(export):
    path = export.with_name("run.xsp.sqlite")
    write_store(analyze([export]), path)
    return path


@pytest.mark.parametrize("kind", ["export", "store"])
def test_tables_by_name_id_and_attribute(kind, request):
    profile = xsp_post.load(request.getfixturevalue(kind))
    assert profile.kernels.shape[0] == 12
    assert profile["A8"] is profile.a08 is profile.table("a8")
    layers = profile.a02[profile.a02["layer_type"].astype(str) == "Linear"]
    assert layers["latency_ns"].tolist() == [49_000.0, 50_000.0, 51_000.0]
    assert profile.table("kernels", ["duration_ns"]).columns.tolist() == ["duration_ns"]
    assert "kernels" in profile and "A8" in profile and "nothing" not in profile and 3 not in profile
    assert set(profile) >= {"captures", "a01", "a15"} and len(profile) == len(list(profile))
    assert "kernels" in dir(profile) and "chart" in dir(profile)
    assert "1 captures" in repr(profile)
    assert profile.summary["kernel_count"].tolist() == [3]


def test_a_store_and_its_export_say_the_same(export, store):
    ours, theirs = xsp_post.load(export), xsp_post.load(str(store))
    for name in ("a01", "a08", "a10", "a15"):
        left, right = (p.table(name).astype(object).where(lambda f: f.notna(), None) for p in (ours, theirs))
        pd.testing.assert_frame_equal(left, right, check_dtype=False, check_column_type=False)


def test_missing_tables_say_what_there_is(store):
    profile = xsp_post.load(store)
    with pytest.raises(UsageError, match="there are: a01"):
        profile.table("a99")
    with pytest.raises(KeyError):
        profile["a99"]
    with pytest.raises(AttributeError, match="a99"):
        profile.a99  # noqa: B018
    assert not hasattr(profile, "_repr_mimebundle_")  # notebooks ask for such names


def test_copies_and_pickles_do_not_recurse(export):
    profile = xsp_post.load(export)
    assert copy.copy(profile).kernels.shape == profile.kernels.shape
    assert pickle.loads(pickle.dumps(profile)).kernels.shape == profile.kernels.shape


def test_columns_are_described(store):
    described = xsp_post.load(store).describe("A1").set_index("column")
    assert described.loc["latency_ns", "dtype"] == "float64" and described["meaning"].str.len().min() > 3


def test_charts_are_altair_objects(store):
    profile = xsp_post.load(store)
    chart = profile.chart("A3")
    assert isinstance(chart, alt.TopLevelMixin) and chart.to_dict()["$schema"].startswith("https://vega")
    assert all(isinstance(one, alt.TopLevelMixin) for one in profile.charts().values())
    with pytest.raises(UsageError, match="counters"):
        profile.chart("A9")


def test_report_is_written_once(store, tmp_path):
    page = xsp_post.load(store).report(tmp_path / "page.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(OutputError):
        xsp_post.load(store).report(tmp_path / "page.html")


def test_profiles_compare_with_profiles_and_paths(export, store):
    profile = xsp_post.load(store)
    for other in (store, xsp_post.load(export)):
        comparison = profile.compare(other)
        assert not comparison.summary["is_difference"].any()
        assert len(comparison.compare_layers) >= 3


def test_a_batch_folder_is_a_fleet(export, tmp_path):
    from xsp_post.batch import discover, run_batch

    run_batch(discover([export])[0], tmp_path / "out", page=False)
    assert xsp_post.load(tmp_path / "out").summary["capture_name"].tolist() == ["run"]


def test_what_cannot_be_read_is_a_sentence(tmp_path):
    with pytest.raises(CaptureError, match="no such file"):
        xsp_post.load(tmp_path / "missing.sqlite")
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(CaptureError, match="empty"):
        xsp_post.load(tmp_path / "empty.sqlite")
    with pytest.raises(CaptureError):
        xsp_post.load(tmp_path)


def test_importing_the_package_is_cheap():
    code = "import xsp_post, sys; assert not {'pandas', 'torch', 'altair'} & sys.modules.keys(); xsp_post.load"
    subprocess.run([sys.executable, "-c", code], check=True)
