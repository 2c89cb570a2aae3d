"""``run`` → capture: a small GPT-style transformer, with prefill and decode as separate phases.

Attention, residual additions and the cache update are modules of their own, so that every kernel falls
into a layer. Shapes: tokens ``(batch, length)`` int64, logits ``(batch, vocabulary)`` of the last position.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xsp_post.workload.vision import Add

WIDTH, HEAD_COUNT, VOCABULARY, CONTEXT = 256, 4, 8192, 512


class Cache(nn.Module):
    """Keys and values of the tokens seen so far; ``forward`` appends and returns all of them.

    Preallocated at the first prefill, so that a decode step moves its own token only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def forward(self, keys: Tensor, values: Tensor, position: int) -> tuple[Tensor, Tensor]:
        batch, heads, length, width = keys.shape
        if (
            self.keys is None
            or self.values is None
            or self.keys.shape[0] != batch
            or (self.keys.device != keys.device or self.keys.dtype != keys.dtype)
        ):
            self.keys = keys.new_zeros(batch, heads, CONTEXT, width)
            self.values = keys.new_zeros(batch, heads, CONTEXT, width)
        self.keys[:, :, position : position + length] = keys
        self.values[:, :, position : position + length] = values
        return self.keys[:, :, : position + length], self.values[:, :, : position + length]


class ScaledDotProductAttention(nn.Module):
    """Attention of the newest tokens on all cached ones: ``(batch, heads, length, width)``."""

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        is_prefill = queries.shape[2] > 1
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=is_prefill)


class SelfAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.cache = Cache()
        self.attention = ScaledDotProductAttention()
        self.projection = nn.Linear(width, width)

    def forward(self, x: Tensor, position: int) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, HEAD_COUNT, width // HEAD_COUNT)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        keys, values = self.cache(keys, values, position)
        mixed = self.attention(queries, keys, values)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width)
        self.add1 = Add()
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.add2 = Add()

    def forward(self, x: Tensor, position: int) -> Tensor:
        x = self.add1(x, self.attention(self.norm1(x), position))
        return self.add2(x, self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Decoder-only transformer with a key/value cache."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.add = Add()
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, position: int = 0) -> Tensor:
        length = tokens.shape[1]
        places = torch.arange(position, position + length, device=tokens.device)
        x = self.add(self.tokens(tokens), self.positions(places))
        for block in self.blocks:
            x = block(x, position)
        return self.head(self.norm(x[:, -1:]))[:, 0]
