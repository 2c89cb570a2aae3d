"""Trace → Tree, step "which layer is which": layers numbered in execution order, alike across iterations."""

import numpy as np
import pandas as pd

from xsp_post.model.counters import PATH_SEPARATOR
from xsp_post.model.kinds import SELF
from xsp_post.model.levels import Level
from xsp_post.names.patterns import to_arrow
from xsp_post.tree import layering
from xsp_post.tree.node_names import NodeNames
from xsp_post.tree.other_threads import is_of_other_thread


def number_layers(nodes: pd.DataFrame, activities: pd.DataFrame, names: NodeNames) -> pd.DataFrame:
    """Number the layers: ``layer_key`` of nodes and activities, and one row a layer in execution order.

    The key is (path below the model, k-th call of it within the iteration), which holds across iterations
    and runs; a capture without iterations folds all calls of a path into one layer.
    """
    level = nodes["level"].to_numpy()
    parent, depth = nodes["parent_id"].to_numpy(), nodes["depth"].to_numpy()
    folded = _phase_folded(nodes, names)
    # our own texts hold the whole module path: what stands around them (containers on or off) must not matter
    own = names.node_is("dialect", "xsp") & names.node_is("role", "layer")
    # a path begins below the model, so that it is the same on the model's thread and on any other one
    is_model = level == int(Level.MODEL)
    restart = is_model | is_model[parent] | (parent <= 0) | own | is_of_other_thread(nodes)
    relative, paths = layering.path_ids(parent, depth, folded, restart)
    layer_node = activities["layer_node_id"].to_numpy()
    is_layer = level == int(Level.LAYER)
    is_self = np.zeros(len(nodes), bool)
    is_self[layer_node[layer_node >= 0]] = True
    is_self &= ~is_layer
    rows = np.flatnonzero(is_layer | is_self)

    nodes["call_index"] = _calls(nodes, nodes["path_id"].to_numpy()).astype(np.int32)
    iteration = nodes["iteration_index"].to_numpy()[rows]
    start = nodes["start_ns"].to_numpy()[rows]
    phase_of_model = _model_folded(nodes, folded)[rows]
    path_key = relative[rows].astype(np.int64) * (int(folded.max(initial=0)) + 2) + phase_of_model + 1
    path_key = path_key * 2 + is_self[rows]
    codes, _ = pd.factorize(path_key)
    # replicas of a module run on threads of their own, and so does what a checkpoint computes again: one layer
    thread = nodes["thread_index"].to_numpy()[rows].astype(np.int64) + 1
    group = (codes * (int(iteration.max(initial=0)) + 2) + iteration + 1) * (int(thread.max(initial=0)) + 1) + thread
    call = layering.occurrence(group, np.argsort(start, kind="stable"))
    # gradients are accumulated once per parameter: that is one row, not one per parameter
    accumulates = names.folded_with("AccumulateGrad")
    call[(iteration < 0) | accumulates[nodes["folded_id"].to_numpy()[rows]]] = 0
    key, first_row = _in_execution_order(codes * (int(call.max(initial=0)) + 1) + call, iteration, start, nodes)
    key_of_node = np.full(len(nodes), -1, np.int32)
    key_of_node[rows] = key
    nodes["layer_key"] = key_of_node
    activities["layer_key"] = np.where(layer_node >= 0, key_of_node[np.maximum(layer_node, 0)], -1)
    representative = rows[first_row]
    return _describe_layers(nodes, names, paths, relative, representative, call[first_row], is_self)


def _calls(nodes: pd.DataFrame, path: np.ndarray) -> np.ndarray:
    iteration = nodes["iteration_index"].to_numpy()
    group = path.astype(np.int64) * (int(iteration.max(initial=0)) + 2) + iteration + 1
    return layering.occurrence(group, np.argsort(nodes["start_ns"].to_numpy(), kind="stable"))


def _phase_folded(nodes: pd.DataFrame, names: NodeNames) -> np.ndarray:
    """Folded text per node, with warm-up and measured model ranges of one phase folded together."""
    folded = nodes["folded_id"].to_numpy()
    warm = np.flatnonzero(names.folded_with("^warmup:"))
    if not len(warm):
        return folded
    known = {text: number for number, text in enumerate(names.folded_names.tolist())}
    same = np.arange(len(names.folded_names), dtype=folded.dtype)
    for number in warm.tolist():
        same[number] = known.get(names.folded_names[number].replace("warmup:", "model:", 1), number)
    return same[folded]


