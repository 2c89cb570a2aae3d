"""ELU by masks becomes one operator."""

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
            x = torch.nn.functional.elu(x) if self.is_fused else self.by_hand(x)
        return x

    def by_hand(self, x):
        return torch.where(x > 0, x, torch.exp(torch.clamp(x, max=0)) - 1) * 1.0


def before(batch_size=8192):
    return Chain(False).eval(), torch.randn(batch_size, 64)


def after(batch_size=8192):
    return Chain(True).eval(), torch.randn(batch_size, 64)
