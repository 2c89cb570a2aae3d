"""Helper of ``ingest.side_files``: what PyTorch's compiler wrote down → the module and source line of each kernel.

Read are TORCH_TRACE logs (``dedicated_log_torch_trace_*.log``) and ``kernel_information.json``. A compiled graph is a
list of calls in order. The graph before compilation names the weights of each operation, and so its module; an
operation without weights belongs to the module whose code is nearest, of those around the weights used before and after
it. A fused kernel counts for the module with most of its operations (of equal ones the
last). Where the compiler wrote no operations (backward graphs), source lines and the nearest known calls decide.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xsp_post.base import limits
from xsp_post.ingest.json_text import open_text
from xsp_post.names.compiled import symbol_of

_LONGEST_LINE, _MOST_KEPT = 1 << 26, 1 << 28
_WANTED = re.compile(
    r'"(dynamo_output_graph|inductor_output_code|inductor_provenance_tracking_(?:node_mappings|kernel_stack_traces))"'
)
_HEAD = re.compile(r"^[VDIWE]\d{4} [^{]*(\{.*)$")
_PLACE = re.compile(r"# File: (.+?):(\d+) in ")
_OPERATION = re.compile(r'^\s*(\w+)(?:: "[^"]*")? = ([^;]*)')
_FAR, _UNKNOWN_CODE = 1e9, 0.5  # lines; a module without known code is nearer than any but the same line
_INPUT = re.compile(r"[lL]_\w+\s*")
_WEIGHT = re.compile(r"\b[lL]_\w+_(?:parameters|buffers)_")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_CALL = re.compile(r"# \[Provenance debug handles\] (\S+:\d+)")
_SOURCE_NODES = re.compile(r"# Topologically Sorted Source Nodes: \[([^\]]*)\]")
_CONVOLUTION = re.compile(r"conv\d?d|convolution|batch_norm|max_pool|avg_pool")


@dataclass
class Operation:
    """One operation of a graph before compilation."""

    place: str  # file:line, '' unknown
    module: str
    has_weight: bool
    is_convolution: bool


@dataclass
class Call:
    """One kernel call of a compiled graph: its symbol (`symbol_of`), module and source ('' unknown)."""

    symbol: str
    module: str = ""
    source: str = ""
    is_convolution: bool = False
    is_known: bool = False


@dataclass
class _Entry:
    operations: dict[str, Operation] = field(default_factory=dict)
    code: str = ""
    mappings: dict[str, Any] = field(default_factory=dict)


def is_log(start: str) -> bool:
    """Whether a text begins as a TORCH_TRACE log does."""
    return bool(_HEAD.match(start.split("\n", 1)[0]))


def read_log(path: Path) -> list[list[Call]]:
    """The compiled graphs of a TORCH_TRACE log, in the order they were made. Raises `CaptureError`."""
    entries: dict[str, _Entry] = {}
    graphs = []
    for name, head, payload in _artifacts(path):
        compile_id = str([head.get(key) for key in ("frame_id", "frame_compile_id")])
        entry = entries.setdefault(compile_id, _Entry())
        if name == "dynamo_output_graph":
            entry.operations = operations_of(payload)
        elif name == "inductor_output_code":
            entry.code = payload
        elif name.endswith("node_mappings"):
            entry.mappings = _decoded(payload)
        else:
            graphs.append(_calls(entry, _decoded(payload)))
    return [calls for calls in graphs if calls]


def read_kernel_information(path: Path) -> list[list[Call]]:
    """The graph of a ``kernel_information.json``: it names source lines, no modules. Raises `CaptureError`."""
    with open_text(path) as stream:
        known = _decoded(stream.read(_LONGEST_LINE))
    stacks = {key: one["stack_traces"] for key, one in known.items() if isinstance(one, dict) and "stack_traces" in one}
    return [_calls(_Entry(), stacks)] if stacks else []


def _artifacts(path: Path) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, head and text of each wanted entry of a log."""
    name, lines, kept = "", [], 0
    head: dict[str, Any] = {}
    with open_text(path) as stream:
        for line in iter(lambda: stream.readline(_LONGEST_LINE), ""):
            if line.startswith("\t"):
                if name:
                    lines.append(line[1:])
                    kept += len(line)
                if kept > _MOST_KEPT:
                    raise limits.over_limit(path, "holds more text of compiled graphs", f"{_MOST_KEPT:,} characters")
                continue
            if name:
                yield name, head, "".join(lines)
            found, wanted = _HEAD.match(line), _WANTED.search(line)
            name, lines = (wanted[1], []) if found and wanted else ("", [])
            head = _decoded(found[1]) if found and wanted else {}
    if name:
        yield name, head, "".join(lines)


def _decoded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def place_text(file: str, line: str) -> str:
    """``file:line`` without folders: these may name a user."""
    inside = file.replace("\\", "/").rpartition("site-packages/")[2] if "site-packages/" in file else ""
    return f"{inside or file.replace(chr(92), '/').rpartition('/')[2]}:{line}"


def innermost_place(stack: Any) -> str:
    """``file:line`` of a stack as a kernel's arguments hold it (text, or a list of them); '' where it has none."""
    text = "\n".join(map(str, stack)) if isinstance(stack, list) else str(stack)
    frames = _FRAME.findall(text)
    parts = text.strip().split("\n")[0].split(":")
    return place_text(*frames[-1]) if frames else place_text(parts[0], parts[1]) if parts[1:] else ""


# ---------------------------------------------------------------- modules of operations


