"""Kernels, copies and collectives of a limit → the remedies that spare them (`RULES`)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.intervals import covered_before, union_length
from xsp_post.hardware.gpus import WARP, pinned_bytes_per_s
from xsp_post.model.results import frame_or_empty, of_captures
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.names.families import BROAD, PRODUCTS
from xsp_post.names.number_types import operand_kind, without_tensor_cores
from xsp_post.names.platforms import PYTHON
from xsp_post.replay.changes import WITHIN_DEVICE
from xsp_post.tables.analyses.advice_evidence import MUCH_RATIO, NOTHING, SHORT_KERNEL_NS, Found, Situation, replayable
from xsp_post.tables.analyses.frames import PATTERNS
from xsp_post.tables.analyses.limits import LEAST_KNOWN_RATIO, LEAST_OPERATIONS, SHAPE
from xsp_post.tables.analyses.places import place_text
from xsp_post.tables.analyses.rank_causes import held_up_ns

# What a compiler fuses with its neighbours.
_FUSABLE = {
    family for family, broad in BROAD.items() if broad in ("elementwise", "normalisation", "softmax", "reduction")
}
_CHECKPOINT = "CheckpointFunctionBackward"
_BACKWARD = "autograd::engine::evaluate_function: "
_BITS, _LEAST_BITS = {"bf16": 16, "fp16": 16, "fp32": 32, "tf32": 32}, 4  # of weights, and the fewest of a decoder
_WARPS_OF_FULL = 2  # with fewer warps a block a multiprocessor does not get as many threads as it can hold
_NO_WORK = ["communication", "waiting"]  # families


def _tensor_cores(situation: Situation) -> list[Found]:
    """Tensor cores for single-precision products that do without."""
    spent, kernel = situation.window("simt_matrix_ns"), situation.window("kernel_ns")
    rates = situation.rates if spent else {}
    slow = rates.get("fp32", 0.0)
    fast = {pipe: rates[f"{pipe}_tensor"] for pipe in ("tf32", "bf16", "fp16") if rates.get(f"{pipe}_tensor", 0) > slow}
    if not slow or not fast:
        return []
    digits = {"tf32": "TF32 keeps 10 bits of the mantissa", "bf16": "BF16 keeps 7 bits of it",
              "fp16": "FP16 keeps 10 bits of it and ends at 65,504"}  # fmt: skip
    half = next((pipe for pipe in ("bf16", "fp16") if pipe in fast), "")
    shown = [pipe for pipe in ("tf32", half) if pipe in fast]
    ratio, best = slow / fast[shown[0]], slow / max(fast[pipe] for pipe in shown)
    words = {"tf32": f"allow TF32 ({situation.words['tf32']})", "bf16": "use BF16", "fp16": "use FP16"}
    top = str(situation.limit.window.get("top_kernel", ""))
    heaviest = f" (heaviest: {top[:60]})" if without_tensor_cores([top])[0] else ""
    rows = situation.kernels
    is_slow = situation.by_name(without_tensor_cores, False) & rows["family"].isin(["gemm", "convolution"])
    # 16 bits are half of the bytes, too, where most products have 32; those have all of the gain
    others = 0.5 if half and 2 * spent > situation.window("matrix_ns") else 1.0
    is_wide = situation.by_name(lambda names: [operand_kind(one) in ("fp32", "tf32") for one in names], False)
    wide = is_wide & (rows["family"] == "attention")
    stays = np.where(is_slow | (wide & bool(half)), best, others)
    most = (
        (rows["duration_ns"] * (1 - stays)).sum() if len(rows) else spent * (1 - best) + (kernel - spent) * (1 - others)
    )
    return situation.found(
        "tensor-cores", most,
        {"share_ratio": spent / max(kernel, 1), "heaviest": heaviest, "times": f"{1 / best:.0f}"},
        words={"allow": ", or ".join(words[pipe] for pipe in shown), "ratio": f"{ratio:.3g}",
               "digits": ", ".join(digits[pipe] for pipe in shown)},
        factors=_by_start(rows, stays),
    )  # fmt: skip


def _own_products(situation: Situation) -> list[Found]:
    """Products that a program's own kernels make, those of sizes that no tensor core takes as they are, and one kernel
    of its own that takes half of the time."""
    rows = situation.kernels
    products = rows["family"].isin(["gemm", "convolution"]).to_numpy()
    _, beside, _ = situation.in_attention  # one kernel for attention makes those, at any length
    # where no tensor core is used, each element is read alone, of any size
    odd = products & ~beside & ~situation.by_name(without_tensor_cores, False)
    odd &= situation.is_called(PATTERNS["few at once"])
    own = ~rows["family"].isin(_NO_WORK)
    own &= ~situation.is_called(PATTERNS["library"]) & ~situation.is_called(PATTERNS["products of a library"])
    own &= situation.limit.is_gpu and not situation.is_compiled and PYTHON not in situation.platforms
    each, found = rows["duration_ns"].groupby(rows["name"], observed=True).transform("sum").to_numpy(), []
    heavy = own & ~products & (each >= LEAST_KNOWN_RATIO * situation.limit.window_ns)
    heavy &= "kernels" in situation.limit.limits
    for code, mine in (("library-product", own & products), ("pad-sizes", odd), ("heavy-kernel", heavy)):
        time = rows["duration_ns"][mine].groupby(rows["name"][mine].astype(str)).sum()
        if len(time):
            words = {"kernel": _shortened(time.idxmax())}
            found += situation.found(code, float(time.sum()), {"kernel_count": mine.sum()}, words=words)
    return found


def _shortened(name: object) -> str:
    """A kernel's name without its arguments."""
    return re.sub(r"[<(].*", "", str(name).removeprefix("void "))[:60]


