"""Trace → Tree, step "sizes of inference steps": requests, tokens and keys of each model execution, by its text or by
that of the one step around it or inside it; and the host's gap before it. Where no text says them: tokens by the grids
of kernels that run one block a token; kind, requests and context by the order of a prefill and its decodes."""

import numpy as np
import pandas as pd

from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Tree
from xsp_post.names.families import families, matches
from xsp_post.names.step_texts import DECODE, PREFILL, SIZES, kind_of_word, step_sizes
from xsp_post.tree.kinds import FORWARD, PASS, STEP
from xsp_post.tree.twin_segments import replays_of

# Families whose kernels mostly have one block, or one row of blocks, for each token; but not those over all elements.
# So many families must agree.
_BLOCK_A_TOKEN = ("cache", "rope", "normalisation", "activation", "dispatch", "quantisation", "embedding")
_OVER_ELEMENTS, _AGREEING = r"elementwise|LargeIndex|triton_", 2
# A prefill has so many times the tokens of each of at least so many decodes of one size that follow it.
_SHORTEST_PROMPT, _FEWEST_DECODES = 8, 4


def tokens_by_grid(tree: Tree, wanted: np.ndarray) -> np.ndarray:
    """Tokens of each execution (of ``wanted``, bool) on whose number the grids of two families agree, and of no other
    number as many families; int64, shape (executions,), −1 unknown."""
    tokens, rows = np.full(len(wanted), -1, np.int64), tree.activities
    if "grid_x" not in rows or not wanted.any():
        return tokens
    different, code = np.unique(rows["name_id"].to_numpy(), return_inverse=True)
    names = tree.strings[np.maximum(different, 0)]
    family = np.where(matches(names, _OVER_ELEMENTS), "", families(names))
    iteration = rows["iteration_index"].to_numpy()
    is_kernel = rows["kind"].to_numpy() == ActivityKind.KERNEL
    kept = np.flatnonzero(np.isin(family, _BLOCK_A_TOKEN)[code] & is_kernel & (iteration >= 0) & wanted[iteration])
    place = {"iteration": iteration[kept], "family": pd.Categorical(family[code[kept]])}
    sides = (rows[f"grid_{axis}"].to_numpy()[kept].astype(np.int64) for axis in "xy")
    said = pd.concat([pd.DataFrame({**place, "tokens": side})[side > least] for least, side in enumerate(sides)])
    said = said.drop_duplicates()
    votes = said.groupby(["iteration", "tokens"]).size().rename("votes").reset_index().sort_values("votes")
    best, second = votes.groupby("iteration").nth(-1), votes.groupby("iteration").nth(-2).set_index("iteration")
    rival = best["iteration"].map(second["votes"]).fillna(0)
    best = best[(best["votes"] >= _AGREEING) & (best["votes"] > rival)]
    tokens[best["iteration"]] = best["tokens"]
    return tokens


