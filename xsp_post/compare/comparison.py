"""Base and other → the tables of a comparison."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from xsp_post.compare import matching
from xsp_post.compare.clock import clock_statements
from xsp_post.compare.differences import LEAST_SPREAD, SET_CHANGES, changes_of, corrected, differences, ordered
from xsp_post.compare.headline import ASSUMED, PERIOD, Headline, headlines, of_recordings, outside_changes, paces
from xsp_post.compare.impact import are_unlike, impact
from xsp_post.compare.matching import BASE, OTHER, Side
from xsp_post.compare.memory import memory_statements, memory_totals
from xsp_post.compare.statements import statements
from xsp_post.compare.steps import compared_steps, step_headlines, step_statements
from xsp_post.compare.structure import Structure, has_operators, structure
from xsp_post.model.results import Analysis, Results, empty_table, typed
from xsp_post.names.families import families
from xsp_post.replay.recording import guessed_captures
from xsp_post.tables.analyses.frames import together

# A kernel that is in fewer of the iterations than this neither appears nor vanishes: it comes and goes.
_STEADY_SHARE = 0.5
# Times of two kernels that do the same work, one of them instead of the other, lie no further apart.
_MOST_APART = 10.0
_LAYER = ["pair_index", "layer_path", "call_index"]


@dataclass(frozen=True)
class CompareOptions:
    """``least_spread``: run-to-run spread (relative) taken for granted of single captures; None: by the device
    (`differences.LEAST_SPREAD`)."""

    least_spread: float | None = None


def compare(base: Results, other: Results, options: CompareOptions | None = None) -> Analysis:
    """What differs between two results: tables compare_cases, …_models, …_layers, …_kernels, …_summary.

    Rows are ordered by what matters: differences that are shown first, the largest first; then the others by how
    far they stand out of their noise. p-values are corrected over all rows of all tables together.
    """
    options = options or CompareOptions()
    cases, sides = matching.match_cases(base, other)
    shape = structure(base, other)
    least = options.least_spread if options.least_spread is not None else _least_spread(base)
    outside, recorded = outside_changes(base, other)
    apart = abs(recorded - outside) / 2  # two measurements of one change: the spread of one step on one side
    spread = float(np.hypot(least, np.nan_to_num(apart)))
    layer_samples = _in_both_runs(pd.concat([matching.layer_samples(side) for side in sides], ignore_index=True))
    renamed = matching.renamed_layers(layer_samples)
    layer_samples = matching.with_base_paths(layer_samples, renamed)
    work = [matching.kernel_samples(side) for side in sides]
    is_one_unit = not any(map(guessed_captures, (base, other))) and not are_unlike(sides)
    steps = compared_steps(base, other, spread)
    heads = step_headlines(steps) or (headlines(sides, spread) if is_one_unit else [])
    is_period = any(one.window == PERIOD for one in heads)
    tables = {"models": _models(sides, work, spread, heads), "layers": _layers(layer_samples, spread)}
    has_executions = bool(tables["models"]["quantity"].eq("model_latency").any()) and is_one_unit
    found = impact(sides, has_executions=has_executions, is_period=is_period)
    if found is not None:
        found = replace(found, names=matching.with_source_lines(found.names, sides, ["name"]))
    if not has_executions and found is not None and not shape.is_same_sequence:
        # windows on a longer run: what lies in one of them and not in the other says nothing of the program
        tables = {name: table.iloc[:0] for name, table in tables.items()}
        work = [samples.iloc[:0] for samples in work]
    if len(steps):  # a layer or kernel took what the sizes that a side happened to hold make of it
        tables["layers"] = tables["layers"].iloc[:0]
        work = [samples.iloc[:0] for samples in work]
    kernel_samples = _kernel_samples(sides, work, shape, cases, renamed, tables["layers"])
    tables["kernels"] = _kernels(kernel_samples, spread)
    are_operators = has_operators(base) or has_operators(other)
    models, layers, kernels = (
        table.assign(change=changes_of(table, are_operators)) for table in corrected(tables).values()
    )
    kernels = matching.with_source_lines(kernels, sides, ["layer_path", "name"])
    layers["is_kernel_change"] = _has_kernel_change(layers, kernels)
    frames = {
        "compare_cases": cases,
        "compare_models": _shaped("compare_models", ordered(models)),
        "compare_layers": _shaped("compare_layers", ordered(layers)),
        "compare_kernels": _shaped("compare_kernels", ordered(kernels)),
        "compare_steps": steps,
    }
    for name in ("totals", "names", "causes"):
        empty = empty_table(f"compare_{name}")
        frames[f"compare_{name}"] = empty if found is None else vars(found)[name][list(empty)].reset_index(drop=True)
    memory = memory_totals(base, other)
    frames["compare_totals"] = together("compare_totals", (frames["compare_totals"], memory))
    heads = heads or of_recordings(sides, found, spread)
    if apart > least:
        heads = [replace(one, outside=float(np.expm1(outside))) for one in heads]
    clocks = clock_statements(base, other, frames["compare_names"])
    said = statements(frames, shape, found, clocks, heads, are_operators)
    said += [*step_statements(steps), *memory_statements(memory)]
    summary = pd.DataFrame(said, columns=["subject", "statement", "is_difference"])
    frames["compare_summary"] = _shaped("compare_summary", summary)
    return Analysis(frames)


def _least_spread(results: Results) -> float:
    """Of a GPU or of a CPU, by what the captures' kernels are."""
    has_kernels = bool(results.frame("captures", ["kernel_count"])["kernel_count"].gt(0).any())
    return LEAST_SPREAD["gpu" if has_kernels and not has_operators(results) else "cpu"]


