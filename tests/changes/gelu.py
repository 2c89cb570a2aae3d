"""GELU by its formula becomes one operator."""

import torch

REMEDIES, WORD = {"fuse-elementwise"}, "faster"


class Chain(torch.nn.Module):
    """The operation spelled out or as one operator, after each of four products."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.is_fused = is_fused
        self.products = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        for product in self.products:
            x = product(x)
            x = torch.nn.functional.gelu(x, approximate="tanh") if self.is_fused else self.by_hand(x)
        return x

    def by_hand(self, x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def before(batch_size=8192):
    return Chain(False).eval(), torch.randn(batch_size, 64)


def after(batch_size=8192):
    return Chain(True).eval(), torch.randn(batch_size, 64)
