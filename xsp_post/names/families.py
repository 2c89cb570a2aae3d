"""Kernel name → its family, and the name without parts that differ between builds.

The rules are lines of families.txt, tried from top to bottom: the first pattern found in the name decides. They look at
names only, so a family is a guess: a kernel that hides its purpose is ``other``. tests/names/kernel_names.tsv holds
names with the family that is right.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.base.texts import read_blocks
from xsp_post.names import patterns

OTHER = "other"
# Family → the broad family that it is a part of; → the part of a model that it stands for.
BROAD, ROLES = (block.texts() for block in read_blocks(Path(__file__).with_name("family_names.txt")))
FAMILIES = tuple(BROAD)
# Families whose time is arithmetic of matrix products.
PRODUCTS = ("gemm", "expert_gemm", "convolution", "attention", "state_space")


class Rule(NamedTuple):
    """One line of families.txt: the family, the pattern (any case, searched anywhere), and why."""

    family: str
    pattern: str
    why: str


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(Rule(*line) for line in patterns.read_rules(Path(__file__).with_name("families.txt"), 1))


@cache
def _compiled() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(rule.pattern, re.IGNORECASE) for rule in rules())


BACKWARD_PATTERN = r"backward|dgrad|wgrad|_bwd|bwd_|_grad_|grad_(?:input|weight|bias)|bw_(?:tr|1C)"


def rule_index(names: Iterable[str]) -> np.ndarray:
    """Index into `rules` of the rule that decides each name, −1 for none. int16, shape (n,).

    Patterns run over the unique names only.
    """
    codes, different = _different(names)
    found = _first_rules(different)
    return found[codes] if len(found) else np.empty(0, dtype=np.int16)


def family_index(names: Iterable[str]) -> np.ndarray:
    """The family of each kernel name as an index into `FAMILIES`: int8, shape (n,)."""
    table = np.array([FAMILIES.index(name) for name in (*(rule.family for rule in rules()), OTHER)], np.int8)
    return table[rule_index(names)]


def families(names: Iterable[str], *, broad: bool = False) -> np.ndarray:
    """The family of each kernel name, or its broad family: object array of texts, shape (n,)."""
    table = np.array([BROAD[name] if broad else name for name in FAMILIES], dtype=object)
    return table[family_index(names)]


def is_of_family(names: pd.Series, family: str) -> np.ndarray:
    """Which names are of one family; bool, shape (n,). Of a categorical column only the texts in use are looked at."""
    return _of_each(names, lambda texts: families(texts) == family)


def joins_ranks(names: pd.Series) -> np.ndarray:
    """Which kernels exchange data with other ranks, so that they last until these have come: communication, and what
    sends tokens to the ranks of their experts (the first rule of dispatch); bool, shape (n,)."""
    families_of = [rule.family for rule in rules()]
    sends = families_of.index("dispatch")
    joining = [k for k, family in enumerate(families_of) if family == "communication" or k == sends]
    return _of_each(names, lambda texts: np.isin(rule_index(texts), joining))


def _of_each(names: pd.Series, which: Callable[[Iterable[str]], np.ndarray]) -> np.ndarray:
    if not isinstance(names.dtype, pd.CategoricalDtype):
        return which(names.astype(object))
    return np.append(which(names.cat.categories), False)[names.cat.codes.to_numpy()]


def matches(names: Iterable[str], pattern: str) -> np.ndarray:
    """Whether the pattern is found in each name, ignoring case; bool, shape (n,)."""
    codes, different = _different(names)
    return patterns.found_in([name[:_LONGEST] for name in different], f"(?i){pattern}")[codes]


# A name longer than this says what it is in its first part; hostile names must not cost time.
_LONGEST = 2000


@lru_cache(1 << 14)
def _first_rule(name: str) -> int:
    for index, pattern in enumerate(_compiled()):
        if pattern.search(name):
            return index
    return -1


_known: list[dict[str, int]] = [{}]  # the kernels of one capture are asked for several times


def _first_rules(names: Sequence[str]) -> np.ndarray:
    """`_first_rule` of different names."""

    def by_re2(texts: pa.Array, names: Sequence[str]) -> np.ndarray:
        return patterns.first_match(texts, [rule.pattern for rule in rules()], ignore_case=True)

    known = _known[0] = _known[0] if len(_known[0]) < 1 << 16 else {}
    new = [name for name in names if name not in known]
    known.update(zip(new, patterns.looked_at([name[:_LONGEST] for name in new], by_re2, _first_rule).tolist()))
    return np.array([known[name] for name in names], np.int16)


def _different(names: Iterable[str]) -> tuple[np.ndarray | slice, tuple[str, ...]]:
    """The different names, and which of them each is; categories differ, and know it."""
    if isinstance(names, pd.Index) and names.is_unique:
        return slice(None), tuple(map(str, names.tolist()))
    array = names if isinstance(names, np.ndarray) else np.array(list(names), object)
    codes, different = pd.factorize(array.astype(object, copy=False))
    return codes, tuple(map(str, different))


# ---------------------------------------------------------------- names without what varies

_UNNAMED = re.compile(r"<unnamed>|\(anonymous namespace\)|\{anonymous\}|_GLOBAL__N_\w+")
_INNERMOST = re.compile(r"<[^<>]*>")
_ARGUMENTS = re.compile(r"\([^()]*\)")
_RETURN = re.compile(r"^(?:void|int|float|bool|__global__)\s+")
_TRITON_NUMBERS = re.compile(r"(?<=[a-z])_\d+(?:d\d*c?e?)?(?:_\d+)*(?:de)*$")
_ANY_SUFFIX = re.compile(r"(?:__kernel)?(?:_\d+)+$")


def normalise_kernel_name(names: Iterable[str]) -> np.ndarray:
    """Kernel names without what changes between builds and compilations; object array, shape (n,).

    Return type, argument list, unnamed namespaces and everything in angle brackets go, and the running numbers that
    inductor and Triton append (``triton_poi_fused_add_3`` and ``…_7`` are one kernel). A name never becomes empty: if
    nothing would be left, it stays.
    """
    codes, uniques = _different(names)
    done = np.array([_normalise(str(name)) for name in uniques], dtype=object)
    return done[codes] if len(done) else np.empty(0, dtype=object)


def _normalise(name: str) -> str:
    text = _UNNAMED.sub("", name[:_LONGEST]).replace("::::", "::").replace("<>", "")
    text = _strip_nested(_INNERMOST, text)
    text = _strip_nested(_ARGUMENTS, text).split("<", 1)[0].split("(", 1)[0]
    text = _RETURN.sub("", text.strip()).strip()
    text = text.removeprefix("::")
    is_generated = text.startswith("triton_") or "_fused_" in text
    return (_ANY_SUFFIX if is_generated else _TRITON_NUMBERS).sub("", text) or name


def _strip_nested(pattern: re.Pattern[str], text: str) -> str:
    """Remove innermost pairs until none is left (at most 32 deep: names are hostile)."""
    for _ in range(32):
        shorter = pattern.sub("", text)
        if shorter == text:
            break
        text = shorter
    return text
