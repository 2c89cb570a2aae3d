"""What products of experts were given: of a launch the last weights and the last choice before it on its thread."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from traces import trace_of_rows

from xsp_post.model.trace import SpanKind
from xsp_post.tree.expert_products import expert_arguments

HALF = "c10::BFloat16"
NAMES = ("aten::view", "TopK", "aten::mm")
VIEWS = ([4, 16, 32], [8, 16, 32], [1, 16, 32], [16, 32])  # the last two are no weights of experts
CHOICES = ([7, 4], [5, 8])
TEXTS = [json.dumps([[sizes, []], [HALF, "Scalar"], [], ["", "2"]]) for sizes in (*VIEWS, *CHOICES)]
KERNELS = ("_matmul_ogs_bf16", "_matmul_ogs_bf16xbf16xmxfp4_swiglu", "gemm")
EVENTS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["span", "span", "launch"]), st.integers(0, 5),
                            st.integers(0, 2)), max_size=20)  # fmt: skip


def _said(weight, choice, kernel):
    """The record by hand; '' where one of the two is unknown, or the choice is of another number of experts."""
    if kernel == 2 or weight is None or choice is None or weight[0] != choice[1]:
        return ""
    packed = kernel == 1
    sizes = [[2 * choice[0], weight[1] * (1 + packed)], weight, [choice[0], 2]]
    return [sizes, [HALF, "fp4" if packed else HALF, "int"], [], ["", "", "swiglu" if packed else ""]]


@examples(100)
@given(EVENTS)
def test_a_product_has_the_last_weights_and_choice_of_its_thread(events):
    spans, attributes, launches, kernels, wanted, last = [], [], [], [], [], {}
    for at, (thread, what, number, other) in enumerate([(0, "span", 0, 2), *events]):
        row = {"thread_index": thread, "start_ns": 10 * at, "end_ns": 10 * at + 5}
        if what == "launch":
            launches.append(row)
            kernels.append(KERNELS[other])
            wanted.append(_said(last.get((thread, "weight")), last.get((thread, "choice")), other))
            continue
        spans.append({**row, "kind": int(SpanKind.OPERATOR), "name_id": 2 if other == 2 else int(number > 3)})
        attributes.append(3 + number)
        if other < 2 and number < 2:
            last[thread, "weight"] = VIEWS[number]
        elif other < 2 and number > 3:
            last[thread, "choice"] = CHOICES[number - 4]
    trace = trace_of_rows(process_of_thread=(0, 0), strings=(*NAMES, *TEXTS), spans=spans, launches=launches)
    trace.attributes = pd.DataFrame({"arguments_id": np.array(attributes, np.int64)})
    found = expert_arguments(trace, np.arange(len(launches)), np.array(kernels, object))
    assert [json.loads(one) if one else "" for one in found.tolist()] == wanted


def test_a_product_without_any_operator_has_no_arguments():
    trace = trace_of_rows(launches=[{"thread_index": 0, "start_ns": 1, "end_ns": 2}])
    trace.attributes = pd.DataFrame({"arguments_id": np.zeros(0, np.int64)})
    assert expert_arguments(trace, np.arange(1), np.array(KERNELS[:1], object)).tolist() == [""]
