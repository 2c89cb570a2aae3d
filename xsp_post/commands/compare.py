"""`xsp-post compare BASE OTHER`: what became slower or faster, what is new or missing, with confidence intervals."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from xsp_post.base.errors import UsageError
from xsp_post.base.output import require_free, write_text
from xsp_post.base.progress import step
from xsp_post.base.text_safety import path_text, shown
from xsp_post.commands import shared
from xsp_post.commands.options import with_options
from xsp_post.model.options import DEFAULTS, PART, TREE, Options
from xsp_post.model.schemas.units import format_change, format_ratio_interval

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from xsp_post.model.results import Analysis

_TABLES = (
    "compare_summary", "compare_totals", "compare_causes", "compare_names", "compare_cases", "compare_models",
    "compare_layers", "compare_kernels", "compare_steps",
)  # fmt: skip


@with_options(TREE, PART)
def compare(
    base: Path, other: Path, more: list[Path] | None = None, output: Path | None = None,
    fail_if: list[str] | None = None, top: int = 10, as_markdown: bool = False, options: Options = DEFAULTS,
    force: bool = False, as_json: bool = False,
) -> None:  # fmt: skip
    """Compare two captures of one model; a difference is reported only when noise cannot explain it."""
    from xsp_post.compare import check_bars, parse_bar
    from xsp_post.compare import compare as compared
    from xsp_post.model.results import part_text

    if more:
        history = shared.command("xsp-post", "history", base, other, *more)
        raise UsageError(f"Two captures are compared, {len(more) + 2} are a history", code="compare-many", hint=history)
    bars = [parse_bar(text) for text in fail_if or ()]
    if output is not None:
        shared.spare_sources([base, other], output)
        require_free(output, force)
    shared.close([shared.baseline(path) for path in (base, other)], options)
    sides = [shared.results_of([path], options) for path in (base, other)]
    parts = {side: part_text(results) for side, results in zip(("base", "other"), sides)}
    names = (_named(base, parts["base"]), _named(other, parts["other"]))
    with step("comparing …"):
        comparison = compared(*sides)
    if output is not None:
        from xsp_post.reports.compare_page import render

        write_text(output, render(comparison, names), force)
    if as_json:
        from xsp_post.reports.quantities import comparison_quantities

        tables = {name.removeprefix("compare_"): shared.records(comparison, name) for name in _TABLES}
        numbers = comparison_quantities(comparison)
        said = {f"{side}_part": text or None for side, text in parts.items()}
        shared.print_json("compare", {"base": base.name, "other": other.name, **said, "quantities": numbers, **tables})
    elif as_markdown:
        from xsp_post.reports.compare_text import comparison_markdown

        typer.echo(comparison_markdown(comparison, names, top), nl=False)
    else:
        for side, text in parts.items():
            if text:
                shared.stdout().print(f"Part of the {side}: {text}", markup=False)
        _print(comparison, top)
    if output is not None:
        shared.say(f"Wrote {path_text(output)}")
    for sentence in check_bars(comparison, bars):
        shared.say(f"--fail-if {sentence}")


def _named(path: Path, part: str) -> str:
    return f"{path.name}, {part}" if part else path.name


_SHOWN = ("slower", "faster", "more", "less", "appeared", "vanished", "changed kernel")


def _print(comparison: "Analysis", top: int) -> None:
    from rich.text import Text

    from xsp_post.reports.terminal_text import say

    console = shared.stdout()
    for row in comparison.frame("compare_summary").to_dict("records"):
        style = ("bold yellow" if row["is_difference"] else "bold green") if row["subject"] == "verdict" else ""
        say(console, Text(shown(str(row["statement"]), 600), style=style))
    label = _labels(comparison)
    models, steps = comparison.frame("compare_models"), comparison.frame("compare_steps")
    if len(steps):
        _section(console, "Steps of equal size", "compare_steps", _for_print(steps, "quantity", "_value", label), 0)
    if len(models):
        table = _for_print(models, "quantity", "_value", label)
        _section(console, "Model, per iteration", "compare_models", table, top if len(steps) else 0)
    for title, name, column in (
        ("Layers, per call", "compare_layers", "layer_path"),
        ("Kernels, all launches of one call of the layer", "compare_kernels", "name"),
    ):
        frame = comparison.frame(name)
        if top and not frame["change"].isin(_SHOWN).any():
            continue  # the sentence above says it
        if len(frame):
            _section(console, title, name, _for_print(frame, column, "_latency_ns", label), top)


# Columns that a narrow terminal does without, first to last.
_DISPENSABLE = ("interval", "in_layer", "base", "other", "source_line")
_LEAST_NAME = 24
_STYLES = {"slower": "red", "faster": "green", "more": "red", "less": "green"}


def _section(console: "Console", title: str, table_name: str, frame: "pd.DataFrame", top: int) -> None:
    from rich.text import Text

    from xsp_post.model.schemas.views import titles_of
    from xsp_post.reports.terminal_text import cell_table, fitting
    from xsp_post.reports.text import cut_alike

    console.print(f"\n{title}", style="bold")
    differs = frame[frame["change"].isin(_SHOWN)]
    listed = frame if top == 0 else differs.head(top)
    titles = titles_of(table_name, [str(column) for column in listed])
    cells = {c: [Text(str(cell), style=_STYLES.get(str(cell), "")) for cell in listed[c]] for c in titles}
    widths = {c: 2 + max([len(title), *map(len, cells[c])]) for c, title in titles.items()}
    name, *numbers = titles
    # names give way before numbers, some numbers before names
    kept = fitting(widths | {name: min(widths[name], _LEAST_NAME)}, console.width, _DISPENSABLE)
    room = max(console.width - sum(kept[c] for c in numbers if c in kept) - 2, 8)
    cells[name] = [Text(text) for text in cut_alike(listed[name].astype(str).tolist(), room)]
    texts = (name, "in_layer", "source_line", "change")
    console.print(cell_table([(titles[c], c in texts) for c in kept], zip(*(cells[c] for c in kept))))
    if len(listed) < len(frame):
        none = ", none of which shows a difference" if len(listed) == len(differs) else ""
        console.print(f"… {len(frame) - len(listed):,} more{none} (--top 0 prints all)", style="dim")


def _labels(comparison: "Analysis") -> dict[int, str]:
    """By pair of cases, what tells its rows from those of others: phase, batch size and rank as far as they differ."""
    cases = comparison.frame("compare_cases").query("status == 'matched'")
    names = [name for name in ("phase", "batch_size", "rank_name") if cases[name].nunique() > 1]
    return {pair: ", ".join(map(str, row)) + ": " for pair, *row in cases[["pair_index", *names]].to_numpy() if row}


def _for_print(frame: "pd.DataFrame", column: str, suffix: str, label: dict[int, str]) -> "pd.DataFrame":
    """Cells as text: name, both values, the difference with its interval, and what that is."""
    import pandas as pd

    from xsp_post.reports.compare_text import amount

    rows = []
    low, high = (
        ("ci_low_value", "ci_high_value") if suffix == "_value" else ("ci_low_difference_ns", "ci_high_difference_ns")
    )
    for row in frame.to_dict("records"):
        base, unit = row[f"base{suffix}"], str(row.get("unit", "ns"))
        name = str(row[column]).replace("_", " ") if column == "quantity" else str(row[column])
        name += f" → {row['other_name']}" if row.get("other_name") else ""
        name = label.get(row.get("pair_index", -1), "") + name
        name += " (host time)" if row.get("measure") == "host_time" else ""
        cells = {column: shown(name, 70)}
        if "other_name" in row and (frame["layer_path"] != "").any():
            cells["in_layer"] = shown(str(row["layer_path"]), 40)
        if "source_line" in row and (frame["source_line"] != "").any():
            cells["source_line"] = shown(str(row["source_line"]), 40)
        has_interval = row[low] == row[low] and base == base and base
        cells |= {
            "base": amount(base, unit),
            "other": amount(row[f"other{suffix}"], unit),
            "difference_ratio": format_change(row["difference_ratio"]),
            "interval": format_ratio_interval(row[low] / base, row[high] / base) if has_interval else "–",
            "change": row["change"],
        }
        rows.append(cells)
    return pd.DataFrame(rows)
