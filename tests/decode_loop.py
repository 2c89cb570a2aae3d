"""A small decoder with a cache of keys and values; each call is one decode step of another batch and context."""

from __future__ import annotations

from random import Random

import torch
from torch import nn

import xsp_post

WIDTH, HEADS, LAYERS, LONGEST, MOST = 256, 8, 4, 2048, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        products = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), *products)
        self.register_buffer("cache", torch.ones(2, MOST, HEADS, LONGEST, WIDTH // HEADS))

    def forward(self, x: torch.Tensor, context: int) -> torch.Tensor:
        batch = len(x)
        q, k, v = self.qkv(self.norm(x)).view(batch, 3, HEADS, 1, -1).unbind(1)
        self.cache[0, :batch, :, context - 1 : context] = k
        self.cache[1, :batch, :, context - 1 : context] = v
        keys, values = self.cache[:, :batch, :, :context]
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, keys, values).reshape(batch, -1))
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 4096)
        self.random = Random(seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, context = self.random.choice((1, 2, 4, 8, 12, 16)), int(16 * 128 ** self.random.random())
        with xsp_post.step("decode", tokens=1, context=[context] * batch):
            x = x[:batch]
            for block in self.blocks:
                x = block(x, context)
            return self.head(x).argmax(-1)


def build() -> tuple[Decoder, torch.Tensor]:
    """What `xsp-post run --model tests/decode_loop.py:build` measures."""
    torch.manual_seed(0)
    return Decoder(0).eval(), torch.randn(MOST, WIDTH)
