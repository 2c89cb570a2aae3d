"""Tests of a room, run in forks of one warm process: once to see which lines each executes, then on each fault.

A fork has pandas, pytest and hypothesis imported, but nothing of the package or the tests: it imports those from a
scratch copy of the checkout, in which one module has the fault. Nothing lies beside that copy, so that no test finds
real captures.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

PASSED, FAILED, TOO_LONG = 0, 1, 2
_ABSENT = "/nonexistent"
_LEAST_S, _TIMES_LONGER = 4.0, 4.0  # of processor time, for a test
_SLOW_S = 15.0  # of processor time under coverage; a slower test is not run on faults


@dataclass
class TestRecord:
    """What one test took, and the lines that it executed: file → first lines of what was run."""

    __test__ = False

    seconds: float = 0.0
    lines: dict[str, list[int]] = field(default_factory=dict)


def warm_up() -> None:
    """Import what every fork needs."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False  # else each fork compiles the package again
    os.environ.update(
        XSP_POST_CAPTURES=_ABSENT, XSP_POST_PAPER=_ABSENT, XSP_POST_SHRINK="0", OMP_NUM_THREADS="1", COLUMNS="120",
    )  # fmt: skip
    import coverage  # noqa: F401
    import hypothesis.strategies  # noqa: F401
    import jinja2  # noqa: F401
    import msgspec  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow.compute  # noqa: F401
    import rich.table  # noqa: F401
    import scipy.stats  # noqa: F401
    import typer.testing  # noqa: F401


def forked(task: Callable[[], int], copy: Path, log: Path) -> int:
    """Start a fork that runs the task in a copy of the checkout; its process id."""
    sys.stdout.flush()
    process_id = os.fork()
    if process_id:
        return process_id
    code = 99
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(copy)
        sys.path[:0] = [str(copy), str(copy / "tests"), str(copy / "scripts")]
        os.environ["PYTHONPATH"] = str(copy)
        code = task()
    finally:
        sys.stdout.flush()
        os._exit(code)


def outcome_of(status: int) -> int:
    """How a fork ended: a test failed, none did, or it was stopped for the time it took."""
    if os.WIFSIGNALED(status):
        return TOO_LONG
    return PASSED if os.WEXITSTATUS(status) == 0 else FAILED


def run_tests(paths: Iterable[str], *plugins: object, first_failure: bool = True) -> int:
    """pytest's exit code."""
    words = ["-q", "--all", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", *(["-x"] if first_failure else [])]
    return int(pytest.main([*words, *paths], plugins=list(plugins)))


class Chosen:
    """A plugin: of the collected tests only these, in their order. A test that takes much more processor time than it
    took without the fault (``seconds``) ends the process."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._place = {test: i for i, test in enumerate(seconds)}
        self._seconds = seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._place), key=lambda i: self._place[i.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_PROF, _LEAST_S + _TIMES_LONGER * self._seconds[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def too_slow(*_: object) -> NoReturn:
    """Ends a test that takes too long to be recorded."""
    pytest.skip("slow")


class Recorder:
    """A plugin: which lines of the package each test that passes in time executes, and its processor time.

    What a fixture executes counts for every test of the file, for a fixture may serve them all."""

    def __init__(self, package: Path) -> None:
        import coverage

        self._package = package
        self._coverage = coverage.Coverage(data_file=None, include=[f"{package}/*"], config_file=False)
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        signal.signal(signal.SIGPROF, too_slow)
        signal.setitimer(signal.ITIMER_PROF, _SLOW_S)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._seconds[item.nodeid] = round(time.process_time() - began, 3)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._coverage.switch_context(item.nodeid.split("::")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:  # skipped ones too
            self._failed.add(report.nodeid)

    def records(self) -> dict[str, TestRecord]:
        """By test."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for file in data.measured_files():
            name = str(Path(file).relative_to(self._package))
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    lines[context][name].append(line)
        result = {}
        for test, seconds in self._seconds.items():
            if test not in self._failed:
                record = TestRecord(seconds, {name: list(found) for name, found in lines[test].items()})
                for name, found in lines[test.split("::")[0]].items():
                    record.lines[name] = sorted({*record.lines.get(name, []), *found})
                result[test] = record
        return result


def record(paths: Collection[str], copy: Path, out: Path) -> int:
    """Run tests of files and write their `TestRecord`s; for a fork."""
    recorder = Recorder(copy / "xsp_post")
    code = run_tests(paths, recorder, first_failure=False)
    found = {test: vars(one) for test, one in recorder.records().items()}
    out.write_text(json.dumps(found))
    return int(code not in (0, 1, 5))


def as_records(found: Mapping[str, Any]) -> dict[str, TestRecord]:
    """What `record` wrote."""
    return {test: TestRecord(**one) for test, one in found.items()}
