"""Cases paired and renamed layers found, as loops over the rows pair and find them."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from xsp_post.compare import headline, matching
from xsp_post.compare.matching import BASE, OTHER, match_cases, renamed_layers, with_base_paths
from xsp_post.model.results import Analysis

_CASES = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "b"]), st.sampled_from(["forward", "step"]), st.integers(1, 2), st.integers(0, 2)
    ),
    max_size=4,
)


class _Found(SimpleNamespace):
    def __len__(self):
        return len(self.rows)


def _paired_by_loop(base, other):
    """(case of the base, case of the other) of every pair."""

    def named(side, with_workload):
        seen = Counter()
        for workload, phase, batch, _ in side:
            key = (workload * with_workload, phase, batch)
            seen[key] += 1
            yield (*key, seen[key])

    is_ambiguous = any(len({row[1:3] for row in side}) < len(side) for side in (base, other))
    mine, theirs = (list(named(side, is_ambiguous)) for side in (base, other))
    pairs = {(k, theirs.index(key)) for k, key in enumerate(mine) if key in theirs}
    left = [sorted(set(range(len(side))) - {pair[k] for pair in pairs}) for k, side in enumerate((base, other))]
    if [len(one) for one in left] == [1, 1] and base[left[0][0]][3] == other[left[1][0]][3] > 0:
        pairs.add((left[0][0], left[1][0]))
    return pairs


@examples(40)
@given(_CASES, _CASES)
def test_cases_are_paired_by_what_they_run(base, other):
    columns = ["workload_name", "phase", "batch_size", "kernels"]

    def described(cases, _):
        return pd.DataFrame(cases.rows, columns=columns).astype({"workload_name": object, "phase": object}).assign(
            case=range(len(cases.rows)), rank_name=""
        )  # fmt: skip

    with mock.patch.multiple(matching, find_cases=lambda rows: _Found(rows=rows), _described=described):
        frame, sides = match_cases(base, other)
    pairs = _paired_by_loop(base, other)
    matched = frame[frame["status"] == "matched"]
    assert set(zip(matched["base_case_index"].tolist(), matched["other_case_index"].tolist())) == pairs
    assert frame["pair_index"].tolist() == list(range(len(frame)))
    assert frame["status"].tolist() == sorted(frame["status"])
    for k, (side, cases, name) in enumerate(zip(sides, (base, other), ("base", "other"))):
        of_case = {pair[k] for pair in pairs}
        alone = frame.loc[frame["status"] == f"only {name}"]
        assert sorted(alone[f"{name}_case_index"]) == sorted(set(range(len(cases))) - of_case)
        assert side.side == k and side.pair_of_case.shape == (len(cases),)
        for case, pair in enumerate(side.pair_of_case.tolist()):
            assert (pair >= 0) == (case in of_case)
            assert pair < 0 or frame.loc[pair, f"{name}_case_index"] == case
    for row in frame.to_dict("records"):
        case = base[row["base_case_index"]] if row["base_case_index"] >= 0 else other[row["other_case_index"]]
        assert (row["phase"], row["batch_size"]) == case[1:3]


_LAYERS = st.lists(
    st.tuples(
        st.sampled_from([BASE, OTHER]), st.integers(0, 1), st.sampled_from(["m:A", "m:B", "m.1:A", "n:A", "n:B"]),
        st.integers(0, 1), st.integers(0, 2), st.sampled_from("AB"),
    ),
    max_size=8, unique_by=lambda row: row[:4],
)  # fmt: skip


def _renamed_by_loop(rows):
    """(pair, path of the other, call, path of the base)."""
    alone = [row for row in rows if (1 - row[0], *row[1:4]) not in {one[:4] for one in rows}]
    found = []
    for key in (lambda row: (row[1], re.sub(r":[^:/>\s]+$", "", row[2]), row[3]), lambda row: (row[1], row[4], row[5])):
        count = Counter((row[0], key(row)) for row in alone)
        single = [row for row in alone if count[row[0], key(row)] == 1]
        round_ = [
            (other[1], other[2], other[3], base[2]) for base in single for other in single
            if (base[0], other[0]) == (BASE, OTHER) and key(base) == key(other) and base[3] == other[3]
        ]  # fmt: skip
        gone = {(BASE, one[3]) for one in round_} | {(OTHER, one[1]) for one in round_}
        alone = [row for row in alone if (row[0], row[2]) not in gone]
        found += round_
    return found


@examples(40)
@given(_LAYERS)
def test_layers_under_another_class_or_at_the_same_place_go_by_the_path_of_the_base(rows):
    columns = ["side", "pair_index", "layer_path", "call_index", "layer_index", "layer_type"]
    once = pd.DataFrame(rows, columns=columns).astype({"layer_path": object, "layer_type": object})
    samples = pd.concat([once, once], ignore_index=True).assign(value=1.0)
    renamed = renamed_layers(samples)
    wanted = _renamed_by_loop(rows)
    assert list(renamed) == ["pair_index", "layer_path", "call_index", "base_path"]
    assert sorted(renamed.itertuples(index=False, name=None)) == sorted(wanted)
    base_path = {one[:3]: one[3] for one in wanted}
    paths = [base_path.get(row[1:4], row[2]) if row[0] == OTHER else row[2] for row in rows]
    assert with_base_paths(samples, renamed)["layer_path"].tolist() == paths * 2


@given(st.lists(st.integers(-1, 3), max_size=8), st.lists(st.integers(-1, 5), min_size=4, max_size=4))
def test_rows_outside_every_iteration_have_no_pair(rows, pairs):
    found = matching._of_row(np.array(pairs), np.array(rows, np.int64))
    assert found.tolist() == [pairs[row] if row >= 0 else -1 for row in rows]


def test_layers_that_stand_elsewhere_as_another_call_are_not_renamed():
    """Two of them, with no other pair left, were two rows of nothing: `compare` ended with an internal error."""
    columns = ["side", "pair_index", "layer_path", "call_index", "layer_index", "layer_type"]
    rows = [(side, 0, f"{side}.{k}:A", side, k, "A") for side in (BASE, OTHER) for k in range(2)]
    samples = pd.DataFrame(rows, columns=columns)
    renamed = renamed_layers(samples)
    assert renamed.empty
    assert with_base_paths(samples, renamed)["layer_path"].tolist() == samples["layer_path"].tolist()


_TIMED = st.tuples(
    st.integers(0, 1), st.integers(0, 2), st.sampled_from(["void gemm<1>(int)", "gemm<2>", "copy"]),
    st.sampled_from(["", "net.py:1", "net.py:2"]), st.integers(1, 4),
)  # fmt: skip


def _line_by_loop(sides, wanted):
    """The line with most time of a (layer, name), of the base where it knows one; None where two have as much."""
    for kernels in sides:
        spent = Counter()
        for _, layer, name, line, time in kernels:
            if line and (("", "a", "b")[layer], "copy" if name == "copy" else "gemm") == wanted:
                spent[line] += time
        if spent:
            (line, most), *rest = spent.most_common()
            return None if rest and rest[0][1] == most else line
    return ""


@examples(60)
@given(st.lists(_TIMED, max_size=6), st.lists(_TIMED, max_size=6))
def test_the_line_of_a_kernel_is_where_most_of_its_time_was_made_from(base, other):
    layers = pd.DataFrame({"capture_id": [0, 0, 1, 1], "layer_index": [1, 2, 1, 2], "layer_path": ["a", "b"] * 2})
    columns = ["capture_id", "layer_index", "name", "source_line", "duration_ns"]
    sides = [
        SimpleNamespace(results=Analysis({"kernels": pd.DataFrame(rows, columns=columns), "layers": layers}))
        for rows in (base, other)
    ]
    keys = ["layer_path", "name"]
    table = pd.DataFrame([(path, name) for path in ("", "a", "b") for name in ("gemm", "copy")], columns=keys)
    found = matching.with_source_lines(table, sides, keys)
    assert found[keys].to_numpy().tolist() == table.to_numpy().tolist()  # of any type of texts
    for path, name, line in found.itertuples(index=False):
        expected = _line_by_loop((base, other), (path, name))
        assert line == expected or (expected is None and line)


def test_headlines_stand_in_the_order_of_the_pairs():
    rows = pd.DataFrame({"pair_index": [0, 1], "phase": ["prefill", "decode"], "batch_size": [4, 4]})
    one = headline.Headline("latency", "", 1.0, 1.0, 0.0, 0.0, "captures")
    with mock.patch.multiple(
        headline, _executions=lambda _: rows, _size_ratio=lambda _: 1.0, _of_executions=lambda *_: one
    ):
        found = headline.headlines([None, None], 0.02)
    assert [(one.label, one.pair) for one in found] == [("prefill, batch 4", 0), ("decode, batch 4", 1)]
