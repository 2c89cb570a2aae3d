"""The score by which a way to cut a launch sequence is taken, and how its weights are chosen."""

import numpy as np
import pytest
from weighing import Choice, choices, fitted, mean_points

from xsp_post.tree.structure.constants import DEFAULTS
from xsp_post.tree.structure.executions import Launches, candidates, structure_of
from xsp_post.tree.structure.fold import find_loops
from xsp_post.tree.structure.labels import Traits
from xsp_post.tree.structure.weighing import BEGINNINGS, LAYERS, LOOPS, WEIGHTS, SequenceFacts, score, terms

TURN = [0, 1, 2, 3, 4, 5]


def facts_of(symbols, pause=None):
    n = len(symbols)
    symbols = np.array(symbols)
    no, pause = np.zeros(n, bool), np.zeros(n) if pause is None else np.array(pause, float)
    traits = Traits((symbols % 3).astype(np.int8), no, no, no, no, no, no, symbols)
    return SequenceFacts(symbols, np.full(n, 10), pause, traits, find_loops(symbols, DEFAULTS), np.zeros(0, np.int64))


def cut(starts, end, series=None):
    starts = np.array(starts)
    return starts, np.append(starts[1:], end), np.zeros(len(starts), np.int64) if series is None else np.array(series)


def test_equal_executions_are_described_by_one_of_them():
    """Four turns of six: one of them and one number each; nothing is left and all begin alike."""
    facts = facts_of(TURN * 4)
    said = terms(LOOPS, cut([0, 6, 12, 18], 24), facts)
    assert said["time"] == 1 and said["unevenness"] == 0 and said["alike_begin"] == said["alike_first"] == 1
    assert said["description"] == said["folded"] == (6 + 4) / 24
    assert said["left_before"] == said["left_behind"] == 0


def test_what_is_left_before_the_first_execution_counts_against_a_cut():
    facts = facts_of(TURN * 4)
    said = terms(LOOPS, cut([6, 12, 18], 24), facts)
    assert said["left_before"] == 1 and said["time"] == 0.75 and said["left_behind"] == 0
    assert score(LOOPS, cut([6, 12, 18], 24), facts) < score(LOOPS, cut([0, 6, 12, 18], 24), facts)


def test_a_loop_of_varying_turns_inside_an_execution_counts_once():
    """Executions of two, three and four inner turns are described by one of them where inner turns are folded."""
    inner = [10, 11, 12, 13, 14]
    symbols = [one for k in (5, 6, 7, 5) for one in (7, 8, *inner * k, 9)]
    starts = np.flatnonzero(np.array(symbols) == 7)
    said = terms(LOOPS, cut(starts, len(symbols)), facts_of(symbols))
    assert said["folded"] < 0.2 < said["description"]


def test_pauses_before_executions_count_and_pauses_inside_do_not():
    at, inside = np.zeros(24), np.zeros(24)
    at[[6, 12, 18]], inside[[3, 9, 15]] = 50, 50
    found = cut([0, 6, 12, 18], 24)
    assert terms(LOOPS, found, facts_of(TURN * 4, at))["pauses"] == 1
    assert terms(LOOPS, found, facts_of(TURN * 4, inside))["pauses"] == 0


def test_executions_without_an_update_count_against_a_cut_only_where_weights_are_updated():
    found, facts = cut([0, 6, 12, 18], 24), facts_of(TURN * 4)
    assert terms(LOOPS, found, facts)["no_update"] == 0
    facts.updates = np.array([6, 12])
    assert terms(LOOPS, found, facts)["no_update"] == 0.5


def test_executions_with_several_updates_count_against_a_cut():
    found, facts = cut([0, 6, 12, 18], 24), facts_of(TURN * 4)
    assert terms(LOOPS, found, facts)["more_updates"] == 0
    facts.updates = np.array([2, 4, 12])
    assert terms(LOOPS, found, facts)["more_updates"] == 0.25


def test_a_cut_into_layers_scores_less_than_the_same_cut_of_anything_else():
    facts, found = facts_of(TURN * 4), cut([0, 6, 12, 18], 24)
    assert score(LAYERS, found, facts) == pytest.approx(score(LOOPS, found, facts) + WEIGHTS[LAYERS])


def sequence_of(symbols):
    n = len(symbols)
    no, traits = np.zeros(n, bool), facts_of(symbols)
    names = Traits(traits.family.astype(np.int8), no, no, no, no, no, no, traits.symbols)
    return Launches(traits.symbols, np.zeros(n, np.int64), np.full(n, 10), np.zeros(n), names, None, DEFAULTS)


def test_what_begins_alike_is_a_way_to_cut_whatever_follows():
    """Three launches begin each of six executions, others follow in any order: they are the turns of no loop."""
    rng = np.random.default_rng(1)
    pieces = [[1, 2, 3, *rng.permutation(np.repeat([4, 5, 6, 7], [3, 4, 5, 6])).tolist()] for _ in range(6)]
    launches = sequence_of(np.concatenate(pieces))
    structure = structure_of(find_loops(launches.symbols, DEFAULTS), launches)
    ways = [(source, found[0].tolist()) for source, found in candidates(structure, launches)[0]]
    begins = np.cumsum([0] + [len(piece) for piece in pieces])[:-1].tolist()
    assert (BEGINNINGS, begins) in ways and (LOOPS, begins) not in ways


def test_fitted_weights_take_what_was_right_and_leave_what_was_wrong():
    """Choices made by known weights are made again by those that are fitted, on choices that were not seen."""
    pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    true = np.array(list(WEIGHTS.values()))

    def drawn(count):
        made = []
        for _ in range(count):
            values = np.r_[rng.random((5, len(true))), np.zeros((1, len(true)))]
            best = int(np.argmax(values @ true))
            made.append(Choice("a", values, ["right" if k == best else "wrong" for k in range(6)]))
        return made

    assert mean_points(drawn(200), fitted(drawn(600))) > 0.9
    assert mean_points(drawn(200), -true) < 0.5


def test_the_choices_of_a_program_hold_the_candidates_and_none_of_them():
    known = choices("newcomers", range(2))
    assert known and all(len(one.verdicts) == len(one.values) and not one.values[-1].any() for one in known)
    assert mean_points(known, np.array(list(WEIGHTS.values()))) == 1
