"""Idle causes of a limit → the remedies that spare the host, its launches and its waiting (`RULES`)."""

import re
from dataclasses import replace

import pandas as pd

from xsp_post.arrays.repeats import without_numbers
from xsp_post.base.texts import sentence
from xsp_post.model.results import frame_or_empty, of_captures
from xsp_post.model.schemas.units import format_count, format_ns
from xsp_post.names.platforms import PYTHON
from xsp_post.replay.calls import LONG_HOST_NS, MAKES, TIMER, are_compilation, system_class
from xsp_post.replay.learning import CLEARLY_NS
from xsp_post.tables.analyses.advice_evidence import MUCH_RATIO, SHAPE_OF_LAUNCH, SHORT_KERNEL_NS, Found, Situation
from xsp_post.tables.analyses.frames import PATTERNS
from xsp_post.tables.analyses.limits import BETWEEN, GROUP_OF_CAUSE, HOST, LEAST_OPERATIONS, LOADING, OUTSIDE, lead_in
from xsp_post.tables.analyses.places import NAMELESS, followed, inside, of_any_kind, with_line
from xsp_post.tables.analyses.remedies import REMEDIES, words_for

MOST_GRAPH_RATIO = 0.8  # of the kernels that come from graphs already
LEAST_READS = 50  # results that the host reads in one execution of a loop
LOADER = r"DataLoader"
# What a graph takes in: it has no host code between its kernels.
_BETWEEN_LAUNCHES = ("host_code", "os_call", "descheduled")
_ELSEWHERE = ("host-code", "host-blocked")  # another thread can do it, with all that is in the same ranges
_OF_BATCH = ("input_output", "thread_wait", "sleep")  # a larger batch needs more of it
_WITH_BATCH = {"PyTorch", "JAX", "TensorFlow", "TensorRT"}  # what else runs may have nothing to give more of
_BLOCKING = {"call": "launches that wait for their kernels", "place": "(unset CUDA_LAUNCH_BLOCKING)"}
_PIECE = "what runs between two waits of the host"  # which no graph can hold
_RECORDING = "that was recorded"
_WITH_LEAD_IN = "with start-up"  # all before the first device work


def _loader(situation: Situation) -> list[Found]:
    rows = situation.inside(LOADER)
    if not situation.is_torch or rows.empty:
        return []
    has_workers = situation.causes["owner"].str.contains("MultiProcessing", regex=False).any()
    workers = "more of them, or a larger prefetch_factor" if has_workers else "num_workers=4 or more"
    spent = situation.lost(rows)
    # without its work, and that of its threads, beside it the rest of the step may be faster, too
    ideal = f"host:.*{LOADER}.*=none"
    return situation.found("num-workers", spent, words={"workers": workers}, is_open=True, ideal=ideal,
                           surely=ideal)  # fmt: skip


def _optimiser(situation: Situation) -> list[Found]:
    columns = ["name", "call_count", "kernel_count", "kernel_ns"]
    paths = of_captures(situation.results, "paths", situation.limit.captures, columns)
    paths = paths[paths["name"].astype(str).str.match(PATTERNS["optimiser"])]
    paths = paths[paths["kernel_count"] >= LEAST_OPERATIONS * paths["call_count"]]
    paths = paths[~paths["name"].isin(situation.names_around(PATTERNS["fused operator"]))]
    count, names = paths["kernel_count"].sum(), "|".join(map(re.escape, paths["name"].astype(str).unique()))
    if not situation.is_torch or not count or situation.is_called(PATTERNS["fused optimiser"]).sum() >= count / 2:
        return []
    spent = situation.lost(situation.inside(f"^(?:{names})$"))
    facts = {"each": f"{count / max(paths['call_count'].sum(), 1):,.0f}", "waited_ns": spent}
    spent += min(int(paths["kernel_ns"].sum()), situation.window("kernel_ns"))
    # since PyTorch 2.0 gradients are set to none by default, not filled with zeros
    words = {"optimiser": situation.words["optimiser"] + ", zero_grad(set_to_none=True)" * ("zero_grad" in names)}
    ideal = f"host:{names}=none"
    return situation.found("fused-optimiser", spent, facts, "range", words=words, is_open=True, ideal=ideal)


