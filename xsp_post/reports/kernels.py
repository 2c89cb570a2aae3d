"""A8 and A10, the kernels one by one and by name (Tables III and IV)."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from xsp_post.model.results import Results
from xsp_post.model.schemas.units import format_count, format_ns, format_ratio_percent
from xsp_post.model.schemas.views import view_of
from xsp_post.reports import cases, theme
from xsp_post.reports.blocks import Block, Chart, Exhibit, Note, Section, Table, present
from xsp_post.reports.facts import has_iterations
from xsp_post.reports.text import distinct, short_kernel, short_kernels, shorten, visible

ROW_LIMIT = 250
TOP = 15


def data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A10 of one case, heaviest kernel name first."""
    frame = cases.rows(results, "a10", case or cases.main_case(results))
    return frame.sort_values("latency_ns", ascending=False, kind="stable").reset_index(drop=True)


def launch_data(results: Results, case: cases.Case | None = None) -> pd.DataFrame:
    """A8 of one case, longest launch first; all rows."""
    frame = cases.rows(results, "a08", case or cases.main_case(results))
    return frame.sort_values("latency_ns", ascending=False, kind="stable").reset_index(drop=True)


def chart(frame: pd.DataFrame) -> Any:
    """The kernel names that take most time, with "other" for the rest, as bars."""
    top = frame.head(TOP)
    rest = frame.iloc[TOP:]
    factor, unit = theme.axis_scale("latency_ns", top["latency_ns"])
    shown = pd.DataFrame(
        {
            "kernel": distinct(_label(name) for name in short_kernels(top["name"], _LABEL)),
            "value": top["latency_ns"].astype("float64") / factor,
            "full": [visible(n, 400) for n in top["name"]],
            "text": [format_ns(v) for v in top["latency_ns"]],
            "share": [format_ratio_percent(v) for v in top["kernel_latency_ratio"]],
            "count": [format_count(v) for v in top["kernel_count"]],
            "part": "kernel",
        }
    )
    if len(rest):
        shown.loc[len(shown)] = {
            "kernel": f"{format_count(len(rest))} other names",
            "value": float(rest["latency_ns"].sum()) / factor,
            "full": "all others",
            "text": format_ns(rest["latency_ns"].sum()),
            "share": format_ratio_percent(rest["kernel_latency_ratio"].sum()),
            "count": format_count(rest["kernel_count"].sum()),
            "part": "other",
        }
    y = alt.Y(
        "kernel:N", sort=shown["kernel"].tolist(), title=None, axis=alt.Axis(labelLimit=340, domain=False, ticks=False)
    )
    base = alt.Chart(shown).encode(
        y=y,
        tooltip=[
            alt.Tooltip("full:N", title="kernel"),
            alt.Tooltip("text:N", title="latency"),
            alt.Tooltip("share:N", title="of kernel time"),
            alt.Tooltip("count:N", title="launches"),
        ],
    )
    bars = base.mark_bar().encode(
        # room on the right for the share beside the longest bar
        x=alt.X(
            "value:Q",
            title=theme.axis_title("kernel latency", unit),
            scale=alt.Scale(rangeMax=alt.ExprRef("width - 44"), nice=False),
        ),
        color=theme.either(alt.ColorValue, "datum.part === 'kernel'", theme.color("kernel"), theme.color("unknown")),
    )
    labels = base.mark_text(align="left", dx=4, fontSize=11).encode(x=alt.X("value:Q"), text=alt.Text("share:N"))
    return theme.overlay(bars, labels, width=theme.CHART_WIDTH, height=21 * len(shown) + 10)


_LABEL = 46  # characters of a name beside its bar


def _label(name: str) -> str:
    """A short name on an axis: what tells it from its neighbours, behind the last dot, is kept whole."""
    head, dot, own = name.rpartition(" · ")
    return f"{shorten(head, max(_LABEL - len(own) - 3, 12))}{dot}{own}" if dot else shorten(name, _LABEL)


def _make(results: Results, case: cases.Case | None) -> Section | None:
    by_name = data(results, case)
    launches = launch_data(results, case)
    if by_name.empty and launches.empty:
        return None
    blocks: list[Block] = []
    if len(by_name):
        top = by_name.head(1).to_dict("records")[0]
        blocks.append(
            Note(
                f"{format_count(by_name['kernel_count'].sum())} launches of {format_count(len(by_name))} "
                f"different kernels "
                f"{'per iteration' if has_iterations(results, case) else 'in the capture'}{cases.of_case(case)}. "
                f"{short_kernel(str(top['name']))} takes most: {format_ns(top['latency_ns'])}, "
                f"{format_ratio_percent(top['kernel_latency_ratio'])} of the kernel time.",
                "lead",
            )
        )
        blocks.append(
            Chart("a10", chart(by_name), "A10 · Kernels by name. The share is of all kernel time.", "Kernels by name")
        )
        blocks.append(
            Table(
                "a10",
                "a10",
                by_name.head(ROW_LIMIT),
                present(by_name, view_of("a10")),
                "A10 · Kernels by name",
                len(by_name),
                short={"name": short_kernels},
                command="xsp-post table A10 STORE --format csv",
                bars=("latency_ns",),
            )
        )
    if len(launches):
        under = int((launches["latency_ns"] < 1_000_000).sum())
        blocks.append(
            Table(
                "a08",
                "a08",
                launches.head(ROW_LIMIT),
                present(launches, view_of("a08")),
                f"A8 · Kernel launches, longest first; {format_count(under)} of {format_count(len(launches))} "
                f"are under 1 ms",
                len(launches),
                short={"name": short_kernels},
                bars=("latency_ns",),
                command="xsp-post table A8 STORE --format csv",
            )
        )
    return Section("kernels", "Kernels", "Which kernels take the time?", tuple(blocks), "Kernels")


EXHIBIT = Exhibit(
    "kernels",
    "Kernels",
    ("a10",),
    _make,
    "A capture of the GPU: nsys profile --trace=cuda,nvtx …, or xsp-post run --levels MLG.",
    ("A8", "A10"),
)
