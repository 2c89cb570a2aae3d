"""Spreadsheets, Datasette, DuckDB, pandas and notebooks get the same numbers; OTLP has the time of the recording."""

from __future__ import annotations

import json
import re
import sqlite3

import pytest

import xsp_post
from xsp_post.exporters import export
from xsp_post.store.store import write_store

HOUR_NS = 3600 * 10**9


@pytest.fixture(scope="module")
def profile(captures):
    return xsp_post.load(captures / "nsys" / "two_kernels_rtx3080.sqlite")


@pytest.fixture(scope="module")
def store(profile, tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "two.xsp.sqlite"
    write_store(profile.results, path)
    return path


def test_a_workbook_has_every_table_and_computes_nothing(profile, tmp_path):
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    written = export(profile.results, "xlsx", tmp_path / "two.xlsx")
    assert set(written.counts) == set(profile)
    book = openpyxl.load_workbook(tmp_path / "two.xlsx")
    rows = list(book["kernels"].values)
    assert len(rows) == 1 + len(profile.kernels) == 3
    column = rows[0].index("start_ns")
    assert [row[column] for row in rows[1:]] == profile.kernels["start_ns"].tolist()


def test_formulas_in_names_stay_text(tmp_path):
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    import pandas as pd

    from xsp_post.model.results import Analysis

    frame = pd.DataFrame({"name": ["=1+2", "http://example.org"]})
    export(Analysis({"paths": frame}), "xlsx", tmp_path / "x.xlsx")
    cells = openpyxl.load_workbook(tmp_path / "x.xlsx")["paths"]
    assert [(cell.value, cell.data_type, cell.hyperlink) for (cell,) in cells["A2:A3"]] == [
        ("=1+2", "s", None), ("http://example.org", "s", None)]  # fmt: skip


def test_datasette_metadata_names_the_database_its_columns_and_units(store, tmp_path):
    export(xsp_post.load(store).results, "datasette", tmp_path / "m.json")
    tables = json.loads((tmp_path / "m.json").read_text())["databases"]["two.xsp"]["tables"]
    assert tables["kernels"]["units"]["start_ns"] == "ns"
    assert "device time" in tables["captures"]["columns"]["device_ns"]


def test_duckdb_reads_the_store(store, profile):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    try:
        connection.execute("LOAD sqlite")
    except duckdb.Error:
        pytest.skip("DuckDB's SQLite scanner is not installed")
    query = "SELECT count(*), max(kernel_id) FROM sqlite_scan(?, 'kernel_rows')"
    assert connection.execute(query, [str(store)]).fetchone() == (2, 1)


def test_duckdb_reads_parquet_and_pandas_the_store(store, profile, tmp_path):
    import pandas as pd

    with sqlite3.connect(store) as connection:
        frame = pd.read_sql("SELECT name, end_ns - start_ns AS duration_ns FROM kernels", connection)
    assert frame["duration_ns"].sum() == profile.captures["kernel_ns"].sum()
    duckdb = pytest.importorskip("duckdb")
    export(profile.results, "parquet", tmp_path / "p")
    query = f"SELECT sum(end_ns - start_ns) FROM '{tmp_path}/p/kernels.parquet'"
    assert duckdb.connect().execute(query).fetchone()[0] == frame["duration_ns"].sum()


def test_otlp_spans_lie_when_the_program_ran(profile, captures, tmp_path):
    export(profile.results, "otlp", tmp_path / "o.json")
    with sqlite3.connect(f"file:{captures / 'nsys' / 'two_kernels_rtx3080.sqlite'}?mode=ro", uri=True) as connection:
        (began,) = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
    starts = [int(text) for text in re.findall(r'"startTimeUnixNano": "(\d+)"', (tmp_path / "o.json").read_text())]
    assert starts and all(began <= start < began + HOUR_NS for start in starts)


def test_a_notebook_shows_the_first_screen_and_folded_away_all_of_it(profile):
    html = profile._repr_html_()
    first, _, whole = html.partition("<details>")
    assert first.count("Verdict") == 1 and "The balance of" in first and "Findings" not in first
    assert "Balance" in whole and "Findings" in whole
    assert "<script" not in html and len(html) < 20_000


def test_spans_are_compressed_where_the_name_says_so(profile, tmp_path):
    import gzip

    for form in ("otlp", "jaeger"):
        export(profile.results, form, tmp_path / f"{form}.json")
        export(profile.results, form, tmp_path / f"{form}.json.gz")
        assert gzip.decompress((tmp_path / f"{form}.json.gz").read_bytes()) == (tmp_path / f"{form}.json").read_bytes()