def _launches(situation: Situation) -> list[Found]:
    """Graphs, more work at once, or one batch for a loop whose host decides after every few kernels."""
    limit, rows = situation.limit, situation.kernels
    count = situation.window("kernel_count")
    graphs = situation.waited("graph_launch")
    of_graphs = situation.found("graph-launch", situation.lost(graphs))
    if not count:
        return of_graphs
    mean = situation.window("kernel_ns") / count
    mine = situation.waited("launch_call", "launch_latency")
    nodes = rows["node_count"]  # of its launch
    # a graph of fewer is a piece, a launch among others; what alone is said to be of a graph was not joined to it
    is_whole = rows["is_node"] & ~nodes.between(2, LEAST_OPERATIONS - 1)
    in_graphs = float(is_whole.mean()) if len(rows) else 0.0
    in_pieces = bool((rows["is_node"] & ~is_whole).any())
    found = [] if in_pieces else of_graphs
    mine = pd.concat([mine, graphs]) if in_pieces else mine
    values = situation.copies["is_small"] & situation.copies["direction"].eq("device to host")
    # who reads a value waits for it
    breaks = max(len(situation.waits) + situation.blocking_count, int(values.sum()))
    breaks += int(situation.waited("allocation")["piece_count"].sum())
    launched = float((~is_whole / nodes.where(rows["is_node"], 1)).sum()) if len(rows) else count
    between = launched / max(breaks, 1)
    host = situation.waited(*_BETWEEN_LAUNCHES)
    # long code in ranges of the program itself has to run, too
    own = host["owner"].ne("") & (host["longest_ns"] >= LONG_HOST_NS) & ~situation.is_framework(host)
    host = host[~own & ~situation.is_lump(host) & ~host.index.isin(situation.inside(LOADER).index)]
    causes = situation.causes
    is_once = causes["cause"].isin(["profiler_overhead", *LOADING])
    known = situation.lost(causes[~is_once])
    can = limit.is_gpu and "MTIA" not in situation.platforms
    if can and in_graphs < MOST_GRAPH_RATIO and between >= LEAST_OPERATIONS and situation.is_repeated("name"):
        spent, is_fixed = situation.lost(pd.concat([mine, host])), situation.is_repeated("name", *SHAPE_OF_LAUNCH)
        words = {"model": _PIECE} if situation.is_in_pieces else {}
        found += situation.found("cuda-graphs", spent, {"kernel_count": count, "mean_ns": mean}, words=words,
                                 seen="" if is_fixed else "grows", is_open=True, is_sure=is_fixed)  # fmt: skip
    short = float((rows["duration_ns"] < SHORT_KERNEL_NS).mean()) if len(rows) else 0.0
    reads = int(values.sum()) / situation.execution_count
    is_loop = reads >= LEAST_READS and between < LEAST_OPERATIONS and short > 0.5
    # passes of a solver, which is none of PyTorch as a rule, and steps of a training go on from one another
    if situation.is_torch and is_loop and not situation.trains:
        facts = {"kernel_count": count, "short_ratio": short, "most_ns": SHORT_KERNEL_NS, "waited_ns": known}
        in_loop = short * situation.window("kernel_ns") * (1 - 1 / reads)  # the passes become one
        found += situation.found("batch-host-loop", known + in_loop, facts, words={"count": format_count(round(reads))})
    is_short = mean < (SHORT_KERNEL_NS if limit.is_gpu else LONG_HOST_NS)
    has_batch = bool(situation.platforms & _WITH_BATCH) or limit.scope != OUTSIDE
    if is_short and has_batch and limit.busy_ns < 0.5 * limit.window_ns:
        what, busy = "Kernels" if limit.is_gpu else "Operators", limit.busy_ns / limit.window_ns
        grows = causes["cause"].isin(_OF_BATCH) | causes.index.isin(situation.inside(LOADER).index)
        grows |= situation.is_lump(causes)  # has a remedy of its own
        found += situation.found("larger-batch", situation.lost(causes[~is_once & ~grows]),
                                 {"what": what, "mean_ns": mean, "busy_ratio": busy})  # fmt: skip
    return found