def _weights(situation: Situation) -> list[Found]:
    """Products with one vector, as of a decoder at batch 1: each weight is read once, and that takes their time."""
    bits = situation.by_name(lambda names: [_BITS.get(operand_kind(one), np.nan) for one in names], np.nan)
    bits = np.where(situation.is_called("gemv"), bits, np.nan)
    return _goes(situation, "narrow-weights", np.where(np.isnan(bits), 1.0, _LEAST_BITS / bits))


def _casts(situation: Situation) -> list[Found]:
    """Casts just before products of a program that does not train: of weights, and of inputs to match them."""
    rows, casts = situation.kernels, situation.is_called(PATTERNS["casts"])
    casts &= ~situation.is_called(PATTERNS["products that cast"])
    if situation.trains:
        return []
    stream, product = rows["stream"].to_numpy(), rows["family"].isin(PRODUCTS).to_numpy()
    casts &= ~product
    ends = np.append(~casts[1:] | (stream[1:] != stream[:-1]), True) if len(rows) else casts
    last = np.flatnonzero(ends)
    after = last[np.searchsorted(last, np.arange(len(rows)))] + 1 if len(rows) else last
    casts &= np.append(product, False)[after]
    is_much = rows["duration_ns"].to_numpy()[casts].sum() >= MUCH_RATIO * situation.window("kernel_ns")
    return _goes(situation, "cast-once", np.where(casts, 0.0, 1.0)) if is_much else []


