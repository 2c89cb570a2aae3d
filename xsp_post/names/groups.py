"""Process groups of a job, as its recordings name them → one text a group, its ranks, and the axis of the mesh.

The text is the same on every rank of the group: ``mesh_tp 0-7``, ``DATA_PARALLEL_GROUP 1-61:4``, ``default_pg 0,3``.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

_LONGEST = 80  # characters of a name
_MOST_RANKS = 1 << 14
_RANKS = re.compile(r" (?:(\d+)-(\d+)(?::(\d+))?|(\d+(?:,\d+)*))(?: #\S*)?$")
# Axis of the mesh, and the words by which Megatron, DeepSpeed, torchtitan, vLLM and SGLang name its groups.
_AXES = (
    ("data", r"data|ddp|fsdp|hsdp|dp"),
    ("tensor", r"tensor|tp"),
    ("pipeline", r"pipeline|pipe|pp|embedding"),
    ("context", r"context|sequence|cp|sp|ulysses|ring"),
)
_EXPERT = re.compile(r"(?<![a-z])(?:expert|ep|moe)(?![a-z])")
_PATTERNS = tuple((axis, re.compile(rf"(?<![a-z])(?:{words})(?![a-z])")) for axis, words in _AXES)


def group_text(label: str, ranks: Sequence[int], name: str = "") -> str:
    """``label``: what the program calls the axis; ``ranks``: of the group, in its order, none unknown; ``name``: tells
    groups of equal ranks apart. '' where nothing is known."""
    said = re.sub(r"\s+", "_", label or name)[:_LONGEST]
    if not said:
        return ""
    if not ranks:
        return f"{said} #{name[:_LONGEST]}"
    return f"{said} {_ranks_text(ranks)}" + (f" #{name[:_LONGEST]}" if label and name else "")


def _ranks_text(ranks: Sequence[int]) -> str:
    strides = {after - before for before, after in pairwise(ranks)}
    if len(strides) == 1 and min(strides) > 0:
        stride = strides.pop()
        return f"{ranks[0]}-{ranks[-1]}" + (f":{stride}" if stride > 1 else "")
    return ",".join(map(str, ranks))


def ranks_of_group(text: str) -> list[int]:
    """The ranks of a group, in its order; none where the text does not say them."""
    found = _RANKS.search(text)
    if found is None:
        return []
    first, last, stride, listed = found.groups()
    if listed:
        return [int(rank) for rank in listed.split(",")][:_MOST_RANKS]
    return list(range(int(first), int(last) + 1, max(int(stride or 1), 1))[:_MOST_RANKS])


def axis_of_group(text: str) -> str:
    """data, tensor, pipeline, context, expert, or several of them joined by ``+``; '' where the name says none."""
    said = text.partition(" ")[0].lower()
    axes = [axis for axis, pattern in _PATTERNS if pattern.search(said)]
    return "+".join(axes) or ("expert" if _EXPERT.search(said) else "")
