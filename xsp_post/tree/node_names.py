"""Trace → Tree, the texts of nodes: parsed once per different text, looked up per span or per node."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from xsp_post.arrays.cutting import distinct
from xsp_post.arrays.texts import taken
from xsp_post.model.trace import Trace
from xsp_post.model.tree import NodeKind
from xsp_post.names import read_names
from xsp_post.names.patterns import groups, matches, numbers, to_arrow

SYNTHETIC = {
    NodeKind.ROOT: "[capture]",
    NodeKind.UNATTRIBUTED: "[unattributed]",
    NodeKind.NO_LAUNCH: "[no launch record]",
    NodeKind.GRAPH: "[CUDA graph]",
}

# Parts of a layer, not distinguished by a number: what repeats of them is layers, not executions.
PART_OF_LAYER = (
    r"(?i)^\D*(?:attention|attn|softmax|qkv|(?:^|[^a-z])(?:mlp|ffn?|moe|(?:layer|batch|rms)?_?norm|linear|conv|matmul|gemm"
    r"|embed(?:ding)?s?|dropout|experts?|residual|layer|block)(?:[^a-z]|$))\D*$"
)
_DIGITS = re.compile(r"\d+")
_COUNTED = r"^(?P<stem>[^0-9]*[A-Za-z][^0-9]*?)[ _:#=\[(\-]*(?P<number>\d{1,9})[\])]?$"


class NodeNames:
    """What the texts of nodes say: parsed once per different text, looked up per span or per node."""

    def __init__(self, trace: Trace) -> None:
        name_id = trace.spans["name_id"].to_numpy()
        codes, used = pd.factorize(name_id)
        texts = taken(trace.strings, used, "[unnamed]")
        self.parsed = read_names(texts)
        self._strings, self._text_id = trace.strings, used
        self._span_count = len(codes)
        self._row_of_node = np.empty(len(codes) + 1, np.int32)
        self._row_of_node[0], self._row_of_node[1:] = -1, codes
        self._guessed_type: np.ndarray = np.zeros(0, object)
        self._fold()

    def _fold(self) -> None:
        """Folded id of each span, and the folded texts."""
        folded, different = self.parsed.encoded("folded_name")
        self.folded_names = np.append(_objects(different), np.array([*SYNTHETIC.values()], object))
        self._first_synthetic = len(different)
        self.folded = folded.astype(np.int32)[self.row]

    def count_what_grows(self, spans: pd.DataFrame, depth: np.ndarray, fewest: int) -> None:
        """Fold numbers at the end of outermost plain ranges that grow through the recording on each thread: they count
        what repeats, whatever the word (`solve 3`, `transcribe:3`); numbers that come again tell layers apart."""
        plain = self.parsed.says("dialect", "plain") & self.parsed.says("role", "")
        plain &= self.parsed.numbers["step_index"] < 0
        outer = np.flatnonzero((depth == 0) & plain[self.row])
        rows = distinct(self.row[outer])
        if len(rows) < fewest:
            return
        found = groups(taken(self._strings, self._text_id[rows], ""), _COUNTED)
        codes, stems = pd.factorize(np.asarray(found["stem"].to_pylist(), object))
        number = numbers(found["number"])
        codes[(number < 0) | matches(to_arrow(stems.tolist()), PART_OF_LAYER)[codes]] = -1
        at = np.searchsorted(rows, self.row[outer])
        frame = pd.DataFrame({
            "stem": codes[at], "thread": spans["thread_index"].to_numpy()[outer], "number": number[at],
            "start": spans["start_ns"].to_numpy()[outer],
        })  # fmt: skip
        series = frame[frame["stem"] >= 0].sort_values("start", kind="stable").groupby(["stem", "thread"])["number"]
        grows = series.is_monotonic_increasing & (series.nunique() == series.size())
        grows &= series.size() >= fewest
        counting = grows.groupby("stem").all()
        counted = np.flatnonzero(np.isin(codes, counting.index[counting]))
        if len(counted):
            self.parsed.count(rows[counted], to_arrow(stems[codes[counted]].tolist()), number[counted])
            self._fold()

    @property
    def row(self) -> np.ndarray:
        """Row of `parsed` per span."""
        return self._row_of_node[1 : self._span_count + 1]

    def span(self, column: str) -> np.ndarray:
        """A parsed number or flag per span; of one that all texts share, one value that is read as many times."""
        values = self.parsed.numbers[column]
        wide = values.dtype if values.dtype == bool else np.dtype(np.int64)
        if len(values) and not values.strides[0]:
            return np.broadcast_to(values[0].astype(wide), (self._span_count,))
        return values.take(self.row).astype(wide, copy=False)

    def sequence(self, trace: Trace) -> np.ndarray:
        """Autograd sequence number per span, −1 none; PyTorch traces keep it beside the name."""
        parsed = self.span("sequence")
        if "sequence" not in trace.attributes:
            return parsed
        return np.where(parsed >= 0, parsed, trace.attributes["sequence"].to_numpy())

    def text(self, row: int) -> str:
        """The text that a row of `parsed` is about; '' for none."""
        name = self._text_id[row] if row >= 0 and len(self._strings) else -1
        return str(self._strings[name]) if name >= 0 else ""

    def folded_with(self, pattern: str) -> np.ndarray:
        """Which folded names hold a pattern of RE2; bool."""
        different = self.parsed.encoded("folded_name")[1]
        return matches(pa.concat_arrays([different, to_arrow(self.folded_names[len(different) :])]), pattern)

    def synthetic(self, kind: NodeKind) -> int:
        """Folded id of a synthetic node's name."""
        return self._first_synthetic + list(SYNTHETIC).index(kind)

    def with_synthetic(self, count: int) -> None:
        """So many nodes without a text of their own follow those of the spans."""
        self._row_of_node = np.concatenate([self._row_of_node, np.full(count, -1, np.int32)])

    def with_inferred(self, folded: np.ndarray, layer_type: np.ndarray) -> np.ndarray:
        """Add nodes that no range stands for, after those there are; returns the folded id of each."""
        codes, unique = pd.factorize(folded)
        known = {text: number for number, text in enumerate(self.folded_names.tolist())}
        fresh = [text for text in unique.tolist() if text not in known]
        known.update({text: len(self.folded_names) + k for k, text in enumerate(fresh)})
        self.folded_names = np.concatenate([self.folded_names, np.array(fresh, object)])
        fresh_rows = (-2 - len(self._guessed_type) - np.arange(len(folded))).astype(np.int32)
        self._row_of_node = np.concatenate([self._row_of_node, fresh_rows])
        self._guessed_type = np.concatenate([self._guessed_type, layer_type])
        return np.array([known[text] for text in unique.tolist()] or [0], np.int32)[codes]

    def node_is(self, column: str, *values: str) -> np.ndarray:
        """Which nodes' parsed text is one of these; bool per node, false for nodes without a text of their own."""
        table = np.append(self.parsed.says(column, *values), False)  # the last: no text of its own
        if not table.any():
            return np.zeros(len(self._row_of_node), bool)
        return table.take(np.maximum(self._row_of_node, -1))

    def node_text(self, column: str, nodes: np.ndarray | None = None) -> np.ndarray:
        """A parsed text per node (object, '' for synthetic nodes; an inferred node has its guessed layer_type)."""
        row = self._row_of_node if nodes is None else self._row_of_node[nodes]
        codes, different = self.parsed.encoded(column)
        # the texts that are folded names, too, are in memory once
        is_folded = different is self.parsed.encoded("folded_name")[1]
        texts = np.append(self.folded_names[: len(different)] if is_folded else _objects(different), "")
        result = texts.take(np.append(codes, np.int32(len(different))).take(np.maximum(row, -1)))  # the last: no text
        if column == "layer_type" and len(self._guessed_type):
            guessed = row <= -2
            result[guessed] = self._guessed_type[-2 - row[guessed]]
        return result

    def node_category(self, column: str) -> pd.Categorical:
        """The same as a categorical, for large frames."""
        own_codes, different = self.parsed.encoded(column)
        guessed = self._guessed_type if column == "layer_type" else np.full(len(self._guessed_type), "", object)
        added = dict.fromkeys(["", *pd.unique(guessed).tolist()])
        found = pc.index_in(to_arrow(list(added)), value_set=different).to_pylist()
        fresh = [text for text, code in zip(added, found) if code is None]
        categories = np.append(_objects(different), np.array(fresh, object))
        numbers = iter(range(len(different), len(categories)))
        code_of = {text: next(numbers) if code is None else code for text, code in zip(added, found)}
        row = self._row_of_node
        codes = np.append(own_codes, np.int32(code_of[""])).astype(np.int32, copy=False).take(np.maximum(row, -1))
        inferred = row <= -2
        if inferred.any():
            codes[inferred] = np.array([code_of[t] for t in guessed.tolist()], np.int64)[-2 - row[inferred]]
        return pd.Categorical.from_codes(codes, pd.Index(categories, dtype=object))


def without_numbers(texts: np.ndarray) -> np.ndarray:
    """Number of the kind of each text: what is left of it without numbers; int64, shape of the texts."""
    return pd.factorize(np.array([_DIGITS.sub("*", str(text)) for text in texts.tolist()], object))[0]


def _objects(texts: pa.Array) -> np.ndarray:
    return texts.to_numpy(zero_copy_only=False)
