"""Twenty-one edits by a sixth author, each as a program before and after it (`generators.edited` runs them).

Host functions on a stream, ranks that are late by turns, a decoder's batch, polled events, work that only few
executions do, regressions that nobody wanted (clocks, one layer in float, prints), and recordings of programs that
nobody changed. Written before a look at the rules of the replay and the advice: the levers are what an engineer would
accept. Where nothing in a recording could show the edit there is no lever. First contact, 42 pairs: the lever among
the first three 20 of 30, bound 14 of 16, compare 39 of 39, limit 40 of 42. What it changed here: to join two streams
saves 3 % of a program that the device limits, which no advice need say; kernels take half of the time between which
the host functions run, and of some seeds longer than the copies.
"""

from __future__ import annotations

from random import Random

from generators.edited import Flag, Thread, World
from generators.edited_programs import (
    ADAM,
    ADD,
    BF16,
    FLASH,
    FP32,
    GELU,
    NORM,
    REDUCE,
    SOFTMAX,
    Edited,
    _mark,
    block,
    item,
    linear,
    op,
    steps,
    train,
)
from generators.relieved_programs import copied, plain

ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float> > >(x)"
LOOKUP = "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2>(x)"


# -- programs of CUDA C++ ------------------------------------------------------------------------------


def host_functions(w: World, edited: bool, rng: Random) -> None:
    """C++: a host function on the stream halves a time step after each sweep -> a kernel does."""
    t, us, host = w.thread(), rng.uniform(120, 220), rng.uniform(90, 180)
    other = None if edited else w.thread(0, 60, "cuda-EvtHandlr")
    sweeps = rng.randint(10, 16)

    def body(_: int) -> None:
        for _sweep in range(sweeps):
            done = t.kernel("void sweep(double*, double const*, double, int)", us)
            if other is None:
                t.kernel("void adapt(double*, double const*)", 4)
                continue
            called = Flag()
            t.api("cudaLaunchHostFunc", 3)
            other.need(done, "")
            other.cpu(host)
            other.set(called)
            other.acts.append(("migrate", 7, 0, 0, 0))  # the stream may go on
            t.kernel("void apply_step(double*, double)", us / 4, after=[called])
        t.wait("all")

    steps(t, body, "time step {}", 8)


def event_queries(w: World, edited: bool, rng: Random) -> None:
    """C++: the host asks cudaEventQuery until a stream is done, then launches on the other -> cudaStreamWaitEvent."""
    t, us, parts = w.thread(), rng.uniform(35, 60), rng.randint(8, 12)

    def body(_: int) -> None:
        for _part in range(parts):
            done = t.kernel("void unpack(uint8_t const*, float*, int)", us, stream=13)
            t.api("cudaEventRecord", 1.2)
            if edited:
                t.api("cudaStreamWaitEvent", 1.0)
            else:
                t.acts.append(("poll", done, "cudaEventQuery", 1.1))
                t.cpu(18)
            t.kernel("void correlate(float const*, float*, int)", us * 0.9, stream=14, after=[done])
        t.wait("all")

    steps(t, body, "frame {}", 8)


def joined(w: World, edited: bool, rng: Random) -> None:
    """C++: two streams that hand over after every short kernel -> one stream, no events."""
    t, parts = w.thread(), rng.randint(40, 70)

    def body(_: int) -> None:
        done: list[Flag] = []
        for part in range(parts):
            stream = 13 if edited else 13 + part % 2
            if not edited:
                t.api("cudaEventRecord", 1.3)
                t.api("cudaStreamWaitEvent", 1.6)
            done = [t.kernel("void stage(float*, float const*, int)", 6.0, stream=stream, after=done[-1:])]
        t.wait("all")

    steps(t, body, "pass {}", 8)


