"""Time on the host of what repeats: once for what shares a launch."""

import numpy as np
import pandas as pd

from xsp_post.tree.folding import _host_time


def test_blocks_inside_one_launch_take_its_time_once():
    rows = [  # path, thread, start, end, inferred
        (0, 0, 0, 100, False),
        (1, 0, 10, 30, False),
        (1, 0, 40, 60, False),
        (2, 0, 50, 60, True),  # two blocks in one launch, a third beside it
        (2, 0, 50, 60, True),
        (2, 0, 58, 70, True),
        (2, 1, 50, 60, True),  # of another thread
    ]
    nodes = pd.DataFrame(rows, columns=["path", "thread_index", "start_ns", "end_ns", "is_inferred"])
    assert _host_time(nodes, nodes["path"].to_numpy(), 3).tolist() == [100, 40, 30]


def test_recorded_ranges_are_summed():
    nodes = pd.DataFrame({"thread_index": [0, 0], "start_ns": [0, 5], "end_ns": [10, 15], "is_inferred": [False] * 2})
    assert _host_time(nodes, np.zeros(2, np.int64), 1).tolist() == [20]
