"""Which capture each number of a case is taken from (paper, §III-C).

A *case* is one workload at one batch size and phase. Its model latency comes from the run without
profilers below the model (M), its layer latencies from M/L, its kernels from M/L/G; where a run is missing
the next deeper one stands in, and `cases` says so. A single ingested capture serves all three.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.arrays.joins import row_with
from xsp_post.arrays.repeats import dense
from xsp_post.base.findings import Finding, if_any
from xsp_post.model.levels import RUN_COUNTERS, RUN_KERNEL, RUN_LAYER, RUN_MODEL
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.tables.analyses.frames import IntArray, text_codes

ROLES = ("model", "layer", "kernel")
# Per role, how well a run of a level is suited: smaller first (paper, §III-C "taken from", "never from").
# A counter run replays kernels: its times are the last resort everywhere.
_SUITED = {
    "model": {RUN_MODEL: 0, RUN_LAYER: 1, RUN_KERNEL: 2, "": 2, RUN_COUNTERS: 9},
    "layer": {RUN_LAYER: 0, RUN_KERNEL: 1, "": 1, RUN_MODEL: 5, RUN_COUNTERS: 9},
    "kernel": {RUN_KERNEL: 0, "": 0, RUN_LAYER: 4, RUN_MODEL: 5, RUN_COUNTERS: 9},
}
_UNKNOWN_LEVEL = 3
_TIMES = ("process_id", "start_ns", "end_ns", "device_offset_ns", "projection_ns", "period_ns")


@dataclass
class Cases:
    """The cases of a workload.

    frame       one row per case: workload_name, framework, gpu_name, batch_size, phase and per role
                ``{role}_capture_id`` (−1 none) and ``{role}_level``; index = case_index
    iterations  every model execution: capture_id, iteration_index, case_index, latency_ns, busy_ns (NaN
                unknown), process_id and where it lies in time, is_measured, and per role ``is_{role}``; index =
                iteration row, ordered by case.
                A capture without iterations has one row with iteration_index −1 and latency NaN.
    """

    frame: pd.DataFrame
    iterations: pd.DataFrame
    findings: list[Finding]
    ranks: pd.DataFrame  # of captures with several: capture_id, process_id, rank_code (from 1), rank_name

    def __len__(self) -> int:
        return len(self.frame)

    def measured(self, role: str) -> np.ndarray:
        """Which iteration rows are measured and count for a role; bool."""
        return (self.iterations[f"is_{role}"] & self.iterations["is_measured"]).to_numpy(bool)

    def measured_case(self, role: str) -> IntArray:
        """The case of these iteration rows, −1 of the others."""
        return np.where(self.measured(role), self.iterations["case_index"].to_numpy(np.int64), -1)

    def rows_of(self, capture_id: IntArray, iteration_index: IntArray, process_id: IntArray) -> IntArray:
        """Iteration row of each (capture, iteration); outside all iterations, of the capture, or of the process
        where it has ranks. −1 where there is none. Shapes (n,) → (n,)."""
        known = [self.iterations[name].to_numpy(np.int64) for name in ("capture_id", "iteration_index", "rank_code")]
        known[2] = np.where(known[1] < 0, known[2], 0)
        rank = np.where(iteration_index < 0, self._rank_codes(capture_id, process_id), 0)
        return row_with(known, (capture_id, iteration_index, rank))

    def _rank_codes(self, capture_id: IntArray, process_id: IntArray) -> IntArray:
        """Number of the rank of each row's process in its capture, from 1; 0 where the capture has no ranks."""
        known = [self.ranks[name].to_numpy(np.int64) for name in ("capture_id", "process_id")]
        return np.append(self.ranks["rank_code"], 0)[row_with(known, (capture_id, process_id))]


# The run whose device times may be trusted comes first; counter runs replay kernels and come last (XSP §III-C).
_TRUSTED = {RUN_KERNEL: 0, "": 1, RUN_LAYER: 2, RUN_MODEL: 3, RUN_COUNTERS: 4}


def deepest(results: Results) -> list[int]:
    """The captures with most of the stack: with kernels, of the deepest timing run; that with most kernels first."""
    captures = frame_or_empty(results, "captures", ["capture_id", "level", "kernel_count"])
    rank = captures["level"].astype(object).map(_TRUSTED).fillna(_TRUSTED[""])
    rank += len(_TRUSTED) * captures["kernel_count"].eq(0)
    ranked = captures[rank == rank.min()].sort_values("kernel_count", ascending=False, kind="stable")
    return ranked["capture_id"].astype(int).tolist()


def deepest_capture(results: Results) -> int:
    """capture_id of the capture that shows most of the stack; −1 none."""
    return next(iter(deepest(results)), -1)