def operations_of(graph: str) -> dict[str, Operation]:
    """By name: the operations of a graph's text, each with its module ('' the model itself)."""
    result: dict[str, Operation] = {}
    place = ""
    for line in graph.split("\n"):
        found = _PLACE.search(line)
        if found:
            place = place_text(found[1], found[2])
            continue
        operation = _OPERATION.match(line)
        if operation is None or _INPUT.fullmatch(operation[2]):
            continue
        name, text = operation.groups()
        weight = _WEIGHT.search(text)
        module = ".".join(re.split(r"_(?:parameters|buffers)_", weight[0])[0].split("_modules_")[1:]) if weight else ""
        result[name] = Operation(place, module, weight is not None, bool(_CONVOLUTION.search(text)))
    _fill_modules(list(result.values()))
    return result


def _fill_modules(operations: list[Operation]) -> None:
    """Modules of operations without weights, in place: of the modules around the weighted operations before and after
    it, the one whose code is nearest (in the same file, by lines; of equal ones the first, inner ones first)."""
    code: dict[str, set[str]] = {}  # module → lines that use weights of modules directly in it
    upcoming, after = "", []
    for one in reversed(operations):
        after.append(upcoming)
        if one.has_weight:
            upcoming = one.module
            code.setdefault(_parent(one.module), set()).add(one.place)
    last = ""
    for one, upcoming in zip(operations, reversed(after)):
        if one.has_weight:
            last = one.module
            continue
        around, ahead = _callers(last), _callers(upcoming)
        both = next((module for module in around if module in ahead), "")
        without_code = [both] if both and both not in code else []  # it uses no weight itself, but runs between
        near = [*around, *without_code, *ahead]
        far = [_UNKNOWN_CODE if k in without_code else _distance(one.place, code.get(k, set())) for k in near]
        one.module = near[far.index(min(far))] if near else ""


def _callers(module: str) -> list[str]:
    """The modules around one, the inner ones first, the model itself ('') last."""
    result = []
    while module:
        module = _parent(module)
        result.append(module)
    return result


def _distance(place: str, lines: set[str]) -> float:
    file, _, line = place.rpartition(":")
    there = [one.rpartition(":") for one in lines]
    return min((abs(int(line) - int(end)) for name, _, end in there if place and name == file), default=_FAR)


def _parent(module: str) -> str:
    """The module whose code calls it: a list of modules (its name ends before a number) has no code."""
    above = module.rpartition(".")[0]
    return above.rpartition(".")[0] if module.rpartition(".")[2].isdigit() else above


def _shared(one: str, other: str) -> str:
    parts = []
    for left, right in zip(one.split("."), other.split(".")):
        if left != right:
            break
        parts.append(left)
    return ".".join(parts)


# ---------------------------------------------------------------- modules of kernel calls


def _calls(entry: _Entry, stacks: dict[str, Any]) -> list[Call]:
    """The calls of one compiled graph, in the order of their numbers (``name:3``)."""
    nodes = {key: [str(one) for one in value] for key, value in _lists(entry.mappings.get("cppCodeToPost")).items()}
    origin, stacks = _lists(entry.mappings.get("postToPre")), _lists(stacks)
    source_nodes = dict(_source_nodes(entry.code))
    keys = sorted({*stacks, *nodes}, key=lambda key: _number(key))
    calls = []
    for key in keys:
        traces = [_FRAME.findall(str(one)) for one in stacks.get(key, [])]
        at = [place_text(*frames[-1]) for frames in traces if frames]
        before = [entry.operations.get(str(one)) for node in nodes.get(key, []) for one in origin.get(node, [])]
        known = [one for one in before if one is not None]
        if not nodes and not known:  # weights alone: other names may be those of another graph
            named = (entry.operations.get(one) for one in source_nodes.get(key, []))
            known = [one for one in named if one is not None and one.has_weight and one.place in at]
        calls.append(_call(key, known, at))
    by_place: dict[str, set[str]] = {}
    for one in entry.operations.values():
        by_place.setdefault(one.place, set()).add(one.module)
    _fill_calls(calls, by_place)
    return calls


def _lists(found: Any) -> dict[str, list[Any]]:
    return {name: one for name, one in found.items() if isinstance(one, list)} if isinstance(found, dict) else {}


def _number(key: str) -> int:
    digits = key.rpartition(":")[2]
    return int(digits) if digits.isdigit() and len(digits) < 10 else 0


def _source_nodes(code: str) -> Iterator[tuple[str, list[str]]]:
    """What the comments above a call say: its key and the names of operations."""
    names: list[str] = []
    for line in code.split("\n"):
        said, call = _SOURCE_NODES.search(line), _CALL.search(line)
        if said:
            names = said[1].split(", ")
        elif call:
            yield call[1], names
            names = []


def _call(key: str, known: list[Operation], places: list[str]) -> Call:
    call = Call(symbol_of(key), source=Counter(places).most_common(1)[0][0] if places else "")
    if known:
        count = Counter(one.module for one in known)
        most = max(count.values())
        call.module = next(one.module for one in reversed(known) if count[one.module] == most)
        call.is_convolution = any(one.is_convolution for one in known)
        call.is_known = True
    return call


def _fill_calls(calls: list[Call], by_place: dict[str, set[str]]) -> None:
    """Modules of calls without operations, in place: of those with code at the call's line the one that shares most
    with the nearest call whose module is known, before it or else after it."""
    known = [number for number, call in enumerate(calls) if call.is_known]
    for number, call in enumerate(calls):
        candidates = sorted(by_place.get(call.source, set()))
        if call.is_known or not candidates:
            continue
        near = [k for k in known if k < number][-1:] + [k for k in known if k > number][:1]
        shared = [[len(_shared(one, calls[k].module)) for k in near] for one in candidates]
        call.module = candidates[max(range(len(candidates)), key=lambda k: (shared[k], -len(candidates[k])))]
        call.is_known = True
