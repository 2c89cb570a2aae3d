"""What is imported when it is used: public names of a package that modules below it have, packages not always there."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from xsp_post.base.errors import ToolError


def lazily(package: str, modules: dict[str, str]) -> Callable[[str], Any]:
    """``__getattr__`` of a package. ``modules``: by public name."""

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return found


def package_version(name: str) -> str:
    """Of a distribution that may be installed, '' unknown; it is not imported."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def optional(module: str, code: str, missing: str) -> Any:
    """A module of a package that need not be installed. Raises `ToolError`, which says what is ``missing`` without."""
    try:
        return import_module(module)
    except ImportError:
        raise ToolError(missing, code=code) from None