def find_cases(results: Results) -> Cases:
    """Sort the captures of a workload into cases and choose each role's captures."""
    captures = frame_or_empty(
        results, "captures", ["capture_id", "level", "workload_name", "framework", "gpu_name", "batch_size", "busy_ns"]
    )
    with_rows = {"layer": _captures_in(results, "layers"), "kernel": _captures_in(results, "kernels")}
    ranks = _ranks(results)
    iterations = _all_iterations(results, captures, with_rows["layer"] | with_rows["kernel"], ranks)
    iterations = _without_warmup_cases(_with_case_index(iterations, captures))
    iterations, findings = _measured(iterations)
    frame = _describe(iterations.drop_duplicates("case_index"), captures)
    for role in ROLES:
        _choose(role, frame, iterations, captures, with_rows.get(role))
    return Cases(frame, iterations, findings, ranks)


def _working(results: Results) -> pd.DataFrame:
    """The processes with device work of each capture."""
    devices = frame_or_empty(results, "devices", ["capture_id", "process_id", "rank", "device_ns", "own_busy_ns"])
    return devices[devices["device_ns"] > 0].drop_duplicates(["capture_id", "process_id"])


def are_one_job(results: Results) -> bool:
    """Whether several captures are the ranks of one job: each process with device work states a rank of its own."""
    used = _working(results)
    return used["capture_id"].nunique() > 1 and bool((used["rank"] >= 0).all()) and used["rank"].is_unique


def _ranks(results: Results) -> pd.DataFrame:
    """The processes with device work of captures that have several of them, or that are one rank each of a job."""
    used = _working(results)
    several = used.duplicated("capture_id", keep=False) | are_one_job(results)
    used = used[several].sort_values(["capture_id", "rank", "process_id"])
    known = "rank " + used["rank"].astype(str)
    return used.assign(
        rank_code=used.groupby("capture_id").cumcount() + 1,
        rank_name=known.where(used["rank"] >= 0, "process " + used["process_id"].astype(str)),
    )[["capture_id", "process_id", "rank_code", "rank_name", "own_busy_ns"]].reset_index(drop=True)


def _captures_in(results: Results, table: str) -> set[int]:
    return set(pd.unique(frame_or_empty(results, table, ["capture_id"])["capture_id"]).tolist())


def _all_iterations(
    results: Results, captures: pd.DataFrame, with_events: set[int], ranks: pd.DataFrame
) -> pd.DataFrame:
    """Recorded iterations, and one stand-in per capture, or rank of it, that has layers or kernels but no iteration.
    ``rank_code`` and ``rank_name`` say which rank each is of (0 and '' where there is one process only)."""
    columns = ["capture_id", "iteration_index", "phase", "batch_size", "latency_ns", "busy_ns", "is_warmup", *_TIMES]
    recorded = frame_or_empty(results, "iterations", columns)
    recorded = recorded.astype({"phase": object, "is_warmup": bool, "latency_ns": "float64", "busy_ns": "float64"})
    recorded.loc[recorded["latency_ns"] < 0, "latency_ns"] = np.nan
    bare = captures[captures["capture_id"].isin(with_events) & ~captures["capture_id"].isin(recorded["capture_id"])]
    keys = ["capture_id", "process_id"]
    recorded = recorded.merge(ranks[[*keys, "rank_code", "rank_name"]], on=keys, how="left", validate="many_to_one")
    recorded = recorded.fillna({"rank_code": 0, "rank_name": ""}).astype({"rank_code": "int64"})
    if bare.empty:
        return recorded.reset_index(drop=True)
    bare = bare[["capture_id", "busy_ns"]].merge(ranks, on="capture_id", how="left", validate="one_to_many")
    bare = bare.fillna({"rank_code": 0, "rank_name": "", "process_id": -1})
    bare["busy_ns"] = bare["own_busy_ns"].astype(float).fillna(bare["busy_ns"].astype(float))
    bare = bare.astype({"rank_code": "int64", "process_id": "int64", "busy_ns": "float64"})
    unknown: dict[str, Any] = {"iteration_index": -1, "phase": "", "batch_size": -1, "is_warmup": False, "start_ns": 0}
    stand_in = bare.reindex(columns=list(recorded)).assign(**unknown)
    return stand_in if recorded.empty else pd.concat([recorded, stand_in], ignore_index=True)