def pageable_async(w: World, edited: bool, rng: Random) -> None:
    """C++: cudaMemcpyAsync of three inputs from std::vector -> pinned, one frame ahead on another stream."""
    t, size = w.thread(), rng.uniform(4e6, 7e6)
    frames = 10
    ready: list[Flag] = []

    def upload() -> None:
        for _ in range(3):
            if edited:
                ready.append(t.copy(size, pinned=True, stream=19))
            else:
                copied(t, size, api="cudaMemcpyAsync")

    if edited:
        upload()

    def body(_: int) -> None:
        if not edited:
            upload()
        need = ready[-1:]
        for _kernel in range(6):
            t.cpu(4)
            t.kernel("void flow(float const*, float2*, int, int)", 420, after=need)
        if edited:
            upload()
        t.wait(_mark(t), "cudaStreamSynchronize")

    steps(t, body, "frame {}", frames)


# -- training ------------------------------------------------------------------------------------------


def by_turns(w: World, edited: bool, rng: Random) -> None:
    """In each step another rank of four opens its next shard -> a thread opens it ahead."""
    ms = rng.uniform(10, 16)
    for rank in range(4):
        t = w.thread(rank)

        def body(number: int, t: Thread = t, rank: int = rank) -> None:
            t.begin("next_batch")
            t.cpu(ms * 1_000 if number % 4 == rank and not edited else 500)
            t.end()
            train(t, 3, 0.5, optimiser=False)
            done = t.kernel(REDUCE, 900, stream=23, group=number, after=[_mark(t)])
            t.kernel(ADAM, 120, after=[done])
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body, count=8)


def reduced_late(w: World, edited: bool, rng: Random) -> None:
    """One all-reduce after backward -> buckets beside backward, on a stream of its own."""
    us, parts = rng.uniform(2_200, 3_400), 4
    for rank in range(2):
        t = w.thread(rank)

        def body(number: int, t: Thread = t) -> None:
            for _ in range(4):
                block(t, 0.6)
            done: list[Flag] = []
            for part in range(parts):
                for _ in range(4):
                    op(t, "aten::mm", (BF16, 200))
                    op(t, "aten::mm", (BF16, 200))
                if edited:
                    done = [t.kernel(REDUCE, us / parts, stream=23, group=(number, part), after=[_mark(t)])]
            if not edited:
                done = [t.kernel(REDUCE, us, stream=23, group=number, after=[_mark(t)])]
            t.kernel(ADAM, 200, after=done)
            t.wait("all", "cudaStreamSynchronize")

        steps(t, body)


def logged_often(w: World, edited: bool, rng: Random) -> None:
    """Eight metrics are read and written in each step -> every tenth step."""
    t, metrics, ms = w.thread(), rng.randint(7, 10), rng.uniform(2.0, 3.5)

    def body(number: int) -> None:
        train(t, 3, 0.2)
        if edited and number % 10:
            return
        t.begin("log_metrics")
        for _ in range(metrics):
            op(t, "aten::mean", (ADD, 4))
            item(t)
            t.cpu(120)
        t.cpu(ms * 1_000)
        t.end()

    steps(t, body, count=10)


def saved_aside(w: World, edited: bool, rng: Random) -> None:
    """A checkpoint is written inside the step -> copied to pinned memory, and a thread writes it."""
    t, tensors = w.thread(), rng.randint(16, 24)
    other = w.thread(0, 70, "writer") if edited else None

    def body(_: int) -> None:
        train(t, 4, 0.4)
        t.begin("save_checkpoint")
        for _tensor in range(tensors):
            t.begin("aten::to", "cpu_op")
            done = t.copy(4e6, "DtoH", pinned=edited)
            t.end()
            if other is None:
                t.os("write", 1_100)
            else:
                other.need(done)
                other.os("write", 700)
        t.end()

    steps(t, body)


def seldom(w: World, edited: bool, rng: Random) -> None:
    """Every fifth step collects garbage and draws pictures of the weights -> never."""
    t, ms = w.thread(), rng.uniform(60, 90)

    def body(number: int) -> None:
        train(t, 4, 0.5)
        item(t)
        if number % 5 == 3 and not edited:
            t.begin("draw_histograms")
            t.cpu(ms * 1_000)
            t.end()

    steps(t, body, count=15)


