"""Attention over 1,024 tokens becomes fused attention."""

import torch

REMEDIES, WORD = {"fuse-attention"}, "faster"


class Attention(torch.nn.Module):
    """Self-attention of eight heads, four times."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.is_fused = is_fused
        self.inputs = torch.nn.ModuleList(torch.nn.Linear(256, 768) for _ in range(4))

    def forward(self, x):
        for project in self.inputs:
            q, k, v = (part.unflatten(-1, (8, 32)).transpose(1, 2) for part in project(x).chunk(3, dim=-1))
            if self.is_fused:
                x = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            else:
                x = ((q @ k.transpose(-1, -2)) / 32**0.5).softmax(-1) @ v
            x = x.transpose(1, 2).flatten(2)
        return x


def before(batch_size=1):
    return Attention(False).eval(), torch.randn(batch_size, 1024, 256)


def after(batch_size=1):
    return Attention(True).eval(), torch.randn(batch_size, 1024, 256)