def _with_case_index(iterations: pd.DataFrame, captures: pd.DataFrame) -> pd.DataFrame:
    """Add ``case_index`` (by workload in order of appearance, batch size, phase) and sort the rows by it."""
    owner = captures.set_index("capture_id")
    capture_id = iterations["capture_id"]
    own_batch = capture_id.map(owner["batch_size"]).fillna(-1).astype("int64")
    batch = iterations["batch_size"].where(iterations["batch_size"] > 0, own_batch).astype("int64")
    name = _text(capture_id, owner["workload_name"])
    # Captures are repeats of one case only when they say what they ran and how much of it.
    is_named = (name != "") & (batch > 0)
    name_code, _ = text_codes(name)
    own_code = np.where(is_named, name_code, capture_id).astype(np.int64)
    group, _ = dense(is_named.to_numpy().astype(np.int64), own_code)
    iterations = iterations.assign(batch_size=batch, group=group)
    iterations["phase"] = _unified_phases(iterations, _text(capture_id, owner["level"]))
    phase, _ = text_codes(iterations["phase"])
    batches = batch.to_numpy().astype(np.int64)
    rank = iterations["rank_code"].to_numpy(np.int64)
    case, first = dense(group, batches, phase, rank)
    order = np.lexsort((np.arange(len(first)), batches[first], rank[first], group[first]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    iterations["case_index"] = rank[case] if len(rank) else case
    return iterations.drop(columns="group").sort_values("case_index", kind="stable").reset_index(drop=True)


def _unified_phases(iterations: pd.DataFrame, level: pd.Series) -> pd.Series:
    """Runs that each know one phase only ran the same thing, whatever they call it: the deepest run's word."""
    keys = [iterations["group"], iterations["batch_size"]]
    phases = iterations["phase"].fillna("").astype("object")
    most = phases.groupby([*keys, iterations["capture_id"]]).transform("nunique").groupby(keys).transform("max")
    suited = level.map(_SUITED["kernel"]).fillna(_UNKNOWN_LEVEL)
    ordered = suited.sort_values(kind="stable").index
    word = phases.loc[ordered].groupby([key.loc[ordered] for key in keys]).transform("first").loc[iterations.index]
    return phases.where(most > 1, word)


def _without_warmup_cases(iterations: pd.DataFrame) -> pd.DataFrame:
    """Leave out cases that are warm-up only (a phase named so) where their captures measured something else."""
    measured = ~iterations["is_warmup"]
    of_capture = measured.groupby(iterations["capture_id"]).transform("any")
    of_case = measured.groupby(iterations["case_index"]).transform("any")
    kept = iterations[of_case | ~of_capture].reset_index(drop=True)
    case, _ = pd.factorize(kept["case_index"])  # rows are ordered by case
    return kept.assign(case_index=case.astype(np.int64))


def _measured(iterations: pd.DataFrame) -> tuple[pd.DataFrame, list[Finding]]:
    """Add ``is_measured``: not warm-up; of a capture's case that is all warm-up, its last iteration."""
    measured = ~iterations["is_warmup"]
    keys = [iterations["case_index"], iterations["capture_id"]]
    is_all_warm = ~measured.groupby(keys).transform("any")
    is_last = ~iterations[["case_index", "capture_id"]].duplicated(keep="last")
    stand_in = is_all_warm & is_last
    iterations = iterations.assign(is_measured=measured | stand_in).drop(columns="is_warmup")
    return iterations, if_any("only-warmup-iterations", stand_in)


def _describe(one_each: pd.DataFrame, captures: pd.DataFrame) -> pd.DataFrame:
    owner = captures.set_index("capture_id")
    capture_id = one_each["capture_id"]
    described = {name: _text(capture_id, owner[name]).to_numpy() for name in ("workload_name", "framework", "gpu_name")}
    return pd.DataFrame(
        {
            "batch_size": one_each["batch_size"].to_numpy(np.int64),
            "phase": one_each["phase"].to_numpy(),
            "rank_name": one_each["rank_name"].to_numpy(object),
            **described,
        }
    )


def _choose(
    role: str, frame: pd.DataFrame, iterations: pd.DataFrame, captures: pd.DataFrame, allowed: set[int] | None
) -> None:
    """Add ``{role}_capture_id``, ``{role}_level`` to the cases and ``is_{role}`` to the iterations, in place."""
    owner = captures.set_index("capture_id")
    level = _text(iterations["capture_id"], owner["level"])
    suited = level.map(_SUITED[role]).fillna(_UNKNOWN_LEVEL).astype("float64")
    if allowed is not None:
        suited = suited.where(iterations["capture_id"].isin(allowed), np.inf)
    if role == "model":  # a capture without iterations knows no model latency
        suited = suited.where(iterations["iteration_index"] >= 0, np.inf)
    best = suited.groupby(iterations["case_index"]).transform("min")
    chosen = (suited == best) & np.isfinite(suited)
    iterations[f"is_{role}"] = chosen
    first = iterations[chosen].drop_duplicates("case_index").set_index("case_index")["capture_id"]
    capture = frame.index.to_series().map(first)
    frame[f"{role}_capture_id"] = capture.fillna(-1).astype("int64")
    frame[f"{role}_level"] = _text(capture, owner["level"])
    if role == "kernel":  # the roofs are those of the GPU that ran the kernels
        gpu = _text(capture, owner["gpu_name"])
        frame["gpu_name"] = gpu.where(gpu != "", frame["gpu_name"])


def _text(capture_id: pd.Series, owner: pd.Series) -> pd.Series:
    """The text of each row's capture; '' for one that is not known. A categorical becomes plain text."""
    return capture_id.map(owner.astype("object")).astype("object").fillna("")
