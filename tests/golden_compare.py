"""Named sections of a capture's outputs → hashes in a file of tests/golden, and what differs between two of them."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Texts = Mapping[str, Mapping[str, str]]  # group → section → values as JSON text
Hashes = dict[str, dict[str, str]]  # group → section → hash, or the number itself for "(rows)"
HEADER = "# One hash per section of what the product prints; `scripts/golden renew` writes this file.\n"
SHOWN_TEXT = 160


@dataclass(frozen=True)
class Difference:
    """A section (or, with section "", a whole group) that is not as it was."""

    group: str
    section: str
    change: str  # "changed", "missing now", "new"
    detail: str = ""

    def __str__(self) -> str:
        name = f"{self.group} / {self.section}" if self.section else self.group
        return f"{name}: {self.change}{self.detail}"


def hashes_of(texts: Texts) -> Hashes:
    """One short hash per section; row counts stay readable."""
    return {group: {name: _token(name, text) for name, text in sections.items()} for group, sections in texts.items()}


def _token(name: str, text: str) -> str:
    return text if name == "(rows)" else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


# -- files ------------------------------------------------------------------------------------------------------


def golden_path(folder: Path, case: str) -> Path:
    """``nsys/two_kernels`` → ``nsys.two_kernels.txt`` in the folder of hashes."""
    return folder / f"{case.replace('/', '.')}.txt"


def write_hashes(path: Path, hashes: Hashes) -> None:
    """Sorted lines: a group, and below it, indented, its sections with their hashes."""
    lines = [HEADER]
    for group in sorted(hashes):
        lines.append(f"{group}\n")
        lines += [f" {name} {hashes[group][name]}\n" for name in sorted(hashes[group])]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def read_hashes(path: Path) -> Hashes:
    """What `write_hashes` wrote."""
    hashes: Hashes = {}
    group = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            name, _, token = line[1:].rpartition(" ")
            hashes[group][name] = token
        elif line and not line.startswith("#"):
            group = line
            hashes[group] = {}
    return hashes


def keep(folder: Path, case: str, texts: Texts) -> None:
    """Write the full outputs: one compressed JSON file a group, ``{section: values}``."""
    target = folder / case
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.json.gz"):
        old.unlink()
    for group, sections in texts.items():
        text = ",\n".join(f"{json.dumps(name)}:{sections[name]}" for name in sorted(sections))
        with gzip.open(target / f"{group}.json.gz", "wt", compresslevel=1, encoding="utf-8") as file:
            file.write("{" + text + "}\n")


def kept(folder: Path, case: str, group: str) -> dict[str, Any]:
    """The full output of one group as it was kept, or nothing."""
    path = folder / case / f"{group}.json.gz"
    if not path.is_file():
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        sections: dict[str, Any] = json.load(file)
    return sections


# -- differences ------------------------------------------------------------------------------------------------


def differences(golden: Hashes, now: Hashes, left_out: frozenset[str] = frozenset()) -> list[Difference]:
    """Every section whose hash is another one. ``left_out``: groups that could not be made here."""
    found: list[Difference] = []
    for group in sorted({*golden, *now} - left_out):
        if group not in now or group not in golden:
            found.append(Difference(group, "", "new" if group in now else "missing now"))
            continue
        before, after = golden[group], now[group]
        rows = (before.get("(rows)"), after.get("(rows)"))
        if rows[0] != rows[1]:
            found.append(Difference(group, "(rows)", "changed", f", {rows[0]} → {rows[1]}"))
        for name in sorted({*before, *after} - {"(rows)"}):
            if name not in after or name not in before:
                if "0" not in rows:  # a table without rows has no line for its columns
                    found.append(Difference(group, name, "new" if name in after else "missing now"))
            elif before[name] != after[name]:
                found.append(Difference(group, name, "changed"))
    return found


def first_rows(before: Any, after: Any, count: int = 3) -> list[str]:
    """The first values that differ, each with the place where it stands."""
    found = list(itertools.islice(_places(before, after, ""), count + 1))
    shown = [f"{place or 'value'}: {_pair(old, new)}" for place, old, new in found[:count]]
    return [*shown, "…"] if len(found) > count else shown


def _places(before: Any, after: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if before == after and type(before) is type(after):
        return
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{place} (length)".lstrip(), len(before), len(after)
        for index, (old, new) in enumerate(zip(before, after)):
            if old != new:
                yield from _places(old, new, f"{place}[{index}]" if place else f"row {index}")
    elif isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _places(before.get(key), after.get(key), f"{place}.{key}".lstrip("."))
    else:
        yield place, before, after


def _pair(old: Any, new: Any) -> str:
    """Old and new value; of long texts the part around the first character that differs."""
    texts = json.dumps(old, ensure_ascii=True), json.dumps(new, ensure_ascii=True)
    start = 0
    if max(map(len, texts)) > SHOWN_TEXT:
        same = next((i for i, (a, b) in enumerate(zip(*texts)) if a != b), min(map(len, texts)))
        start = max(0, same - SHOWN_TEXT // 3)
    return " → ".join(_part(text, start) for text in texts)


def _part(text: str, start: int) -> str:
    end = start + SHOWN_TEXT
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