def _reads(situation: Situation) -> list[Found]:
    """Single values that the host reads inside the step, and other waits for the device."""
    rows = situation.waited("synchronization")
    values = situation.copies["is_small"] & situation.copies["direction"].eq("device to host")
    reads = situation.inside(PATTERNS["reads"])
    if reads.empty or not situation.is_torch:  # no operators were recorded
        reads = situation.waited("copy_call") if values.mean() > 0.5 else rows.iloc[:0]
    reads = reads[reads["cause"].isin(["synchronization", "copy_call"])]
    # a GPU-bound host that waits launches late afterwards: the device waits then, not in the call
    gain = 2 * situation.limit.gain("synchronisation")
    blocking = situation.blocking_count
    later = int(gain * situation.limit.whole_ns)
    count, found = max(int(reads["piece_count"].sum()), int(values.sum())), []
    of_reads = later if values.sum() >= (len(situation.waits) + blocking) / 2 else 0
    if (spent := max(situation.lost(reads), of_reads)) and count >= 2:
        ideal = f"host:{situation.place_of_reads(reads)}=none; {REMEDIES['item-in-step'].ideal}"
        found = situation.found("item-in-step", spent, {"read_count": count}, is_open=True, ideal=ideal)
        rows, later = rows[~rows.index.isin(reads.index)], later - of_reads
    # PyTorch itself waits for copies from pageable memory: remedies of copies, which single values have none of
    of_copies = rows["owner"].str.contains(PATTERNS["copies"]) & rows["detail"].str.contains("(?i)mem ?cpy")
    across = situation.copies.loc[situation.copies["direction"].ne("device to device"), "is_small"]
    of_copies &= not across.mean() > 0.5
    if situation.is_torch and rows.loc[of_copies, "piece_count"].sum() > len(situation.waits) / 2:
        later = 0
    rows = rows[~of_copies]
    others = _place_of(situation, "remove-synchronization", rows, later)
    if later > situation.lost(rows):
        words = others[0].words if others else {"call": "calls that wait for the device", "place": "inside the loop"}
        words = _BLOCKING if blocking > len(situation.waits) else words
        facts = {"wait_count": len(situation.waits) + blocking}
        others = situation.found("remove-synchronization", later, facts, "late", words=words)
    return found + [replace(one, is_open=True) for one in others]


def _place_of(situation: Situation, code: str, rows: pd.DataFrame, later_ns: int = 0, **words: str) -> list[Found]:
    """One remedy for all rows; its text names the range that holds most of them, and how much. ``later_ns``: what it
    may spare after them."""
    if rows.empty:
        return []
    owned = rows.groupby("owner", sort=False)["idle_ns"].sum()
    if 2 * owned.max() < owned.sum():  # kinds of blocks are one place where none of them has most
        owned = owned.groupby(of_any_kind, sort=False).sum()
    spent, owner = situation.lost(rows), str(owned.idxmax())
    calls = rows.groupby("call_name", sort=False)["idle_ns"].sum()
    named = owner if NAMELESS.match(owner) else owner.partition(" · ")[0]  # of an inferred one its kernels only then
    named = with_line(situation.results, named)
    is_between = not owner and 2 * situation.lost(rows[rows["scope"].eq(BETWEEN)]) > spent
    place = inside(named) if named else "between executions" * is_between
    is_all = situation.limit.device_count == 1 and spent >= later_ns
    longest = int(rows["longest_ns"].max()) if place and is_all else 0
    place += f" ({format_ns(longest)} in one wait)" * (2 * longest >= spent > 0 and situation.execution_count > 2)
    if named and len(owned) > 1:
        place += f" and {format_count(len(owned) - 1)} other place{'s' * (len(owned) > 2)}"
    most = f", {format_ns(int(owned.max()))} of it in {named}" if named and len(owned) > 1 else ""
    facts = {"pieces": _pieces(rows), "most": most}
    call = str(calls.idxmax()) or "the call"
    pattern = situation.place(rows) if code in _ELSEWHERE else ""
    ideal, surely = (f"host:{pattern}={value}" if pattern else "" for value in ("none", "0x"))
    found = situation.found(code, spent, facts, words={"place": place, "call": call} | words, is_open=bool(pattern),
                            ideal=ideal, surely=surely)  # fmt: skip
    shares_caches = code in _ELSEWHERE and not situation.limit.is_gpu  # with the operators of a CPU
    return [replace(one, is_bound=False) for one in found] if shares_caches else found


