"""Tree → core tables ``operators`` and ``kernel_work``, where the capture says sizes (`operator_calls`), or phases."""

import numpy as np
import pandas as pd

from xsp_post.model.kinds import PHASES
from xsp_post.model.results import empty_table
from xsp_post.model.tree import Tree
from xsp_post.tables.core.phases import kernel_phases


def operator_frames(tree: Tree) -> dict[str, pd.DataFrame]:
    """The two tables; empty where the capture says no sizes of any operator that launched a kernel."""
    kernels = tree.kernels
    empty = {name: empty_table(name) for name in ("operators", "kernel_work")}
    if not len(kernels):
        return empty
    phase = kernel_phases(tree, kernels)
    if says_sizes(tree):
        from xsp_post.tables.core.operator_calls import frames_of, operator_calls

        call, calls, kinds = operator_calls(tree, kernels)
        if kinds["is_known"].any():
            return frames_of(call, calls, kinds, kernels, phase)
    if not phase.any():
        return empty
    # their operators say nothing: what is known is the phase they ran in
    work = pd.DataFrame({"kernel_id": np.arange(len(phase)), "operator_index": np.full(len(phase), -1, np.int64)})
    work["phase"] = pd.Categorical.from_codes(phase, pd.Index(PHASES))
    work[["flop", "read_bytes", "written_bytes"]] = np.nan
    return empty | {"kernel_work": work.assign(pipe=pd.Categorical(np.full(len(phase), "", object)))}


def says_sizes(tree: Tree) -> bool:
    """Whether the capture says the sizes of what operators were given."""
    if "arguments_id" in tree.trace.attributes or "arguments" in tree.inferred:
        return True
    return any(str(one).startswith("[[") for one in tree.names.parsed.encoded("shape_text")[1])
