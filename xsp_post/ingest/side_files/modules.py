"""Helper of ``ingest.side_files``: a graph before compilation, and what its guards say of modules → the module of each
operation.

The graph names the weights of an operation, and so its module. The guards name each module's class, the line that calls
it and lines of its own code. An operation without weights belongs to the module that has its line, of several the one
nearest to the weights used before and after it; without such a line, to the one whose code is nearest. A module of
torch's own that has no weights (``ReLU``) is known by the function that its class is named after.
"""

import re
from dataclasses import dataclass, field

_PLACE = re.compile(r"# File: (.+?):(\d+) in [^,]*(?:, code: (.*))?")
_OPERATION = re.compile(r'^\s*(\w+)(?:: "[^"]*")? = ([^;]*)')
_FUNCTION = re.compile(r"(\w+)\(")
_CALLED = re.compile(r"\b(?:F|torch)\.(\w+)\(")
_INPUT = re.compile(r"[lLgG]_\w+\s*")
_WEIGHT = re.compile(r"\b[lLgG]_\w+_(?:parameters|buffers)_")
_GUARDED = re.compile(r"\b([LG])\['\w+'\]((?:\._modules\['[^']+'\])*)")
_GUARD_PLACE = re.compile(r"(\S+):(\d+) in ")
_CLASS = re.compile(r"type=<class '([^']+)'>")
_CONTAINER = "torch.nn.modules.container."
_FAR = 1e9  # lines


@dataclass
class Operation:
    """One operation of a graph before compilation."""

    place: str  # file:line, '' unknown
    module: str
    has_weight: bool
    function: str = ""  # what it calls, without underscores
    code: str = ""  # the line
    weight: str | None = None  # module that its weights are named after; None: has none


@dataclass
class Modules:
    """By path of a module: its class, the line that calls it first, lines of its own code, and functions of torch that
    torch's own code of it calls."""

    classes: dict[str, str] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    lines: dict[str, set[str]] = field(default_factory=dict)
    functions: dict[str, set[str]] = field(default_factory=dict)


def place_text(file: str, line: str) -> str:
    """``file:line`` without folders: these may name a user."""
    inside = file.replace("\\", "/").rpartition("site-packages/")[2] if "site-packages/" in file else ""
    return f"{inside or file.replace(chr(92), '/').rpartition('/')[2]}:{line}"


def module_of_weight(name: str) -> str | None:
    """``l_self_modules_layers_modules_1_modules_up_parameters_weight_`` → ``layers.1.up``; None: names no weight. Of
    weights of several modules: what lies around all of them."""
    texts = [re.split(r"_(?:parameters|buffers)_", one)[0] for one in _WEIGHT.findall(name)]
    paths = [".".join(one.split("_modules_")[1:]) for one in texts]
    return around(paths) if paths else None


def around(paths: list[str]) -> str:
    """The module around all of these, '' the model itself."""
    return ".".join(paths[0].split(".")[: min(shared(paths[0], one) for one in paths)])


def modules_of(guards: str) -> Modules:
    """What the text of a graph's guards says of the modules."""
    found = Modules()
    for line in guards.split("\n"):
        front, _, comment = line.rpartition("  # ")
        at, guarded = _GUARD_PLACE.match(comment), _GUARDED.search(front)
        if not at or not guarded or (guarded[1] == "G" and not guarded[2]):
            continue
        path = ".".join(re.findall(r"'([^']+)'", guarded[2]))
        place, rest, kind = place_text(at[1], at[2]), front[guarded.end() :], _CLASS.search(front)
        is_of_user = not at[1].startswith("nn/modules/")
        if not is_of_user and rest.startswith("."):
            names = _CALLED.findall(front.rpartition("  # ")[2])
            found.functions.setdefault(path, set()).update(name.replace("_", "").lower() for name in names)
        if kind and path and rest.startswith(", "):
            found.classes.setdefault(path, kind[1])
            if is_of_user:
                found.called.setdefault(path, place)
                found.lines.setdefault(parent(path), set()).add(place)
        elif is_of_user and rest[:1] in (".", "[") and not rest.startswith(".__dict__"):
            found.lines.setdefault(path, set()).add(place)
    return found


