"""Range texts of any program → columns.

Two steps. The per-call suffix of PyTorch's ``emit_nvtx`` (``, seq = 12, op_id = 34, sizes = [[1, 2]]``) is cut
off all texts at once (`suffixes`); the few different *heads* that remain are recognised, rule by rule (`rules`),
first match wins. Conventions: PyTorch ``emit_nvtx`` and ``record_function``, autograd, Python dict texts (PyProf,
DLProf, SGLang/vLLM layer markers), ``name in=[shapes]``, TensorRT, FSDP, Megatron/Transformer Engine,
torch.compile, XLA ``name#key=value#``, step markers, and our own domain (grammar: `range_text`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from xsp_post.names.heads import FLAGS, NUMBERS, Heads
from xsp_post.names.patterns import one_chunk, to_arrow
from xsp_post.names.rules import parse_heads
from xsp_post.names.suffixes import cut_suffix

COLUMNS = (
    "dialect",
    "role",
    "folded_name",
    "base_name",
    "layer_type",
    "module_path",
    "call_index",
    "step_index",
    "sequence",
    "op_id",
    "shape_text",
    "phase",
    "is_warmup",
    "is_backward",
)
_MANY = 100_000


def parse_names(texts: np.ndarray | pa.Array) -> pd.DataFrame:
    """Columns of range texts: object array of n str → n rows in the same order.

    ``dialect`` xsp, pytorch, autograd, dict, in_shapes, tensorrt, fsdp, megatron, torch_compile, xla, step,
    plain. ``role`` what the text can only be: iteration, model, phase, module, layer, operator, library,
    mark, or '' (see the ``is_…_like`` functions). ``folded_name`` the text without what changes from step
    to step; ``base_name`` its operation; ``layer_type`` class or operator; ``module_path`` dotted or
    slashed path ('' none); ``call_index``, ``step_index``, ``sequence``, ``op_id`` int64, −1 none;
    ``shape_text`` '' none; ``phase`` '' | forward | backward | optimizer | train_step | prefill | decode |
    warmup | mixed | the phase our own range names; ``is_warmup``: warm-up, compilation or autotuning by its
    text; ``is_backward``. Text columns are categoricals. Never raises on any text.
    """
    array = to_arrow(texts)
    cut = cut_suffix(array)
    # a head that had a suffix anywhere is an operator everywhere (`FlashAttnFunc` with and without seq)
    encoded = one_chunk(cut.heads.dictionary_encode())
    codes = None if len(encoded.dictionary) == len(array) else np.asarray(encoded.indices)  # all different
    head_has_suffix = np.zeros(len(encoded.dictionary), dtype=bool)
    head_has_suffix[cut.has_suffix if codes is None else codes[cut.has_suffix]] = True
    heads = parse_heads(encoded.dictionary, head_has_suffix)

    columns: dict[str, Any] = {}
    for name in COLUMNS:
        if name == "shape_text" and cut.sizes is not None:
            columns[name] = _shape_column(cut.sizes, heads, codes)
        elif name in NUMBERS or name in FLAGS:
            columns[name] = _spread(heads.columns[name], codes)
        else:
            columns[name] = heads.category(name, codes)
    for name, values in (("sequence", cut.sequence), ("op_id", cut.op_id)):  # dict texts carry them inside
        if (values >= 0).any():
            columns[name] = np.where(values >= 0, values, columns[name])
    if len(array) > _MANY:  # Arrow keeps what a million texts needed meanwhile
        del array, cut, encoded
        pa.default_memory_pool().release_unused()
    return pd.DataFrame(columns, copy=False)


def _spread(values: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
    """Numbers or flags per head → per row; where no head has a number, one that is read as many times."""
    if values.dtype != bool and not (values >= 0).any():
        return np.broadcast_to(np.int64(-1), (len(values if codes is None else codes),))
    return values if codes is None else values[codes]


def _shape_column(sizes: pa.Array, heads: Heads, codes: np.ndarray | None) -> pd.Categorical:
    """Sizes of the suffix; else what the head itself says."""
    own = one_chunk(sizes.dictionary_encode())
    values = own.dictionary.to_numpy(zero_copy_only=False).astype(object)
    row_codes = np.asarray(own.indices).astype(np.int64)
    of_heads = heads.texts_of("shape_text").dictionary_encode()
    head_codes, head_values = np.asarray(of_heads.indices), of_heads.dictionary.to_numpy(zero_copy_only=False)
    from_head = np.isin(row_codes, np.flatnonzero(values == ""))
    both_codes, categories = pd.factorize(np.concatenate([values, head_values.astype(object)]))
    row = both_codes[row_codes]
    head_of_row = head_codes if codes is None else head_codes[codes]
    row[from_head] = both_codes[len(values) + head_of_row[from_head]]
    return pd.Categorical.from_codes(row, pd.Index(categories, dtype=str))
