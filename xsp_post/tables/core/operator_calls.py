"""Operators with sizes → the tables ``operators`` and ``kernel_work``: the least work, from the sizes of their inputs.

A kernel belongs to the innermost operator around its launch that has a formula (`work.catalogue`); what one call needs
is shared among its kernels by their durations.
"""

import json

import numpy as np
import pandas as pd

from xsp_post.arrays import rollup
from xsp_post.arrays.repeats import dense
from xsp_post.arrays.texts import of_each
from xsp_post.model.kinds import PHASES
from xsp_post.model.tree import Attribution, NodeKind, Tree
from xsp_post.names.number_types import operand_kind
from xsp_post.tree.expert_products import OPERATOR, expert_arguments
from xsp_post.tree.layering import inherit
from xsp_post.work.amounts import Amounts
from xsp_post.work.catalogue import is_known, is_wrapper, takes_step, work_of
from xsp_post.work.dtypes import kind_of, pipe_of
from xsp_post.work.signature import read_signature
from xsp_post.work.steps import Step, read_steps

_SUFFIX = ", "  # emit_nvtx: `aten::mm, seq = 5, op_id = 9, sizes = [[8, 3], [3, 4]]`


_AMOUNTS = ("flop", "least_bytes", "read_bytes", "written_bytes", "element_operations")
_TEXTS = ("operator", "sizes", "element_types", "family", "note", "pipe")


