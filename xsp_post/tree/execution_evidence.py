"""Tree → what was taken for a model execution, how much device time that covers, and what else could have been."""

import numpy as np
import pandas as pd

from xsp_post.base.findings import Finding, finding
from xsp_post.model.schemas.units import format_ratio_percent
from xsp_post.model.schemas.words import confidence_words
from xsp_post.model.tree import Attribution, NodeKind, Tree
from xsp_post.tree.executions import CYCLES, REPLAYS, SEQUENCE, TRAINING, Candidate
from xsp_post.tree.structure.constants import DEFAULTS
from xsp_post.tree.structure.score import are_alike, cost_ratio

COLUMNS = (
    "rule", "name", "execution_count", "device_ns", "coverage_ratio", "is_chosen", "option", "likeness_ratio",
    "cost_ratio", "confidence",
)  # fmt: skip
_MOST_NAMED = 3
_LEAST_LOST = 0.05  # of the device time; less is not worth a word


def candidates_frame(tree: Tree, chosen: Candidate | None, others: list[Candidate]) -> pd.DataFrame:
    """One row per name that was taken for an execution and per other candidate: `COLUMNS`."""
    total = _total_ns(tree)
    rows = _taken(tree, chosen, total)
    taken = {name for _, name, *_ in rows}
    if chosen is not None and chosen.turn is None and {rule for rule, *_ in rows} == {SEQUENCE}:
        others = [chosen, *others]  # passes were found inside the ranges: these are what else could be one
    for candidate in others:
        name = " and ".join(text for text, _ in candidate.names[:_MOST_NAMED])
        count = sum(often for _, often in candidate.names)
        if name not in taken:
            ratio = min(candidate.coverage_ratio, 1.0)
            rows.append((candidate.rule, name, count, candidate.device_ns, ratio, False, candidate.option,
                         candidate.likeness_ratio, candidate.cost_ratio, ""))  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _taken(tree: Tree, chosen: Candidate | None, total: int) -> list[tuple[object, ...]]:
    """Rows of what the tree holds as MODEL nodes, by rule and name; the heaviest first."""
    frame, nodes = tree.iterations, tree.nodes
    if not len(frame):
        return []
    model = frame["node_id"].to_numpy()
    named = pd.Categorical(tree.names.folded_names[nodes["folded_id"].to_numpy()[model]])
    is_inferred = nodes["is_inferred"].to_numpy()[model]
    rule = np.full(len(model), chosen.rule if chosen is not None else "", object)
    cycles = [name for name, _ in chosen.names] if chosen is not None and chosen.turn is not None else []
    is_inferred = is_inferred & ~named.isin(cycles)
    rule[is_inferred] = SEQUENCE
    rule[nodes["kind"].to_numpy()[model] == int(NodeKind.GRAPH)] = REPLAYS
    held = frame["device_ns"].to_numpy() if total != _host_ns(tree) else frame["duration_ns"].to_numpy()
    sure = np.where(is_inferred, nodes["confidence_ratio"].to_numpy()[model], np.nan)
    summed = pd.DataFrame({"rule": rule, "name": named, "count": 1, "held": held, "sure": sure})
    series = summed.groupby(keys := ["rule", "name"], sort=False, observed=True).ngroup().to_numpy()
    summed["alike"] = held * are_alike(series, frame["kernel_count"].to_numpy(), DEFAULTS)
    how = {"count": "sum", "held": "sum", "alike": "sum", "sure": "min"}
    summed = summed.groupby(keys, sort=False, observed=True).agg(how)
    summed = summed.sort_values("held", ascending=False, kind="stable").reset_index()
    summed["share"] = np.minimum(summed["held"] / max(total, 1), 1.0)
    summed["likeness"] = summed["alike"] / np.maximum(summed["held"], 1)
    summed["cost"] = cost_ratio(summed["share"], summed["likeness"], summed["count"])
    option = chosen.option if chosen is not None else ""
    return [
        (r["rule"], r["name"], int(r["count"]), int(r["held"]), r["share"], True,
         "" if r["rule"] in (SEQUENCE, REPLAYS, CYCLES, TRAINING) else option, r["likeness"], r["cost"],
         confidence_words(r["sure"]).item() if r["sure"] >= 0 else "")
        for r in summed.to_dict("records")
    ]  # fmt: skip


