"""``run`` → captures: levels that share one measured process, each with a folder and a recording of its own."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from xsp_post.model.capture import DONE, Capture, CapturePlan
from xsp_post.workload.collectors.base import child_command, conclude, run_child


class InProcess(Protocol):
    """A collector whose profiler, if it has one, is started and stopped by the measured process itself."""

    profiler: str  # as in workload.recorder.Recording
    files: dict[str, str]  # role -> file that the child writes

    def begin(self, plan: CapturePlan) -> Capture:
        """The capture that is about to be made, with its settings."""


def collect_together(levels: Sequence[tuple[InProcess, CapturePlan]]) -> list[Capture]:
    """The captures of one process, in the order given; the logs are in the first one's folder.

    Where memory runs out, the first capture alone says so. Raises as `Collector.collect` does.
    """
    captures = [collector.begin(plan) for collector, plan in levels]
    plans = [(plan, collector.profiler) for collector, plan in levels]
    first = levels[0][1]
    ended = run_child(child_command(first, plans[0][1], *plans[1:]), first)
    made: list[Capture] = []
    for (collector, plan), capture in zip(levels, captures):
        if len(levels) > 1:
            capture.process = first.directory.name
        if made and made[0].status != DONE:
            shutil.rmtree(plan.directory, ignore_errors=True)
            continue
        if made:
            capture.files = {}
        share = replace(ended, wall_ns=ended.wall_ns // len(levels))
        made.append(conclude(capture, share, collector.files))
    return made
