"""Two results → their differences with confidence intervals: `compare(base, other)`.

`matching` pairs cases, layers and kernels; `differences` tests every pair with one correction over all of
them; `structure` says in what the two captures differ beside time (kernels, ranges, system); `bars` are the
conditions of ``--fail-if``. The comparison is `Results` again: tables `compare_…`.
"""

from xsp_post.base.lazy import lazily

__getattr__ = lazily(
    __name__, {"compare": "comparison", "CompareOptions": "comparison", "parse_bar": "bars", "check_bars": "bars"}
)
