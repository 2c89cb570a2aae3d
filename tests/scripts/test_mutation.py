"""The faults that scripts/mutate plants: each compiles, is one edit, and is found again by its key."""

from __future__ import annotations

import ast

from mutation.operators import mutants_of

SOURCE = b'''"""Text."""
import numpy as np

LIMIT = 3


def first_of(values: list[int], *, low: int = 1) -> tuple[int, int]:
    """Texts and annotations stay."""
    values.sort(reverse=True)
    if values[0] < low and not values:
        raise ValueError(low + 1)
    for one in values[1:]:
        low += one
    return min(values), np.searchsorted(values, low, side="left") - LIMIT
'''


def texts():
    lines = SOURCE.decode().splitlines()
    for mutant in mutants_of("a.py", SOURCE):
        found = mutant.applied(SOURCE).decode().splitlines()
        changed = [i for i, (a, b) in enumerate(zip(lines, found)) if a != b]
        yield mutant, changed, found


def test_each_fault_compiles_and_changes_one_line_that_it_names():
    keys = set()
    for mutant, changed, found in texts():
        ast.parse("\n".join(found))
        assert len(found) == len(SOURCE.decode().splitlines()) and [i + 1 for i in changed] == [mutant.first_line]
        assert mutant.is_in_function == (mutant.first_line > 4)
        keys.add(mutant.key)
    assert len(keys) == len(mutants_of("a.py", SOURCE)), "each has a key of its own"


def test_the_faults_of_a_function():
    found = {one[changed[0]].strip() for _, changed, one in texts()}
    assert {
        "LIMIT = (4)", "LIMIT = (2)", "pass", "values.sort(reverse=(False))", "if (values[0] <= low) and not values:",
        "if (values[0] >= low) and not values:", "if (values[0] < low or not values):",
        "if values[0] < low and (values):",
        "if values[(1)] < low and not values:", "if (not (values[0] < low and (not values))):", "for one in values[:]:",
        "for one in values[(2):]:", "for one in values[(0):]:", "low -= one",
        'return (np.searchsorted(values, low, side=\'left\') - LIMIT, min(values))',
        'return (max(values)), np.searchsorted(values, low, side="left") - LIMIT',
        'return min(values), np.searchsorted(values, low, side=(\'right\')) - LIMIT',
        'return min(values), (np.searchsorted(values, low)) - LIMIT',
        'return min(values), (np.searchsorted(values, low, side=\'left\') + LIMIT)',
    } <= found  # fmt: skip
    assert not any("low + 2" in text or "Text" in text for text in found), "errors and texts stay"


def test_a_key_stays_where_lines_move():
    moved = SOURCE.replace(b"LIMIT = 3", b"# a comment\n\nLIMIT = 3")
    assert [one.key for one in mutants_of("a.py", moved)] == [one.key for one in mutants_of("a.py", SOURCE)]
