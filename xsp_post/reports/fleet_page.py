"""Fleet tables → one self-contained page (Tables VIII–X, Figures 10–12 of the paper)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from xsp_post.base.output import atomic_output
from xsp_post.base.sentences import SENTENCES
from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_count, format_ns
from xsp_post.names.families import FAMILIES, OTHER
from xsp_post.reports import theme
from xsp_post.reports.blocks import Block, Chart, Section, Table
from xsp_post.reports.ranks import rank_bars
from xsp_post.reports.small_page import Fact, render_page
from xsp_post.reports.text import shorten, visible

ROW_LIMIT = 500
BAR_LIMIT = 40


def write_fleet_page(results: Results, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write the page of a fleet store. Raises `OutputError`."""
    with atomic_output(path, force) as temporary:
        temporary.write_text(render(results), encoding="utf-8")


def render(results: Results) -> str:
    """The page of a fleet (tables `fleet_…`) as text."""
    fleet = results.frame("fleet")
    done = fleet[fleet["status"] == "done"]
    failed = fleet[fleet["status"] != "done"]
    facts = [
        Fact("captures", format_count(len(fleet)), f"{format_count(len(failed))} failed"),
        Fact(
            "with kernels",
            format_count(int((done["kernel_count"] > 0).sum())),
            f"{format_count(int(done['kernel_count'].sum()))} kernels",
        ),
        Fact("kernel time", format_ns(int(done["kernel_ns"].sum())), "summed over all captures"),
        Fact("systems", format_count(int(done["system_name"].replace("", pd.NA).nunique())), "by GPU name"),
    ]
    statements = _limits(done)
    if len(failed):
        share = f"{format_count(len(failed))} of {format_count(len(fleet))}"
        statements.append(("launch", f"{share} captures could not be analysed."))
    statements += [
        ("", f"{row['capture_name']}: {row['message']} [{row['code']}]") for row in failed.head(12).to_dict("records")
    ]
    sections = [section for part in _PARTS if (section := part.of(results)) is not None]
    return render_page(
        "Fleet of captures",
        f"{format_count(len(fleet))} captures side by side",
        "xsp-post fleet",
        facts,
        statements,
        sections,
    )


def _limits(done: pd.DataFrame) -> list[tuple[str, str]]:
    """What limits the captures, one sentence a limit; each capture's own is in the table."""
    if "limit" not in done:
        return []
    by_limit = done.astype({"limit": object}).groupby("limit", sort=False)["capture_name"].agg(list)
    said = []
    for limit, names in sorted(by_limit.items(), key=lambda one: -len(one[1])):
        word = SENTENCES.get(f"word.{limit}", SENTENCES["word.unknown"])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        said.append((str(limit), f"{len(names)} of {len(done)}: {word}: {', '.join(map(str, names[:3]))}{more}."))
    return said


# -- sections -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A section: its anchor, table, titles, the columns of the table on the page, and the charts before it."""

    anchor: str
    table: str
    title: str
    question: str
    columns: str
    charts: Callable[[pd.DataFrame], list[Chart]] = lambda frame: []
    other: Callable[[Results], list[Block]] = lambda results: []

    def of(self, results: Results) -> Section | None:
        """The section; None for a table without rows."""
        frame = results.frame(self.table)
        if frame.empty:
            return None
        listed = Table(
            f"table-{self.anchor}",
            self.table,
            frame.head(ROW_LIMIT),
            tuple(c for c in self.columns.split() if not _says_nothing(frame[c])),
            self.title,
            len(frame),
            visible_rows=15,
            command=f"xsp-post table {self.table} fleet.xsp.sqlite",
        )
        return Section(self.anchor, self.title, self.question, (*self.charts(frame), listed, *self.other(results)))


def _charts_of_models(frame: pd.DataFrame) -> list[Chart]:
    charts = []
    points = frame[frame["arithmetic_intensity_flop_per_byte"] > 0]
    if len(points) > 1:  # one point beside its roof says less than its row in the table
        note = (
            "Every workload at its optimal batch size; the tick above a point is the roof at its intensity (the "
            "paper's Figure 12)."
        )
        charts.append(Chart("fleet-roofline", _roofline(points), note, "Model roofline"))
    # latencies of different workloads are of different work: only one workload on several systems is compared
    timed = frame[frame["batch_latency_ns"].notna()]
    alike = timed[timed.duplicated(["workload_name", "phase"], keep=False)]
    if len(alike):
        note = "Model latency at the optimal (or only) batch size, of workloads that were measured on several systems."
        bars = _bars(alike, "batch_latency_ns", "latency")
        charts.append(Chart("fleet-latency", bars, note + _cut(alike), "Model latency"))
    return charts