def _model_folded(nodes: pd.DataFrame, folded: np.ndarray) -> np.ndarray:
    """Folded text of the model that a node ran in (layers of prefill and decode stay apart), −1 none."""
    models = np.flatnonzero(nodes["level"].to_numpy() == int(Level.MODEL))
    iteration = nodes["iteration_index"].to_numpy()
    of_iteration = np.full(int(iteration.max(initial=-1)) + 2, -1, np.int64)
    of_iteration[iteration[models]] = folded[models]
    of_iteration[-1] = -1  # outside every iteration
    return of_iteration[iteration]


def _in_execution_order(
    key: np.ndarray, iteration: np.ndarray, start: np.ndarray, nodes: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    """Number keys 0… by when they first run inside an iteration (measured iterations before warm-up ones);
    returns the number of each row and the row that stands for each number."""
    if not len(key):
        return key, np.zeros(0, np.int64)
    codes, _ = pd.factorize(key)
    count = int(codes.max()) + 1
    models = nodes[nodes["level"].to_numpy() == int(Level.MODEL)]
    began = np.zeros(len(models) + 1, np.int64)
    warm = np.zeros(len(began), bool)
    began[models["iteration_index"].to_numpy()] = models["start_ns"].to_numpy()
    warm[models["iteration_index"].to_numpy()] = models["is_warmup_text"].to_numpy()
    inside = iteration >= 0
    offset = np.where(inside, start - began[iteration], start)
    # the last of the iterations that has the layer is the steadiest; sort by (warm-up, iteration desc)
    order = np.lexsort((-iteration, warm[iteration] & inside, codes))
    first = order[np.flatnonzero(np.r_[True, codes[order][1:] != codes[order][:-1]])]
    began_at = _by_phase(offset[first], first, nodes, iteration)
    rank = np.argsort(np.argsort(began_at, kind="stable"), kind="stable")
    number = np.empty(count, np.int64)
    number[codes[first]] = rank
    representative = np.empty(count, np.int64)
    representative[rank] = first
    return number[codes], representative


def _by_phase(offset: np.ndarray, first: np.ndarray, nodes: pd.DataFrame, iteration: np.ndarray) -> np.ndarray:
    """Sort key of layers: their offset inside the iteration. Phases (prefill, decode) follow one another because
    the offset of a later phase's layers is raised by the longest offset of all earlier phases. What only ever ran
    as warm-up comes last: no table shows it, and the layers that are shown begin at 1."""
    models = nodes[nodes["level"].to_numpy() == int(Level.MODEL)]
    if not len(models):
        return offset
    phase = pd.factorize(models["folded_id"].to_numpy())[0]
    measured = np.bincount(phase, weights=~models["is_warmup_text"].to_numpy()) > 0
    phase = np.argsort(np.argsort(~measured, kind="stable"), kind="stable")[phase]
    of_iteration = np.zeros(int(models["iteration_index"].max()) + 2, np.int64)
    of_iteration[models["iteration_index"].to_numpy()] = phase
    span = int(np.abs(offset).max(initial=0)) + 1
    return np.where(iteration[first] >= 0, of_iteration[iteration[first]] * span, 0) + offset


def _describe_layers(
    nodes: pd.DataFrame, names: NodeNames, paths: pd.DataFrame, relative: np.ndarray, representative: np.ndarray, call:
    np.ndarray, is_self: np.ndarray,
) -> pd.DataFrame:  # fmt: skip
    path, selves = relative[representative], is_self[representative]
    name, whole = _path_texts(paths, names.folded_names, path)
    of_model = selves & (nodes["level"].to_numpy()[representative] == int(Level.MODEL))
    for called, separator in ((name, " "), (whole, PATH_SEPARATOR)):
        called[selves] += f"{separator}{SELF}"
        called[of_model] = SELF
    layer_type = names.node_text("layer_type", representative)
    shape = names.node_text("shape_text", representative)
    texts = {
        "layer_path": whole,
        "layer_name": name,
        "layer_type": np.where(selves, SELF, np.where(layer_type == "", name, layer_type)),
        "shape_text": np.where(selves, "", shape),
    }
    return pd.DataFrame(
        {
            "layer_index": np.arange(1, len(representative) + 1),
            "node_id": representative,
            **{column: to_arrow(values).to_pandas() for column, values in texts.items()},
            "call_index": call,
            "is_self": selves,
        }
    )


def _path_texts(paths: pd.DataFrame, texts: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last text of each wanted path, and all of them joined."""
    of_path = texts[paths["folded_id"].to_numpy()]
    last, above = of_path[wanted], paths["parent_path"].to_numpy()[wanted]
    whole, inner = last.copy(), np.flatnonzero(above >= 0)
    codes, parents = pd.factorize(above[inner])  # many layers have one parent
    chains = layering.path_chains(paths, parents)
    begin = [PATH_SEPARATOR.join([*of_path[chains[parent]].tolist(), ""]) for parent in parents.tolist()]
    whole[inner] = np.array(begin, object)[codes] + last[inner]
    return last, whole
