"""A normalisation in six operators becomes one."""

import torch

REMEDIES, WORD = {"fuse-elementwise"}, "faster"


class Chain(torch.nn.Module):
    """Layer normalisation, spelled out or as one operator, after each of four products."""

    def __init__(self, is_fused: bool) -> None:
        super().__init__()
        self.is_fused = is_fused
        self.products = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(4))

    def forward(self, x):
        for product in self.products:
            x = product(x)
            if self.is_fused:
                x = torch.nn.functional.layer_norm(x, (256,))
            else:
                x = (d := x - x.mean(-1, keepdim=True)) / torch.sqrt((d * d).mean(-1, keepdim=True) + 1e-5)
        return x


def before(batch_size=2048):
    return Chain(False).eval(), torch.randn(batch_size, 256)


def after(batch_size=2048):
    return Chain(True).eval(), torch.randn(batch_size, 256)
