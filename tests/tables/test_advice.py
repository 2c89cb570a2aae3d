"""What to do next: generated programs whose remedy is known, and what no advice may promise or presuppose."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import pytest
from builders import ExportBuilder
from generators import machine, newcomers
from helpers import lever
from recorded import analyzed

from xsp_post.model.results import Analysis
from xsp_post.model.schemas.units import format_ns
from xsp_post.pipeline import analyze
from xsp_post.reports.rank_sentences import rank_sentence
from xsp_post.reports.why import with_reason
from xsp_post.tables.analyses import advice as advising
from xsp_post.tables.analyses import advice_host, advice_kernels
from xsp_post.tables.analyses.advice import LEAST_OPERATIONS, Advice, advise, why_none
from xsp_post.tables.analyses.advice_evidence import Situation
from xsp_post.tables.analyses.advice_host import MOST_GRAPH_RATIO
from xsp_post.tables.analyses.limits import find_limit
from xsp_post.tables.analyses.remedies import REMEDIES, WORDS

US = 1_000
FULL = {"grid": (1080, 1, 1), "block": (256, 1, 1)}


class Program(ExportBuilder):
    """A program on one thread; times in µs go on from call to call."""

    def __init__(self, program: str = "a.out") -> None:
        super().__init__()
        self.process(100, program).thread(100).gpu()
        self.at = 0

    def work(self, name: str = "own", *, took: int = 10, **columns) -> Program:
        """A launch of 2 µs and its kernel, which runs at once."""
        launch, run = (self.at * US, (self.at + 2) * US), ((self.at + 3) * US, (self.at + 3 + took) * US)
        self.kernel(name, launch=launch, run=run, **(FULL | columns))
        self.at += 3
        return self

    def host(self, took: int, name: str = "") -> Program:
        """Host code, in a range where it has a name."""
        if name:
            self.range(name, self.at * US, (self.at + took) * US)
        self.at += took
        return self

    def wait(self, took: int = 12) -> Program:
        self.sync("cudaStreamSynchronize_v3020", self.at * US, (self.at + took) * US)
        self.at += took
        return self

    def call(self, name: str, took: int) -> Program:
        self.api(name, self.at * US, (self.at + took) * US)
        self.at += took
        return self


def said(program: ExportBuilder, tmp_path, *, replayed: bool = False):
    """The advice by code, and its situation. Without a replay bounds are the time concerned."""
    results = analyze([program.write(tmp_path / "report.sqlite")])
    if not replayed:
        results = Analysis({name: one for name, one in results.frames.items() if name != "dependencies"})
    limit = find_limit(results)
    return {one.code: one for one in advise(results, limit)}, Situation(results, limit)


def test_every_remedy_is_found_by_some_rule():
    source = inspect.getsource(advice_host) + inspect.getsource(advice_kernels)
    assert [code for code in REMEDIES if f'"{code}"' not in source] == []
    fields = re.findall(r"\{(\w+)\}", " ".join(one.what + one.unsure for one in REMEDIES.values()))
    assert [name for name in WORDS if name not in {*fields, "pinned", "tf32"}] == []


@pytest.mark.parametrize("count", [LEAST_OPERATIONS - 1, LEAST_OPERATIONS])
def test_nothing_is_advised_from_few_operations(tmp_path, count):
    program = Program()
    for _ in range(count):
        program.work(took=5).host(200)
    advice, situation = said(program, tmp_path)
    assert bool(advice) == (count >= LEAST_OPERATIONS)
    if not advice:
        assert "from only 19 device operations" in why_none(situation.results, situation.limit)


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("add", {"grid": (1, 1, 1), "block": (1, 1, 1)}, 1 - 1 / 32 / 2 / 108),
        ("add", {"grid": (5000, 1, 1), "block": (4, 4, 1)}, 0.75),
        ("add", {"grid": (54, 1, 1)}, 0.5),
        ("add", {}, None),
        ("void at::native::reduce_kernel<1>", {"grid": (1, 1, 1)}, None),  # not the program's own
    ],
)
def test_launch_shape(tmp_path, name, columns, expected):
    advice, _ = said(Program().work(name, took=1000, **columns), tmp_path, replayed=True)
    assert list(advice) == (["launch-shape"] if expected else [])
    if expected:
        found = advice["launch-shape"]
        assert found.estimate_ns / found.bound_ns * found.bound_ratio == pytest.approx(expected, abs=0.01)
        assert expected <= found.bound_ratio <= 1


@pytest.mark.parametrize(
    ("launches", "node", "between", "is_advised"),
    [(40, None, "", True), (5, None, "wait", False), (40, 7, "", False), (5, None, "cudaMalloc", False)],
)
def test_graphs_are_for_many_launches_without_waits_or_graphs(tmp_path, launches, node, between, is_advised):
    program = Program()
    for _ in range(80 // launches):
        for _ in range(launches):
            program.host(20).work(took=2, graph_node=node)
        if between:
            program.wait(5) if between == "wait" else program.call(between, 5)
    assert ("cuda-graphs" in said(program, tmp_path, replayed=True)[0]) == is_advised


@pytest.mark.parametrize(("fused", "is_advised"), [("", True), ("void flash_fwd_kernel<1>", False)])
def test_no_fused_attention_beside_a_fused_one(tmp_path, fused, is_advised):
    program = Program()
    for _ in range(9):
        for name in ("ampere_sgemm_tn", "softmax_warp_forward", "ampere_sgemm_nn"):
            program.work(name).host(10)
    if fused:
        program.work(fused)
    advice, _ = said(program, tmp_path, replayed=True)
    assert ("fuse-attention" in advice) == is_advised
    assert not is_advised or advice["fuse-attention"].estimate_ns == -1  # the products gain most, nobody knows what


@pytest.mark.parametrize(("parameters", "program", "is_advised"), [
    (20, "python3", True), (19, "python3", False), (20, "a.out", False),
])  # fmt: skip
def test_parameters_that_are_updated_one_by_one_ask_for_a_fused_optimiser(tmp_path, parameters, program, is_advised):
    """No range names the optimiser, its kernels do: they are no chains for a compiler."""
    made = Program(program)
    for step in range(3):
        begin = made.at
        for number in range(40):
            made.work(f"ampere_sgemm_128x{number}_tn", took=30)
        for _ in range(parameters):
            for name in ("lerp", "addcmul", "sqrt", "addcdiv"):
                kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}_cuda_kernel>(x)"
                made.host(5).work(kernel, took=3)
        made.range(f"step {step}", begin * US, made.at * US)
    advice, _ = said(made, tmp_path, replayed=True)
    assert ("fused-optimiser" in advice) == is_advised
    assert ("fuse-elementwise" in advice) != is_advised


@pytest.mark.parametrize(("words", "is_advised"), [
    (("BinaryOpScalarFunctor", "PointwiseOpScalarListFunctor"), True),  # passes over all parameters
    (("FusedAdamMathFunctor",), False), (("TernaryOpScalarFunctor",), False),  # one pass, in pieces
])  # fmt: skip
def test_passes_over_all_parameters_are_no_chains_of_a_compiler(tmp_path, words, is_advised):
    program = Program("python3")
    for _ in range(30):
        program.work("ampere_sgemm_tn").host(5)
        for word in words * 4:
            program.work(f"void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, {word}<float>>(x)").host(5)
    advice, _ = said(program, tmp_path, replayed=True)
    assert "fuse-elementwise" not in advice and ("fused-optimiser" in advice) == is_advised


@pytest.mark.parametrize(
    ("name", "is_compiled"), [("void at::native::reduce_kernel<1>", False), ("triton_poi_fused_add_0", True)]
)
@pytest.mark.parametrize(("blocks", "is_advised"), [(20, True), (1080, False)])
def test_launches_that_are_too_small_ask_for_more_at_once(tmp_path, name, is_compiled, blocks, is_advised):
    program = Program("python3")
    for number in range(60):  # launched far ahead
        launch, run = (number * 5 * US, (number * 5 + 2) * US), ((number * 100 + 5) * US, (number * 100 + 104) * US)
        program.kernel(name, launch=launch, run=run, **FULL | {"grid": (blocks, 1, 1)})
    advice, situation = said(program, tmp_path, replayed=True)
    assert ("larger-batch" in advice) == is_advised == (situation.limit.kind == "shape")
    assert ("streams" in advice) == (is_advised and not is_compiled)  # a compiler chooses them
    assert not any(advice[code].is_bound for code in ("streams", "larger-batch") if code in advice)


def made_advice(code, bound_ns, *, estimate_ns=-1, is_bound=True, resource="kernels"):
    return Advice(code, "", "", "", bound_ns, 0.1, estimate_ns=estimate_ns, is_bound=is_bound, resource=resource)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (made_advice("streams", 50), made_advice("sleeps", 90, estimate_ns=40)),  # a replay says less than the bound
        (made_advice("streams", 50), made_advice("sleeps", 90, is_bound=False)),  # a time is no promise
        (made_advice("streams", 50), made_advice("cuda-graphs", 90)),  # names no place
        (made_advice("cuda-graphs", 60), made_advice("fuse-elementwise", 50, resource="launches")),  # less of the same
        (made_advice("streams", 5), made_advice("copy-once", 90, resource="none")),  # is paid once
    ],
)
def test_the_order_of_advice(first, second):
    ordered = sorted((second, first), key=lambda one: one.place)
    assert [one.code for one in ordered] == [first.code, second.code]


@pytest.mark.parametrize(
    ("names", "bound_ns"),
    [
        (["elementwise_a", "vectorized_elementwise_b", "own"], 30 * 10 * US),  # of each chain one kernel stays
        (["elementwise_a", "vectorized_elementwise_b", "sgemm"], 59 * 10 * US),  # none behind a product
        (["elementwise_a", "sgemm"], None),  # no neighbours
        (["triton_poi_fused_a_0", "triton_poi_fused_b_1", "sgemm"], None),  # compiled already
    ],
)
def test_fusing_needs_neighbours_and_no_compiler(tmp_path, names, bound_ns):
    program = Program()
    for _ in range(30):
        for name in names:
            program.work(name).host(10)
    found = said(program, tmp_path)[0].get("fuse-elementwise")
    assert (found.bound_ns if found else None) == bound_ns


def test_fusing_that_spares_launches_alone_is_less_of_what_a_graph_spares(tmp_path):
    program = Program()
    for name in ["sgemm", "elementwise_a", "elementwise_b", "sgemm"] * 30:
        program.host(20).work(name, took=2)
    advice, _ = said(program, tmp_path, replayed=True)
    assert [one for one in advice if one != "larger-batch"] == ["cuda-graphs", "fuse-elementwise"]
    assert advice["fuse-elementwise"].estimate_ns == pytest.approx(
        30 * 23 * US, rel=0.05
    )  # launches and the way to them


@pytest.mark.parametrize(("is_gpu", "work"), [(True, "kernels"), (False, "operators")])
def test_a_cpu_fuses_operators(is_gpu, work, tmp_path):
    results = analyze([Program().work().write(tmp_path / "report.sqlite")])
    words = Situation(results, replace(find_limit(results), is_gpu=is_gpu)).words
    assert REMEDIES["fuse-elementwise"].what.format(**words).startswith(f"Fuse chains of elementwise {work}: ")


def test_what_fusing_spares_are_casts_launches_and_gaps_too(tmp_path):
    """Of five kernels one after another the product stays, and likely one fused kernel; a stall before a chain, too."""
    names = ("direct_copy_kernel_cuda", "elementwise_pow", "elementwise_mul", "direct_copy_kernel_cuda", "sgemm")
    found = []
    for name, stall in (("plain", 0), ("stalled", 1_500)):
        program = Program()
        for k in range(150):
            launch, run = 5 * k + (stall if k >= 145 else 0), 50 + 11 * k + (stall if k >= 145 else 0)
            program.kernel(
                names[k % 5], launch=(launch * US, (launch + 2) * US), run=(run * US, (run + 10) * US), **FULL
            )
        (tmp_path / name).mkdir()
        found.append(said(program, tmp_path / name, replayed=True)[0]["fuse-elementwise"])
    assert found[0].bound_ratio == pytest.approx(44 / 55, abs=0.02)
    assert found[0].estimate_ns == pytest.approx(150 / 5 * 33 * US, rel=0.05)  # with their gaps, one kernel stays
    assert found[1].bound_ns == pytest.approx(found[0].bound_ns, rel=0.1)


@pytest.mark.parametrize("name", ["SGD", "LBFGS"])  # of which nothing is fused, and which runs the model itself
def test_the_bound_of_an_optimiser_is_a_program_without_it(tmp_path, name):
    program = Program("python3")
    for _ in range(5):
        program.work("void at::native::f()", took=40).host(37)
        begin = program.at
        for _ in range(30):
            program.host(17).work("void at::native::f()")
        program.range(f"Optimizer.step#{name}.step", begin * US, program.at * US)
    found = said(program, tmp_path, replayed=True)[0].get("fused-optimiser")
    assert (found.bound_ratio if found else None) == (pytest.approx(600 / 640, abs=0.03) if name == "SGD" else None)


def test_a_remedy_that_names_the_calls_precedes_one_for_everything(tmp_path):
    program = Program("python3")
    for _ in range(30):
        program.call("cudaMalloc_v3020", 100)
        for _ in range(4):
            program.host(12).work("void at::native::f()", took=5)
    codes = list(said(program, tmp_path, replayed=True)[0])
    assert codes[0] == "allocate-once" and "larger-batch" in codes


@pytest.mark.parametrize(("program", "word"), [("python3", "expandable_segments"), ("a.out", "cudaMallocAsync")])
def test_memory_is_allocated_before_the_loop(tmp_path, program, word):
    program = Program(program)
    name = "void at::native::f()" if word == "expandable_segments" else "own"
    for _ in range(30):
        program.call("cudaMalloc_v3020", 100).work(name).call("cudaFree_v3020", 60)
    advice = said(program, tmp_path)[0]["allocate-once"]
    assert "58 times in calls like cudaMalloc" in advice.what and word in advice.what
    assert advice.bound_ns == 29 * (100 + 50) * US


def test_what_is_allocated_once_does_not_load_code(tmp_path):
    """Four launches of each kernel, of which the first loads its code for 5 ms: a host at its fastest loads it, too."""
    program = Program("a.out")
    for number in range(40):
        name, load = f"own_{number // 4}", 5_000 * (number % 4 == 0)
        program.call("cudaMalloc_v3020", 100).host(5)
        begin = program.at
        program.host(load + 2)
        program.kernel(name, launch=(begin * US, program.at * US),
                       run=((program.at + 1) * US, (program.at + 41) * US), **FULL)  # fmt: skip
        program.host(41)
    advice = said(program, tmp_path, replayed=True)[0]
    assert advice["warm-up"].bound_ns >= 9 * 5_000 * US
    assert 39 * 100 * US * 0.9 < advice["allocate-once"].bound_ns < 39 * 150 * US


def test_host_code_of_equal_layers_is_one_place(tmp_path):
    program = Program("a.out")
    for _ in range(10):
        for layer in range(4):
            program.host(1_000 + 100 * layer, f"layers.{layer}.prepare").work("own", took=100)
            program.host(100)
    advice = said(program, tmp_path)[0]["host-code"]
    assert advice.bound_ns == pytest.approx(10 * (4 * 1_000 + 600) * US, rel=0.05)
    assert "in layers.3.prepare and 3 other places" in advice.what


@pytest.mark.parametrize("call", ["cudaStreamCreateWithFlags", "cudaGraphInstantiate"])
def test_what_each_pass_makes_anew_is_made_before_the_loop(tmp_path, call):
    program = Program("a.out")
    for _ in range(30):
        program.call(f"{call}_v10000", 100).work("own")
    advice = said(program, tmp_path)[0]["allocate-once"]
    assert advice.what.startswith("Make streams, events and graphs before the loop: the device waited 29 times")
    assert advice.what.endswith(f" in calls like {call}.")


@pytest.mark.parametrize(
    ("program", "kernel", "code"),
    [
        ("a.out", "void matmul(float const*, float*, int)", "library-product"),
        ("a.out", "MatrixMulKernel(float*, float*)", "library-product"),
        ("a.out", "void gemv2T_kernel_val<int, float>(x)", ""),  # cuBLAS
        ("python3", "void matmul(float const*, float*, int)", ""),  # some package's
        ("python3", "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_128x2_tn_align1>(x)", "pad-sizes"),
        ("python3", "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_tn_align1>(x)", ""),
        ("python3", "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_128x2_tn_align16>(x)", ""),
    ],
)
def test_products_of_ones_own_and_of_odd_sizes(tmp_path, program, kernel, code):
    program = Program(program)
    for _ in range(30):
        program.work(kernel, took=200).host(200).work("void own(float*)", took=200).host(200)
    found = said(program, tmp_path)[0]
    assert {"library-product", "pad-sizes"} & set(found) == ({code} if code else set())
    assert not code or found[code].bound_ratio == pytest.approx(0.5, abs=0.1)


CAST = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(x)>(int)"
PRODUCT = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"


@pytest.mark.parametrize(
    ("names", "is_advised"),
    [
        ([CAST, CAST, PRODUCT], True),
        ([PRODUCT, CAST, "void softmax_warp_forward(x)"], False),  # not for a product
        ([CAST, CAST, PRODUCT, "void layer_norm_backward_kernel(x)"], False),  # weights change from step to step
    ],
)
def test_casts_before_products_are_done_once(tmp_path, names, is_advised):
    program = Program("python3")
    for name in names * 30:
        program.work(name, took=40)
    assert ("cast-once" in said(program, tmp_path)[0]) is is_advised


def test_an_engine_of_tensorrt_can_be_a_graph(tmp_path):
    program = Program("trtexec")
    for number in range(4):
        begin = program.at
        for _ in range(30):
            program.work("generatedNativePointwise", took=2).host(5)
        program.wait()
        program.range(f"ExecutionContext::enqueue {number}", begin * US, program.at * US)
    assert "cuda-graphs" in said(program, tmp_path)[0]


def test_products_of_attention_are_fused_and_not_padded(tmp_path):
    program, product = Program("python3"), "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_128x2_tn_align1>(x)"
    for _ in range(30):
        program.work(product, took=200).host(200).work("void softmax_warp_forward(x)", took=200).host(200)
        program.work(product, took=200).host(200).work("void own(float*)", took=200).host(200)
    found = said(program, tmp_path)[0]
    assert "fuse-attention" in found and "pad-sizes" not in found


def test_fused_attention_has_two_products_on_each_side_in_the_backward_pass(tmp_path):
    program, product = Program("python3"), "ampere_bf16_s16816gemm_bf16_128x64_tn"
    for _ in range(9):
        for name in (product, product, "void softmax_warp_backward(x)", product, product, "void own(float*)"):
            program.work(name, took=100).host(100)
    found = said(program, tmp_path)[0]["fuse-attention"]
    assert found.bound_ratio == pytest.approx(9 * 5 * 100 / program.at, rel=0.1)


@pytest.mark.parametrize(("is_kept", "is_again"), [(True, False), (False, False), (False, True)])
def test_what_a_checkpoint_runs_again_has_a_number_that_no_backward_function_has(tmp_path, is_kept, is_again):
    """``is_again``: by a backward pass whose own operators are differentiated, too."""
    program, turn = Program("python3"), "autograd::engine::evaluate_function: MmBackward0, seq = {}"

    def spanned(text, *parts):
        begin = program.at
        for part in parts:
            part()
        program.range(text, begin * US, program.at * US)

    def run():
        program.work("ampere_sgemm_tn", took=200).host(200)

    for number in range(0, 60, 3):
        spanned(f"aten::mm, seq = {number}", run)
        again = [] if is_kept else [lambda number=number: spanned(f"aten::mm, seq = {number + 1000}", run)]
        spanned(turn.format(number), *again, lambda: spanned("aten::mm", run))
        if is_again:
            spanned(turn.format(number + 1000), lambda: spanned("aten::mm", run))
    found = said(program, tmp_path)[0]
    assert ("recompute-less" in found) == (not is_kept and not is_again), found


@pytest.mark.parametrize(("call", "code"), [("pthread_cond_wait", "waits-for-thread"), ("waitpid", "host-blocked")])
def test_a_wait_for_a_thread_that_nobody_recorded_is_named_by_its_call(tmp_path, call, code):
    program = Program("a.out")
    for _ in range(30):
        program.os_call(call, program.at * US, (program.at + 300) * US).host(300).work("own")
    advice = said(program, tmp_path)[0][code]
    assert call in advice.what and advice.bound_ns > 29 * 250 * US


@pytest.mark.parametrize(("program", "code"), [("python3", "item-in-step"), ("a.out", "remove-synchronization")])
def test_values_read_inside_the_step(tmp_path, program, code):
    program = Program(program)
    for _ in range(30):
        program.work("void at::native::f()")
        begin = program.at
        program.wait(100).range("aten::item", begin * US, program.at * US)
    advice = said(program, tmp_path)[0]
    assert code in advice and (".item()" in advice[code].what) == (program.rows["PROCESSES"][0]["name"] == "python3")


def test_the_data_loader_counts_with_what_runs_inside_it(tmp_path):
    program = Program("python3")
    for _ in range(30):
        begin = program.at
        program.host(200, "aten::stack").host(100)
        program.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin * US, program.at * US)
        program.work("void at::native::f()", took=20).host(20)
    advice = said(program, tmp_path)[0]
    assert advice["num-workers"].bound_ns == 29 * 300 * US
    assert "num_workers" in advice["num-workers"].what
    assert advice["num-workers"].bound_ns > advice.get("cuda-graphs", advice["num-workers"]).bound_ns / 10


@pytest.mark.parametrize(("name", "is_advised"), [("void at::native::f()", True), ("multi_tensor_apply_kernel", False)])
def test_an_optimiser_of_many_kernels(tmp_path, name, is_advised):
    program = Program("python3")
    for _ in range(3):
        begin = program.at
        for _ in range(30):
            program.host(20).work(name)
        program.range("Optimizer.step#SGD.step", begin * US, program.at * US)
    assert ("fused-optimiser" in said(program, tmp_path)[0]) == is_advised


@pytest.mark.parametrize(("operator", "is_advised"), [("aten::_fused_adamw_", False), ("aten::_foreach_mul_", True)])
@pytest.mark.parametrize("range_", ["Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad"])
def test_an_optimiser_with_a_fused_operator_is_fused(tmp_path, operator, is_advised, range_):
    """Beside it are small ones that only count the steps. What it says of one range it does not say of another."""
    program = Program("python3")
    for _ in range(3):
        begin = program.at
        program.host(20).work("void at::native::adam()", took=500)
        program.range(operator, begin * US, program.at * US)
        if not range_.startswith("Optimizer.step"):
            program.range("Optimizer.step#AdamW.step", begin * US, program.at * US)
            begin = program.at
        for _ in range(30):
            program.host(20).work("void at::native::f()")
        program.range(range_, begin * US, program.at * US)
    is_apart = not range_.startswith("Optimizer.step")
    advice = said(program, tmp_path)[0]
    assert ("fused-optimiser" in advice) == (is_advised or is_apart)
    if is_advised or is_apart:  # gradients that are not filled with zeros need no advice
        assert ("set_to_none" in advice["fused-optimiser"].what) == is_apart


def test_a_host_that_decides_after_every_kernel_is_a_loop_to_batch(tmp_path):
    program = Program("python3")
    for _ in range(60):
        program.work("void at::native::f()", took=5).host(30)
        program.memcpy(4, kind="DtoH", launch=(program.at * US, (program.at + 2) * US),
                       run=((program.at + 3) * US, (program.at + 4) * US)).wait(5)  # fmt: skip
    advice = said(program, tmp_path, replayed=True)[0]
    assert "batch-host-loop" in advice and not {"cuda-graphs", "overlap-copies"} & set(advice)


def test_values_that_are_read_later_hide_no_copies(tmp_path):
    """A copy of 1 ms that holds the host up stays; the estimate of reading later has none of it."""
    program = Program("python3")
    for _ in range(20):
        begin = program.at
        program.memcpy(1 << 22, launch=(begin * US, (begin + 1_004) * US), srcKind=0,
                       run=((begin + 3) * US, (begin + 1_003) * US)).host(1_004)  # fmt: skip
        for k in range(30):
            at = program.host(5).at
            program.kernel("void at::native::f()", launch=((at - 2) * US, at * US), **FULL,
                           run=((begin + 1_015 + 20 * k) * US, (begin + 1_034 + 20 * k) * US))  # fmt: skip
        program.memcpy(4, kind="DtoH", launch=(program.at * US, (begin + 1_620) * US),
                       run=((begin + 1_616) * US, (begin + 1_617) * US))  # fmt: skip
        program.at = begin + 1_620
        program.wait(5).host(300).range("step", begin * US, program.at * US)
    found = said(program, tmp_path, replayed=True)[0]["item-in-step"]
    assert found.estimate_ns < found.bound_ns < 20 * 400 * US


def test_pages_of_unified_memory_are_fetched_ahead(tmp_path):
    program = Program()
    for k in range(25):
        program.memcpy(4096, kind=11, run=((20 * k + 5) * US, (20 * k + 18) * US))
    advice = said(program, tmp_path)[0]
    assert list(advice) == ["prefetch"] and "cudaMemPrefetchAsync" in advice["prefetch"].what
    assert advice["prefetch"].bound_ns == (25 * 13 + 24 * 7) * US


def test_ranks_whose_collectives_do_not_match_wait_no_longer_than_these_run_alone(tmp_path):
    """One has more to do; its collectives are others, and most of each is hidden: 10 of 310 µs are alone."""
    program = Program("python3")
    for rank, count in ((0, 12), (1, 20)):
        program.process(100 + rank, "python3").thread(100 + rank)
        for k in range(count):
            at = k * 1_000
            program.kernel("sgemm", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 603) * US),
                           device=rank, **FULL)  # fmt: skip
            program.kernel("ncclDevKernel_AllReduce_Sum", launch=((at + 4) * US, (at + 6) * US), device=rank, stream=9,
                           run=((at + 303) * US, (at + 613) * US), **FULL)  # fmt: skip
    advice, situation = said(program, tmp_path)
    ranks = situation.results.frame("ranks")
    assert ranks["is_straggler"].any() and ranks["waiting_ns"].isna().all()
    assert "late-rank" not in advice or advice["late-rank"].bound_ns <= 20 * 10 * US


@pytest.mark.parametrize(("late", "what", "kind"), [
    ([1] * 12, "Make rank 1 as fast", "AllReduce_Sum"), ([1] * 11 + [0], "Make rank 1 as fast", "AllReduce_Sum"),
    ([0, 1] * 6, "Give the ranks", "AllReduce_Sum"), ([0, 1] * 6, "Give the ranks", "SendRecv"),  # stages of a pipeline
])  # fmt: skip
def test_the_late_rank_comes_before_overlapping(late, what, kind, tmp_path):
    program = Program("python3")
    for rank in (0, 1):
        program.process(100 + rank, "python3").thread(100 + rank)
        for k, compute in enumerate([400 if one == rank else 50 for one in late]):
            at = k * 1_000
            program.kernel("sgemm", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 3 + compute) * US),
                           device=rank, **FULL)  # fmt: skip
            program.kernel(f"ncclDevKernel_{kind}", launch=((at + 4) * US, (at + 6) * US), device=rank,
                           run=((at + 4 + compute) * US, (at + 500) * US), **FULL)  # fmt: skip
    advice, situation = said(program, tmp_path)
    codes = list(advice)
    sentence = rank_sentence(situation.results.frame("ranks"))  # on the same screen, of the same time
    held_up = re.search(r"holds up the others for ([\d.]+ .s)", sentence)
    assert not held_up or held_up[1] == format_ns(advice["late-rank"].bound_ns)
    assert bool(held_up) == (sum(late) > 6), sentence
    assert codes.index("late-rank") < codes.index("overlap-collectives")
    # of each step, whoever is late
    assert advice["late-rank"].bound_ns == pytest.approx(len(late) * 350 * US, rel=0.05)
    share = round(100 * max(late.count(1), late.count(0)) / len(late), 1)
    assert advice["late-rank"].what.startswith(what) and f"waiting, {share:g}" in advice["late-rank"].evidence


def test_no_remedy_saves_more_than_all_the_time(tmp_path):
    """Ranks wait beside the executions, too: what they wait is of the whole recording."""
    program = Program()
    for _ in range(25):
        program.work().wait()
    situation = said(program, tmp_path)[1]
    whole = situation.limit.whole_ns
    for spent, ratio in ((2 * whole, 1.0), (whole / 2, 0.5)):
        found = situation.found("late-rank", spent, {"lost_ns": 5, "talked_ns": 9}, words={"rank": "rank 1"})[0]
        assert advising._bounded(situation.results, situation.limit, found).bound_ratio == pytest.approx(ratio)


def test_one_kernel_of_its_own_that_takes_most_of_the_time(tmp_path):
    """Not one that waits, nor one that somebody else made, nor one that runs while the host takes longer."""
    host, wait = Program.host, Program.wait
    cases = (("probe<int>", wait, ["heavy-kernel"]), ("probe<int>", host, []), ("event_wait", wait, []))
    for name, then, codes in (*cases, ("void cub::f()", wait, [])):
        program = Program()
        for _ in range(25):
            then(then(program.work(name, took=60), 62).work("own", took=15), 17)
        advice = said(program, tmp_path, replayed=True)[0]
        assert [code for code in advice if code == "heavy-kernel"] == codes
        assert not codes or "probe," in advice["heavy-kernel"].what


def test_what_one_device_loses_all_may_lose(tmp_path):
    program = Program()
    for rank, took in enumerate((30, 90)):
        program.process(100 + rank, "a.out").thread(100 + rank)
        for k in range(12):
            at = k * 500
            program.kernel("own", launch=(at * US, (at + 2) * US), run=((at + 3) * US, (at + 500 - took) * US),
                           device=rank, **FULL)  # fmt: skip
    situation = said(program, tmp_path)[1]
    most = situation.causes.groupby("device_id")["idle_ns"].sum().max()
    assert situation.lost(situation.causes) == 2 * most > situation.causes["idle_ns"].sum()


def test_experts_that_one_rank_has_more_of(tmp_path):
    program = Program("python3")
    for rank, took in enumerate((50, 250)):
        program.process(100 + rank, "python3").thread(100 + rank)
        for k in range(12):
            program.kernel("moe_gemm", launch=(k * 300 * US, (k * 300 + 2) * US), device=rank,
                           run=((k * 300 + 3) * US, (k * 300 + 3 + took) * US), **FULL)  # fmt: skip
    assert said(program, tmp_path)[0]["expert-imbalance"].bound_ns == 12 * 100 * US  # on each GPU


def test_launching_a_graph_has_a_price(tmp_path):
    program = Program()
    for _ in range(25):
        program.graph_launch(launch=(program.at * US, (program.at + 90) * US),
                             run=((program.at + 95) * US, (program.at + 195) * US))  # fmt: skip
        program.at += 200
    advice = said(program, tmp_path)[0]
    assert list(advice) == ["graph-launch"] and advice["graph-launch"].bound_ns == 24 * 95 * US


@pytest.mark.parametrize(
    ("call", "code"), [("nanosleep", "sleeps"), ("read", "host-blocked"), ("ioctl", "host-blocked")]
)
def test_calls_of_the_operating_system(tmp_path, call, code):
    program = Program()
    for _ in range(30):
        program.os_call(call, program.at * US, (program.at + 200) * US).host(200, "wait").work()
    advice = said(program, tmp_path)[0]
    assert (code in advice and call in (advice[code].what + advice[code].evidence)) or code == "sleeps"


@pytest.mark.parametrize(
    ("pieces_us", "is_inside", "text"),
    [(200, False, "Move the host code in load"), (200, True, ""), (5_000, True, "Find out all that the host")],
)
def test_host_code_in_a_range_that_launches_has_no_name(tmp_path, pieces_us, is_inside, text):
    """A range that launches nothing is the code; in one that launches only long pieces are more than calling."""
    program = Program()
    for _ in range(30):
        begin = program.at
        program.host(pieces_us, "" if is_inside else "load").work(took=20)
        if is_inside:
            program.range("load", begin * US, program.at * US)
    advice, _ = said(program, tmp_path)
    found = [one.what for code, one in advice.items() if lever(code) == "host-code"]
    assert (*found, "")[0].startswith(text) and bool(found) == bool(text)


@pytest.mark.parametrize(("names", "is_advised"), [(["a", "b"], True), (["a", "b", "c", "d"], False)])
def test_graphs_need_executions_that_repeat(tmp_path, names, is_advised):
    """Six executions of launches; two kinds of them in turn, or none like another."""
    program = Program()
    for number in range(6):
        begin = program.at
        for turn in range(40):
            program.host(20).work(names[0] if turn < 20 + len(names) // 4 * number else names[1], took=2)
        program.wait(5).range(f"step {number}", begin * US, program.at * US)
    advice, situation = said(program, tmp_path, replayed=True)
    assert situation.execution_count == 6 and ("cuda-graphs" in advice) == is_advised


@pytest.mark.parametrize(
    ("shapes", "is_said"), [("aaaaaa", False), ("abcabc", False), ("abcdef", True), ("aacdef", True)]
)
def test_graphs_of_executions_whose_launches_grow_need_the_same_shapes_first(tmp_path, shapes, is_said):
    """A cache that grows by one token is read by larger launches in each step; sizes that recur are no obstacle."""
    program = Program("python3")
    for number, shape in enumerate(shapes):
        begin = program.at
        for _ in range(40):
            program.host(20).work(took=2).work("attention", took=2, grid=(1080 + ord(shape), 1, 1))
        program.wait(5).range(f"step {number}", begin * US, program.at * US)
    advice, situation = said(program, tmp_path, replayed=True)
    assert situation.execution_count == 6
    assert ("same shapes" in advice["cuda-graphs"].what) == is_said


@pytest.mark.parametrize("is_inside", [True, False])
def test_no_graph_holds_a_wait_of_the_host(is_inside, tmp_path):
    """A solver that reads its residual goes on from what it read; one result is read behind a pass."""
    program = Program("python3")
    for number in range(6):
        begin = program.at
        for turn in range(90):
            program.host(20).work(took=2)
            if is_inside and turn % 30 == 5:
                program.wait(5)
        program.wait(5).range(f"step {number}", begin * US, program.at * US)
    advice, _ = said(program, tmp_path, replayed=True)
    assert ("between two waits of the host" in advice["cuda-graphs"].what) == is_inside


def test_no_graphs_where_a_replay_of_them_gains_nothing(tmp_path):
    """The host runs ahead of a device that is always at work."""
    program = Program()
    for number in range(60):
        at = number * 20
        program.kernel("own", launch=(at * US, (at + 2) * US), run=((3 + 50 * number) * US, (52 + 50 * number) * US),
                       **FULL)  # fmt: skip
    assert "cuda-graphs" not in said(program, tmp_path, replayed=True)[0]


@pytest.mark.parametrize(("call", "is_advised"), [("read", True), ("epoll_wait", False), ("poll", False)])
def test_nobody_moves_a_wait_for_a_request(tmp_path, call, is_advised):
    program = Program()
    for _ in range(30):
        program.os_call(call, program.at * US, (program.at + 200) * US).host(200).work()
    assert ("host-blocked" in said(program, tmp_path)[0]) == is_advised


def test_a_thread_that_rests_for_no_known_reason_does_not_sleep(tmp_path):
    """It gave its processor away for unlike times, and nothing else ran there."""
    program = Program()
    for number in range(30):
        took = 2_000 + 300 * number
        program.descheduled(program.at * US, (program.at + took) * US).host(took).work()
    advice, situation = said(program, tmp_path)
    assert "sleep" in set(situation.causes["cause"]) and not {"sleeps", "processor"} & set(advice)
    assert advice["find-host-code"].what.startswith("Find out all that the host does")


def test_time_of_unknown_cause_is_promised_by_nobody(tmp_path):
    program = Program()
    for _ in range(30):
        program.host(5).work(took=2)
    program.kernel("late", launch=(program.at * US, (program.at + 2) * US),
                   run=((program.at + 50_000) * US, (program.at + 50_005) * US), **FULL)  # fmt: skip
    advice, situation = said(program, tmp_path)
    assert situation.limit.window_ns > 50_000 * US
    assert all(one.bound_ns < 1_000 * US for one in advice.values())


@pytest.mark.parametrize("name", ["julia_add(CuDeviceArray)", "__omp_offloading_10_main_l12", "add(float*)"])
def test_programs_that_are_no_pytorch_get_no_words_of_pytorch(tmp_path, name):
    program = Program()
    for _ in range(40):
        program.host(200, "load").work(name).call("cudaMalloc_v3020", 50)
        program.memcpy(1 << 20, launch=(program.at * US, (program.at + 90) * US),
                       run=((program.at + 3) * US, (program.at + 90) * US)).host(100)  # fmt: skip
    advice, situation = said(program, tmp_path)
    assert len(advice) >= 3 and "Python" not in situation.platforms
    text = " ".join(one.what + one.assumption + one.evidence for one in advice.values())
    assert not re.search(r"torch|Python|DataLoader|pin_memory|\.item", text)


CAPTURES = (
    "kineto/alexnet_gpu", "kineto/bert_small_h100", "kineto/compiled_graphs_rtx3060", "kineto/dataloader_0_workers",
    "kineto/gpu_only_mi210", "kineto/mtia_inference", "kineto/nccl_training", "kineto/part_batch256",
    "kineto/qwen3moe_decode_b300", "kineto/sam_host_loop", "kineto/sglang_decode", "kineto/switch_transformer",
    "kineto/vllm_decode_cuda_graph", "kineto/vllm_eager_b200", "nsys/cloverleaf_a100", "nsys/many_copies_a100",
    "nsys/fsdp_2gpu_h100", "nsys/no_metadata_2021.2", "nsys/nvfuser_compile_h200", "nsys/nvfuser_h200",
    "nsys/three_kernels_t4_2023.1", "nsys/transformer_2.7b_a100_compiled",
)  # fmt: skip


@pytest.mark.parametrize("name", CAPTURES)
def test_no_advice_breaks_a_precondition(captures, name):
    results = analyzed(next(path for path in captures.glob(f"{name}.*") if path.suffix in (".sqlite", ".gz")))
    limit = find_limit(results)
    situation, advice = Situation(results, limit), {one.code: one for one in advise(results, limit)}
    count = results.frame("captures")[["kernel_count", "copy_count", "graph_count"]].to_numpy().sum()
    assert count >= LEAST_OPERATIONS or all(REMEDIES[code].least for code in advice)
    if "Python" not in situation.platforms:
        text = " ".join(one.what for one in advice.values())
        assert not re.search(r"torch|DataLoader|pin_memory|\.item", text)
    if "cuda-graphs" in advice:
        assert situation.kernels["is_node"].mean() < MOST_GRAPH_RATIO
        assert len(situation.kernels) >= LEAST_OPERATIONS * max(len(situation.waits), 1) and limit.is_gpu
    assert not ({"fuse-attention"} & set(advice) and situation.kernels["family"].eq("attention").any())
    assert not ({"fuse-elementwise"} & set(advice) and situation.is_compiled)
    known = limit.window_ns - limit.unknown_ns
    for one in advice.values():
        assert one.code in REMEDIES and one.bound_ns > 0 and one.estimate_ns <= one.bound_ns
        assert one.bound_of != "the time" or one.bound_ns <= known


def test_host_code_that_ends_an_execution_is_part_of_its_remedy(tmp_path):
    """A step sleeps after its last call, inside its range: without the sleep nearly all of it goes."""
    builder = ExportBuilder().process(100).thread(100)
    for start in range(0, 10_000_000, 1_000_000):
        builder.range(f"step {start // 1_000_000}", start, start + 950_000)
        for number in range(3):
            at = start + 10_000 * (number + 1)
            builder.kernel("gemm", launch=(at, at + 4_000), run=(at + 6_000, at + 12_000))
        builder.sync("cudaDeviceSynchronize", start + 42_000, start + 44_000)
        builder.os_call("usleep", start + 50_000, start + 940_000)
    results = analyze([builder.write(tmp_path / "sleeps.sqlite")])
    first = advise(results, find_limit(results))[0]
    assert first.code == "sleeps" and first.bound_ratio > 0.85, first


@pytest.mark.parametrize(
    ("text", "is_compiled"),
    [("compile_fx_inner (dynamo_timed)", True), ("compiled model", False), ("prepare", False), ("is_compiling", False)],
)
def test_code_that_is_compiled_once_is_no_host_code_to_move(tmp_path, text, is_compiled):
    program = Program("python3")
    for number in range(30):
        program.host(400, text) if number in (11, 19) else program.host(4)
        program.work(took=2)
    advice, _ = said(program, tmp_path)
    assert ("warm-up" in advice, "host-code" in advice) == (is_compiled, not is_compiled)
    if is_compiled:
        assert advice["warm-up"].what.startswith("Compile before what counts") and text in advice["warm-up"].what
        assert 0.5 < advice["warm-up"].bound_ratio < 1


def test_loading_and_first_launches_are_one_advice(tmp_path):
    program = Program()
    for number in range(40):
        if number == 10:
            program.call("cuModuleLoadData", 500)
        if number == 20:
            at = program.at
            program.kernel("new", launch=(at * US, (at + 300) * US), run=((at + 301) * US, (at + 303) * US), **FULL)
            program.at += 303
        program.work(f"kernel{number % 3}", took=2)
    advice, _ = said(program, tmp_path)
    assert advice["warm-up"].what.startswith("Run one warm-up execution")
    assert re.search(r"2 pieces, the longest 49\d µs: 79\d µs", advice["warm-up"].evidence)


@pytest.mark.parametrize(("every", "is_advised"), [(1, True), (100, False)])
def test_a_pause_that_came_once_in_a_range_that_computes_is_of_the_scheduler(every, is_advised, tmp_path):
    """What the range does, it does in each execution; a processor is taken away once."""
    program = Program("python3")
    for step in range(20):
        begin = program.at
        program.work(took=2_000).host(2_000).host(2_500 * (step % every == min(5, every - 1)))
        program.range("blocks.1.attention", begin * US, program.at * US)
        program.work(took=2_000).host(2_000)
        program.range(f"step {step}", begin * US, program.at * US)
    advice, _ = said(program, tmp_path)
    assert ("find-host-code" in advice) == is_advised


@pytest.mark.parametrize("text", ["ProfilerStep#3", "aten::mm", "AddmmBackward0"])
def test_long_host_code_in_a_step_has_no_name_but_a_place(tmp_path, text):
    program = Program("python3")
    for _ in range(6):
        begin = program.at
        for _ in range(10):
            program.work(took=20).host(20)
        program.host(3_000).work(took=20).host(40)
        program.range(text, begin * US, program.at * US)
    advice, _ = said(program, tmp_path)
    assert ("find-host-code" in advice) == (text not in ("aten::mm", "AddmmBackward0"))
    assert not any(one.is_bound for code, one in advice.items() if code == "find-host-code")  # it saves nothing itself


@pytest.mark.parametrize(("pause_us", "first"), [(1_500, "cuda-graphs"), (6_000, "find-host-code")])
def test_what_has_yet_to_be_found_out_is_behind_a_change_that_saves_as_much(pause_us, first, tmp_path):
    """Stacks of that host code save nothing themselves; where it is most of the time they come first."""
    program = Program("python3")
    for number in range(6):
        begin = program.at
        for _ in range(80):
            program.host(20).work(took=2)
        program.host(pause_us).work(took=2).wait(5).range(f"step {number}", begin * US, program.at * US)
    advice, _ = said(program, tmp_path, replayed=True)
    assert not advice["find-host-code"].is_bound
    assert next(iter(advice)) == first, list(advice)


@pytest.mark.parametrize(
    ("is_input", "what"), [(True, "Prepare ahead what is copied host→device"), (False, "Find out")]
)
def test_host_code_before_copies_of_inputs_is_to_be_done_ahead(is_input, what, tmp_path):
    program = Program("python3")
    for _ in range(20):
        at = program.host(5_000).at
        program.memcpy(1 << 20, launch=(at * US, (at + 3) * US), run=((at + 4) * US, (at + 90) * US),
                       kind="HtoD" if is_input else "DtoD")  # fmt: skip
        program.host(95).work(took=900).host(1_000)
    advice, _ = said(program, tmp_path)
    said_what = advice["find-host-code"].what
    assert said_what.startswith(what) and "all that the host does" in said_what, said_what


@pytest.mark.parametrize(("bound", "more"), [(1.9, False), (2.0, True)])
def test_a_bound_far_above_the_estimate_says_when_it_may_be_reached(bound, more, monkeypatch, tmp_path):
    """Here the estimate is 10 % of the time."""
    gains = iter([0.1 * bound, 0.1])
    program = Program()
    for _ in range(40):
        program.host(8).work(took=2)
    monkeypatch.setattr(advising, "ideal_gain", lambda *_, **__: next(gains))
    program.write(tmp_path / "report.sqlite")
    results = analyze([tmp_path / "report.sqlite"])
    limit = find_limit(results)
    found = next(one for one in advice_host.RULES[2](Situation(results, limit)) if one.code == "cuda-graphs")
    made = advising._bounded(results, limit, found)
    assert bool(made.more) == more and (" if " in with_reason(made)) == more


def test_no_estimate_is_above_its_bound_and_no_pause_is_of_another_time(tmp_path):
    """Collectives, and waits after which the host launches late: a replay may save more than their own time."""
    results = analyze([machine.write(newcomers.draw(98_518), tmp_path / "window")])
    advice = {one.code: one for one in advise(results, find_limit(results))}
    assert {"overlap-collectives", "remove-synchronization"} <= set(advice)
    assert all(one.estimate_ns <= one.bound_ns for one in advice.values())
    assert "at once" not in advice["remove-synchronization"].what
