"""Options that decide how captures become an analysis: one value, passed from the command to each step.

A new choice is one field here and a line of help in commands/options.txt: `commands.options` makes the command-line
option of them, and every step that builds a tree or an analysis is given the whole value.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_post.base.errors import UsageError

if TYPE_CHECKING:
    from xsp_post.hardware.gpus import Peaks

# Groups of choices: a command takes whole groups.
TREE = "tree"  # changes the tree, and so everything after it
ROOFS = "roofs"  # changes only the analyses of a finished tree
MEMORY = "memory"  # changes no answer
PART = "part"  # shows a part of what was recorded: one execution, or a time

# Words of --executions, and the rule that each selects.
EXECUTION_RULES = {
    "markers": "step markers",
    "root": "calls of the whole model",
    "training": "calls of the whole model and the training work after them",
    "counted": "ranges that repeat",
    "cycle": "cycle of ranges",
    "launches": "period of the launch sequence",
}


def _choice(default: Any, group: str, *, flag: str = "", value_type: type | None = None) -> Any:
    """A field that a command-line option sets. ``flag`` replaces the name that follows from the field's; a flag that
    begins with ``--no-`` sets a field that is otherwise true. ``value_type`` is the option's, where it is not the
    default's; a tuple is an option that may be given several times."""
    about = {"group": group, "flag": flag, "type": value_type or type(default)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


class Paths(tuple[Path, ...]):
    """The value of an option that names files and may be given several times."""

    __slots__ = ()


@dataclass(frozen=True)
class Options:
    """How sources become an analysis. Raises `UsageError` for impossible values."""

    model_range: str = _choice("", TREE)
    executions: str = _choice("", TREE)  # a word of EXECUTION_RULES
    layer_range: str = _choice("", TREE)
    layer_depth: int = _choice(0, TREE)
    infer: bool = _choice(True, TREE, flag="--no-infer")
    layers_from: tuple[Path, ...] = _choice((), TREE, value_type=Paths)
    provenance: tuple[Path, ...] = _choice((), TREE, value_type=Paths)
    requests: tuple[Path, ...] = _choice((), ROOFS, value_type=Paths)  # logs that name requests: names.request_logs
    step: str = _choice("", ROOFS)  # requests x context of steps to predict
    roof: str = _choice("pipe", ROOFS)
    peaks: Mapping[str, Peaks] = _choice({}, ROOFS, value_type=Path)  # by GPU name: hardware.gpus.load_overrides
    memory: str = _choice("", MEMORY)  # `base.limits.want_memory`
    iteration: int | None = _choice(None, PART, value_type=int)
    begin_ns: int | None = _choice(None, PART, flag="--from", value_type=str)
    end_ns: int | None = _choice(None, PART, flag="--until", value_type=str)

    def __post_init__(self) -> None:
        for one in choices_of(Paths):
            given = getattr(self, one.name)
            object.__setattr__(self, one.name, Paths([given] if isinstance(given, Path) else given or ()))
        if self.layer_depth < 0:
            raise UsageError(f"--layer-depth {self.layer_depth} is below 1", code="bad-layer-depth")
        if self.executions and self.executions not in EXECUTION_RULES:
            raise UsageError(f"--executions {self.executions!r} is none of {rules_text()}", code="bad-executions")
        if self.executions and self.model_range:
            raise UsageError("--executions and --model-range exclude each other", code="bad-executions")
        if None not in (self.begin_ns, self.end_ns) and self.begin_ns >= self.end_ns:  # type: ignore[operator]
            raise UsageError("--from is not before --until", code="bad-time")

    @property
    def is_part(self) -> bool:
        """Whether a part of the recording was asked for."""
        return not self.is_default(PART)

    @property
    def names_levels(self) -> bool:
        """Whether the user said which ranges are models or layers."""
        return bool(self.model_range or self.layer_range or self.layer_depth)

    def is_default(self, group: str) -> bool:
        """Whether nothing of a group was chosen."""
        return all(getattr(self, one.name) == getattr(DEFAULTS, one.name) for one in choices(group))


def choices_of(kind: type) -> list[Any]:
    """The fields whose option has values of a type."""
    return [one for one in fields(Options) if one.metadata.get("type") is kind]


def option_name(one: Any) -> str:
    """The name of a field's parameter of commands: ``no_infer`` for one that is otherwise true."""
    name = (str(one.metadata["flag"]) or one.name).removeprefix("--").replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def rules_text() -> str:
    """The words of EXECUTION_RULES, for help texts."""
    return ", ".join(EXECUTION_RULES)


def choices(*groups: str) -> list[Any]:
    """The fields of these groups, in order: what command-line options are made of."""
    return [one for one in fields(Options) if one.metadata.get("group") in groups]


DEFAULTS = Options()
