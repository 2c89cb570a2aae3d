"""Many captures → one store each and one fleet store: `run_batch`, on this machine or on a Dask cluster.

`jobs` finds the captures and groups what belongs together, `work` analyses one of them (in a worker),
`engines` hands jobs to workers and survives theirs deaths, `assembly` puts the small frames that come back
side by side. A finished capture has a record in the output folder; that is what makes a batch resumable.
"""

from typing import Any

_PUBLIC = {"discover": "jobs", "Job": "jobs", "Skipped": "jobs", "run_batch": "assembly", "BatchResult": "assembly"}

__all__ = ["BatchResult", "Job", "Skipped", "discover", "run_batch"]


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: a batch with nothing to do must not load pandas."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
