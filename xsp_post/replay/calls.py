"""Name of a CUDA or HIP call → its class (launch, synchronisation, copy …), used for causes of idle time."""

import re
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

import numpy as np

from xsp_post.arrays.texts import Strings, of_each
from xsp_post.base.texts import read_patterns
from xsp_post.names.patterns import found_in


class CallClass(IntEnum):
    """What a call does while the thread is in it."""

    OTHER = 0
    LAUNCH = 1
    COPY = 2
    SYNCHRONIZATION = 3
    ALLOCATION = 4
    MODULE = 5


PATTERNS = read_patterns(Path(__file__).with_name("calls.txt"))
MAKES = PATTERNS["makes"]
_OF_CLASS = {kind.name.lower(): kind for kind in CallClass} | {"makes": CallClass.ALLOCATION}
_CLASSES = [(_OF_CLASS[name], re.compile(pattern)) for name, pattern in PATTERNS.items() if name in _OF_CLASS]
_SYSTEM = [pattern for name, pattern in PATTERNS.items() if name.startswith("system ")]

# From the return of a launch call to the start on an idle device: what takes longer has waited for something.
LATENCY_LIMIT_NS = 100_000
# The first launch of a kernel loads its code: recognised by its length.
SLOW_LAUNCH_NS = 100_000
# Host code between two launches that lasts at least this is no cost of launching: it loads data, allocates, reports.
LONG_HOST_NS = 100_000
LUMP_NS = 1_000_000  # host code that is no overhead of a call, and no treatment of a value

TIMER = "a timer: equal lengths"  # what a thread waited for that slept equally long again and again


def call_class(name: str) -> CallClass:
    """The class of a call by its name; OTHER for what only asks or records, and for what is not a CUDA or HIP call."""
    if not re.search(PATTERNS["api"], name):
        return CallClass.OTHER
    return next((kind for kind, pattern in _CLASSES if pattern.search(name)), CallClass.OTHER)


def call_classes(name_id: np.ndarray, strings: Strings) -> np.ndarray:
    """The class of every call by its name's string id; int8, shape (n,)."""
    return of_each(name_id, lambda one: int(call_class(str(strings[one]))) if one >= 0 else 0, np.int8)


def system_class(name: str) -> int:
    """What a call into the operating system waits for: 0 a time, 1 a thread, 2 a file or socket; −1 none."""
    return next((number for number, pattern in enumerate(_SYSTEM) if re.search(pattern, name)), -1)


def loads_code(start_ns: np.ndarray, end_ns: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Whether a launch was the first of its kernel, and took ten times the usual and more; bool, shape (launches,).
    ``kernel``: a number for each kernel of each process."""
    duration, is_first = end_ns - start_ns, np.zeros(len(start_ns), bool)
    slow = duration > SLOW_LAUNCH_NS
    if slow.any():
        slow &= duration > 10 * float(np.percentile(duration, 50, method="lower"))
        order = np.argsort(start_ns, kind="stable")
        is_first[order[np.unique(kernel[order], return_index=True)[1]]] = True
    return slow & is_first


def are_communication(texts: Iterable[str]) -> np.ndarray:
    """Whether ranges of these texts are such in which ranks talk to one another; bool per text."""
    return found_in([text[:500] for text in texts], PATTERNS["communication"])


def are_compilation(texts: Iterable[str]) -> np.ndarray:
    """Whether ranges or frames of these texts are such in which code is compiled or tuned; bool per text. Of a frame
    (``file.py(12): function``) the function says it."""
    named = [text[:500].rpartition("): ")[2] for text in texts]
    return found_in(named, PATTERNS["compilation"]) & ~found_in(named, PATTERNS["no compilation"])
