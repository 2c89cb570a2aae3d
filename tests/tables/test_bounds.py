"""What advice promises, against what a generated program gains when it runs again on a changed machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from generators.machine import Edit, Machine, Program, Thread, write
from told_score import end_of

from xsp_post.model.results import Results
from xsp_post.pipeline import analyze
from xsp_post.replay.experiment import ideal_gain
from xsp_post.replay.fidelity import identity_of
from xsp_post.replay.what_if import what_if
from xsp_post.tables.analyses.advice import Advice, advise
from xsp_post.tables.analyses.limits import find_limit

SLACK = 0.02  # what is drawn anew
ELEMENTWISE = "void at::native::elementwise_kernel<1>"


def run_again(told: Callable[[Thread], None], edit: Edit, folder: Path) -> tuple[Results, float]:
    """A program's recording, and the share of its time that an edit of the machine saves."""
    machines = [Machine(Random(1), edit=one) for one in (Edit(), edit)]
    for machine in machines:
        told(machine.thread())
    before, after = map(end_of, machines)
    return analyze([write(Program("bounds", machines[:1], [], is_kineto=True), folder / "program")]), 1 - after / before


def advised(results: Results, code: str) -> Advice:
    return next(one for one in advise(results, find_limit(results)) if one.code == code)


@pytest.mark.parametrize("most_us", [20, 150])
def test_a_bound_of_graphs_is_of_all_places(most_us, tmp_path):
    """A pause of each step stays; all launches go, and the host code before them, beside that pause, too."""

    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                thread.host(3_000)
                for number in range(30):
                    thread.host(20 if number % 3 else most_us)
                    thread.launch(ELEMENTWISE, 2)
                thread.sync()

    results, gain = run_again(told, Edit(flags=frozenset({"graph"})), tmp_path)
    assert gain - SLACK <= advised(results, "cuda-graphs").bound_ratio <= gain + 0.05


def test_a_graph_has_no_host_code_between_its_nodes_however_long(tmp_path):
    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                for number in range(30):
                    is_long = number in (10, 20) and "graph" not in thread.m.edit.flags
                    thread.host(2_000 if is_long else 20)
                    thread.launch(ELEMENTWISE, 2)
                thread.sync()

    results, gain = run_again(told, Edit(flags=frozenset({"graph"})), tmp_path)
    assert gain - SLACK <= advised(results, "cuda-graphs").bound_ratio <= gain + 0.05


def test_a_graph_of_steps_takes_nothing_off_what_is_between_them(tmp_path):
    """The host prepares inputs and copies them between two steps."""

    def told(thread: Thread) -> None:
        for step in range(12):
            thread.host(500)
            thread.copy(2_000_000, pageable=False, stream=20)
            with thread.range(f"step {step}"):
                for _ in range(30):
                    thread.host(10)
                    thread.launch(ELEMENTWISE, 2)
                thread.sync()

    results, gain = run_again(told, Edit(flags=frozenset({"graph"})), tmp_path)
    assert gain - SLACK <= advised(results, "cuda-graphs").bound_ratio <= gain + 0.05


def test_a_graph_of_what_shows_no_executions_leaves_long_host_code(tmp_path):
    """Kernels that follow no pattern, and a long pause now and then."""

    def told(thread: Thread) -> None:
        for number in range(240):
            thread.host(2_000 if number % 40 == 39 else 20)
            thread.launch(f"{ELEMENTWISE}<{Random(number).randrange(9**6)}>", 2)

    results, _ = run_again(told, Edit(), tmp_path)
    limit = find_limit(results)
    assert limit.scope == "outside"
    identity = identity_of(results, 0)
    assert ideal_gain(results, identity, 0, ["launch code"]) < 0.5
    assert ideal_gain(results, identity, 0, ["launches", "host"]) > 0.9


def test_a_host_without_waits_keeps_the_work_of_its_own(tmp_path):
    """Its long pieces differ tenfold from step to step: the shortest are no measure of what a wait makes longer."""

    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                for number in range(9):
                    thread.host(2_000 if (step + number) % 3 else 200)
                    thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 100)
                    if number % 3 == 2 and "unwaited" not in thread.m.edit.flags:
                        thread.sync()

    results, gain = run_again(told, Edit(flags=frozenset({"unwaited"})), tmp_path)
    assert gain - SLACK <= advised(results, "remove-synchronization").bound_ratio <= gain + 0.05


def test_kernels_before_a_read_that_are_of_a_program_of_its_own_stay(tmp_path):
    """A solver's kernels: the value, which a short one makes, says how far it is."""

    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                for _ in range(8):
                    for name in ("assemble", "relax", "update"):
                        thread.host(10)
                        thread.launch(f"void flow::{name}(double*)", 60)
                    if "unread" not in thread.m.edit.flags:
                        thread.launch("void flow::is_done(double*)", 5)
                        thread.item()

    results, gain = run_again(told, Edit(flags=frozenset({"unread"})), tmp_path)
    assert gain - SLACK <= advised(results, "item-in-step").bound_ratio <= gain + 0.05


