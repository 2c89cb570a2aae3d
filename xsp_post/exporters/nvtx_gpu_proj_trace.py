"""Results → files: NVIDIA's ``nvtx_gpu_proj_trace``, for scripts written for ``nsys stats``.

Definition (NVIDIA's report of that name; NSYS reference B.1–B.3): a device operation belongs to every
range of the launching thread that encloses its API call; the projection of a range is first start … last
end of its operations; parent is the range of the same thread that encloses it most tightly, over all
ranges; rows are the ranges with a projection, by projected start, then longer first. Computed from the
ranges' and launches' host times alone, so it does not depend on how our tree attributes anything.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from xsp_post.arrays.intervals import nest
from xsp_post.arrays.projected import projected
from xsp_post.base import limits, text_safety
from xsp_post.base.findings import finding
from xsp_post.base.output import atomic_output
from xsp_post.exporters.base import Selection, Written, select
from xsp_post.model.results import Results

# A PyTorch or Jaeger trace has no NVTX ranges; what it has instead nests like push/pop ranges.
STYLES = {"start_end": "StartEnd", **dict.fromkeys(("push_pop", "operator", "module", "annotation"), "PushPop")}
# The report in nanoseconds; `nsys stats` prints the unit behind the name, the recipe's Parquet does not.
_IN_NS = ("Projected Start", "Projected Duration", "Orig Start", "Orig Duration")
_MOST_IDS = 20_000_000  # in all stacks; they grow with the square of the depth
# Types of the recipe's Parquet file: numbers that a row may lack are doubles there.
PARQUET_SCHEMA = pa.schema([
    ("Name", pa.string()), ("Projected Start", pa.int64()), ("Projected Duration", pa.int64()),
    ("Orig Start", pa.float64()), ("Orig Duration", pa.float64()), ("Style", pa.string()), ("PID", pa.int64()),
    ("TID", pa.int64()), ("NumGPUOps", pa.int64()), ("Lvl", pa.float64()), ("NumChild", pa.int64()),
    ("RangeId", pa.float64()), ("ParentId", pa.float64()), ("RangeStack", pa.string()), ("Rank", pa.int64()),
])  # fmt: skip


def data(results: Results, *, capture_id: int | None = None) -> pd.DataFrame:
    """The rows of the report with its own column names, times int64 nanoseconds; see `from_selection`."""
    return from_selection(_selection(results, capture_id))


def _selection(results: Results, capture_id: int | None) -> Selection:
    launched = ("process_id", "correlation_id", "launch_start_ns", "launch_end_ns", "launch_thread_id")
    return select(
        results, capture_id=capture_id, kernels=launched, memory_operations=(*launched, "node_id"),
        nodes=("name", "domain", "process_id", "thread_id", "source_row_id"),
    )  # fmt: skip


def from_selection(selection: Selection) -> pd.DataFrame:
    """One row per range with a projection. ``ParentId`` is a nullable integer; all other columns are filled."""
    nodes = selection.nodes
    ranges = nodes[nodes["span_kind"].isin(list(STYLES))]
    # RangeId is the row in NVTX_EVENTS; captures of other tools have none, then our own number stands in
    source = ranges["source_row_id"].to_numpy()
    is_key = len(source) > 0 and (source >= 0).all() and len(np.unique(source)) == len(source)
    range_id = source if is_key else ranges["node_id"].to_numpy()
    order = np.argsort(range_id, kind="stable")
    ranges, range_id = ranges.iloc[order].reset_index(drop=True), range_id[order]
    start, end = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()

    launches = _launches(selection)
    columns = ["process_id", "thread_id"], ["process_id", "launch_thread_id"]
    threads = [frame[names].to_numpy(np.int64) for frame, names in zip((ranges, launches), columns)]
    thread = np.unique(np.concatenate(threads), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    range_thread, launch_thread = thread[: len(ranges)], thread[len(ranges) :]
    first, last, count = _project(range_thread, start, end, launch_thread, launches)
    nesting = nest(range_thread, start, end, range_id)

    has = count > 0
    children = np.bincount(nesting.parent[has & (nesting.parent >= 0)], minlength=len(ranges))
    name = ranges["domain"].astype(object).to_numpy() + ":" + ranges["name"].astype(object).to_numpy()
    parent = nesting.parent
    parent_id = pd.array(np.where(parent >= 0, range_id[parent] if len(range_id) else 0, 0), dtype="Int64")
    parent_id[parent < 0] = pd.NA
    report = pd.DataFrame(
        {
            "Name": name,
            "Projected Start": first,
            "Projected Duration": last - first,
            "Orig Start": start,
            "Orig Duration": end - start,
            "Style": ranges["span_kind"].astype(object).map(STYLES).to_numpy(),
            "PID": ranges["process_id"].to_numpy(),
            "TID": ranges["thread_id"].to_numpy(),
            "NumGPUOps": count,
            "Lvl": nesting.depth,
            "NumChild": children,
            "RangeId": range_id,
            "ParentId": parent_id,
            "RangeStack": _stacks(range_id, parent, nesting.depth),
        }
    )[has]
    order = np.lexsort((report["RangeId"], -report["Projected Duration"], report["Projected Start"]))
    return report.iloc[order].reset_index(drop=True)


def write(results: Results, path: Path, *, force: bool = False, **part: Any) -> Written:
    """As ``nsys stats -r nvtx_gpu_proj_trace -f csv`` writes it; where ``path`` ends in ``.parquet`` as the recipe's
    ``trace.parquet``: its columns, types and order, with `Rank`. Raises OutputError."""
    selection = _selection(results, part.get("capture_id"))
    report = from_selection(selection)
    with atomic_output(path, force) as temporary:
        if path.suffix == ".parquet":
            parents = report["ParentId"].to_numpy(dtype=np.float64, na_value=np.nan)
            whole = report.assign(Rank=0, ParentId=parents)
            table = pa.Table.from_pandas(whole, schema=PARQUET_SCHEMA, preserve_index=False)
            pyarrow.parquet.write_table(table, temporary)
        else:
            printed = report.rename(columns={name: f"{name} (ns)" for name in _IN_NS})
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                text_safety.write_csv(printed, stream)
    findings = list(selection.findings)
    if not len(report):
        findings.append(finding("export-empty", example=str(selection.capture.get("source_name", ""))))
    return Written(path, {"ranges": len(report)}, findings)


def _launches(selection: Selection) -> pd.DataFrame:
    """One row per launch with device work: its call, and first start and last end of its operations."""
    columns = [
        "process_id", "correlation_id", "launch_thread_id", "launch_start_ns", "launch_end_ns", "start_ns",
        "end_ns",
    ]  # fmt: skip
    copies = selection.memory_operations
    copies = copies[copies["kind"].astype(str) != "graph"]
    operations = pd.concat([selection.kernels[columns], copies[columns]], ignore_index=True)
    operations = operations[operations["launch_thread_id"] >= 0]
    return operations.groupby(columns[:4], sort=False, as_index=False).agg(
        launch_end_ns=("launch_end_ns", "max"), start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
    )


def _project(
    range_thread: np.ndarray, start: np.ndarray, end: np.ndarray, launch_thread: np.ndarray, launches: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First start, last end and number of the launches inside each range; −1, −1, 0 without any."""
    result = np.tile(np.array([-1, -1, 0], np.int64), (len(start), 1))
    columns = ["launch_start_ns", "launch_end_ns", "start_ns", "end_ns"]
    for number in np.unique(launch_thread):
        rows = np.flatnonzero(range_thread == number)
        mine = launches[launch_thread == number].sort_values(columns[:2])
        begin, until, early, late = (mine[column].to_numpy() for column in columns)
        is_new = np.ones(len(mine), bool)
        result[rows] = np.column_stack(projected(begin, until, early, late, is_new, start[rows], end[rows]))
    return result[:, 0], result[:, 1], result[:, 2]


def _stacks(range_id: np.ndarray, parent: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """``:id:id:…`` from the root to each range, one pass per depth."""
    if int(depth.sum()) > _MOST_IDS and not limits.are_lifted():
        raise limits.over_limit(
            Path("nvtx_gpu_proj_trace"),
            f"its column RangeStack names all ranges around each one, {int(depth.sum()):,} in all",
            f"{_MOST_IDS:,}",
        )
    stack = np.char.add(":", range_id.astype("U20")).astype(object)
    for level in range(1, int(depth.max(initial=0)) + 1):
        rows = np.flatnonzero(depth == level)
        stack[rows] = stack[parent[rows]] + stack[rows]
    return stack
