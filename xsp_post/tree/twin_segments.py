"""Two captures → which replay of a graph repeats which recording of one (`--layers-from`).

What was launched between begin and end of a stream's capture is a *segment*. A replay repeats the segment with the same
kernels in the same order (or, where a graph has branches, the same kernels). Where the calls name no kernels (CUDA), it
repeats the segment with as many launches, as long as kernels of one name then have one operator that launched them. Of
several equal ones, recorded for several batch sizes, the smallest that holds the replay's batch is meant; segments that
follow one another (piecewise graphs) are met in their order.
"""

import numpy as np
import pandas as pd

from xsp_post.arrays.alignment import align
from xsp_post.arrays.forest import forest_of
from xsp_post.arrays.texts import Strings
from xsp_post.model.trace import Trace
from xsp_post.names.step_texts import capture_size, step_sizes
from xsp_post.tree.layering import occurrence
from xsp_post.tree.structure.hashes import random_words

_POSITIONS = 1 << 24
# So many of a replay's kernels must have the operator that most of their name have, where only their number agrees.
_LEAST_AGREEING = 0.9


def segments_of(trace: Trace) -> np.ndarray:
    """Number of the graph capture that each launch call was recorded in, −1 none; int64, shape (launches,)."""
    launches = trace.launches
    name, process = launches["name_id"].to_numpy(), launches["process_index"].to_numpy()
    at, result, count = launches["start_ns"].to_numpy(), np.full(len(launches), -1, np.int64), 0
    is_begin, is_end = (_calls(trace.strings, name, word) for word in ("StreamBeginCapture", "StreamEndCapture"))
    for one in np.unique(process[is_begin]).tolist():
        mine = np.flatnonzero(process == one)
        begin, end = (np.sort(at[mine[mask[mine]]]) for mask in (is_begin, is_end))
        if not len(end):
            continue
        place = np.searchsorted(begin, at[mine], side="left") - 1
        until = np.append(end, -1)[np.searchsorted(end, begin, side="left")]
        inside = (place >= 0) & (at[mine] < until[np.maximum(place, 0)])
        result[mine[inside]] = count + place[inside]
        count += len(begin)
    return result


def _calls(strings: Strings, name: np.ndarray, word: str) -> np.ndarray:
    """Which launches call a function whose name holds a word."""
    codes, used = pd.factorize(name)
    return np.array([one >= 0 and word in str(strings[one]) for one in used.tolist()] + [False], bool)[codes]


def kernel_calls(trace: Trace) -> np.ndarray:
    """Which launch calls were recorded into a graph as a kernel, as their name says; bool per launch."""
    name = trace.launches["name_id"].to_numpy()
    launches = _calls(trace.strings, name, "Launch") & ~_calls(trace.strings, name, "GraphLaunch")
    return launches & ~_calls(trace.strings, name, "LaunchHost") & (segments_of(trace) >= 0)


def replays_of(trace: Trace, launch_id: np.ndarray) -> np.ndarray:
    """Which launches start a graph; bool per entry of ``launch_id`` (−1: no launch)."""
    return np.append(_calls(trace.strings, trace.launches["name_id"].to_numpy(), "GraphLaunch"), False)[launch_id]


def sizes_around(nodes: pd.DataFrame, strings: Strings, *, of_capture: bool) -> np.ndarray:
    """The batch (or tokens) that the nearest text at or above each node names, −1 none; int64 per node.

    of_capture: the size that a graph is recorded for, as in ``capture_32_FULL``; else that of a step.
    """
    codes, used = pd.factorize(nodes["name_id"].to_numpy())
    texts = np.array([str(strings[one]) if one >= 0 else "" for one in used.tolist()] + [""], object)
    found = step_sizes(texts)
    size = (
        capture_size(texts)
        if of_capture
        else np.where(found["token_count"] > 0, found["token_count"], found["batch_size"])
    )
    size = size[codes]
    nearest = forest_of(nodes["parent_id"].to_numpy()).nearest(size >= 0)
    return np.append(size, -1)[nearest]


