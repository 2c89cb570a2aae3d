"""Operators without products: element by element, normalisation, reduction, look-up, copy, optimiser, collective.

They have no flop in the convention of `torch.utils.flop_counter`; their bytes are what limits them.
"""

import math

from xsp_post.work import amounts
from xsp_post.work.amounts import Amounts, Formula, bytes_of, takes, times, total
from xsp_post.work.convolutions import output_size, wide
from xsp_post.work.dtypes import element_bytes, kind_of
from xsp_post.work.signature import Input, Signature

_RANK = {"": 0, "bool": 1, "int8": 2, "fp8": 4, "fp16": 5, "bf16": 5, "fp32": 6, "fp64": 7}


def _whole(family: str, read: float | None, written: float | None, operations: float) -> Amounts:
    return Amounts(family, 0.0, read, written, "", operations)


def sums(*, family: str, read: str, written: str, operations: str = "none") -> Formula:
    """A formula out of terms (`operators.txt`), each a sum of these words. None where an input is not a tensor.

    ``all``, ``count_all``   bytes and elements of every tensor; ``none``: nothing
    ``i``, ``i?``            bytes of the input at place i; of an input that is not there, 0
    ``but_i``                bytes of every other tensor
    ``new_i``, ``count_i``   bytes of a dense tensor of its sizes; its elements
    """
    words = [terms.split("+") for terms in (read, written, operations)]

    def formula(call: Signature) -> Amounts | None:
        parts = [[_term(call, word) for word in terms] for terms in words]
        if not call.tensors() or any(part == _MISSING for terms in parts for part in terms):
            return None
        into, out, count = (total(*terms) for terms in parts)
        return _whole(family, into, out, count or 0.0)

    return formula


_MISSING = -1.0


def _term(call: Signature, word: str) -> float | None:
    """The bytes or elements that a word of `sums` stands for; `_MISSING` where its input is not a tensor."""
    what, _, place = word.rpartition("_")
    if place == "none":
        return 0.0
    if place == "all":
        return total(*(float(one.element_count) if what else bytes_of(one) for one in call.tensors()))
    index = int(place.rstrip("?"))
    one = call.inputs[index] if index < len(call.inputs) else Input()
    if not one.is_tensor:
        return 0.0 if "?" in place else _MISSING
    if what == "but":
        return total(*(bytes_of(other) for other in call.tensors() if other is not one))
    return {"": bytes_of(one), "new": _fresh(one), "count": float(one.element_count)}[what]


def _broadcast_count(tensors: list[Input]) -> int:
    """Elements of the result of sizes that are broadcast against one another."""
    width = max((len(one.shape) for one in tensors), default=0)
    padded = [(1,) * (width - len(one.shape)) + one.shape for one in tensors]
    return math.prod(0 if 0 in column else max(column) for column in zip(*padded)) if width else 1


def _result_dtype(tensors: list[Input]) -> str:
    """Type of the result: the widest of the tensors that have dimensions, floating before integer."""
    shaped = [one for one in tensors if one.sizes] or tensors
    return max(shaped, key=lambda one: (_RANK.get(kind_of(one.dtype), 3), element_bytes(one.dtype) or 0)).dtype


def elementwise(call: Signature) -> Amounts | None:
    """All tensors in, one result of their broadcast size out; in place it is as much."""
    tensors = call.tensors()
    return _broadcast(tensors, element_bytes(_result_dtype(tensors))) if tensors else None


def comparison(call: Signature) -> Amounts | None:
    """As elementwise, the result being bool."""
    return _broadcast(tensors, 1.0) if (tensors := call.tensors()) else None


def _broadcast(tensors: list[Input], size: float | None) -> Amounts:
    """``size``: bytes of an element of the result."""
    count = _broadcast_count(tensors)
    return _whole(amounts.ELEMENTWISE, total(*map(bytes_of, tensors)), times(count, size), float(count))


def foreach(call: Signature) -> Amounts | None:
    """_foreach_…: lists of tensors in, as much as the first list out."""
    lists = [one for one in call.inputs if one.items]
    if not lists:
        return None
    read = total(*(bytes_of(one) for one in lists))
    return _whole(amounts.OPTIMIZER, read, bytes_of(lists[0]), float(lists[0].element_count))


def fused_optimizer(call: Signature) -> Amounts | None:
    """_fused_adam_, _fused_sgd_ …: parameters, gradients and states are read; all but the gradients are written."""
    lists = [one for one in call.inputs if one.items]
    if len(lists) < 2:
        return None
    count = lists[0].element_count
    full = [one for one in lists if one.element_count == count]
    read = total(*(bytes_of(one) for one in full))
    written = total(*(bytes_of(one) for one in [full[0], *full[2:]]))
    return _whole(amounts.OPTIMIZER, read, written, float(count))


