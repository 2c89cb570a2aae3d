"""`--layers-from` on graphs: each replay gets the modules of the recording that it repeats."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from generators.graph_traces import captured, replayed

from xsp_post.base.errors import CaptureError
from xsp_post.model.options import Options
from xsp_post.pipeline import analyze
from xsp_post.tree.twin_segments import match

BLOCKS = 4


def modules(analysis) -> list[list[str]]:
    """The carried modules around each kernel, outermost first, in order of execution."""
    nodes = analysis.frame("nodes").set_index("node_id")
    names, parent = nodes["name"].astype(str).to_dict(), nodes["parent_id"].to_dict()
    found = []
    for node in analysis.frame("kernels").sort_values("start_ns")["node_id"].tolist():
        chain = []
        while node in names:
            chain.append(names[node].removeprefix("nn.Module: "))
            node = parent[node]
        found.append([name for name in chain[::-1] if not name.startswith(("[", "execute"))])
    return found


def expected() -> list[list[str]]:
    parts = [(number, f"{part}_{number}") for number in range(BLOCKS) for part in ("Attention", "MLP")]
    return [["Net_0", f"Block_{number}", part] for number, part in parts for _ in range(3)]


def counts(analysis) -> dict[str, int]:
    return analysis.frame("findings").set_index("code")["count"].to_dict()


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "piecewise"])
def test_every_replay_gets_the_modules_of_its_recording(tmp_path, pieces, named):
    twin = captured(tmp_path / "twin.json.gz", [4], pieces=pieces, named=named)
    run = replayed(tmp_path / "run.json.gz", [4, 4, 3], pieces=pieces)
    analysis = analyze([run], Options(layers_from=twin))
    without_sizes = [[name for name in path if "_" in name and name[0].isupper()] for path in modules(analysis)]
    assert without_sizes == expected() * 3
    layers = analysis.frame("layers")
    assert set(layers["layer_type"].astype(str)) == {"Block"}
    assert len(layers) == BLOCKS * 3
    kernels = analysis.frame("kernels")
    assert set(kernels["layer_attribution"].astype(str)) == {"twin"}
    assert counts(analysis)["twin-aligned"] == len(kernels) == 72
    assert "twin-unaligned" not in counts(analysis)


def test_the_bucket_is_chosen_by_kernels_and_by_batch_size(tmp_path):
    folder = tmp_path / "capture_traces"
    folder.mkdir()
    for size in (2, 4, 16, 32):
        captured(folder / f"bs_{size}_rank0.json.gz", [size], text=False)
    captured(folder / "bs_4_rank1.json.gz", [4], text=False)  # another rank's: not read for rank 0
    (folder / "notes.txt").write_text("not a capture")
    run = replayed(tmp_path / "run_rank0.json.gz", [4, 12, 40, 1])
    from xsp_post.ingest.sources import captures_in

    assert [path.name for path in captures_in((folder,), {0})] == [f"bs_{n}_rank0.json.gz" for n in (2, 4, 16, 32)]
    analysis = analyze([run], Options(layers_from=folder))
    assert modules(analysis) == expected() * 4
    assert counts(analysis)["twin-aligned"] == 96


def test_of_equal_recordings_the_smallest_that_holds_the_batch_is_met():
    known = pd.DataFrame({"segment": np.repeat([0, 1, 2], 2), "bucket": np.repeat([8, 2, 4], 2)})
    known["name"] = known["call"] = list("ababab")
    run = pd.DataFrame({"replay": np.repeat([7, 8, 9, 11], 2), "size": np.repeat([3, 2, 99, 5], 2)})
    run["name"] = list("abababab")
    assert match(known, run).tolist() == [4, 5, 2, 3, 0, 1, 0, 1]


def test_pieces_are_met_in_their_order_and_branches_by_their_kernels():
    known = pd.DataFrame({"segment": [0, 0, 1, 1, 2, 2, 3], "name": list("abababc"), "bucket": -1})
    known["call"] = known["name"]
    run = pd.DataFrame({"replay": [0, 0, 1, 1, 2, 2, 3, 4], "name": list("ababbacx"), "size": -1})
    assert match(known, run).tolist() == [0, 1, 2, 3, 5, 4, 6, -1]


def test_as_many_launches_of_other_operators_are_another_program(tmp_path):
    """A CUDA capture names no kernels: then one operator must have launched those of one name."""
    twin = captured(tmp_path / "twin.json.gz", [4], pieces=True, named=False)
    other = captured(tmp_path / "other.json.gz", [4], blocks=6, named=False, order=(1, 0))
    run = replayed(tmp_path / "run.json.gz", [4, 3])
    for path in (twin, other):  # pieces of 6 launches for a graph of 24; 24 launches in another order
        assert counts(analyze([run], Options(layers_from=path)))["twin-nothing-carried"] == 0


def test_branches_ran_in_another_order_than_they_were_recorded():
    known = pd.DataFrame({"segment": 0, "bucket": -1, "name": "launch", "call": list("abcabc")})
    run = pd.DataFrame({"replay": 5, "size": -1, "name": list("xyzxyz"), "graph_node_id": range(1, 7)})
    assert match(known, run).tolist() == list(range(6))
    assert match(known, run.iloc[[0, 3, 1, 4, 2, 5]]).tolist() == [0, 3, 1, 4, 2, 5]
    assert match(known, run.assign(graph_node_id=0).iloc[[0, 3, 1, 4, 2, 5]]).tolist() == [-1] * 6
    assert match(known, run.iloc[:5]).tolist() == [-1] * 5


def test_a_replay_of_another_graph_is_said(tmp_path):
    twin = captured(tmp_path / "twin.json.gz", [4], pieces=True)
    run = replayed(tmp_path / "run.json.gz", [4], pieces=True, extra="unknown")
    analysis = analyze([run], Options(layers_from=twin))
    assert counts(analysis)["twin-nothing-carried"] == 0
    assert counts(analysis)["twin-unaligned"] == len(analysis.frame("kernels")) == 28
    assert all(path == ["Net_0"] for path in modules(analysis))


def test_a_folder_without_captures_is_no_twin(tmp_path):
    (tmp_path / "empty").mkdir()
    run = replayed(tmp_path / "run.json.gz", [4])
    with pytest.raises(CaptureError, match="no capture lies in this folder"):
        analyze([run], Options(layers_from=tmp_path / "empty"))