def _pieces(rows: pd.DataFrame) -> str:
    """``in 3 pieces, the longest 11.5 ms``."""
    count = int(rows["piece_count"].sum())
    longest = f"the longest {format_ns(int(rows['longest_ns'].max()))}"
    return f"in {format_count(count)} pieces, {longest}" if count > 1 else "in one piece"


def _host(situation: Situation) -> list[Found]:
    """What the host did while the device had nothing to do, cause by cause."""
    waited, loader = situation.waited, situation.inside(LOADER).index
    allocations = waited("allocation")
    count = int(allocations["piece_count"].sum())
    makes = allocations["call_name"].str.contains(MAKES)
    is_made = situation.lost(allocations[makes]) > situation.lost(allocations) / 2
    words = {"count": format_count(count), "once": "Make streams, events and graphs" if is_made else "Allocate"}
    words |= {"allocator": ""} if is_made else {}
    found = _place_of(situation, "allocate-once", allocations, 0, **words) if count > 1 else []
    # PyTorch keeps memory: what one execution took is there for the next
    is_first = situation.is_torch and situation.execution_count == 1 and count < LEAST_OPERATIONS and not is_made
    found = [replace(one, is_open=True, is_sure=not is_first) for one in found]
    queued, rests, threads = waited("queued", "device_wait"), waited("sleep"), waited("thread_wait")
    of_process = threads["detail"].eq("") & threads["call_name"].str.contains(PATTERNS["for processes"])
    blocked, threads = pd.concat([waited("os_call", "input_output"), threads[of_process]]), threads[~of_process]
    queued = queued[queued["idle_ns"] >= CLEARLY_NS * queued["piece_count"]]  # less is the way from one to the other
    is_asleep = rests["detail"].eq(TIMER) | rests["call_name"].map(lambda name: system_class(name) == 0).astype(bool)
    causes = {
        "streams": queued, "host-blocked": blocked[~blocked["call_name"].str.contains(PATTERNS["for others"])],
        "sleeps": rests[is_asleep], "processor": waited("descheduled"),
    }  # fmt: skip
    for code, rows in causes.items():
        found += _place_of(situation, code, rows)
    if len(threads):
        other = str(threads.groupby("detail", sort=False)["idle_ns"].sum().idxmax())
        rows = threads[threads["detail"].ne("").eq(bool(other))]
        waits = _place_of(situation, "waits-for-thread", rows, other=other)
        found += [replace(one, is_sure=bool(other)) for one in waits]
    rows = pd.concat([waited("host_code"), rests[~is_asleep]])
    # short stretches between launches are the business of graphs; in no range and no frame they have no place
    rows = rows[(rows["longest_ns"] >= LONG_HOST_NS) & ~rows.index.isin(loader)]
    has_place = rows["owner"].ne("") | rows["call_name"].ne("") | rows["idle_ns"].ge(LONG_HOST_NS * rows["piece_count"])
    rows = rows[has_place & ~situation.is_framework(rows)]
    if len(rows):
        alike = without_numbers(rows["owner"].map(of_any_kind))[0]  # equal layers are one place
        mine = rows[alike == rows["idle_ns"].groupby(alike).sum().idxmax()]
        call = str(mine.sort_values("idle_ns", ascending=False)["call_name"].iloc[0])
        platforms = situation.platforms & {PYTHON} if situation.is_nsys else situation.platforms
        stacks = words_for(platforms)["stacks"]  # of the tool that recorded
        # without a name for the code, in a range that does other things, too, nobody knows what it is
        is_known = bool(situation.place(mine) or mine["call_name"].any())
        code, called_in = "host-code" if is_known else "find-host-code", f" ({call})" if call else ""
        found += _place_of(situation, code, mine, call=called_in, stacks=stacks, find=_find(situation, mine))
    return found


