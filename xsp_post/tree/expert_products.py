"""Trace → what the products of a mixture of experts were given, where no operator says so.

Triton's kernels ``_matmul_ogs_…`` are launched from Python inside one operator of the whole layer. What they multiply
stands in the operators just before the launch: the view of the experts' weights (experts, k, n), and the choice of
experts (tokens, top_k) before it. The kernel's name says whether two weights share a byte.
"""

import json
import re

import numpy as np
import pandas as pd

from xsp_post.model.trace import SpanKind, Trace
from xsp_post.work.signature import Signature, read_signature

OPERATOR = "triton_kernels::matmul_ogs"  # the name that `work.catalogue` knows these products by
_PRODUCT = re.compile(r"^_?matmul_ogs\w*")
_CHOICES = ("TopK", "aten::topk")


def expert_arguments(trace: Trace, launch_id: np.ndarray, kernel_names: np.ndarray) -> np.ndarray:
    """Per launch the inputs of its product as `work.signature` reads them, '' for all others. Shape (launches,)."""
    result = np.full(len(launch_id), "", object)
    codes, texts = pd.factorize(kernel_names)
    is_product = np.array([_PRODUCT.match(str(one)) is not None for one in texts] + [False], bool)[codes]
    rows = np.flatnonzero(is_product & (launch_id >= 0))
    if not len(rows) or "arguments_id" not in trace.attributes:
        return result
    weights, choices = _spans_with(trace)
    launches = trace.launches.iloc[launch_id[rows]]
    thread, at = launches["thread_index"].to_numpy(np.int64), launches["start_ns"].to_numpy(np.int64)
    weight, choice = (_before(trace, one, thread, at) for one in (weights, choices))
    usable = (weight >= 0) & (choice >= 0)
    argument = np.append(trace.attributes["arguments_id"].to_numpy(), -1)
    triples = pd.DataFrame({
        "weight": np.where(usable, argument[weight], -1), "choice": np.where(usable, argument[choice], -1),
        "name": codes[rows],
    })  # fmt: skip
    group = triples.groupby(list(triples.columns), sort=False).ngroup().to_numpy()
    first = np.unique(group, return_index=True)[1]
    said = np.full(len(first), "", object)
    for number, row in enumerate(first.tolist()):
        if usable[row]:
            one = triples.iloc[row]
            said[number] = _record(
                str(trace.strings[one["weight"]]), str(trace.strings[one["choice"]]), str(texts[one["name"]])
            )
    result[rows] = said[group]
    return result


def _spans_with(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Spans that look at a tensor of three dimensions (``aten::view`` of weights), and those that choose experts."""
    names, used = pd.factorize(trace.spans["name_id"].to_numpy())
    texts = [str(trace.strings[one]) if one >= 0 else "" for one in used.tolist()]
    is_view = np.array([one == "aten::view" for one in texts] + [False])[names]
    is_choice = np.array([one in _CHOICES for one in texts] + [False])[names]
    said, used = pd.factorize(trace.attributes["arguments_id"].to_numpy())
    has_three = np.array([_is_three(str(trace.strings[one])) if one >= 0 else False for one in used.tolist()] + [False])
    is_operator = trace.spans["kind"].to_numpy() == int(SpanKind.OPERATOR)
    return np.flatnonzero(is_view & has_three[said] & is_operator), np.flatnonzero(is_choice & is_operator)


def _is_three(text: str) -> bool:
    sizes = _sizes(read_signature("", text))
    return sizes is not None and len(sizes) == 3 and sizes[0] > 1


def _sizes(call: Signature | None) -> tuple[int, ...] | None:
    return call.inputs[0].sizes if call is not None and call.inputs else None


def _before(trace: Trace, spans: np.ndarray, thread: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Of ``spans`` the last one of each thread that began before each time; −1 none."""
    result = np.full(len(at), -1, np.int64)
    of_span, start = trace.spans["thread_index"].to_numpy()[spans], trace.spans["start_ns"].to_numpy()[spans]
    for one in np.unique(thread).tolist():
        mine = spans[of_span == one][np.argsort(start[of_span == one], kind="stable")]
        rows = np.flatnonzero(thread == one)
        position = np.searchsorted(trace.spans["start_ns"].to_numpy()[mine], at[rows], side="left") - 1
        result[rows] = np.where(position >= 0, mine[np.maximum(position, 0)], -1) if len(mine) else -1
    return result


def _record(weight_text: str, choice_text: str, kernel_name: str) -> str:
    """``[rows, k], [experts, k, n], [tokens, top_k]`` with their types, as a record of Kineto."""
    weight, call = _sizes(read_signature("", weight_text)), read_signature("", choice_text)
    scores = _sizes(call)
    top_k = call.integers(1) if call is not None else None
    if weight is None or scores is None or len(scores) != 2 or not top_k or scores[1] != weight[0]:
        return ""  # the choice is of other experts
    is_packed = "fp4" in kernel_name
    operand = call.inputs[0].dtype if call is not None else ""
    sizes = [[scores[0] * top_k[0], weight[1] * (2 if is_packed else 1)], list(weight), [scores[0], top_k[0]]]
    types = [operand, "fp4" if is_packed else operand, "int"]
    return json.dumps([sizes, types, [], ["", "", "swiglu" if "swiglu" in kernel_name else ""]], separators=(",", ":"))
