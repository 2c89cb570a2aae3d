"""Numbers of paths and how a class's text ranks, against what the words say."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

# parent (of those before), folded text, whether a path begins here
NODES = st.lists(st.tuples(st.integers(-1, 20), st.integers(-1, 2), st.integers(0, 4)), max_size=16)


@examples(200)
@given(NODES)
@example([(-1, 0, 1), (0, 1, 1), (1, 2, 1), (2, 1, 1), (-1, 0, 1), (4, 2, 1), (5, 1, 1), (6, 1, 1)])  # depth 3, swapped
def test_equal_paths_and_no_others_have_one_number(nodes):
    from xsp_post.tree.layering import path_ids

    parent = np.array([min(above, k - 1) for k, (above, _, _) in enumerate(nodes)], np.int64)
    folded = np.array([text for _, text, _ in nodes], np.int32)
    restart = np.array([chance == 0 for _, _, chance in nodes], bool)
    depth = np.zeros(len(nodes), np.int64)
    path = []
    for k, above in enumerate(parent.tolist()):
        depth[k] = 0 if above < 0 else depth[above] + 1
        path.append((*(() if above < 0 or restart[k] else path[above]), int(folded[k])))
    ids, paths = path_ids(parent, depth, folded, restart)
    begins = [above < 0 or bool(restart[k]) for k, above in enumerate(parent.tolist())]
    # what lies below a beginning is told apart by its depth, too
    kind = [(path[k], -1 if begins[k] else int(depth[k])) for k in range(len(nodes))]
    for one in range(len(nodes)):
        for other in range(one):
            assert (ids[one] == ids[other]) == (kind[one] == kind[other])
        assert paths["folded_id"][ids[one]] == folded[one]
        assert paths["parent_path"][ids[one]] == (-1 if begins[one] else ids[parent[one]])


@pytest.mark.parametrize(
    ("text", "rank"), [("TransformerBlock", 1.0), ("tower/*", 0.7), ("Residual", 0.6), ("ModuleList", 0.3)]
)
def test_blocks_rank_before_members_of_lists_and_these_before_other_modules(text, rank):
    from xsp_post.tree.layer_rules import _rank_of_text

    assert _rank_of_text(text) == rank


@pytest.mark.parametrize(("backward", "matched"), [(2, [-1, -1, 2, 1]), (1, [-1, -1, -1])])
def test_blocks_of_gradients_belong_to_those_of_the_forward_range_where_it_has_as_many(backward, matched):
    from xsp_post.tree.looking import _match_gradients

    found = pd.DataFrame({
        "parent": -1, "kind": "block", "block_count": [2, 2, *[backward] * backward],
        "block_index": [1, 2, *range(1, backward + 1)], "matched_block_index": -1,
    })  # fmt: skip
    home = np.array([1, 1, *[2] * backward])  # ranges of one step
    names = SimpleNamespace(node_text=lambda column, nodes: np.where(nodes == 1, "forward", "backward").astype(object))
    _match_gradients(found, home, names, pd.DataFrame({"parent_id": [-1, 0, 0]}))
    assert found["matched_block_index"].tolist() == matched