def test_what_reads_save_is_of_reads_alone(tmp_path):
    """Five reads in each step, beside ten waits for the device that stay."""

    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                for number in range(50):
                    thread.host(10)
                    thread.launch(ELEMENTWISE, 20)
                    if number % 5 == 4:
                        thread.sync()
                    elif number % 10 == 2 and "unread" not in thread.m.edit.flags:
                        with thread.range("aten::item", kind="cpu_op"):
                            thread.item()

    results, gain = run_again(told, Edit(flags=frozenset({"unread"})), tmp_path)
    said = advised(results, "item-in-step")
    assert said.estimate_ns * said.bound_ratio / said.bound_ns <= gain + SLACK, gain


@pytest.mark.parametrize("has_graphs", [True, False])
def test_without_reads_the_work_of_the_device_stays(has_graphs, tmp_path):
    """Graphs that end in what is read, and copies that hold back the host, take their time without the reads, too."""

    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                for _ in range(4):
                    if has_graphs:
                        thread.graph([(ELEMENTWISE, 10)] * 24)
                    else:
                        thread.copy(1_000_000)
                        for _ in range(12):
                            thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 20)
                    thread.host(40)
                    with thread.range("aten::item", kind="cpu_op"):
                        if "unread" not in thread.m.edit.flags:
                            thread.item()

    results, gain = run_again(told, Edit(flags=frozenset({"unread"})), tmp_path)
    limit, said = find_limit(results), advised(results, "item-in-step")
    assert gain - SLACK <= said.bound_ratio <= 1 - limit.busy_ns / limit.window_ns + SLACK


def test_a_loop_in_one_batch_keeps_what_is_beside_it(tmp_path):
    """Sixty passes, each after a read, become one; a pause in each step stays."""

    def told(thread: Thread) -> None:
        for step in range(8):
            with thread.range(f"step {step}"):
                thread.host(3_000)
                for _ in range(1 if "batched" in thread.m.edit.flags else 60):
                    for _ in range(3):
                        thread.host(10)
                        thread.launch(ELEMENTWISE, 3)
                    thread.item()

    results, gain = run_again(told, Edit(flags=frozenset({"batched"})), tmp_path)
    assert gain - SLACK <= advised(results, "batch-host-loop").bound_ratio <= gain + 0.05


@pytest.mark.parametrize(
    ("last", "is_loop"),
    [
        ("cudnn::bn_bw_1C11_kernel_NCHW_backward", False),
        ("cutlass_tensorop_s1688dgrad_optimized_tf32_128x64_32x3_nhwc_align4", True),  # a transposed convolution
    ],
)
def test_steps_of_a_training_are_no_passes_for_one_batch(last, is_loop, tmp_path):
    """Sixty reads of scales in each step, which ends in a backward pass, or in a layer that makes images larger."""

    def told(thread: Thread) -> None:
        for step in range(8):
            with thread.range(f"step {step}"):
                for _ in range(60):
                    for _ in range(3):
                        thread.host(10)
                        thread.launch(ELEMENTWISE, 3)
                    thread.item()
                thread.launch(last, 3)

    results, _ = run_again(told, Edit(), tmp_path)
    codes = [one.code for one in advise(results, find_limit(results))]
    assert "item-in-step" in codes and ("batch-host-loop" in codes) == is_loop


@pytest.mark.parametrize("size", [1_000_000, 8_000_000])
def test_copies_between_steps_take_their_time_on_a_stream_of_their_own(size, tmp_path):
    """Those of 8 MB take longer than the kernels behind which they go."""

    def told(thread: Thread) -> None:
        for step in range(12):
            thread.copy(size, pageable=False, stream=20 if "ahead" in thread.m.edit.flags else 7)
            with thread.range(f"step {step}"):
                for _ in range(30):
                    thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 8)
                thread.sync(7)

    results, gain = run_again(told, Edit(flags=frozenset({"ahead"})), tmp_path)
    assert gain - SLACK <= advised(results, "overlap-copies").bound_ratio <= gain + 0.05
    said = what_if(results, ["copy=overlap"]).elapsed
    assert said.low_ns <= (1 - gain) * said.measured_ns <= said.high_ns


def test_copies_inside_the_device_go_with_their_launches(tmp_path):
    """The device has little else to do than to wait for launches, of copies too."""

    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                for _ in range(100 if "kept" not in thread.m.edit.flags else 0):
                    thread.host(5)
                    thread.copy(4_000_000, "DtoD")
                for _ in range(30):
                    thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 20)
                thread.sync()

    results, gain = run_again(told, Edit(flags=frozenset({"kept"})), tmp_path)
    said = advised(results, "copy-less")
    assert gain - SLACK <= said.bound_ratio <= gain + SLACK
    assert -what_if(results, [said.change]).elapsed.change_ratio == pytest.approx(said.bound_ratio, abs=SLACK)


