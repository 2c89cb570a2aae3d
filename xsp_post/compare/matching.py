"""Two results → samples side by side: cases by phase and batch size, layers by path, kernels by layer and name."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.names.families import normalise_kernel_name
from xsp_post.tables.analyses.cases import Cases, find_cases
from xsp_post.tables.reconcile import layer_times

BASE, OTHER = 0, 1
LATENCY, HOST_TIME = "latency", "host_time"
OUTSIDE = "[outside layers]"
SAMPLE_COLUMNS = ("side", "pair_index", "capture_id", "value")


@dataclass
class Side:
    """One of the two results, with its cases and the pair that each case is in (−1 none)."""

    side: int
    results: Results
    cases: Cases
    pair_of_case: np.ndarray

    def iteration_pairs(self, role: str) -> np.ndarray:
        """Pair of every iteration row that is measured and counts for a role; −1 for the others."""
        return np.append(self.pair_of_case, -1)[self.cases.measured_case(role)]


def match_cases(base: Results, other: Results) -> tuple[pd.DataFrame, list[Side]]:
    """Pairs of cases (schemas: compare_cases, without texts of times) and the two sides.

    By phase and batch size; of several workloads in one store by workload, of ranks of the same names by rank. One case
    left on each side is a pair only when both launch equally many kernels an iteration: else an "iteration" means
    different things.
    """
    found = [find_cases(base), find_cases(other)]
    frames = [_described(cases, results) for cases, results in zip(found, (base, other))]
    keys = ["phase", "batch_size"]
    if any(frame.duplicated(keys).any() for frame in frames):
        keys = ["workload_name", *keys]
    if {*frames[0]["rank_name"]} == {*frames[1]["rank_name"]}:
        keys.append("rank_name")
    frames = [frame.assign(again=frame.groupby(keys, sort=False).cumcount()) for frame in frames]
    table = frames[0].merge(frames[1], on=[*keys, "again"], how="outer", suffixes=("_base", "_other"), sort=False)
    table = _with_last_pair(table)
    table["status"] = np.select(
        [table["case_base"].isna(), table["case_other"].isna()], ["only other", "only base"], "matched"
    )
    table = table.sort_values(["status", "case_base", "case_other"], kind="stable").reset_index(drop=True)
    sides = []
    for side, name, cases, results in zip((BASE, OTHER), ("base", "other"), found, (base, other)):
        pair = np.full(len(cases), -1, np.int64)
        rows = table[table["status"] == "matched"]
        pair[rows[f"case_{name}"].to_numpy(np.int64)] = rows.index.to_numpy()
        sides.append(Side(side, results, cases, pair))
    for name in {"workload_name", "rank_name"} - {*table}:
        own = table[f"{name}_base"]
        table[name] = own.where(own.fillna("") != "", table[f"{name}_other"])
    counted = {f"{name}_case_index": table[f"case_{name}"].fillna(-1).astype(np.int64) for name in ("base", "other")}
    texts = {name: table[name].fillna("").astype(object) for name in ("workload_name", "phase", "rank_name", "status")}
    frame = table.assign(pair_index=range(len(table)), **counted, **texts)
    return frame[["pair_index", "workload_name", "phase", "batch_size", "rank_name", *counted, "status"]], sides


def _described(cases: Cases, results: Results) -> pd.DataFrame:
    frame = cases.frame[["workload_name", "phase", "batch_size", "rank_name"]]
    counts = frame_or_empty(results, "a15", ["case_index", "kernel_count"]) if "a15" in results.tables() else None
    by_case = {} if counts is None else dict(zip(counts["case_index"].tolist(), counts["kernel_count"].tolist()))
    each = range(len(frame))
    texts = dict.fromkeys(("workload_name", "phase", "rank_name"), object)
    return frame.astype(texts).fillna("").assign(case=each, kernels=[by_case.get(one, 0) for one in each])


def _with_last_pair(table: pd.DataFrame) -> pd.DataFrame:
    """A single case left on either side: one pair when they do the same amount of work."""
    only = [np.flatnonzero(table[name].isna()) for name in ("case_other", "case_base")]
    if len(only[0]) != 1 or len(only[1]) != 1:
        return table
    mine, theirs = only[0][0], only[1][0]
    same = table["kernels_base"].iloc[mine] == table["kernels_other"].iloc[theirs] > 0
    if not same:
        return table
    for column in ("case_other", "kernels_other", "workload_name_other"):
        if column in table:
            table.loc[table.index[mine], column] = table[column].iloc[theirs]
    return table.drop(index=table.index[theirs]).reset_index(drop=True)


# -- samples ------------------------------------------------------------------------------------------------


def model_samples(side: Side, work: pd.DataFrame) -> pd.DataFrame:
    """``quantity`` and `SAMPLE_COLUMNS`: model latency, busy time, kernel time and count of every iteration.

    ``work`` are the side's `kernel_samples`.
    """
    rows = side.cases.iterations
    parts = [
        rows.assign(quantity=quantity, pair_index=side.iteration_pairs(role), value=rows[column].astype("float64"))
        for role, quantity, column in (("model", "model_latency", "latency_ns"), ("kernel", "gpu_busy", "busy_ns"))
    ]
    if len(work):
        sums = work.groupby(["pair_index", "capture_id", "iteration_index"], sort=False)[["value", "count"]].sum()
        sums = sums.reset_index().astype({"count": "float64"})
        parts += [sums.assign(quantity="kernel_latency"), sums.assign(quantity="kernel_count", value=sums["count"])]
    frame = pd.concat([part.assign(side=side.side)[["quantity", *SAMPLE_COLUMNS]] for part in parts], ignore_index=True)
    return frame[(frame["pair_index"] >= 0) & frame["value"].notna()].reset_index(drop=True)


# What tells which execution, or which rank, a row belongs to (`Cases.rows_of`).
_PLACE = ("capture_id", "iteration_index", "process_id")
_OF_LAYER = ("layer_path", "call_index", "layer_index", "layer_type")


def layer_samples(side: Side) -> pd.DataFrame:
    """layer_path, call_index, measure, layer_index, layer_type and `SAMPLE_COLUMNS`, per layer and iteration."""
    layers = frame_or_empty(
        side.results, "layers", [*_PLACE, *_OF_LAYER, "duration_ns", "latency_ns", "latency_source"]
    )
    row = _iteration_rows(side, layers)
    pair = _of_row(side.iteration_pairs("layer"), row)
    layers = layers.assign(iteration_index=row, pair_index=pair)[pair >= 0].astype({"layer_path": object})
    is_host, value = layer_times(side.results, layers)
    frame = layers.assign(side=side.side, measure=LATENCY, value=value)
    frame = frame[[*_OF_LAYER, "side", "pair_index", "capture_id", "iteration_index", "measure", "value"]]
    # where the device runs behind the host a layer can be slow on the host alone: waiting, Python, a sleep
    on_the_host = frame[~is_host].assign(measure=HOST_TIME, value=layers["duration_ns"][~is_host].astype("float64"))
    return pd.concat([frame, on_the_host, _outside_layers(side, frame)], ignore_index=True)


def _outside_layers(side: Side, layers: pd.DataFrame) -> pd.DataFrame:
    """What an iteration took beyond its layers, as a layer of its own: hooks, glue code, waiting between them."""
    keys = ["capture_id", "iteration_index"]
    inside = layers.groupby(["pair_index", *keys], as_index=False)["value"].sum()
    iterations = side.cases.iterations
    rows = iterations[["capture_id", "latency_ns"]].assign(iteration_index=np.arange(len(iterations)))
    joined = inside.merge(rows[rows["latency_ns"].notna()], on=keys, validate="one_to_one")
    outside = joined.assign(layer_path=OUTSIDE, call_index=0, layer_index=-1, layer_type="", side=side.side)
    return outside.assign(measure=LATENCY, value=joined["latency_ns"] - joined["value"])[list(layers)]


# ``6:Conv2d`` → ``6``: a module whose class was replaced is still the same place in the model.
_CLASS = r":[^:/>\s]+$"


def renamed_layers(samples: pd.DataFrame) -> pd.DataFrame:
    """Layers of the other that stand where a layer of the base stood: pair_index, call_index, ``layer_path`` of the
    other and ``base_path``. Of layers without a partner of their path: the same module path under another class,
    else the same position in the model and the same type."""
    columns = ["pair_index", "layer_path", "call_index"]
    layers = samples.drop_duplicates(["side", *columns])[["side", *columns, "layer_index", "layer_type"]]
    alone = layers[~layers.duplicated(columns, keep=False)]
    alone = alone.assign(stem=alone["layer_path"].str.replace(_CLASS, "", regex=True))
    base, other = (alone[alone["side"] == side] for side in (BASE, OTHER))
    found = []
    for keys in (["pair_index", "stem", "call_index"], ["pair_index", "layer_index", "layer_type"]):
        pairs = base.drop_duplicates(keys, keep=False).merge(
            other.drop_duplicates(keys, keep=False), on=keys, suffixes=("_of_base", ""), validate="one_to_one"
        )
        if "call_index_of_base" in pairs:
            pairs = pairs[pairs["call_index_of_base"] == pairs["call_index"]]
        found.append(pairs.rename(columns={"layer_path_of_base": "base_path"})[[*columns, "base_path"]])
        base = base[~base["layer_path"].isin(found[-1]["base_path"])]
        other = other[~other["layer_path"].isin(found[-1]["layer_path"])]
    return pd.concat(found, ignore_index=True)


def with_base_paths(samples: pd.DataFrame, renamed: pd.DataFrame) -> pd.DataFrame:
    """Samples in which the other's renamed layers go by the base's path."""
    keys = ["pair_index", "layer_path", "call_index"]
    base_path = samples[keys].merge(renamed, on=keys, how="left", validate="many_to_one")["base_path"].to_numpy(object)
    use = (samples["side"] == OTHER).to_numpy() & ~pd.isna(base_path)
    return samples.assign(layer_path=np.where(use, base_path, samples["layer_path"].to_numpy(object)))


def kernel_samples(side: Side) -> pd.DataFrame:
    """Kernel time by layer and normalised name of every iteration: layer_path, call_index, name, first (launch
    order), count, iteration_index and `SAMPLE_COLUMNS`. ``value`` is the summed duration."""
    kernels = frame_or_empty(
        side.results, "kernels", [*_PLACE, "layer_index", "name", "duration_ns", "start_ns", "launch_start_ns"]
    )
    row = _iteration_rows(side, kernels)
    pair = _of_row(side.iteration_pairs("kernel"), row)
    kernels, pair = kernels.assign(iteration_index=row)[pair >= 0], pair[pair >= 0]
    return _summed(side, kernels, pair)


def with_source_lines(table: pd.DataFrame, sides: list[Side], keys: list[str]) -> pd.DataFrame:
    """The table with ``source_line``: where most of a kernel's time was made from ('' unknown), by ``keys`` of
    layer_path and name."""
    known = []
    for side in sides:
        columns = ["capture_id", "layer_index", "name", "duration_ns", "source_line"]
        kernels = frame_or_empty(side.results, "kernels", columns)
        kernels = kernels.assign(source_line=kernels["source_line"].astype(object).fillna(""))
        kernels = kernels[kernels["source_line"] != ""]
        layers = frame_or_empty(side.results, "layers", ["capture_id", "layer_index", "layer_path"])
        kernels = kernels.merge(layers.drop_duplicates(list(columns[:2])), on=columns[:2], how="left")
        kernels["name"] = normalise_kernel_name(kernels["name"].astype(object))
        kernels["layer_path"] = kernels["layer_path"].astype(object).fillna("")
        spent = kernels.groupby([*keys, "source_line"])["duration_ns"].sum().reset_index()
        known.append(spent.sort_values("duration_ns", ascending=False, kind="stable"))
    lines = pd.concat(known).drop_duplicates(keys)[[*keys, "source_line"]].astype(object)
    joined = table.merge(lines, on=keys, how="left", validate="many_to_one")
    return joined.assign(source_line=joined["source_line"].fillna(""))


def _iteration_rows(side: Side, rows: pd.DataFrame) -> np.ndarray:
    """The row of `Cases.iterations` that each row is in, −1 none. It stands for the iteration in all samples: what
    lies outside every iteration is a row of its own for each rank."""
    return side.cases.rows_of(*(rows[c].to_numpy(np.int64) for c in _PLACE))


def _of_row(pairs: np.ndarray, row: np.ndarray) -> np.ndarray:
    return np.append(pairs, -1)[row]


def _summed(side: Side, kernels: pd.DataFrame, pair: np.ndarray) -> pd.DataFrame:
    launch = kernels["launch_start_ns"].where(kernels["launch_start_ns"] >= 0, kernels["start_ns"])
    rows = kernels.assign(pair_index=pair, name=normalise_kernel_name(kernels["name"].astype(object)), first=launch)
    rows["value"] = rows["duration_ns"].astype(np.float64)
    keys = ["pair_index", "capture_id", "iteration_index", "layer_index", "name"]
    grouped = rows.groupby(keys, sort=False, as_index=False).agg(
        value=("value", "sum"), count=("value", "size"), first=("first", "min")
    )
    grouped["first"] = grouped.groupby(keys[:3])["first"].rank(method="dense").astype(np.int64)
    layers = frame_or_empty(side.results, "layers", ["capture_id", "layer_index", "layer_path", "call_index"])
    layers = layers.drop_duplicates(["capture_id", "layer_index"]).astype({"layer_path": object})
    joined = grouped.merge(layers, on=["capture_id", "layer_index"], how="left", validate="many_to_one")
    return joined.assign(
        side=side.side,
        layer_path=joined["layer_path"].fillna("").astype(object),
        call_index=joined["call_index"].fillna(0).astype(np.int64),
    )


def aligned_kernel_samples(base: Side, other: Side, order: list[pd.DataFrame], donor: int) -> pd.DataFrame:
    """Kernel samples of two captures with one kernel sequence but unlike trees: the donor's iterations serve both.

    ``order``: the kernels of each side in launch order, equally many, the k-th being the same kernel.
    """
    iteration = order[donor]["iteration_index"].to_numpy()
    parts = []
    for side, kernels in zip((base, other), order):
        mine = kernels.assign(iteration_index=iteration, layer_index=-1)
        known = iteration >= 0 if (iteration >= 0).any() else np.ones(len(mine), bool)
        parts.append(_summed(side, mine[known], np.zeros(int(known.sum()), np.int64)))
    return pd.concat(parts, ignore_index=True)
