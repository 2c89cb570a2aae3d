"""First screens of `why`, `tree` and `ingest` as text at some widths, and what is to be measured of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path

from rich.console import Console

from xsp_post.model.results import Results
from xsp_post.reports.terminal import print_tree
from xsp_post.reports.why import print_why, why

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples/resnet50_generated.sqlite"
NARROW, UNCUT = 80, 100_000  # columns: what the bars are for, and where no text is cut or wrapped
WIDTHS = (NARROW, 100, 120)
MOST_LINES = {"why": 24, "tree": 30, "ingest": 30}
MOST_WORDS = 25
AFTER = {"why": 0, "tree": 1, "ingest": 2}  # lines on stderr: what was written, the next command
# Words of the program's inside, which no first screen says.
JARGON = re.compile(
    r"measured executions?|\bpieces?\b|\bpart \d+ of|\bbeside\b|\bM/L/G\b|waited: latency|\bschema \d"
    r"|outside every range|\bother rows\b|no launch row|\blevels by\b|\bpiece_count\b|0x[0-9a-f]{6}"
    r"|\b1 (?:kernels|others|copies|launches|executions|GPUs|operations)\b"
)


def captures_in(folder: Path) -> list[Path]:
    """The example and every readable capture of a folder like the shared one."""
    found = [*folder.glob("nsys/*.sqlite"), *folder.glob("kineto/*.json.gz"), *folder.glob("ncu/*.ncu-rep")]
    return [EXAMPLE, *sorted(found)]


@dataclass(frozen=True)
class Screen:
    """One first screen: of which command, at which width, as it stands there, and as it would where nothing is cut."""

    command: str
    width: int
    text: str
    uncut: str

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines()) + AFTER[self.command]

    @cached_property
    def words(self) -> int:
        return len(_words(self.text))

    @cached_property
    def longest(self) -> str:
        """The sentence with the most words."""
        return max(sentences(self.uncut), key=lambda one: len(_words(one)), default="")

    @cached_property
    def faults(self) -> list[str]:
        """What breaks a bar, in words; [] where none is broken."""
        most, count = MOST_LINES[self.command], len(_words(self.longest))
        found = [f"{self.lines} lines, at most {most}"] if self.width == NARROW and self.lines > most else []
        found += [f"{count} words: {self.longest}"] if count > MOST_WORDS else []
        found += [f"a line of {len(one)} columns" for one in self.text.splitlines() if len(one) > self.width][:1]
        return found + sorted({f"jargon: {one}" for one in JARGON.findall(self.text)})


def sentences(text: str) -> Iterator[str]:
    """The sentences of a screen: what stands between full stops, in tables between columns, in lists between marks."""
    for line in text.splitlines():
        line = re.sub(r" · (?:about|at most|acts on) [^·]*$", "", line)  # the bound behind an advice
        ends = r"(?<=[.!?;]) " if re.match(r"[a-z ]+: ", line) else r"(?<=[.!?]) "
        for cell in re.split(r"\s{2,}", line):
            yield from re.split(ends, cell)


def _words(text: str) -> list[str]:
    return [one for one in text.split() if re.search(r"\w", one)]


def screens(results: Results, widths: tuple[int, ...] = WIDTHS) -> list[Screen]:
    """All first screens of a capture."""
    said = why(results)
    texts = {
        (command, width): _printed(results, said, command, width)
        for command in ("why", "tree") for width in (*widths, UNCUT)
    }  # fmt: skip
    of = {"why": "why", "tree": "tree", "ingest": "tree"}
    return [
        Screen(command, width, texts[name, width], texts[name, UNCUT])
        for command, name in of.items() for width in widths
    ]  # fmt: skip


def _printed(results, said, command, width):
    console = Console(file=StringIO(), width=width, soft_wrap=False, highlight=False)
    if command == "why":
        print_why(console, said)
    else:
        print_tree(console, results, verbose=False)
    return console.file.getvalue()
