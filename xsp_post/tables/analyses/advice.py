"""Limit and idle causes → what to do next: at most seven changes, each with its evidence, assumption and upper bound.

The bound is the time that the change could save at most: the device or idle time that it concerns, in the scope that
the limit speaks of; where a replay of the recording with the change (`replay.what_if`) finds less, that.
PyTorch's commands are named where the capture shows that PyTorch ran.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from xsp_post.base.errors import XspPostError
from xsp_post.hardware.gpus import find_peaks
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_bytes, format_bytes_per_s, format_count, format_ns, format_ratio_percent
from xsp_post.names.number_types import without_tensor_cores
from xsp_post.replay.calls import LONG_HOST_NS
from xsp_post.replay.fidelity import identity_of
from xsp_post.replay.tables import MOST_OPERATIONS
from xsp_post.replay.what_if import gain_of
from xsp_post.tables.analyses.advice_evidence import attention, copies_before, copy_shares, is_torch, sums_gradients
from xsp_post.tables.analyses.advice_texts import BY_OWNER, GRAPHS, PINNED, WHAT_RUNS
from xsp_post.tables.analyses.limits import FIRST_LAUNCH, GROUP_OF_CAUSE, HOST, NOT_RECORDED, Limit, in_scope, lead_in

MOST = 7
# What could save less than this share of the time is left out: a replay is not more exact.
LEAST_RATIO = 0.01
LEAST_BEFORE_RATIO = 0.1  # of what came before the first device work or the first execution
LEAST_ATTENTIONS = 4  # as in a model of several layers
UNBOUND = ("sync=none", "copy=overlap")  # changes without which other work, too, moves up
# A pattern of SIMT single-precision matrix kernels, for what-if.
_SIMT_CHANGE = "kernel:.*(sgemm|simt).*"


MORE = "time concerned; a replay saves more"


@dataclass(frozen=True)
class Advice:
    """One change. ``bound_ns`` is the most it can save; ``change`` is what `xsp-post what-if --change` takes, '' where
    a replay cannot say."""

    code: str
    what: str
    evidence: str
    assumption: str
    bound_ns: int
    bound_ratio: float
    change: str = ""
    bound_source: str = "time concerned"  # or MORE, or: replay
    replay_error_ratio: float | None = None  # of the replay of the recording as it was
    bound_of: str = "the time"  # what the ratio is a share of


def advise(results: Results, limit: Limit) -> list[Advice]:
    """The changes worth trying, those with the highest bound first, and last what came before the executions. None
    where the capture only recorded a CUDA graph: its host code runs once."""
    return list(_known(results, limit)[1])


def why_none(results: Results, limit: Limit) -> str:
    """Why `advise` has nothing to say, as one sentence."""
    if limit.records_graph:
        return "Nothing is advised: the capture shows how a CUDA graph was recorded, not how it ran."
    least = format_ratio_percent(LEAST_RATIO)
    if tried := _known(results, limit)[0]:
        names = ", ".join(one.code for one in tried)
        few = "saves less than that, or less than the replay's error"
        return f"Nothing is advised: in a replay, what concerns {least} of the time or more ({names}) {few}."
    return f"Nothing is advised: no change that is known concerns {least} of the time or more."


def _known(results: Results, limit: Limit) -> tuple[list[Advice], list[Advice]]:
    """The changes that were tried, and the advice. The last are kept: a report asks for them in several places."""
    last: list[tuple[Limit, list[Advice], list[Advice]]] = results.kept("advice", list)
    if not last or last[0][0] != limit:
        tried = _worth(results, limit)
        kept = [one for one in (_replayed(results, limit, one) for one in tried) if one is not None]
        last[:] = [(limit, tried, sorted(kept, key=lambda one: (one.bound_of == _RECORDED, -one.bound_ns))[:MOST])]
    return last[0][1:]


def _worth(results: Results, limit: Limit) -> list[Advice]:
    """The changes that concern enough of the time, before any replay."""
    if not limit.window_ns or not limit.window or limit.records_graph:
        return []
    causes, torch = in_scope(results, limit), is_torch(results, limit)
    found = [
        *_matrix_products(limit, torch),
        *_attention(results, limit, torch),
        *_elementwise(limit, torch),
        *_layouts(limit, torch),
        *_launches(limit, causes, torch),
        *_copies(results, limit, causes, torch),
        *_collectives(results, limit, causes),
        *_by_owner(limit, causes, torch),
        *_first_launches(results, limit, causes),
        *_profiler(limit, causes),
        *_before_device_work(results, limit, torch),
        *_before_executions(results, limit, torch),
    ]
    return [one for one in found if one.bound_ratio >= LEAST_RATIO]


def _made(
    limit: Limit, code: str, what: str, evidence: str, assumption: str, bound_ns: float, change: str = ""
) -> Advice:
    return Advice(code, what, evidence, assumption, int(bound_ns), float(bound_ns) / limit.window_ns, change)


def _replayed(results: Results, limit: Limit, one: Advice) -> Advice | None:
    """The advice with the gain that a replay finds, of the same time as the limit (`device_span`); None where the
    gain is below the replay's error. Without the tables of a replay, or where it refuses, the advice stays as it is."""
    has_tables = {"kernels", "dependencies", "memory_operations"} <= set(results.tables())
    if not one.change or not has_tables or limit.scope == "warm-up" or len(limit.captures) != 1:
        return one
    if int(limit.window["kernel_count"]) > MOST_OPERATIONS:
        return one
    try:
        known = identity_of(results, limit.captures[0])
        gain = max(gain_of(results, one.change, limit.captures[0], known), 0.0)
    except XspPostError:
        return one
    if gain < max(known.error_ratio, LEAST_RATIO):
        return None
    if gain - one.bound_ratio >= LEAST_RATIO and one.change in UNBOUND:
        return replace(one, bound_source=MORE)  # most of it is other work that moves up, not what the advice names
    return replace(
        one, bound_ratio=min(gain, one.bound_ratio), bound_ns=min(math.ceil(gain * limit.window_ns), one.bound_ns),
        bound_source="replay", replay_error_ratio=known.error_ratio,
    )  # fmt: skip


