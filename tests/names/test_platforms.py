"""Which languages, frameworks and platforms a recording shows, and by what."""

from __future__ import annotations

import pytest
from builders import ExportBuilder

from xsp_post.names.platforms import rules, shown_platforms
from xsp_post.pipeline import results_of


def platforms(**texts):
    return {one.platform for one in shown_platforms(texts)}


def test_each_rule_names_a_known_source_and_a_reason():
    assert len(rules()) > 20
    assert {rule.source for rule in rules()} == {"recorder", "kernels", "ranges", "domains", "calls", "programs"}
    assert all(rule.why for rule in rules())


@pytest.mark.parametrize(
    ("texts", "shown", "not_shown"),
    [
        ({"kernels": ["julia_vadd_12(CuDeviceArray<Float32>)"], "calls": ["cuLaunchKernel"]}, "Julia", "Python C++"),
        ({"kernels": ["__omp_offloading_10302_main_l12"], "calls": ["cuLaunchKernel"]}, "OpenMP", "Python C++"),
        ({"kernels": ["nvkernel_main_F1L88_2"], "calls": ["cuLaunchKernel"]}, "OpenMP", "OpenACC C++"),
        ({"kernels": ["main_88_gpu"], "calls": ["cuLaunchKernel"]}, "OpenACC", "OpenMP C++"),
        ({"kernels": ["_ZN4gpu3add17h0123456789abcdefE"], "calls": ["cuLaunchKernel"]}, "Rust", "Python C++"),
        ({"kernels": ["loop_add_fusion"], "domains": ["TSL"], "programs": ["python3"]}, "JAX Python", "PyTorch C++"),
        ({"kernels": ["vecAdd(float*)"], "calls": ["hipLaunchKernel"]}, "HIP C++", "CUDA Python PyTorch"),
        ({"kernels": ["vecAdd(float*)"], "calls": ["cudaLaunchKernel"], "programs": ["./a.out"]}, "CUDA C++", "Python"),
        ({"kernels": ["cudapy::__main__::add"], "calls": ["cuLaunchKernel"]}, "Python", "PyTorch C++"),
        ({"kernels": ["pe_exe", "event_wait"], "recorder": ["torch torch"]}, "MTIA PyTorch", "Python CUDA"),
        ({"kernels": ["void at::native::f()"], "calls": ["cudaFree"]}, "PyTorch Python", "C++"),
        ({"kernels": ["void at::native::f()"], "calls": ["cudaFree"], "programs": ["x/b"]}, "PyTorch C++", "Python"),
        ({"kernels": ["triton_poi_fused_add_0"], "recorder": ["torch "]}, "compiled Triton PyTorch Python", "C++"),
        ({"ranges": ["prompt_logprobs"], "programs": ["/opt/python3.11"]}, "Python", "OpenMP PyTorch"),
    ],
)  # fmt: skip
def test_platforms_are_known_by_their_texts(texts, shown, not_shown):
    found = platforms(**texts)
    assert set(shown.split()) <= found
    assert not set(not_shown.split()) & found


def test_the_table_holds_the_evidence_of_each_platform(tmp_path):
    builder = ExportBuilder().process(100, "python3").thread(100).gpu()
    builder.kernel("void at::native::add()", launch=(0, 5), run=(10, 20)).range("aten::add", 0, 9)
    rows = results_of([builder.write(tmp_path / "a.sqlite")]).frame("platforms")
    found = {(one.platform, one.evidence): (one.text_count, one.example) for one in rows.itertuples()}
    assert found[("PyTorch", "kernels")] == (1, "void at::native::add()")
    assert found[("PyTorch", "ranges")] == (1, "aten::add")
    assert found[("Python", "programs")] == (1, "python3")
    assert ("CUDA", "calls") in found