def operations_of(graph: str, modules: Modules | None = None) -> dict[str, Operation]:
    """By name: the operations of a graph's text, each with its module ('' the model itself)."""
    result: dict[str, Operation] = {}
    place = code = ""
    for line in graph.split("\n"):
        found = _PLACE.search(line)
        if found:
            place, code = place_text(found[1], found[2]), found[3] or ""
            continue
        operation = _OPERATION.match(line)
        if operation is None or _INPUT.fullmatch(operation[2]):
            continue
        name, text = operation.groups()
        module, function = module_of_weight(text), _FUNCTION.search(text)
        called = function[1].replace("_", "").lower() if function else ""
        result[name] = Operation(place, module or "", module is not None, called, code, module)
    _fill_modules(list(result.values()), modules or Modules())
    return result


def _fill_modules(operations: list[Operation], modules: Modules) -> None:
    """Modules of operations without weights, in place."""
    lines = modules.lines or _lines_of_weights(operations)
    owners: dict[str, list[str]] = {}
    for module, own in lines.items():
        for place in own:
            owners.setdefault(place, []).append(module)
    outer = {place: [one for one in own if not any(_is_inside(one, it) for it in own)] for place, own in owners.items()}
    weighted = {one.module for one in operations if one.has_weight}
    for one in operations:
        if one.has_weight and modules.lines:
            _correct(one, outer.get(one.place, []), weighted, modules)
    leaves = _leaves(modules, weighted)
    upcoming, after = "", []
    for one in reversed(operations):
        after.append(upcoming)
        upcoming = one.module if one.has_weight else upcoming
    last, begins = Operation("", "", True), _begins(operations)
    for one, upcoming, is_begin in zip(operations, reversed(after), begins):
        if not one.has_weight:
            near = [*_around(last.module), *_around(upcoming)]
            nearest = min(near, key=lambda module: _distance(one.place, lines.get(module, set())))
            exact = outer.get(one.place, [])
            side = upcoming if is_begin else last.module
            around = [it for it in exact if it == side or _is_inside(side, it)] if one.place == last.place else []
            one.module = _owner(around or exact, one, last, upcoming, modules) if exact else nearest
            like = [leaf for leaf, place in leaves.get(one.module, []) if _is_call(leaf, place, one, modules)]
            if not like:
                continue
            one.module = min(like, key=lambda leaf: (_numbers(leaf) <= _numbers(last.module), _numbers(leaf)))
        last = one


def _correct(one: Operation, exact: list[str], weighted: set[str], modules: Modules) -> None:
    """What a weight says too much of, in place: a module's own code may use what the modules around it hold, and two
    modules may share one weight."""
    kind, place = _class(one.module, modules), one.place
    is_own = any(place in modules.lines.get(it, ()) for it in _around(one.module))
    if not is_own and any(_is_inside(it, one.module) for it in weighted):
        one.has_weight = not all(_is_inside(it, one.module) for it in exact)
    elif kind and kind != one.function and modules.called.get(one.module, place) != place:
        sharing = [it for it in modules.classes if modules.called.get(it) == place and it not in weighted]
        one.module = next((it for it in sharing if _class(it, modules) == one.function), one.module)


def _class(module: str, modules: Modules) -> str:
    return modules.classes.get(module, "").rpartition(".")[2].lower()


