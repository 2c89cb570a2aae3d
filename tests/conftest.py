"""What every test may use: where real captures lie, and the writers beside this file."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # builders, export_schema, generators, properties
import drawing
from properties import load_profile

ROOT = Path(__file__).resolve().parents[1]
SEED = "XSP_POST_SAMPLE"  # of what is drawn: set, it is the same again
COSTS = "XSP_POST_COSTS"  # the file where each process writes what its tests cost
_shared_s: dict[object, float] = {}  # processor time of the fixtures that several tests share
_users: Counter[object] = Counter()  # of each fixture the functions that are given it
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ  # one of the processes that xdist starts

# Tests run side by side, one on each core: threads of torch that wait for each other would take half of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests hold texts as the commands do, before anything imports pandas; `scripts/test --platforms` as pandas does.
os.environ.setdefault("PANDAS_FUTURE_INFER_STRING", "0")

load_profile()

# Started in the background, tests inherit ignored signals, and so would the processes that they interrupt.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="all tests, not a drawn part of the costly ones")
    parser.addoption(
        "--costs", action="store_true", help="add what is costly to tests/costly.txt; with --all: measure it anew"
    )
    parser.addoption("--third", action="store_true", help="a third of what is taken otherwise, drawn too")


def pytest_configure(config: pytest.Config) -> None:
    """Draw once; the processes that xdist starts inherit it, and the file where each writes what its tests cost."""
    os.environ.setdefault(SEED, str(random.randrange(10_000)))
    if not IS_WORKER:
        os.environ[COSTS] = tempfile.mkstemp()[1]


@pytest.hookimpl(trylast=True)  # after `-k` and `-m`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not drawn of costly tests (`drawing.py`), and two of three others where asked to."""
    out = set() if config.option.all else _left_out(items)
    if config.option.third:
        seed = os.environ[SEED]
        out |= {one.nodeid for one in items if zlib.crc32(f"{seed}{one.nodeid}".encode()) % 3}
    if out:
        config.hook.pytest_deselected(items=[one for one in items if one.nodeid in out])
        items[:] = [one for one in items if one.nodeid not in out]


def _left_out(items: list[pytest.Item]) -> set[str]:
    parts = dict.fromkeys(drawing.costly() if len(items) >= drawing.WHOLE else [], drawing.PART)
    marks = {one.nodeid: mark for one in items if (mark := one.get_closest_marker("sampled"))}
    if len(marks) > 10:
        parts |= {drawing.function_of(test): mark.args[0] if mark.args else 5 for test, mark in marks.items()}
    guards = {drawing.function_of(one.nodeid) for one in items if _is_guard(one)}
    parts = {function: part for function, part in parts.items() if function not in guards}
    return drawing.left_out([one.nodeid for one in items], parts, os.environ[SEED])


def _is_guard(item: pytest.Item) -> bool:
    """Of a property examples are drawn (`properties.py`)."""
    is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return is_property or item.get_closest_marker("guard") is not None


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[object]:
    """What a fixture cost, for all tests that share it."""
    began = _processor_s()
    outcome = yield
    if fixturedef.scope != "function":
        _shared_s[fixturedef] = _processor_s() - began
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Function) -> Iterator[object]:
    """What each test cost by itself, and its part of what the fixtures cost that several functions share."""
    before, began = set(_shared_s), _processor_s()
    outcome = yield
    own = _processor_s() - began - sum(_shared_s[one] for one in _shared_s.keys() - before)
    shared = sum(_shared_s.get(one, 0) / _users[one] for one in _fixtures(item))
    with open(os.environ[COSTS], "a") as file:
        file.write(f"{item.nodeid}\t{own}\t{shared}\n")
    return outcome


def _fixtures(item: pytest.Item) -> set[object]:
    return {one for several in item._fixtureinfo.name2fixturedefs.values() for one in several}


def _processor_s() -> float:
    """That of this process and of its children that ended."""
    return sum(os.times()[:4])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What all tests cost, and which of them cost much and are drawn of by no run yet."""
    if IS_WORKER:
        return
    file = Path(os.environ.pop(COSTS))
    rows = [line.rsplit("\t", 2) for line in file.read_text().splitlines()]
    file.unlink()
    costs = drawing.costs_of((test, float(own), float(shared)) for test, own, shared in rows)
    unlisted = drawing.unlisted(costs)
    drawn = "" if config.option.all else f", drawn by {SEED}={os.environ[SEED]}"
    times = os.times()  # of ended processes with theirs: those of xdist, too
    terminalreporter.write_line(f"{sum(times[:4]):.0f} s of processor time{drawn}")
    if config.option.costs:
        (drawing.write_costs if config.option.all else drawing.add_costs)(costs)
    elif unlisted and len(rows) >= drawing.WHOLE:
        terminalreporter.write_line("Costly, and not in tests/costly.txt (scripts/test --costs adds them):")
        for function, cost in unlisted.items():
            terminalreporter.write_line(f"  {function} {cost:.1f} s")


def pytest_collection_finish(session: pytest.Session) -> None:
    """The modules and the collected tests stay to the end: the collector need not go through them again and again."""
    given = {(one, drawing.function_of(item.nodeid)) for item in session.items for one in _fixtures(item)}
    _users.update(one for one, _ in given)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def one_analysis_for_all_processes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where tests run in several processes, each real capture is analysed in one of them."""
    if IS_WORKER:
        import recorded

        recorded.shared_folder = tmp_path_factory.getbasetemp().parent / "recorded"
        recorded.shared_folder.mkdir(exist_ok=True)


CANARY = "xsp-canary"  # stands in the shared captures wherever private values stood: must reach no output


def _shared(variable: str, name: str) -> Path:
    """A folder that lies beside the checkout; the test is skipped, with the reason, where it does not."""
    path = Path(os.environ.get(variable) or ROOT.parent / "shared" / name)
    if not path.is_dir():
        pytest.skip(f"no folder of real {name} here (set {variable})")
    return path


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of real captures: ``nsys/``, ``ncu/``, ``kineto/``, ``other/``, ``official/``, ``expected/``."""
    return _shared("XSP_POST_CAPTURES", "captures")


@pytest.fixture(scope="session")
def paper() -> Path:
    """The folder of the paper's published numbers."""
    return _shared("XSP_POST_PAPER", "paper")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT
