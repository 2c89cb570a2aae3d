"""Real captures, each read and made a tree once in a test process, analysed once in a run: many tests look at the
same ones.

Each caller gets frames of its own, so no test sees what another one changed.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from xsp_post import pipeline
from xsp_post.commands.tree import SHOWN
from xsp_post.hierarchy import build_tree
from xsp_post.ingest import sources
from xsp_post.model.options import Options
from xsp_post.model.results import Analysis, Results
from xsp_post.model.trace import Trace
from xsp_post.model.tree import Tree


def trace_of(path: Path) -> Trace:
    """All that was recorded."""
    trace = _loaded(path).trace
    assert trace is not None
    return own(trace)


def tree_of(path: Path) -> Tree:
    """Its tree with the options' defaults."""
    return own(_tree(path))


def analyzed(path: Path, options: Options | None = None) -> Analysis:
    """All its tables."""
    options = options or Options()
    key = path, repr(options)
    if key not in _analyses:
        _analyses[key] = _of_other_process(key) or _analyzed(path, options)
        _leave_to_others(key, _analyses[key])
    known = _analyses[key]
    return Analysis({name: frame.copy() for name, frame in known.frames.items()}, list(known.findings))


def summarized(path: Path) -> Results:
    """The tables of `tree`."""
    return pipeline.graph_of([replace(_loaded(path), trace=trace_of(path))]).only(SHOWN)


_analyses: dict[tuple[Path, str], Analysis] = {}


def _analyzed(path: Path, options: Options) -> Analysis:
    return pipeline.graph_of([replace(_loaded(path), trace=trace_of(path))], options).complete()


def _of_other_process(key: tuple[Path, str]) -> Analysis | None:
    """What another process of this run of the tests made of the same capture."""
    file = _file_of(key)
    return pickle.loads(file.read_bytes()) if file is not None and file.is_file() else None


def _leave_to_others(key: tuple[Path, str], analysis: Analysis) -> None:
    file = _file_of(key)
    if file is not None and not file.is_file():
        half = file.with_suffix(f".{os.getpid()}")
        half.write_bytes(pickle.dumps(analysis))
        half.replace(file)


def _file_of(key: tuple[Path, str]) -> Path | None:
    """None where no other process runs tests, and for a file of one test alone."""
    if shared_folder is None or key[0].is_relative_to(shared_folder.parent):
        return None
    return shared_folder / hashlib.sha256(repr(key).encode()).hexdigest()


shared_folder: Path | None = None  # tests/conftest.py sets it


@cache
def _loaded(path: Path) -> sources.Loaded:
    return sources.load(path)


@cache
def _tree(path: Path) -> Tree:
    return build_tree(trace_of(path))


def own(record: Any) -> Any:
    """The same record with frames and lists of its own."""
    values = {one.name: getattr(record, one.name) for one in fields(record)}
    frames = {name: value.copy() for name, value in values.items() if isinstance(value, pd.DataFrame)}
    return replace(record, **frames, **{name: list(value) for name, value in values.items() if type(value) is list})
