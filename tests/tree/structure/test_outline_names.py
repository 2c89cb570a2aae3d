"""What the kinds of executions are called."""

from types import SimpleNamespace

import numpy as np
import pytest

from xsp_post.tree.structure.outline import series_names


@pytest.mark.parametrize(("sizes", "said"), [
    ([5], ["iteration"]), ([5, 5], ["iteration", "iteration (2)"]),
    ([5, 7], ["iteration (5 kernels)", "iteration (7 kernels)"]),
    ([5, 7, 5], ["iteration (5 kernels)", "iteration (7 kernels)", "iteration (5 kernels) (2)"]),
])  # fmt: skip
def test_a_size_is_in_a_name_where_it_tells_kinds_apart(sizes, said):
    ends = np.cumsum(sizes)
    executions = SimpleNamespace(starts=ends - sizes, ends=ends, typical=list(range(len(sizes))))
    nothing = np.zeros(int(ends[-1]), bool)
    traits = SimpleNamespace(is_optimiser=nothing, is_backward=nothing)
    assert series_names(SimpleNamespace(executions=executions, traits=traits)) == said
