"""Helper of ``ingest.side_files``: what PyTorch's compiler wrote down → the modules and source line of each kernel.

Read are TORCH_TRACE logs (``dedicated_log_torch_trace_*.log``) and ``kernel_information.json``. A compiled graph is a
list of calls in order. A call consists of operations of the graph before compilation, and these have modules
(`modules`). Where the compiler names no operations (backward graphs), its code says which weights a call reads and
which gradients it returns; for the rest of such a call, its source lines and the nearest known calls decide.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xsp_post.base import limits
from xsp_post.ingest.json_text import open_text
from xsp_post.ingest.side_files.modules import (
    Operation,
    around,
    module_of_weight,
    modules_of,
    operations_of,
    place_text,
    shared,
)
from xsp_post.names.compiled import FUSED, symbol_of

MAPPED, _GRAPH = "cppCodeToPost", "fx_graph_transformed.py"
_LONGEST_LINE, _MOST_KEPT = 1 << 26, 1 << 28
_WANTED = re.compile(
    r'"(dynamo_output_graph|dynamo_cpp_guards_str|inductor_output_code|'
    r'inductor_provenance_tracking_(?:node_mappings|kernel_stack_traces))"'
)
_HEAD = re.compile(r"^[VDIWE]\d{4} [^{]*(\{.*)$")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_ADDED = "Gradient addition node"  # torch's own words, above the lines that it lies between
_CALL = re.compile(r"# \[Provenance debug handles\] (\S+:\d+)")
_ALIAS = re.compile(r"\s*(buf\d+) = (buf\d+)\[\d+\]")
_RETURNED = re.compile(r"None|(?:reinterpret_tensor\()?(\w+)(?:, \([^)]*\), \([^)]*\), \w+\))?")
_NAMES = re.compile(r"\b(?:buf|primals_|arg)\d+(?:_1)?\b")
# Operations that only look at values in another way: a kernel of others, too, is none of these.
_VIEW = re.compile(
    r"(?:view|reshape|permute|expand|select|slice|transpose|t|(?:un)?squeeze|getitem|split\w*|unbind|as_strided|alias)(?:_\d+)*"
)


@dataclass
class Call:
    """One kernel call of a compiled graph: its symbol (`symbol_of`), its source ('' unknown), and how many of its
    operations belong to each module; of equal ones the first counts most."""

    symbol: str
    source: str = ""
    is_backward: bool = False
    modules: Counter[str] = field(default_factory=Counter)

    @property
    def module(self) -> str:
        """The module that most of its operations belong to, '' unknown."""
        return max(self.modules, key=self.modules.__getitem__, default="")


@dataclass
class _Entry:
    """What was compiled of one function: the graph before, its guards, and of each compiled graph its code, what maps
    its calls to operations, and their stacks."""

    graph: str = ""
    guards: str = ""
    code: str = ""
    mappings: dict[str, Any] = field(default_factory=dict)
    compiled: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)


def is_log(start: str) -> bool:
    """Whether a text begins as a TORCH_TRACE log does."""
    return bool(_HEAD.match(start.split("\n", 1)[0]))


def read_log(path: Path) -> list[list[Call]]:
    """The compiled graphs of a TORCH_TRACE log, function by function, in the order they were made. Raises
    `CaptureError`."""
    entries: dict[str, _Entry] = {}
    for name, head, payload in _artifacts(path):
        compile_id = str([head.get(key) for key in ("frame_id", "frame_compile_id")])
        entry = entries.setdefault(compile_id, _Entry())
        if name == "dynamo_output_graph":
            entry.graph = payload
        elif name == "dynamo_cpp_guards_str":
            entry.guards = payload
        elif name == "inductor_output_code":
            entry.code = payload
        elif name.endswith("node_mappings"):
            entry.mappings = _decoded(payload)
        else:
            entry.compiled.append((entry.code, entry.mappings, _decoded(payload)))
    for entry in entries.values():
        if entry.mappings and not entry.compiled:  # no stacks were written
            entry.compiled.append((entry.code, entry.mappings, {}))
    return [calls for entry in entries.values() for calls in _graphs(entry) if calls]


def read_kernel_information(path: Path) -> list[list[Call]]:
    """The graph of a ``kernel_information.json``, or of a debug folder's ``…_node_mappings.json`` and the graph beside
    it: they name source lines, no modules. Raises `CaptureError`."""
    known, graph = _decoded(_text(path)), ""
    stacks = {key: one["stack_traces"] for key, one in known.items() if isinstance(one, dict) and "stack_traces" in one}
    if MAPPED in known and path.with_name(_GRAPH).is_file():
        graph = _text(path.with_name(_GRAPH))
        places = {name: one.place.rpartition(":") for name, one in operations_of(graph).items() if one.place}
        stacks = {
            key: [f'File "{places[node][0]}", line {places[node][2]}' for node in map(str, nodes) if node in places]
            for key, nodes in _lists(known[MAPPED]).items()
        }
    return [_calls(graph, {}, stacks, {}, [])] if stacks else []


def _text(path: Path) -> str:
    with open_text(path) as stream:
        return stream.read(_LONGEST_LINE)


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


def innermost_place(stack: Any) -> str:
    """``file:line`` of a stack as a kernel's arguments hold it (text, or a list of them); '' where it has none."""
    text = "\n".join(map(str, stack)) if isinstance(stack, list) else str(stack)
    frames = _FRAME.findall(text)
    parts = text.strip().split("\n")[0].split(":")
    return place_text(*frames[-1]) if frames else place_text(parts[0], parts[1]) if parts[1:] else ""


