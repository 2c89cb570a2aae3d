"""Results → the same results with the program's own names replaced, for sharing outside: one name, one replacement.

Names that differ in numbers only share a word of letters, and each has a number behind it: what folds them folds them
as before, and no others. Only columns that are listed here keep their text (words of ours, GPUs, CUDA calls); every
other text is replaced.
"""

import re

import pandas as pd

from xsp_post.base.messages import FINDINGS
from xsp_post.model.results import Analysis, Results

# columns whose texts are words of ours, units, sizes, or names that NVIDIA gives
_KEPT = frozenset({
    "rank_name", "framework", "gpu_name", "system_name", "model_level", "layer_level", "kernel_level", "level",
    "shape_text", "latency_source", "stage", "pipe", "bound", "bound_source", "metric_source", "counter_source",
    "origin", "slowest_rank_name", "training_phase", "policy", "event_kind", "compared_level", "verdict",
    "interval_over", "status", "code", "collector", "tool_version", "limit", "latency_stage", "allocated_stage",
    "flop_stage", "dram_stage", "quantity", "unit", "change", "measure", "kind", "refusal", "schema_version",
    "span_kind", "confidence", "attribution", "layer_attribution", "direction", "memory_kind", "metric_name",
    "step", "compute_capability", "severity", "question", "idle_cause", "scope", "sizes", "element_types",
    "dialect", "owner_kind", "recorded_by", "run_process", "family", "families", "left_out", "size_source", "resource",
    "platform", "evidence", "part",
})  # fmt: skip
_EMPTIED = frozenset({
    "level_rule", "execution_evidence", "layer_evidence", "rule", "option", "example", "message", "statement", "note",
})  # fmt: skip
# sentences and placeholders of ours in columns that else hold names
_OURS = frozenset({
    "", "[self]", "[capture]", "[unattributed]", "[no launch]", "[outside layers]", "[earlier]", "[no range]",
    "memcpy", "memset", 
})  # fmt: skip
# tables whose kind may be a word of the program
_OF_PROGRAM = ("iterations", "steps", "step_costs", "step_outliers")
_CALLS = ("cuda", "cuLaunch", "cuStream", "cuEvent", "cuCtx", "cuMem", "cuGraph", "cuModule", "cuLibrary", "cuKernel")
_WORDS = {"name": "name", "short_name": "name", "layer_type": "type", "source_name": "capture", "domain": "domain"}
_LETTERS = str.maketrans("0123456789", "bcdfghjkqz")  # no word of a program's consists of these


def anonymised(results: Results) -> Analysis:
    """All tables with names replaced by words; sentences that may hold names are empty or general."""
    numbers: dict[str, str] = {}
    return Analysis({name: _table(name, results.frame(name), numbers) for name in results.tables()})


def _table(table: str, frame: pd.DataFrame, numbers: dict[str, str]) -> pd.DataFrame:
    changed = {c: _texts(table, c, frame, numbers) for c in frame.columns if _is_text(frame[c])}
    return frame.assign(**changed)


def _is_text(values: pd.Series) -> bool:
    return isinstance(values.dtype, pd.CategoricalDtype) or not (
        pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype)
    )


def _texts(table: str, column: str, frame: pd.DataFrame, numbers: dict[str, str]) -> pd.Series:
    values = frame[column]
    if column in ("title", "cause", "hint") and table == "findings":
        general = {code: {"title": one.title, "cause": one.cause, "hint": one.cure} for code, one in FINDINGS.items()}
        return frame["code"].astype(object).map({code: texts[column] for code, texts in general.items()})
    if (column in _KEPT or column == "cause" or table == "part") and not (column == "kind" and table in _OF_PROGRAM):
        return values
    if column in _EMPTIED:
        return pd.Series("", index=values.index, dtype=object)
    word = _WORDS.get(column, "text")
    texts = values.astype(object)
    known = {text: _word(text, word, numbers) for text in texts.dropna().unique()}
    return texts.map(known).where(texts.notna(), texts)


def _word(text: str, word: str, numbers: dict[str, str]) -> str:
    if text in _OURS or (text.startswith(_CALLS) and text.isidentifier()):
        return text
    kind = numbers.setdefault(re.sub(r"\d+", "#", text), f"{word}-{len(numbers):04d}".translate(_LETTERS))
    return numbers.setdefault(text, f"{kind}-{len(numbers)}")
