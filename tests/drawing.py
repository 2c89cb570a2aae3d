"""What a run of the whole suite takes of tests that cost much: a drawn part, another one with each seed.

A test function is costly where it stands in `costly.txt` (half a second of processor time or more, all cases together)
or has the mark `sampled`. Of its cases an eighth is taken, of five or more two at least; one that has one case is taken
in one of eight runs. The mark `guard` says: nothing else holds this promise, and who breaks it hurts a user; such a
function is always taken whole.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

COSTLY = Path(__file__).with_name("costly.txt")
LEAST_S = 0.5  # of processor time, its child processes with it, all cases of a function together
PART = 8  # one of so many is drawn
MANY = 5  # cases of a function, of which two are taken at least
WHOLE = 2_000  # collected tests: fewer are no run of the whole suite, and only marked functions are drawn


def function_of(test: str) -> str:
    """The name of a test without its case."""
    return test.partition("[")[0]


def costly() -> list[str]:
    """The functions that cost much."""
    return [line.split()[0] for line in _lines()]


def left_out(tests: Iterable[str], parts: Mapping[str, int], seed: str) -> set[str]:
    """The tests that are not drawn. ``parts``: of the functions that are drawn of, one of how many cases."""
    cases = defaultdict(list)
    for test in tests:
        if function_of(test) in parts:
            cases[function_of(test)].append(test)
    return {test for function, several in cases.items() for test in _left_out(several, parts[function], seed)}


def _left_out(cases: list[str], part: int, seed: str) -> list[str]:
    number = {case: zlib.crc32(f"{seed}{case}".encode()) for case in cases}
    if len(cases) < MANY:
        return [case for case in cases if number[case] % part]
    return sorted(cases, key=number.__getitem__)[max(2, -(-len(cases) // part)) :]


def costs_of(tests: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    """The processor time of each function, from that of every test by itself and its part of the fixtures that
    several share: all its cases together, and that part once."""
    own, shared = defaultdict(float), defaultdict(float)
    for test, own_s, shared_s in tests:
        own[function_of(test)] += own_s
        shared[function_of(test)] = max(shared[function_of(test)], shared_s)
    return {function: own[function] + shared[function] for function in own}


def unlisted(costs: Mapping[str, float]) -> dict[str, float]:
    """What costs much and is always taken, as the list does not name it yet; the dearest first."""
    listed = set(costly())
    several = [(cost, function) for function, cost in costs.items() if cost >= LEAST_S and function not in listed]
    return {function: cost for cost, function in sorted(several, reverse=True)}


def write_costs(costs: Mapping[str, float]) -> None:
    """`costly.txt` anew."""
    head = "# Functions that cost much, with their seconds of processor time: scripts/test --all --costs writes them.\n"
    lines = [f"{function} {cost:.1f}\n" for function, cost in sorted(costs.items()) if cost >= LEAST_S]
    COSTLY.write_text(head + "".join(lines))


def add_costs(costs: Mapping[str, float]) -> None:
    """`costly.txt` with what it does not name yet: whatever it names, only a part of that was taken."""
    listed = {function: float(cost) for function, cost in map(str.split, _lines())}
    write_costs(listed | unlisted(costs))


def _lines() -> list[str]:
    return [line for line in COSTLY.read_text().splitlines() if not line.startswith("#")]
