"""Trace → Trace, step "hooks that stand in pairs": `FSDP::pre_forward (X)` … `FSDP::post_forward (X)` become the
span of module X between them, and those of its backward work another one.

Frameworks that wrap modules mark the hooks before and after a module, not the module: what runs between the two is
the module's. A module whose first or last hook lies outside the recording is open to that side. Modules of one
list element (`encoder.block.14.layer.0`, `….layer.1`) that follow one another lie in a span of that element.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.texts import with_more
from xsp_post.model.trace import Trace
from xsp_post.model.tree import Attribution, NodeKind
from xsp_post.tree.node_names import NodeNames

_HOOK = re.compile(r"^(?:FSDP\d?::|FullyShardedDataParallel\.)_?(pre|post)_(forward|backward)\b")
_ELEMENT = re.compile(r"^(.*\.\d+)\.[^.].*$", re.DOTALL)
_PRE, _POST = 0, 1


def with_hook_pairs(trace: Trace, names: NodeNames) -> Trace:
    """The trace with a span per pair of hooks (kind `NodeKind.HOOK_PAIR`, no source row); the same where none is."""
    hooks = _hooks(trace, names)
    if not len(hooks):
        return trace
    pairs = _paired(trace, hooks)
    if not len(pairs):
        return trace
    pairs = pd.concat([_elements(pairs), pairs], ignore_index=True)
    return _extended(trace, pairs)


def _hooks(trace: Trace, names: NodeNames) -> pd.DataFrame:
    """Hook spans by thread and start: thread, start_ns, end_ns, side, path, is_backward."""
    parsed = names.parsed
    fsdp = np.flatnonzero(parsed.says("dialect", "fsdp"))  # different texts of hooks, not spans
    path = np.full(len(parsed), "", object)
    path[fsdp] = parsed.texts("module_path", fsdp)
    side, is_backward = np.full(len(parsed) + 1, -1, np.int8), np.zeros(len(parsed) + 1, bool)
    for row, base in zip(fsdp.tolist(), parsed.texts("base_name", fsdp)):
        match = _HOOK.match(base)
        if match and path[row]:
            side[row] = _PRE if match.group(1) == "pre" else _POST
            is_backward[row] = match.group(2) == "backward"
    rows = np.flatnonzero(side[names.row] >= 0)
    spans = trace.spans
    kept = ["thread_index", "process_index", "domain_index", "start_ns", "end_ns"]
    of_span = names.row[rows]
    frame = spans[kept].iloc[rows].assign(side=side[of_span], path=path[of_span], is_backward=is_backward[of_span])
    return frame.sort_values(["thread_index", "start_ns"], kind="stable").reset_index(drop=True)


def _paired(trace: Trace, hooks: pd.DataFrame) -> pd.DataFrame:
    """One row per module execution: thread_index, process_index, domain_index, path, start_ns, end_ns, is_open."""
    one = ["thread_index", "path", "is_backward"]
    by_path = hooks.sort_values([*one, "start_ns"], kind="stable")
    same = by_path[one].eq(by_path[one].shift(-1)).all(axis=1).to_numpy()
    side = by_path["side"].to_numpy()
    follows = same & (side == _PRE) & np.r_[side[1:] == _POST, False]
    first = by_path.iloc[np.flatnonzero(follows)].reset_index(drop=True)
    last = by_path.iloc[np.flatnonzero(follows) + 1].reset_index(drop=True)
    pairs = first.assign(end_ns=last["end_ns"], is_open=False)
    edge = trace.spans.groupby("thread_index").agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    head = hooks.groupby("thread_index").head(1)
    head = head[head["side"] == _POST]
    head = head.assign(start_ns=edge["start_ns"].reindex(head["thread_index"]).to_numpy(), is_open=True)
    tail = hooks.groupby("thread_index").tail(1)
    tail = tail[tail["side"] == _PRE]
    tail = tail.assign(end_ns=edge["end_ns"].reindex(tail["thread_index"]).to_numpy(), is_open=True)
    whole = pd.concat([pairs, head, tail], ignore_index=True).drop(columns="side")
    return whole.sort_values(["thread_index", "start_ns"], kind="stable").reset_index(drop=True)


def _elements(pairs: pd.DataFrame) -> pd.DataFrame:
    """Spans of list elements around neighbouring modules of theirs; none where every element has one module."""
    element = pairs["path"].str.extract(_ELEMENT, expand=False).fillna("")
    element = element.where(~element.isin(pairs["path"]), "")
    thread = pairs["thread_index"]
    run = ((element != element.shift()) | (thread != thread.shift())).cumsum()
    grouped = pairs.assign(path=element)[element != ""].groupby(run[element != ""], sort=False)
    if not len(grouped) or grouped.size().max() < 2:
        return pairs.iloc[:0]
    return grouped.agg({
        "thread_index": "first", "process_index": "first", "domain_index": "first", "path": "first",
        "start_ns": "min", "end_ns": "max", "is_open": "any",
    })  # fmt: skip


def _extended(trace: Trace, pairs: pd.DataFrame) -> Trace:
    codes, paths = pd.factorize(pairs["path"])
    count, spans = len(pairs), trace.spans
    values: dict[str, object] = {
        "kind": int(NodeKind.HOOK_PAIR), "name_id": len(trace.strings) + codes, "source_row_id": -1,
        "is_cross_thread": False, "payload_text_id": -1,
    }  # fmt: skip
    columns = {}
    for name in spans.columns:
        own = spans[name].to_numpy()
        new = values.get(name, pairs.get(name, 0))
        columns[name] = np.concatenate([own, np.broadcast_to(np.asarray(new), count).astype(own.dtype)])
    attributes = trace.attributes
    if len(attributes):
        attributes = attributes.reindex(range(len(spans) + count))
        for name in trace.attributes.columns.tolist():
            dtype = trace.attributes[name].dtype
            if attributes[name].dtype != dtype:
                filler: float | str = -1 if dtype.kind in "iu" else np.nan if dtype.kind == "f" else ""
                attributes[name] = attributes[name].fillna(filler).astype(dtype)
    strings = with_more(trace.strings, paths)
    return replace(trace, spans=pd.DataFrame(columns), strings=strings, attributes=attributes)


def recorded_attribution(trace: Trace, owners: pd.DataFrame, parent: np.ndarray) -> np.ndarray:
    """`Attribution` of activities: what only spans of hook pairs hold lies in no recorded range."""
    how = owners["attribution"].to_numpy()
    made = trace.spans["kind"].to_numpy() == int(NodeKind.HOOK_PAIR)
    if not made.any():
        return how
    recorded = ~made
    recorded |= forest_of(parent).inside(recorded)
    span = owners["span"].to_numpy()
    alone = (span >= 0) & ~recorded[np.maximum(span, 0)]
    return np.where(alone, int(Attribution.NONE), how).astype(how.dtype)
