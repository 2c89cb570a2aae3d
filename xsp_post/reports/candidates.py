"""Results → the changes that `xsp-post what-if` can make to a capture: heaviest kernels and layers, advice."""

import re
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from xsp_post.base.text_safety import shell_command, shown
from xsp_post.model.results import Results, frame_or_empty
from xsp_post.model.schemas.units import format_ns, format_ratio_percent
from xsp_post.reports.terminal_text import say
from xsp_post.reports.verdict import main_limit
from xsp_post.reports.why import gain_of

_MOST = 5
_ALSO = "copy=0.5x, launch=0.5x, comm=0.8x, host=0.5x, batch=2x, a time instead of a factor (+2ms)"


@dataclass(frozen=True)
class Candidate:
    """A change that matches something in a capture, and what it concerns."""

    change: str
    concerns: str


def candidates(results: Results) -> list[Candidate]:
    """The kernels and layers with most time, and what the advice would change; those with most time first."""
    from xsp_post.tables.analyses.advice import advise

    limit = main_limit(results)
    columns = ["capture_id", "short_name", "layer_index", "start_ns", "end_ns"]
    kernels = frame_or_empty(results, "kernels", columns)
    kernels = kernels[kernels["capture_id"].isin(limit.captures)]
    time = kernels["end_ns"] - kernels["start_ns"]
    total = max(int(time.sum()), 1)
    names = time.groupby(kernels["short_name"].astype(str)).sum().nlargest(_MOST)
    found = [Candidate(f"kernel:{_pattern(str(name))}=0.5x", _said(int(of), total)) for name, of in names.items()]
    layers = frame_or_empty(results, "layers", ["capture_id", "layer_index", "layer_path"])
    layers = layers[layers["capture_id"].isin(limit.captures)].drop_duplicates("layer_index")
    paths = kernels["layer_index"].map(layers.set_index("layer_index")["layer_path"].astype(str))
    heaviest = time.groupby(paths).sum().nlargest(_MOST)
    found += [Candidate(f"layer:{_pattern(str(path))}=0.5x", _said(int(of), total)) for path, of in heaviest.items()]
    advice = [one for one in advise(results, limit) if one.change]
    return found + [Candidate(one.change, f"{gain_of(one)}: {one.what}") for one in advice]


def _pattern(text: str) -> str:
    """A pattern that finds this name and no longer word."""
    first, last = (r"\b" if re.match(r"\w", letter) else "" for letter in (text[:1], text[-1:]))
    return f"{first}{re.escape(text)}{last}".replace(r"\ ", " ")


def _said(time: int, total: int) -> str:
    return f"{format_ns(time)}, {format_ratio_percent(time / total)} of the kernel time"


def print_candidates(console: Console, found: list[Candidate]) -> None:
    """One line each, as they can be pasted."""
    if not found:
        say(console, "No change is given, and nothing was recorded that a replay could change.")
        return
    say(console, Text("No change is given. What this capture could be replayed with:", style="bold"))
    for one in found:
        say(
            console,
            Text.assemble(("  " + shell_command(["--change", one.change]), "bold"), f"  {shown(one.concerns, 300)}"),
        )
    say(console, f"  Also: {_ALSO}; several together. docs/what-if.md explains each.")