# ---------------------------------------------------------------- modules of kernel calls


def _graphs(entry: _Entry) -> Iterator[list[Call]]:
    operations = operations_of(entry.graph, modules_of(entry.guards))
    signature = next((line for line in entry.graph.split("\n") if "def forward(" in line), "")
    inputs = re.findall(r'[(, ](\w+): "', signature)
    for code, mappings, stacks in entry.compiled:
        yield _calls(code, mappings, stacks, operations, inputs)


def _calls(
    code: str, mappings: dict[str, Any], stacks: dict[str, Any], operations: dict[str, Operation], inputs: list[str]
) -> list[Call]:
    """The calls of one compiled graph, in the order of their numbers (``name:3``)."""
    nodes, stacks = _lists(mappings.get(MAPPED)), _lists(stacks)
    origin = _lists(mappings.get("postToPre"))
    weights, users = ({}, {}) if nodes else (_weights_of_calls(code, inputs), _users_of_weights(operations))
    is_backward = re.search(r"\btangents_\d", code) is not None
    order = {name: number for number, name in enumerate(operations)}
    # what a library computes is no work of the kernels that lay out its input or read its result
    of_library = {node for key, names in nodes.items() for node in names if _is_named(str(node), key)}
    calls, places, explained = [], [], []
    for key in sorted({*stacks, *nodes}, key=_number):
        frames = [_FRAME.findall(str(one)) for one in stacks.get(key, [])]
        places.append([place_text(*one[-1]) for one in frames if one])
        source = Counter(places[-1]).most_common(1)[0][0] if places[-1] else ""
        own = [str(node) for node in nodes.get(key, [])]
        own = [node for node in own if not _VIEW.fullmatch(node)] or own
        # a library's kernel is the operation of its name; the others only shaped what it reads
        own = [one for one in own if _is_named(one, key)] or [one for one in own if one not in of_library] or own
        said = [str(one) for node in own for one in origin.get(node, [])]
        known = [
            operations[one] for one in sorted(said, key=lambda one: order.get(one, 0), reverse=True) if one in order
        ]
        read = [_user(users[one], stacks.get(key, [])) if one in users else one for one in weights.get(key, [])]
        modules = Counter([one.module for one in known] or read)
        calls.append(Call(symbol_of(key), source, is_backward, modules))
        explained.append(known)
    _fill_calls(calls, places, list(operations.values()), is_whole=bool(nodes))
    for call, at, known in zip(calls, places, explained):  # the line of the module that is said
        mine = Counter(one.place for one in known if one.module == call.module and one.place in at)
        if call.source not in mine and mine:
            call.source = mine.most_common(1)[0][0]
    return calls


def _is_named(node: str, key: str) -> bool:
    """Whether a node is the operation that a library's kernel is named after."""
    return re.sub(r"(_\d+)+$", "", node) == symbol_of(key)


def _lists(found: Any) -> dict[str, list[Any]]:
    return {name: one for name, one in found.items() if isinstance(one, list)} if isinstance(found, dict) else {}


