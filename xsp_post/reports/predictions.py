"""A what-if prediction → the terminal: measured and predicted times, their interval, and what limits then."""

import re
from typing import Any

from rich.console import Console
from rich.text import Text

from xsp_post.base.text_safety import shell_command, shown
from xsp_post.model.results import Results, of_captures, records
from xsp_post.model.schemas.units import format_change, format_count, format_ns, format_ratio_percent
from xsp_post.replay.changes import Effect
from xsp_post.replay.what_if import Prediction
from xsp_post.reports.terminal_text import cell_table, say
from xsp_post.reports.verdict import main_limit
from xsp_post.reports.why import gain_of

_PATH_ROWS = 8


def print_prediction(console: Console, prediction: Prediction, part: str = "") -> None:
    """Print one prediction. ``part``: the part of the recording that it is of; "" all of it."""
    if part:
        say(console, Text(f"Part shown: {part}", style="bold"))
    said = f": {shown(prediction.execution)} ({format_count(prediction.execution_count)} measured)"
    if prediction.execution == "recording":
        said = ": all of it (no execution is known)"
    say(console, Text.assemble((shown(prediction.source_name), "bold"), said))
    for effect in prediction.effects:
        say(console, "  " + _effect_text(effect), hanging=4)
    rows = [
        (name, format_ns(amount.measured_ns), format_ns(amount.predicted_ns), format_change(amount.change_ratio),
         f"{format_ns(amount.low_ns)} … {format_ns(amount.high_ns)}")
        for name, amount in prediction.amounts()
    ]  # fmt: skip
    titles = ("", "measured", "predicted", "change", "expected between")
    console.print(cell_table([(title, not title) for title in titles], rows))
    say(console, "elapsed: all together, from first to last device work, as in xsp-post why; the others: medians.")
    say(
        console,
        f"Replay error {format_ratio_percent(prediction.error_ratio, 2)} (simulation of the unchanged recording), "
        f"spread over executions {format_ratio_percent(prediction.spread_ratio, 2)}.",
    )
    before = "" if prediction.limit_before == prediction.limit else f"; before: {prediction.limit_before}"
    share = format_ratio_percent(prediction.limit_ratio)
    limit = Text.assemble(
        "Limit after the change: ", (prediction.limit, "bold"), f" ({share} of the critical path){before}."
    )
    say(console, limit)
    _print_path(console, prediction)


def data_of(prediction: Prediction) -> dict[str, Any]:
    """The prediction as JSON-ready values."""
    return {
        **{name: getattr(prediction, name) for name in _OF_PREDICTION},
        "changes": [
            {"change": one.text, **{name: getattr(one, name) for name in _OF_EFFECT}} for one in prediction.effects
        ],
        "predictions": records(prediction.frame()),
        "critical_path": records(prediction.critical_path),
    }


_OF_PREDICTION = ("capture_id", "source_name", "execution", "execution_count", "error_ratio", "spread_ratio", "limit",
                  "limit_ratio", "limit_before")  # fmt: skip
_OF_EFFECT = ("operation_count", "call_count", "device_ns", "assumption", "left_out", "names")


def _effect_text(effect: Effect) -> str:
    counts = []
    if effect.operation_count:
        counts.append(f"{format_count(effect.operation_count)} operations")
    if effect.device_ns:
        counts.append(format_ns(effect.device_ns))
    if effect.call_count:
        counts.append(f"{format_count(effect.call_count)} calls")
    text = f"{shown(effect.text)}: {', '.join(counts)}" + (f" ({shown(effect.names[0], 60)}" if effect.names else "")
    text += " …)" if len(effect.names) > 1 else ")" if effect.names else ""
    text += f". Assumes: {effect.assumption}." if effect.assumption else ""
    return text + (f" Left out: {effect.left_out}." if effect.left_out else "")


def _print_path(console: Console, prediction: Prediction) -> None:
    path, rest = prediction.critical_path.head(_PATH_ROWS), prediction.critical_path.iloc[_PATH_ROWS:]
    layers = [shown(str(name), 50) if name else "(no layer)" for name in path["layer_name"]]
    rows = [*zip(layers, path["kind"].astype(str), path["duration_ns"], path["path_ratio"])]
    rows += [(f"{len(rest)} more", "", rest["duration_ns"].sum(), rest["path_ratio"].sum())] if len(rest) else []
    cells = [(layer, kind, format_ns(time), format_ratio_percent(share)) for layer, kind, time, share in rows]
    console.print(Text("Critical path after the change", style="italic"))
    console.print(cell_table([("layer", True), ("kind", True), ("time", False), ("share", False)], cells))


_MOST = 5
_ALSO = "copy=0.5x, launch=0.5x, comm=0.8x, host=0.5x, batch=2x, a time instead of a factor (+2ms)"


def candidates(results: Results) -> list[tuple[str, str]]:
    """Changes that match something in a capture, and what each concerns: of the kernels and layers with most time, and
    those of the advice."""
    from xsp_post.tables.analyses.advice import advise

    limit = main_limit(results)
    columns = ["short_name", "layer_index", "start_ns", "end_ns"]
    kernels = of_captures(results, "kernels", limit.captures, columns)
    time = kernels["end_ns"] - kernels["start_ns"]
    total = max(int(time.sum()), 1)
    names = time.groupby(kernels["short_name"].astype(str)).sum().nlargest(_MOST)
    found = [(f"kernel:{_pattern(str(name))}=0.5x", _said(int(of), total)) for name, of in names.items()]
    layers = of_captures(results, "layers", limit.captures, ["layer_index", "layer_path"])
    layers = layers.drop_duplicates("layer_index").set_index("layer_index")
    paths = kernels["layer_index"].map(layers["layer_path"].astype(str))
    heaviest = time.groupby(paths).sum().nlargest(_MOST)
    found += [(f"layer:{_pattern(str(path))}=0.5x", _said(int(of), total)) for path, of in heaviest.items()]
    advice = [one for one in advise(results, limit) if one.change]
    return found + [(one.change, f"{gain_of(one)}: {one.what}") for one in advice]


def _pattern(text: str) -> str:
    """A pattern that finds this name and no longer word."""
    first, last = (r"\b" if re.match(r"\w", letter) else "" for letter in (text[:1], text[-1:]))
    return f"{first}{re.escape(text)}{last}".replace(r"\ ", " ")


def _said(time: int, total: int) -> str:
    return f"{format_ns(time)}, {format_ratio_percent(time / total)} of the kernel time"


def print_candidates(console: Console, found: list[tuple[str, str]]) -> None:
    """One line each, as they can be pasted."""
    if not found:
        say(console, "No change is given, and nothing was recorded that a replay could change.")
        return
    say(console, Text("No change is given. What this capture could be replayed with:", style="bold"))
    for change, concerns in found:
        text = Text.assemble(("  " + shell_command("--change", change), "bold"), f"  {shown(concerns, 300)}")
        say(console, text)
    say(console, f"  Also: {_ALSO}; several together. docs/what-if.md explains each.")