def by_order(frame: pd.DataFrame, tokens: np.ndarray, is_open: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Kind of each execution ('' unknown, object), and its requests and keys (int64, −1 unknown), where a long
    execution is followed by short ones of equal tokens: one request's token each, and a key more each time.
    ``is_open`` (executions,): no text says what they are."""
    kind, requests, keys = np.full(len(frame), "", object), *(np.full(len(frame), -1, np.int64) for _ in range(2))
    order = np.lexsort((frame["start_ns"], frame["process_index"]))
    place = np.column_stack([frame["process_index"].to_numpy()[order], tokens[order], is_open[order]])
    new = np.append(True, (place[1:] != place[:-1]).any(axis=1))[: len(order)]
    run, first = np.cumsum(new) - 1, np.flatnonzero(new)
    length, before = np.diff(np.append(first, len(order))), np.maximum(first - 1, 0)
    short, whole = tokens[order][first], tokens[order][before]
    follows = (place[first][:, [0, 2]] == place[before][:, [0, 2]]).all(axis=1) & is_open[order][before] & (first > 0)
    follows &= (length >= _FEWEST_DECODES) & (np.roll(length, 1) == 1) & (short > 0)
    follows &= (whole >= _SHORTEST_PROMPT * short) & (whole % np.maximum(short, 1) == 0)
    prompts, decodes = before[follows], np.flatnonzero(follows[run])
    kind[order[prompts]], kind[order[decodes]] = PREFILL, DECODE
    requests[order[prompts]], requests[order[decodes]] = short[follows], short[run[decodes]]
    keys[order[prompts]] = whole[follows]
    mine = run[decodes]
    keys[order[decodes]] = whole[mine] + short[mine] * (decodes - first[mine] + 1)
    return kind, {"batch_size": requests, "key_count": keys}


# Of how many ranges above a model execution the text may say its sizes.
_ABOVE = 3


def sizes_of_steps(tree: Tree, kind: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The kinds of executions, and columns of iterations: sizes of steps, int64, −1 unknown; ``size_source``: text
    (its own), around, inside, grids, order, or '' for none."""
    kind = kind.copy()
    model = tree.iterations["node_id"].to_numpy()
    own = step_sizes(_texts(tree, model))
    known = np.max([own[column] for column in SIZES.values()], axis=0, initial=-1) > 0
    source = np.where(known, "text", "").astype(object)
    parent = tree.nodes["parent_id"].to_numpy()
    is_step = tree.names.node_is("role", "iteration")
    above = model
    for _ in range(_ABOVE if len(model) else 0):
        above = np.where(above > 0, parent[np.maximum(above, 0)], -1)
        times = np.bincount(np.maximum(above, 0), minlength=len(parent))[np.maximum(above, 0)]
        _fill(own, source, "around", np.where((above > 0) & is_step[above] & (times == 1), above, -1), tree, kind)
    _fill(own, source, "inside", _only_step_inside(tree, model, is_step), tree, kind)
    return _without_texts(tree, kind, own, source), {**own, "size_source": source}


def _without_texts(tree: Tree, kind: np.ndarray, own: dict[str, np.ndarray], source: np.ndarray) -> np.ndarray:
    """The kinds of executions. Fills in what the grids of kernels and the order of executions say, and no text."""
    tokens, bucket = own["token_count"], own["graph_bucket_count"]
    is_open = (source == "") & np.isin(kind, (STEP, FORWARD, PASS))
    attends, replays = _with_attention_and_graphs(tree)
    # a graph is replayed for as many requests as it was made for
    is_padded = replays & (bucket < 0) & (tokens > 0) & (tokens == own["batch_size"])
    found = tokens_by_grid(tree, attends & (tokens < 0) & (is_open | (source != "")) | is_padded)
    bucket[:] = np.where(is_padded & (found >= tokens), found, bucket)
    fresh = (tokens < 0) & (found > 0)
    tokens[fresh] = found[fresh]
    ordered, sizes = by_order(tree.iterations, tokens, is_open & fresh)
    for word, rows in (("grids", fresh), ("order", ordered != "")):
        source[rows] = np.where(source[rows] == "", word, source[rows] + f", {word}")
    for column, values in sizes.items():
        own[column] = np.where(own[column] < 0, values, own[column])
    return np.where(ordered != "", ordered, kind)


def _with_attention_and_graphs(tree: Tree) -> tuple[np.ndarray, np.ndarray]:
    """Executions with a kernel of attention, and those with replayed graphs; bool, shape (executions,)."""
    activities, count = tree.activities, len(tree.iterations)
    iteration, name = activities["iteration_index"].to_numpy(), activities["name_id"].to_numpy()
    code, different = pd.factorize(name)
    is_attention = (families(tree.strings[np.maximum(different, 0)]) == "attention")[code]
    rows = (is_attention, replays_of(tree.trace, activities["launch_id"].to_numpy()))
    return tuple(np.bincount(iteration[one & (iteration >= 0)], minlength=count) > 0 for one in rows)  # type: ignore[return-value]


def _only_step_inside(tree: Tree, model: np.ndarray, is_step: np.ndarray) -> np.ndarray:
    """The node of the one step text inside each execution, −1 for none or several."""
    is_inside = is_step.copy()
    is_inside[model] = False
    inside = np.flatnonzero(is_inside & (tree.nodes["iteration_index"].to_numpy() >= 0))
    index = tree.nodes["iteration_index"].to_numpy()[inside]
    single = np.bincount(index, minlength=len(model)) == 1
    found = np.full(len(model), -1, np.int64)
    found[index] = inside
    return np.where(single, found, -1)


def _fill(
    own: dict[str, np.ndarray], source: np.ndarray, word: str, nodes: np.ndarray, tree: Tree, kind: np.ndarray
) -> None:
    """Sizes and kinds that are still unknown, from the texts of these nodes (−1 none)."""
    rows = np.flatnonzero(nodes >= 0)
    if not len(rows):
        return
    found = step_sizes(_texts(tree, nodes[rows]), of_engines=True)
    fresh = np.zeros(len(rows), bool)
    for column, values in found.items():
        missing = (own[column][rows] < 0) & (values > 0)
        own[column][rows[missing]] = values[missing]
        fresh |= missing
    at = rows[fresh]
    said = tree.names.node_text("phase", nodes[at]).astype(object)
    is_open = np.isin(kind[at], (STEP, FORWARD, PASS)) & np.isin(said, [*kind_of_word().values()])
    kind[at[is_open]] = said[is_open]
    source[at] = np.where(source[at] == "", word, source[at] + f", {word}")


def _texts(tree: Tree, nodes: np.ndarray) -> np.ndarray:
    """The texts of nodes as captured, '' for none; object."""
    name = tree.nodes["name_id"].to_numpy()[nodes]
    texts = tree.strings[np.maximum(name, 0)] if len(tree.strings) else np.full(len(name), "", object)
    return np.where(name >= 0, texts, "").astype(object)


def host_gaps(frame: pd.DataFrame) -> np.ndarray:
    """From the end of each execution, its last device work included, to the start of the next one of its process,
    whatever its phase; 0 where they overlap. Float ns, NaN for the first ones."""
    start, process = frame["start_ns"].to_numpy(), frame["process_index"].to_numpy()
    end = start + frame["latency_ns"].to_numpy()
    order = np.lexsort((start, process))
    here, following = order[:-1], order[1:]
    gap = np.full(len(frame), np.nan)
    same = process[here] == process[following]
    gap[following[same]] = np.maximum(start[following] - end[here], 0)[same]
    return gap
