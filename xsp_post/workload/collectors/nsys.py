"""``run`` → capture at level M/L/G with Nsight Systems: profile the child, then export to SQLite.

Optional flags are used where ``nsys profile --help`` lists them, since nsys refuses to start on an unknown
one. Success is judged by the report, not by the exit code: nsys passes on the child's, and has none of
its own for "profiling failed" (NVIDIA Nsight Systems User Guide, CLI; NSYS.md D).
"""

import re
from pathlib import Path

from xsp_post.base.texts import read_blocks
from xsp_post.hardware import tools
from xsp_post.hardware.tools import Tool, has_flag
from xsp_post.model.capture import Capture, CapturePlan
from xsp_post.workload.collectors import base
from xsp_post.workload.collectors.in_process import GPU_KERNELS

REPORT, EXPORT = "report.nsys-rep", "report.sqlite"
_GIVES = "kernels, library calls, copies and launches below each layer, with the least disturbance"
_REMEDY = (
    "Install Nsight Systems from NVIDIA (developer.nvidia.com/nsight-systems), or set XSP_NSYS to its path; "
    "without nsys, torch.profiler is used"
)

_BLOCKS = {block.name: block for block in read_blocks(Path(__file__).with_name("nsys.txt"))}


class NsysCollector(base.ToolCollector):
    """``nsys profile`` around the child, ``nsys export`` afterwards."""

    name, gives, remedy, missing = "nsys", _GIVES, _REMEDY, "nsys-missing"

    def tool(self) -> Tool | None:
        return tools.find_nsys()

    def collect(self, plan: CapturePlan) -> Capture:
        tool = self.required()
        is_cuda = plan.workload.device == "cuda"
        flags = profile_flags(tool, is_cuda)
        capture = base.begin(
            plan, self.name, profiler="nsys", kernel_meaning=GPU_KERNELS, is_serialized=False,
            tool_version=tool.version, tool_flags=list(flags),
        )  # fmt: skip
        profiled = base.run_child(
            [str(tool.path), "profile", *flags, f"--output={plan.directory / 'report'}",
             *base.child_command(plan, "cuda" if is_cuda else "nvtx")],
            plan,
        )  # fmt: skip
        if (plan.directory / "facts.json").is_file() and not profiled.is_timed_out:
            _require_report(capture, profiled.returncode)
            _export(tool, capture, plan)
        files = {"report": REPORT, "export": EXPORT}
        return base.conclude(capture, profiled, files, is_exit_code_ours=False)


def profile_flags(tool: Tool, is_cuda: bool) -> tuple[str, ...]:
    """The flags of ``nsys profile`` that this nsys knows (all in the form ``--flag=value``)."""
    text = tools.help_text(tool, ["profile"])
    wanted = _BLOCKS["optional"].lines + (_BLOCKS["optional cuda"].lines if is_cuda else [])
    chosen = [flag for _, flag in wanted if has_flag(text, flag.partition("=")[0])]
    traced = ["nvtx"]
    if is_cuda:
        traced = ["cuda", "nvtx", *(name for name in ("cudnn", "cublas") if has_flag(text, name))]
    return (f"--trace={','.join(traced)}", "--force-overwrite=true", *chosen)


def _require_report(capture: Capture, returncode: int) -> None:
    """ToolError, the capture saved as failed, unless nsys left a report with something in it."""
    folder = capture.directory
    report = folder / REPORT
    old = folder / "report.qdrep"  # nsys before 2021.4
    if not report.is_file() and old.is_file():
        old.rename(report)
    if base.is_left(capture, report, returncode):
        return
    if (folder / "report.qdstrm").is_file():
        raise base.fail(
            capture,
            f"nsys left {folder / 'report.qdstrm'} but no report for the capture {capture.name}: its importer is "
            "missing, as in the collector-only copy inside Nsight Compute.",
            "nsys-no-importer",
        )
    message = (
        f"nsys wrote no report for the capture {capture.name} (it ended with {returncode}).{base.last_lines(folder)}"
    )
    raise base.fail(capture, message, "nsys-no-report", _remedy(folder))


def _export(tool: Tool, capture: Capture, plan: CapturePlan) -> None:
    """``nsys export`` to SQLite beside the report; ToolError, the capture saved as failed, where that fails."""
    text = tools.help_text(tool, ["export"])
    extra = [flag for flag in ("--include-blobs=true", "--lazy=false") if has_flag(text, flag.partition("=")[0])]
    export = capture.directory / EXPORT
    ended = base.run_child(
        [str(tool.path), "export", "--type=sqlite", f"--output={export}", "--force-overwrite=true", *extra,
         str(capture.directory / REPORT)],
        plan,
    )  # fmt: skip
    if export.is_file() and export.stat().st_size > 0 and not ended.is_timed_out:
        return
    how = "did not end in time" if ended.is_timed_out else f"ended with {ended.returncode} and wrote nothing"
    message = f"nsys export of {capture.directory / REPORT} {how}.{base.last_lines(capture.directory)}"
    raise base.fail(capture, message, "nsys-export", _remedy(capture.directory))


def _remedy(folder: Path) -> str:
    text = base.last_lines(folder, 200)
    remedies = _BLOCKS["remedies"].texts().items()
    return next((remedy for pattern, remedy in remedies if re.search(pattern, text, re.IGNORECASE)), "")
