"""Dataclasses as the standard library's, whose methods are not compiled anew for each class.

Of importing the 210 modules that `tree` needs, the methods to compare, show and freeze 110 classes took a third.
"""

import dataclasses
from dataclasses import asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """The class with `__init__`, `__repr__` and what the options say, as in `dataclasses`."""
        if cls is None:
            return lambda given: dataclass(given, frozen=frozen, eq=eq)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else one is made of the signature
        dataclasses.dataclass(repr=False, eq=False, match_args=False)(cls)
        shared = [("__repr__", _repr)]
        if eq:
            shared += [("__eq__", _equal), ("__hash__", _hash if frozen else None)]
        if frozen:
            shared += [("__setattr__", _set_once), ("__delattr__", _keep)]
        for name, method in shared:
            if name not in cls.__dict__ or cls.__dict__[name] is None:
                setattr(cls, name, method)
        return cls

    def _repr(self: Any) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _compared(self: Any) -> tuple[object, ...]:
        return tuple(getattr(self, one.name) for one in fields(self) if one.compare)

    def _equal(self: Any, other: object) -> bool:
        return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented

    def _hash(self: Any) -> int:
        return hash(_compared(self))

    def _set_once(self: Any, name: str, value: object) -> None:
        if name in self.__dict__ or name not in self.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        self.__dict__[name] = value

    def _keep(self: Any, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