def _number(limit: Limit, column: str) -> int:
    return int(limit.window[column])


def _matrix_products(limit: Limit, torch: bool) -> list[Advice]:
    """Tensor cores for single-precision products that do without."""
    simt, kernel = _number(limit, "simt_matrix_ns"), _number(limit, "kernel_ns")
    peaks = find_peaks(limit.gpu_name) if limit.gpu_name and " + " not in limit.gpu_name else None
    if peaks is None:
        return []
    tf32 = peaks.peak("tf32_tensor")
    slow = peaks.peak("fp32")
    is_tf32 = bool(tf32 and slow and tf32 > slow)
    fast = tf32 if is_tf32 else peaks.peak("bf16_tensor") or peaks.peak("fp16_tensor")
    if not simt or not fast or not slow or fast <= slow:
        return []
    ratio = slow / fast
    top = str(limit.window["top_kernel"])
    heaviest = f" (heaviest: {top[:60]})" if without_tensor_cores([top])[0] else ""
    if is_tf32:
        how = "torch.set_float32_matmul_precision('high')" if torch else "CUBLAS_COMPUTE_32F_FAST_TF32"
        allow = f"allow TF32 ({how}), or use BF16"
        assumed = "TF32 keeps 10 bits of the mantissa, BF16 7"
    elif peaks.peak("bf16_tensor"):
        allow, assumed = "use BF16 or FP16", "BF16 keeps 7 bits of the mantissa; FP16 keeps 10 and ends at 65,504"
    else:  # Volta and Turing
        allow, assumed = "use FP16", "FP16 keeps 10 bits of the mantissa and ends at 65,504"
    return [_made(
        limit, "tensor-cores",
        f"Let matrix products use tensor cores: {allow}.",
        f"{format_ratio_percent(simt / max(kernel, 1))} of the kernel time is in matrix products without tensor "
        f"cores{heaviest}, on a GPU whose tensor cores are {1 / ratio:.0f} times as fast.",
        f"{assumed}: the model must bear it. The bound is the ratio of the peaks.",
        simt * (1 - ratio), f"{_SIMT_CHANGE}={ratio:.3g}x",
    )]  # fmt: skip


