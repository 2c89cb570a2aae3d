"""Kernel families against a thousand names, and names without what varies."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st

from xsp_post.model.trace import ActivityKind
from xsp_post.names import families as families_module
from xsp_post.names.families import BROAD, FAMILIES, families, matches, normalise_kernel_name, rule_index, rules
from xsp_post.names.patterns import found_in
from xsp_post.tables.analyses.frames import PATTERNS

HERE = Path(__file__).parent
TABLE = [line.split("\t") for line in (HERE / "kernel_names.tsv").read_text(encoding="utf-8").splitlines()[2:]]
NAMES = [name for _, _, name in TABLE]
# Of language models: engines, compilers and eager code on five kinds of GPU.
LANGUAGE_MODELS = ("bert_small_h100", "qwen_h100", "qwen3moe_decode_b300", "sglang_decode", "sglang_prefill_decode",
                   "switch_transformer", "vllm_decode_cuda_graph", "vllm_eager_b200", "vllm_piecewise")  # fmt: skip


def half_of(name: str) -> int:
    """0: a name that may be looked at when the table of families changes; 1: one that may not."""
    return zlib.crc32(name.encode()) % 2


@pytest.mark.parametrize("half", [0, 1])
def test_families_of_names_are_right(half, record_property):
    rows = [(family, name) for family, _, name in TABLE if half_of(name) == half]
    found = families([name for _, name in rows])
    wrong = [(right, got, name[:100]) for (right, name), got in zip(rows, found, strict=True) if right != got]
    record_property("precision", 1 - len(wrong) / len(rows))
    print(f"half {half}: {len(rows) - len(wrong)} of {len(rows)} names")
    assert len(rows) > 400
    assert len(wrong) <= 0.03 * len(rows), wrong


def test_every_family_has_names_and_every_rule_decides_one():
    assert {family for family, _, _ in TABLE} == set(FAMILIES) == set(BROAD)
    assert set(BROAD.values()) <= set(BROAD)
    assert set(rule_index(NAMES).tolist()) - {-1} == set(range(len(rules())))
    assert all(rule.family in BROAD and rule.pattern and len(rule.why) > 2 for rule in rules())


def test_many_names_are_searched_for_all_rules_together(monkeypatch):
    names = [*NAMES, "matmul_scatter_gather_x", "abmm", "é nccl", "g" * 3000 + "gemm"]
    one_by_one = [families_module._first_rule(name[: families_module._LONGEST]) for name in names]  # by Python
    assert rule_index(names).tolist() == one_by_one
    monkeypatch.setattr(families_module.patterns, "_FEW", 0)
    families_module._known[0].clear()
    assert rule_index(names).tolist() == one_by_one


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_little_time_of_a_language_model_has_no_family(captures, name):
    trace = recorded.trace_of(captures / "kineto" / f"{name}.pt.trace.json.gz")
    kernels = trace.activities[trace.activities["kind"].to_numpy() == ActivityKind.KERNEL]
    duration = (kernels["end_ns"] - kernels["start_ns"]).to_numpy()
    used, code = np.unique(kernels["name_id"].to_numpy(), return_inverse=True)
    is_other = (families([str(trace.strings[one]) for one in used]) == "other")[code]
    assert duration[is_other].sum() <= 0.03 * duration.sum()


# pandas 2.1 takes a text for equal to what stands before its NUL
@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=300), max_size=20))
def test_any_text_has_one_family_and_keeps_a_name(texts):
    found = families(texts)
    assert found.shape == (len(texts),)
    assert set(found) <= set(FAMILIES)
    normal = normalise_kernel_name(texts)
    assert all(bool(new) == bool(old) for new, old in zip(normal, texts, strict=True))
    assert matches(texts, "gemm").dtype == bool


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int, T2)",
            "at::native::vectorized_elementwise_kernel",
        ),
        (
            "void at::native::<unnamed>::multi_tensor_apply_kernel<A<(int)1>, B<C>>(T1)",
            "at::native::multi_tensor_apply_kernel",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float, 8>(float*)", "softmax_warp_forward"),
        ("triton_poi_fused_add_3", "triton_poi_fused_add"),
        ("triton_poi_fused_add_117", "triton_poi_fused_add"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("layer_norm(float *, int)", "layer_norm"),
        ("<only>", "<only>"),
    ],
)
def test_normal_names(name, normal):
    assert normalise_kernel_name([name]).tolist() == [normal]


def test_hostile_names_cost_no_time():
    names = ["<" * 50_000, "(" * 50_000 + "gemm", "triton_" + "_1" * 20_000, "\x00gemm\u202e" * 1000]
    assert families(names).shape == (4,)
    assert normalise_kernel_name(names).shape == (4,)
    assert np.all(normalise_kernel_name(names) != "")


def test_alignments_are_looked_for_in_many_names_as_in_few():
    names = ["gemm_align1", "gemm_align2_stage3", "gemm_align16", "gemm"]
    assert found_in(names, PATTERNS["few at once"]).tolist() == [True, True, False, False]
    assert found_in(names * 2000, PATTERNS["few at once"]).tolist() == [True, True, False, False] * 2000  # by RE2