def match(known: pd.DataFrame, replayed: pd.DataFrame) -> np.ndarray:
    """Row of ``known`` that each replayed kernel repeats, −1 none; int64.

    known: recorded launches in order: segment, name, bucket (size it was recorded for, −1), call (name, or of a kernel
    without a name what launched it); replayed: kernels in order: replay (number, equal ones adjacent), name, size
    (−1 unknown), graph_node_id (0 unknown; needed where names are).
    """
    if not len(known) or not len(replayed):
        return np.full(len(replayed), -1, np.int64)
    names, _ = pd.factorize(np.concatenate([known["name"].to_numpy(object), replayed["name"].to_numpy(object)]))
    left, right = names[: len(known)], names[len(known) :]
    segment, segments = _contents(known["segment"].to_numpy(), left, known["bucket"].to_numpy())
    replay, replays = _contents(replayed["replay"].to_numpy(), right, replayed["size"].to_numpy())
    met = _met(segments, replays, "sequence")
    met = np.where(met >= 0, met, _met(segments, replays, "kernels"))
    width = int(names.max()) + 1
    known_key = pd.MultiIndex.from_arrays([segment, left, occurrence(segment * width + left, np.arange(len(left)))])
    order = occurrence(replay * width + right, np.arange(len(right)))  # the k-th of a name is the k-th of that name
    found = known_key.get_indexer(pd.MultiIndex.from_arrays([met[replay], right, order]))
    if (known["call"] == known["name"]).all() or (found >= 0).all():
        return found
    call, name = pd.factorize(known["call"])[0], right
    met = np.where(met >= 0, -1, _met(segments, replays, "count"))
    known_key = pd.MultiIndex.from_arrays([segment, occurrence(segment, np.arange(len(segment)))])
    best = found
    recorded = np.argsort(replayed["graph_node_id"].to_numpy(), kind="stable")
    for at in (np.arange(len(replay)), recorded):  # as they ran, as they were recorded
        row = known_key.get_indexer(pd.MultiIndex.from_arrays([met[replay], occurrence(replay, at)]))
        row = _agreeing(row, replay, name, call)
        best = np.where(found >= 0, found, row) if (row >= 0).sum() > ((best >= 0) & (found < 0)).sum() else best
    return best


def _agreeing(row: np.ndarray, replay: np.ndarray, name: np.ndarray, call: np.ndarray) -> np.ndarray:
    """The same rows of ``known``, −1 in replays whose kernels have other operators than most of their name."""
    pairs = pd.DataFrame({"name": name, "call": call[row], "replay": replay, "row": row})[row >= 0]
    most = pairs.groupby("name")["call"].agg(lambda calls: calls.mode().iloc[0])
    agrees = (pairs["call"] == pairs["name"].map(most)).groupby(pairs["replay"]).mean()
    return np.where(pd.Series(replay).map(agrees).to_numpy() >= _LEAST_AGREEING, row, -1)


def _contents(group: np.ndarray, name: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, pd.DataFrame]:
    """Number of the group of each row; per group its size, its count, and two hashes, of the sequence and of the set of
    kernels."""
    codes, groups = pd.factorize(group)
    place = occurrence(codes, np.arange(len(codes)))
    frame = pd.DataFrame({"size": size[np.searchsorted(codes, np.arange(len(groups)))], "count": np.bincount(codes)})
    for column, words in (("sequence", name * np.int64(_POSITIONS) + place), ("kernels", name)):
        total = np.zeros(len(groups), np.uint64)
        np.add.at(total, codes, random_words(words.astype(np.int64)))
        frame[column] = total
    return codes.astype(np.int64), frame


def _met(segments: pd.DataFrame, replays: pd.DataFrame, content: str) -> np.ndarray:
    """The segment of equal content that each replay repeats, −1 none; int64, shape (replays,)."""
    codes, _ = pd.factorize(np.concatenate([segments[content].to_numpy(), replays[content].to_numpy()]))
    left = pd.DataFrame({"content": codes[: len(segments)], "size": segments["size"].to_numpy(np.int64)})
    right = pd.DataFrame({"content": codes[len(segments) :], "size": replays["size"].to_numpy(np.int64)})
    buckets = left.drop_duplicates().sort_values("size").assign(bucket=lambda frame: frame["size"])
    wanted = right.reset_index().sort_values("size", kind="stable")
    chosen = np.full(len(right), -2, np.int64)
    for direction in ("backward", "forward"):  # the smallest that is large enough, else the largest
        found = pd.merge_asof(wanted, buckets, on="size", by="content", direction=direction)
        has = found["bucket"].notna().to_numpy()
        chosen[found["index"].to_numpy()[has]] = found["bucket"].to_numpy()[has].astype(np.int64)
    pairs = pd.concat([left, right.assign(size=chosen)])
    symbols, _ = pd.factorize(pd.MultiIndex.from_frame(pairs))
    return align(symbols[: len(left)].astype(np.int64), symbols[len(left) :].astype(np.int64), seed_length=1)
