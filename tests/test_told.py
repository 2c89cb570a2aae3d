"""Programs that people wrote, told as on a GPU: `generators.told`."""

from collections import defaultdict

import pytest
from told_score import program_of


@pytest.mark.parametrize("name", ["clip_two_towers", "pinn_burgers", "graph_pieces"])
def test_equal_steps_are_told_with_equal_kernels(name):
    program = program_of(name, "none")
    steps = defaultdict(list)
    for row in program.machines[0].work:
        steps[row["labels"].get("e:execution", -1)].append(row["name"])
    steps.pop(-1, None)
    assert len(steps) > 2 and len(set(map(tuple, steps.values()))) == 1