def _charts_of_scalability(frame: pd.DataFrame) -> list[Chart]:
    note = "Throughput over that at the smallest batch size (arXiv version of the paper, Figure 12)."
    return [
        Chart("fleet-speedup", _heatmap(frame), note, "Throughput scalability"),
        Chart("fleet-throughput", _lines(frame), "Throughput over batch size.", "Throughput"),
    ]


def _charts_of_families(frame: pd.DataFrame) -> list[Chart]:
    note = "Share of the kernel time by family of kernel names, per capture (its heaviest case)."
    cut = _cut(frame.drop_duplicates("capture_name"))
    return [Chart("fleet-families", _shares(frame), note + cut, "Kernel families")]


def _charts_of_ranks(frame: pd.DataFrame) -> list[Chart]:
    note = "Where the time of each rank goes; only exposed communication costs time."
    return [Chart("fleet-ranks", rank_bars(frame.head(BAR_LIMIT)), note, "Ranks")]


def _kernel_sets(results: Results) -> list[Block]:
    sets = results.frame("fleet_kernel_sets")
    if sets.empty:
        return []
    unlike = sets[~sets["is_everywhere"]]
    columns = ("workload_name", "batch_size", "name", "system_name", "kernel_count", "latency_ns", "system_count")
    title, command = "Kernels that not every system launches", "xsp-post table fleet_kernel_sets fleet.xsp.sqlite"
    shown = unlike.head(ROW_LIMIT)
    return [Table("kernel-sets", "fleet_kernel_sets", shown, columns, title, len(unlike), command=command)]


_PARTS = (
    _Part(
        "models", "fleet_models", "Workloads", "How fast is each, and what limits it?",
        "workload_name system_name framework phase online_latency_ns online_batch_size max_throughput_inputs_per_s "
        "optimal_batch_size batch_size batch_latency_ns gpu_latency_ratio total_flop occupancy_ratio "
        "arithmetic_intensity_flop_per_byte arithmetic_throughput_flop_per_s bound convolution_latency_ratio "
        "latency_stage", _charts_of_models,
    ),
    _Part(
        "scalability", "fleet_scalability", "Batch sizes", "What does a larger batch gain?",
        "workload_name system_name framework phase batch_size throughput_inputs_per_s speedup_ratio",
        _charts_of_scalability,
    ),
    _Part(
        "families", "fleet_families", "Kernel families", "What kind of work is it?",
        "capture_name workload_name system_name batch_size family kernel_count latency_ns latency_ratio",
        _charts_of_families,
    ),
    _Part(
        "systems", "fleet_systems", "Systems", "How do the systems compare (Figure 11)?",
        "workload_name batch_size system_name throughput_inputs_per_s kernel_latency_ns normalized_throughput_ratio "
        "normalized_kernel_latency_ratio unique_kernel_count own_kernel_count base_system", other=_kernel_sets,
    ),
    _Part(
        "frameworks", "fleet_frameworks", "Frameworks", "How do the frameworks compare (Table X)?",
        "workload_name system_name framework normalized_online_latency_ratio normalized_max_throughput_ratio "
        "non_gpu_latency_ratio base_framework",
    ),
    _Part(
        "ranks", "ranks", "Ranks", "Which rank waits, and is communication overlapped?",
        "job_name rank device_id is_straggler duration_ns compute_ns communication_ns exposed_ns overlap_ratio idle_ns "
        "waiting_ns last_count compute_excess_ratio kernel_count", _charts_of_ranks,
    ),
    _Part(
        "captures", "fleet", "Captures", "Which captures were read?",
        "capture_name workload_name system_name framework status limit kernel_count device_ns copy_ns busy_ns "
        "duration_ns iteration_count layer_count memory_peak_bytes attributed_ratio process_count finding_count code",
    ),
)  # fmt: skip