def _attention(results: Results, limit: Limit, torch: bool) -> list[Advice]:
    """One kernel for attention that runs as two products with a softmax between them."""
    count, spent = attention(results, limit)
    if count < LEAST_ATTENTIONS:
        return []
    how = "torch.nn.functional.scaled_dot_product_attention" if torch else "FlashAttention, or that of cuDNN"
    return [_made(
        limit, "fuse-attention", f"Use fused attention: {how}.",
        f"{format_count(count)} times softmax, scaling, masks and copies run as kernels of their own between two "
        f"matrix products: {format_ns(spent)}.",
        "Nothing else reads the scores. The bound is the time of the kernels between the products.",
        spent, "attention=fused",
    )]  # fmt: skip


def _elementwise(limit: Limit, torch: bool) -> list[Advice]:
    spent, kernel = _number(limit, "elementwise_ns"), _number(limit, "kernel_ns")
    if spent < 0.1 * max(kernel, 1):
        return []
    how = "torch.compile, or a fused operator" if torch else "one kernel for all of a chain"
    return [_made(
        limit, "fuse-elementwise", f"Fuse chains of elementwise kernels: {how}.",
        f"{format_ratio_percent(spent / kernel)} of the kernel time is in elementwise kernels.",
        "A fused chain reads and writes memory once. Chains of two are assumed: half of the time goes.",
        spent / 2, "kernel:^(?!.*(copy|Fill|index)).*elementwise.*=0.5x",
    )]  # fmt: skip


def _layouts(limit: Limit, torch: bool) -> list[Advice]:
    spent = _number(limit, "layout_ns")
    wanted = "memory_format=torch.channels_last" if torch else "NHWC"
    return [_made(
        limit, "layout", f"Keep images in the layout that convolutions want: {wanted}.",
        f"{format_ns(spent)} of the kernel time only change the layout of images (nchwToNhwc and the like).",
        "The whole model runs in one layout.", spent, "kernel:.*(nchwTo|nhwcTo).*=0x",
    )]  # fmt: skip


# What a thread does between two launches, or in calls that a graph takes in; long stretches of it are left out.
_BETWEEN_LAUNCHES = ("host_code", "allocation", "os_call", "descheduled", "copy_call", "queued")


def _short_ns(causes: pd.DataFrame) -> int:
    """The most that pieces shorter than `LONG_HOST_NS` can sum to."""
    longest, idle = causes["longest_ns"].to_numpy(), causes["idle_ns"].to_numpy()
    others = np.minimum(idle - longest, (causes["piece_count"].to_numpy() - 1) * LONG_HOST_NS)
    return int(np.where(longest < LONG_HOST_NS, idle, others).sum())


def _launches(limit: Limit, causes: pd.DataFrame, torch: bool) -> list[Advice]:
    mine = causes[causes["cause"].isin(["launch_call", "launch_latency"])]
    is_graph = mine["call_name"].astype(str).str.contains("GraphLaunch", regex=False)  # one call already
    mine = mine[mine["detail"].ne(FIRST_LAUNCH) & ~is_graph]
    spent, count = int(mine["idle_ns"].sum()), _number(limit, "kernel_count")
    between = _short_ns(causes[causes["cause"].isin(_BETWEEN_LAUNCHES)])
    if not count:
        return []
    mean = _number(limit, "kernel_ns") / count
    advice = [] if not limit.is_gpu else [_made(
        limit, "cuda-graphs",
        f"Launch less: capture {WHAT_RUNS[torch]} as a CUDA graph ({GRAPHS[torch]}).",
        f"The device waited {format_ns(spent)} for launches and {format_ns(between)} for short host code between them; "
        f"{format_count(count)} kernels of {format_ns(mean)} on average.",
        "Shapes and control flow do not change from one execution to the next.", spent + between, "launch=graph",
    )]  # fmt: skip
    if mean < 20_000 and limit.busy_ns < 0.5 * limit.window_ns:
        loading = int(causes.loc[causes["detail"].astype(str).eq(FIRST_LAUNCH), "idle_ns"].sum())  # paid once anyway
        more = "a larger batch" if torch else "more work per launch"
        advice.append(_made(
            limit, "larger-batch", f"Give the device more at once: {more}.",
            f"{'Kernels' if limit.is_gpu else 'Operators'} are short ({format_ns(mean)} on average) and the device is "
            f"busy {format_ratio_percent(limit.busy_ns / limit.window_ns)}.",
            "Latency may grow; throughput counts. The host's time per batch stays the same.",
            limit.window_ns - limit.busy_ns - loading,
        ))  # fmt: skip
    return advice


