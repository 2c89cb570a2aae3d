"""The tables of a comparison → one self-contained page."""

import pandas as pd

from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_change
from xsp_post.reports.cases import Case
from xsp_post.reports.compare_text import QUANTITIES, amount, is_as_recorded, shown_totals
from xsp_post.reports.document import sections_of
from xsp_post.reports.frames import Frame
from xsp_post.reports.shell import Fact, render_page


def render(results: Results, names: tuple[str, str] = ("base", "other")) -> str:
    """The page of a comparison (tables ``compare_…``) as text."""
    summary = results.frame("compare_summary")
    statements = [
        ("other" if row["is_difference"] else "compute", str(row["statement"])) for row in summary.to_dict("records")
    ]
    return render_page(
        f"{names[0]} → {names[1]}",
        "differences of the second against the first",
        "xsp-post comparison",
        _facts(results),
        statements,
        sections_of("compare", results, _FRAMES, {"totals": _totals_lead}),
    )


_WINDOW_FACTS = ("window", "busy", "idle", "kernel_count")


def _facts(results: Results) -> list[Fact]:
    """What became of the model; of captures without executions what the devices did, as recorded."""
    models = results.frame("compare_models")
    if len(models):
        return [
            (f"{str(row['quantity']).replace('_', ' ')} per iteration", format_change(row["difference_ratio"]),
             f"{_both(row['base_value'], row['other_value'], row['unit'])}: {row['change']}")
            for row in models.head(8).to_dict("records")
        ]  # fmt: skip
    totals = shown_totals(results)
    return [
        (QUANTITIES[row["quantity"]], format_change(row["ratio"]),
         f"{_both(row['base'], row['other'], row['unit'])}, as recorded")
        for row in totals[totals["quantity"].isin(_WINDOW_FACTS)].to_dict("records")
    ]  # fmt: skip


def _both(base: float, other: float, unit: str) -> str:
    return f"{amount(base, unit)} → {amount(other, unit)}"


def _totals_lead(results: Results, case: Case | None) -> list[str]:
    of = "as recorded" if is_as_recorded(results) else "per execution, memory as recorded"
    return [f"All values are {of}."]


# -- frames of `page.txt` -----------------------------------------------------------------------------------


def _cause_differences(results: Results, case: Case | None) -> pd.DataFrame:
    frame = frame_or_empty(results, "compare_causes")
    size = frame["difference_ns"].abs()
    frame = frame[size >= max(0.5, 0.002 * size.max())].reset_index(drop=True)
    return frame.assign(change=frame["difference_ns"].gt(0).map({True: "slower", False: "faster"}))


def _totals(results: Results, case: Case | None) -> pd.DataFrame:
    """Time of the devices, and what it went to, on both sides, as it is shown."""
    shown = shown_totals(results)
    columns = {"base_per_unit": "base", "other_per_unit": "other", "difference_value": "difference"}
    amounts = {
        name: [amount(v, unit) for v, unit in zip(shown[source], shown["unit"])] for name, source in columns.items()
    }
    return pd.DataFrame({"quantity": shown["quantity"].map(QUANTITIES), **amounts, "difference_ratio": shown["ratio"]})


def _differences(table: str, name: str) -> Frame:
    """The relative differences of what both sides have, with their intervals. One of ±300 % would flatten everything
    else: lines end at the edge of the scale."""

    def rows(results: Results, case: Case | None) -> pd.DataFrame:
        frame = frame_or_empty(results, table)
        frame = frame[frame["difference_ratio"].notna()].reset_index(drop=True)
        label = pd.Series(range(1, len(frame) + 1), dtype="int64").astype(str) + ". " + frame[name].astype(str)
        low, high = (frame[f"ci_{end}_difference_ns"] / frame["base_latency_ns"] for end in ("low", "high"))
        drawn = frame["difference_ratio"].head(15).abs().max()
        edge = max(drawn * 1.6, high.head(15).abs().median() * 1.2, 0.02)
        return frame.assign(label=label, low_ratio=low.clip(-edge, edge), high_ratio=high.clip(-edge, edge)).drop(
            columns=["layer_index", "layer_name"], errors="ignore"
        )

    return rows


_FRAMES: dict[str, Frame] = {
    "cause_differences": _cause_differences,
    "totals": _totals,
    "layer_differences": _differences("compare_layers", "layer_path"),
    "kernel_differences": _differences("compare_kernels", "name"),
}
