"""Range texts of any program → columns.

Two steps. The per-call suffix of PyTorch's ``emit_nvtx`` (``, seq = 12, op_id = 34, sizes = [[1, 2]]``) is cut
off all texts at once; the few different *heads* that remain are recognised, rule by rule in `_RULES`, first
match wins. Conventions: PyTorch ``emit_nvtx`` and ``record_function``, autograd, Python dict texts (PyProf,
DLProf, SGLang/vLLM layer markers), ``name in=[shapes]``, TensorRT, FSDP, Megatron/Transformer Engine,
torch.compile, XLA ``name#key=value#``, step markers, and our own domain (grammar: `range_text`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.names import dialects, markers
from xsp_post.names.suffixes import cut_plain

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
_TEXT = ("dialect", "role", "folded_name", "base_name", "layer_type", "module_path", "phase")
_NUMBER = ("call_index", "step_index")

_MARKER = ", (?:seq|op_id|sizes|input_op_ids) = "
_SUFFIX = (
    r"(?s)^(?P<head>.*?)(?:, seq = (?P<seq>-?\d{1,18}))?(?:, op_id = (?P<op>-?\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>.*?))?(?:, input_op_ids = .*)?$"
)
# the same without sizes, of a head without a comma: what most texts are, and faster by half
_PLAIN_SUFFIX = r"^(?P<head>[^,]*)(?:, seq = (?P<seq>-?\d{1,18}))?(?:, op_id = (?P<op>-?\d{1,18}))?(?P<sizes>)$"


_MANY = 100_000


def parse_names(texts: np.ndarray) -> pd.DataFrame:
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
    array = _to_arrow(texts)
    head, sequence, op_id, sizes, has_suffix = _cut_suffix(array)
    # a head that had a suffix anywhere is an operator everywhere (`FlashAttnFunc` with and without seq)
    encoded = _combined(head.dictionary_encode())
    heads = encoded.dictionary
    codes = np.asarray(encoded.indices)
    head_has_suffix = np.zeros(len(heads), dtype=bool)
    head_has_suffix[codes[has_suffix]] = True
    parsed = _parse_heads(heads, head_has_suffix)

    columns: dict[str, object] = {}
    for name in _TEXT:
        columns[name] = _spread(parsed[name], codes)
    for name in _NUMBER:
        columns[name] = _spread_numbers(parsed[name], codes)
    for name, values in (("sequence", sequence), ("op_id", op_id)):  # dict texts carry them inside
        inside = _spread_numbers(parsed[name], codes)
        columns[name] = np.where(values >= 0, values, inside) if (values >= 0).any() else inside
    columns["shape_text"] = _shape_column(sizes, parsed["shape_text"], codes)
    for name in ("is_warmup", "is_backward"):
        columns[name] = parsed[name][codes]
    if len(array) > _MANY:  # Arrow keeps what a million texts needed meanwhile
        del array, head, sizes, encoded
        pa.default_memory_pool().release_unused()
    return pd.DataFrame({name: columns[name] for name in COLUMNS}, copy=False)


# --- the suffix of emit_nvtx -----------------------------------------------------------------------------


def _to_arrow(texts: np.ndarray) -> pa.Array:
    """Texts as one Arrow array; lone surrogates (bytes that were not UTF-8) become replacement marks."""
    try:
        array = pa.array(texts, type=pa.large_string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        array = pa.array(clean, type=pa.large_string())
    return _combined(array)


def _combined(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _cut_suffix(array: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray, pa.Array | None, np.ndarray]:
    """Heads, sequence numbers, operator ids, sizes (None: nowhere) and which rows had a suffix."""
    cut = cut_plain(array)
    if not cut.is_cut.any():
        return _cut_by_pattern(array)
    head, sequence, op_id, sizes, has_suffix = cut.heads, cut.sequence, cut.op_id, None, cut.is_cut
    rows = np.flatnonzero(~cut.is_cut)
    if len(rows):
        mask = pa.array(~cut.is_cut)
        rest, sequence[rows], op_id[rows], some_sizes, has_suffix[rows] = _cut_by_pattern(array.filter(mask))
        if has_suffix[rows].any():
            head = pc.replace_with_mask(head, mask, rest)
        if some_sizes is not None:
            sizes = pc.replace_with_mask(_empty_texts(len(array)), mask, some_sizes)
    return head, sequence, op_id, sizes, has_suffix


def _empty_texts(count: int) -> pa.Array:
    return pa.array([""], type=pa.large_string()).take(pa.array(np.zeros(count, np.int8)))


def _cut_by_pattern(array: pa.Array) -> tuple[pa.Array, np.ndarray, np.ndarray, pa.Array | None, np.ndarray]:
    """The same for texts of any kind, in several times the time."""
    n = len(array)
    sequence, op_id = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    has_suffix = np.asarray(pc.match_substring_regex(array, _MARKER))
    if not has_suffix.any():
        return array, sequence, op_id, None, has_suffix
    mask = pa.array(has_suffix)
    rows = np.flatnonzero(has_suffix)
    some = array.filter(mask)
    cut = pc.extract_regex(some, _PLAIN_SUFFIX)
    if cut.null_count:
        cut = pc.extract_regex(some, _SUFFIX)
    head, seq, op, sizes = (_combined(cut.field(i)) for i in range(4))
    sequence[rows], op_id[rows] = _numbers(seq), _numbers(op)
    # keys in an order nobody writes today: cut at the first key, read each on its own
    odd = pc.match_substring_regex(head, _MARKER)
    if pc.any(odd).as_py():
        odd_rows = rows[np.asarray(odd)]
        rest = array.take(pa.array(odd_rows))
        sequence[odd_rows] = _numbers(_first(rest, r", seq = (?P<x>-?\d{1,18})(?:\D|$)"))
        op_id[odd_rows] = _numbers(_first(rest, r", op_id = (?P<x>-?\d{1,18})(?:\D|$)"))
        sizes = pc.replace_with_mask(sizes, odd, _first(rest, r", sizes = (?P<x>[\[\]\d, \-]*)"))
        head = pc.replace_with_mask(head, odd, _first(rest, rf"(?s)^(?P<x>.*?){_MARKER}"))
    whole_head = pc.replace_with_mask(array, mask, head)
    whole_sizes = None
    if pc.any(pc.not_equal(sizes, "")).as_py():
        whole_sizes = pc.replace_with_mask(_empty_texts(n), mask, sizes)
    return whole_head, sequence, op_id, whole_sizes, has_suffix


def _first(array: pa.Array, pattern: str) -> pa.Array:
    """Group ``x`` of the first match, '' where there is none."""
    return pc.fill_null(_combined(pc.struct_field(pc.extract_regex(array, pattern), [0])), "")


def _numbers(array: pa.Array) -> np.ndarray:
    """Digits as int64, −1 for ''."""
    filled = pc.if_else(pc.equal(array, ""), "-1", array)
    return pc.cast(filled, pa.int64()).to_numpy(zero_copy_only=False)


# --- heads -----------------------------------------------------------------------------------------------


class _Heads:
    """Columns of the different heads while rules fill them; ``open_rows`` are those no rule has taken."""

    def __init__(self, heads: pa.Array, has_suffix: np.ndarray) -> None:
        n = len(heads)
        self.texts = heads
        self.has_suffix = has_suffix
        self.is_open = np.ones(n, dtype=bool)
        self.columns: dict[str, np.ndarray] = {}
        for name in (*_TEXT, "shape_text"):
            self.columns[name] = np.full(n, "", dtype=object)
        for name in (*_NUMBER, "sequence", "op_id"):
            self.columns[name] = np.full(n, -1, np.int64)
        for name in ("is_warmup", "is_backward"):
            self.columns[name] = np.zeros(n, dtype=bool)

    def take(self, pattern: str, extra: np.ndarray | None = None) -> np.ndarray:
        """Rows still open that match; they are closed."""
        matched = np.asarray(pc.match_substring_regex(self.texts, pattern))
        rows = np.flatnonzero(matched & self.is_open if extra is None else matched & self.is_open & extra)
        self.is_open[rows] = False
        return rows

    def strings(self, rows: np.ndarray) -> np.ndarray:
        return self.texts.take(pa.array(rows)).to_numpy(zero_copy_only=False)

    def put(self, rows: np.ndarray, **values: object) -> None:
        for name, value in values.items():
            self.columns[name][rows] = value


def _parse_heads(texts: pa.Array, has_suffix: np.ndarray) -> dict[str, np.ndarray]:
    heads = _Heads(texts, has_suffix)
    for rule in _RULES:
        rule(heads)
    return heads.columns


def _by_python(heads: _Heads, rows: np.ndarray, parse: Callable[[str], dialects.Parsed]) -> None:
    """Rules for texts too irregular for a pattern: each different head once."""
    if not len(rows):
        return
    frame = pd.DataFrame([parse(text) for text in heads.strings(rows)], columns=dialects.Parsed._fields)
    heads.put(rows, **{str(name): frame[name].to_numpy() for name in frame})


def _groups(heads: _Heads, rows: np.ndarray, pattern: str) -> pd.DataFrame:
    return heads_groups(heads.texts.take(pa.array(rows)), pattern)


def heads_groups(array: pa.Array, pattern: str) -> pd.DataFrame:
    """Named groups of a pattern as object columns, '' where absent."""
    extracted = _combined(pc.extract_regex(array, pattern))
    names = [extracted.type.field(i).name for i in range(extracted.type.num_fields)]
    return pd.DataFrame(
        {
            name: pc.fill_null(pc.struct_field(extracted, [i]), "").to_numpy(zero_copy_only=False)
            for i, name in enumerate(names)
        },
        dtype=object,
    )


def _rule_xsp(heads: _Heads) -> None:
    pattern = r"^(?:xsp/)?(?P<kind>model|warmup):(?P<phase>[a-z][a-z0-9_]*)#(?P<k>\d{1,18})$"
    rows = heads.take(pattern)
    if len(rows):
        g = _groups(heads, rows, pattern)
        warm = (g["kind"] == "warmup").to_numpy()
        heads.put(
            rows,
            dialect="xsp",
            role="iteration",
            folded_name=(g["kind"] + ":" + g["phase"]).to_numpy(),
            base_name=g["kind"].to_numpy(),
            layer_type="",
            phase=g["phase"].to_numpy(),
            is_warmup=warm,
            step_index=g["k"].to_numpy().astype(np.int64),
            is_backward=(g["phase"] == "backward").to_numpy(),
        )
    pattern = r"^(?:xsp/)?shape:(?P<shape>[\[(].*)$"
    rows = heads.take(pattern)
    if len(rows):
        g = _groups(heads, rows, pattern)
        heads.put(
            rows, dialect="xsp", role="mark", folded_name="shape", base_name="shape", shape_text=g["shape"].to_numpy()
        )
    pattern = r"^(?:xsp/)?(?P<path>[^:/@#\s]*):(?P<type>[^:/@#\s]+)(?:#(?P<k>\d{1,18}))?$"
    is_class = np.asarray(pc.match_substring_regex(heads.texts, r"^[\w.\-]*:_?[A-Z]\w*$|:[^:/@#\s]+#\d+$"))
    is_note = np.asarray(pc.match_substring_regex(heads.texts, r"^layer:[^#]*$"))  # PyProf, below
    rows = heads.take(pattern, is_class & ~is_note)
    if len(rows):
        g = _groups(heads, rows, pattern)
        k = g["k"].to_numpy()
        numbered = k != ""
        heads.put(
            rows,
            dialect=np.where(numbered, "xsp", "plain"),
            role=np.where(numbered, "layer", "module"),
            folded_name=(g["path"] + ":" + g["type"]).to_numpy(),
            base_name=g["type"].to_numpy(),
            layer_type=g["type"].to_numpy(),
            module_path=g["path"].to_numpy(),
            call_index=np.where(numbered, k, "-1").astype(np.int64),
        )


def _rule_dict(heads: _Heads) -> None:
    _by_python(heads, heads.take(r"""(?s)^\s*\{\s*['"][^'"]*['"]\s*:"""), dialects.parse_dict)


def _rule_in_shapes(heads: _Heads) -> None:
    pattern = r"(?s)^(?P<head>.*?) (?:in|in_shapes|inputs?)=(?P<shape>[\[({].*)$"
    rows = heads.take(pattern)
    if not len(rows):
        return
    g = _groups(heads, rows, pattern)
    # what stands before the shapes is a text like any other
    inner = _parse_heads(pa.array(g["head"].to_numpy(), type=pa.large_string()), np.zeros(len(rows), bool))
    heads.put(rows, **inner)
    heads.put(rows, dialect="in_shapes", shape_text=g["shape"].to_numpy())
    role = heads.columns["role"][rows]
    heads.put(rows, role=np.where(role == "", "module", role))


def _rule_xla(heads: _Heads) -> None:
    _by_python(heads, heads.take(r"(?s)^[^#]*#\w+=.*#$"), dialects.parse_xla)


def _rule_tensorrt(heads: _Heads) -> None:
    rows = heads.take(r"^ExecutionContext::(?:execute|enqueue)")
    text = heads.strings(rows)
    heads.put(rows, dialect="tensorrt", role="model", folded_name=text, base_name=text, layer_type=text)
    rows = heads.take(r"^(?:trt|IExecutionContext|ICudaEngine|ExecutionContext|IBuilder)\w*::|^myelin\w* *$")
    text = heads.strings(rows)
    heads.put(rows, dialect="tensorrt", role="library", folded_name=text, base_name=text, layer_type=text)
    pattern = (
        r"^(?:/[\w.\-]+)*/[A-Z]\w*$|^PWN\(|^Reformatting CopyNode |^\{ForeignNode\[|^\(Unnamed Layer\* "
        r"|^__myl_|^/[^ ]* (?:\+|\|\|) [^ ]|^[A-Za-z][^ /\d]*[/\d][^ ]* (?:\+|\|\|) [^ ]"
        r"|^/[^ ]+ copy$|^[^ ]+ \+ \(Unnamed "
    )
    # gRPC methods look alike: /package.Service/Method
    is_rpc = np.asarray(pc.match_substring_regex(heads.texts, r"^/[\w.]+\.[A-Z]\w*/\w+$"))
    rows = heads.take(pattern, ~is_rpc)
    _by_python(heads, rows, dialects.parse_tensorrt)


def _rule_frameworks(heads: _Heads) -> None:
    """FSDP, Megatron and Transformer Engine, torch.compile."""
    rows = heads.take(r"^(?:FSDP\d?::|FullyShardedDataParallel\.)")
    _by_python(heads, rows, dialects.parse_fsdp)
    rows = heads.take(r"^(?:megatron|transformer_engine|nemo)\.[\w.]+$")
    _by_python(heads, rows, dialects.parse_megatron)
    rows = heads.take(
        r"^(?:Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction|TorchDynamo |"
        r"Pregraph bytecode|AOTDispatcher |Inductor|triton_\w+_fused_)"
    )
    _by_python(heads, rows, dialects.parse_torch_compile)


def _rule_operators(heads: _Heads) -> None:
    """PyTorch operators and autograd nodes: with a namespace, with a suffix, or by their name."""
    pattern = r"^(?P<engine>autograd::engine::evaluate_function: ?)(?P<name>.*)$"
    rows = heads.take(pattern)
    if len(rows):
        name = _groups(heads, rows, pattern)["name"].to_numpy()
        heads.put(
            rows,
            dialect="autograd",
            role="operator",
            folded_name=heads.strings(rows),
            base_name=name,
            layer_type=name,
            phase="backward",
            is_backward=True,
        )
    rows = heads.take(r"^(?:torch::autograd::\w+|[\w:.<>]*[a-zA-Z\d]Backward\d*|[\w:]+::AccumulateGrad)$")
    name = heads.strings(rows)
    heads.put(
        rows,
        dialect="autograd",
        role="operator",
        folded_name=name,
        base_name=name,
        layer_type=name,
        phase="backward",
        is_backward=True,
    )
    rows = heads.take(r"^Optimizer\.\w+#")
    name = heads.strings(rows)
    heads.put(
        rows, dialect="pytorch", role="phase", folded_name=name, base_name=name, layer_type=name, phase="optimizer"
    )
    pattern = r"^nn\.Module: (?P<type>.*?)(?:_\d+)?$"
    rows = heads.take(pattern)
    if len(rows):
        g, text = _groups(heads, rows, pattern), heads.strings(rows)
        path = np.array([t.removeprefix("nn.Module: ") for t in text], dtype=object)
        heads.put(
            rows,
            dialect="pytorch",
            role="module",
            folded_name=text,
            base_name=g["type"].to_numpy(),
            layer_type=g["type"].to_numpy(),
            module_path=path,
        )
    rows = heads.take(r"^(?:nccl|c10d)\w*(?:::|:)\w+")
    name = heads.strings(rows)
    heads.put(rows, dialect="pytorch", role="operator", folded_name=name, base_name=name, layer_type=name)
    rows = heads.take(
        r"^(?:aten|prims|prim|torch|torchvision|quantized|_C\w*|vllm|sgl_kernel|xformers|flash_attn\w*"
        r"|triton|inductor|mkldnn|fbgemm)::\w"
    )
    name = heads.strings(rows)
    heads.put(rows, dialect="pytorch", role="operator", folded_name=name, base_name=name, layer_type=name)


def _rule_markers(heads: _Heads) -> None:
    """Steps of serving and benchmark programs that say what they are (`markers`)."""
    for pattern, parse in (
        (markers.STEP_MODE, markers.parse_step_mode),
        (markers.PARAM_PASS, markers.parse_param_pass),
    ):
        rows = heads.take(pattern)
        if not len(rows):
            continue
        parsed = [parse(text) for text in heads.strings(rows)]
        folded = np.array([one.folded_name for one in parsed], object)
        phase = np.array([one.phase for one in parsed], object)
        heads.put(
            rows,
            dialect="step",
            role="iteration",
            folded_name=folded,
            base_name=folded,
            phase=phase,
            is_backward=phase == "backward",
        )


def _rule_library(heads: _Heads) -> None:
    rows = heads.take(
        r"^(?:cublas|cudnn|cusparse|cusolver|cufft|curand|cutensor|nccl|nvshmem|nvjpeg)(?:Lt)?"
        r"[A-Z_]\w*(?:\(.*\))?$"
    )
    name = heads.strings(rows)
    heads.put(rows, dialect="plain", role="library", folded_name=name, base_name=name, layer_type=name)


def _rule_module_path(heads: _Heads) -> None:
    """Dotted paths with a number in them (`layers.17.mlp`), and PyProf's `layer:name` notes: numbers stay."""
    pattern = r"^(?:layer:)?(?P<path>[A-Za-z_][\w\-]*(?:\.[\w\-]+)*\.\d+(?:\.[\w\-]+)*)$|^layer:(?P<other>.+)$"
    rows = heads.take(pattern)
    if len(rows):
        g = _groups(heads, rows, pattern)
        path = np.where(g["path"] != "", g["path"], g["other"])
        last = np.array([dialects.last_word(p) for p in path], dtype=object)
        heads.put(
            rows,
            dialect="plain",
            role="module",
            folded_name=heads.strings(rows),
            base_name=last,
            layer_type=last,
            module_path=path,
        )


def _rule_rest(heads: _Heads) -> None:
    """Everything else: fold numbers that count steps, ranks, addresses; find phases and markers."""
    rows = np.flatnonzero(heads.is_open)
    heads.is_open[:] = False
    if not len(rows):
        return
    parsed = dialects.parse_plain(heads.texts.take(pa.array(rows)))
    heads.put(rows, **parsed)
    # what PyTorch gave a number is one of its operators, unless it marks a step or a phase
    operator = heads.has_suffix[rows] & (heads.columns["role"][rows] == "")
    heads.put(rows[operator], dialect="pytorch", role="operator")


def _rule_warmup(heads: _Heads) -> None:
    matched = np.asarray(pc.match_substring_regex(heads.texts, dialects.WARMUP))
    # an operator's or our own layer's name says nothing about warm-up
    role, dialect = heads.columns["role"], heads.columns["dialect"]
    heads.columns["is_warmup"] |= matched & (role != "operator") & (role != "layer") & (dialect != "dict")
    warm = np.flatnonzero(heads.columns["is_warmup"] & (heads.columns["phase"] == ""))
    explicit = np.asarray(pc.match_substring_regex(heads.texts.take(pa.array(warm)), dialects.WARMUP_WORD))
    heads.put(warm[explicit], phase="warmup")


_RULES: tuple[Callable[[_Heads], None], ...] = (
    _rule_xsp,
    _rule_dict,
    _rule_markers,
    _rule_in_shapes,
    _rule_xla,
    _rule_tensorrt,
    _rule_frameworks,
    _rule_operators,
    _rule_library,
    _rule_module_path,
    _rule_rest,
    _rule_warmup,
)


# --- back to rows ----------------------------------------------------------------------------------------


def _spread(values: np.ndarray, codes: np.ndarray) -> pd.Categorical:
    """Values per head → categorical per row."""
    value_codes, categories = pd.factorize(values)
    value_codes = value_codes.astype(np.min_scalar_type(-max(len(categories), 1)))  # before there are a million
    return pd.Categorical.from_codes(value_codes[codes], pd.Index(categories, dtype=str))


def _spread_numbers(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Numbers per head → per row; where no head has one, one number that is read as many times."""
    return values[codes] if (values >= 0).any() else np.broadcast_to(np.int64(-1), (len(codes),))


def _shape_column(sizes: pa.Array | None, of_heads: np.ndarray, codes: np.ndarray) -> pd.Categorical:
    if sizes is None:
        return _spread(of_heads, codes)
    own = _combined(sizes.dictionary_encode())
    values = own.dictionary.to_numpy(zero_copy_only=False).astype(object)
    row_codes = np.asarray(own.indices).astype(np.int64)
    head_codes, head_values = pd.factorize(of_heads)
    # sizes of the suffix win; else what the head itself says
    empty = np.flatnonzero(values == "")
    from_head = np.isin(row_codes, empty)
    both_codes, categories = pd.factorize(np.concatenate([values, np.asarray(head_values, dtype=object)]))
    row = both_codes[row_codes]
    row[from_head] = both_codes[len(values) + head_codes[codes[from_head]]]
    return pd.Categorical.from_codes(row, pd.Index(categories, dtype=str))
