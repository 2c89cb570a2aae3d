"""What every test may use: where real captures lie, and the writers beside this file."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # builders, export_schema, generators, properties
from properties import load_profile

ROOT = Path(__file__).resolve().parents[1]
SEED = "XSP_POST_SAMPLE"  # of the fifth that is drawn: set, it is the same one again

# Tests run side by side, one on each core: threads of torch that wait for each other would take half of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

load_profile()

# Started in the background, tests inherit ignored signals, and so would the processes that they interrupt.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="all tests with the mark `sampled`, not a drawn fifth of them")
    parser.addoption("--fifth", action="store_true", help="a fifth of all tests, each time the same ones")


def pytest_configure(config: pytest.Config) -> None:
    """Draw once; the processes that xdist starts inherit it."""
    os.environ.setdefault(SEED, str(random.randrange(10_000)))


def pytest_report_header(config: pytest.Config) -> str:
    return f"sampled tests: {'all' if config.option.all else f'{SEED}={os.environ[SEED]}'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out four fifths: of all tests, or of those with the mark `sampled` where there are many. The mark may say
    another part than a fifth: `sampled(10)`."""
    marks = {} if config.option.all else {item: item.get_closest_marker("sampled") for item in items}
    sampled = {item: mark.args[0] if mark.args else 5 for item, mark in marks.items() if mark}
    chosen = dict.fromkeys(items, 5) if config.option.fifth else sampled if len(sampled) > 10 else {}
    seed = "" if config.option.fifth else os.environ[SEED]
    left_out = {item for item, part in chosen.items() if zlib.crc32(f"{seed}{item.nodeid}".encode()) % part}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """The modules and the collected tests stay to the end: the collector need not go through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def one_analysis_for_all_processes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where tests run in several processes, each real capture is analysed in one of them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
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
