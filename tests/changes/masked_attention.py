"""Attention with a mask, written out, becomes fused attention."""

import torch

REMEDIES, WORD = {"fuse-attention"}, "faster"


class Work(torch.nn.Module):
    """Self-attention of eight heads with a mask, three times."""

    def __init__(self, is_changed: bool) -> None:
        super().__init__()
        self.is_changed = is_changed
        self.register_buffer("mask", torch.zeros(384, 384).masked_fill(torch.rand(384, 384) < 0.1, -1e9))

    def forward(self, x):
        return self.changed(x) if self.is_changed else self.as_it_was(x)

    def as_it_was(self, x):
        for _ in range(3):
            scores = (x @ x.transpose(-1, -2)) / 8.0
            x = torch.softmax(scores + self.mask, -1) @ x
        return x

    def changed(self, x):
        for _ in range(3):
            x = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)
        return x


def before(batch_size=2):
    return Work(False).eval(), torch.randn(batch_size, 8, 384, 64)


def after(batch_size=2):
    return Work(True).eval(), torch.randn(batch_size, 8, 384, 64)
