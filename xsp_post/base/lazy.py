"""Public names of a package → the modules below it that have them, imported when a name is first used."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazily(package: str, modules: dict[str, str]) -> Callable[[str], Any]:
    """``__getattr__`` of a package. ``modules``: by public name."""

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return found