def _waited(causes: pd.DataFrame, cause: str) -> int:
    return int(causes.loc[causes["cause"].eq(cause), "idle_ns"].sum())


def _copies(results: Results, limit: Limit, causes: pd.DataFrame, torch: bool) -> list[Advice]:
    alone, waited = _number(limit, "copy_busy_ns"), _waited(causes, "copy_call")
    if alone + waited < LEAST_RATIO * limit.window_ns:
        return []
    evidence = f"Copies ran alone for {format_ns(alone)}"
    evidence += f", and the device waited {format_ns(waited)} inside copy calls." if waited else "."
    inside, pinned = copy_shares(results, limit)
    if inside > 0.5:
        what = "Copy less inside the device, or on a stream of its own beside the kernels"
        evidence += f" {format_ratio_percent(inside)} of the copies' time is inside the device."
    elif pinned > 0.5:
        what = "Hide the copies: a stream of their own, early enough (their memory is pinned already)"
    else:
        what = f"Hide the copies: pinned memory ({PINNED[torch]}), a stream of their own"
    # what the copies can run beside: kernels, graphs, and the time in which the device waits
    rest = _number(limit, "kernel_ns") + _number(limit, "graph_busy_ns") + limit.window_ns - limit.busy_ns
    less = [] if alone <= rest else [_made(
        limit, "copy-less",
        "Copy less: keep on the device what is used again, or copy smaller types.",
        f"{evidence} All else takes {format_ns(rest)}: behind it no more can be hidden.",
        "There is memory for it on the device, or fewer bits are enough.", alone,
    )]  # fmt: skip
    assumed = "There is other work to run meanwhile, and the data are known in time."
    hidden = min(alone + waited, rest)
    return [*less, _made(limit, "overlap-copies", f"{what}.", evidence, assumed, hidden, "copy=overlap")]


def _collectives(results: Results, limit: Limit, causes: pd.DataFrame) -> list[Advice]:
    alone, waited = _number(limit, "communication_ns"), _waited(causes, "communication")
    if alone + waited < LEAST_RATIO * limit.window_ns:
        return []
    less = "larger buckets, BF16 gradients" if sums_gradients(results, limit) else "fewer and larger messages"
    outside = f"; outside them the device waited {format_ns(waited)} for other ranks" if waited else ""
    return [_made(
        limit, "overlap-collectives",
        f"Overlap collectives with computation, or send less ({less}).",
        f"Collectives ran alone for {format_ns(alone)}, with what they waited inside for slower ranks (xsp-post table "
        f"ranks){outside}.",
        "There is computation that does not need their result.", alone + waited, "comm=0x",
    )]  # fmt: skip


def _by_owner(limit: Limit, causes: pd.DataFrame, torch: bool) -> list[Advice]:
    """For every cause that one range owns most of: what to do there."""
    found = []
    for cause, (code, what, assumption, change) in BY_OWNER.items():
        mine = causes[causes["cause"].eq(cause) & causes["detail"].ne(NOT_RECORDED)]
        if cause == "host_code":  # short stretches between launches are the business of CUDA graphs
            mine = mine[mine["longest_ns"] >= LONG_HOST_NS]
        if mine.empty:
            continue
        owned = mine.astype({"owner": str, "call_name": str}).groupby("owner", sort=False)["idle_ns"].sum()
        owner, spent = str(owned.idxmax()), int(owned.max())
        rows = mine[mine["owner"].eq(owner)].sort_values("idle_ns", ascending=False)
        call = str(rows["call_name"].iloc[0])
        shown_call = (f" ({call})" if call else "") if cause == "host_code" else call or "the call"
        said = " (.item(), .cpu(), print and torch.cuda.synchronize cause it)" if torch else ""
        found.append(_made(
            limit, code, what.format(call=shown_call, place=_place(owner), torch=said),
            f"The device waited {format_ns(spent)} there, {_pieces(rows)}.", assumption, spent, change,
        ))  # fmt: skip
    return found


def _place(owner: str) -> str:
    return f"in {owner}" if owner else "outside every range"


def _pieces(rows: pd.DataFrame) -> str:
    """``in 3 pieces, the longest 11.5 ms``."""
    count = int(rows["piece_count"].sum())
    longest = f"the longest {format_ns(int(rows['longest_ns'].max()))}"
    return f"in {format_count(count)} pieces, {longest}" if count > 1 else "in one piece"