def _total_ns(tree: Tree) -> int:
    """Device time of the capture; host time where no device work was recorded."""
    total = int(tree.nodes["device_ns"].iloc[0])
    return total or _host_ns(tree)


def _host_ns(tree: Tree) -> int:
    if int(tree.nodes["device_ns"].iloc[0]):
        return -1
    outermost = tree.nodes["parent_id"].to_numpy() == 0
    return int((tree.nodes["end_ns"] - tree.nodes["start_ns"]).to_numpy()[outermost].sum())


def sentence(tree: Tree, candidates: pd.DataFrame) -> str:
    """``model executions: `ProfilerStep` ×5, 100 % of device time (step markers)``, and what else could be one."""
    has_device = bool(int(tree.nodes["device_ns"].iloc[0]))
    of_what = "device time" if has_device else "host time"
    taken = candidates[candidates["is_chosen"].to_numpy(bool)]
    others = candidates[~candidates["is_chosen"].to_numpy(bool)]
    if taken.empty:
        if not has_device and not len(tree.trace.spans):
            return ""
        least = f"{DEFAULTS.most_ratio:.0%}".replace("%", " %")
        said = (
            "model executions: no repeating step found; no marker, call of a model, cycle of ranges or period of "
            f"launches holds {least}"
        )
        return said + f" of the {of_what}" + _other(others) + _without_launch(tree)
    parts = [f"`{row['name']}` ×{row['execution_count']:,}" for row in taken.head(_MOST_NAMED).to_dict("records")]
    if len(taken) > _MOST_NAMED:
        parts.append(f"{len(taken) - _MOST_NAMED} others")
    rules = "guessed: " * tree.is_guess + " and ".join(dict.fromkeys(taken["rule"].astype(str)))
    share = format_ratio_percent(min(float(taken["coverage_ratio"].sum()), 1.0), 0)
    own = _in_their_rows(tree) if has_device else share
    meanwhile = "" if own == share else f", {share} with what others launched"
    said = f"model executions: {', '.join(parts)}, {own} of {of_what} ({rules}){meanwhile}"
    return said + _other(others) + _without_launch(tree)


def _in_their_rows(tree: Tree) -> str:
    """Share of the device time in the executions' own rows of the tree. Ranges of another thread that reach beyond an
    execution, ranges a graph was recorded in and copies between inferred kernels have other rows; they count for the
    execution they were launched in all the same."""
    held = int(tree.nodes["device_ns"].to_numpy()[tree.iterations["node_id"].to_numpy()].sum())
    return format_ratio_percent(min(held / max(_total_ns(tree), 1), 1.0), 0)


def _without_launch(tree: Tree) -> str:
    """How much of the device time no execution can hold, because its launches are not in the recording."""
    activities = tree.activities
    length = (activities["end_ns"] - activities["start_ns"]).to_numpy()
    lost = int(length[activities["attribution"].to_numpy() == Attribution.NO_LAUNCH].sum())
    ratio = lost / max(int(length.sum()), 1)
    return "" if ratio < _LEAST_LOST else f"; {format_ratio_percent(ratio, 0)} has no launch in the recording"


def _other(others: pd.DataFrame) -> str:
    if others.empty:
        return ""
    row = others.sort_values("coverage_ratio", ascending=False, kind="stable").iloc[0]
    how = f", with {row['option']}" if row["option"] else ""
    share = format_ratio_percent(float(row["coverage_ratio"]), 0)
    return f"; else `{row['name']}` ×{int(row['execution_count']):,}, {share}{how}"


def coverage_findings(tree: Tree, candidates: pd.DataFrame) -> list[Finding]:
    """A warning where the executions hold less than half of the device time."""
    taken = candidates[candidates["is_chosen"].to_numpy(bool)]
    covered = float(taken["coverage_ratio"].sum())
    if taken.empty or covered >= DEFAULTS.most_ratio or not int(tree.nodes["device_ns"].iloc[0]):
        return []
    return [finding("executions-cover-little", count=len(tree.iterations), example=tree.execution_evidence)]
