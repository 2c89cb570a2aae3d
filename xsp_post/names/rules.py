"""Heads of range texts → columns: one rule of rules.txt for each convention, in the order in which they are tried."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.base.texts import read_blocks
from xsp_post.names import dialects, plain, step_texts
from xsp_post.names.heads import NUMBERS, WORDS, Heads, Words
from xsp_post.names.patterns import groups, matches, numbers, possible

_Fill = Callable[[Heads, np.ndarray, pa.Array, str], None]


class Rule(NamedTuple):
    """Texts that match ``pattern``, and ``only`` and not ``unless`` where those are given, are taken: ``fill`` sets the
    columns of their rows from the texts and the pattern."""

    pattern: str
    fill: _Fill
    only: str = ""
    unless: str = ""


def parse_heads(texts: pa.Array, has_suffix: np.ndarray) -> Heads:
    """What the rules read in different texts; ``has_suffix``: PyTorch gave a range of this text a number."""
    heads = Heads(texts, has_suffix)
    rows = possible(texts, [rule.pattern for rule in rules()])
    for rule in rules():
        taken = heads.matching(rows, rule.pattern)
        taken = heads.matching(taken, rule.only) if rule.only else taken
        if rule.unless and len(taken):
            taken = taken[~matches(heads.take(taken), rule.unless)]
        if len(taken):
            heads.is_open[taken] = False
            rule.fill(heads, taken, heads.take(taken), rule.pattern)
            rows = rows[heads.is_open[rows]]
    _plain(heads)
    _mark_warmup(heads)
    return heads


# --- what rules fill in ----------------------------------------------------------------------------------


def _named(dialect: str, role: str, phase: str = "") -> _Fill:
    """The text is the name of what runs, but where the pattern has groups that are called after columns."""

    def fill(heads: Heads, rows: np.ndarray, texts: pa.Array, pattern: str) -> None:
        said = groups(texts, pattern) if "(?P<" in pattern else {"base_name_and_layer_type": texts}
        columns = {name: _column(name, values) for names, values in said.items() for name in names.split("_and_")}
        heads.put(rows, **{"dialect": dialect, "role": role, "phase": phase, "folded_name": texts, **columns})
        heads.put(rows, is_backward=heads.says("phase", "backward")[rows])

    return fill


def _column(name: str, texts: pa.Array) -> Any:
    """Texts as `Heads.put` takes a column of that name."""
    if name in WORDS:
        encoded = texts.dictionary_encode()
        return Words(encoded.dictionary.to_pylist(), np.asarray(encoded.indices))
    return numbers(texts) if name in NUMBERS else texts


def _each(parser: str) -> _Fill:
    """For texts too irregular for a pattern: each different head once, by a function of `dialects`."""
    parse = getattr(dialects, parser)

    def fill(heads: Heads, rows: np.ndarray, texts: pa.Array, _: str) -> None:
        columns: dict[str, Any] = dict(zip(dialects.Parsed._fields, zip(*map(parse, texts.to_pylist()))))
        words = {name: Words.of(columns.pop(name)) for name in WORDS}
        heads.put(rows, **words, **columns)

    return fill


def _step(dialect: step_texts.Dialect) -> _Fill:
    """Steps of serving and benchmark programs that say what they are (`step_texts`)."""

    def fill(heads: Heads, rows: np.ndarray, texts: pa.Array, _: str) -> None:
        found = step_texts.read_steps(texts, dialect, ())
        heads.put(rows, dialect="step", role="iteration",
                  folded_name=found.folded_name, base_name=found.folded_name, phase=Words.of(found.kind.tolist()),
                  is_backward=found.kind == "backward")  # fmt: skip

    return fill


def _in_shapes(heads: Heads, rows: np.ndarray, texts: pa.Array, pattern: str) -> None:
    """What stands before the shapes is a text like any other."""
    g = groups(texts, pattern)
    heads.put_all(rows, parse_heads(g["head"], np.zeros(len(rows), bool)))
    heads.put(rows, dialect="in_shapes", shape_text=g["shape"])
    heads.put(rows[heads.says("role", "")[rows]], role="module")


def _module_path(heads: Heads, rows: np.ndarray, texts: pa.Array, pattern: str) -> None:
    """Dotted paths with a number in them (`layers.17.mlp`), and PyProf's `layer:name` notes: numbers stay."""
    g = groups(texts, pattern)
    path = pc.if_else(pc.equal(g["path"], ""), g["other"], g["path"])
    last = [dialects.last_word(p) for p in path.to_pylist()]
    heads.put(rows, dialect="plain", role="module", folded_name=texts, base_name=last, layer_type=last,
              module_path=path)  # fmt: skip


_FILLS: dict[str, _Fill] = {"in_shapes": _in_shapes, "module_path": _module_path}
_MADE: dict[str, Callable[..., _Fill]] = {"named": _named, "each": _each}


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of rules.txt in order; steps of the dialects of step_texts.txt where [steps] stands."""
    found: list[Rule] = []
    for block in read_blocks(Path(__file__).with_name("rules.txt")):
        if block.name == "steps":
            found += [Rule(one.text, _step(one)) for one in step_texts.dialects().values() if one.text]
            continue
        patterns: dict[str, str] = {}
        key = ""
        for _, line in block.lines:
            word, _, pattern = line.partition(": ")
            key = key if word == "or" else word
            patterns[key] = f"{patterns[key]}|{pattern}" if word == "or" else pattern
        name, *words = block.title.split()
        fill = _MADE[name](*words) if name in _MADE else _FILLS[name]
        found.append(Rule(patterns["text"], fill, patterns.get("only", ""), patterns.get("unless", "")))
    return tuple(found)


# --- what is left ----------------------------------------------------------------------------------------


def _plain(heads: Heads) -> None:
    """Everything else: fold numbers that count steps, ranks, addresses; find phases and markers."""
    rows = np.flatnonzero(heads.is_open)
    if not len(rows):
        return
    heads.put(rows, **plain.parse_plain(heads.take(rows)))
    # what PyTorch gave a number is one of its operators, unless it marks a step or a phase
    heads.put(rows[heads.has_suffix[rows] & heads.says("role", "")[rows]], dialect="pytorch", role="operator")


def _mark_warmup(heads: Heads) -> None:
    # an operator's or our own layer's name says nothing about warm-up
    rows = np.flatnonzero(~heads.says("role", "operator", "layer") & ~heads.says("dialect", "dict"))
    is_warmup = heads.columns["is_warmup"]
    is_warmup[heads.matching(rows, plain.WARMUP)] = True
    warm = np.flatnonzero(is_warmup & heads.says("phase", ""))
    heads.put(heads.matching(warm, plain.WARMUP_WORD), phase="warmup")