def _recomputed(situation: Situation) -> list[Found]:
    """Kernels of the forward pass that the backward pass runs again: inside the backward function of a checkpoint, but
    for those of the backward functions inside it; inside another those of operators that autograd would differentiate,
    and does not."""
    if not situation.names_around(_BACKWARD):
        return []
    columns = ["name", "start_ns", "end_ns", "sequence"]
    nodes = of_captures(situation.results, "nodes", situation.limit.captures, columns)
    number, at = nodes["sequence"].fillna(-1), situation.kernels["launch_start_ns"].fillna(-1)

    def inside(mine: pd.Series, at: pd.Series) -> np.ndarray:
        edges = nodes["start_ns"].to_numpy()[mine], nodes["end_ns"].to_numpy()[mine]
        return covered_before(*edges, at.to_numpy(np.int64) + 1) > covered_before(*edges, at.to_numpy(np.int64))

    turn, checkpoint = (nodes["name"].astype(str).str.contains(one) for one in (_BACKWARD, _CHECKPOINT))
    again = number.ge(0) & ~number.isin(number[turn]) & inside(turn, nodes["start_ns"])
    runs = inside(checkpoint, at) & ~inside(turn & ~checkpoint, at) | inside(again, at)
    return _goes(situation, "recompute-less", np.where(runs, 0.0, 1.0))


def _by_start(rows: pd.DataFrame, factors: np.ndarray) -> pd.Series | None:
    """Factors by the start of their kernels, ascending; None without kernels."""
    return pd.Series(factors, index=rows["start_ns"].to_numpy()).sort_index() if len(rows) else None


def _goes(
    situation: Situation, code: str, stays: np.ndarray, facts: Mapping[str, Any] = NOTHING, **words: str
) -> list[Found]:
    """A remedy that spares kernels: ``stays`` is the part of each one's time that is left in the ideal."""
    rows, more = situation.kernels, ""
    time, lines = rows["duration_ns"].to_numpy(), rows["source_line"]
    each, known = time * (1 - stays), (lines.notna() & lines.ne("")).to_numpy()
    if each[known].sum() > 0:
        of_line = pd.Series(each[known]).groupby(lines.astype(object).to_numpy()[known]).sum()
        more = f" Most of it in {place_text(situation.results, str(of_line.idxmax()))}."
    facts = {"kernel_count": (stays < 1).sum(), "time_ns": time[stays < 1].sum(), **facts}
    return situation.found(code, float(each.sum()), facts, more=more, factors=_by_start(rows, stays), words=words)


def _attention(situation: Situation) -> list[Found]:
    """One kernel for attention that runs as two products with a softmax between them."""
    between, beside, count = situation.in_attention
    if not count:
        return []
    facts = {"attention_count": count, "time_ns": situation.kernels["duration_ns"].to_numpy()[between].sum()}
    return [replace(one, has_estimate=False) for one in _goes(situation, "fuse-attention", 1.0 - beside, facts)]


def _elementwise(situation: Situation) -> list[Found]:
    """Chains of neighbours that a compiler would make one kernel; of those that update parameters one by one, a fused
    optimiser makes one kernel, too."""
    rows = situation.kernels
    if situation.is_compiled or not len(rows):
        return []
    computes, stream = rows["family"].isin(_FUSABLE).to_numpy(), rows["stream"].to_numpy()
    can = computes | situation.is_called(PATTERNS["moves"])  # at the ends of a chain they go with it
    time = rows["duration_ns"].to_numpy()
    at_once = situation.is_called("multi_tensor")  # many tensors: an optimiser's, and no compiler's business
    joined = can[1:] & can[:-1] & (stream[1:] == stream[:-1]) & (at_once[1:] == at_once[:-1])
    begins, chain = np.flatnonzero(np.append(True, ~joined)), np.cumsum(np.append(False, ~joined))

    def of_chain(put: np.ufunc, values: np.ndarray) -> np.ndarray:
        return put.reduceat(values, begins)[chain]

    long = (np.diff(np.append(begins, len(rows))) > 1)[chain] & of_chain(np.logical_or, computes)
    long &= ~situation.in_attention[0]
    # a fused chain reads its inputs and writes its output once: its shortest kernel stays
    likely = np.where(long, 0.0, 1.0)
    shortest = np.flatnonzero(time == of_chain(np.minimum, time))
    likely[shortest[np.diff(chain[shortest], prepend=-1) > 0]] = 1.0
    # a chain behind a product may become a part of that
    behind = np.append(False, rows["family"].isin(PRODUCTS).to_numpy()[:-1] & (stream[1:] == stream[:-1]))
    stays = np.where(long & behind[begins][chain], 0.0, likely)
    updates, found = situation.is_called(PATTERNS["updates"]), []
    is_many = updates.sum() >= LEAST_OPERATIONS * situation.execution_count
    updates = of_chain(np.logical_or, updates & (is_many | at_once)) & situation.is_torch
    for code, mine in (("fuse-elementwise", long & ~updates & ~at_once), ("fused-optimiser", long & updates)):
        facts = {"kernel_count": mine.sum(), "chain_count": len(np.unique(chain[mine])), "time_ns": time[mine].sum()}
        goes = _goes(situation, code, np.where(mine, stays, 1.0), facts)
        left = _by_start(rows, np.where(mine, likely, 1.0))
        found += [replace(one, likely=left, has_estimate=code == "fuse-elementwise") for one in goes]
    return found


