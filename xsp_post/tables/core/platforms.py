"""Tree → ``platforms``: the languages, frameworks and platforms that the capture shows, with the evidence of each."""

import numpy as np
import pandas as pd

from xsp_post.arrays.cutting import distinct
from xsp_post.model.tree import Tree
from xsp_post.names.platforms import Shown, shown_platforms

_MOST = 20_000  # different texts of one source that are looked at


def platforms_frame(tree: Tree) -> pd.DataFrame:
    """One row per platform and kind of evidence."""
    trace = tree.trace
    used = [frame["process_index"].to_numpy() for frame in (trace.launches, trace.activities, trace.spans)]
    names = trace.processes["name"].to_numpy(object)
    programs = distinct(np.concatenate(used))

    def texts(ids: np.ndarray) -> list[str]:
        return [str(trace.strings[one]) for one in pd.unique(ids[ids >= 0])[:_MOST].tolist()]

    found = shown_platforms(
        {
            "recorder": [f"{trace.provenance.collector} {trace.provenance.framework}"],
            "kernels": texts(trace.activities["name_id"].to_numpy()),
            "ranges": texts(
                np.concatenate([frame["name_id"].to_numpy() for frame in (trace.spans, trace.python_frames)])
            ),
            "domains": trace.domains["name"].astype(str).tolist(),
            "calls": texts(trace.launches["name_id"].to_numpy()),
            "programs": [str(names[one]) for one in programs.tolist() if 0 <= one < len(names)],
        }
    )
    columns = {"platform": "platform", "source": "evidence", "text_count": "text_count", "example": "example"}
    return pd.DataFrame(found, columns=list(Shown._fields)).rename(columns=columns)
