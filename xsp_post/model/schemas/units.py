"""Units and their scaling, done only here. Tables hold ns, bytes, flop; people read ms, MiB, Gflop.

Every function takes a number in the unit its column suffix states (`schemas.base`) and gives text with
its unit. Unknown values (NaN, None, pandas.NA) give ``UNKNOWN``, never 0. Prefixes of time, flop and
counts are decimal; of bytes binary and named so (KiB = 1024 B), because the paper's own "MB" meant
four different things (docs/paper.md, E4).
"""

import math
from collections.abc import Callable
from typing import Any

from xsp_post.model.schemas.base import unit_of

UNKNOWN = "–"
_DIGITS = 3  # significant ones

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
GIGA = 10**9
TERA = 10**12

# what a time on a command line may be written in
TIME_UNITS = {"ns": 1, "us": NS_PER_US, "µs": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S}
_NS = ((1, "ns"), (NS_PER_US, "µs"), (NS_PER_MS, "ms"), (NS_PER_S, "s"))
_BYTES = ((1, "B"), (KIB, "KiB"), (MIB, "MiB"), (GIB, "GiB"), (1 << 40, "TiB"))
_DECIMAL = ((1, ""), (10**3, "k"), (10**6, "M"), (10**9, "G"), (10**12, "T"), (10**15, "P"), (10**18, "E"))


def _is_unknown(value: Any) -> bool:
    if value is None:
        return True
    try:
        return math.isnan(value)
    except TypeError:  # pandas.NA refuses to be a float
        return True


def _if_not_finite(value: Any) -> str:
    """What is printed of such a value; '' for others."""
    if _is_unknown(value):
        return UNKNOWN
    return "" if math.isfinite(value) else "∞" if value > 0 else "-∞"


def _scaled(value: Any, scale: tuple[tuple[int, str], ...], digits: int, *, whole_at_base: bool) -> str:
    if odd := _if_not_finite(value):
        return odd
    number, position = float(value), 0
    for index, (factor, _) in enumerate(scale):
        # A value that would be *printed* as the next prefix takes the next prefix: 999.96 µs is 1.00 ms.
        if float(f"{abs(number) / factor:.{digits}g}") >= 1:
            position = index
    factor, unit = scale[position]
    if position == 0 and whole_at_base and number == int(number):
        text = str(int(number))
    else:
        number /= factor  # of which no whole digit is dropped: 1234 is 1,234
        text = f"{number:,.{max(digits - len(str(int(abs(number)))), 0)}f}"
    return f"{text} {unit}".rstrip()


def format_ns(value: Any) -> str:
    """Nanoseconds as text in ns, µs, ms or s: 1_234_567 → "1.23 ms"."""
    return _scaled(value, _NS, _DIGITS, whole_at_base=True)


def format_difference(value: Any) -> str:
    """A difference of times with its sign: "+1.23 ms", "−1.23 ms"."""
    return _signed(value, format_ns)


def _signed(value: Any, formatter: Callable[[Any], str]) -> str:
    if _is_unknown(value):
        return UNKNOWN
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{formatter(abs(value))}"


def format_bytes(value: Any) -> str:
    """Bytes as text with binary prefixes: 1_572_864 → "1.50 MiB"."""
    return _scaled(value, _BYTES, _DIGITS, whole_at_base=True)


def _prefixed(unit: str) -> Callable[[Any], str]:
    """Of a unit with decimal prefixes, as data sheets print them: 900e9 B/s → "900 GB/s"."""

    def formatter(value: Any) -> str:
        text = _scaled(value, _DECIMAL, _DIGITS, whole_at_base=True)
        number, _, prefix = text.partition(" ")
        return text if text == UNKNOWN else f"{number} {prefix}{unit}"

    return formatter


def _plain(unit: str, digits: int = _DIGITS) -> Callable[[Any], str]:
    """Of a unit that is never prefixed: 17.444 flop/B → "17.4 flop/B"."""

    def formatter(value: Any) -> str:
        text = _scaled(value, ((1, ""),), digits, whole_at_base=False)
        return text if text == UNKNOWN else f"{text} {unit}"

    return formatter