def _layouts(situation: Situation) -> list[Found]:
    return situation.found("layout", situation.window("layout_ns"))


def _launch_shape(situation: Situation) -> list[Found]:
    """Kernels of the program itself that leave most of the GPU without work; those of a compiler get more work only."""
    rows = situation.kernels
    if not len(rows) or not situation.limit.is_gpu:
        return []
    threads, blocks = (rows[[f"{what}_{axis}" for axis in "xyz"]].prod(axis=1).to_numpy() for what in ("block", "grid"))
    count: Any = situation.device.get("sm_count", 1)
    multiprocessors = float(np.nan_to_num(pd.to_numeric(count, errors="coerce"), nan=1))
    warps = np.ceil(threads / WARP)
    stays = np.minimum(threads / WARP, 1) * np.minimum(warps / _WARPS_OF_FULL, 1)
    stays = np.where(threads < WARP, stays, 1.0) * np.minimum(blocks / max(multiprocessors, 1), 1)
    works = ~rows["family"].isin(_NO_WORK).to_numpy() & (threads > 0) & (blocks > 0)
    own = works & ~situation.is_called(PATTERNS["library"]) & (not situation.is_compiled)
    more = _side_by_side(situation, float((rows["duration_ns"] * (1 - stays))[works & ~own].sum()))
    stays = np.where(own, stays, 1.0)
    spent = (rows["duration_ns"] * (1 - stays)).groupby(rows["name"], observed=True).sum()
    spent = spent.rename(index=str).sort_index()
    if not spent.sum():
        return more
    name = str(spent.idxmax())
    at = int(np.flatnonzero(rows["name"].eq(name).to_numpy() & (stays < 1))[0])
    shape = [] if threads[at] >= WARP else [f"{WARP} or more a block"]
    shape += [f"at least {multiprocessors:.0f} blocks"] if blocks[at] < multiprocessors else []
    facts = {what: "×".join(str(int(rows[f"{what}_{axis}"].iloc[at])) for axis in "xyz") for what in ("grid", "block")}
    # memory that is read in another order may be faster, too: of the bound nothing stays but the launches
    most = np.where(stays < 1, np.finfo(float).tiny, 1.0)
    found = _goes(situation, "launch-shape", most, facts, kernel=_shortened(name), shape=" and ".join(shape))
    return [replace(one, likely=_by_start(rows, stays)) for one in found] + more


def _side_by_side(situation: Situation, beyond_ns: float) -> list[Found]:
    """More work for a GPU whose launches of a library are too small, or work side by side where one stream has all:
    ``beyond_ns`` is what they take beyond what they would on all multiprocessors."""
    if situation.limit.kind != SHAPE:
        return []
    is_one_stream = situation.kernels["stream"].nunique() == 1 and not situation.is_compiled
    codes = ["larger-batch", *["streams"] * is_one_stream]
    how: dict[str, Any] = {"words": {"place": ""}, "ideal": "kernels", "is_bound": False, "seen": "small"}
    return [one for code in codes for one in situation.found(code, beyond_ns, is_sure=code != "streams", **how)]


