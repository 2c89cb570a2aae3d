"""``run`` → captures at level M/L/G+counters with Nsight Compute: one iteration of the child, kernel by kernel.

Each metric set (`METRIC_SETS`) is a capture of its own, as XSP measures them: fewer passes per kernel at a time,
a set that fails costs only itself, and `--resume` repeats only that one. `counter_join` puts them together again.
ncu replays every kernel as often as its metrics need passes, so only one measured iteration is profiled, and
no time of these runs is ever used. Which metrics exist is asked of ``ncu --query-metrics``; where it does not
say, NVIDIA's own roofline sections are recorded. Clocks are left alone, as in the timing runs; the caches are
flushed before each pass (ncu's default: reproducible), both recorded with the capture.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xsp_post.base.texts import read_blocks
from xsp_post.hardware import tools
from xsp_post.hardware.tools import Tool, has_flag
from xsp_post.model.capture import Capture, CapturePlan
from xsp_post.names.range_text import DOMAIN, MODEL
from xsp_post.workload.collectors import base
from xsp_post.workload.collectors.in_process import GPU_KERNELS

CLOCK_CONTROL, CACHE_CONTROL, REPLAY_MODE = "none", "all", "kernel"
_GIVES = "flops, DRAM bytes and occupancy of every kernel: A8…A12, A14, A15 and the rooflines"
_REMEDY = "Install Nsight Compute from NVIDIA (developer.nvidia.com/nsight-compute), or set XSP_NCU to its path"
_PARAMETERS = Path("/proc/driver/nvidia/params")

FLOPS, MEMORY, OCCUPANCY = SETS = ("flops", "memory", "occupancy")
_LISTS = {
    block.name: tuple(line for _, line in block.lines) for block in read_blocks(Path(__file__).with_name("ncu.txt"))
}
METRIC_SETS = {name: _LISTS[name] for name in SETS}
_COMMON, _TENSOR_INSTEAD, _ALWAYS = (_LISTS[name] for name in ("common", "tensor instead", "always"))
_TENSOR_OPERATIONS = re.compile(r"sm__ops_path_tensor_src_(?!op_)\w+")
_NAME = re.compile(r"^\s*([a-z0-9]+__\w+)")
_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_NO_KERNELS = "No kernels were profiled"


class NcuCollector(base.ToolCollector):
    """``ncu`` around the child."""

    name, gives, remedy, missing = "ncu", _GIVES, _REMEDY, "ncu-missing"

    def tool(self) -> Tool | None:
        return tools.find_ncu()

    def check(self) -> base.Availability:
        found = super().check()
        limited = "; the driver lets only administrators read counters" if is_restricted() else ""
        return replace(found, found=f"{found.found}{limited * found.is_available}")

    def metric_sets(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The sets to record one capture each of, and those left out: ncu lists none of their metrics here."""
        tool = self.tool()
        listed = set() if tool is None else listed_metrics(tool)
        due = tuple(name for name in METRIC_SETS if metric_flags(listed, name))
        return due, tuple(name for name in METRIC_SETS if name not in due)

    def collect(self, plan: CapturePlan) -> Capture:
        tool = self.required()
        flags = profile_flags(tool, plan.metric_set)
        capture = base.begin(
            plan, self.name, profiler="ncu", kernel_meaning=GPU_KERNELS, is_serialized=True, tool_version=tool.version,
            tool_flags=flags, clock_control=CLOCK_CONTROL, cache_control=CACHE_CONTROL, replay_mode=REPLAY_MODE,
            counted_iteration_count=1,
        )  # fmt: skip
        ended = _profile(tool, flags, plan)
        if _said(plan.directory, _NO_KERNELS) and not ended.is_timed_out and "--nvtx-include" in flags:
            # another ncu may read the range filter differently: cudaProfilerStart/Stop alone limit it well enough
            at = flags.index("--nvtx-include")
            ended = _profile(tool, [*flags[:at], *flags[at + 2 :]], plan)
        if not ended.is_timed_out:
            _require_report(capture, ended, plan.directory / report_name(plan.metric_set))
        return base.conclude(capture, ended, {"report": report_name(plan.metric_set)}, is_exit_code_ours=False)