def _says_nothing(values: pd.Series) -> bool:
    if values.dtype.kind == "f":
        return bool(values.isna().all())
    if values.name in ("batch_size", "online_batch_size", "optimal_batch_size", "memory_peak_bytes"):
        return bool((values == -1).all())
    return values.dtype.kind not in "iub" and bool(values.astype(str).isin(["", "unknown"]).all())


# -- charts -------------------------------------------------------------------------------------------------


def _cut(frame: pd.DataFrame) -> str:
    return f" The first {BAR_LIMIT} of {len(frame):,} are drawn." if len(frame) > BAR_LIMIT else ""


def _label(frame: pd.DataFrame) -> list[str]:
    """Workload, and system and framework where they differ."""
    several = [c for c in ("system_name", "framework", "phase") if frame[c].nunique() > 1]
    texts = frame["workload_name"].astype(str)
    for column in several:
        texts = texts + frame[column].astype(str).map(lambda value: f" · {value}" if value else "")
    return [shorten(visible(text, 200), 52) for text in texts]


def _bars(frame: pd.DataFrame, column: str, title: str) -> Any:
    frame = frame.sort_values(column, ascending=False).head(BAR_LIMIT)
    factor, unit = theme.axis_scale(column, frame[column])
    shown = pd.DataFrame(
        {"label": _label(frame), "value": frame[column] / factor, "text": [format_ns(v) for v in frame[column]]}
    )
    shown["label"] = _unlike(shown["label"])
    y = alt.Y("label:N", title=None, sort=shown["label"].tolist(), axis=alt.Axis(labelLimit=330))
    return (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            y=y,
            x=alt.X("value:Q", title=theme.axis_title(title, unit)),
            tooltip=[alt.Tooltip("label:N", title="workload"), alt.Tooltip("text:N", title=title)],
        )
        .properties(width=theme.CHART_WIDTH - 320, height=max(22 * len(shown), 60))
    )


def _unlike(labels: pd.Series) -> pd.Series:
    """Labels made different, so that no two rows fall on one line."""
    again = labels.groupby(labels).cumcount()
    return labels + again.map(lambda n: f" ({n + 1})" if n else "")


def _roofline(frame: pd.DataFrame) -> Any:
    shown = pd.DataFrame(
        {
            "label": _label(frame),
            "intensity": frame["arithmetic_intensity_flop_per_byte"],
            "reached": frame["arithmetic_throughput_flop_per_s"] / 1e12,
            "roof": frame["roof_flop_per_s"] / 1e12,
            "bound": frame["bound"].astype(str),
        }
    )
    present = list(dict.fromkeys(shown["bound"]))
    color = alt.Color(
        "bound:N",
        title=None,
        scale=alt.Scale(
            domain=present, range=[theme.color(bound if bound in theme.PALETTES else "unknown") for bound in present]
        ),
    )
    x = alt.X("intensity:Q", title="arithmetic intensity [flop/B]", scale=alt.Scale(type="log"))
    tips = [
        alt.Tooltip("label:N", title="workload"),
        alt.Tooltip("bound:N", title="bound"),
        alt.Tooltip("intensity:Q", format=".2f", title="flop/B"),
        alt.Tooltip("reached:Q", format=".2f", title="Tflop/s"),
    ]
    points = (
        alt.Chart(shown)
        .mark_point(filled=True, size=70)
        .encode(
            x=x,
            y=alt.Y("reached:Q", title="throughput [Tflop/s]", scale=alt.Scale(type="log")),
            color=color,
            shape=alt.Shape("bound:N", title=None, scale=alt.Scale(domain=present)),
            tooltip=tips,
        )
    )
    roofs = (
        alt.Chart(shown[shown["roof"] > 0])
        .mark_tick(thickness=2, color=theme.color("roof"))
        .encode(x=x, y=alt.Y("roof:Q"))
    )
    return theme.overlay(roofs, points, width=theme.CHART_WIDTH, height=320)


