"""Plain texts of no known convention, all at once by patterns: what they count, what phase they name, what they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.texts import read_patterns
from xsp_post.names.heads import Words
from xsp_post.names.patterns import digits_in, first_match, groups, numbers, possible

_PATTERNS = read_patterns(Path(__file__).with_name("plain.txt"))
WARMUP_WORD, WARMUP, _COUNTED, _STEP, _NUMBERED_INSIDE, _NUMBERED = (
    _PATTERNS[name] for name in ("warm-up word", "warm-up", "counted", "step", "numbered inside", "numbered")
)
_PHASES, _ROLE_WORDS = (
    [(name.removeprefix(kind), pattern) for name, pattern in _PATTERNS.items() if name.startswith(kind)]
    for kind in ("phase ", "role ")
)


def parse_plain(array: pa.Array) -> dict[str, Any]:
    """Texts of no known convention: n heads → columns of n, words as `Words`.

    Folds numbers that count (`Step 5`, `iter_12/100`, `micro-batch 3`), ranks, addresses and very long numbers
    away; all other numbers stay, they are part of a name (`3D_backbone`, `layer 3`, `block_3`).
    """
    step, hashed = np.full(len(array), -1, np.int64), np.full(len(array), -1, np.int64)
    folded = array
    rows = np.flatnonzero(digits_in(array))
    if len(rows):
        some = array.take(pa.array(rows))
        folded = _with_rows(array, rows, fold_plain(some))
        step[rows], hashed[rows] = _counts(some), numbers(groups(some, r"#(?P<x>\d{1,18})$")["x"])
    words = first_match(folded, [pattern for _, pattern in _ROLE_WORDS])
    is_marker = words == 0
    kind = _kinds(folded, words == len(_ROLE_WORDS) - 1)
    phase = first_match(array, [pattern for _, pattern in _PHASES])
    named = [name for name, _ in _PHASES]
    return {
        # a text that only counts (`Step 5`, `iteration 3`) is a step marker; `loss step 3 of x` is a plain text
        "dialect": Words(["plain", "step"], (words == 0).astype(np.int8)),
        "role": Words(["", *(role for role, _ in _ROLE_WORDS)], words + 1),
        "folded_name": folded,
        "base_name": folded,
        "layer_type": kind,
        "phase": Words(["", *named], phase + 1),
        "step_index": np.where(step >= 0, step, np.where(is_marker, hashed, -1)),
        "call_index": np.where(is_marker, -1, hashed),
        "is_backward": phase == named.index("backward"),
    }


def _with_rows(array: pa.Array, rows: np.ndarray, values: pa.Array) -> pa.Array:
    """The texts, those of some rows replaced."""
    if len(rows) == len(array):
        return values
    mask = np.zeros(len(array), bool)
    mask[rows] = True
    return pc.replace_with_mask(array, pa.array(mask), values)


def _counts(array: pa.Array) -> np.ndarray:
    """The number of the step that a text names, else any number that counts, −1 for none."""
    found, rows = np.full(len(array), -1, np.int64), possible(array, [_STEP, _COUNTED])
    if len(rows):
        some = array.take(pa.array(rows))
        step = numbers(groups(some, _STEP)["x"])
        found[rows] = np.where(step >= 0, step, numbers(groups(some, _COUNTED)["number"]))
    return found


def _kinds(folded: pa.Array, is_module: np.ndarray) -> pa.Array:
    """Texts without the number at their end, which tells things of one kind apart, and modules also without those
    inside their names (`layer_3_forward`)."""
    rows = np.flatnonzero(digits_in(folded))
    if not len(rows):
        return folded
    kind = pc.replace_substring_regex(folded.take(pa.array(rows)), _NUMBERED, r"\1")
    starred = pc.replace_substring_regex(kind, _NUMBERED_INSIDE, r"\1*\2")
    return _with_rows(folded, rows, pc.if_else(pa.array(is_module[rows]), starred, kind))


_CHANGING = (_COUNTED, r"(?i)rank[ _=:#]*\d+", r"0x[0-9a-fA-F]{6,16}", r"(^|[^\w.])\d{6,}([^\w.]|$)", r"#\d{1,18}$")


def fold_plain(array: pa.Array) -> pa.Array:
    """Plain texts without numbers that change from step to step; a text is only touched where one was found."""
    rows = possible(array, _CHANGING)
    return _with_rows(array, rows, _folded(array.take(pa.array(rows)))) if len(rows) else array


def _folded(array: pa.Array) -> pa.Array:
    # inside a name the number leaves a star (`token_*_processing`), at its end or before a word nothing
    inside = pc.replace_substring_regex(array, _COUNTED + r"(?P<next>[_.\-]+[A-Za-z])", r"\1\2*\4")
    counted = pc.replace_substring_regex(inside, _COUNTED, r"\1\2")
    # beside a counter, a fraction is a measurement (`iteration 12: loss 0.33`), not a name
    measured = pc.replace_substring_regex(counted, r"([ =:(])-?\d+\.\d+(?:e[+\-]?\d+)?", r"\1")
    out = pc.if_else(pc.equal(array, counted), array, measured)
    out = pc.replace_substring_regex(out, r"(?i)[\[(]rank[ _=:#]*\d+[\])]:? ?", "")
    rank = r"(?i)[ _\-,]+(?:(?:tp|dp|pp|ep|cp|local|global)[_ ]?)?rank[ _=:#]*\d+"
    out = pc.replace_substring_regex(out, rank, "")
    out = pc.replace_substring_regex(out, r"(?i)(^|[^a-z])(rank)[ _=:#]*\d+", r"\1\2")
    out = pc.replace_substring_regex(out, r"0x[0-9a-fA-F]{6,16}", "0x")
    out = pc.replace_substring_regex(out, r"(^|[^\w.])\d{6,}([^\w.]|$)", r"\1\2")
    out = pc.replace_substring_regex(out, r"#\d{1,18}$", "")
    changed = pc.not_equal(out, array)
    if not pc.any(changed).as_py():
        return array
    tidy = pc.replace_substring_regex(out, r"\(\s*\)?$|\(\s*\)|\[\s*\]", "")
    tidy = pc.replace_substring_regex(tidy, r"[ _]* +", " ")
    tidy = pc.replace_substring_regex(tidy, r"[ _#:=\-]+$", "")
    # a text that was nothing but a number keeps it
    keep = pc.and_(changed, pc.not_equal(tidy, ""))
    return pc.if_else(keep, tidy, array)
