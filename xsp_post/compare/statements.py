"""The tables of a comparison → its sentences: the verdict first, then structure, then time."""

from __future__ import annotations

import re

import pandas as pd

from xsp_post.compare.differences import FASTER, LESS, MORE, SET_CHANGES, SLOWER
from xsp_post.compare.headline import Headline
from xsp_post.compare.impact import Impact
from xsp_post.compare.matching import BASE
from xsp_post.compare.sentences import Statement, causes, evidence, first_sentence, largest, sentence_of
from xsp_post.compare.structure import Structure
from xsp_post.model.schemas.units import format_count, format_ns


def statements(
    frames: dict[str, pd.DataFrame],
    shape: Structure,
    found: Impact | None,
    clocks: list[Statement],
    heads: list[Headline],
    are_operators: bool,
) -> list[Statement]:
    """The comparison in sentences: the verdict first, then structure, then time."""
    models, layers, kernels = (frames[f"compare_{name}"] for name in ("models", "layers", "kernels"))
    said = list(shape.statements)
    cases = frames["compare_cases"]
    if (cases["status"] != "matched").all() and len(cases):
        said.append(
            (
                "model",
                "The captures have no model execution in common (phases, batch sizes or amounts of work "
                "differ): model and layers are not compared.",
                False,
            )
        )
    if len(heads) > 1:
        said += [("model", f"{one.label}: {sentence_of(one)}", one.word in (FASTER, SLOWER)) for one in heads]
    if len(layers):
        said.append(("layers", _rows_sentence(layers, "layer", "layer_path"), bool(_is_shown(layers).any())))
    if len(kernels):
        said.append(("kernel time", _rows_sentence(kernels, "kernel", "name"), bool(_is_shown(kernels).any())))
    if found is not None:
        head = heads[0] if len(heads) == 1 else None
        said = [*evidence(found), *largest(found), *causes(found, head), *clocks, *said]
    if shape.is_ranges_only:
        count = format_count(len(shape.order[BASE]))
        sentence = f"The captures differ in their ranges only: the same {count} kernels ran, in the same order."
        said.insert(0, ("ranges only", sentence, True))
    said.insert(0, first_sentence(heads) or _verdict(models, layers, kernels))
    if are_operators:
        own = [text for _, text, _ in shape.statements]
        said = [(about, text if text in own else _without_gpu(text), differs) for about, text, differs in said]
    return said


_OF_CPU = (("launch dimensions", "sizes"), ("launches", "calls"), ("kernel", "operator"), ("of a GPU", "of the device"))


def _without_gpu(text: str) -> str:
    """A sentence about operators of a CPU."""
    for gpu, cpu in _OF_CPU:
        text = re.sub(rf"\b{gpu}", cpu, text)
    return text


def _is_shown(table: pd.DataFrame) -> pd.Series:
    return table["change"].isin([SLOWER, FASTER, *SET_CHANGES, MORE, LESS])


def _verdict(models: pd.DataFrame, layers: pd.DataFrame, kernels: pd.DataFrame) -> tuple[str, str, bool]:
    count = sum(int(_is_shown(table).sum()) for table in (models, layers, kernels))
    tested = sum(int(table["p_value"].notna().sum()) for table in (models, layers, kernels))
    if not count and not tested:
        return ("verdict", "Times are not compared: too few measurements on one side.", False)
    if not count:
        return (
            "verdict",
            f"No significant difference in {format_count(tested)} comparisons (corrected together: for "
            "two runs of one program, at most one comparison in twenty shows a difference).",
            False,
        )
    return "verdict", "Model executions are not comparable; what differs in layers and kernels follows.", True


def _rows_sentence(table: pd.DataFrame, what: str, column: str) -> str:
    """How many layers or kernels changed in which way, and the first of them."""
    shown = table[_is_shown(table)]
    if shown.empty:
        return f"No difference shown in any of {format_count(len(table))} {what}s."
    tally = shown["change"].value_counts()
    first = shown.iloc[0]
    parts = ", ".join(f"{format_count(count)} {change}" for change, count in tally.items())
    by = f" by {format_ns(abs(first['difference_ns']))}" if first["difference_ns"] == first["difference_ns"] else ""
    return f"Of {format_count(len(table))} {what}s: {parts}; first {str(first[column])[:120]} ({first['change']}{by})."
