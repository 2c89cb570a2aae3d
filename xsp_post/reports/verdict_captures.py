"""Results → the captures that a verdict speaks of: all, those of a case, or each alone."""

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.reports import cases
from xsp_post.tables.analyses.ranks import are_one_job


def main_captures(results: Results) -> list[int] | None:
    """The captures of the main case (`captures_of`), which is looked for only where there are several."""
    return None if _is_one_whole(results) else captures_of(results, cases.main_case(results))


def captures_of(results: Results, case: cases.Case | None) -> list[int] | None:
    """The captures that a verdict on a case speaks of: all (None) where there is one, or where they are the ranks of a
    job; else the one that the case's kernels come from, or that has most device time."""
    if _is_one_whole(results):
        return None
    captures = frame_or_empty(results, "captures", ["capture_id", "device_ns"])
    rows = cases.rows(results, "cases", case) if case is not None else frame_or_empty(results, "cases").iloc[:0]
    chosen = int(rows["kernel_capture_id"].iloc[0]) if len(rows) else -1
    return [chosen if chosen >= 0 else int(captures["capture_id"].iloc[captures["device_ns"].argmax()])]


def own_verdicts(results: Results) -> dict[int, str]:
    """Names of the captures by id where each has a verdict of its own: several, of no common workload or job."""
    captures = frame_or_empty(results, "captures", ["capture_id", "source_name", "workload_name"])
    workloads = captures["workload_name"].astype(object).fillna("").unique().tolist()
    if len(captures) < 2 or (len(workloads) == 1 and workloads[0]) or are_one_job(results):
        return {}
    return dict(zip(captures["capture_id"].tolist(), captures["source_name"].astype(str)))


def _is_one_whole(results: Results) -> bool:
    """Whether a verdict is of all captures: of the only one, or of the ranks of a job."""
    return len(frame_or_empty(results, "captures", ["capture_id"])) < 2 or are_one_job(results)
