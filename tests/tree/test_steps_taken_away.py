"""Recordings of real programs without the ranges of their steps: the same steps, from launches, copies and waits."""

import gzip
import json
from pathlib import Path

import pytest

from xsp_post.pipeline import captures_of

DATA = Path(__file__).parents[1] / "data" / "h200"
RANGES = {"user_annotation", "gpu_user_annotation"}


def recorded(name, gone):
    document = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return document | {"traceEvents": [e for e in document["traceEvents"] if e.get("cat") not in gone]}


# six steps each; where a value of each of 12 equal blocks is read back and nothing else runs, a block is what repeats
@pytest.mark.parametrize(
    ("name", "count"), [("small_copies_before", 6), ("small_copies_after", 6), ("item_after", 6), ("item_before", 72)]
)
@pytest.mark.parametrize("gone", [RANGES, RANGES | {"cpu_op", "python_function"}], ids=["steps", "ranges"])
def test_turns_between_which_the_host_copies_or_waits_are_executions(tmp_path, name, count, gone):
    path = tmp_path / "a.pt.trace.json"
    path.write_text(json.dumps(recorded(name, gone)), "utf-8")
    assert len(captures_of([path]).frame("iterations")) == count