# -- tables -------------------------------------------------------------------------------------------------


def _models(sides: list[Side], work: list[pd.DataFrame], spread: float, heads: list[Headline]) -> pd.DataFrame:
    """What ``heads`` say of a quantity is said of it here: its times, and the interval of the change."""
    keys = ["pair_index", "quantity"]
    parts = [matching.model_samples(*pair) for pair in zip(sides, work)]
    parts += [paces(side) for side in sides if any(head.window == PERIOD for head in heads)]
    samples = pd.concat(parts, ignore_index=True)
    is_count = samples["quantity"] == "kernel_count"
    table = pd.concat(
        [_tested(samples[~is_count], keys, spread), _tested(samples[is_count], keys, spread, resolution=0.0)]
    )
    table = table[table["base"].notna() & table["other"].notna()].reset_index(drop=True)
    table["unit"] = np.where(table["quantity"] == "kernel_count", "1", "ns")
    exact = _is_exact(samples, keys, table) & (table["quantity"] == "kernel_count")
    table.loc[exact, ["p_value", "ci_low", "ci_high", "detectable"]] = np.nan
    table.loc[exact, "interval_over"] = ""
    table["is_exact"], table["is_asked"] = exact, False
    for head in heads:
        quantity = PERIOD if head.window == PERIOD else "model_latency"
        row = table["pair_index"].eq(head.pair) & table["quantity"].eq(quantity)
        change = head.other_ns - head.base_ns
        known = {"base": head.base_ns, "other": head.other_ns, "difference": change, "ratio": change / head.base_ns}
        if head.interval != ASSUMED:
            ends = [((1 + end) * head.scale - 1) * head.base_ns for end in (head.low, head.high)]
            known |= {"ci_low": ends[0], "ci_high": ends[1], "p_value": head.p_value, "is_asked": True}
        table.loc[row, list(known)] = list(known.values())
    order = ["period", "model_latency", "kernel_latency", "gpu_busy", "kernel_count"]
    table["rank"] = table["quantity"].map({name: i for i, name in enumerate(order)})
    return table


