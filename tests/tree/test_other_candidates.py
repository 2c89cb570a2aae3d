"""What else could be an execution: the sentence names the candidate that covers most."""

from __future__ import annotations

import pandas as pd

from xsp_post.tree.execution_evidence import _other


def test_the_runner_up_is_the_one_that_covers_most():
    others = pd.DataFrame({
        "name": ["small", "large"], "coverage_ratio": [0.2, 0.7], "execution_count": [3, 1200], "option": ["", "--x"],
    })  # fmt: skip
    assert _other(others) == "; else `large` ×1,200, 70 %, with --x"
    assert _other(others.iloc[:1]) == "; else `small` ×3, 20 %" and _other(others.iloc[:0]) == ""
