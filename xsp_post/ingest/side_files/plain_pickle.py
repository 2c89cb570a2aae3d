"""Helper of ``ingest.side_files``: a pickle of plain containers → their value, without Python's own loader.

A pickle is a program, and a stranger's is not run: the few instructions that make dicts, lists, tuples, texts and
numbers are carried out here; any other is refused. The one class that is known is `defaultdict`, read as a dict.
"""

from __future__ import annotations

import pickletools
from typing import Any

_MARK = object()
_VALUES = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE",
           "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PASSED_OVER = {"PROTO", "FRAME", "STOP"}
_KNOWN_NAMES = {("collections", "defaultdict"), ("builtins", "list"), ("__builtin__", "list")}


class NotPlain(Exception):
    """The text says what the pickle holds besides plain values, or that it is damaged."""


def read_plain(data: bytes) -> Any:
    """The value of a pickle. Raises `NotPlain`."""
    machine = _Machine()
    try:
        for operation, argument, _ in pickletools.genops(data):
            machine.run(operation.name, argument)
        (value,) = machine.stack
    except NotPlain:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, AttributeError) as error:
        raise NotPlain("is damaged or cut off") from error
    return value


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name in ("DICT", "LIST", "TUPLE"):
            items = self.since_mark()
            stack.append(dict(zip(items[::2], items[1::2])) if name == "DICT" else items)
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [stack[-count:]]
        elif name in ("SETITEM", "SETITEMS"):
            items = self.since_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(zip(items[::2], items[1::2]))
        elif name in ("APPEND", "APPENDS"):
            items = self.since_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(items)
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            module, _, function = argument.partition(" ") if name == "GLOBAL" else (stack.pop(-2), "", stack.pop())
            if (module, function) not in _KNOWN_NAMES:
                raise NotPlain(f"names {module}.{function}, which is no plain container: it was not executed")
            stack.append({} if function == "defaultdict" else None)
        elif name == "REDUCE":  # of the known names: a defaultdict with its factory
            stack.pop()
        elif name not in _PASSED_OVER:
            raise NotPlain(f"holds the instruction {name}, which plain containers do not need: it was not executed")

    def since_mark(self) -> list[Any]:
        """What was put on the stack since the last mark, taken off with it."""
        place = next(k for k in range(len(self.stack) - 1, -1, -1) if self.stack[k] is _MARK)
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items
