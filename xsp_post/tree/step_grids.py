"""Trace → Tree, step "sizes of inference steps", where no text says them: tokens by the grids of kernels that run one
block a token; kind, requests and context by the order of a prefill and its decodes."""

import numpy as np
import pandas as pd

from xsp_post.model.trace import ActivityKind
from xsp_post.model.tree import Tree
from xsp_post.names.families import families, matches
from xsp_post.names.step_texts import DECODE, PREFILL

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