def _first_launches(results: Results, limit: Limit, causes: pd.DataFrame) -> list[Advice]:
    """Loading of code, before the first device work too."""
    mine = causes[causes["detail"].eq(FIRST_LAUNCH)]
    count, spent = int(mine["piece_count"].sum()), int(mine["idle_ns"].sum())
    before, row = lead_in(results, limit)
    early = row.idle_ns if row is not None and row.detail == FIRST_LAUNCH else 0
    advice = _made(
        limit, "warm-up", "Run one warm-up execution before what counts, or set CUDA_MODULE_LOADING=EAGER.",
        ("A first launch loaded the code of its kernel: " if count + bool(early) == 1 else
         f"{format_count(count + bool(early))} first launches loaded the code of their kernels: ")
        + format_ns(spent + early)
        + (f", {format_ns(early)} of it before the first device work." if early else "."),
        "The program goes on long enough for this to be paid once.", spent + early,
    )  # fmt: skip
    return [_with_lead_in(advice, limit, before) if early else advice]


def _with_lead_in(advice: Advice, limit: Limit, before: int) -> Advice:
    return replace(advice, bound_ratio=advice.bound_ns / (limit.window_ns + before), bound_of=_WITH_LEAD_IN)


def _profiler(limit: Limit, causes: pd.DataFrame) -> list[Advice]:
    spent = int(causes.loc[causes["cause"].eq("profiler_overhead"), "idle_ns"].sum())
    return [_made(
        limit, "record-less", "Record again with less: nsys profile -t cuda,nvtx --sample=none --cpuctxsw=none.",
        f"The profiler itself made the device wait {format_ns(spent)}.",
        "This saves nothing without the profiler: the program is that much faster already.", spent,
    )]  # fmt: skip


_RECORDED = "all that was recorded"
_WITH_LEAD_IN = "the time with what came before the first device work"


def _before_device_work(results: Results, limit: Limit, torch: bool) -> list[Advice]:
    """What the first execution did before its device had work: it is part of its latency, not of the limit's time."""
    time, row = lead_in(results, limit)
    if row is None or GROUP_OF_CAUSE[row.cause] != HOST or row.idle_ns < LEAST_BEFORE_RATIO * (limit.window_ns + time):
        return []
    place = f"{_place(row.owner)}{f' ({row.call_name})' if row.call_name else ''}"
    workers = ", as a DataLoader with workers does" if torch else ""
    what = f"Do ahead, on another thread{workers}, what came {place} before the first device work."
    advice = _made(
        limit, "prepare-ahead", what,
        f"The first execution took {format_ns(time)} before its first device work, {format_ns(row.idle_ns)} of it "
        "there.",
        "Other executions begin like the first; where inputs are prepared ahead it is paid once.", row.idle_ns,
    )  # fmt: skip
    return [_with_lead_in(advice, limit, time)]


def _before_executions(results: Results, limit: Limit, torch: bool) -> list[Advice]:
    """Copies before the first execution: of weights, as a rule."""
    copies = copies_before(results, limit) if limit.scope == "execution" else None
    windows = frame_or_empty(results, "device_windows", ["capture_id", "window_ns"])
    recorded = int(windows.loc[windows["capture_id"].isin(limit.captures), "window_ns"].sum())
    if copies is None or copies.time_ns < LEAST_BEFORE_RATIO * recorded:
        return []
    kind = f", {copies.memory_kind} memory" if copies.memory_kind else ""
    pinned = f" from pinned memory ({PINNED[torch]})" if copies.memory_kind == "pageable" else ""
    rate = format_bytes_per_s(copies.bytes / max(copies.time_ns / 1e9, 1e-9))
    advice = _made(
        limit, "copy-once", f"Copy weights and inputs once, in large pieces{pinned}, before what counts.",
        f"Before the first execution {format_count(copies.count)} copies {copies.direction} took "
        f"{format_ns(copies.time_ns)}: {format_bytes(copies.bytes)} at {rate}{kind}.",
        "A program that goes on long enough pays this once; one that starts often pays it each time.", copies.time_ns,
    )  # fmt: skip
    return [replace(advice, bound_ratio=copies.time_ns / max(recorded, 1), bound_of=_RECORDED)]
