"""Tree → core tables: ``operators`` and ``kernel_work``, the least work of operators from the sizes of their inputs.

A kernel belongs to the innermost operator around its launch that has a formula (`work.catalogue`); what one call needs
is shared among its kernels by their durations.
"""

import json

import numpy as np
import pandas as pd

from xsp_post.model.results import empty_table
from xsp_post.model.tree import Tree
from xsp_post.tables.core.operator_calls import Calls, operator_calls
from xsp_post.tables.core.phases import PHASES, kernel_phases

_LONGEST = 300  # characters of sizes that a table shows


def operator_frames(tree: Tree) -> dict[str, pd.DataFrame]:
    """The two tables; empty where the capture says no sizes of any operator that launched a kernel."""
    kernels = tree.kernels
    empty = {name: empty_table(name) for name in ("operators", "kernel_work")}
    if not len(kernels):
        return empty
    phase = kernel_phases(tree, kernels)
    if says_sizes(tree):
        calls = operator_calls(tree, kernels)
        if calls.kinds["amounts"].notna().any():
            return _frames(calls, kernels, phase)
    if phase.any():
        return empty | {"kernel_work": _phases_only(phase)}
    return empty


def _phases_only(phase: np.ndarray) -> pd.DataFrame:
    """Kernels whose operators say nothing: what is known is the phase they ran in."""
    unknown = np.full(len(phase), np.nan)
    return pd.DataFrame({
        "kernel_id": np.arange(len(phase)), "operator_index": np.full(len(phase), -1, np.int64),
        "phase": pd.Categorical.from_codes(phase, pd.Index(PHASES)), "flop": unknown, "read_bytes": unknown,
        "written_bytes": unknown, "pipe": pd.Categorical(np.full(len(phase), "", object)),
    })  # fmt: skip


def says_sizes(tree: Tree) -> bool:
    """Whether the capture says the sizes of what operators were given."""
    if "arguments_id" in tree.trace.attributes or "arguments" in tree.inferred:
        return True
    return any(str(one).startswith("[[") for one in tree.names.parsed.encoded("shape_text")[1])


def _frames(calls: Calls, kernels: pd.DataFrame, phase: np.ndarray) -> dict[str, pd.DataFrame]:
    call, kinds = calls.of_kernel, calls.kinds
    kind_of_call = calls.frame["kind"].to_numpy()
    kind = np.where(call >= 0, kind_of_call[call], -1) if len(kind_of_call) else np.full(len(call), -1)
    row, first = pd.factorize(kind * len(PHASES) + phase)
    first = np.asarray(first)
    row_kind, row_phase = first // len(PHASES), first % len(PHASES)
    order = np.lexsort((row_phase, row_kind))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    row, row_kind, row_phase = rank[row], row_kind[order], row_phase[order]
    duration = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    names = ("flop", "least_bytes", "read_bytes", "written_bytes", "element_operations")
    of_kind = {name: _of_kinds(kinds, name) for name in names}
    known = row_kind >= 0
    at = np.where(known, row_kind, len(kinds))
    texts = {name: np.append(kinds[name].to_numpy(object), "") for name in ("operator", "pipe")}
    described = [_describe(one) for one in kinds["text"]] + [("", "")]
    extra = [("", "") if one is None else (one.family, one.note) for one in kinds["amounts"]] + [("", "")]
    pairs = pd.DataFrame({"row": row, "call": call})
    used = pairs[pairs["call"] >= 0].drop_duplicates()
    operators = pd.DataFrame({
        "operator_index": np.arange(len(row_kind)),
        "operator": pd.Categorical(texts["operator"][at]),
        "phase": pd.Categorical.from_codes(row_phase, pd.Index(PHASES)),
        "family": pd.Categorical([extra[one][0] for one in at]),
        "sizes": [described[one][0] for one in at],
        "element_types": [described[one][1] for one in at],
        "call_count": np.bincount(used["row"], minlength=len(row_kind)),
        "kernel_count": np.bincount(row, minlength=len(row_kind)),
        "kernel_ns": np.bincount(row, weights=duration, minlength=len(row_kind)).astype(np.int64),
        "call_flop": of_kind["flop"][at],
        "least_bytes": of_kind["least_bytes"][at],
        "element_operations": of_kind["element_operations"][at],
        "pipe": pd.Categorical(texts["pipe"][at]),
        "note": pd.Categorical([extra[one][1] for one in at]),
    })  # fmt: skip
    work = _kernel_work(calls, row, row_kind, row_phase, duration, of_kind, texts)
    return {"operators": operators, "kernel_work": work}


def _kernel_work(
    calls: Calls, row: np.ndarray, row_kind: np.ndarray, row_phase: np.ndarray, duration: np.ndarray,
    of_kind: dict[str, np.ndarray], texts: dict[str, np.ndarray],
) -> pd.DataFrame:  # fmt: skip
    """Every kernel once; what is not known of its operator is NaN."""
    call = calls.of_kernel
    kind = row_kind[row]
    at = np.where(kind >= 0, kind, len(calls.kinds))
    whole = np.append(calls.frame["kernel_ns"].to_numpy(float), np.nan)[call]
    count = np.append(calls.frame["kernel_count"].to_numpy(float), np.nan)[call]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(whole > 0, duration / whole, 1 / count)
    pipes, categories = pd.factorize(texts["pipe"])
    return pd.DataFrame({
        "kernel_id": np.arange(len(row)),
        "operator_index": row,
        "phase": pd.Categorical.from_codes(row_phase[row], pd.Index(PHASES)),
        "flop": of_kind["flop"][at] * share,
        "read_bytes": of_kind["read_bytes"][at] * share,
        "written_bytes": of_kind["written_bytes"][at] * share,
        "pipe": pd.Categorical.from_codes(pipes[at], pd.Index(categories)),
    })  # fmt: skip


def _of_kinds(kinds: pd.DataFrame, name: str) -> np.ndarray:
    """A quantity per kind; NaN unknown, and one NaN more for no kind at all."""
    values = [np.nan if one is None or getattr(one, name) is None else getattr(one, name) for one in kinds["amounts"]]
    return np.array([*values, np.nan], float)


def _describe(text: str) -> tuple[str, str]:
    """Sizes and element types as a person reads them, from a record of Kineto or of emit_nvtx."""
    try:
        record = json.loads(text) if text else []
    except ValueError:
        return "", ""
    if len(record) in (4, 5) and isinstance(record[1], list) and all(isinstance(one, str) for one in record[1]):
        sizes = json.dumps(record[0], separators=(",", ":"))
        types = ",".join(one.removeprefix("c10::") for one in record[1] if one not in ("", "Scalar", "ScalarList"))
        return sizes[:_LONGEST], types[:_LONGEST]
    return text[:_LONGEST], ""
