"""Range texts of any program → columns.

Two steps. The per-call suffix of PyTorch's ``emit_nvtx`` (``, seq = 12, op_id = 34, sizes = [[1, 2]]``) is cut
off all texts at once (`suffixes`); the few different *heads* that remain are recognised, rule by rule (`rules`),
first match wins. Conventions: PyTorch ``emit_nvtx`` and ``record_function``, autograd, Python dict texts (PyProf,
DLProf, SGLang/vLLM layer markers), ``name in=[shapes]``, TensorRT, FSDP, Megatron/Transformer Engine,
torch.compile, XLA ``name#key=value#``, step markers, and our own domain (grammar: `range_text`).
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.names.heads import FLAGS, NUMBERS, TEXTS, WORDS, Heads, small
from xsp_post.names.patterns import one_chunk, to_arrow
from xsp_post.names.rules import parse_heads
from xsp_post.names.suffixes import Parts, cut_suffix

COLUMNS = (
    "dialect", "role", "folded_name", "base_name", "layer_type", "module_path", "call_index", "step_index", "sequence",
    "op_id", "shape_text", "phase", "is_warmup", "is_backward",
)  # fmt: skip
_MANY = 100_000


def parse_names(texts: np.ndarray | pa.Array) -> pd.DataFrame:
    """Columns of range texts: object array of n str → n rows in the same order.

    ``dialect`` xsp, pytorch, autograd, dict, in_shapes, tensorrt, fsdp, megatron, torch_compile, xla, step,
    plain. ``role`` what the text can only be: iteration, model, phase, module, layer, operator, library,
    mark, or '' (see the ``is_…_like`` functions). ``folded_name`` the text without what changes from step
    to step; ``base_name`` its operation; ``layer_type`` class or operator; ``module_path`` dotted or
    slashed path ('' none); ``call_index``, ``step_index``, ``sequence``, ``op_id`` int64, −1 none;
    ``shape_text`` '' none; ``phase`` '' | forward | backward | optimizer | train_step | warmup | a kind of
    step_texts.txt | the phase our own range names; ``is_warmup``: warm-up, compilation or autotuning by its
    text; ``is_backward``. Text columns are categoricals. Never raises on any text.
    """
    return read_names(texts).frame()


def read_names(texts: np.ndarray | pa.Array) -> "Parsed":
    """The same columns, those of texts put together when they are asked for."""
    array = to_arrow(texts)
    cut = cut_suffix(array)
    # a head that had a suffix anywhere is an operator everywhere (`FlashAttnFunc` with and without seq)
    encoded = one_chunk(cut.heads.dictionary_encode())
    count = len(encoded.dictionary)
    codes = None if count == len(array) else small(np.asarray(encoded.indices), count)  # none: all different
    head_has_suffix = np.zeros(count, dtype=bool)
    head_has_suffix[cut.has_suffix if codes is None else codes[cut.has_suffix]] = True
    parsed = Parsed(parse_heads(encoded.dictionary, head_has_suffix), codes, cut)
    if len(array) > _MANY:  # Arrow keeps what a million texts needed meanwhile
        del array, cut, encoded
        pa.default_memory_pool().release_unused()
    return parsed


class Parsed:
    """What range texts say, a row each (columns: `parse_names`). ``numbers`` holds the numbers (int32 where that is
    enough) and flags."""

    def __init__(self, heads: Heads, codes: np.ndarray | None, cut: Parts) -> None:
        self._heads, self._head_of = heads, codes
        self.numbers = {name: _spread(heads.columns[name], codes) for name in (*NUMBERS, *FLAGS)}
        for name, values in (("sequence", cut.sequence), ("op_id", cut.op_id)):  # dict texts carry them inside
            if (values >= 0).any():
                self.numbers[name] = _narrow(np.where(values >= 0, values, self.numbers[name]))
        self._encoded: dict[str, tuple[np.ndarray, pa.Array]] = {}
        if cut.sizes is not None:
            self._encoded["shape_text"] = _shapes(cut.sizes, heads, codes)

    def __len__(self) -> int:
        return len(self.numbers["is_warmup"])

    def encoded(self, column: str) -> tuple[np.ndarray, pa.Array]:
        """A column of texts: codes, and the different texts they stand for."""
        if column not in self._encoded:
            codes, different = self._heads.encoded(column)
            self._encoded[column] = codes if self._head_of is None else codes[self._head_of], different
        return self._encoded[column]

    def says(self, column: str, *texts: str) -> np.ndarray:
        """Where a column holds one of these texts; bool."""
        codes, different = self.encoded(column)
        return np.asarray(pc.is_in(different, to_arrow(list(texts))))[codes]

    def texts(self, column: str, rows: np.ndarray) -> list[str]:
        if not len(rows):
            return []
        codes, different = self.encoded(column)
        return different.take(pa.array(codes[rows])).to_pylist()

    def count(self, rows: np.ndarray, folded: pa.Array, number: np.ndarray) -> None:
        """Texts in some rows count what repeats: without their number they are ``folded``."""
        heads = rows if self._head_of is None else self._head_of[rows]
        self._heads.put(heads, folded_name=folded, base_name=folded, layer_type=folded)
        for name in ("folded_name", "base_name", "layer_type"):
            self._encoded.pop(name, None)
        self.numbers["step_index"] = np.array(self.numbers["step_index"], np.int64)
        self.numbers["step_index"][rows] = number

    def frame(self) -> pd.DataFrame:
        """All columns, those of texts as categoricals."""
        columns: dict[str, Any] = self.numbers | {name: self.numbers[name].astype(np.int64) for name in NUMBERS}
        for name in (*WORDS, *TEXTS):
            codes, different = self.encoded(name)
            columns[name] = pd.Categorical.from_codes(codes, pd.Index(different, dtype=str))
        return pd.DataFrame({name: columns[name] for name in COLUMNS}, copy=False)


def _spread(values: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
    """Numbers or flags per head → per row; where no head has a number, one that is read as many times."""
    if values.dtype != bool and not (values >= 0).any():
        return np.broadcast_to(np.int64(-1), (len(values if codes is None else codes),))
    values = values if values.dtype == bool else _narrow(values)
    return values if codes is None else values[codes]


def _narrow(values: np.ndarray) -> np.ndarray:
    """Numbers as int32, where each of them fits."""
    limits = np.iinfo(np.int32)
    fits = values.min(initial=-1) >= limits.min and values.max(initial=-1) <= limits.max
    return values.astype(np.int32) if fits else values


def _shapes(sizes: pa.Array, heads: Heads, head_of: np.ndarray | None) -> tuple[np.ndarray, pa.Array]:
    """Sizes of the suffix; else what the head itself says."""
    own = one_chunk(sizes.dictionary_encode())
    codes, of_heads = heads.encoded("shape_text")
    both = pa.concat_arrays([own.dictionary, of_heads]).dictionary_encode()
    both_codes = np.asarray(both.indices)
    row = np.asarray(own.indices)
    from_head = np.asarray(pc.equal(own.dictionary, ""))[row]
    head_codes = (codes if head_of is None else codes[head_of])[from_head]
    result = both_codes[row]
    result[from_head] = both_codes[np.int64(len(own.dictionary)) + head_codes]
    return result, both.dictionary