def index_copies(w: World, edited: bool, rng: Random) -> None:
    """Sixty tables get their indices one by one, pinned and asynchronous -> one buffer."""
    t, tables = w.thread(), rng.randint(50, 70)

    def body(_: int) -> None:
        if edited:
            t.copy(4_096 * tables, pinned=True)
        for _table in range(tables):
            if not edited:
                t.begin("aten::copy_", "cpu_op")
                t.cpu(14)
                t.copy(4_096, pinned=True)
                t.end()
        op(t, "aten::embedding_bag", (LOOKUP, 60))
        for _ in range(4):
            linear(t, 40)
        item(t)

    steps(t, body, "rank {}", 10)


# -- inference -----------------------------------------------------------------------------------------


def decoder_batch(w: World, edited: bool, rng: Random) -> None:
    """A decoder answers sixteen requests at once, not four."""
    t, layers, rows = w.thread(), rng.randint(12, 18), 16 if edited else 4
    scale = 1.1 if edited else 1.0

    def body(_: int) -> None:
        for _layer in range(layers):
            op(t, "aten::rms_norm", (NORM, 2.2))
            linear(t, 7.5 * scale, rows=rows)
            op(t, "flash_attn::_flash_attn_varlen", (FLASH, 6.0 * scale))
            linear(t, 4.5 * scale, rows=rows)
            op(t, "aten::silu", (GELU, 2.0))
            linear(t, 11 * scale, rows=rows)
        op(t, "aten::argmax", (ARGMAX, 6))
        item(t)

    steps(t, body, "decode {}", 10)


def token_reads(w: World, edited: bool, rng: Random) -> None:
    """A decoder with a graph asks after each token whether it ended (.cpu()) -> after every eighth."""
    t, layers = w.thread(), rng.randint(8, 12)
    nodes = [(NORM, 2.2), (BF16, 8.0), (FLASH, 5.0), (BF16, 5.0), (NORM, 2.2), (BF16, 10.0)] * layers

    def body(number: int) -> None:
        t.cpu(70)
        t.work("kernel", nodes[0][0], nodes[0][1], api="cudaGraphLaunch", call=24, node=1)
        t.acts.append(("more", nodes[1:]))
        op(t, "aten::argmax", (ARGMAX, 6))
        if edited and number % 8 != 7:
            return
        t.begin("aten::to", "cpu_op")
        t.copy(64, "DtoH")
        t.end()
        t.cpu(260)

    steps(t, body, "token {}", 24)


def encoder(w: World, edited: bool, rng: Random) -> None:
    """A server encodes its prompt before each forward -> a thread encodes the next one meanwhile."""
    t, ms, requests = w.thread(), rng.uniform(3, 6), 10
    other = w.thread(0, 80, "encoder") if edited else None
    ready = [Flag() for _ in range(requests)]
    for flag in ready if other else ():
        other.begin("encode_prompt")
        other.cpu(ms * 1_000)
        other.end()
        other.set(flag)

    def body(number: int) -> None:
        if other:
            t.need(ready[number])
        else:
            t.begin("encode_prompt")
            t.cpu(ms * 1_000)
            t.end()
        t.copy(32_768, pinned=True)
        for _ in range(6):
            block(t, 1.0)
        item(t)

    steps(t, body, "request {}", requests)


def device_get(w: World, edited: bool, rng: Random) -> None:
    """JAX: the loss is read after each step (float(loss)) -> the last one of twelve."""
    t, us = w.thread(), rng.uniform(9, 14)

    def body(number: int) -> None:
        t.cpu(160)
        for _ in range(20):
            t.cpu(2)
            t.kernel("loop_multiply_fusion_7", us, api="cuLaunchKernelEx")
            t.kernel("gemm_fusion_dot_31", us * 2, api="cuLaunchKernelEx")
        if not edited or number == 11:
            copied(t, 4, "DtoH", "cuMemcpyDtoHAsync_v2")
            t.cpu(180)

    plain(t, body, 12)


# -- regressions ---------------------------------------------------------------------------------------


def hot(w: World, edited: bool, rng: Random) -> None:
    """Slower: the GPU became hot, and its clocks fell."""
    t, factor = w.thread(), rng.uniform(1.2, 1.35)

    def body(_: int) -> None:
        train(t, 5, 0.8 * (factor if edited else 1))

    steps(t, body)


