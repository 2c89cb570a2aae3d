"""Plain texts of no known convention, all at once by patterns: what they count, what phase they name, what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.names.heads import Words
from xsp_post.names.patterns import digits_in, first_match, groups, numbers, possible

# Warm-up by its text: "compile" but neither "compiled" nor "compiler".
WARMUP_WORD = r"(?i)warm(?:ing)?[\-_ ]?up"
WARMUP = WARMUP_WORD + r"|(?i)compil(?:e(?:[^dr]|$)|ation|ing)|(?i)autotun|(?i)cudnn[._]benchmark"
WARMUP += r"|^(?:TSL:)?Xla(?:Pass|Compile|Dump|Autotun|Emit|Optimi|Link|Build)"

# A keyword that counts what repeats, its number, and "/100" or " of 100" behind it.
_COUNTED = (
    r"(?P<word>(?:(?:^|[^a-zA-Z])(?i:steps?|iterations?|iters?|it|epochs?|batch|micro[_\- ]?batch|mb|requests?|req"
    r"|tokens?|frames?|samples?|trials?|runs?|reps?|repeats?|repetitions?|cycles?|tick|idx|index))"
    r"|(?:ProfilerStep|Step|Iteration|Iter|Epoch|Batch))"
    r"(?P<gap>[ _#:=\-]{0,3}\(?)(?P<number>\d{1,18})(?:\s?(?:/|of)\s?\d+)?"
)
_STEP = (
    r"(?:(?:^|[^a-zA-Z])(?i:steps?|iterations?|iters?)|ProfilerStep|[a-z]Step|[a-z]Iteration)"
    r"[ _#:=\-]{0,3}\(?(?P<x>\d{1,18})"
)

_MARKER_WORDS = (
    r"(?i)^(?:(?:epoch|profiler|train|training|global|model|eval|validation|val|test|inference|warm[\-_ ]?up|benchmark"
    r"|measured?|timed|profile|profiled|main|inner|outer|decode|prefill|generation|denoising|denoise|optimization"
    r"|sampling|diffusion)[ _\-.]?)*(?:step|iteration|iter|batch|frame|request|query|sample|image)[ _#:=\-()\[\]]*$"
)
_MODEL_WORDS = (
    r"(?i)^(?:(?:model|net|network|module|engine)(?:[ _.]?(?:forward|inference|infer|execute|call|run))?"
    r"|inference|infer|predict|(?:model )?inference|run[ _]?inference)(?:\(\))?[ _#:=\-]*$"
)
_PHASE_WORDS = (
    r"(?i)^(?:model[ _.:])?(?:forward|fwd|backward|bwd|loss\.backward|backprop|back ?propagation"
    r"|optim(?:izer|iser)?|opt|zero[_ ]?grad|(?:optim(?:izer)?|opt)[ _.](?:zero[_ ]?grad|step)|prefill|decode"
    r"|clip[_ ]?grad(?:[_ ]?norm)?|loss|compute[ _]?loss|grad(?:ient)?[ _]?(?:sync|update)?)"
    r"(?:[ _\-]?(?:pass|step|phase|only))?(?:\(\))?[ _#:=\-]*$"
)
_PHASES = (  # first match wins
    ("optimizer", r"(?i)optimi[sz]er|(?:^|[^a-z])optim(?:[^a-z]|$)|(?:^|[^a-z])opt(?:[ _.]step|$)|zero_grad"),
    ("train_step", r"(?i)train(?:ing)?[ _\-]?step|forward[ _\-]?(?:and[ _\-]?)?backward"),
    ("backward", r"(?i)backward|backprop|(?:^|[^a-z])bwd(?:[^a-z]|$)"),
    ("prefill", r"(?i)prefill"),
    ("decode", r"(?i)(?:^|[^a-z])decode(?:[^a-z]|$)"),
    ("forward", r"(?i)forward|(?:^|[^a-z])fwd(?:[^a-z]|$)"),
)
_MODULE_WORDS = (
    r"^(?:\w+\.)*(?:Transformer(?:Layer|Block|Encoder\w*|Decoder\w*)|ParallelTransformer\w*|ParallelMLP|ParallelAttention"
    r"|SelfAttention|CrossAttention|MLP|MoE\w*|\w*(?:Attention|DecoderLayer|EncoderLayer|Block|Embedding|RMSNorm"
    r"|LayerNorm|BatchNorm\dd|Conv\dd|Linear|ReLU|Softmax))(?:[_ .:]?\d+)?$"
    r"|(?i)^(?:\w+[_. ])?(?:layer|block|stage|encoder|decoder|expert|conv|fc|linear|attn|attention|mlp)[ _\-.]?\d+"
    r"(?:[ _\-.:](?:forward|fwd|backward|bwd|compute|call|run|exec(?:ute)?)(?:[ _]?pass)?)?$"
)
_NUMBERED_INSIDE = (
    r"(?i)((?:layer|block|stage|encoder|decoder|expert|conv|fc|linear|attn|attention|mlp)[ _\-.]?)\d+([ _\-.:])"
)
_NUMBERED = r"[ _.\-]\d+$|(?i)(layer|block|stage|conv|bn|fc|relu|linear|pool)\d+$"


_ROLE_WORDS = (
    ("iteration", _MARKER_WORDS),
    ("phase", _PHASE_WORDS),
    ("model", _MODEL_WORDS),
    ("module", _MODULE_WORDS),
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


_CHANGING = (
    _COUNTED, r"(?i)rank[ _=:#]*\d+",
    r"0x[0-9a-fA-F]{6,16}", r"(^|[^\w.])\d{6,}([^\w.]|$)", r"#\d{1,18}$",
)  # fmt: skip


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
