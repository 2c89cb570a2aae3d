"""A chain of elementwise operators becomes one."""

import torch

REMEDIES, WORD = {"fuse-elementwise"}, "faster"


class Chain(torch.nn.Module):
    """The tanh form of GELU, spelled out or as one operator."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.is_fused = is_fused
        self.products = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(4))

    def forward(self, x):
        for product in self.products:
            x = product(x)
            if self.is_fused:
                x = torch.nn.functional.gelu(x, approximate="tanh")
            else:
                x = 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
        return x


def before(batch_size=2048):
    return Chain(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=2048):
    return Chain(True).eval(), torch.randn(batch_size, 256)
