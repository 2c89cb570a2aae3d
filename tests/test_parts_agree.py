"""A part of a recording: a capture and its store give the same answer about it; and every table has a rule.

Every second recording of those that `test_commands_agree` draws; all of them with ``XSP_POST_TEST_ALL=1``.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
import pandas as pd
import pytest
from compiled_programs import DATA, TRACE
from generators.programs import draw
from recorded import own
from test_commands_agree import ALL, GENERATED, _drawn, captures_here

from xsp_post.base.errors import UsageError
from xsp_post.base.findings import to_frame
from xsp_post.ingest.sources import Loaded
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis, Results, for_people
from xsp_post.model.schemas import TABLES
from xsp_post.pipeline import captures_of, graph_of, part_of
from xsp_post.store.store import open_store, write_store
from xsp_post.tables.catalogue import CUTS, OF_CAPTURE, OF_PART, OF_WORKLOAD


@pytest.fixture(autouse=True)
def in_small_stretches(monkeypatch):
    """The store lays out every table as a large one, of which a part is read by itself."""
    monkeypatch.setattr("xsp_post.store.store.LEAST_ROWS", 1)
    monkeypatch.setattr("xsp_post.store.layout._STRETCH_ROWS", 7)


def parts(results: Results) -> list[Options]:
    """The middle execution, and the middle third of the recording."""
    nodes, captures = results.frame("nodes", ["start_ns", "end_ns"]), results.frame("captures", ["collector"])
    low, high = int(nodes["start_ns"].min()), int(nodes["end_ns"].max())
    third = (high - low) // 3
    zero = low if captures["collector"].iloc[0] == "nsys" else 0
    count = len(results.frame("iterations", ["iteration_index"]))
    executions = [Options(iteration=count // 2)] if count else []
    thirds = [Options(begin_ns=zero + third, end_ns=zero + 2 * third)] if third else []  # nothing was recorded
    return [*executions, *thirds]


def table_rows(part: Results, name: str) -> dict[str, list[object]]:
    frame = for_people(part, name)
    return {c: [None if v is None or v != v or v == "" else v for v in _plain(frame[c])] for c in frame}


def _plain(values):
    return values.astype(object).where(values.notna(), None).tolist()


def differences(one: Results, other: Results) -> list[str]:
    """Tables and columns in which two parts differ."""
    found = [f"{name}: only in one" for name in set(one.tables()) ^ set(other.tables())]
    for name in set(one.tables()) & set(other.tables()):
        ours, theirs = table_rows(one, name), table_rows(other, name)
        count = max(map(len, (*ours.values(), *theirs.values())), default=0)
        unknown = [None] * count  # a store reads a column that is not there as one that says nothing
        found += [f"{name}.{c}" for c in set(ours) | set(theirs) if ours.get(c, unknown) != theirs.get(c, unknown)]
    return sorted(found)


def agree(whole: Results, folder) -> int:
    """Parts asked about, of which a store says what its capture says."""
    write_store(whole.complete(), folder / "a.xsp.sqlite")
    store = open_store(folder / "a.xsp.sqlite")
    asked = 0
    for options in parts(whole):
        try:
            part = part_of(whole, options)
        except UsageError:
            with pytest.raises(UsageError):
                part_of(store, options)
            continue
        assert differences(part, part_of(store, options)) == []
        asked += 1
    return asked


@pytest.mark.parametrize("path", captures_here()[:: 1 if ALL else 2], ids=lambda path: path.name)
def test_a_part_of_a_capture_and_of_its_store(path, tmp_path):
    agree(captures_of([path]), tmp_path)


@pytest.mark.parametrize("seed", _drawn(list(range(GENERATED)))[:: 1 if ALL else 2])
def test_a_part_of_a_generated_program_and_of_its_store(seed, tmp_path):
    trace = own(draw(seed).trace)
    assert agree(graph_of([Loaded(tmp_path / "a.sqlite", "nsys-sqlite", trace=trace)]), tmp_path)


def test_a_part_of_a_compiled_program_divides_its_kernels_as_the_whole(tmp_path):
    whole = captures_of([DATA / "decoder" / TRACE])
    write_store(whole.complete(), tmp_path / "a.xsp.sqlite")
    part = part_of(whole, Options(iteration=1))
    stored = part_of(open_store(tmp_path / "a.xsp.sqlite"), Options(iteration=1))
    assert table_rows(part, "kernel_shares") == table_rows(stored, "kernel_shares")
    shares = part.frame("kernel_shares")
    assert 0 < len(shares) < len(whole.frame("kernel_shares"))
    assert part.frame("nodes")["self_kernel_ns"].sum() == part.frame("kernels")["duration_ns"].sum()


def test_a_store_reads_what_is_near_and_little_more(tmp_path):
    kernels = pd.DataFrame({
        "kernel_id": np.arange(100), "capture_id": 0, "iteration_index": np.arange(100) // 10 - 1,
        "start_ns": np.arange(100) * 10, "end_ns": np.arange(100) * 10 + 5,
        "launch_start_ns": np.arange(100), "name": "k",
    })  # fmt: skip
    frames = {"captures": pd.DataFrame({"capture_id": [0]}), "kernels": kernels}
    write_store(Analysis({**frames, "findings": to_frame([])}), tmp_path / "a.xsp.sqlite")
    store = open_store(tmp_path / "a.xsp.sqlite")
    all_time = (-(2**62), 2**62)
    assert len(store.near("kernels", *all_time)) == 100
    near = store.near("kernels", 200, 300)["kernel_id"]
    assert set(range(20, 31)) <= set(near) <= set(range(14, 35))
    execution = store.near("kernels", *all_time, (3, 3))["kernel_id"]
    assert set(range(40, 50)) <= set(execution) and len(execution) <= 24 + 14  # and stretches with work of none
    assert store.near("kernels", 5_000, 6_000).empty
    assert 99 in set(store.near("kernels", 995, 6_000)["kernel_id"])  # it ends there
    assert store.numbered("kernels", "kernel_id", np.array([7, 99]))["kernel_id"].tolist() == [7, 99]
    assert store.near("captures", 0, 1)["capture_id"].tolist() == [0]


def test_every_table_of_a_capture_has_a_way_to_be_cut_or_is_summed_up_anew():
    cut = {name for names in CUTS.values() for name in names.split()}
    again = {name for step in (*OF_PART, *OF_WORKLOAD) for name in step.names}
    of_capture = set(chain.from_iterable(step.names for step in OF_CAPTURE)) & TABLES.keys()
    assert of_capture <= cut | again
    assert not {"nodes", "captures"} & cut  # what they hold in the part is not what they hold in all