def _heatmap(frame: pd.DataFrame) -> Any:
    frame = frame.assign(label=_label(frame))
    first = list(dict.fromkeys(frame["label"]))[:BAR_LIMIT]
    shown = frame[frame["label"].isin(first)][["label", "batch_size", "speedup_ratio"]]
    base = alt.Chart(shown).encode(
        x=alt.X("batch_size:O", title="batch size"),
        y=alt.Y("label:N", title=None, sort=first, axis=alt.Axis(labelLimit=330)),
    )
    cells = base.mark_rect().encode(
        color=alt.Color("speedup_ratio:Q", title="speed-up", scale=alt.Scale(scheme="blues"))
    )
    bright = shown["speedup_ratio"].max() * 0.6
    texts = base.mark_text(fontSize=11).encode(
        text=alt.Text("speedup_ratio:Q", format=".2f"),
        color=alt.condition(f"datum.speedup_ratio > {bright}", alt.value("#fffffe"), alt.value("#10161d")),
    )
    return theme.overlay(cells, texts).properties(width=theme.CHART_WIDTH - 320, height=max(24 * len(first), 60))


def _lines(frame: pd.DataFrame) -> Any:
    frame = frame.assign(label=_label(frame))
    first = list(dict.fromkeys(frame["label"]))[:12]
    shown = frame[frame["label"].isin(first)][["label", "batch_size", "throughput_inputs_per_s"]]
    return (
        alt.Chart(shown)
        .mark_line(point=True)
        .encode(
            x=alt.X("batch_size:Q", title="batch size", scale=alt.Scale(type="log", base=2)),
            y=alt.Y("throughput_inputs_per_s:Q", title="throughput [inputs/s]", scale=alt.Scale(type="log")),
            color=alt.Color("label:N", title=None, sort=first),
            shape=alt.Shape("label:N", title=None, sort=first),
            tooltip=[
                alt.Tooltip("label:N", title="workload"),
                alt.Tooltip("batch_size:Q", title="batch size"),
                alt.Tooltip("throughput_inputs_per_s:Q", format=".1f", title="inputs/s"),
            ],
        )
        .properties(width=theme.CHART_WIDTH, height=theme.CHART_HEIGHT)
    )


def main_families(family: pd.Series, share: pd.Series) -> pd.Series:
    """The family of each row; those that have no colour of their own, the smallest ones, become ``other``."""
    largest = share.groupby(family).sum().drop(OTHER, errors="ignore").nlargest(theme.HUE_COUNT).index
    return family.where(family.isin(largest), OTHER)


def _shares(frame: pd.DataFrame) -> Any:
    heaviest = frame.groupby(["capture_index", "case_index"])["latency_ns"].sum().reset_index()
    heaviest = heaviest.sort_values("latency_ns", ascending=False).drop_duplicates("capture_index")
    shown = frame.merge(heaviest[["capture_index", "case_index"]], on=["capture_index", "case_index"])
    names = list(dict.fromkeys(shown["capture_name"]))[:BAR_LIMIT]
    shown = shown[shown["capture_name"].isin(names)]
    label = dict(zip(names, _unlike(pd.Series([shorten(visible(n, 200), 48) for n in names]))))
    shown = shown.assign(family=main_families(shown["family"].astype(str), shown["latency_ratio"]))
    shown = shown.groupby(["capture_name", "family"], sort=False, as_index=False)[["latency_ratio", "latency_ns"]].sum()
    found = set(shown["family"])
    present = [f for f in FAMILIES if f in found] + sorted(found - set(FAMILIES))
    colors = dict(zip(present, theme.category_colors(present)))
    shown = pd.DataFrame(
        {
            "capture": shown["capture_name"].map(label),
            "family": shown["family"],
            "rank": [present.index(family) for family in shown["family"]],
            "share": shown["latency_ratio"],
            "time": [format_ns(v) for v in shown["latency_ns"]],
        }
    )
    return (
        alt.Chart(shown)
        .mark_bar(stroke="#fffffe", strokeWidth=0.6)
        .encode(
            y=alt.Y("capture:N", title=None, sort=list(label.values()), axis=alt.Axis(labelLimit=330)),
            x=alt.X(
                "share:Q",
                title="share of kernel time",
                axis=alt.Axis(format=".0%"),
                stack="zero",
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=alt.Color(
                "family:N",
                title=None,
                legend=alt.Legend(columns=6),
                scale=alt.Scale(domain=present, range=[colors[family] for family in present]),
            ),
            order=alt.Order("rank:Q"),
            tooltip=[alt.Tooltip(f"{c}:N", title=c) for c in ("capture", "family", "time")]
            + [alt.Tooltip("share:Q", format=".1%", title="share")],
        )
        .properties(width=theme.CHART_WIDTH - 320, height=max(22 * len(names), 60))
    )