def norm_backward(call: Signature) -> Amounts | None:
    """Normalisation backward: everything in, the gradient of the input and those of the weights out."""
    source = call.tensor(1) or call.tensor(0)
    if source is None:
        return None
    read = total(*map(bytes_of, call.tensors()))
    weights = [one for one in call.tensors() if len(one.shape) == 1]
    written = total(_fresh(source), *(2 * [bytes_of(one) for one in weights[:1]]))
    return _whole(amounts.NORMALISATION, read, written, float(source.element_count))


def _fresh(one: Input) -> float | None:
    """Bytes of a new dense tensor of the same sizes."""
    return times(one.element_count, element_bytes(one.dtype))


@takes(0)
def reduction(call: Signature, source: Input) -> Amounts | None:
    """The input in, what remains of it out: all but the dimensions of the second input, or one number."""
    dims, sizes = call.integers(1), source.shape
    kept = 1
    if dims and all(-len(sizes) <= one < len(sizes) for one in dims):
        gone = {one % len(sizes) for one in dims}
        kept = math.prod(size for i, size in enumerate(sizes) if i not in gone)
    written = times(kept, element_bytes(source.dtype))
    return _whole(amounts.REDUCTION, bytes_of(source), written, float(source.element_count))


@takes(0)
def topk(call: Signature, source: Input) -> Amounts | None:
    """topk: the input in, k values and their places (8 bytes) of each row out."""
    if not (count := call.integers(1)):
        return None
    kept = source.element_count // max(source.shape[-1], 1) * count[0]
    size = element_bytes(source.dtype)
    return _whole(
        amounts.ROUTING, bytes_of(source), times(kept, None if size is None else size + 8), float(source.element_count)
    )


@takes(0, 2)
def index_select(call: Signature, table: Input, indices: Input) -> Amounts | None:
    """index_select, gather of rows: table, dimension, indices."""
    return _rows(table, indices) if call.integers(1) in ((0,), None) else None


def _rows(table: Input, indices: Input) -> Amounts:
    """Of a table the rows that are looked up."""
    width, size = math.prod(table.shape[1:]), element_bytes(table.dtype)
    looked_up = times(min(indices.element_count, table.shape[0]) * width, size)
    read = total(looked_up, bytes_of(indices))
    return _whole(amounts.LOOKUP, read, times(indices.element_count * width, size), 0.0)


lookup = takes(0, 1)(lambda _, table, indices: _rows(table, indices))  # embedding: table, indices


@takes(0, 2)
def gather(call: Signature, table: Input, indices: Input) -> Amounts | None:
    """gather: table, dimension, indices: one element of the table per index."""
    size = element_bytes(table.dtype)
    read = total(times(indices.touched_count, size), bytes_of(indices))
    return _whole(amounts.LOOKUP, read, times(indices.element_count, size), 0.0)


def index(call: Signature) -> Amounts | None:
    """index (``table[rows]``): table, list of indices of 8 bytes. A list whose sizes are not recorded says nothing, nor
    one that may be a mask: how many of its elements are true is not recorded."""
    table = call.tensor(0)
    given = call.inputs[1].items if len(call.inputs) > 1 else ()
    if table is None or not table.sizes or not given or not all(one.sizes for one in given):
        return None
    if any(one.shape == table.shape[: len(one.shape)] for one in given):
        return None
    count = _broadcast_count(list(given)) * math.prod(table.sizes[len(given) :])
    size = element_bytes(table.dtype)
    read = total(times(min(count, table.element_count), size), 8.0 * sum(one.element_count for one in given))
    return _whole(amounts.LOOKUP, read, times(count, size), 0.0)


@takes(0, 2)
def index_put(call: Signature, table: Input, values: Input) -> Amounts | None:
    """index_put: table, indices, values, whether they are added. As many elements are written as there are values; of
    a single value it is not known how many."""
    if values.element_count <= 1:
        return None
    written = times(values.element_count, element_bytes(table.dtype))
    is_added = bool(call.flag(3))
    read = total(bytes_of(values), written if is_added else 0.0)
    return _whole(amounts.LOOKUP, read, written, float(values.element_count) if is_added else 0.0)


@takes(0, 2)
def scatter(call: Signature, table: Input, indices: Input) -> Amounts | None:
    """scatter, scatter_add: table, dimension, indices, values: one element of the table per index."""
    count, size = indices.element_count, element_bytes(table.dtype)
    is_added = "add" in call.operator
    read = total(bytes_of(indices), times(count, size) if call.tensor(3) is not None else 0.0)
    written = times(count, size)
    if is_added:
        read = total(read, written)
    return _whole(amounts.LOOKUP, read, written, float(count) if is_added else 0.0)


