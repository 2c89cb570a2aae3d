"""Two measurements that took turns in the same processes → their differences, pair by pair, and how sure they are.

Load from outside and the process's own luck meet both members of a pair alike, so that they leave the difference.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.processes import summarise_repeats
from xsp_post.arrays.statistics import summarise_groups


def paired_differences(samples: pd.DataFrame, base: np.ndarray) -> pd.DataFrame:
    """Per cell, how much longer it took than cell ``base[cell]`` (−1: compared with none) in the same rounds.

    ``samples``: columns cell (0…n−1), process, round, value; one row per measurement. A pair is the trimmed mean of a
    cell's measurements in one round of a process minus that of its base in the same round. Columns as in
    `summarise_repeats` (the estimate is the trimmed mean over all pairs, the error that between processes), and
    ``process_count``. Shapes: base (n,) → n rows; cells without a pair have count 0.
    """
    keys = ["cell", "process", "round"]
    groups = samples.groupby(keys, sort=False)
    means = groups.first().reset_index()
    means["value"] = summarise_groups(samples["value"], groups.ngroup().to_numpy(), len(means))["trimmed_mean"]
    mine = means.assign(base=base[means["cell"].to_numpy(np.int64)])
    pairs = mine[mine["base"] >= 0].merge(
        means, left_on=["base", "process", "round"], right_on=keys, suffixes=("", "_of_base"), validate="many_to_one"
    )
    cell = pairs["cell"].to_numpy(np.int64)
    difference = (pairs["value"] - pairs["value_of_base"]).to_numpy(np.float64)
    summary = summarise_repeats(difference, cell, pairs["process"].to_numpy(np.int64), len(base))
    count = pairs.groupby("cell")["process"].nunique().reindex(range(len(base)), fill_value=0)
    return summary.assign(process_count=count.to_numpy(np.int64))