def _begins(operations: list[Operation]) -> list[bool]:
    """Which operations without weights come before those of their line that use some: equal modules that follow one
    another share a line, and as many operations begin each of them as begin the first."""
    most: dict[str, int] = {}
    count, place = 0, ""
    for one in operations:
        count = 0 if one.place != place else count
        if one.has_weight:
            most.setdefault(one.place, count)
        count, place = 0 if one.has_weight else count + 1, one.place
    result, left, place = [], 0, ""
    for one in reversed(operations):
        left = most.get(one.place, 0) if one.has_weight else left - 1 if one.place == place else -1
        place = one.place
        result.append(not one.has_weight and left >= 0)
    return result[::-1]


def _lines_of_weights(operations: list[Operation]) -> dict[str, set[str]]:
    """Module → lines that use weights of modules directly in it: its code, where no guard says more."""
    lines: dict[str, set[str]] = {}
    for one in operations:
        if one.has_weight:
            lines.setdefault(parent(one.module), set()).add(one.place)
    return lines


def _owner(exact: list[str], one: Operation, last: Operation, upcoming: str, modules: Modules) -> str:
    """Of the modules whose code has its line, the one that an operation without weights belongs to."""
    going_on = [module for module in exact if _goes_on(module, one, last, modules)]
    ahead = [module for module in exact if module == upcoming or _is_inside(upcoming, module)]
    return max(going_on or ahead or exact, key=lambda it: shared(it, last.module) + shared(it, upcoming))


def _goes_on(module: str, one: Operation, last: Operation, modules: Modules) -> bool:
    """Whether the module that used the last weights has not ended: its code goes on behind the line of that use."""
    if module == last.module:
        return _line(one.place) > _line(last.place)
    inner = [path for path in _around(last.module) if path in modules.called and parent(path) == module]
    return _is_inside(last.module, module) and all(_line(one.place) >= _line(modules.called[it]) for it in inner)


def _leaves(modules: Modules, weighted: set[str]) -> dict[str, list[tuple[str, str]]]:
    """By module: modules of torch's own without weights that its code calls, and the line ('' unknown)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path, kind in modules.classes.items():
        if not kind.startswith("torch.nn.modules.") or kind.startswith(_CONTAINER) or path in weighted:
            continue
        top = path
        while top not in modules.called and "." in top:  # torch's own code calls it: of a list, or of a class above it
            top = top.rpartition(".")[0]
        found.setdefault(parent(top), []).append((path, modules.called.get(top, "")))
    return found


def _is_call(leaf: str, place: str, one: Operation, modules: Modules) -> bool:
    """Whether an operation is what a module of torch's own computes."""
    is_named = re.search(rf"\.{re.escape(leaf.rpartition('.')[2])}\b", one.code) is not None
    functions = modules.functions.get(leaf, set()) | {_class(leaf, modules)}
    return one.function in functions and (place == one.place or is_named)


def _numbers(path: str) -> list[int]:
    return [int(part) if part.isdecimal() and len(part) < 10 else -1 for part in path.split(".")]


def _around(module: str) -> list[str]:
    """A module and those around it, the inner ones first, the model itself ('') last."""
    result = [module]
    while result[-1]:
        result.append(parent(result[-1]))
    return result


def _line(place: str) -> int:
    return int(place.rpartition(":")[2] or 0)


def _distance(place: str, lines: set[str]) -> float:
    """Lines between a place and the nearest line of a module in the same file; a module without code is far."""
    file = place.rpartition(":")[0]
    return min((abs(_line(place) - _line(one)) for one in lines if one.rpartition(":")[0] == file), default=_FAR)


def _is_inside(module: str, other: str) -> bool:
    return module != other and (not other or module.startswith(other + "."))


def parent(module: str) -> str:
    """The module whose code calls it: a list of modules (its name ends before a number) has no code."""
    above = module.rpartition(".")[0]
    return above.rpartition(".")[0] if module.rpartition(".")[2].isdigit() else above


def shared(one: str, other: str) -> int:
    """How many modules of two paths are the same, from the model on."""
    unlike = [left != right for left, right in zip(one.split("."), other.split("."))]
    return [*unlike, True].index(True)
