"""How many examples a property is tried with. They are the same ones in every run, so that no run fails by chance.

``XSP_POST_EXAMPLES=20 scripts/test -k PROPERTY`` tries 20 times as many, drawn anew each time. scripts/test takes
a fifth of them, with `--all` all.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = float(os.environ.get("XSP_POST_EXAMPLES") or 1)
LEAST = 4  # examples of a property, however small the part
IS_SHRUNK = os.environ.get("XSP_POST_SHRINK") != "0"  # scripts/mutate asks only whether a property fails


def load_profile() -> None:
    """For every property: on a loaded machine an example may take long, which says nothing about the code."""
    settings.register_profile(
        "xsp-post",
        deadline=None,
        derandomize=TIMES <= 1,
        max_examples=_count(100),
        phases=[phase for phase in Phase if IS_SHRUNK or phase is not Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("xsp-post")


def examples(count: int) -> settings:
    """A decorator: so many examples instead of a hundred, where each takes long."""
    return settings(max_examples=_count(count))


def _count(count: int) -> int:
    return max(round(count * TIMES), min(count, LEAST))