def is_restricted() -> bool | None:
    """Whether the driver says that only administrators may read counters; None where there is no driver."""
    try:
        return "RmProfilingAdminOnly: 1" in _PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def report_name(metric_set: str) -> str:
    """``counters_flops.ncu-rep``: findings and the table `counter_join` call a report by its file name."""
    return f"counters_{metric_set}.ncu-rep"


def profile_flags(tool: Tool, metric_set: str) -> list[str]:
    """The flags of ``ncu`` that this ncu knows, each value a word of its own."""
    text = tools.help_text(tool, [])
    wanted = [
        ["--target-processes", "all"],
        ["--replay-mode", REPLAY_MODE],
        ["--clock-control", CLOCK_CONTROL],
        ["--cache-control", CACHE_CONTROL],
        ["--profile-from-start", "off"],  # the child starts and stops the recording itself
        ["--nvtx"],
        ["--nvtx-include", f"regex:{DOMAIN}@{MODEL}:.*/"],
        ["--import-sass", "no"],
        ["--apply-rules", "no"],
    ]
    flags = [word for words in wanted if has_flag(text, words[0]) for word in words]
    return flags + metric_flags(listed_metrics(tool), metric_set)


def listed_metrics(tool: Tool) -> set[str]:
    """Base names of the metrics of this machine's GPU, as ``ncu --query-metrics`` lists them."""
    printed = tools.output_text(tool.path, ["--query-metrics"], timeout_s=120.0)
    return {match[1] for line in printed.splitlines() if (match := _NAME.match(line))}


def metric_flags(listed: set[str], metric_set: str) -> list[str]:
    """What to record: those metrics of the set that exist here; ncu's own sections where it lists none of any set.

    Empty where the GPU has metrics of other sets only.
    """
    every = [*(name for names in METRIC_SETS.values() for name in names), *_TENSOR_INSTEAD]
    if not any(name.partition(".")[0] in listed for name in every):
        return [word for section in _LISTS[f"sections {metric_set}"] for word in ("--section", section)]
    chosen = [name for name in METRIC_SETS[metric_set] if name.partition(".")[0] in listed]
    if metric_set == FLOPS:
        operations = sorted(f"{name}.sum" for name in listed if _TENSOR_OPERATIONS.fullmatch(name))
        chosen += operations or [name for name in _TENSOR_INSTEAD if name.partition(".")[0] in listed]
    if not chosen:
        return []
    common = [name for name in _COMMON if name.partition(".")[0] in listed]
    return ["--metrics", ",".join([*common, *chosen, *(_ALWAYS if metric_set == OCCUPANCY else ())])]


def _profile(tool: Tool, flags: Sequence[str], plan: CapturePlan) -> base.Ended:
    """Run the child once under ncu: all warm-ups, then one measured iteration."""
    one = plan._replace(workload=replace(plan.workload, iteration_count=1))
    target = plan.directory / report_name(plan.metric_set)
    return base.run_child([str(tool.path), *flags, "-f", "-o", str(target), *base.child_command(one, "cuda")], plan)


def _said(folder: Path, words: str) -> bool:
    """Whether ncu's messages, which go to the child's own streams, hold some words."""
    for name in (base.STDOUT, base.STDERR):
        try:
            if words in (folder / name).read_text(encoding="utf-8", errors="replace"):
                return True
        except OSError:
            continue
    return False


def _require_report(capture: Capture, ended: base.Ended, report: Path) -> None:
    """ToolError, the capture saved as failed, unless ncu left a report."""
    folder = capture.directory
    if _said(folder, _NO_PERMISSION):
        message = f"The driver refused GPU counters for the capture {capture.name} (ERR_NVGPUCTRPERM)."
        raise base.fail(capture, message, "ncu-permission")
    if base.is_left(capture, report, ended.returncode):
        return
    if _said(folder, _NO_KERNELS):
        message = f"ncu profiled no kernel in the capture {capture.name}.{base.last_lines(folder)}"
        raise base.fail(capture, message, "ncu-no-kernels")
    if (folder / "facts.json").is_file():
        message = f"ncu wrote no report for the capture {capture.name} (it ended with {ended.returncode})."
        raise base.fail(capture, f"{message}{base.last_lines(folder)}", "ncu-no-report")
