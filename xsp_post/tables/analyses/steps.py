"""Iterations and kernels → ``steps``, the executions of each kind together, and ``step_costs``, what a step costs by
its tokens and context, whole and by family of kernels.

The time of a step is its latency without what overlaps the execution before it in its process.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from xsp_post.arrays import cost_model
from xsp_post.arrays.joins import row_with
from xsp_post.arrays.processes import without_overlap
from xsp_post.base.errors import UsageError
from xsp_post.base.findings import Finding, if_any
from xsp_post.model.options import Options
from xsp_post.model.results import Results, empty_table, frame_or_empty, shaped
from xsp_post.model.schemas import column_names
from xsp_post.model.schemas.units import format_ratio_percent
from xsp_post.names.families import FAMILIES, family_index
from xsp_post.names.step_texts import DECODE, PREFILL, VERIFY
from xsp_post.tables.analyses.frames import text_codes
from xsp_post.tables.analyses.roofline import least_times, roof_ratio

ATTENTION = "attention"
WHOLE, HOST = "step", "host"  # what stands for the family of the whole step, and for what its kernels do not take
# Size of a step → column of its term in step_costs.
TERMS = {"": "fixed_ns", "token_count": "per_token_ns", "key_count": "per_key_ns", "query_key_count": "per_pair_ns",
         "extra_kernel_count": "per_kernel_ns", "batch_size": "per_request_ns"}  # fmt: skip
SIZES = tuple(name for name in TERMS if name)
# Logits, samples: one a request, whatever its tokens; most recordings do not show that. Adapters: in some steps only.
REQUESTS, EXTRA = SIZES[-1], SIZES[-2]
_USUAL = "1x1024,1x8192,1x32768,16x1024,16x8192,16x32768,64x1024,64x8192,64x32768"  # requests x context
_LEAST_SHARE = 0.005  # of the kernel time, for a family to have a model of its own
_COLUMNS = ("capture_id", "process_id", "kind", "phase", "iteration_index", "start_ns", "latency_ns", "busy_ns",
            "period_ns", "host_gap_ns", *(name for name in SIZES if name != EXTRA), "longest_key_count",
            "graph_bucket_count", "kernel_count", "is_warmup", "is_inferred")  # fmt: skip


@dataclass
class Kind:
    """The measured steps of one kind in one process, in order of time. ``step_ns`` (steps,): their times;
    ``family_ns`` (steps, families): kernel time by `FAMILIES`."""

    rows: pd.DataFrame
    step_ns: np.ndarray
    family_ns: np.ndarray
    roofs: dict[str, float]  # share of the roof that kernels of a family reach, where their work is known

    @property
    def labels(self) -> dict[str, object]:
        first = self.rows.iloc[0]
        return {name: first[name] for name in ("capture_id", "process_id", "kind")}

    @cached_property
    def sizes(self) -> dict[str, np.ndarray]:
        """Sizes of the steps, −1 unknown. A replayed graph computes as many requests as it was made for."""
        rows = self.rows.assign(**{EXTRA: extra_kernels(self.rows["kernel_count"].to_numpy(np.int64))})
        sizes = {name: rows[name].fillna(-1).to_numpy(np.int64) for name in SIZES}
        requests, bucket = sizes[REQUESTS], self.rows["graph_bucket_count"].fillna(-1).to_numpy(np.int64)
        is_padded = (requests > 0) & (bucket >= requests)
        padded = {"token_count": sizes["token_count"] * bucket // np.maximum(requests, 1), REQUESTS: bucket}
        return sizes | {name: np.where(is_padded, size, sizes[name]) for name, size in padded.items()}

    @property
    def has_sizes(self) -> bool:
        """Whether more is known than the number of requests, which does not say how much each of them asks for."""
        return any(bool((values > 0).any()) for name, values in self.sizes.items() if name not in (REQUESTS, EXTRA))

    @property
    def lacks_context(self) -> bool:
        """Whether sizes are known, but not the keys that the steps attend to."""
        return self.has_sizes and self.model.missing.get("key_count") == cost_model.UNKNOWN

    @cached_property
    def model(self) -> cost_model.CostModel:
        return self.fit(self.step_ns)

    def fit(self, time: np.ndarray) -> cost_model.CostModel:
        """The model of a part of their times, shape (steps,)."""
        return cost_model.fit_cost(time, self.sizes, REQUESTS)

    @cached_property
    def expected_ns(self) -> np.ndarray:
        """Time of each step by the model; where no size is known, the median of steps that do not differ in phase and
        batch, else NaN. Shape (steps,)."""
        if self.has_sizes:
            return self.model.predicted(self.sizes)
        if len(self.rows[["phase", "batch_size"]].drop_duplicates()) > 1:
            return np.full(len(self.rows), np.nan)
        median_ns = float(np.median(self.step_ns))  # 0 where the device recorded nothing: nothing can be said
        return np.full(len(self.rows), median_ns if median_ns > 0 else np.nan)

    @cached_property
    def family_models(self) -> dict[str, cost_model.CostModel]:
        """The models of the families that take some share, the largest first."""
        total = self.family_ns.sum(axis=0)
        large = [k for k in np.argsort(-total) if total[k] > _LEAST_SHARE * total.sum() > 0]
        return {FAMILIES[k]: self.fit(self.family_ns[:, k]) for k in large}

    @cached_property
    def host_ns(self) -> np.ndarray:
        """What the kernels of each step do not take, shape (steps,)."""
        return np.maximum(self.step_ns - self.family_ns.sum(axis=1), 0)

    @cached_property
    def gap_ns(self) -> np.ndarray:
        """Time before the first launch of each step in which the host works for it: the gap before a step that no range
        marks, 0 where one says when it began. Shape (steps,)."""
        gap_ns = np.nan_to_num(self.rows["host_gap_ns"].to_numpy(float))
        return np.where(self.rows["is_inferred"].to_numpy(bool), gap_ns, 0.0)

    @cached_property
    def host_model(self) -> cost_model.CostModel:
        return self.fit(self.host_ns)


def extra_kernels(kernel_count: np.ndarray) -> np.ndarray:
    """How many kernels each step of a kind has beyond the fewest that many of them have. A number that few steps have
    counts as the next lower one of many: what one step alone has is no size of it."""
    different, times = np.unique(kernel_count, return_counts=True)
    usual = different[times >= cost_model.FEWEST_STEPS]
    if not len(usual):
        return np.zeros(len(kernel_count), np.int64)
    return usual[(np.searchsorted(usual, kernel_count, side="right") - 1).clip(0)] - usual[0]


def kinds_of_steps(results: Results) -> list[Kind]:
    """The measured executions of each capture, process and kind, in order of their first one."""
    frame = frame_or_empty(results, "iterations", _COLUMNS).reset_index(drop=True)
    if not len(frame):
        return []
    frame = frame.assign(kind=frame["kind"].astype(object), process_id=frame["process_id"].fillna(-1))
    step_ns, (family_ns, roofs) = without_overlap(frame), _family_times(results, frame)
    measured = frame[~frame["is_warmup"].to_numpy(bool)].sort_values("start_ns", kind="stable")
    groups = measured.groupby(["capture_id", "process_id", "kind"], sort=False, observed=True)
    return [
        Kind(frame.loc[rows].reset_index(drop=True), step_ns[rows], family_ns[rows], roofs.get(key, {}))
        for key, rows in ((key, np.asarray(index)) for key, index in groups.groups.items())
    ]


def _family_times(results: Results, frame: pd.DataFrame) -> tuple[np.ndarray, dict[object, dict[str, float]]]:
    """Kernel time of each execution by family, ns: shape (executions, families); and by capture, process and kind which
    share of their roof the kernels of each family reach."""
    columns = ["capture_id", "kernel_id", "iteration_index", "name", "duration_ns"]
    kernels = frame_or_empty(results, "kernels", columns)
    codes, texts = text_codes(kernels["name"])
    family = family_index(texts).astype(np.int64)[codes]
    iteration = kernels["iteration_index"].fillna(-1).to_numpy(np.int64)
    of_frame = [frame[name].to_numpy(np.int64) for name in ("capture_id", "iteration_index")]
    row = row_with(of_frame, (kernels["capture_id"].to_numpy(np.int64), iteration))
    inside = row >= 0
    cell = row[inside] * len(FAMILIES) + family[inside]
    weights = kernels["duration_ns"].to_numpy(float)[inside]
    times = np.bincount(cell, weights=weights, minlength=len(frame) * len(FAMILIES)).reshape(-1, len(FAMILIES))
    least = least_times(results)
    if not len(least):
        return times, {}
    rows = frame[["capture_id", "process_id", "kind"]].iloc[row[inside]].reset_index(drop=True)
    known = kernels[inside][["capture_id", "kernel_id"]].join(least, on=["capture_id", "kernel_id"])["least_ns"]
    rows = rows.assign(family=family[inside], duration_ns=weights, least_ns=known.to_numpy())
    labels = ["capture_id", "process_id", "kind"]
    ratios = roof_ratio(rows, [*labels, "family"]).dropna().reset_index()
    found: dict[object, dict[str, float]] = {}
    for one in ratios.to_dict("records"):
        found.setdefault(tuple(one[name] for name in labels), {})[FAMILIES[one["family"]]] = one["roof_ratio"]
    return times, found


def steps(kinds: list[Kind]) -> tuple[dict[str, pd.DataFrame], list[Finding]]:
    """Tables ``steps`` and ``step_costs``, and what drifted."""
    drifts = [cost_model.drift_of(one.step_ns / one.expected_ns) for one in kinds]
    summary = pd.DataFrame([_summary(one, *drift) for one, drift in zip(kinds, drifts)])
    costs = pd.DataFrame([row for one in kinds if one.has_sizes for row in _costs(one)])
    drifting = [(one, ratio) for one, (ratio, is_drifting) in zip(kinds, drifts) if is_drifting]
    example = ", ".join(f"{one.labels['kind']}: {ratio:+.1%}" for one, ratio in drifting)
    found = if_any("steps-drift", len(drifting), example)
    tables = {"steps": summary, "step_costs": costs}
    return {name: shaped(name, dict(one)) if len(one) else empty_table(name) for name, one in tables.items()}, found


def _summary(kind: Kind, drift: float, is_drifting: bool) -> dict[str, object]:
    rows, tokens = kind.rows, kind.rows["token_count"].fillna(-1).to_numpy(np.int64)
    low, high, highest = np.quantile(kind.step_ns, [0.5, 0.9, 0.99])
    known = tokens > 0
    count, time = int(tokens[known].sum()), float(kind.step_ns[known].sum())
    family = kind.family_ns.sum(axis=0)
    largest = [k for k in np.argsort(-family, kind="stable")[:3] if family[k] > 0]
    busy = rows["busy_ns"].to_numpy(float)
    return {
        **kind.labels,
        "step_count": len(rows),
        "median_batch_size": _median(rows["batch_size"]),
        "token_count": count if known.any() else -1,
        "median_key_count": _median(rows["key_count"]),
        "longest_key_count": int(rows["longest_key_count"].fillna(-1).max()),
        "median_step_ns": low,
        "p90_step_ns": high,
        "p99_step_ns": highest,
        "median_period_ns": _median(rows["period_ns"]),
        "median_host_gap_ns": _median(rows["host_gap_ns"]),
        "busy_ratio": float(np.nansum(busy) / kind.step_ns.sum()) if np.isfinite(busy).any() else np.nan,
        "throughput_tokens_per_s": count / time * 1e9 if count else np.nan,
        "time_per_token_ns": time / count if count else np.nan,
        "families": ", ".join(f"{FAMILIES[k]} {format_ratio_percent(family[k] / family.sum(), 0)}" for k in largest),
        "drift_ratio": drift,
        "is_drifting": is_drifting,
        "error_ratio": kind.model.error_ratio if kind.has_sizes else np.nan,
    }


def _median(values: pd.Series) -> float:
    """The median of what is known, NaN for nothing; −1 is unknown."""
    known = values.to_numpy(float, na_value=np.nan)
    known = known[known >= 0]
    return float(np.median(known)) if len(known) else np.nan


_OF_MODEL = ("fitted_count", "held_back_count", "error_ratio", "p90_error_ratio")


def _costs(kind: Kind) -> list[dict[str, object]]:
    total = kind.family_ns.sum()
    parts = {name: kind.family_ns[:, FAMILIES.index(name)].sum() / total for name in kind.family_models}
    shares = {WHOLE: 1.0, **parts}
    models = {WHOLE: kind.model, **kind.family_models}
    return [
        {
            **kind.labels,
            "family": name,
            "share_ratio": shares[name],
            "roof_ratio": kind.roofs.get(name, np.nan),
            **{name: getattr(model, name) for name in _OF_MODEL},
            **{column: model.terms.get(size, np.nan) for size, column in TERMS.items()},
            **{column.replace("_ns", "_error_ns"): model.errors.get(size, np.nan) for size, column in TERMS.items()},
            "left_out": "; ".join(
                f"{TERMS[size].removesuffix('_ns')}: {why}"
                for size, why in model.missing.items()
                if (size, why) != (EXTRA, cost_model.CONSTANT)
            ),
            **{f"min_{size}": model.low.get(size, np.nan) for size in SIZES},
            **{f"max_{size}": model.high.get(size, np.nan) for size in SIZES},
        }
        for name, model in models.items()
    ]


def _asked(kind: Kind, model: cost_model.CostModel, requests: float, context: float) -> tuple[float, bool]:
    """The time of a step of so many requests of one context, and whether that is an extrapolation. Each request has as
    many tokens as usual in its kind; of a prefill all of its context. NaN where no term tells it."""
    usual = _median(kind.rows["token_count"]) / max(_median(kind.rows["batch_size"]), 1)
    tokens = requests * (context if kind.labels["kind"] == PREFILL else usual)
    sizes = {"token_count": tokens, "key_count": requests * context, "query_key_count": tokens * context,
             EXTRA: float(np.median(kind.sizes[EXTRA])), REQUESTS: requests}  # fmt: skip
    known = (cost_model.NO_EFFECT, cost_model.FOLLOWS) if kind.labels["kind"] == PREFILL else (cost_model.NO_EFFECT,)
    if model.missing.get("key_count", cost_model.NO_EFFECT) not in known or not np.isfinite(tokens):
        return np.nan, False
    time = model.predicted({name: np.array([value]) for name, value in sizes.items()})[0]
    return float(time), model.is_extrapolated(sizes)


def step_predictions(options: Options, kinds: list[Kind]) -> pd.DataFrame:
    """What steps of given requests and context would take, by kind; of a usual grid where nothing is asked for."""
    asked = [one.lower().split("x") for one in (options.step or _USUAL).split(",")]
    if not all(len(one) == 2 and all(part.strip().isdecimal() for part in one) for one in asked):
        raise UsageError(f"--step {options.step!r} is not REQUESTSxCONTEXT, …", code="bad-step")
    rows = []
    for kind in (kind for kind in kinds if kind.has_sizes and kind.labels["kind"] in (PREFILL, DECODE, VERIFY)):
        for requests, context in ((int(one), int(other)) for one, other in asked):
            time, is_extrapolated = _asked(kind, kind.model, requests, context)
            model = kind.family_models.get(ATTENTION)
            attention = _asked(kind, model, requests, context)[0] if model else np.nan
            made = requests * (context if kind.labels["kind"] == PREFILL else 1)
            rows.append({
                **kind.labels, "request_count": requests, "context_count": context, "step_ns": time,
                "time_per_token_ns": time / made, "throughput_tokens_per_s": made / time * 1e9,
                "attention_ratio": attention / time, "error_ratio": kind.model.error_ratio,
                "is_extrapolated": is_extrapolated,
            })  # fmt: skip
    found = pd.DataFrame(rows, columns=column_names("step_predictions")).dropna(subset=["step_ns"])
    return shaped("step_predictions", dict(found)) if len(found) else empty_table("step_predictions")
