"""Two results → their differences with confidence intervals: `compare(base, other)`.

`matching` pairs cases, layers and kernels; `differences` tests every pair with one correction over all of
them; `structure` says in what the two captures differ beside time (kernels, ranges, system); `bars` are the
conditions of ``--fail-if``. The comparison is `Results` again: tables `compare_…`.
"""

from typing import Any

_PUBLIC = {"compare": "comparison", "CompareOptions": "comparison", "parse_bar": "bars", "check_bars": "bars"}

__all__ = ["CompareOptions", "check_bars", "compare", "parse_bar"]


def __getattr__(name: str) -> Any:
    """Public names, imported when first used."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
