"""Which layer a kernel counts for, step by step, against loops over all rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from traces import trace_of_rows

from xsp_post.arrays.intervals import depths
from xsp_post.model.levels import Level
from xsp_post.model.tree import Attribution, LayerAttribution, NodeKind
from xsp_post.tree import layering
from xsp_post.tree.structure.constants import DEFAULTS

SEEDS = st.lists(st.integers(0, 100), min_size=1, max_size=14)


def parents(seeds) -> np.ndarray:
    """A forest in which a parent comes before its children."""
    return np.array([-1, *(seed % (i + 2) - 1 for i, seed in enumerate(seeds[1:]))], np.int32)


def at_or_above(parent, node):
    chain = []
    while node >= 0:
        chain.append(int(node))
        node = parent[node]
    return chain


@given(SEEDS, st.lists(st.integers(-1, 5), min_size=14, max_size=14))
def test_what_is_not_known_is_that_of_the_nearest_ancestor(seeds, values):
    parent, values = parents(seeds), np.array(values[: len(seeds)])
    expected = [
        next((int(values[up]) for up in at_or_above(parent, node) if values[up] >= 0), -1)
        for node in range(len(parent))
    ]
    assert layering.inherit(values, parent).tolist() == expected


LEVELS = [int(one) for one in (Level.MODEL, Level.MODULE, Level.LAYER, Level.LIBRARY, Level.CAPTURE)]


@given(SEEDS, st.lists(st.sampled_from(LEVELS), min_size=14, max_size=14))
def test_a_node_counts_for_the_outermost_layer_around_it_else_for_its_module_or_model(seeds, levels):
    parent, level = parents(seeds), np.array(levels[: len(seeds)])
    expected = []
    for node in range(len(parent)):
        chain = at_or_above(parent, node)
        layers = [up for up in chain if level[up] == int(Level.LAYER)]
        in_model = [
            up for up in chain if level[up] == int(Level.MODEL) or (
                level[up] == int(Level.MODULE)
                and any(level[higher] == int(Level.MODEL) for higher in at_or_above(parent, parent[up]))
            )
        ]  # fmt: skip
        has_layers = (level == int(Level.LAYER)).any()
        expected.append(layers[-1] if layers else in_model[0] if in_model and has_layers else -1)
    assert layering.layer_of_nodes(parent, level).tolist() == expected


RANGES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 20)), max_size=8)
POINTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 55)), min_size=1, max_size=10)


@given(RANGES, POINTS)
def test_of_ranges_that_run_side_by_side_the_one_opened_last_is_asked(ranges, points):
    process, start, length = (np.array([one[k] for one in ranges], np.int64) for k in range(3))
    asked, at = (np.array([one[k] for one in points], np.int64) for k in range(2))
    found = layering.covering(asked, at, process, start, start + length)
    for row, (of, time) in enumerate(points):
        begun = [s for p, s, _ in ranges if p == of and s <= time]
        last = [i for i, (p, s, _) in enumerate(ranges) if p == of and begun and s == max(begun)][-1:]
        open_then = [i for i in last if ranges[i][1] + ranges[i][2] >= time]
        assert found[row] == (open_then[0] if open_then else -1)


def forwards(rows, parent=None):
    """rows: (process, start, sequence number, is backward)."""
    process, start, sequence, backward = (np.array([row[k] for row in rows], np.int64) for k in range(4))
    ranges = pd.DataFrame({"process_index": process, "start_ns": start})
    parent = np.full(len(rows), -1, np.int32) if parent is None else np.array(parent, np.int32)
    return layering.forward_of_backward(ranges, sequence, backward.astype(bool), parent).tolist()


def test_of_several_forward_ranges_the_last_one_before_the_backward_range_is_meant():
    """The next one lies nearer in time, but the backward range cannot be the gradient of what had not begun."""
    assert forwards([(0, 10, 7, 0), (0, 50, 7, 0), (0, 200, 7, 1), (0, 201, 7, 0)]) == [-1, -1, 1, -1]
    assert forwards([(0, 200, 7, 0), (0, 200, 7, 1)]) == [-1, 0]
    assert forwards([(0, 201, 7, 0), (0, 200, 7, 1)]) == [-1, -1]
    assert forwards([(1, 10, 7, 0), (0, 200, 7, 1), (0, 10, 8, 0), (0, 10, -1, 0), (0, 300, -1, 1)]) == [-1] * 5
    assert forwards([(0, 10, 0, 0), (0, 200, 0, 1)]) == [-1, 0]


SEQUENCES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(-1, 2), st.integers(0, 1)), min_size=1, max_size=10
)


@examples(60)
@given(SEQUENCES)
def test_forward_ranges_of_gradients(rows):
    rows = [(p, 100 * start + i, number, backward) for i, (p, start, number, backward) in enumerate(rows)]
    expected = []
    for process, start, number, is_backward in rows:
        before = [
            (s, i) for i, (p, s, n, b) in enumerate(rows)
            if p == process and n == number and not b and s <= start
        ]  # fmt: skip
        expected.append(max(before)[1] if is_backward and number >= 0 and before else -1)
    assert forwards(rows) == expected


def test_what_lies_below_a_backward_range_is_of_its_forward_range_too():
    """Row 3 is computed again inside the gradient of row 0: it, and the gradient of it, count for row 0."""
    rows = [(0, 0, 1, 0), (0, 100, 1, 1), (0, 110, -1, 0), (0, 120, 5, 0), (0, 200, 5, 1), (0, 205, -1, 0)]
    assert forwards(rows, [-1, -1, 1, 1, -1, 4]) == [-1, 0, 0, 0, 0, 0]
    assert forwards([(0, 0, 1, 0), (0, 5, 2, 0)]) == forwards([(0, 0, 1, 1), (0, 5, 2, 1)]) == [-1, -1]


NAMES = st.lists(st.integers(0, 2), min_size=14, max_size=14)
MARKS = st.lists(st.booleans(), min_size=14, max_size=14)


@examples(100)
@given(SEEDS, NAMES, MARKS)
def test_equal_paths_have_equal_numbers_and_no_others(seeds, names, marks):
    """What begins anew lies at a depth that does not tell it apart."""
    parent = parents(seeds)
    folded, restart = np.array(names[: len(seeds)]), np.array(marks[: len(seeds)])
    ids, paths = layering.path_ids(parent, depths(parent), folded, restart)
    texts = []
    for node in range(len(parent)):
        chain = at_or_above(parent, node)
        stop = next((k for k, up in enumerate(chain) if restart[up]), len(chain) - 1)
        below_a_beginning = None if stop == 0 else len(chain)
        texts.append((tuple(int(folded[up]) for up in chain[: stop + 1]), below_a_beginning))
    numbers = {}
    for node, text in enumerate(texts):
        assert numbers.setdefault(text, int(ids[node])) == ids[node]
    assert len({*numbers.values()}) == len(numbers) == len(paths)
    chains = layering.path_chains(paths, np.arange(len(paths)))
    for node, (text, _) in enumerate(texts):
        assert [int(paths["folded_id"][path]) for path in chains[int(ids[node])]] == list(text)[::-1]


@given(st.lists(st.integers(0, 3), max_size=12), st.randoms())
def test_occurrences_are_counted_in_the_order_given(groups, random):
    order = list(range(len(groups)))
    random.shuffle(order)
    expected, met = [0] * len(groups), []
    for row in order:
        expected[row] = met.count(groups[row])
        met.append(groups[row])
    assert layering.occurrence(np.array(groups, np.int64), np.array(order, np.int64)).tolist() == expected


def layers_of(nodes, activities, launches=(), forward=()):
    """`assign_layers` for nodes as (level, thread, start, end, layer node, kind)."""
    names = ("level", "thread_index", "start_ns", "end_ns", "layer_node_id", "kind")
    frame = pd.DataFrame({name: np.array([node[k] for node in nodes], np.int64) for k, name in enumerate(names)})
    process = np.append(PROCESS_OF_THREAD, -1)[frame["thread_index"]]  # the capture has no thread
    frame = frame.assign(process_index=process)
    work = pd.DataFrame(activities, columns=["node_id", "attribution", "launch_id"]).astype(np.int64)
    trace = trace_of_rows(process_of_thread=PROCESS_OF_THREAD, launches=launches)
    forward = np.array(forward, np.int64) if len(forward) else np.full(len(nodes) - 1, -1)
    found, how = layering.assign_layers(trace, frame, work, work["launch_id"].to_numpy(), forward)
    return found.tolist(), [LayerAttribution(int(one)).name for one in how]


LAYER, MODEL, CAPTURE = int(Level.LAYER), int(Level.MODEL), int(Level.CAPTURE)
PROCESS_OF_THREAD = (0, 0, 1)
PLAIN = int(NodeKind.PUSH_POP)


def test_a_kernel_counts_for_the_layer_of_its_node_and_says_how_the_node_was_found():
    nodes = [(CAPTURE, -1, 0, 100, -1, PLAIN), (LAYER, 0, 0, 50, 1, PLAIN)]
    ways = [Attribution.NESTING, Attribution.THREAD_TIME, Attribution.GRAPH, Attribution.NO_LAUNCH]
    found, how = layers_of(nodes, [(1, int(way), -1) for way in ways] + [(0, int(Attribution.NESTING), -1)])
    assert found == [1, 1, 1, 1, -1]
    assert how == ["NESTING", "THREAD_TIME", "GRAPH", "NONE", "NONE"]


def test_the_gradient_of_a_layer_counts_for_the_layer():
    nodes = [(CAPTURE, -1, 0, 900, -1, PLAIN), (LAYER, 0, 0, 50, 1, PLAIN), (LAYER, 1, 100, 150, 2, PLAIN),
             (MODEL, 1, 200, 210, -1, PLAIN), (MODEL, 1, 300, 310, -1, PLAIN)]  # fmt: skip
    nesting = int(Attribution.NESTING)
    found, how = layers_of(nodes, [(node, nesting, -1) for node in (1, 2, 3, 4)], forward=[-1, 0, 0, 3])
    assert found == [1, 1, 1, -1]  # span k is node k + 1; the last one's forward range is in no layer
    assert how == ["NESTING", "SEQUENCE", "SEQUENCE", "NONE"]


def test_without_one_of_its_own_the_shortest_layer_of_the_process_around_the_launch():
    nodes = [(CAPTURE, -1, 0, 900, -1, PLAIN), (LAYER, 0, 0, 500, 1, PLAIN), (LAYER, 1, 10, 60, 2, PLAIN),
             (LAYER, 2, 15, 30, 3, PLAIN), (LAYER, 0, 600, 700, 4, PLAIN)]  # fmt: skip
    launches = [{"thread_index": 0, "start_ns": start, "end_ns": start + 5} for start in (20, 56, 800, 600, 695)]
    work = [(0, int(Attribution.NONE), launch) for launch in range(5)] + [(0, int(Attribution.NO_LAUNCH), -1)]
    found, how = layers_of(nodes, work, launches)
    assert found == [2, 1, -1, 4, 4, -1]
    assert how == ["THREAD_TIME", "THREAD_TIME", "NONE", "THREAD_TIME", "THREAD_TIME", "NONE"]
    assert layers_of([nodes[0], *nodes[2:1:-1], nodes[1], *nodes[3:]], work[:1], launches)[0] == [1]


def test_a_layer_that_was_not_measured_is_never_counted_as_one():
    kinds = [NodeKind.INFERRED, NodeKind.TWIN, NodeKind.HOOK_PAIR]
    nodes = [(CAPTURE, -1, 0, 9, -1, int(NodeKind.INFERRED)),
             *((LAYER, 0, 10 * k, 10 * k + 5, k + 1, int(kind)) for k, kind in enumerate(kinds))]  # fmt: skip
    found, how = layers_of(nodes, [(node, int(Attribution.NESTING), -1) for node in (1, 2, 3, 0)])
    assert found == [1, 2, 3, -1]
    assert how == ["INFERRED", "TWIN", "HOOK_PAIR", "NONE"]


def test_gradients_without_numbers_are_matched_as_brackets_close():
    """Three convolutions and their gradients, twice, one evaluated between; `add` has a gradient now and then."""
    texts = np.array(["aten::cudnn_convolution", "CudnnConvolutionBackward", "aten::add_", "AddBackward0"], object)
    step = [0, 0, 0, 1, 1, 1]
    folded = np.array([*step, 0, *step, *[2] * 9, 3])
    ranges = pd.DataFrame({"process_index": 0, "start_ns": 10 * np.arange(len(folded))})
    parent = np.full(len(folded), -1, np.int32)
    found = layering.forward_by_order(ranges, folded, texts, parent, DEFAULTS).tolist()
    assert found == [-1, -1, -1, 2, 1, 0, -1, -1, -1, -1, 9, 8, 7] + [-1] * 10
    # what lies in a gradient is of its layer, and an operator in one of its name is no other
    folded, parent = np.array([0, 0, 1, 0]), np.array([-1, 0, -1, 2], np.int32)
    found = layering.forward_by_order(ranges[:4], folded, texts, parent, DEFAULTS).tolist()
    assert found == [-1, -1, 0, 0]
