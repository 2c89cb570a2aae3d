"""Unknown is −1 and nothing else below 0 in numbers, indexes and counts; what is not there is unknown, not missing."""

from __future__ import annotations

import pandas as pd
import pytest
from builders import ExportBuilder
from generators.programs import draw
from recorded import own

from xsp_post.ingest.sources import Loaded
from xsp_post.model.options import Options
from xsp_post.model.results import Results
from xsp_post.model.schemas import TABLES
from xsp_post.pipeline import captures_of, graph_of, part_of
from xsp_post.tables.catalogue import CUTS


def below_unknown(results: Results) -> list[str]:
    """Columns of rows that say something less than unknown."""
    found = []
    for name in results.tables():
        frame = results.frame(name)
        for column in TABLES[name].columns if name in TABLES else ():
            is_number = column.name.endswith(("_index", "_id", "_count", "_bytes")) and column.name in frame
            if is_number and column.dtype.startswith("int64") and "delta" not in column.name:
                found += [f"{name}.{column.name}"] if (frame[column.name] < -1).any() else []
    return found


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """Two processes with executions, layers, and work outside of both."""
    export = ExportBuilder()
    for process, device in ((100, 0), (200, 1)):
        export.process(process).range("model.layers.0.mlp", 1, 60)
        export.kernel("before", launch=(11, 12), run=(13, 19), device=device)
        for k in (0, 1):
            at = 100 * (k + 1)
            export.range("step", at, at + 90).range("model.layers.0.mlp", at + 5, at + 40)
            export.kernel("inside", launch=(at + 10, at + 12), run=(at + 15, at + 30), device=device)
            export.kernel("loose", launch=(at + 50, at + 52), run=(at + 55, at + 60), device=device)
        export.kernel("after", launch=(400, 402), run=(405, 410), device=device)
    return captures_of([export.write(tmp_path_factory.mktemp("ranks") / "a.sqlite")])


def test_nothing_is_less_than_unknown(two_ranks):
    assert below_unknown(two_ranks.complete()) == []


@pytest.mark.parametrize("seed", [0, 3, 8])
def test_nothing_of_a_program_is_less_than_unknown(seed, tmp_path):
    trace = own(draw(seed).trace)
    assert below_unknown(graph_of([Loaded(tmp_path / "a.sqlite", "nsys-sqlite", trace=trace)]).complete()) == []


def test_a_part_has_no_rows_of_what_compares_captures(two_ranks):
    part = part_of(two_ranks, Options(iteration=1))
    left_out = [name for name in CUTS["is_left_out"].split() if name in part.tables()]
    assert any(len(two_ranks.frame(name)) for name in left_out) and all(part.frame(name).empty for name in left_out)


def test_a_column_that_one_frame_lacks_is_unknown_in_its_rows():
    from xsp_post.model.results import side_by_side

    texts = pd.Categorical(["a", "b"])
    one = pd.DataFrame({"x": [1, 2], "y": [5, 6], "text": texts})
    both = side_by_side([one, pd.DataFrame({"x": [3, 4, 5]})])
    assert both["x"].tolist() == [1, 2, 3, 4, 5] and both["text"].astype(str).tolist() == ["a", "b", "", "", ""]
    assert both["y"].tolist()[:2] == [5, 6] and both["y"].isna().tolist() == [False, False, True, True, True]