def _find(situation: Situation, rows: pd.DataFrame) -> str:
    """What to do about host code that nothing names: it makes inputs where the device ran copies of them after most."""
    waits = followed(situation.results, situation.limit.captures)
    waits = waits[waits["path_id"].fillna(-1).isin(rows["path_id"].fillna(-1))]
    before_ns = waits.loc[waits["name"].eq("copies host→device"), "time_ns"].sum()
    return sentence("next.prepare" if 2 * before_ns > waits["time_ns"].sum() else "next.find")


def _profiler(situation: Situation) -> list[Found]:
    spent = situation.lost(situation.waited("profiler_overhead"))
    how = "no stacks, shapes or memory"
    how = "nsys profile -t cuda,nvtx --sample=none --cpuctxsw=none" if situation.is_nsys else how
    return situation.found("record-less", spent, words={"recording": how})


def _loading(situation: Situation) -> list[Found]:
    """Code that is compiled or loaded once, before the first device work too."""
    rows = situation.waited(*LOADING)
    before, row = lead_in(situation.results, situation.limit)
    devices = max(situation.limit.device_count, 1)
    early = row.idle_ns * devices if row is not None and row.cause in LOADING else 0
    compiles = are_compilation(rows["owner"]) | are_compilation(rows["call_name"])
    spent, of_compiler = situation.lost(rows), _place_of(situation, "warm-up", rows[compiles])
    facts = {"pieces": _pieces(rows) if len(rows) else "", "waited_ns": spent, "early_ns": early}
    seen = " ".join(["code"] * bool(len(rows)) + ["early"] * bool(early))
    spent += early
    is_sure = bool(of_compiler) and of_compiler[0].spent_ns > spent / 2
    words = of_compiler[0].words if is_sure else {}
    whole = situation.limit.whole_ns + before * devices if early else 0
    return situation.found("warm-up", spent, facts, seen, words=words, whole_ns=whole, is_sure=is_sure,
                           whole=_WITH_LEAD_IN if early else "")  # fmt: skip


def _before_device_work(situation: Situation) -> list[Found]:
    """What the first execution did before its device had work: part of its latency, not of the limit's time."""
    time, row = lead_in(situation.results, situation.limit)
    devices = max(situation.limit.device_count, 1)
    whole, spent = situation.limit.whole_ns + time * devices, 0 if row is None else row.idle_ns * devices
    if row is None or GROUP_OF_CAUSE.get(row.cause) != HOST or spent < MUCH_RATIO * whole:
        return []
    if row.cause in LOADING or not (row.owner or row.call_name):
        return []
    words = {"place": row.call_name or with_line(situation.results, row.owner), "time": format_ns(row.idle_ns)}
    return situation.found("prepare-ahead", spent, {"time_ns": time}, whole_ns=whole, whole=_WITH_LEAD_IN, words=words)


def _before_executions(situation: Situation) -> list[Found]:
    """Copies before the first execution: of weights, as a rule."""
    limit, results, rows = situation.limit, situation.results, situation.every_copy
    first = frame_or_empty(results, "iterations", ["capture_id", "start_ns"]).groupby("capture_id")["start_ns"].min()
    rows = rows[rows["end_ns"].le(rows["capture_id"].map(first).fillna(-1))]
    recorded = int(of_captures(results, "device_windows", limit.captures, ["window_ns"])["window_ns"].sum())
    spent = rows["duration_ns"].groupby([rows[name].astype(str) for name in ("direction", "memory_kind")]).sum()
    if limit.scope != "execution" or not spent.max() >= MUCH_RATIO * recorded:
        return []
    direction, kind = map(str, spent.index[int(spent.to_numpy().argmax())])
    rows, time = rows[rows["direction"].eq(direction) & rows["memory_kind"].eq(kind)], int(spent.max())
    moved, memory = int(rows["bytes"].sum()), f", {kind} memory" if kind else ""
    facts = {"copy_count": len(rows), "direction": direction, "moved_bytes": moved, "memory": memory,
             "rate_bytes_per_s": moved / max(time / 1e9, 1e-9)}  # fmt: skip
    pinned = f" from pinned memory ({situation.words['pinned']})" if kind == "pageable" else ""
    return situation.found("copy-once", time, facts, whole_ns=recorded, whole=_RECORDING, words={"source": pinned})


RULES = (
    _loader, _optimiser, _launches, _reads, _host, _profiler, _loading, _before_device_work, _before_executions,
)  # fmt: skip