def _in_both_runs(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples of the pairs that both sides recorded: what one side did not record has not vanished."""
    both = samples.groupby("pair_index")["side"].nunique().eq(2)
    return samples[samples["pair_index"].map(both).to_numpy(bool)].reset_index(drop=True)


def _is_exact(samples: pd.DataFrame, keys: list[str], table: pd.DataFrame) -> pd.Series:
    """Rows whose samples are all alike on each side: counts that do not vary need no test."""
    varies = samples.groupby([*keys, "side"])["value"].nunique().gt(1).groupby(level=keys).any()
    return ~table.set_index(keys).index.to_series().map(varies).fillna(True).astype(bool).reset_index(drop=True)


def _layers(samples: pd.DataFrame, spread: float) -> pd.DataFrame:
    keys = [*_LAYER, "measure"]
    table = _tested(samples, keys, spread)
    first = samples.drop_duplicates(keys)[[*keys, "layer_index", "layer_type"]]  # the base's come first
    table = table.merge(first, on=keys, how="left", validate="one_to_one")
    one_sided = table["base"].isna() | table["other"].isna()
    # a layer whose latency is of the host on one side and of the device on the other has no partner there
    return table[~(one_sided & (table["measure"] == matching.HOST_TIME))].reset_index(drop=True)


def _kernel_samples(
    sides: list[Side], work: list[pd.DataFrame], shape: Structure, cases: pd.DataFrame, renamed: pd.DataFrame,
    layers: pd.DataFrame,
) -> pd.DataFrame:  # fmt: skip
    """Kernels of matched cases; of one sequence of kernels under unlike trees, by the iterations of one of them."""
    if (cases["status"] == "matched").any():
        samples = pd.concat(work, ignore_index=True)
        return _in_both_runs(_where_layers_match(matching.with_base_paths(samples, renamed), layers))
    if shape.is_same_sequence and len(shape.order[BASE]):
        iterations = [frame["iteration_index"].nunique() for frame in shape.order]
        return matching.aligned_kernel_samples(sides[BASE], sides[OTHER], shape.order, int(np.argmax(iterations)))
    return work[BASE].iloc[:0]


def _kernels(samples: pd.DataFrame, spread: float) -> pd.DataFrame:
    keys = [*_LAYER, "name"]
    table = _tested(_with_zeros(samples, keys), keys, spread)
    steady = _steady(samples, keys)
    counts = samples.groupby([*keys, "side"], sort=False)["count"].mean().unstack("side").reindex(columns=[BASE, OTHER])
    counts = counts.rename(columns={BASE: "base_kernels", OTHER: "other_kernels"}).reset_index()
    table = table.merge(counts, on=keys, how="left", validate="one_to_one")
    first = samples.groupby(keys, sort=False).agg(first=("first", "min"), layer_index=("layer_index", "first"))
    table = table.merge(first.reset_index(), on=keys, how="left", validate="one_to_one")
    table = table.merge(steady, on=keys, how="left", validate="one_to_one").assign(other_name="")
    return _with_changed(table, samples, spread)


def _launching(samples: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """keys × capture: ``iterations`` that it has, and in how many of them the kernel was ``found``."""
    of = ["side", "pair_index", "capture_id"]
    counts = samples.drop_duplicates([*of, "iteration_index"]).groupby(of).size().rename("iterations").reset_index()
    known = samples[[*keys, "side"]].drop_duplicates().merge(counts, on=of[:2])
    having = samples.groupby([*keys, "side", "capture_id"], as_index=False).agg(found=("value", "size"))
    known = known.merge(having, on=[*keys, "side", "capture_id"], how="left")
    return known.assign(found=known["found"].fillna(0))


def _with_zeros(samples: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """A kernel that some iterations of its side do not launch took no time there."""
    known = _launching(samples, keys)
    missing = (known["iterations"] - known["found"]).clip(lower=0).astype(np.int64)
    zeros = known.loc[known.index.repeat(missing), [*keys, "side", "capture_id"]].assign(value=0.0)
    return pd.concat([samples, zeros], ignore_index=True)


def _steady(samples: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """keys and ``is_steady``: on a side that has the kernel at all, most iterations of every capture have it."""
    known = _launching(samples, keys)
    known = known.assign(is_steady=known["found"] / known["iterations"] >= _STEADY_SHARE)
    return known.groupby(keys)["is_steady"].all().to_frame().reset_index()


def _where_layers_match(samples: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Kernels of layers that one side alone has are compared by name only, outside of layers."""
    both = layers[layers["base"].notna() & layers["other"].notna()][_LAYER].drop_duplicates()
    known = samples.merge(both.assign(is_known=True), on=_LAYER, how="left", validate="many_to_one")["is_known"]
    lost = known.isna().to_numpy()
    samples = samples.assign(
        layer_path=samples["layer_path"].where(~lost, ""),
        call_index=samples["call_index"].where(~lost, 0),
        layer_index=samples["layer_index"].where(~lost, -1),
    )
    keys = ["side", "pair_index", "capture_id", "iteration_index", "layer_path", "call_index", "name"]
    return samples.groupby(keys, sort=False, as_index=False).agg(
        value=("value", "sum"), count=("count", "sum"), first=("first", "min"), layer_index=("layer_index", "first")
    )


def _with_changed(table: pd.DataFrame, samples: pd.DataFrame, spread: float) -> pd.DataFrame:
    """Within a layer, the k-th kernel that vanished and the k-th that appeared are one that changed its name. Helpers
    beside a kernel of their role, and times that are too far apart, are not the same work."""
    inside, sides = table["layer_path"] != "", []
    role = [*_LAYER, "role"]  # attention for attention
    for absent, time in (("other", "base"), ("base", "other")):
        rows = table[inside & table[absent].isna()].sort_values([*_LAYER, "first"])
        rows = rows.assign(role=families(rows["name"].astype(object)), time=rows[time])
        rows = rows[rows["time"] * _MOST_APART >= rows.groupby(role)["time"].transform("max")]
        sides.append(rows.assign(order=rows.groupby(role).cumcount())[[*role, "order", "name", "time"]])
    pairs = sides[BASE].merge(sides[OTHER], on=[*role, "order"], suffixes=("", "_new"), validate="one_to_one")
    pairs = pairs[(pairs["time"] / pairs["time_new"]).between(1 / _MOST_APART, _MOST_APART)]
    if pairs.empty:
        return table
    # the other side's samples are taken for those of the name they replace, and tested like any pair
    keys = [*_LAYER, "name"]
    olds = pairs[[*keys, "name_new"]].rename(columns={"name": "old", "name_new": "name"})
    renamed = samples.merge(olds, on=keys, how="left", validate="many_to_one")
    renamed["name"] = renamed["old"].where((renamed["side"] == OTHER) & renamed["old"].notna(), renamed["name"])
    chosen = renamed.merge(pairs[keys], on=keys, validate="many_to_one")
    tested = _tested(chosen, keys, spread).merge(pairs[[*keys, "name_new"]], on=keys, validate="one_to_one")
    tested = tested.rename(columns={"name_new": "other_name"})
    counts = table[[*keys, "other_kernels"]].rename(columns={"name": "other_name"})
    tested = tested.merge(table[[*keys, "base_kernels", "first", "layer_index", "is_steady"]], on=keys)
    tested = tested.merge(counts, on=[*_LAYER, "other_name"], validate="one_to_one")
    used = pd.concat([tested[keys], tested[[*_LAYER, "other_name"]].set_axis(keys, axis=1)])
    rest = table.merge(used.assign(is_used=True), on=keys, how="left", validate="one_to_one")
    return pd.concat([rest[rest["is_used"].isna()].drop(columns="is_used"), tested], ignore_index=True)


def _tested(samples: pd.DataFrame, keys: list[str], spread: float, **others: float) -> pd.DataFrame:
    """One row per key with the columns of `differences`, which has the ``others``."""
    group = samples.groupby(keys, sort=False)
    count = group.ngroups
    tested = differences(
        samples["value"].to_numpy(np.float64), group.ngroup().to_numpy().astype(np.int64),
        samples["side"].to_numpy(np.int64), samples["capture_id"].to_numpy(np.int64), count, spread, **others,
    )  # fmt: skip
    names = samples.drop_duplicates(keys)[keys].reset_index(drop=True)
    return pd.concat([names, tested], axis=1)


def _has_kernel_change(layers: pd.DataFrame, kernels: pd.DataFrame) -> np.ndarray:
    other = kernels[kernels["change"].isin(SET_CHANGES) & (kernels["layer_path"] != "")]
    changed = set(zip(*(other[column] for column in _LAYER)))
    return np.array([key in changed for key in zip(*(layers[column] for column in _LAYER))], dtype=bool)


_VALUES = ("base", "other", "difference", "ci_low", "ci_high", "detectable")


def _shaped(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of the schema in order and dtype."""
    names = {"ratio": "difference_ratio"} | {f"{one}_count": f"{one}_sample_count" for one in ("base", "other")}
    for one in _VALUES:
        what = one if one in ("base", "other", "difference") else f"{one}_difference"
        unit = "latency_ns" if one in ("base", "other") else "ns"
        names[one] = f"{one}_value" if name == "compare_models" else f"{what}_{unit}"
    renamed = frame.rename(columns=names)
    return typed(name, renamed.rename(columns={"base_kernels": "base_count", "other_kernels": "other_count"}))