def operator_calls(tree: Tree, kernels: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """The operator calls that launched kernels (activities of the tree, in its order), and their work:

    row of the next frame per kernel, −1 where no operator is known;
    one row per call (and replay, where a graph repeats it): kind (row of the next frame, −1 without a formula),
    node_id, kernel_ns, kernel_count;
    one row per different (operator, inputs, step, assumed type): `_TEXTS`, is_known, `_AMOUNTS` (NaN unknown).
    """
    name, text, names, texts = _records(tree)
    is_operator = (tree.nodes["kind"].to_numpy() == int(NodeKind.OPERATOR)) | (text >= 0)
    is_operator |= tree.names.node_text("role") == "operator"
    known = np.array([is_known(one) for one in names] + [False])
    has_formula = known[name] & (text >= 0)
    parent = tree.nodes["parent_id"].to_numpy()
    number = np.arange(len(parent))
    owner_of_node = inherit(np.where(has_formula, number, -1), parent)
    innermost = inherit(np.where(is_operator, number, -1), parent)
    launched_in = _launch_nodes(kernels)
    owner = np.where(launched_in >= 0, owner_of_node[launched_in], -1)
    owner = np.where(owner >= 0, owner, np.where(launched_in >= 0, innermost[launched_in], -1))
    own_text, texts = _of_kernels(tree, kernels, texts)
    call, call_node, call_text = _number(owner, own_text, kernels)
    duration = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    inside = call >= 0
    frame = pd.DataFrame({
        "node_id": call_node,
        "kernel_ns": np.bincount(call[inside], weights=duration[inside], minlength=len(call_node)).astype(np.int64),
        "kernel_count": np.bincount(call[inside], minlength=len(call_node)),
    })  # fmt: skip
    kernel_names = _longest_names(tree, kernels, call, duration, len(call_node))
    hangs_on_step = np.array([has and takes_step(one) for has, one in zip(known.tolist(), [*names, ""])])
    steps, step = _steps(tree, name, names if hangs_on_step.any() else [])
    # a call is its node's, but for kernels that say themselves what they were given
    own_name = len(names)
    name_of_call = np.where(call_text >= 0, own_name, name[call_node])
    text_of_call = np.where(call_text >= 0, call_text, text[call_node])
    has_formula = np.where(call_text >= 0, True, has_formula[call_node])
    step_of_call = np.where(hangs_on_step[name_of_call], step[call_node], -1)
    kinds, kind = _kinds(
        name_of_call, text_of_call, [*names, OPERATOR], texts, steps, step_of_call, kernel_names, has_formula
    )
    frame["kind"] = _without_double_wrappers(frame, kind, kinds, parent)
    return call, frame, kinds


def _records(tree: Tree) -> tuple[np.ndarray, np.ndarray, list[str], list[str]]:
    """Per node the number of its operator's name (last: none) and of the text of its inputs (−1 none)."""
    nodes, trace = tree.nodes, tree.trace
    codes, used = pd.factorize(nodes["name_id"].to_numpy())
    raw = [str(tree.strings[one]) if one >= 0 else "" for one in used.tolist()]
    names = [one.split(_SUFFIX, 1)[0] for one in raw]
    text = np.full(len(nodes), -1, np.int64)
    texts: list[str] = []
    if "arguments_id" in trace.attributes:
        said = trace.attributes["arguments_id"].to_numpy()
        found, ids = pd.factorize(said)
        texts = [str(trace.strings[one]) if one >= 0 else "" for one in ids.tolist()]
        text[1 : len(said) + 1] = np.where(said >= 0, found, -1)
    else:
        shapes = tree.names.node_category("shape_text")
        dialect = tree.names.node_text("dialect")
        texts = [str(one) for one in shapes.categories]
        is_said = np.array([one.startswith("[[") for one in texts] + [False])
        text = np.where(is_said[shapes.codes] & (dialect == "pytorch"), shapes.codes, -1).astype(np.int64)
    carried = tree.inferred.get("arguments")
    if carried is not None:
        found, ids = pd.factorize(carried.fillna("").to_numpy(object))
        rows = tree.inferred["node_id"].to_numpy(np.int64)
        text[rows] = np.where(np.array([bool(one) for one in ids])[found], found + len(texts), -1)
        texts += [str(one) for one in ids]
    return codes.astype(np.int64), text, names, texts


def _of_kernels(tree: Tree, kernels: pd.DataFrame, texts: list[str]) -> tuple[np.ndarray, list[str]]:
    """Per kernel the text of its own inputs (−1: those of its operator), and all texts."""
    said = kernels["arguments"].to_numpy(object) if "arguments" in kernels else np.full(len(kernels), "", object)
    own = expert_arguments(tree.trace, kernels["launch_id"].to_numpy(), tree.strings[kernels["name_id"].to_numpy()])
    codes, used = pd.factorize(np.where(own != "", own, said))
    is_text = np.array([bool(one) for one in used] + [False])
    return np.where(is_text[codes], codes + len(texts), -1), [*texts, *(str(one) for one in used)]


def _launch_nodes(kernels: pd.DataFrame) -> np.ndarray:
    """The node whose operator launched each kernel; −1 where only time or nothing connects them."""
    how, node = kernels["attribution"].to_numpy(), kernels["node_id"].to_numpy()
    launch_node = kernels["launch_node_id"].to_numpy()
    captured = (how == int(Attribution.GRAPH)) | (how == int(Attribution.NESTING))
    return np.where(launch_node > 0, launch_node, np.where(captured & (node > 0), node, -1))


def _number(
    owner: np.ndarray, own_text: np.ndarray, kernels: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of each kernel's call (−1 none), each call's node and the text of its own (−1 the node's). A graph's
    replays, and kernels with a text of their own, are calls of their own."""
    is_graph = kernels["attribution"].to_numpy() == int(Attribution.GRAPH)
    launch = np.where(is_graph, kernels["launch_id"].to_numpy() + 1, 0)
    own = np.where(own_text >= 0, np.arange(len(owner)) + 1, 0)
    inside = np.flatnonzero(owner >= 0)
    number, first = dense(*(one[inside] for one in (owner, launch, own)))
    call = np.full(len(owner), -1, np.int64)
    call[inside] = number
    return call, owner[inside[first]].astype(np.int64), own_text[inside[first]]


def _longest_names(tree: Tree, kernels: pd.DataFrame, call: np.ndarray, duration: np.ndarray, count: int) -> np.ndarray:
    order = np.argsort(duration, kind="stable")
    order = order[call[order] >= 0]
    longest = np.full(count, -1, np.int64)
    longest[call[order]] = kernels["name_id"].to_numpy()[order]  # the last written is the longest
    return of_each(longest, lambda one: str(tree.strings[one]) if one >= 0 else "", object)


def _steps(tree: Tree, name: np.ndarray, names: list[str]) -> tuple[list[Step], np.ndarray]:
    """The serving steps, and per node the one around it; the only one there is, is around everything."""
    found = read_steps(names)
    steps = [one for one in found if one is not None]
    of_name = np.full(int(name.max(initial=0)) + 2, -1, np.int64)
    of_name[[row for row, one in enumerate(found) if one is not None]] = np.arange(len(steps))
    own = of_name[name]
    if len(steps) == 1:
        return steps, np.zeros(len(own), np.int64)
    parent = tree.nodes["parent_id"].to_numpy()
    return steps, inherit(own, parent)


def _kinds(
    name: np.ndarray, text: np.ndarray, names: list[str], texts: list[str], steps: list[Step], step: np.ndarray,
    kernel_names: np.ndarray, has_formula: np.ndarray,
) -> tuple[pd.DataFrame, np.ndarray]:  # fmt: skip
    """The different calls and the number of each call among them. All arrays are one value per call."""
    kernel_code, kernel_texts = pd.factorize(kernel_names)
    kind_code, kernel_kinds = pd.factorize(np.array([operand_kind(one) for one in kernel_texts], object))
    pipes, pipe_texts = pd.factorize(np.array([pipe_of("fp32", one) for one in kernel_texts], object))
    columns = [name, text, step]
    columns += [kind_code[kernel_code], pipes[kernel_code]] if len(kernel_texts) else [np.zeros(0, np.int64)] * 2
    code, first = dense(*columns)
    common = _common_type(texts, text)
    rows = []
    for at in first.tolist():
        operator, own = names[name[at]], int(text[at])
        said = texts[own] if own >= 0 else ""
        kernel_kind = str(kernel_kinds[columns[3][at]])
        found: Amounts | None = None
        if has_formula[at]:
            around = steps[step[at]] if step[at] >= 0 else None
            found = work_of(operator, said, step=around, assumed_type=kernel_kind or common)
        pipe = ""
        if found is not None and found.flop > 0:
            operand = found.operand or kernel_kind
            pipe = str(pipe_texts[columns[4][at]]) if operand == "fp32" else pipe_of(operand, "")
        about = ("", "") if found is None else (found.family, found.note)
        rows.append(
            (operator, *_describe(said), *about, pipe, found is not None, *(getattr(found, a, None) for a in _AMOUNTS))
        )
    kinds = pd.DataFrame(rows, columns=[*_TEXTS, "is_known", *_AMOUNTS])
    return kinds.astype({"is_known": bool, **dict.fromkeys(_AMOUNTS, float)}), code


def _common_type(texts: list[str], used: np.ndarray) -> str:
    """The floating type that most of the calls' inputs have; '' where none is said."""
    count: dict[str, int] = {}
    numbers, often = np.unique(used[used >= 0], return_counts=True)
    for number, calls in zip(numbers.tolist(), often.tolist()):
        call = read_signature("", texts[number])
        kinds = {kind_of(one.dtype) for one in call.tensors()} if call is not None else set()
        for kind in kinds - {"", "int8"}:
            count[kind] = count.get(kind, 0) + calls
    return max(count, key=lambda one: count[one]) if count else ""


def _without_double_wrappers(
    frame: pd.DataFrame, kind: np.ndarray, kinds: pd.DataFrame, parent: np.ndarray
) -> np.ndarray:
    """``kind`` with −1 for wrappers whose work is counted by the operators that they passed it on to."""
    wrapper = np.array([is_wrapper(one) for one in kinds["operator"]], bool)
    flop, known = kinds["flop"].fillna(0.0).to_numpy(), kinds["is_known"].to_numpy()
    node = frame["node_id"].to_numpy()
    if not len(node) or not wrapper.any():
        return kind
    multiplies = np.bincount(node, weights=(flop > 0)[kind], minlength=len(parent))
    counted = np.bincount(node, weights=known[kind], minlength=len(parent))
    below = [rollup.add_up(one.astype(np.int64), parent) - one.astype(np.int64) for one in (multiplies, counted)]
    is_double = wrapper[kind] & np.where(flop[kind] > 0, below[0][node] > 0, below[1][node] > 0)
    return np.where(is_double, -1, kind)


_LONGEST = 300  # characters of sizes that a table shows


def frames_of(
    call: np.ndarray, calls: pd.DataFrame, kinds: pd.DataFrame, kernels: pd.DataFrame, phase: np.ndarray
) -> dict[str, pd.DataFrame]:
    """A row for each kind of call and phase; and every kernel once: what is not known of its operator is NaN."""
    kinds = kinds.reindex([*range(len(kinds)), -1]).fillna(dict.fromkeys(_TEXTS, ""))  # the last is none
    kind = np.append(calls["kind"].to_numpy(), -1)[call]
    keys, row = np.unique(kind * len(PHASES) + phase, return_inverse=True)
    of, of_phase = kinds.iloc[keys // len(PHASES)], keys % len(PHASES)
    duration, phases = (kernels["end_ns"] - kernels["start_ns"]).to_numpy(), pd.Index(PHASES)
    pairs = pd.DataFrame({"row": row, "call": call})
    used = pairs[pairs["call"] >= 0].drop_duplicates()
    operators = pd.DataFrame({
        "operator_index": np.arange(len(keys)),
        "phase": pd.Categorical.from_codes(of_phase, phases),
        **{name: of[name].to_numpy() for name in ("sizes", "element_types", "least_bytes", "element_operations")},
        "call_count": np.bincount(used["row"], minlength=len(keys)),
        "kernel_count": np.bincount(row, minlength=len(keys)),
        "kernel_ns": np.bincount(row, weights=duration, minlength=len(keys)).astype(np.int64),
        "call_flop": of["flop"].to_numpy(),
        **{name: pd.Categorical(of[name]) for name in ("operator", "family", "pipe", "note")},
    })  # fmt: skip
    whole, count = (np.append(calls[name].to_numpy(float), np.nan)[call] for name in ("kernel_ns", "kernel_count"))
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(whole > 0, duration / whole, 1 / count)
    pipes, categories = pd.factorize(kinds["pipe"])
    work = pd.DataFrame({
        "kernel_id": np.arange(len(row)),
        "operator_index": row,
        "phase": pd.Categorical.from_codes(of_phase[row], phases),
        **{name: kinds[name].to_numpy()[kind] * share for name in ("flop", "read_bytes", "written_bytes")},
        "pipe": pd.Categorical.from_codes(pipes[kind], pd.Index(categories)),
    })  # fmt: skip
    return {"operators": operators, "kernel_work": work}


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
