"""Results → what is not known: device work without a launch, a range or a layer, and what no statement can rest on."""

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.reports.text import visible
from xsp_post.reports.trust import balances

_MOST_FINDINGS = 12

# kinds of ranges that a program or its framework wrote
_RECORDED = ("push_pop", "start_end", "library", "operator", "module", "annotation")


def not_known(results: Results) -> list[dict[str, str]]:
    """What cannot be said from this recording, each with why; an empty list says that nothing of this kind was met."""
    said = [*_from_balance(results), *_from_structure(results), *_from_findings(results)]
    return [{"what": what, "why": visible(why, 300)} for what, why in said]


# question, way of attribution: what is not known then, and of which part of the device work
_LOST = (
    ("launch", "no_launch", "who launched part of the device work", "have no launch row"),
    ("launch", "none", "in which range part of the device work was launched", "were launched outside every range"),
    ("layer", "none", "for which layer part of the device work counts", "belong to no layer"),
)


def _from_balance(results: Results) -> list[tuple[str, str]]:
    found = {one.question: one for one in balances(results)}
    said = []
    for question, way, what, why in _LOST:
        for name, count, time in found[question].ways if question in found else ():
            if name == way:
                ratio = format_ratio_percent(time / max(found[question].device_ns, 1))
                amount = f"{format_count(count)} device operations, {format_ns(time)}"
                said.append((what, f"{amount}, {ratio} of the device time, {why}"))
    captures = frame_or_empty(results, "captures", ["graph_count", "graph_ns"])
    if captures["graph_count"].sum():
        said.append((
            "the kernels inside CUDA graphs",
            f"{format_count(captures['graph_count'].sum())} graph executions, {format_ns(captures['graph_ns'].sum())}, "
            "were recorded whole; record with --cuda-graph-trace=node to see their kernels",
        ))  # fmt: skip
    return said


def _from_structure(results: Results) -> list[tuple[str, str]]:
    captures, tables = frame_or_empty(results, "captures"), results.tables()
    layers = frame_or_empty(results, "layers", ["is_inferred"])
    kinds = frame_or_empty(results, "paths", ["span_kind"])["span_kind"].astype(object)
    has_names, processes = kinds.isin(_RECORDED).any(), int(captures["process_count"].max()) if len(captures) else 0
    no_rank = "; no rank was found" if processes > 1 and frame_or_empty(results, "ranks").empty else ""
    no_counters = "kernel_metrics" in tables and results.frame("kernel_metrics", ["kernel_id"]).empty
    rows = (
        (not captures["device_ns"].sum(), "what the devices did", "no device work was recorded"),
        ("iterations" in tables and results.frame("iterations", ["capture_id"]).empty, "latency of a model execution",
         "no model execution was found; name its range with --model-range"),
        ("layers" in tables and layers.empty, "time of a layer", "no layer was recorded or inferred"),
        (not has_names, "the program's own names of its parts",
         "the recording has no ranges; parts are inferred from the launch sequence and their names are ours"),
        (has_names and layers["is_inferred"].astype(bool).any(), "the program's own names of some layers",
         "these layers are inferred, not recorded"),
        (processes > 1, "which of the processes a summed number is of",
         f"{processes} processes were recorded; sums run over all of them, busy time is per GPU{no_rank}"),
        (no_counters and captures["kernel_ns"].sum(), "flop and DRAM bytes of the kernels as counted",
         "no hardware counters were recorded (run --ncu)"),
    )  # fmt: skip
    said = [(what, why) for is_so, what, why in rows if is_so]
    refused = frame_or_empty(results, "replays", ["refusal"])["refusal"].astype(str)
    said += [("what would help (what-if)", f"no replay: {reason}") for reason in dict.fromkeys(refused) if reason]
    return said


def _from_findings(results: Results) -> list[tuple[str, str]]:
    findings = frame_or_empty(results, "findings")
    if findings.empty:
        return []
    serious = findings[findings["severity"].astype(str).isin(["error", "warning"])]
    first = serious.astype({"code": object}).drop_duplicates("code")
    rows = [(f"finding {row['code']}", f"{row['title']} (×{format_count(row['count'])})")
            for row in first.head(_MOST_FINDINGS).to_dict("records")]  # fmt: skip
    if len(first) > _MOST_FINDINGS:
        rows.append(("more findings", f"{len(first) - _MOST_FINDINGS} more; table findings lists them"))
    return rows
