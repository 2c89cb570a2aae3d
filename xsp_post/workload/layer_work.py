"""``run`` → capture: how much work one call of a layer is at the least, from the sizes of its tensors.

Least bytes are what has to move: inputs + parameters and buffers + outputs, each once; of an embedding's table
the rows that are looked up.
"""

from math import prod
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils.flop_counter import conv_flop_count

from xsp_post.work.convolutions import read_positions
from xsp_post.workload.models import tensors
from xsp_post.workload.vision import Add

# Layers of torch whose flop hang on more than the sizes of their first input and output.
_UNSAID = (nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, nn.Bilinear)

# Layers of torch that look at their input in another way and move nothing.
_VIEWS = (nn.Flatten, nn.Unflatten, nn.Identity)


def sized_work(module: nn.Module, inputs: Any, output: Any) -> tuple[int, int] | None:
    """(forward flop, least bytes) of one call of a layer of torch.nn; None for what its sizes do not say.

    Flops are counted as `torch.utils.flop_counter` does: 2 per multiply-add of convolutions and matrix products,
    elementwise work 0. A layer that somebody wrote may compute anything, so nothing is said of it.
    """
    read, written = tensors(inputs), tensors(output)
    if isinstance(module, Add) and len(written) == 1:
        return 0, bytes_of(inputs) + bytes_of(output)
    if isinstance(module, _VIEWS):
        return 0, 0
    is_known = type(module).__module__.startswith("torch.nn.modules.") and next(module.children(), None) is None
    if not is_known or isinstance(module, _UNSAID) or not read or len(written) != 1:
        return None
    flop = 0
    if isinstance(module, _ConvNd):
        if read[0].dim() != module.weight.dim():  # without a batch
            return None
        read_size, weight_size, written_size = (list(tensor.shape) for tensor in (read[0], module.weight, written[0]))
        is_transposed = isinstance(module, _ConvTransposeNd)
        flop = conv_flop_count(read_size, weight_size, written_size, transposed=is_transposed)
    elif isinstance(module, nn.Linear):
        flop = 2 * written[0].numel() * module.in_features
    return int(flop), read_bytes(module, inputs) + own_bytes(module, inputs) + bytes_of(output)


def read_bytes(module: nn.Module, inputs: Any) -> int:
    """Bytes of its inputs that a layer looks at: of a convolution's only what some output needs, so that a strided 1×1
    kernel skips most of it."""
    read = tensors(inputs)
    if not isinstance(module, _ConvNd) or isinstance(module, _ConvTransposeNd) or not read:
        return bytes_of(inputs)
    if isinstance(module.padding, str) or read[0].dim() != module.weight.dim():
        return bytes_of(inputs)
    sizes = list(read[0].shape)
    axes = zip(sizes[2:], module.kernel_size, module.stride, module.padding, module.dilation)
    seen = sizes[0] * sizes[1] * prod(read_positions(*axis) for axis in axes)
    return bytes_of(inputs) - (read[0].numel() - seen) * read[0].element_size()


def own_bytes(module: nn.Module, inputs: Any) -> int:
    """Bytes of the module's own tensors that one call has to read: all, but of an embedding the rows looked up."""
    held: list[Tensor] = [*module.parameters(), *module.buffers()]
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and (indices := tensors(inputs)):
        return min(bytes_of(held), indices[0].numel() * module.embedding_dim * module.weight.element_size())
    return bytes_of(held)


def bytes_of(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(value))