def float_head(w: World, edited: bool, rng: Random) -> None:
    """Slower: the head's product left autocast, and runs in float."""
    t, layers = w.thread(), rng.randint(4, 7)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, 0.5)
        linear(t, 2_900 if edited else 420, FP32 if edited else BF16)
        op(t, "aten::softmax", (SOFTMAX, 40))
        item(t)

    steps(t, body, "forward {}", 10)


def printed_blocks(w: World, edited: bool, rng: Random) -> None:
    """Slower: somebody prints the largest activation of each block."""
    t, layers = w.thread(), rng.randint(10, 14)

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, 0.06)
            if edited:
                op(t, "aten::max", (ARGMAX, 5))
                item(t)
                t.cpu(60)
        item(t)

    steps(t, body, "forward {}", 10)


def printed(w: World, edited: bool, rng: Random) -> None:
    """The prints of the largest activation of each block go."""
    printed_blocks(w, not edited, rng)


# -- nothing was changed -------------------------------------------------------------------------------


def uneven(w: World, edited: bool, rng: Random) -> None:
    """The same: nothing was changed in a program whose kernels' times spread."""
    t, layers = w.thread(), rng.randint(5, 8)
    w.spread = 0.12

    def body(_: int) -> None:
        for _layer in range(layers):
            block(t, 0.6)
        item(t)

    steps(t, body, "forward {}", 12)


def longer(w: World, edited: bool, rng: Random) -> None:
    """The same: one recording holds seven steps more than the other."""
    t = w.thread()

    def body(_: int) -> None:
        train(t, 4, 0.5)
        item(t)

    steps(t, body, count=15 if edited else 8)


def other_stream(w: World, edited: bool, rng: Random) -> None:
    """The same: the program's only stream has another number, and a library was named anew."""
    t, layers = w.thread(), rng.randint(6, 10)
    kernel = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4" if edited else BF16

    def body(_: int) -> None:
        for _layer in range(layers):
            t.cpu(6)
            t.kernel(NORM, 14, stream=20 if edited else 7)
            t.cpu(6)
            t.kernel(kernel, 160, stream=20 if edited else 7)
            t.cpu(6)
            t.kernel(GELU, 20, stream=20 if edited else 7)
        t.wait("all")

    steps(t, body, "forward {}", 10)


SAME = "same undecided"  # words of compare that are right where nothing was changed
AMENDED = (
    Edited(host_functions, "waits-for-thread host-code host-blocked streams", "host kernels", "nsys", program="burgers",
           does_more=True),
    Edited(event_queries, "remove-synchronization", "synchronisation host launches kernels", "nsys", program="radar"),
    Edited(joined, "", "host launches synchronisation", "nsys", program="pipeline"),
    Edited(pageable_async, "overlap-copies copy-less", "copies kernels", "nsys", program="flow"),
    Edited(by_turns, "late-rank host-code", "ranks host communication", "nsys", ranks=4),
    Edited(reduced_late, "overlap-collectives", "communication kernels", "nsys", ranks=2),
    Edited(logged_often, "item-in-step host-code remove-synchronization", "host synchronisation", "both"),
    Edited(saved_aside, "host-blocked host-code copy-less overlap-copies", "host copies", "both", does_more=True),
    Edited(seldom, "host-code", "host kernels", "both"),
    Edited(index_copies, "copy-together", "host launches copies", "both"),
    Edited(decoder_batch, "larger-batch", "host launches", "both", samples=4),
    Edited(token_reads, "item-in-step remove-synchronization", "host synchronisation kernels", "both"),
    Edited(encoder, "host-code prepare-ahead", "host kernels", "both"),
    Edited(device_get, "item-in-step remove-synchronization", "host synchronisation kernels", "nsys"),
    Edited(printed, "item-in-step remove-synchronization", "host synchronisation launches", "both"),
    Edited(hot, "", "kernels", "both"),
    Edited(float_head, "", "kernels", "both"),
    Edited(printed_blocks, "", "kernels host launches", "both"),
    Edited(uneven, "", "kernels", "both", word=SAME),
    Edited(longer, "", "kernels host", "both", word=SAME),
    Edited(other_stream, "", "kernels", "nsys", word=SAME),
)  # fmt: skip