@takes(0, 1)
def embedding_backward(call: Signature, gradient: Input, indices: Input) -> Amounts | None:
    """embedding_dense_backward: gradient, indices, number of rows: a whole table of gradients is written."""
    if not (rows := call.integers(2)):
        return None
    read = total(bytes_of(gradient), bytes_of(indices))
    written = times(rows[0] * gradient.shape[-1], element_bytes(gradient.dtype))
    return _whole(amounts.LOOKUP, read, written, float(gradient.element_count))


@takes(0)
def pool(call: Signature, source: Input) -> Amounts | None:
    """max_pool*d (with indices of 8 bytes), avg_pool*d: input, kernel, stride, padding, dilation."""
    if not (kernel := call.integers(1)):
        return None
    rank, dilation = len(kernel), call.integers(4) if "max_pool" in call.operator else None
    stride, padding, dilation = (
        wide(one, rank, usual) for one, usual in ((call.integers(2) or kernel, 1), (call.integers(3), 0), (dilation, 1))
    )
    if len(source.shape) <= rank or not len(stride) == len(padding) == len(dilation) == rank or 0 in stride:
        return None
    spatial = (output_size(*axis) for axis in zip(source.shape[-rank:], kernel, stride, padding, dilation))
    count = math.prod(source.shape[:-rank]) * math.prod(spatial)
    size = element_bytes(source.dtype)
    written = times(count, None if size is None else size + 8 * ("with_indices" in call.operator))
    return _whole(amounts.REDUCTION, bytes_of(source), written, float(source.element_count))


@takes(0)
def resize(call: Signature, source: Input) -> Amounts | None:
    """adaptive_avg_pool*d, upsample_*: input, spatial sizes of the result."""
    spatial = call.integers(1)
    if not spatial or len(source.shape) <= len(spatial):
        return None
    count = math.prod(source.shape[: -len(spatial)]) * math.prod(spatial)
    written = times(count, element_bytes(source.dtype))
    return _whole(amounts.REDUCTION, bytes_of(source), written, float(max(count, source.element_count)))


@takes(0, 1)
def loss(call: Signature, source: Input, target: Input) -> Amounts | None:
    """nll_loss_forward: one element per row and the row's class."""
    picked = times(target.element_count, element_bytes(source.dtype))
    return _whole(amounts.REDUCTION, total(picked, bytes_of(target)), element_bytes(source.dtype), 0.0)


@takes(0, 1)
def rotary(call: Signature, positions: Input, query: Input) -> Amounts | None:
    """rotary_embedding: positions, queries and keys (changed in place), head width, table of sines."""
    key, table = call.tensor(2), call.tensor(4)
    turned = total(bytes_of(query), bytes_of(key))
    rows = 0.0 if table is None or not table.sizes else min(positions.element_count, table.sizes[0]) * table.sizes[-1]
    sines = times(rows, element_bytes(table.dtype)) if table is not None else 0.0
    operations = query.element_count + (key.element_count if key is not None else 0)
    return _whole(amounts.ELEMENTWISE, total(turned, bytes_of(positions), sines), turned, float(operations))


@takes(0, 1)
def cache_store(call: Signature, key: Input, value: Input) -> Amounts | None:
    """New keys and values into the cache: they are read and written, the slots are read."""
    slots = next((one for one in call.tensors()[2:] if "int" in one.dtype), None)
    moved = total(bytes_of(key), bytes_of(value))
    return _whole(amounts.COPY, total(moved, bytes_of(slots)), moved, 0.0)


def fused_triton(call: Signature) -> Amounts | None:
    """torch.compile's kernels: every tensor they are given once, of each at most as many elements as the kernel has.

    The numbers after the tensors say how many that is; without them the last tensor, which is written, does.
    """
    tensors = [one for one in call.inputs if one.is_tensor]
    if not tensors:
        return None
    numbers = [found[0] for i, one in enumerate(call.inputs) if one.value and (found := call.integers(i))]
    limit = math.prod(numbers) if numbers and all(one > 0 for one in numbers) else tensors[-1].element_count
    limit = max(limit, tensors[-1].element_count)
    parts = [bytes_of(one, min(one.touched_count, limit)) for one in tensors]
    read = total(*parts[:-1]) if len(parts) > 1 else 0.0
    written = total(parts[-1])
    if len(parts) == 1:
        read = written  # in place
    return _whole(amounts.ELEMENTWISE, read, written, float(limit))


def collective(call: Signature) -> Amounts | None:
    """What a collective reads and writes in the memory of its own GPU: the message in, the message out."""
    size = element_bytes(str(call.message.get("dtype", "")))
    into, out = (call.message.get(f"{way} msg nelems") for way in ("In", "Out"))
    if size is None or type(into) is not int or type(out) is not int or min(into, out) < 0:
        return None
    name = str(call.message.get("Collective name", ""))[:40]
    return Amounts(amounts.COLLECTIVE, 0.0, float(into * size), float(out * size), note=name)
