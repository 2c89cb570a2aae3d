"""The ranks of a job: where the time of each goes, which layers differ between them, what their collectives cost."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present
from xsp_post.reports.cases import Case
from xsp_post.reports.text import distinct, shorten, visible
from xsp_post.tables.analyses.ranks import rank_sentence

ROW_LIMIT = 200
BAR_LIMIT = 40
_KEYS = ["device_id", "kind", "name"]
_TIMES = ["duration_ns", "transfer_ns", "waiting_ns", "launch_skew_ns", "overlapped_ns"]


def collective_data(results: Results) -> pd.DataFrame:
    """Collectives summed by device, kind and name, longest first."""
    frame = frame_or_empty(results, "collectives", [*_KEYS, *_TIMES])
    grouped = frame.astype({"kind": object, "name": object}).groupby(_KEYS, sort=False)
    summed = grouped[_TIMES].sum(min_count=1).assign(collective_count=grouped.size()).reset_index()
    return summed.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)


def _make(results: Results, case: Case | None) -> Section | None:
    ranks = frame_or_empty(results, "ranks")
    if len(ranks) < 2:
        return None
    blocks: list[Block] = [
        Note(_sentence(ranks), "lead"),
        Chart("ranks", rank_bars(ranks.head(BAR_LIMIT)), "Only communication that nothing hides costs time.", "Ranks"),
        _table("ranks", ranks, "Ranks"),
    ]
    layers = frame_or_empty(results, "rank_layers").sort_values("spread_ratio", ascending=False, kind="stable")
    if len(layers):
        blocks.append(_table("rank_layers", layers, "Layers by how much the ranks differ in them"))
    return Section("ranks", "Ranks", "Which rank waits for which?", tuple(blocks), "Ranks")


def _sentence(ranks: pd.DataFrame) -> str:
    exposed, length = int(ranks["exposed_ns"].max()), max(int(ranks["duration_ns"].max()), 1)
    if not exposed:
        return rank_sentence(ranks)
    return (
        f"{rank_sentence(ranks)} Communication that nothing hides takes up to {format_ns(exposed)} of a rank, "
        f"{format_ratio_percent(exposed / length)} of its time."
    )


def _make_communication(results: Results, case: Case | None) -> Section | None:
    frame = collective_data(results)
    if frame.empty:
        return None
    hidden = frame["overlapped_ns"].sum() / max(frame["duration_ns"].sum(), 1)
    said = (
        f"{format_count(frame['collective_count'].sum())} collectives take {format_ns(frame['duration_ns'].sum())}, "
        f"summed over devices; other kernels run during {format_ratio_percent(hidden)} of it."
    )
    caption = "Collectives by device and kind; transfer, waiting and launch skew are known where ranks were matched"
    blocks = (Note(said, "lead"), _table("collectives", frame, caption))
    return Section("communication", "Communication", "What do the collectives cost?", blocks, "Ranks")


def _table(name: str, frame: pd.DataFrame, caption: str) -> Table:
    return Table(
        f"job-{name}", name, frame.head(ROW_LIMIT), present(frame, view_of(name)), caption, len(frame),
        command=f"xsp-post table {name} STORE --format csv",
    )  # fmt: skip


def rank_bars(frame: pd.DataFrame) -> Any:
    parts = {
        "compute": frame["compute_ns"],
        "exposed communication": frame["exposed_ns"],
        "other": (frame["duration_ns"] - frame["compute_ns"] - frame["exposed_ns"]).clip(lower=0),
    }
    factor, unit = theme.axis_scale("duration_ns", frame["duration_ns"])
    label = distinct(
        shorten(visible(f"{job} rank {rank}{' (straggler)' if slow else ''}".strip(), 200), 52)
        for job, rank, slow in zip(frame["job_name"], frame["rank"], frame["is_straggler"])
    )
    shown = pd.concat(
        [
            pd.DataFrame(
                {
                    "rank": label,
                    "part": name,
                    "value": values.to_numpy() / factor,
                    "order": order,
                    "text": [format_ns(v) for v in values],
                }
            )
            for order, (name, values) in enumerate(parts.items())
        ]
    )
    colors = alt.Scale(domain=list(parts), range=[theme.color(role) for role in ("kernel", "other", "band")])
    return (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            y=alt.Y("rank:N", title=None, sort=label, axis=alt.Axis(labelLimit=330)),
            x=alt.X("value:Q", title=theme.axis_title("time", unit), stack="zero"),
            color=alt.Color("part:N", title=None, scale=colors, legend=alt.Legend(columns=3)),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip(f"{c}:N", title=c) for c in ("rank", "part", "text")],
        )
        .properties(width=theme.CHART_WIDTH - 320, height=max(26 * len(label), 60))
    )


EXHIBIT = Exhibit("ranks", "Ranks", ("ranks",), _make, "")
COMMUNICATION = Exhibit("communication", "Communication", ("collectives",), _make_communication, "")
