"""Options of the analyses, with their defaults and the reasons for them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from xsp_post.arrays.batch_sizes import BATCH_POLICIES, GAIN_RATIO
from xsp_post.arrays.statistics import TRIM_RATIO
from xsp_post.base.errors import UsageError
from xsp_post.hardware.gpus import PIPES
from xsp_post.model import options as user

ROOF_AUTO = user.DEFAULTS.roof


@dataclass(frozen=True)
class Options(user.Options):
    """The choices of the user (`model.options.Options`) and the constants of the analyses' rules. Raises UsageError
    (``option-unknown``) on an unknown roof or policy.

    ``roof``                ``pipe``: the roof of the pipe that ran, with the verdict latency-bound; or a pipe of
                            `hardware.gpus.PIPES`: that one roof for everything, ``fp32`` being the paper's rule.
    ``latency_bound_ratio`` below this share of both roofs a kernel is latency-bound (only with ``pipe``). Nsight
                            Compute already speaks of latency issues below 60 % of its speed of light; our roofs
                            know DRAM and arithmetic only, so that a kernel held by L2 or instruction issue can be
                            well below them. One tenth is the distance that neither explains.
    ``least_coverage``      a sum of counters that covers less of the kernel latency than this has no verdict.
    ``optimal_policy``      which of `batch_sizes.BATCH_POLICIES` is_optimal follows; ``settled``: what the last
                            doubling that still gains reaches; ``first`` is the paper's wording taken literally.
    ``gain_ratio``          the 5 % of the optimal-batch rule.
    ``kernel_row_limit``    above so many launches in one case, A8 and A9 keep the longest ``kernel_row_keep``.
    """

    latency_bound_ratio: float = 0.10
    least_coverage: float = 0.90
    trim_ratio: float = TRIM_RATIO
    optimal_policy: str = BATCH_POLICIES[0]
    gain_ratio: float = GAIN_RATIO
    kernel_row_limit: int = 200_000
    kernel_row_keep: int = 10_000

    @classmethod
    def of(cls, options: user.Options) -> Options:
        """The user's choices with the default constants."""
        if isinstance(options, cls):
            return options
        return cls(**{one.name: getattr(options, one.name) for one in fields(options)})

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("roof", self.roof, (ROOF_AUTO, *PIPES))
        _check("optimal batch policy", self.optimal_policy, BATCH_POLICIES)


def _check(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(
            f"There is no {what} {value!r}.", code="option-unknown", hint="Choose one of " + ", ".join(allowed) + "."
        )
