"""Helper of ``ingest.side_files``: a pickle of plain containers → their value; any other is refused before it runs."""

import io
import pickle
from collections import defaultdict
from typing import Any

_PLAIN = (
    " PROTO FRAME STOP MARK INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT UNICODE BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 NONE NEWTRUE NEWFALSE EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 "
    "TUPLE2 TUPLE3 SETITEM SETITEMS APPEND APPENDS MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET GLOBAL "
    "STACK_GLOBAL REDUCE "
)
_CLASSES = {
    ("collections", "defaultdict"): defaultdict, ("collections", "OrderedDict"): dict,
    ("builtins", "list"): list, ("__builtin__", "list"): list,
}  # fmt: skip


class NotPlain(Exception):
    """The text says what the pickle holds besides plain values, or that it is damaged."""


class _Loader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CLASSES:
            raise NotPlain(f"names {module}.{name}, which is no plain container: it was not executed")
        return _CLASSES[module, name]


def read_plain(data: bytes) -> Any:
    """The value of a pickle. Raises `NotPlain`."""
    import pickletools  # as long to import as this package, and few captures have a pickle beside them

    try:
        for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
            name = operation.name
            if f" {name} " not in _PLAIN:
                raise NotPlain(f"holds the instruction {name}, which plain containers do not need: it was not executed")
            if name.endswith("PUT") and int(str(argument)) > count:  # a place in memory that no such file needs
                raise NotPlain("is damaged or cut off")
        return _Loader(io.BytesIO(data)).load()
    except NotPlain:
        raise
    except Exception as error:  # whatever a damaged one makes the loader raise
        raise NotPlain("is damaged or cut off") from error