def _experts(situation: Situation) -> list[Found]:
    """Products of experts that take longer on one rank than on the others."""
    rows = situation.kernels
    time = rows.loc[rows["family"].eq("expert_gemm"), "duration_ns"]
    each = time.groupby([rows.loc[time.index, name] for name in ("capture_id", "process_id", "device_id")]).sum()
    if len(each) < 2 or each.max() < 1.1 * each.mean():
        return []
    process = each.index.get_level_values("process_id")[int(np.argmax(each))]
    known = frame_or_empty(situation.results, "experts", ["process_id", "rank"])
    rank = known.loc[known["process_id"] == process, "rank"].max()
    facts = {"name": f"rank {rank}" if rank >= 0 else f"process {process}", "of": len(each),
             "most_ns": int(each.max()), "mean_ns": int(each.mean())}  # fmt: skip
    return situation.found("expert-imbalance", (each.max() - each.mean()) * len(each), facts)


def _orders(situation: Situation) -> list[Found]:
    """Streams that events or the default stream put in an order although nothing of one runs beside the other."""
    rows = situation.kernels
    rows = rows[~rows["family"].isin(_NO_WORK)]
    spent = rows.groupby("stream")["duration_ns"].sum()
    rows = rows.sort_values("start_ns")
    identity = replayable(situation.results, situation.limit) if len(spent) > 1 else None
    count, each = 0 if identity is None else len(identity.graph.learnt.orders), situation.execution_count
    covered = union_length(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    if len(spent) < 2 or count < 2 * each or covered < (1 - MUCH_RATIO) * spent.sum():
        return []
    facts, beside = {"order_count": count, "streams": len(spent)}, float(spent.sum() - spent.max())
    return situation.found("streams", beside, facts, "order", words={"place": ""}, ideal="orders")


def _copies(situation: Situation) -> list[Found]:
    limit, copies = situation.limit, situation.copies
    pages = copies[copies["is_migration"]]
    waited = int(situation.waited("page_migration")["idle_ns"].sum())
    moved = int(pages["duration_ns"].sum())
    facts = {"page_count": len(pages), "moved_ns": moved, "waited_ns": waited}
    found = situation.found("prefetch", moved + waited, facts, is_open=True)
    copies = copies[~copies["is_migration"]]
    time, waited = copies["duration_ns"], int(situation.waited("copy_call")["idle_ns"].sum())
    alone = min(situation.window("copy_busy_ns"), int(time.sum()))
    inside, ideal, likely = copies["direction"].eq("device to device"), "", None
    values = copies["is_small"] & copies["direction"].eq("device to host")  # that one side needs at once
    pieces = copies[~inside & ~values & (time < SHORT_KERNEL_NS)]
    count = int(pieces["direction"].value_counts().max()) if len(pieces) else 0
    if count >= LEAST_OPERATIONS * situation.execution_count and count > len(copies) / 2:
        facts = {"copy_count": len(pieces), "mean_bytes": int(pieces["bytes"].mean()), "waited_ns": waited}
        found += situation.found("copy-together", alone + waited, facts, is_open=True)
    if not alone + waited or time[copies["is_small"]].sum() > time.sum() / 2:
        return found
    facts, seen = {"alone_ns": alone, "waited_ns": waited}, "waited" * bool(waited)
    shares = time[inside].sum() / max(time.sum(), 1), time[~inside & copies["memory_kind"].eq("pinned")].sum()
    how = "Hide the copies: a stream of their own, early enough (their memory is pinned already)"
    # what the copies can run beside: all but those of their own direction, which one engine makes
    rest = limit.window_ns - int(time.groupby(copies["direction"], observed=True).sum().to_numpy().max(initial=0))
    less, which = f" All else takes {format_ns(rest)}: no more of the copies can be hidden.", ""
    if shares[0] > 0.5:  # a kernel beside them has less of the memory that both use
        rest, less = 0, f" {format_ratio_percent(shares[0])} of the copies' time is inside the device."
        which = f":{WITHIN_DEVICE}"
    elif shares[1] <= 0.5 * time[~inside].sum():
        how = f"Hide the copies: pinned memory ({situation.words['pinned']}), a stream of their own"
        ideal, likely = "copy=overlap; copies", _pinned(situation, copies[~inside])  # pinned copies are faster, too
    if alone > rest:
        found += situation.found("copy-less", alone, facts, seen, more=less, words={"which": which},
                                 is_open=bool(which))  # fmt: skip
    spent = alone + waited if ideal else min(alone + waited, rest)
    hidden = situation.found("overlap-copies", spent, facts, seen, words={"how": how}, is_open=True, ideal=ideal,
                             likely=likely, has_estimate=not ideal or likely is not None)  # fmt: skip
    return found + hidden


def _pinned(situation: Situation, copies: pd.DataFrame) -> pd.Series | None:
    """The part of its time that each copy between host and device takes from pinned memory, by its start: at the rate
    of the fastest such copy of the others' size, else at that of the device's link; None where neither is known."""
    is_pinned, size = copies["memory_kind"].eq("pinned"), copies["bytes"]
    rates = size / copies["duration_ns"].clip(lower=1)  # GB/s
    known = rates[is_pinned & (size >= size[~is_pinned].median())]
    link = pinned_bytes_per_s(situation.device) / 1e9
    fastest = known.max() if len(known) else max(link, rates.max()) if link else 0.0
    return _by_start(copies, (rates / fastest).clip(upper=1.0).mask(is_pinned, 1.0).to_numpy()) if fastest else None


_RANKS = ("rank", "waiting_ns", "communication_ns", "exposed_ns", "is_straggler", "lateness_ns")
_STEADY = 2 / 3  # of the waiting is for one rank, else for several in turn


def _collectives(situation: Situation) -> list[Found]:
    """The rank that is late, or several in turn, and what is left of communication without that."""
    alone = situation.window("communication_ns")
    waited = int(situation.waited("communication")["idle_ns"].sum())
    ranks = frame_or_empty(situation.results, "ranks", _RANKS)
    late = ranks[ranks["is_straggler"].fillna(False).astype(bool)] if alone else ranks.iloc[:0]
    lost, talked = float(ranks["waiting_ns"].fillna(0).sum()), float(ranks["communication_ns"].sum())
    most = held_up_ns(ranks) * max(situation.limit.device_count, 1)
    found, groups = [], frame_or_empty(situation.results, "rank_groups", ["late_rank", "late_ratio", "kinds"])
    is_mesh = len(groups) != 1  # who waits for a rank holds up others itself
    in_turn = not is_mesh and bool(groups["late_ratio"].iloc[0] < _STEADY)
    is_steady = len(late) == 1 and not in_turn
    if is_steady or (in_turn and lost >= 0.5 * talked and alone):
        who: dict[str, Any] = {}
        if not is_mesh and lost:
            who = {"who": int(groups["late_rank"].iloc[0]), "late_ratio": groups["late_ratio"].iloc[0]}
        facts = {"lost_ns": int(lost), "talked_ns": int(talked), **who}
        words = {"rank": f"rank {int(late['rank'].iloc[0])}"} if is_steady else {}
        found = situation.found("late-rank", most, facts, "one group" * bool(who), words=words,
                                is_sure=is_steady)  # fmt: skip
        alone = max(int(alone - lost), 0)
    less = "larger buckets, BF16 gradients" if situation.trains else "fewer and larger messages"
    facts, seen = {"alone_ns": alone, "waited_ns": waited}, "waited" * bool(waited)
    return found + situation.found("overlap-collectives", alone + waited, facts, seen, words={"less": less})


RULES = (
    _tensor_cores, _own_products, _weights, _casts, _recomputed, _attention, _elementwise, _layouts, _launch_shape,
    _experts, _orders, _copies, _collectives,
)  # fmt: skip
