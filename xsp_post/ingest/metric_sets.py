"""Counter reports of one run → one report per batch size, and which metric sets could not be recorded.

`xsp-post run --ncu` records each metric set into a report of its own, and so do many who call ncu themselves.
"""

from collections.abc import Sequence

from xsp_post.base.errors import CaptureError
from xsp_post.base.findings import Finding, finding
from xsp_post.model import capture
from xsp_post.model.capture import DONE, FAILED, Capture
from xsp_post.model.counters import DURATION, CounterReport

_SAME_KERNELS = ("name", "range_path", "workload_type", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def failed_sets(made: Capture) -> list[Finding]:
    """The metric sets of this capture's batch size that its run tried in vain; reads the folders beside it."""
    alike = []
    for file in sorted(made.directory.parent.glob(f"*/{capture.CAPTURE_NAME}")):
        try:
            other = capture.load_capture(file)
        except CaptureError:
            continue  # reported where the run directory is read
        if (other.level, other.batch_size) == (made.level, made.batch_size):
            alike.append(other)
    recorded = {other.metric_set for other in alike if other.status == DONE}
    failed = {other.metric_set: other for other in alike if other.status == FAILED}
    return [
        finding("counters-set-failed", example=f"{name}, batch {other.batch_size}: {other.reason}")
        for name, other in failed.items()
        if name and name not in recorded
    ]


def one_per_program(reports: Sequence[CounterReport]) -> list[CounterReport]:
    """Of reports that complement each other (more metrics of the same kernels in the same order), the first.

    A report that has no metric of its own is another recording, and stays.
    """
    chosen = list[CounterReport]()
    programs = list[tuple[CounterReport, set[str]]]()  # the first report of some kernels, and all metrics seen of them
    for report in reports:
        names = set(report.metrics["metric_name"].cat.categories) - {DURATION}
        for first, seen in programs:
            if _is_of_same_kernels(first, report) and names - seen:
                seen |= names
                break
        else:
            chosen.append(report)
            programs.append((report, names))
    return chosen


def _is_of_same_kernels(one: CounterReport, other: CounterReport) -> bool:
    columns = list(_SAME_KERNELS)
    return one.batch_size == other.batch_size and one.actions[columns].equals(other.actions[columns])