format_bytes_per_s, format_flop, format_flop_per_s = _prefixed("B/s"), _prefixed("flop"), _prefixed("flop/s")
format_hz, format_watts = _prefixed("Hz"), _prefixed("W")
format_flop_per_byte = _plain("flop/B")  # arithmetic intensity
format_inputs_per_s, format_tokens_per_s = _plain("inputs/s", 4), _plain("tokens/s", 4)


def format_ratio_percent(value: Any, decimals: int = 1) -> str:
    """A ratio as percent: 0.3088 → "30.9 %"; a positive share too small to print is "<0.1 %"."""
    if odd := _if_not_finite(value):
        return odd if odd == UNKNOWN else f"{odd} %"
    percent = float(value) * 100
    smallest = 10.0**-decimals
    if 0 < percent < smallest / 2:
        return f"<{smallest:.{decimals}f} %"
    text = f"{percent:,.{decimals}f} %"
    return text[1:] if text.startswith("-") and round(percent, decimals) == 0 else text  # never "-0.0 %"


def format_times(value: Any) -> str:
    """A factor, never with a power of ten: 1.2 → "1.20", 1030.4 → "1,030", 0.0078 → "0.00780"."""
    if (odd := _if_not_finite(value)) or value <= 0:
        return odd or "0"
    return f"{float(value):,.{max(_DIGITS - 1 - math.floor(math.log10(value)), 0)}f}"


def format_change(ratio: Any) -> str:
    """A relative difference with its sign: 0.05 → "+5.0 %". A percentage of more than three digits is a factor that
    nobody sees: 655 → "656 times"."""
    if not _is_unknown(ratio) and 100 * ratio >= 10**_DIGITS:
        return f"{1 + ratio:,.0f} times"
    return _signed(ratio, format_ratio_percent)


def format_ratio_interval(low: float, high: float) -> str:
    """An interval of relative differences, ``−3.0 % … +5.0 %``. Below −100 % a time would be negative: an interval
    that reaches from there to beyond zero is noise, and its ends tell nothing."""
    if low < -1 and high > 0:
        return "too uncertain to say"
    return " … ".join(format_change(max(end, -1.0)) for end in (low, high))


def format_instant(value: Any) -> str:
    """A point of time in seconds, exact to a microsecond: neighbours stay apart."""
    return UNKNOWN if _is_unknown(value) else f"{float(value) / 1e9:,.6f} s"


def format_count(value: Any) -> str:
    """A count with thousands separators: 1000000 → "1,000,000"; fractions of a count keep one decimal."""
    if odd := _if_not_finite(value):
        return odd
    number = float(value)
    return f"{int(value):,}" if number == int(number) else f"{number:,.1f}"


def counted(count: int, one: str, many: str) -> str:
    """``1 launch``, ``2 launches``."""
    return f"{format_count(count)} {one if count == 1 else many}"


_BY_UNIT: dict[str, Callable[[Any], str]] = {
    "ns": format_ns, "B": format_bytes, "flop": format_flop, "flop/s": format_flop_per_s, "B/s": format_bytes_per_s,
    "flop/B": format_flop_per_byte, "inputs/s": format_inputs_per_s, "tokens/s": format_tokens_per_s,
    "Hz": format_hz, "W": format_watts,
}  # fmt: skip


def formatter_of(column: str) -> Callable[[Any], str] | None:
    """The formatter that a column's suffix asks for; None for text, ids, indexes and flags.

    ``_ratio`` columns are percent on screen, ``_count`` columns get separators.
    """
    if column.startswith("is_"):
        return None
    if column.endswith("_ratio"):
        return format_ratio_percent
    if column.endswith("_count"):
        return format_count
    return _BY_UNIT.get(unit_of(column))


def format_operations(kernel_count: int, copy_count: int, graph_count: int) -> str:
    """Device operations by kind, those that there are: ``849 kernels, 1,335 copies and memsets``."""
    kinds = (
        (kernel_count, "kernel", "kernels"),
        (copy_count, "copy or memset", "copies and memsets"),
        (graph_count, "graph execution", "graph executions"),
    )
    said = [counted(count, one, many) for count, one, many in kinds if count]
    return ", ".join(said) or "no device operation"
