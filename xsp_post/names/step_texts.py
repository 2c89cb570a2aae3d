"""Texts of inference steps → kind and sizes of the step, by the dialects of step_texts.txt.

A size counts requests, tokens or products of them over all requests of a step: q tokens of a request are computed and
attend to k keys. What a text does not say is −1. A kind is what the counts of both parts say, else the text's word.
"""

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.texts import Block, read_blocks
from xsp_post.names.patterns import groups, matches, numbers, one_chunk, to_arrow

# Name in step_texts.txt → column of iterations.
SIZES = {
    "requests": "batch_size", "tokens": "token_count", "keys": "key_count", "squares": "query_square_count",
    "products": "query_key_count", "longest": "longest_key_count", "bucket": "graph_bucket_count",
}  # fmt: skip
_OF_KIND = ("requests", "tokens")
PREFILL, DECODE, MIXED, VERIFY, IDLE = "prefill", "decode", "mixed", "verify", "idle"
_NUMBER = r"(?P<n>\d{1,15})"
OWN, ANY = "xsp", "any"


class Dialect(NamedTuple):
    """One block of step_texts.txt; ``sizes``: (part "", "c" or "g", size, pattern) in order."""

    name: str
    like: str
    text: str
    fold: tuple[str, str]
    mode: str
    sizes: tuple[tuple[str, str, str], ...]


class Steps(NamedTuple):
    """What texts of one dialect say: shape (n,) each; ``sizes`` by column of iterations, int64, −1 unknown."""

    folded_name: pa.Array
    kind: np.ndarray
    sizes: dict[str, np.ndarray]


@cache
def _blocks() -> dict[str, Block]:
    return {block.name: block for block in read_blocks(Path(__file__).with_name("step_texts.txt"))}


@cache
def dialects() -> dict[str, Dialect]:
    """The dialects in order."""
    return {name: _dialect(block) for name, block in _blocks().items() if name != "kinds"}


@cache
def kind_of_word() -> dict[str, str]:
    return {word: kind for kind, words in _blocks()["kinds"].texts().items() for word in words.split()}


def _dialect(block: Block) -> Dialect:
    lines = [(key, value) for key, _, value in (line.partition(": ") for _, line in block.lines)]
    one = dict(lines)
    fold, _, kept = one.get("fold", "").partition(" -> ")
    sizes = []
    for key, pattern in lines:
        part, _, size = key.rpartition(".")
        if size in SIZES:
            sizes.append((part, size, pattern.replace("#", _NUMBER, 1)))
    mode = one.get("mode", "").replace("(", "(?P<n>", 1)
    return Dialect(block.name, one["like"], one.get("text", ""), (fold, kept), mode, tuple(sizes))


def read_steps(array: pa.Array, dialect: Dialect, sizes: Collection[str] = SIZES) -> Steps:
    """What texts say that are all of one dialect; of ``sizes`` those that the kind needs, at least."""
    asked = {*sizes, *_OF_KIND}
    known = {(part, size): np.full(len(array), -1, np.int64) for part in ("", "c", "g") for size in asked}
    for part, size, pattern in dialect.sizes:
        if size in asked:
            values = known[part, size]
            values[:] = np.where(values >= 0, values, numbers(groups(array, pattern)["n"]))
    kind = _kinds(array, dialect, known)
    _one_token_each(known, kind)
    folded = pc.replace_substring_regex(array, *dialect.fold) if dialect.fold[0] else array
    if not dialect.mode:  # no word of the text tells its kinds apart
        said = np.where(kind != "", " (" + kind + ")", "")
        folded = pc.binary_join_element_wise(folded, pa.array(said, folded.type), pa.scalar("", folded.type))
    return Steps(one_chunk(folded), kind, {SIZES[size]: _whole(known, size, kind) for size in sizes})


def _one_token_each(known: dict[tuple[str, str], np.ndarray], kind: np.ndarray) -> None:
    """Requests that generate compute one token each, where nothing says how many."""
    generation, tokens = known["g", "requests"], known["g", "tokens"]
    generation = np.where((generation < 0) & (kind == DECODE), known["", "requests"], generation)
    tokens[:] = np.where((tokens < 0) & (known["", "tokens"] < 0) & np.isin(kind, (DECODE, MIXED)), generation, tokens)


def _whole(known: dict[tuple[str, str], np.ndarray], size: str, kind: np.ndarray) -> np.ndarray:
    """The sum of both parts, where each is known or not there; else what is said of all; −1 unknown."""
    parts = []
    for part, kinds_without in (("c", (DECODE, VERIFY)), ("g", (PREFILL,))):
        is_absent = (known[part, "requests"] == 0) | np.isin(kind, kinds_without)
        parts.append(np.where(is_absent & (known[part, size] < 0), 0, known[part, size]))
    context, generation = parts
    found = np.where((context >= 0) & (generation >= 0), context + generation, -1)
    return np.where(found > 0, found, np.where(known["", size] > 0, known["", size], -1))


def _kinds(array: pa.Array, dialect: Dialect, known: dict[tuple[str, str], np.ndarray]) -> np.ndarray:
    """The kind of each step, "" where nothing says it; object."""
    kind = np.full(len(array), "", object)
    if dialect.mode:
        words = groups(array, dialect.mode)["n"].dictionary_encode()
        lower = [word.lower() for word in words.dictionary.to_pylist()]
        kind = np.array([kind_of_word().get(word, word) for word in lower] or [""], object)[np.asarray(words.indices)]
    context, generation = known["c", "requests"], known["g", "requests"]
    kind[(context > 0) & (generation > 0)] = MIXED
    if not dialect.mode:
        kind[(context > 0) & (generation == 0)] = PREFILL
        kind[(context <= 0) & (generation > 0)] = DECODE
        kind[(context == 0) & (generation == 0)] = IDLE
    # more than one token of each request at once: drafted tokens are verified
    several = np.where(generation >= 0, generation, known["", "requests"])
    tokens = np.where(known["g", "tokens"] >= 0, known["g", "tokens"], known["", "tokens"])
    if dialect.name != OWN:  # what the program itself calls it stands
        kind[(kind == DECODE) & (several > 0) & (tokens > several)] = VERIFY
    return kind


def step_sizes(texts: np.ndarray, *, of_engines: bool = False) -> dict[str, np.ndarray]:
    """Sizes that the texts of model executions name, by column of iterations: int64, shape (n,), −1 unknown.
    ``of_engines``: only texts of a known dialect say any."""
    array = to_arrow(texts).dictionary_encode()
    different, codes = array.dictionary, np.asarray(array.indices)
    found = {column: np.full(len(different) + 1, -1, np.int64) for column in SIZES.values()}
    open_rows = np.arange(len(different))
    for dialect in dialects().values():
        if dialect.name == ANY and of_engines:
            break
        mine = matches(different.take(pa.array(open_rows)), dialect.text)
        rows, open_rows = open_rows[mine], open_rows[~mine]
        if len(rows):
            for column, values in read_steps(different.take(pa.array(rows)), dialect).sizes.items():
                found[column][rows] = values
    return {column: values[codes] for column, values in found.items()}


def capture_size(texts: np.ndarray) -> np.ndarray:
    """The size of the batch that texts name a graph's capture by (``capture_32_FULL``, ``bs_8_rank0``); int64, −1."""
    return read_steps(to_arrow(texts), dialects()["capture"]).sizes["batch_size"]
