"""Trace → Tree, step "what the framework says": modules inside CUDA graphs and compiled code become nodes.

Annotations name regions for the kernels of a graph's replay; they hang below the replay's range. The calls of a
compiled graph, as the compiler listed them, meet the calls in each run of a compiled region one by one, where the
region made the same calls; the modules hang below the region, and around the operators that it called.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.texts import with_more
from xsp_post.base.findings import Finding, finding
from xsp_post.model.levels import Level
from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Attribution, NodeKind, Tree
from xsp_post.names.compiled import FUSED, symbol_of
from xsp_post.tree.draft import Draft
from xsp_post.tree.layer_rules import is_block_text
from xsp_post.tree.pieces import PIECES
from xsp_post.tree.placing import opened_layers, place
from xsp_post.tree.structure.constants import Constants
from xsp_post.tree.twin_segments import match, replays_of

_REGIONS = ("CompiledFxGraph", "^CompiledFunction|Torch-Compiled Region")
_PHASES = ("^CompiledFunction$", "^CompiledFunctionBackward$")  # torch's own names of both
_LEAST_UNNAMED = 0.01  # of the device time
_CONVOLUTION = "conv|batch_norm|max_pool|avg_pool"
_MODULE_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+|\d+(?:\.\w+)+")


def with_provenance(draft: Draft) -> Draft:
    """The draft with nodes for the regions and modules that the program and its compiler named."""
    if "said_text_id" in draft.activities:
        draft = _annotated(draft)
    return _compiled(draft) if len(draft.trace.compiled_calls) else draft


def _annotated(draft: Draft) -> Draft:
    said = draft.activities["said_text_id"].to_numpy()
    rows = np.flatnonzero(said >= 0)
    if not len(rows):
        return draft
    codes, used = pd.factorize(said[rows])
    texts = [_path(str(draft.trace.strings[one]).split("\n")) for one in used.tolist()]
    ranges, leaf = _ranges(texts, np.zeros(len(texts), bool), draft.constants)
    launch = draft.activities["launch_id"].to_numpy()[rows]
    return _placed(draft, rows, leaf[codes], launch, ranges, NodeKind.ANNOTATED, Attribution.ANNOTATION)


def _placed(
    draft: Draft, rows: np.ndarray, owner: np.ndarray, passes: np.ndarray, ranges: pd.DataFrame, kind: NodeKind,
    how: Attribution, home: np.ndarray | None = None, unit: np.ndarray | None = None, moving: slice = slice(None),
) -> Draft:  # fmt: skip
    after = place(draft, rows, owner, passes, ranges, kind, home=home, unit=unit, moving=moving)
    moved = after.node != draft.node
    attribution = np.where(moved, int(how), draft.activities["attribution"].to_numpy()).astype(np.int8)
    level = after.column("level").copy()
    level[opened_layers(after.nodes, len(draft.nodes))] = int(Level.MODULE)
    after = replace(after, activities=after.activities.assign(attribution=attribution))
    return after.with_levels(level)


# ---------------------------------------------------------------- regions as ranges


def _path(regions: list[str]) -> list[str]:
    """Regions, outer first; a path of modules stands for all modules on it, numbers with the list that they are in."""
    result: list[str] = []
    for region in regions:
        parts = region.split(".") if _MODULE_PATH.fullmatch(region) else [region]
        ends = [k for k in range(len(parts)) if k + 1 == len(parts) or not parts[k + 1].isdigit()]
        paths = [".".join(parts[: end + 1]) if len(parts) > 1 else parts[0] for end in ends]
        result += [path for path in paths if path not in result or path == region != result[-1]]
    return result


def _ranges(paths: list[list[str]], convolution: np.ndarray, constants: Constants) -> tuple[pd.DataFrame, np.ndarray]:
    """Ranges as `place` takes them, one for each region on the paths, and the innermost range of each path."""
    number: dict[tuple[str, ...], int] = {}
    for path in paths:
        for end in range(len(path)):
            number.setdefault(tuple(path[: end + 1]), len(number))
    parent = np.array([number.get(path[:-1], -1) for path in number], np.int64)
    names = np.array([path[-1] for path in number], object)
    leaf = np.array([number[tuple(path)] for path in paths], np.int64)
    starred = np.array([re.sub(r"\d+", "*", str(name)) for name in names], object)
    frame = pd.DataFrame({"parent": parent, "name": names, "folded_name": names, "layer_type": starred})
    frame["level"] = _levels(parent, starred, names, leaf, convolution, constants)
    return frame.assign(is_module=True, arguments=""), leaf


def _levels(
    parent: np.ndarray,
    starred: np.ndarray,
    names: np.ndarray,
    leaf: np.ndarray,
    convolution: np.ndarray,
    constants: Constants,
) -> np.ndarray:
    """Layers are the regions that stand in a row under a number, and what is beside them; where these are made of
    convolutions, the innermost regions."""
    forest = forest_of(parent)
    siblings = pd.Series(1).repeat(len(names)).groupby([parent, starred]).transform("size").to_numpy()
    ends = [str(name).rpartition(".") for name in names]
    in_row = (starred != names) & (siblings > 1) & np.array([not dot or end.isdigit() for _, dot, end in ends], bool)
    calls = np.bincount(leaf, minlength=len(names)), np.bincount(leaf, convolution, len(names)).astype(np.int64)
    total, convolved = (forest.add_up(one) for one in calls)
    is_open = in_row & (convolved >= constants.convolution_ratio * total) & (convolved > 0) & forest.around(total > 0)
    is_open |= forest.around(in_row) & ~(in_row & np.array([is_block_text(one) for one in starred], bool))
    layer = ~is_open & ~forest.inside(~is_open)
    level = np.full(len(names), int(Level.OPERATION), np.int8)
    level[layer], level[is_open & forest.around(layer)] = int(Level.LAYER), int(Level.MODULE)
    return level


def unnamed_modules(tree: Tree) -> list[Finding]:
    """Kernels whose layer is a compiled region as a whole: nothing in the recording names the modules inside."""
    layer, activities = tree.activities["layer_node_id"].to_numpy(), tree.activities
    folded = np.append(tree.nodes["folded_id"].to_numpy(), -1)
    is_region = np.append(tree.names.folded_with(_REGIONS[0]), False)[folded[layer]]
    rows = np.flatnonzero(is_region & (activities["kind"].to_numpy() == int(ActivityKind.KERNEL)))
    time = (activities["end_ns"] - activities["start_ns"]).to_numpy()
    ratio = float(time[rows].sum() / max(time.sum(), 1))
    if ratio < _LEAST_UNNAMED:
        return []
    said = f"{ratio:.1%} of the device time in {len(np.unique(layer[rows])):,} calls of compiled code"
    return [finding("compiled-modules-unknown", count=len(rows), example=said.replace("%", " %", 1))]


# ---------------------------------------------------------------- compiled regions


def _compiled(draft: Draft) -> Draft:
    calls = draft.trace.compiled_calls
    item, region = _items(draft)
    items = _named(draft, item, region)
    items = items[items["symbol"].isin(calls["symbol"])]
    items = items.sort_values(["region", "start_ns"], kind="stable", ignore_index=True)
    found = _met(calls, items)
    count, met = int((found >= 0).sum()), calls["file_name"].iloc[np.unique(found[found >= 0])]
    draft = draft.said("", _unmatched(calls[~calls["file_name"].isin(met)], items["symbol"]))
    if not count:
        return draft
    row_of = pd.Series(found, index=items["item"]).reindex(item).fillna(-1).to_numpy(np.int64)
    draft = _with_sources(draft, row_of)
    module = np.append(calls["module"].to_numpy(object), "")[row_of]
    rows = np.flatnonzero((row_of >= 0) & (module != ""))
    said = f"{count:,} of {len(items):,} calls; {', '.join(sorted(set(met)))}"
    if not len(rows):
        return draft.said("", [finding("side-file-joined", count=count, example=f"{said} (no modules, source lines)")])
    report = finding("provenance-joined", count=len(rows), example=said)
    draft = draft.said("; modules of compiled kernels are the compiler's", [report])
    parts = _parts(draft, row_of)
    named = np.flatnonzero(
        (parts["module"] != "").to_numpy() & (parts["module"] != module[parts["activity"]]).to_numpy()
    )
    at = np.concatenate([rows, parts["activity"].to_numpy()[named]])
    of_path, paths = pd.factorize(np.concatenate([module[rows], parts["module"].to_numpy()[named]]))
    is_convolution = calls["symbol"].str.contains(_CONVOLUTION).to_numpy()[row_of[at]]
    share = np.bincount(of_path, is_convolution) > 0
    ranges, leaf = _ranges([_path([one]) for one in paths.tolist()], share, draft.constants)
    unit = np.where(item < len(draft.nodes), item, -1)
    home = np.where(unit >= 0, draft.column("parent_id")[unit], draft.node)
    what = (NodeKind.PROVENANCE, Attribution.PROVENANCE)
    after = _placed(draft, at, leaf[of_path], region[at], ranges, *what, home=home[at], unit=unit[at],
                    moving=slice(len(rows)))  # fmt: skip
    node = np.where(parts["module"] == "", home[parts["activity"]], after.node[parts["activity"]])
    node[named] = after.placed[len(rows) :]
    return replace(after, pieces=parts.assign(node_id=node)[list(PIECES)])


def _unmatched(calls: pd.DataFrame, ran: pd.Series) -> list[Finding]:
    """Of each file whose graphs did not run: how many of its kernels did."""
    said = []
    for name, mine in calls.groupby("file_name"):
        kernels = mine["symbol"].unique()
        count = int(np.isin(kernels, ran).sum())
        what = f"{count:,} of its {len(kernels):,} kernels ran" + (", in no graph in its order" if count else "")
        said.append(finding("provenance-unmatched", count=len(mine), example=f"{name}: {what}"))
    return said


def _parts(draft: Draft, row_of: np.ndarray) -> pd.DataFrame:
    """Kernels that compute operations of several modules: activity, module, operation_count, the module with most of
    them first; row_of: row of the calls, −1."""
    calls, parts, key = draft.trace.compiled_calls, draft.trace.compiled_modules, ["graph", "call_index"]
    several = parts[parts.duplicated(key, keep=False)]
    several = several.merge(
        calls.assign(row=np.arange(len(calls)))[[*key, "module", "row"]], on=key, suffixes=("", "_most")
    )
    several = several.assign(is_rest=several["module"] != several["module_most"])
    kernels = np.flatnonzero((row_of >= 0) & (draft.activities["kind"].to_numpy() == int(ActivityKind.KERNEL)))
    found = pd.DataFrame({"activity": kernels, "row": row_of[kernels]}).merge(several, on="row")
    return found.sort_values(["activity", "is_rest"], kind="stable", ignore_index=True)


def _regions(draft: Draft) -> np.ndarray:
    """The compiled region at or around each node, −1 none."""
    folded = draft.column("folded_id")
    for pattern in _REGIONS:
        mask = draft.names.folded_with(pattern)[folded] & (draft.column("kind") <= int(NodeKind.ANNOTATION))
        if mask.any():
            break
    return forest_of(draft.column("parent_id")).nearest(mask)


def _items(draft: Draft) -> tuple[np.ndarray, np.ndarray]:
    """What each activity is called in, and the region or replay of that call: the range directly below its compiled
    region, else itself (its row behind the nodes), −1 outside both; a replay is its launch behind the nodes. int64."""
    of_node, parent, count = _regions(draft), draft.column("parent_id"), len(draft.nodes)
    below = (of_node >= 0) & (parent >= 0) & (of_node == parent)
    unit = np.where(of_node >= 0, forest_of(parent).outermost_around(below), -1)[draft.node]
    launch = draft.activities["launch_id"].to_numpy()
    region = np.where(replays_of(draft.trace, launch), count + launch, of_node[draft.node])
    is_kernel = draft.activities["kind"].to_numpy() == int(ActivityKind.KERNEL)
    bare = np.where(is_kernel & (region >= 0), count + np.arange(len(launch)), -1)
    is_unit = (unit >= 0) & (region < count)
    return np.where(is_unit, unit, bare), region


def _named(draft: Draft, item: np.ndarray, region: np.ndarray) -> pd.DataFrame:
    """One row per call: item, region (as `_items` numbers them), start_ns, symbol, is_backward (1, 0, −1 unknown)."""
    first = np.flatnonzero((item >= 0) & ~pd.Series(item).duplicated().to_numpy())
    is_unit = item[first] < len(draft.nodes)
    unit = np.where(is_unit, item[first], 0)
    columns = {
        name: np.where(is_unit, draft.column(name)[unit], draft.activities[name].to_numpy()[first])
        for name in ("name_id", "start_ns")
    }
    codes, used = pd.factorize(columns.pop("name_id"))
    symbols = np.array([symbol_of(str(draft.strings[one])) for one in used.tolist()], object)
    forest, kinds = forest_of(draft.column("parent_id")), draft.names.folded_with
    around = [forest.inside(kinds(pattern)[draft.column("folded_id")]) for pattern in _PHASES]
    at = np.where(region[first] < len(draft.nodes), region[first], 0)
    is_backward = np.where(around[1], 1, np.where(around[0], 0, -1))[at]
    return pd.DataFrame({"item": item[first], "region": region[first], "symbol": symbols[codes],
                         "is_backward": is_backward, **columns})  # fmt: skip


def _met(calls: pd.DataFrame, items: pd.DataFrame) -> np.ndarray:
    """Row of ``calls`` that each item is, −1 none. A region runs the graph that makes the same calls, else the one that
    makes the same calls of fused kernels; of several equal graphs the runs in their order. Where torch names the region
    of gradients, it runs a graph of gradients, and no other region does."""
    known = calls.rename(columns={"graph": "segment", "symbol": "name"}).assign(bucket=-1, call=calls["symbol"])
    run = items.rename(columns={"region": "replay", "symbol": "name"}).assign(size=-1)
    found = np.full(len(items), -1)
    said, graph_is = run["is_backward"].to_numpy(), known["is_backward"].to_numpy()
    for kind in np.unique(said):
        mine, theirs = np.flatnonzero(said == kind), np.flatnonzero((graph_is == kind) | (kind < 0))
        found[mine] = np.append(theirs, -1)[_matched(known.iloc[theirs], run.iloc[mine])]
    return found


def _matched(known: pd.DataFrame, run: pd.DataFrame) -> np.ndarray:
    found = match(known, run)
    fused, rest = (frame["name"].str.startswith(FUSED).to_numpy() for frame in (known, run))
    rows = np.flatnonzero(rest & ~np.isin(run["replay"], run["replay"][found >= 0]))
    found[rows] = np.append(np.flatnonzero(fused), -1)[match(known[fused], run.iloc[rows])]
    return found


def _with_sources(draft: Draft, row_of: np.ndarray) -> Draft:
    """The source line of each activity's call, where the compiler names one; row_of: row of the calls, −1."""
    source = np.append(draft.trace.compiled_calls["source"].to_numpy(object), "")[row_of]
    codes, texts = pd.factorize(source)
    own: Any = draft.activities.get("source_text_id", -1)
    values = np.where(source != "", codes + len(draft.strings), own)
    activities = draft.activities.assign(source_text_id=values.astype(np.int32))
    return replace(draft, activities=activities, strings=with_more(draft.strings, texts.tolist()))
