"""Text of a capture → safe and short text for a page. Such text may be hostile.

Nothing here knows HTML or JSON: what comes out is plain text in which every character can be seen, so that
a name cannot reorder, hide or fake its surroundings. Escaping is the page's business (`html.escape_json`).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from xsp_post.base.text_safety import INVISIBLE
from xsp_post.tables.analyses.places import NAMELESS

# Names longer than this are cut on the page; the full text is kept beside it, up to FULL_LENGTH.
SHORT_LENGTH = 72
FULL_LENGTH = 12_000

# Every character that nobody can see is replaced by something one can.
_VISIBLE: dict[int, str] = {code: f"⟨U+{code:04X}⟩" for code in sorted(INVISIBLE)}
_VISIBLE |= {ord("\n"): "↵", ord("\t"): "⇥"}
_VISIBLE |= dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # halves of broken UTF-16, undecodable bytes


def visible(text: object, length: int = FULL_LENGTH) -> str:
    """The text with every control, bidirectional and zero-width character shown as a symbol.

    Cut to ``length`` characters of the source with the number of those left out. None and NaN are ''.
    """
    if not isinstance(text, str):
        text = "" if text is None or text is pd.NA or text != text else str(text)
    left_out = len(text) - length
    shown = text[:length]
    if not (shown.isascii() and shown.isprintable()):
        shown = shown.translate(_VISIBLE)
    return f"{shown}… [{left_out} more characters]" if left_out > 0 else shown


def plain(value: Any) -> Any:
    """A value as JSON has it: unknown and infinite numbers are None, text is visible."""
    if isinstance(value, str):
        return visible(value)
    if value is None or value is pd.NA or value != value or value in (float("inf"), float("-inf")):
        return None
    return value.item() if hasattr(value, "item") else value


def visible_series(names: pd.Series, length: int = FULL_LENGTH) -> pd.Series:
    """`visible` over a column, called once per distinct value. Shape kept, dtype object of str."""
    codes, values = pd.factorize(names, use_na_sentinel=True)
    return _spread(_visible_texts(values.tolist(), length), codes, names.index)


def _visible_texts(texts: list[str], length: int) -> list[str]:
    return texts if are_plain(texts, length) else [visible(text, length) for text in texts]


def are_plain(texts: list[str], length: int) -> bool:
    """Whether all texts can be shown as they are: nearly always, and seen at once. None of them is longer then."""
    if set(map(type, texts)) != {str} or max(map(len, texts)) > length:
        return False
    joined = "".join(texts)
    return joined.isascii() and joined.isprintable()


def _spread(texts: list[str], codes: np.ndarray, index: pd.Index) -> pd.Series:
    """A column of texts by their number; −1 is ''."""
    known = np.array([*texts, ""], dtype=object)
    return pd.Series(known[codes], index=index, dtype=str)  # pandas 3.0 adds no column of objects to one of texts


def shorten(text: str, length: int = SHORT_LENGTH) -> str:
    """At most ``length`` characters, cut in the middle: both ends of a name tell something. What stands behind a dot
    (kernels, a source line) tells less than what is before it, and is cut at its end."""
    if len(text) <= length:
        return text
    tail = 0 if len(text.partition(" · ")[0]) < length else length // 3
    return f"{text[: length - tail - 1]}…{text[len(text) - tail :]}"


_BUILT_IN = re.compile(r"<built-in (?:function|method) (\S+).*>")


def inferred(name: str) -> str:
    """``transformer block`` of ``transformer block · aten::linear, …``: what its kernels are says less than what or
    where it is; of a block of no known kind both. A number that differs (``forward *``) says nothing."""
    name = re.sub(r" (?:\*|\(\*(?: \w+)?\))(?=,| ·|$)", "", name)
    what, dot, kernels = name.partition(" · ")
    return what + dot + ", ".join(map(short_kernel, kernels.split(", "))) if NAMELESS.match(name) else what


def called(name: str) -> str:
    """What was called, as its programmer knows it: a file without its folders, an address as what it is."""
    if re.fullmatch(r"0x[0-9a-f]+", name):
        return "no symbol"
    built_in = _BUILT_IN.fullmatch(name)
    return visible(built_in[1] if built_in else re.sub(r"^\S*/(?=[^/]*\.py\()", "", name))


def fitted(write: Callable[[int], str], most: int) -> str:
    """A text of a line of so many letters, else of two: names, of the length that ``write`` is given, are cut, its
    words are not."""
    texts = [write(length) for length in range(64, 7, -4)]
    lines = [(len(wrap(text, most, break_on_hyphens=False)), text) for text in texts]
    return next((text for count in (1, 2) for needed, text in lines if needed <= count), texts[-1])


def cut_alike(texts: Sequence[str], length: int) -> list[str]:
    """Texts of at most so many letters. Those that begin alike are cut in what they have in common, so that they stay
    different where the length leaves room for that; a number is not cut."""
    found = [shorten(text, length) for text in texts]
    for begin in dict.fromkeys(text[: length // 3] for text in texts if len(text) > length):
        rows = [row for row, text in enumerate(texts) if len(text) > length and text.startswith(begin)]
        alike = [texts[row] for row in rows]
        start = _shared(alike)
        end = min(_shared([text[:start:-1] for text in alike]), length)
        inner = [text[start : len(text) - end] for text in alike]
        is_told = max(map(len, inner)) > length - 2 and len({found[row] for row in rows}) == len(set(alike))
        if is_told or len(set(alike)) == 1 or not start + end:
            continue
        for row, text, middle in zip(rows, alike, cut_alike(inner, max(length - 2, 1))):
            room = length - len(middle) - 2
            head = min(start, max(room - end, room - room // 3))
            tail = min(end, room - head)
            before, after = "…" * (head < start), "…" * (tail < end)
            found[row] = f"{text[:head]}{before}{middle}{after}{text[len(text) - tail :]}"
    return found


def _shared(texts: list[str]) -> int:
    """How many letters texts begin with alike, without a number at the end of these."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(min(texts), max(texts)))
    return len("".join(one for one, _ in alike).rstrip("0123456789"))


