"""The text of a module → every fault that can be planted in it: one small edit of one expression or statement."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
_PAIRS = (
    ("min", "max"), ("minimum", "maximum"), ("fmin", "fmax"), ("nanmin", "nanmax"), ("argmin", "argmax"),
    ("idxmin", "idxmax"), ("cummin", "cummax"), ("any", "all"), ("first", "last"), ("head", "tail"),
    ("floor", "ceil"), ("ffill", "bfill"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("mean", "median"),
    ("logical_and", "logical_or"), ("nlargest", "nsmallest"), ("isna", "notna"), ("startswith", "endswith"),
    ("union1d", "intersect1d"), ("lstrip", "rstrip"), ("cumsum", "cumprod"),
)  # fmt: skip
_OTHER_NAME = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_OTHER_TEXT = {"left": "right", "right": "left", "first": "last", "last": "first", "inner": "outer", "outer": "inner"}
# What they change is speed, or a check that a right program never fails.
_KEPT_ARGUMENTS = {"copy", "validate", "strict", "casting"}
_NOT_RUN = {"annotation", "returns", "decorator_list", "ctx"}


@dataclass(frozen=True)
class Mutant:
    """One edit: bytes ``begin`` to ``end`` of ``file`` become ``text``; ``key`` stays as long as the function does."""

    key: str
    file: str
    begin: int
    end: int
    text: str
    first_line: int
    last_line: int
    is_in_function: bool

    def applied(self, source: bytes) -> bytes:
        """The module with the fault."""
        return source[: self.begin] + self.text.encode() + source[self.end :]


def mutants_of(file: str, source: bytes) -> list[Mutant]:
    """Every fault of one module, in the order of the text."""
    tree = ast.parse(source)
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    result, seen = [], Counter[str]()
    for function, node, edited in _edits(tree, ()):
        begin = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        new = ast.unparse(ast.fix_missing_locations(edited))
        old = ast.unparse(node)
        if new == old:
            continue
        key = f"{file}::{function or '<module>'}::{_shortened(old, new)}"
        seen[key] += 1
        if seen[key] > 1:
            key += f" #{seen[key]}"
        text = new if isinstance(edited, (ast.stmt, ast.Slice)) else f"({new})"
        last_line = node.end_lineno or node.lineno
        result.append(Mutant(key, file, begin, end, text, node.lineno, last_line, bool(function)))
    return result


def _shortened(old: str, new: str) -> str:
    """``old → new`` without a long common beginning and end."""
    if len(old) + len(new) <= 120:
        return f"{old} → {new}"
    same = next((i for i, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
    tail = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1])) if a != b), 0)
    tail = min(tail, min(len(old), len(new)) - same)
    low, high = max(same - 30, 0), max(tail - 30, 0)
    cuts = (text[low : len(text) - high][:120] for text in (old, new))
    return " → ".join(f"…{cut}…" for cut in cuts)


def _edits(node: ast.AST, around: tuple[str, ...]) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """(qualified name of the function around, node, what stands there instead) of each fault at and below a node."""
    if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Raise, ast.Assert)):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for edited in _of_node(node):
        yield ".".join(around), node, edited
    if isinstance(node, (ast.If, ast.While)):
        yield ".".join(around), node.test, ast.UnaryOp(op=ast.Not(), operand=node.test)
    inside = (*around, node.name) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else around
    if isinstance(node, ast.Subscript) and _is_type(node.value):
        return
    for name, value in ast.iter_fields(node):
        if name in _NOT_RUN:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _edits(child, inside)


def _is_type(value: ast.expr) -> bool:
    return ast.unparse(value).split(".")[-1] in {"NDArray", "Callable", "dict", "list", "tuple", "cast", "Sequence"}


def _changed(node: ast.AST, **fields: object) -> ast.AST:
    edited = copy.copy(node)
    for name, value in fields.items():
        setattr(edited, name, value)
    return edited


def _of_node(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in _COMPARISONS.get(type(op), ()):
                    yield _changed(node, ops=[*ops[:i], other(), *ops[i + 1 :]])
        case ast.BinOp(op=op) | ast.AugAssign(op=op):
            if type(op) in _ARITHMETIC and not _is_text(node):
                yield _changed(node, op=_ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            yield _changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(operand=operand):
            if not isinstance(operand, ast.Constant):
                yield operand
        case ast.Constant(value=value):
            yield from _of_constant(node, value)
        case ast.IfExp(body=body, orelse=orelse):
            yield _changed(node, body=orelse, orelse=body)
        case ast.Call():
            yield from _of_call(node)
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield _changed(node, lower=None)
            if upper is not None:
                yield _changed(node, upper=None)
        case ast.Return(value=ast.Tuple(elts=[first, second, *rest])):
            yield _changed(node, value=ast.Tuple(elts=[second, first, *rest], ctx=ast.Load()))
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    is_part = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    if is_call or is_part or isinstance(node, (ast.AugAssign, ast.Continue)):
        yield ast.Pass()


def _of_constant(node: ast.Constant, value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield _changed(node, value=not value)
    elif isinstance(value, (int, float)):
        yield _changed(node, value=value + 1)
        if value:
            yield _changed(node, value=value - 1)
    elif isinstance(value, str) and value in _OTHER_TEXT:
        yield _changed(node, value=_OTHER_TEXT[value])


def _of_call(node: ast.Call) -> Iterator[ast.AST]:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in _OTHER_NAME:
        yield _changed(node, func=_changed(function, attr=_OTHER_NAME[function.attr]))
    if isinstance(function, ast.Name) and function.id in {"min", "max", "any", "all"}:
        yield _changed(node, func=_changed(function, id=_OTHER_NAME[function.id]))
    if len(node.args) + len(node.keywords) < 2:
        return
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None and keyword.arg not in _KEPT_ARGUMENTS:
            yield _changed(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])
    if node.args and not isinstance(node.args[-1], ast.Starred):
        yield _changed(node, args=node.args[:-1])


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    return any(isinstance(part, ast.JoinedStr) or _is_string(part) for part in parts)


def _is_string(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and isinstance(part.value, str)
