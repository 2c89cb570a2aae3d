"""Executions and layers that `pipeline` finds in a stranger's or a visitor's program, by the tables alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from generators.machine import NONE, Program, write
from generators.strangers import draw
from structure_score import Answer, best

from xsp_post.pipeline import captures_of


def truth_of(program: Program) -> pd.DataFrame:
    """One row per recorded kernel or graph: pid, correlation_id, start_ns and its groups."""
    rows = [
        {"process_id": row["pid"], "correlation_id": row["correlation"], "start_ns": row["start"],
         **{label: row["labels"].get(label, NONE) for label in (*program.executions, *program.layers)}}
        for m in program.machines for row in m.work if row["kind"] in ("kernel", "graph")
    ]  # fmt: skip
    return pd.DataFrame(rows).sort_values("start_ns", kind="stable", ignore_index=True)


def found_in(path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Kernels and opaque graphs by start, with their execution and their layer (−1: none); the executions."""
    result = captures_of([path])  # what is asked for is made, no more
    columns = ["process_id", "correlation_id", "start_ns", "iteration_index", "layer_node_id", "layer_index"]
    frames = [result.frame("kernels").reindex(columns=columns)]
    operations = result.frame("memory_operations")
    frames.append(operations[operations["kind"].eq("graph")].reindex(columns=columns))
    rows = pd.concat([frame.astype("float64") for frame in frames if len(frame)])
    rows = rows.fillna(-1).astype("int64").sort_values("start_ns", kind="stable", ignore_index=True)
    return rows, result.frame("iterations")


def judge(program: Program, path: Path) -> dict[str, Answer]:
    """How the executions and the layers found agree with the best of the accepted truths."""
    if not any(row["kind"] in ("kernel", "graph") for machine in program.machines for row in machine.work):
        return {}  # nothing was recorded of which anything is asked
    rows, iterations = found_in(path)
    truth = truth_of(program)
    if len(rows) != len(truth):
        raise AssertionError(f"{len(truth)} operations written, {len(rows)} read")
    if program.is_kineto:  # its writer rounds nothing, its reader may start at another zero
        order = ["process_id", "correlation_id", "start_ns"]
        rows, truth = rows.sort_values(order, ignore_index=True), truth.sort_values(order, ignore_index=True)
    execution = rows["iteration_index"].to_numpy()
    if program.is_noise:
        return {"executions": best(execution, [np.full(len(rows), NONE)], is_counted=True)}
    whole = [truth[one].to_numpy() for one in program.executions if truth[one].max() >= 0]  # not all was cut through
    answers = {"executions": best(execution, whole, is_counted=True)} if whole else {}
    accepted = []
    for one in program.layers:
        group = truth[one].to_numpy()
        accepted.append(np.where(group == NONE, -2, group))
    if accepted:
        by_node = best(rows["layer_node_id"].to_numpy(), accepted)
        number = rows["layer_index"].to_numpy()
        call = np.where(number >= 0, execution * 100_000 + number, -1)
        by_number = best(np.where(execution >= 0, call, number), accepted)
        answers["layers"] = max(by_node, by_number, key=lambda one: (one.points, one.share))
    answers |= {name: Answer(1.0, 0, 0) for name in program.may_be_nothing if not answers[name].found}
    flags = iterations.set_index("iteration_index")["is_warmup"]
    if program.warmups and len(flags) and "executions" in answers and answers["executions"].verdict == "right":
        said = pd.Series(execution[execution >= 0]).map(flags).to_numpy(bool)
        true = truth[program.executions[0]].to_numpy()[execution >= 0]
        judged = true >= 0
        is_right = said[judged] == np.isin(true[judged], list(program.warmups))
        answers["warm-up"] = Answer(float(is_right.mean()), 1, 1) if judged.any() else Answer(float("nan"), 0, 0)
    return answers


def judged(
    seeds: Iterable[int], draw: Callable[[int], Program] = draw
) -> Iterable[tuple[int, Program, dict[str, Answer]]]:
    """Each seed's program and its answers."""
    for seed in seeds:
        program = draw(seed)
        with tempfile.TemporaryDirectory() as folder:
            path = write(program, Path(folder) / f"stranger_{seed}")
            yield seed, program, judge(program, path)