def _number(key: str) -> int:
    digits = key.rpartition(":")[2]
    return int(digits) if digits.isdigit() and len(digits) < 10 else 0


def _weights_of_calls(code: str, inputs: list[str]) -> dict[str, list[str]]:
    """By key of a call: the modules of the weights that it reads, and of those whose gradients it makes."""
    used: dict[str, list[str]] = {}
    maker: dict[str, str] = {}  # buffer → the call that names it first after it was made
    key, returned = "", []
    for line in code.split("\n"):
        handle, alias, text = _CALL.search(line), _ALIAS.match(line), line.strip()
        name = key.rpartition(":")[0]
        if handle:
            key = handle[1]
        elif alias:
            maker[alias[1]] = maker.get(alias[2], "")
        elif key and key not in used and (f"{name}(" in line or f"{name}.run(" in line):
            used[key] = _NAMES.findall(line)
            for buffer in used[key]:
                maker.setdefault(buffer, key)
        elif text.startswith("return (buf") or text.startswith("return (None") or text.startswith("return (reint"):
            returned = [one[1] for one in _RETURNED.finditer(text[len("return (") :]) if one[0]]
    of_input = [module_of_weight(name) for name in inputs]
    known = {module for module in of_input if module}
    for number, (name, module) in enumerate(zip(inputs, of_input)):
        if "_buffers_" in name and any(it.startswith(f"{module}." if module else "") for it in known - {module}):
            of_input[number] = None  # a table that is handed down to inner modules
    found: dict[str, list[str]] = {}
    for key, names in used.items():
        read = (re.fullmatch(r"primals_(\d+)|arg(\d+)_1", name) for name in names)
        numbers = [int(one[1]) - 1 if one[1] else int(one[2]) for one in read if one]
        found[key] = [of_input[k] or "" for k in numbers if 0 <= k < len(inputs) and of_input[k] is not None]
    for buffer, module in zip(returned, of_input):
        if module is not None and maker.get(str(buffer), "") in found:
            found[maker[buffer]].append(module)
    return found


def _users_of_weights(operations: dict[str, Operation]) -> dict[str, dict[str, str]]:
    """By module that weights are named after, where several modules use these: the user at each source line."""
    users: dict[str, dict[str, str]] = {}
    for one in operations.values():
        if one.weight is not None and one.has_weight:
            users.setdefault(one.weight, {})[one.place] = one.module
    return {weight: of for weight, of in users.items() if len(set(of.values())) > 1}


def _user(users: dict[str, str], stacks: list[Any]) -> str:
    """The user of a shared weight that a call works for: the one at its source line; else, as where gradients of
    several are added, what lies around all users."""
    frames = [_FRAME.findall(str(one)) for one in stacks if _ADDED not in str(one)]
    found = {users.get(place_text(*one[-1])) for one in frames if one} - {None}
    return around([str(one) for one in found or users.values()])


def _fill_calls(calls: list[Call], places: list[list[str]], operations: list[Operation], is_whole: bool) -> None:
    """Modules of what no operation or weight explains, in place: of the modules with code at a source line the one that
    shares most with the call's own, else with the nearest call whose module is known, before it or else after it.
    ``is_whole``: the compiler named all operations of the calls that have modules."""
    plain: dict[str, dict[str, None]] = {}
    weighted: dict[str, set[str]] = {}
    for one in operations:
        if one.has_weight:
            weighted.setdefault(one.place, set()).add(one.module)
        else:
            plain.setdefault(one.place, {})[one.module] = None
    known = [number for number, call in enumerate(calls) if call.modules]
    for number, (call, at) in enumerate(zip(calls, places)):
        near = list(call.modules)
        if near and (is_whole or not call.symbol.startswith(FUSED)):  # a library's kernel is one operation
            continue
        if not near:
            around = [k for k in known if k < number][-1:] + [k for k in known if k > number][:1]
            near = [calls[k].module for k in around]
        explained = Counter(at)
        for place in explained:
            explained[place] -= len(weighted.get(place, set()) & set(call.modules))
        for place, count in explained.items():
            candidates = plain.get(place) or dict.fromkeys(sorted(weighted.get(place, ())))
            if count > 0 and candidates:
                nearest = max(candidates, key=lambda one: ([shared(one, other) for other in near], -len(one)))
                call.modules[nearest] += 1
