"""On the arrow ``reports``: the paper's Figure 2, what each profiling level cost, and which number is the accurate one."""

from __future__ import annotations

from xsp_post.analysis import Results
from xsp_post.reports import cases
from xsp_post.reports.blocks import Exhibit, Section


def _make(results: Results, case: cases.Case | None) -> Section | None:
    return None


EXHIBIT = Exhibit("overhead", "Overhead by level", ("overhead",), _make,
                  "The same workload at rising levels: xsp-post run --levels M,ML,MLG.", ("overhead",))