_RETURN_TYPE = re.compile(r"^(?:void|int|float|double|bool)\s+")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{lambda.*")
_FUNCTOR = re.compile(r"(?<![\w])(\w*(?:[Ff]unctor|[Oo]ps?(?![\w])|_impl(?![a-z])|Func(?![a-z])|_kernel_cuda)\w*)")
# They hold the functor that does the work, and say nothing themselves.
_WRAPPERS = {
    "op", "ops", "functor", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "binaryfunctor", "unaryfunctor", "reduceop",
    "opaque", "elementwise_kernel_impl",
}  # fmt: skip
_WITH_A_SCALAR = ("AUnaryFunctor", "BUnaryFunctor")
_LAMBDA_OWNER = re.compile(r"(?:\w+::)*(?!decltype\b)(\w+)\(")
_TOKENS = re.compile(r"[A-Za-z0-9]+")
_MOST_TOKENS = 2


@lru_cache(maxsize=1 << 18)  # the same names are in the tree, the timeline and the path of a page
def short_kernel(name: str, length: int = SHORT_LENGTH) -> str:
    """A kernel's demangled name without return type, arguments and namespaces; of the template list, the functor.

    ``void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(int, …)``
    becomes ``vectorized_elementwise_kernel<CUDAFunctor_add>``. Generated names (cuBLAS, CUTLASS, Triton)
    have no such parts and are only cut.
    """
    text = _RETURN_TYPE.sub("", name.strip())
    if "(anonymous" in text or "<unnamed>" in text or "{lambda" in text:
        text = _ANONYMOUS.sub("", text)
    head, bracket, rest = text.partition("<")
    if "(" in head:  # the arguments come first: there is no template list
        head, bracket = head.partition("(")[0], ""
    bare = head.rpartition("::")[2].strip() or head.strip() or name
    functor = f"<{_functor(rest, bare) or '…'}>" if bracket else ""
    return shorten(bare + functor, length)


def _functor(template: str, bare: str) -> str:
    """The functor in a template list that does the work: the innermost of those that only wrap another."""
    found = _FUNCTOR.findall(template)
    if not found:
        return _owner_of_lambda(template)
    inner = [one for one in found if one.lower() not in _WRAPPERS and one not in (*_WITH_A_SCALAR, bare)]
    outer = next((one for one in found if one in _WITH_A_SCALAR), "")
    if outer and inner:
        return f"{outer}<{inner[0]}>"
    rest = [one for one in found if one.lower() not in ("op", "ops", "functor") and one != bare]
    return inner[0] if inner else outer or (rest[-1] if rest else _owner_of_lambda(template))


@lru_cache(maxsize=1 << 12)
def _owner_of_lambda(template: str) -> str:
    """``PdV_kernel`` of ``PdV_kernel(int, …)::[lambda(int) (instance 1)]>``: the function whose lambda runs, or ""."""
    found = _LAMBDA_OWNER.match(template)
    return found[1] if found and "lambda" in template else ""


def short_kernels(names: pd.Series, length: int = SHORT_LENGTH) -> pd.Series:
    """`short_kernel` over a column, once per distinct name; different names stay different (`make_distinct`)."""
    codes, values = pd.factorize(names, use_na_sentinel=True)
    full = _visible_texts(values.tolist(), 2000)
    return _spread(make_distinct([short_kernel(name, length) for name in full], full), codes, names.index)


def alike_kernels(names: pd.Series) -> pd.Series:
    """Kernels that are printed alike as one: the first name of each."""
    codes, known = pd.factorize(names.astype(object))
    short, _ = pd.factorize(np.array([short_kernel(visible(name)) for name in known], object))
    return pd.Series(known[np.unique(short, return_index=True)[1]][short][codes], index=names.index)


def make_distinct(short: Sequence[str], full: Sequence[str]) -> list[str]:
    """Short names made different where shortening made them equal: by the first parts of the full name that the
    others do not have, and by a number where there are none."""
    if len(set(short)) == len(set(full)):
        return list(short)
    alike: dict[str, list[int]] = {}
    for row, name in enumerate(short):
        alike.setdefault(name, []).append(row)
    result = list(short)
    for rows in alike.values():
        if len({full[row] for row in rows}) < 2:
            continue
        tokens = [dict.fromkeys(_TOKENS.findall(full[row])) for row in rows]
        common = set(tokens[0]).intersection(*tokens[1:])
        for row, mine in zip(rows, tokens):
            own = sorted((token for token in mine if token not in common), key=str.isdigit)[:_MOST_TOKENS]
            result[row] = f"{short[row]} · {' '.join(own)}" if own else short[row]
    pairs = dict.fromkeys(zip(result, full))
    known = dict(zip(pairs, distinct(name for name, _ in pairs)))
    return [known[pair] for pair in zip(result, full)]


def distinct(names: Iterable[str]) -> list[str]:
    """Names with a number added where shortening made two equal: neither a reader nor an axis may join them."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result


class StringTable:
    """Distinct texts of a page by number, so that a kernel name of 3 kB is in the file once.

    ``budget`` characters in all: what exceeds it is kept short, and `cut_count` says how many were.
    """

    def __init__(self, budget: int = 900_000) -> None:
        self.texts: list[str] = []
        self.cut_count = 0
        self._numbers: dict[str, int] = {}
        self._left = budget

    def number(self, text: str) -> int:
        """The number of a text, added when new."""
        known = self._numbers.get(text)
        if known is not None:
            return known
        kept = text
        if len(text) > max(self._left, 200):
            kept, self.cut_count = shorten(text, 200), self.cut_count + 1
        self._left -= len(kept)
        self.texts.append(kept)
        self._numbers[text] = len(self.texts) - 1
        return len(self.texts) - 1

    def numbers(self, texts: Iterable[str]) -> list[int]:
        """`number` for each text."""
        return [self.number(text) for text in texts]