def test_weights_that_were_copied_before_stay_before_the_executions(tmp_path):
    """They take longer than all steps: beside these no step would have ended before them."""

    def told(thread: Thread) -> None:
        thread.copy(400_000_000)
        for step in range(12):
            with thread.range(f"step {step}"):
                thread.copy(2_000_000, pageable=False)
                for _ in range(30):
                    thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 20)
                thread.sync(7)

    results, _ = run_again(told, Edit(), tmp_path)
    said = advised(results, "overlap-copies")
    assert 0.05 < said.bound_ratio < 0.25  # 85 of 690 µs
    assert -what_if(results, ["copy=overlap"]).elapsed.change_ratio < 0.25


def steps_with_results(size: int, host_us: int, thread: Thread) -> None:
    """Steps whose results are copied to pinned memory; the host works on them."""
    for step in range(12):
        with thread.range(f"step {step}"):
            for _ in range(30):
                thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 20)
            thread.copy(size, "DtoH")["pageable"] = False
            thread.host(host_us)


def test_a_bound_of_hidden_copies_is_that_of_their_replay(tmp_path):
    """A copy from pinned memory that holds back the host: without that the host is ahead of the device."""
    results, gain = run_again(partial(steps_with_results, 200_000, 400), Edit(flags=frozenset({"nosync"})), tmp_path)
    bound = advised(results, "overlap-copies").bound_ratio
    assert bound >= max(gain, -what_if(results, ["copy=overlap"]).elapsed.change_ratio) - SLACK


def sure_ratio(said: Advice) -> float:
    return said.estimate_ns * said.bound_ratio / said.bound_ns


def test_hidden_copies_of_results_are_sure_to_save_their_own_time_alone(tmp_path):
    """The host needs them: that it waits for the kernels before them is no part of the copies."""
    results, gain = run_again(partial(steps_with_results, 2_000_000, 800), Edit(copy=0.0), tmp_path)
    said = advised(results, "overlap-copies")
    assert abs(sure_ratio(said) - gain) < SLACK < said.bound_ratio - gain
    assert "does not wait" in said.more


def test_host_code_that_moves_is_sure_to_save_its_own_time_alone(tmp_path):
    """Copies that are launched beside it in a range of the program have to be made by somebody."""

    def told(thread: Thread) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                with thread.range("validation"):
                    thread.host(0 if "moved" in thread.m.edit.flags else 300)
                    thread.copy(12_000_000, pageable=False)
                    thread.sync()
                for _ in range(30):
                    thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 20)
                thread.sync()

    results, gain = run_again(told, Edit(flags=frozenset({"moved"})), tmp_path)
    said = advised(results, "host-code")
    assert abs(sure_ratio(said) - gain) < SLACK < said.bound_ratio - gain


def test_copying_once_is_sure_to_save_the_calls_alone(tmp_path):
    """All bytes of the pieces are copied still."""

    def told(thread: Thread) -> None:
        count = 1 if "together" in thread.m.edit.flags else 30
        for step in range(12):
            with thread.range(f"step {step}"):
                for _ in range(count):
                    thread.copy(3_000_000 // count)
                for _ in range(30):
                    thread.launch("ampere_bf16_s16816gemm_bf16_128x64", 20)
                thread.sync()

    results, gain = run_again(told, Edit(flags=frozenset({"together"})), tmp_path)
    assert sure_ratio(advised(results, "copy-together")) <= gain + SLACK


@pytest.mark.parametrize("kernels", [1, 20])
def test_a_bound_of_reads_has_what_the_host_does_with_the_values_in_ranges_that_only_read(kernels, tmp_path):
    """What is written for 3 ms behind the reads is not written where nobody reads; a range that computes stays."""

    def told(thread: Thread, logs: bool = True) -> None:
        for step in range(12):
            with thread.range(f"step {step}"):
                for _ in range(40):
                    thread.launch(ELEMENTWISE, 50)
                if logs:
                    with thread.range("log"):
                        for _ in range(kernels * 4):
                            thread.launch(ELEMENTWISE, 4)
                        for _ in range(4):
                            thread.item()
                            thread.host(100)
                        thread.host(3_000)

    results, _ = run_again(told, Edit(), tmp_path)
    ends = []
    for logs in (True, False):
        machine = Machine(Random(1))
        told(machine.thread(), logs)
        ends.append(end_of(machine))
    gain = 1 - ends[1] / ends[0]
    bound = advised(results, "item-in-step").bound_ratio
    assert gain > 0.5 and (bound >= gain - SLACK) == (kernels == 1)
